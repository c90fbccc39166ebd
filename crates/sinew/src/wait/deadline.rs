//! When a wait gives up.
//!
//! A point on the clock of whoever waits: a fiber's runtime may run on a
//! virtual clock, a plain thread always runs on the real one.

use crate::sched::{current, switch};
use crate::timer::RealClock;
use std::time::{Duration, Instant};

/// Nanoseconds on the waiter's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Deadline(pub(crate) u64);

/// The time on the clock of the running fiber, or of this thread.
pub(crate) fn now() -> u64 {
    if switch::running().is_some() {
        // SAFETY: a fiber runs here, so this thread has a live core.
        unsafe { &*current::core() }.shared().clock.now()
    } else {
        RealClock::new().now_ns()
    }
}

impl Deadline {
    /// `timeout` from now; none if that is beyond the clock's range (438 years).
    pub(crate) fn after(timeout: Duration) -> Option<Self> {
        let nanos = u64::try_from(timeout.as_nanos()).ok()?;
        now().checked_add(nanos).map(Self)
    }

    /// The earlier of two, where none is never.
    pub(crate) fn earlier(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// The same moment for a thread that sleeps in the kernel.
    pub(crate) fn as_instant(self) -> Instant {
        let left = self.0.saturating_sub(RealClock::new().now_ns());
        Instant::now() + Duration::from_nanos(left)
    }
}
