//! The loom shim: every atomic, lock and cell that a model checks comes from here.
//!
//! Built normally these are std's; built with `--cfg loom` they are loom's, so
//! that the very code that ships is what a model runs. Statics cannot be loom's;
//! they use `std` directly. Words that the kernel reads are loom's only because
//! a model replaces the kernel too: see `futex` at the end.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
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

    /// The value, for its only owner.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        match self.0.get_mut() {
            Ok(value) => value,
            Err(poisoned) => poisoned.into_inner(),
        }
    }
}

impl<T> std::fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lock")
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

/// Stands for the kernel's futex in a model; `sys::futex` is this then.
///
/// It does what the kernel promises and no more: "look at the word, and sleep"
/// is one step against `wake_one`, but nothing is ordered by it (loom's own
/// `park` and `Condvar` would hide a missing Acquire of the word's users). A
/// sleep that nobody ends is a panic. A timeout is over at once.
#[cfg(loom)]
pub(crate) mod futex {
    use super::{AtomicU32, Ordering};
    use std::cell::{Cell, RefCell};
    use std::time::Duration;

    /// How often everybody else may come to a stop before a sleep counts as
    /// endless.
    const PATIENCE: usize = 20;

    thread_local! {
        /// Who sleeps, and where. A model runs all its threads on one OS thread
        /// and switches only in loom's own calls, so this needs no care.
        static SLEEPERS: RefCell<Vec<(usize, *const AtomicU32)>> =
            const { RefCell::new(Vec::new()) };
        static NEXT: Cell<usize> = const { Cell::new(0) };
    }

    pub(crate) fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
        // A read-modify-write sees the newest value, as the kernel does under
        // its lock; a load might see an older one.
        if word.fetch_or(0, Ordering::Relaxed) != expected || timeout.is_some() {
            return;
        }
        // No switch since the look above.
        let me = NEXT.get();
        NEXT.set(me + 1);
        SLEEPERS.with_borrow_mut(|sleepers| sleepers.push((me, std::ptr::from_ref(word))));
        let asleep = || SLEEPERS.with_borrow(|sleepers| sleepers.iter().any(|&(id, _)| id == me));
        let mut rounds = 0;
        while asleep() {
            rounds += 1;
            assert!(rounds < PATIENCE, "a sleep that nobody ends");
            loom::thread::yield_now();
        }
    }

    pub(crate) fn wake_one(word: *const AtomicU32) {
        SLEEPERS.with_borrow_mut(|sleepers| {
            if let Some(first) = sleepers.iter().position(|&(_, at)| at == word) {
                sleepers.remove(first);
            }
        });
    }
}
