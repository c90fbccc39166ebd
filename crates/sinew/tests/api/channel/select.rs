//! The dynamic `Select`.

use super::{HOUR, MS, NO_TIME, assert_fair, channel, everywhere, scenes};
use crate::harness::{in_fibers, watch};
use sinew::channel::{
    Receiver, RecvError, Select, SendError, Sender, TryRecvError, after, bounded, tick, unbounded,
};
use sinew::time::Instant;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Sends to the first of `senders` that takes it.
fn send_any(senders: &[&Sender<usize>], value: usize) -> (usize, Result<(), SendError<usize>>) {
    let mut select = Select::new();
    for tx in senders {
        select.send(tx);
    }
    let operation = select.select();
    let index = operation.index();
    (index, operation.send(senders[index], value))
}

/// Receives from the first of `receivers` that has something.
fn recv_any<T>(receivers: &[&Receiver<T>]) -> (usize, Result<T, RecvError>) {
    let mut select = Select::new();
    for rx in receivers {
        select.recv(rx);
    }
    let operation = select.select();
    let index = operation.index();
    (index, operation.recv(receivers[index]))
}

#[test]
fn the_operation_that_can_go_is_chosen_and_does_its_work() {
    everywhere(|| {
        let (tx1, rx1) = unbounded();
        let (tx2, rx2) = bounded(1);
        tx1.send(1).unwrap();
        assert_eq!(recv_any(&[&rx1, &rx2]), (0, Ok(1)));
        tx2.send(2).unwrap();
        assert_eq!(recv_any(&[&rx1, &rx2]), (1, Ok(2)));
        let (full, kept) = bounded(1);
        full.send(0).unwrap();
        assert_eq!(send_any(&[&full, &tx2, &full], 3), (1, Ok(())));
        assert_eq!(rx2.try_recv(), Ok(3));
        assert_eq!((kept.len(), rx1.len()), (1, 0));
    });
}

#[test]
fn operations_are_numbered_as_they_are_added_and_removed_ones_leave_a_gap() {
    everywhere(|| {
        let channels: Vec<_> = (0..5).map(|_| unbounded::<usize>()).collect();
        let mut select = Select::new();
        for (i, (_, rx)) in channels.iter().enumerate() {
            assert_eq!(select.recv(rx), i);
        }
        for (i, (tx, _)) in channels.iter().enumerate() {
            tx.send(i).unwrap();
        }
        select.remove(1);
        select.remove(4);
        assert_eq!(select.recv(&channels[1].1), 5);
        let mut seen = Vec::new();
        while let Ok(operation) = select.try_select() {
            let index = operation.index();
            let rx = &channels[if index == 5 { 1 } else { index }].1;
            assert_eq!(operation.recv(rx), Ok(if index == 5 { 1 } else { index }));
            seen.push(index);
        }
        seen.sort_unstable();
        assert_eq!(seen, [0, 2, 3, 5]);
        assert_eq!(channels[4].1.len(), 1);
    });
}

#[test]
fn a_disconnected_channel_can_go_and_says_so() {
    everywhere(|| {
        for kind in super::KINDS {
            let (tx, rx) = channel::<usize>(kind);
            let (_other, empty) = channel::<usize>(kind);
            drop(tx);
            let gone = (1, Err(RecvError::Disconnected));
            assert_eq!(recv_any(&[&empty, &rx]), gone);
            let mut select = Select::new();
            select.recv(&rx);
            let operation = select.try_select().unwrap();
            assert_eq!(operation.recv(&rx), Err(RecvError::Disconnected));
            let operation = select.select_timeout(HOUR).unwrap();
            assert_eq!(operation.recv(&rx), Err(RecvError::Disconnected));
            let (tx, rx) = channel::<usize>(kind);
            drop(rx);
            let back = (0, Err(SendError::Disconnected(3)));
            assert_eq!(send_any(&[&tx], 3), back);
        }
        // What is inside comes first.
        let (tx, rx) = unbounded();
        tx.send(1).unwrap();
        drop(tx);
        assert_eq!(recv_any(&[&rx]), (0, Ok(1)));
        assert_eq!(recv_any(&[&rx]), (0, Err(RecvError::Disconnected)));
    });
}

#[test]
fn nothing_is_chosen_if_nothing_can_go() {
    everywhere(|| {
        let (tx, rx) = bounded::<usize>(0);
        let (full, kept) = bounded::<usize>(1);
        full.send(1).unwrap();
        let mut select = Select::new();
        select.send(&tx);
        select.recv(&rx);
        select.send(&full);
        assert!(select.try_select().is_err());
        let start = Instant::now();
        assert!(select.select_timeout(4 * MS).is_err());
        assert!(start.elapsed() >= 4 * MS);
        let due = Instant::now() + 4 * MS;
        assert!(select.select_deadline(due).is_err());
        assert!(Instant::now() >= due);
        assert!(select.select_timeout(NO_TIME).is_err());
        assert_eq!(kept.len(), 1);
        kept.recv().unwrap();
        let operation = select.select_deadline(due).unwrap(); // long over
        assert_eq!(operation.index(), 2);
        assert_eq!(operation.send(&full, 2), Ok(()));
    });
}

#[test]
fn a_select_of_nothing_times_out_or_panics() {
    let _watch = watch();
    let mut select = Select::new();
    assert!(select.try_select().is_err());
    assert!(select.try_ready().is_err());
    let start = Instant::now();
    assert!(select.select_timeout(2 * MS).is_err());
    assert!(select.ready_timeout(2 * MS).is_err());
    assert!(start.elapsed() >= 4 * MS);
    // It would wait for ever.
    assert!(catch_unwind(|| drop(Select::new().select())).is_err());
    assert!(catch_unwind(|| Select::new().ready()).is_err());
}

#[test]
fn an_operation_that_is_not_completed_panics() {
    let _watch = watch();
    let (tx, rx) = unbounded();
    tx.send(1).unwrap();
    let mut select = Select::new();
    select.recv(&rx);
    let operation = select.select();
    assert!(catch_unwind(AssertUnwindSafe(|| drop(operation))).is_err());
}

#[test]
fn an_operation_that_was_never_added_cannot_be_removed() {
    let _watch = watch();
    let (_tx, rx) = bounded::<u8>(0);
    let remove = |twice: bool| {
        catch_unwind(AssertUnwindSafe(|| {
            let mut select = Select::new();
            let index = select.recv(&rx);
            select.remove(if twice { index } else { index + 1 });
            select.remove(index);
        }))
        .is_err()
    };
    assert!(remove(true) && remove(false));
}

#[test]
fn whoever_waits_in_a_select_is_woken_by_a_send() {
    scenes(|scene| {
        for kind in super::KINDS {
            let (tx1, rx1) = channel::<usize>(kind);
            let (_tx2, rx2) = channel::<usize>(kind);
            let waiter = scene.left(move || recv_any(&[&rx2, &rx1]));
            waiter.until_waiting();
            scene.right(move || tx1.send(8).unwrap()).join();
            assert_eq!(waiter.join(), (1, Ok(8)));
        }
    });
}

#[test]
fn whoever_waits_in_a_select_is_woken_by_a_receive() {
    scenes(|scene| {
        for capacity in [0, 1, 2] {
            let (tx1, rx1) = bounded(capacity);
            let (tx2, rx2) = bounded(capacity);
            for _ in 0..capacity {
                tx1.send(7).unwrap();
                tx2.send(7).unwrap();
            }
            let waiter = scene.left(move || send_any(&[&tx1, &tx2], 9));
            waiter.until_waiting();
            let receiver = scene.right(move || {
                let mut got = rx2.recv().unwrap();
                while got == 7 {
                    got = rx2.recv().unwrap();
                }
                got
            });
            assert_eq!(waiter.join(), (1, Ok(())));
            assert_eq!(receiver.join(), 9);
            assert_eq!(rx1.len(), capacity);
        }
    });
}

#[test]
fn whoever_waits_in_a_select_is_woken_by_a_disconnection() {
    scenes(|scene| {
        for kind in super::KINDS {
            let (tx1, rx1) = channel::<usize>(kind);
            let (_tx2, rx2) = channel::<usize>(kind);
            let waiter = scene.left(move || recv_any(&[&rx2, &rx1]));
            waiter.until_waiting();
            scene.right(move || drop(tx1)).join();
            assert_eq!(waiter.join(), (1, Err(RecvError::Disconnected)));
        }
        for capacity in [0, 1] {
            let (tx1, rx1) = bounded(capacity);
            let (tx2, _rx2) = bounded(capacity);
            for _ in 0..capacity {
                tx1.send(7).unwrap();
                tx2.send(7).unwrap();
            }
            let waiter = scene.left(move || send_any(&[&tx2, &tx1], 9));
            waiter.until_waiting();
            scene.right(move || drop(rx1)).join();
            assert_eq!(waiter.join(), (1, Err(SendError::Disconnected(9))));
        }
    });
}

#[test]
fn selects_on_both_sides_of_rendezvous_channels_meet() {
    scenes(|scene| {
        let (tx1, rx1) = bounded(0);
        let (tx2, rx2) = bounded(0);
        let sender = scene.left(move || {
            let mut counts = [0; 2];
            for i in 0..1_000 {
                let (index, sent) = send_any(&[&tx1, &tx2], i);
                sent.unwrap();
                counts[index] += 1;
            }
            counts
        });
        let receiver = scene.right(move || {
            let mut counts = [0; 2];
            for i in 0..1_000 {
                let (index, got) = recv_any(&[&rx1, &rx2]);
                assert_eq!(got, Ok(i));
                counts[index] += 1;
            }
            counts
        });
        let counts = receiver.join();
        assert_eq!(sender.join(), counts);
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    });
}

#[test]
fn many_selects_against_many_lose_nothing_and_double_nothing() {
    scenes(|scene| {
        for kind in super::KINDS {
            let (tx1, rx1) = channel(kind);
            let (tx2, rx2) = channel(kind);
            let senders: Vec<_> = (0..3)
                .map(|n| {
                    let (tx1, tx2) = (tx1.clone(), tx2.clone());
                    scene.side(n, move || {
                        for i in 0..100 {
                            send_any(&[&tx1, &tx2], n * 100 + i).1.unwrap();
                        }
                    })
                })
                .collect();
            let receivers: Vec<_> = (0..3)
                .map(|n| {
                    let (rx1, rx2) = (rx1.clone(), rx2.clone());
                    scene.side(n + 1, move || -> Vec<usize> {
                        let next = || recv_any(&[&rx1, &rx2]).1.unwrap();
                        (0..100).map(|_| next()).collect()
                    })
                })
                .collect();
            for sender in senders {
                sender.join();
            }
            let mut got: Vec<_> = receivers.into_iter().flat_map(|r| r.join()).collect();
            got.sort_unstable();
            assert!(got.into_iter().eq(0..300));
            assert_eq!(rx1.try_recv(), Err(TryRecvError::Empty));
            assert_eq!(rx2.try_recv(), Err(TryRecvError::Empty));
        }
    });
}

#[test]
fn both_ends_of_a_channel_with_room_send_rather_than_wait() {
    everywhere(|| {
        let (tx, rx) = bounded::<usize>(1);
        let mut select = Select::new();
        let send = select.send(&tx);
        let recv = select.recv(&rx);
        for i in 0..100 {
            let operation = select.select();
            if i % 2 == 0 {
                assert_eq!(operation.index(), send);
                operation.send(&tx, i).unwrap();
            } else {
                assert_eq!(operation.index(), recv);
                assert_eq!(operation.recv(&rx), Ok(i - 1));
            }
        }
    });
}

#[test]
fn an_operation_twice_in_a_select_is_done_once() {
    everywhere(|| {
        let (tx, rx) = bounded(10);
        let mut select = Select::new();
        for _ in 0..3 {
            select.send(&tx);
        }
        select.select().send(&tx, 1).unwrap();
        assert_eq!(rx.len(), 1);
        let mut select = Select::new();
        for _ in 0..3 {
            select.recv(&rx);
        }
        tx.send(2).unwrap();
        assert_eq!(select.select().recv(&rx), Ok(1));
        assert_eq!(rx.len(), 1);
    });
}

#[test]
fn a_select_is_reused_as_often_as_one_likes() {
    scenes(|scene| {
        let (tx1, rx1) = bounded(0);
        let (tx2, rx2) = unbounded();
        let (next, go) = bounded(0);
        let sender = scene.left(move || {
            for i in 0..500 {
                tx1.send(i).unwrap();
                go.recv().unwrap();
                tx2.send(i).unwrap();
                go.recv().unwrap();
            }
        });
        let receiver = scene.right(move || {
            let mut select = Select::new();
            let first = select.recv(&rx1);
            select.recv(&rx2);
            for i in 0..500 {
                for which in 0..2 {
                    let operation = select.select();
                    assert_eq!(operation.index() == first, which == 0);
                    let rx = if which == 0 { &rx1 } else { &rx2 };
                    assert_eq!(operation.recv(rx), Ok(i));
                    next.send(()).unwrap();
                }
            }
        });
        sender.join();
        receiver.join();
    });
}

#[test]
fn a_select_may_be_cloned_and_used_on_several_threads() {
    let _watch = watch();
    let (tx1, rx1) = bounded::<usize>(0);
    let (tx2, rx2) = bounded::<usize>(0);
    let mut select = Select::new();
    select.recv(&rx1);
    select.recv(&rx2);
    let shared = &select;
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..4)
            .map(|_| {
                let (rx1, rx2) = (&rx1, &rx2);
                scope.spawn(move || {
                    let mut select = shared.clone();
                    let operation = select.select();
                    match operation.index() {
                        0 => operation.recv(rx1).unwrap(),
                        _ => operation.recv(rx2).unwrap(),
                    }
                })
            })
            .collect();
        for i in 0..4 {
            if i % 2 == 0 { &tx1 } else { &tx2 }.send(i).unwrap();
        }
        let sum: usize = all.into_iter().map(|each| each.join().unwrap()).sum();
        assert_eq!(sum, 6);
    });
}

#[test]
fn what_oneself_put_in_is_found_though_another_takes_from_elsewhere() {
    scenes(|scene| {
        for kind in [Some(1), None] {
            let (start, started) = bounded(0);
            let (end, ended) = bounded(0);
            let (tx1, rx1) = channel(kind);
            let (tx2, rx2) = channel(kind);
            let theirs = (rx1.clone(), tx2, started, ended);
            // Whoever looks finds a message in one or the other at any time.
            let one = scene.left(move || {
                let (_open, empty) = unbounded::<u8>();
                for i in 0..500 {
                    start.send(()).unwrap();
                    tx1.send(1).unwrap();
                    // The others make the time between the two looks long.
                    let mut select = Select::new_biased();
                    let second = select.recv(&rx2);
                    for _ in 0..100 {
                        select.recv(&empty);
                    }
                    select.recv(&rx1);
                    let operation = if i % 2 == 0 {
                        select.try_select().unwrap()
                    } else {
                        select.select_timeout(NO_TIME).unwrap()
                    };
                    let is_second = operation.index() == second;
                    let rx = if is_second { &rx2 } else { &rx1 };
                    operation.recv(rx).unwrap();
                    end.send(()).unwrap();
                    let _ = rx2.try_recv();
                }
            });
            let other = scene.right(move || {
                let (rx1, tx2, started, ended) = theirs;
                for _ in 0..500 {
                    started.recv().unwrap();
                    tx2.send(1).unwrap();
                    let _ = rx1.try_recv();
                    ended.recv().unwrap();
                }
            });
            one.join();
            other.join();
        }
    });
}

#[test]
fn each_operation_that_can_go_has_its_share() {
    in_fibers(|| {
        const ROUNDS: usize = 10_000;
        let (tx1, rx1) = bounded(ROUNDS);
        let (tx2, rx2) = unbounded();
        for _ in 0..ROUNDS {
            tx1.send(Instant::now()).unwrap();
            tx2.send(Instant::now()).unwrap();
        }
        let mut counts = [0; 4];
        for _ in 0..ROUNDS {
            let (due, ticks) = (after(NO_TIME), tick(NO_TIME));
            let (index, got) = recv_any(&[&rx1, &rx2, &due, &ticks]);
            got.unwrap();
            counts[index] += 1;
        }
        assert_fair(&counts);
    });
}

#[test]
fn a_biased_select_takes_the_first_that_can_go() {
    everywhere(|| {
        let channels: Vec<_> = (0..3).map(|_| unbounded()).collect();
        for (tx, _) in &channels {
            (0..50).for_each(|i| tx.send(i).unwrap());
        }
        let mut select = Select::new_biased();
        for (_, rx) in &channels {
            select.recv(rx);
        }
        for want in 0..3 {
            for i in 0..50 {
                let operation = match i % 3 {
                    0 => select.select(),
                    1 => select.try_select().unwrap(),
                    _ => select.select_timeout(HOUR).unwrap(),
                };
                let index = operation.index();
                let got = operation.recv(&channels[index].1);
                assert_eq!((index, got), (want, Ok(i)));
            }
        }
    });
}

#[test]
fn a_select_of_a_hundred_channels_finds_each() {
    scenes(|scene| {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..100).map(|i| channel(Some(i % 3))).unzip();
        let receiver = scene.left(move || {
            for i in 0..200 {
                let all: Vec<_> = receivers.iter().collect();
                assert_eq!(recv_any(&all), (i * 7 % 100, Ok(i)));
            }
        });
        let sender = scene.right(move || {
            for i in 0..200 {
                let tx: &Sender<usize> = &senders[i * 7 % 100];
                tx.send(i).unwrap();
                crate::harness::wait_until(|| tx.is_empty());
            }
            senders // an end of one of them would be an answer too
        });
        receiver.join();
        sender.join();
    });
}
