//! Cancellation as far as single fibers go.

use crate::harness::{Gate, in_fibers, on_workers, runtime, wait_until, watch};
use sinew::{Cancelled, WaitReason};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_sleeping_fiber_that_is_cancelled_wakes_with_that_answer() {
    on_workers(|runtime| {
        let asleep = runtime.spawn(|| sinew::sleep(HOUR));
        wait_until(|| asleep.fiber().wait_reason() == WaitReason::Sleep);
        asleep.cancel();
        assert_eq!(asleep.join().unwrap(), Err(Cancelled));
        wait_until(|| runtime.stats().live == 0);
    });
}

#[test]
fn from_the_request_on_every_point_answers_the_same() {
    in_fibers(|| {
        sinew::spawn(|| {
            assert_eq!(sinew::check_cancelled(), Ok(()));
            assert_eq!(sinew::checkpoint(), Ok(()));
            assert!(!sinew::is_cancelled());
            let ended = sinew::spawn(|| ());
            let fiber = ended.fiber();
            ended.join().unwrap();
            sinew::current().cancel();
            for _ in 0..3 {
                assert!(sinew::is_cancelled());
                assert_eq!(sinew::check_cancelled(), Err(Cancelled));
                assert_eq!(sinew::checkpoint(), Err(Cancelled));
                assert_eq!(sinew::sleep(Duration::ZERO), Err(Cancelled));
                assert_eq!(
                    sinew::sleep_until(sinew::time::Instant::now()),
                    Err(Cancelled)
                );
                assert_eq!(fiber.wait(), Err(Cancelled));
                assert_eq!(sinew::interval(HOUR).tick(), Err(Cancelled));
            }
        })
        .join()
        .unwrap();
    });
}

#[test]
fn a_loop_that_ignores_the_answer_freezes_nobody() {
    let _watch = watch();
    // One worker: if the answers did not yield, the other would never run.
    runtime(1).run(|| {
        let stop = Gate::new();
        let gate = stop.clone();
        let deaf = sinew::spawn(move || {
            sinew::current().cancel();
            while !gate.is_open() {
                let _ = sinew::check_cancelled();
            }
            while !gate.is_open() {
                let _ = sinew::sleep(HOUR);
            }
        });
        let gate = stop.clone();
        sinew::spawn(move || gate.open());
        deaf.join().unwrap();
    });
}

#[test]
fn a_cancel_ends_one_park_and_leaves_waits_that_are_no_points() {
    on_workers(|runtime| {
        let passed = Gate::new();
        let theirs = passed.clone();
        let parked = runtime.spawn(move || {
            sinew::park();
            theirs.open();
            sinew::park();
            sinew::is_cancelled()
        });
        let fiber = parked.fiber();
        wait_until(|| fiber.wait_reason() == WaitReason::Park);
        fiber.cancel();
        passed.pass();
        wait_until(|| fiber.wait_reason() == WaitReason::Park);
        for _ in 0..100 {
            std::thread::yield_now();
        }
        assert!(!parked.is_finished());
        fiber.unpark();
        assert!(parked.join().unwrap());
    });
}

#[test]
fn a_cancel_before_the_sleep_is_answered_on_entry() {
    on_workers(|runtime| {
        let go = Gate::new();
        let gate = go.clone();
        let fiber = runtime.spawn(move || {
            gate.pass();
            sinew::sleep(HOUR)
        });
        wait_until(|| fiber.fiber().spawned_at().is_some());
        let begun = runtime.spawn(|| ());
        begun.join().unwrap();
        wait_until(|| runtime.stats().switches > 2);
        fiber.cancel();
        go.open();
        // It had begun, or was dropped unrun: an hour did not pass either way.
        if let Ok(answer) = fiber.join() {
            assert_eq!(answer, Err(Cancelled));
        }
    });
}

#[test]
fn cancelling_a_plain_thread_or_what_has_ended_does_nothing() {
    in_fibers(|| {
        let handle = sinew::spawn(|| 4);
        handle.fiber().wait().unwrap();
        handle.cancel();
        assert_eq!(handle.join().unwrap(), 4);
    });
    let me = sinew::current();
    me.cancel();
    assert!(!sinew::is_cancelled());
    assert_eq!(sinew::check_cancelled(), Ok(()));
    assert_eq!(sinew::checkpoint(), Ok(()));
    assert_eq!(sinew::sleep(Duration::from_millis(1)), Ok(()));
}

#[test]
fn cancelling_a_parent_does_not_cancel_what_it_spawned() {
    in_fibers(|| {
        let parent = sinew::spawn(|| {
            let child = sinew::spawn(|| {
                sinew::park();
                sinew::is_cancelled()
            });
            sinew::current().cancel();
            child.fiber().unpark();
            child
        });
        let child = parent.join().unwrap();
        assert!(!child.join().unwrap());
    });
}

#[test]
fn blocking_and_block_on_are_no_points() {
    on_workers(|runtime| {
        let (go, begun) = (Gate::new(), Gate::new());
        let (gate, theirs) = (go.clone(), begun.clone());
        let fiber = runtime.spawn(move || {
            sinew::blocking(|| {
                theirs.open();
                gate.spin();
            });
            let value = sinew::block_on(sinew::Builder::new().spawn(|| 2).unwrap());
            (value.unwrap(), sinew::is_cancelled())
        });
        begun.pass();
        fiber.cancel();
        go.open();
        assert_eq!(fiber.join().unwrap(), (2, true));
    });
}

#[test]
fn an_io_error_made_of_a_cancellation_says_so_and_is_not_retried() {
    let error = std::io::Error::from(Cancelled);
    assert!(Cancelled::is_in(&error));
    assert_eq!(error.kind(), std::io::ErrorKind::Other);
    assert!(!Cancelled::is_in(&std::io::Error::other("something else")));
}
