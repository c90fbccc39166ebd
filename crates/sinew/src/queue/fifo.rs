//! A worker's own ready queue: first in, first out, one ring per priority.
//!
//! Only the worker touches it, so it needs no atomics. Rings of pointers rather
//! than a linked list through the blocks: popping touches no cold block, and a
//! claimed fiber may leave a stale entry behind (see [`super::entry`]).

use super::entry::Entry;
use crate::fiber::Priority;
use std::mem::MaybeUninit;

/// What a ring starts with, and goes back to when it runs empty after a peak.
const SMALL: usize = 64;
/// A ring larger than this is given back once it runs empty.
const KEEP: usize = 4096;

/// A growing ring of a power of two entries.
///
/// In the place of `std::collections::VecDeque` because push and pop are half of
/// a yield (docs/bench.md), and this one wraps by a mask and checks no bounds.
struct Ring {
    entries: Box<[MaybeUninit<Entry>]>,
    /// Count up for ever; the entry at `n` is in place `n & (len − 1)`.
    head: usize,
    tail: usize,
}

impl Ring {
    fn new() -> Self {
        Self {
            entries: Box::new_uninit_slice(SMALL),
            head: 0,
            tail: 0,
        }
    }

    fn len(&self) -> usize {
        self.tail.wrapping_sub(self.head)
    }

    #[inline]
    fn push(&mut self, entry: Entry) {
        if self.len() == self.entries.len() {
            self.grow();
        }
        let mask = self.entries.len() - 1;
        // SAFETY: the length is a power of two, so the masked index is below it.
        unsafe { self.entries.get_unchecked_mut(self.tail & mask) }.write(entry);
        self.tail = self.tail.wrapping_add(1);
    }

    #[inline]
    fn pop(&mut self) -> Option<Entry> {
        if self.head == self.tail {
            return None;
        }
        let entry = self.get(0);
        self.head = self.head.wrapping_add(1);
        Some(entry)
    }

    /// The entry `index` places from the front; there are more than that.
    fn get(&self, index: usize) -> Entry {
        debug_assert!(index < self.len());
        let mask = self.entries.len() - 1;
        let place = self.head.wrapping_add(index) & mask;
        // SAFETY: the length is a power of two, so the masked index is below it;
        // places from `head` to `tail` were written by `push`.
        unsafe { self.entries.get_unchecked(place).assume_init() }
    }

    #[cold]
    fn grow(&mut self) {
        let mut larger = Self {
            entries: Box::new_uninit_slice(self.entries.len() * 2),
            head: 0,
            tail: 0,
        };
        while let Some(entry) = self.pop() {
            larger.push(entry);
        }
        *self = larger;
    }
}

/// The rings; see the module header.
pub(crate) struct Levels {
    rings: [Ring; Priority::LEVELS],
    /// Bit per non-empty ring.
    ready: u8,
}

impl Levels {
    pub(crate) fn new() -> Self {
        Self {
            rings: std::array::from_fn(|_| Ring::new()),
            ready: 0,
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, level: usize, entry: Entry) {
        self.rings[level].push(entry);
        self.ready |= 1 << level;
    }

    /// The oldest entry of a level.
    #[inline]
    pub(crate) fn pop(&mut self, level: usize) -> Option<Entry> {
        let ring = &mut self.rings[level];
        let entry = ring.pop()?;
        if ring.len() == 0 {
            self.ready &= !(1 << level);
            if ring.entries.len() > KEEP {
                *ring = Ring::new();
            }
        }
        Some(entry)
    }

    /// Takes the youngest entry of a level if it is `entry`.
    #[inline]
    pub(crate) fn pop_youngest(&mut self, level: usize, entry: Entry) -> bool {
        let ring = &mut self.rings[level];
        let len = ring.len();
        if len == 0 || ring.get(len - 1) != entry {
            return false;
        }
        ring.tail = ring.tail.wrapping_sub(1);
        if len == 1 {
            self.ready &= !(1 << level);
        }
        true
    }

    /// The entry `index` places from the front: for a scripted choice.
    pub(crate) fn pop_at(&mut self, level: usize, index: usize) -> Option<Entry> {
        let ring = &mut self.rings[level];
        let len = ring.len();
        let mut chosen = None;
        for at in 0..len {
            let entry = ring.pop()?;
            if at == index {
                chosen = Some(entry);
            } else {
                ring.push(entry);
            }
        }
        if ring.len() == 0 {
            self.ready &= !(1 << level);
        }
        chosen
    }

    /// The entry `index` places from the front of the highest level that has some.
    #[inline]
    pub(crate) fn coming(&self, index: usize) -> Option<Entry> {
        let level = self.ready.checked_ilog2()? as usize;
        let ring = &self.rings[level];
        (index < ring.len()).then(|| ring.get(index))
    }

    pub(crate) fn level_len(&self, level: usize) -> usize {
        self.rings[level].len()
    }

    pub(crate) fn ready(&self) -> u8 {
        self.ready
    }

    pub(crate) fn len(&self) -> usize {
        self.rings.iter().map(Ring::len).sum()
    }

    /// Moves entries whose fiber's priority is no longer their ring's.
    ///
    /// Visits every entry: called only after a priority was inherited.
    pub(crate) fn resort(&mut self, level_of: impl Fn(Entry) -> usize) {
        for level in 0..Priority::LEVELS {
            for _ in 0..self.rings[level].len() {
                if let Some(entry) = self.rings[level].pop() {
                    self.rings[level_of(entry)].push(entry);
                }
            }
        }
        self.ready = 0;
        for (level, ring) in self.rings.iter().enumerate() {
            self.ready |= u8::from(ring.len() > 0) << level;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Levels, SMALL};
    use crate::queue::Entry;
    use std::ptr::NonNull;

    fn entry(n: usize) -> Entry {
        Entry::started(NonNull::new(std::ptr::without_provenance_mut(n * 64)).unwrap())
    }

    #[test]
    fn entries_come_out_in_order_across_growth_and_wrap() {
        let mut levels = Levels::new();
        let (mut pushed, mut popped) = (0, 0);
        for round in 0..50 {
            for _ in 0..round * 7 % (3 * SMALL) {
                pushed += 1;
                levels.push(1, entry(pushed));
            }
            for _ in 0..round * 5 % (2 * SMALL) {
                if let Some(came) = levels.pop(1) {
                    popped += 1;
                    assert!(came == entry(popped));
                }
            }
        }
        while levels.pop(1).is_some() {
            popped += 1;
        }
        assert_eq!(pushed, popped);
        assert_eq!((levels.len(), levels.ready()), (0, 0));
    }

    #[test]
    fn a_chosen_entry_leaves_the_others_in_order() {
        let mut levels = Levels::new();
        (1..=4).for_each(|n| levels.push(2, entry(n)));
        assert!(levels.pop_at(2, 2) == Some(entry(3)));
        let rest: Vec<_> = std::iter::from_fn(|| levels.pop(2)).collect();
        assert!(rest == [entry(1), entry(2), entry(4)]);
    }
}
