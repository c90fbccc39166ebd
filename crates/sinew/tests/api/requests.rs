//! Runtimes that are asked to end: `Handle::shutdown` and `Handle::shutdown_timeout`.

use crate::harness::{Gate, runtime, wait_until, watch};
use sinew::{Builder, Cancelled, Handle, WaitReason, shield};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_millis(20);

/// Ends only when the gate is open, whatever it is told.
fn stubborn(gate: Gate) -> impl FnOnce() + Send + 'static {
    move || {
        while !gate.is_open() {
            sinew::park_timeout(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_request_from_inside_cancels_everybody_and_returns() {
    let _watch = watch();
    for workers in [1, 2] {
        let told = runtime(workers).run(|| {
            let sleeper = sinew::spawn(|| sinew::sleep(HOUR));
            wait_until(|| sleeper.fiber().wait_reason() == WaitReason::Sleep);
            Handle::current().shutdown().unwrap();
            // The caller, too.
            assert_eq!(sinew::check_cancelled(), Err(Cancelled));
            // And what is spawned from now on, also where the spawner hears of nothing.
            let late = shield(|| sinew::spawn(|| sinew::sleep(HOUR)).join());
            assert!(late.unwrap_err().is_cancelled());
            sleeper.join().unwrap()
        });
        assert_eq!(told, Err(Cancelled));
    }
}

#[test]
fn after_a_request_nobody_spawns_from_outside() {
    let _watch = watch();
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let handle = runtime.handle();
        let gate = Gate::new();
        let inside = runtime.spawn(stubborn(gate.clone()));
        handle.shutdown().unwrap();
        handle.shutdown().unwrap(); // nothing more
        let refused = Builder::new().spawn_on(&handle, || ());
        assert!(refused.is_err());
        gate.open();
        inside
            .join()
            .map(drop)
            .unwrap_or_else(|error| assert!(error.is_cancelled()));
        drop(runtime);
        handle.shutdown().unwrap(); // it has ended: nothing
        handle.shutdown_timeout(SOON).unwrap();
    }
}

/// A fiber that is spawned at the very moment of the request is found, or born cancelled: if
/// one were missed it would sleep for an hour, and the drop would wait for it.
#[test]
fn no_fiber_is_missed_that_is_spawned_during_a_request() {
    let _watch = watch();
    for round in 0..30 {
        let runtime = runtime(2);
        let stop = Arc::new(AtomicBool::new(false));
        for _ in 0..2 {
            let stop = stop.clone();
            drop(runtime.spawn(move || {
                shield(|| {
                    while !stop.load(Ordering::Relaxed) {
                        drop(sinew::spawn(|| sinew::sleep(HOUR)));
                        sinew::yield_now();
                    }
                });
            }));
        }
        // Somewhere in the middle, each time elsewhere.
        while runtime.stats().spawned < 10 + 7 * round {
            std::hint::spin_loop();
        }
        runtime.handle().shutdown().unwrap();
        stop.store(true, Ordering::Relaxed);
        drop(runtime);
    }
}

#[test]
fn what_is_left_after_the_limit_is_leaked_by_the_drop() {
    let _watch = watch();
    for workers in [1, 2] {
        for daemon in [false, true] {
            let runtime = runtime(workers);
            let gate = Gate::new();
            let kind = Builder::new().daemon(daemon);
            let left = kind.spawn_on(&runtime.handle(), stubborn(gate.clone()));
            let left = left.unwrap();
            wait_until(|| left.fiber().wait_reason() == WaitReason::Park);
            runtime.handle().shutdown_timeout(SOON).unwrap();
            drop(runtime); // hangs, but for the limit
            assert!(!left.is_finished());
        }
    }
}

/// The limit of a request that comes later than the wait for the end counts, too.
#[test]
fn a_limit_reaches_a_drop_that_waits_already() {
    let _watch = watch();
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let handle = runtime.handle();
        let gate = Gate::new();
        let left = runtime.spawn(stubborn(gate.clone()));
        wait_until(|| left.fiber().wait_reason() == WaitReason::Park);
        let dropper = std::thread::spawn(move || drop(runtime));
        // The drop has begun when the gate is closed.
        wait_until(|| Builder::new().spawn_on(&handle, || ()).is_err());
        handle.shutdown_timeout(SOON).unwrap();
        dropper.join().unwrap();
        assert!(!left.is_finished());
    }
}

#[test]
fn the_closure_of_a_run_is_awaited_whatever_the_limit() {
    let _watch = watch();
    for workers in [1, 2] {
        let mut borrowed = 0;
        runtime(workers).run(|| {
            Handle::current().shutdown_timeout(Duration::ZERO).unwrap();
            let start = Instant::now();
            while start.elapsed() < SOON {
                shield(|| sinew::sleep(Duration::from_millis(1))).unwrap();
            }
            borrowed = 7;
        });
        assert_eq!(borrowed, 7);
    }
}

#[test]
fn the_earliest_limit_counts_and_a_fiber_that_ends_in_time_is_awaited() {
    let _watch = watch();
    let runtime = runtime(1);
    let handle = runtime.handle();
    let ends = runtime.spawn(|| {
        assert_eq!(sinew::sleep(HOUR), Err(Cancelled));
        shield(|| sinew::sleep(SOON)).unwrap();
        7
    });
    wait_until(|| ends.fiber().wait_reason() == WaitReason::Sleep);
    handle.shutdown_timeout(Duration::from_secs(100)).unwrap();
    handle.shutdown_timeout(Duration::MAX).unwrap();
    drop(runtime);
    assert_eq!(ends.join().unwrap(), 7);
}

#[test]
fn the_global_runtime_refuses() {
    let _watch = watch();
    let handle = sinew::spawn(Handle::current).join().unwrap();
    for refused in [handle.shutdown(), handle.shutdown_timeout(SOON)] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unsupported);
    }
    assert!(!sinew::spawn(sinew::is_cancelled).join().unwrap());
}

#[test]
fn daemons_are_waited_for_as_long_as_is_set() {
    let _watch = watch();
    for workers in [1, 2] {
        let builder = sinew::Runtime::builder().workers(workers);
        let runtime = builder.daemon_grace(Duration::ZERO).build().unwrap();
        let daemon = Builder::new().daemon(true);
        let daemon = daemon.spawn_on(&runtime.handle(), stubborn(Gate::new()));
        let daemon = daemon.unwrap();
        wait_until(|| daemon.fiber().wait_reason() == WaitReason::Park);
        drop(runtime);
        assert!(!daemon.is_finished());

        // This one takes longer than the usual grace of this test, and is awaited.
        let builder = sinew::Runtime::builder().workers(workers);
        let runtime = builder.daemon_grace(Duration::MAX).build().unwrap();
        let daemon = Builder::new().daemon(true);
        let daemon = daemon.spawn_on(&runtime.handle(), || {
            assert_eq!(sinew::sleep(HOUR), Err(Cancelled));
            shield(|| sinew::sleep(SOON)).unwrap();
        });
        let daemon = daemon.unwrap();
        wait_until(|| daemon.fiber().wait_reason() == WaitReason::Sleep);
        drop(runtime);
        assert!(daemon.is_finished());
    }
}
