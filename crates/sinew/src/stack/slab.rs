//! One mapping cut into slots of one class.
//!
//! Each slot is in one of four states; three have a bitmap, the fourth is
//! being in none of them:
//!
//! | state   | guard | pages         | next state                      |
//! |---------|-------|---------------|---------------------------------|
//! | `raw`   | no    | none          | taken, once the guard is in     |
//! | `clean` | yes   | none          | taken                           |
//! | `dirty` | yes   | those touched | taken, or clean after a trim    |
//! | taken   | yes   | whatever      | dirty; raw if it got no guard   |
//!
//! Lowest bits are taken first, so that the low end of a slab fills up and
//! runs of neighbours form for range calls.
//!
//! Invariant 1: a slot is in at most one bitmap, and `taken` counts those in
//! none. A slab with `taken == 0` is *idle*: nobody runs on it.
//! Invariant 2: a slab lies at a multiple of its slot size.

use std::io;

use super::class::StackClass;
use crate::sys::map::{Mapping, Span};

/// The most bytes in a slab, unless one stack alone is bigger.
const SLAB_BYTES: usize = 64 << 20;
/// Slabs at multiples of this share no page table with others, so that
/// unmapping one gives all its tables back.
const TABLE_SPAN: usize = 2 << 20;

/// A set of slots.
#[derive(Debug)]
struct Slots {
    words: Box<[u64]>,
    len: usize,
}

impl Slots {
    fn new(slots: usize, full: bool) -> Slots {
        let mut words = vec![0; slots.div_ceil(64)].into_boxed_slice();
        if full {
            for slot in 0..slots {
                words[slot / 64] |= 1 << (slot % 64);
            }
        }
        Slots {
            words,
            len: if full { slots } else { 0 },
        }
    }

    fn contains(&self, slot: usize) -> bool {
        self.words[slot / 64] & (1 << (slot % 64)) != 0
    }

    fn insert(&mut self, slot: usize) {
        debug_assert!(!self.contains(slot));
        self.words[slot / 64] |= 1 << (slot % 64);
        self.len += 1;
    }

    fn pop_lowest(&mut self) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        let index = self.words.iter().position(|word| *word != 0)?;
        let bit = self.words[index].trailing_zeros() as usize;
        self.words[index] &= self.words[index] - 1;
        self.len -= 1;
        Some(index * 64 + bit)
    }
}

/// What must be known to find a slab: which of the sets it belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    /// Has slots that were used before.
    pub(super) dirty: bool,
    /// Has slots without pages.
    pub(super) fresh: bool,
    /// Nobody runs on it.
    pub(super) idle: bool,
}

/// A slot without pages, and whether it still needs its guard.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fresh {
    pub(super) slot: usize,
    pub(super) raw: bool,
}

/// A mapping and the state of its slots.
#[derive(Debug)]
pub(super) struct Slab {
    mapping: Mapping,
    class: StackClass,
    capacity: usize,
    raw: Slots,
    clean: Slots,
    dirty: Slots,
    taken: usize,
    /// Slots whose guard is an `mprotect`, which costs mappings.
    splits: usize,
}

impl Slab {
    /// Maps a slab of at most `most` slots, smaller than usual if the kernel has no room
    /// for more.
    pub(super) fn new(class: StackClass, most: Option<usize>) -> io::Result<Slab> {
        let usual = SLAB_BYTES / class.bytes();
        let mut slots = most.map_or(usual, |most| usual.min(most)).max(1);
        let align = class.bytes().max(TABLE_SPAN);
        let mapping = loop {
            match Mapping::reserve(slots * class.bytes(), align) {
                Ok(mapping) => break mapping,
                Err(error) if slots == 1 => return Err(error),
                Err(_) => slots /= 2,
            }
        };
        Ok(Slab {
            mapping,
            class,
            capacity: slots,
            raw: Slots::new(slots, true),
            clean: Slots::new(slots, false),
            dirty: Slots::new(slots, false),
            taken: 0,
            splits: 0,
        })
    }

    /// Takes a slot that was used before.
    pub(super) fn take_dirty(&mut self) -> Option<usize> {
        let slot = self.dirty.pop_lowest()?;
        self.taken += 1;
        Some(slot)
    }

    /// Takes a slot without pages, if possible one with a guard.
    pub(super) fn take_fresh(&mut self) -> Option<Fresh> {
        let fresh = match self.clean.pop_lowest() {
            Some(slot) => Fresh { slot, raw: false },
            None => Fresh {
                slot: self.raw.pop_lowest()?,
                raw: true,
            },
        };
        self.taken += 1;
        Some(fresh)
    }

    /// Takes back a slot that somebody ran on.
    pub(super) fn put_dirty(&mut self, slot: usize) {
        self.untake(slot);
        self.dirty.insert(slot);
    }

    /// Takes back a slot whose pages are gone.
    pub(super) fn put_clean(&mut self, slot: usize) {
        self.untake(slot);
        self.clean.insert(slot);
    }

    /// Takes back a slot that got no guard.
    pub(super) fn put_raw(&mut self, slot: usize) {
        self.untake(slot);
        self.raw.insert(slot);
    }

    /// Checks invariant 1 in release builds too: two fibers on one stack are
    /// worse than an end.
    fn untake(&mut self, slot: usize) {
        let free =
            self.raw.contains(slot) || self.clean.contains(slot) || self.dirty.contains(slot);
        assert!(!free && self.taken > 0, "a stack was given back twice");
        self.taken -= 1;
    }

    /// The low end of a slot.
    pub(super) fn low(&self, slot: usize) -> usize {
        self.mapping.start() + slot * self.class.bytes()
    }

    /// The slot whose low end is `low`, if it is one of ours.
    pub(super) fn slot_at(&self, low: usize) -> Option<usize> {
        let offset = low.checked_sub(self.mapping.start())?;
        let slot = offset / self.class.bytes();
        (slot < self.capacity && offset % self.class.bytes() == 0).then_some(slot)
    }

    /// The slots from `slot` on, `count` of them, guards included.
    pub(super) fn slots_span(&self, slot: usize, count: usize) -> Span {
        Span {
            start: self.low(slot),
            len: count * self.class.bytes(),
        }
    }

    /// The size of its slots.
    pub(super) fn class(&self) -> StackClass {
        self.class
    }

    /// How many bytes of addresses it holds.
    pub(super) fn bytes(&self) -> usize {
        self.mapping.len()
    }

    /// How many slots were used before and are free.
    pub(super) fn dirty(&self) -> usize {
        self.dirty.len
    }

    /// How many slots have a guard.
    pub(super) fn guarded(&self) -> usize {
        self.capacity - self.raw.len
    }

    /// How many handles or calls still stand for its slots.
    pub(super) fn taken(&self) -> usize {
        self.taken
    }

    /// Notes that a slot's guard costs mappings.
    pub(super) fn note_split(&mut self) {
        self.splits += 1;
    }

    /// How many slots' guards cost mappings.
    pub(super) fn splits(&self) -> usize {
        self.splits
    }

    /// Which of the pool's sets it belongs to.
    pub(super) fn summary(&self) -> Summary {
        Summary {
            dirty: self.dirty.len > 0,
            fresh: self.clean.len + self.raw.len > 0,
            idle: self.taken == 0,
        }
    }

    /// Unmaps an idle slab, or hands it back as it was if the kernel refused.
    pub(super) fn unmap(self) -> Result<(), Slab> {
        assert_eq!(self.taken, 0, "somebody may still run on this slab");
        let Slab {
            mapping,
            class,
            capacity,
            raw,
            clean,
            dirty,
            taken,
            splits,
        } = self;
        mapping.unmap().map_err(|(mapping, _)| Slab {
            mapping,
            class,
            capacity,
            raw,
            clean,
            dirty,
            taken,
            splits,
        })
    }

    /// Leaves it mapped for ever, for those who run on it.
    pub(super) fn leak(self) {
        self.mapping.leak();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_taken_from_the_low_end_and_known_by_address() {
        let class = StackClass::for_size(64 << 10).unwrap();
        let mut slab = Slab::new(class, None).unwrap();
        assert_eq!(slab.low(0) % class.bytes(), 0);
        assert_eq!(slab.bytes(), SLAB_BYTES);
        for expected in 0..3 {
            let fresh = slab.take_fresh().unwrap();
            assert!(fresh.raw && fresh.slot == expected);
            assert_eq!(slab.slot_at(slab.low(expected)), Some(expected));
        }
        slab.put_dirty(1);
        assert_eq!(slab.take_dirty(), Some(1));
        assert_eq!(slab.take_dirty(), None);
        assert_eq!(slab.slot_at(slab.low(0) + 1), None);
        assert_eq!(slab.slot_at(slab.low(0) + SLAB_BYTES), None);
        assert_eq!(
            slab.summary(),
            Summary {
                dirty: false,
                fresh: true,
                idle: false
            }
        );
    }

    #[test]
    fn a_class_bigger_than_a_slab_gets_a_slab_of_one() {
        let mut slab = Slab::new(StackClass::for_size(256 << 20).unwrap(), None).unwrap();
        assert_eq!(slab.bytes(), 256 << 20);
        assert!(slab.take_fresh().is_some());
        assert!(slab.take_fresh().is_none());
        assert!(!slab.summary().fresh);
    }

    #[test]
    #[should_panic(expected = "given back twice")]
    fn a_stack_given_back_twice_is_noticed() {
        let mut slab = Slab::new(StackClass::for_size(1 << 20).unwrap(), None).unwrap();
        slab.take_fresh();
        slab.put_dirty(0);
        slab.put_dirty(0);
    }
}
