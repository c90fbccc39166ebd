//! Guards for a part of what a lock protects.
//!
//! Invariant (part): a mapped guard owns what the guard that it was made from owned, a
//! lock of a mutex or a share of an `RwLock`, and gives it back when it is dropped. Its
//! value is a part of the lock's value, reached through that guard, or lives as long as
//! that. It borrows the lock's own state, so the lock, and with it the value, lives on.
//!
//! Variance is as for the guards that they are made from (`sync::rwlock_guard`).

use super::raw_mutex::RawMutex;
use super::shares::Shares;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// The right to a part of what a [`Mutex`](super::Mutex) protects; dropped, it gives the
/// lock back. Made by [`MutexGuard::map`](super::MutexGuard::map).
#[must_use = "dropped at once, the lock is given back at once"]
#[clippy::has_significant_drop]
pub struct MappedMutexGuard<'a, T: ?Sized + 'a> {
    value: NonNull<T>,
    raw: &'a RawMutex,
    /// Invariant: it is written through.
    part: PhantomData<&'a mut T>,
}

/// Reads a part of what an [`RwLock`](super::RwLock) protects, and unlocks it when
/// dropped. Made by [`RwLockReadGuard::map`](super::RwLockReadGuard::map).
#[must_use = "dropped at once, the lock is unlocked at once"]
pub struct MappedRwLockReadGuard<'a, T: ?Sized + 'a> {
    value: NonNull<T>,
    shares: &'a Shares,
}

/// Writes a part of what an [`RwLock`](super::RwLock) protects, and unlocks it when
/// dropped. Made by [`RwLockWriteGuard::map`](super::RwLockWriteGuard::map).
#[must_use = "dropped at once, the lock is unlocked at once"]
pub struct MappedRwLockWriteGuard<'a, T: ?Sized + 'a> {
    value: NonNull<T>,
    shares: &'a Shares,
    /// Invariant: it is written through.
    part: PhantomData<&'a mut T>,
}

// SAFETY: with the guard goes a `&mut T`, which asks for `T: Send`; the lock may be given
// back anywhere. The rest of the locked value stays out of reach until then.
unsafe impl<T: ?Sized + Send> Send for MappedMutexGuard<'_, T> {}
// SAFETY: a shared guard gives `&T` only.
unsafe impl<T: ?Sized + Sync> Sync for MappedMutexGuard<'_, T> {}
// SAFETY: with the guard goes a `&T`, which asks for `T: Sync`; unlocking may be done by
// any thread.
unsafe impl<T: ?Sized + Sync> Send for MappedRwLockReadGuard<'_, T> {}
// SAFETY: a shared guard gives `&T` only.
unsafe impl<T: ?Sized + Sync> Sync for MappedRwLockReadGuard<'_, T> {}
// SAFETY: with the guard goes a `&mut T`, which asks for `T: Send`. Unlike the guard that
// it was made from it cannot be downgraded.
unsafe impl<T: ?Sized + Send> Send for MappedRwLockWriteGuard<'_, T> {}
// SAFETY: a shared guard gives `&T` only.
unsafe impl<T: ?Sized + Sync> Sync for MappedRwLockWriteGuard<'_, T> {}

impl<'a, T: ?Sized> MappedMutexGuard<'a, T> {
    /// # Safety
    ///
    /// The caller has the lock and leaves it to the guard; `value` is a part of what it
    /// protects, to which there is no other reference.
    pub(super) unsafe fn of(value: NonNull<T>, raw: &'a RawMutex) -> Self {
        let part = PhantomData;
        Self { value, raw, part }
    }

    /// Makes a guard for a part of the part; the lock stays held.
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::sync::{MappedMutexGuard, Mutex, MutexGuard};
    ///
    /// let mutex = Mutex::new((1, [2, 3]));
    /// let array = MutexGuard::map(mutex.lock(), |both| &mut both.1);
    /// *MappedMutexGuard::map(array, |array| &mut array[1]) = 4;
    /// assert_eq!(*mutex.lock(), (1, [2, 4]));
    /// ```
    pub fn map<U: ?Sized>(
        mut guard: Self,
        f: impl FnOnce(&mut T) -> &mut U,
    ) -> MappedMutexGuard<'a, U> {
        let value = NonNull::from(f(&mut guard));
        let raw = ManuallyDrop::new(guard).raw;
        // SAFETY: the lock was the guard's, which is not dropped (part).
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
    /// use sinew::sync::{MappedMutexGuard, Mutex, MutexGuard};
    ///
    /// let mutex = Mutex::new((1, vec![2]));
    /// let list = MutexGuard::map(mutex.lock(), |both| &mut both.1);
    /// let second = MappedMutexGuard::filter_map(list, |list| list.get_mut(1));
    /// assert_eq!(*second.unwrap_err(), [2]);
    /// ```
    pub fn filter_map<U: ?Sized>(
        mut guard: Self,
        f: impl FnOnce(&mut T) -> Option<&mut U>,
    ) -> Result<MappedMutexGuard<'a, U>, Self> {
        match f(&mut guard).map(NonNull::from) {
            None => Err(guard),
            Some(value) => {
                let raw = ManuallyDrop::new(guard).raw;
                // SAFETY: as in `map`.
                Ok(unsafe { MappedMutexGuard::of(value, raw) })
            }
        }
    }
}

impl<'a, T: ?Sized> MappedRwLockReadGuard<'a, T> {
    /// # Safety
    ///
    /// The caller has a reader's share and leaves it to the guard; `value` is a part of
    /// what it protects.
    pub(super) unsafe fn of(value: NonNull<T>, shares: &'a Shares) -> Self {
        Self { value, shares }
    }

    /// Makes a guard for a part of the part; the lock stays held.
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::sync::{MappedRwLockReadGuard, RwLock, RwLockReadGuard};
    ///
    /// let lock = RwLock::new((1, [2, 3]));
    /// let array = RwLockReadGuard::map(lock.read(), |both| &both.1);
    /// assert_eq!(*MappedRwLockReadGuard::map(array, |array| &array[1]), 3);
    /// ```
    pub fn map<U: ?Sized>(guard: Self, f: impl FnOnce(&T) -> &U) -> MappedRwLockReadGuard<'a, U> {
        let value = NonNull::from(f(&guard));
        let shares = ManuallyDrop::new(guard).shares;
        // SAFETY: the share was the guard's, which is not dropped (part).
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
    /// use sinew::sync::{MappedRwLockReadGuard, RwLock, RwLockReadGuard};
    ///
    /// let lock = RwLock::new((1, vec![2]));
    /// let list = RwLockReadGuard::map(lock.read(), |both| &both.1);
    /// let second = MappedRwLockReadGuard::filter_map(list, |list| list.get(1));
    /// assert_eq!(*second.unwrap_err(), [2]);
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

impl<'a, T: ?Sized> MappedRwLockWriteGuard<'a, T> {
    /// # Safety
    ///
    /// The caller has the writer's share and leaves it to the guard; `value` is a part of
    /// what it protects, to which there is no other reference.
    pub(super) unsafe fn of(value: NonNull<T>, shares: &'a Shares) -> Self {
        let part = PhantomData;
        Self {
            value,
            shares,
            part,
        }
    }

    /// Makes a guard for a part of the part; the lock stays held.
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::sync::{MappedRwLockWriteGuard, RwLock, RwLockWriteGuard};
    ///
    /// let lock = RwLock::new((1, [2, 3]));
    /// let array = RwLockWriteGuard::map(lock.write(), |both| &mut both.1);
    /// *MappedRwLockWriteGuard::map(array, |array| &mut array[1]) = 4;
    /// assert_eq!(lock.into_inner(), (1, [2, 4]));
    /// ```
    pub fn map<U: ?Sized>(
        mut guard: Self,
        f: impl FnOnce(&mut T) -> &mut U,
    ) -> MappedRwLockWriteGuard<'a, U> {
        let value = NonNull::from(f(&mut guard));
        let shares = ManuallyDrop::new(guard).shares;
        // SAFETY: the share was the guard's, which is not dropped (part).
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
    /// use sinew::sync::{MappedRwLockWriteGuard, RwLock, RwLockWriteGuard};
    ///
    /// let lock = RwLock::new((1, vec![2]));
    /// let list = RwLockWriteGuard::map(lock.write(), |both| &mut both.1);
    /// let second = MappedRwLockWriteGuard::filter_map(list, |list| list.get_mut(1));
    /// assert_eq!(*second.unwrap_err(), [2]);
    /// ```
    pub fn filter_map<U: ?Sized>(
        mut guard: Self,
        f: impl FnOnce(&mut T) -> Option<&mut U>,
    ) -> Result<MappedRwLockWriteGuard<'a, U>, Self> {
        match f(&mut guard).map(NonNull::from) {
            None => Err(guard),
            Some(value) => {
                let shares = ManuallyDrop::new(guard).shares;
                // SAFETY: as in `map`.
                Ok(unsafe { MappedRwLockWriteGuard::of(value, shares) })
            }
        }
    }
}

impl<T: ?Sized> Deref for MappedMutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: alive, and nobody writes but through this guard (part).
        unsafe { self.value.as_ref() }
    }
}

impl<T: ?Sized> DerefMut for MappedMutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: alive, and nobody has it but this guard, borrowed mutably (part).
        unsafe { self.value.as_mut() }
    }
}

impl<T: ?Sized> Drop for MappedMutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard owns the lock (part).
        unsafe { self.raw.unlock() };
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MappedMutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for MappedMutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized> Deref for MappedRwLockReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: alive, and nobody writes but through this guard (part).
        unsafe { self.value.as_ref() }
    }
}

impl<T: ?Sized> Drop for MappedRwLockReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.shares.give_read();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MappedRwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for MappedRwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized> Deref for MappedRwLockWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: alive, and nobody writes but through this guard (part).
        unsafe { self.value.as_ref() }
    }
}

impl<T: ?Sized> DerefMut for MappedRwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: alive, and nobody has it but this guard, borrowed mutably (part).
        unsafe { self.value.as_mut() }
    }
}

impl<T: ?Sized> Drop for MappedRwLockWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.shares.give_write();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MappedRwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for MappedRwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
