//! One at a time.
//!
//! The protocol is that of `sync::raw_mutex`.

use super::error::{TimedOut, TryLockError};
use super::mapped_guard::MappedMutexGuard;
use super::raw_mutex::{LockWait, RawMutex};
use crate::error::Cancelled;
use crate::primitive::const_fn;
use crate::sched::polling;
use crate::time::Instant;
use crate::wait::node::Wakes;
use crate::wait::{Deadline, Pending};
use std::cell::UnsafeCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::time::Duration;

/// A lock around a value; std's, but a fiber that waits for it leaves its worker
/// to others.
///
/// There is no poisoning: a panic while it is held just gives it back. The lock
/// may be held while its fiber waits for something else. Whoever runs may take
/// it before who waits (a [`FairMutex`](super::FairMutex) keeps the order), but
/// nobody waits for ever. While a more urgent fiber waits for it, the fiber that
/// holds it is as urgent.
///
/// Locking is no cancellation point; [`lock_or_cancelled`](Self::lock_or_cancelled)
/// is.
///
/// ```
/// use std::sync::Arc;
/// use sinew::sync::Mutex;
///
/// sinew::run(|| {
///     let sum = Arc::new(Mutex::new(0));
///     let fibers: Vec<_> = (0..10)
///         .map(|i| {
///             let sum = sum.clone();
///             sinew::spawn(move || *sum.lock() += i)
///         })
///         .collect();
///     for fiber in fibers {
///         fiber.join().unwrap();
///     }
///     assert_eq!(*sum.lock(), 45);
/// });
/// ```
pub struct Mutex<T: ?Sized> {
    pub(super) raw: RawMutex,
    /// Touched by who holds the lock.
    pub(super) value: UnsafeCell<T>,
}

// SAFETY: one at a time gets at the value, from any thread.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}
// SAFETY: it owns the value.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}

impl<T: ?Sized> UnwindSafe for Mutex<T> {}
impl<T: ?Sized> RefUnwindSafe for Mutex<T> {}

impl<T> Mutex<T> {
    const_fn! {
        /// An unlocked mutex around `value`.
        pub const fn new(value: T) -> Self {
            Self {
                raw: RawMutex::new(),
                value: UnsafeCell::new(value),
            }
        }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// The value, without locking: nobody else has the mutex.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Waits until nobody holds the lock, and takes it.
    ///
    /// Only this fiber waits; its worker runs others. A fiber that holds the
    /// lock already waits for ever.
    #[track_caller]
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.raw.lock(Location::caller());
        MutexGuard { mutex: self }
    }

    /// Takes the lock if nobody holds it.
    ///
    /// A loop of failing tries is a place where other fibers may run: every 64th in one turn
    /// of a fiber yields.
    ///
    /// # Errors
    ///
    /// [`TryLockError`] if somebody does.
    ///
    /// ```
    /// let mutex = sinew::sync::Mutex::new(1);
    /// let guard = mutex.lock();
    /// assert!(mutex.try_lock().is_err());
    /// drop(guard);
    /// assert_eq!(*mutex.try_lock().unwrap(), 1);
    /// ```
    #[inline]
    pub fn try_lock(&self) -> Result<MutexGuard<'_, T>, TryLockError> {
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
    fn try_quietly(&self) -> Option<MutexGuard<'_, T>> {
        self.raw.try_lock().then(|| MutexGuard { mutex: self })
    }

    /// As [`lock`](Self::lock), but waits for `timeout` at most.
    ///
    /// # Errors
    ///
    /// [`TimedOut`] if the time was over first.
    #[track_caller]
    pub fn lock_timeout(&self, timeout: Duration) -> Result<MutexGuard<'_, T>, TimedOut> {
        self.lock_by(Deadline::after(timeout), Location::caller())
    }

    /// As [`lock`](Self::lock), but waits until `deadline` at most.
    ///
    /// # Errors
    ///
    /// [`TimedOut`] if the time was over first.
    #[track_caller]
    pub fn lock_deadline(&self, deadline: Instant) -> Result<MutexGuard<'_, T>, TimedOut> {
        self.lock_by(Some(deadline.deadline()), Location::caller())
    }

    fn lock_by(
        &self,
        deadline: Option<Deadline>,
        at: &'static Location<'static>,
    ) -> Result<MutexGuard<'_, T>, TimedOut> {
        match self.raw.lock_by(deadline, false, at) {
            Ok(()) => Ok(MutexGuard { mutex: self }),
            Err(outcome) => Err(TimedOut::of(outcome)),
        }
    }

    /// As [`lock`](Self::lock), but a cancellation point.
    ///
    /// # Errors
    ///
    /// [`Cancelled`] if the fiber was cancelled, before or during the wait.
    #[track_caller]
    pub fn lock_or_cancelled(&self) -> Result<MutexGuard<'_, T>, Cancelled> {
        crate::wait::point::check()?;
        match self.raw.lock_by(None, true, Location::caller()) {
            Ok(()) => Ok(MutexGuard { mutex: self }),
            Err(_) => Err(Cancelled),
        }
    }

    /// Locks in async code, under any executor.
    ///
    /// ```
    /// let mutex = sinew::sync::Mutex::new(1);
    /// sinew::block_on(async { *mutex.lock_async().await += 1 });
    /// assert_eq!(mutex.into_inner(), 2);
    /// ```
    pub async fn lock_async(&self) -> MutexGuard<'_, T> {
        Pending::new(LockWait::new(&self.raw)).await;
        MutexGuard { mutex: self }
    }

    /// Whether somebody holds the lock at this moment.
    pub fn is_locked(&self) -> bool {
        self.raw.is_locked()
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Mutex");
        match self.try_quietly() {
            Some(guard) => debug.field("data", &&*guard),
            None => debug.field("data", &format_args!("<locked>")),
        };
        debug.finish_non_exhaustive()
    }
}

/// The right to the value of a [`Mutex`]; dropped, it gives the lock back.
///
/// Unlike std's it may be sent to another thread, as async code needs it: the
/// lock does not belong to a thread.
#[must_use = "dropped at once, the lock is given back at once"]
#[clippy::has_significant_drop]
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
}

// SAFETY: gives out `&T` only; `Send` follows from that of `&Mutex<T>`, and the
// lock may be given back anywhere.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// Gives the lock back, but leaves it to the caller to wake who waits.
    pub(super) fn unlock_into(self, wakes: &mut Wakes) {
        let this = ManuallyDrop::new(self);
        // SAFETY: the guard is gone, as if dropped.
        unsafe { this.mutex.raw.unlock_into(wakes) };
    }

    /// Makes a guard for a part of the value; the lock stays held. As std's, it is no
    /// method: it is called as `MutexGuard::map(..)`.
    ///
    /// A [`Condvar`](super::Condvar) cannot wait with what this returns. If `f` panics the
    /// lock is given back.
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::sync::{Mutex, MutexGuard};
    ///
    /// let mutex = Mutex::new((1, 2));
    /// *MutexGuard::map(mutex.lock(), |both| &mut both.1) += 1;
    /// assert_eq!(*mutex.lock(), (1, 3));
    /// ```
    pub fn map<U: ?Sized>(
        mut guard: Self,
        f: impl FnOnce(&mut T) -> &mut U,
    ) -> MappedMutexGuard<'a, U> {
        let value = NonNull::from(f(&mut guard));
        let raw = &ManuallyDrop::new(guard).mutex.raw;
        // SAFETY: the lock was the guard's, which is not dropped, and `value` is a part
        // of what it protects, borrowed mutably.
        unsafe { MappedMutexGuard::of(value, raw) }
    }

    /// As [`map`](Self::map), if there is such a part.
    ///
    /// # Errors
    ///
    /// The guard itself if `f` returns none.
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::sync::{Mutex, MutexGuard};
    ///
    /// let mutex = Mutex::new(vec![1, 2]);
    /// let last = MutexGuard::filter_map(mutex.lock(), |all| all.last_mut());
    /// *last.unwrap() = 3;
    /// let third = MutexGuard::filter_map(mutex.lock(), |all| all.get_mut(2));
    /// assert_eq!(*third.unwrap_err(), [1, 3]);
    /// ```
    pub fn filter_map<U: ?Sized>(
        mut guard: Self,
        f: impl FnOnce(&mut T) -> Option<&mut U>,
    ) -> Result<MappedMutexGuard<'a, U>, Self> {
        match f(&mut guard).map(NonNull::from) {
            None => Err(guard),
            Some(value) => {
                let raw = &ManuallyDrop::new(guard).mutex.raw;
                // SAFETY: as in `map`.
                Ok(unsafe { MappedMutexGuard::of(value, raw) })
            }
        }
    }

    /// The mutex that it is of.
    pub(super) fn mutex(&self) -> &'a Mutex<T> {
        self.mutex
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the right to the value.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard is the right to the value.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: there is one guard for each time that the lock was taken.
        unsafe { self.mutex.raw.unlock() };
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
