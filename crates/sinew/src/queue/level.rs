//! Which priority level runs next.
//!
//! Higher levels first; but whenever lower ones were passed over
//! [`PATIENCE`] times, one of them gets a turn, each in its round. So every
//! ready fiber runs after a bounded number of switches: with `n` fibers ahead
//! of it in its level, at most `3 · PATIENCE · (n + 1)` of them.

/// How often lower levels are passed over before one has its turn.
pub(crate) const PATIENCE: u32 = 64;

/// Chooses among levels; one per worker.
pub(crate) struct LevelPicker {
    passed: u32,
    /// `passed` before the last pick.
    before: u32,
    /// The lower level that had its turn last.
    served: u32,
}

impl LevelPicker {
    pub(crate) fn new() -> Self {
        Self {
            passed: 0,
            before: 0,
            served: 0,
        }
    }

    /// The level to take from, given a bit for each non-empty one.
    #[inline]
    pub(crate) fn pick(&mut self, ready: u8) -> Option<usize> {
        if ready == 0 {
            return None;
        }
        let top = u8::BITS - 1 - ready.leading_zeros();
        let lower = ready & !(1 << top);
        if lower == 0 {
            return Some(top as usize);
        }
        self.before = self.passed;
        self.passed += 1;
        if self.passed < PATIENCE {
            return Some(top as usize);
        }
        self.passed = 0;
        // The next lower level after the one served last, round and round.
        let above = lower & !((2u8 << self.served) - 1);
        let choice = if above != 0 { above } else { lower }.trailing_zeros();
        self.served = choice;
        Some(choice as usize)
    }

    /// The last pick found nothing: its turn goes to the next one.
    pub(crate) fn take_back(&mut self) {
        self.passed = self.before;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{LevelPicker, PATIENCE};

    #[test]
    fn the_highest_level_comes_first() {
        let mut picker = LevelPicker::new();
        assert_eq!(picker.pick(0), None);
        assert_eq!(picker.pick(0b0001), Some(0));
        assert_eq!(picker.pick(0b1010), Some(3));
    }

    #[test]
    fn every_lower_level_has_its_turn() {
        let mut picker = LevelPicker::new();
        let mut served = [0; 4];
        for _ in 0..PATIENCE * 9 {
            served[picker.pick(0b1111).unwrap()] += 1;
        }
        assert_eq!(served[..3], [3, 3, 3]);
    }
}
