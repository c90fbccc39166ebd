//! `close` and `is_disconnected`.

use super::{Census, HOUR, KINDS, MS, channel, everywhere, scenes};
use sinew::channel::{
    RecvError, RecvTimeoutError, Select, SendError, SendTimeoutError, TryRecvError, TrySendError,
    after, bounded, never, tick, unbounded,
};
use sinew::select;

#[test]
fn only_the_first_close_says_that_it_was_the_first() {
    everywhere(|| {
        for kind in KINDS {
            for from_sender in [true, false] {
                let (tx, rx) = channel::<u8>(kind);
                let (tx2, rx2) = (tx.clone(), rx.clone());
                assert!(!tx.is_disconnected() && !rx.is_disconnected());
                assert!(if from_sender { tx.close() } else { rx.close() });
                assert!(!tx.close() && !rx.close() && !tx2.close() && !rx2.close());
                assert!(tx.is_disconnected() && rx.is_disconnected());
                assert!(tx2.is_disconnected() && rx2.is_disconnected());
            }
        }
    });
}

#[test]
fn a_dropped_side_counts_as_the_first_close() {
    everywhere(|| {
        for kind in KINDS {
            let (tx, rx) = channel::<u8>(kind);
            let twin = rx.clone();
            drop(rx);
            assert!(!tx.is_disconnected());
            drop(twin);
            assert!(tx.is_disconnected() && !tx.close());
            let (tx, rx) = channel::<u8>(kind);
            let twin = tx.clone();
            drop(tx);
            assert!(!rx.is_disconnected());
            drop(twin);
            assert!(rx.is_disconnected() && !rx.close());
        }
    });
}

#[test]
fn after_a_close_nothing_is_sent_and_the_value_comes_back() {
    everywhere(|| {
        for kind in KINDS {
            let (tx, rx) = channel(kind);
            rx.close();
            assert_eq!(tx.send(1), Err(SendError::Disconnected(1)));
            assert_eq!(tx.try_send(2), Err(TrySendError::Disconnected(2)));
            let refused = tx.send_timeout(3, HOUR);
            assert_eq!(refused, Err(SendTimeoutError::Disconnected(3)));
            let sent = select! { send(tx, 4) -> sent => sent };
            assert_eq!(sent, Err(SendError::Disconnected(4)));
            let sent = sinew::block_on(tx.send_async(5));
            assert_eq!(sent, Err(SendError::Disconnected(5)));
            assert!(rx.is_empty());
        }
    });
}

#[test]
fn what_was_inside_at_the_close_can_still_be_received() {
    everywhere(|| {
        for kind in [Some(9), None] {
            let (tx, rx) = channel(kind);
            (0..7).for_each(|i| tx.send(i).unwrap());
            tx.close();
            assert!(rx.is_disconnected());
            assert_eq!(rx.len(), 7);
            assert_eq!(rx.recv(), Ok(0));
            assert_eq!(rx.try_recv(), Ok(1));
            assert_eq!(rx.recv_timeout(MS), Ok(2));
            assert_eq!(select! { recv(rx) -> got => got }, Ok(3));
            assert_eq!(sinew::block_on(rx.recv_async()), Ok(4));
            assert!(rx.iter().eq([5, 6]));
            assert_eq!(rx.recv(), Err(RecvError::Disconnected));
            assert_eq!(rx.try_recv(), Err(TryRecvError::Disconnected));
            let gone = rx.recv_timeout(HOUR);
            assert_eq!(gone, Err(RecvTimeoutError::Disconnected));
            let gone = sinew::block_on(rx.recv_async());
            assert_eq!(gone, Err(RecvError::Disconnected));
            drop(tx);
        }
    });
}

#[test]
fn a_close_wakes_every_sender_that_waits_and_hands_its_value_back() {
    scenes(|scene| {
        for capacity in [0, 1] {
            let (tx, rx) = bounded(capacity);
            (0..capacity).for_each(|_| tx.send(100).unwrap());
            let plain: Vec<_> = (0..3)
                .map(|i| {
                    let tx = tx.clone();
                    scene.side(i, move || match i {
                        0 => tx.send(i).map_err(SendError::into_inner),
                        1 => tx
                            .send_timeout(i, HOUR)
                            .map_err(SendTimeoutError::into_inner),
                        _ => select! {
                            send(tx, i) -> sent => sent.map_err(SendError::into_inner),
                        },
                    })
                })
                .collect();
            for sender in &plain {
                sender.until_waiting();
            }
            let closer = rx.clone();
            assert!(scene.right(move || closer.close()).join());
            for (i, sender) in plain.into_iter().enumerate() {
                assert_eq!(sender.join(), Err(i));
            }
            // What had been sent is there, what had waited is not.
            assert_eq!(rx.iter().count(), capacity);
        }
    });
}

#[test]
fn a_close_wakes_every_receiver_that_waits() {
    scenes(|scene| {
        for kind in KINDS {
            let (tx, rx) = channel::<u8>(kind);
            let receivers: Vec<_> = (0..4)
                .map(|i| {
                    let rx = rx.clone();
                    scene.side(i, move || match i {
                        0 => rx.recv().is_err(),
                        1 => rx.recv_timeout(HOUR) == Err(RecvTimeoutError::Disconnected),
                        2 => select! { recv(rx) -> got => got.is_err() },
                        _ => {
                            let mut select = Select::new();
                            select.recv(&rx);
                            select.ready() == 0
                        }
                    })
                })
                .collect();
            for receiver in &receivers {
                receiver.until_waiting();
            }
            let closer = tx.clone();
            assert!(scene.right(move || closer.close()).join());
            assert!(receivers.into_iter().all(|receiver| receiver.join()));
        }
    });
}

#[test]
fn of_a_close_and_sends_at_the_same_time_each_send_counts_or_comes_back() {
    scenes(|scene| {
        for round in 0..40 {
            let census = Census::default();
            let (tx, rx) = channel([Some(0), Some(4), None][round % 3]);
            let senders: Vec<_> = (0..3)
                .map(|n| {
                    let (tx, census) = (tx.clone(), census.clone());
                    scene.side(n, move || {
                        // A send that need not wait does not yield.
                        let send = |i: &usize| {
                            sinew::yield_now();
                            tx.send(census.make(*i)).is_ok()
                        };
                        (0..).take_while(send).count()
                    })
                })
                .collect();
            let theirs = rx.clone();
            let receiver = scene.right(move || theirs.iter().count());
            let closer = scene.left(move || {
                (0..round).for_each(|_| sinew::yield_now());
                rx.close()
            });
            assert!(closer.join());
            let sent: usize = senders.into_iter().map(|each| each.join()).sum();
            assert_eq!(receiver.join(), sent);
            drop(tx);
            assert_eq!(census.alive(), 0);
        }
    });
}

#[test]
fn timers_cannot_be_closed() {
    everywhere(|| {
        for rx in [after(MS), tick(MS)] {
            assert!(!rx.close() && !rx.is_disconnected());
            assert!(rx.recv().is_ok());
        }
        assert!(!never::<u8>().close() && !never::<u8>().is_disconnected());
    });
}

#[test]
fn a_select_prefers_nothing_among_a_closed_channel_and_one_with_messages() {
    everywhere(|| {
        let (tx1, rx1) = unbounded::<u8>();
        let (tx2, rx2) = unbounded();
        (0..1_000).for_each(|_| tx2.send(1).unwrap());
        tx1.close();
        let mut counts = [0; 2];
        for _ in 0..1_000 {
            select! {
                recv(rx1) -> got => {
                    assert_eq!(got, Err(RecvError::Disconnected));
                    counts[0] += 1;
                }
                recv(rx2) -> got => {
                    assert_eq!(got, Ok(1));
                    counts[1] += 1;
                }
            }
        }
        super::assert_fair(&counts);
    });
}
