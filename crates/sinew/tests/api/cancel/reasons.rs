//! Why something was cancelled, for each kind of cause.

use super::{HOUR, SHORT, everywhere, parked, spawn_parked};
use crate::harness::{Gate, Log, in_fibers, runtime, wait_until, watch};
use sinew::scope::{Failure, nursery, race};
use sinew::{CancelReason, CancelToken, WaitReason, cancel_reason};
use std::sync::Mutex;
use std::time::Duration;

/// Waits until it is told to stop, and answers why.
fn told() -> Option<CancelReason> {
    sinew::sleep(HOUR).unwrap_err();
    cancel_reason()
}

#[test]
fn nobody_has_asked() {
    everywhere(|| assert_eq!(cancel_reason(), None));
}

#[test]
fn somebody_has_asked() {
    in_fibers(|| {
        let fiber = spawn_parked(told);
        fiber.cancel();
        assert_eq!(fiber.join().unwrap(), Some(CancelReason::Requested));
        sinew::scope(|s| {
            let child = s.spawn(told);
            parked(&child.fiber());
            s.cancel();
            assert_eq!(child.join().unwrap(), Some(CancelReason::Requested));
        });
    });
}

#[test]
fn somebody_has_asked_and_said_why() {
    everywhere(|| {
        let token = CancelToken::new();
        token.cancel_with(String::from("by a token"));
        assert_eq!(token.enter(cancel_reason), Some("by a token".into()));
        sinew::scope(|s| {
            let child = s.spawn(told);
            parked(&child.fiber());
            s.cancel_with("by the scope");
            assert_eq!(child.join().unwrap(), Some("by the scope".into()));
            assert_eq!(cancel_reason(), Some("by the scope".into()));
        });
        assert_eq!(cancel_reason(), None);
    });
}

#[test]
fn the_time_is_over() {
    everywhere(|| {
        let outcome = sinew::timeout(SHORT, told);
        let reason = outcome.unwrap_err().into_inner();
        assert_eq!(reason, Some(CancelReason::Deadline));
        let outcome = sinew::timeout(Duration::from_millis(5), || {
            sinew::scope(|s| s.spawn(told).join().ok().flatten())
        });
        // None: it was cancelled before it ran.
        let reason = outcome.unwrap_err().into_inner();
        assert!(reason.is_none_or(|reason| reason == CancelReason::Deadline));
    });
}

#[test]
fn another_child_has_failed() {
    everywhere(|| {
        let seen = Mutex::new(None);
        let outcome: Result<(), _> = nursery(|n| {
            let child = n.spawn(|| {
                *seen.lock().unwrap() = told();
                Ok(())
            });
            parked(&child.fiber());
            n.spawn(|| Err::<(), _>("broken"));
            Ok(())
        });
        assert!(matches!(outcome, Err(Failure::Error("broken"))));
        assert_eq!(seen.into_inner().unwrap(), Some(CancelReason::Failed));
    });
}

#[test]
fn another_child_was_first() {
    everywhere(|| {
        let seen = Mutex::new(None);
        let winner = race(|r| {
            let child = r.spawn(|| {
                *seen.lock().unwrap() = told();
                Err(())
            });
            parked(&child);
            r.spawn(|| Ok(5));
        });
        assert_eq!(winner.unwrap(), 5);
        assert_eq!(seen.into_inner().unwrap(), Some(CancelReason::Lost));
    });
}

#[test]
fn the_body_of_the_scope_has_ended() {
    everywhere(|| {
        let seen = Mutex::new(None);
        sinew::scope(|s| {
            s.cancel_on_exit();
            let child = s.spawn(|| *seen.lock().unwrap() = told());
            parked(&child.fiber());
        });
        assert_eq!(seen.into_inner().unwrap(), Some(CancelReason::ScopeEnded));
    });
}

#[test]
fn the_runtime_shuts_down() {
    let _watch = watch();
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let asleep = runtime.spawn(told);
        let owner = runtime.spawn(|| {
            let seen = Mutex::new(None);
            sinew::scope(|s| {
                let child = s.spawn(|| *seen.lock().unwrap() = told());
                parked(&child.fiber());
            });
            seen.into_inner().unwrap()
        });
        parked(&asleep.fiber());
        wait_until(|| owner.fiber().wait_reason() == WaitReason::Scope);
        runtime.shutdown_timeout(HOUR).unwrap();
        let want = Some(CancelReason::Shutdown);
        assert_eq!(asleep.join().unwrap(), want);
        assert_eq!(owner.join().unwrap(), want);
    }
}

#[test]
fn a_child_that_its_owner_joins_is_told_the_reason_of_the_owner() {
    let _watch = watch();
    let runtime = runtime(2);
    for _ in 0..1000 {
        let owner = runtime.spawn(|| {
            sinew::scope(|s| {
                let child = s.spawn(told);
                parked(&child.fiber());
                child.join().unwrap()
            })
        });
        wait_until(|| owner.fiber().wait_reason() == WaitReason::Join);
        owner.fiber().token().cancel_with("from above");
        assert_eq!(owner.join().unwrap(), Some("from above".into()));
    }
}

#[test]
fn what_is_asked_of_a_fiber_is_the_reason_of_all_below_it() {
    in_fibers(|| {
        let (seen, asleep) = (Log::new(), Gate::new());
        let theirs = (seen.clone(), asleep.clone());
        let fiber = sinew::spawn(move || {
            let (seen, asleep) = theirs;
            sinew::scope(|s| {
                s.spawn(|| {
                    sinew::scope(|deeper| {
                        let child = deeper.spawn(|| seen.push(told()));
                        parked(&child.fiber());
                        asleep.open();
                    });
                    seen.push(cancel_reason());
                });
            });
            seen.push(cancel_reason());
        });
        asleep.pass();
        fiber.fiber().token().cancel_with("from the top");
        fiber.join().unwrap();
        let why: Option<CancelReason> = Some("from the top".into());
        assert_eq!(seen.take(), [why.clone(), why.clone(), why]);
    });
}

#[test]
fn each_reason_has_words() {
    for (reason, words) in [
        (CancelReason::Requested, "cancelled on request"),
        (CancelReason::Deadline, "the deadline has passed"),
        (CancelReason::Failed, "another child of the scope failed"),
        (CancelReason::Lost, "another child won the race"),
        (CancelReason::ScopeEnded, "the body of the scope has ended"),
        (CancelReason::Supervisor, "stopped by its supervisor"),
        (CancelReason::Shutdown, "the runtime shuts down"),
        ("my own".into(), "my own"),
    ] {
        assert_eq!(reason.to_string(), words);
    }
}
