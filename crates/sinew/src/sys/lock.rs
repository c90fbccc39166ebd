//! A lock for short critical sections of the runtime's own.
//!
//! No user code ever runs while one is held (`docs/soundness.md`), so it is held
//! for nanoseconds and a panic cannot leave a change half done: there is no
//! poisoning. That is what it has over std's, which looks at the thread's panic
//! count twice: taken and given back 15 instead of 12 ns on the path of every
//! message.
//!
//! | word        | meaning                          |
//! |-------------|----------------------------------|
//! | `FREE`      | nobody has it                    |
//! | `HELD`      | somebody has it                  |
//! | `CONTENDED` | and somebody may sleep for it    |
//!
//! Invariant: whoever sleeps has seen `CONTENDED` in the word, or put it there;
//! whoever takes `CONTENDED` away by giving the lock back wakes one sleeper, who
//! puts it there again before it sleeps or goes on.

use super::futex;
use crate::primitive::{AtomicU32, MODELLED, Ordering, const_fn};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// How often to look before sleeping: longer than any critical section takes if
/// its thread runs. In a model each look is a step.
const SPINS: u32 = if MODELLED { 1 } else { 100 };

/// See the module header.
pub(crate) struct Lock<T> {
    word: AtomicU32,
    /// Touched by who has the lock.
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time gets at the value.
unsafe impl<T: Send> Sync for Lock<T> {}
// SAFETY: it owns the value.
unsafe impl<T: Send> Send for Lock<T> {}

// What it guards is never left half changed by a panic.
impl<T> std::panic::UnwindSafe for Lock<T> {}
impl<T> std::panic::RefUnwindSafe for Lock<T> {}

impl<T> Lock<T> {
    const_fn! {
        pub(crate) const fn new(value: T) -> Self {
            Self {
                word: AtomicU32::new(FREE),
                value: UnsafeCell::new(value),
            }
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> LockGuard<'_, T> {
        // Acquire: what the former holder did comes before; pairs with the
        // Release in `unlock`.
        if self
            .word
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            self.lock_slow();
        }
        LockGuard { lock: self }
    }

    #[cold]
    fn lock_slow(&self) {
        for _ in 0..SPINS {
            std::hint::spin_loop();
            // Relaxed: a look; taking it is below.
            match self.word.load(Ordering::Relaxed) {
                FREE => {
                    // Acquire: as in `lock`.
                    let taken = self.word.compare_exchange(
                        FREE,
                        HELD,
                        Ordering::Acquire,
                        Ordering::Relaxed,
                    );
                    if taken.is_ok() {
                        return;
                    }
                }
                CONTENDED => break, // others sleep already
                _ => {}
            }
        }
        // Acquire: as in `lock`. Taken or not, the word says that somebody may
        // sleep: if we take it that costs one needless wake-up.
        while self.word.swap(CONTENDED, Ordering::Acquire) != FREE {
            futex::wait(&self.word, CONTENDED, None);
        }
    }

    #[inline]
    fn unlock(&self) {
        let word: *const AtomicU32 = &self.word;
        // Release: the next holder sees what we did; pairs with `lock`. After
        // that the lock may be gone with what it is part of: only its address
        // is used.
        if self.word.swap(FREE, Ordering::Release) == CONTENDED {
            futex::wake_one(word);
        }
    }

    /// The value, for its only owner.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T> std::fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lock")
    }
}

/// The right to the value; gives the lock back when dropped.
pub(crate) struct LockGuard<'a, T> {
    lock: &'a Lock<T>,
}

// SAFETY: gives out `&T` only.
unsafe impl<T: Sync> Sync for LockGuard<'_, T> {}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: we have the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: we have the lock.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for LockGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.unlock();
    }
}
