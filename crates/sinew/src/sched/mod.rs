//! Leaving a CPU and coming back to one.
//!
//! This is the half of the scheduler that fibers call: what a runtime shares
//! ([`shared`]) and a worker owns ([`core`]), how a fiber finds it ([`current`]), how it leaves its stack
//! ([`switch`]) and what runs then ([`hooks`]), how ready fibers get into queues
//! ([`submit`]) and how workers that sleep are told of work ([`idle`]); and how a fiber
//! that polls lets others run ([`polling`]). The threads that drive it all are a
//! layer above (`worker`). What a simulation replaces is in [`seam`].

pub(crate) mod awaited;
pub(crate) mod bell;
pub(crate) mod core;
pub(crate) mod current;
pub(crate) mod duty;
pub(crate) mod hooks;
pub(crate) mod idle;
mod load;
pub(crate) mod panics;
pub(crate) mod polling;
mod queues;
pub(crate) mod seam;
pub(crate) mod shared;
pub(crate) mod starved;
pub(crate) mod submit;
pub(crate) mod switch;
pub(crate) mod turns;

#[cfg(all(test, loom))]
mod duty_loom_tests;
#[cfg(all(test, loom))]
mod loom_tests;
