//! Permits, handed out in the order in which they were asked for.
//!
//! One word says how many permits are free, whether anybody stands in line, and
//! whether the semaphore is closed:
//!
//! | `WAITERS` | who changes the number of permits                                  |
//! |-----------|--------------------------------------------------------------------|
//! | 0         | anybody, by compare-and-swap of the whole word                     |
//! | 1         | only who holds the lock of the line                                |
//!
//! A waiter sets `WAITERS` under the lock, in the same read-modify-write that
//! finds too few permits; so a release either comes before that and is seen by
//! it, or sees the bit and comes to the lock. From then on permits collect for
//! the first in line and nobody overtakes: that is FIFO, and `acquire_many` gets
//! all or nothing.
//!
//! Invariant 1: `WAITERS` is set while the line is not empty.
//! Invariant 2: with the lock free, the first in line wants more than there is.

use super::acquire::{Acquire, Closed, Waiting};
use super::permit::{
    AcquireError, AcquireTimeoutError, OwnedSemaphorePermit, Permit, SemaphorePermit,
    TryAcquireError,
};
use crate::fiber::WaitReason;
use crate::primitive::{AtomicUsize, Ordering, const_fn};
use crate::sched::polling;
use crate::sys::Lock;
use crate::time::Instant;
use crate::wait::node::{WaitList, Wakes};
use crate::wait::{Deadline, Pending, WaitOutcome, WaitSpec};
use crate::wait::{perform, point};
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

/// No more permits will be handed out.
pub(super) const CLOSED: usize = 1 << 0;
/// Somebody stands in line.
pub(super) const WAITERS: usize = 1 << 1;
/// One permit.
pub(super) const PERMIT: usize = 1 << 2;

/// A number of permits, to be taken and given back; FIFO.
///
/// `acquire` is a cancellation point: a fiber that is cancelled or times out
/// takes no permit along. Its name grows by what is wanted: `try_` in front;
/// then `_many` permits at once, `_owned` ones that borrow nothing, and a
/// `_timeout`, a `_deadline`, or `_async`, in this order.
///
/// ```
/// use sinew::sync::Semaphore;
///
/// let two = Semaphore::new(2);
/// let first = two.acquire().unwrap();
/// let second = two.try_acquire().unwrap();
/// assert!(two.try_acquire().is_err());
/// drop(first);
/// assert_eq!(two.available_permits(), 1);
/// # drop(second);
/// ```
pub struct Semaphore {
    /// See the module header.
    pub(super) word: AtomicUsize,
    pub(super) line: Lock<WaitList<Waiting>>,
}

impl Semaphore {
    /// The most permits there can be.
    pub const MAX_PERMITS: usize = usize::MAX >> 3;

    const_fn! {
        /// A semaphore with this many permits.
        ///
        /// # Panics
        ///
        /// If that is more than [`MAX_PERMITS`](Self::MAX_PERMITS).
        #[track_caller]
        pub const fn new(permits: usize) -> Self {
            assert!(permits <= Self::MAX_PERMITS, "more than MAX_PERMITS");
            Self {
                word: AtomicUsize::new(permits * PERMIT),
                line: Lock::new(WaitList::new()),
            }
        }
    }

    /// How many permits could be had at this moment.
    pub fn available_permits(&self) -> usize {
        // Relaxed: a number that may be old when it is read.
        self.word.load(Ordering::Relaxed) / PERMIT
    }

    /// Waits for one permit; a cancellation point.
    ///
    /// # Errors
    ///
    /// [`AcquireError`] if the semaphore is closed, or the fiber was cancelled.
    #[track_caller]
    pub fn acquire(&self) -> Result<SemaphorePermit<'_>, AcquireError> {
        self.acquire_many(1)
    }

    /// Waits for `permits` at once: all or none; a cancellation point.
    ///
    /// Those who come later wait for this one, also if what they want is there.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    #[track_caller]
    pub fn acquire_many(&self, permits: usize) -> Result<SemaphorePermit<'_>, AcquireError> {
        point::check()?;
        match self.take_by(permits, None, Location::caller()) {
            Ok(()) => Ok(Permit::of(self, permits)),
            Err(error) => Err(error.without_time()),
        }
    }

    /// Takes one permit if that needs no waiting.
    ///
    /// A loop of failing tries is a place where other fibers may run: every 64th in one turn
    /// of a fiber yields.
    ///
    /// # Errors
    ///
    /// [`TryAcquireError`] if there is none, somebody stands in line for one, or
    /// the semaphore is closed.
    pub fn try_acquire(&self) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        self.try_acquire_many(1)
    }

    /// Takes `permits` if that needs no waiting.
    ///
    /// A loop of failing tries is a place where other fibers may run: every 64th in one turn
    /// of a fiber yields.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire).
    pub fn try_acquire_many(&self, permits: usize) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        polling::tried_ok(self.try_take(permits))?;
        Ok(Permit::of(self, permits))
    }

    /// As [`acquire`](Self::acquire), but waits for `timeout` at most.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sinew::sync::{AcquireTimeoutError, Semaphore};
    ///
    /// let none = Semaphore::new(0);
    /// let outcome = none.acquire_timeout(Duration::from_millis(1));
    /// assert_eq!(outcome.unwrap_err(), AcquireTimeoutError::Timeout);
    /// ```
    ///
    /// # Errors
    ///
    /// [`AcquireTimeoutError`] also if the time was over first.
    #[track_caller]
    pub fn acquire_timeout(
        &self,
        timeout: Duration,
    ) -> Result<SemaphorePermit<'_>, AcquireTimeoutError> {
        self.acquire_many_timeout(1, timeout)
    }

    /// As [`acquire_many`](Self::acquire_many), but waits for `timeout` at most.
    ///
    /// # Errors
    ///
    /// As [`acquire_timeout`](Self::acquire_timeout).
    #[track_caller]
    pub fn acquire_many_timeout(
        &self,
        permits: usize,
        timeout: Duration,
    ) -> Result<SemaphorePermit<'_>, AcquireTimeoutError> {
        point::check()?;
        self.take_by(permits, Deadline::after(timeout), Location::caller())?;
        Ok(Permit::of(self, permits))
    }

    /// As [`acquire`](Self::acquire), but waits until `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`acquire_timeout`](Self::acquire_timeout).
    #[track_caller]
    pub fn acquire_deadline(
        &self,
        deadline: Instant,
    ) -> Result<SemaphorePermit<'_>, AcquireTimeoutError> {
        self.acquire_many_deadline(1, deadline)
    }

    /// As [`acquire_many`](Self::acquire_many), but waits until `deadline` at
    /// most.
    ///
    /// # Errors
    ///
    /// As [`acquire_timeout`](Self::acquire_timeout).
    #[track_caller]
    pub fn acquire_many_deadline(
        &self,
        permits: usize,
        deadline: Instant,
    ) -> Result<SemaphorePermit<'_>, AcquireTimeoutError> {
        point::check()?;
        self.take_by(permits, Some(deadline.deadline()), Location::caller())?;
        Ok(Permit::of(self, permits))
    }

    /// Waits for one permit in async code, under any executor.
    ///
    /// A future that is dropped takes no permit along.
    pub fn acquire_async(
        &self,
    ) -> impl Future<Output = Result<SemaphorePermit<'_>, AcquireError>> + Send + '_ {
        self.acquire_many_async(1)
    }

    /// As [`acquire_many`](Self::acquire_many), in async code.
    pub fn acquire_many_async(
        &self,
        permits: usize,
    ) -> impl Future<Output = Result<SemaphorePermit<'_>, AcquireError>> + Send + '_ {
        let pending = Pending::new(Acquire::new(self, permits));
        async move {
            match pending.await {
                Ok(()) => Ok(Permit::of(self, permits)),
                Err(Closed) => Err(AcquireError::Closed),
            }
        }
    }

    /// As [`acquire`](Self::acquire), with a permit that borrows nothing.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use sinew::sync::Semaphore;
    ///
    /// sinew::run(|| {
    ///     let slots = Arc::new(Semaphore::new(1));
    ///     let permit = slots.clone().acquire_owned().unwrap();
    ///     let worker = sinew::spawn(move || drop(permit));
    ///     assert!(slots.acquire().is_ok()); // once the worker has dropped its own
    ///     worker.join().unwrap();
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    #[track_caller]
    pub fn acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, AcquireError> {
        self.acquire_many_owned(1)
    }

    /// As [`acquire_many`](Self::acquire_many), with a permit that borrows
    /// nothing.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    #[track_caller]
    pub fn acquire_many_owned(
        self: Arc<Self>,
        permits: usize,
    ) -> Result<OwnedSemaphorePermit, AcquireError> {
        point::check()?;
        match self.take_by(permits, None, Location::caller()) {
            Ok(()) => Ok(Permit::of(self, permits)),
            Err(error) => Err(error.without_time()),
        }
    }

    /// As [`try_acquire`](Self::try_acquire), with a permit that borrows nothing; every 64th
    /// failing try in one turn of a fiber yields here, too.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire).
    pub fn try_acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        self.try_acquire_many_owned(1)
    }

    /// As [`try_acquire_many`](Self::try_acquire_many), with a permit that borrows nothing;
    /// every 64th failing try in one turn of a fiber yields here, too.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire).
    pub fn try_acquire_many_owned(
        self: Arc<Self>,
        permits: usize,
    ) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        polling::tried_ok(self.try_take(permits))?;
        Ok(Permit::of(self, permits))
    }

    /// As [`acquire_timeout`](Self::acquire_timeout), with a permit that borrows
    /// nothing.
    ///
    /// # Errors
    ///
    /// As [`acquire_timeout`](Self::acquire_timeout).
    #[track_caller]
    pub fn acquire_owned_timeout(
        self: Arc<Self>,
        timeout: Duration,
    ) -> Result<OwnedSemaphorePermit, AcquireTimeoutError> {
        self.acquire_many_owned_timeout(1, timeout)
    }

    /// As [`acquire_many_timeout`](Self::acquire_many_timeout), with a permit that
    /// borrows nothing.
    ///
    /// # Errors
    ///
    /// As [`acquire_timeout`](Self::acquire_timeout).
    ///
    /// ```
    /// use sinew::sync::Semaphore;
    /// use std::{sync::Arc, time::Duration};
    ///
    /// let two = Arc::new(Semaphore::new(2));
    /// let three = two.acquire_many_owned_timeout(3, Duration::from_millis(1));
    /// assert!(three.is_err());
    /// ```
    #[track_caller]
    pub fn acquire_many_owned_timeout(
        self: Arc<Self>,
        permits: usize,
        timeout: Duration,
    ) -> Result<OwnedSemaphorePermit, AcquireTimeoutError> {
        point::check()?;
        self.take_by(permits, Deadline::after(timeout), Location::caller())?;
        Ok(Permit::of(self, permits))
    }

    /// As [`acquire_deadline`](Self::acquire_deadline), with a permit that borrows
    /// nothing.
    ///
    /// # Errors
    ///
    /// As [`acquire_timeout`](Self::acquire_timeout).
    ///
    /// ```
    /// use sinew::{sync::Semaphore, time::Instant};
    /// use std::sync::Arc;
    ///
    /// let one = Arc::new(Semaphore::new(1));
    /// assert!(one.acquire_owned_deadline(Instant::now()).is_ok());
    /// ```
    #[track_caller]
    pub fn acquire_owned_deadline(
        self: Arc<Self>,
        deadline: Instant,
    ) -> Result<OwnedSemaphorePermit, AcquireTimeoutError> {
        self.acquire_many_owned_deadline(1, deadline)
    }

    /// As [`acquire_many_deadline`](Self::acquire_many_deadline), with a permit
    /// that borrows nothing.
    ///
    /// # Errors
    ///
    /// As [`acquire_timeout`](Self::acquire_timeout).
    ///
    /// ```
    /// use sinew::{sync::Semaphore, time::Instant};
    /// use std::sync::Arc;
    ///
    /// let one = Arc::new(Semaphore::new(1));
    /// assert!(one.acquire_many_owned_deadline(2, Instant::now()).is_err());
    /// ```
    #[track_caller]
    pub fn acquire_many_owned_deadline(
        self: Arc<Self>,
        permits: usize,
        deadline: Instant,
    ) -> Result<OwnedSemaphorePermit, AcquireTimeoutError> {
        point::check()?;
        self.take_by(permits, Some(deadline.deadline()), Location::caller())?;
        Ok(Permit::of(self, permits))
    }

    /// As [`acquire_async`](Self::acquire_async), with a permit that borrows
    /// nothing.
    pub fn acquire_owned_async(
        self: Arc<Self>,
    ) -> impl Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send {
        self.acquire_many_owned_async(1)
    }

    /// As [`acquire_many_async`](Self::acquire_many_async), with a permit that
    /// borrows nothing.
    pub fn acquire_many_owned_async(
        self: Arc<Self>,
        permits: usize,
    ) -> impl Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send {
        let pending = Pending::new(Acquire::new(self.clone(), permits));
        async move {
            match pending.await {
                Ok(()) => Ok(Permit::of(self, permits)),
                Err(Closed) => Err(AcquireError::Closed),
            }
        }
    }

    /// Adds permits; those who wait get theirs first.
    ///
    /// # Panics
    ///
    /// If there were more than [`MAX_PERMITS`](Self::MAX_PERMITS) then.
    #[track_caller]
    pub fn add_permits(&self, permits: usize) {
        assert!(
            permits <= Self::MAX_PERMITS && self.available_permits() <= Self::MAX_PERMITS - permits,
            "more than MAX_PERMITS"
        );
        self.give(permits);
    }

    /// Takes up to `permits` of those that are free out of circulation, and says
    /// how many.
    ///
    /// ```
    /// let semaphore = sinew::sync::Semaphore::new(3);
    /// assert_eq!(semaphore.forget_permits(2), 2);
    /// assert_eq!(semaphore.forget_permits(2), 1);
    /// ```
    pub fn forget_permits(&self, permits: usize) -> usize {
        // Under the lock, so that it does not matter whether somebody waits.
        let _line = self.line.lock();
        let mut now = self.word.load(Ordering::Relaxed);
        loop {
            let taken = permits.min(now / PERMIT);
            // Acquire: as in `try_take`: what came before the permits is seen.
            match self.word.compare_exchange_weak(
                now,
                now - taken * PERMIT,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return taken,
                Err(seen) => now = seen,
            }
        }
    }

    /// Refuses all who wait, and all who come; permits can still be given back.
    pub fn close(&self) {
        let mut wakes = Wakes::new();
        {
            let mut line = self.line.lock();
            // Release: who is refused sees what came before; pairs with the
            // Acquire in `try_take` and `is_closed`.
            self.word.fetch_or(CLOSED, Ordering::Release);
            line.claim_all(&mut wakes);
            // Relaxed: only under the lock.
            self.word.fetch_and(!WAITERS, Ordering::Relaxed);
        }
        wakes.fire();
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.word.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Takes permits if nobody waits.
    #[inline]
    pub(super) fn try_take(&self, permits: usize) -> Result<(), TryAcquireError> {
        let mut now = self.word.load(Ordering::Acquire);
        loop {
            if now & CLOSED != 0 {
                return Err(TryAcquireError::Closed);
            }
            if now & WAITERS != 0 || now / PERMIT < permits {
                return Err(TryAcquireError::NoPermits);
            }
            // Acquire: what the former holder did comes before; pairs with the
            // Release in `give`.
            match self.word.compare_exchange_weak(
                now,
                now - permits * PERMIT,
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => return Ok(()),
                Err(seen) => now = seen,
            }
        }
    }

    fn take_by(
        &self,
        permits: usize,
        deadline: Option<Deadline>,
        at: &'static Location<'static>,
    ) -> Result<(), AcquireTimeoutError> {
        match self.try_take(permits) {
            Ok(()) => return Ok(()),
            Err(TryAcquireError::Closed) => return Err(AcquireTimeoutError::Closed),
            Err(TryAcquireError::NoPermits) => {}
        }
        let spec = WaitSpec::new(WaitReason::Semaphore, at)
            .deadline(deadline)
            .cancellable();
        match perform(&Acquire::new(self, permits), &spec) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Closed)) => Err(AcquireTimeoutError::Closed),
            Err(WaitOutcome::Cancelled) => Err(AcquireTimeoutError::Cancelled),
            Err(_) => Err(AcquireTimeoutError::Timeout),
        }
    }

    /// Gives permits back, to those who wait or to the word.
    #[inline]
    pub(super) fn give(&self, permits: usize) {
        let mut now = self.word.load(Ordering::Relaxed);
        while now & WAITERS == 0 {
            // Release: the next holder sees what we did; pairs with `try_take`.
            match self.word.compare_exchange_weak(
                now,
                plus(now, permits),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(seen) => now = seen,
            }
        }
        self.give_slow(permits);
    }

    #[cold]
    fn give_slow(&self, permits: usize) {
        let mut wakes = Wakes::new();
        {
            let mut line = self.line.lock();
            let mut now = self.word.load(Ordering::Relaxed);
            // Release: as in `give`; those in line are ordered by the lock.
            while let Err(seen) = self.word.compare_exchange_weak(
                now,
                plus(now, permits),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                now = seen;
            }
            self.serve(&mut line, &mut wakes);
        }
        wakes.fire();
    }

    /// Serves those in line for whom there are permits (invariant 2).
    pub(super) fn serve(&self, line: &mut WaitList<Waiting>, wakes: &mut Wakes) {
        while let Some(first) = line.front() {
            let wanted = first.wanted;
            // Relaxed: WAITERS is set, so only we change it, under the lock.
            if self.word.load(Ordering::Relaxed) / PERMIT < wanted {
                return;
            }
            let place = line.pop_front().expect("there is a first");
            // SAFETY: it was linked, and we hold the lock.
            let place = unsafe { place.as_ref() };
            // SAFETY: as above; if the claim is lost its waiter comes for this
            // lock before it goes.
            if let Some(wakeup) = unsafe { place.node.claim() } {
                place.granted.set(true);
                self.word.fetch_sub(wanted * PERMIT, Ordering::Relaxed);
                // SAFETY: claimed just now, under the lock.
                unsafe { wakes.add(&place.node, wakeup) };
            }
        }
        // Relaxed: whoever stands in line next does so under the lock.
        self.word.fetch_and(!WAITERS, Ordering::Relaxed);
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("available_permits", &self.available_permits())
            .field("is_closed", &self.is_closed())
            .finish()
    }
}

/// The word with so many permits more, up to the most there can be: more could
/// only come of permits that were added while others were out.
#[inline]
fn plus(word: usize, permits: usize) -> usize {
    let sum = (word / PERMIT + permits).min(Semaphore::MAX_PERMITS);
    word % PERMIT + sum * PERMIT
}
