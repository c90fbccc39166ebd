//! Divide and conquer: a tree of fibers, each waiting for two children.
//!
//! Waiting in `join` costs a fiber's stack, not a thread, so the code may split
//! as finely as it likes.
//!
//! `cargo run --release -p sinew --example parallel_sum`

use std::ops::Range;
use std::time::Instant;

/// Below this many numbers a fiber adds them up itself.
const GRAIN: u64 = 10_000;
const NUMBERS: u64 = 20_000_000;

fn sum(range: Range<u64>) -> u64 {
    if range.end - range.start <= GRAIN {
        return range.map(|n| n ^ (n >> 3)).sum();
    }
    let middle = range.start + (range.end - range.start) / 2;
    let left = sinew::spawn(move || sum(range.start..middle));
    let right = sum(middle..range.end);
    left.join().expect("sums do not panic") + right
}

fn main() -> std::io::Result<()> {
    let expected: u64 = (0..NUMBERS).map(|n| n ^ (n >> 3)).sum();

    let runtime = sinew::Runtime::new()?;
    let start = Instant::now();
    let total = runtime.run(|| sum(0..NUMBERS));
    let took = start.elapsed();

    assert_eq!(total, expected);
    let stats = runtime.stats();
    println!("sum of {NUMBERS} numbers: {total}, in {took:.1?}");
    println!(
        "{} fibers on {} workers",
        stats.spawned,
        stats.workers.len()
    );
    for (index, worker) in stats.workers.iter().enumerate() {
        println!(
            "worker {index}: {} switches, {} fibers stolen",
            worker.switches, worker.stolen
        );
    }
    Ok(())
}
