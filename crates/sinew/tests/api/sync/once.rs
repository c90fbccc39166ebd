//! `Once`, `OnceLock` and `LazyLock`: initialisers that suspend, panic and race.

use super::poll::ByHand;
use super::{HOUR, SHORT, settle, spawn_parked};
use crate::harness::{Gate, OnDrop, in_fibers, is_expected, panic_expected, wait_until, watch};
use sinew::Cancelled;
use sinew::sync::{LazyLock, Once, OnceLock, TimedOut};
use sinew::time::Instant;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

#[test]
fn a_once_runs_one_initialiser_and_all_wait_for_its_end() {
    in_fibers(|| {
        let once = Arc::new((Once::new(), AtomicUsize::new(0)));
        let fibers: Vec<_> = (0..20)
            .map(|_| {
                let once = once.clone();
                sinew::spawn(move || {
                    once.0.call_once(|| {
                        settle(); // all others come meanwhile
                        once.1.fetch_add(1, Ordering::Relaxed);
                    });
                    assert!(once.0.is_completed());
                    assert_eq!(once.1.load(Ordering::Relaxed), 1);
                })
            })
            .collect();
        for fiber in fibers {
            fiber.join().unwrap();
        }
        once.0.call_once(|| panic!("it has run"));
        once.0.call_once_force(|_| panic!("it has run"));
    });
}

#[test]
fn an_initialiser_may_park_and_its_worker_goes_on() {
    in_fibers(|| {
        let once = Arc::new(Once::new());
        let theirs = once.clone();
        let first = spawn_parked(move || theirs.call_once(sinew::park));
        let theirs = once.clone();
        let second = spawn_parked(move || theirs.call_once(|| panic!("the second")));
        let theirs = once.clone();
        let waiter = spawn_parked(move || theirs.wait());
        settle();
        assert!(!once.is_completed());
        assert!(!second.is_finished() && !waiter.is_finished());
        first.fiber().unpark();
        for fiber in [first, second, waiter] {
            fiber.join().unwrap();
        }
        assert!(once.is_completed());
    });
}

#[test]
fn after_a_panicking_initialiser_the_next_one_tries() {
    in_fibers(|| {
        let once = Arc::new(Once::new());
        let panics = catch_unwind(AssertUnwindSafe(|| {
            once.call_once_force(|state| {
                assert!(!state.is_poisoned());
                panic_expected(1)
            });
        }));
        assert!(is_expected(&*panics.unwrap_err(), 1));
        assert!(!once.is_completed());
        let mut told = false;
        once.call_once_force(|state| told = state.is_poisoned());
        assert!(told && once.is_completed());

        let once = Once::new();
        let panics = catch_unwind(AssertUnwindSafe(|| once.call_once(|| panic_expected(2))));
        assert!(panics.is_err());
        let mut ran = false;
        once.call_once(|| ran = true); // no poison
        assert!(ran);
    });
}

#[test]
fn one_who_waits_to_initialise_tries_after_a_panic() {
    in_fibers(|| {
        let once = Arc::new(Once::new());
        let theirs = once.clone();
        let first = spawn_parked(move || {
            theirs.call_once(|| {
                sinew::park();
                panic_expected(3)
            });
        });
        let tries = Arc::new(AtomicUsize::new(0));
        let others: Vec<_> = (0..3)
            .map(|_| {
                let (once, tries) = (once.clone(), tries.clone());
                spawn_parked(move || {
                    once.call_once(|| {
                        sinew::yield_now();
                        tries.fetch_add(1, Ordering::SeqCst);
                    });
                })
            })
            .collect();
        // Who only waits goes on waiting.
        let theirs = once.clone();
        let waiter = spawn_parked(move || {
            theirs.wait();
            assert!(theirs.is_completed());
        });
        first.fiber().unpark();
        assert!(first.join().map(|()| ()).unwrap_err().is_panic());
        for fiber in others.into_iter().chain([waiter]) {
            fiber.join().unwrap();
        }
        assert_eq!(tries.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn a_wait_outlasts_an_initialiser_that_panics() {
    in_fibers(|| {
        let once = Arc::new(Once::new());
        let theirs = once.clone();
        let waiter = spawn_parked(move || theirs.wait());
        let panics = catch_unwind(AssertUnwindSafe(|| once.call_once(|| panic_expected(1))));
        assert!(panics.is_err());
        settle();
        assert!(!waiter.is_finished());
        once.call_once(|| ());
        waiter.join().unwrap();
    });
}

#[test]
fn a_once_is_awaited_in_time_until_cancelled_and_by_futures() {
    in_fibers(|| {
        let once = Arc::new(Once::new());
        for time in [Duration::ZERO, SHORT] {
            let begun = Instant::now();
            assert_eq!(once.wait_timeout(time), Err(TimedOut));
            assert!(begun.elapsed() >= time);
            let until = Instant::now() + time;
            assert_eq!(once.wait_deadline(until), Err(TimedOut));
            assert!(Instant::now() >= until);
        }
        let theirs = once.clone();
        let cancelled = spawn_parked(move || {
            let parked = theirs.wait_or_cancelled();
            theirs.call_once(|| ());
            (parked, theirs.wait_or_cancelled())
        });
        let theirs = once.clone();
        let deaf = spawn_parked(move || theirs.wait());
        deaf.cancel();
        let theirs = once.clone();
        let timed = spawn_parked(move || theirs.wait_timeout(HOUR));
        let future = ByHand::waiting(once.wait_async());
        drop(ByHand::waiting(once.wait_async()));
        cancelled.cancel();
        let both = cancelled.join().unwrap();
        assert_eq!(both, (Err(Cancelled), Err(Cancelled)));
        deaf.join().unwrap();
        assert_eq!(timed.join().unwrap(), Ok(()));
        future.woken();
        assert_eq!(once.wait_timeout(Duration::ZERO), Ok(()));
        assert_eq!(once.wait_or_cancelled(), Ok(()));
    });
}

#[test]
fn a_lock_is_set_once_and_hands_other_values_back() {
    static LOCK: OnceLock<String> = OnceLock::new();
    assert_eq!(LOCK.get(), None);
    assert_eq!(LOCK.set("first".into()), Ok(()));
    assert_eq!(LOCK.set("second".into()), Err("second".into()));
    assert_eq!(LOCK.get().unwrap(), "first");
    assert_eq!(LOCK.get_or_init(|| panic!("it is set")), "first");
    assert_eq!(LOCK.wait(), "first");
}

#[test]
fn one_initialiser_of_many_fills_a_lock() {
    in_fibers(|| {
        let shared = Arc::new((OnceLock::new(), AtomicUsize::new(0)));
        let fibers: Vec<_> = (0..20)
            .map(|i| {
                let shared = shared.clone();
                sinew::spawn(move || {
                    *shared.0.get_or_init(|| {
                        settle();
                        shared.1.fetch_add(1, Ordering::SeqCst);
                        i
                    })
                })
            })
            .collect();
        let answers: Vec<i32> = fibers.into_iter().map(|f| f.join().unwrap()).collect();
        let value = *shared.0.get().unwrap();
        assert!(answers.into_iter().all(|answer| answer == value));
        assert_eq!(shared.1.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn a_lock_stays_empty_after_an_error_or_a_panic() {
    in_fibers(|| {
        let lock: OnceLock<u32> = OnceLock::new();
        assert_eq!(lock.get_or_try_init(|| Err::<u32, _>("no")), Err("no"));
        assert_eq!(lock.get(), None);
        let panics = catch_unwind(AssertUnwindSafe(|| {
            lock.get_or_init(|| panic_expected(4));
        }));
        assert!(is_expected(&*panics.unwrap_err(), 4));
        assert_eq!(lock.get(), None);
        assert_eq!(lock.get_or_try_init(|| Ok::<_, ()>(5)), Ok(&5));
        assert_eq!(lock.get_or_try_init(|| Err("late")), Ok(&5));
    });
}

#[test]
fn after_an_error_one_who_waited_to_initialise_does() {
    in_fibers(|| {
        let lock: Arc<OnceLock<u32>> = Arc::default();
        let theirs = lock.clone();
        let first = spawn_parked(move || {
            let failed = theirs.get_or_try_init(|| {
                sinew::park();
                Err::<u32, _>(())
            });
            assert_eq!(failed, Err(()));
        });
        let theirs = lock.clone();
        let second = spawn_parked(move || *theirs.get_or_init(|| 2));
        let theirs = lock.clone();
        let waiter = spawn_parked(move || *theirs.wait());
        first.fiber().unpark();
        assert_eq!(second.join().unwrap(), 2);
        assert_eq!(waiter.join().unwrap(), 2);
        first.join().unwrap();
    });
}

#[test]
fn setting_a_lock_waits_for_the_initialiser_that_runs() {
    in_fibers(|| {
        let lock: Arc<OnceLock<u32>> = Arc::default();
        let theirs = lock.clone();
        let init = spawn_parked(move || {
            *theirs.get_or_init(|| {
                sinew::park();
                1
            })
        });
        assert_eq!(lock.get(), None);
        let theirs = lock.clone();
        let set = spawn_parked(move || theirs.set(2));
        init.fiber().unpark();
        assert_eq!(init.join().unwrap(), 1);
        assert_eq!(set.join().unwrap(), Err(2));
    });
}

#[test]
fn a_lock_is_awaited_in_time_until_cancelled_and_by_futures() {
    in_fibers(|| {
        let lock: Arc<OnceLock<u32>> = Arc::default();
        assert_eq!(lock.wait_timeout(SHORT), Err(TimedOut));
        assert_eq!(lock.wait_deadline(Instant::now()), Err(TimedOut));
        let theirs = lock.clone();
        let cancelled = spawn_parked(move || theirs.wait_or_cancelled().copied());
        cancelled.cancel();
        assert_eq!(cancelled.join().unwrap(), Err(Cancelled));
        let theirs = lock.clone();
        let timed = spawn_parked(move || theirs.wait_timeout(HOUR).copied());
        let future = ByHand::waiting(lock.wait_async());
        lock.set(3).unwrap();
        assert_eq!(timed.join().unwrap(), Ok(3));
        assert_eq!(*future.woken(), 3);
        assert_eq!(lock.wait_timeout(Duration::ZERO), Ok(&3));
        assert_eq!(lock.wait_or_cancelled(), Ok(&3));
    });
}

#[test]
fn a_lock_gives_its_value_back_and_drops_it_once() {
    let drops = Arc::new(AtomicUsize::new(0));
    let spy = || {
        let drops = drops.clone();
        OnDrop(move || {
            drops.fetch_add(1, Ordering::SeqCst);
        })
    };
    let count = || drops.load(Ordering::SeqCst);
    let lock = OnceLock::new();
    assert!(lock.set(spy()).is_ok());
    assert!(lock.set(spy()).is_err());
    assert_eq!(count(), 1);
    drop(lock);
    assert_eq!(count(), 2);
    drop(OnceLock::from(spy()).into_inner().unwrap());
    assert_eq!(count(), 3);
    let mut lock = OnceLock::from(spy());
    drop(lock.take());
    assert_eq!(count(), 4);
    assert!(lock.get().is_none() && lock.get_mut().is_none());
    assert!(lock.set(spy()).is_ok()); // as new
    drop(lock);
    assert_eq!(count(), 5);
    assert!(OnceLock::<u8>::new().into_inner().is_none());
}

#[test]
fn a_lock_is_cloned_compared_and_shown() {
    let empty = OnceLock::new();
    let full = OnceLock::from(7);
    assert_ne!(empty, full);
    assert_eq!(full, full.clone());
    assert_eq!(empty, empty.clone());
    assert!(format!("{full:?}").contains('7'));
    assert!(format!("{empty:?}").contains("uninit"), "{empty:?}");
    let mut full = full;
    *full.get_mut().unwrap() += 1;
    assert_eq!(full.get(), Some(&8));
}

#[test]
fn a_lazy_value_is_made_at_first_use_and_once() {
    static MADE: AtomicU32 = AtomicU32::new(0);
    static LAZY: LazyLock<u32> = LazyLock::new(|| {
        settle();
        MADE.fetch_add(1, Ordering::SeqCst) + 41
    });
    in_fibers(|| {
        let fibers: Vec<_> = (0..10).map(|_| sinew::spawn(|| *LAZY)).collect();
        for fiber in fibers {
            assert_eq!(fiber.join().unwrap(), 41);
        }
        assert_eq!(*LazyLock::force(&LAZY), 41);
        assert_eq!(MADE.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn a_lazy_value_that_is_never_used_is_never_made() {
    let begun = Gate::new();
    let theirs = begun.clone();
    let lazy = LazyLock::new(move || theirs.open());
    assert!(format!("{lazy:?}").contains("uninit"), "{lazy:?}");
    drop(lazy);
    assert!(!begun.is_open());
}

#[test]
fn a_lazy_value_is_tried_again_after_a_panic() {
    in_fibers(|| {
        let mut tries = 0;
        let lazy = LazyLock::new(move || {
            tries += 1;
            if tries < 3 {
                panic_expected(tries);
            }
            tries
        });
        for expected in [1, 2] {
            let panics = catch_unwind(AssertUnwindSafe(|| *lazy));
            assert!(is_expected(&*panics.unwrap_err(), expected));
        }
        assert_eq!(*lazy, 3);
        assert!(format!("{lazy:?}").contains('3'));
    });
}

#[test]
fn a_lazy_value_s_initialiser_may_wait_for_other_fibers() {
    in_fibers(|| {
        let go = Gate::new();
        let gate = go.clone();
        let lazy = Arc::new(LazyLock::new(move || {
            let gate = gate.clone();
            sinew::spawn(move || gate.pass()).join().unwrap();
            6
        }));
        let fibers: Vec<_> = (0..4)
            .map(|_| {
                let lazy = lazy.clone();
                spawn_parked(move || **lazy)
            })
            .collect();
        wait_until(|| fibers.iter().all(|fiber| !fiber.is_finished()));
        go.open();
        for fiber in fibers {
            assert_eq!(fiber.join().unwrap(), 6);
        }
    });
}

#[test]
fn an_initialiser_is_run_to_its_end_though_its_fiber_was_cancelled() {
    in_fibers(|| {
        let lock: Arc<OnceLock<u32>> = Arc::default();
        let theirs = lock.clone();
        let fiber = spawn_parked(move || {
            *theirs.get_or_init(|| match sinew::sleep(HOUR) {
                Err(Cancelled) => 1,
                Ok(()) => 2,
            })
        });
        fiber.cancel();
        assert_eq!(fiber.join().unwrap(), 1);
        assert_eq!(lock.get(), Some(&1));
    });
}

#[test]
fn an_initialiser_that_waits_for_itself_waits_until_something_else_ends_that() {
    in_fibers(|| {
        let lock: Arc<OnceLock<u32>> = Arc::default();
        let theirs = lock.clone();
        let waits_for_itself = spawn_parked(move || {
            *theirs.get_or_init(|| {
                assert_eq!(theirs.get(), None);
                assert_eq!(theirs.wait_timeout(SHORT), Err(TimedOut));
                assert_eq!(theirs.wait_or_cancelled(), Err(Cancelled));
                1
            })
        });
        settle();
        waits_for_itself.cancel();
        assert_eq!(waits_for_itself.join().unwrap(), 1);
        assert_eq!(lock.get(), Some(&1));
    });
}

#[test]
fn they_are_shared_between_threads() {
    let _watch = watch();
    fn shared<T: Send + Sync>() {}
    shared::<Once>();
    shared::<OnceLock<u8>>();
    shared::<LazyLock<u8>>();
    let lazy = LazyLock::new(|| 9);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(*lazy, 9));
        }
    });
}
