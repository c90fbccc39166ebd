//! Waits that are cancelled, time out and are dropped within microseconds of
//! the wake: nothing may be lost, and nothing be had twice.

#[path = "../harness/poll.rs"]
mod poll;

mod locks;

use crate::harness::{Rng, panic_expected, runtime, wait_until};
use crate::seeded;
use poll::ByHand;
use sinew::sync::{
    Barrier, Condvar, Event, Futex, Mutex, Notify, OnceLock, Sequencer, WaitGroup, promise,
};
use sinew::{Fiber, Runtime};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// One to three workers.
fn some_workers(rng: &mut Rng) -> Runtime {
    runtime(1 + rng.below(3) as usize)
}

/// A few microseconds, or none.
fn moment(rng: &mut Rng) -> Duration {
    Duration::from_micros(rng.below(40))
}

/// Passes some nanoseconds or microseconds.
fn dawdle(rng: &mut Rng) {
    match rng.below(3) {
        0 => {}
        1 => sinew::yield_now(),
        _ => (0..rng.below(600)).for_each(|_| std::hint::spin_loop()),
    }
}

/// Polls a few times and drops the future, ready or not.
fn hasty<T>(rng: &mut Rng, future: impl Future<Output = T> + Send) -> Option<T> {
    let mut future = ByHand::new(future);
    for _ in 0..=rng.below(4) {
        if let Some(value) = future.poll() {
            return Some(value);
        }
        dawdle(rng);
    }
    None
}

/// Runs `body` in many fibers and some threads, cancels some of the fibers at
/// some moment, and waits for all.
fn storm(
    rng: &mut Rng,
    runtime: &Runtime,
    fibers: usize,
    body: impl FnOnce(Rng) + Clone + Send + 'static,
) {
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (body, own) = (body.clone(), rng.split());
            std::thread::spawn(move || body(own))
        })
        .collect();
    let fibers: Vec<_> = (0..fibers)
        .map(|_| {
            let (body, own) = (body.clone(), rng.split());
            runtime.spawn(move || body(own))
        })
        .collect();
    for fiber in &fibers {
        if rng.chance(2) {
            dawdle(rng);
            fiber.cancel();
        }
    }
    for fiber in fibers {
        // Ended, or was cancelled before it began.
        if let Err(error) = fiber.join() {
            assert!(error.is_cancelled(), "{error}");
        }
    }
    for thread in threads {
        thread.join().unwrap();
    }
}

/// How a wait is ended, if by nothing else.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// Its fiber will be cancelled.
    Cancelled,
    /// It has to see to it.
    ByItself,
}

/// Waits that come and go beside those of a test, until it is over.
fn flicker(
    rng: &mut Rng,
    runtime: &Runtime,
    over: &Arc<AtomicBool>,
    wait: impl Fn(&mut Rng, Ends) + Clone + Send + 'static,
) -> Box<dyn FnOnce()> {
    // Fibers that are cancelled, one generation after the other, and threads
    // that only time out.
    let canceller = {
        let (handle, over, wait, mut rng) =
            (runtime.handle(), over.clone(), wait.clone(), rng.split());
        std::thread::spawn(move || {
            while !over.load(Ordering::SeqCst) {
                let fibers: Vec<_> = (0..4)
                    .map(|_| {
                        let (wait, mut own) = (wait.clone(), rng.split());
                        handle.spawn(move || wait(&mut own, Ends::Cancelled))
                    })
                    .collect();
                dawdle(&mut rng);
                for fiber in &fibers {
                    fiber.cancel();
                }
                for fiber in fibers {
                    let _ = fiber.join();
                }
            }
        })
    };
    let (over, mut own) = (over.clone(), rng.split());
    let thread = std::thread::spawn(move || {
        while !over.load(Ordering::SeqCst) {
            wait(&mut own, Ends::ByItself);
        }
    });
    Box::new(move || {
        canceller.join().unwrap();
        thread.join().unwrap();
    })
}

#[test]
fn every_notification_is_taken_exactly_once() {
    seeded("notify", 64, |rng| {
        const TIMES: usize = 60;
        let runtime = some_workers(rng);
        let shared = Arc::new((Notify::new(), AtomicUsize::new(0)));
        let over = Arc::new(AtomicBool::new(false));
        let theirs = shared.clone();
        let ended = flicker(rng, &runtime, &over, move |rng, ends| {
            let got = match rng.below(3) {
                0 => hasty(rng, theirs.0.wait_async()).is_some(),
                1 if ends == Ends::Cancelled => theirs.0.wait().is_ok(),
                _ => theirs.0.wait_timeout(moment(rng)).is_ok(),
            };
            theirs.1.fetch_add(usize::from(got), Ordering::SeqCst);
        });
        let (theirs, end) = (shared.clone(), over.clone());
        let patient = runtime.spawn(move || {
            while !end.load(Ordering::SeqCst) {
                theirs.0.wait().unwrap();
                theirs.1.fetch_add(1, Ordering::SeqCst);
            }
        });
        for round in 1..=TIMES {
            shared.0.notify_one();
            // Lost: this hangs.
            wait_until(|| shared.1.load(Ordering::SeqCst) >= round);
            dawdle(rng);
            assert_eq!(shared.1.load(Ordering::SeqCst), round, "taken twice");
        }
        over.store(true, Ordering::SeqCst);
        ended();
        shared.0.notify_one();
        patient.join().unwrap();
    });
}

#[test]
fn no_waiter_of_a_condition_variable_swallows_a_notification() {
    seeded("condition variable", 64, |rng| {
        const ITEMS: usize = 60;
        let runtime = some_workers(rng);
        let shared = Arc::new((Mutex::new(0_usize), Condvar::new(), AtomicUsize::new(0)));
        let over = Arc::new(AtomicBool::new(false));
        let theirs = shared.clone();
        let ended = flicker(rng, &runtime, &over, move |rng, ends| {
            let (mutex, condvar, taken) = &*theirs;
            let (mut items, notified) = match rng.below(3) {
                0 => match hasty(rng, async {
                    condvar.wait_async(mutex.lock_async().await).await
                }) {
                    Some(items) => (items, true),
                    None => return,
                },
                1 if ends == Ends::Cancelled => {
                    let (items, result) = condvar.wait_or_cancelled(mutex.lock());
                    (items, result.is_ok())
                }
                _ => {
                    let (items, result) = condvar.wait_timeout(mutex.lock(), moment(rng));
                    (items, !result.timed_out())
                }
            };
            // One that was told takes; one that gave up must leave it to others.
            if notified && *items > 0 {
                *items -= 1;
                taken.fetch_add(1, Ordering::SeqCst);
            }
        });
        let (theirs, end) = (shared.clone(), over.clone());
        let heeds = runtime.spawn(move || {
            let (mutex, condvar, taken) = &*theirs;
            while !end.load(Ordering::SeqCst) {
                let mut items = mutex.lock();
                if *items == 0 {
                    let result;
                    (items, result) = condvar.wait_or_cancelled(items);
                    result.unwrap();
                }
                if *items > 0 {
                    *items -= 1;
                    taken.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        for round in 1..=ITEMS {
            {
                let mut items = shared.0.lock();
                *items += 1;
                if rng.chance(2) {
                    shared.1.notify_one(); // who is woken has to wait for us
                    dawdle(rng);
                } else {
                    drop(items);
                    shared.1.notify_one();
                }
            }
            wait_until(|| shared.2.load(Ordering::SeqCst) >= round);
            dawdle(rng);
        }
        over.store(true, Ordering::SeqCst);
        ended();
        shared.1.notify_all();
        wait_until(|| {
            shared.1.notify_all(); // it may come to wait after the first
            heeds.is_finished()
        });
        heeds.join().unwrap();
        assert_eq!(*shared.0.lock(), 0);
    });
}

#[test]
fn the_waiter_at_the_last_token_always_wakes() {
    seeded("last token", 96, |rng| {
        let runtime = some_workers(rng);
        let shared = Arc::new((Sequencer::new(), Futex::new()));
        let rounds = 20 + rng.below(60);
        let last = 4 * rounds;
        let waiters: Vec<_> = (0..4)
            .map(|i| {
                let shared = shared.clone();
                runtime.spawn(move || match i % 2 {
                    0 => shared.0.wait(last).unwrap(),
                    _ => shared.1.wait(last).unwrap(),
                })
            })
            .collect();
        let theirs = shared.clone();
        storm(rng, &runtime, 20, move |mut rng| {
            let token = rng.below(last + 1);
            let time = moment(&mut rng);
            match rng.below(4) {
                0 => drop(theirs.0.wait_timeout(token, time)),
                1 => drop(theirs.1.wait_timeout(token, time)),
                2 => drop(hasty(&mut rng, theirs.0.wait_async(token))),
                _ => drop(hasty(&mut rng, theirs.1.wait_async(token))),
            }
        });
        let steppers: Vec<_> = (0..4)
            .map(|i| {
                let (shared, mut rng) = (shared.clone(), rng.split());
                let step = move || {
                    for _ in 0..rounds {
                        shared.0.increment();
                        shared.1.post();
                        if rng.chance(4) {
                            let (time, next) = (moment(&mut rng), shared.0.get() + 1);
                            let _ = shared.0.wait_timeout(next, time);
                            let _ = shared.1.wait_timeout(next, time);
                        }
                    }
                };
                if i == 0 {
                    Err(std::thread::spawn(step))
                } else {
                    Ok(runtime.spawn(step))
                }
            })
            .collect();
        for waiter in waiters {
            waiter.join().unwrap();
        }
        for stepper in steppers {
            match stepper {
                Ok(fiber) => fiber.join().unwrap(),
                Err(thread) => thread.join().unwrap(),
            }
        }
        assert_eq!((shared.0.get(), shared.1.get()), (last, last));
    });
}

#[test]
fn each_generation_of_a_barrier_has_as_many_as_it_should_and_one_leader() {
    seeded("barrier", 64, |rng| {
        const SIZE: usize = 3;
        let runtime = some_workers(rng);
        let shared = Arc::new((Barrier::new(SIZE), AtomicUsize::new(0), AtomicUsize::new(0)));
        let over = Arc::new(AtomicBool::new(false));
        let count = |shared: &(Barrier, AtomicUsize, AtomicUsize), leads: bool| {
            shared.1.fetch_add(1, Ordering::SeqCst);
            shared.2.fetch_add(usize::from(leads), Ordering::SeqCst);
        };
        // Enough to complete with whoever is left alone.
        let fillers: Vec<_> = (1..SIZE)
            .map(|_| {
                let (shared, over) = (shared.clone(), over.clone());
                runtime.spawn(move || {
                    while !over.load(Ordering::SeqCst) {
                        if let Ok(result) = shared.0.wait_timeout(Duration::from_micros(200)) {
                            count(&shared, result.is_leader());
                        }
                    }
                })
            })
            .collect();
        let theirs = shared.clone();
        storm(rng, &runtime, 30, move |mut rng| {
            for _ in 0..10 {
                let time = moment(&mut rng);
                let passed = match rng.below(4) {
                    0 => theirs.0.wait_or_cancelled().ok(),
                    1 => Some(theirs.0.wait()),
                    _ => theirs.0.wait_timeout(time).ok(),
                };
                if let Some(result) = passed {
                    count(&theirs, result.is_leader());
                }
            }
        });
        over.store(true, Ordering::SeqCst);
        for filler in fillers {
            filler.join().unwrap();
        }
        let passed = shared.1.load(Ordering::SeqCst);
        assert_eq!(passed % SIZE, 0, "{passed} have passed");
        assert_eq!(shared.2.load(Ordering::SeqCst), passed / SIZE);
    });
}

#[test]
fn an_event_releases_all_however_short_it_is_set() {
    seeded("event", 64, |rng| {
        let runtime = some_workers(rng);
        for _ in 0..20 {
            let event = Arc::new(Event::new());
            let waiters: Vec<_> = (0..6)
                .map(|_| {
                    let event = event.clone();
                    runtime.spawn(move || event.wait())
                })
                .collect();
            let fibers: Vec<Fiber> = waiters.iter().map(|waiter| waiter.fiber()).collect();
            wait_until(|| {
                let parked = |fiber: &Fiber| fiber.wait_reason() != sinew::WaitReason::None;
                fibers.iter().all(parked)
            });
            let cancelled = rng.below(6) as usize;
            if rng.chance(2) {
                let fiber = fibers[cancelled].clone();
                drop(runtime.spawn(move || fiber.cancel()));
            }
            dawdle(rng);
            event.set();
            event.reset();
            for (i, waiter) in waiters.into_iter().enumerate() {
                let answer = waiter.join().unwrap();
                assert!(answer.is_ok() || i == cancelled);
            }
        }
    });
}

#[test]
fn a_promised_value_is_had_once_or_comes_back() {
    seeded("promise", 64, |rng| {
        let runtime = some_workers(rng);
        for _ in 0..40 {
            let (promise, mut future) = promise::<Arc<()>>();
            let value = Arc::new(());
            let mut own = rng.split();
            let consumer = runtime.spawn(move || match own.below(4) {
                0 => future.wait().is_ok(),
                1 => hasty(&mut own, &mut future).is_some_and(|value| value.is_ok()),
                2 => {
                    drop(future);
                    false
                }
                _ => loop {
                    let time = moment(&mut own);
                    match future.wait_timeout(time) {
                        Ok(_) => break true,
                        Err(_) if sinew::is_cancelled() || own.chance(4) => break false,
                        Err(_) => {}
                    }
                },
            });
            if rng.chance(3) {
                dawdle(rng);
                consumer.cancel();
            }
            let (theirs, mut own) = (value.clone(), rng.split());
            let producer = runtime.spawn(move || {
                dawdle(&mut own);
                if own.chance(5) {
                    drop(promise);
                    Err(theirs)
                } else {
                    promise.set(theirs)
                }
            });
            let sent = producer.join().unwrap().is_ok();
            let had = consumer.join().unwrap_or(false);
            assert!(sent || !had, "had, and came back");
            assert_eq!(Arc::strong_count(&value), 1, "leaked");
        }
    });
}

#[test]
fn one_initialiser_of_many_that_fail_fills_a_lock() {
    seeded("initialisers", 96, |rng| {
        let runtime = some_workers(rng);
        let shared = Arc::new((OnceLock::new(), AtomicUsize::new(0), WaitGroup::new()));
        let waiter = {
            let shared = shared.clone();
            runtime.spawn(move || *shared.0.wait())
        };
        let theirs = shared.clone();
        storm(rng, &runtime, 20, move |mut rng| {
            let _group = theirs.2.clone();
            for _ in 0..3 {
                let time = moment(&mut rng);
                let (luck, mut own) = (rng.below(6), rng.split());
                let init = || {
                    dawdle(&mut own);
                    match luck {
                        0 => {
                            theirs.1.fetch_add(1, Ordering::SeqCst);
                            Ok(7)
                        }
                        1 | 2 => panic_expected(1),
                        _ => Err(()),
                    }
                };
                match rng.below(4) {
                    0 => drop(theirs.0.wait_timeout(time)),
                    1 => drop(hasty(&mut rng, theirs.0.wait_async())),
                    _ => drop(catch_unwind(AssertUnwindSafe(|| {
                        theirs.0.get_or_try_init(init)
                    }))),
                }
            }
        });
        assert!(shared.1.load(Ordering::SeqCst) <= 1);
        assert_eq!(*shared.0.get_or_init(|| 7), 7);
        assert_eq!(waiter.join().unwrap(), 7);
        shared.2.clone().wait_timeout(Duration::ZERO).unwrap_err();
    });
}
