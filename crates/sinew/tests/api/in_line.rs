//! Who begins to wait for what does not stay (a notification to those who wait
//! now, a partner) is in line before it lets others run, also if it is one that
//! looks again before other waits.

use crate::harness::{runtime, watch};
use sinew::channel::{self, Receiver, Sender, bounded};
use sinew::sync::{Event, Notify};
use sinew::{select, spawn_local, yield_now};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

const ROUNDS: u32 = 30;

/// The round whose wait a fiber has begun, and ended.
struct Pair {
    begun: Cell<u32>,
    ended: Cell<u32>,
}

impl Pair {
    /// Of two fibers of one worker, both used to short waits, one calls `wait` in
    /// each round, and the other `wake` when the first waits; answers in how many rounds `wake` alone did not end it,
    /// but `wake_surely` had to.
    fn missed(
        wait: impl Fn(u32) + Send + 'static,
        wake: impl Fn(u32) + Send + 'static,
        wake_surely: impl Fn(u32) + Send + 'static,
    ) -> u32 {
        let _watch = watch();
        runtime(1).run(|| {
            let pair = Rc::new(Self {
                begun: Cell::new(0),
                ended: Cell::new(0),
            });
            let (ping, pinged) = bounded(1);
            let (pong, ponged) = bounded(1);
            let waits = spawn_local({
                let pair = pair.clone();
                move || {
                    learn_to_look(&ping, &ponged);
                    for round in 1..=ROUNDS {
                        pair.begun.set(round);
                        wait(round);
                        pair.ended.set(round);
                    }
                }
            });
            let wakes = spawn_local(move || {
                learn_to_look(&pong, &pinged);
                let mut missed = 0;
                for round in 1..=ROUNDS {
                    while pair.begun.get() < round {
                        yield_now();
                    }
                    wake(round);
                    // More turns than any wait needs to end.
                    (0..50).for_each(|_| yield_now());
                    if pair.ended.get() < round {
                        missed += 1;
                        wake_surely(round);
                    }
                }
                missed
            });
            waits.join().unwrap();
            wakes.join().unwrap()
        })
    }
}

/// Waits that were soon over: after them a fiber looks before it waits.
fn learn_to_look(tx: &Sender<u32>, rx: &Receiver<u32>) {
    for i in 0..50 {
        tx.send(i).unwrap();
        assert_eq!(rx.recv(), Ok(i));
    }
}

#[test]
fn a_select_hears_a_notification_for_those_who_wait_now() {
    let notify = Arc::new(Notify::new());
    let (waiting, surely) = (notify.clone(), notify.clone());
    let missed = Pair::missed(
        move |_| {
            let never = channel::never::<()>();
            select! {
                wait(&*waiting) -> heard => heard.unwrap(),
                recv(never) -> _ => unreachable!(),
            }
        },
        move |_| notify.notify_waiters(),
        move |_| surely.notify_one(),
    );
    assert_eq!(missed, 0);
}

#[test]
fn a_select_sees_an_event_that_is_set_and_reset() {
    let event = Arc::new(Event::new());
    let (waiting, surely) = (event.clone(), event.clone());
    let missed = Pair::missed(
        move |_| {
            let never = channel::never::<()>();
            select! {
                wait(&*waiting) -> seen => seen.unwrap(),
                recv(never) -> _ => unreachable!(),
            }
        },
        move |_| {
            event.set();
            event.reset();
        },
        move |_| {
            surely.set();
            yield_now();
            surely.reset();
        },
    );
    assert_eq!(missed, 0);
}

#[test]
fn a_try_send_meets_a_select_that_waits_without_room() {
    let (tx, rx) = bounded(0);
    let surely = tx.clone();
    let missed = Pair::missed(
        move |round| {
            let never = channel::never::<()>();
            select! {
                recv(rx) -> message => assert_eq!(message, Ok(round)),
                recv(never) -> _ => unreachable!(),
            }
        },
        move |round| _ = tx.try_send(round),
        move |round| surely.send(round).unwrap(),
    );
    assert_eq!(missed, 0);
}

#[test]
fn a_try_recv_meets_a_send_that_waits_without_room() {
    let (tx, rx) = bounded(0);
    let surely = rx.clone();
    let missed = Pair::missed(
        move |round| tx.send(round).unwrap(),
        move |_| _ = rx.try_recv(),
        move |round| assert_eq!(surely.recv(), Ok(round)),
    );
    assert_eq!(missed, 0);
}

#[test]
fn a_try_recv_meets_a_select_that_sends_without_room() {
    let (tx, rx) = bounded(0);
    let surely = rx.clone();
    let missed = Pair::missed(
        move |round| {
            let never = channel::never::<()>();
            select! {
                send(tx, round) -> sent => sent.unwrap(),
                recv(never) -> _ => unreachable!(),
            }
        },
        move |_| _ = rx.try_recv(),
        move |round| assert_eq!(surely.recv(), Ok(round)),
    );
    assert_eq!(missed, 0);
}
