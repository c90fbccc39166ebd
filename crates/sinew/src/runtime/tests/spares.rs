//! Spare workers: how they come, what they do when they are not needed any more, and how
//! they go.

use crate::sched::shared::Shared;
use crate::util::rng::Rng;
use crate::{Builder, IoDriver, JoinHandle, Runtime, RuntimeBuilder};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// What blocks a worker until it is opened.
#[derive(Clone, Default)]
struct Latch(Arc<(Mutex<bool>, Condvar, AtomicUsize)>);

impl Latch {
    fn pass(&self) {
        let (open, opened, arrived) = &*self.0;
        let mut is_open = open.lock().unwrap();
        arrived.fetch_add(1, Ordering::Relaxed);
        while !*is_open {
            is_open = opened.wait(is_open).unwrap();
        }
    }

    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn wait_for(&self, count: usize) {
        until(|| self.0.2.load(Ordering::Relaxed) == count);
    }
}

/// Aborts if it takes so long that it must be a hang: unwinding would wait for blocked fibers.
#[track_caller]
fn until(mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        std::thread::yield_now();
        if begun.elapsed() > Duration::from_secs(110) {
            eprintln!("it hangs at {}", std::panic::Location::caller());
            std::process::abort();
        }
    }
}

fn builder(linger: Duration) -> RuntimeBuilder {
    let mut builder = Runtime::builder().workers(2).on_hog(|_| ());
    builder.spare_linger = linger;
    builder
}

/// With each driver that there is.
fn with_drivers(test: impl Fn(RuntimeBuilder), linger: Duration) {
    for driver in [IoDriver::Epoll, IoDriver::Uring] {
        if driver == IoDriver::Uring && Runtime::builder().io_driver(driver).build().is_err() {
            eprintln!("skipped: no io_uring here");
            continue;
        }
        test(builder(linger).io_driver(driver));
    }
}

/// Blocks both workers of `runtime`.
fn block_both(runtime: &Runtime) -> (Latch, [JoinHandle<()>; 2]) {
    // A worker whose thread has not run yet would leave its fiber to a spare.
    until(|| runtime.shared().idle.all_asleep());
    let latch = Latch::default();
    let blocked = [(); 2].map(|()| {
        let latch = latch.clone();
        runtime.spawn(move || latch.pass())
    });
    latch.wait_for(2);
    (latch, blocked)
}

fn unblock(latch: &Latch, blocked: [JoinHandle<()>; 2]) {
    latch.open();
    for blocked in blocked {
        blocked.join().unwrap();
    }
}

fn thread_name() -> String {
    std::thread::current().name().unwrap().to_owned()
}

fn is_spare(name: &str) -> bool {
    name.starts_with("sinew-spare-")
}

fn on_duty(shared: &Shared) -> usize {
    let spares = shared.remotes.iter().skip(shared.workers);
    spares.filter(|remote| remote.duty.is_on()).count()
}

#[test]
fn an_unstarted_fiber_runs_on_a_spare_while_every_worker_is_blocked() {
    with_drivers(
        |builder| {
            let runtime = builder.build().unwrap();
            assert_eq!(runtime.stats().spare_threads, 0);
            let (latch, blocked) = block_both(&runtime);
            // Ends although no worker does anything: with timers, I/O and children.
            let name = runtime.spawn(|| {
                crate::sleep(Duration::from_millis(1)).unwrap();
                let (mut one, mut other) = crate::net::UnixStream::pair().unwrap();
                let writer = crate::spawn(move || other.write_all(b"hi").unwrap());
                let mut buffer = [0; 2];
                one.read_exact(&mut buffer).unwrap();
                writer.join().unwrap();
                thread_name()
            });
            let name = name.join().unwrap();
            assert!(is_spare(&name), "{name}");
            let stats = runtime.stats();
            assert!(stats.spare_threads >= 1, "{stats:?}");
            assert!(stats.workers.len() > 2, "{stats:?}");
            unblock(&latch, blocked);
        },
        Duration::from_secs(10),
    );
}

#[test]
fn a_retired_spare_takes_nothing_new_and_serves_what_it_has_started() {
    with_drivers(
        |builder| {
            let runtime = builder.build().unwrap();
            let shared = runtime.shared().clone();
            let (latch, blocked) = block_both(&runtime);
            let parked = runtime.spawn(|| {
                let begun = thread_name();
                crate::park();
                // From here on the spare is retired.
                crate::sleep(Duration::from_millis(1)).unwrap();
                let local = crate::spawn_local(thread_name).join().unwrap();
                let (mut one, mut other) = crate::net::UnixStream::pair().unwrap();
                let child = crate::spawn(move || {
                    other.write_all(b"x").unwrap();
                    thread_name()
                });
                one.read_exact(&mut [0]).unwrap();
                (begun, thread_name(), local, child.join().unwrap())
            });
            let waits = || parked.fiber().wait_reason() == crate::WaitReason::Park;
            until(waits);
            unblock(&latch, blocked);
            // On a loaded machine a worker may be taken for blocked, and the spare is called
            // back: so it is enough if none of them runs there once.
            let takes_nothing = (0..50).any(|_| {
                until(|| on_duty(&shared) == 0);
                let names: Vec<_> = (0..200).map(|_| runtime.spawn(thread_name)).collect();
                let names = names.into_iter().map(|name| name.join().unwrap());
                !names.collect::<Vec<_>>().iter().any(|name| is_spare(name))
            });
            // It has a fiber. On a loaded machine another one may have come, and goes.
            until(|| runtime.stats().spare_threads == 1);
            parked.fiber().unpark();
            let (begun, ended, local, _child) = parked.join().unwrap();
            assert!(takes_nothing);
            assert!(is_spare(&begun) && begun == ended && begun == local);
        },
        Duration::ZERO,
    );
}

#[test]
fn a_spare_ends_when_it_has_no_fibers_and_its_slot_serves_again() {
    with_drivers(
        |builder| {
            let runtime = builder.build().unwrap();
            for _ in 0..10 {
                let (latch, blocked) = block_both(&runtime);
                // A socket that is watched by the spare, and outlives it.
                let pair = runtime.spawn(|| {
                    let (mut one, mut other) = crate::net::UnixStream::pair().unwrap();
                    let reader = crate::spawn_local(move || {
                        one.read_exact(&mut [0]).unwrap();
                        one
                    });
                    crate::yield_now();
                    other.write_all(b"1").unwrap();
                    (reader.join().unwrap(), other)
                });
                let (mut one, mut other) = pair.join().unwrap();
                unblock(&latch, blocked);
                until(|| runtime.stats().spare_threads == 0);
                let later = runtime.spawn(move || {
                    other.write_all(b"2").unwrap();
                    let mut buffer = [0];
                    one.read_exact(&mut buffer).unwrap();
                    buffer
                });
                assert_eq!(&later.join().unwrap(), b"2");
            }
            let stats = runtime.stats();
            assert!(stats.workers.len() <= 4, "{stats:?}");
            until(|| runtime.stats().live == 0); // counted out after its join
        },
        Duration::ZERO,
    );
}

#[test]
fn a_spare_stays_while_a_migratable_fiber_has_its_home_there() {
    let runtime = builder(Duration::ZERO).build().unwrap();
    let shared = runtime.shared().clone();
    for _ in 0..10 {
        let (latch, blocked) = block_both(&runtime);
        let fibers = [(); 4].map(|()| {
            // SAFETY: nothing on its stack minds to be used by another thread.
            let migratable = unsafe { Builder::new().migratable() };
            let fiber = migratable.spawn_on(&runtime.handle(), crate::park);
            fiber.unwrap()
        });
        let parked =
            |fiber: &JoinHandle<()>| fiber.fiber().wait_reason() == crate::WaitReason::Park;
        until(|| fibers.iter().all(parked));
        unblock(&latch, blocked);
        until(|| on_duty(&shared) == 0);
        // Whichever slot each has its home in: it is woken there, and ends.
        for fiber in fibers {
            fiber.fiber().unpark();
            fiber.join().unwrap();
        }
        until(|| runtime.stats().spare_threads == 0);
    }
    let migrants = || {
        let homes = shared.remotes.iter();
        let each = homes.map(|remote| remote.migrants.load(Ordering::Relaxed));
        each.sum::<usize>()
    };
    until(|| migrants() == 0); // a fiber is counted out after its join
}

/// Both workers keep their fiber for many ticks, as their statistics say.
fn keep_for_many_ticks(runtime: &Runtime, blocked: bool) {
    until(|| {
        runtime.stats().workers[..2].iter().all(|worker| {
            let time = if blocked {
                worker.blocked
            } else {
                worker.longest_turn
            };
            time >= Duration::from_millis(50)
        })
    });
}

#[test]
fn no_spare_stands_in_for_workers_that_compute() {
    let runtime = builder(Duration::ZERO).build().unwrap();
    until(|| runtime.shared().idle.all_asleep());
    let (begun, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let computing = [(); 2].map(|()| {
        let (begun, stop) = (begun.clone(), stop.clone());
        runtime.spawn(move || {
            begun.fetch_add(1, Ordering::Relaxed);
            while stop.load(Ordering::Relaxed) == 0 {
                std::hint::spin_loop();
            }
        })
    });
    until(|| begun.load(Ordering::Relaxed) == 2);
    let waits = runtime.spawn(thread_name);
    keep_for_many_ticks(&runtime, false);
    let (spares, started) = (runtime.stats().spare_threads, waits.is_finished());
    stop.store(1, Ordering::Relaxed);
    assert_eq!((spares, started), (0, false));
    assert!(!is_spare(&waits.join().unwrap()));
    for fiber in computing {
        fiber.join().unwrap();
    }
}

#[test]
fn no_spare_comes_while_no_fiber_waits_to_start() {
    let runtime = builder(Duration::ZERO).build().unwrap();
    let (latch, blocked) = block_both(&runtime);
    keep_for_many_ticks(&runtime, true);
    let spares = runtime.stats().spare_threads;
    unblock(&latch, blocked);
    assert_eq!(spares, 0);
}

#[test]
fn the_thread_of_a_spare_on_which_a_fiber_is_leaked_is_kept() {
    with_drivers(
        |builder| {
            let runtime = builder.build().unwrap();
            let (latch, blocked) = block_both(&runtime);
            let (tell, told) = std::sync::mpsc::channel();
            let leaked = runtime.spawn(move || {
                tell.send(thread_name()).unwrap();
                loop {
                    crate::park();
                }
            });
            let name = told.recv().unwrap();
            assert!(is_spare(&name), "{name}");
            until(|| leaked.fiber().wait_reason() == crate::WaitReason::Park);
            unblock(&latch, blocked);
            until(|| runtime.stats().live == 1); // a fiber is counted out after its join
            let error = runtime.shutdown_timeout(Duration::ZERO).unwrap_err();
            assert_eq!((error.leaked().len(), error.kept_threads()), (1, 1));
        },
        Duration::ZERO,
    );
}

#[test]
fn there_are_no_spares_where_order_matters_or_none_are_wanted() {
    let slots = |builder: RuntimeBuilder| builder.build().unwrap().shared().remotes.len();
    assert_eq!(slots(Runtime::builder().workers(1)), 1);
    assert_eq!(slots(Runtime::builder().workers(1).spare_workers(3)), 1);
    assert_eq!(slots(Runtime::builder().workers(2).strict_order(true)), 2);
    assert_eq!(slots(Runtime::builder().workers(2).spare_workers(0)), 2);
    assert_eq!(slots(Runtime::builder().workers(2)), 4);
    assert_eq!(slots(Runtime::builder().workers(2).spare_workers(3)), 5);
    let error = Runtime::builder().workers(2).spare_workers(1025).build();
    assert_eq!(
        error.unwrap_err().to_string(),
        "spare_workers is 1025, but must be from 0 to 1024"
    );
}

/// Workers block and come back, spares come and go, and the runtime ends at any of these
/// moments, with its fibers or without.
#[test]
fn a_runtime_may_end_while_spares_come_and_go() {
    let seed = std::env::var("SINEW_SEED")
        .map_or_else(|_| std::process::id().into(), |seed| seed.parse().unwrap());
    eprintln!("SINEW_SEED={seed}");
    let mut rng = Rng::new(seed);
    for _ in 0..60 {
        let linger = Duration::from_millis(rng.below(3) as u64);
        let driver = [IoDriver::Epoll, IoDriver::Auto][rng.below(2)];
        let runtime = builder(linger).io_driver(driver).build().unwrap();
        for _ in 0..rng.below(3) {
            let count = 20 + rng.below(60);
            for index in 0..count {
                let blocks = rng.below(8) == 0;
                drop(runtime.spawn(move || {
                    if blocks {
                        std::thread::sleep(Duration::from_millis(3 + index as u64 % 5));
                    } else {
                        let _ = crate::sleep(Duration::from_micros(index as u64));
                        crate::yield_now();
                    }
                }));
            }
            std::thread::sleep(Duration::from_micros(rng.below(8000) as u64));
        }
        match rng.below(3) {
            0 => drop(runtime),
            1 => runtime.shutdown(),
            _ => {
                let patience = Duration::from_micros(rng.below(4000) as u64);
                // Fibers that still sleep may be leaked.
                let _ = runtime.shutdown_timeout(patience);
            }
        }
    }
}

/// A task that was polled on a spare waits for a socket that the spare alone watches.
#[test]
fn a_spare_stays_while_a_task_waits_for_what_it_watches() {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    struct Told(AtomicUsize);

    impl std::task::Wake for Told {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    with_drivers(
        |builder| {
            let runtime = builder.build().unwrap();
            let shared = runtime.shared().clone();
            for _ in 0..5 {
                let (latch, blocked) = block_both(&runtime);
                let (one, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
                let told = Arc::new(Told(AtomicUsize::new(0)));
                let waker = Waker::from(told.clone());
                let task = runtime.spawn(move || {
                    let fd = crate::io::Async::new(one).unwrap();
                    let mut task: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
                        fd.readable_async().await.unwrap();
                    });
                    let polled = task.as_mut().poll(&mut Context::from_waker(&waker));
                    assert_eq!(polled, Poll::Pending);
                    task
                });
                let task = task.join().unwrap();
                unblock(&latch, blocked);
                until(|| on_duty(&shared) == 0);
                other.write_all(b"x").unwrap();
                until(|| told.0.load(Ordering::Relaxed) == 1);
                drop(task);
                until(|| runtime.stats().spare_threads == 0);
            }
        },
        Duration::ZERO,
    );
}
