//! Raw corosensei coroutines, driven by a loop: the limit for any runtime
//! that switches with them. No queue, no wake-up, no atomics.
//!
//! With several workers each thread drives coroutines of its own.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use corosensei::Coroutine;
use corosensei::stack::DefaultStack;

use crate::Failure;
use crate::child::{Job, report, steady};

pub fn run(job: &Job) -> Result<(), Failure> {
    let ns = if let Some(yielders) = job.yielders() {
        steady(job.target(), |n| yields(job.workers, n, yielders))
    } else if job.name == "spawn_join" {
        // One at a time, whatever the number of workers.
        steady(job.target(), |n| {
            let start = Instant::now();
            spawn_join(n);
            start.elapsed()
        })
    } else {
        return Err(Failure::Unknown);
    };
    report("ns", ns);
    Ok(())
}

/// `n` yields on `threads` threads, round robin on each; one yield is a suspend
/// and a resume. Stacks are made before the clock starts and freed after it
/// stopped: a runtime keeps its own.
fn yields(threads: usize, n: u64, yielders: u64) -> Duration {
    let each = n / threads as u64 / yielders;
    let gate = Barrier::new(threads + 1);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut ring: Vec<Coroutine<(), (), ()>> = (0..yielders)
                    .map(|_| {
                        Coroutine::new(move |yielder, ()| {
                            for _ in 0..each {
                                yielder.suspend(());
                            }
                        })
                    })
                    .collect();
                gate.wait();
                for _ in 0..=each {
                    for coroutine in &mut ring {
                        black_box(coroutine.resume(()));
                    }
                }
                gate.wait();
            });
        }
        gate.wait();
        let start = Instant::now();
        gate.wait();
        start.elapsed()
    })
}

/// A coroutine on the same hot stack each time, run to its end.
fn spawn_join(n: u64) {
    let mut stack = DefaultStack::default();
    for i in 0..n {
        let mut coroutine =
            Coroutine::<(), (), u64, _>::with_stack(stack, move |_, ()| black_box(i));
        black_box(coroutine.resume(()).as_return());
        stack = coroutine.into_stack();
    }
}
