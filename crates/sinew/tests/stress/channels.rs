//! One channel beside a plain queue: whatever is done, both say the same.

use crate::harness::{Rng, panic_expected};
use crate::seeded;
use sinew::channel::{
    Receiver, Select, SelectedOperation, SendError, Sender, TryRecvError, TrySendError, bounded,
    unbounded,
};
use sinew::{no_suspend, select};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a channel does for one who never waits.
struct Model {
    /// Those that are promised to a select count as well.
    messages: VecDeque<u64>,
    /// `usize::MAX`: unbounded.
    capacity: usize,
    closed: bool,
    slots_promised: usize,
    out_promised: usize,
    next: u64,
}

impl Model {
    /// How many messages can be received.
    fn receivable(&self) -> usize {
        self.messages.len() - self.out_promised
    }

    /// How many are in the channel, also those promised to a select.
    fn len(&self) -> usize {
        self.messages.len()
    }

    fn has_room(&self) -> bool {
        self.messages.len() + self.slots_promised < self.capacity
    }

    /// A message that was not there yet.
    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn try_send(&mut self, message: u64) -> Result<(), TrySendError<u64>> {
        if self.closed {
            Err(TrySendError::Disconnected(message))
        } else if self.has_room() {
            self.messages.push_back(message);
            Ok(())
        } else {
            Err(TrySendError::Full(message))
        }
    }

    fn try_recv(&mut self) -> Result<u64, TryRecvError> {
        if self.receivable() > 0 {
            Ok(self.messages.pop_front().unwrap())
        } else if self.closed {
            Err(TryRecvError::Disconnected)
        } else {
            Err(TryRecvError::Empty)
        }
    }
}

/// An arm that was chosen, and whether it was promised anything: of a closed
/// channel it was not.
enum Chosen<'a> {
    Send(SelectedOperation<'a>, bool),
    Recv(SelectedOperation<'a>, bool),
}

/// A message that is never made.
fn broken() -> u64 {
    panic_expected(3)
}

/// One step, done by both.
fn step<'a>(
    rng: &mut Rng,
    model: &mut Model,
    (tx, rx): (&'a Sender<u64>, &'a Receiver<u64>),
    chosen: &mut Vec<Chosen<'a>>,
) {
    match rng.below(16) {
        0..4 => {
            let message = model.fresh();
            assert_eq!(tx.try_send(message), model.try_send(message));
        }
        4..8 => assert_eq!(rx.try_recv(), model.try_recv()),
        8 => {
            // The value panics, and the promise goes.
            let can_send = model.closed || model.has_room();
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                select! {
                    send(tx, broken()) -> _ => panic!("sent nothing"),
                    default => {}
                }
            }));
            assert_eq!(panicked.is_err(), can_send);
        }
        9 => {
            let message = model.fresh();
            select! {
                recv(rx) -> got => assert_eq!(got.map_err(|_| TryRecvError::Disconnected), model.try_recv()),
                send(tx, message) -> sent => match model.try_send(message) {
                    Ok(()) => assert_eq!(sent, Ok(())),
                    Err(TrySendError::Disconnected(_)) => {
                        assert_eq!(sent, Err(SendError::Disconnected(message)));
                    }
                    Err(TrySendError::Full(_)) => panic!("sent where there is no room"),
                },
                default => assert!(!model.closed && !model.has_room() && model.receivable() == 0),
            }
        }
        10 if chosen.len() < 4 => {
            let mut select = Select::new();
            select.send(tx);
            let operation = select.try_select();
            assert_eq!(operation.is_ok(), model.closed || model.has_room());
            let promised = !model.closed;
            if let Ok(operation) = operation {
                model.slots_promised += usize::from(promised);
                chosen.push(Chosen::Send(operation, promised));
            }
        }
        11 if chosen.len() < 4 => {
            let mut select = Select::new();
            select.recv(rx);
            let operation = select.try_select();
            let promised = model.receivable() > 0;
            assert_eq!(operation.is_ok(), promised || model.closed);
            if let Ok(operation) = operation {
                model.out_promised += usize::from(promised);
                chosen.push(Chosen::Recv(operation, promised));
            }
        }
        12..15 if !chosen.is_empty() => {
            let index = rng.below(chosen.len() as u64) as usize;
            complete(chosen.swap_remove(index), model, (tx, rx));
        }
        15 if rng.chance(30) => {
            let closes = if rng.chance(2) {
                tx.close()
            } else {
                rx.close()
            };
            assert_eq!(closes, !std::mem::replace(&mut model.closed, true));
        }
        _ => {}
    }
}

fn complete(chosen: Chosen<'_>, model: &mut Model, (tx, rx): (&Sender<u64>, &Receiver<u64>)) {
    match chosen {
        Chosen::Send(operation, promised) => {
            let message = model.fresh();
            let sent = operation.send(tx, message);
            model.slots_promised -= usize::from(promised);
            if model.closed {
                assert_eq!(sent, Err(SendError::Disconnected(message)));
            } else {
                assert_eq!(sent, Ok(()));
                model.messages.push_back(message);
            }
        }
        Chosen::Recv(operation, promised) => {
            let got = operation.recv(rx);
            if promised {
                model.out_promised -= 1;
                assert_eq!(got.ok(), model.messages.pop_front());
            } else {
                assert!(got.is_err());
            }
        }
    }
}

fn check(model: &Model, tx: &Sender<u64>, rx: &Receiver<u64>) {
    assert_eq!((tx.len(), rx.len()), (model.len(), model.len()));
    assert_eq!(rx.is_empty(), model.len() == 0);
    let full = !model.has_room();
    assert_eq!((tx.is_full(), rx.is_full()), (full, full));
    assert_eq!(tx.is_disconnected(), model.closed);
}

fn one_channel(rng: &mut Rng, capacity: usize) {
    let (tx, rx) = match capacity {
        usize::MAX => unbounded(),
        _ => bounded(capacity),
    };
    let mut model = Model {
        messages: VecDeque::new(),
        capacity,
        closed: false,
        slots_promised: 0,
        out_promised: 0,
        next: 0,
    };
    let mut chosen = Vec::new();
    for _ in 0..200 {
        step(rng, &mut model, (&tx, &rx), &mut chosen);
        // Not each time: to ask also sets right what a step has left wrong.
        if rng.chance(4) {
            check(&model, &tx, &rx);
        }
    }
    for operation in chosen {
        complete(operation, &mut model, (&tx, &rx));
        check(&model, &tx, &rx);
    }
    assert!(tx.close() != model.closed);
    assert_eq!(rx.iter().collect::<VecDeque<_>>(), model.messages);
}

#[test]
fn a_channel_says_what_a_queue_of_its_capacity_says() {
    seeded("channel and queue", 60, |rng| {
        for capacity in [0, 1, 2, 5, usize::MAX] {
            one_channel(rng, capacity); // on a thread
            let mut own = rng.split();
            crate::harness::runtime(1).run(move || {
                one_channel(&mut own, capacity);
                // Nothing in it waits: not even where that is forbidden.
                no_suspend(|| one_channel(&mut own, capacity));
            });
        }
    });
}
