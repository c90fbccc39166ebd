//! Models of channels: messages handed over, put back and promised, and both ends
//! that leave, with threads, tasks and selects as waiters.
//!
//! All but the number of handles is under one lock; the one ordering was weakened
//! once by hand, and the models named caught it.
//!
//! | weakened                              | caught by |
//! |---------------------------------------|-----------|
//! | `chan::count_down` AcqRel → either half | `a_receiver_is_told_that_all_senders_are_gone…`, `a_sender_is_told_that_all_receivers_are_gone…` |

use super::parcel::Parcel;
use super::promise::{SendPermit, SendPromise};
use super::{Receiver, RecvError, RecvTimeoutError, Select, SendError, Sender, bounded};
use crate::primitive::model::Plain;
use crate::primitive::{AtomicUsize, Ordering};
use crate::wait::select::{ArmRef, OnCancel, OperationArm, Patience, SelectSpec, Selected, select};
use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

fn models(preemptions: usize) -> Builder {
    let mut model = Builder::new();
    model.preemption_bound = Some(preemptions);
    model
}

/// A message: a cell that its sender has written, and its receiver writes.
#[derive(Clone)]
struct Message(Arc<Plain<u32>>);

impl Message {
    fn new() -> Self {
        Self(Arc::new(Plain::new(0)))
    }

    /// What the sender does before.
    fn write(self) -> Self {
        self.0.set(7);
        self
    }

    /// What the receiver does after.
    fn read(self) {
        assert_eq!(self.0.get(), 7, "not sent, or received twice");
        self.0.set(8);
    }

    fn is_read(&self) -> bool {
        self.0.get() == 8
    }
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Message")
    }
}

type Ends = (Sender<Message>, Receiver<Message>);

/// A task's executor: counts its wakes.
struct Executor(AtomicUsize);

impl Wake for Executor {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Polls once, with a waker that nobody waits for.
fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    let waker = Waker::from(std::sync::Arc::new(Executor(AtomicUsize::new(0))));
    future.poll(&mut Context::from_waker(&waker))
}

#[test]
fn what_is_sent_is_received_once_with_all_that_came_before() {
    for capacity in [0, 1] {
        models(3).check(move || {
            let (tx, rx): Ends = bounded(capacity);
            let sender = thread::spawn(move || tx.send(Message::new().write()).unwrap());
            rx.recv().unwrap().read();
            sender.join().unwrap();
            assert_eq!(rx.recv().unwrap_err(), RecvError::Disconnected);
        });
        // Two who send, and who have to wait for each other.
        models(2).check(move || {
            let (tx, rx): Ends = bounded(capacity);
            let senders = [tx.clone(), tx]
                .map(|tx| thread::spawn(move || tx.send(Message::new().write()).unwrap()));
            for _ in 0..2 {
                rx.recv().unwrap().read();
            }
            for sender in senders {
                sender.join().unwrap();
            }
        });
    }
}

#[test]
fn two_who_receive_get_one_message_each() {
    for capacity in [0, 1] {
        models(2).check(move || {
            let (tx, rx): Ends = bounded(capacity);
            let receiver = thread::spawn({
                let rx = rx.clone();
                move || rx.recv().unwrap().read()
            });
            let sender = thread::spawn(move || {
                for _ in 0..2 {
                    tx.send(Message::new().write()).unwrap();
                }
            });
            rx.recv().unwrap().read();
            receiver.join().unwrap();
            sender.join().unwrap();
        });
    }
}

#[test]
fn a_receiver_is_told_that_all_senders_are_gone_and_sees_what_they_did() {
    models(3).check(|| {
        let (tx, rx): Ends = bounded(0);
        let cells = Arc::new([Plain::new(0), Plain::new(0)]);
        let senders = [(0, tx.clone()), (1, tx)].map(|(which, tx)| {
            let cells = cells.clone();
            thread::spawn(move || {
                cells[which].set(7);
                drop(tx);
            })
        });
        assert_eq!(rx.recv().unwrap_err(), RecvError::Disconnected);
        assert_eq!((cells[0].get(), cells[1].get()), (7, 7));
        for sender in senders {
            sender.join().unwrap();
        }
    });
}

#[test]
fn a_sender_is_told_that_all_receivers_are_gone_and_gets_its_message_back() {
    for capacity in [0, 1] {
        models(2).check(move || {
            let (tx, rx): Ends = bounded(capacity);
            let message = Message::new();
            if capacity == 1 {
                // Full; it is dropped with the last receiver.
                tx.send(message.clone()).unwrap();
            }
            let cells = Arc::new([Plain::new(0), Plain::new(0)]);
            let receivers = [(0, rx.clone()), (1, rx)].map(|(which, rx)| {
                let cells = cells.clone();
                thread::spawn(move || {
                    cells[which].set(7);
                    drop(rx);
                })
            });
            match tx.send(Message::new().write()) {
                Err(SendError::Disconnected(message)) => message.read(),
                _ => unreachable!("nobody receives"),
            }
            assert_eq!((cells[0].get(), cells[1].get()), (7, 7));
            for receiver in receivers {
                receiver.join().unwrap();
            }
            assert_eq!(Arc::strong_count(&message.0), 1);
        });
    }
}

#[test]
fn a_sender_that_waits_when_a_channel_is_closed_has_sent_or_has_its_message() {
    for capacity in [0, 1] {
        models(2).check(move || {
            let (tx, rx): Ends = bounded(capacity);
            let message = Message::new();
            let sender = thread::spawn({
                let message = message.clone();
                move || match tx.send(message.write()) {
                    Ok(()) => true,
                    Err(error) => {
                        error.into_inner().read();
                        false
                    }
                }
            });
            let closer = thread::spawn({
                let rx = rx.clone();
                move || rx.close()
            });
            let received = rx.recv().map(Message::read).is_ok();
            assert_eq!(sender.join().unwrap(), received);
            closer.join().unwrap();
            assert!(message.is_read());
        });
    }
}

#[test]
fn a_receive_that_times_out_while_somebody_sends_loses_nothing() {
    for capacity in [0, 1] {
        models(3).check(move || {
            let (tx, rx): Ends = bounded(capacity);
            let sender = thread::spawn(move || tx.send(Message::new().write()).unwrap());
            match rx.recv_timeout(Duration::ZERO) {
                Ok(message) => message.read(),
                Err(error) => {
                    assert_eq!(error, RecvTimeoutError::Timeout);
                    rx.recv().unwrap().read();
                }
            }
            sender.join().unwrap();
        });
        // Both times are over: both have done it, or neither.
        models(3).check(move || {
            let (tx, rx): Ends = bounded(capacity);
            let message = Message::new();
            let sender = thread::spawn({
                let (tx, message) = (tx.clone(), message.clone());
                move || match tx.send_timeout(message.write(), Duration::ZERO) {
                    Ok(()) => true,
                    Err(error) => {
                        error.into_inner().read();
                        false
                    }
                }
            });
            let soon = rx.recv_timeout(Duration::ZERO).map(Message::read);
            let sent = sender.join().unwrap();
            let received = soon.is_ok() || rx.try_recv().map(Message::read).is_ok();
            assert_eq!(sent, received);
            assert!(message.is_read());
        });
    }
}

#[test]
fn a_receiving_task_that_is_dropped_puts_its_message_back() {
    for capacity in [0, 1] {
        models(3).check(move || {
            let (tx, rx): Ends = bounded(capacity);
            let sender = thread::spawn(move || tx.send(Message::new().write()).unwrap());
            let soon = {
                let mut task = pin!(rx.recv_async());
                poll(task.as_mut())
            };
            match soon {
                Poll::Ready(message) => message.unwrap().read(),
                Poll::Pending => rx.recv().unwrap().read(),
            }
            sender.join().unwrap();
        });
    }
    // For a thread that waits behind it. (With all senders gone meanwhile it
    // might have been told so first.)
    models(2).check(|| {
        let (tx, rx): Ends = bounded(0);
        let (sender, receiver) = {
            let mut task = pin!(rx.recv_async());
            assert!(poll(task.as_mut()).is_pending());
            let (tx, rx) = (tx.clone(), rx.clone());
            (
                thread::spawn(move || tx.send(Message::new().write()).unwrap()),
                thread::spawn(move || rx.recv().unwrap().read()),
            )
        };
        sender.join().unwrap();
        receiver.join().unwrap();
        drop(tx);
    });
}

#[test]
fn a_sending_task_that_is_dropped_has_sent_or_takes_its_message_along() {
    models(3).check(|| {
        let (tx, rx): Ends = bounded(0);
        let message = Message::new();
        let receiver = thread::spawn(move || rx.recv().map(Message::read).is_ok());
        {
            let mut task = pin!(tx.send_async(message.clone().write()));
            let _ = poll(task.as_mut());
        }
        drop(tx);
        let received = receiver.join().unwrap();
        assert_eq!(message.is_read(), received);
        assert_eq!(Arc::strong_count(&message.0), 1);
    });
}

/// A select's promise to send on one of these, and on which; in the order that
/// they have, for a run of a model must be repeatable.
fn permit<'a>(senders: &[&'a Sender<Message>]) -> (usize, SendPermit<'a, Message>) {
    let arms: Vec<_> = senders
        .iter()
        .map(|tx| OperationArm::point(SendPromise::new(tx.chan())))
        .collect();
    let refs: Vec<_> = arms.iter().map(|arm| ArmRef::new(arm)).collect();
    let spec = SelectSpec {
        biased: true,
        patience: Patience::Until(None),
        on_cancel: OnCancel::TellArm,
        at: Location::caller(),
    };
    let Selected::Arm(chosen) = select(&refs, &spec) else {
        unreachable!("nothing else ends it");
    };
    (chosen, arms[chosen].take().unwrap())
}

fn send_by(permit: SendPermit<'_, Message>) {
    // Made after it was chosen.
    let message = Message::new().write();
    permit
        .send(&Parcel::new(message), Location::caller())
        .unwrap();
}

#[test]
fn a_select_that_was_promised_to_send_sends_to_who_waits_for_it() {
    for capacity in [0, 1] {
        models(3).check(move || {
            let (tx, rx): Ends = bounded(capacity);
            let sender = thread::spawn(move || send_by(permit(&[&tx]).1));
            rx.recv().unwrap().read();
            sender.join().unwrap();
        });
    }
    // Who receives may not leave while its message is made, though its time is
    // over.
    for capacity in [0, 1] {
        models(3).check(move || {
            let (tx, rx): Ends = bounded(capacity);
            let sender = thread::spawn(move || send_by(permit(&[&tx]).1));
            match rx.recv_timeout(Duration::ZERO) {
                Ok(message) => message.read(),
                Err(_) => rx.recv().unwrap().read(),
            }
            sender.join().unwrap();
        });
    }
}

#[test]
fn a_promise_that_is_not_used_goes_to_others() {
    for capacity in [0, 1] {
        models(3).check(move || {
            let (tx, rx): Ends = bounded(capacity);
            let sender = thread::spawn(move || {
                drop(permit(&[&tx]).1);
                tx.send(Message::new().write()).unwrap();
            });
            rx.recv().unwrap().read();
            sender.join().unwrap();
        });
    }
    // There is one slot: it is promised to one, and another waits for it.
    models(2).check(|| {
        let (tx, rx): Ends = bounded(1);
        let hesitant = thread::spawn({
            let tx = tx.clone();
            move || drop(permit(&[&tx]).1)
        });
        let sender = thread::spawn(move || tx.send(Message::new().write()).unwrap());
        rx.recv().unwrap().read();
        hesitant.join().unwrap();
        sender.join().unwrap();
    });
    // It is used, but the message is handed over: the slot is free for another.
    models(2).check(|| {
        let (tx, rx): Ends = bounded(1);
        let chosen = thread::spawn({
            let tx = tx.clone();
            move || send_by(permit(&[&tx]).1)
        });
        let sender = thread::spawn(move || tx.send(Message::new().write()).unwrap());
        rx.recv().unwrap().read();
        rx.recv().unwrap().read();
        chosen.join().unwrap();
        sender.join().unwrap();
    });
}

#[test]
fn a_task_that_was_matched_with_a_select_and_is_dropped_leaves_the_message_to_others() {
    models(3).check(|| {
        let (tx, rx): Ends = bounded(0);
        let sender = thread::spawn(move || send_by(permit(&[&tx]).1));
        let soon = {
            let mut task = pin!(rx.recv_async());
            poll(task.as_mut())
        };
        match soon {
            Poll::Ready(message) => message.unwrap().read(),
            Poll::Pending => rx.recv().unwrap().read(),
        }
        sender.join().unwrap();
    });
}

#[test]
fn a_select_over_two_channels_sends_on_one_of_them() {
    models(2).check(|| {
        let [(tx, rx), (other_tx, other_rx)]: [Ends; 2] = [bounded(0), bounded(0)];
        let sender = thread::spawn(move || {
            let (chosen, permit) = permit(&[&tx, &other_tx]);
            send_by(permit);
            chosen
        });
        let other = thread::spawn(move || other_rx.recv().map(Message::read).is_ok());
        let received = rx.recv().map(Message::read).is_ok();
        let chosen = sender.join().unwrap();
        assert_eq!(
            [received, other.join().unwrap()],
            [chosen == 0, chosen == 1]
        );
    });
}

/// As users have it.
fn send_selected(tx: &Sender<Message>) {
    let mut select = Select::new_biased();
    select.send(tx);
    select.select().send(tx, Message::new().write()).unwrap();
}

fn recv_selected(rx: &Receiver<Message>) {
    let mut select = Select::new_biased();
    select.recv(rx);
    select.select().recv(rx).unwrap().read();
}

#[test]
fn of_two_selects_one_sends_and_the_other_receives() {
    for capacity in [0, 1] {
        models(2).check(move || {
            let (tx, rx): Ends = bounded(capacity);
            let sender = thread::spawn(move || send_selected(&tx));
            recv_selected(&rx);
            sender.join().unwrap();
        });
    }
    // Each could do the other thing, too: they must not choose differently.
    models(2).check(|| {
        let [(tx, rx), (other_tx, other_rx)]: [Ends; 2] = [bounded(0), bounded(0)];
        fn meet(tx: &Sender<Message>, rx: &Receiver<Message>) -> bool {
            let mut select = Select::new_biased();
            let send = select.send(tx);
            select.recv(rx);
            let chosen = select.select();
            let sends = chosen.index() == send;
            if sends {
                chosen.send(tx, Message::new().write()).unwrap();
            } else {
                chosen.recv(rx).unwrap().read();
            }
            sends
        }
        let other = thread::spawn(move || meet(&other_tx, &rx));
        let sends = meet(&tx, &other_rx);
        assert_ne!(other.join().unwrap(), sends);
    });
}

#[test]
fn who_is_told_that_a_channel_is_ready_finds_it_so() {
    for capacity in [0, 1] {
        models(3).check(move || {
            let (tx, rx): Ends = bounded(capacity);
            let sender = thread::spawn(move || tx.send(Message::new().write()).unwrap());
            let mut select = Select::new_biased();
            select.recv(&rx);
            assert_eq!(select.ready(), 0);
            rx.try_recv().unwrap().read();
            sender.join().unwrap();
        });
    }
}
