//! Where closures and results are dropped, and what a drop may do.

use crate::harness::{
    DropSpy, Gate, Log, OnDrop, in_fibers, is_expected, on_workers, panic_expected, runtime,
    wait_until, watch,
};
use std::time::Duration;

#[test]
fn what_a_closure_captured_is_dropped_on_its_fiber() {
    in_fibers(|| {
        let log = Log::new();
        let spy = DropSpy(log.clone());
        let handle = sinew::spawn(move || {
            let _moved_in = &spy;
        });
        let id = handle.fiber().id();
        handle.join().unwrap();
        assert_eq!(log.take(), [id]);
    });
}

#[test]
fn a_joined_result_is_dropped_by_the_joiner_and_only_once() {
    in_fibers(|| {
        let log = Log::new();
        let spy = DropSpy(log.clone());
        let handle = sinew::spawn(move || spy);
        let spy = handle.join().unwrap();
        assert_eq!(log.len(), 0);
        drop(spy);
        assert_eq!(log.take(), [sinew::current().id()]);
    });
}

#[test]
fn the_result_of_a_detached_fiber_is_dropped_on_its_own_stack() {
    in_fibers(|| {
        let log = Log::new();
        let spy = DropSpy(log.clone());
        let go = Gate::new();
        let gate = go.clone();
        let handle = sinew::spawn(move || {
            gate.pass();
            spy
        });
        let fiber = handle.fiber();
        drop(handle);
        go.open();
        wait_until(|| log.len() == 1);
        assert_eq!(log.take(), [fiber.id()]);
    });
}

#[test]
fn the_result_of_a_fiber_that_has_ended_is_dropped_by_who_drops_the_handle() {
    on_workers(|runtime| {
        let log = Log::new();
        let spy = DropSpy(log.clone());
        let handle = runtime.spawn(move || spy);
        handle.fiber().wait().unwrap();
        assert_eq!(log.len(), 0);
        drop(handle);
        assert_eq!(log.take(), [sinew::current().id()]);
        // The same on a fiber, with a result too large for the block.
        let spy = DropSpy(log.clone());
        let large = runtime.spawn(move || (spy, [0u8; 4096]));
        large.fiber().wait().unwrap();
        let dropper = runtime.spawn(move || drop(large));
        let id = dropper.fiber().id();
        dropper.join().unwrap();
        assert_eq!(log.take(), [id]);
    });
}

#[test]
fn the_closure_of_a_fiber_cancelled_before_it_started_is_dropped_on_its_own_stack() {
    let _watch = watch();
    for workers in [1, 2] {
        let runtime = runtime(workers);
        runtime.run(|| {
            let log = Log::new();
            let ran = Gate::new();
            // The other worker, if there is one, is kept busy: it must not
            // start the fiber before it is cancelled.
            let (busy, release) = (Gate::new(), Gate::new());
            let theirs = (busy.clone(), release.clone());
            let hog = (workers == 2).then(|| {
                sinew::spawn(move || {
                    theirs.0.open();
                    theirs.1.spin();
                })
            });
            if hog.is_some() {
                busy.spin();
            }
            let spy = DropSpy(log.clone());
            let (theirs, slept) = (ran.clone(), Gate::new());
            let done = slept.clone();
            // The drop may wait like any other code of a fiber.
            let patient = OnDrop(move || {
                sinew::yield_now();
                // Else the join would pass the request on.
                sinew::shield(|| sinew::spawn(|| ()).join().unwrap());
                done.open();
            });
            let unstarted = sinew::spawn(move || {
                let _captured = (&spy, &patient);
                theirs.open();
            });
            unstarted.cancel();
            let id = unstarted.fiber().id();
            let error = unstarted.join().unwrap_err();
            assert!(error.is_cancelled(), "{error}");
            assert_eq!(log.take(), [id]);
            assert!(slept.is_open() && !ran.is_open());
            release.open();
            if let Some(hog) = hog {
                hog.join().unwrap();
            }
        });
    }
}

#[test]
fn a_panic_in_the_drop_of_an_unstarted_closure_is_its_result() {
    let _watch = watch();
    runtime(1).run(|| {
        let bomb = OnDrop(|| panic_expected(8));
        let unstarted = sinew::spawn(move || {
            let _captured = &bomb;
        });
        unstarted.cancel();
        let error = unstarted.join().unwrap_err();
        assert!(error.is_panic(), "{error}");
        assert!(is_expected(&*error.into_panic(), 8));
    });
}

#[test]
fn the_drop_of_a_detached_result_may_yield_sleep_spawn_join_block_and_panic() {
    on_workers(|runtime| {
        let steps = Log::new();
        for panics in [false, true] {
            let log = steps.clone();
            let result = OnDrop(move || {
                log.push("dropping");
                sinew::yield_now();
                sinew::sleep(Duration::from_millis(1)).unwrap();
                assert_eq!(sinew::spawn(|| 2).join().unwrap(), 2);
                assert_eq!(sinew::blocking(|| 3), 3);
                sinew::block_on(async { sinew::spawn(|| ()).await.unwrap() });
                log.push("dropped");
                if panics {
                    panic_expected(5);
                }
            });
            let handle = runtime.spawn(move || {
                sinew::park();
                result
            });
            let fiber = handle.fiber();
            drop(handle);
            fiber.unpark();
            fiber.wait().unwrap();
            wait_until(|| steps.len() == 2);
            assert_eq!(steps.take(), ["dropping", "dropped"]);
        }
        // Nobody else noticed.
        assert_eq!(runtime.run(|| sinew::spawn(|| 1).join().unwrap()), 1);
    });
}

#[test]
fn a_panicking_result_panics_where_it_is_dropped() {
    in_fibers(|| {
        let handle = sinew::spawn(|| OnDrop(|| panic_expected(6)));
        handle.fiber().wait().unwrap();
        let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(handle)));
        assert!(is_expected(&*dropped.unwrap_err(), 6));
        let joined = sinew::spawn(|| OnDrop(|| panic_expected(7)));
        let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            drop(joined.join().unwrap());
        }));
        assert!(is_expected(&*dropped.unwrap_err(), 7));
    });
}

#[test]
fn a_panicking_drop_of_a_capture_is_the_result_of_the_fiber() {
    in_fibers(|| {
        let bomb = OnDrop(|| panic_expected(9));
        let handle = sinew::spawn(move || {
            let _captured = &bomb;
            "lost"
        });
        let error = handle.join().map(|_| ()).unwrap_err();
        assert!(is_expected(&*error.into_panic(), 9));
    });
}

#[test]
fn a_panic_payload_whose_drop_panics_harms_nobody() {
    on_workers(|runtime| {
        let handle = runtime.spawn(|| {
            sinew::park();
            std::panic::resume_unwind(Box::new(OnDrop(|| panic_expected(3))));
        });
        let fiber = handle.fiber();
        drop(handle);
        fiber.unpark();
        fiber.wait().unwrap();
        assert_eq!(runtime.run(|| 1), 1);
    });
}

#[test]
fn a_runtime_s_end_waits_for_the_drop_of_a_detached_result() {
    let _watch = watch();
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let dropped = Gate::new();
        let theirs = dropped.clone();
        drop(runtime.spawn(move || {
            OnDrop(move || {
                sinew::sleep(Duration::from_millis(5)).unwrap();
                theirs.open();
            })
        }));
        drop(runtime);
        assert!(dropped.is_open());
    }
}

#[test]
fn a_capture_too_large_for_the_block_is_freed_once_in_every_case() {
    // Under a leak or double free the count is not one.
    let counted = std::sync::Arc::new(());
    on_workers(|runtime| {
        for case in 0..4 {
            let ours = counted.clone();
            let large = [1u8; 2000];
            let handle = runtime.spawn(move || {
                if case == 3 {
                    panic_expected(0);
                }
                (ours, large)
            });
            match case {
                0 => drop(handle.join().unwrap()),
                1 => drop(handle),
                2 => {
                    handle.fiber().wait().unwrap();
                    drop(handle);
                }
                _ => drop(handle.join().unwrap_err()),
            }
        }
        runtime.run(|| {
            let ours = counted.clone();
            let unstarted = sinew::spawn(move || ours);
            unstarted.cancel();
            drop(unstarted.join());
        });
        wait_until(|| std::sync::Arc::strong_count(&counted) == 1);
    });
}
