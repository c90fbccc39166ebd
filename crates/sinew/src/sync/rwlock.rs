//! Many readers or one writer, in the order of arrival.
//!
//! One word says who holds the lock and whether anybody stands in line:
//!
//! | `WRITER` | readers | `WAITERS` | meaning                                     |
//! |----------|---------|-----------|---------------------------------------------|
//! | 0        | 0       | 0         | free                                        |
//! | 0        | n       | 0         | n readers; more may come                    |
//! | 0        | n       | 1         | n readers, and the first in line is a writer |
//! | 1        | 0       | 0         | a writer                                    |
//! | 1        | 0       | 1         | a writer, and anybody in line               |
//! | 0        | 0       | 1         | the last reader left, and is about to serve |
//!
//! Who finds `WAITERS` set stands in line: a reader that comes after a writer
//! waits for it, so writers do not starve. Whoever gives the lock up serves the
//! line from the front: one writer, or all readers up to the next writer. So
//! readers that came before a writer go before it and do not starve either.
//!
//! The lock is handed over: who serves changes the word for those whose wait it
//! ends, under the lock of the line, so that nobody gets in between and a waiter
//! that was woken never has to look again. So that a line that has once formed
//! goes away again, who comes holds back a little before it stands in it (see
//! `sync::linger`); it counts as waiting from then on.
//!
//! Only the owner of a share of the lock takes it off the word. A reader does so
//! without the lock of the line; the last one, if it sees `WAITERS`, comes to
//! serve. A waiter sets `WAITERS` in the same read-modify-write that finds the
//! lock taken: so the last reader either is seen to have left, or sees the bit.
//!
//! Invariant 1 (shares): a guard stands for one share of the word, `WRITER` or
//! one reader, and never both kinds are there.
//! Invariant 2 (bit): `WAITERS` is changed only under the lock of the line, and
//! with that lock free it is set exactly if the line is not empty.
//! Invariant 3 (front): with the lock of the line free the first in line cannot
//! be served, or the last reader is on its way to do it.
//! Invariant 4 (closed): while `WAITERS` is set shares are added only under the
//! lock of the line.

use super::error::{TimedOut, TryLockError};
use super::linger::linger;
use super::rwlock_guard::{RwLockReadGuard, RwLockWriteGuard};
use crate::error::Cancelled;
use crate::fiber::WaitReason;
use crate::primitive::{AtomicUsize, Ordering, const_fn};
use crate::sys::Lock;
use crate::time::Instant;
use crate::wait::node::{Node, Place, WaitList, Wakes};
use crate::wait::{Deadline, Enlisted, Operation, Pending, WaitOutcome, WaitSpec, Waiter};
use crate::wait::{perform, point};
use std::cell::UnsafeCell;
use std::fmt;
use std::panic::Location;
use std::time::Duration;

/// A writer's share.
const WRITER: usize = 1 << 0;
/// Somebody stands in line.
const WAITERS: usize = 1 << 1;
/// One reader's share.
const READER: usize = 1 << 2;
/// So many readers that only leaked guards can be the reason: no more may come.
/// (Those in line still may: they are too few to overflow.)
const TOO_MANY: usize = 1 << (usize::BITS - 1);

/// A lock that many readers or one writer may hold.
///
/// Waiting parks the fiber, thread or task, not the worker. Writers have
/// priority: while one waits no new reader gets in. What was held when a fiber
/// panics is just unlocked: there is no poisoning. Waiting is no cancellation
/// point, except in [`read_or_cancelled`](Self::read_or_cancelled) and
/// [`write_or_cancelled`](Self::write_or_cancelled).
///
/// Who holds a read lock and asks for another may wait for ever: for a writer
/// that came in between, and waits for the first.
///
/// ```
/// use sinew::sync::RwLock;
///
/// let lock = RwLock::new(vec![1, 2]);
/// {
///     let first = lock.read();
///     let second = lock.read();
///     assert_eq!(first.len() + second.len(), 4);
///     assert!(lock.try_write().is_err());
/// }
/// lock.write().push(3);
/// assert_eq!(lock.into_inner(), [1, 2, 3]);
/// ```
pub struct RwLock<T: ?Sized> {
    pub(super) raw: Raw,
    /// Shared with those who have a reader's share, owned by who has the
    /// writer's (invariant 1).
    pub(super) value: UnsafeCell<T>,
}

// SAFETY: a lock owns its value, and nothing in it is bound to a thread.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}
// SAFETY: through a shared lock one thread after the other gets `&mut T`, which
// asks for `Send`, and several at a time get `&T`, which asks for `Sync`; never
// both at once (invariant 1).
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

impl<T> RwLock<T> {
    const_fn! {
        /// A lock around `value`, held by nobody.
        pub const fn new(value: T) -> Self {
            Self {
                raw: Raw::new(),
                value: UnsafeCell::new(value),
            }
        }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// The value, without locking: there is no other user.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Waits until there is no writer, neither inside nor in line, and reads.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.raw.wait_for_ever(READER, Location::caller());
        // SAFETY: a reader's share was just taken.
        unsafe { RwLockReadGuard::of(self) }
    }

    /// Waits until nobody else is inside, and writes.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.raw.wait_for_ever(WRITER, Location::caller());
        // SAFETY: the writer's share was just taken.
        unsafe { RwLockWriteGuard::of(self) }
    }

    /// Reads if that needs no waiting.
    ///
    /// # Errors
    ///
    /// [`TryLockError`] if a writer is inside or in line.
    #[inline]
    pub fn try_read(&self) -> Result<RwLockReadGuard<'_, T>, TryLockError> {
        if !self.raw.try_take(READER) {
            return Err(TryLockError::WouldBlock);
        }
        // SAFETY: a reader's share was just taken.
        Ok(unsafe { RwLockReadGuard::of(self) })
    }

    /// Writes if that needs no waiting.
    ///
    /// # Errors
    ///
    /// [`TryLockError`] if anybody is inside or in line.
    #[inline]
    pub fn try_write(&self) -> Result<RwLockWriteGuard<'_, T>, TryLockError> {
        if !self.raw.try_take(WRITER) {
            return Err(TryLockError::WouldBlock);
        }
        // SAFETY: the writer's share was just taken.
        Ok(unsafe { RwLockWriteGuard::of(self) })
    }

    /// As [`read`](Self::read), but waits for `timeout` at most.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sinew::sync::{RwLock, TimedOut};
    ///
    /// let lock = RwLock::new(());
    /// let writer = lock.write();
    /// assert_eq!(lock.read_timeout(Duration::from_millis(1)).unwrap_err(), TimedOut);
    /// # drop(writer);
    /// ```
    ///
    /// # Errors
    ///
    /// [`TimedOut`] if the time was over first.
    #[track_caller]
    pub fn read_timeout(&self, timeout: Duration) -> Result<RwLockReadGuard<'_, T>, TimedOut> {
        self.raw
            .wait_until(READER, || Deadline::after(timeout), Location::caller())?;
        // SAFETY: a reader's share was just taken.
        Ok(unsafe { RwLockReadGuard::of(self) })
    }

    /// As [`write`](Self::write), but waits for `timeout` at most.
    ///
    /// Readers that waited for this writer get in when it gives up.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sinew::sync::{RwLock, TimedOut};
    ///
    /// let lock = RwLock::new(());
    /// let reader = lock.read();
    /// assert_eq!(lock.write_timeout(Duration::from_millis(1)).unwrap_err(), TimedOut);
    /// assert!(lock.try_read().is_ok());
    /// # drop(reader);
    /// ```
    ///
    /// # Errors
    ///
    /// [`TimedOut`] if the time was over first.
    #[track_caller]
    pub fn write_timeout(&self, timeout: Duration) -> Result<RwLockWriteGuard<'_, T>, TimedOut> {
        self.raw
            .wait_until(WRITER, || Deadline::after(timeout), Location::caller())?;
        // SAFETY: the writer's share was just taken.
        Ok(unsafe { RwLockWriteGuard::of(self) })
    }

    /// As [`read`](Self::read), but waits until `deadline` at most.
    ///
    /// # Errors
    ///
    /// [`TimedOut`] if the time was over first.
    #[track_caller]
    pub fn read_deadline(&self, deadline: Instant) -> Result<RwLockReadGuard<'_, T>, TimedOut> {
        self.raw
            .wait_until(READER, || Some(deadline.deadline()), Location::caller())?;
        // SAFETY: a reader's share was just taken.
        Ok(unsafe { RwLockReadGuard::of(self) })
    }

    /// As [`write`](Self::write), but waits until `deadline` at most.
    ///
    /// # Errors
    ///
    /// [`TimedOut`] if the time was over first.
    #[track_caller]
    pub fn write_deadline(&self, deadline: Instant) -> Result<RwLockWriteGuard<'_, T>, TimedOut> {
        self.raw
            .wait_until(WRITER, || Some(deadline.deadline()), Location::caller())?;
        // SAFETY: the writer's share was just taken.
        Ok(unsafe { RwLockWriteGuard::of(self) })
    }

    /// As [`read`](Self::read), but a cancellation point.
    ///
    /// # Errors
    ///
    /// [`Cancelled`] if the fiber was cancelled, before or during the wait.
    #[track_caller]
    pub fn read_or_cancelled(&self) -> Result<RwLockReadGuard<'_, T>, Cancelled> {
        self.raw.wait_or_cancelled(READER, Location::caller())?;
        // SAFETY: a reader's share was just taken.
        Ok(unsafe { RwLockReadGuard::of(self) })
    }

    /// As [`write`](Self::write), but a cancellation point.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use sinew::sync::RwLock;
    ///
    /// sinew::run(|| {
    ///     let lock = Arc::new(RwLock::new(()));
    ///     let reader = lock.read();
    ///     let writer = sinew::spawn({
    ///         let lock = lock.clone();
    ///         move || lock.write_or_cancelled().is_err()
    ///     });
    ///     while writer.fiber().wait_reason() != sinew::WaitReason::RwLock {
    ///         sinew::yield_now();
    ///     }
    ///     writer.cancel();
    ///     assert!(writer.join().unwrap());
    ///     # drop(reader);
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// [`Cancelled`] if the fiber was cancelled, before or during the wait.
    #[track_caller]
    pub fn write_or_cancelled(&self) -> Result<RwLockWriteGuard<'_, T>, Cancelled> {
        self.raw.wait_or_cancelled(WRITER, Location::caller())?;
        // SAFETY: the writer's share was just taken.
        Ok(unsafe { RwLockWriteGuard::of(self) })
    }

    /// As [`read`](Self::read), in async code, under any executor.
    ///
    /// A future that is dropped while it waits leaves the line; one that was
    /// let in and is dropped unlocks again.
    pub fn read_async(&self) -> impl Future<Output = RwLockReadGuard<'_, T>> {
        let pending = Pending::new(Share::new(&self.raw, READER));
        async move {
            pending.await;
            // SAFETY: a reader's share was just taken.
            unsafe { RwLockReadGuard::of(self) }
        }
    }

    /// As [`write`](Self::write), in async code, under any executor.
    ///
    /// A future that is dropped while it waits leaves the line; one that was
    /// let in and is dropped unlocks again.
    ///
    /// ```
    /// let lock = sinew::sync::RwLock::new(1);
    /// sinew::block_on(async {
    ///     *lock.write_async().await += 1;
    ///     assert_eq!(*lock.read_async().await, 2);
    /// });
    /// ```
    pub fn write_async(&self) -> impl Future<Output = RwLockWriteGuard<'_, T>> {
        let pending = Pending::new(Share::new(&self.raw, WRITER));
        async move {
            pending.await;
            // SAFETY: the writer's share was just taken.
            unsafe { RwLockWriteGuard::of(self) }
        }
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("RwLock");
        match self.try_read() {
            Ok(value) => fields.field("value", &&*value),
            Err(_) => fields.field("value", &format_args!("<locked>")),
        };
        fields.finish()
    }
}

/// The lock without what it protects.
pub(super) struct Raw {
    /// See the module header.
    word: AtomicUsize,
    line: Lock<WaitList<Waiting>>,
}

/// One place in the line.
#[repr(C)]
struct Waiting {
    node: Node,
    /// The share that is waited for: `READER` or `WRITER`.
    share: usize,
}

// SAFETY: `repr(C)`, and the node is first.
unsafe impl Place for Waiting {
    fn node(&self) -> &Node {
        &self.node
    }
}

/// Whether a share can be added to those that `held` says; `WAITERS` in it is
/// no obstacle.
fn fits(share: usize, held: usize) -> bool {
    if share == WRITER {
        held & !WAITERS == 0
    } else {
        held & WRITER == 0
    }
}

impl Raw {
    const_fn! {
        const fn new() -> Self {
            Self {
                word: AtomicUsize::new(0),
                line: Lock::new(WaitList::new()),
            }
        }
    }

    /// Takes a share if it can be had and nobody stands in line.
    #[inline]
    fn try_take(&self, share: usize) -> bool {
        // Relaxed: the exchange decides.
        let mut now = self.word.load(Ordering::Relaxed);
        while now & (WAITERS | TOO_MANY) == 0 && fits(share, now) {
            // Acquire: what the former holders did comes before; pairs with the
            // Release in `give_read`, `give_write`, `downgrade` and `serve`.
            match self.word.compare_exchange_weak(
                now,
                now + share,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(seen) => now = seen,
            }
        }
        false
    }

    #[inline]
    fn wait_for_ever(&self, share: usize, at: &'static Location<'static>) {
        if !self.try_take(share) {
            self.wait_for_ever_slow(share, at);
        }
    }

    #[cold]
    fn wait_for_ever_slow(&self, share: usize, at: &'static Location<'static>) {
        let outcome = self.wait(share, &WaitSpec::new(WaitReason::RwLock, at));
        debug_assert!(outcome.is_ok(), "nothing else can end the wait");
    }

    fn wait_until(
        &self,
        share: usize,
        deadline: impl FnOnce() -> Option<Deadline>,
        at: &'static Location<'static>,
    ) -> Result<(), TimedOut> {
        if self.try_take(share) {
            return Ok(());
        }
        let spec = WaitSpec::new(WaitReason::RwLock, at).deadline(deadline());
        self.wait(share, &spec).map_err(TimedOut::of)
    }

    fn wait_or_cancelled(
        &self,
        share: usize,
        at: &'static Location<'static>,
    ) -> Result<(), Cancelled> {
        point::check()?;
        if self.try_take(share) {
            return Ok(());
        }
        let spec = WaitSpec::new(WaitReason::RwLock, at).cancellable();
        self.wait(share, &spec).map_err(|_| Cancelled)
    }

    fn wait(&self, share: usize, spec: &WaitSpec<'_>) -> Result<(), WaitOutcome> {
        // Relaxed: only a guess; leaked guards do not come back.
        assert!(
            self.word.load(Ordering::Relaxed) & TOO_MANY == 0,
            "too many readers"
        );
        if linger(|| self.try_take(share)) {
            return Ok(());
        }
        perform(&Share::new(self, share), spec)
    }

    /// Gives a reader's share back.
    #[inline]
    pub(super) fn give_read(&self) {
        // Release: the next writer comes after what we read; pairs with
        // `try_take` and `serve`.
        let before = self.word.fetch_sub(READER, Ordering::Release);
        if before == READER | WAITERS {
            self.serve_and(0);
        }
    }

    /// Gives the writer's share back.
    #[inline]
    pub(super) fn give_write(&self) {
        // Release: the next holder sees what we wrote; pairs with `try_take`.
        let given = self
            .word
            .compare_exchange(WRITER, 0, Ordering::Release, Ordering::Relaxed);
        if given.is_err() {
            self.serve_and(WRITER);
        }
    }

    /// Makes a reader of the writer, and lets in those readers that are first
    /// in line.
    #[inline]
    pub(super) fn downgrade(&self) {
        // Release: the other readers see what we wrote; pairs with `try_take`.
        let changed =
            self.word
                .compare_exchange(WRITER, READER, Ordering::Release, Ordering::Relaxed);
        if changed.is_err() {
            self.serve_and(WRITER.wrapping_sub(READER));
        }
    }

    /// Gives up `less` of the word, which the caller holds, and serves the line.
    #[cold]
    fn serve_and(&self, less: usize) {
        let mut wakes = Wakes::new();
        self.serve(&mut self.line.lock(), less, &mut wakes);
        wakes.fire();
    }

    /// Serves those in line for whom there is room once `less` is given up
    /// (invariant 3).
    fn serve(&self, line: &mut WaitList<Waiting>, less: usize, wakes: &mut Wakes) {
        // Acquire: a writer that is let in comes after all that readers read
        // who have left; pairs with the Release in `give_read`. (A former writer
        // is ordered by the lock of the line, or is ourselves.)
        let seen = self.word.load(Ordering::Acquire);
        let mut held = seen.wrapping_sub(less) & !WAITERS;
        let after = loop {
            let Some(first) = line.front() else {
                break held;
            };
            let share = first.share;
            if !fits(share, held) {
                break held | WAITERS;
            }
            let place = line.pop_front().expect("there is a first");
            // SAFETY: it was linked, and we hold the lock.
            let place = unsafe { place.as_ref() };
            // SAFETY: as above; if the claim is lost its waiter comes for this
            // lock before it goes.
            if let Some(wakeup) = unsafe { place.node.claim() } {
                held += share;
                // SAFETY: claimed just now, under the lock.
                unsafe { wakes.add(&place.node, wakeup) };
            }
        };
        // Added, not stored: readers may have left since we looked. If they were
        // the last, and we leave WAITERS as it was, they come for the lock.
        //
        // Release: as in `give_write`; who is woken is ordered by its claim.
        let change = after.wrapping_sub(seen);
        if change != 0 {
            self.word.fetch_add(change, Ordering::Release);
        }
    }
}

/// One wait for a share.
struct Share<'a> {
    place: Waiting,
    raw: &'a Raw,
}

impl<'a> Share<'a> {
    fn new(raw: &'a Raw, share: usize) -> Self {
        let place = Waiting {
            node: Node::new(),
            share,
        };
        Self { place, raw }
    }
}

// SAFETY: the one place is linked only into the lock's own line, whose lock all
// claimants hold (`serve`), and `delist` takes.
unsafe impl Operation for Share<'_> {
    type Output = ();

    fn attempt(&self) -> Option<()> {
        self.raw.try_take(self.place.share).then_some(())
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<()> {
        let raw = self.raw;
        let mut line = raw.line.lock();
        // Relaxed: the exchanges decide.
        let mut now = raw.word.load(Ordering::Relaxed);
        // WAITERS changes only under the lock of the line (invariant 2).
        while now & WAITERS == 0 {
            let free = fits(self.place.share, now);
            let change = if free { self.place.share } else { WAITERS };
            // Acquire: as in `try_take`. For WAITERS Relaxed would do: the bit
            // sends others to the lock, which orders the rest.
            match raw.word.compare_exchange_weak(
                now,
                now + change,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                // It is waited for alone, not in a select, so that nobody else
                // can have claimed the waiter before.
                Ok(_) if free => return Enlisted::Done(()),
                Ok(_) => break,
                Err(seen) => now = seen,
            }
        }
        self.place.node.belongs_to(waiter, place);
        // SAFETY: the caller's promise.
        unsafe { line.push_back(&self.place) };
        Enlisted::Linked
    }

    fn delist(&self) -> bool {
        let mut wakes = Wakes::new();
        let linked = {
            let mut line = self.raw.line.lock();
            // SAFETY: linked only by `enlist`, into this list.
            let linked = unsafe { line.remove(&self.place) };
            if linked {
                // It may have been a writer with readers behind it.
                self.raw.serve(&mut line, 0, &mut wakes);
            }
            linked
        };
        wakes.fire();
        linked
    }

    fn accept(&self) -> Option<()> {
        Some(()) // who woke us has added our share
    }

    fn pass_on(&self) {
        if self.place.share == WRITER {
            self.raw.give_write();
        } else {
            self.raw.give_read();
        }
    }
}
