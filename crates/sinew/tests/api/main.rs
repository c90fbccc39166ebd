//! The public API, one module per topic; each fact on one and on two workers
//! where that makes a difference.

// `map(|()| ())` gives a body that only panics the type `()`; the others are
// what the tests are about.
#![allow(clippy::map_identity, clippy::waker_clone_wake)]

#[path = "../harness/mod.rs"]
mod harness;

mod block_on;
mod blocking;
mod cancel;
mod channel;
mod choices;
mod coroutines;
mod drops;
mod errors;
mod exit;
mod fibers;
mod hogs;
mod in_line;
mod in_waits;
mod join;
mod latency;
mod leaks;
mod local;
mod migrate;
mod names;
mod order;
mod panics;
mod park;
mod polling;
mod priority;
mod reports;
mod requests;
mod review;
mod runtime;
mod safepoint;
mod scope;
mod seeds;
mod shutdown;
mod spawn;
mod stats;
mod std_names;
mod sync;
mod time;
mod trial;
