//! Leaving a CPU and coming back to one.
//!
//! This is the half of the scheduler that fibers call: what a runtime shares
//! ([`shared`]) and a worker owns ([`core`]), how a fiber finds it ([`current`]), how it leaves its stack
//! ([`switch`]), how ready fibers get into queues ([`submit`]) and how workers
//! that sleep are told of work ([`idle`]). The threads that drive it all are a
//! layer above (`worker`). What a simulation replaces is in [`seam`].

pub(crate) mod bell;
pub(crate) mod core;
pub(crate) mod current;
pub(crate) mod idle;
pub(crate) mod panics;
pub(crate) mod seam;
pub(crate) mod shared;
pub(crate) mod submit;
pub(crate) mod switch;

#[cfg(all(test, loom))]
mod loom_tests;
