//! Priorities and how they are lent.

use crate::harness::{Gate, Log, in_fibers, runtime, wait_until, watch};
use sinew::{Builder, JoinHandle, Priority, Runtime, WaitReason};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One worker in strict order: nothing but the priorities decides.
fn one_worker() -> Runtime {
    Runtime::builder()
        .workers(1)
        .strict_order(true)
        .build()
        .unwrap()
}

fn spawn<T: Send + 'static>(
    priority: Priority,
    f: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    Builder::new().priority(priority).spawn(f).unwrap()
}

const ALL: [Priority; 4] = [
    Priority::Low,
    Priority::Normal,
    Priority::High,
    Priority::Critical,
];

#[test]
fn more_urgent_fibers_run_first() {
    let _watch = watch();
    one_worker().run(|| {
        let log = Log::new();
        let fibers: Vec<_> = ALL
            .into_iter()
            .flat_map(|priority| [priority; 5])
            .map(|priority| {
                let log = log.clone();
                spawn(priority, move || log.push(priority))
            })
            .collect();
        for fiber in fibers {
            fiber.fiber().wait().unwrap();
        }
        // This fiber waits for a low one first, and lends it its own priority:
        // that one may come early, the others are in order.
        let mut order = log.take();
        let early = order
            .iter()
            .position(|priority| *priority == Priority::Low)
            .unwrap();
        order.remove(early);
        let mut sorted = order.clone();
        sorted.sort_by(|a, b| b.cmp(a));
        assert_eq!(order, sorted);
    });
}

#[test]
fn less_urgent_fibers_are_not_starved() {
    in_fibers(|| {
        let done = Gate::new();
        let busy: Vec<_> = (0..4)
            .map(|_| {
                let gate = done.clone();
                spawn(Priority::Critical, move || gate.pass())
            })
            .collect();
        let others: Vec<_> = [Priority::Low, Priority::Normal, Priority::High]
            .into_iter()
            .map(|priority| spawn(priority, || ()))
            .collect();
        // Not joined, which would lend them something.
        wait_until(|| others.iter().all(JoinHandle::is_finished));
        done.open();
        for fiber in busy {
            fiber.join().unwrap();
        }
    });
}

/// Two endless fibers of normal priority that count their turns.
struct Rush {
    turns: Arc<AtomicUsize>,
    stop: Gate,
}

impl Rush {
    fn start() -> Self {
        let rush = Self {
            turns: Arc::default(),
            stop: Gate::new(),
        };
        for _ in 0..2 {
            let (turns, stop) = (rush.turns.clone(), rush.stop.clone());
            drop(sinew::spawn(move || {
                while !stop.is_open() {
                    turns.fetch_add(1, Ordering::Relaxed);
                    sinew::yield_now();
                }
            }));
        }
        rush
    }

    fn turns(&self) -> usize {
        self.turns.load(Ordering::Relaxed)
    }
}

/// How often a low fiber has to be picked until it ends.
const STEPS: usize = 100;
/// Without help it is picked once in 64 turns of others: 6400 in all. With
/// help only what it takes to notice the loan.
const HELPED: usize = 1000;

fn work() {
    for _ in 0..STEPS {
        sinew::yield_now();
    }
}

#[test]
fn a_low_fiber_without_a_joiner_goes_slowly() {
    // What makes the tests below meaningful.
    let _watch = watch();
    one_worker().run(|| {
        let rush = Rush::start();
        let low = spawn(Priority::Low, work);
        wait_until(|| low.is_finished());
        rush.stop.open();
        assert!(rush.turns() > HELPED, "{}", rush.turns());
    });
}

#[test]
fn a_joiner_lends_its_priority() {
    let _watch = watch();
    for strict in [false, true] {
        let runtime = Runtime::builder()
            .workers(1)
            .strict_order(strict)
            .build()
            .unwrap();
        runtime.run(move || {
            let begun = Gate::new();
            let theirs = begun.clone();
            let low = spawn(Priority::Low, move || {
                theirs.open();
                sinew::yield_now();
                work();
            });
            begun.pass();
            let rush = Rush::start();
            spawn(Priority::High, move || low.join().unwrap())
                .join()
                .unwrap();
            rush.stop.open();
            assert!(rush.turns() < HELPED, "strict {strict}: {}", rush.turns());
        });
    }
}

#[test]
fn a_joiner_lends_its_priority_to_a_fiber_that_has_not_started() {
    let _watch = watch();
    for strict in [false, true] {
        let runtime = Runtime::builder()
            .workers(1)
            .strict_order(strict)
            .build()
            .unwrap();
        runtime.run(move || {
            let rush = Rush::start();
            let low = spawn(Priority::Low, || ());
            let before = rush.turns();
            spawn(Priority::High, move || low.join().unwrap())
                .join()
                .unwrap();
            let others = rush.turns() - before;
            rush.stop.open();
            // Unhelped it waits for its turn, one in 64.
            assert!(
                others <= 4,
                "strict {strict}: {others} turns of less urgent fibers"
            );
        });
    }
}

#[test]
fn a_loan_is_passed_along_a_chain_of_joins() {
    let _watch = watch();
    for depth in [2, 3, 4] {
        one_worker().run(move || {
            let begun = Gate::new();
            let theirs = begun.clone();
            let mut last = spawn(Priority::Low, move || {
                theirs.open();
                sinew::yield_now();
                work();
            });
            begun.pass();
            for _ in 1..depth {
                let next = last;
                let joiner = spawn(Priority::Low, move || next.join().unwrap());
                wait_until(|| joiner.fiber().wait_reason() == WaitReason::Join);
                last = joiner;
            }
            let rush = Rush::start();
            spawn(Priority::High, move || last.join().unwrap())
                .join()
                .unwrap();
            rush.stop.open();
            assert!(rush.turns() < HELPED, "depth {depth}: {}", rush.turns());
        });
    }
}

#[test]
fn a_joiner_that_gives_up_takes_its_loan_back() {
    let _watch = watch();
    one_worker().run(|| {
        let (begun, go) = (Gate::new(), Gate::new());
        let theirs = (begun.clone(), go.clone());
        let low = spawn(Priority::Low, move || {
            theirs.0.open();
            sinew::park();
            theirs.1.pass();
            work();
        });
        begun.pass();
        let low = spawn(Priority::Critical, move || {
            low.join_timeout(std::time::Duration::from_millis(1))
                .unwrap_err()
        });
        let low = low.join().unwrap();
        let rush = Rush::start();
        low.fiber().unpark();
        go.open();
        wait_until(|| low.is_finished());
        rush.stop.open();
        assert!(rush.turns() > HELPED, "it kept the loan: {}", rush.turns());
    });
}

#[test]
fn an_urgent_fiber_woken_from_outside_goes_before_ordinary_ones() {
    let _watch = watch();
    let runtime = runtime(1);
    runtime.run(|| {
        let urgent = spawn(Priority::Critical, || {
            sinew::park();
            sinew::yield_now();
        });
        wait_until(|| urgent.fiber().wait_reason() == WaitReason::Park);
        let rush = Rush::start();
        wait_until(|| rush.turns() > 10);
        let before = rush.turns();
        urgent.fiber().unpark();
        wait_until(|| urgent.is_finished());
        let others = rush.turns() - before;
        rush.stop.open();
        assert!(others <= 8, "{others} turns of ordinary fibers went first");
    });
}

/// A level's turn that finds nobody it may run yet is not taken for one that was had.
#[test]
fn a_level_with_computing_and_yielding_fibers_has_its_turns_between_a_higher_and_a_lower() {
    const TURNS: usize = 30;
    let _watch = watch();
    let runtime = runtime(1);
    let stop = Gate::new();
    let start = |priority, turn: fn()| {
        let (turns, stop) = (Arc::new(AtomicUsize::new(0)), stop.clone());
        let theirs = turns.clone();
        let fiber = Builder::new().priority(priority);
        let fiber = fiber.spawn_on(&runtime.handle(), move || {
            while !stop.is_open() {
                theirs.fetch_add(1, Ordering::Relaxed);
                turn();
            }
        });
        (turns, fiber.unwrap())
    };
    let all = [
        start(Priority::Critical, sinew::yield_now),
        start(Priority::High, sinew::safepoint),
        start(Priority::High, sinew::yield_now),
        start(Priority::Low, || {
            let begun = std::time::Instant::now();
            while begun.elapsed() < std::time::Duration::from_millis(2) {
                std::hint::spin_loop();
            }
            sinew::yield_now();
        }),
    ];
    let turns = |index: usize| all[index].0.load(Ordering::Relaxed);
    wait_until(|| turns(3) >= TURNS);
    let (computes, yields, low) = (turns(1), turns(2), turns(3));
    stop.open();
    for (_, fiber) in all {
        fiber.join().unwrap();
    }
    // The two lower levels take turns.
    assert!(
        computes > 0 && yields >= low / 4,
        "{computes}, {yields}, {low}"
    );
}
