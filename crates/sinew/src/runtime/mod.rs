//! Putting it together: configuration, threads, and the runtime's life.

mod builder;
mod config;
mod global;
mod overflow;
#[allow(clippy::module_inception)] // the noun users know
mod runtime;
mod stats;

#[cfg(all(test, not(loom)))]
mod tests;

pub use builder::RuntimeBuilder;
pub(crate) use config::stack_class;
pub(crate) use global::shared_for_spawn;
pub use runtime::{Handle, LeakedFiber, Runtime, ShutdownError};
pub use stats::{GuardStats, RuntimeStats, WorkerStats};
