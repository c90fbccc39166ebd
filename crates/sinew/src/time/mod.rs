//! Time: sleeping, intervals, and an [`Instant`] that follows the runtime's
//! clock.

mod instant;
mod interval;
mod sleep;

pub use instant::Instant;
pub use interval::{Interval, interval};
pub use sleep::{sleep, sleep_until};
