//! Whether it pays for a fiber to look again before it waits; see `wait::look`.

use std::cell::Cell;

/// What a fiber has learnt of looking again: it does so from [`Patience::LOOKS`]
/// on. In vain, it loses as many and waits that often without a look.
pub(crate) struct Patience(Cell<u8>);

impl Patience {
    const LOOKS: u8 = 8;
    const MOST: u8 = 15;
    /// So the first waits of a fiber, which may be its only ones, cost nothing.
    const AT_FIRST: u8 = 6;

    pub(crate) fn new() -> Self {
        Self(Cell::new(Self::AT_FIRST))
    }

    pub(crate) fn reset(&self) {
        self.0.set(Self::AT_FIRST);
    }

    /// Whether to look this time.
    #[inline]
    pub(crate) fn looks(&self) -> bool {
        let now = self.0.get();
        let looks = now >= Self::LOOKS;
        if !looks {
            self.0.set(now + 1);
        }
        looks
    }

    /// Whether it was there.
    #[inline]
    pub(crate) fn learn(&self, found: bool) {
        let now = self.0.get();
        self.0.set(if found {
            (now + 1).min(Self::MOST)
        } else {
            now.saturating_sub(Self::LOOKS)
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Patience;

    /// How many waits go without a look before the next one has one.
    fn without_a_look(patience: &Patience) -> usize {
        (0..100).position(|_| patience.looks()).unwrap()
    }

    #[test]
    fn the_first_two_waits_of_a_fiber_go_without_a_look() {
        let patience = Patience::new();
        assert_eq!(without_a_look(&patience), 2);
        assert_eq!(without_a_look(&patience), 0, "and then each has one");
        patience.reset();
        assert_eq!(without_a_look(&patience), 2, "of its successor, too");
    }

    #[test]
    fn a_look_in_vain_costs_as_many_waits_without_one() {
        let patience = Patience::new();
        without_a_look(&patience);
        for _ in 0..3 {
            patience.learn(false);
            assert_eq!(without_a_look(&patience), 8);
        }
        patience.learn(false);
        patience.learn(false);
        assert_eq!(without_a_look(&patience), 8, "not more than that");
    }

    #[test]
    fn after_many_that_found_something_one_in_vain_costs_one_wait() {
        let patience = Patience::new();
        without_a_look(&patience);
        (0..1000).for_each(|_| patience.learn(true));
        patience.learn(false);
        assert_eq!(without_a_look(&patience), 1);
        patience.learn(false);
        assert_eq!(without_a_look(&patience), 8);
    }
}
