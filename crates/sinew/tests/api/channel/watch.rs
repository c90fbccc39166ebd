//! Channels that keep the newest value.

use super::{Census, HOUR, MS, NO_TIME, everywhere, scenes};
use crate::harness::{on_workers, wait_until};
use sinew::channel::{RecvError, RecvTimeoutError, SendError, watch};
use sinew::sync::WaitTimeoutError;
use sinew::time::Instant;
use sinew::{Cancelled, WaitReason};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

#[test]
fn the_first_value_is_there_and_counts_as_seen() {
    everywhere(|| {
        let (tx, rx) = watch::channel("first");
        assert_eq!((*tx.borrow(), *rx.borrow()), ("first", "first"));
        assert_eq!(rx.has_changed(), Ok(false));
        assert_eq!(rx.clone().has_changed(), Ok(false));
        assert_eq!(tx.subscribe().has_changed(), Ok(false));
    });
}

#[test]
fn a_change_stays_one_until_it_is_seen() {
    everywhere(|| {
        let (tx, mut rx) = watch::channel(0);
        tx.send(1).unwrap();
        tx.send(2).unwrap();
        assert_eq!(rx.has_changed(), Ok(true));
        assert_eq!(*rx.borrow(), 2);
        assert_eq!(rx.has_changed(), Ok(true));
        assert_eq!(*rx.borrow_and_update(), 2);
        assert_eq!(rx.has_changed(), Ok(false));
        tx.send(3).unwrap();
        rx.changed().unwrap();
        assert_eq!(rx.has_changed(), Ok(false));
        assert_eq!(*rx.borrow(), 3);
        let late = rx.changed_timeout(NO_TIME);
        assert_eq!(late, Err(RecvTimeoutError::Timeout));
    });
}

#[test]
fn each_receiver_sees_changes_for_itself() {
    everywhere(|| {
        let (tx, mut one) = watch::channel(0);
        let two = one.clone();
        assert_eq!(tx.receiver_count(), 2);
        tx.send(1).unwrap();
        one.changed().unwrap();
        let three = one.clone();
        assert_eq!(one.has_changed(), Ok(false));
        assert_eq!(two.has_changed(), Ok(true));
        assert_eq!(three.has_changed(), Ok(false));
        assert_eq!(tx.receiver_count(), 3);
        drop((one, two, three));
        assert_eq!(tx.receiver_count(), 0);
    });
}

#[test]
fn values_are_replaced_and_modified_in_place() {
    everywhere(|| {
        let (tx, mut rx) = watch::channel(vec![1]);
        assert_eq!(tx.send_replace(vec![2]), [1]);
        assert_eq!(rx.has_changed(), Ok(true));
        tx.send_modify(|value| value.push(3));
        assert_eq!(*rx.borrow_and_update(), [2, 3]);
        assert!(!tx.send_if_modified(|_| false));
        assert_eq!(rx.has_changed(), Ok(false));
        assert!(tx.send_if_modified(|value| {
            value.clear();
            true
        }));
        assert_eq!(rx.has_changed(), Ok(true));
        assert!(rx.borrow_and_update().is_empty());
    });
}

#[test]
fn without_receivers_a_send_fails_but_a_replace_does_not() {
    everywhere(|| {
        let (tx, rx) = watch::channel(0);
        assert!(!tx.is_closed());
        drop(rx);
        assert!(tx.is_closed());
        assert_eq!(tx.send(1), Err(SendError::Disconnected(1)));
        assert_eq!(*tx.borrow(), 0);
        assert_eq!(tx.send_replace(2), 0);
        let rx = tx.subscribe();
        assert!(!tx.is_closed());
        assert_eq!((*rx.borrow(), rx.has_changed()), (2, Ok(false)));
    });
}

#[test]
fn a_change_wakes_all_that_wait() {
    scenes(|scene| {
        let (tx, rx) = watch::channel(0);
        let waiting: Vec<_> = (0..5)
            .map(|n| {
                let mut rx = rx.clone();
                scene.side(n, move || {
                    match n {
                        0 => rx.changed().unwrap(),
                        1 => rx.changed_timeout(HOUR).unwrap(),
                        2 => rx.changed_deadline(Instant::now() + HOUR).unwrap(),
                        3 => sinew::block_on(rx.changed_async()).unwrap(),
                        _ => drop(rx.wait_for(|value| *value == 7).unwrap()),
                    }
                    *rx.borrow()
                })
            })
            .collect();
        for waiter in &waiting {
            waiter.until_waiting();
        }
        let sender = scene.right(move || tx.send(7).map(|()| tx));
        for waiter in waiting {
            assert_eq!(waiter.join(), 7);
        }
        sender.join().unwrap();
    });
}

#[test]
fn wait_for_waits_for_the_value_and_looks_at_the_one_there_is() {
    scenes(|scene| {
        let (tx, mut rx) = watch::channel(5);
        assert_eq!(*rx.wait_for(|value| *value == 5).unwrap(), 5);
        let waiter = scene.left(move || {
            let found = *rx.wait_for(|value| *value >= 100).unwrap();
            (found, rx.has_changed())
        });
        waiter.until_waiting();
        let sender = scene.right(move || {
            (0..=100).for_each(|i| tx.send(i).unwrap());
            tx
        });
        assert_eq!(waiter.join(), (100, Ok(false)));
        sender.join();
    });
}

#[test]
fn wait_for_gives_up_in_time_and_finds_what_comes_before() {
    everywhere(|| {
        let (tx, mut rx) = watch::channel(0);
        let start = Instant::now();
        let late = rx.wait_for_timeout(|value| *value == 1, 4 * MS);
        assert_eq!(late.unwrap_err(), RecvTimeoutError::Timeout);
        assert!(start.elapsed() >= 4 * MS);
        let due = Instant::now() + 2 * MS;
        let late = rx.wait_for_deadline(|value| *value == 1, due);
        assert_eq!(late.unwrap_err(), RecvTimeoutError::Timeout);
        assert!(Instant::now() >= due);
        // Time that is over does not matter if there is no need to wait.
        assert_eq!(
            *rx.wait_for_timeout(|value| *value == 0, NO_TIME).unwrap(),
            0
        );
        assert_eq!(*rx.wait_for_deadline(|value| *value == 0, due).unwrap(), 0);
        drop(tx);
        let end = rx.wait_for_timeout(|value| *value == 1, HOUR);
        assert_eq!(end.unwrap_err(), RecvTimeoutError::Disconnected);
    });
    scenes(|scene| {
        let (tx, rx) = watch::channel(0);
        let (mut one, mut two) = (rx.clone(), rx);
        let first = scene.left(move || one.wait_for_timeout(|n| *n == 2, HOUR).map(|n| *n));
        let second = scene.right(move || {
            let deadline = Instant::now() + HOUR;
            two.wait_for_deadline(|n| *n == 2, deadline).map(|n| *n)
        });
        first.until_waiting();
        second.until_waiting();
        tx.send(1).unwrap();
        tx.send(2).unwrap();
        assert_eq!((first.join(), second.join()), (Ok(2), Ok(2)));
    });
}

#[test]
fn many_senders_change_one_value_until_the_last_is_gone() {
    scenes(|scene| {
        let (tx, mut rx) = watch::channel(0);
        let senders: Vec<_> = (0..4)
            .map(|n| {
                let tx = tx.clone();
                scene.side(n, move || {
                    (0..100).for_each(|_| tx.send_modify(|sum| *sum += 1))
                })
            })
            .collect();
        let watcher = scene.left(move || {
            while rx.changed().is_ok() {}
            *rx.borrow()
        });
        for sender in senders {
            sender.join();
        }
        watcher.until_waiting();
        drop(tx);
        assert_eq!(watcher.join(), 400);
    });
}

#[test]
fn the_sender_s_end_wakes_all_that_wait_and_leaves_the_value() {
    scenes(|scene| {
        let (tx, rx) = watch::channel(4);
        let (mut one, mut two, mut three) = (rx.clone(), rx.clone(), rx);
        let first = scene.left(move || (one.changed(), *one.borrow()));
        let second = scene.right(move || two.changed_timeout(HOUR));
        let third = scene.left(move || three.wait_for(|value| *value == 0).map(|value| *value));
        first.until_waiting();
        second.until_waiting();
        third.until_waiting();
        scene.right(move || drop(tx)).join();
        assert_eq!(first.join(), (Err(RecvError::Disconnected), 4));
        assert_eq!(second.join(), Err(RecvTimeoutError::Disconnected));
        assert_eq!(third.join(), Err(RecvError::Disconnected));
    });
}

#[test]
fn a_change_before_the_sender_s_end_is_still_told() {
    everywhere(|| {
        let (tx, mut rx) = watch::channel(0);
        tx.send(1).unwrap();
        drop(tx);
        assert_eq!(rx.changed(), Ok(()));
        assert_eq!(*rx.borrow(), 1);
        assert_eq!(rx.changed(), Err(RecvError::Disconnected));
        assert_eq!(rx.has_changed(), Err(RecvError::Disconnected));
        assert_eq!(*rx.wait_for(|value| *value == 1).unwrap(), 1);
    });
}

#[test]
fn a_timeout_expires_not_before_its_time() {
    everywhere(|| {
        let (_tx, mut rx) = watch::channel(0);
        let start = Instant::now();
        let late = rx.changed_timeout(4 * MS);
        assert_eq!(late, Err(RecvTimeoutError::Timeout));
        assert!(start.elapsed() >= 4 * MS);
        let due = Instant::now() + 2 * MS;
        let late = rx.changed_deadline(due);
        assert_eq!(late, Err(RecvTimeoutError::Timeout));
        assert!(Instant::now() >= due);
    });
}

#[test]
fn who_waits_for_changes_ends_with_the_last_value_whatever_it_skipped() {
    scenes(|scene| {
        let (tx, rx) = watch::channel(0);
        let watchers: Vec<_> = (0..4)
            .map(|n| {
                let mut rx = rx.clone();
                scene.side(n, move || {
                    let mut last = 0;
                    while rx.changed().is_ok() {
                        let value = *rx.borrow_and_update();
                        assert!(value >= last);
                        last = value;
                    }
                    last
                })
            })
            .collect();
        let sender = scene.right(move || {
            for i in 1..=1_000 {
                tx.send(i).unwrap();
                if i % 50 == 0 {
                    sinew::yield_now();
                }
            }
        });
        sender.join();
        for watcher in watchers {
            assert_eq!(watcher.join(), 1_000);
        }
    });
}

#[test]
fn each_value_is_dropped_once() {
    everywhere(|| {
        let census = Census::default();
        let (tx, rx) = watch::channel(census.make(0));
        for i in 1..10 {
            tx.send(census.make(i)).unwrap();
            assert_eq!(census.alive(), 1);
        }
        drop(tx.send_replace(census.make(10)));
        assert_eq!((rx.borrow().number, census.alive()), (10, 1));
        drop(rx);
        let back = tx.send(census.make(11)).unwrap_err().into_inner();
        assert_eq!((back.number, census.alive()), (11, 2));
        drop(back);
        drop(tx);
        assert_eq!((census.alive(), census.dropped()), (0, 12));
    });
}

#[test]
fn a_dropped_future_leaves_the_change_unseen() {
    everywhere(|| {
        let (tx, mut rx) = watch::channel(0);
        {
            let mut waiting = pin!(rx.changed_async());
            let mut context = Context::from_waker(Waker::noop());
            assert_eq!(waiting.as_mut().poll(&mut context), Poll::Pending);
            tx.send(6).unwrap();
        }
        assert_eq!(rx.has_changed(), Ok(true));
        assert_eq!(rx.changed(), Ok(()));
    });
}

#[test]
fn a_cancelled_watcher_has_seen_nothing_and_a_send_is_no_point() {
    on_workers(|runtime| {
        let (tx, mut rx) = watch::channel(0);
        let waiter = runtime.spawn(move || {
            let answers = (rx.changed(), rx.changed_timeout(HOUR));
            let third = rx.wait_for(|value| *value == 0).map(|value| *value);
            let fourth = rx
                .wait_for_timeout(|value| *value == 0, HOUR)
                .map(|value| *value);
            (answers, (third, fourth), rx)
        });
        wait_until(|| waiter.fiber().wait_reason() != WaitReason::None);
        waiter.cancel();
        let (answers, (third, fourth), mut rx) = waiter.join().unwrap();
        let cancelled = Err(RecvError::Cancelled);
        assert_eq!(answers, (cancelled, Err(RecvTimeoutError::Cancelled)));
        assert_eq!(third, Err(RecvError::Cancelled));
        assert_eq!(fourth, Err(RecvTimeoutError::Cancelled));
        let sender = runtime.spawn(move || {
            sinew::current().cancel();
            (tx.send(1), tx)
        });
        assert_eq!(sender.join().unwrap().0, Ok(()));
        let ready = runtime.spawn(move || {
            sinew::current().cancel();
            (rx.changed(), rx.has_changed())
        });
        assert_eq!(ready.join().unwrap(), (cancelled, Ok(true)));
    });
}

#[test]
fn a_sender_waits_until_the_last_receiver_has_gone() {
    on_workers(|runtime| {
        let (tx, rx) = watch::channel(0);
        let other = rx.clone();
        assert_eq!(tx.closed_timeout(NO_TIME), Err(WaitTimeoutError::Timeout));
        let waits = runtime.spawn(move || (tx.closed(), tx));
        wait_until(|| waits.fiber().wait_reason() != WaitReason::None);
        drop(rx);
        assert!(!waits.is_finished());
        drop(other);
        let (closed, tx) = waits.join().unwrap();
        assert_eq!(closed, Ok(()));
        assert!(tx.is_closed());
        // There may be one again, and again it may go.
        let again = tx.subscribe();
        assert_eq!(
            tx.closed_deadline(Instant::now()),
            Err(WaitTimeoutError::Timeout)
        );
        drop(again);
        assert_eq!(tx.closed_timeout(HOUR), Ok(()));
    });
}

#[test]
fn a_cancelled_sender_does_not_wait_for_receivers() {
    on_workers(|runtime| {
        let (tx, _rx) = watch::channel(0);
        let waits = runtime.spawn(move || (tx.closed(), tx.closed_timeout(HOUR)));
        wait_until(|| waits.fiber().wait_reason() != WaitReason::None);
        waits.cancel();
        let cancelled = (Err(Cancelled), Err(WaitTimeoutError::Cancelled));
        assert_eq!(waits.join().unwrap(), cancelled);
    });
}

#[test]
fn a_task_waits_until_the_last_receiver_has_gone() {
    let (tx, rx) = watch::channel(0);
    let mut closed = pin!(tx.closed_async());
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(closed.as_mut().poll(&mut context), Poll::Pending);
    drop(rx);
    assert_eq!(closed.as_mut().poll(&mut context), Poll::Ready(()));
}

#[test]
fn a_value_may_be_marked_as_seen_or_not() {
    everywhere(|| {
        let (tx, mut rx) = watch::channel(0);
        rx.mark_changed(); // also the first
        assert_eq!(rx.has_changed(), Ok(true));
        assert_eq!(rx.changed(), Ok(()));
        assert_eq!(rx.has_changed(), Ok(false));
        tx.send(1).unwrap();
        rx.mark_unchanged();
        assert_eq!(rx.has_changed(), Ok(false));
        assert_eq!(rx.changed_timeout(NO_TIME), Err(RecvTimeoutError::Timeout));
        rx.mark_changed();
        drop(tx);
        assert_eq!(rx.changed(), Ok(()));
        assert_eq!(rx.changed(), Err(RecvError::Disconnected));
    });
}
