//! A stackful M:N fiber runtime: ordinary blocking code, and a great many of
//! such "threads" on a handful of OS threads.
//!
//! ```
//! let answers: Vec<u64> = sinew::run(|| {
//!     let fibers: Vec<_> = (0..100).map(|i| sinew::spawn(move || i * i)).collect();
//!     fibers.into_iter().map(|fiber| fiber.join().unwrap()).collect()
//! });
//! assert_eq!(answers[9], 81);
//! ```
//!
//! | for | see |
//! |---|---|
//! | starting and joining fibers | [`spawn`], [`spawn_local`], [`Builder`], [`JoinHandle`], [`Fiber`] |
//! | waiting | [`park`], [`sleep`], [`interval`], [`yield_now`], [`block_on`] |
//! | locks, signals, counters, values made once | [`sync`]: [`Mutex`](sync::Mutex), [`Semaphore`](sync::Semaphore), [`OnceLock`](sync::OnceLock), … |
//! | messages | [`channel`]: [`bounded`](channel::bounded), [`unbounded`](channel::unbounded), [`oneshot`](channel::oneshot), [`broadcast`](channel::broadcast), [`watch`](channel::watch) |
//! | the first of several things | [`select!`], [`select_biased!`], [`race!`], [`channel::Select`], [`Waitable`] |
//! | work that blocks a thread | [`blocking`], [`spawn_blocking`] |
//! | fibers that borrow, and end together | [`scope()`], and [`scope`](mod@scope) for other policies |
//! | being asked to stop | [`Fiber::cancel`], [`check_cancelled`], [`checkpoint`], [`Cancelled`], [`CancelToken`] |
//! | limits, and finishing in peace | [`timeout()`], [`deadline`], [`shield`], [`finally`] |
//! | values of a fiber, or of a call | [`fiber_local!`], [`ScopedValue`] |
//! | sockets, names | [`net`]: [`TcpListener`](net::TcpListener), [`TcpStream`](net::TcpStream), [`UdpSocket`](net::UdpSocket), [`UnixStream`](net::UnixStream), … |
//! | files, processes, signals | [`fs`], [`process`], [`signal`] |
//! | copying, standard input and output, any descriptor | [`io`] |
//! | TLS, async libraries | `tls`, `interop` (features) |
//! | contexts that libraries keep per thread | [`hooks`] |
//! | long computations | [`safepoint`], [`no_suspend`] and the attributes below |
//! | runtimes | [`run`], [`Runtime`], [`RuntimeBuilder`], [`Handle`], [`RuntimeStats`], [`FiberInfo`], [`IoDriver`] |
//! | all of it by example | [`guide`] |
//!
//! | feature | default | what you gain |
//! |---|---|---|
//! | `macros` | yes | `#[sinew::main]`, `#[sinew::test]`, `#[sinew::preemptible]`, `#[sinew::unchecked]`; `select!`, `select_biased!`, `race!` |
//! | `tls` | no | `sinew::tls`: rustls clients and servers |
//! | `futures-io` | no | `sinew::interop`: `AsyncRead` and `AsyncWrite` for sockets |
//! | `hyper` | no | `sinew::interop`: `hyper::rt` for sockets, timers and fibers |
//! | `tracing` | no | spans of `tracing` stay with their fiber |
//! | `sanitizer` | no | AddressSanitizer is told of every stack switch |
//!
//! The repository's README has the limits and the environment variables,
//! `docs/soundness.md` the guarantees and how they are kept.

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

mod reactor;

mod worker;

mod runtime;

pub mod time;

mod task;

pub mod sync;

mod cancel;
mod local;

pub mod hooks;

pub mod channel;

#[doc(hidden)]
#[path = "select/mod.rs"]
pub mod __select;

pub mod scope;

pub mod io;
pub mod net;

pub mod fs;
pub mod process;
pub mod signal;

#[cfg(feature = "tls")]
pub mod tls;

#[cfg(any(feature = "futures-io", feature = "hyper"))]
pub mod interop;

pub use cancel::{
    CancelToken, CancelledWait, Elapsed, cancel_reason, check_cancelled, deadline, finally,
    is_cancelled, shield, timeout,
};
pub use error::{Cancelled, JoinError};
pub use fiber::{CancelReason, FiberId, Priority, WaitReason};
pub use local::{AccessError, FiberKey, ScopedValue};
pub use reactor::IoDriver;
pub use runtime::{
    GuardStats, Handle, LeakedFiber, Runtime, RuntimeBuilder, RuntimeStats, ShutdownError,
    WorkerStats,
};
pub use scope::{Scope, ScopedJoinHandle, scope};
#[doc(hidden)]
pub use task::trial as __test;
pub use task::{
    Builder, Fiber, JoinHandle, LocalJoinHandle, block_on, block_on_or_cancelled, blocking,
    checkpoint, current, no_suspend, park, park_or_cancelled, park_timeout, run, safepoint, spawn,
    spawn_blocking, spawn_local, yield_now,
};
pub use time::{interval, sleep, sleep_until};
pub use worker::fibers::{FiberInfo, FiberState, Fibers};
pub use worker::hog::{HogCause, HogReport};

// What std's `thread` has and fibers need no other version of, so that `use sinew as
// thread` finds all.
pub use std::thread::{available_parallelism, panicking};

#[cfg(feature = "macros")]
pub use sinew_macros::{main, preemptible, race, select, select_biased, test, unchecked};

pub use __select::Waitable;

#[doc = include_str!("../../../docs/guide.md")]
pub mod guide {}

/// The README's examples, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}

#[doc(hidden)]
pub mod bench_internals;
