#![doc = include_str!("../../../README.md")]
#![cfg_attr(loom, allow(dead_code, unused_imports))]

// The macros name items of this crate by `::sinew`, also in our own tests.
extern crate self as sinew;

mod error;
mod primitive;
mod util;

mod sys;

mod stack;

mod fiber;

mod queue;
mod timer;

mod sched;

mod wait;

mod worker;

mod runtime;

pub mod time;

mod cancel;
mod task;

pub use cancel::{check_cancelled, is_cancelled};
pub use error::{Cancelled, JoinError};
pub use fiber::{FiberId, Priority, WaitReason};
pub use runtime::{
    GuardStats, Handle, LeakedFiber, Runtime, RuntimeBuilder, RuntimeStats, ShutdownError,
    WorkerStats,
};
pub use task::{
    Builder, Fiber, JoinHandle, LocalJoinHandle, block_on, blocking, checkpoint, current,
    no_suspend, park, park_timeout, run, safepoint, spawn, spawn_blocking, spawn_local, yield_now,
};
pub use time::{interval, sleep, sleep_until};
pub use worker::monitor::HogReport;

#[cfg(feature = "macros")]
pub use sinew_macros::{main, preemptible, test, unchecked};

#[doc = include_str!("../../../docs/guide.md")]
pub mod guide {}

#[doc(hidden)]
pub mod bench_internals;
