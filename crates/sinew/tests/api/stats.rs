//! What a runtime tells of itself.

use crate::harness::{Gate, on_workers, runtime, wait_until, watch};
use sinew::GuardStats;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[test]
fn the_numbers_fit_what_was_done() {
    on_workers(|runtime| {
        let workers = runtime.stats().workers.len();
        let fresh = runtime.stats();
        assert_eq!((fresh.spawned, fresh.live, fresh.parked), (0, 0, 0));
        assert_eq!(
            (fresh.stacks, fresh.timers, fresh.blocking_threads),
            (0, 0, 0)
        );

        let parked: Vec<_> = (0..10).map(|_| runtime.spawn(sinew::park)).collect();
        let asleep: Vec<_> = (0..5)
            .map(|_| runtime.spawn(|| sinew::sleep(Duration::from_secs(3600))))
            .collect();
        wait_until(|| runtime.stats().parked == 15);
        wait_until(|| runtime.stats().timers == 5);
        let now = runtime.stats();
        assert_eq!((now.spawned, now.live, now.stacks), (15, 15, 15));
        assert!(now.switches >= 15, "{now:?}");
        assert!(now.stack_bytes_reserved >= 15 * 4096, "{now:?}");
        // There may be a spare more, if a worker was found in the kernel for some time.
        assert!(now.workers.len() >= workers, "{now:?}");
        assert_eq!(
            now.workers.iter().map(|worker| worker.started).sum::<u64>(),
            15
        );
        assert_eq!(
            now.workers.iter().map(|worker| worker.timers).sum::<u64>(),
            5
        );
        assert_eq!(
            now.workers
                .iter()
                .map(|worker| worker.switches)
                .sum::<u64>(),
            now.switches
        );

        for fiber in &parked {
            fiber.fiber().unpark();
        }
        for fiber in &asleep {
            fiber.cancel();
        }
        for fiber in parked {
            fiber.join().unwrap();
        }
        for fiber in asleep {
            fiber.join().unwrap().unwrap_err();
        }
        wait_until(|| {
            let now = runtime.stats();
            (now.live, now.parked, now.stacks, now.timers) == (0, 0, 0, 0)
        });
        assert_eq!(runtime.stats().spawned, 15);
    });
}

#[test]
fn blocking_tasks_and_threads_are_counted() {
    on_workers(|runtime| {
        let go = Gate::new();
        let jobs: Vec<_> = (0..3)
            .map(|_| {
                let gate = go.clone();
                runtime.run(move || sinew::spawn_blocking(move || gate.spin()))
            })
            .collect();
        assert_eq!(runtime.stats().blocking_threads, 3);
        wait_until(|| runtime.stats().live == 3);
        assert_eq!(runtime.stats().spawned, 6);
        go.open();
        for job in jobs {
            job.join().unwrap();
        }
        wait_until(|| runtime.stats().live == 0);
    });
}

#[test]
fn a_stolen_fiber_is_counted_by_the_thief() {
    let _watch = watch();
    let runtime = runtime(2);
    runtime.run(|| {
        let ran = Gate::new();
        let theirs = ran.clone();
        drop(sinew::spawn(move || theirs.open()));
        ran.spin();
    });
    let stats = runtime.stats();
    assert!(stats.stolen >= 1, "{stats:?}");
    assert_eq!(
        stats.stolen,
        stats
            .workers
            .iter()
            .map(|worker| worker.stolen)
            .sum::<u64>()
    );
}

#[test]
fn a_waiting_migratable_fiber_leaves_no_trace_in_the_count_of_parked_ones() {
    let _watch = watch();
    let runtime = runtime(2);
    let last = Arc::new(AtomicUsize::new(0));
    let fibers: Vec<_> = (0..20)
        .map(|_| {
            let last = last.clone();
            // SAFETY: it holds nothing of a thread's over its suspensions.
            let builder = unsafe { sinew::Builder::new().migratable() };
            let fiber = builder.spawn_on(&runtime.handle(), move || {
                for _ in 0..50 {
                    sinew::park_timeout(Duration::from_micros(20));
                    sinew::yield_now();
                }
                last.fetch_add(1, Ordering::SeqCst);
                sinew::park();
            });
            fiber.unwrap()
        })
        .collect();
    wait_until(|| last.load(Ordering::SeqCst) == 20);
    wait_until(|| runtime.stats().parked == 20);
    for fiber in fibers {
        fiber.fiber().unpark();
        fiber.join().unwrap();
    }
    wait_until(|| runtime.stats().parked == 0);
}

#[test]
fn stacks_are_reused_and_the_guard_is_named() {
    on_workers(|runtime| {
        runtime.run(|| {
            for _ in 0..10_000 {
                sinew::spawn(|| ()).join().unwrap();
            }
        });
        let stats = runtime.stats();
        assert!(stats.stacks_free < 1000, "{stats:?}");
        assert!(matches!(
            stats.guard,
            GuardStats::Region | GuardStats::Mprotect | GuardStats::Mixed
        ));
        assert!(!stats.driver.is_empty());
    });
}
