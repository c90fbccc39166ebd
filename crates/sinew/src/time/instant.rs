//! A point in time on the clock of whoever asks.

use crate::timer::RealClock;
use crate::wait::{Deadline, deadline};
use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::sync::OnceLock;
use std::time::Duration;

/// A point in time; std's `Instant`, but on a fiber it follows the clock of the
/// fiber's runtime, which a simulation may replace.
///
/// `From` converts between the two, both ways, by the real clock.
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

    /// std's name for the moment 0, or some nanoseconds earlier; always the same
    /// answer.
    fn zero() -> std::time::Instant {
        static ZERO: OnceLock<std::time::Instant> = OnceLock::new();
        *ZERO.get_or_init(|| {
            // The second look at the clock comes later than the first, so each try
            // is too early, by the time in between: the latest is the best.
            let a_try = |_| std::time::Instant::now() - Self::real_now().since_zero();
            (0..16).map(a_try).max().expect("there are some")
        })
    }

    /// Now, by the real clock, whatever the fiber's runtime follows.
    fn real_now() -> Self {
        Self(RealClock::new().now_ns())
    }

    fn since_zero(self) -> Duration {
        Duration::from_nanos(self.0)
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

/// The same moment, for a wait until it, say.
///
/// It is not earlier, and later by nanoseconds at most: by what a look at the clock
/// takes, the same for all. So there and back again it is what it was, and the order
/// of any two stays the same. Moments from before this process first asked Sinew for
/// the time all become that one.
///
/// Beware of a runtime with a simulated clock: std's moments are the real clock's, and
/// mean nothing on its fibers. Convert durations there.
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
        let nanos = moment.saturating_duration_since(Self::zero()).as_nanos();
        Self(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// The same moment, for code that takes std's.
///
/// It is not later, and earlier by nanoseconds at most; see the conversion the other
/// way.
///
/// One that was read on a simulated clock becomes a moment that has nothing to do with
/// it.
///
/// ```
/// use sinew::time::Instant;
///
/// let ours = Instant::now();
/// let std_s = std::time::Instant::from(ours);
/// assert_eq!(Instant::from(std_s), ours);
/// assert!(std_s <= std::time::Instant::now());
/// ```
impl From<Instant> for std::time::Instant {
    fn from(moment: Instant) -> Self {
        Instant::zero() + moment.since_zero()
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Instant").field(&self.since_zero()).finish()
    }
}
