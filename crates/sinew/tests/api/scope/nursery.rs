//! The scope that stops at the first failure.

use super::{Counts, HOUR, count, everywhere, panic_of, waits_in};
use crate::harness::{
    DropSpy, Gate, Log, is_expected, on_workers, panic_expected, runtime, wait_until, watch,
};
use sinew::scope::{Failure, nursery};
use sinew::{CancelReason, Cancelled, WaitReason, spawn};
use std::sync::atomic::AtomicUsize;

/// Sleeps until it is cancelled; says by what.
fn until_cancelled() -> Option<CancelReason> {
    assert_eq!(sinew::sleep(HOUR), Err(Cancelled));
    sinew::cancel_reason()
}

#[test]
fn if_nobody_fails_a_nursery_returns_what_its_body_does() {
    everywhere(|| {
        let words = ["one", "three"];
        let total = nursery(|n| {
            let lengths: Vec<_> = words
                .iter()
                .map(|word| n.spawn(|| Ok(word.len())))
                .collect();
            let mut total = 0;
            for length in lengths {
                total += length.join()?;
            }
            Ok::<_, Cancelled>(total)
        });
        assert_eq!(total.unwrap(), 8);
    });
}

#[test]
fn a_nursery_waits_for_who_was_not_joined() {
    on_workers(|runtime| {
        let go = Gate::new();
        let gate = go.clone();
        let owner = runtime.spawn(move || {
            let mut done = false;
            let outcome: Result<(), Failure<()>> = nursery(|n| {
                n.spawn(|| {
                    gate.pass();
                    done = true;
                    Ok(())
                });
                Ok(())
            });
            outcome.unwrap();
            done
        });
        waits_in(&owner.fiber(), WaitReason::Scope);
        go.open();
        assert!(owner.join().unwrap());
    });
}

#[test]
fn the_first_error_cancels_the_rest_and_the_body_and_is_the_answer() {
    everywhere(|| {
        let mut told = None;
        let outcome: Result<(), _> = nursery(|n| {
            let sleeper = n.spawn(|| {
                told = until_cancelled();
                Ok::<_, &str>("a value that is not lost")
            });
            waits_in(&sleeper.fiber(), WaitReason::Sleep);
            let failing = n.spawn(|| Err::<(), _>("first"));
            // The body is told, too; and joins as ever.
            assert_eq!(until_cancelled(), Some(CancelReason::Failed));
            assert!(n.is_cancelled() && n.token().is_cancelled());
            assert_eq!(failing.join(), Err(Cancelled));
            assert_eq!(sleeper.join(), Ok("a value that is not lost"));
            Err("later")
        });
        assert_eq!(outcome.unwrap_err().into_error(), Some("first"));
        assert_eq!(told, Some(CancelReason::Failed));
        assert_eq!(sinew::check_cancelled(), Ok(()));
    });
}

#[test]
fn the_error_of_the_body_cancels_the_children() {
    everywhere(|| {
        let mut told = None;
        let outcome: Result<(), _> = nursery(|n| {
            let sleeper = n.spawn(|| {
                told = until_cancelled();
                Err::<(), _>("later")
            });
            waits_in(&sleeper.fiber(), WaitReason::Sleep);
            Err("the body's")
        });
        assert_eq!(outcome.unwrap_err().into_error(), Some("the body's"));
        assert_eq!(told, Some(CancelReason::Failed));
    });
}

#[test]
fn the_panic_of_a_child_is_a_failure() {
    everywhere(|| {
        let outcome: Result<i32, Failure<()>> = nursery(|n| {
            let sleeper = n.spawn(|| Ok(until_cancelled()));
            waits_in(&sleeper.fiber(), WaitReason::Sleep);
            let failing = n.spawn(|| panic_expected(1));
            assert_eq!(sleeper.join(), Ok(Some(CancelReason::Failed)));
            assert_eq!(failing.join().map(|()| ()), Err(Cancelled));
            Ok(1)
        });
        match outcome {
            Err(Failure::Panic(panic)) => assert!(is_expected(&*panic.into_inner(), 1)),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn the_panic_of_the_body_cancels_the_children_and_goes_on() {
    everywhere(|| {
        let mut told = None;
        let payload = panic_of(|| {
            nursery::<_, (), ()>(|n| {
                let sleeper = n.spawn(|| {
                    told = until_cancelled();
                    Ok(())
                });
                waits_in(&sleeper.fiber(), WaitReason::Sleep);
                panic_expected(2);
            })
        });
        assert!(is_expected(&*payload, 2));
        assert_eq!(told, Some(CancelReason::Failed));
    });
}

#[test]
fn the_panic_of_the_body_goes_before_the_failure_of_a_child() {
    everywhere(|| {
        let payload = panic_of(|| {
            nursery::<_, (), &str>(|n| {
                let failing = n.spawn(|| Err::<(), _>("first"));
                wait_until(|| failing.is_finished());
                panic_expected(3);
            })
        });
        assert!(is_expected(&*payload, 3));
    });
}

#[test]
fn a_child_cancelled_before_it_ran_is_a_failure() {
    let _watch = watch();
    // One worker: it cannot begin before it is cancelled.
    runtime(1).run(|| {
        let log = Log::new();
        let outcome: Result<(), Failure<()>> = nursery(|n| {
            let spy = DropSpy(log.clone());
            let child = n.spawn(move || {
                let _captured = &spy;
                Ok(())
            });
            child.cancel();
            let id = child.fiber().id();
            assert_eq!(child.join(), Err(Cancelled));
            assert_eq!(log.take(), [id]);
            assert!(n.is_cancelled());
            Ok(())
        });
        assert!(outcome.unwrap_err().is_cancelled());
    });
}

#[test]
fn a_child_started_after_the_failure_never_runs() {
    everywhere(|| {
        let outcome: Result<(), _> = nursery(|n| {
            let failing = n.spawn(|| Err::<(), _>("first"));
            assert_eq!(failing.join(), Err(Cancelled));
            let late = n.spawn(|| -> Result<(), _> { panic!("it is cancelled") });
            assert_eq!(late.join(), Err(Cancelled));
            Ok(())
        });
        assert_eq!(outcome.unwrap_err().into_error(), Some("first"));
    });
}

#[test]
fn a_child_that_was_cancelled_and_returns_a_value_is_no_failure() {
    everywhere(|| {
        let outcome = nursery(|n| {
            let child = n.spawn(|| Ok::<_, ()>(until_cancelled()));
            waits_in(&child.fiber(), WaitReason::Sleep);
            child.cancel();
            assert_eq!(child.join(), Ok(Some(CancelReason::Requested)));
            assert!(!n.is_cancelled());
            Ok(7)
        });
        assert_eq!(outcome.unwrap(), 7);
    });
}

#[test]
fn errors_that_come_later_are_dropped_once_and_before_the_nursery_returns() {
    everywhere(|| {
        let drops = AtomicUsize::new(0);
        let outcome: Result<(), _> = nursery(|n| {
            let failing = n.spawn(|| Err::<(), _>((1, Counts(&drops))));
            wait_until(|| failing.is_finished());
            for i in 2..5 {
                let drops = &drops;
                let late = n.spawn(move || {
                    let _ = sinew::check_cancelled();
                    Err::<(), _>((i, Counts(drops)))
                });
                drop(late); // cancelled before it runs, or not
            }
            assert_eq!(count(&drops), 0);
            Err((5, Counts(&drops)))
        });
        let (number, kept) = outcome.unwrap_err().into_error().unwrap();
        assert_eq!((number, count(&drops)), (1, 1));
        drop(kept);
        assert_eq!(count(&drops), 2);
    });
}

#[test]
fn of_errors_at_the_same_time_one_is_kept_and_the_others_are_dropped() {
    everywhere(|| {
        for _ in 0..50 {
            let (made, drops) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let outcome: Result<(), _> = nursery(|n| {
                for _ in 0..4 {
                    n.spawn(|| {
                        made.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        Err::<(), _>(Counts(&drops))
                    });
                }
                Ok(())
            });
            let kept = outcome.unwrap_err().into_error().unwrap();
            assert_eq!(count(&drops) + 1, count(&made));
            drop(kept);
        }
    });
}

#[test]
fn the_value_of_a_body_whose_child_failed_is_dropped() {
    everywhere(|| {
        let drops = AtomicUsize::new(0);
        let outcome = nursery(|n| {
            n.spawn(|| Err::<(), _>("failed"));
            Ok(Counts(&drops))
        });
        assert!(outcome.is_err());
        assert_eq!(count(&drops), 1);
    });
}

#[test]
fn cancelled_from_outside_a_nursery_is_no_failure_of_itself() {
    on_workers(|runtime| {
        let owner = runtime.spawn(|| {
            nursery(|n| {
                let child = n.spawn(|| Ok::<_, ()>(until_cancelled()));
                Ok(child.join().unwrap())
            })
            .unwrap()
        });
        waits_in(&owner.fiber(), WaitReason::Join);
        wait_until(|| runtime.stats().parked >= 2);
        owner.cancel();
        assert_eq!(owner.join().unwrap(), Some(CancelReason::Requested));
    });
}

#[test]
fn a_nursery_can_be_cancelled_by_hand_and_by_its_token() {
    everywhere(|| {
        for by_token in [false, true] {
            let outcome = nursery(|n| {
                let child = n.spawn(|| Ok::<_, ()>(until_cancelled()));
                waits_in(&child.fiber(), WaitReason::Sleep);
                if by_token {
                    n.token().cancel_with("enough");
                } else {
                    n.cancel_with("enough");
                }
                Ok(child.join())
            });
            assert_eq!(outcome.unwrap(), Ok(Some(CancelReason::from("enough"))));
        }
    });
}

#[test]
fn children_of_a_nursery_start_others() {
    everywhere(|| {
        let outcome: Result<(), _> = nursery(|n| {
            n.spawn(|| {
                n.spawn(|| Err::<(), _>("a grandchild, so to say"));
                Ok(())
            });
            Ok(())
        });
        assert_eq!(outcome.unwrap_err().to_string(), "a grandchild, so to say");
    });
}

#[test]
fn failures_show_what_they_are() {
    let _watch = watch();
    let panicked: Result<(), Failure<Cancelled>> = nursery(|n| {
        n.spawn(|| -> Result<(), _> { std::panic::resume_unwind(Box::new("boom")) });
        Ok(())
    });
    let panicked = panicked.unwrap_err();
    assert_eq!(panicked.to_string(), "a child panicked: boom");
    assert_eq!(format!("{panicked:?}"), "Panic(Some(\"boom\"))");
    assert!(panicked.is_panic() && !panicked.is_cancelled());
    let payload = panic_of(|| panicked.error_or_resume());
    assert_eq!(super::text_of(&*payload), "boom");
    let failed: Failure<Cancelled> = Failure::Error(Cancelled);
    assert!(std::error::Error::source(&failed).is_some());
    assert_eq!(failed.to_string(), Cancelled.to_string());
    assert_eq!(failed.error_or_resume(), Some(Cancelled));
    let cancelled: Failure<Cancelled> = Failure::Cancelled;
    assert_eq!(cancelled.to_string(), "a child was cancelled before it ran");
    assert_eq!(cancelled.into_error(), None);
    // Usable with `?` where errors are boxed.
    fn boxed() -> Result<(), Box<dyn std::error::Error>> {
        nursery(|n| {
            n.spawn(|| Err::<(), _>(std::io::Error::other("inner")));
            Ok(())
        })?;
        Ok(())
    }
    assert_eq!(
        spawn(|| boxed().unwrap_err().to_string()).join().unwrap(),
        "inner"
    );
}
