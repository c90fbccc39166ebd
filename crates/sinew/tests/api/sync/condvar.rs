//! `Condvar`: every notification wakes whom it should, and nothing else does.

use super::poll::ByHand;
use super::{HOUR, SHORT, parked, settle, spawn_begun, spawn_parked};
use crate::harness::{in_fibers, is_expected, on_workers, panic_expected, runtime};
use crate::harness::{wait_until, watch};
use sinew::sync::{Condvar, Mutex};
use sinew::time::Instant;
use sinew::{Cancelled, JoinHandle};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

type Pair<T> = Arc<(Mutex<T>, Condvar)>;

fn pair<T>(value: T) -> Pair<T> {
    Arc::new((Mutex::new(value), Condvar::new()))
}

/// Fibers that wait, each once.
fn waiters(pair: &Pair<u32>, count: usize) -> Vec<JoinHandle<()>> {
    (0..count)
        .map(|_| {
            let pair = pair.clone();
            spawn_parked(move || {
                let guard = pair.0.lock();
                *pair.1.wait(guard) += 1;
            })
        })
        .collect()
}

fn ended(fibers: &[JoinHandle<()>]) -> usize {
    fibers.iter().filter(|fiber| fiber.is_finished()).count()
}

#[test]
fn waiting_unlocks_the_mutex_and_locks_it_again() {
    in_fibers(|| {
        let pair = pair(0);
        let waiter = waiters(&pair, 1);
        let mut guard = pair.0.try_lock().expect("unlocked while it waits");
        *guard = 10;
        pair.1.notify_one();
        settle();
        assert_eq!(ended(&waiter), 0, "it went on without the mutex");
        assert_eq!(*guard, 10);
        drop(guard);
        for waiter in waiter {
            waiter.join().unwrap();
        }
        assert_eq!(*pair.0.lock(), 11);
    });
}

#[test]
fn notify_one_wakes_exactly_one() {
    in_fibers(|| {
        let pair = pair(0);
        let waiting = waiters(&pair, 5);
        for woken in 1..=5 {
            pair.1.notify_one();
            wait_until(|| ended(&waiting) >= woken);
            settle();
            assert_eq!(ended(&waiting), woken);
        }
    });
}

#[test]
fn as_many_notifications_at_once_wake_as_many() {
    in_fibers(|| {
        let pair = pair(0);
        let waiting = waiters(&pair, 6);
        for _ in 0..4 {
            pair.1.notify_one();
        }
        wait_until(|| ended(&waiting) >= 4);
        settle();
        assert_eq!(ended(&waiting), 4);
        pair.1.notify_all();
        for waiter in waiting {
            waiter.join().unwrap();
        }
        assert_eq!(*pair.0.lock(), 6);
    });
}

#[test]
fn notify_all_wakes_all_who_wait() {
    in_fibers(|| {
        for locked in [false, true] {
            let pair = pair(0);
            let waiting = waiters(&pair, 20);
            {
                let _guard = locked.then(|| pair.0.lock());
                pair.1.notify_all();
            }
            for waiter in waiting {
                waiter.join().unwrap();
            }
            assert_eq!(*pair.0.lock(), 20);
        }
    });
}

#[test]
fn a_notification_for_nobody_is_not_kept() {
    in_fibers(|| {
        let pair = pair(0);
        pair.1.notify_one();
        pair.1.notify_all();
        let guard = pair.0.lock();
        let (guard, result) = pair.1.wait_timeout(guard, SHORT);
        assert!(result.timed_out());
        assert_eq!(*guard, 0);
    });
}

#[test]
fn tokens_and_cancellation_do_not_wake_it() {
    on_workers(|runtime| {
        let pair = pair(0);
        let theirs = pair.clone();
        let waiter = runtime.spawn(move || {
            let guard = theirs.0.lock();
            drop(theirs.1.wait(guard));
            sinew::park(); // the token is still there
            sinew::is_cancelled()
        });
        parked(&waiter);
        for _ in 0..10 {
            waiter.fiber().unpark();
            waiter.cancel();
            settle();
            assert!(!waiter.is_finished());
        }
        pair.1.notify_one();
        assert!(waiter.join().unwrap());
    });
}

#[test]
fn wait_while_waits_until_the_condition_is_gone() {
    in_fibers(|| {
        let pair = pair(3);
        let theirs = pair.clone();
        let waiter = spawn_parked(move || {
            let guard = theirs.0.lock();
            let guard = theirs.1.wait_while(guard, |left| *left > 0);
            *guard
        });
        for _ in 0..3 {
            *pair.0.lock() -= 1;
            pair.1.notify_all();
            settle();
        }
        assert_eq!(waiter.join().unwrap(), 0);
        // Gone already: no wait, and the condition may change the value.
        let guard = pair.1.wait_while(pair.0.lock(), |left| {
            *left += 5;
            false
        });
        assert_eq!(*guard, 5);
    });
}

#[test]
fn a_condition_that_panics_unlocks_the_mutex() {
    in_fibers(|| {
        let pair = pair(0);
        let panics = catch_unwind(AssertUnwindSafe(|| {
            let _ = pair.1.wait_while(pair.0.lock(), |_| panic_expected(1));
        }));
        assert!(is_expected(&*panics.unwrap_err(), 1));
        assert!(pair.0.try_lock().is_ok());
    });
}

#[test]
fn a_timeout_is_not_early_and_says_so() {
    in_fibers(|| {
        let pair = pair(0);
        let mut guard = pair.0.lock();
        for time in [Duration::ZERO, SHORT] {
            let begun = Instant::now();
            let result;
            (guard, result) = pair.1.wait_timeout(guard, time);
            assert!(result.timed_out());
            assert!(begun.elapsed() >= time);
            let until = Instant::now() + time;
            let result;
            (guard, result) = pair.1.wait_deadline(guard, until);
            assert!(result.timed_out());
            assert!(Instant::now() >= until);
        }
        assert!(pair.0.is_locked());
        drop(guard);
        assert!(!pair.0.is_locked());
    });
}

#[test]
fn a_notification_in_time_is_no_timeout() {
    in_fibers(|| {
        let pair = pair(0);
        for time in [HOUR, Duration::MAX] {
            let theirs = pair.clone();
            let waiter = spawn_parked(move || {
                let guard = theirs.0.lock();
                theirs.1.wait_timeout(guard, time).1.timed_out()
            });
            pair.1.notify_one();
            assert!(!waiter.join().unwrap());
        }
        let theirs = pair.clone();
        let waiter = spawn_parked(move || {
            let guard = theirs.0.lock();
            let until = Instant::now() + HOUR;
            theirs.1.wait_deadline(guard, until).1.timed_out()
        });
        pair.1.notify_all();
        assert!(!waiter.join().unwrap());
    });
}

#[test]
fn wait_timeout_while_says_whether_the_condition_is_gone() {
    in_fibers(|| {
        let pair = pair(1);
        let (guard, result) = pair.1.wait_timeout_while(pair.0.lock(), SHORT, |_| true);
        assert!(result.timed_out());
        drop(guard);
        let (guard, result) = pair.1.wait_timeout_while(pair.0.lock(), HOUR, |_| false);
        assert!(!result.timed_out());
        drop(guard);
        let theirs = pair.clone();
        let waiter = spawn_parked(move || {
            let (mutex, condvar) = &*theirs;
            let (guard, result) = condvar.wait_timeout_while(mutex.lock(), HOUR, |n| *n > 0);
            (*guard, result.timed_out())
        });
        pair.1.notify_all(); // the condition still holds: it goes on waiting
        settle();
        assert!(!waiter.is_finished());
        *pair.0.lock() = 0;
        pair.1.notify_all();
        assert_eq!(waiter.join().unwrap(), (0, false));
    });
}

#[test]
fn a_cancelled_wait_returns_with_the_mutex_locked() {
    in_fibers(|| {
        let pair = pair(0);
        let theirs = pair.clone();
        let waiter = spawn_parked(move || {
            let guard = theirs.0.lock();
            let (mut guard, result) = theirs.1.wait_or_cancelled(guard);
            *guard += 1;
            assert!(theirs.0.is_locked());
            // On entry, too, and every time.
            let (_guard, again) = theirs.1.wait_or_cancelled(guard);
            (result, again)
        });
        let mut guard = pair.0.lock();
        waiter.cancel();
        settle();
        assert!(!waiter.is_finished(), "it went on without the mutex");
        *guard = 1;
        drop(guard);
        assert_eq!(waiter.join().unwrap(), (Err(Cancelled), Err(Cancelled)));
        assert_eq!(*pair.0.lock(), 2);
    });
}

#[test]
fn a_notification_is_not_swallowed_by_a_cancelled_or_late_waiter() {
    in_fibers(|| {
        for round in 0..20 {
            let pair = pair(0);
            let theirs = pair.clone();
            let first = spawn_begun(move || {
                let guard = theirs.0.lock();
                match round % 2 {
                    0 => theirs.1.wait_or_cancelled(guard).1.is_ok(),
                    _ => !theirs.1.wait_timeout(guard, SHORT).1.timed_out(),
                }
            });
            let theirs = pair.clone();
            let second = spawn_parked(move || {
                let guard = theirs.0.lock();
                drop(theirs.1.wait(guard));
            });
            if round % 4 == 0 {
                first.cancel();
                pair.1.notify_one();
            } else {
                pair.1.notify_one();
                first.cancel();
            }
            if first.join().unwrap() {
                settle();
                assert!(!second.is_finished(), "one notification woke two");
                pair.1.notify_one();
            }
            second.join().unwrap();
        }
    });
}

#[test]
fn producers_and_consumers_hand_over_everything() {
    #[derive(Default)]
    struct Queue {
        items: Mutex<VecDeque<u32>>,
        filled: Condvar,
        emptied: Condvar,
    }
    in_fibers(|| {
        const EACH: u32 = 60;
        let queue = Arc::new(Queue::default());
        let producers: Vec<_> = (0..4)
            .map(|i| {
                let queue = queue.clone();
                sinew::spawn(move || {
                    for k in 0..EACH {
                        let items = queue.items.lock();
                        let mut items = queue.emptied.wait_while(items, |q| q.len() >= 3);
                        items.push_back(i * EACH + k);
                        queue.filled.notify_one();
                    }
                })
            })
            .collect();
        let consumers: Vec<_> = (0..4)
            .map(|_| {
                let queue = queue.clone();
                sinew::spawn(move || {
                    let mut got = Vec::new();
                    for _ in 0..EACH {
                        let items = queue.items.lock();
                        let mut items = queue.filled.wait_while(items, |q| q.is_empty());
                        got.push(items.pop_front().unwrap());
                        queue.emptied.notify_one();
                    }
                    got
                })
            })
            .collect();
        for producer in producers {
            producer.join().unwrap();
        }
        let mut all: Vec<u32> = consumers
            .into_iter()
            .flat_map(|consumer| consumer.join().unwrap())
            .collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..4 * EACH));
    });
}

#[test]
fn it_is_made_in_statics_and_by_default() {
    static PAIR: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());
    let _watch = watch();
    let runtime = runtime(1);
    let waiter = runtime.spawn(|| *PAIR.1.wait_while(PAIR.0.lock(), |set| !*set));
    *PAIR.0.lock() = true;
    PAIR.1.notify_one();
    assert!(waiter.join().unwrap());
    assert!(format!("{:?}", Condvar::default()).contains("Condvar"));
}

#[test]
fn a_future_unlocks_waits_and_locks_again() {
    let _watch = watch();
    let pair = pair(0);
    let mut future = ByHand::waiting(pair.1.wait_async(pair.0.lock()));
    assert!(!pair.0.is_locked());
    assert!(future.poll_elsewhere().is_none());
    pair.1.notify_one();
    *future.woken() += 1;
    assert_eq!(*pair.0.lock(), 1);

    // Notified while the mutex is locked: it waits for that, too.
    let mut future = ByHand::waiting(pair.1.wait_async(pair.0.lock()));
    let guard = pair.0.lock();
    pair.1.notify_all();
    assert!(future.poll().is_none());
    drop(guard);
    *future.woken() += 1;
    assert_eq!(*pair.0.try_lock().unwrap(), 2);
}

#[test]
fn a_dropped_future_does_not_swallow_a_notification() {
    let _watch = watch();
    let pair = pair(0);
    let waits = || ByHand::waiting(pair.1.wait_async(pair.0.lock()));
    // Dropped while it waits.
    let (first, second) = (waits(), waits());
    drop(first);
    pair.1.notify_one();
    drop(second.woken());
    // Dropped when it was notified, before it knew.
    let (first, second) = (waits(), waits());
    pair.1.notify_one();
    assert!(first.is_woken() && !second.is_woken());
    drop(first);
    drop(second.woken());
    // Of notify_all there is nothing to pass on.
    let (first, second) = (waits(), waits());
    pair.1.notify_all();
    let third = waits();
    drop(first);
    drop(second.woken());
    assert!(!third.is_woken());
    drop(third);
    assert!(!pair.0.is_locked());
}

#[test]
fn a_dropped_future_passes_its_notification_on_to_a_fiber() {
    let _watch = watch();
    let runtime = runtime(1);
    let pair = pair(0);
    let first = ByHand::waiting(pair.1.wait_async(pair.0.lock()));
    let theirs = pair.clone();
    let waiter = runtime.spawn(move || drop(theirs.1.wait(theirs.0.lock())));
    parked(&waiter);
    pair.1.notify_one();
    drop(first);
    waiter.join().unwrap();
}

#[test]
fn a_future_dropped_while_it_waits_for_the_mutex_passes_both_on() {
    let _watch = watch();
    let pair = pair(0);
    let mut first = ByHand::waiting(pair.1.wait_async(pair.0.lock()));
    let second = ByHand::waiting(pair.1.wait_async(pair.0.lock()));
    let guard = pair.0.lock();
    pair.1.notify_one();
    assert!(first.poll().is_none()); // in the mutex's line now
    let third = ByHand::waiting(pair.0.lock_async());
    drop(guard);
    drop(first);
    drop(third.woken());
    drop(second.woken());
    assert!(pair.0.try_lock().is_ok());
}
