//! Groups of tasks, limits and cancellation, as near as tokio has them: a `JoinSet`,
//! `timeout`, and `abort_all`. Its tasks cannot borrow, and are dropped, not told.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::on;
use crate::child::{CANCEL_GROUPS, Job, each, report, steady};

const HOUR: Duration = Duration::from_secs(3600);

pub fn scope_2(job: &Job, rt: &Runtime) {
    let joined = steady(job.target(), |n| {
        on(rt, async move {
            let start = Instant::now();
            for i in 0..n {
                let pair = [
                    tokio::spawn(async move { black_box(i) }),
                    tokio::spawn(async move { black_box(i) }),
                ];
                for task in pair {
                    black_box(task.await.unwrap());
                }
            }
            start.elapsed()
        })
    });
    report("spawned", joined);
    let scoped = steady(job.target(), |n| {
        on(rt, async move {
            let start = Instant::now();
            for i in 0..n {
                let mut set = JoinSet::new();
                set.spawn(async move { black_box(i) });
                set.spawn(async move { black_box(i) });
                while let Some(done) = set.join_next().await {
                    black_box(done.unwrap());
                }
            }
            start.elapsed()
        })
    });
    report("scoped", scoped);
}

pub fn limits(job: &Job, rt: &Runtime) {
    let limit = steady(job.target(), |n| {
        on(rt, async move {
            let start = Instant::now();
            for i in 0..n {
                let limited = tokio::time::timeout(black_box(HOUR), async { black_box(i) });
                black_box(limited.await).unwrap();
            }
            start.elapsed()
        })
    });
    report("timeout", limit);
}

/// One set for each group: a task that is aborted drops its own set, and so on down.
pub fn cancel_100k(job: &Job, rt: &Runtime) {
    let leaves = job.count(100_000) / CANCEL_GROUPS;
    for measured in [false, true] {
        let (call, all) = on(rt, cancel_tree(leaves));
        if measured {
            let fibers = (leaves + 1) * CANCEL_GROUPS;
            report("ns", each(call, fibers));
            report("ended", each(all, fibers));
        }
    }
}

async fn cancel_tree(leaves: u64) -> (Duration, Duration) {
    struct Gone(Arc<AtomicU64>);
    impl Drop for Gone {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (asleep, gone) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut root = JoinSet::new();
    for _ in 0..CANCEL_GROUPS {
        let (asleep, gone) = (asleep.clone(), gone.clone());
        root.spawn(async move {
            let mut group = JoinSet::new();
            for _ in 0..leaves {
                let (asleep, gone) = (asleep.clone(), Gone(gone.clone()));
                group.spawn(async move {
                    asleep.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(HOUR).await;
                    drop(gone);
                });
            }
            while group.join_next().await.is_some() {}
        });
    }
    while asleep.load(Ordering::Relaxed) < leaves * CANCEL_GROUPS {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let start = Instant::now();
    root.abort_all();
    let call = start.elapsed();
    while root.join_next().await.is_some() {}
    while gone.load(Ordering::Relaxed) < leaves * CANCEL_GROUPS {
        tokio::task::yield_now().await;
    }
    (call, start.elapsed())
}
