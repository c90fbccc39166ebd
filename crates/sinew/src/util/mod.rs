//! Small structures that know nothing of fibers.

pub(crate) mod heap;
pub(crate) mod list;
pub(crate) mod rng;
