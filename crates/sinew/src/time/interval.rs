//! Doing something again and again, in time.

use super::instant::Instant;
use super::sleep::sleep_to;
use crate::error::Cancelled;
use std::panic::Location;
use std::time::Duration;

/// Ticks every `period`, beginning one period from now.
///
/// # Panics
///
/// If `period` is zero.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// sinew::run(|| {
///     let start = Instant::now();
///     let mut interval = sinew::interval(Duration::from_millis(2));
///     for _ in 0..3 {
///         interval.tick().unwrap();
///     }
///     assert!(start.elapsed() >= Duration::from_millis(6));
/// });
/// ```
#[track_caller]
pub fn interval(period: Duration) -> Interval {
    assert!(!period.is_zero(), "an interval's period must not be zero");
    Interval {
        period,
        next: Instant::now().checked_add(period),
        ended: false,
    }
}

/// Made by [`interval`].
#[derive(Debug)]
pub struct Interval {
    period: Duration,
    /// None: beyond the clock's range, that is never.
    next: Option<Instant>,
    ended: bool,
}

impl Interval {
    /// Waits for the next tick, and says when it was due; a cancellation point.
    ///
    /// Ticks keep to the grid of the period. If the caller was late the missed
    /// ticks are skipped: it never gets two at once to catch up.
    ///
    /// # Errors
    ///
    /// [`Cancelled`] if the fiber was cancelled.
    #[track_caller]
    pub fn tick(&mut self) -> Result<Instant, Cancelled> {
        let due = self.next;
        sleep_to(due.map(Instant::deadline), Location::caller())?;
        let due = due.expect("a sleep without an end does not end");
        let now = Instant::now();
        let missed = now.duration_since(due).as_nanos() / self.period.as_nanos();
        let periods = u32::try_from(missed + 1).unwrap_or(u32::MAX);
        self.next = self
            .period
            .checked_mul(periods)
            .and_then(|ahead| due.checked_add(ahead));
        Ok(due)
    }

    /// The time between two ticks.
    pub fn period(&self) -> Duration {
        self.period
    }
}

/// Ticks until the fiber is cancelled: says so once, then ends.
///
/// ```
/// use std::time::Duration;
///
/// sinew::run(|| {
///     let ticker = sinew::spawn(|| sinew::interval(Duration::from_millis(1)).count());
///     ticker.cancel();
///     // If it had begun: some ticks, then one `Err`, then the end.
///     assert_ne!(ticker.join().ok(), Some(0));
/// });
/// ```
impl Iterator for Interval {
    type Item = Result<Instant, Cancelled>;

    #[track_caller]
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let tick = self.tick();
        self.ended = tick.is_err();
        Some(tick)
    }
}
