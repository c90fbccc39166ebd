//! What proves that an [`RwLock`] is held.
//!
//! Invariant (share): a guard owns one share of its lock, a reader's or the
//! writer's, from its making until it is dropped (`sync::shares`, invariant 1).

use super::rwlock::RwLock;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

/// Reads what an [`RwLock`] protects, and unlocks it when dropped.
#[must_use = "dropped at once, the lock is unlocked at once"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    /// Neither `Send` nor `Sync` by itself: see below.
    value: PhantomData<*const T>,
}

// SAFETY: with the guard goes a `&T` to the other thread, which asks for
// `T: Sync`; unlocking may be done by any thread.
unsafe impl<T: ?Sized + Sync> Send for RwLockReadGuard<'_, T> {}
// SAFETY: a shared guard gives `&T` only.
unsafe impl<T: ?Sized + Sync> Sync for RwLockReadGuard<'_, T> {}

impl<'a, T: ?Sized> RwLockReadGuard<'a, T> {
    /// # Safety
    ///
    /// The caller has taken a reader's share, and leaves it to the guard.
    #[inline]
    pub(super) unsafe fn of(lock: &'a RwLock<T>) -> Self {
        Self {
            lock,
            value: PhantomData,
        }
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: we own a reader's share, so nobody writes (share).
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.shares.give_read();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Writes what an [`RwLock`] protects, and unlocks it when dropped.
#[must_use = "dropped at once, the lock is unlocked at once"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    /// Neither `Send` nor `Sync` by itself: see below.
    value: PhantomData<*mut T>,
}

// SAFETY: with the guard goes a `&mut T`, which asks for `T: Send`; and the other
// thread may downgrade it while this one reads too, which asks for `T: Sync`.
unsafe impl<T: ?Sized + Send + Sync> Send for RwLockWriteGuard<'_, T> {}
// SAFETY: a shared guard gives `&T` only.
unsafe impl<T: ?Sized + Sync> Sync for RwLockWriteGuard<'_, T> {}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    /// # Safety
    ///
    /// The caller has taken the writer's share, and leaves it to the guard.
    #[inline]
    pub(super) unsafe fn of(lock: &'a RwLock<T>) -> Self {
        Self {
            lock,
            value: PhantomData,
        }
    }

    /// Makes a reader of the writer, without unlocking in between.
    ///
    /// Readers that are first in line get in too; a writer does not.
    ///
    /// ```
    /// use sinew::sync::{RwLock, RwLockWriteGuard};
    ///
    /// let lock = RwLock::new(1);
    /// let mut writer = lock.write();
    /// *writer += 1;
    /// let reader = RwLockWriteGuard::downgrade(writer);
    /// assert_eq!((*reader, *lock.read()), (2, 2));
    /// ```
    pub fn downgrade(guard: Self) -> RwLockReadGuard<'a, T> {
        let lock = ManuallyDrop::new(guard).lock;
        lock.shares.downgrade();
        // SAFETY: the writer's share has just become a reader's, and its guard
        // will not be dropped.
        unsafe { RwLockReadGuard::of(lock) }
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: we own the writer's share, so only we write (share).
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: we own the writer's share, so nobody else has a reference but
        // through this guard (share).
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for RwLockWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.shares.give_write();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
