//! The threads that run it all.
//!
//! A worker thread repeats three steps: pick a fiber, switch to it, act on what
//! it intends when it comes back ([`run`]). When it has nothing it searches
//! ([`search`]) and then sleeps ([`sleep`]). Beside the workers there are the
//! pool of threads that may block ([`pool`]), the monitor that watches the
//! workers ([`monitor`]), and the protocol by which all of it ends
//! ([`shutdown`]).

pub(crate) mod first_frame;
pub(crate) mod monitor;
pub(crate) mod pool;
pub(crate) mod run;
pub(crate) mod search;
pub(crate) mod services;
pub(crate) mod shutdown;
pub(crate) mod sleep;

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;
