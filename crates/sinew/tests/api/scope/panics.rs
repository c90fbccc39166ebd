//! Panics of children: handed to who joins them, else the scope's.

use super::{count, everywhere, panic_of, text_of, waits_in};
use crate::harness::{
    Gate, OnDrop, is_expected, on_workers, panic_expected, runtime, wait_until, watch,
};
use sinew::{ScopedJoinHandle, WaitReason, scope};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const TEXT: &str = "a scoped fiber panicked";

type Panicked<'scope> = ScopedJoinHandle<'scope, ()>;

/// A scope with one child that has panicked, given to `body`.
fn with_panicked(body: impl FnOnce(Panicked<'_>)) {
    scope(|s| {
        let child = s.spawn(|| panic_expected(1));
        wait_until(|| child.is_finished());
        body(child);
    });
}

#[test]
fn a_panic_that_was_joined_is_not_the_scope_s() {
    everywhere(|| {
        with_panicked(|child| {
            let error = child.join().unwrap_err();
            assert!(is_expected(&*error.into_panic(), 1));
        });
    });
}

#[test]
fn every_way_of_joining_hands_the_panic_out() {
    everywhere(|| {
        with_panicked(|child| assert!(child.try_join().unwrap().unwrap_err().is_panic()));
        with_panicked(|child| {
            let joined = child.join_timeout(super::HOUR).unwrap();
            assert!(joined.unwrap_err().is_panic());
        });
        with_panicked(|child| assert!(sinew::block_on(child).unwrap_err().is_panic()));
        with_panicked(|mut child| {
            let joined = sinew::select! { join(child) -> joined => joined };
            assert!(joined.unwrap_err().is_panic());
        });
        with_panicked(|mut child| {
            let joined = sinew::race! { join(child) -> joined => joined };
            assert!(joined.unwrap_err().is_panic());
        });
    });
}

#[test]
fn a_panic_that_comes_while_it_is_waited_for_is_handed_out() {
    let waits: [fn(Panicked<'_>); 4] = [
        |child| assert!(child.join().unwrap_err().is_panic()),
        |child| {
            let joined = child.join_timeout(super::HOUR).unwrap();
            assert!(joined.unwrap_err().is_panic());
        },
        |child| assert!(sinew::block_on(child).unwrap_err().is_panic()),
        |mut child| {
            let joined = sinew::select! { join(child) -> joined => joined };
            assert!(joined.unwrap_err().is_panic());
        },
    ];
    let reasons = [
        WaitReason::Join,
        WaitReason::Join,
        WaitReason::Future,
        WaitReason::Select,
    ];
    on_workers(|runtime| {
        for (wait, reason) in waits.into_iter().zip(reasons) {
            let go = Gate::new();
            let gate = go.clone();
            let owner = runtime.spawn(move || {
                scope(|s| {
                    wait(s.spawn(|| {
                        gate.pass();
                        panic_expected(1)
                    }));
                });
            });
            waits_in(&owner.fiber(), reason);
            go.open();
            owner.join().unwrap();
        }
    });
}

#[test]
fn a_panic_that_nobody_joined_goes_on_in_the_scope() {
    let ignored: [fn(Panicked<'_>); 5] = [
        |child| drop(child),
        |child| std::mem::forget(child),
        // A look is no join.
        |child| assert!(child.is_finished()),
        |child| child.fiber().wait().unwrap(),
        // A future that nobody polls.
        |child| drop(async move { assert!(child.await.is_err()) }),
    ];
    everywhere(|| {
        for ignore in ignored {
            let payload = panic_of(|| with_panicked(ignore));
            assert_eq!(text_of(&*payload), TEXT);
        }
    });
}

#[test]
fn a_child_whose_handle_is_gone_before_it_panics_is_heard_of() {
    let ways: [fn(Panicked<'_>); 2] = [|child| drop(child), |child| std::mem::forget(child)];
    everywhere(|| {
        for leave in ways {
            let go = Gate::new();
            let payload = panic_of(|| {
                scope(|s| {
                    leave(s.spawn(|| {
                        go.pass();
                        panic_expected(1)
                    }));
                    go.open();
                });
            });
            assert_eq!(text_of(&*payload), TEXT);
        }
    });
}

#[test]
fn the_scope_panics_after_the_others_have_ended() {
    everywhere(|| {
        let ended = AtomicUsize::new(0);
        let payload = panic_of(|| {
            scope(|s| {
                s.spawn(|| panic_expected(1));
                for _ in 0..3 {
                    s.spawn(|| {
                        sinew::sleep(Duration::from_millis(2)).unwrap(); // not cancelled
                        ended.fetch_add(1, Ordering::SeqCst);
                    });
                }
            })
        });
        assert_eq!(text_of(&*payload), TEXT);
        assert_eq!(count(&ended), 3);
    });
}

#[test]
fn one_that_was_joined_does_not_hide_another_that_was_not() {
    everywhere(|| {
        let payload = panic_of(|| {
            scope(|s| {
                let joined = s.spawn(|| panic_expected(1));
                let _ignored = s.spawn(|| panic_expected(2));
                assert!(joined.join().map(|()| ()).unwrap_err().is_panic());
            })
        });
        assert_eq!(text_of(&*payload), TEXT);
    });
}

#[test]
fn the_body_s_own_panic_goes_before_a_child_s() {
    everywhere(|| {
        let payload = panic_of(|| {
            scope(|s| {
                let child = s.spawn(|| panic_expected(1));
                wait_until(|| child.is_finished());
                panic_expected(2);
            })
        });
        assert!(is_expected(&*payload, 2));
    });
}

#[test]
fn a_sibling_that_joins_takes_the_panic_from_the_scope() {
    everywhere(|| {
        scope(|s| {
            let panics = s.spawn(|| panic_expected(1));
            s.spawn(|| assert!(panics.join().map(|()| ()).unwrap_err().is_panic()));
        });
    });
}

#[test]
fn a_panic_in_the_drop_of_a_capture_counts() {
    everywhere(|| {
        let bomb = || {
            let bomb = OnDrop(|| panic_expected(3));
            move || {
                let _captured = &bomb;
            }
        };
        let payload = panic_of(|| {
            scope(|s| {
                s.spawn(bomb());
            })
        });
        assert_eq!(text_of(&*payload), TEXT);
        scope(|s| {
            let error = s.spawn(bomb()).join().unwrap_err();
            assert!(is_expected(&*error.into_panic(), 3));
        });
    });
}

#[test]
fn a_panic_in_the_drop_of_a_closure_that_never_ran_counts() {
    let _watch = watch();
    // One worker: the child cannot begin before it is cancelled.
    runtime(1).run(|| {
        let cancelled = |join: bool| {
            scope(|s| {
                let bomb = OnDrop(|| panic_expected(4));
                let child = s.spawn(move || {
                    let _captured = &bomb;
                });
                child.cancel();
                if join {
                    let error = child.join().unwrap_err();
                    assert!(is_expected(&*error.into_panic(), 4));
                }
            });
        };
        let payload = panic_of(|| cancelled(false));
        assert_eq!(text_of(&*payload), TEXT);
        cancelled(true);
    });
}

#[test]
fn a_panic_caught_inside_of_a_child_is_nobody_s() {
    everywhere(|| {
        let inner = scope(|s| {
            let child = s.spawn(|| is_expected(&*panic_of(|| panic_expected(5)), 5));
            child.join().unwrap()
        });
        assert!(inner);
    });
}

#[test]
fn the_panic_of_an_inner_scope_is_that_of_its_owner() {
    everywhere(|| {
        scope(|outer| {
            let owner = outer.spawn(|| {
                scope(|inner| {
                    inner.spawn(|| panic_expected(6));
                });
            });
            let payload = owner.join().unwrap_err().into_panic();
            assert_eq!(text_of(&*payload), TEXT);
        });
    });
}

#[test]
fn who_unwinds_on_the_same_worker_is_not_taken_for_the_child() {
    let _watch = watch();
    // One worker: the child ends while the other is in the middle of its unwinding.
    runtime(1).run(|| {
        let go = Gate::new();
        let gate = go.clone();
        let unwinding = sinew::spawn(move || {
            let _slow = OnDrop(|| gate.pass());
            panic_expected(7);
        });
        sinew::yield_now();
        assert!(!unwinding.is_finished());
        scope(|s| {
            s.spawn(sinew::yield_now);
        });
        go.open();
        assert!(unwinding.join().map(|()| ()).unwrap_err().is_panic());
    });
}
