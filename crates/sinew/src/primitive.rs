//! The loom shim: every atomic, lock and cell that a model checks comes from here.
//!
//! Built normally these are std's; built with `--cfg loom` they are loom's, so
//! that the very code that ships is what a model runs. Statics and words that
//! the kernel reads cannot be loom's; they use `std` directly.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence,
};

#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};

/// A lock for short critical sections of the runtime's own.
///
/// No user code ever runs while one is held (SPEC: one rule for all code), so
/// it is held for nanoseconds and a panic cannot poison it halfway through a
/// change: a poisoned lock is taken as if nothing had happened.
pub(crate) struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    #[cfg(not(loom))]
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    #[cfg(loom)]
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        match self.0.lock() {
            Ok(guard) => guard,
            Err(poisoned) => poisoned.into_inner(),
        }
    }
}

/// The result of a check-and-yield in a bounded spin.
#[inline]
pub(crate) fn spin_hint() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}
