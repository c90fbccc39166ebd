//! Which priority level runs next.
//!
//! Higher levels first, but lower ones have a least share of the worker:
//!
//! * by switches: whenever ready lower levels were passed over [`PATIENCE`] times,
//!   one of them gets a turn;
//! * by time: when a lower level has been passed over for [`LOWER_AFTER`], it gets a
//!   turn, however few switches that were. The worker asks for it when it looks
//!   around by time ([`LevelPicker::look`]).
//!
//! The lower levels take such turns in rounds. A level that has nothing but
//! preempted fibers, which compute, gets its turns by time alone: one that lasts a
//! millisecond after every 64 switches of a microsecond would be nearly all of the
//! time. Where only switches count (`strict_order`, simulation) there are no
//! preempted fibers and no looks by time, and with `n` fibers ahead of it in its
//! level a ready fiber runs after at most `3 · PATIENCE · (n + 1)` switches.

use super::share::Share;
use crate::fiber::Priority;

/// How often lower levels are passed over before one has its turn.
pub(crate) const PATIENCE: u32 = 64;

/// For how long (ns) a lower level is passed over before it has its turn.
pub(crate) const LOWER_AFTER: u64 = 10_000_000;

/// Chooses among levels; one per worker.
pub(crate) struct LevelPicker {
    passed: u32,
    /// The lower level that had its turn last.
    served: u32,
    /// Bit per level that is owed a turn by time.
    owed: u8,
    shares: [Share; Priority::LEVELS],
}

/// What [`LevelPicker::pick`] offers. Nothing has changed by it: whoever takes a fiber of the
/// level says so by [`LevelPicker::taken`], and who finds none there just picks again.
#[derive(Clone, Copy)]
pub(crate) struct Pick {
    pub(crate) level: usize,
    meaning: Meaning,
}

/// What a pick means for the levels below the highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// Nothing: there are none, or none whose switches are counted.
    Nothing,
    /// They are passed over.
    PassedOver,
    /// The level is one of them, and has its turn.
    Turn,
}

impl LevelPicker {
    pub(crate) fn new() -> Self {
        Self {
            passed: 0,
            served: 0,
            owed: 0,
            shares: [const { Share::new() }; Priority::LEVELS],
        }
    }

    /// The level to take from, given a bit for each that has ready fibers, and one
    /// for each that has preempted ones.
    #[inline]
    pub(crate) fn pick(&self, ready: u8, preempted: u8) -> Option<Pick> {
        let all = ready | preempted;
        if all == 0 {
            return None;
        }
        let top = u8::BITS - 1 - all.leading_zeros();
        let lower = all & !(1 << top);
        let highest = |meaning| {
            Some(Pick {
                level: top as usize,
                meaning,
            })
        };
        if lower == 0 {
            return highest(Meaning::Nothing);
        }
        let mut among = lower & self.owed;
        if among == 0 {
            among = lower & ready;
            if among == 0 {
                return highest(Meaning::Nothing);
            }
            if self.passed + 1 < PATIENCE {
                return highest(Meaning::PassedOver);
            }
        }
        // The next lower level after the one served last, round and round.
        let above = among & !((2u8 << self.served) - 1);
        let choice = if above != 0 { above } else { among }.trailing_zeros();
        Some(Pick {
            level: choice as usize,
            meaning: Meaning::Turn,
        })
    }

    /// A fiber of the level that was picked is about to run.
    #[inline]
    pub(crate) fn taken(&mut self, pick: Pick) {
        match pick.meaning {
            Meaning::Nothing => {}
            Meaning::PassedOver => self.passed += 1,
            Meaning::Turn => self.serve(pick.level),
        }
    }

    fn serve(&mut self, level: usize) {
        let by_time = self.owed & 1 << level != 0;
        if !by_time {
            self.passed = 0;
        }
        self.served = level as u32;
        self.owed &= !(1 << level);
        self.shares[level].served();
    }

    /// Notes the time; `all` has a bit for each level with a fiber that runs or
    /// could run.
    pub(crate) fn look(&mut self, all: u8, now: u64) {
        self.owed = 0;
        for (level, share) in self.shares.iter_mut().enumerate() {
            let lower = all >> level & 1 != 0 && all >> level > 1;
            self.owed |= u8::from(share.look(lower, now, LOWER_AFTER)) << level;
        }
    }

    /// Bit per level below the highest that is owed a turn.
    pub(crate) fn owed(&self) -> u8 {
        self.owed
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{LOWER_AFTER, LevelPicker, PATIENCE};

    /// The level that is picked, and taken from.
    fn take(picker: &mut LevelPicker, ready: u8, preempted: u8) -> Option<usize> {
        let pick = picker.pick(ready, preempted)?;
        picker.taken(pick);
        Some(pick.level)
    }

    #[test]
    fn the_highest_level_comes_first() {
        let mut picker = LevelPicker::new();
        assert_eq!(take(&mut picker, 0, 0), None);
        assert_eq!(take(&mut picker, 0b0001, 0), Some(0));
        assert_eq!(take(&mut picker, 0b1010, 0), Some(3));
        assert_eq!(take(&mut picker, 0b0010, 0b1000), Some(3));
        assert_eq!(take(&mut picker, 0, 0b0101), Some(2));
    }

    #[test]
    fn every_lower_level_has_its_turn() {
        let mut picker = LevelPicker::new();
        let mut served = [0u32; 4];
        for _ in 0..PATIENCE * 9 {
            served[take(&mut picker, 0b1111, 0).unwrap()] += 1;
        }
        assert_eq!(served[..3], [3, 3, 3]);
    }

    #[test]
    fn every_lower_level_has_its_turn_by_time_also_if_few_switches_pass() {
        let mut picker = LevelPicker::new();
        let mut served = [0u32; 4];
        // One pick in each millisecond; level 0 has preempted fibers only.
        for tick in 0..600 {
            picker.look(0b1111, tick * 1_000_000);
            served[take(&mut picker, 0b1110, 0b1001).unwrap()] += 1;
        }
        // Every 10 ticks, and one or two more until the next look.
        for lower in &served[..3] {
            assert!((45..=65).contains(lower), "{served:?}");
        }
        assert_eq!(served.iter().sum::<u32>(), 600);
    }

    #[test]
    fn turns_of_one_lower_level_by_switches_take_nothing_from_another_s_by_time() {
        let mut picker = LevelPicker::new();
        let mut served = [0u32; 4];
        for tick in 0..100 {
            picker.look(0b1011, tick * 1_000_000);
            for _ in 0..10 * PATIENCE {
                served[take(&mut picker, 0b1010, 0b0001).unwrap()] += 1;
            }
        }
        assert!((7..=10).contains(&served[0]), "{served:?}");
    }

    #[test]
    fn levels_that_only_compute_get_no_turn_by_switches() {
        let mut picker = LevelPicker::new();
        assert!((0..PATIENCE * 9).all(|_| take(&mut picker, 0b1000, 0b0111) == Some(3)));
    }

    #[test]
    fn a_turn_that_finds_nothing_is_offered_again() {
        let mut picker = LevelPicker::new();
        // By switches, to one of two lower levels, then to the other.
        let mut served = [0u32; 4];
        for _ in 0..PATIENCE {
            served[take(&mut picker, 0b1011, 0).unwrap()] += 1;
        }
        assert_eq!(served[..3], [0, 1, 0]);
        for _ in 0..PATIENCE - 1 {
            assert_eq!(take(&mut picker, 0b1011, 0), Some(3));
        }
        for _ in 0..3 {
            assert_eq!(picker.pick(0b1011, 0).unwrap().level, 0);
        }
        assert_eq!(take(&mut picker, 0b1011, 0), Some(0));
        assert_eq!(take(&mut picker, 0b1011, 0), Some(3));
        // By time, to the first of two.
        let mut picker = LevelPicker::new();
        picker.look(0b1011, 0);
        picker.look(0b1011, LOWER_AFTER);
        assert_eq!(picker.owed(), 0b11);
        let first = picker.pick(0b1011, 0).unwrap();
        assert_eq!(picker.pick(0b1011, 0).unwrap().level, first.level);
        assert_eq!(picker.owed(), 0b11);
        picker.taken(first);
        let second = take(&mut picker, 0b1011, 0).unwrap();
        assert_eq!(first.level + second, 1, "the other one");
        assert_eq!(picker.owed(), 0);
    }

    #[test]
    fn a_level_whose_turn_finds_nothing_waits_as_long_as_before() {
        let mut picker = LevelPicker::new();
        picker.look(0b11, 0);
        picker.look(0b11, LOWER_AFTER);
        let _not_taken = picker.pick(0b11, 0).unwrap();
        picker.look(0b11, LOWER_AFTER + 1);
        assert_eq!(picker.owed(), 1, "the time did not begin anew");
    }
}
