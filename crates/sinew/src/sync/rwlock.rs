//! Many readers or one writer.
//!
//! This is what users see; how the lock is taken, handed over and given back is
//! told in `sync::shares`.

use super::error::{TimedOut, TryLockError};
use super::rwlock_guard::{RwLockReadGuard, RwLockWriteGuard};
use super::shares::{READER, Share, Shares, WRITER};
use crate::error::Cancelled;
use crate::primitive::const_fn;
use crate::sched::polling;
use crate::time::Instant;
use crate::wait::{Deadline, Pending};
use std::cell::UnsafeCell;
use std::fmt;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::time::Duration;

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
    pub(super) shares: Shares,
    /// Shared with those who have a reader's share, owned by who has the
    /// writer's (`sync::shares`, invariant 1).
    pub(super) value: UnsafeCell<T>,
}

// SAFETY: a lock owns its value, and nothing in it is bound to a thread.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}
// SAFETY: through a shared lock one thread after the other gets `&mut T`, which
// asks for `Send`, and several at a time get `&T`, which asks for `Sync`; never
// both at once (`sync::shares`, invariant 1).
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

impl<T> RwLock<T> {
    const_fn! {
        /// A lock around `value`, held by nobody.
        pub const fn new(value: T) -> Self {
            Self {
                shares: Shares::new(),
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
        self.shares.wait_for_ever(READER, Location::caller());
        // SAFETY: a reader's share was just taken.
        unsafe { RwLockReadGuard::of(self) }
    }

    /// Waits until nobody else is inside, and writes.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.shares.wait_for_ever(WRITER, Location::caller());
        // SAFETY: the writer's share was just taken.
        unsafe { RwLockWriteGuard::of(self) }
    }

    /// Reads if that needs no waiting.
    ///
    /// A loop of failing tries is a place where other fibers may run: every 64th in one turn
    /// of a fiber yields.
    ///
    /// # Errors
    ///
    /// [`TryLockError`] if a writer is inside or in line.
    #[inline]
    pub fn try_read(&self) -> Result<RwLockReadGuard<'_, T>, TryLockError> {
        match self.try_read_quietly() {
            Some(guard) => Ok(guard),
            None => {
                polling::failed();
                Err(TryLockError::WouldBlock)
            }
        }
    }

    /// The same without a count of tries in vain.
    #[inline]
    fn try_read_quietly(&self) -> Option<RwLockReadGuard<'_, T>> {
        // SAFETY: a reader's share was just taken.
        self.shares
            .try_take(READER)
            .then(|| unsafe { RwLockReadGuard::of(self) })
    }

    /// Writes if that needs no waiting.
    ///
    /// A loop of failing tries is a place where other fibers may run: every 64th in one turn
    /// of a fiber yields.
    ///
    /// # Errors
    ///
    /// [`TryLockError`] if anybody is inside or in line.
    #[inline]
    pub fn try_write(&self) -> Result<RwLockWriteGuard<'_, T>, TryLockError> {
        if !self.shares.try_take(WRITER) {
            polling::failed();
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
        self.shares
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
        self.shares
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
        self.shares
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
        self.shares
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
        self.shares.wait_or_cancelled(READER, Location::caller())?;
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
        self.shares.wait_or_cancelled(WRITER, Location::caller())?;
        // SAFETY: the writer's share was just taken.
        Ok(unsafe { RwLockWriteGuard::of(self) })
    }

    /// As [`read`](Self::read), in async code, under any executor.
    ///
    /// A future that is dropped while it waits leaves the line; one that was
    /// let in and is dropped unlocks again.
    pub fn read_async(&self) -> impl Future<Output = RwLockReadGuard<'_, T>> {
        let pending = Pending::new(Share::new(&self.shares, READER));
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
        let pending = Pending::new(Share::new(&self.shares, WRITER));
        async move {
            pending.await;
            // SAFETY: the writer's share was just taken.
            unsafe { RwLockWriteGuard::of(self) }
        }
    }
}

// As std's: after a panic others go on with the value, here without being told.
impl<T: ?Sized> UnwindSafe for RwLock<T> {}
impl<T: ?Sized> RefUnwindSafe for RwLock<T> {}

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
        match self.try_read_quietly() {
            Some(value) => fields.field("value", &&*value),
            None => fields.field("value", &format_args!("<locked>")),
        };
        fields.finish()
    }
}
