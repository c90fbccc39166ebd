//! Channels for one message.

use super::{Census, HOUR, MS, NO_TIME, everywhere, scenes};
use crate::harness::{on_workers, wait_until};
use sinew::WaitReason;
use sinew::channel::{RecvError, RecvTimeoutError, TryRecvError, oneshot};
use sinew::time::Instant;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

#[test]
fn the_message_is_received_once() {
    everywhere(|| {
        let (tx, rx) = oneshot::channel();
        assert!(!tx.is_closed());
        assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
        assert_eq!(tx.send(7), Ok(()));
        assert_eq!(rx.recv(), Ok(7));
        assert_eq!(rx.recv(), Err(RecvError::Disconnected));
        assert_eq!(rx.try_recv(), Err(TryRecvError::Disconnected));
    });
}

#[test]
fn a_receiver_waits_for_the_message() {
    scenes(|scene| {
        let (tx, rx) = oneshot::channel();
        let receiver = scene.left(move || rx.recv());
        receiver.until_waiting();
        let sender = scene.right(move || tx.send(String::from("once")));
        assert_eq!(receiver.join().unwrap(), "once");
        sender.join().unwrap();
    });
}

#[test]
fn each_way_to_receive_gets_it() {
    everywhere(|| {
        let make = |value| {
            let (tx, rx) = oneshot::channel();
            tx.send(value).unwrap();
            rx
        };
        assert_eq!(make(1).recv(), Ok(1));
        assert_eq!(make(2).try_recv(), Ok(2));
        assert_eq!(make(3).recv_timeout(HOUR), Ok(3));
        assert_eq!(make(4).recv_timeout(NO_TIME), Ok(4));
        assert_eq!(make(5).recv_deadline(Instant::now()), Ok(5));
        assert_eq!(sinew::block_on(make(6).recv_async()), Ok(6));
        assert_eq!(sinew::block_on(make(7)), Ok(7));
    });
}

#[test]
fn a_timeout_expires_and_the_message_may_come_later() {
    everywhere(|| {
        let (tx, rx) = oneshot::channel();
        let start = Instant::now();
        assert_eq!(rx.recv_timeout(4 * MS), Err(RecvTimeoutError::Timeout));
        assert!(start.elapsed() >= 4 * MS);
        let due = Instant::now() + 2 * MS;
        assert_eq!(rx.recv_deadline(due), Err(RecvTimeoutError::Timeout));
        assert!(Instant::now() >= due);
        tx.send(1).unwrap();
        assert_eq!(rx.recv(), Ok(1));
    });
}

#[test]
fn a_sender_that_leaves_without_sending_wakes_the_receiver() {
    scenes(|scene| {
        let (tx, rx) = oneshot::channel::<u8>();
        let receiver = scene.left(move || (rx.recv_timeout(HOUR), rx.recv()));
        receiver.until_waiting();
        scene.right(move || drop(tx)).join();
        let gone = Err(RecvError::Disconnected);
        let answers = (Err(RecvTimeoutError::Disconnected), gone);
        assert_eq!(receiver.join(), answers);
    });
}

#[test]
fn a_message_for_nobody_comes_back() {
    everywhere(|| {
        let census = Census::default();
        let (tx, rx) = oneshot::channel();
        drop(rx);
        assert!(tx.is_closed());
        let back = tx.send(census.make(1)).unwrap_err();
        assert_eq!((back.number, census.dropped()), (1, 0));
        let (tx, rx) = oneshot::channel();
        rx.close();
        assert!(tx.is_closed());
        assert_eq!(tx.send(2), Err(2));
        assert_eq!(rx.recv(), Err(RecvError::Disconnected));
    });
}

#[test]
fn a_close_leaves_what_was_sent_before_it() {
    everywhere(|| {
        let (tx, rx) = oneshot::channel();
        tx.send(3).unwrap();
        rx.close();
        assert_eq!(rx.recv(), Ok(3));
        assert_eq!(rx.recv(), Err(RecvError::Disconnected));
    });
}

#[test]
fn a_message_that_nobody_took_is_dropped_once() {
    everywhere(|| {
        let census = Census::default();
        let (tx, rx) = oneshot::channel();
        tx.send(census.make(1)).unwrap();
        assert_eq!(census.alive(), 1);
        drop(rx);
        assert_eq!((census.alive(), census.dropped()), (0, 1));
        drop(oneshot::channel::<u8>());
    });
    scenes(|scene| {
        let census = Census::default();
        for i in 0..50 {
            let (tx, rx) = oneshot::channel();
            let theirs = census.clone();
            let sender = scene.left(move || drop(tx.send(theirs.make(i))));
            let receiver = scene.right(move || match i % 3 {
                0 => drop(rx.recv()),
                1 => drop(rx.try_recv()),
                _ => drop(rx),
            });
            sender.join();
            receiver.join();
        }
        assert_eq!((census.alive(), census.dropped()), (0, 50));
    });
}

#[test]
fn many_at_the_same_time_lose_nothing() {
    scenes(|scene| {
        for i in 0..200 {
            let (tx, rx) = oneshot::channel();
            let receiver = scene.left(move || rx.recv());
            let sender = scene.right(move || tx.send(i));
            assert_eq!(receiver.join(), Ok(i));
            sender.join().unwrap();
        }
    });
}

#[test]
fn the_receiver_is_a_future_that_is_woken() {
    scenes(|scene| {
        let (tx, rx) = oneshot::channel();
        let receiver = scene.left(move || sinew::block_on(rx));
        receiver.until_waiting();
        scene.right(move || tx.send(5).unwrap()).join();
        assert_eq!(receiver.join(), Ok(5));
        let (tx, rx) = oneshot::channel::<u8>();
        let receiver = scene.left(move || sinew::block_on(rx.recv_async()));
        receiver.until_waiting();
        scene.right(move || drop(tx)).join();
        assert_eq!(receiver.join(), Err(RecvError::Disconnected));
    });
}

#[test]
fn a_future_of_the_receiver_that_is_dropped_leaves_the_message() {
    everywhere(|| {
        let (tx, rx) = oneshot::channel();
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
fn a_cancelled_receiver_leaves_the_message_and_a_send_is_no_point() {
    on_workers(|runtime| {
        let (tx, rx) = oneshot::channel();
        let waiter = runtime.spawn(move || (rx.recv(), rx.recv_timeout(HOUR), rx));
        wait_until(|| waiter.fiber().wait_reason() != WaitReason::None);
        waiter.cancel();
        let (first, second, rx) = waiter.join().unwrap();
        assert_eq!(first, Err(RecvError::Cancelled));
        assert_eq!(second, Err(RecvTimeoutError::Cancelled));
        let sender = runtime.spawn(move || {
            sinew::current().cancel();
            tx.send(1)
        });
        assert_eq!(sender.join().unwrap(), Ok(()));
        let ready = runtime.spawn(move || {
            sinew::current().cancel();
            (rx.recv(), rx.try_recv())
        });
        let cancelled = Err(RecvError::Cancelled);
        assert_eq!(ready.join().unwrap(), (cancelled, Ok(1)));
    });
}
