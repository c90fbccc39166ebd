//! Channels with room for any number of messages.

use super::{Census, HOUR, MS, NO_TIME, assert_fair, everywhere, scenes};
use crate::harness::{Rng, watch};
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
        let (tx, rx) = unbounded();
        tx.try_send(7).unwrap();
        assert_eq!(rx.try_recv(), Ok(7));
        for i in 0..100 {
            tx.send(i).unwrap();
        }
        for i in 0..100 {
            assert_eq!(rx.recv(), Ok(i));
        }
        assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
        let start = Instant::now();
        assert_eq!(rx.recv_timeout(5 * MS), Err(RecvTimeoutError::Timeout));
        assert!(start.elapsed() >= 5 * MS);
    });
}

#[test]
fn an_unbounded_channel_has_no_capacity_and_is_never_full() {
    everywhere(|| {
        let (tx, rx) = unbounded();
        assert_eq!((tx.capacity(), rx.capacity()), (None, None));
        assert_eq!((tx.len(), tx.is_empty(), tx.is_full()), (0, true, false));
        assert_eq!((rx.len(), rx.is_empty(), rx.is_full()), (0, true, false));
        for i in 1..300 {
            tx.send(()).unwrap();
            assert_eq!((tx.len(), tx.is_empty(), tx.is_full()), (i, false, false));
            assert_eq!((rx.len(), rx.is_empty(), rx.is_full()), (i, false, false));
        }
        for i in (0..299).rev() {
            rx.recv().unwrap();
            assert_eq!((tx.len(), rx.len()), (i, i));
        }
        assert!(tx.is_empty() && rx.is_empty());
    });
}

#[test]
fn the_length_is_right_wherever_blocks_of_messages_begin_and_end() {
    let _watch = watch();
    let seed = 17;
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let (tx, rx) = unbounded();
    let (mut first, mut next) = (0, 0);
    for _ in 0..20_000 {
        if rng.chance(2) {
            tx.send(next).unwrap();
            next += 1;
        } else {
            let want = if first == next {
                Err(TryRecvError::Empty)
            } else {
                first += 1;
                Ok(first - 1)
            };
            assert_eq!(rx.try_recv(), want);
        }
        assert_eq!(tx.len(), next - first);
        assert_eq!(rx.is_empty(), first == next);
    }
}

#[test]
fn a_receiver_waits_for_a_message() {
    scenes(|scene| {
        let (tx, rx) = unbounded();
        let receiver = scene.left(move || (rx.recv(), rx.recv_timeout(HOUR), rx.recv()));
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
fn no_send_ever_waits() {
    everywhere(|| {
        let (tx, rx) = unbounded();
        for i in 0..1_000 {
            match i % 3 {
                0 => tx.send(i).unwrap(),
                1 => tx.try_send(i).unwrap(),
                _ => tx.send_timeout(i, NO_TIME).unwrap(),
            }
        }
        assert_eq!(rx.len(), 1_000);
        assert!(rx.try_iter().eq(0..1_000));
    });
}

#[test]
fn a_timeout_that_is_over_still_takes_what_is_there() {
    everywhere(|| {
        let (tx, rx) = unbounded();
        let past = Instant::now();
        tx.send(1).unwrap();
        tx.send(2).unwrap();
        assert_eq!(rx.recv_deadline(past), Ok(1));
        assert_eq!(rx.recv_timeout(NO_TIME), Ok(2));
        assert_eq!(rx.recv_deadline(past), Err(RecvTimeoutError::Timeout));
    });
}

#[test]
fn sends_after_the_last_receiver_hand_the_value_back() {
    everywhere(|| {
        let (tx, rx) = unbounded();
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
        let (tx, rx) = unbounded();
        for i in 0..4 {
            tx.send(i).unwrap();
        }
        drop(tx);
        assert_eq!(rx.len(), 4);
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
fn the_last_sender_s_end_wakes_every_waiting_receiver() {
    scenes(|scene| {
        let (tx, rx) = unbounded::<u8>();
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
    });
}

#[test]
fn a_long_stream_keeps_its_order() {
    scenes(|scene| {
        let (tx, rx) = unbounded();
        let sender = scene.left(move || {
            for i in 0..5_000 {
                tx.send(i).unwrap();
            }
        });
        let receiver = scene.right(move || {
            for i in 0..5_000 {
                assert_eq!(rx.recv(), Ok(i));
            }
            assert_eq!(rx.recv(), Err(RecvError::Disconnected));
        });
        sender.join();
        receiver.join();
    });
}

#[test]
fn the_messages_of_each_of_many_senders_keep_their_order() {
    scenes(|scene| {
        let (tx, rx) = unbounded();
        let senders: Vec<_> = (0..4)
            .map(|n| {
                let tx = tx.clone();
                scene.side(n, move || (0..1_000).for_each(|i| tx.send((n, i)).unwrap()))
            })
            .collect();
        drop(tx);
        let receiver = scene.right(move || {
            let mut next = [0; 4];
            for (n, i) in &rx {
                assert_eq!(next[n], i);
                next[n] += 1;
            }
            next
        });
        assert_eq!(receiver.join(), [1_000; 4]);
        for sender in senders {
            sender.join();
        }
    });
}

#[test]
fn among_many_on_both_sides_each_message_arrives_once() {
    const EACH: usize = 500;
    scenes(|scene| {
        let (tx, rx) = unbounded();
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
            let (tx, rx) = unbounded();
            let receiver = scene.left(move || rx.recv());
            let sender = scene.right(move || tx.send(0));
            assert_eq!(sender.join(), Ok(()));
            assert_eq!(receiver.join(), Ok(0));
        }
    });
}

#[test]
fn a_receiver_that_ends_while_others_send_leaves_nothing_undropped() {
    scenes(|scene| {
        for round in 0..30 {
            let census = Census::default();
            let (tx, rx) = unbounded();
            let senders: Vec<_> = (0..2)
                .map(|n| {
                    let (tx, census) = (tx.clone(), census.clone());
                    scene.side(n, move || {
                        (0..100).find(|i| tx.send(census.make(*i)).is_err())
                    })
                })
                .collect();
            drop(tx);
            let receiver = scene.right(move || rx.iter().take(round * 3).count());
            assert_eq!(receiver.join(), round * 3);
            for sender in senders {
                sender.join();
            }
            assert_eq!(census.alive(), 0);
        }
    });
}

#[test]
fn with_short_timeouts_each_message_arrives_once_in_order() {
    scenes(|scene| {
        let (tx, rx) = unbounded();
        let sender = scene.left(move || {
            for i in 0..100 {
                if i % 7 == 0 {
                    sinew::sleep(MS).unwrap();
                }
                tx.send(i).unwrap();
            }
        });
        let receiver = scene.right(move || {
            for i in 0..100 {
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
    scenes(|scene| {
        let (tx, rx) = unbounded();
        let all: Vec<_> = (0..4)
            .map(|n| {
                let (tx, rx) = (tx.clone(), rx.clone());
                scene.side(n, move || {
                    for _ in 0..1_000 {
                        tx.send(0).unwrap();
                        rx.try_recv().unwrap();
                    }
                })
            })
            .collect();
        for each in all {
            each.join();
        }
        assert!(rx.is_empty());
    });
}

#[test]
fn a_select_over_full_channels_takes_from_each_its_share() {
    everywhere(|| {
        const ROUNDS: usize = 10_000;
        let (tx1, rx1) = unbounded();
        let (tx2, rx2) = unbounded();
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
    });
}

#[test]
fn a_select_with_the_same_channel_in_each_arm_takes_each_arm_s_share() {
    let _watch = watch();
    const ROUNDS: usize = 10_000;
    let (tx, rx) = unbounded();
    let mut counts = [0; 4];
    for _ in 0..ROUNDS {
        select! {
            send(tx, ()) -> _ => counts[0] += 1,
            send(tx, ()) -> _ => counts[1] += 1,
            send(tx, ()) -> _ => counts[2] += 1,
            send(tx, ()) -> _ => counts[3] += 1,
        }
    }
    assert_fair(&counts);
    assert_eq!(rx.len(), ROUNDS);
}

#[test]
fn the_value_of_a_send_arm_may_itself_use_the_channel() {
    everywhere(|| {
        let (tx, rx) = unbounded();
        tx.send(1).unwrap();
        select! {
            send(tx, rx.recv().unwrap() + 1) -> sent => sent.unwrap(),
        }
        assert_eq!(rx.try_iter().collect::<Vec<_>>(), [2]);
    });
}

#[test]
fn a_message_larger_than_a_stack_frame_should_be_needs_no_stack() {
    everywhere(|| {
        // A block of such messages is far larger than a fiber's stack.
        struct Large([u8; 16 << 10]);
        let (tx, rx) = unbounded();
        for i in 0..40 {
            tx.send(Large([i; 16 << 10])).unwrap();
        }
        for i in 0..40 {
            assert!(rx.recv().unwrap().0.iter().all(|byte| *byte == i));
        }
    });
}

#[test]
fn same_channel_tells_clones_from_strangers() {
    let _watch = watch();
    let (tx, rx) = unbounded::<u8>();
    let (tx2, rx2) = unbounded::<u8>();
    let (tx3, rx3) = bounded::<u8>(0);
    assert!(tx.same_channel(&tx.clone()) && rx.same_channel(&rx.clone()));
    assert!(!tx.same_channel(&tx2) && !rx.same_channel(&rx2));
    assert!(!tx.same_channel(&tx3) && !rx.same_channel(&rx3));
}
