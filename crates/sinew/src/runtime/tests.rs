//! What needs a switch that users do not have: forced guards, few stacks, a
//! virtual clock, a scripted choice.

mod spares;

use crate::channel::{Select, unbounded};
use crate::sched::seam::Choice;
use crate::stack::GuardChoice;
use crate::timer::VirtualClock;
use crate::util::rng::Rng;
use crate::{GuardStats, JoinHandle, Runtime, RuntimeBuilder};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn builder(workers: usize) -> RuntimeBuilder {
    Runtime::builder().workers(workers).stack_size(64 << 10)
}

fn with_stacks(workers: usize, most: usize) -> Runtime {
    let mut builder = builder(workers);
    builder.max_stacks = Some(most);
    builder.build().unwrap()
}

/// Parks `count` fibers on stacks of `runtime`, and waits until all are parked.
fn occupy(runtime: &Runtime, count: usize) -> Vec<JoinHandle<()>> {
    let arrived = Arc::new(AtomicUsize::new(0));
    let parked: Vec<_> = (0..count)
        .map(|_| {
            let arrived = arrived.clone();
            runtime.spawn(move || {
                arrived.fetch_add(1, Ordering::Relaxed);
                crate::park();
            })
        })
        .collect();
    while arrived.load(Ordering::Relaxed) < count {
        std::thread::yield_now();
    }
    parked
}

fn release(parked: Vec<JoinHandle<()>>) {
    for fiber in parked {
        fiber.fiber().unpark();
        fiber.join().unwrap();
    }
}

#[test]
fn forced_mprotect_guards_work_and_are_reported() {
    let mut builder = builder(2);
    builder.guard = GuardChoice::ForceMprotect;
    let runtime = builder.build().unwrap();
    release(occupy(&runtime, 50));
    assert_eq!(runtime.stats().guard, GuardStats::Mprotect);
}

#[test]
fn without_stacks_fibers_wait_in_order_and_the_error_names_the_limit() {
    for workers in [1, 2] {
        let runtime = with_stacks(workers, 4);
        let parked = occupy(&runtime, 4);
        let order = Arc::new(Mutex::new(Vec::new()));
        // Spawned before the runtime knows that it has no stacks: they queue.
        let mut waiting = Vec::new();
        let error = loop {
            let (order, number) = (order.clone(), waiting.len());
            let handle = runtime.handle();
            let spawned = crate::Builder::new().spawn_on(&handle, move || {
                order.lock().unwrap().push(number);
            });
            match spawned {
                Ok(fiber) => waiting.push(fiber),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory);
        let text = error.to_string();
        assert!(text.contains("max_stacks") && text.contains('4'), "{text}");
        let refused = std::panic::catch_unwind(|| runtime.spawn(|| ()));
        assert!(refused.is_err(), "spawn panics while there are no stacks");
        assert!(!waiting.is_empty());
        assert!(waiting.iter().all(|fiber| !fiber.is_finished()));
        release(parked);
        let count = waiting.len();
        for fiber in waiting {
            fiber.join().unwrap();
        }
        let order = order.lock().unwrap();
        assert_eq!(order.len(), count);
        if workers == 1 {
            assert!(order.is_sorted(), "{order:?}");
        }
        drop(order);
        // The flag goes down once nobody waits any more.
        while runtime.shared().out_of_stacks.load(Ordering::Relaxed) != 0 {
            std::thread::yield_now();
        }
        runtime.spawn(|| ()).join().unwrap();
    }
}

#[test]
fn a_stack_freed_on_one_worker_feeds_a_fiber_that_waits_on_another() {
    for round in 0..20 {
        let runtime = with_stacks(2, 3 + round % 3);
        let parked = occupy(&runtime, 3 + round % 3);
        let waiting: Vec<_> = (0..6)
            .map_while(|_| {
                let handle = runtime.handle();
                crate::Builder::new().spawn_on(&handle, || ()).ok()
            })
            .collect();
        release(parked);
        for fiber in waiting {
            fiber.join().unwrap();
        }
    }
}

#[test]
fn a_fiber_that_never_got_a_stack_ends_with_the_runtime_and_says_so() {
    let runtime = with_stacks(1, 1);
    let stubborn = occupy(&runtime, 1).pop().unwrap();
    let flag = Arc::new(());
    let held = flag.clone();
    let starved = runtime.spawn(move || drop(held));
    while runtime.shared().out_of_stacks.load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
    // `park` returns once when cancelled; this fiber then ends and its stack
    // serves the other one: to drop its closure on, or to run it if its own
    // cancellation came a little later.
    runtime.shutdown_timeout(Duration::from_secs(60)).unwrap();
    stubborn.join().unwrap();
    if let Err(error) = starved.join() {
        assert!(error.is_cancelled(), "{error}");
    }
    assert_eq!(Arc::strong_count(&flag), 1);

    let runtime = with_stacks(1, 1);
    let endless = runtime.spawn(|| {
        loop {
            crate::park();
        }
    });
    let starved = loop {
        let starved = runtime.spawn(|| ());
        if starved.fiber().spawned_at().is_some() {
            break starved;
        }
    };
    while runtime.shared().out_of_stacks.load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
    let error = runtime
        .shutdown_timeout(Duration::from_millis(20))
        .unwrap_err();
    let leaked: Vec<_> = error.leaked().iter().map(|fiber| fiber.id).collect();
    assert!(leaked.contains(&endless.fiber().id()), "{error}");
    // Cancelled, it ended on the stack that is set aside.
    assert!(starved.join().unwrap_err().is_cancelled());
    endless.fiber().unpark(); // goes nowhere, harms nobody
}

#[test]
fn on_a_virtual_clock_sleeps_take_no_time_and_wake_in_order() {
    let clock = VirtualClock::new(1_000);
    let mut builder = builder(1);
    builder.clock = Some(Box::new(clock.clone()));
    let runtime = builder.build().unwrap();
    runtime.run(|| {
        let start = crate::time::Instant::now();
        let order = Arc::new(Mutex::new(Vec::new()));
        let sleepers: Vec<_> = [200u64, 20, 3_600_000, 90]
            .into_iter()
            .map(|millis| {
                let order = order.clone();
                crate::spawn(move || {
                    crate::sleep(Duration::from_millis(millis)).unwrap();
                    order.lock().unwrap().push(millis);
                })
            })
            .collect();
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
        assert_eq!(*order.lock().unwrap(), [20, 90, 200, 3_600_000]);
        let slept = start.elapsed();
        assert!(slept >= Duration::from_secs(3600), "{slept:?}");
        assert!(slept < Duration::from_secs(3601), "{slept:?}");
        // A closure on a pool thread holds the clock.
        let before = crate::time::Instant::now();
        let sleeper = crate::spawn(|| crate::sleep(Duration::from_secs(5)));
        crate::blocking(|| ());
        assert!(before.elapsed() < Duration::from_secs(5));
        sleeper.join().unwrap().unwrap();
    });
    assert!(clock.now_ns() > 3_600_000_000_000);
}

struct Seeded(Rng, u64);

impl Choice for Seeded {
    fn pick(&mut self, ready: usize) -> usize {
        self.0.below(ready)
    }

    fn seed(&self) -> u64 {
        self.1
    }
}

/// A runtime whose choices come from `seed`, if there is one.
fn with_seed(seed: Option<u64>) -> Runtime {
    let mut builder = builder(1).strict_order(true);
    if let Some(seed) = seed {
        builder.choice = Some(Box::new(Seeded(Rng::new(seed), seed)));
    }
    builder.build().unwrap()
}

/// A request by the clock, or a look around because of it, would make the order of fibers
/// depend on the machine.
#[test]
fn time_has_no_say_in_the_order_where_that_is_fixed() {
    let by_time = |builder: RuntimeBuilder| builder.build().unwrap().shared().settings.by_time;
    assert!(by_time(builder(1)) && by_time(builder(2)));
    assert!(!by_time(builder(1).strict_order(true)));
    let mut chosen = builder(1);
    chosen.choice = Some(Box::new(Seeded(Rng::new(1), 1)));
    assert!(!by_time(chosen));
    let mut virtual_clock = builder(1);
    virtual_clock.clock = Some(Box::new(VirtualClock::new(0)));
    assert!(!by_time(virtual_clock));
}

/// Which of two arms that are always ready a select takes.
fn arms_taken(seed: Option<u64>) -> Vec<bool> {
    with_seed(seed).run(|| {
        let (_, one) = unbounded::<u8>();
        let (_, two) = unbounded::<u8>(); // both disconnected, so always ready
        let mut select = Select::new();
        let first = select.recv(&one);
        select.recv(&two);
        (0..128).map(|_| select.ready() == first).collect()
    })
}

#[test]
fn arms_are_chosen_by_the_seed_or_else_differently_in_each_runtime() {
    assert_eq!(arms_taken(Some(1)), arms_taken(Some(1)));
    assert_ne!(arms_taken(Some(1)), arms_taken(Some(2)));
    assert_ne!(arms_taken(None), arms_taken(None));
}

fn order_with_seed(seed: u64) -> Vec<usize> {
    let runtime = with_seed(Some(seed));
    let order = Arc::new(Mutex::new(Vec::new()));
    runtime.run(|| {
        let fibers: Vec<_> = (0..8)
            .map(|number| {
                let order = order.clone();
                crate::spawn(move || {
                    for _ in 0..5 {
                        order.lock().unwrap().push(number);
                        crate::yield_now();
                    }
                })
            })
            .collect();
        for fiber in fibers {
            fiber.join().unwrap();
        }
    });
    let order = order.lock().unwrap();
    order.clone()
}

#[test]
fn a_seeded_choice_repeats_its_order_and_another_seed_gives_another() {
    let first = order_with_seed(1);
    assert_eq!(first.len(), 40);
    assert_eq!(first, order_with_seed(1));
    assert_ne!(first, order_with_seed(2));
}

#[test]
fn a_scripted_runtime_has_one_worker() {
    let mut builder = builder(2);
    builder.clock = Some(Box::new(VirtualClock::new(0)));
    let error = builder.build().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}

#[test]
fn on_a_virtual_clock_the_end_of_a_pool_job_lets_time_go_on() {
    for _ in 0..50 {
        let mut builder = builder(1);
        builder.clock = Some(Box::new(VirtualClock::new(0)));
        let runtime = builder.build().unwrap();
        runtime.run(|| {
            crate::blocking(|| ());
            crate::sleep(Duration::from_secs(3600)).unwrap();
            drop(crate::spawn_blocking(std::thread::yield_now));
            crate::sleep(Duration::from_secs(3600)).unwrap();
        });
    }
}

#[test]
fn a_closure_that_is_refused_may_end_the_runtime_when_it_is_dropped() {
    let runtime = with_stacks(1, 1);
    let parked = occupy(&runtime, 1);
    let handle = runtime.handle();
    let starved = runtime.spawn(|| ());
    while runtime.shared().out_of_stacks.load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
    struct Ends(Option<Runtime>, Arc<AtomicUsize>);
    impl Drop for Ends {
        fn drop(&mut self) {
            self.1.store(1, Ordering::Relaxed);
            drop(self.0.take());
        }
    }
    let begun = Arc::new(AtomicUsize::new(0));
    let ends = Ends(Some(runtime), begun.clone());
    let refused = std::thread::spawn(move || {
        let spawned = crate::Builder::new().spawn_on(&handle, move || drop(ends));
        spawned.is_err()
    });
    while begun.load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
    release(parked);
    assert!(refused.join().unwrap());
    starved.join().unwrap();
}

/// No small stack is to be had, so there is only the one that is set aside: a drop that waits
/// there keeps the next one waiting.
#[test]
fn closures_that_are_dropped_unrun_take_turns_on_the_stack_set_aside() {
    struct Waits {
        open: Arc<AtomicBool>,
        at_once: Arc<AtomicUsize>,
        spawner: std::thread::ThreadId,
    }
    impl Drop for Waits {
        fn drop(&mut self) {
            // A spawn that is refused, since the runtime knows already that there is no
            // stack, drops its closure on the thread that called it.
            if std::thread::current().id() == self.spawner {
                return;
            }
            let now = self.at_once.fetch_add(1, Ordering::Relaxed);
            assert_eq!(now, 0, "one at a time");
            while !self.open.load(Ordering::Relaxed) {
                crate::yield_now();
            }
            self.at_once.fetch_sub(1, Ordering::Relaxed);
        }
    }
    for workers in [1, 2] {
        let runtime = with_stacks(workers, 1);
        let parked = occupy(&runtime, 1);
        let open = Arc::new(AtomicBool::new(false));
        let at_once = Arc::new(AtomicUsize::new(0));
        let fibers: Vec<_> = (0..6)
            .map_while(|_| {
                let waits = Waits {
                    open: open.clone(),
                    at_once: at_once.clone(),
                    spawner: std::thread::current().id(),
                };
                let waiting = crate::Builder::new();
                let spawned = waiting.spawn_on(&runtime.handle(), move || drop(waits));
                spawned.ok()
            })
            .collect();
        fibers.iter().for_each(|fiber| fiber.cancel());
        while at_once.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        assert!(fibers.iter().all(|fiber| !fiber.is_finished()));
        open.store(true, Ordering::Relaxed);
        for fiber in fibers {
            assert!(fiber.join().is_err());
        }
        release(parked);
    }
}

#[test]
fn a_scope_does_not_wait_for_a_child_that_was_refused_and_panicked_when_dropped() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("dropped"));
        }
    }
    for workers in [1, 2] {
        let runtime = with_stacks(workers, 1);
        let caught = runtime.run(|| {
            let starved = crate::spawn(|| ());
            while crate::Builder::new()
                .spawn(|| ())
                .map(|other| other.cancel())
                .is_ok()
            {
                crate::yield_now();
            }
            let caught = std::panic::catch_unwind(|| {
                crate::scope(|s| {
                    let panics = Panics;
                    s.spawn(move || drop(panics));
                });
            });
            starved.cancel();
            caught
        });
        assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"dropped"));
    }
}

/// Fibers of several sizes that find few stacks, cancelled at random, alone and in scopes:
/// each ends, and each closure is gone.
#[test]
fn of_many_fibers_that_wait_for_few_stacks_each_ends() {
    let seed = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(1, |time| time.as_nanos() as u64);
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    for round in 0..60 {
        let runtime = with_stacks(1 + round % 2, 1 + rng.below(4));
        let alive = Arc::new(());
        let sized = |rng: &mut Rng| {
            let size = [16 << 10, 64 << 10, 256 << 10][rng.below(3)];
            crate::Builder::new().stack_size(size)
        };
        let mut fibers = Vec::new();
        for _ in 0..40 {
            let (kept, builder) = (alive.clone(), sized(&mut rng));
            let (children, turns) = (rng.below(4), rng.below(5));
            let children: Vec<_> = (0..children).map(|_| sized(&mut rng)).collect();
            let spawned = builder.spawn_on(&runtime.handle(), move || {
                crate::scope(|s| {
                    // Without it they could wait for our own stack.
                    s.cancel_on_exit();
                    for child in children {
                        let kept = &kept;
                        let _refused = child.spawn_scoped(s, move || drop(kept.clone()));
                    }
                    (0..turns).for_each(|_| crate::yield_now());
                });
            });
            let Ok(fiber) = spawned else {
                continue; // refused: its class has none now
            };
            if rng.below(3) == 0 {
                fiber.cancel();
            }
            fibers.push(fiber);
            if rng.below(4) == 0 {
                let index = rng.below(fibers.len());
                fibers[index].cancel();
            }
        }
        let shut_down = rng.below(3) == 0;
        if shut_down {
            runtime.shutdown();
        }
        for fiber in fibers {
            if let Err(error) = fiber.join() {
                assert!(error.is_cancelled() || error.is_no_stack(), "{error}");
            }
        }
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}

/// The monitor's request may come when the fiber that it was meant for has just left.
#[test]
fn a_request_to_leave_that_was_meant_for_the_turn_before_interrupts_nobody() {
    use crate::sched::current;
    use crate::worker::urgency;

    // In strict order the monitor asks only for the quantum's sake, and so never here.
    let builder = Runtime::builder().workers(1).strict_order(true);
    let runtime = builder.quantum(Duration::from_secs(3600)).build().unwrap();
    runtime.run(|| {
        let ran = Arc::new(AtomicUsize::new(0));
        let theirs = ran.clone();
        let other = crate::spawn(move || theirs.store(1, Ordering::Relaxed));
        let ask = |turns_ago| {
            // SAFETY: a fiber runs here, so this thread has a live core; the borrow ends
            // before the fiber leaves its stack.
            let remote = unsafe { &*current::core() }.remote();
            let turn = remote.counters.switches.load(Ordering::Relaxed);
            urgency::ask(remote, turn - turns_ago, true);
        };
        ask(1);
        crate::safepoint();
        assert_eq!(ran.load(Ordering::Relaxed), 0);
        ask(0);
        crate::safepoint();
        assert_eq!(ran.load(Ordering::Relaxed), 1);
        other.join().unwrap();
    });
}
