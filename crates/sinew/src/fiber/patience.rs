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
