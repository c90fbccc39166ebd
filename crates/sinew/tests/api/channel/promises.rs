//! Between the choice of an arm and the end of its operation: the value of a
//! send is evaluated then, and much can happen meanwhile.

use super::{Census, HOUR, KINDS, MS, channel, everywhere, scenes};
use crate::harness::{Gate, is_expected, on_workers, panic_expected, wait_until, watch};
use sinew::channel::{
    RecvError, RecvTimeoutError, Select, SendError, TryRecvError, TrySendError, bounded, unbounded,
};
use sinew::{WaitReason, select};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

/// A `u8` that is never made.
fn broken() -> u8 {
    panic_expected(3)
}

#[test]
fn a_panic_in_a_send_s_value_leaves_the_partner_waiting_for_another() {
    scenes(|scene| {
        for kind in KINDS {
            let (tx, rx) = channel(kind);
            let theirs = rx.clone();
            let receiver = scene.left(move || theirs.recv());
            receiver.until_waiting();
            let ours = tx.clone();
            let selecting = scene.right(move || {
                let caught = catch_unwind(AssertUnwindSafe(|| {
                    select! {
                        send(ours, broken()) -> _ => panic!("sent nothing"),
                    }
                }));
                is_expected(&*caught.unwrap_err(), 3)
            });
            assert!(selecting.join());
            assert!(!receiver.is_finished());
            tx.send(8).unwrap();
            assert_eq!(receiver.join(), Ok(8));
            assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
            // Nor is any room lost.
            let room = kind.unwrap_or(5);
            (0..room).for_each(|_| tx.try_send(9).unwrap());
            assert_eq!(rx.len(), room);
        }
    });
}

#[test]
fn a_panic_in_the_value_of_a_select_that_waited_leaves_the_channel_usable() {
    scenes(|scene| {
        for capacity in [0, 1] {
            let (tx, rx) = bounded(capacity);
            (0..capacity).for_each(|_| tx.send(1).unwrap());
            let ours = tx.clone();
            let selecting = scene.left(move || {
                let caught = catch_unwind(AssertUnwindSafe(|| {
                    select! {
                        send(ours, broken()) -> _ => panic!("sent nothing"),
                    }
                }));
                is_expected(&*caught.unwrap_err(), 3)
            });
            selecting.until_waiting();
            let receiver = scene.right(move || rx.iter().take(1 + capacity).collect::<Vec<_>>());
            assert!(selecting.join());
            tx.send(2).unwrap();
            assert_eq!(receiver.join()[capacity..], [2]);
        }
    });
}

#[test]
fn a_receiver_whose_partner_panicked_still_times_out() {
    scenes(|scene| {
        let (tx, rx) = bounded(0);
        let receiver = scene.left(move || rx.recv_timeout(5 * MS));
        let ours = tx.clone();
        let selecting = scene.right(move || {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                select! {
                    send(ours, broken()) -> _ => {}
                    default(HOUR) => panic!("timeout"),
                }
            }));
            // It met the receiver, or came too late for it.
            caught.is_err() || ours.is_disconnected()
        });
        assert_eq!(receiver.join(), Err(RecvTimeoutError::Timeout));
        assert!(selecting.join());
        drop(tx);
    });
}

#[test]
fn a_value_that_waits_keeps_others_from_its_place_only() {
    scenes(|scene| {
        for kind in KINDS {
            let (tx, rx) = channel(kind);
            let (go, gone) = bounded(0);
            let ours = tx.clone();
            let selecting = scene.left(move || {
                select! {
                    send(ours, gone.recv().unwrap()) -> sent => sent,
                }
            });
            let theirs = rx.clone();
            let receiver = scene.right(move || {
                let mut got = vec![theirs.recv().unwrap(), theirs.recv().unwrap()];
                got.sort_unstable();
                got
            });
            selecting.until_waiting();
            let sender = scene.right(move || tx.send(1));
            go.send(2).unwrap();
            assert_eq!(receiver.join(), [1, 2]);
            selecting.join().unwrap();
            sender.join().unwrap();
            assert_eq!(rx.try_iter().count(), 0);
        }
    });
}

#[test]
fn room_that_a_select_kept_and_did_not_need_is_given_to_who_waits_for_it() {
    scenes(|scene| {
        let (tx, rx) = bounded(1);
        let (go, gone) = bounded(0);
        let (ours, has_room) = (tx.clone(), Gate::new());
        let opened = has_room.clone();
        let selecting = scene.left(move || {
            select! {
                send(ours, {
                    opened.open();
                    gone.recv().unwrap()
                }) -> sent => sent,
            }
        });
        has_room.pass();
        let sender = scene.left(move || tx.send(2));
        sender.until_waiting();
        let receiver = scene.right(move || [rx.recv().unwrap(), rx.recv().unwrap()]);
        receiver.until_waiting();
        go.send(1).unwrap(); // may go to the receiver, past the buffer
        let mut got = receiver.join();
        got.sort_unstable();
        assert_eq!(got, [1, 2]);
        selecting.join().unwrap();
        sender.join().unwrap();
    });
}

#[test]
fn a_value_that_closes_the_channel_is_received_or_comes_back() {
    scenes(|scene| {
        for kind in KINDS {
            let (tx, rx) = channel(kind);
            let theirs = rx.clone();
            let receiver = scene.left(move || theirs.recv());
            receiver.until_waiting();
            let sent = select! {
                send(tx, {
                    assert!(rx.close());
                    5
                }) -> sent => sent,
            };
            let got = receiver.join();
            if sent.is_ok() {
                assert!(got == Ok(5) || rx.try_recv() == Ok(5));
            } else {
                assert_eq!(sent, Err(SendError::Disconnected(5)));
                assert_eq!(got, Err(RecvError::Disconnected));
            }
            assert_eq!(rx.recv(), Err(RecvError::Disconnected));
        }
    });
}

#[test]
fn a_value_that_drops_the_last_receiver_comes_back_or_is_dropped_with_it() {
    everywhere(|| {
        for kind in [Some(1), Some(3), None] {
            let census = Census::default();
            let (tx, rx) = channel(kind);
            let sent = select! {
                send(tx, {
                    drop(rx);
                    census.make(1)
                }) -> sent => sent,
            };
            if let Err(back) = sent {
                assert!(back.is_disconnected());
                assert_eq!((back.into_inner().number, census.dropped()), (1, 0));
            }
            drop(tx);
            assert_eq!((census.alive(), census.dropped()), (0, 1));
        }
    });
}

#[test]
fn a_value_that_drops_its_partner_goes_to_another() {
    scenes(|scene| {
        let (tx, rx) = bounded(0);
        let theirs = rx.clone();
        let mut context = Context::from_waker(Waker::noop());
        let mut partner = Box::pin(rx.recv_async());
        assert!(partner.as_mut().poll(&mut context).is_pending());
        let other;
        select! {
            send(tx, {
                drop(partner);
                other = scene.left(move || theirs.recv());
                5
            }) -> sent => sent.unwrap(),
        }
        assert_eq!(other.join(), Ok(5));
    });
}

#[test]
fn a_value_is_not_lost_if_its_partner_is_cancelled_meanwhile() {
    on_workers(|runtime| {
        let (tx, rx) = bounded(0);
        let theirs = rx.clone();
        let receiver = runtime.spawn(move || theirs.recv());
        wait_until(|| receiver.fiber().wait_reason() == WaitReason::Recv);
        let (begun, go) = (Gate::new(), Gate::new());
        let (opened, gate) = (begun.clone(), go.clone());
        let selecting = runtime.spawn(move || {
            select! {
                send(tx, {
                    opened.open();
                    gate.pass();
                    6
                }) -> sent => sent,
            }
        });
        begun.pass();
        receiver.cancel();
        go.open();
        match receiver.join().unwrap() {
            Ok(got) => assert_eq!(got, 6),
            Err(error) => {
                assert_eq!(error, RecvError::Cancelled);
                assert_eq!(rx.recv(), Ok(6));
            }
        }
        assert_eq!(selecting.join().unwrap(), Ok(()));
    });
}

#[test]
fn a_value_may_take_longer_than_its_partner_s_timeout() {
    scenes(|scene| {
        let (tx, rx) = bounded(0);
        let theirs = rx.clone();
        let receiver = scene.left(move || theirs.recv_timeout(20 * MS));
        receiver.until_waiting();
        let theirs = rx.clone();
        let selecting = scene.right(move || {
            select! {
                send(tx, {
                    sinew::sleep(40 * MS).unwrap();
                    7
                }) -> sent => sent,
                default(HOUR) => panic!("timeout"),
            }
        });
        let first = receiver.join();
        if first.is_err() {
            assert_eq!(first, Err(RecvTimeoutError::Timeout));
            assert_eq!(theirs.recv(), Ok(7));
        } else {
            assert_eq!(first, Ok(7));
        }
        drop(rx);
        assert_eq!(selecting.join(), Ok(()));
    });
}

#[test]
fn a_chosen_operation_is_nobody_else_s_until_it_is_completed() {
    everywhere(|| {
        for kind in [Some(2), None] {
            let (tx, rx) = channel(kind);
            tx.send(1).unwrap();
            let mut select = Select::new();
            select.recv(&rx);
            let operation = select.select();
            assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
            assert_eq!(operation.recv(&rx), Ok(1));
            assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
        }
        let (tx, rx) = bounded(1);
        let mut select = Select::new();
        select.send(&tx);
        let operation = select.select();
        assert_eq!(tx.try_send(1), Err(TrySendError::Full(1)));
        assert_eq!(operation.send(&tx, 2), Ok(()));
        assert_eq!(rx.try_recv(), Ok(2));
        assert_eq!(tx.try_send(3), Ok(()));
    });
}

#[test]
fn operations_chosen_on_several_channels_are_completed_in_any_order() {
    everywhere(|| {
        let (tx1, rx1) = unbounded();
        let (tx2, rx2) = bounded(2);
        tx1.send(1).unwrap();
        let (mut one, mut two) = (Select::new(), Select::new());
        one.recv(&rx1);
        two.send(&tx2);
        let (first, second) = (one.select(), two.select());
        assert_eq!(second.send(&tx2, first.recv(&rx1).unwrap()), Ok(()));
        assert_eq!(rx2.recv(), Ok(1));
        // Two of one channel.
        tx2.send(5).unwrap();
        tx2.send(6).unwrap();
        let (mut one, mut two) = (Select::new(), Select::new());
        one.recv(&rx2);
        two.recv(&rx2);
        let (first, second) = (one.select(), two.select());
        let mut got = [second.recv(&rx2).unwrap(), first.recv(&rx2).unwrap()];
        got.sort_unstable();
        assert_eq!(got, [5, 6]);
        assert!(rx2.is_empty());
    });
}

#[test]
fn a_future_dropped_while_a_select_s_value_is_made_loses_nothing() {
    everywhere(|| {
        for kind in [Some(1), None] {
            let (tx, rx) = channel(kind);
            let mut context = Context::from_waker(Waker::noop());
            let mut waiting = Box::pin(rx.recv_async());
            assert!(waiting.as_mut().poll(&mut context).is_pending());
            select! {
                send(tx, {
                    drop(waiting);
                    4
                }) -> sent => sent.unwrap(),
            }
            assert_eq!(rx.try_recv(), Ok(4));
            let mut again = pin!(rx.recv_async());
            assert!(again.as_mut().poll(&mut context).is_pending());
        }
    });
}

/// How long this thread has run, not slept.
fn time_on_a_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanos = text.split_whitespace().next().unwrap().parse().unwrap();
    Duration::from_nanos(nanos)
}

/// A receiver that was matched with a select cannot give up; a thread whose limit is over
/// sleeps all the same until the message was made.
#[test]
fn a_thread_whose_time_is_over_sleeps_while_its_message_is_made() {
    let _watch = watch();
    for framed in [true, false] {
        let (tx, rx) = bounded(0);
        let sender = std::thread::spawn(move || {
            let mut select = Select::new();
            select.send(&tx);
            let chosen = select.select();
            std::thread::sleep(300 * MS); // far beyond the limit of its partner
            chosen.send(&tx, 1).unwrap();
        });
        let before = time_on_a_cpu();
        let got = loop {
            // Nothing until the select is in line; then they are matched at once.
            let got = if framed {
                sinew::timeout(20 * MS, || rx.recv().ok()).ok().flatten()
            } else {
                rx.recv_timeout(20 * MS).ok()
            };
            if got.is_some() {
                break got;
            }
        };
        let ran = time_on_a_cpu() - before;
        sender.join().unwrap();
        assert_eq!(got, Some(1));
        assert!(ran < 100 * MS, "it ran for {ran:?} of its sleep");
    }
}
