//! One stack: who holds the handle may run on it.
//!
//! The base is *coloured*: slot `n` starts `(n % 16) * 64` bytes below the top
//! of its slot. Slots are powers of two, so that without it the hottest lines
//! of all stacks would fall into the same few sets of the cache. The colours
//! stay within one page and leave 3136 bytes of it for an idle fiber's frames,
//! so that a parked fiber costs one page as before.
//!
//! Invariant 1: there is one handle for each slot that is outside the pool,
//! and none for a slot inside. Handles are made by the pool alone, when it
//! marks the slot as taken, and end there.
//! Invariant 2: the slot of a handle has its guard installed, and is mapped as
//! long as the handle lives, and for ever if it is dropped: a started stack is
//! never cut off (rule 3). So a handle has no `Drop`: dropping one leaks.
//! Invariant 3: `base` lies above the middle of its slot, and slots lie at
//! multiples of their size, so that `base` tells the slot.

use std::num::NonZeroUsize;
#[cfg(test)]
use std::ops::Range;

use super::class::StackClass;

/// Bytes between two colours: a cache line.
const COLOUR_STEP: usize = 64;
/// How many colours there are; all fit in a page.
const COLOURS: usize = 16;

/// The right to run on one stack. Not given back, it is leaked.
#[derive(Debug)]
#[must_use = "a stack that is not given back is leaked"]
pub(crate) struct Stack {
    base: NonZeroUsize,
    slab: u32,
    /// Which pool it came from, so that no other takes it back.
    pool: u16,
    class: StackClass,
}

impl Stack {
    /// A handle for the slot at `low`, the `slot`-th of its slab.
    ///
    /// # Safety
    ///
    /// Invariants 1 and 2 hold for it, and `low` is a multiple of the class's
    /// size.
    pub(super) unsafe fn new(
        low: usize,
        slot: usize,
        class: StackClass,
        slab: u32,
        pool: u16,
    ) -> Stack {
        debug_assert_eq!(low % class.bytes(), 0);
        let base = low + class.bytes() - (slot % COLOURS) * COLOUR_STEP;
        let base = NonZeroUsize::new(base).expect("above a slot's low end");
        Stack {
            base,
            slab,
            pool,
            class,
        }
    }

    /// Where the first frame goes: the high end, 16-aligned.
    #[inline]
    pub(crate) fn base(&self) -> NonZeroUsize {
        self.base
    }

    /// The low end of the slot, guard included.
    #[inline]
    pub(crate) fn limit(&self) -> NonZeroUsize {
        // Invariant 3.
        let low = (self.base.get() - 1) & !(self.class.bytes() - 1);
        NonZeroUsize::new(low).expect("page zero is never mapped")
    }

    /// The addresses that fault.
    #[cfg(test)]
    pub(crate) fn guard(&self) -> Range<usize> {
        let low = self.limit().get();
        low..low + self.class.guard_bytes()
    }

    /// How big it is.
    #[inline]
    pub(crate) fn class(&self) -> StackClass {
        self.class
    }

    /// Which slab of its pool it lies in.
    pub(super) fn slab(&self) -> u32 {
        self.slab
    }

    /// Which pool it came from.
    #[inline]
    pub(super) fn pool(&self) -> u16 {
        self.pool
    }
}

// SAFETY: by invariant 2 the slot has a guard at its low end, which `limit`
// includes, and by class invariant 1 and the colours' bound more than
// MIN_STACK_SIZE bytes above it; both ends are multiples of 16.
unsafe impl corosensei::stack::Stack for Stack {
    #[inline]
    fn base(&self) -> NonZeroUsize {
        Stack::base(self)
    }

    #[inline]
    fn limit(&self) -> NonZeroUsize {
        Stack::limit(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_send<T: Send>() {}

    #[test]
    fn a_handle_is_two_words_and_may_change_threads() {
        assert_send::<Stack>();
        assert!(size_of::<Option<Stack>>() <= 16);
    }

    #[test]
    fn a_coloured_base_still_tells_its_slot() {
        let class = StackClass::for_size(64 << 10).unwrap();
        let (start, size) = (0x7000_0000_0000, class.bytes());
        for slot in 0..64 {
            let low = start + slot * size;
            // SAFETY: nobody runs on it, so that it need not exist.
            let stack = unsafe { Stack::new(low, slot, class, 3, 0) };
            assert_eq!(stack.limit().get(), low);
            assert_eq!(stack.guard(), low..low + class.guard_bytes());
            assert_eq!(stack.base().get() % corosensei::stack::STACK_ALIGNMENT, 0);
            let colour = low + size - stack.base().get();
            assert_eq!(colour, slot % 16 * 64);
            assert!(colour < 4096 - 3000);
        }
    }
}
