//! What proves that an [`RwLock`] is held.
//!
//! Invariant (share): a guard owns one share of its lock, a reader's or the
//! writer's, from its making until it is dropped (`sync::shares`, invariant 1).
//!
//! Invariant (variance): a guard that only reads is covariant in its value, as a `&T`
//! is: it has a pointer to the value and a reference to the shares, not one to the lock,
//! which is invariant. A guard that writes is invariant, as a `&mut T` is: else a value
//! that lives too short could be written into the lock (`sync::variance` has the tests).

use super::mapped_guard::{MappedRwLockReadGuard, MappedRwLockWriteGuard};
use super::rwlock::RwLock;
use super::shares::Shares;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Reads what an [`RwLock`] protects, and unlocks it when dropped.
#[must_use = "dropped at once, the lock is unlocked at once"]
pub struct RwLockReadGuard<'a, T: ?Sized + 'a> {
    /// Of the lock that has the shares. Neither `Send` nor `Sync` by itself: see below.
    value: NonNull<T>,
    shares: &'a Shares,
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
        // SAFETY: the address of a cell's content is not null.
        let value = unsafe { NonNull::new_unchecked(lock.value.get()) };
        Self {
            value,
            shares: &lock.shares,
        }
    }

    /// Makes a guard for a part of the value; the lock stays held. As std's, it is no
    /// method: it is called as `RwLockReadGuard::map(..)`.
    ///
    /// If `f` panics the lock is unlocked.
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::sync::{RwLock, RwLockReadGuard};
    ///
    /// let lock = RwLock::new((1, String::from("two")));
    /// let two = RwLockReadGuard::map(lock.read(), |both| both.1.as_str());
    /// assert_eq!(&*two, "two");
    /// assert!(lock.try_write().is_err());
    /// ```
    pub fn map<U: ?Sized>(guard: Self, f: impl FnOnce(&T) -> &U) -> MappedRwLockReadGuard<'a, U> {
        let value = NonNull::from(f(&guard));
        let shares = ManuallyDrop::new(guard).shares;
        // SAFETY: the share was the guard's, which is not dropped, and `value` is a part
        // of what it protects.
        unsafe { MappedRwLockReadGuard::of(value, shares) }
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
    /// use sinew::sync::{RwLock, RwLockReadGuard};
    ///
    /// let lock = RwLock::new(vec![1, 2]);
    /// let second = RwLockReadGuard::filter_map(lock.read(), |all| all.get(1));
    /// assert_eq!(*second.unwrap(), 2);
    /// let third = RwLockReadGuard::filter_map(lock.read(), |all| all.get(2));
    /// assert_eq!(third.unwrap_err().len(), 2);
    /// ```
    pub fn filter_map<U: ?Sized>(
        guard: Self,
        f: impl FnOnce(&T) -> Option<&U>,
    ) -> Result<MappedRwLockReadGuard<'a, U>, Self> {
        match f(&guard).map(NonNull::from) {
            None => Err(guard),
            Some(value) => {
                let shares = ManuallyDrop::new(guard).shares;
                // SAFETY: as in `map`.
                Ok(unsafe { MappedRwLockReadGuard::of(value, shares) })
            }
        }
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the lock, whose shares we borrow, has the value; we own a reader's
        // share, so nobody writes (share).
        unsafe { self.value.as_ref() }
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.shares.give_read();
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
pub struct RwLockWriteGuard<'a, T: ?Sized + 'a> {
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

    /// Makes a guard for a part of the value; the lock stays held. As std's, it is no
    /// method: it is called as `RwLockWriteGuard::map(..)`.
    ///
    /// If `f` panics the lock is unlocked.
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::sync::{RwLock, RwLockWriteGuard};
    ///
    /// let lock = RwLock::new((1, 2));
    /// *RwLockWriteGuard::map(lock.write(), |both| &mut both.1) += 1;
    /// assert_eq!(lock.into_inner(), (1, 3));
    /// ```
    pub fn map<U: ?Sized>(
        mut guard: Self,
        f: impl FnOnce(&mut T) -> &mut U,
    ) -> MappedRwLockWriteGuard<'a, U> {
        let value = NonNull::from(f(&mut guard));
        let shares = &ManuallyDrop::new(guard).lock.shares;
        // SAFETY: the share was the guard's, which is not dropped, and `value` is a part
        // of what it protects, borrowed mutably.
        unsafe { MappedRwLockWriteGuard::of(value, shares) }
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
    /// use sinew::sync::{RwLock, RwLockWriteGuard};
    ///
    /// let lock = RwLock::new(vec![1, 2]);
    /// let last = RwLockWriteGuard::filter_map(lock.write(), |all| all.last_mut());
    /// *last.unwrap() = 3;
    /// let third = RwLockWriteGuard::filter_map(lock.write(), |all| all.get_mut(2));
    /// assert_eq!(*third.unwrap_err(), [1, 3]);
    /// ```
    pub fn filter_map<U: ?Sized>(
        mut guard: Self,
        f: impl FnOnce(&mut T) -> Option<&mut U>,
    ) -> Result<MappedRwLockWriteGuard<'a, U>, Self> {
        match f(&mut guard).map(NonNull::from) {
            None => Err(guard),
            Some(value) => {
                let shares = &ManuallyDrop::new(guard).lock.shares;
                // SAFETY: as in `map`.
                Ok(unsafe { MappedRwLockWriteGuard::of(value, shares) })
            }
        }
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
