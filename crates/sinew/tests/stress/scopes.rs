//! Random trees of scopes, limits, shields, tokens, cleanups, panics and cancels.
//!
//! Each tree knows what it has asked for ([`model`]), so every answer of a point, of a
//! limit and of a scope is judged; and at its end nothing may be left: no child, no
//! waiter, no permit, no message, no cleanup that has not run, no stack.

mod doomed;
mod life;
mod model;
mod steps;
mod world;

use crate::harness::{Expected, Rng, runtime, wait_until};
use crate::seeded;
use model::{Frame, Request};
use sinew::{Handle, RuntimeStats};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, Once};
use steps::{Budget, steps};
use world::{Tally, Target, What, World};

/// How many trees there are in a round, and how many rounds: see `seeded`. 102 000 in all
/// three tests; with sanitizers a round takes ten times as long.
const TREES: u64 = 2000;
const ROUNDS: u64 = if cfg!(feature = "sanitizer") { 3 } else { 17 };

/// How many trees grow at the same time.
const LANES: u64 = 6;

/// What all trees of a test report to.
#[derive(Default)]
struct Report {
    tally: Tally,
    failures: Mutex<Vec<String>>,
}

/// One tree; its root is a fiber or thread of the caller's, which `request` is for.
fn tree(report: &Report, mut rng: Rng, request: Arc<Request>, can_be_cancelled: bool) {
    let seed = rng.next();
    let world = World::new(seed, &report.tally, &report.failures);
    let root = Frame::first(request.clone());
    if can_be_cancelled {
        world.can_be_cancelled(&request, Target::Fiber(sinew::current()));
    }
    let nodes = match rng.below(50) {
        0 => 60,
        1..=5 => 12 + rng.below(12),
        _ => 1 + rng.below(11),
    };
    let mut budget = Budget { nodes, depth: 6 };
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        while budget.nodes > 0 {
            steps(&world, &root, &mut rng, &mut budget);
            budget.nodes = budget.nodes.saturating_sub(1);
        }
    }));
    world.judge_end();
    report.tally.add(What::Tree);
    if let Err(payload) = outcome {
        let known = payload.is::<Expected>() || is_of_a_scope(&*payload);
        if !known {
            resume_unwind(payload);
        }
    }
}

fn is_of_a_scope(payload: &(dyn std::any::Any + Send)) -> bool {
    payload.downcast_ref() == Some(&"a scoped fiber panicked")
}

/// The panic of a scope whose child has panicked is part of many trees.
fn quiet_scopes() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !is_of_a_scope(info.payload()) {
                usual(info);
            }
        }));
    });
}

/// Trees whose roots are fibers, several at a time.
fn grow_on_fibers(report: &Arc<Report>, rng: &mut Rng) {
    sinew::scope(|s| {
        for _ in 0..LANES {
            let mut rng = rng.split();
            s.spawn(move || {
                let mut grown = 0;
                while grown < TREES / LANES + 1 {
                    let request: Arc<Request> = Arc::default();
                    let (own, theirs, report) = (rng.split(), request.clone(), report.clone());
                    let root = sinew::spawn(move || tree(&report, own, theirs, true));
                    if rng.chance(8) {
                        // From outside, at any time; also before it has begun.
                        if rng.chance(2) {
                            let _ = sinew::sleep(world::moment(&mut rng));
                        }
                        request.ask();
                        root.cancel();
                    }
                    match root.join() {
                        Ok(()) => grown += 1,
                        Err(error) => assert!(error.is_cancelled() && request.is_asked()),
                    }
                }
            });
        }
    });
}

/// Everything has ended, so nothing is in use any more.
fn wait_for_end(stats: impl Fn() -> RuntimeStats) {
    wait_until(|| {
        let stats = stats();
        stats.live == 0 && stats.timers == 0 && stats.stacks == 0 && stats.parked == 0
    });
}

impl Report {
    fn judge_round(&self) {
        let failures = self.failures.lock().unwrap();
        let first = &failures[..failures.len().min(5)];
        assert!(first.is_empty(), "{} failures: {first:#?}", failures.len());
    }

    /// That it has all happened, and often: else the trees say nothing.
    fn judge_all(&self) {
        let trees = self.tally.get(What::Tree);
        assert!(trees >= TREES);
        for (what, one_in) in What::OFTEN {
            let count = self.tally.get(what);
            println!("{what:?}: {count}");
            assert!(
                count * one_in >= trees,
                "{what:?}: {count} in {trees} trees"
            );
        }
    }
}

fn on_workers(name: &str, workers: usize) {
    let report = Arc::new(Report::default());
    seeded(name, ROUNDS, |rng| {
        quiet_scopes();
        let runtime = runtime(workers);
        runtime.run(|| grow_on_fibers(&report, rng));
        wait_for_end(|| runtime.stats());
        report.judge_round();
    });
    report.judge_all();
}

#[test]
fn trees_on_one_worker_leave_nothing_behind() {
    on_workers("scopes on one worker", 1);
}

#[test]
fn trees_on_two_workers_leave_nothing_behind() {
    on_workers("scopes on two workers", 2);
}

#[test]
fn trees_of_plain_threads_leave_nothing_behind() {
    let report = Arc::new(Report::default());
    seeded("scopes of threads", ROUNDS, |rng| {
        quiet_scopes();
        std::thread::scope(|s| {
            for _ in 0..LANES {
                let (mut own, report) = (rng.split(), &report);
                s.spawn(move || {
                    for _ in 0..TREES / LANES + 1 {
                        tree(report, own.split(), Arc::default(), false);
                    }
                });
            }
        });
        report.judge_round();
    });
    // The global runtime: other tests may use it, too.
    wait_for_end(|| Handle::current().stats());
    report.judge_all();
}
