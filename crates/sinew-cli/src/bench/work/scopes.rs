//! Scopes, limits and cancellation.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sinew::{Runtime, check_cancelled, scope, spawn, timeout};

use super::super::child::{CANCEL_GROUPS, Job, each, report, steady};

const HOUR: Duration = Duration::from_secs(3600);

/// A scope with two children that do nothing, and two fibers without one.
pub fn scope_2(job: &Job, rt: &Runtime) {
    let joined = steady(job.target(), |n| {
        rt.run(|| {
            let start = Instant::now();
            for i in 0..n {
                let pair = [spawn(move || black_box(i)), spawn(move || black_box(i))];
                for fiber in pair {
                    black_box(fiber.join().unwrap());
                }
            }
            start.elapsed()
        })
    });
    report("spawned", joined);
    let scoped = steady(job.target(), |n| {
        rt.run(|| {
            let start = Instant::now();
            for i in 0..n {
                scope(|s| {
                    s.spawn(|| black_box(i));
                    s.spawn(|| black_box(i));
                });
            }
            start.elapsed()
        })
    });
    report("scoped", scoped);
}

/// What a look costs, and a limit that is not reached.
pub fn limits(job: &Job, rt: &Runtime) {
    let check = steady(job.target(), |n| {
        rt.run(|| {
            let start = Instant::now();
            for _ in 0..n {
                black_box(check_cancelled()).unwrap();
            }
            start.elapsed()
        })
    });
    report("check", check);
    let limit = steady(job.target(), |n| {
        rt.run(|| {
            let start = Instant::now();
            for i in 0..n {
                black_box(timeout(black_box(HOUR), || black_box(i))).unwrap();
            }
            start.elapsed()
        })
    });
    report("timeout", limit);
}

/// A tree of scopes whose leaves sleep is cancelled at its root: how long the call
/// takes, and how long until all have ended, for each fiber.
pub fn cancel_100k(job: &Job) {
    let n = job.count(100_000);
    let rt = Runtime::builder()
        .workers(job.workers)
        .stack_size(64 * 1024)
        .build()
        .expect("the runtime did not start");
    // The first run makes the stacks.
    for measured in [false, true] {
        let (call, all, fibers) = rt.run(|| cancel_tree(n));
        if measured {
            report("ns", each(call, fibers));
            report("ended", each(all, fibers));
        }
    }
}

fn cancel_tree(n: u64) -> (Duration, Duration, u64) {
    let leaves = n / CANCEL_GROUPS;
    let (asleep, told) = (AtomicU64::new(0), AtomicU64::new(0));
    let leaf = || {
        asleep.fetch_add(1, Ordering::Relaxed);
        if sinew::sleep(HOUR).is_err() {
            told.fetch_add(1, Ordering::Relaxed);
        }
    };
    let group = || {
        scope(|s| {
            for _ in 0..leaves {
                s.spawn(leaf);
            }
        });
    };
    let mut call = Duration::ZERO;
    let start = scope(|s| {
        for _ in 0..CANCEL_GROUPS {
            s.spawn(group);
        }
        while asleep.load(Ordering::Relaxed) < leaves * CANCEL_GROUPS {
            sinew::shield(|| sinew::sleep(Duration::from_millis(1))).unwrap();
        }
        let start = Instant::now();
        s.cancel();
        call = start.elapsed();
        start
    });
    let all = start.elapsed();
    assert_eq!(told.into_inner(), leaves * CANCEL_GROUPS);
    (call, all, (leaves + 1) * CANCEL_GROUPS)
}
