//! `select!` and `select_biased!` with channels: the syntax, and who is chosen.

use super::{HOUR, KINDS, MS, NO_TIME, assert_fair, channel, everywhere, scenes};
use crate::harness::{Log, in_fibers, is_expected, panic_expected};
use sinew::channel::{
    Receiver, RecvError, SendError, Sender, after, bounded, never, tick, unbounded,
};
use sinew::time::Instant;
use sinew::{select, select_biased};
use std::cell::Cell;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

#[test]
fn the_arm_that_can_go_is_chosen() {
    everywhere(|| {
        let (tx1, rx1) = unbounded();
        let (tx2, rx2) = bounded(1);
        tx1.send(1).unwrap();
        select! {
            recv(rx1) -> got => assert_eq!(got, Ok(1)),
            recv(rx2) -> _ => panic!("nobody sent"),
        }
        select! {
            recv(rx1) -> _ => panic!("nobody sent"),
            send(tx2, 2) -> sent => assert_eq!(sent, Ok(())),
        }
        select! {
            recv(rx1) -> _ => panic!("nobody sent"),
            recv(rx2) -> got => assert_eq!(got, Ok(2)),
        }
    });
}

#[test]
fn a_disconnected_channel_can_go_rather_than_the_default() {
    everywhere(|| {
        for kind in KINDS {
            let (tx, rx) = channel::<i32>(kind);
            drop(tx);
            select! {
                recv(rx) -> got => assert_eq!(got, Err(RecvError::Disconnected)),
                default => panic!("default"),
            }
            select! {
                recv(rx) -> got => assert_eq!(got, Err(RecvError::Disconnected)),
                default(HOUR) => panic!("timeout"),
            }
            let (tx, rx) = channel(kind);
            drop(rx);
            select! {
                send(tx, 5) -> sent => assert_eq!(sent, Err(SendError::Disconnected(5))),
                default => panic!("default"),
            }
        }
    });
}

#[test]
fn the_default_is_chosen_only_if_nothing_can_go() {
    everywhere(|| {
        let (tx, rx) = bounded(0);
        select! {
            send(tx, 1) -> _ => panic!("sent"),
            recv(rx) -> _ => panic!("received"),
            default => {}
        }
        let start = Instant::now();
        select! {
            recv(rx) -> _ => panic!("received"),
            default(4 * MS) => assert!(start.elapsed() >= 4 * MS),
        }
        select! {
            default => {}
        }
        let start = Instant::now();
        select! {
            default(4 * MS) => assert!(start.elapsed() >= 4 * MS),
        }
        let (tx, rx) = unbounded();
        tx.send(1).unwrap();
        select! {
            default(NO_TIME) => panic!("default"),
            recv(rx) -> got => assert_eq!(got, Ok(1)),
        }
    });
}

#[test]
fn a_waiting_select_is_woken_by_either_side() {
    scenes(|scene| {
        for kind in KINDS {
            let (tx, rx) = channel(kind);
            let waiter = scene.left(move || {
                select! {
                    recv(rx) -> got => got,
                    recv(never::<()>()) -> _ => panic!("never is now"),
                    default(HOUR) => panic!("timeout"),
                }
            });
            waiter.until_waiting();
            scene.right(move || tx.send(3).unwrap()).join();
            assert_eq!(waiter.join(), Ok(3));
        }
        for capacity in [0, 1] {
            let (tx, rx) = bounded(capacity);
            (0..capacity).for_each(|_| tx.send(0).unwrap());
            let waiter = scene.left(move || {
                select! {
                    send(tx, 7) -> sent => sent,
                    default(HOUR) => panic!("timeout"),
                }
            });
            waiter.until_waiting();
            let receiver = scene.right(move || rx.iter().last());
            assert_eq!(waiter.join(), Ok(()));
            assert_eq!(receiver.join(), Some(7));
        }
    });
}

#[test]
fn a_waiting_select_is_woken_by_a_disconnection() {
    scenes(|scene| {
        let (tx, rx) = bounded::<u8>(0);
        let waiter = scene.left(move || {
            select! {
                recv(rx) -> got => got,
            }
        });
        waiter.until_waiting();
        scene.right(move || drop(tx)).join();
        assert_eq!(waiter.join(), Err(RecvError::Disconnected));
        let (tx, rx) = bounded(0);
        let waiter = scene.left(move || {
            select! {
                send(tx, String::from("back")) -> sent => sent,
            }
        });
        waiter.until_waiting();
        scene.right(move || drop(rx)).join();
        let back = waiter.join().unwrap_err();
        assert_eq!(back.into_inner(), "back");
    });
}

#[test]
fn bodies_may_be_expressions_or_blocks_with_or_without_commas() {
    everywhere(|| {
        let (tx, rx) = unbounded::<u8>();
        // Each of these is one select with each arm able or not to go.
        select! { send(tx, 1) -> _ => (), }
        select! { recv(rx) -> got => { assert_eq!(got, Ok(1)); } }
        select! { recv(rx) -> _ => panic!("empty"), default => {} }
        select! {
            send(tx, 2) -> _ => {}
            recv(never::<u8>()) -> _ => {}
            default => {}
        }
        select! {
            recv(rx) -> got => { assert_eq!(got, Ok(2)); }
            default => { unreachable!(); }
        }
        select! {
            recv(rx) -> _ => { unreachable!(); },
            default(MS) => {},
        }
        #[rustfmt::skip]
        select! {
            recv(rx,) -> _ => panic!("empty"),
            send(tx, 3,) -> _ => (),
            default(HOUR,) => panic!("timeout"),
        }
        select! {
            default() => panic!("default"),
            recv(rx) -> got => assert_eq!(got, Ok(3)),
        }
        // No comma after an expression at the end.
        select! {
            recv(rx) -> _ => panic!("empty"),
            default => ()
        }
        assert!(rx.is_empty());
    });
}

#[test]
fn a_select_is_an_expression() {
    everywhere(|| {
        let (tx, rx) = unbounded();
        tx.send(20).unwrap();
        let got = 1 + select! {
            recv(rx) -> got => got.unwrap(),
            default => 0,
        };
        assert_eq!(got, 21);
        let words = select! {
            recv(rx) -> got => got.map(|_| String::new()),
            default(MS) => Ok(String::from("late")),
        };
        assert_eq!(words.unwrap(), "late");
        // Arms that do not return have any type.
        let number: u8 = select! {
            recv(rx) -> _ => unreachable!(),
            default => 7,
        };
        assert_eq!(number, 7);
    });
}

#[test]
fn the_answer_is_bound_by_a_pattern() {
    everywhere(|| {
        let (tx, rx) = unbounded();
        for i in 0..4 {
            tx.send((i, "word")).unwrap();
        }
        select! { recv(rx) -> mut got => {
            if let Ok(pair) = &mut got {
                pair.0 += 10;
            }
            assert_eq!(got, Ok((10, "word")));
        } }
        select! { recv(rx) -> _ => {} }
        select! { recv(rx) -> _got => {} }
        let got = 5; // the arm's name hides it in the arm only
        select! { recv(rx) -> got => assert_eq!(got, Ok((3, "word"))) }
        assert_eq!(got, 5);
    });
}

#[test]
#[allow(clippy::never_loop)]
fn control_leaves_a_body_the_way_it_leaves_a_block() {
    fn first_even(rx: &Receiver<u32>) -> Option<u32> {
        loop {
            select! {
                recv(rx) -> got => {
                    let Ok(got) = got else { break None };
                    if got % 2 == 1 {
                        continue;
                    }
                    return Some(got);
                }
            }
        }
    }
    fn sum(rx: &Receiver<u32>) -> Result<u32, RecvError> {
        let mut sum = 0;
        for _ in 0..3 {
            sum += select! {
                recv(rx) -> got => got?,
                default(HOUR) => return Ok(0),
            };
        }
        Ok(sum)
    }
    everywhere(|| {
        let (tx, rx) = unbounded();
        for i in [1, 3, 4, 5, 6, 7, 9] {
            tx.send(i).unwrap();
        }
        assert_eq!(first_even(&rx), Some(4));
        assert_eq!(sum(&rx), Ok(18));
        drop(tx);
        assert_eq!(sum(&rx), Err(RecvError::Disconnected));
        assert_eq!(first_even(&rx), None);
        let mut rounds = 0;
        'outer: loop {
            loop {
                select! {
                    recv(rx) -> _ => break,
                    default => break 'outer,
                }
            }
            rounds += 1;
            if rounds == 3 {
                select! { default => break 'outer }
            }
        }
        assert_eq!(rounds, 3);
    });
}

#[test]
fn a_send_s_value_is_evaluated_only_if_it_is_chosen() {
    everywhere(|| {
        let evaluated = Cell::new(0);
        let value = |n| {
            evaluated.set(evaluated.get() + 1);
            n
        };
        let (full, kept) = bounded(1);
        full.send(0).unwrap();
        let (tx, rx) = unbounded();
        for n in 1..4 {
            select! {
                send(full, value(100)) -> _ => panic!("full"),
                send(tx, value(n)) -> sent => sent.unwrap(),
            }
            assert_eq!(evaluated.get(), n);
        }
        select! {
            send(full, value(100)) -> _ => panic!("full"),
            default => {}
        }
        assert_eq!(evaluated.get(), 3);
        assert_eq!((rx.len(), kept.len()), (3, 1));
    });
}

#[test]
fn a_value_that_a_send_would_move_is_still_there_in_the_other_arms() {
    everywhere(|| {
        let (full, _kept) = bounded(0);
        let (tx, rx) = unbounded();
        let text = String::from("moved");
        let text = select! {
            send(full, text) -> _ => unreachable!(),
            default => text,
        };
        // Either arm may move it: only one of them does.
        select! {
            send(full, text) -> _ => unreachable!(),
            send(tx, text) -> sent => sent.unwrap(),
        }
        assert_eq!(rx.recv().unwrap(), "moved");
    });
}

#[test]
fn the_channels_of_all_arms_are_evaluated_once_and_in_order() {
    everywhere(|| {
        let (tx, rx) = bounded(2);
        let log = Log::new();
        let seen = |name| {
            log.push(name);
        };
        select! {
            recv({ seen("first"); never::<u8>() }) -> _ => {}
            send({ seen("second"); &tx }, { seen("value"); 1 }) -> _ => seen("body"),
            recv({ seen("third"); &rx }) -> _ => panic!("empty"),
            default({ seen("timeout"); HOUR }) => panic!("timeout"),
        }
        let log = log.take();
        let mut order = log.clone();
        order.retain(|name| *name != "timeout");
        assert_eq!(order, ["first", "second", "third", "value", "body"]);
        assert_eq!(log.len(), 6);
    });
}

#[test]
fn channels_may_be_owned_borrowed_boxed_or_made_in_place() {
    struct Holder {
        rx: Receiver<u8>,
    }
    impl Deref for Holder {
        type Target = Receiver<u8>;
        fn deref(&self) -> &Receiver<u8> {
            &self.rx
        }
    }
    everywhere(|| {
        let (tx, rx) = unbounded();
        let senders: Vec<Sender<u8>> = vec![tx.clone(), tx];
        select! { send(senders[1], 1) -> _ => {} }
        select! { send(&senders[0], 2) -> _ => {} }
        select! { send(senders.first().unwrap(), 3) -> _ => {} }
        select! { send(Box::new(senders[0].clone()), 4) -> _ => {} }
        select! { recv(&rx) -> got => assert_eq!(got, Ok(1)) }
        select! { recv(&&rx) -> got => assert_eq!(got, Ok(2)) }
        select! { recv({ &rx }) -> got => assert_eq!(got, Ok(3)) }
        let holder = Holder { rx: rx.clone() };
        select! { recv(holder.rx) -> got => assert_eq!(got, Ok(4)) }
        senders[0].send(5).unwrap();
        select! { recv(holder) -> got => assert_eq!(got, Ok(5)) }
        let late = || &rx;
        select! { recv(late()) -> _ => panic!("empty"), default => {} }
    });
}

#[test]
fn selects_nest_in_bodies_values_channels_and_timeouts() {
    everywhere(|| {
        let (tx, rx) = unbounded();
        let (_other, empty) = bounded::<u8>(0);
        tx.send(1).unwrap();
        select! {
            recv(rx) -> got => {
                assert_eq!(got, Ok(1));
                select! {
                    send(tx, select! { recv(empty) -> _ => 0, default => 2 }) -> sent => {
                        sent.unwrap();
                        select! {
                            recv(select! { default => &rx }) -> got => {
                                assert_eq!(got, Ok(2));
                                select! {
                                    recv(rx) -> _ => panic!("empty"),
                                    default(select! { default => MS }) => tx.send(3).unwrap(),
                                }
                            }
                        }
                    }
                }
            }
        }
        assert_eq!(rx.try_recv(), Ok(3));
    });
}

#[test]
fn types_are_inferred_through_a_select() {
    everywhere(|| {
        let (tx, rx) = unbounded();
        select! {
            recv(rx) -> _ => {}
            default => {}
        }
        select! {
            send(tx, Vec::new()) -> _ => {}
        }
        let mut got: Vec<u8> = select! { recv(rx) -> got => got.unwrap() };
        got.push(1);
        assert_eq!(got, [1]);
    });
}

#[test]
fn a_panic_where_a_channel_is_named_comes_out_and_nothing_is_done() {
    everywhere(|| {
        fn broken<T>() -> T {
            panic_expected(3)
        }
        let (tx, rx) = unbounded();
        tx.send(1).unwrap();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            select! {
                recv(rx) -> _ => {}
                send(tx, 2) -> _ => {}
                recv(broken::<Receiver<u8>>()) -> _ => {}
            }
        }));
        assert!(is_expected(&*caught.unwrap_err(), 3));
        assert_eq!(rx.len(), 1);
    });
}

#[test]
fn a_panic_in_a_body_comes_out_after_the_operation_was_done() {
    everywhere(|| {
        let (tx, rx) = unbounded();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            select! {
                send(tx, 1) -> _ => panic_expected(4),
            }
        }));
        assert!(is_expected(&*caught.unwrap_err(), 4));
        assert_eq!(rx.try_recv(), Ok(1));
    });
}

#[test]
fn select_biased_goes_from_top_to_bottom() {
    everywhere(|| {
        let (tx1, rx1) = unbounded();
        let (tx2, rx2) = bounded(100);
        let (tx3, rx3) = unbounded();
        (0..100).for_each(|_| tx1.send(()).unwrap());
        let mut order = Vec::new();
        for i in 0..300 {
            if i == 200 {
                tx3.send(()).unwrap();
            }
            order.push(match i % 3 {
                0 => select_biased! {
                    recv(rx1) -> _ => 1,
                    send(tx2, ()) -> _ => 2,
                    recv(rx3) -> _ => 3,
                    default => 4,
                },
                1 => select_biased! {
                    recv(rx1) -> _ => 1,
                    send(tx2, ()) -> _ => 2,
                    recv(rx3) -> _ => 3,
                    default(NO_TIME) => 4,
                },
                _ => select_biased! {
                    recv(rx1) -> _ => 1,
                    send(tx2, ()) -> _ => 2,
                    recv(rx3) -> _ => 3,
                    recv(after(NO_TIME)) -> _ => 4,
                },
            });
        }
        assert!(order[..100].iter().all(|arm| *arm == 1));
        assert!(order[100..200].iter().all(|arm| *arm == 2));
        assert_eq!(order[200], 3);
        assert!(order[201..].iter().all(|arm| *arm == 4));
        assert_eq!(rx2.len(), 100);
    });
}

#[test]
fn each_arm_that_can_go_has_its_share_whatever_it_is() {
    in_fibers(|| {
        const ROUNDS: usize = 10_000;
        let (tx, rx) = unbounded();
        let (many, kept) = bounded(ROUNDS);
        for _ in 0..ROUNDS {
            tx.send(()).unwrap();
        }
        let mut counts = [0; 4];
        for _ in 0..ROUNDS {
            select! {
                recv(rx) -> _ => counts[0] += 1,
                send(many, ()) -> _ => counts[1] += 1,
                recv(after(NO_TIME)) -> _ => counts[2] += 1,
                recv(tick(Duration::ZERO)) -> _ => counts[3] += 1,
                default => panic!("default"),
            }
        }
        assert_fair(&counts);
        assert_eq!((rx.len(), kept.len()), (ROUNDS - counts[0], counts[1]));
    });
}

#[test]
fn selects_against_selects_move_every_message_once() {
    scenes(|scene| {
        for kind in KINDS {
            let (tx1, rx1) = channel(kind);
            let (tx2, rx2) = channel(kind);
            let sender = scene.left(move || {
                for i in 0..500 {
                    select! {
                        send(tx1, i) -> sent => sent.unwrap(),
                        send(tx2, i) -> sent => sent.unwrap(),
                    }
                }
                (tx1, tx2) // the end of one would be an answer too
            });
            let receiver = scene.right(move || {
                let mut got = Vec::new();
                for _ in 0..500 {
                    select! {
                        recv(rx1) -> i => got.push(i.unwrap()),
                        recv(rx2) -> i => got.push(i.unwrap()),
                    }
                }
                assert!(rx1.try_recv().is_err() && rx2.try_recv().is_err());
                got.sort_unstable();
                got
            });
            assert!(receiver.join().into_iter().eq(0..500));
            sender.join();
        }
    });
}

#[test]
fn short_timeouts_in_selects_on_both_sides_lose_no_message() {
    scenes(|scene| {
        let (tx, rx) = bounded(0);
        let sender = scene.left(move || {
            for i in 0..100 {
                if i % 10 == 0 {
                    sinew::sleep(MS).unwrap();
                }
                loop {
                    select! {
                        send(tx, i) -> sent => break sent.unwrap(),
                        default(MS / 5) => {}
                    }
                }
            }
        });
        let receiver = scene.right(move || {
            for i in 0..100 {
                if i % 15 == 0 {
                    sinew::sleep(MS).unwrap();
                }
                loop {
                    select! {
                        recv(rx) -> got => break assert_eq!(got, Ok(i)),
                        default(MS / 5) => {}
                    }
                }
            }
        });
        sender.join();
        receiver.join();
    });
}
