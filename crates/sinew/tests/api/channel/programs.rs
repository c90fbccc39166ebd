//! Small programs made of channels, and the iterators that they use.

use super::{HOUR, KINDS, MS, Scene, channel, everywhere, scenes};
use crate::harness::{Gate, Rng, in_fibers, on_workers, runtime, watch};
use sinew::channel::{
    Receiver, RecvError, RecvTimeoutError, Sender, TryRecvError, bounded, unbounded,
};
use sinew::select;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn channels_travel_through_channels() {
    type Any_ = Box<dyn Any + Send>;
    scenes(|scene| {
        for capacity in [Some(1), Some(2), None, Some(0)] {
            let (tx, rx) = channel::<Any_>(capacity);
            let sender = scene.left(move || {
                let mut tx = tx;
                for _ in 0..200 {
                    let (next, through) = channel::<Any_>(capacity);
                    tx.send(Box::new(through)).unwrap();
                    tx = next;
                }
            });
            let receiver = scene.right(move || {
                let mut rx = rx;
                for _ in 0..200 {
                    rx = *rx.recv().unwrap().downcast::<Receiver<Any_>>().unwrap();
                }
                assert_eq!(rx.recv().map(drop), Err(RecvError::Disconnected));
            });
            sender.join();
            receiver.join();
        }
    });
}

#[test]
fn an_iterator_takes_all_until_the_last_sender_is_gone() {
    scenes(|scene| {
        for kind in KINDS {
            let (tx, rx) = channel(kind);
            let summer = scene.left(move || {
                let mut sum = 0;
                for i in rx.iter() {
                    sum += i;
                }
                assert_eq!(rx.iter().next(), None);
                sum
            });
            let sender = scene.right(move || [3, 1, 2].map(|i| tx.send(i).unwrap()));
            sender.join();
            assert_eq!(summer.join(), 6);
        }
    });
}

#[test]
fn an_iterator_that_is_left_leaves_the_rest() {
    everywhere(|| {
        let (tx, rx) = unbounded();
        (0..10).for_each(|i| tx.send(i).unwrap());
        for i in &rx {
            if i == 3 {
                break;
            }
        }
        assert_eq!(rx.iter().take(2).collect::<Vec<_>>(), [4, 5]);
        assert_eq!(rx.len(), 4);
        drop(tx);
        assert!(rx.into_iter().eq(6..10));
    });
}

#[test]
fn try_iter_takes_what_is_there_and_does_not_wait() {
    everywhere(|| {
        let (tx, rx) = unbounded();
        assert_eq!(rx.try_iter().next(), None);
        tx.send(1).unwrap();
        tx.send(2).unwrap();
        let mut iterator = rx.try_iter();
        assert_eq!(iterator.next(), Some(1));
        assert_eq!(iterator.next(), Some(2));
        assert_eq!(iterator.next(), None);
        tx.send(3).unwrap();
        assert_eq!(iterator.next(), Some(3));
        drop(tx);
        assert_eq!(iterator.next(), None);
    });
}

#[test]
fn owned_and_borrowed_iterators_differ_in_who_keeps_the_channel() {
    everywhere(|| {
        let (tx, rx) = bounded(4);
        tx.send(1).unwrap();
        let mut borrowed = (&rx).into_iter();
        assert_eq!(borrowed.next(), Some(1));
        tx.send(2).unwrap();
        let mut owned = rx.into_iter();
        assert_eq!(owned.next(), Some(2));
        tx.send(3).unwrap();
        drop(owned);
        assert!(tx.send(4).is_err());
    });
}

#[test]
fn channels_of_channels_are_iterated_inside_one_another() {
    scenes(|scene| {
        let (tx, rx) = unbounded::<Receiver<usize>>();
        let (total, totals) = unbounded();
        let outer = scene.left(move || {
            for inner in rx.iter() {
                total.send(inner.iter().sum::<usize>()).unwrap();
            }
        });
        let sender = scene.right(move || {
            for n in 0..5 {
                let (inner_tx, inner_rx) = bounded(1);
                tx.send(inner_rx).unwrap();
                (0..n).for_each(|i| inner_tx.send(i).unwrap());
            }
        });
        sender.join();
        outer.join();
        assert!(totals.into_iter().eq([0, 0, 1, 3, 6]));
    });
}

/// Passes on what `prime` does not divide.
fn filter(scene: Scene<'_>, prime: usize, input: Receiver<usize>) -> Receiver<usize> {
    let (tx, rx) = bounded(0);
    scene.side(prime / 2, move || {
        for i in input {
            if i % prime != 0 && tx.send(i).is_err() {
                return;
            }
        }
    });
    rx
}

#[test]
fn a_sieve_of_filters_finds_the_primes() {
    scenes(|scene| {
        let (tx, mut rx) = bounded(0);
        scene.left(move || (2..).find(|i| tx.send(*i).is_err()));
        let mut primes = Vec::new();
        for _ in 0..20 {
            let prime = rx.recv().unwrap();
            primes.push(prime);
            rx = filter(scene, prime, rx);
        }
        assert_eq!(primes[..5], [2, 3, 5, 7, 11]);
        assert_eq!(primes[19], 71);
        // The end of the last one ends them all: the runtimes wait for that.
    });
}

#[test]
fn a_chain_of_a_thousand_fibers_passes_each_message_to_its_end() {
    in_fibers(|| {
        let (first, mut last) = bounded(0);
        for _ in 0..1_000 {
            let (tx, rx) = bounded(0);
            let input = std::mem::replace(&mut last, rx);
            sinew::spawn(move || input.iter().for_each(|i: u32| tx.send(i + 1).unwrap()));
        }
        let sender = sinew::spawn(move || (0..3).for_each(|i| first.send(i * 10_000).unwrap()));
        assert!(last.iter().eq([1_000, 11_000, 21_000]));
        sender.join().unwrap();
    });
}

#[test]
fn many_inputs_are_merged_into_one() {
    scenes(|scene| {
        let (out, merged) = bounded(0);
        let inputs: Vec<_> = (0..5)
            .map(|n| {
                let (tx, rx) = bounded(0);
                scene.side(n, move || {
                    (0..50).for_each(|i| tx.send(n * 50 + i).unwrap())
                });
                rx
            })
            .collect();
        for (n, rx) in inputs.into_iter().enumerate() {
            let out = out.clone();
            scene.side(n + 1, move || rx.iter().for_each(|i| out.send(i).unwrap()));
        }
        drop(out);
        let mut got: Vec<usize> = merged.iter().collect();
        got.sort_unstable();
        assert!(got.into_iter().eq(0..250));
    });
}

#[test]
fn a_channel_with_room_for_n_lets_n_in_at_a_time() {
    scenes(|scene| {
        let (enter, leave) = bounded(3);
        let inside = Arc::new(AtomicUsize::new(0));
        let all: Vec<_> = (0..10)
            .map(|n| {
                let (enter, leave, inside) = (enter.clone(), leave.clone(), inside.clone());
                scene.side(n, move || {
                    for _ in 0..30 {
                        enter.send(()).unwrap();
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < 3);
                        sinew::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        leave.recv().unwrap();
                    }
                })
            })
            .collect();
        for each in all {
            each.join();
        }
        assert!(leave.is_empty());
    });
}

#[test]
fn requests_with_an_answer_channel_each_get_their_own_answer() {
    scenes(|scene| {
        for kind in KINDS {
            let (ask, asked) = channel::<(usize, Sender<usize>)>(kind);
            let server = scene.left(move || {
                for (question, answer) in asked {
                    answer.send(question * 2).unwrap();
                }
            });
            let clients: Vec<_> = (0..4)
                .map(|n| {
                    let ask = ask.clone();
                    scene.side(n, move || {
                        for i in 0..25 {
                            let (tx, rx) = channel(kind);
                            ask.send((n * 100 + i, tx)).unwrap();
                            assert_eq!(rx.recv(), Ok((n * 100 + i) * 2));
                            assert_eq!(rx.recv(), Err(RecvError::Disconnected));
                        }
                    })
                })
                .collect();
            drop(ask);
            for client in clients {
                client.join();
            }
            server.join();
        }
    });
}

#[test]
fn a_sender_split_over_two_channels_by_select_doubles_nothing() {
    scenes(|scene| {
        let (tx1, rx1) = bounded(0);
        let (tx2, rx2) = bounded(0);
        let (out, merged) = bounded(0);
        scene.left(move || {
            for i in 0..400 {
                // Both arms with each: the loser must have no effect.
                select! {
                    send(tx1, i) -> sent => sent.unwrap(),
                    send(tx2, i) -> sent => sent.unwrap(),
                }
            }
        });
        for (n, rx) in [rx1, rx2].into_iter().enumerate() {
            let out = out.clone();
            scene.side(n, move || rx.iter().for_each(|i| out.send(i).unwrap()));
        }
        drop(out);
        let mut got: Vec<usize> = merged.iter().collect();
        got.sort_unstable();
        assert!(got.into_iter().eq(0..400));
    });
}

#[test]
fn four_that_send_and_receive_at_random_in_selects_all_come_to_an_end() {
    let seed = 99;
    println!("seed {seed}");
    scenes(|scene| {
        let mut rng = Rng::new(seed);
        let channels: Vec<_> = (0..4).map(|i| channel(Some(i / 2))).collect();
        let sent = Arc::new(AtomicUsize::new(0));
        let got = Arc::new(AtomicUsize::new(0));
        let done = Gate::new();
        let all: Vec<_> = (0..4)
            .map(|n| {
                let (channels, mut rng) = (channels.clone(), rng.split());
                let (sent, got, done) = (sent.clone(), got.clone(), done.clone());
                scene.side(n, move || {
                    let [a, b] = [rng.below(4), rng.below(4)].map(|i| i as usize);
                    for _ in 0..300 {
                        select! {
                            send(channels[a].0, n) -> res => {
                                res.unwrap();
                                sent.fetch_add(1, Ordering::SeqCst);
                            }
                            recv(channels[b].1) -> res => {
                                res.unwrap();
                                got.fetch_add(1, Ordering::SeqCst);
                            }
                            default(MS / 10) => {}
                        }
                    }
                    done.pass();
                })
            })
            .collect();
        done.open();
        for each in all {
            each.join();
        }
        let left: usize = channels.iter().map(|(_, rx)| rx.try_iter().count()).sum();
        let count = |number: &AtomicUsize| number.load(Ordering::SeqCst);
        assert_eq!(count(&sent), count(&got) + left);
    });
}

#[test]
fn a_receiver_that_leaves_while_others_send_ends_them_all() {
    scenes(|scene| {
        for kind in KINDS {
            let (tx, rx) = channel(kind);
            let senders: Vec<_> = (0..4)
                .map(|n| {
                    let tx = tx.clone();
                    scene.side(n, move || {
                        // A send that need not wait does not yield.
                        (0..).find(|i| {
                            sinew::yield_now();
                            tx.send(*i).is_err()
                        })
                    })
                })
                .collect();
            drop(tx);
            scene.right(move || rx.iter().take(100).count()).join();
            for sender in senders {
                assert!(sender.join().is_some());
            }
        }
    });
}

#[test]
fn many_receivers_with_timeouts_share_a_stream_without_loss() {
    scenes(|scene| {
        let (tx, rx) = bounded(2);
        let receivers: Vec<_> = (0..4)
            .map(|n| {
                let rx = rx.clone();
                scene.side(n, move || {
                    let mut count = 0;
                    loop {
                        match rx.recv_timeout(MS / 5) {
                            Ok(()) => count += 1,
                            Err(RecvTimeoutError::Timeout) => {}
                            Err(_) => break count,
                        }
                    }
                })
            })
            .collect();
        let sender = scene.right(move || {
            for i in 0..200 {
                if i % 20 == 0 {
                    sinew::sleep(MS / 2).unwrap();
                }
                tx.send_timeout((), HOUR).unwrap();
            }
        });
        sender.join();
        assert_eq!(
            receivers.into_iter().map(|each| each.join()).sum::<i32>(),
            200
        );
    });
}

#[test]
fn fibers_of_a_runtime_that_ends_leave_the_channel_to_others() {
    let _watch = watch();
    let (tx, rx) = bounded(2);
    for round in 0..10 {
        let inner = runtime(1 + round % 2);
        let tx = tx.clone();
        let sender = inner.spawn(move || (0..5).for_each(|i| tx.send(round * 5 + i).unwrap()));
        assert!(rx.iter().take(5).eq(round * 5..round * 5 + 5));
        sender.join().unwrap();
        drop(inner);
    }
    assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
}

#[test]
fn a_fiber_that_only_receives_what_is_ready_lets_others_run() {
    on_workers(|runtime| {
        let (tx, rx) = unbounded();
        (0..10_000).for_each(|i| tx.send(i).unwrap());
        drop(tx);
        let counter = runtime.spawn(move || rx.iter().count());
        let other = runtime.spawn(|| 1);
        assert_eq!(other.join().unwrap(), 1);
        assert_eq!(counter.join().unwrap(), 10_000);
    });
}
