//! What `fiber_local!` declares.
//!
//! A key has a number, given to it when it is first used; where the values are is told
//! in the header of `fiber::locals`.

use crate::error::impl_error;
use crate::fiber::users::User;
use crate::wait::chain;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io::ErrorKind;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Declares statics of which every fiber has its own; std's `thread_local!` for fibers.
///
/// A value is made when its fiber first uses it, and dropped on the fiber's stack when
/// the fiber ends, before anybody who waits for that is told: the last made first. A drop
/// may wait, spawn, and use other such values; one that it makes anew is dropped as well,
/// in up to five rounds. If a drop panics the fiber goes on to its end, and who joins it gets
/// its value all the same; but a [`#[sinew::test]`](crate::test) fails. On a plain thread each
/// thread has its own.
///
/// Inside of [`blocking`](crate::blocking) the values are those of the pool thread, and stay
/// there for whoever comes next: use a [`ScopedValue`](crate::ScopedValue) for what belongs to
/// a request.
///
/// ```
/// use std::cell::Cell;
///
/// sinew::fiber_local! {
///     static DEPTH: Cell<u32> = const { Cell::new(0) };
/// }
///
/// sinew::run(|| {
///     DEPTH.set(7);
///     let other = sinew::spawn(|| DEPTH.get());
///     assert_eq!(other.join().unwrap(), 0);
///     assert_eq!(DEPTH.get(), 7);
/// });
/// ```
#[macro_export]
macro_rules! fiber_local {
    () => {};
    ($(#[$attr:meta])* $vis:vis static $name:ident: $t:ty = const $init:block; $($rest:tt)*) => {
        $crate::fiber_local!(@one $(#[$attr])* $vis $name: $t = $init);
        $crate::fiber_local!($($rest)*);
    };
    ($(#[$attr:meta])* $vis:vis static $name:ident: $t:ty = const $init:block) => {
        $crate::fiber_local!(@one $(#[$attr])* $vis $name: $t = $init);
    };
    ($(#[$attr:meta])* $vis:vis static $name:ident: $t:ty = $init:expr; $($rest:tt)*) => {
        $crate::fiber_local!(@one $(#[$attr])* $vis $name: $t = $init);
        $crate::fiber_local!($($rest)*);
    };
    ($(#[$attr:meta])* $vis:vis static $name:ident: $t:ty = $init:expr) => {
        $crate::fiber_local!(@one $(#[$attr])* $vis $name: $t = $init);
    };
    (@one $(#[$attr:meta])* $vis:vis $name:ident: $t:ty = $init:expr) => {
        $(#[$attr])*
        $vis static $name: $crate::FiberKey<$t> = {
            fn init() -> $t {
                $init
            }
            $crate::FiberKey::__new(init)
        };
    };
}

/// What `fiber_local!` declares; the counterpart of [`std::thread::LocalKey`].
pub struct FiberKey<T: 'static> {
    /// 0 until it is first used.
    number: AtomicUsize,
    init: fn() -> T,
}

impl<T: 'static> FiberKey<T> {
    #[doc(hidden)]
    pub const fn __new(init: fn() -> T) -> Self {
        Self {
            number: AtomicUsize::new(0),
            init,
        }
    }

    fn number(&'static self) -> usize {
        // Relaxed: a number says nothing about other memory.
        match self.number.load(Ordering::Relaxed) {
            0 => self.new_number(),
            number => number,
        }
    }

    #[cold]
    fn new_number(&'static self) -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        // Relaxed: only uniqueness matters.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let first = self
            .number
            .compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
        first.map_or_else(|other| other, |_| number)
    }

    /// Calls `f` with this fiber's value, which is made if it was not yet.
    ///
    /// If the fiber ends while a coroutine of another library is suspended in `f`, the value
    /// is leaked, which the log tells, so that `f` can go on with it.
    ///
    /// # Panics
    ///
    /// On a plain thread that is destroying its values; see [`try_with`](Self::try_with).
    #[track_caller]
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        match self.try_with(f) {
            Ok(value) => value,
            Err(error) => panic!("{error}"),
        }
    }

    /// As [`with`](Self::with), without its panic.
    ///
    /// # Errors
    ///
    /// [`AccessError`] on a plain thread that is destroying its values, or has.
    pub fn try_with<R>(&'static self, f: impl FnOnce(&T) -> R) -> Result<R, AccessError> {
        let number = self.number();
        let locals = chain::locals().ok_or(AccessError(()))?;
        // SAFETY: those of the calling fiber or thread, which has not ended. The number
        // is this key's alone, and so `T`'s.
        let found = unsafe { locals.as_ref().get::<T>(number) };
        let (_user, value) = match found {
            Some(found) => found,
            None => self.make(number)?,
        };
        // SAFETY: boxed, and not dropped while its user is counted, also if `f` is
        // suspended on the stack of a coroutine until the fiber or thread has ended.
        Ok(f(unsafe { value.as_ref() }))
    }

    #[cold]
    fn make(&'static self, number: usize) -> Result<(User, NonNull<T>), AccessError> {
        let value = (self.init)(); // may use other keys, and wait
        // Asked anew: a coroutine that was suspended in there may have been resumed by
        // another fiber.
        let locals = chain::locals().ok_or(AccessError(()))?;
        // SAFETY: as in `try_with`.
        match unsafe { locals.as_ref().put(number, value) } {
            Ok(made) => Ok(made),
            Err(second) => {
                // The initialiser has made one itself. Counted before the other is
                // dropped, which is user code.
                // SAFETY: as in `try_with`.
                let made = unsafe { locals.as_ref().get(number) };
                drop(second);
                Ok(made.expect("it was just there"))
            }
        }
    }
}

impl<T: 'static> FiberKey<Cell<T>> {
    /// Sets this fiber's value.
    #[track_caller]
    pub fn set(&'static self, value: T) {
        self.with(|cell| cell.set(value));
    }

    /// A copy of this fiber's value.
    #[track_caller]
    pub fn get(&'static self) -> T
    where
        T: Copy,
    {
        self.with(Cell::get)
    }

    /// Takes this fiber's value, and leaves the default.
    #[track_caller]
    pub fn take(&'static self) -> T
    where
        T: Default,
    {
        self.with(Cell::take)
    }

    /// Replaces this fiber's value.
    #[track_caller]
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }
}

impl<T: 'static> FiberKey<RefCell<T>> {
    /// Calls `f` with a shared borrow of this fiber's value.
    ///
    /// # Panics
    ///
    /// If it is borrowed mutably.
    #[track_caller]
    pub fn with_borrow<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        self.with(|cell| f(&cell.borrow()))
    }

    /// Calls `f` with a mutable borrow of this fiber's value.
    ///
    /// # Panics
    ///
    /// If it is borrowed.
    #[track_caller]
    pub fn with_borrow_mut<R>(&'static self, f: impl FnOnce(&mut T) -> R) -> R {
        self.with(|cell| f(&mut cell.borrow_mut()))
    }

    /// Sets this fiber's value.
    ///
    /// # Panics
    ///
    /// If it is borrowed.
    #[track_caller]
    pub fn set(&'static self, value: T) {
        self.with(|cell| cell.replace(value));
    }

    /// Takes this fiber's value, and leaves the default.
    ///
    /// # Panics
    ///
    /// If it is borrowed.
    #[track_caller]
    pub fn take(&'static self) -> T
    where
        T: Default,
    {
        self.with(RefCell::take)
    }

    /// Replaces this fiber's value.
    ///
    /// # Panics
    ///
    /// If it is borrowed.
    #[track_caller]
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }
}

impl<T: 'static> fmt::Debug for FiberKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FiberKey").finish_non_exhaustive()
    }
}

/// The thread is destroying its values; see [`FiberKey::try_with`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessError(());

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a fiber-local was used while the thread destroys its own")
    }
}

impl_error!(AccessError { _ => Some(ErrorKind::Other) });
