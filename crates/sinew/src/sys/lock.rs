//! A lock for short critical sections of the runtime's own.
//!
//! No user code ever runs while one is held (`docs/soundness.md`), so it is held
//! for nanoseconds and a panic cannot leave a change half done: there is no
//! poisoning, and nobody looks at the thread's panic count.
//!
//! Giving it back is a plain store, not a read-modify-write (6 ns of the 12). So
//! the word cannot tell whether somebody sleeps for it: that is counted apart
//! (`sys::sleepers`), since the lock may be gone with what it is part of as soon as
//! it is given back. Who gives it back looks there, after a fence that
//! costs nothing (`sys::fences`): who is about to sleep pays for it.
//!
//! Invariant (no sleep is missed): who sleeps is counted first, then fences, then
//! looks whether the lock is held (in the kernel, which looks and puts it to sleep
//! in one step). Who gives it back stores, fences, and looks at the count. So
//! either the sleeper sees that it is free, or whoever gives it back sees the
//! sleeper and wakes one. While anybody sleeps each one that gives it back does.

use super::sleepers::Sleepers;
use super::{fences, futex};
use crate::primitive::{AtomicU32, MODELLED, Ordering, const_fn};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

const FREE: u32 = 0;
const HELD: u32 = 1;

/// How often to look before sleeping, and the longest pause between two looks:
/// some 10 µs together, longer than any critical section takes if its thread runs.
/// In a model each look is a step.
const LOOKS: u32 = if MODELLED { 1 } else { 24 };
const LONGEST_PAUSE: u32 = if MODELLED { 1 } else { 32 };

/// How often to look after a pause: who has the lock gives it back in between.
const CLOSE_LOOKS: u32 = if MODELLED { 1 } else { 4 };

/// How long to sleep at most if the kernel does not fence for us any more.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// See the module header. In order, so that the word is with what it guards first.
#[repr(C)]
pub(crate) struct Lock<T> {
    word: AtomicU32,
    sleepers: Sleepers,
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
                sleepers: Sleepers::new(),
                value: UnsafeCell::new(value),
            }
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> LockGuard<'_, T> {
        if !self.try_take() {
            self.lock_slow();
        }
        LockGuard { lock: self }
    }

    #[inline]
    fn try_take(&self) -> bool {
        // Acquire: what the former holder did comes before; pairs with the
        // Release in `unlock`.
        self.word
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[cold]
    fn lock_slow(&self) {
        // Pauses grow: each look takes the cache line away from who has the lock,
        // and one that takes it again and again is done sooner if left alone. Two
        // workers that used one channel took 270 instead of 90 ns for a message
        // with short pauses.
        let mut pause = 1;
        for _ in 0..LOOKS {
            for _ in 0..pause {
                std::hint::spin_loop();
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
            for _ in 0..CLOSE_LOOKS {
                // Relaxed: a look; taking it is what counts.
                if self.word.load(Ordering::Relaxed) == FREE && self.try_take() {
                    return;
                }
            }
        }
        let sleepers = self.sleepers.count();
        // Relaxed: ordered by the fence; pairs with the one in `unlock`.
        sleepers.fetch_add(1, Ordering::Relaxed);
        let limit = if fences::heavy() {
            None
        } else {
            Some(LOOK_AGAIN)
        };
        while !self.try_take() {
            futex::wait(&self.word, HELD, limit);
        }
        // Relaxed: one who sees it too late makes a system call in vain.
        sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    #[inline]
    fn unlock(&self) {
        let word: *const AtomicU32 = &self.word;
        let sleepers = self.sleepers.count();
        // Release: the next holder sees what we did; pairs with `try_take`. After
        // that the lock may be gone: only its address is used.
        self.word.store(FREE, Ordering::Release);
        // Pairs with the one in `lock_slow`.
        fences::light();
        // Relaxed: ordered by the fence.
        if sleepers.load(Ordering::Relaxed) > 0 {
            wake(word);
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

#[cold]
fn wake(word: *const AtomicU32) {
    futex::wake_one(word);
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{FREE, Lock, fences};
    use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
    use std::sync::{Arc, Barrier, mpsc};
    use std::thread;
    use std::time::Duration;

    /// As after the start of a runtime: who gives the lock back has no fence.
    fn registered<T>(value: T) -> Lock<T> {
        fences::register();
        Lock::new(value)
    }

    fn let_others_run_until(condition: impl Fn() -> bool) {
        while !condition() {
            thread::yield_now();
        }
    }

    /// Two locks that share an entry of the table.
    fn of_one_entry(locks: &[Lock<u32>]) -> (&Lock<u32>, &Lock<u32>) {
        for (i, one) in locks.iter().enumerate() {
            let entry: *const AtomicU32 = one.sleepers.count();
            let other = locks[..i]
                .iter()
                .find(|other| std::ptr::eq(other.sleepers.count(), entry));
            if let Some(other) = other {
                return (one, other);
            }
        }
        panic!("more entries than locks");
    }

    #[test]
    fn one_thread_at_a_time_has_the_lock_also_of_more_than_there_are_cpus() {
        const TIMES: u32 = 40_000;
        for threads in [2, 8] {
            let (lock, start) = (registered(0_u32), Barrier::new(threads as usize));
            thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        start.wait();
                        for _ in 0..TIMES {
                            let mut value = lock.lock();
                            let before = *value;
                            (0..4).for_each(|_| std::hint::spin_loop());
                            *value = before + 1;
                        }
                    });
                }
            });
            assert_eq!(*lock.lock(), threads * TIMES);
        }
    }

    #[test]
    fn who_sleeps_without_the_kernel_s_fence_looks_again_by_itself() {
        for _ in 0..20 {
            let lock = Arc::new(registered(0_u32));
            let held = lock.lock();
            let (tell, told) = mpsc::channel();
            let sleeper = thread::spawn({
                let lock = lock.clone();
                move || {
                    fences::refuse_on_this_thread();
                    *lock.lock() += 1;
                    tell.send(()).unwrap();
                }
            });
            let sleepers = lock.sleepers.count();
            let_others_run_until(|| sleepers.load(Ordering::Relaxed) > 0);
            // As if the look at the count had come before the sleeper's, which a fence
            // prevents: the lock is free, and nobody is woken.
            std::mem::forget(held);
            lock.word.store(FREE, Ordering::Release);
            let woken = told.recv_timeout(Duration::from_secs(60));
            assert!(woken.is_ok(), "it sleeps for ever");
            sleeper.join().unwrap();
        }
    }

    #[test]
    fn all_who_sleep_for_a_lock_have_it_one_after_the_other() {
        const THREADS: u32 = 6;
        for _ in 0..20 {
            let lock = registered(0_u32);
            thread::scope(|scope| {
                let held = lock.lock();
                for _ in 0..THREADS {
                    scope.spawn(|| *lock.lock() += 1);
                }
                // Threads of other tests may be counted too: then ours are asleep
                // in another round.
                let sleepers = lock.sleepers.count();
                let_others_run_until(|| sleepers.load(Ordering::Relaxed) >= THREADS);
                assert_eq!(*held, 0);
            });
            assert_eq!(*lock.lock(), THREADS);
            // Those of other locks are on their way.
            let_others_run_until(|| lock.sleepers.count().load(Ordering::Relaxed) == 0);
        }
    }

    #[test]
    fn who_sleeps_for_a_lock_sleeps_on_while_another_of_its_entry_is_used() {
        const SLEEPERS: u32 = 2;
        let locks: Vec<Lock<u32>> = (0..100).map(|_| registered(0)).collect();
        let (slept_for, other) = of_one_entry(&locks);
        for round in 1..=5 {
            let awake = AtomicUsize::new(0);
            thread::scope(|scope| {
                let held = slept_for.lock();
                for _ in 0..SLEEPERS {
                    scope.spawn(|| {
                        *slept_for.lock() += 1;
                        awake.fetch_add(1, Ordering::Relaxed);
                    });
                }
                let sleepers = other.sleepers.count();
                let_others_run_until(|| sleepers.load(Ordering::Relaxed) >= SLEEPERS);
                for _ in 0..2 {
                    scope.spawn(|| {
                        for _ in 0..1000 {
                            *other.lock() += 1;
                        }
                    });
                }
                let_others_run_until(|| *other.lock() == round * 2000);
                assert!(sleepers.load(Ordering::Relaxed) >= SLEEPERS);
                assert_eq!(
                    (*held, awake.load(Ordering::Relaxed)),
                    ((round - 1) * SLEEPERS, 0)
                );
            });
            assert_eq!(*slept_for.lock(), round * SLEEPERS);
        }
    }
}
