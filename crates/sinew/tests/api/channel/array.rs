//! Channels with room for some messages.

use super::{HOUR, MS, NO_TIME, assert_fair, everywhere, scenes};
use crate::harness::{Gate, Rng, in_fibers, wait_until, watch};
use sinew::channel::{
    RecvError, RecvTimeoutError, SendError, SendTimeoutError, TryRecvError, TrySendError, bounded,
    unbounded,
};
use sinew::select;
use sinew::time::Instant;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn what_is_sent_comes_out_in_order() {
    everywhere(|| {
        let (tx, rx) = bounded(3);
        tx.send(1).unwrap();
        assert_eq!(rx.recv(), Ok(1));
        for i in 2..5 {
            tx.try_send(i).unwrap();
        }
        assert_eq!(rx.recv(), Ok(2));
        assert_eq!(rx.try_recv(), Ok(3));
        assert_eq!(rx.recv_timeout(HOUR), Ok(4));
        assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
        assert_eq!(rx.recv_timeout(MS), Err(RecvTimeoutError::Timeout));
    });
}

/// The memory for all of them at once would be more than there are addresses.
#[test]
fn room_for_large_messages_takes_no_memory_before_they_are_sent() {
    let _watch = watch();
    const CAPACITY: usize = 1 << 40;
    let (tx, rx) = bounded::<[u8; 16 << 10]>(CAPACITY);
    assert_eq!(tx.capacity(), Some(CAPACITY));
    tx.send([7; 16 << 10]).unwrap();
    assert_eq!(rx.recv().unwrap()[16_383], 7);
}

#[test]
fn the_capacity_is_what_was_asked_for() {
    let _watch = watch();
    for capacity in 1..20 {
        let (tx, rx) = bounded::<u8>(capacity);
        assert_eq!(tx.capacity(), Some(capacity));
        assert_eq!(rx.capacity(), Some(capacity));
        for _ in 0..capacity {
            assert_eq!(tx.try_send(0), Ok(()));
        }
        assert_eq!(tx.try_send(7), Err(TrySendError::Full(7)));
    }
}

#[test]
fn length_empty_and_full_follow_each_send_and_receive() {
    everywhere(|| {
        let (tx, rx) = bounded(2);
        let states = || {
            assert_eq!(tx.len(), rx.len());
            assert_eq!(tx.is_empty(), rx.is_empty());
            assert_eq!(tx.is_full(), rx.is_full());
            (tx.len(), tx.is_empty(), tx.is_full())
        };
        assert_eq!(states(), (0, true, false));
        tx.send(()).unwrap();
        assert_eq!(states(), (1, false, false));
        tx.send(()).unwrap();
        assert_eq!(states(), (2, false, true));
        rx.recv().unwrap();
        assert_eq!(states(), (1, false, false));
        rx.recv().unwrap();
        assert_eq!(states(), (0, true, false));
    });
}

#[test]
fn the_length_is_right_through_many_laps_and_never_above_the_capacity() {
    let _watch = watch();
    let (tx, rx) = bounded(10);
    for lap in 0..200 {
        for i in 0..7 {
            tx.send((lap, i)).unwrap();
            assert_eq!(tx.len(), i + 1);
        }
        for i in 0..7 {
            assert_eq!(rx.recv(), Ok((lap, i)));
            assert_eq!(rx.len(), 6 - i);
        }
    }
    scenes(|scene| {
        let (tx, rx) = bounded(10);
        let (watched, seen) = (tx.clone(), rx.clone());
        let sender = scene.left(move || {
            for i in 0..2_000 {
                tx.send(i).unwrap();
                assert!(tx.len() <= 10);
            }
        });
        let receiver = scene.right(move || {
            for i in 0..2_000 {
                assert_eq!(rx.recv(), Ok(i));
                assert!(rx.len() <= 10);
            }
        });
        sender.join();
        receiver.join();
        assert_eq!((watched.len(), seen.len()), (0, 0));
    });
}

#[test]
fn a_receiver_waits_for_a_message() {
    scenes(|scene| {
        let (tx, rx) = bounded(5);
        let receiver = scene.left(move || (rx.recv(), rx.recv(), rx.recv()));
        receiver.until_waiting();
        let sender = scene.right(move || {
            tx.send(7).unwrap();
            tx.send(8).unwrap();
        });
        let disconnected = Err(RecvError::Disconnected);
        assert_eq!(receiver.join(), (Ok(7), Ok(8), disconnected));
        sender.join();
    });
}

#[test]
fn a_sender_waits_for_room() {
    scenes(|scene| {
        let (tx, rx) = bounded(1);
        let full = tx.clone();
        let sender = scene.left(move || {
            for i in 0..4 {
                tx.send(i).unwrap();
            }
        });
        sender.until_waiting();
        wait_until(|| full.is_full());
        assert!(!sender.is_finished());
        drop(full);
        let receiver = scene.right(move || rx.iter().collect::<Vec<_>>());
        assert_eq!(receiver.join(), [0, 1, 2, 3]);
        sender.join();
    });
}

#[test]
fn a_timeout_expires_not_before_its_time_and_hands_the_value_back() {
    everywhere(|| {
        let (tx, rx) = bounded(1);
        let start = Instant::now();
        assert_eq!(rx.recv_timeout(5 * MS), Err(RecvTimeoutError::Timeout));
        assert!(start.elapsed() >= 5 * MS);
        let due = Instant::now() + 5 * MS;
        assert_eq!(rx.recv_deadline(due), Err(RecvTimeoutError::Timeout));
        assert!(Instant::now() >= due);
        tx.send(1).unwrap();
        let start = Instant::now();
        let late = tx.send_timeout(2, 5 * MS);
        assert_eq!(late, Err(SendTimeoutError::Timeout(2)));
        assert!(start.elapsed() >= 5 * MS);
        let due = Instant::now() + 5 * MS;
        let late = tx.send_deadline(3, due);
        assert_eq!(late, Err(SendTimeoutError::Timeout(3)));
        assert!(Instant::now() >= due);
        assert_eq!(rx.try_iter().collect::<Vec<_>>(), [1]);
    });
}

#[test]
fn a_timeout_that_is_over_still_does_what_needs_no_wait() {
    everywhere(|| {
        let (tx, rx) = bounded(1);
        let past = Instant::now();
        assert_eq!(tx.send_deadline(1, past), Ok(()));
        assert_eq!(rx.recv_deadline(past), Ok(1));
        assert_eq!(tx.send_timeout(2, NO_TIME), Ok(()));
        let full = tx.send_timeout(3, NO_TIME);
        assert_eq!(full, Err(SendTimeoutError::Timeout(3)));
        assert_eq!(rx.recv_timeout(NO_TIME), Ok(2));
        assert_eq!(rx.recv_timeout(NO_TIME), Err(RecvTimeoutError::Timeout));
    });
}

#[test]
fn a_timeout_that_does_not_expire_is_ended_by_the_other_side() {
    scenes(|scene| {
        let (tx, rx) = bounded(1);
        let receiver = scene.left(move || {
            let first = rx.recv_timeout(HOUR);
            let second = rx.recv_deadline(Instant::now() + HOUR);
            (first, second, rx.recv_timeout(HOUR))
        });
        receiver.until_waiting();
        let sender = scene.right(move || {
            tx.send_timeout(1, HOUR).unwrap();
            tx.send_deadline(2, Instant::now() + HOUR).unwrap();
        });
        let gone = Err(RecvTimeoutError::Disconnected);
        assert_eq!(receiver.join(), (Ok(1), Ok(2), gone));
        sender.join();

        let (tx, rx) = bounded(1);
        tx.send(1).unwrap();
        let sender = scene.left(move || {
            let second = tx.send_timeout(2, HOUR);
            (second, tx.send_timeout(3, HOUR))
        });
        sender.until_waiting();
        let receiver = scene.right(move || rx.recv());
        assert_eq!(receiver.join(), Ok(1));
        let (second, third) = sender.join();
        // The receiver may be gone before the second was put into its room.
        assert!(matches!(
            second,
            Ok(()) | Err(SendTimeoutError::Disconnected(2))
        ));
        assert_eq!(third, Err(SendTimeoutError::Disconnected(3)));
    });
}

#[test]
fn a_timeout_without_an_end_waits_like_none() {
    scenes(|scene| {
        let (tx, rx) = bounded(1);
        let receiver = scene.left(move || rx.recv_timeout(std::time::Duration::MAX));
        receiver.until_waiting();
        scene.right(move || tx.send(1).unwrap()).join();
        assert_eq!(receiver.join(), Ok(1));
    });
}

#[test]
fn sends_after_the_last_receiver_hand_the_value_back() {
    everywhere(|| {
        let (tx, rx) = bounded(5);
        for i in 0..3 {
            tx.send(i).unwrap();
        }
        drop(rx);
        assert_eq!(tx.send(4), Err(SendError::Disconnected(4)));
        let refused = tx.try_send(5);
        assert_eq!(refused, Err(TrySendError::Disconnected(5)));
        let refused = tx.send_timeout(6, HOUR);
        assert_eq!(refused, Err(SendTimeoutError::Disconnected(6)));
    });
}

#[test]
fn what_is_inside_is_received_after_the_last_sender() {
    everywhere(|| {
        let (tx, rx) = bounded(4);
        for i in 0..4 {
            tx.send(i).unwrap();
        }
        drop(tx);
        assert_eq!((rx.len(), rx.is_full()), (4, true));
        assert_eq!(rx.recv(), Ok(0));
        assert_eq!(rx.try_recv(), Ok(1));
        assert_eq!(rx.recv_timeout(HOUR), Ok(2));
        assert_eq!(rx.iter().next(), Some(3));
        assert_eq!(rx.recv(), Err(RecvError::Disconnected));
        assert_eq!(rx.try_recv(), Err(TryRecvError::Disconnected));
        let gone = rx.recv_timeout(HOUR);
        assert_eq!(gone, Err(RecvTimeoutError::Disconnected));
    });
}

#[test]
fn a_full_channel_without_receivers_is_disconnected_rather_than_full() {
    everywhere(|| {
        let (tx, rx) = bounded(1);
        tx.send(1).unwrap();
        assert_eq!(tx.try_send(2), Err(TrySendError::Full(2)));
        drop(rx);
        assert_eq!(tx.try_send(2), Err(TrySendError::Disconnected(2)));
    });
}

#[test]
fn the_last_receiver_s_end_wakes_every_waiting_sender() {
    scenes(|scene| {
        let (tx, rx) = bounded(1);
        tx.send(0).unwrap();
        let senders: Vec<_> = (1..5)
            .map(|i| {
                let tx = tx.clone();
                scene.side(i, move || tx.send(i))
            })
            .collect();
        for sender in &senders {
            sender.until_waiting();
        }
        let twin = rx.clone();
        drop(twin); // not the last one
        assert!(senders.iter().all(|sender| !sender.is_finished()));
        scene.right(move || drop(rx)).join();
        for (i, sender) in (1..5).zip(senders) {
            assert_eq!(sender.join(), Err(SendError::Disconnected(i)));
        }
    });
}

#[test]
fn the_last_sender_s_end_wakes_every_waiting_receiver() {
    scenes(|scene| {
        let (tx, rx) = bounded::<u8>(3);
        let receivers: Vec<_> = (0..4)
            .map(|i| {
                let rx = rx.clone();
                scene.side(i, move || rx.recv())
            })
            .collect();
        for receiver in &receivers {
            receiver.until_waiting();
        }
        let twin = tx.clone();
        drop(twin);
        assert!(receivers.iter().all(|receiver| !receiver.is_finished()));
        scene.right(move || drop(tx)).join();
        for receiver in receivers {
            assert_eq!(receiver.join(), Err(RecvError::Disconnected));
        }
    });
}

#[test]
fn a_long_stream_keeps_its_order_at_every_capacity() {
    scenes(|scene| {
        for capacity in [1, 2, 7] {
            let (tx, rx) = bounded(capacity);
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
        }
    });
}

#[test]
fn among_many_on_both_sides_each_message_arrives_once() {
    const EACH: usize = 500;
    scenes(|scene| {
        let (tx, rx) = bounded(3);
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
        assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
        assert!(seen.iter().all(|count| count.load(Ordering::SeqCst) == 4));
    });
}

#[test]
fn channels_used_once_by_two_at_the_same_time_lose_nothing() {
    scenes(|scene| {
        for _ in 0..100 {
            let (tx, rx) = bounded(1);
            let receiver = scene.left(move || rx.recv());
            let sender = scene.right(move || tx.send(0));
            assert_eq!(sender.join(), Ok(()));
            assert_eq!(receiver.join(), Ok(0));
        }
    });
}

#[test]
fn a_channel_answered_through_another_works_with_try_iter() {
    scenes(|scene| {
        let (ask, asked) = bounded(10);
        let (answer, answers) = bounded(10);
        let server = scene.left(move || {
            loop {
                for request in asked.try_iter() {
                    if request == 0 {
                        return;
                    }
                    answer.send(request * 2).unwrap();
                }
                sinew::yield_now();
            }
        });
        let client = scene.right(move || {
            for i in 1..500 {
                ask.send(i).unwrap();
                assert_eq!(answers.recv(), Ok(i * 2));
            }
            ask.send(0).unwrap();
        });
        client.join();
        server.join();
    });
}

#[test]
fn with_short_timeouts_on_both_sides_each_message_arrives_once_in_order() {
    let seed = 41;
    println!("seed {seed}");
    scenes(|scene| {
        let mut rng = Rng::new(seed);
        let (mut ours, mut theirs) = (rng.split(), rng.split());
        let (tx, rx) = bounded(2);
        let sender = scene.left(move || {
            let mut expired = 0;
            for i in 0..200 {
                if ours.chance(10) {
                    sinew::sleep(2 * MS).unwrap();
                }
                while tx.send_timeout(i, MS / 4).is_err() {
                    expired += 1;
                }
            }
            expired
        });
        let receiver = scene.right(move || {
            for i in 0..200 {
                if theirs.chance(10) {
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
fn a_message_sent_by_oneself_is_there_though_others_come_and_go() {
    // Of `n` who each put one in and then take one out none finds it empty.
    scenes(|scene| {
        let (tx, rx) = bounded(4);
        let all: Vec<_> = (0..4)
            .map(|n| {
                let (tx, rx) = (tx.clone(), rx.clone());
                scene.side(n, move || {
                    for _ in 0..1_000 {
                        tx.try_send(0).unwrap();
                        rx.try_recv().unwrap();
                    }
                })
            })
            .collect();
        for each in all {
            each.join();
        }
    });
}

#[test]
fn a_select_over_full_channels_takes_from_each_its_share() {
    let _watch = watch();
    const ROUNDS: usize = 10_000;
    let (tx1, rx1) = bounded(ROUNDS);
    let (tx2, rx2) = bounded(ROUNDS);
    for _ in 0..ROUNDS {
        tx1.send(()).unwrap();
        tx2.send(()).unwrap();
    }
    let mut counts = [0; 2];
    for _ in 0..ROUNDS {
        select! {
            recv(rx1) -> _ => counts[0] += 1,
            recv(rx2) -> _ => counts[1] += 1,
        }
    }
    assert_fair(&counts);
    assert_eq!(rx1.len() + rx2.len(), ROUNDS);
}

#[test]
fn a_select_with_the_same_channel_in_each_arm_takes_each_arm_s_share() {
    in_fibers(|| {
        const ROUNDS: usize = 10_000;
        let (tx, rx) = bounded(ROUNDS);
        for _ in 0..ROUNDS {
            tx.send(()).unwrap();
        }
        let mut counts = [0; 5];
        for _ in 0..ROUNDS {
            select! {
                recv(rx) -> _ => counts[0] += 1,
                recv(rx) -> _ => counts[1] += 1,
                recv(rx) -> _ => counts[2] += 1,
                recv(rx) -> _ => counts[3] += 1,
                recv(rx) -> _ => counts[4] += 1,
            }
        }
        assert_fair(&counts);
        assert!(rx.is_empty());
    });
}

#[test]
fn the_value_of_a_send_arm_may_itself_receive_from_the_channel() {
    everywhere(|| {
        let (tx, rx) = bounded(1);
        tx.send(()).unwrap();
        // The arm is not chosen, so the room its value would make is not there.
        #[allow(unreachable_code, clippy::diverging_sub_expression)]
        {
            select! {
                send(tx, panic!("evaluated")) -> _ => panic!("chosen"),
                default => {}
            }
        }
        let (tx, rx2) = bounded(2);
        tx.send(()).unwrap();
        select! {
            send(tx, assert_eq!(rx2.recv(), Ok(()))) -> sent => assert_eq!(sent, Ok(())),
        }
        assert_eq!((rx.len(), rx2.len()), (1, 1));
    });
}

#[test]
fn same_channel_tells_clones_from_strangers() {
    let _watch = watch();
    let (tx, rx) = bounded::<u8>(1);
    let (tx2, rx2) = bounded::<u8>(1);
    let (tx3, rx3) = unbounded::<u8>();
    assert!(tx.same_channel(&tx.clone()) && rx.same_channel(&rx.clone()));
    assert!(!tx.same_channel(&tx2) && !rx.same_channel(&rx2));
    assert!(!tx.same_channel(&tx3) && !rx.same_channel(&rx3));
}

#[test]
fn a_channel_lives_until_the_last_of_many_clones() {
    scenes(|scene| {
        let (tx, rx) = bounded(1_000);
        let go = Gate::new();
        let clones: Vec<_> = (0..4)
            .map(|n| {
                let (tx, rx, go) = (tx.clone(), rx.clone(), go.clone());
                scene.side(n, move || {
                    go.pass();
                    for _ in 0..100 {
                        let (tx, rx) = (tx.clone(), rx.clone());
                        tx.send(n).unwrap();
                        drop((tx, rx.clone(), rx));
                    }
                })
            })
            .collect();
        go.open();
        for each in clones {
            each.join();
        }
        assert_eq!(rx.len(), 400);
        assert_eq!(rx.try_recv().map(drop), Ok(()));
        drop(tx);
        assert_eq!(rx.iter().count(), 399);
        assert_eq!(rx.recv(), Err(RecvError::Disconnected));
    });
}
