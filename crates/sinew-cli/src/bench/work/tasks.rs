//! Fibers: yielding, spawning, sleeping and waking.

use std::hint::black_box;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use sinew::{JoinHandle, Runtime, spawn, yield_now};

use super::super::child::{
    BALANCE_YIELDS, BATCH, FIB, Job, Rally, Sleepers, Tally, each, fib, memory, report,
    report_idle, report_spawn_latency, skynet_sum, steady,
};
use super::runtime;

pub fn yields(job: &Job, rt: &Runtime, yielders: u64) {
    let fibers = yielders * job.workers as u64;
    let ns = steady(job.target(), |total| {
        rt.run(|| {
            let start = Instant::now();
            let handles: Vec<_> = (0..fibers)
                .map(|_| {
                    spawn(move || {
                        for _ in 0..total / fibers {
                            yield_now();
                        }
                    })
                })
                .collect();
            for handle in handles {
                handle.join().unwrap();
            }
            start.elapsed()
        })
    });
    report("ns", ns);
}

pub fn spawn_join(job: &Job, rt: &Runtime) {
    let ns = steady(job.target(), |n| rt.run(|| spawn_and_join(n)));
    report("ns", ns);
}

pub fn spawn_and_join(n: u64) -> Duration {
    let start = Instant::now();
    for i in 0..n {
        black_box(spawn(move || black_box(i)).join().unwrap());
    }
    start.elapsed()
}

fn spawn_then_join(n: u64) -> Duration {
    let start = Instant::now();
    let mut handles = Vec::with_capacity(n as usize);
    for i in 0..n {
        handles.push(spawn(move || black_box(i)));
    }
    let mut sum = 0;
    for handle in handles {
        sum += handle.join().unwrap();
    }
    assert_eq!(black_box(sum), n * (n - 1) / 2);
    start.elapsed()
}

pub fn spawn_1m(job: &Job, rt: &Runtime) {
    let (few, n) = (job.count(100_000), job.count(1_000_000));
    report("ns_first", each(rt.run(|| spawn_then_join(few)), few));
    report("ns", each(rt.run(|| spawn_then_join(n)), n));
    let batches = (n / BATCH).max(1);
    let took = rt.run(|| (0..batches).map(|_| spawn_then_join(BATCH)).sum());
    report("ns_batched", each(took, batches * BATCH));
}

fn skynet_node(first: u64, size: u64) -> u64 {
    if size == 1 {
        return first;
    }
    let part = size / 10;
    let children: [JoinHandle<u64>; 10] = std::array::from_fn(|i| {
        let first = first + i as u64 * part;
        spawn(move || skynet_node(first, part))
    });
    children
        .into_iter()
        .map(|child| child.join().unwrap())
        .sum()
}

fn skynet(job: &Job, rt: &Runtime) -> f64 {
    let leaves = job.leaves();
    let took = rt.run(|| {
        let start = Instant::now();
        let sum = spawn(move || skynet_node(0, leaves)).join().unwrap();
        assert_eq!(sum, skynet_sum(leaves));
        start.elapsed()
    });
    took.as_secs_f64() * 1e3
}

pub fn skynet_cold(job: &Job, rt: &Runtime) {
    report("ms", skynet(job, rt));
}

pub fn skynet_warm(job: &Job, rt: &Runtime) {
    for _ in 0..2 {
        skynet(job, rt);
    }
    report("ms", skynet(job, rt));
}

/// Long enough for a million fibers to start on one worker.
pub const LONG_NAP: Duration = Duration::from_secs(15);

/// Rests for two seconds after the end, then reports what memory was kept.
pub fn sleep_1m(job: &Job, nap: Duration) {
    let n = job.count(1_000_000);
    let rt = Runtime::builder()
        .workers(job.workers)
        .stack_size(64 * 1024)
        .build()
        .expect("the runtime did not start");
    let at_start = memory();
    rt.run(|| {
        // Touched before the scales are set: it is ours, not the fibers'.
        let mut handles: Vec<Option<JoinHandle<()>>> = (0..n).map(|_| None).collect();
        let (sleepers, scales) = Sleepers::begin(n);
        for slot in &mut handles {
            let sleepers = sleepers.clone();
            *slot = Some(spawn(move || {
                sleepers.enter();
                sinew::sleep(nap).expect("nobody cancels");
                sleepers.leave();
            }));
        }
        sleepers.all_spawned();
        for handle in handles.into_iter().flatten() {
            handle.join().unwrap();
        }
        sleepers.end(scales);
    });
    thread::sleep(Duration::from_secs(2));
    report("bytes_after", memory() as f64 - at_start as f64);
}

pub fn timers_1m(job: &Job) {
    let n = job.count(1_000_000);
    let (insert, cancel, list) = sinew::bench_internals::timers(n as usize);
    report("insert_ns", insert);
    report("cancel_ns", cancel);
    report("list_ns", list);
}

pub fn wake_thread(job: &Job) {
    Rally::prepare(job);
    let rt = runtime(job);
    let rally = Rally::new();
    let player = rt.spawn({
        let rally = rally.clone();
        move || rally.play(sinew::park)
    });
    let fiber = player.fiber().clone();
    rally.serve(job, || fiber.unpark());
    player.join().unwrap();
}

pub fn idle(job: &Job, rt: &Runtime) {
    let handles: Vec<JoinHandle<()>> = rt.run(|| (0..10_000).map(|_| spawn(sinew::park)).collect());
    report_idle(job);
    for handle in &handles {
        handle.fiber().unpark();
    }
    for handle in handles {
        handle.join().unwrap();
    }
}

pub fn balance(job: &Job, rt: &Runtime) {
    let n = job.count(100_000);
    let tally = Arc::new(Tally::default());
    let took = rt.run(|| {
        let start = Instant::now();
        let mut handles = Vec::with_capacity(n as usize);
        for _ in 0..n {
            let tally = tally.clone();
            handles.push(spawn(move || {
                black_box(fib(black_box(FIB)));
                tally.book();
                for _ in 0..BALANCE_YIELDS {
                    yield_now();
                }
            }));
        }
        for handle in handles {
            handle.join().unwrap();
        }
        start.elapsed()
    });
    report("ms", took.as_secs_f64() * 1e3);
    report("unevenness", tally.unevenness(job.workers));
}

/// Each tenth fiber blocks its worker, once without spares to stand in for it and once with.
pub fn blocked_tenth(job: &Job) {
    let n = job.count(400);
    for (key, spares) in [("without", 0), ("with", job.workers)] {
        let builder = Runtime::builder().workers(job.workers);
        let quiet = builder.on_hog(|_| ()).spare_workers(spares);
        let rt = quiet.build().expect("the runtime did not start");
        let took = rt.run(|| {
            let start = Instant::now();
            let task = |index| {
                spawn(move || {
                    if index % 10 == 0 {
                        std::thread::sleep(Duration::from_millis(20));
                    } else {
                        black_box(fib(black_box(FIB)));
                    }
                })
            };
            let handles: Vec<_> = (0..n).map(task).collect();
            for handle in handles {
                handle.join().unwrap();
            }
            start.elapsed()
        });
        report(key, took.as_secs_f64() * 1e3);
    }
}

pub fn latency_spawn(job: &Job, rt: &Runtime) {
    rt.run(|| {
        report_spawn_latency(job, |started| {
            spawn(move || started.mark()); // detached
        });
    });
}
