//! Fibers that had to let others run because they computed for long.
//!
//! Within a priority they come after all fibers that were woken, have yielded or
//! have not started: those mostly run for microseconds, these for as long as they
//! may. So a fiber that waits for time or for a socket does not wait for the
//! quanta of those that compute, however many they are.
//!
//! Others could keep them from running for ever, so they have a least share of
//! time: when the preempted fibers of a level have been passed over for
//! [`PREEMPTED_AFTER`], one of them has a turn before the others of its level. It
//! keeps the worker until the monitor finds that it has run for more than a
//! millisecond, so that the share is a tenth or more even if the monitor is
//! late. In a level that is itself passed over, time counts as for levels
//! ([`LOWER_AFTER`]): there a turn comes with the level's own. Of two turns of a
//! level in a row, while it has both kinds, at most one is a preempted fiber's.

use super::entry::Entry;
use super::fifo::Levels;
use super::level::LOWER_AFTER;
use super::share::Share;
use crate::fiber::Priority;

/// For how long (ns) the preempted fibers of the highest level are passed over
/// before one of them has its turn.
pub(crate) const PREEMPTED_AFTER: u64 = 4_000_000;

/// See the module header.
pub(crate) struct Preempted {
    levels: Levels,
    shares: [Share; Priority::LEVELS],
    /// Bit per level that is owed a turn by time.
    owed: u8,
    /// Bit per level whose last turn was a preempted fiber's.
    last: u8,
}

impl Preempted {
    pub(crate) fn new() -> Self {
        Self {
            levels: Levels::new(),
            shares: [const { Share::new() }; Priority::LEVELS],
            owed: 0,
            last: 0,
        }
    }

    pub(crate) fn push(&mut self, level: usize, entry: Entry) {
        self.levels.push(level, entry);
    }

    /// Bit per level that has some.
    #[inline]
    pub(crate) fn ready(&self) -> u8 {
        self.levels.ready()
    }

    pub(crate) fn len(&self) -> usize {
        self.levels.len()
    }

    /// Whether the next turn of a level that has some is theirs; `others` says
    /// whether the level has fibers of the other kind, too.
    pub(crate) fn have_turn(&mut self, level: usize, others: bool) -> bool {
        let bit = 1 << level;
        let theirs = !others || self.owed & !self.last & bit != 0;
        if !theirs {
            self.last &= !bit;
        }
        theirs
    }

    /// The oldest of a level, whose turn it is.
    pub(crate) fn pop(&mut self, level: usize) -> Option<Entry> {
        let bit = 1 << level;
        self.last |= bit;
        self.owed &= !bit;
        self.shares[level].served();
        self.levels.pop(level)
    }

    /// Notes the time. `all` has a bit for each level with a fiber that runs or
    /// could run; `running` is the level of a fiber that computes now, and so has
    /// the turn of its kind.
    pub(crate) fn look(&mut self, all: u8, running: Option<usize>, now: u64) {
        let ready = self.levels.ready();
        for (level, share) in self.shares.iter_mut().enumerate() {
            let bit = 1 << level;
            if running == Some(level) {
                share.served();
                self.owed &= !bit;
                continue;
            }
            let after = if all >> level > 1 {
                LOWER_AFTER
            } else {
                PREEMPTED_AFTER
            };
            if share.look(ready & bit != 0, now, after) {
                self.owed |= bit;
            } else {
                self.owed &= !bit;
            }
        }
    }

    /// As [`Levels::resort`].
    pub(crate) fn resort(&mut self, level_of: impl Fn(Entry) -> usize) {
        self.levels.resort(level_of);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{PREEMPTED_AFTER, Preempted};
    use crate::queue::Entry;
    use std::ptr::NonNull;

    const MS: u64 = 1_000_000;

    fn entry(n: usize) -> Entry {
        Entry::started(NonNull::new(std::ptr::without_provenance_mut(n * 64)).unwrap())
    }

    #[test]
    fn they_come_after_the_others_of_their_level_and_in_order() {
        let mut preempted = Preempted::new();
        (1..=3).for_each(|n| preempted.push(1, entry(n)));
        assert!((0..1000).all(|_| !preempted.have_turn(1, true)));
        for n in 1..=3 {
            assert!(preempted.have_turn(1, false));
            assert!(preempted.pop(1) == Some(entry(n)));
        }
        assert_eq!((preempted.len(), preempted.ready()), (0, 0));
    }

    /// Plays 1000 ms in which others are always ready; a preempted fiber keeps the
    /// worker for two ticks. Says how many turns it had.
    fn turns_in_a_flood(all: u8) -> u64 {
        let mut preempted = Preempted::new();
        preempted.push(1, entry(1));
        let (mut now, mut turns) = (0, 0);
        while now < 1000 * MS {
            now += MS;
            preempted.look(all, None, now);
            for _ in 0..100 {
                if preempted.have_turn(1, true) {
                    let taken = preempted.pop(1).unwrap();
                    turns += 1;
                    now += 2 * MS;
                    preempted.push(1, taken);
                }
            }
        }
        turns
    }

    #[test]
    fn a_flood_of_others_leaves_them_their_share() {
        let turns = turns_in_a_flood(0b0010);
        let share = turns as f64 * 2.0 / 1000.0;
        assert!((0.1..0.5).contains(&share), "{turns} turns of 2 ms in 1 s");
    }

    #[test]
    fn below_a_busy_level_they_have_less() {
        let turns = turns_in_a_flood(0b1010);
        assert!((60..=90).contains(&turns), "{turns} turns of 2 ms in 1 s");
    }

    #[test]
    fn two_turns_in_a_row_are_not_theirs_while_others_are_ready() {
        let mut preempted = Preempted::new();
        (1..=9).for_each(|n| preempted.push(0, entry(n)));
        let mut now = 0;
        // Two looks: the first finds that they wait, the second for how long.
        let mut wait_long = |preempted: &mut Preempted| {
            for _ in 0..2 {
                now += 2 * PREEMPTED_AFTER;
                preempted.look(1, None, now);
            }
        };
        for _ in 1..9 {
            wait_long(&mut preempted);
            assert!(preempted.have_turn(0, true));
            assert!(preempted.pop(0).is_some());
            wait_long(&mut preempted);
            assert!(!preempted.have_turn(0, true));
        }
    }

    #[test]
    fn while_one_of_them_runs_the_others_are_owed_nothing() {
        let mut preempted = Preempted::new();
        preempted.push(1, entry(1));
        for tick in 0..100 {
            preempted.look(0b0010, Some(1), tick * MS);
        }
        assert!(!preempted.have_turn(1, true));
    }
}
