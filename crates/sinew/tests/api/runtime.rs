//! Runtimes: settings, nesting, several at once.

use crate::harness::{Gate, on_workers, runtime, runtime_without_spares, wait_until, watch};
use sinew::{Runtime, WaitReason};
use std::collections::HashSet;
use std::time::Duration;

#[test]
fn a_bad_setting_is_named_with_its_range() {
    let _watch = watch();
    let texts = [
        Runtime::builder().workers(0).build().unwrap_err(),
        Runtime::builder().workers(1025).build().unwrap_err(),
        Runtime::builder().stack_size(1).build().unwrap_err(),
        Runtime::builder()
            .stack_size((1 << 30) + 1)
            .build()
            .unwrap_err(),
        Runtime::builder().blocking_threads(0).build().unwrap_err(),
        Runtime::builder()
            .blocking_threads(65537)
            .build()
            .unwrap_err(),
    ];
    let expected = [
        ["workers", "0", "1 to 1024"],
        ["workers", "1025", "1 to 1024"],
        ["stack_size", "1,", "16384 to 1073741824"],
        ["stack_size", "1073741825", "16384 to 1073741824"],
        ["blocking_threads", "0", "1 to 65536"],
        ["blocking_threads", "65537", "1 to 65536"],
    ];
    for (error, words) in texts.iter().zip(expected) {
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }
}

#[test]
fn a_runtime_has_as_many_workers_as_asked_for() {
    let _watch = watch();
    for workers in [1, 2, 5, 16] {
        // Without spares: they would stand in for workers that are missing.
        let runtime = runtime_without_spares(workers);
        assert_eq!(runtime.stats().workers.len(), workers);
        // Each is kept busy until all are.
        let seen = std::sync::Arc::new(std::sync::Mutex::new(HashSet::new()));
        let fibers: Vec<_> = (0..workers)
            .map(|_| {
                let seen = seen.clone();
                runtime.spawn(move || {
                    seen.lock().unwrap().insert(std::thread::current().id());
                    while seen.lock().unwrap().len() < workers {
                        std::thread::yield_now();
                    }
                })
            })
            .collect();
        for fiber in fibers {
            fiber.join().unwrap();
        }
    }
}

#[test]
fn threads_carry_the_runtime_s_name() {
    let _watch = watch();
    let runtime = Runtime::builder()
        .workers(1)
        .name("crawler")
        .build()
        .unwrap();
    let name = runtime.run(|| std::thread::current().name().map(String::from));
    assert_eq!(name.as_deref(), Some("crawler-worker-0"));
    assert!(format!("{runtime:?} {:?}", runtime.handle()).contains("crawler"));
}

#[test]
fn pinned_workers_and_strict_order_on_two_workers_run_programs_too() {
    let _watch = watch();
    let runtime = Runtime::builder()
        .workers(2)
        .pin_workers(true)
        .strict_order(true)
        .build()
        .unwrap();
    let sum: u32 = runtime.run(|| {
        let fibers: Vec<_> = (0..100).map(|i| sinew::spawn(move || i)).collect();
        fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum()
    });
    assert_eq!(sum, 4950);
}

#[test]
fn run_borrows_and_returns_borrows() {
    on_workers(|runtime| {
        let mut text = String::from("a");
        let first = runtime.run(|| {
            text.push('b');
            &text[..1]
        });
        assert_eq!(first, "a");
        assert_eq!(text, "ab");
    });
    let numbers = [1, 2, 3];
    assert_eq!(sinew::run(|| numbers.iter().sum::<i32>()), 6);
}

#[test]
fn run_in_a_fiber_of_the_same_runtime_parks_only_that_fiber() {
    let _watch = watch();
    let runtime = runtime(1);
    let (outer, inner) = runtime.run(|| {
        let outer = std::thread::current().id();
        // One worker: if it were blocked, neither would ever run.
        let inner = runtime.run(|| {
            sinew::spawn(|| ()).join().unwrap();
            runtime.run(|| std::thread::current().id())
        });
        (outer, inner)
    });
    assert_eq!(outer, inner);
}

#[test]
fn run_on_another_runtime_parks_only_the_calling_fiber() {
    let _watch = watch();
    let (ours, theirs) = (runtime(1), runtime(1));
    let go = Gate::new();
    ours.run(|| {
        let gate = go.clone();
        let theirs = &theirs;
        // Another fiber of our one worker opens the gate that the other
        // runtime's fiber waits for.
        let opener = sinew::spawn(move || gate.open());
        let there = theirs.run(|| {
            go.pass();
            std::thread::current().id()
        });
        assert_ne!(there, std::thread::current().id());
        opener.join().unwrap();
    });
}

#[test]
fn a_whole_runtime_lives_and_ends_inside_a_fiber_of_another() {
    let _watch = watch();
    let ours = runtime(1);
    ours.run(|| {
        let ticks = Gate::new();
        let gate = ticks.clone();
        let other = sinew::spawn(move || gate.open());
        let value = {
            let inner = runtime(2);
            let value = inner.run(|| sinew::spawn(|| 4).join().unwrap());
            // Its end waits for this one, which waits for a fiber of ours.
            let gate = ticks.clone();
            drop(inner.spawn(move || gate.pass()));
            value
        };
        assert_eq!(value, 4);
        other.join().unwrap();
        assert_eq!(sinew::run(|| 5), 5);
    });
}

#[test]
fn fibers_of_several_runtimes_wake_each_other() {
    let _watch = watch();
    let runtimes = [runtime(1), runtime(2), runtime(1)];
    let rounds = 200;
    let fibers: Vec<_> = runtimes
        .iter()
        .map(|runtime| {
            runtime.spawn(move || {
                sinew::park();
                let next = NEXT.lock().unwrap().clone();
                let me = sinew::current().id();
                let index = next.iter().position(|fiber| fiber.id() == me).unwrap();
                let next = next[(index + 1) % next.len()].clone();
                for _ in 0..rounds {
                    next.unpark();
                    sinew::park_timeout(Duration::from_millis(1));
                }
                next.unpark();
            })
        })
        .collect();
    *NEXT.lock().unwrap() = fibers.iter().map(|fiber| fiber.fiber()).collect();
    for fiber in &fibers {
        fiber.fiber().unpark();
    }
    for fiber in fibers {
        fiber.join().unwrap();
    }
    NEXT.lock().unwrap().clear();
}

static NEXT: std::sync::Mutex<Vec<sinew::Fiber>> = std::sync::Mutex::new(Vec::new());

#[test]
fn a_hundred_runtimes_come_and_go() {
    let _watch = watch();
    for i in 0..100usize {
        let runtime = runtime(1 + i % 3);
        assert_eq!(
            runtime.run(move || sinew::spawn(move || i).join().unwrap()),
            i
        );
    }
}

#[test]
fn many_runtimes_live_at_once() {
    let _watch = watch();
    let runtimes: Vec<_> = (0..20).map(|_| runtime(2)).collect();
    let fibers: Vec<_> = runtimes
        .iter()
        .map(|runtime| runtime.spawn(sinew::park))
        .collect();
    for fiber in &fibers {
        wait_until(|| fiber.fiber().wait_reason() == WaitReason::Park);
    }
    for fiber in fibers {
        fiber.fiber().unpark();
        fiber.join().unwrap();
    }
}

#[test]
fn work_from_outside_wakes_a_sleeping_runtime_every_time() {
    // The lost wake-up between the last look at the queues and sleep.
    on_workers(|runtime| {
        for i in 0..2000u32 {
            assert_eq!(runtime.spawn(move || i).join().unwrap(), i);
        }
    });
}
