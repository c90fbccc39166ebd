//! Coroutines: yielding, spawning, sleeping and waking.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use may::coroutine::{self, JoinHandle, yield_now};
use may::go;

use super::on;
use crate::child::{
    BALANCE_YIELDS, BATCH, FIB, Job, NAP, Rally, Sleepers, Tally, each, fib, report, report_idle,
    report_spawn_latency, skynet_sum, steady,
};

pub fn yields(job: &Job, yielders: u64) {
    let tasks = yielders * job.workers as u64;
    let ns = steady(job.target(), |total| {
        on(move || {
            let start = Instant::now();
            let handles: Vec<_> = (0..tasks)
                .map(|_| {
                    go!(move || {
                        for _ in 0..total / tasks {
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

pub fn spawn_join(job: &Job) {
    let ns = steady(job.target(), |n| {
        on(move || {
            let start = Instant::now();
            for i in 0..n {
                black_box(go!(move || black_box(i)).join().unwrap());
            }
            start.elapsed()
        })
    });
    report("ns", ns);
}

fn spawn_then_join(n: u64) -> Duration {
    let start = Instant::now();
    let mut handles = Vec::with_capacity(n as usize);
    for i in 0..n {
        handles.push(go!(move || black_box(i)));
    }
    let mut sum = 0;
    for handle in handles {
        sum += handle.join().unwrap();
    }
    assert_eq!(black_box(sum), n * (n - 1) / 2);
    start.elapsed()
}

/// The batches come first here: may does not outlive the rest.
pub fn spawn_1m(job: &Job) {
    let (few, n) = (job.count(100_000), job.count(1_000_000));
    // A tenth of the batches: it takes ten and more microseconds each.
    let batches = (n / BATCH / 10).max(1);
    let took = on(move || (0..batches).map(|_| spawn_then_join(BATCH)).sum());
    report("ns_batched", each(took, batches * BATCH));
    report("ns_first", each(on(move || spawn_then_join(few)), few));
    report("ns", each(on(move || spawn_then_join(n)), n));
}

fn skynet_node(first: u64, size: u64) -> u64 {
    if size == 1 {
        return first;
    }
    let part = size / 10;
    let children: [JoinHandle<u64>; 10] = std::array::from_fn(|i| {
        let first = first + i as u64 * part;
        go!(move || skynet_node(first, part))
    });
    children.into_iter().map(|c| c.join().unwrap()).sum()
}

fn skynet(job: &Job) -> Duration {
    let leaves = job.leaves();
    on(move || {
        let start = Instant::now();
        let sum = go!(move || skynet_node(0, leaves)).join().unwrap();
        assert_eq!(sum, skynet_sum(leaves));
        start.elapsed()
    })
}

pub fn skynet_cold(job: &Job) {
    report("ms", skynet(job).as_secs_f64() * 1e3);
}

pub fn skynet_warm(job: &Job) {
    for _ in 0..2 {
        skynet(job);
    }
    report("ms", skynet(job).as_secs_f64() * 1e3);
}

pub fn sleep_1m(job: &Job) {
    let n = job.count(1_000_000);
    on(move || {
        let mut handles: Vec<Option<JoinHandle<()>>> = (0..n).map(|_| None).collect();
        let (sleepers, scales) = Sleepers::begin(n);
        for slot in &mut handles {
            let sleepers = sleepers.clone();
            *slot = Some(go!(move || {
                sleepers.enter();
                coroutine::sleep(NAP);
                sleepers.leave();
            }));
        }
        sleepers.all_spawned();
        for handle in handles.into_iter().flatten() {
            handle.join().unwrap();
        }
        sleepers.end(scales);
    });
}

pub fn wake_thread(job: &Job) {
    Rally::prepare(job);
    if job.is_apart() {
        may::config().set_worker_pin(false); // it would undo ours
    }
    let rally = Rally::new();
    let player = go!({
        let rally = rally.clone();
        move || rally.play(coroutine::park)
    });
    rally.serve(job, || player.coroutine().unpark());
    player.join().unwrap();
}

pub fn idle(job: &Job) {
    let handles =
        on(|| -> Vec<JoinHandle<()>> { (0..10_000).map(|_| go!(coroutine::park)).collect() });
    report_idle(job);
    drop(handles); // still parked: the process ends with `main`
}

pub fn balance(job: &Job) {
    let n = job.count(100_000);
    let tally = Arc::new(Tally::default());
    let took = on({
        let tally = tally.clone();
        move || {
            let start = Instant::now();
            let mut handles = Vec::with_capacity(n as usize);
            for _ in 0..n {
                let tally = tally.clone();
                handles.push(go!(move || {
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
        }
    });
    report("ms", took.as_secs_f64() * 1e3);
    report("unevenness", tally.unevenness(job.workers));
}

pub fn latency_spawn(job: &Job) {
    let job = job.clone();
    on(move || {
        report_spawn_latency(&job, |started| {
            go!(move || started.mark());
        });
    });
}
