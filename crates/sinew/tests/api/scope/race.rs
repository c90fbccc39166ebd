//! The scope that stops at the first success.

use super::{Counts, HOUR, count, everywhere, panic_of, waits_in};
use crate::harness::{Gate, is_expected, on_workers, panic_expected, runtime, wait_until, watch};
use sinew::scope::{Failure, NoWinner, race};
use sinew::{CancelReason, Cancelled, WaitReason};
use std::sync::atomic::AtomicUsize;

#[test]
fn the_first_success_wins_and_the_losers_are_cancelled_and_awaited() {
    everywhere(|| {
        let texts = ["won", "lost"];
        let mut told = None;
        let winner = race(|r| {
            let loser = r.spawn(|| {
                assert_eq!(sinew::sleep(HOUR), Err(Cancelled));
                told = sinew::cancel_reason();
                Err(Cancelled)
            });
            waits_in(&loser, WaitReason::Sleep);
            r.spawn(|| Ok(texts[0]));
            // The body is told, too.
            assert_eq!(sinew::sleep(HOUR), Err(Cancelled));
            assert_eq!(sinew::cancel_reason(), Some(CancelReason::Lost));
            assert!(r.is_won() && r.is_cancelled() && r.token().is_cancelled());
        });
        assert_eq!(winner.unwrap(), "won");
        assert_eq!(told, Some(CancelReason::Lost));
        assert_eq!(sinew::check_cancelled(), Ok(()));
    });
}

#[test]
fn failures_before_a_success_do_not_matter() {
    everywhere(|| {
        let drops = AtomicUsize::new(0);
        let winner = race(|r| {
            let failing = r.spawn(|| Err(Counts(&drops)));
            wait_until(|| failing.is_finished());
            let panicking = r.spawn(|| panic_expected(1));
            wait_until(|| panicking.is_finished());
            assert!(!r.is_won() && !r.is_cancelled());
            r.spawn(|| Ok(7));
        });
        assert_eq!(winner.ok(), Some(7));
        assert_eq!(count(&drops), 1);
    });
}

#[test]
fn if_all_fail_their_failures_are_the_answer_in_order() {
    everywhere(|| {
        let lost: NoWinner<&str> = race(|r| {
            let fail = |error: Option<&'static str>| {
                let child = r.spawn(move || match error {
                    Some(error) => Err(error),
                    None => panic_expected(2),
                });
                wait_until(|| child.is_finished());
            };
            fail(Some("first"));
            fail(None);
            fail(Some("third"));
        })
        .map(|()| ())
        .unwrap_err();
        assert_eq!(
            lost.to_string(),
            "none of 3 children succeeded; first: first"
        );
        assert_eq!(lost.failures().len(), 3);
        let mut failures = lost.into_failures().into_iter();
        assert_eq!(failures.next().unwrap().into_error(), Some("first"));
        match failures.next().unwrap() {
            Failure::Panic(panic) => assert!(is_expected(&*panic.into_inner(), 2)),
            other => panic!("{other:?}"),
        }
        assert_eq!(failures.next().unwrap().into_error(), Some("third"));
    });
}

#[test]
fn a_race_without_children_has_no_winner() {
    everywhere(|| {
        let lost = race::<_, (), Cancelled>(|_| ()).unwrap_err();
        assert!(lost.failures().is_empty());
        assert_eq!(lost.to_string(), "nobody took part in the race");
    });
}

#[test]
fn a_success_that_comes_late_is_dropped_before_the_race_returns() {
    everywhere(|| {
        let drops = AtomicUsize::new(0);
        let winner = race(|r| {
            let late = r.spawn(|| {
                let _ = sinew::sleep(HOUR);
                Ok::<_, ()>((2, Counts(&drops)))
            });
            waits_in(&late, WaitReason::Sleep);
            r.spawn(|| Ok((1, Counts(&drops))));
        });
        let Ok((number, kept)) = winner else {
            panic!("somebody has won");
        };
        assert_eq!((number, count(&drops)), (1, 1));
        drop(kept);
        assert_eq!(count(&drops), 2);
    });
}

#[test]
fn of_many_that_succeed_at_once_one_is_kept() {
    everywhere(|| {
        for _ in 0..50 {
            let (made, drops) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let winner = race(|r| {
                for _ in 0..4 {
                    r.spawn(|| {
                        made.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        Ok::<_, ()>(Counts(&drops))
                    });
                }
            });
            let kept = winner.map_err(drop).unwrap();
            assert_eq!(count(&drops) + 1, count(&made));
            drop(kept);
        }
    });
}

#[test]
fn who_starts_after_the_winner_never_runs() {
    everywhere(|| {
        let winner = race(|r| {
            r.spawn(|| Ok::<_, ()>(1));
            wait_until(|| r.is_won());
            wait_until(|| r.is_cancelled());
            r.spawn(|| panic!("it is cancelled"));
        });
        assert_eq!(winner.unwrap(), 1);
    });
}

#[test]
fn a_child_cancelled_before_it_ran_is_one_that_failed() {
    let _watch = watch();
    // One worker: it cannot begin before it is cancelled.
    runtime(1).run(|| {
        let lost = race::<_, (), ()>(|r| r.spawn(|| Ok(())).cancel()).unwrap_err();
        let failures = lost.into_failures();
        assert!(failures.len() == 1 && failures[0].is_cancelled());
    });
}

#[test]
fn a_child_that_is_cancelled_alone_leaves_the_race_to_the_others() {
    everywhere(|| {
        let winner = race(|r| {
            let one = r.spawn(|| sinew::sleep(HOUR).map(|()| 0));
            waits_in(&one, WaitReason::Sleep);
            one.cancel();
            wait_until(|| one.is_finished());
            assert!(!r.is_cancelled());
            r.spawn(|| Ok(1));
        });
        assert_eq!(winner.unwrap(), 1);
    });
}

#[test]
fn a_race_waits_for_losers_that_take_their_time() {
    on_workers(|runtime| {
        let go = Gate::new();
        let gate = go.clone();
        let owner = runtime.spawn(move || {
            let mut done = false;
            let winner = race(|r| {
                let begun = Gate::new();
                let theirs = begun.clone();
                let (gate, done) = (&gate, &mut done);
                r.spawn(move || {
                    theirs.open();
                    gate.pass();
                    *done = true;
                    Err(())
                });
                begun.pass();
                r.spawn(|| Ok(1));
            });
            (winner.ok(), done)
        });
        waits_in(&owner.fiber(), WaitReason::Scope);
        go.open();
        assert_eq!(owner.join().unwrap(), (Some(1), true));
    });
}

#[test]
fn a_panic_of_the_body_cancels_the_children_and_goes_on() {
    everywhere(|| {
        let mut told = None;
        let payload = panic_of(|| {
            race::<_, (), ()>(|r| {
                let child = r.spawn(|| {
                    told = Some(sinew::sleep(HOUR));
                    Ok(())
                });
                waits_in(&child, WaitReason::Sleep);
                panic_expected(3);
            })
        });
        assert!(is_expected(&*payload, 3));
        assert_eq!(told, Some(Err(Cancelled)));
    });
}

#[test]
fn cancelled_from_outside_a_race_has_no_winner() {
    on_workers(|runtime| {
        let owner = runtime.spawn(|| {
            let lost = race(|r| {
                for _ in 0..3 {
                    r.spawn(|| sinew::sleep(HOUR));
                }
            });
            let failures = lost.unwrap_err().into_failures();
            let told: Vec<_> = failures.into_iter().map(Failure::into_error).collect();
            told == [Some(Cancelled); 3]
        });
        waits_in(&owner.fiber(), WaitReason::Scope);
        wait_until(|| runtime.stats().parked >= 4);
        owner.cancel();
        assert!(owner.join().unwrap());
    });
}

#[test]
fn a_race_can_be_cancelled_by_hand_and_by_its_token() {
    everywhere(|| {
        for by_token in [false, true] {
            let lost = race(|r| {
                let child = r.spawn(|| sinew::sleep(HOUR));
                waits_in(&child, WaitReason::Sleep);
                if by_token {
                    r.token().cancel();
                } else {
                    r.cancel();
                }
            });
            let failures = lost.unwrap_err().into_failures();
            assert!(matches!(failures[..], [Failure::Error(Cancelled)]));
        }
    });
}
