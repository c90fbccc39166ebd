//! `Futex`: a count, and waiting until it is reached.

use super::poll::ByHand;
use super::{HOUR, SHORT, settle, spawn_parked};
use crate::harness::{in_fibers, watch};
use sinew::sync::{Futex, FutexError, FutexTimeoutError};
use sinew::time::Instant;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[test]
fn it_counts_and_what_was_reached_needs_no_wait() {
    static FUTEX: Futex = Futex::new();
    assert_eq!(FUTEX.get(), 0);
    assert_eq!(FUTEX.wait(0), Ok(()));
    assert_eq!(FUTEX.try_wait(0), Ok(true));
    assert_eq!(FUTEX.try_wait(1), Ok(false));
    assert_eq!(FUTEX.post(), 1);
    assert_eq!(FUTEX.post(), 2);
    assert_eq!(FUTEX.get(), 2);
    for token in 0..=2 {
        assert_eq!(FUTEX.wait(token), Ok(()));
        assert_eq!(FUTEX.try_wait(token), Ok(true));
        assert_eq!(FUTEX.wait_timeout(token, Duration::ZERO), Ok(()));
        assert_eq!(FUTEX.wait_deadline(token, Instant::now()), Ok(()));
        assert_eq!(ByHand::new(FUTEX.wait_async(token)).poll(), Some(Ok(())));
    }
    assert_eq!(FUTEX.try_wait(3), Ok(false));
    assert!(format!("{:?}", Futex::default()).contains("Futex"));
}

#[test]
fn a_post_wakes_all_whose_token_is_reached_and_no_others() {
    in_fibers(|| {
        let futex = Arc::new(Futex::new());
        let waiters: Vec<_> = [1, 1, 2, 3, 3]
            .into_iter()
            .map(|token| {
                let futex = futex.clone();
                (token, spawn_parked(move || futex.wait(token)))
            })
            .collect();
        for count in 1..=3 {
            assert_eq!(futex.post(), count);
            settle();
            for (token, waiter) in &waiters {
                if *token > count {
                    assert!(!waiter.is_finished());
                } else {
                    crate::harness::wait_until(|| waiter.is_finished());
                }
            }
        }
        for (_, waiter) in waiters {
            assert_eq!(waiter.join().unwrap(), Ok(()));
        }
    });
}

#[test]
fn wait_next_waits_for_the_next_post() {
    in_fibers(|| {
        let futex = Arc::new(Futex::new());
        futex.post();
        for _ in 0..5 {
            let theirs = futex.clone();
            let waiter = spawn_parked(move || theirs.wait_next());
            settle();
            assert!(!waiter.is_finished());
            futex.post();
            assert_eq!(waiter.join().unwrap(), Ok(()));
        }
        assert_eq!(futex.get(), 6);
    });
}

#[test]
fn a_change_between_the_look_and_the_wait_is_not_missed() {
    // The pattern it is for: get, look at the condition, wait for the next.
    in_fibers(|| {
        let shared = Arc::new((Futex::new(), AtomicU64::new(0)));
        let theirs = shared.clone();
        let consumer = sinew::spawn(move || {
            let mut seen = 0;
            while seen < 300 {
                let token = theirs.0.get();
                let now = theirs.1.load(Ordering::SeqCst);
                if now == seen {
                    theirs.0.wait(token + 1).unwrap();
                } else {
                    seen = now;
                }
            }
        });
        for i in 1..=300 {
            shared.1.store(i, Ordering::SeqCst);
            shared.0.post();
            if i % 7 == 0 {
                sinew::yield_now();
            }
        }
        consumer.join().unwrap();
    });
}

#[test]
fn stopping_wakes_all_who_wait_and_stops_all_who_come() {
    in_fibers(|| {
        let futex = Arc::new(Futex::new());
        futex.post();
        let waiters: Vec<_> = (2..6)
            .map(|token| {
                let futex = futex.clone();
                spawn_parked(move || futex.wait(token))
            })
            .collect();
        let theirs = futex.clone();
        let timed = spawn_parked(move || theirs.wait_timeout(9, HOUR));
        let future = ByHand::waiting(futex.wait_async(9));
        assert!(!futex.is_stopped());
        futex.stop();
        futex.stop();
        assert!(futex.is_stopped());
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Err(FutexError::Stopped));
        }
        assert_eq!(timed.join().unwrap(), Err(FutexTimeoutError::Stopped));
        assert_eq!(future.woken(), Err(FutexError::Stopped));
        assert_eq!(futex.wait(7), Err(FutexError::Stopped));
        assert_eq!(futex.wait_next(), Err(FutexError::Stopped));
        let late = futex.wait_timeout(7, HOUR);
        assert_eq!(late, Err(FutexTimeoutError::Stopped));
        assert!(futex.try_wait(7).is_err());
    });
}

#[test]
fn a_timeout_is_not_early() {
    in_fibers(|| {
        let futex = Arc::new(Futex::new());
        for time in [Duration::ZERO, SHORT] {
            let begun = Instant::now();
            let late = futex.wait_timeout(1, time);
            assert_eq!(late, Err(FutexTimeoutError::Timeout));
            assert!(begun.elapsed() >= time);
            let until = Instant::now() + time;
            let late = futex.wait_deadline(1, until);
            assert_eq!(late, Err(FutexTimeoutError::Timeout));
            assert!(Instant::now() >= until);
        }
        let theirs = futex.clone();
        let waiter = spawn_parked(move || theirs.wait_timeout(1, HOUR));
        futex.post();
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
}

#[test]
fn waiting_is_a_point_even_if_the_token_is_reached() {
    in_fibers(|| {
        let futex = Arc::new(Futex::new());
        let theirs = futex.clone();
        let waiter = spawn_parked(move || {
            let parked = theirs.wait(1);
            let again = theirs.wait(0);
            (parked, again, theirs.wait_timeout(0, HOUR))
        });
        waiter.cancel();
        let cancelled = Err(FutexError::Cancelled);
        assert_eq!(
            waiter.join().unwrap(),
            (cancelled, cancelled, Err(FutexTimeoutError::Cancelled))
        );
        // It left nothing behind.
        let theirs = futex.clone();
        let next = spawn_parked(move || theirs.wait(1));
        futex.post();
        assert_eq!(next.join().unwrap(), Ok(()));
    });
}

#[test]
fn futures_are_woken_by_their_token_and_may_be_dropped() {
    let _watch = watch();
    let futex = Futex::new();
    let mut first = ByHand::waiting(futex.wait_async(1));
    let second = ByHand::waiting(futex.wait_async(2));
    let dropped = ByHand::waiting(futex.wait_async(1));
    let claimed = ByHand::waiting(futex.wait_async(1));
    assert!(first.poll_elsewhere().is_none());
    drop(dropped);
    futex.post();
    assert!(claimed.is_woken() && !second.is_woken());
    drop(claimed);
    assert_eq!(first.woken(), Ok(()));
    futex.post();
    assert_eq!(second.woken(), Ok(()));
}
