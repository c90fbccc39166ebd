//! The two clocks a runtime can follow.
//!
//! [`RealClock`] is the machine's monotonic clock. [`VirtualClock`] stands
//! still until somebody moves it: the scheduler moves it to the next timer when
//! no fiber can run, so a simulated hour takes no time.
//!
//! Invariant 1: a clock never goes back, as seen by any one thread.
//!
//! Invariant 2: all real clocks of a process count from the same epoch, so an
//! instant may be carried from one runtime or thread to another.
//!
//! Invariant 3: the epoch is [`AHEAD_NS`] before the process first asked, so what lies
//! before that has a number, too: the program may have begun, or the machine have
//! started, long before.

// std's atomics and not those of `primitive`: the value carries no protocol
// (see `VirtualClock::now_ns`), so there is nothing for loom to explore, and
// its types must not outlive one run of a model.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Where the real clock's zero is.
static EPOCH: OnceLock<Instant> = OnceLock::new();

/// What the real clock says when the process first asks: 2^62 ns are 146 years, and
/// another 438 are left until `u64` ends.
pub(crate) const AHEAD_NS: u64 = 1 << 62;

/// Counts the nanoseconds since the epoch (`CLOCK_MONOTONIC`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RealClock;

impl RealClock {
    /// A clock; they are all the same one.
    pub(crate) const fn new() -> RealClock {
        RealClock
    }

    /// The moment that all real clocks of this process count from (invariant 2).
    #[inline]
    pub(crate) fn epoch() -> Instant {
        *EPOCH.get_or_init(|| {
            // Linux has signed seconds in std's instants, so this is never out of
            // their range. Elsewhere the epoch would be the first look.
            let now = Instant::now();
            now.checked_sub(Duration::from_nanos(AHEAD_NS))
                .unwrap_or(now)
        })
    }

    /// Nanoseconds since the epoch.
    pub(crate) fn now_ns(&self) -> u64 {
        let epoch = Self::epoch();
        // Not `Duration::as_nanos`: that is a 128-bit product which is then
        // narrowed. This one wraps only after 438 years (invariant 3).
        let since = Instant::now().duration_since(epoch);
        since.as_secs() * 1_000_000_000 + u64::from(since.subsec_nanos())
    }
}

/// Stands still until it is moved; clones share one time.
///
/// Only tests use it until there is a simulation.
#[cfg_attr(not(test), allow(dead_code))]
#[derive(Clone, Debug)]
pub(crate) struct VirtualClock {
    /// Only ever raised, by `advance_to` (invariant 1).
    now: Arc<AtomicU64>,
}

#[cfg_attr(not(test), allow(dead_code))]
impl VirtualClock {
    /// A clock of its own, which says `start_ns`.
    pub(crate) fn new(start_ns: u64) -> VirtualClock {
        VirtualClock {
            now: Arc::new(AtomicU64::new(start_ns)),
        }
    }

    /// The virtual time.
    pub(crate) fn now_ns(&self) -> u64 {
        // Relaxed: seeing a time says nothing about what others wrote before
        // it, as with the real clock. That one thread never sees it go back is
        // the coherence of a single atomic, which Relaxed has.
        self.now.load(Relaxed)
    }

    /// Moves the time forward to `ns`; a time already reached changes nothing.
    pub(crate) fn advance_to(&self, ns: u64) {
        // `fetch_max` and not load, compare, store: of two threads that advance
        // at once, the one behind must not undo the other (invariant 1).
        // Relaxed: see `now_ns`.
        self.now.fetch_max(ns, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_real_clock_never_goes_back() {
        let clock = RealClock::new();
        let mut last = clock.now_ns();
        for _ in 0..10_000 {
            let now = clock.now_ns();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn a_real_clock_has_numbers_for_the_time_before_the_first_look() {
        let now = RealClock::new().now_ns();
        assert!(now >= AHEAD_NS);
        assert!(RealClock::epoch() + Duration::from_nanos(now) <= Instant::now());
        // It takes a while until so many years have passed.
        assert!(now < 2 * AHEAD_NS);
    }

    #[test]
    fn real_clocks_on_different_threads_share_an_epoch() {
        let before = RealClock::new().now_ns();
        let there = thread::spawn(|| RealClock::new().now_ns()).join().unwrap();
        let after = RealClock::new().now_ns();
        assert!(before <= there && there <= after);
    }

    #[test]
    fn a_virtual_clock_stands_still_until_it_is_moved() {
        let clock = VirtualClock::new(7);
        assert_eq!(clock.now_ns(), 7);
        assert_eq!(clock.now_ns(), 7);
        clock.advance_to(9);
        assert_eq!(clock.now_ns(), 9);
    }

    #[test]
    fn a_virtual_clock_is_not_moved_back() {
        let clock = VirtualClock::new(100);
        clock.advance_to(50);
        assert_eq!(clock.now_ns(), 100);
        clock.advance_to(u64::MAX);
        clock.advance_to(0);
        assert_eq!(clock.now_ns(), u64::MAX);
    }

    #[test]
    fn clones_of_a_virtual_clock_share_one_time_and_new_ones_do_not() {
        let clock = VirtualClock::new(0);
        let (clone, other) = (clock.clone(), VirtualClock::new(0));
        clone.advance_to(5);
        assert_eq!(clock.now_ns(), 5);
        assert_eq!(other.now_ns(), 0);
    }

    #[test]
    fn threads_that_advance_at_once_leave_the_latest_time() {
        let clock = VirtualClock::new(0);
        thread::scope(|s| {
            for t in 1..=4 {
                let clock = &clock;
                s.spawn(move || {
                    let mut last = 0;
                    for i in 0..1000 {
                        clock.advance_to(i * t);
                        let now = clock.now_ns();
                        assert!(now >= last && now >= i * t);
                        last = now;
                    }
                });
            }
        });
        assert_eq!(clock.now_ns(), 999 * 4);
    }
}
