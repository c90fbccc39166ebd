//! Tasks: yielding, spawning, sleeping and waking.

use std::future::pending;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, yield_now};

use super::on;
use crate::child::{
    BALANCE_YIELDS, BATCH, FIB, Job, NAP, Rally, Sleepers, Tally, each, fib, report, report_idle,
    report_spawn_latency, skynet_sum, steady,
};

pub fn yields(job: &Job, yielders: u64, rt: &Runtime) {
    let tasks = yielders * job.workers as u64;
    let ns = steady(job.target(), |total| {
        on(rt, async move {
            let start = Instant::now();
            let handles: Vec<_> = (0..tasks)
                .map(|_| {
                    tokio::spawn(async move {
                        for _ in 0..total / tasks {
                            yield_now().await;
                        }
                    })
                })
                .collect();
            for handle in handles {
                handle.await.unwrap();
            }
            start.elapsed()
        })
    });
    report("ns", ns);
}

pub fn spawn_join(job: &Job, rt: &Runtime) {
    let ns = steady(job.target(), |n| {
        on(rt, async move {
            let start = Instant::now();
            for i in 0..n {
                black_box(tokio::spawn(async move { black_box(i) }).await.unwrap());
            }
            start.elapsed()
        })
    });
    report("ns", ns);
}

async fn spawn_then_join(n: u64) -> Duration {
    let start = Instant::now();
    let mut handles = Vec::with_capacity(n as usize);
    for i in 0..n {
        handles.push(tokio::spawn(async move { black_box(i) }));
    }
    let mut sum = 0;
    for handle in handles {
        sum += handle.await.unwrap();
    }
    assert_eq!(black_box(sum), n * (n - 1) / 2);
    start.elapsed()
}

pub fn spawn_1m(job: &Job, rt: &Runtime) {
    let (few, n) = (job.count(100_000), job.count(1_000_000));
    report("ns_first", each(on(rt, spawn_then_join(few)), few));
    report("ns", each(on(rt, spawn_then_join(n)), n));
    let batches = (n / BATCH).max(1);
    let took = on(rt, async move {
        let mut took = Duration::ZERO;
        for _ in 0..batches {
            took += spawn_then_join(BATCH).await;
        }
        took
    });
    report("ns_batched", each(took, batches * BATCH));
}

/// Not an `async fn`: naming the handle keeps the recursive future's type
/// finite without a box per task.
fn skynet_node(first: u64, size: u64) -> JoinHandle<u64> {
    tokio::spawn(async move {
        if size == 1 {
            return first;
        }
        let part = size / 10;
        let children: [_; 10] = std::array::from_fn(|i| skynet_node(first + i as u64 * part, part));
        let mut sum = 0;
        for child in children {
            sum += child.await.unwrap();
        }
        sum
    })
}

fn skynet(job: &Job, rt: &Runtime) -> Duration {
    let leaves = job.leaves();
    on(rt, async move {
        let start = Instant::now();
        let sum = skynet_node(0, leaves).await.unwrap();
        assert_eq!(sum, skynet_sum(leaves));
        start.elapsed()
    })
}

pub fn skynet_cold(job: &Job, rt: &Runtime) {
    report("ms", skynet(job, rt).as_secs_f64() * 1e3);
}

pub fn skynet_warm(job: &Job, rt: &Runtime) {
    for _ in 0..2 {
        skynet(job, rt);
    }
    report("ms", skynet(job, rt).as_secs_f64() * 1e3);
}

pub fn sleep_1m(job: &Job, rt: &Runtime) {
    let n = job.count(1_000_000);
    on(rt, async move {
        let mut handles: Vec<Option<JoinHandle<()>>> = (0..n).map(|_| None).collect();
        let (sleepers, scales) = Sleepers::begin(n);
        for slot in &mut handles {
            let sleepers = sleepers.clone();
            *slot = Some(tokio::spawn(async move {
                sleepers.enter();
                tokio::time::sleep(NAP).await;
                sleepers.leave();
            }));
        }
        sleepers.all_spawned();
        for handle in handles.into_iter().flatten() {
            handle.await.unwrap();
        }
        sleepers.end(scales);
    });
}

pub fn wake_thread(job: &Job, rt: &Runtime) {
    let job = job.clone();
    let bell = Arc::new(Notify::new());
    // The server has a thread of its own, since the current-thread scheduler
    // needs this one.
    let (send, receive) = std::sync::mpsc::channel();
    let server = std::thread::spawn({
        let bell = bell.clone();
        move || {
            let rally = Rally::new();
            send.send(rally.clone()).unwrap();
            rally.serve(&job, || bell.notify_one());
        }
    });
    let rally = receive.recv().unwrap();
    on(rt, async move {
        loop {
            while rally.is_away() {
                bell.notified().await;
            }
            if !rally.answer() {
                return;
            }
        }
    });
    server.join().unwrap();
}

pub fn idle(job: &Job, rt: &Runtime) {
    on(rt, async {
        for _ in 0..10_000 {
            tokio::spawn(pending::<()>());
        }
    });
    report_idle(job);
}

pub fn balance(job: &Job, rt: &Runtime) {
    let n = job.count(100_000);
    let tally = Arc::new(Tally::default());
    let took = on(rt, {
        let tally = tally.clone();
        async move {
            let start = Instant::now();
            let mut handles = Vec::with_capacity(n as usize);
            for _ in 0..n {
                let tally = tally.clone();
                handles.push(tokio::spawn(async move {
                    black_box(fib(black_box(FIB)));
                    tally.book();
                    for _ in 0..BALANCE_YIELDS {
                        yield_now().await;
                    }
                }));
            }
            for handle in handles {
                handle.await.unwrap();
            }
            start.elapsed()
        }
    });
    report("ms", took.as_secs_f64() * 1e3);
    report("unevenness", tally.unevenness(job.workers));
}

pub fn latency_spawn(job: &Job, rt: &Runtime) {
    let job = job.clone();
    on(rt, async move {
        report_spawn_latency(&job, |started| {
            tokio::spawn(async move { started.mark() });
        });
    });
}
