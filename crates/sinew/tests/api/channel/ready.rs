//! `Select::ready` and its kin: told what could go, nothing done.

use super::{HOUR, KINDS, MS, NO_TIME, assert_fair, channel, everywhere, scenes};
use crate::harness::{in_fibers, watch};
use sinew::channel::{
    Receiver, RecvError, Select, SendError, TryRecvError, after, bounded, tick, unbounded,
};
use sinew::time::Instant;

#[test]
fn what_is_ready_is_told_and_left_as_it_is() {
    everywhere(|| {
        let (tx, rx) = unbounded();
        let (_other, empty) = unbounded::<u8>();
        tx.send(1).unwrap();
        let mut select = Select::new();
        select.recv(&empty);
        let index = select.recv(&rx);
        for _ in 0..3 {
            assert_eq!(select.ready(), index);
            assert_eq!(select.try_ready(), Ok(index));
            assert_eq!(select.ready_timeout(HOUR), Ok(index));
            assert_eq!(select.ready_deadline(Instant::now()), Ok(index));
        }
        assert_eq!(rx.try_recv(), Ok(1));
        assert!(select.try_ready().is_err());
    });
}

#[test]
fn room_makes_a_send_ready() {
    everywhere(|| {
        let (tx, rx) = bounded(1);
        let mut select = Select::new();
        select.send(&tx);
        assert_eq!(select.ready(), 0);
        assert_eq!(rx.len(), 0);
        tx.try_send(1).unwrap();
        assert!(select.try_ready().is_err());
        rx.try_recv().unwrap();
        assert_eq!(select.try_ready(), Ok(0));
        let (tx, _rx) = unbounded::<u8>();
        let mut select = Select::new();
        select.send(&tx);
        assert_eq!(select.ready(), 0);
    });
}

#[test]
fn a_disconnected_channel_is_ready() {
    everywhere(|| {
        for kind in KINDS {
            let (tx, rx) = channel::<u8>(kind);
            drop(tx);
            let mut select = Select::new();
            select.recv(&rx);
            assert_eq!(select.ready(), 0);
            assert_eq!(select.try_ready(), Ok(0));
            assert_eq!(select.ready_timeout(HOUR), Ok(0));
            assert_eq!(rx.try_recv(), Err(TryRecvError::Disconnected));
            let (tx, rx) = channel::<u8>(kind);
            drop(rx);
            let mut select = Select::new();
            select.send(&tx);
            assert_eq!(select.ready(), 0);
            assert!(tx.try_send(1).is_err());
        }
    });
}

#[test]
fn nothing_is_ready_where_nothing_can_go() {
    everywhere(|| {
        let (tx, rx) = bounded::<u8>(0);
        let (full, _kept) = bounded(1);
        full.send(1).unwrap();
        let mut select = Select::new();
        select.send(&tx);
        select.recv(&rx);
        select.send(&full);
        assert!(select.try_ready().is_err());
        let start = Instant::now();
        assert!(select.ready_timeout(4 * MS).is_err());
        assert!(start.elapsed() >= 4 * MS);
        let due = Instant::now() + 4 * MS;
        assert!(select.ready_deadline(due).is_err());
        assert!(Instant::now() >= due);
    });
}

#[test]
fn what_is_removed_is_not_ready() {
    everywhere(|| {
        let (tx, rx) = unbounded();
        tx.send(1).unwrap();
        let (tx2, rx2) = unbounded();
        let mut select = Select::new();
        let first = select.recv(&rx);
        let second = select.recv(&rx2);
        select.remove(first);
        assert!(select.try_ready().is_err());
        tx2.send(1).unwrap();
        assert_eq!(select.ready(), second);
        select.remove(second);
        assert!(select.try_ready().is_err());
        let third = select.recv(&rx);
        assert_eq!((third, select.ready()), (2, 2));
    });
}

#[test]
fn whoever_waits_until_ready_is_woken_by_a_send() {
    scenes(|scene| {
        for kind in KINDS {
            let (tx, rx) = channel(kind);
            let (_other, empty) = channel::<u8>(kind);
            let waiter = scene.left(move || {
                let mut select = Select::new();
                select.recv(&empty);
                select.recv(&rx);
                let index = select.ready();
                (index, rx.recv())
            });
            waiter.until_waiting();
            let sender = scene.right(move || tx.send(6).unwrap());
            assert_eq!(waiter.join(), (1, Ok(6)));
            sender.join();
        }
    });
}

#[test]
fn whoever_waits_until_ready_is_woken_by_a_receive() {
    scenes(|scene| {
        for capacity in [0, 1, 3] {
            let (tx, rx) = bounded(capacity);
            let (other, _full) = bounded(capacity);
            for i in 0..capacity {
                tx.send(i).unwrap();
                other.send(i).unwrap();
            }
            let waiter = scene.left(move || {
                let mut select = Select::new();
                select.send(&other);
                select.send(&tx);
                let index = select.ready();
                tx.send(9).unwrap();
                index
            });
            waiter.until_waiting();
            let receiver = scene.right(move || rx.iter().last());
            assert_eq!(waiter.join(), 1);
            assert_eq!(receiver.join(), Some(9));
        }
    });
}

#[test]
fn whoever_waits_until_ready_is_woken_by_a_disconnection() {
    scenes(|scene| {
        for kind in KINDS {
            let (tx, rx) = channel::<u8>(kind);
            let waiter = scene.left(move || {
                let mut select = Select::new();
                select.recv(&rx);
                (select.ready_timeout(HOUR), rx.recv())
            });
            waiter.until_waiting();
            scene.right(move || drop(tx)).join();
            let gone = Err(RecvError::Disconnected);
            assert_eq!(waiter.join(), (Ok(0), gone));
        }
        for capacity in [0, 1] {
            let (tx, rx) = bounded(capacity);
            (0..capacity).for_each(|_| tx.send(1).unwrap());
            let waiter = scene.left(move || {
                let mut select = Select::new();
                select.send(&tx);
                (select.ready(), tx.send(2))
            });
            waiter.until_waiting();
            scene.right(move || drop(rx)).join();
            let gone = Err(SendError::Disconnected(2));
            assert_eq!(waiter.join(), (0, gone));
        }
    });
}

#[test]
fn all_that_wait_for_one_message_hear_of_it_and_one_gets_it() {
    scenes(|scene| {
        let (tx, rx) = unbounded();
        let (stop, stopped) = bounded::<()>(0);
        let waiters: Vec<_> = (0..4)
            .map(|n| {
                let (rx, stopped): (Receiver<u8>, _) = (rx.clone(), stopped.clone());
                scene.side(n, move || {
                    let mut select = Select::new();
                    let message = select.recv(&rx);
                    select.recv(&stopped);
                    loop {
                        // Readiness is a hint: another may have been faster.
                        if select.ready() != message {
                            break 0;
                        }
                        if rx.try_recv().is_ok() {
                            break 1;
                        }
                    }
                })
            })
            .collect();
        for waiter in &waiters {
            waiter.until_waiting();
        }
        tx.send(1).unwrap();
        crate::harness::wait_until(|| rx.is_empty());
        drop(stop);
        assert_eq!(waiters.into_iter().map(|each| each.join()).sum::<i32>(), 1);
    });
}

#[test]
fn both_ends_of_a_rendezvous_are_not_ready_for_each_other() {
    everywhere(|| {
        let (tx, rx) = bounded::<u8>(0);
        let mut select = Select::new();
        select.send(&tx);
        select.recv(&rx);
        assert!(select.try_ready().is_err());
        assert!(select.ready_timeout(2 * MS).is_err());
        let (tx, rx) = unbounded::<u8>();
        let mut select = Select::new();
        let send = select.send(&tx);
        select.recv(&rx);
        assert_eq!(select.ready(), send);
    });
}

#[test]
fn a_rendezvous_is_ready_while_a_partner_waits() {
    scenes(|scene| {
        let (tx, rx) = bounded(0);
        let sender = scene.left(move || tx.send(1));
        let mut select = Select::new();
        select.recv(&rx);
        assert_eq!(select.ready(), 0);
        assert!(!sender.is_finished());
        assert_eq!(rx.try_recv(), Ok(1));
        sender.join().unwrap();
        let (tx, rx) = bounded(0);
        let receiver = scene.left(move || rx.recv());
        let mut select = Select::new();
        select.send(&tx);
        assert_eq!(select.ready(), 0);
        assert!(!receiver.is_finished());
        tx.try_send(2).unwrap();
        assert_eq!(receiver.join(), Ok(2));
    });
}

#[test]
fn two_that_only_wait_until_ready_never_meet() {
    scenes(|scene| {
        // Both are told of a partner that does nothing: each must ask again.
        let (tx, rx) = bounded(0);
        let (theirs, ours) = (rx.clone(), tx.clone());
        let one = scene.left(move || {
            let mut select = Select::new();
            select.recv(&theirs);
            loop {
                select.ready();
                match theirs.try_recv() {
                    Err(TryRecvError::Empty) => sinew::yield_now(),
                    answer => break answer,
                }
            }
        });
        one.until_waiting();
        let other = scene.right(move || {
            let mut select = Select::new();
            select.send(&ours);
            let _ = select.ready_timeout(MS);
            ours.send(5)
        });
        assert_eq!(other.join(), Ok(()));
        assert_eq!(one.join(), Ok(5));
        drop((tx, rx));
    });
}

#[test]
fn a_stream_taken_by_readiness_is_complete_and_in_order() {
    scenes(|scene| {
        for kind in [Some(0), Some(2), None] {
            let (tx1, rx1) = channel(kind);
            let (tx2, rx2) = channel(kind);
            let receiver = scene.left(move || {
                let all = [&rx1, &rx2];
                let mut next = [0; 2];
                let mut select = Select::new();
                let mut open = all.map(|rx| select.recv(rx)).len();
                while open > 0 {
                    let index = select.ready();
                    match all[index].try_recv() {
                        Ok(got) => {
                            assert_eq!(got, next[index]);
                            next[index] += 1;
                        }
                        Err(TryRecvError::Empty) => {}
                        Err(TryRecvError::Disconnected) => {
                            select.remove(index);
                            open -= 1;
                        }
                    }
                }
                next
            });
            let senders = [tx1, tx2]
                .map(|tx| scene.right(move || (0..300).for_each(|i| tx.send(i).unwrap())));
            assert_eq!(receiver.join(), [300; 2]);
            for sender in senders {
                sender.join();
            }
        }
    });
}

#[test]
fn a_stream_sent_by_readiness_is_complete_and_in_order() {
    scenes(|scene| {
        for capacity in [0, 1] {
            let (tx1, rx1) = bounded(capacity);
            let (tx2, rx2) = bounded(capacity);
            let sender = scene.left(move || {
                let all = [&tx1, &tx2];
                let mut select = Select::new();
                for tx in all {
                    select.send(tx);
                }
                let mut next = [0; 2];
                while next != [300; 2] {
                    let index = select.ready();
                    if all[index].try_send(next[index]).is_ok() {
                        next[index] += 1;
                        if next[index] == 300 {
                            select.remove(index);
                        }
                    }
                }
            });
            let receivers = [rx1, rx2].map(|rx| {
                scene.right(move || {
                    for i in 0..300 {
                        assert_eq!(rx.recv(), Ok(i));
                    }
                })
            });
            sender.join();
            for receiver in receivers {
                receiver.join();
            }
        }
    });
}

#[test]
fn each_that_is_ready_is_named_its_share_of_times() {
    in_fibers(|| {
        let (tx1, rx1) = bounded(1);
        let (tx2, rx2) = unbounded();
        tx1.send(Instant::now()).unwrap();
        tx2.send(Instant::now()).unwrap();
        let (due, ticks) = (after(NO_TIME), tick(NO_TIME));
        let mut select = Select::new();
        for rx in [&rx1, &rx2, &due, &ticks] {
            select.recv(rx);
        }
        select.send(&tx2);
        let mut counts = [0; 5];
        for _ in 0..10_000 {
            counts[select.ready()] += 1;
        }
        assert_fair(&counts);
    });
}

#[test]
fn a_biased_select_names_the_first_that_is_ready() {
    let _watch = watch();
    let (tx1, rx1) = unbounded();
    let (tx2, rx2) = unbounded();
    let mut select = Select::new_biased();
    select.recv(&rx1);
    select.recv(&rx2);
    tx2.send(()).unwrap();
    assert_eq!(select.ready(), 1);
    tx1.send(()).unwrap();
    for _ in 0..100 {
        assert_eq!(select.ready(), 0);
        assert_eq!(select.try_ready(), Ok(0));
        assert_eq!(select.ready_timeout(HOUR), Ok(0));
    }
}
