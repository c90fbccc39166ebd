//! Time: sleeping, intervals, and an [`Instant`] that follows the runtime's
//! clock.

pub(crate) mod alarm;
mod instant;
mod interval;
mod sleep;

pub use instant::Instant;
pub use interval::{Interval, interval};
pub use sleep::{sleep, sleep_until};

// So that `use sinew::time::{Duration, Instant}` takes the place of std's line.
pub use std::time::{Duration, SystemTime, SystemTimeError, TryFromFloatSecsError, UNIX_EPOCH};
