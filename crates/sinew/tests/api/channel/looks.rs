//! A fiber looks again before it waits (`wait::look`): nothing of what a wait
//! promises may change by that.

use super::{HOUR, KINDS, MS, channel};
use crate::harness::{Gate, Log, in_fibers, on_workers, runtime, wait_until, watch};
use sinew::channel::{
    Receiver, RecvError, RecvTimeoutError, SendError, SendTimeoutError, Sender, TryRecvError,
    TrySendError, bounded, never,
};
use sinew::{Builder, Fiber, JoinHandle, Runtime, WaitReason, no_suspend, select};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Waits that were answered soon: after them the running fiber looks before it
/// waits.
fn learn_to_look() {
    let (tx, questions) = bounded::<u32>(1);
    let (answer, rx) = bounded(1);
    let other = sinew::spawn(move || {
        for question in questions {
            answer.send(question).unwrap();
        }
    });
    for i in 0..30 {
        tx.send(i).unwrap();
        assert_eq!(rx.recv(), Ok(i));
    }
    drop(tx);
    other.join().unwrap();
}

/// Two fibers that always have something to do, until this is dropped.
struct Busy(Gate);

impl Busy {
    fn start() -> Self {
        let over = Gate::new();
        for _ in 0..2 {
            let over = over.clone();
            drop(sinew::spawn(move || over.pass()));
        }
        Self(over)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// How many messages [`a_relay`] passes on: 4, and 5 for each of its rounds.
const RELAYED: u32 = 4 + 5 * 6;

/// Three fibers, two channels with room for one: what happened, in order.
fn a_relay() -> Vec<String> {
    let log = Log::new();
    let (first, to_second) = bounded(1);
    let (second, to_third) = bounded(1);
    let says = log.clone();
    let a = sinew::spawn(move || {
        for i in 1..=RELAYED {
            says.push(format!("A>{i}"));
            first.send(i).unwrap();
            says.push(format!("A{i}"));
        }
    });
    let says = log.clone();
    let b = sinew::spawn(move || {
        for i in to_second {
            says.push(format!("B<{i}"));
            second.send(i).unwrap();
            says.push(format!("B{i}"));
        }
    });
    let says = log.clone();
    let c = sinew::spawn(move || {
        for i in to_third {
            says.push(format!("C{i}"));
        }
    });
    wait_until(|| [&a, &b, &c].into_iter().all(JoinHandle::is_finished));
    log.take()
}

/// The same on paper: who is woken goes to the end of the queue, and everybody
/// goes on until there is no room, or no message.
fn the_relay_in_strict_order() -> Vec<String> {
    let mut trace: Vec<String> = "A>1 A1 A>2  B<1 B1 B<2  C1 C2  A2 A>3 A3 A>4  B2 B<3 B3 B<4 B4"
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    // Now A stands ready, its last message is in B's hands; C has got one, the
    // next is in the channel; B waits for more.
    for k in (4..RELAYED).step_by(5) {
        let [k1, k2, k3, k4, k5] = [1, 2, 3, 4, 5].map(|more| k + more);
        trace.extend([
            format!("A{k} A>{k1} A{k1} A>{k2} A{k2} A>{k3}"),
            format!("C{} C{k}", k - 1),
            format!("B<{k1} B{k1} B<{k2} B{k2} B<{k3}"),
            format!("C{k1} C{k2} C{k3}"),
            format!("A{k3} A>{k4} A{k4} A>{k5}"),
            format!("B{k3} B<{k4} B{k4} B<{k5} B{k5}"),
        ]);
    }
    trace.push(format!("A{RELAYED} C{} C{RELAYED}", RELAYED - 1));
    let trace = trace.join(" ");
    trace.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn in_strict_order_the_trace_of_three_fibers_and_two_channels_is_known() {
    let _watch = watch();
    // Nobody is made to yield in between, however slow the machine is.
    let builder = Runtime::builder().workers(1).strict_order(true);
    let runtime = builder.quantum(HOUR).build().unwrap();
    assert_eq!(runtime.run(a_relay), the_relay_in_strict_order());
}

#[test]
fn where_waiting_is_forbidden_tries_work_and_waits_panic() {
    in_fibers(|| {
        learn_to_look();
        let _busy = Busy::start(); // there are others to let run
        let refused = |wait: &mut dyn FnMut() -> bool| {
            let panic = catch_unwind(AssertUnwindSafe(|| no_suspend(wait))).unwrap_err();
            let text = panic.downcast_ref::<&str>().copied().unwrap_or_default();
            assert!(text.contains("tried to wait inside `no_suspend`"), "{text}");
        };
        for kind in KINDS {
            let (tx, rx) = channel(kind);
            no_suspend(|| {
                for i in 0..100 {
                    let sent = tx.try_send(i);
                    if kind == Some(0) {
                        assert_eq!(sent, Err(TrySendError::Full(i)));
                    } else {
                        assert_eq!((sent, rx.try_recv()), (Ok(()), Ok(i)));
                    }
                    assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
                }
            });
            refused(&mut || rx.recv().is_ok());
            refused(&mut || rx.recv_timeout(HOUR).is_ok());
            refused(&mut || select! { recv(rx) -> message => message.is_ok() });
            let Some(room) = kind else { continue };
            (0..room).for_each(|_| tx.send(7).unwrap());
            refused(&mut || tx.send(8).is_ok());
            refused(&mut || tx.send_timeout(8, HOUR).is_ok());
            assert_eq!(rx.try_iter().collect::<Vec<_>>(), vec![7; room]);
        }
    });
}

#[test]
fn on_a_busy_worker_waits_time_out() {
    in_fibers(|| {
        learn_to_look();
        let _busy = Busy::start();
        for kind in KINDS {
            let (tx, rx) = channel::<u32>(kind);
            let since = Instant::now();
            assert_eq!(rx.recv_timeout(2 * MS), Err(RecvTimeoutError::Timeout));
            select! {
                recv(rx) -> _ => panic!("there is nothing"),
                recv(never::<()>()) -> _ => panic!("never is now"),
                default(2 * MS) => {}
            }
            assert!(since.elapsed() >= 4 * MS);
            let Some(room) = kind else { continue };
            (0..room).for_each(|_| tx.send(7).unwrap());
            let since = Instant::now();
            let sent = tx.send_timeout(8, 2 * MS);
            assert_eq!(sent, Err(SendTimeoutError::Timeout(8)));
            select! {
                send(tx, 9) -> _ => panic!("there is no room"),
                default(2 * MS) => {}
            }
            assert!(since.elapsed() >= 4 * MS);
            assert_eq!(rx.try_iter().collect::<Vec<_>>(), vec![7; room]);
        }
    });
}

/// Whether it neither runs nor waits: it lets others run.
fn lets_others_run(fiber: &Fiber) -> bool {
    fiber.wait_reason() == WaitReason::None && !fiber.is_finished()
}

/// Cancels a receiver that has learnt to look, which has had `ACKNOWLEDGED`
/// messages; answers whether it looked just then.
fn cancel_a_receiver(in_select: bool, one_more: bool) -> bool {
    const ACKNOWLEDGED: u32 = 20;
    let (tx, rx) = bounded(1);
    let (ack, acknowledged) = bounded(1);
    let left = rx.clone();
    let receiver = sinew::spawn(move || {
        let mut got = Vec::new();
        loop {
            let received = if in_select {
                select! {
                    recv(rx) -> message => message,
                    recv(never()) -> message => message,
                }
            } else {
                rx.recv()
            };
            match received {
                Ok(message) => got.push(message),
                Err(error) => return (got, error),
            }
            let _cancelled_or_not = ack.send(());
        }
    });
    for i in 0..ACKNOWLEDGED {
        tx.send(i).unwrap();
        acknowledged.recv().unwrap();
    }
    let looked = lets_others_run(&receiver.fiber());
    receiver.cancel();
    if one_more {
        tx.send(ACKNOWLEDGED).unwrap();
    }
    let (mut got, error) = receiver.join().unwrap();
    assert_eq!(error, RecvError::Cancelled);
    got.extend(left.try_iter());
    let sent = ACKNOWLEDGED + u32::from(one_more);
    assert_eq!(got, (0..sent).collect::<Vec<_>>());
    looked
}

/// The same with a sender, of which some messages were received.
fn cancel_a_sender(capacity: usize, one_more: bool) -> bool {
    let (tx, rx) = bounded(capacity);
    let sender = sinew::spawn(move || {
        let mut next = 0;
        loop {
            match tx.send(next) {
                Ok(()) => next += 1,
                Err(back) => return (next, back),
            }
        }
    });
    let mut got: Vec<u32> = (0..20).map(|_| rx.recv().unwrap()).collect();
    sinew::yield_now();
    let looked = lets_others_run(&sender.fiber());
    sender.cancel();
    if one_more {
        got.extend(rx.try_recv()); // there is room again
    }
    let (next, back) = sender.join().unwrap();
    assert_eq!(back, SendError::Cancelled(next));
    got.extend(rx.try_iter());
    assert_eq!(got, (0..next).collect::<Vec<_>>());
    looked
}

#[test]
fn who_is_cancelled_while_it_looks_is_told_so_and_loses_no_message() {
    on_workers(|runtime| {
        let looked = runtime.run(|| {
            let mut looked = [0; 3];
            for round in 0..200 {
                let one_more = round % 2 == 0;
                looked[0] += usize::from(cancel_a_receiver(false, one_more));
                looked[1] += usize::from(cancel_a_receiver(true, one_more));
                looked[2] += usize::from(cancel_a_sender(round % 3, one_more));
            }
            looked
        });
        if runtime.stats().workers.len() == 1 {
            assert!(looked.iter().all(|times| *times > 0), "{looked:?}");
        }
    });
}

#[test]
fn of_a_thousand_receivers_each_message_has_one_and_is_in_order() {
    const RECEIVERS: usize = 1000;
    const MESSAGES: usize = 4 * RECEIVERS;
    in_fibers(|| {
        for kind in KINDS {
            let (tx, rx) = channel(kind);
            let receivers: Vec<_> = (0..RECEIVERS)
                .map(|_| {
                    let rx = rx.clone();
                    sinew::spawn(move || rx.iter().collect::<Vec<usize>>())
                })
                .collect();
            for message in 0..MESSAGES {
                tx.send(message).unwrap();
                if message % 3 == 0 {
                    sinew::yield_now();
                }
            }
            drop(tx);
            let mut all = Vec::new();
            for receiver in receivers {
                let got = receiver.join().unwrap();
                assert!(got.is_sorted(), "{kind:?}: {got:?}");
                all.extend(got);
            }
            all.sort_unstable();
            assert_eq!(all, (0..MESSAGES).collect::<Vec<_>>(), "{kind:?}");
        }
    });
}

/// Two fibers that throw one message to and fro until they are told to stop.
fn players(
    runtime: &Runtime,
    kind: Option<usize>,
    throws: &Arc<AtomicUsize>,
) -> [JoinHandle<usize>; 2] {
    let (one, two) = (channel(kind), channel(kind));
    let play = |tx: Sender<()>, rx: Receiver<()>, begins: bool| {
        let throws = throws.clone();
        Builder::new()
            .spread()
            .spawn_on(&runtime.handle(), move || {
                let mut held = usize::from(begins);
                loop {
                    if held > 0 {
                        if tx.send(()).is_err() {
                            return held;
                        }
                        held -= 1;
                        throws.fetch_add(1, Ordering::Relaxed);
                    }
                    if rx.recv().is_err() {
                        return held;
                    }
                    held += 1;
                }
            })
            .unwrap()
    };
    [play(one.0, two.1, true), play(two.0, one.1, false)]
}

#[test]
fn a_shutdown_ends_fibers_that_look_for_each_other() {
    let _watch = watch();
    for workers in [1, 2] {
        for kind in KINDS {
            let runtime = runtime(workers);
            let pairs = [(); 3].map(|()| {
                let throws = Arc::default();
                (players(&runtime, kind, &throws), throws)
            });
            // Long enough for all to learn.
            wait_until(|| {
                let mut throws = pairs.iter().map(|(_, throws)| throws);
                throws.all(|throws| throws.load(Ordering::Relaxed) > 200)
            });
            runtime.shutdown_timeout(HOUR).unwrap();
            for (pair, _) in pairs {
                let held: usize = pair.into_iter().map(|one| one.join().unwrap()).sum();
                // Or it was on its way.
                assert!(held <= 1, "{kind:?}: {held} of one message");
            }
        }
    }
}

#[test]
fn both_ends_of_a_rendezvous_may_look_for_each_other() {
    const ROUNDS: usize = 3000;
    let _watch = watch();
    let runtime = runtime(2);
    let ((tx, rx), (back, answers)) = (bounded(0), bounded(0));
    let spread = Builder::new().spread();
    let echo = spread.clone().spawn_on(&runtime.handle(), move || {
        rx.iter().try_for_each(|message: usize| back.send(message))
    });
    let asks = spread.spawn_on(&runtime.handle(), move || {
        for round in 0..ROUNDS {
            if round % 2 == 0 {
                tx.send(round).unwrap();
            } else {
                tx.send_timeout(round, HOUR).unwrap();
            }
            let answer = match round % 3 {
                0 => answers.recv().unwrap(),
                1 => answers.recv_timeout(HOUR).unwrap(),
                _ => select! {
                    recv(answers) -> answer => answer.unwrap(),
                    recv(never::<()>()) -> _ => panic!("never is now"),
                },
            };
            assert_eq!(answer, round);
        }
    });
    asks.unwrap().join().unwrap();
    echo.unwrap().join().unwrap().unwrap();
}

#[test]
fn of_many_who_meet_on_two_workers_each_message_is_received_once() {
    const SENDERS: usize = 4;
    const MESSAGES: usize = 500;
    let _watch = watch();
    for kind in KINDS {
        let runtime = runtime(2);
        let (tx, rx) = channel(kind);
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                let tx = tx.clone();
                runtime.spawn(move || {
                    for i in 0..MESSAGES {
                        tx.send((sender, i)).unwrap();
                    }
                })
            })
            .collect();
        drop(tx);
        let receivers: Vec<_> = (0..3)
            .map(|which| {
                let rx = rx.clone();
                runtime.spawn(move || {
                    let mut got = vec![Vec::new(); SENDERS];
                    loop {
                        let received = match which {
                            0 => rx.recv().ok(),
                            1 => rx.recv_timeout(Duration::MAX).ok(),
                            _ => select! { recv(rx) -> message => message.ok() },
                        };
                        let Some((sender, i)) = received else {
                            return got;
                        };
                        got[sender].push(i);
                    }
                })
            })
            .collect();
        senders
            .into_iter()
            .for_each(|sender| sender.join().unwrap());
        let mut all = vec![Vec::new(); SENDERS];
        for receiver in receivers {
            for (sender, got) in receiver.join().unwrap().into_iter().enumerate() {
                assert!(got.is_sorted(), "{kind:?}: {got:?}");
                all[sender].extend(got);
            }
        }
        for mut got in all {
            got.sort_unstable();
            assert_eq!(got, (0..MESSAGES).collect::<Vec<_>>(), "{kind:?}");
        }
    }
}
