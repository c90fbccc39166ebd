//! Models of the lock, which other models replace by loom's own.
//!
//! Every ordering below was weakened once by hand; both models caught it.
//!
//! | weakened                                         |
//! |--------------------------------------------------|
//! | `Lock::try_take` Acquire → Relaxed               |
//! | `Lock::unlock` Release → Relaxed                 |
//! | `Lock::lock_slow` without its fence              |
//! | `Lock::unlock` without its fence                 |
//! | `Lock::lock_slow` counts itself after its fence  |

use super::{fences, futex};
use crate::primitive::{model::Plain, sleepers};
use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;

/// The file itself; `sys::Lock` is another in a model.
#[path = "lock.rs"]
mod real;

use real::Lock;

fn add_one(lock: &Lock<Plain<u32>>) {
    let value = lock.lock();
    value.set(value.get() + 1);
}

fn check(preemptions: Option<usize>, threads: usize, rounds: usize) {
    let mut model = Builder::new();
    model.preemption_bound = preemptions;
    model.check(move || {
        let lock = Arc::new(Lock::new(Plain::new(0)));
        let add = move |lock: &Lock<Plain<u32>>| (0..rounds).for_each(|_| add_one(lock));
        let others: Vec<_> = (1..threads)
            .map(|_| {
                let lock = lock.clone();
                thread::spawn(move || add(&lock))
            })
            .collect();
        add(&lock);
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(lock.lock().get() as usize, threads * rounds);
    });
}

#[test]
fn two_have_the_lock_one_after_the_other_and_neither_sleeps_for_ever() {
    check(None, 2, 1);
    check(Some(3), 2, 2);
}

#[test]
fn of_three_who_want_the_lock_nobody_sleeps_for_ever() {
    check(Some(2), 3, 1);
}
