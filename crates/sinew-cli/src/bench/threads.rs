//! The workloads that plain OS threads can do: what Sinew is held against
//! where the bar is "like std". In this program, so that both run the same
//! machine code.

use std::hint::black_box;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use super::child::{FIB, Job, Rally, Tally, fib, report};

/// Runs `job`; false if threads have no such workload.
pub fn run(job: &Job) -> bool {
    match job.name.as_str() {
        "wake_thread" | "wake_apart" => wake_thread(job),
        "balance" => balance(job),
        _ => return false,
    }
    true
}

fn wake_thread(job: &Job) {
    Rally::prepare(job);
    let rally = Rally::new();
    let player = thread::spawn({
        let rally = rally.clone();
        move || rally.play(thread::park)
    });
    rally.serve(job, || player.thread().unpark());
    player.join().expect("the player panicked");
}

fn balance(job: &Job) {
    let n = job.count(100_000);
    let share = n / job.workers as u64;
    let tally = Arc::new(Tally::default());
    let start = Instant::now();
    thread::scope(|scope| {
        for worker in 0..job.workers as u64 {
            let rest = if worker == 0 {
                n % job.workers as u64
            } else {
                0
            };
            let tally = tally.clone();
            scope.spawn(move || {
                for _ in 0..share + rest {
                    black_box(fib(black_box(FIB)));
                    tally.book();
                }
            });
        }
    });
    report("ms", start.elapsed().as_secs_f64() * 1e3);
    report("unevenness", tally.unevenness(job.workers));
}
