//! Cancelled fibers at channels and selects: nothing is lost.

use super::{Census, HOUR, KINDS, MS, NO_TIME, channel};
use crate::harness::{Gate, in_fibers, on_workers, runtime, wait_until, watch};
use sinew::channel::{
    RecvError, RecvTimeoutError, Select, SendError, SendTimeoutError, TryRecvError, TrySendError,
    after, at, bounded, never, tick, unbounded,
};
use sinew::time::Instant;
use sinew::{Cancelled, JoinHandle, Runtime, WaitReason, select, select_biased};

/// Runs `f` on a fiber that is cancelled already.
fn cancelled<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let fiber = sinew::spawn(|| {
        sinew::current().cancel();
        f()
    });
    fiber.join().unwrap()
}

/// Starts `f`, and cancels it once it waits.
fn cancel_waiting<T: Send + 'static>(
    runtime: &Runtime,
    f: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let fiber = runtime.spawn(f);
    wait_until(|| fiber.fiber().wait_reason() != WaitReason::None);
    assert!(!fiber.is_finished());
    fiber.cancel();
    fiber
}

#[test]
fn a_cancelled_fiber_does_not_receive_even_what_is_there() {
    in_fibers(|| {
        for kind in [Some(4), None] {
            let (tx, rx) = channel(kind);
            (0..3).for_each(|i| tx.send(i).unwrap());
            let theirs = rx.clone();
            cancelled(move || {
                for _ in 0..3 {
                    assert_eq!(theirs.recv(), Err(RecvError::Cancelled));
                    let answer = theirs.recv_timeout(HOUR);
                    assert_eq!(answer, Err(RecvTimeoutError::Cancelled));
                    let answer = theirs.recv_deadline(Instant::now());
                    assert_eq!(answer, Err(RecvTimeoutError::Cancelled));
                    assert_eq!(theirs.iter().next(), None);
                }
                // What never waits is no point.
                assert_eq!(theirs.try_recv(), Ok(0));
                assert_eq!(theirs.try_iter().next(), Some(1));
            });
            assert_eq!(rx.try_iter().collect::<Vec<_>>(), [2]);
        }
    });
}

#[test]
fn a_cancelled_fiber_does_not_send_even_where_there_is_room() {
    in_fibers(|| {
        for kind in [Some(4), None] {
            let (tx, rx) = channel(kind);
            cancelled(move || {
                for _ in 0..3 {
                    assert_eq!(tx.send(1), Err(SendError::Cancelled(1)));
                    let back = tx.send_timeout(2, HOUR);
                    assert_eq!(back, Err(SendTimeoutError::Cancelled(2)));
                    let back = tx.send_deadline(3, Instant::now());
                    assert_eq!(back, Err(SendTimeoutError::Cancelled(3)));
                }
                assert_eq!(tx.try_send(4), Ok(()));
            });
            assert_eq!(rx.iter().collect::<Vec<_>>(), [4]);
        }
    });
}

#[test]
fn a_cancelled_fiber_is_told_so_rather_than_of_a_disconnection() {
    in_fibers(|| {
        for kind in KINDS {
            let (tx, rx) = channel::<u8>(kind);
            drop(tx);
            assert_eq!(cancelled(move || rx.recv()), Err(RecvError::Cancelled));
            let (tx, rx) = channel::<u8>(kind);
            drop(rx);
            let back = Err(SendError::Cancelled(1));
            assert_eq!(cancelled(move || tx.send(1)), back);
        }
        assert!(RecvError::Cancelled.is_cancelled());
        assert!(!RecvError::Cancelled.is_disconnected());
        assert!(SendError::Cancelled(1).is_cancelled());
        assert_eq!(SendError::Cancelled(1).into_inner(), 1);
        assert!(RecvTimeoutError::Cancelled.is_cancelled());
        assert!(SendTimeoutError::Cancelled(1).is_cancelled());
        assert_eq!(SendTimeoutError::Cancelled(1).into_inner(), 1);
        let timeout: RecvTimeoutError = RecvError::Cancelled.into();
        assert_eq!(timeout, RecvTimeoutError::Cancelled);
        let timeout: SendTimeoutError<u8> = SendError::Cancelled(2).into();
        assert_eq!(timeout, SendTimeoutError::Cancelled(2));
    });
}

#[test]
fn timers_are_points_as_well() {
    on_workers(|runtime| {
        for rx in [after(NO_TIME), tick(NO_TIME), at(Instant::now()), never()] {
            let answer = runtime.run(|| cancelled(move || rx.recv()));
            assert_eq!(answer, Err(RecvError::Cancelled));
        }
        for rx in [after(HOUR), tick(HOUR), never()] {
            let fiber = cancel_waiting(runtime, move || rx.recv());
            assert_eq!(fiber.join().unwrap(), Err(RecvError::Cancelled));
        }
        wait_until(|| runtime.stats().timers == 0);
    });
}

#[test]
fn a_receiver_cancelled_while_it_waits_leaves_the_next_message_to_others() {
    on_workers(|runtime| {
        for kind in KINDS {
            let (tx, rx) = channel(kind);
            let theirs = rx.clone();
            let first = cancel_waiting(runtime, move || theirs.recv());
            assert_eq!(first.join().unwrap(), Err(RecvError::Cancelled));
            let theirs = rx.clone();
            let second = cancel_waiting(runtime, move || theirs.recv_timeout(HOUR));
            let answer = second.join().unwrap();
            assert_eq!(answer, Err(RecvTimeoutError::Cancelled));
            assert_eq!(tx.try_send(1).is_ok(), kind != Some(0));
            let sender = runtime.spawn(move || tx.send(2));
            let want: &[i32] = if kind == Some(0) { &[2] } else { &[1, 2] };
            assert_eq!(rx.iter().collect::<Vec<_>>(), want);
            sender.join().unwrap().unwrap();
        }
    });
}

#[test]
fn a_sender_cancelled_while_it_waits_has_its_value_back() {
    on_workers(|runtime| {
        for capacity in [0, 1] {
            let census = Census::default();
            let (tx, rx) = bounded(capacity);
            (0..capacity).for_each(|i| tx.send(census.make(i)).unwrap());
            let (theirs, message) = (tx.clone(), census.make(7));
            let first = cancel_waiting(runtime, move || theirs.send(message));
            let back = first.join().unwrap().unwrap_err();
            assert!(back.is_cancelled());
            let (theirs, message) = (tx.clone(), back.into_inner());
            let second = cancel_waiting(runtime, move || theirs.send_timeout(message, HOUR));
            let back = second.join().unwrap().unwrap_err();
            assert!(back.is_cancelled());
            assert_eq!(back.into_inner().number, 7);
            assert_eq!(rx.try_iter().count(), capacity);
            assert_eq!((census.alive(), census.dropped()), (0, capacity + 1));
            // The place in the line was given up.
            assert_eq!(tx.try_send(census.make(8)).is_ok(), capacity == 1);
        }
    });
}

#[test]
fn of_a_message_and_a_cancel_at_the_same_time_the_message_is_kept() {
    on_workers(|runtime| {
        for round in 0..200 {
            let (tx, rx) = channel(KINDS[round % 4]);
            let theirs = rx.clone();
            let receiver = runtime.spawn(move || theirs.recv());
            if round % 3 != 0 {
                wait_until(|| receiver.fiber().wait_reason() == WaitReason::Recv);
            }
            let sender = std::thread::spawn(move || tx.send(round));
            (0..round % 50).for_each(|_| std::thread::yield_now());
            receiver.cancel();
            match receiver.join() {
                Ok(Ok(got)) => assert_eq!(got, round),
                Ok(Err(error)) => {
                    assert_eq!(error, RecvError::Cancelled);
                    assert_eq!(rx.recv(), Ok(round));
                }
                // It had not begun yet.
                Err(error) => {
                    assert!(error.is_cancelled());
                    assert_eq!(rx.recv(), Ok(round));
                }
            }
            sender.join().unwrap().unwrap();
            assert_eq!(rx.recv(), Err(RecvError::Disconnected));
        }
    });
}

#[test]
fn of_room_and_a_cancel_at_the_same_time_a_value_is_sent_or_comes_back() {
    on_workers(|runtime| {
        for round in 0..200 {
            let capacity = round % 2;
            let (tx, rx) = bounded(capacity);
            (0..capacity).for_each(|_| tx.send(1_000).unwrap());
            let theirs = tx.clone();
            let sender = runtime.spawn(move || theirs.send(round));
            wait_until(|| sender.fiber().wait_reason() == WaitReason::Send);
            let theirs = rx.clone(); // ours keeps the channel connected
            let receiver = std::thread::spawn(move || {
                let got = theirs.recv_timeout(2 * MS).ok();
                (got, theirs.try_iter().collect::<Vec<_>>())
            });
            (0..round % 50).for_each(|_| std::thread::yield_now());
            sender.cancel();
            let sent = sender.join().unwrap();
            let (first, rest) = receiver.join().unwrap();
            let got = first.into_iter().chain(rest).chain(rx.try_iter());
            let got = got.filter(|got| *got == round).count();
            match sent {
                Ok(()) => assert_eq!(got, 1),
                Err(error) => {
                    assert_eq!(error, SendError::Cancelled(round));
                    assert_eq!(got, 0);
                }
            }
        }
    });
}

#[test]
fn an_iteration_ends_when_its_fiber_is_cancelled() {
    on_workers(|runtime| {
        let (tx, rx) = unbounded();
        tx.send(1).unwrap();
        let theirs = rx.clone();
        let fiber = cancel_waiting(runtime, move || (&theirs).into_iter().collect::<Vec<_>>());
        assert_eq!(fiber.join().unwrap(), [1]);
        tx.send(2).unwrap();
        let fiber = cancel_waiting(runtime, move || {
            sinew::park(); // ended by the cancel
            rx.into_iter().collect::<Vec<_>>()
        });
        assert_eq!(fiber.join().unwrap(), []);
    });
}

#[test]
fn the_first_channel_arm_of_a_cancelled_select_is_told() {
    in_fibers(|| {
        let (tx, rx) = unbounded();
        tx.send(1).unwrap();
        let (ours, theirs) = (rx.clone(), tx.clone());
        let told = cancelled(move || {
            let first = select! {
                recv(ours) -> got => got.err(),
                send(theirs, 2) -> _ => panic!("not the first"),
            };
            let second = select_biased! {
                send(theirs, 3) -> sent => sent.err(),
                recv(ours) -> _ => panic!("not the first"),
                default(HOUR) => panic!("timeout"),
            };
            (first, second)
        });
        let send = Some(SendError::Cancelled(3));
        assert_eq!(told, (Some(RecvError::Cancelled), send));
        // With a default too; alone it needs no wait, and is no point.
        let ours = rx.clone();
        let told = cancelled(move || {
            let first = select! {
                recv(ours) -> got => got.err(),
                default => None,
            };
            (first, select! { default => "default" })
        });
        assert_eq!(told, (Some(RecvError::Cancelled), "default"));
        assert_eq!(rx.try_iter().collect::<Vec<_>>(), [1]);
    });
}

#[test]
fn a_cancelled_arm_is_taken_by_the_cancelled_only() {
    on_workers(|runtime| {
        let (tx, rx) = unbounded();
        tx.send(1).unwrap();
        let theirs = rx.clone();
        let ready = runtime.run(|| {
            cancelled(move || {
                select! {
                    recv(theirs) -> _ => panic!("cancelled comes first"),
                    cancelled => true,
                }
            })
        });
        assert!(ready);
        let got = select! {
            recv(rx) -> got => got,
            cancelled => panic!("nobody was cancelled"),
        };
        assert_eq!(got, Ok(1));
        for with_timeout in [true, false] {
            let theirs = rx.clone();
            let fiber = cancel_waiting(runtime, move || {
                if with_timeout {
                    select! {
                        cancelled => "cancelled",
                        recv(theirs) -> _ => "received",
                        default(HOUR) => "late",
                    }
                } else {
                    select_biased! {
                        recv(theirs) -> _ => "received",
                        cancelled => "cancelled",
                    }
                }
            });
            assert_eq!(fiber.join().unwrap(), "cancelled");
        }
        tx.send(2).unwrap();
        assert_eq!(rx.try_recv(), Ok(2));
    });
}

#[test]
fn a_select_cancelled_while_it_waits_has_no_effect() {
    on_workers(|runtime| {
        let (tx, rx) = bounded(0);
        let (full, kept) = bounded(1);
        full.send(String::from("kept")).unwrap();
        let (theirs, ours) = (tx.clone(), rx.clone());
        let fiber = cancel_waiting(runtime, move || {
            let text = String::from("mine");
            select! {
                send(full, text) -> sent => sent.unwrap_err().into_inner(),
                send(theirs, 1) -> _ => panic!("not the first"),
                recv(ours) -> _ => panic!("not the first"),
            }
        });
        assert_eq!(fiber.join().unwrap(), "mine");
        assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
        assert_eq!(tx.try_send(2), Err(TrySendError::Full(2)));
        assert!(kept.iter().eq(["kept"]));
    });
}

#[test]
fn a_dynamic_select_of_a_cancelled_fiber_chooses_its_first_which_says_so() {
    on_workers(|runtime| {
        let (tx, rx) = unbounded::<u8>();
        tx.send(1).unwrap();
        let (ours, theirs) = (rx.clone(), tx.clone());
        runtime.run(|| {
            cancelled(move || {
                let mut select = Select::new();
                select.recv(&ours);
                select.send(&theirs);
                for _ in 0..5 {
                    let operation = select.select();
                    assert_eq!(operation.index(), 0);
                    assert_eq!(operation.recv(&ours), Err(RecvError::Cancelled));
                    let operation = select.select_timeout(HOUR).unwrap();
                    assert_eq!(operation.index(), 0);
                    assert_eq!(operation.recv(&ours), Err(RecvError::Cancelled));
                }
                select.remove(0);
                let operation = select.select();
                assert_eq!(operation.index(), 1);
                let back = operation.send(&theirs, 2);
                assert_eq!(back, Err(SendError::Cancelled(2)));
            });
        });
        assert_eq!(rx.try_iter().collect::<Vec<_>>(), [1]);
        let theirs = rx.clone();
        let fiber = cancel_waiting(runtime, move || {
            let mut select = Select::new();
            select.recv(&theirs);
            select.select().recv(&theirs)
        });
        assert_eq!(fiber.join().unwrap(), Err(RecvError::Cancelled));
        tx.send(3).unwrap();
        assert_eq!(rx.try_recv(), Ok(3));
    });
}

#[test]
fn a_fiber_that_waits_until_ready_is_let_go_by_a_cancel() {
    on_workers(|runtime| {
        let rx = never::<u8>();
        let fiber = cancel_waiting(runtime, move || {
            let mut select = Select::new();
            select.recv(&rx);
            let index = select.ready();
            (index, rx.recv())
        });
        let (index, answer) = fiber.join().unwrap();
        assert_eq!((index, answer), (0, Err(RecvError::Cancelled)));
    });
}

#[test]
fn partners_of_a_cancelled_select_go_on_with_others() {
    on_workers(|runtime| {
        let (tx, rx) = bounded(0);
        for round in 0..20 {
            let theirs = rx.clone();
            let selecting = runtime.spawn(move || {
                select! {
                    recv(theirs) -> got => got.ok(),
                    cancelled => None,
                }
            });
            wait_until(|| selecting.fiber().wait_reason() != WaitReason::None);
            let theirs = tx.clone();
            let sender = runtime.spawn(move || theirs.send(round));
            selecting.cancel();
            if let Some(got) = selecting.join().unwrap() {
                assert_eq!(got, round);
            } else {
                assert_eq!(rx.recv(), Ok(round));
            }
            sender.join().unwrap().unwrap();
        }
    });
}

#[test]
fn a_loop_that_ignores_the_answer_freezes_nobody() {
    let _watch = watch();
    // One worker: if the answers did not yield, the other would never run.
    runtime(1).run(|| {
        let stop = Gate::new();
        let gate = stop.clone();
        let deaf = sinew::spawn(move || {
            let (tx, rx) = unbounded();
            sinew::current().cancel();
            while !gate.is_open() {
                let _ = tx.send(1);
                let _ = rx.recv();
                select! {
                    recv(rx) -> _ => {}
                }
            }
        });
        let gate = stop.clone();
        sinew::spawn(move || gate.open());
        deaf.join().unwrap();
    });
}

#[test]
fn async_twins_and_ends_of_channels_are_no_points() {
    in_fibers(|| {
        let (tx, rx) = bounded(1);
        cancelled(move || {
            sinew::block_on(async {
                tx.send_async(1).await.unwrap();
                assert_eq!(rx.recv_async().await, Ok(1));
            });
            assert_eq!(sinew::check_cancelled(), Err(Cancelled));
            assert!(tx.close());
        });
    });
}
