//! Sizes that stacks come in.
//!
//! A slot is a power of two of bytes, so that a stack's slot can be computed
//! from any address in it, and so that stacks of different fibers are
//! interchangeable. The reserve *includes* the guard at its low end:
//!
//! ```text
//! low                                                            high
//! | guard |            usable, committed on touch       | colour |
//! |<---------------------- StackClass::bytes ------------------->|
//! ```
//!
//! Invariant 1: a class's bytes are a power of two between
//! [`StackClass::MIN_BYTES`] and [`StackClass::MAX_BYTES`], and hold the guard
//! and at least one page more.

use crate::sys::map::page_size;

/// From this reserve on the guard is wide.
const WIDE_GUARD_FROM: usize = 256 << 10;
/// The wide guard: C code has no stack probes, so that one frame may step over
/// a guard of a page.
const WIDE_GUARD: usize = 64 << 10;
const MIN_SHIFT: u32 = 14;
const MAX_SHIFT: u32 = 30;

/// How big a stack is: the logarithm of its reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StackClass(u8);

impl StackClass {
    /// The smallest reserve, 16 KiB: a page of guard and 12 KiB to use, which
    /// is enough for a few frames of Rust, but not for formatting a panic
    /// message in a debug build.
    pub(crate) const MIN_BYTES: usize = 1 << MIN_SHIFT;
    /// The largest reserve, 1 GiB.
    pub(crate) const MAX_BYTES: usize = 1 << MAX_SHIFT;
    /// What a block that holds no fiber says.
    pub(crate) const SMALLEST: Self = Self(MIN_SHIFT as u8);
    /// How many classes there are.
    pub(crate) const COUNT: usize = (MAX_SHIFT - MIN_SHIFT + 1) as usize;

    /// The smallest class whose reserve, guard included, is at least `bytes`.
    ///
    /// `None` below [`MIN_BYTES`](Self::MIN_BYTES) and above
    /// [`MAX_BYTES`](Self::MAX_BYTES): who asked should be told the range.
    pub(crate) fn for_size(bytes: usize) -> Option<StackClass> {
        if !(Self::MIN_BYTES..=Self::MAX_BYTES).contains(&bytes) {
            return None;
        }
        // With pages of 64 KiB the smallest classes would be all guard.
        let bytes = bytes.max(4 * page_size()).next_power_of_two();
        Some(StackClass(bytes.trailing_zeros() as u8))
    }

    /// The reserve: guard, usable part and colour.
    #[inline]
    pub(crate) fn bytes(self) -> usize {
        1 << self.0
    }

    /// How much of the reserve, at its low end, faults.
    pub(crate) fn guard_bytes(self) -> usize {
        let wide = self.bytes() >= WIDE_GUARD_FROM;
        if wide {
            WIDE_GUARD.max(page_size())
        } else {
            page_size()
        }
    }

    /// A bit for sets of classes.
    #[inline]
    pub(crate) fn bit(self) -> u32 {
        1 << self.index()
    }

    /// A dense number for tables of [`COUNT`](Self::COUNT) entries.
    #[inline]
    pub(crate) fn index(self) -> usize {
        (u32::from(self.0) - MIN_SHIFT) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_up_to_a_power_of_two() {
        let bytes = |size| StackClass::for_size(size).map(StackClass::bytes);
        assert_eq!(bytes(16 << 10), Some((16 << 10).max(4 * page_size())));
        assert_eq!(bytes((256 << 10) + 1), Some(512 << 10));
        assert_eq!(bytes(1 << 30), Some(1 << 30));
    }

    #[test]
    fn sizes_out_of_range_have_no_class() {
        for size in [
            0,
            1,
            StackClass::MIN_BYTES - 1,
            StackClass::MAX_BYTES + 1,
            usize::MAX,
        ] {
            assert_eq!(StackClass::for_size(size), None);
        }
    }

    #[test]
    fn the_guard_is_wide_from_256_kib_on() {
        let guard = |size| StackClass::for_size(size).unwrap().guard_bytes();
        assert_eq!(guard(128 << 10), page_size());
        assert_eq!(guard(256 << 10), (64 << 10).max(page_size()));
        assert_eq!(guard(1 << 30), (64 << 10).max(page_size()));
    }

    #[test]
    fn every_class_has_its_own_index() {
        for (index, shift) in (MIN_SHIFT..=MAX_SHIFT).enumerate() {
            assert_eq!(StackClass(shift as u8).index(), index);
        }
    }
}
