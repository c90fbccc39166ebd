//! Unstarted fibers that any worker may take: deques and injectors.
//!
//! Both are crossbeam's, one per priority. A worker pushes to and pops from its
//! own deque in FIFO order; thieves take batches from the other end of the same
//! order. Threads outside push into the runtime's injectors; a spawner that finds
//! another worker less loaded pushes into that worker's own, its *mail*, from
//! which thieves may take too if it does not get to it.

use super::entry::Entry;
use crate::fiber::Priority;
use crossbeam_deque::{Injector, Steal, Stealer, Worker};

/// A worker's stealable entries.
pub(crate) struct Deques {
    levels: [Worker<Entry>; Priority::LEVELS],
    /// Bit per level that may hold something: set by a push, cleared by a pop
    /// that found nothing. Spares the look at three empty deques per switch.
    maybe: u8,
}

/// The thieves' side of a worker's [`Deques`].
pub(crate) struct Stealers([Stealer<Entry>; Priority::LEVELS]);

impl Deques {
    pub(crate) fn new() -> Self {
        Self {
            levels: std::array::from_fn(|_| Worker::new_fifo()),
            maybe: 0,
        }
    }

    pub(crate) fn stealers(&self) -> Stealers {
        Stealers(std::array::from_fn(|level| self.levels[level].stealer()))
    }

    pub(crate) fn push(&mut self, level: usize, entry: Entry) {
        self.levels[level].push(entry);
        self.maybe |= 1 << level;
    }

    pub(crate) fn pop(&mut self, level: usize) -> Option<Entry> {
        let entry = self.levels[level].pop();
        if entry.is_none() {
            self.maybe &= !(1 << level);
        }
        entry
    }

    /// The next entry of whichever level, and its level.
    pub(crate) fn pop_any(&mut self) -> Option<(usize, Entry)> {
        let mut levels = (0..Priority::LEVELS).rev();
        levels.find_map(|level| self.pop(level).map(|entry| (level, entry)))
    }

    /// Bit per level that may hold something.
    pub(crate) fn maybe(&self) -> u8 {
        self.maybe
    }

    pub(crate) fn len(&self) -> usize {
        self.levels.iter().map(Worker::len).sum()
    }

    /// Moves entries whose fiber's priority is no longer their deque's.
    pub(crate) fn resort(&mut self, level_of: impl Fn(Entry) -> usize) {
        for level in 0..Priority::LEVELS {
            for _ in 0..self.levels[level].len() {
                let Some(entry) = self.levels[level].pop() else {
                    break;
                };
                self.push(level_of(entry), entry);
            }
        }
    }

    /// Takes about half of what `victim` has at its highest non-empty level;
    /// returns one entry and keeps the others.
    pub(crate) fn steal_from(&mut self, victim: &Stealers) -> Option<Entry> {
        for level in (0..Priority::LEVELS).rev() {
            loop {
                match victim.0[level].steal_batch_and_pop(&self.levels[level]) {
                    Steal::Success(entry) => {
                        self.maybe |= 1 << level;
                        return Some(entry);
                    }
                    Steal::Empty => break,
                    Steal::Retry => {}
                }
            }
        }
        None
    }

    /// Takes a batch from the injectors; returns one entry and keeps the others.
    pub(crate) fn take_from(&mut self, injectors: &Injectors, urgent_first: bool) -> Option<Entry> {
        for level in levels(urgent_first) {
            loop {
                match injectors.0[level].steal_batch_and_pop(&self.levels[level]) {
                    Steal::Success(entry) => {
                        self.maybe |= 1 << level;
                        return Some(entry);
                    }
                    Steal::Empty => break,
                    Steal::Retry => {}
                }
            }
        }
        None
    }
}

impl Stealers {
    /// Takes one entry, of whichever level.
    pub(crate) fn pop(&self) -> Option<Entry> {
        for level in &self.0 {
            loop {
                match level.steal() {
                    Steal::Success(entry) => return Some(entry),
                    Steal::Empty => break,
                    Steal::Retry => {}
                }
            }
        }
        None
    }

    /// How many entries there seem to be.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(Stealer::len).sum()
    }
}

/// All levels, from the most or from the least urgent.
fn levels(urgent_first: bool) -> impl Iterator<Item = usize> {
    (0..Priority::LEVELS).map(move |level| {
        if urgent_first {
            Priority::LEVELS - 1 - level
        } else {
            level
        }
    })
}

/// Entries that anybody may push and any worker of the runtime take.
pub(crate) struct Injectors([Injector<Entry>; Priority::LEVELS]);

impl Injectors {
    pub(crate) fn new() -> Self {
        Self(std::array::from_fn(|_| Injector::new()))
    }

    pub(crate) fn push(&self, level: usize, entry: Entry) {
        self.0[level].push(entry);
    }

    /// The oldest entry of the first level that has one.
    pub(crate) fn pop(&self, urgent_first: bool) -> Option<Entry> {
        for level in levels(urgent_first) {
            loop {
                match self.0[level].steal() {
                    Steal::Success(entry) => return Some(entry),
                    Steal::Empty => break,
                    Steal::Retry => {}
                }
            }
        }
        None
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(Injector::is_empty)
    }

    /// How many entries there seem to be.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(Injector::len).sum()
    }
}
