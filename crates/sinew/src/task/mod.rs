//! Fibers as users see them: spawning, joining, parking, blocking.
//!
//! The names are those of `std::thread`; what is more is in extra functions.

mod async_sleep;
mod block_on;
mod blocking;
mod builder;
mod fiber;
mod join;
mod park;
mod run;
mod safepoint;
mod spawn;
pub mod trial;

pub(crate) use async_sleep::AsyncSleep;
pub use block_on::{block_on, block_on_or_cancelled};
pub(crate) use blocking::blocking_at;
pub use blocking::{blocking, spawn_blocking};
pub use builder::Builder;
pub(crate) use builder::check_name;
pub use fiber::{Fiber, current};
pub use join::{JoinHandle, LocalJoinHandle};
pub use park::{checkpoint, park, park_or_cancelled, park_timeout, yield_now};
pub use run::run;
pub use safepoint::{no_suspend, safepoint};
pub(crate) use spawn::{Request, cannot_spawn, spawn_on};
pub use spawn::{spawn, spawn_local};
