//! The children of a nest: a table of blocks, each of which knows its place.
//!
//! No list through the children themselves: to be told, each child of a great many is a
//! miss to memory, and through a list the address of one is known only when the one before
//! has been loaded: to cancel 100 000 sleepers took 340 ns each through a list of nodes at
//! the roots of their stacks, the next one prefetched or not, and takes 42 so. Places of those who have gone are chained, and given to the next who
//! come. A few children need no allocation.

use crate::fiber::Block;
use crate::sys::cache::prefetch;
use std::ptr::NonNull;

/// So many children need no allocation.
const FEW: usize = 4;

/// So many are loaded ahead of the one that is told: some 100 ns of work each against
/// 300 and more of waiting for memory.
const AHEAD: usize = 8;

/// A block, or if the lowest bit is set the next free place, doubled.
#[derive(Clone, Copy)]
struct Entry(*mut ());

const FREE: usize = 1;

impl Entry {
    fn taken(block: NonNull<Block>) -> Self {
        Self(block.as_ptr().cast())
    }

    fn free(next: usize) -> Self {
        Self(std::ptr::without_provenance_mut(next << 1 | FREE))
    }

    fn block(self) -> Option<NonNull<Block>> {
        NonNull::new(self.0.cast()).filter(|_| self.0.addr() & FREE == 0)
    }

    fn next_free(self) -> usize {
        debug_assert!(self.block().is_none());
        self.0.addr() >> 1
    }
}

/// A child's place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChildPlace(usize);

/// See the module header.
pub(super) struct Children {
    few: [Entry; FEW],
    more: Vec<Entry>,
    /// Places that were ever taken.
    len: usize,
    /// One more than the first free one among those; 0 if there is none.
    free: usize,
}

// SAFETY: blocks may be used from any thread; they are there while they are in the table.
unsafe impl Send for Children {}

impl Children {
    pub(super) const fn new() -> Self {
        Self {
            few: [Entry(std::ptr::null_mut()); FEW],
            more: Vec::new(),
            len: 0,
            free: 0,
        }
    }

    fn entry(&mut self, place: usize) -> &mut Entry {
        match place.checked_sub(FEW) {
            None => &mut self.few[place],
            Some(place) => &mut self.more[place],
        }
    }

    pub(super) fn insert(&mut self, block: NonNull<Block>) -> ChildPlace {
        let entry = Entry::taken(block);
        if let Some(place) = self.free.checked_sub(1) {
            self.free = self.entry(place).next_free();
            *self.entry(place) = entry;
            return ChildPlace(place);
        }
        let place = self.len;
        self.len += 1;
        if place < FEW {
            self.few[place] = entry;
        } else {
            self.more.push(entry);
        }
        ChildPlace(place)
    }

    pub(super) fn remove(&mut self, ChildPlace(place): ChildPlace) {
        let next = self.free;
        let entry = self.entry(place);
        debug_assert!(entry.block().is_some());
        *entry = Entry::free(next);
        self.free = place + 1;
    }

    /// Visits each block, and has the next ones loaded meanwhile.
    pub(super) fn for_each(&self, mut visit: impl FnMut(NonNull<Block>)) {
        let few = &self.few[..self.len.min(FEW)];
        for part in [few, &self.more] {
            for (index, entry) in part.iter().enumerate() {
                if let Some(ahead) = part.get(index + AHEAD).and_then(|entry| entry.block()) {
                    // What is changed and what is read of it are in two lines.
                    prefetch(ahead.as_ptr());
                    prefetch(ahead.as_ptr().wrapping_byte_add(128));
                }
                if let Some(block) = entry.block() {
                    visit(block);
                }
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Block, ChildPlace, Children, NonNull};
    use std::collections::BTreeMap;

    fn block(number: usize) -> NonNull<Block> {
        NonNull::new(std::ptr::without_provenance_mut(number << 8)).unwrap()
    }

    #[test]
    fn places_are_found_again_and_those_of_the_gone_are_taken_first() {
        let mut children = Children::new();
        let mut model: BTreeMap<usize, NonNull<Block>> = BTreeMap::new();
        let mut random = 1_u64;
        for number in 1..3000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let place = random as usize >> 33;
            let leave = model.len() > 40 || (place % 3 == 0 && !model.is_empty());
            if leave {
                let (&at, _) = model.iter().nth(place % model.len()).unwrap();
                children.remove(ChildPlace(at));
                model.remove(&at);
            } else {
                let ChildPlace(at) = children.insert(block(number));
                assert!(model.insert(at, block(number)).is_none());
                assert!(at <= 41, "a free place was not taken");
            }
            let mut seen = Vec::new();
            children.for_each(|block| seen.push(block));
            assert_eq!(seen, model.values().copied().collect::<Vec<_>>());
        }
    }
}
