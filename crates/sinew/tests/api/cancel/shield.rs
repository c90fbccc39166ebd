//! Keeping requests out.

use super::{HOUR, SHORT, everywhere, parked, spawn_parked};
use crate::harness::{in_fibers, is_expected, panic_expected};
use sinew::{CancelReason, CancelToken, Cancelled, WaitReason, shield, timeout};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Runs `f` inside of a token that is cancelled: works on fibers and threads.
fn cancelled<T>(f: impl FnOnce() -> T) -> T {
    let token = CancelToken::new();
    token.cancel();
    token.enter(f)
}

#[test]
fn a_request_is_not_seen_inside_and_is_seen_again_after() {
    everywhere(|| {
        cancelled(|| {
            assert_eq!(sinew::check_cancelled(), Err(Cancelled));
            let inside = shield(|| {
                assert!(!sinew::is_cancelled());
                assert_eq!(sinew::cancel_reason(), None);
                assert_eq!(sinew::check_cancelled(), Ok(()));
                assert_eq!(sinew::checkpoint(), Ok(()));
                sinew::sleep(SHORT)
            });
            assert_eq!(inside, Ok(()));
            assert!(sinew::is_cancelled());
            assert_eq!(sinew::sleep(HOUR), Err(Cancelled));
        });
    });
    in_fibers(|| {
        sinew::current().cancel();
        assert_eq!(shield(|| sinew::sleep(SHORT)), Ok(()));
        assert_eq!(sinew::sleep(HOUR), Err(Cancelled));
    });
}

#[test]
fn a_request_that_comes_meanwhile_waits_at_the_end() {
    in_fibers(|| {
        let fiber = spawn_parked(|| {
            let inside = shield(|| {
                sinew::park(); // ended by the request itself
                sinew::checkpoint()
            });
            (inside, sinew::check_cancelled())
        });
        fiber.cancel();
        assert_eq!(fiber.join().unwrap(), (Ok(()), Err(Cancelled)));

        let shielded = spawn_parked(|| {
            let inside = shield(|| sinew::sleep(Duration::from_millis(20)));
            (inside, sinew::sleep(HOUR))
        });
        shielded.cancel();
        assert_eq!(shielded.join().unwrap(), (Ok(()), Err(Cancelled)));
    });
}

#[test]
fn shields_nest_without_limit() {
    fn nest(depth: u32) {
        assert_eq!(sinew::check_cancelled(), Ok(()));
        if depth > 0 {
            shield(|| nest(depth - 1));
        }
        assert_eq!(sinew::checkpoint(), Ok(()));
    }
    everywhere(|| {
        cancelled(|| {
            shield(|| nest(1000));
            assert_eq!(sinew::check_cancelled(), Err(Cancelled));
        });
    });
}

#[test]
fn what_is_made_inside_works_as_ever() {
    everywhere(|| {
        cancelled(|| {
            shield(|| {
                let limited = timeout(SHORT, || sinew::sleep(HOUR));
                assert_eq!(limited.unwrap_err().into_inner(), Err(Cancelled));
                assert_eq!(cancelled(sinew::check_cancelled), Err(Cancelled));
                sinew::scope(|s| {
                    let child = s.spawn(|| sinew::sleep(HOUR));
                    parked(&child.fiber());
                    s.cancel();
                    assert_eq!(child.join().unwrap(), Err(Cancelled));
                });
                assert_eq!(sinew::check_cancelled(), Ok(()));
            });
            assert_eq!(sinew::check_cancelled(), Err(Cancelled));
        });
    });
}

#[test]
fn the_scope_inside_of_a_shield_is_not_cancelled_from_outside() {
    in_fibers(|| {
        let owner = sinew::spawn(|| {
            let inside = shield(|| {
                sinew::scope(|s| {
                    let child = s.spawn(|| {
                        let parked = sinew::park_or_cancelled();
                        (parked, sinew::is_cancelled())
                    });
                    sinew::scope(|deeper| {
                        deeper.spawn(|| sinew::sleep(Duration::from_millis(20)));
                    });
                    child.fiber().unpark();
                    child.join().unwrap()
                })
            });
            (inside, sinew::check_cancelled())
        });
        crate::harness::wait_until(|| owner.fiber().wait_reason() == WaitReason::Scope);
        owner.cancel();
        let answer = ((Ok(()), false), Err(Cancelled));
        assert_eq!(owner.join().unwrap(), answer);
    });
}

#[test]
fn a_child_that_shields_itself_is_awaited() {
    everywhere(|| {
        let saved = sinew::scope(|s| {
            let child = s.spawn(|| shield(|| sinew::sleep(Duration::from_millis(20))));
            parked(&child.fiber());
            s.cancel();
            child.join().unwrap()
        });
        assert_eq!(saved, Ok(()));
    });
}

#[test]
fn a_limit_outside_is_not_seen_inside_and_counts_after() {
    everywhere(|| {
        let outcome = timeout(SHORT, || shield(|| sinew::sleep(5 * SHORT)));
        assert_eq!(outcome, Ok(Ok(())));
        let outcome = timeout(SHORT, || {
            assert_eq!(shield(|| sinew::sleep(5 * SHORT)), Ok(()));
            sinew::sleep(HOUR)
        });
        assert_eq!(outcome.unwrap_err().into_inner(), Err(Cancelled));
        // Both run out: the one inside is seen there, the other one after.
        let outcome = timeout(SHORT, || {
            let inner = shield(|| timeout(5 * SHORT, || sinew::sleep(HOUR)));
            assert_eq!(inner.unwrap_err().into_inner(), Err(Cancelled));
            (sinew::check_cancelled(), sinew::cancel_reason())
        });
        let told = outcome.unwrap_err().into_inner();
        assert_eq!(told, (Err(Cancelled), Some(CancelReason::Deadline)));
    });
}

#[test]
fn a_computation_behind_a_shield_is_told_after_it() {
    // No wait ends the time that it spends inside.
    everywhere(|| {
        let outcome = timeout(SHORT, || {
            shield(|| std::thread::sleep(5 * SHORT));
            sinew::check_cancelled()
        });
        assert_eq!(outcome.unwrap_err().into_inner(), Err(Cancelled));
    });
}

#[test]
fn a_shield_is_left_by_a_panic() {
    everywhere(|| {
        cancelled(|| {
            let panic = catch_unwind(AssertUnwindSafe(|| {
                shield(|| shield(|| panic_expected(4)));
            }));
            assert!(is_expected(&*panic.unwrap_err(), 4));
            assert_eq!(sinew::check_cancelled(), Err(Cancelled));
        });
    });
}
