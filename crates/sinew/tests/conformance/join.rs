//! Waiting for the end of a fiber.

use crate::harness::{Gate, is_expected, panic_expected, wait_until};
use crate::{CALLERS, all, for_each};
use sinew::Cancelled;
use std::time::Duration;

#[test]
fn a_value_is_awaited() {
    for_each(&all(), |runtime, kind| {
        let go = Gate::new();
        let gate = go.clone();
        let handle = runtime.spawn(move || {
            gate.pass();
            vec![1, 2, 3]
        });
        let waiting = kind.start_join(runtime, handle);
        go.open();
        assert_eq!(waiting.get().unwrap(), [1, 2, 3], "{kind:?}");
    });
}

#[test]
fn a_value_that_is_there_already_is_taken() {
    for_each(&all(), |runtime, kind| {
        let handle = runtime.spawn(|| 7);
        handle.fiber().wait().unwrap();
        assert_eq!(
            kind.start_join(runtime, handle).get().unwrap(),
            7,
            "{kind:?}"
        );
    });
}

#[test]
fn a_waiter_that_waits_for_sure_is_woken() {
    // The fiber ends only after its waiter was seen waiting, where it can be.
    for_each(&all(), |runtime, kind| {
        for _ in 0..20 {
            let handle = runtime.spawn(sinew::park);
            let fiber = handle.fiber();
            let waiting = kind.start_join(runtime, handle);
            for _ in 0..20 {
                std::thread::yield_now();
            }
            fiber.unpark();
            waiting.get().unwrap();
        }
    });
}

#[test]
fn a_panic_is_handed_over() {
    for_each(&all(), |runtime, kind| {
        let handle = runtime.spawn(|| {
            sinew::park();
            panic_expected(12)
        });
        let fiber = handle.fiber();
        let waiting = kind.start_join(runtime, handle);
        fiber.unpark();
        let error = waiting.get().map(|()| ()).unwrap_err();
        assert!(is_expected(&*error.into_panic(), 12), "{kind:?}");
    });
}

#[test]
fn the_end_of_a_cancelled_sleep_is_awaited() {
    for_each(&all(), |runtime, kind| {
        let begun = Gate::new();
        let theirs = begun.clone();
        let handle = runtime.spawn(move || {
            theirs.open();
            sinew::sleep(Duration::from_secs(3600))
        });
        let fiber = handle.fiber();
        let waiting = kind.start_join(runtime, handle);
        begun.pass();
        fiber.cancel();
        assert_eq!(waiting.get().unwrap(), Err(Cancelled), "{kind:?}");
    });
}

#[test]
fn a_blocking_task_is_awaited() {
    for_each(&all(), |runtime, kind| {
        let go = Gate::new();
        let gate = go.clone();
        let handle = runtime.run(move || {
            sinew::spawn_blocking(move || {
                gate.spin();
                5
            })
        });
        let waiting = kind.start_join(runtime, handle);
        go.open();
        assert_eq!(waiting.get().unwrap(), 5, "{kind:?}");
    });
}

#[test]
fn all_kinds_wait_for_one_fiber_at_once() {
    for_each(&CALLERS, |runtime, kind| {
        let target = runtime.spawn(sinew::park);
        let fiber = target.fiber();
        let waiting: Vec<_> = CALLERS
            .into_iter()
            .chain([kind; 10])
            .map(|kind| {
                let fiber = fiber.clone();
                kind.start(runtime, move || fiber.wait())
            })
            .collect();
        let joined = crate::Kind::TokioMulti.start_join(runtime, target);
        fiber.unpark();
        for waiting in waiting {
            assert_eq!(waiting.get(), Ok(()));
        }
        joined.get().unwrap();
    });
}

#[test]
fn a_join_that_timed_out_gives_the_handle_back() {
    for_each(&CALLERS, |runtime, kind| {
        let handle = runtime.spawn(|| {
            sinew::park();
            3
        });
        let fiber = handle.fiber();
        let waiting = kind.start(runtime, move || {
            let mut handle = handle;
            for micros in [0, 1, 50, 500] {
                handle = handle
                    .join_timeout(Duration::from_micros(micros))
                    .unwrap_err();
            }
            handle
        });
        let handle = waiting.get();
        fiber.unpark();
        let waiting = kind.start(runtime, move || {
            handle.join_timeout(Duration::from_secs(3600))
        });
        assert_eq!(waiting.get().unwrap().unwrap(), 3, "{kind:?}");
    });
}

#[test]
fn a_timeout_that_races_with_the_end_loses_nothing() {
    for_each(&CALLERS, |runtime, kind| {
        for micros in 0..60 {
            let time = Duration::from_micros(micros * 2);
            let handle = runtime.spawn(move || {
                let _ = sinew::sleep(time);
                micros
            });
            let waiting = kind.start(runtime, move || match handle.join_timeout(time) {
                Ok(value) => value.unwrap(),
                Err(handle) => handle.join().unwrap(),
            });
            assert_eq!(waiting.get(), micros, "{kind:?}");
        }
    });
}

#[test]
fn a_dropped_await_detaches_and_wakes_nobody() {
    for_each(&[crate::Kind::TokioMulti], |runtime, _| {
        for round in 0..50 {
            let done = Gate::new();
            let theirs = done.clone();
            let handle = runtime.spawn(move || {
                sinew::park();
                theirs.open();
            });
            let fiber = handle.fiber();
            let task = crate::tokio_multi().spawn(handle);
            if round % 2 == 0 {
                std::thread::yield_now();
            }
            task.abort(); // drops the handle, polled or not
            fiber.unpark();
            wait_until(|| done.is_open());
            fiber.wait().unwrap();
        }
    });
}
