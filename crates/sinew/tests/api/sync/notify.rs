//! `Notify`: one permit, each taken exactly once.

use super::poll::ByHand;
use super::{HOUR, SHORT, settle, spawn_begun, spawn_parked};
use crate::harness::{in_fibers, wait_until, watch};
use sinew::sync::{Notify, WaitTimeoutError};
use sinew::time::Instant;
use sinew::{Cancelled, JoinHandle};
use std::sync::Arc;
use std::time::Duration;

fn waiters(notify: &Arc<Notify>, count: usize) -> Vec<JoinHandle<Result<(), Cancelled>>> {
    (0..count)
        .map(|_| {
            let notify = notify.clone();
            spawn_parked(move || notify.wait())
        })
        .collect()
}

fn ended<T>(fibers: &[JoinHandle<T>]) -> usize {
    fibers.iter().filter(|fiber| fiber.is_finished()).count()
}

#[test]
fn one_notification_is_kept_for_who_comes_later() {
    static NOTIFY: Notify = Notify::new();
    assert!(!NOTIFY.try_wait());
    for _ in 0..3 {
        NOTIFY.notify_one();
    }
    assert_eq!(NOTIFY.wait(), Ok(()));
    assert!(!NOTIFY.try_wait(), "notifications added up");
    NOTIFY.notify_one();
    assert!(NOTIFY.try_wait());
    NOTIFY.notify_one();
    assert_eq!(NOTIFY.wait_timeout(Duration::ZERO), Ok(()));
    NOTIFY.notify_one();
    assert_eq!(NOTIFY.wait_deadline(Instant::now()), Ok(()));
    assert_eq!(NOTIFY.wait_timeout(SHORT), Err(WaitTimeoutError::Timeout));
    assert!(format!("{:?}", Notify::default()).contains("Notify"));
}

#[test]
fn notify_one_wakes_exactly_one_and_keeps_nothing() {
    in_fibers(|| {
        let notify = Arc::new(Notify::new());
        let waiting = waiters(&notify, 5);
        for woken in 1..=5 {
            notify.notify_one();
            wait_until(|| ended(&waiting) >= woken);
            settle();
            assert_eq!(ended(&waiting), woken);
        }
        assert!(!notify.try_wait());
    });
}

#[test]
fn as_many_notifications_at_once_wake_as_many() {
    in_fibers(|| {
        let notify = Arc::new(Notify::new());
        let waiting = waiters(&notify, 5);
        for _ in 0..3 {
            notify.notify_one();
        }
        wait_until(|| ended(&waiting) >= 3);
        settle();
        assert_eq!(ended(&waiting), 3);
        notify.notify_waiters();
        for waiter in waiting {
            assert_eq!(waiter.join().unwrap(), Ok(()));
        }
    });
}

#[test]
fn notify_waiters_wakes_all_who_wait_and_keeps_nothing() {
    in_fibers(|| {
        let notify = Arc::new(Notify::new());
        notify.notify_waiters();
        assert!(!notify.try_wait());
        let waiting = waiters(&notify, 20);
        notify.notify_waiters();
        for waiter in waiting {
            assert_eq!(waiter.join().unwrap(), Ok(()));
        }
        assert!(!notify.try_wait());
        let late = waiters(&notify, 1);
        settle();
        assert_eq!(ended(&late), 0);
        notify.notify_one();
        wait_until(|| ended(&late) == 1);
    });
}

#[test]
fn notify_waiters_leaves_a_kept_notification_alone() {
    let notify = Notify::new();
    notify.notify_one();
    notify.notify_waiters();
    assert!(notify.try_wait());
    assert!(!notify.try_wait());
}

#[test]
fn it_passes_a_turn_back_and_forth() {
    in_fibers(|| {
        let pair = Arc::new((Notify::new(), Notify::new()));
        let theirs = pair.clone();
        let other = sinew::spawn(move || {
            for _ in 0..200 {
                theirs.0.wait().unwrap();
                theirs.1.notify_one();
            }
        });
        for _ in 0..200 {
            pair.0.notify_one();
            pair.1.wait().unwrap();
        }
        other.join().unwrap();
        assert!(!pair.0.try_wait() && !pair.1.try_wait());
    });
}

#[test]
fn a_timeout_is_not_early() {
    in_fibers(|| {
        let notify = Arc::new(Notify::new());
        for time in [Duration::ZERO, SHORT] {
            let begun = Instant::now();
            let late = notify.wait_timeout(time);
            assert_eq!(late, Err(WaitTimeoutError::Timeout));
            assert!(begun.elapsed() >= time);
            let until = Instant::now() + time;
            let late = notify.wait_deadline(until);
            assert_eq!(late, Err(WaitTimeoutError::Timeout));
            assert!(Instant::now() >= until);
        }
        let theirs = notify.clone();
        let waiter = spawn_parked(move || theirs.wait_timeout(HOUR));
        notify.notify_one();
        assert_eq!(waiter.join().unwrap(), Ok(()));
        assert!(!notify.try_wait());
    });
}

#[test]
fn waiting_is_a_point_and_takes_nothing_when_cancelled() {
    in_fibers(|| {
        let notify = Arc::new(Notify::new());
        let waiter = waiters(&notify, 1).pop().unwrap();
        waiter.cancel();
        assert_eq!(waiter.join().unwrap(), Err(Cancelled));
        notify.notify_one();
        let theirs = notify.clone();
        sinew::spawn(move || {
            sinew::current().cancel();
            for _ in 0..3 {
                assert_eq!(theirs.wait(), Err(Cancelled));
                let cancelled = Err(WaitTimeoutError::Cancelled);
                assert_eq!(theirs.wait_timeout(HOUR), cancelled);
            }
        })
        .join()
        .unwrap();
        assert!(notify.try_wait(), "a cancelled fiber took it");
    });
}

#[test]
fn a_notification_is_not_swallowed_by_a_cancelled_or_late_waiter() {
    in_fibers(|| {
        for round in 0..20 {
            let notify = Arc::new(Notify::new());
            let theirs = notify.clone();
            let first = spawn_begun(move || match round % 2 {
                0 => theirs.wait().is_ok(),
                _ => theirs.wait_timeout(SHORT).is_ok(),
            });
            let second = waiters(&notify, 1).pop().unwrap();
            if round % 4 == 0 {
                first.cancel();
                notify.notify_one();
            } else {
                notify.notify_one();
                first.cancel();
            }
            if first.join().unwrap() {
                settle();
                assert!(!second.is_finished(), "one notification woke two");
                notify.notify_one();
            }
            second.join().unwrap().unwrap();
            assert!(!notify.try_wait());
        }
    });
}

#[test]
fn a_future_takes_what_was_kept_or_waits() {
    let _watch = watch();
    let notify = Notify::new();
    notify.notify_one();
    assert_eq!(ByHand::new(notify.wait_async()).poll(), Some(()));
    let mut waits = ByHand::waiting(notify.wait_async());
    assert!(waits.poll_elsewhere().is_none());
    notify.notify_one();
    waits.woken();
    assert!(!notify.try_wait());
}

#[test]
fn a_dropped_future_passes_its_notification_on() {
    let _watch = watch();
    let notify = Notify::new();
    drop(ByHand::waiting(notify.wait_async())); // it had none
    assert!(!notify.try_wait());
    let first = ByHand::waiting(notify.wait_async());
    let second = ByHand::waiting(notify.wait_async());
    notify.notify_one();
    assert!(first.is_woken() && !second.is_woken());
    drop(first);
    second.woken();
    assert!(!notify.try_wait());
    // To nobody: then it is kept.
    let last = ByHand::waiting(notify.wait_async());
    notify.notify_one();
    drop(last);
    assert!(notify.try_wait());
}

#[test]
fn of_notify_waiters_there_is_nothing_to_pass_on() {
    let _watch = watch();
    let notify = Notify::new();
    let first = ByHand::waiting(notify.wait_async());
    notify.notify_waiters();
    assert!(first.is_woken());
    let later = ByHand::waiting(notify.wait_async());
    drop(first);
    assert!(!later.is_woken());
    drop(later);
    assert!(!notify.try_wait());
}
