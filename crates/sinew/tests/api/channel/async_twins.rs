//! `send_async` and `recv_async`, under our own executor, a foreign one and none.

use super::{Census, HOUR, KINDS, MS, channel, everywhere, scenes};
use crate::harness::{on_workers, wait_until, watch};
use sinew::block_on;
use sinew::channel::{
    RecvError, SendError, TryRecvError, TrySendError, after, bounded, tick, unbounded,
};
use sinew::time::Instant;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Counts how often it was woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Bell {
    fn rung(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Polls once with a waker that rings `bell`.
fn poll<F: Future>(future: Pin<&mut F>, bell: &Arc<Bell>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&Waker::from(bell.clone())))
}

#[test]
fn what_needs_no_wait_is_ready_at_the_first_poll() {
    everywhere(|| {
        let bell = Arc::new(Bell::default());
        for kind in [Some(2), None] {
            let (tx, rx) = channel(kind);
            assert_eq!(poll(pin!(tx.send_async(1)), &bell), Poll::Ready(Ok(())));
            assert_eq!(poll(pin!(rx.recv_async()), &bell), Poll::Ready(Ok(1)));
            assert!(poll(pin!(rx.recv_async()), &bell).is_pending());
            drop(tx);
            let gone = Poll::Ready(Err(RecvError::Disconnected));
            assert_eq!(poll(pin!(rx.recv_async()), &bell), gone);
            let (tx, rx) = channel(kind);
            drop(rx);
            let back = Poll::Ready(Err(SendError::Disconnected(2)));
            assert_eq!(poll(pin!(tx.send_async(2)), &bell), back);
        }
        assert_eq!(bell.rung(), 0);
    });
}

#[test]
fn a_send_wakes_the_future_that_receives() {
    everywhere(|| {
        for kind in KINDS {
            let (tx, rx) = channel(kind);
            let bell = Arc::new(Bell::default());
            let mut receiving = pin!(rx.recv_async());
            assert!(poll(receiving.as_mut(), &bell).is_pending());
            assert_eq!(bell.rung(), 0);
            tx.try_send(4).unwrap();
            assert_eq!(bell.rung(), 1);
            assert_eq!(poll(receiving.as_mut(), &bell), Poll::Ready(Ok(4)));
            let mut receiving = pin!(rx.recv_async());
            assert!(poll(receiving.as_mut(), &bell).is_pending());
            drop(tx);
            assert_eq!(bell.rung(), 2);
            let gone = Poll::Ready(Err(RecvError::Disconnected));
            assert_eq!(poll(receiving.as_mut(), &bell), gone);
        }
    });
}

#[test]
fn a_receive_wakes_the_future_that_sends() {
    everywhere(|| {
        for capacity in [0, 1] {
            let (tx, rx) = bounded(capacity);
            (0..capacity).for_each(|_| tx.send(0).unwrap());
            let bell = Arc::new(Bell::default());
            let mut sending = pin!(tx.send_async(5));
            assert!(poll(sending.as_mut(), &bell).is_pending());
            assert_eq!(rx.try_recv(), Ok(if capacity == 0 { 5 } else { 0 }));
            assert_eq!(bell.rung(), 1);
            assert_eq!(poll(sending.as_mut(), &bell), Poll::Ready(Ok(())));
            assert_eq!(rx.try_iter().count(), capacity);
            (0..capacity).for_each(|_| tx.send(0).unwrap());
            let mut sending = pin!(tx.send_async(6));
            assert!(poll(sending.as_mut(), &bell).is_pending());
            drop(rx);
            assert_eq!(bell.rung(), 2);
            let back = Poll::Ready(Err(SendError::Disconnected(6)));
            assert_eq!(poll(sending.as_mut(), &bell), back);
        }
    });
}

#[test]
fn the_waker_of_the_last_poll_is_the_one_that_is_woken() {
    everywhere(|| {
        let (tx, rx) = unbounded();
        let (old, new) = (Arc::new(Bell::default()), Arc::new(Bell::default()));
        let mut receiving = pin!(rx.recv_async());
        assert!(poll(receiving.as_mut(), &old).is_pending());
        assert!(poll(receiving.as_mut(), &new).is_pending());
        tx.send(1).unwrap();
        assert_eq!((old.rung(), new.rung()), (0, 1));
        assert_eq!(poll(receiving.as_mut(), &old), Poll::Ready(Ok(1)));
    });
}

#[test]
fn two_futures_for_one_rendezvous_meet() {
    everywhere(|| {
        let (tx, rx) = bounded(0);
        let bell = Arc::new(Bell::default());
        for sender_first in [true, false] {
            let mut sending = pin!(tx.send_async(3));
            let mut receiving = pin!(rx.recv_async());
            if sender_first {
                assert!(poll(sending.as_mut(), &bell).is_pending());
                assert_eq!(poll(receiving.as_mut(), &bell), Poll::Ready(Ok(3)));
                assert_eq!(poll(sending.as_mut(), &bell), Poll::Ready(Ok(())));
            } else {
                assert!(poll(receiving.as_mut(), &bell).is_pending());
                assert_eq!(poll(sending.as_mut(), &bell), Poll::Ready(Ok(())));
                assert_eq!(poll(receiving.as_mut(), &bell), Poll::Ready(Ok(3)));
            }
        }
        assert_eq!(bell.rung(), 2);
        assert_eq!(tx.try_send(0), Err(TrySendError::Full(0)));
    });
}

#[test]
fn a_dropped_receiver_passes_its_message_on_before_all_others() {
    everywhere(|| {
        for kind in [Some(1), Some(3), None] {
            let (tx, rx) = channel(kind);
            let bell = Arc::new(Bell::default());
            {
                let mut receiving = pin!(rx.recv_async());
                assert!(poll(receiving.as_mut(), &bell).is_pending());
                tx.send(1).unwrap();
                assert_eq!(bell.rung(), 1);
                // Its room may be free again, or not yet.
                let _ = tx.try_send(2);
            }
            assert_eq!(rx.try_recv(), Ok(1));
            let _ = rx.try_iter().count();
            assert_eq!(tx.try_send(3), Ok(()));
            assert_eq!(rx.recv(), Ok(3));
        }
        // Without room too: who sent it has gone on already.
        let (tx, rx) = bounded(0);
        {
            let mut receiving = pin!(rx.recv_async());
            let bell = Arc::new(Bell::default());
            assert!(poll(receiving.as_mut(), &bell).is_pending());
            tx.try_send(1).unwrap();
        }
        assert_eq!(rx.try_recv(), Ok(1));
        assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
        assert_eq!(tx.try_send(2), Err(TrySendError::Full(2)));
    });
}

#[test]
fn a_message_passed_on_wakes_who_waits_next() {
    scenes(|scene| {
        for kind in KINDS {
            let (tx, rx) = channel(kind);
            let theirs = rx.clone();
            let bell = Arc::new(Bell::default());
            let mut receiving = Box::pin(rx.recv_async());
            assert!(poll(receiving.as_mut(), &bell).is_pending());
            let next = scene.left(move || theirs.recv());
            next.until_waiting();
            tx.try_send(8).unwrap();
            assert_eq!(bell.rung(), 1);
            drop(receiving);
            assert_eq!(next.join(), Ok(8));
        }
    });
}

#[test]
fn a_receiver_dropped_before_anything_came_is_forgotten() {
    everywhere(|| {
        for kind in KINDS {
            let (tx, rx) = channel(kind);
            let bell = Arc::new(Bell::default());
            for _ in 0..3 {
                let mut receiving = Box::pin(rx.recv_async());
                assert!(poll(receiving.as_mut(), &bell).is_pending());
                drop(receiving);
            }
            if kind == Some(0) {
                assert_eq!(tx.try_send(1), Err(TrySendError::Full(1)));
            } else {
                tx.try_send(1).unwrap();
                assert_eq!(rx.try_recv(), Ok(1));
            }
            assert_eq!(bell.rung(), 0);
        }
    });
}

#[test]
fn a_dropped_sender_has_sent_nothing_and_drops_its_message() {
    everywhere(|| {
        for capacity in [0, 1] {
            let census = Census::default();
            let (tx, rx) = bounded(capacity);
            (0..capacity).for_each(|i| tx.send(census.make(i)).unwrap());
            let bell = Arc::new(Bell::default());
            let mut sending = Box::pin(tx.send_async(census.make(9)));
            assert!(poll(sending.as_mut(), &bell).is_pending());
            assert_eq!(census.alive(), capacity + 1);
            drop(sending);
            assert_eq!(census.alive(), capacity);
            assert!(rx.try_iter().all(|message| message.number != 9));
            // One that was never polled as well.
            drop(tx.send_async(census.make(10)));
            assert_eq!((rx.len(), census.alive()), (0, 0));
        }
    });
}

#[test]
fn a_sender_dropped_after_its_message_went_has_sent_it_once() {
    everywhere(|| {
        for capacity in [0, 1] {
            let census = Census::default();
            let (tx, rx) = bounded(capacity);
            (0..capacity).for_each(|i| tx.send(census.make(i)).unwrap());
            let bell = Arc::new(Bell::default());
            let mut sending = Box::pin(tx.send_async(census.make(9)));
            assert!(poll(sending.as_mut(), &bell).is_pending());
            let first = rx.try_recv().unwrap();
            assert_eq!(bell.rung(), 1);
            drop(sending);
            let rest: Vec<_> = rx.try_iter().collect();
            // With a buffer the claim may have been for the room only.
            let sent = usize::from(first.number == 9) + rest.len();
            assert_eq!(census.alive(), 1 + rest.len());
            assert!(if capacity == 0 { sent == 1 } else { sent <= 1 });
            drop((first, rest));
            assert_eq!(census.alive(), 0);
            // Its room is not lost.
            (0..capacity).for_each(|i| tx.try_send(census.make(i)).unwrap());
        }
    });
}

#[test]
fn room_that_a_dropped_sender_was_given_goes_to_the_next() {
    scenes(|scene| {
        let (tx, rx) = bounded(1);
        tx.send(0).unwrap();
        let bell = Arc::new(Bell::default());
        let mut sending = Box::pin(tx.send_async(1));
        assert!(poll(sending.as_mut(), &bell).is_pending());
        let theirs = tx.clone();
        let next = scene.left(move || theirs.send(2));
        next.until_waiting();
        assert_eq!(rx.recv(), Ok(0));
        drop(sending);
        // One may have gone in before it was dropped.
        let got = rx.recv().unwrap();
        assert!(got == 2 || (got == 1 && rx.recv() == Ok(2)));
        next.join().unwrap();
    });
}

#[test]
fn a_future_may_be_polled_here_and_finished_elsewhere() {
    scenes(|scene| {
        for kind in KINDS {
            let (tx, rx) = channel(kind);
            let mut receiving = Box::pin(async move { rx.recv_async().await });
            let bell = Arc::new(Bell::default());
            assert!(poll(receiving.as_mut(), &bell).is_pending());
            let waiter = scene.left(move || block_on(receiving));
            waiter.until_waiting();
            let sender = scene.right(move || block_on(async move { tx.send_async(4).await }));
            assert_eq!(waiter.join(), Ok(4));
            assert_eq!(sender.join(), Ok(()));
            assert_eq!(bell.rung(), 0);
        }
    });
}

#[test]
fn async_and_waiting_ends_of_every_kind_pass_a_stream_on() {
    scenes(|scene| {
        for kind in KINDS {
            let (tx, rx) = channel(kind);
            let (tx2, rx2) = channel(kind);
            let sender = scene.left(move || {
                block_on(async {
                    for i in 0..200 {
                        tx.send_async(i).await.unwrap();
                    }
                });
            });
            let middle = scene.right(move || rx.iter().for_each(|i| tx2.send(i).unwrap()));
            let receiver = scene.left(move || {
                block_on(async {
                    for i in 0..200 {
                        assert_eq!(rx2.recv_async().await, Ok(i));
                    }
                    rx2.recv_async().await
                })
            });
            sender.join();
            middle.join();
            assert_eq!(receiver.join(), Err(RecvError::Disconnected));
        }
    });
}

#[test]
fn tasks_of_another_executor_talk_to_fibers() {
    let executor = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    on_workers(|runtime| {
        for kind in KINDS {
            let (ask, asked) = channel::<usize>(kind);
            let (answer, answers) = channel(kind);
            let fiber = runtime.spawn(move || {
                for i in asked {
                    answer.send(i * 2).unwrap();
                }
            });
            let task = executor.spawn(async move {
                for i in 0..200 {
                    ask.send_async(i).await.unwrap();
                    assert_eq!(answers.recv_async().await, Ok(i * 2));
                }
            });
            fiber.join().unwrap();
            executor.block_on(task).unwrap();
        }
    });
}

#[test]
fn tasks_that_are_aborted_lose_no_message() {
    let _watch = watch();
    let executor = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    for kind in KINDS {
        let (tx, rx) = channel(kind);
        let got = Arc::new(AtomicUsize::new(0));
        let sender = std::thread::spawn(move || (0..300).for_each(|i| tx.send(i).unwrap()));
        let mut tasks = Vec::new();
        while !sender.is_finished() || !rx.is_empty() {
            let (rx, got) = (rx.clone(), got.clone());
            let task = executor.spawn(async move {
                while rx.recv_async().await.is_ok() {
                    // No await between the message and the count.
                    got.fetch_add(1, Ordering::SeqCst);
                }
            });
            std::thread::yield_now();
            task.abort();
            tasks.push(task);
        }
        sender.join().unwrap();
        for task in tasks {
            let _ = executor.block_on(task);
        }
        got.fetch_add(rx.try_iter().count(), Ordering::SeqCst);
        assert_eq!(got.load(Ordering::SeqCst), 300, "{kind:?}");
    }
}

#[test]
fn timers_can_be_awaited() {
    everywhere(|| {
        let start = Instant::now();
        let due = block_on(after(3 * MS).recv_async()).unwrap();
        assert!(due >= start + 3 * MS && due <= Instant::now());
        let ticks = tick(MS);
        block_on(async {
            let first = ticks.recv_async().await.unwrap();
            assert!(ticks.recv_async().await.unwrap() >= first + MS);
        });
        let late = after(HOUR);
        let bell = Arc::new(Bell::default());
        assert!(poll(pin!(late.recv_async()), &bell).is_pending());
        assert_eq!(late.try_recv(), Err(TryRecvError::Empty));
    });
}

#[test]
fn futures_may_move_between_threads() {
    fn moves<T: Send>(future: T) -> T {
        future
    }
    let _watch = watch();
    let (tx, rx) = bounded(1);
    block_on(moves(tx.send_async(std::cell::Cell::new(1)))).unwrap();
    assert_eq!(block_on(moves(rx.recv_async())).unwrap().get(), 1);
    wait_until(|| rx.is_empty());
}
