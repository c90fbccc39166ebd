//! A value that is made when it is first asked for.
//!
//! An [`OnceLock`] and the function that fills it. The function is called by who
//! has the cell's attempt, so by one at a time; after a panic it is called again.
//! When it has made the value it is dropped, by who called it.
//!
//! Invariant 1 (function): until the cell has its value only the holder of the
//! cell's attempt touches the function; afterwards only the one who had the
//! attempt that filled it.

use super::once_lock::OnceLock;
use crate::error::Cancelled;
use crate::primitive::const_fn;
use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};

/// A value that is made on first use.
///
/// Its function may wait; only the fibers that need the value wait with it. If it
/// panics, the next use calls it again, which is why it is `FnMut` where std's is
/// `FnOnce`. A function that uses the value it is to make waits for itself, for
/// ever.
///
/// ```
/// use std::collections::HashMap;
/// use sinew::sync::LazyLock;
///
/// static PORTS: LazyLock<HashMap<&str, u16>> =
///     LazyLock::new(|| HashMap::from([("http", 80), ("https", 443)]));
///
/// sinew::run(|| {
///     let fibers: Vec<_> = (0..4).map(|_| sinew::spawn(|| PORTS["https"])).collect();
///     for fiber in fibers {
///         assert_eq!(fiber.join().unwrap(), 443);
///     }
/// });
/// ```
pub struct LazyLock<T, F = fn() -> T> {
    cell: OnceLock<T>,
    /// See invariant 1.
    make: UnsafeCell<Option<F>>,
}

// SAFETY: the cell is shareable; the function is used by one thread at a time,
// each for the first time perhaps (`F: Send`).
unsafe impl<T: Sync + Send, F: Send> Sync for LazyLock<T, F> {}

// As std's: a function that panicked is called again, so it is as if moved.
impl<T: RefUnwindSafe + UnwindSafe, F: UnwindSafe> RefUnwindSafe for LazyLock<T, F> {}
impl<T: UnwindSafe, F: UnwindSafe> UnwindSafe for LazyLock<T, F> {}

impl<T, F: FnMut() -> T> LazyLock<T, F> {
    const_fn! {
        /// A value that `f` will make.
        pub const fn new(f: F) -> Self {
            Self {
                cell: OnceLock::new(),
                make: UnsafeCell::new(Some(f)),
            }
        }
    }

    /// The value, made now if it was not; what dereferencing does.
    ///
    /// ```
    /// use sinew::sync::LazyLock;
    ///
    /// let mut calls = 0;
    /// let lazy = LazyLock::new(|| {
    ///     calls += 1;
    ///     assert!(calls > 1, "the first try fails");
    ///     calls
    /// });
    /// let first = std::panic::AssertUnwindSafe(|| *LazyLock::force(&lazy));
    /// assert!(std::panic::catch_unwind(first).is_err());
    /// assert_eq!(*lazy, 2);
    /// ```
    ///
    /// # Panics
    ///
    /// If the function does; then the next use calls it again.
    #[inline]
    #[track_caller]
    pub fn force(this: &Self) -> &T {
        match this.cell.get() {
            Some(value) => value,
            None => this.force_slow(),
        }
    }

    /// The value, to be changed, made now if it was not; what dereferencing mutably does.
    ///
    /// Nobody else can be making it, so this does not wait for anybody.
    ///
    /// # Panics
    ///
    /// If the function does; then the next use calls it again.
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::sync::LazyLock;
    ///
    /// let mut lazy = LazyLock::new(|| vec![1]);
    /// LazyLock::force_mut(&mut lazy).push(2);
    /// lazy.push(3);
    /// assert_eq!(*lazy, [1, 2, 3]);
    /// ```
    #[inline]
    #[track_caller]
    pub fn force_mut(this: &mut Self) -> &mut T {
        Self::force(this);
        this.cell.get_mut().expect("it was just made")
    }

    /// As [`force`](Self::force), but a cancellation point: a fiber that is
    /// cancelled does not wait for somebody else to make the value.
    ///
    /// # Errors
    ///
    /// [`Cancelled`] if the fiber was cancelled, before or during the wait.
    #[track_caller]
    pub fn force_or_cancelled(this: &Self) -> Result<&T, Cancelled> {
        let mut made = false;
        let value = this
            .cell
            .get_or_init_or_cancelled(|| this.call(&mut made))?;
        this.done(made);
        Ok(value)
    }

    #[cold]
    #[track_caller]
    fn force_slow(&self) -> &T {
        let mut made = false;
        let value = self.cell.get_or_init(|| self.call(&mut made));
        self.done(made);
        value
    }

    /// Calls the function; by who has the cell's attempt.
    fn call(&self, made: &mut bool) -> T {
        *made = true;
        // SAFETY: we have the cell's attempt (invariant 1).
        let make = unsafe { &mut *self.make.get() };
        make.as_mut().expect("kept until it has made a value")()
    }

    /// Drops the function, if it was our call that filled the cell.
    fn done(&self, made: bool) {
        if made {
            // SAFETY: it was our attempt that filled the cell (invariant 1).
            drop(unsafe { (*self.make.get()).take() });
        }
    }
}

impl<T, F> LazyLock<T, F> {
    /// The value, if it was made; does not wait.
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::sync::LazyLock;
    ///
    /// let lazy = LazyLock::new(|| 7);
    /// assert_eq!(LazyLock::get(&lazy), None);
    /// assert_eq!(*lazy, 7);
    /// assert_eq!(LazyLock::get(&lazy), Some(&7));
    /// ```
    #[inline]
    pub fn get(this: &Self) -> Option<&T> {
        this.cell.get()
    }

    /// The value, to be changed, if it was made.
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::sync::LazyLock;
    ///
    /// let mut lazy = LazyLock::new(|| 7);
    /// assert_eq!(LazyLock::get_mut(&mut lazy), None);
    /// LazyLock::force(&lazy);
    /// *LazyLock::get_mut(&mut lazy).unwrap() += 1;
    /// assert_eq!(*lazy, 8);
    /// ```
    #[inline]
    pub fn get_mut(this: &mut Self) -> Option<&mut T> {
        this.cell.get_mut()
    }
}

impl<T, F: FnMut() -> T> DerefMut for LazyLock<T, F> {
    #[inline]
    #[track_caller]
    fn deref_mut(&mut self) -> &mut T {
        Self::force_mut(self)
    }
}

impl<T, F: FnMut() -> T> Deref for LazyLock<T, F> {
    type Target = T;

    #[inline]
    #[track_caller]
    fn deref(&self) -> &T {
        Self::force(self)
    }
}

impl<T: Default> Default for LazyLock<T> {
    fn default() -> Self {
        Self::new(T::default)
    }
}

impl<T: fmt::Debug, F> fmt::Debug for LazyLock<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tuple = f.debug_tuple("LazyLock");
        match self.cell.get() {
            Some(value) => tuple.field(value),
            None => tuple.field(&format_args!("<uninit>")),
        };
        tuple.finish()
    }
}
