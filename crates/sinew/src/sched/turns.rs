//! How long fibers kept a worker to themselves, as the monitor saw it.
//!
//! A turn is the time between two switches of a worker. Workers measure none: a clock
//! read for each switch would cost more than the switch. The monitor sees at its ticks
//! which turns go on, and books here how much they add to.
//!
//! Invariant: only the runtime's monitor writes, so a load and a store do for an
//! addition. Relaxed, except for `blocked`: a reader that sees blocked time sees the turn
//! that it is part of.

use super::shared::bump;
use crate::primitive::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// From this length on a turn is counted, in each of these that it reaches.
pub(crate) const LIMITS: [Duration; 3] = [
    Duration::from_millis(1),
    Duration::from_millis(10),
    Duration::from_millis(100),
];

/// See the module header.
#[derive(Default)]
pub(crate) struct TurnCounters {
    longest: AtomicU64,
    over: [AtomicU64; LIMITS.len()],
    blocked: AtomicU64,
}

/// What the counters say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TurnTotals {
    pub(crate) longest: Duration,
    /// Turns that reached each of [`LIMITS`].
    pub(crate) over: [u64; LIMITS.len()],
    pub(crate) blocked: Duration,
}

impl TurnCounters {
    /// A turn that had lasted for `before` has lasted for `now`, of which the last
    /// `blocked` were spent in the kernel.
    pub(crate) fn book(&self, before: Duration, now: Duration, blocked: Duration) {
        for (limit, over) in LIMITS.iter().zip(&self.over) {
            if before < *limit && now >= *limit {
                bump(over, 1);
            }
        }
        let nanos = nanos(now);
        if nanos > self.longest.load(Ordering::Relaxed) {
            self.longest.store(nanos, Ordering::Relaxed);
        }
        let total = self.blocked.load(Ordering::Relaxed);
        // Release: pairs with the Acquire in `read`, see the module header.
        let total = total.wrapping_add(self::nanos(blocked));
        self.blocked.store(total, Ordering::Release);
    }

    pub(crate) fn read(&self) -> TurnTotals {
        // First, and Acquire: pairs with the Release in `book`.
        let blocked = Duration::from_nanos(self.blocked.load(Ordering::Acquire));
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TurnTotals {
            longest: Duration::from_nanos(load(&self.longest)),
            over: std::array::from_fn(|limit| load(&self.over[limit])),
            blocked,
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_turn_counts_once_for_each_limit_that_it_reaches() {
        let counters = TurnCounters::default();
        let ms = Duration::from_millis;
        counters.book(ms(0), ms(1), ms(0));
        counters.book(ms(1), ms(9), ms(8));
        assert_eq!(counters.read().over, [1, 0, 0]);
        counters.book(ms(9), ms(250), ms(0));
        counters.book(ms(250), ms(300), ms(50));
        assert_eq!(counters.read().over, [1, 1, 1]);
        counters.book(ms(0), ms(12), ms(2));
        let totals = counters.read();
        assert_eq!(totals.over, [2, 2, 1]);
        assert_eq!(totals.longest, ms(300));
        assert_eq!(totals.blocked, ms(60));
    }
}
