//! Cancellation: requests, limits, shields and what cleans up.

mod blocking;
mod deaf;
mod fibers;
mod finally;
mod futures;
mod joins;
mod points;
mod reasons;
mod shield;
mod threads;
mod timeout;
mod token_waits;
mod tokens;

use crate::harness::{Gate, wait_until};
use sinew::{Fiber, JoinHandle, WaitReason};
use std::time::Duration;

/// For waits that something else ends.
const HOUR: Duration = Duration::from_secs(3600);

/// For waits that time ends.
const SHORT: Duration = Duration::from_millis(1);

/// Lets others run until this fiber waits.
#[track_caller]
fn parked(fiber: &Fiber) {
    wait_until(|| {
        assert!(!fiber.is_finished(), "it ended instead of waiting");
        fiber.wait_reason() != WaitReason::None
    });
}

/// Starts a fiber, and waits until it waits.
#[track_caller]
fn spawn_parked<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let handle = sinew::spawn(f);
    parked(&handle.fiber());
    handle
}

/// Starts a fiber, and waits until it has begun.
fn spawn_begun<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let begun = Gate::new();
    let theirs = begun.clone();
    let handle = sinew::spawn(move || {
        theirs.open();
        f()
    });
    begun.pass();
    handle
}

/// Calls `test` on a plain thread, and in fibers.
fn everywhere(test: impl Fn() + Sync) {
    let _watch = crate::harness::watch();
    test();
    crate::harness::in_fibers(test);
}
