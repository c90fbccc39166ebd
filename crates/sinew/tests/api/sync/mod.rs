//! What the primitives of `sinew::sync` do, one module each; that they do it
//! for every kind of waiter is in `tests/conformance/sync.rs`.

#[path = "../../harness/poll.rs"]
mod poll;

mod all;
mod barrier;
mod condvar;
mod event;
mod fair_mutex;
mod futex;
mod loans;
mod mixed;
mod mutex;
mod notify;
mod once;
mod parts;
mod priority;
mod promise;
mod rwlock;
mod semaphore;
mod sequencer;
mod wait_group;
mod wakers;

use crate::harness::{Rng, wait_until};
use sinew::{JoinHandle, WaitReason};
use std::time::Duration;

/// For waits that something else ends.
const HOUR: Duration = Duration::from_secs(3600);

/// For waits that time ends.
const SHORT: Duration = Duration::from_micros(300);

/// Lets others run until this fiber waits.
fn parked<T>(handle: &JoinHandle<T>) {
    let fiber = handle.fiber();
    wait_until(|| {
        assert!(!fiber.is_finished(), "it ended instead of waiting");
        fiber.wait_reason() != WaitReason::None
    });
}

/// Starts a fiber, and waits until it waits or has ended, as one with a time
/// limit may.
#[track_caller]
fn spawn_begun<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let handle = sinew::spawn(f);
    let fiber = handle.fiber();
    wait_until(|| fiber.is_finished() || fiber.wait_reason() != WaitReason::None);
    handle
}

/// Lets everybody run who can: on one worker each of them for sure.
fn settle() {
    for _ in 0..40 {
        sinew::yield_now();
    }
}

/// Starts a fiber, and waits until it waits.
#[track_caller]
fn spawn_parked<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let handle = sinew::spawn(f);
    parked(&handle);
    handle
}

/// Numbers from a seed that a failure shows; `SINEW_SEED` sets it.
fn seeded() -> Rng {
    let given = std::env::var("SINEW_SEED").ok();
    let seed = given.map_or_else(
        || std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0),
        |text| text.parse().unwrap(),
    );
    println!("SINEW_SEED={seed}");
    Rng::new(seed)
}
