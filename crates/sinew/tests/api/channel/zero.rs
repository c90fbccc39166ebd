//! Rendezvous: channels without room, where each send meets its receive.

use super::{Census, HOUR, MS, assert_fair, everywhere, scenes};
use crate::harness::{Gate, Log, in_fibers, on_workers, runtime, wait_until, watch};
use sinew::channel::{
    RecvError, RecvTimeoutError, Select, SendError, SendTimeoutError, TryRecvError, TrySendError,
    bounded,
};
use sinew::time::Instant;
use sinew::{WaitReason, select};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn without_a_partner_nothing_goes_through() {
    everywhere(|| {
        let (tx, rx) = bounded(0);
        assert_eq!(tx.try_send(7), Err(TrySendError::Full(7)));
        assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
        let (start, late) = (Instant::now(), tx.send_timeout(8, 5 * MS));
        assert_eq!(late, Err(SendTimeoutError::Timeout(8)));
        assert_eq!(rx.recv_timeout(5 * MS), Err(RecvTimeoutError::Timeout));
        assert!(start.elapsed() >= 10 * MS);
        let due = Instant::now() + 2 * MS;
        let late = tx.send_deadline(9, due);
        assert_eq!(late, Err(SendTimeoutError::Timeout(9)));
        assert!(Instant::now() >= due);
    });
}

#[test]
fn a_rendezvous_is_always_empty_and_always_full() {
    scenes(|scene| {
        let (tx, rx) = bounded(0);
        let state = |when| {
            assert_eq!((tx.len(), rx.len()), (0, 0), "{when}");
            assert!(tx.is_empty() && rx.is_empty(), "{when}");
            assert!(tx.is_full() && rx.is_full(), "{when}");
            assert_eq!((tx.capacity(), rx.capacity()), (Some(0), Some(0)));
        };
        state("at rest");
        let theirs = tx.clone();
        let sender = scene.left(move || theirs.send(1));
        sender.until_waiting();
        state("with a sender that waits");
        assert_eq!(rx.recv(), Ok(1));
        sender.join().unwrap();
        let theirs = rx.clone();
        let receiver = scene.left(move || theirs.recv());
        receiver.until_waiting();
        state("with a receiver that waits");
        tx.send(2).unwrap();
        assert_eq!(receiver.join(), Ok(2));
    });
}

#[test]
fn a_send_returns_only_when_it_was_received() {
    scenes(|scene| {
        let (tx, rx) = bounded(0);
        let log = Log::new();
        let theirs = log.clone();
        let sender = scene.left(move || {
            for i in 0..3 {
                tx.send(i).unwrap();
                theirs.push("sent");
            }
        });
        for n in 0..3 {
            sender.until_waiting();
            assert_eq!(log.len(), n);
            assert_eq!(rx.recv(), Ok(n));
            wait_until(|| log.len() > n);
        }
        sender.join();
    });
}

#[test]
fn a_try_send_meets_a_receiver_that_waits() {
    scenes(|scene| {
        let (tx, rx) = bounded(0);
        let receiver = scene.left(move || (rx.recv(), rx.recv_timeout(HOUR)));
        for value in [1, 2] {
            wait_until(|| tx.try_send(value).is_ok());
        }
        assert_eq!(receiver.join(), (Ok(1), Ok(2)));
        assert_eq!(tx.try_send(3), Err(TrySendError::Disconnected(3)));
    });
}

#[test]
fn a_try_recv_meets_a_sender_that_waits() {
    scenes(|scene| {
        let (tx, rx) = bounded(0);
        let sender = scene.left(move || (tx.send(1), tx.send_timeout(2, HOUR)));
        for value in [1, 2] {
            let mut got = Err(TryRecvError::Empty);
            wait_until(|| {
                got = rx.try_recv();
                got != Err(TryRecvError::Empty)
            });
            assert_eq!(got, Ok(value));
        }
        assert_eq!(sender.join(), (Ok(()), Ok(())));
        assert_eq!(rx.try_recv(), Err(TryRecvError::Disconnected));
    });
}

#[test]
fn two_that_only_try_may_miss_but_one_that_waits_is_met() {
    scenes(|scene| {
        let (tx, rx) = bounded(0);
        let sender = scene.left(move || (0..50).for_each(|i| tx.send(i).unwrap()));
        let receiver = scene.right(move || {
            for i in 0..50 {
                wait_until(|| match rx.try_recv() {
                    Ok(got) => {
                        assert_eq!(got, i);
                        true
                    }
                    Err(error) => {
                        assert_eq!(error, TryRecvError::Empty);
                        false
                    }
                });
            }
        });
        sender.join();
        receiver.join();
    });
}

#[test]
fn timeouts_that_do_not_expire_meet() {
    scenes(|scene| {
        let (tx, rx) = bounded(0);
        let receiver = scene.left(move || {
            (
                rx.recv_timeout(HOUR),
                rx.recv_deadline(Instant::now() + HOUR),
            )
        });
        receiver.until_waiting();
        let sender = scene.right(move || {
            tx.send_timeout(1, HOUR).unwrap();
            tx.send_deadline(2, Instant::now() + HOUR).unwrap();
        });
        assert_eq!(receiver.join(), (Ok(1), Ok(2)));
        sender.join();
    });
}

#[test]
fn a_sender_that_gave_up_is_met_by_nobody() {
    everywhere(|| {
        let (tx, rx) = bounded(0);
        for _ in 0..3 {
            let late = tx.send_timeout(1, MS);
            assert_eq!(late, Err(SendTimeoutError::Timeout(1)));
            assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
            assert_eq!(rx.recv_timeout(MS), Err(RecvTimeoutError::Timeout));
            assert_eq!(tx.try_send(2), Err(TrySendError::Full(2)));
        }
    });
}

#[test]
fn the_last_receiver_s_end_wakes_every_waiting_sender() {
    scenes(|scene| {
        let (tx, rx) = bounded(0);
        let senders: Vec<_> = (0..4)
            .map(|i| {
                let tx = tx.clone();
                scene.side(i, move || tx.send(i))
            })
            .collect();
        for sender in &senders {
            sender.until_waiting();
        }
        drop(rx.clone());
        assert!(senders.iter().all(|sender| !sender.is_finished()));
        scene.right(move || drop(rx)).join();
        for (i, sender) in senders.into_iter().enumerate() {
            assert_eq!(sender.join(), Err(SendError::Disconnected(i)));
        }
        assert_eq!(tx.send(9), Err(SendError::Disconnected(9)));
        let gone = tx.send_timeout(9, HOUR);
        assert_eq!(gone, Err(SendTimeoutError::Disconnected(9)));
    });
}

#[test]
fn the_last_sender_s_end_wakes_every_waiting_receiver() {
    scenes(|scene| {
        let (tx, rx) = bounded::<u8>(0);
        let receivers: Vec<_> = (0..4)
            .map(|i| {
                let rx = rx.clone();
                scene.side(i, move || rx.recv())
            })
            .collect();
        for receiver in &receivers {
            receiver.until_waiting();
        }
        drop(tx.clone());
        assert!(receivers.iter().all(|receiver| !receiver.is_finished()));
        scene.right(move || drop(tx)).join();
        for receiver in receivers {
            assert_eq!(receiver.join(), Err(RecvError::Disconnected));
        }
        assert_eq!(rx.try_recv(), Err(TryRecvError::Disconnected));
        let gone = rx.recv_timeout(HOUR);
        assert_eq!(gone, Err(RecvTimeoutError::Disconnected));
    });
}

#[test]
fn a_long_stream_keeps_its_order() {
    scenes(|scene| {
        let (tx, rx) = bounded(0);
        let sender = scene.left(move || {
            for i in 0..2_000 {
                tx.send(i).unwrap();
            }
        });
        let receiver = scene.right(move || {
            for i in 0..2_000 {
                assert_eq!(rx.recv(), Ok(i));
            }
            assert_eq!(rx.recv(), Err(RecvError::Disconnected));
        });
        sender.join();
        receiver.join();
    });
}

#[test]
fn among_many_on_both_sides_each_message_arrives_once() {
    const EACH: usize = 300;
    scenes(|scene| {
        let (tx, rx) = bounded(0);
        let seen: Arc<[AtomicUsize]> = (0..EACH).map(|_| AtomicUsize::new(0)).collect();
        let senders: Vec<_> = (0..4)
            .map(|n| {
                let tx = tx.clone();
                scene.side(n, move || (0..EACH).for_each(|i| tx.send(i).unwrap()))
            })
            .collect();
        let receivers: Vec<_> = (0..4)
            .map(|n| {
                let (rx, seen) = (rx.clone(), seen.clone());
                scene.side(n / 2, move || {
                    for _ in 0..EACH {
                        let i: usize = rx.recv().unwrap();
                        seen[i].fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        for each in senders.into_iter().chain(receivers) {
            each.join();
        }
        assert!(seen.iter().all(|count| count.load(Ordering::SeqCst) == 4));
        assert_eq!(tx.try_send(0), Err(TrySendError::Full(0)));
    });
}

#[test]
fn channels_used_once_by_two_at_the_same_time_lose_nothing() {
    scenes(|scene| {
        for _ in 0..100 {
            let (tx, rx) = bounded(0);
            let receiver = scene.left(move || rx.recv());
            let sender = scene.right(move || tx.send(0));
            assert_eq!(sender.join(), Ok(()));
            assert_eq!(receiver.join(), Ok(0));
        }
    });
}

#[test]
fn with_short_timeouts_on_both_sides_each_message_arrives_once_in_order() {
    scenes(|scene| {
        let (tx, rx) = bounded(0);
        let sender = scene.left(move || {
            for i in 0..100 {
                if i % 10 == 0 {
                    sinew::sleep(2 * MS).unwrap();
                }
                let mut value = i;
                while let Err(error) = tx.send_timeout(value, MS / 4) {
                    assert_eq!(error, SendTimeoutError::Timeout(i));
                    value = error.into_inner();
                }
            }
        });
        let receiver = scene.right(move || {
            for i in 0..100 {
                if i % 15 == 0 {
                    sinew::sleep(2 * MS).unwrap();
                }
                loop {
                    match rx.recv_timeout(MS / 4) {
                        Ok(got) => break assert_eq!(got, i),
                        Err(error) => assert_eq!(error, RecvTimeoutError::Timeout),
                    }
                }
            }
        });
        sender.join();
        receiver.join();
    });
}

#[test]
fn senders_are_met_in_the_order_they_came() {
    on_workers(|runtime| {
        let (tx, rx) = bounded(0);
        let senders: Vec<_> = (0..5)
            .map(|i| {
                let tx = tx.clone();
                let sender = runtime.spawn(move || tx.send(i));
                wait_until(|| sender.fiber().wait_reason() != WaitReason::None);
                sender
            })
            .collect();
        assert_eq!(rx.iter().take(5).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        for sender in senders {
            sender.join().unwrap().unwrap();
        }
    });
}

#[test]
fn a_select_over_waiting_senders_takes_from_each_its_share() {
    in_fibers(|| {
        const ROUNDS: usize = 10_000;
        let (tx1, rx1) = bounded(0);
        let (tx2, rx2) = bounded(0);
        let senders = [tx1, tx2].map(|tx| sinew::spawn(move || while tx.send(()).is_ok() {}));
        let mut counts = [0; 2];
        for _ in 0..ROUNDS {
            // Both wait again before the next choice.
            for rx in [&rx1, &rx2] {
                let mut select = Select::new();
                select.recv(rx);
                wait_until(|| select.try_ready().is_ok());
            }
            select! {
                recv(rx1) -> _ => counts[0] += 1,
                recv(rx2) -> _ => counts[1] += 1,
            }
        }
        assert_fair(&counts);
        drop((rx1, rx2));
        for sender in senders {
            sender.join().unwrap();
        }
    });
}

#[test]
fn both_ends_in_one_select_never_meet_each_other() {
    everywhere(|| {
        let (tx, rx) = bounded::<u8>(0);
        select! {
            send(tx, 1) -> _ => panic!("sent to itself"),
            recv(rx) -> _ => panic!("received from itself"),
            default(3 * MS) => {}
        }
        let mut select = Select::new();
        select.send(&tx);
        select.recv(&rx);
        select.send(&tx);
        assert!(select.try_select().is_err());
        assert!(select.select_timeout(3 * MS).is_err());
    });
}

#[test]
fn selects_with_both_ends_meet_in_pairs() {
    scenes(|scene| {
        let (tx, rx) = bounded::<usize>(0);
        let all: Vec<_> = (0..20)
            .map(|i| {
                let (tx, rx) = (tx.clone(), rx.clone());
                scene.side(i, move || {
                    select! {
                        recv(rx) -> got => {
                            assert_ne!(got.unwrap(), i);
                            true
                        }
                        send(tx, i) -> sent => {
                            sent.unwrap();
                            false
                        }
                    }
                })
            })
            .collect();
        let received = all.into_iter().map(|each| each.join());
        assert_eq!(received.filter(|received| *received).count(), 10);
        assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
    });
}

#[test]
fn the_odd_one_out_of_such_selects_is_met_by_a_plain_send() {
    scenes(|scene| {
        let (tx, rx) = bounded::<usize>(0);
        let all: Vec<_> = (0..21)
            .map(|i| {
                let (tx, rx) = (tx.clone(), rx.clone());
                scene.side(i, move || {
                    select! {
                        recv(rx) -> got => assert_ne!(got.unwrap(), i),
                        send(tx, i) -> sent => sent.unwrap(),
                    }
                })
            })
            .collect();
        tx.send(usize::MAX).unwrap();
        for each in all {
            each.join();
        }
        assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
        assert_eq!(tx.try_send(0), Err(TrySendError::Full(0)));
    });
}

#[test]
fn a_value_that_is_not_taken_is_not_dropped_twice() {
    scenes(|scene| {
        let census = Census::default();
        let (tx, rx) = bounded(0);
        let theirs = census.clone();
        let sender = scene.left(move || {
            let mut sent = 0;
            for i in 0..100 {
                match tx.send_timeout(theirs.make(i), MS / 10) {
                    Ok(()) => sent += 1,
                    Err(SendTimeoutError::Timeout(back)) => assert_eq!(back.number, i),
                    Err(error) => panic!("{error:?}"),
                }
            }
            sent
        });
        let receiver = scene.right(move || {
            let mut got = 0;
            for i in 0.. {
                if i % 3 == 0 {
                    sinew::sleep(MS / 5).unwrap();
                }
                match rx.recv_timeout(MS) {
                    Ok(_) => got += 1,
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(_) => break,
                }
            }
            got
        });
        assert_eq!(sender.join(), receiver.join());
        assert_eq!((census.alive(), census.dropped()), (0, 100));
    });
}

#[test]
fn a_message_larger_than_a_page_goes_through_whole() {
    scenes(|scene| {
        let (tx, rx) = bounded(0);
        let sender = scene.left(move || {
            for i in 0..10_u64 {
                tx.send([i; 1024]).unwrap();
            }
        });
        let receiver = scene.right(move || {
            for i in 0..10 {
                assert_eq!(rx.recv(), Ok([i; 1024]));
            }
        });
        sender.join();
        receiver.join();
    });
}

#[test]
fn only_the_fiber_waits_for_its_partner() {
    let _watch = watch();
    // One worker: a rendezvous that held it could never be met.
    runtime(1).run(|| {
        let (tx, rx) = bounded(0);
        let passed = Gate::new();
        let theirs = passed.clone();
        let sender = sinew::spawn(move || {
            theirs.open();
            tx.send(5)
        });
        passed.pass();
        assert_eq!(rx.recv(), Ok(5));
        sender.join().unwrap().unwrap();
    });
}

#[test]
fn the_value_of_a_send_arm_may_meet_a_second_receiver_of_the_channel() {
    scenes(|scene| {
        let (tx, rx) = bounded(0);
        let inner = tx.clone();
        let receivers: Vec<_> = (0..2)
            .map(|i| {
                let rx = rx.clone();
                scene.side(i, move || rx.recv().unwrap())
            })
            .collect();
        select! {
            send(tx, {
                inner.send(1).unwrap();
                2
            }) -> sent => sent.unwrap(),
        }
        let mut got: Vec<i32> = receivers.into_iter().map(|each| each.join()).collect();
        got.sort_unstable();
        assert_eq!(got, [1, 2]);
    });
}

#[test]
fn same_channel_tells_clones_from_strangers() {
    let _watch = watch();
    let (tx, rx) = bounded::<u8>(0);
    let (tx2, rx2) = bounded::<u8>(0);
    let (tx3, rx3) = bounded::<u8>(1);
    assert!(tx.same_channel(&tx.clone()) && rx.same_channel(&rx.clone()));
    assert!(!tx.same_channel(&tx2) && !rx.same_channel(&rx2));
    assert!(!tx.same_channel(&tx3) && !rx.same_channel(&rx3));
}
