//! A point in time on the clock of whoever asks.
//!
//! It is kept as std's `Instant`, which has a name for every moment before and after
//! the process' start, and whose arithmetic is exact. The real clock counts from
//! `RealClock::epoch`, so its numbers and std's moments are the same up to a constant.
//! A virtual clock's numbers are taken as counted from there, too.

use crate::timer::{AHEAD_NS, RealClock};
use crate::wait::{Deadline, deadline};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::time::Duration;

/// A point in time; std's `Instant`, but on a fiber it follows the clock of the
/// fiber's runtime, which a simulation may replace.
///
/// `From` converts between the two, both ways and exactly, by the real clock.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use sinew::time::Instant;
///
/// let start = Instant::now();
/// let later = start + Duration::from_secs(1);
/// assert_eq!(later.duration_since(start), Duration::from_secs(1));
/// assert_eq!(start.checked_duration_since(later), None);
///
/// // As in std on Linux, a moment may lie before the start of the program.
/// let long_ago = start - Duration::from_secs(3600);
/// assert!(long_ago.elapsed() >= Duration::from_secs(3600));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(std::time::Instant);

impl Instant {
    /// The moment when a wait until `deadline` ends.
    pub(crate) fn of_deadline(deadline: Deadline) -> Self {
        Self(RealClock::epoch() + Duration::from_nanos(deadline.0))
    }

    /// Now.
    pub fn now() -> Self {
        Self::of_deadline(Deadline(deadline::now()))
    }

    /// This moment as the end of a wait: it has passed if it is before the clock's
    /// range, and never comes if it is beyond.
    pub(crate) fn deadline(self) -> Deadline {
        let since = self.0.saturating_duration_since(RealClock::epoch());
        Deadline(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Nanoseconds since the process first looked at the clock, or before; what does
    /// not depend on how long the machine has been up.
    fn offset(self) -> i128 {
        let epoch = RealClock::epoch();
        let since_epoch = match self.0.checked_duration_since(epoch) {
            Some(since) => since.as_nanos() as i128,
            None => -(epoch.duration_since(self.0).as_nanos() as i128),
        };
        since_epoch - i128::from(AHEAD_NS)
    }

    /// How long ago `earlier` was; zero if it is later, as in std.
    pub fn duration_since(&self, earlier: Self) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }

    /// How long ago `earlier` was; none if it is later.
    pub fn checked_duration_since(&self, earlier: Self) -> Option<Duration> {
        self.0.checked_duration_since(earlier.0)
    }

    /// How long ago `earlier` was; zero if it is later.
    pub fn saturating_duration_since(&self, earlier: Self) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }

    /// How much time has passed since.
    pub fn elapsed(&self) -> Duration {
        Self::now().saturating_duration_since(*self)
    }

    /// This much later; none if that is beyond the range.
    pub fn checked_add(&self, duration: Duration) -> Option<Self> {
        self.0.checked_add(duration).map(Self)
    }

    /// This much earlier; none if that is beyond the range, which on Linux begins long
    /// before the machine was started.
    pub fn checked_sub(&self, duration: Duration) -> Option<Self> {
        self.0.checked_sub(duration).map(Self)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// # Panics
    ///
    /// If the result is beyond the range, as in std.
    #[track_caller]
    fn add(self, duration: Duration) -> Self {
        self.checked_add(duration)
            .expect("overflow when adding duration to instant")
    }
}

impl AddAssign<Duration> for Instant {
    #[track_caller]
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    /// # Panics
    ///
    /// If the result is beyond the range, as in std.
    #[track_caller]
    fn sub(self, duration: Duration) -> Self {
        self.checked_sub(duration)
            .expect("overflow when subtracting duration from instant")
    }
}

impl SubAssign<Duration> for Instant {
    #[track_caller]
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

/// The same moment, for a wait until it, say. Exact: there and back again it is what it
/// was.
///
/// Beware of a runtime with a simulated clock: std's moments are the real clock's, and
/// mean nothing on its fibers. Convert durations there.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// let deadline = std::time::Instant::now() + Duration::from_millis(2);
/// sinew::run(|| sinew::sleep_until(deadline.into()).unwrap());
/// assert!(std::time::Instant::now() >= deadline);
/// ```
impl From<std::time::Instant> for Instant {
    fn from(moment: std::time::Instant) -> Self {
        Self(moment)
    }
}

/// The same moment, exactly, for code that takes std's.
///
/// One that was read on a simulated clock becomes a moment that has nothing to do with
/// it.
///
/// # Examples
///
/// ```
/// use sinew::time::Instant;
///
/// let before = std::time::Instant::now();
/// let ours = Instant::now();
/// let std_s = std::time::Instant::from(ours);
/// assert_eq!(Instant::from(std_s), ours);
/// assert!(before <= std_s && std_s <= std::time::Instant::now());
/// ```
impl From<Instant> for std::time::Instant {
    fn from(moment: Instant) -> Self {
        moment.0
    }
}

/// By the offset, so that a simulation hashes the same in every process.
impl Hash for Instant {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.offset().hash(state);
    }
}

/// The time since the process first looked at the clock, negative before.
impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offset = self.offset();
        let nanos = offset.unsigned_abs();
        // Within the range of std's instants, whose seconds fit 64 bits.
        let secs = u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX);
        let size = Duration::new(secs, (nanos % 1_000_000_000) as u32);
        let sign = if offset < 0 { "-" } else { "" };
        write!(f, "Instant({sign}{size:?})")
    }
}
