//! Tokens: the tree, what they stand for, and who has entered them.

use super::{HOUR, SHORT, everywhere, parked, spawn_begun, spawn_parked};
use crate::harness::{Gate, Rng, in_fibers, is_expected, panic_expected, wait_until};
use sinew::time::Instant;
use sinew::{CancelReason, CancelToken, Cancelled, WaitReason};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[test]
fn a_request_goes_down_at_once_and_never_up() {
    everywhere(|| {
        let top = CancelToken::new();
        let (left, right) = (top.child(), top.child());
        let (leaf, deep) = (left.child(), left.child().child());
        left.cancel();
        assert!(left.is_cancelled() && leaf.is_cancelled() && deep.is_cancelled());
        assert!(!top.is_cancelled() && !right.is_cancelled());
        top.cancel();
        assert!(top.is_cancelled() && right.is_cancelled());
    });
}

#[test]
fn a_request_passes_through_a_token_that_nobody_holds_any_more() {
    everywhere(|| {
        let top = CancelToken::new();
        let leaf = top.child().child().child();
        top.cancel_with("far above");
        assert_eq!(leaf.reason(), Some("far above".into()));
    });
}

#[test]
fn a_child_of_a_cancelled_token_is_born_cancelled_for_the_same_reason() {
    everywhere(|| {
        let token = CancelToken::new();
        token.cancel_with("too late");
        for child in [
            token.child(),
            token.child_with_timeout(HOUR),
            token.child_with_deadline(Instant::now() + HOUR),
            token.child().child(),
        ] {
            assert_eq!(child.reason(), Some("too late".into()));
        }
    });
}

#[test]
fn only_the_first_request_gives_the_reason() {
    everywhere(|| {
        let token = CancelToken::new();
        let own = token.child();
        assert_eq!(token.reason(), None);
        own.cancel_with("mine");
        token.cancel();
        token.cancel_with("later");
        assert_eq!(own.reason(), Some("mine".into()));
        assert_eq!(token.reason(), Some(CancelReason::Requested));
        assert_eq!(token.child().reason(), Some(CancelReason::Requested));
    });
}

#[test]
fn clones_are_one_token_and_children_are_others() {
    let token = CancelToken::new();
    let clone = token.clone();
    assert_eq!(token, clone);
    assert_ne!(token, token.child());
    assert_ne!(token.child(), token.child());
    assert_ne!(CancelToken::new(), CancelToken::default());
    drop(token);
    let child = clone.child();
    clone.cancel();
    assert!(child.is_cancelled());
}

#[test]
fn a_token_knows_the_earliest_of_its_deadlines() {
    everywhere(|| {
        let now = Instant::now();
        let (early, late) = (now + HOUR, now + 2 * HOUR);
        let top = CancelToken::new();
        assert_eq!(top.deadline(), None);
        assert_eq!(top.child().deadline(), None);
        let inherits = top.child_with_deadline(early).child();
        assert_eq!(inherits.deadline(), Some(early));
        let above = top.child_with_deadline(early).child_with_deadline(late);
        assert_eq!(above.deadline(), Some(early));
        let own = top.child_with_deadline(late).child_with_deadline(early);
        assert_eq!(own.deadline(), Some(early));
        // Beyond the clock's range is never.
        assert_eq!(top.child_with_timeout(Duration::MAX).deadline(), None);
        assert!(!above.is_cancelled() && !own.is_cancelled());
    });
}

#[test]
fn a_deadline_cancels_the_token_and_what_is_below_but_not_what_is_above() {
    everywhere(|| {
        let top = CancelToken::new();
        let limited = top.child_with_timeout(SHORT);
        let below = limited.child();
        let other = limited.child_with_timeout(HOUR);
        wait_until(|| below.is_cancelled());
        // Each has the deadline from above, so none needs another to look.
        assert_eq!(below.reason(), Some(CancelReason::Deadline));
        assert_eq!(other.reason(), Some(CancelReason::Deadline));
        assert_eq!(limited.reason(), Some(CancelReason::Deadline));
        assert!(!top.is_cancelled());
        assert!(top.child_with_timeout(Duration::ZERO).is_cancelled());
        assert!(top.child_with_deadline(Instant::now()).is_cancelled());
    });
}

#[test]
fn every_point_inside_of_an_entered_token_sees_it_and_none_outside() {
    everywhere(|| {
        let token = CancelToken::new();
        token.enter(|| {
            assert_eq!(sinew::check_cancelled(), Ok(()));
            token.cancel_with("stop");
            for _ in 0..3 {
                assert!(sinew::is_cancelled());
                assert_eq!(sinew::check_cancelled(), Err(Cancelled));
                assert_eq!(sinew::sleep(HOUR), Err(Cancelled));
            }
            assert_eq!(sinew::cancel_reason(), Some("stop".into()));
        });
        assert!(!sinew::is_cancelled());
        assert_eq!(sinew::check_cancelled(), Ok(()));
        assert_eq!(sinew::sleep(Duration::ZERO), Ok(()));
        // Entered again it is cancelled from the start.
        let again = token.enter(|| sinew::sleep(HOUR));
        assert_eq!(again, Err(Cancelled));
        assert_eq!(sinew::check_cancelled(), Ok(()));
    });
}

#[test]
fn of_nested_tokens_the_outermost_that_is_cancelled_is_the_reason() {
    everywhere(|| {
        let (outer, middle, inner) = (CancelToken::new(), CancelToken::new(), CancelToken::new());
        outer.enter(|| {
            middle.enter(|| {
                inner.enter(|| {
                    inner.cancel_with("inner");
                    assert_eq!(sinew::cancel_reason(), Some("inner".into()));
                    outer.cancel_with("outer");
                    assert_eq!(sinew::cancel_reason(), Some("outer".into()));
                    middle.cancel_with("middle");
                    assert_eq!(sinew::cancel_reason(), Some("outer".into()));
                });
                assert_eq!(sinew::cancel_reason(), Some("outer".into()));
            });
            assert_eq!(sinew::cancel_reason(), Some("outer".into()));
        });
        assert_eq!(sinew::cancel_reason(), None);
    });
}

#[test]
fn a_token_may_be_entered_twice_on_one_stack_and_is_left_by_a_panic() {
    everywhere(|| {
        let token = CancelToken::new();
        let panic = catch_unwind(AssertUnwindSafe(|| {
            token.enter(|| token.enter(|| panic_expected(1)))
        }));
        assert!(is_expected(&*panic.unwrap_err(), 1));
        token.cancel();
        assert_eq!(sinew::check_cancelled(), Ok(()));
        let inner = token.enter(|| token.enter(sinew::check_cancelled));
        assert_eq!(inner, Err(Cancelled));
        assert_eq!(sinew::check_cancelled(), Ok(()));
    });
}

#[test]
fn a_deadline_of_an_entered_token_ends_waits_inside_and_cancels_the_token() {
    everywhere(|| {
        let limited = CancelToken::new().child_with_timeout(SHORT);
        let below = limited.child();
        let answer = limited.enter(|| {
            let answer = sinew::sleep(HOUR);
            assert_eq!(sinew::cancel_reason(), Some(CancelReason::Deadline));
            answer
        });
        assert_eq!(answer, Err(Cancelled));
        assert_eq!(below.reason(), Some(CancelReason::Deadline));
        assert_eq!(sinew::check_cancelled(), Ok(()));
    });
}

#[test]
fn one_request_reaches_all_fibers_and_threads_that_have_entered() {
    in_fibers(|| {
        let token = CancelToken::new();
        let fibers: Vec<_> = (0..300)
            .map(|i| {
                let theirs = if i % 2 == 0 {
                    token.clone()
                } else {
                    token.child()
                };
                spawn_parked(move || theirs.enter(|| sinew::sleep(HOUR)))
            })
            .collect();
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let theirs = token.clone();
                std::thread::spawn(move || theirs.enter(|| sinew::sleep(HOUR)))
            })
            .collect();
        token.cancel();
        for fiber in fibers {
            assert_eq!(fiber.join().unwrap(), Err(Cancelled));
        }
        for thread in threads {
            let answer = sinew::blocking(|| thread.join().unwrap());
            assert_eq!(answer, Err(Cancelled));
        }
    });
}

#[test]
fn who_enters_while_the_token_is_cancelled_is_told_in_any_case() {
    in_fibers(|| {
        let mut rng = Rng::new(7);
        for _ in 0..500 {
            let token = CancelToken::new();
            let theirs = if rng.chance(2) {
                token.child()
            } else {
                token.clone()
            };
            let begun = Gate::new();
            let gate = begun.clone();
            let entering = sinew::spawn(move || {
                gate.open();
                theirs.enter(|| sinew::sleep(HOUR))
            });
            if rng.chance(2) {
                begun.pass();
            }
            (0..rng.below(40)).for_each(|_| std::hint::spin_loop());
            token.cancel();
            assert_eq!(entering.join().unwrap(), Err(Cancelled));
        }
    });
}

#[test]
fn tokens_below_that_come_and_go_while_it_is_cancelled_are_all_told() {
    in_fibers(|| {
        for _ in 0..100 {
            let token = CancelToken::new();
            let born = Arc::new(AtomicUsize::new(0));
            let (theirs, count) = (token.clone(), born.clone());
            let maker = std::thread::spawn(move || {
                let mut kept = Vec::new();
                while !theirs.is_cancelled() {
                    drop(theirs.child()); // goes before it is told
                    kept.push(theirs.child());
                    count.fetch_add(1, Ordering::Relaxed);
                }
                kept
            });
            wait_until(|| born.load(Ordering::Relaxed) > 0);
            token.cancel();
            let kept = sinew::blocking(|| maker.join().unwrap());
            assert!(kept.iter().all(CancelToken::is_cancelled));
        }
    });
}

#[test]
fn a_long_line_of_tokens_is_cancelled_and_dropped_on_a_small_stack() {
    in_fibers(|| {
        for cancel in [true, false] {
            let top = CancelToken::new();
            let mut last = top.child();
            for _ in 0..100_000 {
                last = last.child();
            }
            if cancel {
                top.cancel();
                assert!(last.is_cancelled());
            }
            drop(top);
            drop(last);
        }
    });
}

#[test]
fn a_fibers_token_cancels_it_and_is_cancelled_with_it() {
    in_fibers(|| {
        let fiber = spawn_parked(|| (sinew::sleep(HOUR), sinew::cancel_reason()));
        let (token, below) = (fiber.fiber().token(), fiber.fiber().token().child());
        assert_eq!(token, fiber.fiber().token());
        assert!(!token.is_cancelled());
        token.cancel_with("by its token");
        assert!(below.is_cancelled());
        let answer = (Err(Cancelled), Some("by its token".into()));
        assert_eq!(fiber.join().unwrap(), answer);

        let fiber = spawn_parked(|| sinew::sleep(HOUR));
        let below = fiber.fiber().token().child();
        fiber.cancel();
        assert_eq!(below.reason(), Some(CancelReason::Requested));
        assert_eq!(fiber.fiber().token().reason(), below.reason());
        assert_eq!(fiber.join().unwrap(), Err(Cancelled));

        // First asked for after the request.
        let fiber = spawn_begun(|| {
            sinew::current().cancel();
            sinew::current().token()
        });
        let token = fiber.join().unwrap();
        assert_eq!(token.reason(), Some(CancelReason::Requested));
    });
}

#[test]
fn a_fiber_that_ends_as_soon_as_it_is_cancelled_does_not_take_its_token_along() {
    let _watch = crate::harness::watch();
    let runtime = crate::harness::runtime(2);
    for round in 0..3000 {
        // With a look at a point, and without.
        let fiber = runtime.spawn(move || match round % 2 {
            0 => drop(sinew::sleep(HOUR)),
            _ => sinew::park(),
        });
        parked(&fiber.fiber());
        let below = fiber.fiber().token().child();
        fiber.cancel();
        fiber.join().unwrap();
        assert!(below.is_cancelled(), "round {round}");
    }
}

#[test]
fn the_tokens_of_fibers_are_cancelled_when_their_runtime_shuts_down() {
    let _watch = crate::harness::watch();
    for _ in 0..50 {
        let runtime = crate::harness::runtime(2);
        let below: Vec<_> = (0..20)
            .map(|_| {
                let fiber = runtime.spawn(|| sinew::sleep(HOUR)).fiber();
                parked(&fiber);
                fiber.token().child()
            })
            .collect();
        runtime.shutdown_timeout(HOUR).unwrap();
        for token in below {
            assert_eq!(token.reason(), Some(CancelReason::Shutdown));
        }
    }
}

#[test]
fn the_token_of_a_fiber_that_has_not_begun_keeps_it_from_beginning() {
    let _watch = crate::harness::watch();
    // One worker: the fiber does not begin before we wait.
    crate::harness::runtime(1).run(|| {
        let fiber = sinew::spawn(|| panic!("it must not run")).fiber();
        let token = fiber.token();
        token.cancel();
        fiber.wait().unwrap();
        assert_eq!(token.reason(), Some(CancelReason::Requested));

        let fiber = sinew::spawn(|| panic!("it must not run")).fiber();
        fiber.cancel();
        assert!(fiber.token().is_cancelled());
        fiber.wait().unwrap();
    });
}

#[test]
fn the_token_of_a_fiber_that_has_ended_stands_for_nothing() {
    in_fibers(|| {
        let fiber = sinew::spawn(|| ()).fiber();
        let asked_before = fiber.token();
        fiber.wait().unwrap();
        assert!(!asked_before.is_cancelled());
        assert!(!fiber.token().is_cancelled());
        asked_before.cancel();
        fiber.token().cancel();
        // Nor does one of a thread, which cannot be cancelled.
        let thread = sinew::blocking(|| {
            let token = sinew::current().token();
            token.cancel();
            sinew::check_cancelled()
        });
        assert_eq!(thread, Ok(()));
    });
}

#[test]
fn a_fibers_token_does_not_keep_the_fiber_once_it_has_ended() {
    in_fibers(|| {
        // Dropped with the outcome, though the token lives on.
        let spy = Arc::new(());
        let theirs = spy.clone();
        let fiber = spawn_parked(move || {
            sinew::park();
            theirs
        });
        let token = fiber.fiber().token();
        fiber.fiber().unpark();
        drop(fiber.join().unwrap());
        assert_eq!(Arc::strong_count(&spy), 1);
        token.cancel();
    });
}

#[test]
fn a_scopes_token_cancels_its_children_and_is_cancelled_with_them() {
    everywhere(|| {
        let (token, below) = sinew::scope(|s| {
            let token = s.token();
            assert_eq!(token, s.token());
            let below = token.child();
            let child = s.spawn(|| (sinew::sleep(HOUR), sinew::cancel_reason()));
            parked(&child.fiber());
            token.cancel_with("by its token");
            assert!(s.is_cancelled());
            let answer = (Err(Cancelled), Some("by its token".into()));
            assert_eq!(child.join().unwrap(), answer);
            assert_eq!(sinew::check_cancelled(), Err(Cancelled));
            (token, below)
        });
        assert_eq!(below.reason(), token.reason());
        assert_eq!(sinew::check_cancelled(), Ok(()));

        let below = sinew::scope(|s| {
            let below = s.token().child();
            s.cancel_with("the scope");
            below
        });
        assert_eq!(below.reason(), Some("the scope".into()));

        let ended = sinew::scope(|s| s.token());
        assert!(!ended.is_cancelled());
        ended.cancel();
        assert_eq!(sinew::check_cancelled(), Ok(()));
    });
}

#[test]
fn a_request_to_a_fiber_reaches_the_tokens_of_the_scopes_it_is_in() {
    in_fibers(|| {
        let (tx, rx) = sinew::channel::bounded(1);
        let owner = sinew::spawn(move || {
            sinew::scope(|s| {
                let child = s.spawn(|| sinew::sleep(HOUR));
                parked(&child.fiber());
                tx.send(s.token().child()).unwrap();
                child.join().unwrap()
            })
        });
        let below = rx.recv().unwrap();
        wait_until(|| owner.fiber().wait_reason() == WaitReason::Join);
        owner.cancel();
        assert!(below.is_cancelled());
        assert_eq!(owner.join().unwrap(), Err(Cancelled));
    });
}
