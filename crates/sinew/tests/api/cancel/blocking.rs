//! Closures on the blocking pool see what their caller is cancelled by.

use super::{HOUR, SHORT, parked, spawn_parked};
use crate::harness::{Gate, in_fibers, wait_until, watch};
use sinew::channel::{RecvError, bounded};
use sinew::sync::Event;
use sinew::{CancelReason, CancelToken, Cancelled, Runtime, WaitReason, blocking, timeout};
use std::time::Duration;

#[test]
fn a_limit_around_ends_the_waits_of_the_closure() {
    in_fibers(|| {
        let slept = timeout(SHORT, || blocking(|| sinew::sleep(HOUR)));
        assert_eq!(slept.unwrap_err().into_inner(), Err(Cancelled));
        let (_tx, rx) = bounded::<u8>(1);
        let received = timeout(SHORT, || blocking(|| rx.recv()));
        let answer = received.unwrap_err().into_inner();
        assert_eq!(answer, Err(RecvError::Cancelled));
        let never = Event::new();
        let waited = timeout(SHORT, || blocking(|| never.wait()));
        assert_eq!(waited.unwrap_err().into_inner(), Err(Cancelled));
        let asked = timeout(SHORT, || blocking(|| while !sinew::is_cancelled() {}));
        asked.unwrap_err();
        assert_eq!(sinew::check_cancelled(), Ok(()));
        assert_eq!(blocking(sinew::check_cancelled), Ok(()));
    });
}

#[test]
fn a_limit_around_ends_one_park_of_the_closure() {
    in_fibers(|| {
        let begun = Gate::new();
        let fiber = sinew::spawn({
            let begun = begun.clone();
            move || {
                blocking(|| {
                    begun.open();
                    sinew::park();
                    sinew::check_cancelled()
                })
            }
        });
        begun.pass();
        fiber.cancel();
        assert_eq!(fiber.join().unwrap(), Err(Cancelled));
    });
}

#[test]
fn a_request_to_the_caller_ends_the_waits_of_the_closure() {
    in_fibers(|| {
        let begun = Gate::new();
        let theirs = begun.clone();
        let fiber = sinew::spawn(move || {
            blocking(|| {
                theirs.open();
                (sinew::sleep(HOUR), sinew::cancel_reason())
            })
        });
        begun.pass();
        fiber.fiber().token().cancel_with("enough");
        let answer = (Err(Cancelled), Some("enough".into()));
        assert_eq!(fiber.join().unwrap(), answer);
    });
}

#[test]
fn a_closure_that_is_cancelled_before_it_begins_still_runs_and_is_told() {
    let _watch = watch();
    let runtime = Runtime::builder()
        .workers(1)
        .blocking_threads(1)
        .build()
        .unwrap();
    runtime.run(|| {
        let (release, begun) = (Gate::new(), Gate::new());
        let theirs = (release.clone(), begun.clone());
        let busy = sinew::spawn_blocking(move || {
            theirs.1.open();
            theirs.0.spin();
        });
        begun.pass();
        let queued = spawn_parked(|| blocking(|| sinew::sleep(HOUR)));
        assert_eq!(queued.fiber().wait_reason(), WaitReason::Blocking);
        queued.cancel();
        release.open();
        assert_eq!(queued.join().unwrap(), Err(Cancelled));
        busy.join().unwrap();
    });
}

#[test]
fn a_park_of_a_closure_that_was_cancelled_before_it_began_returns() {
    let _watch = watch();
    let runtime = Runtime::builder()
        .workers(1)
        .blocking_threads(1)
        .build()
        .unwrap();
    runtime.run(|| {
        let (release, begun) = (Gate::new(), Gate::new());
        let theirs = (release.clone(), begun.clone());
        let busy = sinew::spawn_blocking(move || {
            theirs.1.open();
            theirs.0.spin();
        });
        begun.pass();
        let queued = spawn_parked(|| blocking(sinew::park));
        let fiber = queued.fiber();
        queued.cancel();
        // It has passed the request on, and waits again.
        sinew::yield_now();
        parked(&fiber);
        release.open();
        queued.join().unwrap();
        busy.join().unwrap();
    });
}

#[test]
fn a_token_of_one_closure_is_not_left_for_the_next_one_on_its_thread() {
    let _watch = watch();
    let runtime = Runtime::builder()
        .workers(1)
        .blocking_threads(1)
        .build()
        .unwrap();
    runtime.run(|| {
        let told = timeout(SHORT, || blocking(|| sinew::sleep(HOUR)));
        assert!(told.is_err());
        let unparked = Event::new();
        blocking(|| {
            let me = sinew::current();
            sinew::scope(|s| {
                s.spawn(|| {
                    sinew::sleep(SHORT).unwrap();
                    unparked.set();
                    me.unpark();
                });
                sinew::park();
                assert!(unparked.is_set());
            });
        });
    });
}

#[test]
fn a_shield_of_the_caller_holds_for_the_closure_and_one_inside_does_too() {
    in_fibers(|| {
        sinew::current().cancel();
        assert_eq!(blocking(sinew::check_cancelled), Err(Cancelled));
        let outside = sinew::shield(|| blocking(|| sinew::sleep(SHORT)));
        assert_eq!(outside, Ok(()));
        let inside = blocking(|| {
            let inside = sinew::shield(|| sinew::sleep(SHORT));
            (inside, sinew::check_cancelled())
        });
        assert_eq!(inside, (Ok(()), Err(Cancelled)));
    });
}

#[test]
fn limits_tokens_and_scopes_inside_of_the_closure_work() {
    in_fibers(|| {
        blocking(|| {
            let limited = timeout(SHORT, || sinew::sleep(HOUR));
            assert_eq!(limited.unwrap_err().into_inner(), Err(Cancelled));
            let token = CancelToken::new();
            token.cancel();
            assert_eq!(token.enter(|| sinew::sleep(HOUR)), Err(Cancelled));
            sinew::scope(|s| {
                let child = s.spawn(|| sinew::sleep(HOUR));
                parked(&child.fiber());
                s.cancel();
                assert_eq!(child.join().unwrap(), Err(Cancelled));
            });
            assert_eq!(sinew::check_cancelled(), Ok(()));
        });
    });
}

#[test]
fn a_scope_inside_of_the_closure_is_cancelled_with_the_caller() {
    in_fibers(|| {
        let (begun, fiber_begun) = bounded(1);
        let owner = sinew::spawn(move || {
            blocking(|| {
                sinew::scope(|s| {
                    let child = s.spawn(|| (sinew::sleep(HOUR), sinew::cancel_reason()));
                    parked(&child.fiber());
                    begun.send(()).unwrap();
                    child.join().unwrap()
                })
            })
        });
        fiber_begun.recv().unwrap();
        owner.cancel();
        let answer = (Err(Cancelled), Some(CancelReason::Requested));
        assert_eq!(owner.join().unwrap(), answer);

        // The owner does not join: it waits at the end of the scope.
        let outcome = timeout(SHORT, || {
            blocking(|| {
                sinew::scope(|s| {
                    s.spawn(|| sinew::sleep(HOUR));
                });
            });
        });
        outcome.unwrap_err();
    });
}

#[test]
fn the_wait_for_the_closure_itself_is_no_point() {
    in_fibers(|| {
        let go = Gate::new();
        let theirs = go.clone();
        let fiber = spawn_parked(move || {
            let value = blocking(|| {
                theirs.spin();
                5
            });
            (value, sinew::is_cancelled())
        });
        fiber.cancel();
        wait_until(|| fiber.fiber().wait_reason() == WaitReason::Blocking);
        assert!(!fiber.is_finished());
        go.open();
        assert_eq!(fiber.join().unwrap(), (5, true));
        let go = Gate::new();
        sinew::scope(|s| {
            let opener = s.spawn(|| {
                sinew::sleep(Duration::from_millis(10)).unwrap();
                go.open();
            });
            // Passed on to the closure, which is told nothing: no point, no error.
            let outcome = timeout(SHORT, || blocking(|| go.spin()));
            let _ = outcome;
            assert!(go.is_open());
            opener.join().unwrap();
        });
    });
}

#[test]
fn a_job_of_its_own_is_not_its_spawners() {
    in_fibers(|| {
        let go = Gate::new();
        let theirs = go.clone();
        let spawner = sinew::spawn(move || {
            let job = sinew::spawn_blocking(move || {
                theirs.spin();
                sinew::is_cancelled()
            });
            sinew::current().cancel();
            job
        });
        let job = spawner.join().unwrap();
        go.open();
        assert!(!job.join().unwrap());
    });
}
