//! Models of `oneshot`, and of what `watch` and `broadcast` wait with.
//!
//! Every ordering below was weakened once by hand; the model named caught it.
//!
//! | weakened                                      | caught by |
//! |-----------------------------------------------|-----------|
//! | `Sender::is_closed` Acquire → Relaxed         | `who_sees_that_a_channel_was_closed…` |
//! | `oneshot::decide` Release → Relaxed           | `the_one_message…`, `a_message_whose_receiver_goes…` |
//! | `oneshot::decide_slow` Release → Relaxed      | `the_one_message…`, `of_two_who_receive…` |
//! | `oneshot::leave` AcqRel → either half         | nothing: loom does not see that memory is freed |
//! | `Shared::take`, success Acquire → Relaxed     | `the_one_message…`, `a_message_whose_receiver_goes…` |
//! | `Shared::take`, failure Acquire → Relaxed     | `who_waits_is_told…`, `a_task_that_awaits…` |
//! | `Shared::listen` Acquire → Relaxed            | nothing: if it is over, `take` follows and acquires |
//! | `Receiver::close` Release → Relaxed           | `who_sees_that_a_channel_was_closed…` |
//! | `Receiver::drop`, load Acquire → Relaxed      | `a_message_whose_receiver_goes…` |
//! | `Receiver::drop`, AcqRel → Acquire            | `who_sees_that_a_channel_was_closed…` |
//! | `Receiver::drop`, AcqRel → Release            | `a_message_whose_receiver_goes…` |
//! | `News::is_closed` Acquire → Relaxed           | nothing: read under the lock of the ring |
//! | `News::count` Acquire → Relaxed               | `who_waits_for_the_last_receiver…` |
//! | `News::look` Acquire → Relaxed                | `who_is_told_of_a_change…`, `who_waits_for_a_change…` |
//! | `News::publish` Release → Relaxed             | `who_is_told_of_a_change…` |
//! | `News::close` Release → Relaxed               | `who_waits_for_a_change…` |
//!
//! Not weakened yet: `Receiver::drop` of `watch`.

use super::{RecvError, TryRecvError, broadcast, oneshot, watch};
use crate::primitive::model::Plain;
use crate::primitive::{AtomicUsize, Ordering};
use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

fn bounded(preemptions: usize) -> Builder {
    let mut model = Builder::new();
    model.preemption_bound = Some(preemptions);
    model
}

/// A task's executor: counts its wakes.
struct Executor(AtomicUsize);

impl Executor {
    fn new() -> std::sync::Arc<Self> {
        std::sync::Arc::new(Self(AtomicUsize::new(0)))
    }

    fn poll<F: Future>(self: &std::sync::Arc<Self>, future: Pin<&mut F>) -> Poll<F::Output> {
        let waker = Waker::from(self.clone());
        future.poll(&mut Context::from_waker(&waker))
    }
}

impl Wake for Executor {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A message: written before it is sent, and when it is dropped. That it is
/// dropped at all is what loom looks after.
struct Message(Arc<Plain<u32>>);

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Message")
    }
}

impl Message {
    fn new(cell: &Arc<Plain<u32>>) -> Self {
        cell.set(7);
        Self(cell.clone())
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        assert_eq!(self.0.get(), 7, "dropped twice");
        self.0.set(8);
    }
}

fn cell() -> Arc<Plain<u32>> {
    Arc::new(Plain::new(0))
}

#[test]
fn the_one_message_is_received_with_all_that_came_before() {
    loom::model(|| {
        let (tx, rx) = oneshot::channel();
        let cell = cell();
        let sender = thread::spawn({
            let cell = cell.clone();
            move || tx.send(Message::new(&cell)).unwrap()
        });
        drop(rx.recv().unwrap());
        assert_eq!(rx.recv().unwrap_err(), RecvError::Disconnected);
        drop(rx);
        sender.join().unwrap();
        assert_eq!(cell.get(), 8);
    });
    // Its time is over first, or it looks before.
    loom::model(|| {
        let (tx, rx) = oneshot::channel();
        let cell = cell();
        let sender = thread::spawn({
            let cell = cell.clone();
            move || tx.send(Message::new(&cell)).unwrap()
        });
        let soon = rx.recv_timeout(Duration::ZERO);
        let message = soon.or_else(|_| rx.recv()).unwrap();
        assert_eq!(message.0.get(), 7);
        sender.join().unwrap();
    });
}

#[test]
fn of_two_who_receive_one_gets_the_message() {
    bounded(4).check(|| {
        let (tx, rx) = oneshot::channel();
        let rx = Arc::new(rx);
        let cell = cell();
        let other = thread::spawn({
            let rx = rx.clone();
            move || rx.recv().is_ok()
        });
        let sender = thread::spawn({
            let cell = cell.clone();
            move || tx.send(Message::new(&cell)).unwrap()
        });
        let mine = rx.recv().is_ok();
        assert_ne!(other.join().unwrap(), mine);
        sender.join().unwrap();
        assert_eq!(cell.get(), 8);
    });
}

#[test]
fn a_message_whose_receiver_goes_is_dropped_or_comes_back() {
    loom::model(|| {
        let (tx, rx) = oneshot::channel();
        let cell = cell();
        let sender = thread::spawn({
            let cell = cell.clone();
            move || drop(tx.send(Message::new(&cell)))
        });
        drop(rx);
        sender.join().unwrap();
        assert_eq!(cell.get(), 8);
    });
    // It has waited, as a task or a thread, before.
    for task in [false, true] {
        loom::model(move || {
            let (tx, mut rx) = oneshot::channel();
            let cell = cell();
            let sender = thread::spawn({
                let cell = cell.clone();
                move || drop(tx.send(Message::new(&cell)))
            });
            if task {
                drop(Executor::new().poll(Pin::new(&mut rx)));
            } else {
                drop(rx.recv_timeout(Duration::ZERO));
            }
            drop(rx);
            sender.join().unwrap();
            assert_eq!(cell.get(), 8);
        });
    }
}

#[test]
fn who_waits_is_told_that_no_message_will_come() {
    loom::model(|| {
        let (tx, rx) = oneshot::channel::<Message>();
        let cell = cell();
        let sender = thread::spawn({
            let cell = cell.clone();
            move || {
                cell.set(7);
                drop(tx);
            }
        });
        assert_eq!(rx.recv().unwrap_err(), RecvError::Disconnected);
        assert_eq!(cell.get(), 7);
        drop(rx);
        sender.join().unwrap();
    });
    // It closes the channel itself, while another waits and the message comes.
    bounded(3).check(|| {
        let (tx, rx) = oneshot::channel();
        let rx = Arc::new(rx);
        let cell = cell();
        let sender = thread::spawn({
            let cell = cell.clone();
            move || tx.send(Message::new(&cell)).is_ok()
        });
        let closer = thread::spawn({
            let rx = rx.clone();
            move || rx.close()
        });
        let received = rx.recv().is_ok();
        assert_eq!(sender.join().unwrap(), received);
        assert_eq!(closer.join().unwrap(), !received);
        assert_eq!(cell.get(), 8);
    });
}

#[test]
fn who_sees_that_a_channel_was_closed_sees_what_came_before() {
    for dropped in [false, true] {
        loom::model(move || {
            let (tx, rx) = oneshot::channel::<Message>();
            let cell = cell();
            let closer = thread::spawn({
                let cell = cell.clone();
                move || {
                    cell.set(7);
                    if !dropped {
                        rx.close();
                    }
                }
            });
            // Started last, for it only looks: see `fiber::loom_tests`.
            let looker = thread::spawn(move || {
                if tx.is_closed() {
                    assert_eq!(cell.get(), 7);
                }
            });
            closer.join().unwrap();
            looker.join().unwrap();
        });
    }
}

#[test]
fn a_task_that_awaits_the_message_is_woken() {
    for sent in [false, true] {
        loom::model(move || {
            let (tx, mut rx) = oneshot::channel();
            let cell = cell();
            let sender = thread::spawn({
                let cell = cell.clone();
                move || {
                    if sent {
                        tx.send(Message::new(&cell)).unwrap();
                    } else {
                        cell.set(8);
                        drop(tx);
                    }
                }
            });
            let executor = Executor::new();
            let mut outcome = executor.poll(Pin::new(&mut rx));
            if outcome.is_pending() {
                while executor.0.load(Ordering::Relaxed) == 0 {
                    thread::yield_now();
                }
                outcome = executor.poll(Pin::new(&mut rx));
            }
            let Poll::Ready(outcome) = outcome else {
                unreachable!("woken for nothing");
            };
            assert_eq!(outcome.is_ok(), sent);
            drop(outcome);
            assert_eq!(cell.get(), 8);
            drop(rx);
            sender.join().unwrap();
        });
    }
    // By `recv_async`, which may be dropped; the message stays.
    loom::model(|| {
        let (tx, rx) = oneshot::channel();
        let cell = cell();
        let sender = thread::spawn({
            let cell = cell.clone();
            move || tx.send(Message::new(&cell)).unwrap()
        });
        {
            let mut task = pin!(rx.recv_async());
            drop(Executor::new().poll(task.as_mut()));
        }
        let late = rx.try_recv();
        if let Err(error) = &late {
            let early = *error == TryRecvError::Empty;
            assert!(early || cell.get() == 8);
        }
        drop(late);
        sender.join().unwrap();
        drop(rx);
        assert_eq!(cell.get(), 8);
    });
}

#[test]
fn who_is_told_of_a_change_sees_it() {
    bounded(3).check(|| {
        let (tx, mut rx) = watch::channel(Plain::new(0));
        let cell = cell();
        let sender = thread::spawn({
            let cell = cell.clone();
            move || {
                cell.set(7);
                tx.send_modify(|value| value.set(1));
            }
        });
        rx.changed().unwrap();
        assert_eq!(cell.get(), 7);
        assert_eq!(rx.borrow().get(), 1);
        assert_eq!(rx.changed().unwrap_err(), RecvError::Disconnected);
        sender.join().unwrap();
    });
    bounded(4).check(|| {
        let (tx, rx) = watch::channel(Plain::new(0));
        let cell = cell();
        let sender = thread::spawn({
            let cell = cell.clone();
            move || {
                cell.set(7);
                tx.send_modify(|value| value.set(1));
            }
        });
        match rx.has_changed() {
            Ok(changed) => assert!(!changed || cell.get() == 7),
            Err(_) => unreachable!("it has not been seen"),
        }
        sender.join().unwrap();
    });
    // A version that was seen is not news; the next one is.
    bounded(2).check(|| {
        let (tx, mut rx) = watch::channel(Plain::new(0));
        let sender = thread::spawn(move || {
            tx.send_modify(|value| value.set(1));
            tx.send_modify(|value| value.set(2));
        });
        let seen = rx.borrow_and_update().get();
        if seen < 2 {
            rx.changed().unwrap();
            assert!(rx.borrow().get() > seen);
        }
        assert_eq!(rx.wait_for(|value| value.get() == 2).unwrap().get(), 2);
        sender.join().unwrap();
    });
}

#[test]
fn who_waits_for_a_change_is_told_that_none_will_come() {
    bounded(4).check(|| {
        let (tx, mut rx) = watch::channel(());
        let cell = cell();
        let sender = thread::spawn({
            let cell = cell.clone();
            move || {
                cell.set(7);
                drop(tx);
            }
        });
        let soon = rx.changed_timeout(Duration::ZERO);
        assert!(soon.is_err());
        assert_eq!(rx.changed().unwrap_err(), RecvError::Disconnected);
        assert_eq!(cell.get(), 7);
        sender.join().unwrap();
    });
}

#[test]
fn who_waits_for_the_last_receiver_sees_it_go() {
    bounded(4).check(|| {
        let (tx, rx) = watch::channel(());
        let cell = cell();
        let receiver = thread::spawn({
            let cell = cell.clone();
            move || {
                cell.set(7);
                drop(rx);
            }
        });
        tx.closed().unwrap();
        assert_eq!(cell.get(), 7);
        assert!(tx.is_closed());
        receiver.join().unwrap();
    });
    // Of two, whichever is the last.
    bounded(2).check(|| {
        let (tx, rx) = watch::channel(());
        let cells = [cell(), cell()];
        let receivers = [rx.clone(), rx];
        let mut threads = Vec::new();
        for (rx, cell) in receivers.into_iter().zip(cells.clone()) {
            threads.push(thread::spawn(move || {
                cell.set(7);
                drop(rx);
            }));
        }
        tx.closed().unwrap();
        assert_eq!(cells.map(|cell| cell.get()), [7, 7]);
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn each_receiver_gets_what_is_broadcast() {
    bounded(2).check(|| {
        let (tx, mut rx) = broadcast::channel(2);
        let mut other = tx.subscribe();
        let cell = cell();
        let sender = thread::spawn({
            let cell = cell.clone();
            move || {
                cell.set(7);
                tx.send(1).unwrap();
            }
        });
        let receiver = thread::spawn({
            let cell = cell.clone();
            move || {
                assert_eq!(other.recv().unwrap(), 1);
                assert_eq!(cell.get(), 7);
                assert!(other.recv().is_err());
            }
        });
        assert_eq!(rx.recv().unwrap(), 1);
        assert_eq!(cell.get(), 7);
        assert!(rx.recv().is_err());
        sender.join().unwrap();
        receiver.join().unwrap();
    });
}
