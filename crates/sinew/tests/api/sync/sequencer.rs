//! `Sequencer`: a count that only rises, and waiters in its order.

use super::poll::ByHand;
use super::{HOUR, SHORT, seeded, settle, spawn_parked};
use crate::harness::{Log, in_fibers, wait_until, watch};
use sinew::Cancelled;
use sinew::sync::{Sequencer, SequencerToken, WaitTimeoutError};
use sinew::time::Instant;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn it_rises_and_what_was_reached_needs_no_wait() {
    static SEQUENCER: Sequencer = Sequencer::new();
    assert_eq!(SEQUENCER.get(), 0);
    assert!(SEQUENCER.try_wait(0) && !SEQUENCER.try_wait(1));
    assert_eq!(SEQUENCER.increment(), 1);
    assert!(SEQUENCER.advance(5));
    assert!(!SEQUENCER.advance(5), "not larger");
    assert!(!SEQUENCER.advance(3), "it never falls");
    assert_eq!(SEQUENCER.get(), 5);
    assert_eq!(SEQUENCER.increment(), 6);
    for token in 0..=6 {
        assert_eq!(SEQUENCER.wait(token), Ok(()));
        assert!(SEQUENCER.try_wait(token));
        assert_eq!(SEQUENCER.wait_timeout(token, Duration::ZERO), Ok(()));
        assert_eq!(SEQUENCER.wait_deadline(token, Instant::now()), Ok(()));
        assert_eq!(ByHand::new(SEQUENCER.wait_async(token)).poll(), Some(()));
    }
    assert!(!SEQUENCER.try_wait(7));
    let token: SequencerToken<'_> = SEQUENCER.token(7);
    let _both = (token, token); // Copy
    assert!(format!("{:?}", Sequencer::default()).contains("Sequencer"));
}

#[test]
fn it_reaches_its_largest_value() {
    let sequencer = Sequencer::new();
    assert_eq!(Sequencer::MAX, (1 << 63) - 1);
    assert!(sequencer.advance(Sequencer::MAX - 1));
    assert!(!sequencer.try_wait(Sequencer::MAX));
    assert!(sequencer.advance(Sequencer::MAX));
    assert_eq!(sequencer.get(), Sequencer::MAX);
    assert_eq!(sequencer.wait(Sequencer::MAX), Ok(()));
    assert!(!sequencer.advance(Sequencer::MAX));
    // Beyond that nothing is reached.
    assert!(catch_unwind(AssertUnwindSafe(|| sequencer.increment())).is_err());
    let beyond = Sequencer::MAX + 1;
    assert!(catch_unwind(AssertUnwindSafe(|| sequencer.advance(beyond))).is_err());
    assert_eq!(sequencer.get(), Sequencer::MAX);
    for token in [beyond, u64::MAX] {
        assert!(!sequencer.try_wait(token));
        let late = sequencer.wait_timeout(token, SHORT);
        assert_eq!(late, Err(WaitTimeoutError::Timeout));
    }
}

#[test]
fn each_step_wakes_those_whose_token_is_reached_and_no_others() {
    in_fibers(|| {
        let sequencer = Arc::new(Sequencer::new());
        // In no order: neither rising nor falling.
        let waiters: Vec<_> = [3, 1, 4, 1, 5, 9, 2, 6]
            .into_iter()
            .map(|token| {
                let sequencer = sequencer.clone();
                (token, spawn_parked(move || sequencer.wait(token)))
            })
            .collect();
        for value in [1, 2, 4, 8, 9] {
            if value == sequencer.get() + 1 {
                sequencer.increment();
            } else {
                assert!(sequencer.advance(value));
            }
            settle();
            for (token, waiter) in &waiters {
                if *token > value {
                    assert!(!waiter.is_finished(), "{token} at {value}");
                } else {
                    wait_until(|| waiter.is_finished());
                }
            }
        }
        for (_, waiter) in waiters {
            assert_eq!(waiter.join().unwrap(), Ok(()));
        }
    });
}

#[test]
fn waiters_are_woken_in_the_order_of_their_tokens() {
    let _watch = watch();
    // One worker in strict order: they run as they are woken.
    let strict = sinew::Runtime::builder().workers(1).strict_order(true);
    strict.build().unwrap().run(|| {
        let mut rng = seeded();
        let sequencer = Arc::new(Sequencer::new());
        let log = Log::new();
        let fibers: Vec<_> = (0..40)
            .map(|_| {
                let (sequencer, log, token) = (sequencer.clone(), log.clone(), 1 + rng.below(100));
                spawn_parked(move || {
                    sequencer.wait(token).unwrap();
                    log.push(token);
                })
            })
            .collect();
        assert!(sequencer.advance(100));
        for fiber in fibers {
            wait_until(|| fiber.is_finished());
        }
        let order = log.take();
        assert!(order.is_sorted(), "{order:?}");
    });
}

#[test]
fn fibers_take_their_turns_by_it() {
    in_fibers(|| {
        let sequencer = Arc::new(Sequencer::new());
        let log = Log::new();
        let fibers: Vec<_> = (0..5_u64)
            .map(|i| {
                let (sequencer, log) = (sequencer.clone(), log.clone());
                sinew::spawn(move || {
                    for round in 0..20 {
                        let turn = round * 5 + i;
                        sequencer.wait(turn).unwrap();
                        log.push(turn);
                        assert_eq!(sequencer.increment(), turn + 1);
                    }
                })
            })
            .collect();
        for fiber in fibers {
            fiber.join().unwrap();
        }
        assert!(log.take().into_iter().eq(0..100));
    });
}

#[test]
fn increments_from_many_fibers_add_up() {
    in_fibers(|| {
        let sequencer = Arc::new(Sequencer::new());
        let theirs = sequencer.clone();
        let last = sinew::spawn(move || theirs.wait(1000));
        let fibers: Vec<_> = (0..10)
            .map(|_| {
                let sequencer = sequencer.clone();
                sinew::spawn(move || {
                    for _ in 0..100 {
                        sequencer.increment();
                    }
                })
            })
            .collect();
        for fiber in fibers {
            fiber.join().unwrap();
        }
        assert_eq!(sequencer.get(), 1000);
        assert_eq!(last.join().unwrap(), Ok(()));
    });
}

#[test]
fn a_timeout_is_not_early_and_leaves_the_others_in_order() {
    in_fibers(|| {
        let sequencer = Arc::new(Sequencer::new());
        let theirs = sequencer.clone();
        let waiter = spawn_parked(move || theirs.wait_timeout(2, HOUR));
        for time in [Duration::ZERO, SHORT] {
            let begun = Instant::now();
            let late = sequencer.wait_timeout(1, time);
            assert_eq!(late, Err(WaitTimeoutError::Timeout));
            assert!(begun.elapsed() >= time);
            let until = Instant::now() + time;
            let late = sequencer.wait_deadline(3, until);
            assert_eq!(late, Err(WaitTimeoutError::Timeout));
            assert!(Instant::now() >= until);
        }
        assert!(sequencer.advance(2));
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
}

#[test]
fn waiting_is_a_point_even_if_the_token_is_reached() {
    in_fibers(|| {
        let sequencer = Arc::new(Sequencer::new());
        let waiters: Vec<_> = (1..6)
            .map(|token| {
                let sequencer = sequencer.clone();
                spawn_parked(move || (sequencer.wait(token), sequencer.wait(0)))
            })
            .collect();
        // Out of the middle, the front and the back.
        for i in [2, 0, 4] {
            waiters[i].cancel();
            wait_until(|| waiters[i].is_finished());
        }
        settle();
        assert!(!waiters[1].is_finished() && !waiters[3].is_finished());
        assert!(sequencer.advance(5));
        for (i, waiter) in waiters.into_iter().enumerate() {
            let expected = if i % 2 == 0 {
                (Err(Cancelled), Err(Cancelled))
            } else {
                (Ok(()), Ok(()))
            };
            assert_eq!(waiter.join().unwrap(), expected);
        }
    });
}

#[test]
fn futures_are_woken_by_their_token_and_may_be_dropped() {
    let _watch = watch();
    let sequencer = Sequencer::new();
    let far = ByHand::waiting(sequencer.wait_async(10));
    let mut near = ByHand::waiting(sequencer.wait_async(1));
    let dropped = ByHand::waiting(sequencer.wait_async(1));
    let claimed = ByHand::waiting(sequencer.wait_async(2));
    assert!(near.poll_elsewhere().is_none());
    drop(dropped);
    assert!(sequencer.advance(2));
    assert!(claimed.is_woken() && !far.is_woken());
    drop(claimed);
    near.woken();
    assert!(sequencer.advance(10));
    far.woken();
}
