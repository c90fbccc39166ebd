//! Scopes inside of what has a limit of time, or of tokens that were entered.

use super::{FOR_EVER, HOUR, everywhere, waits_in};
use crate::harness::{Gate, on_workers, runtime, wait_until, watch};
use sinew::sync::Event;
use sinew::{CancelReason, CancelToken, Cancelled, WaitReason, scope, shield, timeout};
use std::sync::Arc;
use std::time::Duration;

const SOON: Duration = Duration::from_millis(5);

#[test]
fn a_timeout_cancels_the_children_while_the_owner_waits_at_the_end() {
    everywhere(|| {
        let mut told = None;
        let outcome = timeout(SOON, || {
            scope(|s| {
                s.spawn(|| told = Some((sinew::sleep(HOUR), sinew::cancel_reason())));
            });
        });
        assert!(outcome.is_err());
        // One that the limit met before it began has told nothing.
        if let Some(told) = told {
            assert_eq!(told, (Err(Cancelled), Some(CancelReason::Deadline)));
        }
        assert_eq!(sinew::check_cancelled(), Ok(()));
    });
}

#[test]
fn a_timeout_reaches_the_children_of_children() {
    everywhere(|| {
        let slept = timeout(SOON, || {
            scope(|s| {
                let child = s.spawn(|| scope(|inner| inner.spawn(|| sinew::sleep(HOUR)).join()));
                child.join()
            })
        });
        match slept.unwrap_err().into_inner() {
            Ok(Ok(slept)) => assert_eq!(slept, Err(Cancelled)),
            Ok(Err(error)) | Err(error) => assert!(error.is_cancelled()),
        }
    });
}

#[test]
fn a_timeout_that_cancelled_nobody_is_no_error() {
    everywhere(|| {
        let outcome = timeout(HOUR, || scope(|s| s.spawn(|| 1).join().unwrap()));
        assert_eq!(outcome, Ok(1));
    });
}

#[test]
fn a_timeout_reaches_the_children_while_the_owner_is_behind_a_shield() {
    everywhere(|| {
        let cancelled = Event::new();
        let outcome = timeout(SOON, || {
            scope(|s| {
                let child = s.spawn(|| {
                    let slept = sinew::sleep(HOUR);
                    cancelled.set();
                    slept
                });
                waits_in(&child.fiber(), WaitReason::Sleep);
                let told = shield(|| cancelled.wait_timeout(FOR_EVER));
                s.cancel(); // else a failure would be a hang
                told
            })
        });
        assert_eq!(outcome.map_err(sinew::Elapsed::into_inner), Err(Ok(())));
    });
}

#[test]
fn a_token_entered_around_a_scope_cancels_its_children() {
    everywhere(|| {
        let token = CancelToken::new();
        let theirs = token.clone();
        token.enter(|| {
            scope(|s| {
                let child = s.spawn(|| (sinew::sleep(HOUR), sinew::cancel_reason()));
                waits_in(&child.fiber(), WaitReason::Sleep);
                std::thread::spawn(move || theirs.cancel_with("the token"));
                let told = child.join().unwrap();
                assert_eq!(told, (Err(Cancelled), Some("the token".into())));
                assert!(s.is_cancelled());
            });
        });
        assert_eq!(sinew::check_cancelled(), Ok(()));
    });
}

#[test]
fn a_token_entered_inside_of_a_scope_is_not_seen_by_its_children() {
    everywhere(|| {
        let token = CancelToken::new();
        token.cancel();
        scope(|s| {
            token.enter(|| {
                assert_eq!(sinew::check_cancelled(), Err(Cancelled));
                let child = s.spawn(sinew::check_cancelled);
                assert!(!s.is_cancelled());
                wait_until(|| child.is_finished());
                assert_eq!(child.join().unwrap(), Ok(()));
            });
        });
    });
}

#[test]
fn a_thread_that_waits_at_the_end_is_reached_by_a_token() {
    let _watch = watch();
    let token = CancelToken::new();
    let theirs = token.clone();
    let asleep = Gate::new();
    let gate = asleep.clone();
    let thread = std::thread::spawn(move || {
        let mut told = None;
        theirs.enter(|| {
            scope(|s| {
                s.spawn(|| {
                    gate.open();
                    told = Some(sinew::sleep(HOUR));
                });
            });
        });
        told
    });
    asleep.spin();
    token.cancel();
    assert_eq!(thread.join().unwrap(), Some(Err(Cancelled)));
}

#[test]
fn a_scope_on_the_blocking_pool_is_cancelled_with_its_caller() {
    on_workers(|runtime| {
        let asleep = Gate::new();
        let gate = asleep.clone();
        let caller = runtime.spawn(move || {
            sinew::blocking(|| {
                let mut told = None;
                scope(|s| {
                    s.spawn(|| {
                        gate.open();
                        told = Some(sinew::sleep(HOUR));
                    });
                });
                told
            })
        });
        asleep.pass();
        caller.cancel();
        assert_eq!(caller.join().unwrap(), Some(Err(Cancelled)));
    });
}

#[test]
fn the_shutdown_of_a_runtime_ends_the_scopes_in_it() {
    let _watch = watch();
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let asleep = Arc::new(Event::new());
        let theirs = asleep.clone();
        let owner = runtime.spawn(move || {
            let mut told = None;
            scope(|s| {
                s.spawn(|| {
                    theirs.set();
                    told = Some((sinew::sleep(HOUR), sinew::cancel_reason()));
                });
            });
            told
        });
        asleep.wait().unwrap();
        runtime.shutdown_timeout(FOR_EVER).unwrap();
        let told = owner.join().unwrap();
        assert_eq!(told, Some((Err(Cancelled), Some(CancelReason::Shutdown))));
    }
}
