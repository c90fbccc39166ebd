//! Panics: contained, and invisible to others even while the fiber suspends in
//! the middle of unwinding. (Panic hooks are process-wide: see `tests/crash.rs`.)

use crate::harness::{
    Gate, Log, OnDrop, in_fibers, is_expected, on_workers, panic_expected, runtime, wait_until,
    watch,
};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::thread::panicking;
use std::time::Duration;

#[test]
fn a_panic_ends_its_fiber_and_nobody_else_notices() {
    in_fibers(|| {
        let others: Vec<_> = (0..20)
            .map(|i| {
                sinew::spawn(move || {
                    sinew::yield_now();
                    i
                })
            })
            .collect();
        let bad: Vec<_> = (0..20)
            .map(|i| sinew::spawn(move || panic_expected(i)))
            .collect();
        for (i, bad) in bad.into_iter().enumerate() {
            let error = bad.join().map(|()| ()).unwrap_err();
            assert!(is_expected(&*error.into_panic(), i as u64));
        }
        for (i, other) in others.into_iter().enumerate() {
            assert_eq!(other.join().unwrap(), i);
        }
    });
}

#[test]
fn a_detached_panic_is_nobody_s_problem() {
    on_workers(|runtime| {
        for _ in 0..50 {
            drop(runtime.spawn(|| panic_expected(1)));
        }
        assert_eq!(runtime.run(|| 1), 1);
    });
}

#[test]
fn a_panic_of_the_closure_goes_on_in_the_caller_of_run() {
    on_workers(|runtime| {
        let caught = catch_unwind(AssertUnwindSafe(|| runtime.run(|| panic_expected(6))));
        assert!(is_expected(&*caught.unwrap_err(), 6));
        assert_eq!(runtime.run(|| 2), 2);
    });
    let caught = catch_unwind(|| sinew::run(|| panic_expected(7)));
    assert!(is_expected(&*caught.unwrap_err(), 7));
}

/// A fiber that suspends in a drop while it unwinds; all it says of itself.
fn unwinding_with(wait: impl Fn() + Send + 'static) {
    let _waits = OnDrop(|| {
        assert!(panicking());
        wait();
        assert!(panicking());
    });
    panic_expected(1);
}

/// Every way to suspend.
fn waits() -> Vec<fn()> {
    vec![
        sinew::yield_now,
        || sinew::sleep(Duration::from_micros(100)).unwrap(),
        || sinew::park_timeout(Duration::from_micros(100)),
        || assert!(!sinew::spawn(panicking).join().unwrap()),
        || assert!(!sinew::spawn_local(panicking).join().unwrap()),
        || assert!(!sinew::blocking(panicking)),
        || {
            let child = sinew::spawn(|| {
                sinew::yield_now();
                panicking()
            });
            assert!(!sinew::block_on(child).unwrap());
        },
        || {
            let me = sinew::current();
            let waker = sinew::spawn(move || me.unpark());
            sinew::park();
            waker.join().unwrap();
        },
    ]
}

#[test]
fn a_drop_may_suspend_in_every_way_while_its_fiber_unwinds() {
    on_workers(|runtime| {
        for wait in waits() {
            let fiber = runtime.spawn(move || unwinding_with(wait));
            let error = fiber.join().unwrap_err();
            assert!(is_expected(&*error.into_panic(), 1));
            assert!(!runtime.run(panicking), "the worker kept a panic count");
        }
    });
}

#[test]
fn no_other_fiber_of_the_worker_sees_the_panic_meanwhile() {
    let _watch = watch();
    runtime(1).run(|| {
        let stop = Gate::new();
        let gate = stop.clone();
        let seen = Log::new();
        let log = seen.clone();
        let witness = sinew::spawn(move || {
            while !gate.is_open() {
                log.push(panicking());
                sinew::yield_now();
            }
        });
        let fibers: Vec<_> = (0..5)
            .map(|_| {
                sinew::spawn(|| {
                    unwinding_with(|| {
                        for _ in 0..20 {
                            sinew::yield_now();
                            assert!(panicking());
                        }
                    });
                })
            })
            .collect();
        for fiber in fibers {
            assert!(fiber.join().unwrap_err().is_panic());
        }
        stop.open();
        witness.join().unwrap();
        let seen = seen.take();
        assert!(seen.len() >= 20 && !seen.contains(&true));
    });
}

#[test]
fn an_innocent_mutex_is_not_poisoned_and_a_guilty_one_is() {
    let _watch = watch();
    runtime(1).run(|| {
        let innocent = Arc::new(Mutex::new(0));
        let guilty = Arc::new(Mutex::new(0));
        let unwinding = Gate::new();
        let locked = Gate::new();
        let gates = (unwinding.clone(), locked.clone());
        let theirs = guilty.clone();
        let bad = sinew::spawn(move || {
            // Dropped in this order: the wait, then the guard, both unwinding.
            let _guard = theirs.lock().unwrap();
            let _waits = OnDrop(|| {
                gates.0.open();
                gates.1.pass();
                sinew::yield_now();
            });
            panic_expected(1);
        });
        let gates = (unwinding.clone(), locked.clone());
        let theirs = innocent.clone();
        let good = sinew::spawn(move || {
            gates.0.pass();
            // Locked and released on the same worker while the other unwinds.
            *theirs.lock().unwrap() += 1;
            let mut guard = theirs.lock().unwrap();
            gates.1.open();
            sinew::yield_now();
            *guard += 1;
        });
        good.join().unwrap();
        assert!(bad.join().unwrap_err().is_panic());
        assert_eq!(*innocent.lock().expect("the innocent one is poisoned"), 2);
        assert!(guilty.lock().is_err(), "the guilty one is not poisoned");
    });
}

#[test]
fn another_fiber_may_panic_itself_while_one_unwinds() {
    on_workers(|runtime| {
        runtime.run(|| {
            let inner = || {
                let error = sinew::spawn_local(|| panic_expected(2)).join().map(|()| ());
                assert!(is_expected(&*error.unwrap_err().into_panic(), 2));
            };
            let outer = sinew::spawn(move || unwinding_with(inner));
            assert!(is_expected(&*outer.join().unwrap_err().into_panic(), 1));
        });
    });
}

#[test]
fn several_fibers_unwind_interleaved_each_with_its_own_count() {
    let _watch = watch();
    runtime(1).run(|| {
        let fibers: Vec<_> = (0..10u64)
            .map(|i| {
                sinew::spawn(move || {
                    let _waits = OnDrop(move || {
                        for _ in 0..i {
                            sinew::yield_now();
                            assert!(panicking());
                        }
                    });
                    panic_expected(i);
                })
            })
            .collect();
        for (i, fiber) in fibers.into_iter().enumerate() {
            assert!(!panicking());
            let error = fiber.join().map(|()| ()).unwrap_err();
            assert!(is_expected(&*error.into_panic(), i as u64));
        }
    });
}

#[test]
fn unwinding_inside_unwinding_may_suspend_at_every_depth() {
    fn nested(depth: u64) {
        let _drop = OnDrop(move || {
            sinew::yield_now();
            assert!(panicking());
            if depth > 0 {
                let caught = catch_unwind(|| nested(depth - 1));
                assert!(is_expected(&*caught.unwrap_err(), depth - 1));
            }
            sinew::yield_now();
            assert!(panicking());
        });
        panic_expected(depth);
    }
    in_fibers(|| {
        let fibers: Vec<_> = (0..4)
            .map(|_| {
                sinew::spawn(|| {
                    let caught = catch_unwind(|| nested(4));
                    assert!(is_expected(&*caught.unwrap_err(), 4));
                    assert!(!panicking());
                    sinew::yield_now();
                    assert!(!panicking());
                })
            })
            .collect();
        for fiber in fibers {
            fiber.join().unwrap();
        }
        assert!(!panicking());
    });
}

#[test]
fn a_child_spawned_while_unwinding_is_calm_and_may_unwind_too() {
    in_fibers(|| {
        let fiber = sinew::spawn(|| {
            unwinding_with(|| {
                let child = sinew::spawn(|| {
                    assert!(!panicking());
                    unwinding_with(sinew::yield_now);
                });
                assert!(child.join().unwrap_err().is_panic());
            });
        });
        assert!(is_expected(&*fiber.join().unwrap_err().into_panic(), 1));
    });
}

#[test]
fn a_runtime_is_used_in_a_drop_while_unwinding() {
    on_workers(|outer| {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            // On this thread, which unwinds.
            let _drop = OnDrop(|| {
                assert_eq!(outer.run(|| 5), 5);
                assert!(!outer.spawn(panicking).join().unwrap());
                let own = runtime(1);
                assert!(!own.run(panicking));
            });
            panic_expected(3);
        }));
        assert!(is_expected(&*caught.unwrap_err(), 3));
        let fiber = outer.spawn(|| {
            unwinding_with(|| {
                let own = runtime(1);
                assert!(!own.run(panicking));
            });
        });
        assert!(fiber.join().unwrap_err().is_panic());
    });
}

#[test]
fn a_caught_panic_that_is_resumed_after_a_wait_keeps_its_payload() {
    in_fibers(|| {
        let fiber = sinew::spawn(|| {
            let caught = catch_unwind(|| panic_expected(4));
            sinew::yield_now();
            assert!(!panicking());
            resume_unwind(caught.unwrap_err());
        });
        let error = fiber.join().map(|()| ()).unwrap_err();
        assert!(is_expected(&*error.into_panic(), 4));
    });
}

#[test]
fn the_end_of_a_runtime_waits_for_a_fiber_that_unwinds_slowly() {
    let _watch = watch();
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let ended = Gate::new();
        let theirs = ended.clone();
        drop(runtime.spawn(move || {
            unwinding_with(move || {
                sinew::sleep(Duration::from_millis(5)).unwrap();
                theirs.open();
            });
        }));
        drop(runtime);
        assert!(ended.is_open());
    }
}

#[test]
fn a_thousand_panics_leave_the_runtime_as_it_was() {
    on_workers(|runtime| {
        runtime.run(|| {
            for i in 0..1000u64 {
                let fiber = sinew::spawn(move || panic_expected(i));
                assert!(fiber.join().map(|()| ()).is_err());
            }
        });
        wait_until(|| runtime.stats().live == 0);
        wait_until(|| runtime.stats().stacks == 0);
    });
}
