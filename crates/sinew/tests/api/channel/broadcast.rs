//! Channels where every receiver gets every message.

use super::{Census, Counted, HOUR, MS, everywhere, scenes};
use crate::harness::{on_workers, wait_until};
use sinew::WaitReason;
use sinew::channel::SendError;
use sinew::channel::broadcast::{self, RecvError, RecvTimeoutError, TryRecvError};
use sinew::time::Instant;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

#[test]
fn every_receiver_gets_every_message_in_order() {
    everywhere(|| {
        let (tx, mut one) = broadcast::channel(8);
        let mut two = tx.subscribe();
        assert_eq!(tx.receiver_count(), 2);
        for i in 0..5 {
            assert_eq!(tx.send(i), Ok(2));
        }
        for i in 0..5 {
            assert_eq!(one.recv(), Ok(i));
            assert_eq!(two.try_recv(), Ok(i));
        }
        assert_eq!(one.try_recv(), Err(TryRecvError::Empty));
        assert_eq!(two.try_recv(), Err(TryRecvError::Empty));
    });
}

#[test]
fn who_subscribes_later_gets_what_is_sent_later() {
    everywhere(|| {
        let (tx, mut one) = broadcast::channel(8);
        tx.send(1).unwrap();
        let mut two = tx.subscribe();
        tx.send(2).unwrap();
        let mut three = one.resubscribe();
        tx.send(3).unwrap();
        assert_eq!((one.len(), two.len(), three.len()), (3, 2, 1));
        assert_eq!(three.recv(), Ok(3));
        assert_eq!((two.recv(), two.recv()), (Ok(2), Ok(3)));
        assert_eq!((one.recv(), one.len()), (Ok(1), 2));
    });
}

#[test]
fn who_is_too_slow_is_told_how_many_were_missed() {
    everywhere(|| {
        let (tx, mut slow) = broadcast::channel(4);
        let mut quick = tx.subscribe();
        for i in 0..10 {
            tx.send(i).unwrap();
            assert_eq!(quick.recv(), Ok(i));
        }
        let missed = match slow.try_recv() {
            Err(TryRecvError::Lagged(missed)) => missed,
            other => panic!("{other:?}"),
        };
        // The room may be rounded up; what is missed and what is kept is all.
        assert!((1..=6).contains(&missed), "{missed}");
        for i in missed..10 {
            assert_eq!(slow.recv(), Ok(i));
        }
        assert_eq!(slow.try_recv(), Err(TryRecvError::Empty));
        for i in 0..20 {
            tx.send(i).unwrap();
        }
        assert!(matches!(slow.recv(), Err(RecvError::Lagged(_))));
        assert!(slow.recv().is_ok());
        for i in 0..20 {
            tx.send(i).unwrap();
        }
        let lagged = slow.recv_timeout(HOUR);
        assert!(matches!(lagged, Err(RecvTimeoutError::Lagged(_))));
    });
}

#[test]
fn a_message_for_nobody_comes_back() {
    everywhere(|| {
        let (tx, rx) = broadcast::channel(2);
        drop(rx);
        assert_eq!(tx.receiver_count(), 0);
        assert_eq!(tx.send(1), Err(SendError::Disconnected(1)));
        // Nobody listens now, but somebody may again.
        let mut rx = tx.subscribe();
        assert_eq!(tx.send(2), Ok(1));
        assert_eq!(rx.recv(), Ok(2));
    });
}

#[test]
fn what_was_sent_can_be_received_after_the_last_sender_and_a_close() {
    everywhere(|| {
        for closed in [true, false] {
            let (tx, mut rx) = broadcast::channel(4);
            let twin = tx.clone();
            tx.send(1).unwrap();
            twin.send(2).unwrap();
            if closed {
                tx.close();
                assert!(matches!(twin.send(3), Err(SendError::Disconnected(3))));
            } else {
                drop((tx, twin));
            }
            assert_eq!(rx.recv(), Ok(1));
            assert_eq!(rx.try_recv(), Ok(2));
            assert_eq!(rx.recv(), Err(RecvError::Disconnected));
            assert_eq!(rx.try_recv(), Err(TryRecvError::Disconnected));
            let gone = rx.recv_timeout(HOUR);
            assert_eq!(gone, Err(RecvTimeoutError::Disconnected));
            let gone = sinew::block_on(rx.recv_async());
            assert_eq!(gone, Err(RecvError::Disconnected));
        }
    });
}

#[test]
fn a_send_wakes_all_that_wait() {
    scenes(|scene| {
        let (tx, first) = broadcast::channel(4);
        let mut receivers = vec![first];
        receivers.extend((1..5).map(|_| tx.subscribe()));
        let waiting: Vec<_> = receivers
            .into_iter()
            .enumerate()
            .map(|(n, mut rx)| {
                scene.side(n, move || match n {
                    0 => rx.recv().unwrap(),
                    1 => rx.recv_timeout(HOUR).unwrap(),
                    2 => rx.recv_deadline(Instant::now() + HOUR).unwrap(),
                    3 => sinew::block_on(rx.recv_async()).unwrap(),
                    _ => rx.recv().unwrap(),
                })
            })
            .collect();
        for waiter in &waiting {
            waiter.until_waiting();
        }
        assert_eq!(scene.right(move || (tx.send(9), tx)).join().0, Ok(5));
        for waiter in waiting {
            assert_eq!(waiter.join(), 9);
        }
    });
}

#[test]
fn the_last_sender_s_end_wakes_all_that_wait() {
    scenes(|scene| {
        let (tx, mut one) = broadcast::channel::<u8>(4);
        let mut two = tx.subscribe();
        let first = scene.left(move || one.recv());
        let second = scene.right(move || two.recv_timeout(HOUR));
        first.until_waiting();
        second.until_waiting();
        scene.right(move || drop(tx)).join();
        assert_eq!(first.join(), Err(RecvError::Disconnected));
        assert_eq!(second.join(), Err(RecvTimeoutError::Disconnected));
    });
}

#[test]
fn a_timeout_expires_not_before_its_time() {
    everywhere(|| {
        let (_tx, mut rx) = broadcast::channel::<u8>(1);
        let start = Instant::now();
        assert_eq!(rx.recv_timeout(4 * MS), Err(RecvTimeoutError::Timeout));
        assert!(start.elapsed() >= 4 * MS);
        let due = Instant::now() + 2 * MS;
        assert_eq!(rx.recv_deadline(due), Err(RecvTimeoutError::Timeout));
        assert!(Instant::now() >= due);
    });
}

#[test]
fn with_many_on_both_sides_each_gets_or_misses_each_message() {
    scenes(|scene| {
        let (tx, first) = broadcast::channel(16);
        let mut receivers = vec![first];
        receivers.extend((1..4).map(|_| tx.subscribe()));
        let receivers: Vec<_> = receivers
            .into_iter()
            .enumerate()
            .map(|(n, mut rx)| {
                scene.side(n, move || {
                    let (mut total, mut last) = (0, [None; 3]);
                    loop {
                        match rx.recv() {
                            Ok((sender, number)) => {
                                let _: usize = sender;
                                assert!(last[sender] < Some(number), "out of order");
                                last[sender] = Some(number);
                                total += 1;
                            }
                            Err(RecvError::Lagged(missed)) => total += missed,
                            Err(_) => break total,
                        }
                    }
                })
            })
            .collect();
        let senders: Vec<_> = (0..3)
            .map(|n| {
                let tx = tx.clone();
                scene.side(n, move || {
                    for i in 0..300 {
                        tx.send((n, i)).unwrap();
                        if i % 16 == 0 {
                            sinew::yield_now();
                        }
                    }
                })
            })
            .collect();
        drop(tx);
        for sender in senders {
            sender.join();
        }
        for receiver in receivers {
            assert_eq!(receiver.join(), 900);
        }
    });
}

#[test]
fn messages_are_dropped_once_those_who_want_them_had_them_or_are_gone() {
    everywhere(|| {
        let census = Census::default();
        let make = |i| Arc::new(census.make(i));
        let (tx, mut one) = broadcast::channel::<Arc<Counted>>(2);
        let mut two = tx.subscribe();
        for i in 0..10 {
            tx.send(make(i)).unwrap();
        }
        assert!(census.alive() <= 2, "{} alive", census.alive());
        assert!(matches!(one.recv(), Err(RecvError::Lagged(_))));
        assert!(one.recv().is_ok());
        assert!(two.recv().is_err());
        drop((one, two));
        assert!(tx.send(make(10)).is_err());
        drop(tx);
        assert_eq!((census.alive(), census.dropped()), (0, 11));
    });
}

#[test]
fn the_length_is_what_waits_in_the_channel() {
    everywhere(|| {
        let (tx, mut rx) = broadcast::channel(8);
        assert_eq!((tx.len(), rx.len()), (0, 0));
        for i in 1..4 {
            tx.send(i).unwrap();
            assert_eq!((tx.len(), rx.len()), (i, i));
        }
        rx.recv().unwrap();
        assert_eq!(rx.len(), 2);
    });
}

#[test]
fn a_dropped_future_takes_no_message_along() {
    everywhere(|| {
        let (tx, mut rx) = broadcast::channel(2);
        {
            let mut waiting = pin!(rx.recv_async());
            let mut context = Context::from_waker(Waker::noop());
            assert_eq!(waiting.as_mut().poll(&mut context), Poll::Pending);
            tx.send(6).unwrap();
        }
        assert_eq!(rx.recv(), Ok(6));
    });
}

#[test]
fn a_cancelled_receiver_misses_nothing_and_a_send_is_no_point() {
    on_workers(|runtime| {
        let (tx, mut rx) = broadcast::channel(2);
        let waiter = runtime.spawn(move || (rx.recv(), rx.recv_timeout(HOUR), rx));
        wait_until(|| waiter.fiber().wait_reason() != WaitReason::None);
        waiter.cancel();
        let (first, second, mut rx) = waiter.join().unwrap();
        assert_eq!(first, Err(RecvError::Cancelled));
        assert_eq!(second, Err(RecvTimeoutError::Cancelled));
        let sender = runtime.spawn(move || {
            sinew::current().cancel();
            (tx.send(1), tx)
        });
        assert_eq!(sender.join().unwrap().0, Ok(1));
        let ready = runtime.spawn(move || {
            sinew::current().cancel();
            (rx.recv(), rx.try_recv())
        });
        let cancelled = Err(RecvError::Cancelled);
        assert_eq!(ready.join().unwrap(), (cancelled, Ok(1)));
    });
}
