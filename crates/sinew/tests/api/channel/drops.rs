//! Every message is dropped once, whatever its size; and what handles are.

use super::{Census, Counted, HOUR, KINDS, MS, channel, everywhere, scenes};
use crate::harness::{OnDrop, Rng, is_expected, panic_expected, watch};
use sinew::channel::{
    Receiver, RecvTimeoutError, SendTimeoutError, Sender, TrySendError, after, bounded, never,
    tick, unbounded,
};
use sinew::select;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The kinds that keep messages.
const KEEPING: [Option<usize>; 3] = [Some(3), Some(100), None];

#[test]
fn messages_that_nobody_took_are_dropped_with_the_channel() {
    everywhere(|| {
        for kind in KEEPING {
            for (sent, taken) in [(3, 0), (3, 1), (3, 3), (0, 0)] {
                for sender_first in [true, false] {
                    let census = Census::default();
                    let (tx, rx) = channel(kind);
                    (0..sent).for_each(|i| tx.send(census.make(i)).unwrap());
                    drop(rx.iter().take(taken).collect::<Vec<_>>());
                    assert_eq!(census.dropped(), taken);
                    if sender_first {
                        drop(tx);
                        drop(rx);
                    } else {
                        drop(rx);
                        drop(tx);
                    }
                    assert_eq!((census.alive(), census.dropped()), (0, sent));
                }
            }
        }
    });
}

#[test]
fn the_messages_of_an_unbounded_channel_go_with_its_last_receiver() {
    everywhere(|| {
        let census = Census::default();
        let (tx, rx) = unbounded();
        (0..100).for_each(|i| tx.send(census.make(i)).unwrap());
        let twin = rx.clone();
        drop(rx);
        assert_eq!(census.alive(), 100);
        drop(twin);
        assert_eq!(census.alive(), 0);
        assert!(tx.send(census.make(3)).is_err());
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn a_message_that_was_not_sent_comes_back_undropped() {
    everywhere(|| {
        let census = Census::default();
        let (tx, rx) = bounded(1);
        tx.send(census.make(0)).unwrap();
        let back = tx.try_send(census.make(1)).unwrap_err();
        assert!(back.is_full());
        let again = tx.send_timeout(back.into_inner(), MS).unwrap_err();
        assert!(again.is_timeout());
        let kept: Counted = again.into_inner();
        assert_eq!((kept.number, census.dropped()), (1, 0));
        assert_eq!(rx.recv().map(|message| message.number), Ok(0));
        drop(rx);
        let back = tx.send(kept).unwrap_err().into_inner();
        assert_eq!((back.number, census.alive()), (1, 1));
        let back = match tx.try_send(back).unwrap_err() {
            TrySendError::Disconnected(back) => back,
            TrySendError::Full(_) => panic!("full"),
        };
        let back = match tx.send_timeout(back, HOUR).unwrap_err() {
            SendTimeoutError::Disconnected(back) => back,
            other => panic!("{other:?}"),
        };
        drop(back);
        assert_eq!((census.alive(), census.dropped()), (0, 2));
    });
}

#[test]
fn however_sends_and_receives_and_ends_mix_each_message_is_dropped_once() {
    let seed = 7;
    println!("seed {seed}");
    scenes(|scene| {
        let mut rng = Rng::new(seed);
        for round in 0..20 {
            let kind = KINDS[round % KINDS.len()];
            let census = Census::default();
            let (tx, rx) = channel(kind);
            let senders: Vec<_> = (0..3)
                .map(|n| {
                    let (tx, census, mut rng) = (tx.clone(), census.clone(), rng.split());
                    scene.side(n, move || {
                        for i in 0..rng.below(60) as usize {
                            let message = census.make(i);
                            let _ = match rng.below(4) {
                                0 => tx.try_send(message).map_err(drop),
                                1 => tx.send_timeout(message, MS / 10).map_err(drop),
                                2 => select! {
                                    send(tx, message) -> sent => sent.map_err(drop),
                                    default(MS / 10) => { drop(message); Ok(()) }
                                },
                                _ => tx.send(message).map_err(drop),
                            };
                        }
                    })
                })
                .collect();
            let receivers: Vec<_> = (0..2)
                .map(|n| {
                    let (rx, mut rng) = (rx.clone(), rng.split());
                    scene.side(n, move || {
                        for _ in 0..rng.below(60) {
                            let _ = match rng.below(3) {
                                0 => rx.try_recv().map_err(drop),
                                1 => rx.recv_timeout(MS / 10).map_err(drop),
                                _ => select! {
                                    recv(rx) -> got => got.map_err(drop),
                                    default(MS / 10) => Err(()),
                                },
                            };
                        }
                    })
                })
                .collect();
            drop((tx, rx));
            for each in senders.into_iter().chain(receivers) {
                each.join();
            }
            assert_eq!(census.alive(), 0, "round {round}");
        }
    });
}

#[test]
fn messages_without_a_size_are_counted_and_dropped_too() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Nothing;
    impl Drop for Nothing {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::SeqCst);
        }
    }
    everywhere(|| {
        for kind in KEEPING {
            DROPPED.store(0, Ordering::SeqCst);
            let (tx, rx) = channel(kind);
            for _ in 0..3 {
                tx.send(Nothing).unwrap();
            }
            assert_eq!((tx.len(), DROPPED.load(Ordering::SeqCst)), (3, 0));
            drop(rx.recv());
            assert_eq!((rx.len(), DROPPED.load(Ordering::SeqCst)), (2, 1));
            drop((tx, rx));
            assert_eq!(DROPPED.load(Ordering::SeqCst), 3);
        }
    });
    scenes(|scene| {
        for kind in KINDS {
            let (tx, rx) = channel(kind);
            let counter = scene.left(move || rx.iter().count());
            scene
                .right(move || (0..1_000).for_each(|_| tx.send([(); 3]).unwrap()))
                .join();
            assert_eq!(counter.join(), 1_000);
        }
    });
}

#[test]
fn messages_with_a_large_alignment_keep_it() {
    #[derive(Clone, Copy, PartialEq, Debug)]
    #[repr(align(512))]
    struct Aligned(u8, usize);
    impl Aligned {
        fn check(&self, number: usize) {
            assert_eq!(*self, Aligned(number as u8, number));
            assert_eq!(std::ptr::from_ref(self).addr() % 512, 0);
        }
    }
    scenes(|scene| {
        for kind in KINDS {
            let (tx, rx) = channel(kind);
            let sender = scene.left(move || {
                for i in 0..100 {
                    if i % 2 == 0 {
                        tx.send(Aligned(i as u8, i)).unwrap();
                    } else {
                        select! { send(tx, Aligned(i as u8, i)) -> sent => sent.unwrap() }
                    }
                }
            });
            let receiver = scene.right(move || {
                for i in 0..100 {
                    if i % 3 == 0 {
                        select! { recv(rx) -> got => got.unwrap().check(i) }
                    } else {
                        rx.recv().unwrap().check(i);
                    }
                }
            });
            sender.join();
            receiver.join();
        }
    });
}

#[test]
fn a_message_that_panics_when_dropped_is_dropped_once() {
    struct Bomb(Counted);
    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.0.number == 1 && !std::thread::panicking() {
                panic_expected(1);
            }
        }
    }
    everywhere(|| {
        for kind in KEEPING {
            let census = Census::default();
            let (tx, rx) = channel(kind);
            for i in 0..3 {
                tx.send(Bomb(census.make(i))).unwrap();
            }
            let caught = catch_unwind(AssertUnwindSafe(|| drop((rx, tx))));
            assert!(is_expected(&*caught.unwrap_err(), 1));
            let dropped = census.dropped();
            assert!((2..=3).contains(&dropped), "{dropped} dropped");
        }
    });
}

#[test]
fn a_message_whose_drop_uses_its_own_channel_does_no_harm() {
    struct Last(Sender<u8>);
    impl Drop for Last {
        fn drop(&mut self) {
            let _ = self.0.try_send(9);
        }
    }
    everywhere(|| {
        // Dropped with the channel it holds a sender of the other one.
        let (news, heard) = unbounded();
        let (tx, rx) = unbounded();
        tx.send(Last(news)).unwrap();
        drop(tx);
        drop(rx);
        assert_eq!(heard.try_recv(), Ok(9));
        // Clones of its own: nobody takes it out, so it lives as long as they.
        let (tx, rx) = bounded::<Box<dyn FnOnce() + Send>>(1);
        let inner = tx.clone();
        let looping: Box<dyn FnOnce() + Send> = Box::new(move || drop(inner));
        tx.send(looping).unwrap();
        rx.recv().unwrap()();
        drop(tx);
        assert!(rx.recv().is_err());
    });
}

#[test]
fn a_receiver_dropped_with_a_message_that_holds_a_sender_of_the_same_channel_ends_it() {
    everywhere(|| {
        for kind in KEEPING {
            struct Link(#[expect(dead_code)] Option<Sender<Link>>, Counted);
            let census = Census::default();
            let (tx, rx) = channel(kind);
            tx.send(Link(Some(tx.clone()), census.make(1))).unwrap();
            tx.send(Link(None, census.make(2))).unwrap();
            drop(tx);
            assert_eq!(rx.len(), 2);
            assert_eq!(rx.try_iter().next().map(|link| link.1.number), Some(1));
            drop(rx);
            assert_eq!(census.alive(), 0);
        }
    });
}

#[test]
fn channels_work_in_the_destructors_of_a_thread_s_locals() {
    type Answers = (bool, Result<u8, RecvTimeoutError>, bool);
    struct Farewell(Receiver<u8>, Sender<Answers>);
    impl Drop for Farewell {
        // A panic here would end the process: others judge.
        fn drop(&mut self) {
            let heard = select! {
                recv(self.0) -> got => got.is_ok(),
                default(HOUR) => false,
            };
            let gone = self.0.recv_timeout(HOUR);
            let _ = self.1.send((heard, gone, after(MS).recv().is_ok()));
        }
    }
    thread_local! {
        static KEPT: RefCell<Option<Farewell>> = const { RefCell::new(None) };
    }
    let _watch = watch();
    for used_before in [false, true] {
        let (tx, rx) = bounded(0);
        let (answer, answers) = unbounded();
        let thread = std::thread::spawn(move || {
            KEPT.set(Some(Farewell(rx, answer)));
            if used_before {
                assert!(never::<u8>().recv_timeout(MS).is_err());
            }
        });
        tx.send(1).unwrap();
        drop(tx);
        let gone = Err(RecvTimeoutError::Disconnected);
        assert_eq!(answers.recv(), Ok((true, gone, true)));
        thread.join().unwrap();
    }
}

#[test]
fn handles_are_what_crossbeam_s_are() {
    fn shared<T: Send + Sync + Clone + UnwindSafe + RefUnwindSafe + std::fmt::Debug>(_: &T) {}
    fn fused(_: impl std::iter::FusedIterator) {}
    let _watch = watch();
    // A message need not be `Sync`, nor `Clone`, nor unwind-safe.
    let (tx, rx) = unbounded::<(RefCell<&mut u8>, std::cell::Cell<u8>)>();
    shared(&tx);
    shared(&rx);
    for rx in [after(HOUR), tick(HOUR), never()] {
        shared(&rx);
    }
    fused(rx.iter());
    assert!(format!("{tx:?}").starts_with("Sender"));
    assert!(format!("{rx:?}").starts_with("Receiver"));
    let (tx, _rx) = bounded::<Box<dyn Send>>(0);
    let error = tx.try_send(Box::new(1)).unwrap_err();
    // Messages need not be `Debug` to be told of.
    assert!(format!("{error:?}").contains("Full(..)"));
    assert_eq!(error.to_string(), "sending on a full channel");
}

#[test]
fn errors_say_what_crossbeam_s_say() {
    use sinew::channel::{
        ReadyTimeoutError, RecvError, Select, SelectTimeoutError, SendError, TryReadyError,
        TryRecvError, TrySelectError,
    };
    let _watch = watch();
    fn text(error: impl std::error::Error) -> String {
        error.to_string()
    }
    let gone = "receiving on an empty and disconnected channel";
    assert_eq!(text(RecvError::Disconnected), gone);
    assert_eq!(text(TryRecvError::Disconnected), gone);
    assert!(text(RecvTimeoutError::Disconnected).contains("disconnected"));
    assert_eq!(text(TryRecvError::Empty), "receiving on an empty channel");
    let gone = "sending on a disconnected channel";
    assert_eq!(text(SendError::Disconnected(1)), gone);
    assert_eq!(text(TrySendError::Disconnected(1)), gone);
    assert_eq!(text(SendTimeoutError::Disconnected(1)), gone);
    assert!(text(RecvTimeoutError::Timeout).contains("timed out"));
    assert!(text(SendTimeoutError::Timeout(1)).contains("timed out"));
    assert!(TryRecvError::Empty.is_empty() && TryRecvError::Disconnected.is_disconnected());
    assert!(RecvTimeoutError::Timeout.is_timeout());
    assert!(TrySendError::Full(1).is_full() && !TrySendError::Full(1).is_disconnected());
    let timeout: RecvTimeoutError = RecvError::Disconnected.into();
    assert_eq!(timeout, RecvTimeoutError::Disconnected);
    let timeout: SendTimeoutError<u8> = SendError::Disconnected(2).into();
    assert_eq!(timeout, SendTimeoutError::Disconnected(2));
    let rx = never::<u8>();
    let mut select = Select::new();
    select.recv(&rx);
    assert_eq!(select.try_select().err(), Some(TrySelectError));
    assert_eq!(select.select_timeout(MS).err(), Some(SelectTimeoutError));
    assert_eq!(select.try_ready(), Err(TryReadyError));
    assert_eq!(select.ready_timeout(MS), Err(ReadyTimeoutError));
}

/// Panics when it is dropped, and counts that.
#[derive(Clone)]
struct Explosive<'a>(&'a AtomicUsize);

impl Drop for Explosive<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic_expected(4);
    }
}

#[test]
fn if_the_drop_of_a_message_panics_the_rest_is_leaked() {
    everywhere(|| {
        for kind in KEEPING {
            for (before, count) in [(0, 2), (0, 3), (1, 3)] {
                let drops = AtomicUsize::new(0);
                let harmless = AtomicUsize::new(0);
                let (tx, rx) = channel(kind);
                for i in 0..count {
                    let message = (i >= before).then(|| Explosive(&drops));
                    tx.send((
                        message,
                        OnDrop(|| {
                            harmless.fetch_add(1, Ordering::SeqCst);
                        }),
                    ))
                    .unwrap_or_else(|_| panic!("there is room"));
                }
                let dropped = catch_unwind(AssertUnwindSafe(|| drop(rx)));
                assert!(is_expected(&*dropped.unwrap_err(), 4));
                assert_eq!(drops.load(Ordering::SeqCst), 1);
                assert_eq!(harmless.load(Ordering::SeqCst), before + 1);
                // The channel is as it is after any receiver went.
                assert!(tx.is_disconnected() && tx.is_empty());
                drop(tx);
                assert_eq!(drops.load(Ordering::SeqCst), 1);
            }
        }
    });
}

#[test]
fn if_the_drop_of_a_broadcast_message_panics_the_rest_is_leaked() {
    everywhere(|| {
        let drops = AtomicUsize::new(0);
        let (tx, rx) = sinew::channel::broadcast::channel(4);
        for _ in 0..3 {
            assert!(tx.send(Explosive(&drops)).is_ok());
        }
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(rx)));
        assert!(is_expected(&*dropped.unwrap_err(), 4));
        assert_eq!((drops.load(Ordering::SeqCst), tx.len()), (1, 0));
        drop(tx);
        assert_eq!(drops.load(Ordering::SeqCst), 1);
    });
}

/// A waker that panics when it is dropped.
struct ExplosiveWaker;

impl std::task::Wake for ExplosiveWaker {
    fn wake(self: std::sync::Arc<Self>) {}
}

impl Drop for ExplosiveWaker {
    fn drop(&mut self) {
        panic_expected(5);
    }
}

#[test]
fn if_waker_and_message_of_a_oneshot_panic_in_their_drops_the_message_s_panic_goes_on() {
    everywhere(|| {
        let drops = AtomicUsize::new(0);
        let (tx, mut rx) = sinew::channel::oneshot::channel();
        {
            let waker = std::task::Waker::from(std::sync::Arc::new(ExplosiveWaker));
            let waker = std::mem::ManuallyDrop::new(waker);
            let mut context = std::task::Context::from_waker(&waker);
            assert!(std::pin::Pin::new(&mut rx).poll(&mut context).is_pending());
            // What the receiver has is the last one.
            // SAFETY: not used any more; its drop is no last one.
            unsafe { drop(std::ptr::read(&*waker)) };
        }
        let sent = tx.send(Explosive(&drops));
        assert!(sent.is_ok());
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(rx)));
        assert!(is_expected(&*dropped.unwrap_err(), 4));
        assert_eq!(drops.load(Ordering::SeqCst), 1);
    });
}
