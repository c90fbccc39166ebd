//! `Event`: set until it is reset.

use super::poll::ByHand;
use super::{HOUR, SHORT, settle, spawn_parked};
use crate::harness::{in_fibers, watch};
use sinew::Cancelled;
use sinew::sync::{Event, WaitTimeoutError};
use sinew::time::Instant;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn it_stays_as_it_was_put() {
    static EVENT: Event = Event::new();
    assert!(!EVENT.is_set() && !EVENT.try_wait());
    EVENT.set();
    EVENT.set();
    for _ in 0..3 {
        assert!(EVENT.is_set() && EVENT.try_wait());
        assert_eq!(EVENT.wait(), Ok(()));
        assert_eq!(EVENT.wait_timeout(Duration::ZERO), Ok(()));
        assert_eq!(EVENT.wait_deadline(Instant::now()), Ok(()));
    }
    EVENT.reset();
    EVENT.reset();
    assert!(!EVENT.is_set() && !EVENT.try_wait());
    assert_eq!(EVENT.wait_timeout(SHORT), Err(WaitTimeoutError::Timeout));
    assert!(!Event::default().is_set());
    assert!(format!("{:?}", Event::new()).contains("Event"));
}

#[test]
fn setting_it_wakes_all_who_wait() {
    in_fibers(|| {
        let event = Arc::new(Event::new());
        let waiters: Vec<_> = (0..20)
            .map(|_| {
                let event = event.clone();
                spawn_parked(move || event.wait())
            })
            .collect();
        settle();
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
        event.set();
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Ok(()));
        }
    });
}

#[test]
fn who_waited_when_it_was_set_passes_although_it_was_reset_at_once() {
    in_fibers(|| {
        for _ in 0..20 {
            let event = Arc::new(Event::new());
            let waiters: Vec<_> = (0..3)
                .map(|_| {
                    let event = event.clone();
                    spawn_parked(move || event.wait())
                })
                .collect();
            event.set();
            event.reset();
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap(), Ok(()));
            }
            assert!(!event.is_set());
        }
    });
}

#[test]
fn who_waits_after_a_reset_waits_for_the_next_set() {
    in_fibers(|| {
        let event = Arc::new(Event::new());
        for _ in 0..5 {
            let theirs = event.clone();
            let waiter = spawn_parked(move || theirs.wait());
            settle();
            assert!(!waiter.is_finished());
            event.set();
            waiter.join().unwrap().unwrap();
            event.reset();
        }
    });
}

#[test]
fn what_was_done_before_the_set_is_seen_after_the_wait() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    in_fibers(|| {
        for i in 1..50 {
            let shared = Arc::new((AtomicUsize::new(0), Event::new()));
            let theirs = shared.clone();
            let waiter = sinew::spawn(move || {
                theirs.1.wait().unwrap();
                theirs.0.load(Ordering::Relaxed)
            });
            shared.0.store(i, Ordering::Relaxed);
            shared.1.set();
            assert_eq!(waiter.join().unwrap(), i);
        }
    });
}

#[test]
fn a_timeout_is_not_early() {
    in_fibers(|| {
        let event = Arc::new(Event::new());
        for time in [Duration::ZERO, SHORT] {
            let begun = Instant::now();
            let late = event.wait_timeout(time);
            assert_eq!(late, Err(WaitTimeoutError::Timeout));
            assert!(begun.elapsed() >= time);
            let until = Instant::now() + time;
            let late = event.wait_deadline(until);
            assert_eq!(late, Err(WaitTimeoutError::Timeout));
            assert!(Instant::now() >= until);
        }
        let theirs = event.clone();
        let waiter = spawn_parked(move || theirs.wait_timeout(HOUR));
        let theirs = event.clone();
        let other = spawn_parked(move || theirs.wait_deadline(Instant::now() + HOUR));
        event.set();
        assert_eq!(waiter.join().unwrap(), Ok(()));
        assert_eq!(other.join().unwrap(), Ok(()));
    });
}

#[test]
fn waiting_is_a_point_even_if_it_is_set() {
    in_fibers(|| {
        let event = Arc::new(Event::new());
        let theirs = event.clone();
        let waiter = spawn_parked(move || {
            let first = theirs.wait();
            theirs.set();
            (first, theirs.wait(), theirs.wait_timeout(HOUR))
        });
        waiter.cancel();
        assert_eq!(
            waiter.join().unwrap(),
            (
                Err(Cancelled),
                Err(Cancelled),
                Err(WaitTimeoutError::Cancelled)
            )
        );
        event.reset();
        let theirs = event.clone();
        let waiter = spawn_parked(move || theirs.wait_timeout(HOUR));
        waiter.cancel();
        let cancelled = Err(WaitTimeoutError::Cancelled);
        assert_eq!(waiter.join().unwrap(), cancelled);
    });
}

#[test]
fn a_set_before_the_cancel_wins() {
    in_fibers(|| {
        let event = Arc::new(Event::new());
        let theirs = event.clone();
        let waiter = spawn_parked(move || theirs.wait());
        event.set();
        waiter.cancel();
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
}

#[test]
fn futures_are_woken_all_and_may_be_dropped_at_any_time() {
    let _watch = watch();
    let event = Event::new();
    let mut waits = ByHand::waiting(event.wait_async());
    let dropped = ByHand::waiting(event.wait_async());
    let claimed = ByHand::waiting(event.wait_async());
    assert!(waits.poll_elsewhere().is_none());
    drop(dropped);
    event.set();
    assert!(claimed.is_woken());
    drop(claimed);
    waits.woken();
    assert_eq!(ByHand::new(event.wait_async()).poll(), Some(()));
    event.reset();
    drop(ByHand::waiting(event.wait_async()));
}

#[test]
fn a_future_that_was_woken_is_ready_although_it_was_reset() {
    let _watch = watch();
    let event = Event::new();
    let waits = ByHand::waiting(event.wait_async());
    event.set();
    event.reset();
    waits.woken();
}
