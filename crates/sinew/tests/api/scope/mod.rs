//! Scopes of all kinds, and the values that belong to fibers and scopes.
//!
//! What std's own tests say of `thread::scope` is in `plain` and `panics`.

mod cancel;
mod collect;
mod limits;
mod local_ends;
mod locals;
mod nursery;
mod owners;
mod panics;
mod places;
mod plain;
mod race;
mod restarts;
mod supervise;
mod values;

use crate::harness::{in_fibers, wait_until, watch};
use sinew::{Fiber, WaitReason};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// Longer than anything here takes, for what would otherwise be a hang.
const FOR_EVER: Duration = Duration::from_secs(30);

/// Calls `test` in fibers of one and two workers, and on this plain thread, whose
/// children are fibers of the global runtime.
fn everywhere(test: impl Fn() + Sync) {
    in_fibers(&test);
    let _watch = watch();
    test();
}

/// Waits until the fiber waits in this way.
fn waits_in(fiber: &Fiber, reason: WaitReason) {
    wait_until(|| fiber.wait_reason() == reason);
}

/// What `f` panics with.
#[track_caller]
fn panic_of<T>(f: impl FnOnce() -> T) -> Box<dyn Any + Send> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(_) => panic!("it did not panic"),
        Err(payload) => payload,
    }
}

/// The text that it says, if it is one.
fn text_of(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&'static str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text")
}

/// Counts how often it was dropped.
struct Counts<'a>(&'a AtomicUsize);

impl Drop for Counts<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn count(counter: &AtomicUsize) -> usize {
    counter.load(Ordering::SeqCst)
}
