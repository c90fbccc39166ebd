//! A value that is written once and then shared.
//!
//! A [`Once`] and a cell: who has the attempt writes the cell, who finds the
//! `Once` done reads it.
//!
//! Invariant 1 (cell): until the `Once` is done only the holder of its attempt
//! touches the cell; once it is done the cell has a value, and there are only
//! shared references to it, but through `&mut self`.

use super::error::TimedOut;
use super::once::{Attempt, Once};
use crate::error::Cancelled;
use crate::primitive::const_fn;
use crate::time::Instant;
use std::cell::UnsafeCell;
use std::convert::Infallible;
use std::fmt;
use std::mem::MaybeUninit;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::time::Duration;

/// A cell that is written once, by whoever comes first.
///
/// An initialiser may wait; only the fibers that need the value wait with it. If
/// it panics, the next one tries again. Reading a value that is there costs one
/// load.
///
/// An initialiser that asks the same cell for its value waits for itself, for
/// ever.
///
/// ```
/// use sinew::sync::OnceLock;
///
/// static CONFIG: OnceLock<String> = OnceLock::new();
///
/// sinew::run(|| {
///     let reader = sinew::spawn(|| CONFIG.wait().len());
///     assert_eq!(CONFIG.get_or_init(|| "sinew".to_owned()), "sinew");
///     assert_eq!(reader.join().unwrap(), 5);
/// });
/// ```
pub struct OnceLock<T> {
    once: Once,
    /// See invariant 1.
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: shared, it hands out `&T` (`T: Sync`), and a value that one thread has
// written may be dropped or taken by another (`T: Send`).
unsafe impl<T: Sync + Send> Sync for OnceLock<T> {}
// SAFETY: it owns its value.
unsafe impl<T: Send> Send for OnceLock<T> {}

// As std's: a value is seen complete or not at all.
impl<T: RefUnwindSafe + UnwindSafe> RefUnwindSafe for OnceLock<T> {}
impl<T: UnwindSafe> UnwindSafe for OnceLock<T> {}

impl<T> OnceLock<T> {
    const_fn! {
        /// An empty cell.
        pub const fn new() -> Self {
            Self {
                once: Once::new(),
                value: UnsafeCell::new(MaybeUninit::uninit()),
            }
        }
    }

    /// The value, if it is there; never waits.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        if self.once.is_completed() {
            // SAFETY: it is done, just looked.
            Some(unsafe { self.get_unchecked() })
        } else {
            None
        }
    }

    /// The value, if it is there, for its only owner.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        if self.once.is_completed() {
            // SAFETY: done, so there is a value; ours alone by `&mut self`
            // (invariant 1).
            Some(unsafe { self.value.get_mut().assume_init_mut() })
        } else {
            None
        }
    }

    /// Writes `value`, unless there is one.
    ///
    /// Waits if somebody is just about to initialise the cell.
    ///
    /// ```
    /// let cell = sinew::sync::OnceLock::new();
    /// assert_eq!(cell.set(1), Ok(()));
    /// assert_eq!(cell.set(2), Err(2));
    /// assert_eq!(cell.get(), Some(&1));
    /// ```
    ///
    /// # Errors
    ///
    /// Hands `value` back if there is one already.
    #[track_caller]
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| value.take().expect("called once"));
        value.map_or(Ok(()), Err)
    }

    /// The value; `f` makes it if there is none.
    ///
    /// If somebody else is at it, this waits, and makes the value itself only if
    /// that fails.
    ///
    /// # Panics
    ///
    /// If `f` does; then the cell stays empty and the next call tries again.
    #[inline]
    #[track_caller]
    pub fn get_or_init<F: FnOnce() -> T>(&self, f: F) -> &T {
        match self.get_or_try_init(|| Ok::<T, Infallible>(f())) {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }

    /// As [`get_or_init`](Self::get_or_init), with an initialiser that may fail.
    ///
    /// ```
    /// let cell = sinew::sync::OnceLock::new();
    /// assert_eq!(cell.get_or_try_init(|| Err("not yet")), Err("not yet"));
    /// assert_eq!(cell.get_or_try_init(|| Ok::<_, &str>(7)), Ok(&7));
    /// assert_eq!(cell.get_or_try_init(|| Err("too late")), Ok(&7));
    /// ```
    ///
    /// # Errors
    ///
    /// That of `f`; then the cell stays empty and the next call tries again.
    ///
    /// # Panics
    ///
    /// If `f` does, with the same effect.
    #[inline]
    #[track_caller]
    pub fn get_or_try_init<F: FnOnce() -> Result<T, E>, E>(&self, f: F) -> Result<&T, E> {
        match self.get() {
            Some(value) => Ok(value),
            None => self.init_slow(f, Location::caller()),
        }
    }

    #[cold]
    fn init_slow<F: FnOnce() -> Result<T, E>, E>(
        &self,
        f: F,
        at: &'static Location<'static>,
    ) -> Result<&T, E> {
        if let Some(attempt) = self.once.begin(at) {
            self.fill(attempt, f)?;
        }
        // SAFETY: done, by us or by whom `begin` waited for.
        Ok(unsafe { self.get_unchecked() })
    }

    fn fill<E>(&self, attempt: Attempt<'_>, f: impl FnOnce() -> Result<T, E>) -> Result<(), E> {
        match f() {
            Ok(value) => {
                // SAFETY: we have the attempt (invariant 1).
                unsafe { (*self.value.get()).write(value) };
                attempt.complete();
                Ok(())
            }
            Err(error) => {
                attempt.give_up();
                Err(error)
            }
        }
    }

    /// As [`get_or_init`](Self::get_or_init), but a cancellation point: a fiber
    /// that is cancelled does not wait for somebody else's initialiser. Its own,
    /// once begun, it ends.
    ///
    /// # Errors
    ///
    /// [`Cancelled`] if the fiber was cancelled, before or during the wait.
    #[track_caller]
    pub fn get_or_init_or_cancelled<F: FnOnce() -> T>(&self, f: F) -> Result<&T, Cancelled> {
        if let Some(attempt) = self.once.begin_or_cancelled(Location::caller())? {
            match self.fill(attempt, || Ok::<T, Infallible>(f())) {
                Ok(()) => {}
                Err(never) => match never {},
            }
        }
        // SAFETY: done, by us or by whom `begin_or_cancelled` waited for.
        Ok(unsafe { self.get_unchecked() })
    }

    /// Waits until there is a value; makes none.
    #[track_caller]
    pub fn wait(&self) -> &T {
        self.once.wait();
        // SAFETY: done.
        unsafe { self.get_unchecked() }
    }

    /// As [`wait`](Self::wait), but for `timeout` at most.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sinew::sync::{OnceLock, TimedOut};
    ///
    /// let cell = OnceLock::<u32>::new();
    /// assert_eq!(cell.wait_timeout(Duration::from_millis(1)), Err(TimedOut));
    /// ```
    ///
    /// # Errors
    ///
    /// [`TimedOut`] if there was none by then.
    #[track_caller]
    pub fn wait_timeout(&self, timeout: Duration) -> Result<&T, TimedOut> {
        self.once.wait_timeout(timeout)?;
        // SAFETY: done.
        Ok(unsafe { self.get_unchecked() })
    }

    /// As [`wait`](Self::wait), but until `deadline` at most.
    ///
    /// # Errors
    ///
    /// [`TimedOut`] if there was none by then.
    #[track_caller]
    pub fn wait_deadline(&self, deadline: Instant) -> Result<&T, TimedOut> {
        self.once.wait_deadline(deadline)?;
        // SAFETY: done.
        Ok(unsafe { self.get_unchecked() })
    }

    /// As [`wait`](Self::wait), and a cancellation point.
    ///
    /// # Errors
    ///
    /// [`Cancelled`] if the fiber was cancelled, before or during the wait.
    #[track_caller]
    pub fn wait_or_cancelled(&self) -> Result<&T, Cancelled> {
        self.once.wait_or_cancelled()?;
        // SAFETY: done.
        Ok(unsafe { self.get_unchecked() })
    }

    /// As [`wait`](Self::wait), in async code, under any executor.
    pub fn wait_async(&self) -> impl Future<Output = &T> + Send + '_
    where
        T: Sync + Send,
    {
        let done = self.once.wait_async();
        async move {
            done.await;
            // SAFETY: done.
            unsafe { self.get_unchecked() }
        }
    }

    /// The value, if there is one.
    pub fn into_inner(mut self) -> Option<T> {
        self.take()
    }

    /// Takes the value out; the cell is as new then.
    ///
    /// ```
    /// let mut cell = sinew::sync::OnceLock::from(1);
    /// assert_eq!(cell.take(), Some(1));
    /// assert_eq!(cell.take(), None);
    /// assert_eq!(cell.set(2), Ok(()));
    /// ```
    pub fn take(&mut self) -> Option<T> {
        if !self.once.is_completed() {
            return None;
        }
        // By `&mut self` nobody else is here; first the `Once`, so that the value
        // cannot be had twice.
        self.once = Once::new();
        // SAFETY: it was done, so there is a value (invariant 1), which counts as
        // gone now.
        Some(unsafe { self.value.get_mut().assume_init_read() })
    }

    /// # Safety
    ///
    /// The `Once` is done, and the caller has seen that.
    #[inline]
    unsafe fn get_unchecked(&self) -> &T {
        // SAFETY: there is a value, and from now on only shared references to it
        // (invariant 1).
        unsafe { (*self.value.get()).assume_init_ref() }
    }
}

impl<T> Drop for OnceLock<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> Self {
        let cell = Self::new();
        if let Some(attempt) = cell.once.begin(Location::caller()) {
            // SAFETY: we have the attempt (invariant 1).
            unsafe { (*cell.value.get()).write(value) };
            attempt.complete();
        }
        cell
    }
}

impl<T: Clone> Clone for OnceLock<T> {
    fn clone(&self) -> Self {
        self.get().cloned().map_or_else(Self::new, Self::from)
    }
}

impl<T: PartialEq> PartialEq for OnceLock<T> {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl<T: Eq> Eq for OnceLock<T> {}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tuple = f.debug_tuple("OnceLock");
        match self.get() {
            Some(value) => tuple.field(value),
            None => tuple.field(&format_args!("<uninit>")),
        };
        tuple.finish()
    }
}
