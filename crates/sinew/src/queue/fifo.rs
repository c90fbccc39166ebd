//! A worker's own ready queue: first in, first out, one ring per priority.
//!
//! Only the worker touches it, so it needs no atomics. Rings of pointers rather
//! than a linked list through the blocks: popping touches no cold block, and a
//! claimed fiber may leave a stale entry behind (see [`super::entry`]).

use super::entry::Entry;
use crate::fiber::Priority;
use std::collections::VecDeque;

/// A ring larger than this is shrunk once it runs empty.
const KEEP_CAPACITY: usize = 4096;

/// The rings; see the module header.
pub(crate) struct Levels {
    rings: [VecDeque<Entry>; Priority::LEVELS],
    /// Bit per non-empty ring.
    ready: u8,
    len: usize,
}

impl Levels {
    pub(crate) fn new() -> Self {
        Self {
            rings: [const { VecDeque::new() }; Priority::LEVELS],
            ready: 0,
            len: 0,
        }
    }

    pub(crate) fn push(&mut self, level: usize, entry: Entry) {
        self.rings[level].push_back(entry);
        self.ready |= 1 << level;
        self.len += 1;
    }

    /// The oldest entry of a level.
    pub(crate) fn pop(&mut self, level: usize) -> Option<Entry> {
        let ring = &mut self.rings[level];
        let entry = ring.pop_front()?;
        self.len -= 1;
        if ring.is_empty() {
            self.ready &= !(1 << level);
            if ring.capacity() > KEEP_CAPACITY {
                *ring = VecDeque::new();
            }
        }
        Some(entry)
    }

    /// The entry `index` places from the front: for a scripted choice.
    pub(crate) fn pop_at(&mut self, level: usize, index: usize) -> Option<Entry> {
        let ring = &mut self.rings[level];
        let entry = ring.remove(index)?;
        self.len -= 1;
        if ring.is_empty() {
            self.ready &= !(1 << level);
        }
        Some(entry)
    }

    pub(crate) fn level_len(&self, level: usize) -> usize {
        self.rings[level].len()
    }

    pub(crate) fn ready(&self) -> u8 {
        self.ready
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Moves entries whose fiber's priority is no longer their ring's.
    ///
    /// Visits every entry: called only after a priority was inherited.
    pub(crate) fn resort(&mut self, level_of: impl Fn(Entry) -> usize) {
        for level in 0..Priority::LEVELS {
            if self.rings[level].iter().all(|&entry| level_of(entry) == level) {
                continue;
            }
            for entry in std::mem::take(&mut self.rings[level]) {
                self.rings[level_of(entry)].push_back(entry);
            }
        }
        self.ready = 0;
        for (level, ring) in self.rings.iter().enumerate() {
            self.ready |= u8::from(!ring.is_empty()) << level;
        }
    }
}
