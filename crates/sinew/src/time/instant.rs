//! A point in time on the clock of whoever asks.

use crate::wait::{Deadline, deadline};
use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::time::Duration;

/// A point in time; std's `Instant`, but on a fiber it follows the clock of the
/// fiber's runtime, which a simulation may replace.
///
/// ```
/// use std::time::Duration;
/// use sinew::time::Instant;
///
/// let start = Instant::now();
/// let later = start + Duration::from_secs(1);
/// assert_eq!(later.duration_since(start), Duration::from_secs(1));
/// assert_eq!(start.checked_duration_since(later), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub(super) u64);

impl Instant {
    /// The moment when a wait until `deadline` ends.
    pub(crate) fn of_deadline(deadline: Deadline) -> Self {
        Self(deadline.0)
    }

    /// Now.
    pub fn now() -> Self {
        Self(deadline::now())
    }

    /// This moment as the end of a wait.
    pub(crate) fn deadline(self) -> Deadline {
        Deadline(self.0)
    }

    /// How long ago `earlier` was; zero if it is later, as in std.
    pub fn duration_since(&self, earlier: Self) -> Duration {
        self.saturating_duration_since(earlier)
    }

    /// How long ago `earlier` was; none if it is later.
    pub fn checked_duration_since(&self, earlier: Self) -> Option<Duration> {
        self.0.checked_sub(earlier.0).map(Duration::from_nanos)
    }

    /// How long ago `earlier` was; zero if it is later.
    pub fn saturating_duration_since(&self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// How much time has passed since.
    pub fn elapsed(&self) -> Duration {
        Self::now().saturating_duration_since(*self)
    }

    /// This much later; none if that is beyond the range.
    pub fn checked_add(&self, duration: Duration) -> Option<Self> {
        let nanos = u64::try_from(duration.as_nanos()).ok()?;
        self.0.checked_add(nanos).map(Self)
    }

    /// This much earlier; none if that is beyond the range.
    pub fn checked_sub(&self, duration: Duration) -> Option<Self> {
        let nanos = u64::try_from(duration.as_nanos()).ok()?;
        self.0.checked_sub(nanos).map(Self)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// # Panics
    ///
    /// If the result is beyond the range, as in std.
    fn add(self, duration: Duration) -> Self {
        self.checked_add(duration)
            .expect("overflow when adding duration to instant")
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    /// # Panics
    ///
    /// If the result is beyond the range, as in std.
    fn sub(self, duration: Duration) -> Self {
        self.checked_sub(duration)
            .expect("overflow when subtracting duration from instant")
    }
}

impl SubAssign<Duration> for Instant {
    fn sub_assign(&mut self, duration: Duration) {
        *self = *self - duration;
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.duration_since(earlier)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Instant")
            .field(&Duration::from_nanos(self.0))
            .finish()
    }
}
