//! The threads that run it all.
//!
//! A worker thread repeats three steps: pick a fiber, switch to it, act on what
//! it intends when it comes back ([`run`]). When it has nothing it searches
//! ([`search`]) and then sleeps ([`sleep`]). Fibers for which there is no stack are dealt
//! with in [`starve`]. Beside the workers there are the
//! pool of threads that may block ([`pool`]), the monitor that watches the
//! workers ([`monitor`], [`hog`]) and tells them about time ([`urgency`]), spare workers
//! that stand in for blocked ones ([`spare`]), the list of fibers ([`fibers`]), and the
//! protocol by which all of it ends ([`shutdown`]), but for the threads of workers that
//! leave fibers behind ([`kept`]).

pub(crate) mod fibers;
pub(crate) mod first_frame;
pub(crate) mod hog;
mod kept;
pub(crate) mod monitor;
pub(crate) mod pool;
mod retry;
pub(crate) mod run;
pub(crate) mod search;
pub(crate) mod services;
pub(crate) mod shutdown;
pub(crate) mod sleep;
pub(crate) mod spare;
pub(crate) mod stall;
pub(crate) mod starve;
pub(crate) mod urgency;

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;
