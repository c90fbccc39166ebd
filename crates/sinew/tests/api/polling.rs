//! Polling is harmless: a fiber that tries again and again lets others run, and only
//! where that does no harm itself.

use crate::harness::{OnDrop, is_expected, on_workers, panic_expected, watch};
use sinew::channel::{
    RecvTimeoutError, Select, TryRecvError, TrySendError, bounded, broadcast, oneshot, unbounded,
};
use sinew::sync::{Event, FairMutex, Futex, Mutex, Notify, RwLock, Semaphore, Sequencer};
use sinew::{Runtime, block_on, no_suspend, spawn_local, yield_now};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Every so many tries in vain yield.
const EVERY: usize = 64;

/// Calls `test` in a fiber of runtimes with one and two workers on which no time passes: a
/// fiber that runs for long is not asked to let others run, so turns can be counted.
fn in_fibers(test: impl Fn() + Sync) {
    let _watch = watch();
    for workers in [1, 2] {
        let builder = Runtime::builder().workers(workers).strict_order(true);
        let runtime = builder.quantum(Duration::from_secs(3600)).build();
        runtime.unwrap().run(&test);
    }
}

/// A fiber of this worker that counts its turns for as long as `code` runs.
fn turns_of_another_during(code: impl FnOnce()) -> usize {
    let turns = Rc::new(Cell::new(0));
    let over = Rc::new(Cell::new(false));
    let other = spawn_local({
        let (turns, over) = (turns.clone(), over.clone());
        move || {
            while !over.get() {
                turns.set(turns.get() + 1);
                yield_now();
            }
        }
    });
    while turns.get() == 0 {
        yield_now();
    }
    let before = turns.get();
    code();
    let during = turns.get() - before;
    over.set(true);
    other.join().unwrap();
    during
}

/// Calls `attempt`, which fails each time, and fails itself unless every 64th time another
/// fiber of the worker had a turn.
#[track_caller]
fn lets_others_run(what: &str, mut attempt: impl FnMut() -> bool) {
    let turns = turns_of_another_during(|| {
        for _ in 0..EVERY - 1 {
            assert!(!attempt(), "{what} was to fail");
        }
    });
    assert_eq!(turns, 0, "{what} yielded too soon");
    let turns = turns_of_another_during(|| {
        for _ in 0..3 * EVERY {
            assert!(!attempt(), "{what} was to fail");
        }
    });
    assert_eq!(
        turns,
        3,
        "{what}: turns of another fiber in {} tries",
        3 * EVERY
    );
}

#[test]
fn every_64th_failing_try_of_a_channel_lets_others_run() {
    in_fibers(|| {
        let (full, _receiver) = bounded(1);
        full.send(1).unwrap();
        let (_sender, empty) = unbounded::<u8>();
        let (meet, partner) = bounded::<u8>(0);
        let (gone, _) = bounded::<u8>(1);
        lets_others_run("try_send (full)", || full.try_send(2).is_ok());
        lets_others_run("try_send (rendezvous)", || meet.try_send(2).is_ok());
        lets_others_run("try_send (disconnected)", || gone.try_send(2).is_ok());
        lets_others_run("try_recv", || empty.try_recv().is_ok());
        lets_others_run("try_recv (rendezvous)", || partner.try_recv().is_ok());
        lets_others_run("try_iter", || empty.try_iter().next().is_some());
        lets_others_run("never", || sinew::channel::never::<u8>().try_recv().is_ok());
        let mut select = Select::new();
        select.recv(&empty);
        select.send(&full);
        lets_others_run("try_select", || select.try_select().is_ok());
        lets_others_run("try_ready", || select.try_ready().is_ok());
        let mut one = Select::new();
        one.recv(&empty);
        let now = std::time::Instant::now();
        let zero = Duration::ZERO;
        lets_others_run("select_timeout", || one.select_timeout(zero).is_ok());
        lets_others_run("select_deadline", || {
            one.select_deadline(now.into()).is_ok()
        });
        lets_others_run("ready_timeout", || one.ready_timeout(zero).is_ok());
        lets_others_run("ready_deadline", || one.ready_deadline(now.into()).is_ok());
        lets_others_run("select! with default", || {
            sinew::select! {
                recv(empty) -> _message => true,
                send(full, 2) -> _sent => true,
                default => false,
            }
        });
        lets_others_run("select_biased! with default", || {
            sinew::select_biased! {
                send(full, 2) -> _sent => true,
                recv(empty) -> _message => true,
                default => false,
            }
        });
    });
}

#[test]
fn every_64th_failing_try_of_the_other_channels_lets_others_run() {
    in_fibers(|| {
        let (_reply, answer) = oneshot::channel::<u8>();
        lets_others_run("oneshot", || answer.try_recv().is_ok());
        let (_news, mut reader) = broadcast::channel::<u8>(1);
        lets_others_run("broadcast", || reader.try_recv().is_ok());
    });
}

#[test]
fn every_64th_failing_try_of_a_lock_lets_others_run() {
    in_fibers(|| {
        let mutex = Mutex::new(1);
        let fair = FairMutex::new(1);
        let rwlock = RwLock::new(1);
        let semaphore = Arc::new(Semaphore::new(1));
        let (_held, _kept) = (mutex.lock(), fair.lock());
        lets_others_run("Mutex", || mutex.try_lock().is_ok());
        let owned = Arc::new(Mutex::new(1));
        let _owner = owned.clone().lock_owned();
        lets_others_run("Mutex::try_lock_owned", || {
            owned.clone().try_lock_owned().is_ok()
        });
        lets_others_run("FairMutex", || fair.try_lock().is_ok());
        let mut ticket = Some(fair.ticket());
        lets_others_run("ticket", || match ticket.take().unwrap().try_lock() {
            Ok(_) => true,
            Err(back) => {
                ticket = Some(back);
                false
            }
        });
        {
            let _written = rwlock.write();
            lets_others_run("RwLock::try_read", || rwlock.try_read().is_ok());
            lets_others_run("RwLock::try_write", || rwlock.try_write().is_ok());
        }
        lets_others_run("try_acquire_many", || semaphore.try_acquire_many(2).is_ok());
        let _permit = semaphore.acquire().unwrap();
        lets_others_run("try_acquire", || semaphore.try_acquire().is_ok());
        lets_others_run("try_acquire_owned", || {
            semaphore.clone().try_acquire_owned().is_ok()
        });
        lets_others_run("try_acquire_many_owned", || {
            semaphore.clone().try_acquire_many_owned(2).is_ok()
        });
    });
}

#[test]
fn every_64th_failing_try_of_a_signal_lets_others_run() {
    in_fibers(|| {
        let (event, notify, sequencer) = (Event::new(), Notify::new(), Sequencer::new());
        let futex = Futex::new();
        lets_others_run("Event", || event.try_wait());
        lets_others_run("Notify", || notify.try_wait());
        lets_others_run("Sequencer", || sequencer.try_wait(1));
        lets_others_run("Futex", || futex.try_wait(1).unwrap());
        let (_promise, mut future) = sinew::sync::promise::<u8>();
        lets_others_run("a promise", || future.try_take().is_some());
    });
}

#[test]
fn to_ask_again_and_again_whether_a_fiber_has_ended_lets_others_run() {
    in_fibers(|| {
        let sleeper = spawn_local(sinew::park);
        let fiber = sleeper.fiber();
        let mut sleeper = Some(sleeper);
        lets_others_run("try_join", || match sleeper.take().unwrap().try_join() {
            Ok(_) => true,
            Err(back) => {
                sleeper = Some(back);
                false
            }
        });
        fiber.unpark();
        sleeper.unwrap().join().unwrap();
        sinew::scope(|s| {
            let mut sleeper = Some(s.spawn(sinew::park));
            let fiber = sleeper.as_ref().unwrap().fiber();
            lets_others_run("ScopedJoinHandle::try_join", || {
                match sleeper.take().unwrap().try_join() {
                    Ok(_) => true,
                    Err(back) => {
                        sleeper = Some(back);
                        false
                    }
                }
            });
            fiber.unpark();
        });
    });
}

#[test]
fn to_ask_again_and_again_for_a_child_or_a_signal_lets_others_run() {
    in_fibers(|| {
        let mut child = sinew::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        lets_others_run("Child::try_wait", || child.try_wait().unwrap().is_some());
        assert!(child.wait().unwrap().success()); // which closes its input
        let kind = sinew::signal::SignalKind::user_defined2();
        let mut signals = sinew::signal::signal(kind).unwrap();
        lets_others_run("Signal::try_recv", || signals.try_recv());
    });
}

#[test]
fn tries_are_counted_from_the_last_time_the_fiber_was_resumed() {
    in_fibers(|| {
        let (_sender, empty) = unbounded::<u8>();
        let turns = turns_of_another_during(|| {
            for _ in 0..10 {
                for _ in 0..EVERY - 1 {
                    assert!(empty.try_recv().is_err());
                }
                yield_now();
            }
        });
        assert_eq!(turns, 10, "only the ten yields");
    });
}

#[test]
fn a_try_that_succeeds_does_not_count() {
    in_fibers(|| {
        let (tx, rx) = bounded(1);
        let mutex = Mutex::new(());
        let turns = turns_of_another_during(|| {
            for i in 0..10 * EVERY {
                tx.try_send(i).unwrap();
                assert_eq!(rx.try_recv(), Ok(i));
                drop(mutex.try_lock().unwrap());
            }
        });
        assert_eq!(turns, 0);
    });
}

/// 1000 tries in vain.
fn poll_in_vain() {
    let (_sender, empty) = unbounded::<u8>();
    for _ in 0..1000 {
        assert_eq!(empty.try_recv(), Err(TryRecvError::Empty));
        assert!(sinew::select! { recv(empty) -> _message => false, default => true });
    }
}

#[test]
fn where_a_fiber_may_not_suspend_no_try_yields_or_panics() {
    in_fibers(|| {
        assert_eq!(turns_of_another_during(|| no_suspend(poll_in_vain)), 0);
        let in_a_task = || block_on(async { poll_in_vain() });
        assert_eq!(turns_of_another_during(in_a_task), 0, "in a task's poll");
        let around_a_wait = || {
            block_on(async {
                poll_in_vain();
                no_suspend(|| ()); // a fiber that was resumed in a poll is still in it:
                yield_now();
                poll_in_vain();
            });
        };
        assert_eq!(turns_of_another_during(around_a_wait), 1, "the yield");
        assert!(
            turns_of_another_during(poll_in_vain) > 0,
            "and outside it yields"
        );
    });
}

#[test]
fn while_a_fiber_unwinds_no_try_yields() {
    in_fibers(|| {
        let turns = turns_of_another_during(|| {
            let unwound = catch_unwind(AssertUnwindSafe(|| {
                let _polls = OnDrop(poll_in_vain);
                panic_expected(1);
            }));
            assert!(is_expected(&*unwound.unwrap_err(), 1));
        });
        assert_eq!(turns, 0);
    });
}

#[test]
fn tries_of_the_library_do_not_count() {
    in_fibers(|| {
        let (mutex, fair, rwlock) = (Mutex::new(1), FairMutex::new(1), RwLock::new(1));
        let _guards = (mutex.lock(), fair.lock(), rwlock.write());
        let (_sender, empty) = unbounded::<u8>();
        let turns = turns_of_another_during(|| {
            for _ in 0..2 * EVERY {
                let text = format!("{mutex:?}{fair:?}{rwlock:?}");
                assert_eq!(text.matches("<locked>").count(), 3);
            }
        });
        assert_eq!(turns, 0, "to print a lock");
        // A receive without time looks; it yields by its quantum only.
        let nothing = empty.recv_timeout(Duration::ZERO);
        assert_eq!(nothing, Err(RecvTimeoutError::Timeout));
    });
}

#[test]
fn a_thread_may_poll() {
    let _watch = watch();
    poll_in_vain();
}

/// There it is no fiber any more, or not yet another: a worker ends, or a fiber has changed
/// the thread-local's value.
#[test]
fn the_destructor_of_a_thread_local_may_poll() {
    struct Polls(Arc<AtomicUsize>);
    impl Drop for Polls {
        fn drop(&mut self) {
            poll_in_vain();
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    thread_local! {
        static POLLS: RefCell<Option<Polls>> = const { RefCell::new(None) };
    }
    let _watch = watch();
    let polled = Arc::new(AtomicUsize::new(0));
    let theirs = polled.clone();
    let set = move || drop(POLLS.replace(Some(Polls(theirs.clone()))));
    let on_a_thread = std::thread::spawn({
        let set = set.clone();
        move || {
            set();
            set(); // drops the first
        }
    });
    on_a_thread.join().unwrap();
    assert_eq!(polled.load(Ordering::Relaxed), 2);
    // On a worker: dropped by a fiber, which lets others run, and at the thread's end.
    let runtime = Runtime::builder().workers(1).build().unwrap();
    runtime.run(|| {
        set();
        assert!(turns_of_another_during(&set) > 0);
    });
    drop(runtime); // waits for the thread
    assert_eq!(polled.load(Ordering::Relaxed), 4);
}

/// The body of a test waits on its worker, and its child polls there.
#[test]
fn a_fiber_that_polls_gets_the_messages_of_one_that_is_pinned_to_the_same_worker() {
    const COUNT: usize = 100;
    for capacity in [0, 1, 3] {
        in_fibers(|| {
            let (requests, asked) = bounded(0);
            let (tx, rx) = bounded(capacity);
            let child = spawn_local(move || {
                requests.send(()).unwrap(); // the parent waits for this, then is woken
                let mut got = Vec::new();
                while got.len() < COUNT {
                    got.extend(rx.try_iter());
                }
                got
            });
            asked.recv().unwrap();
            for i in 0..COUNT {
                tx.send(i).unwrap();
            }
            assert_eq!(child.join().unwrap(), (0..COUNT).collect::<Vec<_>>());
        });
    }
}

#[test]
fn fibers_that_only_try_meet_those_that_wait() {
    on_workers(|runtime| {
        runtime.run(|| {
            let (tx, rx) = bounded(0);
            let (done_tx, done_rx) = bounded::<()>(0);
            let sender = spawn_local(move || {
                for i in 0..100 {
                    let mut message = i;
                    while let Err(TrySendError::Full(back)) = tx.try_send(message) {
                        message = back;
                    }
                }
                drop(done_tx);
            });
            let poller = spawn_local(move || {
                let mut sum = 0;
                loop {
                    sinew::select! {
                        recv(rx) -> message => match message {
                            Ok(message) => sum += message,
                            Err(_) => return sum,
                        },
                        recv(done_rx) -> _done => {
                            sum += rx.iter().sum::<usize>();
                            return sum;
                        },
                        default => {}
                    }
                    // Without capacity two that try never meet: one has to wait.
                    if let Ok(message) = rx.recv_timeout(Duration::from_millis(1)) {
                        sum += message;
                    }
                }
            });
            assert_eq!(poller.join().unwrap(), (0..100).sum());
            sender.join().unwrap();
        });
    });
}

#[test]
fn to_ask_whether_fibers_have_ended_lets_nobody_run() {
    let _watch = crate::harness::watch();
    crate::harness::runtime(1).run(|| {
        let parked: Vec<_> = (0..100).map(|_| sinew::spawn(sinew::park)).collect();
        let (_value, viewer) = sinew::channel::watch::channel(1);
        let ran = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let runs = ran.clone();
        let other = sinew::spawn(move || runs.store(true, std::sync::atomic::Ordering::Relaxed));
        // A program may ask with a std lock held, which another fiber here wants.
        assert!(parked.iter().all(|fiber| !fiber.is_finished()));
        assert!(parked.iter().all(|fiber| !fiber.fiber().is_finished()));
        assert!((0..100).all(|_| !viewer.has_changed().unwrap()));
        assert!(!ran.load(std::sync::atomic::Ordering::Relaxed));
        for fiber in parked {
            fiber.fiber().unpark();
            fiber.join().unwrap();
        }
        other.join().unwrap();
    });
}
