//! A guard that keeps its mutex.
//!
//! Invariant (owned): the guard owns one lock of its mutex from its making until it is
//! dropped, and the mutex lives as long, by the guard's `Arc`.

use super::error::TryLockError;
use super::mutex::{Mutex, MutexGuard};
use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// The right to the value of a [`Mutex`], which this keeps alive; dropped, it gives the
/// lock back. It may outlive the function that locked, and be sent to another fiber.
///
/// Made by [`Mutex::lock_owned`].
#[must_use = "dropped at once, the lock is given back at once"]
#[clippy::has_significant_drop]
pub struct OwnedMutexGuard<T: ?Sized> {
    mutex: Arc<Mutex<T>>,
}

// SAFETY: gives out `&T` only; `Send` follows from that of `Arc<Mutex<T>>`, and the lock
// may be given back anywhere.
unsafe impl<T: ?Sized + Send + Sync> Sync for OwnedMutexGuard<T> {}

impl<T: ?Sized> Mutex<T> {
    /// As [`lock`](Self::lock), for a guard that keeps the mutex.
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::sync::{Arc, Mutex};
    ///
    /// sinew::run(|| {
    ///     let mutex = Arc::new(Mutex::new(1));
    ///     let mut guard = mutex.clone().lock_owned();
    ///     // A fiber that is not a scope's child takes the lock along.
    ///     sinew::spawn(move || *guard += 1).join().unwrap();
    ///     assert_eq!(*mutex.lock(), 2);
    /// });
    /// ```
    #[track_caller]
    pub fn lock_owned(self: Arc<Self>) -> OwnedMutexGuard<T> {
        // The lock is the new guard's (owned).
        mem::forget(self.lock());
        OwnedMutexGuard { mutex: self }
    }

    /// As [`try_lock`](Self::try_lock), for a guard that keeps the mutex.
    ///
    /// # Errors
    ///
    /// [`TryLockError`] if somebody holds the lock.
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::sync::{Arc, Mutex};
    ///
    /// let mutex = Arc::new(Mutex::new(1));
    /// let guard = mutex.clone().try_lock_owned().unwrap();
    /// assert!(mutex.clone().try_lock_owned().is_err());
    /// # drop(guard);
    /// ```
    pub fn try_lock_owned(self: Arc<Self>) -> Result<OwnedMutexGuard<T>, TryLockError> {
        self.try_lock().map(mem::forget)?;
        Ok(OwnedMutexGuard { mutex: self })
    }

    /// As [`lock_async`](Self::lock_async), for a guard that keeps the mutex.
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::sync::{Arc, Mutex};
    ///
    /// let mutex = Arc::new(Mutex::new(1));
    /// let theirs = mutex.clone();
    /// sinew::block_on(async { *theirs.lock_owned_async().await += 1 });
    /// assert_eq!(*mutex.lock(), 2);
    /// ```
    pub async fn lock_owned_async(self: Arc<Self>) -> OwnedMutexGuard<T> {
        let guard: MutexGuard<'_, T> = self.lock_async().await;
        mem::forget(guard);
        OwnedMutexGuard { mutex: self }
    }
}

impl<T: ?Sized> OwnedMutexGuard<T> {
    /// The mutex that it is of.
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::sync::{Arc, Mutex, OwnedMutexGuard};
    ///
    /// let mutex = Arc::new(Mutex::new(1));
    /// let guard = mutex.clone().lock_owned();
    /// assert!(Arc::ptr_eq(OwnedMutexGuard::mutex(&guard), &mutex));
    /// ```
    pub fn mutex(guard: &Self) -> &Arc<Mutex<T>> {
        &guard.mutex
    }
}

impl<T: ?Sized> Deref for OwnedMutexGuard<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the right to the value (owned).
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized> DerefMut for OwnedMutexGuard<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard is the right to the value, and borrowed mutably (owned).
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: ?Sized> Drop for OwnedMutexGuard<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: there is one guard for each time that the lock was taken (owned).
        unsafe { self.mutex.raw.unlock() };
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for OwnedMutexGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for OwnedMutexGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
