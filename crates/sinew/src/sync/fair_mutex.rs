//! Mutual exclusion in the order of arrival.
//!
//! This is what users see; how the lock is taken, handed over and reserved is
//! told in `sync::turns`.

use super::error::{TimedOut, TryLockError};
use super::ticket::Ticket;
use super::turns::{Turn, Turns};
use crate::error::Cancelled;
use crate::fiber::WaitReason;
use crate::primitive::const_fn;
use crate::sched::polling;
use crate::time::Instant;
use crate::wait::{Deadline, Pending, WaitSpec, point};
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::time::Duration;

/// A mutex that serves in the order of arrival.
///
/// Nobody overtakes: a fiber that unlocks and locks again waits for all who
/// came before. That costs a switch for each lock under contention, so use
/// `Mutex` unless the order matters.
///
/// [`ticket`](Self::ticket) locks in two steps: first take a place in the line,
/// then, later, wait for one's turn.
///
/// What was held when a fiber panics is just unlocked: there is no poisoning.
/// Waiting is no cancellation point, except in
/// [`lock_or_cancelled`](Self::lock_or_cancelled).
///
/// A fiber that holds it runs at least as urgently as the most urgent fiber that
/// waits for it (see [`Priority`](crate::Priority)); the order of the line stays
/// that of arrival.
///
/// ```
/// use std::sync::Arc;
/// use sinew::sync::FairMutex;
///
/// sinew::run(|| {
///     let log = Arc::new(FairMutex::new(Vec::new()));
///     let mut first = log.lock();
///     let mine = log.ticket(); // before the other fiber
///     let other = sinew::spawn({
///         let log = log.clone();
///         move || log.lock().push("other")
///     });
///     first.push("first");
///     drop(first);
///     mine.lock().push("mine");
///     other.join().unwrap();
///     assert_eq!(*log.lock(), ["first", "mine", "other"]);
/// });
/// ```
pub struct FairMutex<T: ?Sized> {
    pub(super) turns: Turns,
    /// Touched by who has the guard (`sync::turns`, invariant 1).
    value: UnsafeCell<T>,
}

// SAFETY: a mutex owns its value, and nothing in it is bound to a thread.
unsafe impl<T: ?Sized + Send> Send for FairMutex<T> {}
// SAFETY: through a shared mutex one thread after the other gets `&mut T`, never
// two at once (`sync::turns`, invariant 1): that asks for `Send`.
unsafe impl<T: ?Sized + Send> Sync for FairMutex<T> {}

impl<T> FairMutex<T> {
    const_fn! {
        /// A mutex around `value`, held by nobody.
        pub const fn new(value: T) -> Self {
            Self {
                turns: Turns::new(),
                value: UnsafeCell::new(value),
            }
        }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> FairMutex<T> {
    /// The value, without locking: there is no other user.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Whether somebody holds it, or has it reserved, at this moment.
    pub fn is_locked(&self) -> bool {
        self.turns.is_locked()
    }

    /// Waits for its turn, and locks.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> FairMutexGuard<'_, T> {
        if !self.turns.try_lock() {
            self.turns.lock_slow(Location::caller());
        }
        // SAFETY: locked just now.
        unsafe { FairMutexGuard::of(self) }
    }

    /// Locks if that needs no waiting.
    ///
    /// # Errors
    ///
    /// [`TryLockError`] if it is held, or reserved for somebody.
    ///
    /// A loop of failing tries is a place where other fibers may run: every 64th in one turn
    /// of a fiber yields.
    #[inline]
    pub fn try_lock(&self) -> Result<FairMutexGuard<'_, T>, TryLockError> {
        match self.try_quietly() {
            Some(guard) => Ok(guard),
            None => {
                polling::failed();
                Err(TryLockError::WouldBlock)
            }
        }
    }

    /// The same without a count of tries in vain.
    #[inline]
    fn try_quietly(&self) -> Option<FairMutexGuard<'_, T>> {
        // SAFETY: locked just now.
        self.turns
            .try_lock()
            .then(|| unsafe { FairMutexGuard::of(self) })
    }

    /// As [`lock`](Self::lock), but waits for `timeout` at most.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sinew::sync::{FairMutex, TimedOut};
    ///
    /// let mutex = FairMutex::new(());
    /// let guard = mutex.lock();
    /// assert_eq!(mutex.lock_timeout(Duration::from_millis(1)).unwrap_err(), TimedOut);
    /// drop(guard);
    /// assert!(mutex.try_lock().is_ok());
    /// ```
    ///
    /// # Errors
    ///
    /// [`TimedOut`] if the time was over first.
    #[track_caller]
    pub fn lock_timeout(&self, timeout: Duration) -> Result<FairMutexGuard<'_, T>, TimedOut> {
        self.lock_until(|| Deadline::after(timeout), Location::caller())
    }

    /// As [`lock`](Self::lock), but waits until `deadline` at most.
    ///
    /// # Errors
    ///
    /// [`TimedOut`] if the time was over first.
    #[track_caller]
    pub fn lock_deadline(&self, deadline: Instant) -> Result<FairMutexGuard<'_, T>, TimedOut> {
        self.lock_until(|| Some(deadline.deadline()), Location::caller())
    }

    fn lock_until(
        &self,
        deadline: impl FnOnce() -> Option<Deadline>,
        at: &'static Location<'static>,
    ) -> Result<FairMutexGuard<'_, T>, TimedOut> {
        if !self.turns.try_lock() {
            let spec = WaitSpec::new(WaitReason::Mutex, at).deadline(deadline());
            self.turns.wait(spec).map_err(TimedOut::of)?;
        }
        // SAFETY: locked just now.
        Ok(unsafe { FairMutexGuard::of(self) })
    }

    /// As [`lock`](Self::lock), but a cancellation point.
    ///
    /// # Errors
    ///
    /// [`Cancelled`] if the fiber was cancelled, before or during the wait.
    #[track_caller]
    pub fn lock_or_cancelled(&self) -> Result<FairMutexGuard<'_, T>, Cancelled> {
        point::check()?;
        if !self.turns.try_lock() {
            let spec = WaitSpec::new(WaitReason::Mutex, Location::caller()).cancellable();
            self.turns.wait(spec).map_err(|_| Cancelled)?;
        }
        // SAFETY: locked just now.
        Ok(unsafe { FairMutexGuard::of(self) })
    }

    /// As [`lock`](Self::lock), in async code, under any executor.
    ///
    /// The place in the line is taken when the future is first polled. A future
    /// that is dropped gives it up, and passes the lock on if it has it already.
    ///
    /// ```
    /// let mutex = sinew::sync::FairMutex::new(1);
    /// sinew::block_on(async { *mutex.lock_async().await += 1 });
    /// assert_eq!(mutex.into_inner(), 2);
    /// ```
    pub fn lock_async(&self) -> impl Future<Output = FairMutexGuard<'_, T>> {
        let pending = Pending::new(Turn::new(&self.turns));
        async move {
            pending.await;
            // SAFETY: locked just now.
            unsafe { FairMutexGuard::of(self) }
        }
    }

    /// Takes a place in the line now, to wait for one's turn later.
    ///
    /// Never waits; allocates if the mutex is held. See [`Ticket`].
    ///
    /// ```
    /// let mutex = sinew::sync::FairMutex::new(0);
    /// let guard = mutex.lock();
    /// let ticket = mutex.ticket();
    /// assert!(!ticket.is_served());
    /// drop(guard);
    /// assert!(ticket.is_served());
    /// assert!(mutex.try_lock().is_err()); // reserved for the ticket
    /// *ticket.lock() += 1;
    /// assert_eq!(*mutex.lock(), 1);
    /// ```
    pub fn ticket(&self) -> Ticket<'_, T> {
        Ticket::take(self)
    }
}

// As std's: after a panic others go on with the value, here without being told.
impl<T: ?Sized> UnwindSafe for FairMutex<T> {}
impl<T: ?Sized> RefUnwindSafe for FairMutex<T> {}

impl<T: Default> Default for FairMutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> From<T> for FairMutex<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for FairMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("FairMutex");
        match self.try_quietly() {
            Some(value) => fields.field("value", &&*value),
            None => fields.field("value", &format_args!("<locked>")),
        };
        fields.finish()
    }
}

/// Holds a [`FairMutex`], and hands it to the next in line when dropped.
#[must_use = "dropped at once, the mutex is unlocked at once"]
pub struct FairMutexGuard<'a, T: ?Sized> {
    mutex: &'a FairMutex<T>,
    /// Neither `Send` nor `Sync` by itself: see below.
    value: PhantomData<*mut T>,
}

// SAFETY: with the guard goes a `&mut T`; unlocking may be done by any thread.
unsafe impl<T: ?Sized + Send> Send for FairMutexGuard<'_, T> {}
// SAFETY: a shared guard gives `&T` only.
unsafe impl<T: ?Sized + Sync> Sync for FairMutexGuard<'_, T> {}

impl<'a, T: ?Sized> FairMutexGuard<'a, T> {
    /// # Safety
    ///
    /// The caller has locked, and leaves it to the guard to unlock.
    #[inline]
    pub(super) unsafe fn of(mutex: &'a FairMutex<T>) -> Self {
        Self {
            mutex,
            value: PhantomData,
        }
    }
}

impl<T: ?Sized> Deref for FairMutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: ours while the guard lives (`sync::turns`, one).
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized> DerefMut for FairMutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed mutably.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: ?Sized> Drop for FairMutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.turns.unlock();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for FairMutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for FairMutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
