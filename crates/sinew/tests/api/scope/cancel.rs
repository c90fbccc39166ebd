//! Cancelling a scope, its owner, or what is around it.

use super::{HOUR, everywhere, panic_of, waits_in};
use crate::harness::{DropSpy, Gate, Log, is_expected, on_workers, panic_expected, runtime, watch};
use sinew::sync::Event;
use sinew::{CancelReason, Cancelled, WaitReason, scope, shield};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Sleeps until it is cancelled; answers by what.
fn until_cancelled() -> Option<CancelReason> {
    assert_eq!(sinew::sleep(HOUR), Err(Cancelled));
    sinew::cancel_reason()
}

#[test]
fn a_scope_cancelled_by_its_body_cancels_children_and_body() {
    everywhere(|| {
        scope(|s| {
            let child = s.spawn(until_cancelled);
            waits_in(&child.fiber(), WaitReason::Sleep);
            assert!(!s.is_cancelled());
            assert_eq!(sinew::check_cancelled(), Ok(()));
            s.cancel();
            assert!(s.is_cancelled() && sinew::is_cancelled());
            assert_eq!(sinew::check_cancelled(), Err(Cancelled));
            assert_eq!(sinew::sleep(HOUR), Err(Cancelled));
            assert_eq!(child.join().unwrap(), Some(CancelReason::Requested));
        });
        assert_eq!(sinew::check_cancelled(), Ok(()));
    });
}

#[test]
fn a_child_cancels_its_siblings_and_the_body() {
    everywhere(|| {
        scope(|s| {
            let sibling = s.spawn(until_cancelled);
            waits_in(&sibling.fiber(), WaitReason::Sleep);
            s.spawn(|| {
                s.cancel_with("enough");
                // Itself, too.
                assert_eq!(sinew::check_cancelled(), Err(Cancelled));
            });
            assert_eq!(until_cancelled(), Some(CancelReason::from("enough")));
            assert_eq!(sibling.join().unwrap(), Some(CancelReason::from("enough")));
        });
    });
}

#[test]
fn a_token_cancels_the_scope_from_another_thread() {
    everywhere(|| {
        scope(|s| {
            let children: Vec<_> = (0..5).map(|_| s.spawn(until_cancelled)).collect();
            for child in &children {
                waits_in(&child.fiber(), WaitReason::Sleep);
            }
            let (token, below) = (s.token(), s.token().child());
            let thread = std::thread::spawn(move || token.cancel_with("from afar"));
            assert_eq!(until_cancelled(), Some(CancelReason::from("from afar")));
            sinew::blocking(|| thread.join().unwrap());
            assert!(s.is_cancelled() && below.is_cancelled());
            for child in children {
                assert_eq!(child.join().unwrap(), Some(CancelReason::from("from afar")));
            }
        });
    });
}

#[test]
fn the_token_of_a_scope_is_one_and_says_what_the_scope_does() {
    everywhere(|| {
        let (early, late) = scope(|s| {
            let early = s.token();
            assert_eq!(early, s.token());
            assert!(!early.is_cancelled());
            s.cancel_with("why");
            assert!(early.is_cancelled());
            (early, s.token())
        });
        assert_eq!(early, late);
        assert_eq!(late.reason(), Some(CancelReason::from("why")));
        // One that is made after the cancel knows as well.
        let made_after = scope(|s| {
            s.cancel_with("before");
            s.token()
        });
        assert_eq!(made_after.reason(), Some(CancelReason::from("before")));
    });
}

#[test]
fn a_token_that_outlives_its_scope_does_nothing_to_what_comes_after() {
    everywhere(|| {
        let token = scope(|s| s.token());
        assert!(!token.is_cancelled()); // the scope was never cancelled
        scope(|s| {
            token.cancel();
            assert!(!s.is_cancelled() && !sinew::is_cancelled());
            assert_eq!(s.spawn(sinew::check_cancelled).join().unwrap(), Ok(()));
        });
        assert!(token.is_cancelled());
    });
}

#[test]
fn of_cancel_on_exit_all_ways_out_make_use() {
    fn early(fails: bool, ended: &AtomicUsize) -> Result<i32, Cancelled> {
        scope(|s| {
            s.cancel_on_exit();
            let child = s.spawn(|| {
                assert_eq!(until_cancelled(), Some(CancelReason::ScopeEnded));
                ended.fetch_add(1, Ordering::SeqCst);
            });
            waits_in(&child.fiber(), WaitReason::Sleep);
            assert!(!s.is_cancelled());
            if fails {
                Err(Cancelled)?;
            }
            Ok(1)
        })
    }
    everywhere(|| {
        let ended = AtomicUsize::new(0);
        assert_eq!(early(false, &ended), Ok(1));
        assert_eq!(early(true, &ended), Err(Cancelled));
        let payload = panic_of(|| {
            scope(|s| {
                s.cancel_on_exit();
                let child = s.spawn(|| {
                    assert_eq!(until_cancelled(), Some(CancelReason::ScopeEnded));
                    ended.fetch_add(1, Ordering::SeqCst);
                });
                waits_in(&child.fiber(), WaitReason::Sleep);
                panic_expected(1);
            })
        });
        assert!(is_expected(&*payload, 1));
        assert_eq!(ended.into_inner(), 3);
        assert_eq!(sinew::check_cancelled(), Ok(()));
    });
}

#[test]
fn a_child_started_after_the_cancel_never_runs_and_is_dropped_on_its_own_stack() {
    everywhere(|| {
        let log = Log::new();
        scope(|s| {
            s.cancel();
            let (spy, ran) = (DropSpy(log.clone()), Gate::new());
            let theirs = ran.clone();
            let late = s.spawn(move || {
                let _captured = &spy;
                theirs.open();
            });
            let id = late.fiber().id();
            assert!(late.join().unwrap_err().is_cancelled());
            assert_eq!(log.take(), [id]);
            assert!(!ran.is_open());
        });
    });
}

#[test]
fn a_child_that_had_not_begun_is_dropped_on_its_own_stack() {
    let _watch = watch();
    // One worker: it cannot begin before its owner waits.
    runtime(1).run(|| {
        let log = Log::new();
        let mut ids: Vec<_> = scope(|s| {
            let children: Vec<_> = (0..3)
                .map(|_| {
                    let spy = DropSpy(log.clone());
                    s.spawn(move || {
                        let _captured = &spy;
                        panic!("it was cancelled before it began");
                    })
                })
                .collect();
            s.cancel();
            children.iter().map(|child| child.fiber().id()).collect()
        });
        let mut dropped = log.take();
        dropped.sort_unstable();
        ids.sort_unstable();
        assert_eq!(dropped, ids);
    });
}

#[test]
fn one_child_that_is_cancelled_leaves_its_siblings_alone() {
    everywhere(|| {
        scope(|s| {
            let (one, other) = (s.spawn(until_cancelled), s.spawn(until_cancelled));
            waits_in(&one.fiber(), WaitReason::Sleep);
            waits_in(&other.fiber(), WaitReason::Sleep);
            one.cancel();
            assert_eq!(one.join().unwrap(), Some(CancelReason::Requested));
            assert!(!s.is_cancelled() && !other.is_finished());
            assert_eq!(sinew::check_cancelled(), Ok(()));
            s.cancel();
        });
    });
}

#[test]
fn a_scope_behind_a_shield_is_not_cancelled_by_what_is_outside() {
    on_workers(|runtime| {
        let go = Arc::new(Event::new());
        let theirs = go.clone();
        let owner = runtime.spawn(move || {
            scope(|outer| {
                let answer = shield(|| {
                    scope(|s| {
                        let child = s.spawn(|| theirs.wait());
                        let answer = child.join().unwrap();
                        assert!(!s.is_cancelled());
                        // One that begins after the request is left alone, too.
                        assert_eq!(s.spawn(sinew::check_cancelled).join().unwrap(), Ok(()));
                        answer
                    })
                });
                assert_eq!(sinew::check_cancelled(), Err(Cancelled));
                assert!(outer.is_cancelled());
                answer
            })
        });
        waits_in(&owner.fiber(), WaitReason::Join);
        owner.cancel();
        go.set();
        assert_eq!(owner.join().unwrap(), Ok(()));
    });
}

#[test]
fn a_child_that_shields_itself_is_waited_for() {
    on_workers(|runtime| {
        let go = Arc::new(Event::new());
        let theirs = go.clone();
        let owner = runtime.spawn(move || {
            scope(|s| {
                let child = s.spawn(|| {
                    let inside = shield(|| theirs.wait());
                    (inside, sinew::check_cancelled())
                });
                waits_in(&child.fiber(), WaitReason::Event);
                s.cancel();
                child.join().unwrap()
            })
        });
        waits_in(&owner.fiber(), WaitReason::Join);
        go.set();
        assert_eq!(owner.join().unwrap(), (Ok(()), Err(Cancelled)));
    });
}

#[test]
fn cancelling_an_inner_scope_leaves_the_outer_one_alone() {
    everywhere(|| {
        scope(|outer| {
            let peaceful = outer.spawn(until_cancelled);
            waits_in(&peaceful.fiber(), WaitReason::Sleep);
            scope(|inner| {
                let child = inner.spawn(until_cancelled);
                waits_in(&child.fiber(), WaitReason::Sleep);
                inner.cancel();
                child.join().unwrap();
                // Outward of it nothing was asked to stop, but its points are inside.
                assert_eq!(sinew::check_cancelled(), Err(Cancelled));
            });
            assert_eq!(sinew::check_cancelled(), Ok(()));
            assert!(!outer.is_cancelled() && !peaceful.is_finished());
            outer.cancel();
        });
    });
}

#[test]
fn cancelling_an_outer_scope_cancels_the_inner_ones_of_the_same_body() {
    everywhere(|| {
        scope(|outer| {
            scope(|inner| {
                let child = inner.spawn(until_cancelled);
                waits_in(&child.fiber(), WaitReason::Sleep);
                outer.cancel_with("all");
                assert!(inner.is_cancelled());
                assert_eq!(child.join().unwrap(), Some(CancelReason::from("all")));
                assert_eq!(inner.token().reason(), Some(CancelReason::from("all")));
            });
        });
    });
}

#[test]
fn to_cancel_twice_is_to_cancel_once_and_the_first_reason_stays() {
    everywhere(|| {
        scope(|s| {
            s.cancel_with("first");
            s.cancel_with("second");
            s.cancel();
            assert_eq!(s.token().reason(), Some(CancelReason::from("first")));
            assert_eq!(sinew::cancel_reason(), Some(CancelReason::from("first")));
        });
    });
}

#[test]
fn a_token_that_is_cancelled_while_its_scope_ends_harms_nobody() {
    everywhere(|| {
        let (hand_over, tokens) = std::sync::mpsc::channel::<sinew::CancelToken>();
        let thread = std::thread::spawn(move || {
            for token in tokens {
                token.cancel();
            }
        });
        for round in 0..300 {
            scope(|s| {
                for _ in 0..round % 3 {
                    s.spawn(sinew::yield_now);
                }
                hand_over.send(s.token()).unwrap();
            });
            assert_eq!(sinew::check_cancelled(), Ok(()));
        }
        drop(hand_over);
        sinew::blocking(|| thread.join().unwrap());
    });
}
