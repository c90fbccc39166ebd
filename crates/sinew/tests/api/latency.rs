//! How long a fiber waits for its turn beside others that compute: counted in their
//! turns, not in time, for a loaded machine makes turns longer and not more.

use crate::harness::turns::Turns;
use crate::harness::{Gate, Log, runtime, runtime_without_spares, wait_until, watch};
use sinew::{Builder, Priority, Runtime};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// More turns than a wait may take that ends in one of them: that one, those that
/// end while the wait's own time runs, and some for ticks that come late. A worker
/// that counts switches looks around after 61, and one whose woken fibers stood behind
/// those that compute would let `EACH` of these run first.
const FEW: usize = 12;
const EACH: [usize; 2] = [3, 30];
const SAMPLES: usize = 15;

/// Runs `test` in a fiber beside so many computing fibers for each worker, on one
/// worker and on two.
fn beside_computing(test: impl Fn(&Turns) + Sync) {
    let _watch = watch();
    for workers in [1, 2] {
        for each in EACH {
            eprintln!("{workers} workers, {each} each");
            runtime(workers).run(|| {
                let turns = Turns::new();
                let _stop = turns.stop_later();
                let fibers: Vec<_> = (0..each * workers)
                    .map(|_| turns.compute(Priority::Normal))
                    .collect();
                // One that has not had its first turn is not known to compute.
                wait_until(|| turns.all_have_begun());
                test(&turns);
                turns.stop();
                for fiber in fibers {
                    fiber.join().unwrap();
                }
            });
        }
    }
}

#[test]
fn a_sleeper_among_computing_fibers_waits_for_few_turns() {
    beside_computing(|turns| {
        for sample in 0..SAMPLES {
            let here = turns.worker();
            let before = turns.on(here);
            sinew::sleep(Duration::from_millis(1)).unwrap();
            let waited = turns.on(here) - before;
            assert!(waited <= FEW, "sample {sample}: {waited} turns");
        }
    });
}

/// Turns of some milliseconds that end by themselves: the first tick that sees a worker
/// have few of them makes the next one come soon, which asks.
#[test]
fn a_sleeper_among_fibers_that_yield_after_some_milliseconds_waits_for_few_turns() {
    const OTHERS: usize = 30;
    let _watch = watch();
    runtime(1).run(|| {
        let (turns, done) = (Arc::new(AtomicUsize::new(0)), Gate::new());
        let others: Vec<_> = (0..OTHERS)
            .map(|_| {
                let (turns, done) = (turns.clone(), done.clone());
                sinew::spawn(move || {
                    while !done.is_open() {
                        let until = Instant::now() + Duration::from_millis(3);
                        while Instant::now() < until {
                            sinew::safepoint();
                        }
                        turns.fetch_add(1, Ordering::Relaxed);
                        sinew::yield_now();
                    }
                })
            })
            .collect();
        let mut waits: Vec<_> = (0..SAMPLES)
            .map(|_| {
                let before = turns.load(Ordering::Relaxed);
                sinew::sleep(Duration::from_millis(1)).unwrap();
                turns.load(Ordering::Relaxed) - before
            })
            .collect();
        done.open();
        others.into_iter().for_each(|fiber| fiber.join().unwrap());
        // In the order of yields each wait takes about `OTHERS` turns. The monitor's own
        // thread may have to wait for a CPU, hence the median.
        waits.sort_unstable();
        assert!(waits[SAMPLES / 2] <= FEW, "{waits:?}");
    });
}

#[test]
fn a_fiber_that_a_thread_unparks_among_computing_fibers_waits_for_few_turns() {
    beside_computing(|turns| {
        let (me, here) = (sinew::current(), turns.worker());
        // How often it woke, and the turns by then.
        let woken = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
        let (theirs, clock) = (woken.clone(), turns.clone());
        let thread = std::thread::spawn(move || {
            let waits = (1..=SAMPLES).map(|sample| {
                me.unpark();
                // After the wake-up, for this thread may have to wait for a CPU.
                let before = clock.on(here);
                while theirs.0.load(Ordering::Acquire) < sample {
                    std::thread::yield_now();
                }
                theirs.1.load(Ordering::Relaxed).saturating_sub(before)
            });
            waits.collect::<Vec<_>>()
        });
        for sample in 1..=SAMPLES {
            sinew::park();
            woken.1.store(turns.on(here), Ordering::Relaxed);
            woken.0.store(sample, Ordering::Release);
        }
        let waits = thread.join().unwrap();
        assert!(waits.iter().all(|turns| *turns <= FEW), "{waits:?}");
    });
}

#[test]
fn a_new_fiber_starts_before_those_that_were_preempted() {
    beside_computing(|turns| {
        for sample in 0..SAMPLES {
            // Until some are.
            sinew::sleep(Duration::from_millis(2)).unwrap();
            let (here, theirs) = (turns.worker(), turns.clone());
            let before = turns.on(here);
            let ran = sinew::spawn_local(move || theirs.on(here));
            // Not `join`, which may run it in this fiber's turn.
            wait_until(|| ran.is_finished());
            let waited = ran.join().unwrap() - before;
            assert!(waited <= 2, "sample {sample}: {waited} turns");
        }
    });
}

/// One worker; `others` fibers run `other` until the end. Returns when the computing
/// fiber has had so many turns.
fn turns_in_a_flood(wanted: usize, others: usize, other: fn()) {
    let _watch = watch();
    runtime(1).run(|| {
        let turns = Turns::new();
        let done = Gate::new();
        let flood: Vec<_> = (0..others)
            .map(|_| {
                let (turns, done) = (turns.clone(), done.clone());
                sinew::spawn(move || {
                    while !done.is_open() {
                        turns.interrupt();
                        other();
                    }
                })
            })
            .collect();
        let computing = turns.compute(Priority::Normal);
        wait_until(|| turns.on(turns.worker()) >= wanted);
        done.open();
        turns.stop();
        assert!(computing.join().unwrap() >= wanted);
        flood.into_iter().for_each(|fiber| fiber.join().unwrap());
    });
}

#[test]
fn fibers_that_yield_all_the_time_do_not_starve_one_that_computes() {
    turns_in_a_flood(10, 3, sinew::yield_now);
}

#[test]
fn fibers_that_wake_each_other_all_the_time_do_not_starve_one_that_computes() {
    let (to, from) = sinew::channel::bounded::<()>(1);
    let (back, again) = sinew::channel::bounded::<()>(1);
    let _watch = watch();
    runtime(1).run(|| {
        let turns = Turns::new();
        let theirs = turns.clone();
        let ping = sinew::spawn(move || {
            let mut rounds = 0u64;
            while to.send(()).is_ok() && again.recv().is_ok() {
                theirs.interrupt();
                rounds += 1;
            }
            rounds
        });
        let computing = turns.compute(Priority::Normal);
        let theirs = turns.clone();
        let pong = sinew::spawn(move || {
            while theirs.on(theirs.worker()) < 10 && from.recv().is_ok() {
                back.send(()).unwrap();
            }
            theirs.stop();
        });
        pong.join().unwrap();
        assert!(computing.join().unwrap() >= 10);
        assert!(ping.join().unwrap() > 0);
    });
}

#[test]
fn a_yield_comes_back_before_those_that_were_preempted_have_all_run() {
    beside_computing(|turns| {
        let here = turns.worker();
        let before = turns.on(here);
        // Without their share it would be none, and in the order of yields all of them
        // each time.
        (0..SAMPLES).for_each(|_| sinew::yield_now());
        let waited = turns.on(here) - before;
        assert!(waited <= SAMPLES, "{waited} turns in {SAMPLES} yields");
    });
}

#[test]
fn lower_priorities_have_their_turns_beside_urgent_fibers_that_compute() {
    let _watch = watch();
    for workers in [1, 2] {
        runtime(workers).run(|| {
            let turns = Turns::new();
            let _stop = turns.stop_later();
            let urgent: Vec<_> = (0..2 * workers)
                .map(|_| turns.compute(Priority::Critical))
                .collect();
            let lower: Vec<_> = [Priority::Low, Priority::Normal, Priority::High]
                .into_iter()
                .cycle()
                .take(3 * workers)
                .map(|priority| {
                    let turns = turns.clone();
                    let builder = Builder::new().priority(priority);
                    // A turn of an urgent one is a quantum: of so many the worker has
                    // made 64 switches long ago.
                    builder.spawn(move || {
                        for _ in 0..3 {
                            let here = turns.worker();
                            let before = turns.on(here);
                            turns.interrupt();
                            sinew::yield_now();
                            let waited = turns.on(here) - before;
                            assert!(waited <= 4 * FEW, "{priority:?}: {waited} turns");
                        }
                    })
                })
                .collect();
            for fiber in lower {
                // Not `join`, which would lend this fiber's priority.
                let fiber = fiber.unwrap();
                wait_until(|| fiber.is_finished());
                fiber.join().unwrap();
            }
            turns.stop();
            for fiber in urgent {
                fiber.join().unwrap();
            }
        });
    }
}

#[test]
fn a_lower_priority_that_computes_has_its_turns_beside_urgent_fibers_that_yield() {
    let _watch = watch();
    runtime(1).run(|| {
        let (turns, done) = (Turns::new(), Gate::new());
        let theirs = (turns.clone(), done.clone());
        let builder = Builder::new().priority(Priority::Critical);
        let urgent = builder.spawn(move || {
            while !theirs.1.is_open() {
                theirs.0.interrupt();
                sinew::yield_now();
            }
        });
        let computing = turns.compute(Priority::Low);
        wait_until(|| turns.on(turns.worker()) >= 5);
        done.open();
        turns.stop();
        urgent.unwrap().join().unwrap();
        computing.join().unwrap();
    });
}

#[test]
fn in_strict_order_a_preempted_fiber_keeps_its_place_in_the_order() {
    let _watch = watch();
    let builder = Runtime::builder().workers(1).strict_order(true);
    let runtime = builder.quantum(Duration::from_millis(1)).build().unwrap();
    let order = runtime.run(|| {
        let log = Log::new();
        let stop = Arc::new(AtomicBool::new(false));
        let fibers: Vec<_> = (0..3)
            .map(|me| {
                let (log, stop) = (log.clone(), stop.clone());
                sinew::spawn(move || {
                    let mut seen = usize::MAX;
                    while !stop.load(Ordering::Relaxed) {
                        if log.len() != seen {
                            log.push(me);
                            seen = log.len();
                        }
                        match me {
                            0 => sinew::yield_now(),
                            _ => sinew::safepoint(),
                        }
                    }
                })
            })
            .collect();
        while log.len() < 60 {
            sinew::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        log.take()
    });
    for (turn, me) in order[..60].iter().enumerate() {
        assert_eq!(*me, turn % 3, "turn {turn}: {order:?}");
    }
}

/// Calls `round` until it returns at least `enough` of 40: the other worker's thread may
/// have to wait for a CPU, and is taken for one that computes then. So it is enough if it
/// works once.
fn works_once(enough: usize, round: fn() -> usize) {
    let _watch = watch();
    let rounds: Vec<_> = (0..20)
        .map(|_| round())
        .take_while(|count| *count < enough)
        .collect();
    assert!(rounds.len() < 20, "of 40 each: {rounds:?}");
}

#[test]
fn a_fiber_spawned_by_one_that_computes_starts_on_another_worker() {
    works_once(20, || {
        runtime(2).run(|| {
            let here = std::thread::current().id();
            let elsewhere = (0..40).filter(|_| {
                // Until the monitor has seen that this fiber computes.
                let until = Instant::now() + Duration::from_millis(5);
                while Instant::now() < until {
                    sinew::safepoint();
                }
                let started = Arc::new(AtomicUsize::new(0));
                let theirs = started.clone();
                drop(sinew::spawn(move || {
                    let elsewhere = std::thread::current().id() != here;
                    theirs.store(1 + usize::from(elsewhere), Ordering::Relaxed);
                }));
                while started.load(Ordering::Relaxed) == 0 {
                    sinew::safepoint();
                }
                started.load(Ordering::Relaxed) == 2
            });
            elsewhere.count()
        })
    });
}

/// How many of 40 fibers that are spawned on a worker on which others compute start on the
/// other one, where fibers only yield.
fn started_elsewhere() -> usize {
    runtime_without_spares(2).run(|| {
        let here = std::thread::current().id();
        let stop = Gate::new();
        let computing: Vec<_> = (0..2)
            .map(|_| {
                let stop = stop.clone();
                sinew::spawn_local(move || {
                    while !stop.is_open() {
                        sinew::safepoint();
                    }
                })
            })
            .collect();
        // One that runs on the other worker, and keeps that busy.
        let busy = loop {
            let (stop, there) = (stop.clone(), Gate::new());
            let told = there.clone();
            let fiber = sinew::spawn(move || {
                let elsewhere = std::thread::current().id() != here;
                told.open();
                while elsewhere && !stop.is_open() {
                    sinew::yield_now();
                }
                elsewhere
            });
            wait_until(|| there.is_open());
            if !fiber.is_finished() {
                break fiber;
            }
        };
        let elsewhere = (0..40).filter(|_| {
            sinew::sleep(Duration::from_millis(1)).unwrap();
            let child = sinew::spawn(move || std::thread::current().id() != here);
            // Not `join`, which may run it here.
            wait_until(|| child.is_finished());
            child.join().unwrap()
        });
        let elsewhere = elsewhere.count();
        stop.open();
        computing
            .into_iter()
            .for_each(|fiber| fiber.join().unwrap());
        busy.join().unwrap();
        elsewhere
    })
}

#[test]
fn a_fiber_spawned_where_others_compute_starts_where_none_does_though_that_worker_is_busy() {
    works_once(30, started_elsewhere);
}
