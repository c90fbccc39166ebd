//! Putting it together: configuration, threads, and the runtime's life.

mod builder;
mod config;
mod fibers;
mod global;
mod overflow;
mod panic_hook;
mod request;
#[allow(clippy::module_inception)] // the noun users know
mod runtime;
mod shutdown_error;
mod stats;

#[cfg(all(test, not(loom)))]
mod tests;

pub use builder::RuntimeBuilder;
pub(crate) use config::{stack_class, test_timeout};
pub(crate) use global::{awaiting_children, shared_for_spawn};
pub use runtime::{Handle, Runtime};
pub use shutdown_error::{LeakedFiber, ShutdownError};
pub use stats::{GuardStats, RuntimeStats, WorkerStats};
