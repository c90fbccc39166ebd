//! What a queue holds: a fiber, and whether it has started.
//!
//! The entry of an unstarted fiber owns a reference to its block, because a
//! joiner may claim and run the fiber while the entry is still queued: whoever
//! pops the entry then finds it stale and drops that reference. The entry of a
//! started fiber owns the fiber itself (`fiber::state`, invariant 1).

use crate::fiber::Block;
use std::ptr::NonNull;

const FRESH: usize = 1;

/// A block pointer whose lowest bit says "unstarted".
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry(NonNull<Block>);

// SAFETY: an entry is ownership of a fiber or of a reference, and both may
// change threads: unstarted fibers hold a `Send` closure; started ones enter a
// shared queue only if they are migratable, which is their spawner's promise.
unsafe impl Send for Entry {}

impl Entry {
    pub(crate) fn fresh(block: NonNull<Block>) -> Self {
        // Blocks are aligned to 64 bytes, so the bit is free.
        Self(block.map_addr(|addr| addr | FRESH))
    }

    pub(crate) fn started(block: NonNull<Block>) -> Self {
        Self(block)
    }

    pub(crate) fn is_fresh(self) -> bool {
        self.0.addr().get() & FRESH != 0
    }

    pub(crate) fn block(self) -> NonNull<Block> {
        let addr = self.0.as_ptr().map_addr(|addr| addr & !FRESH);
        // SAFETY: the block's address is not null, and clearing the tag that
        // `fresh` set gives that address back.
        unsafe { NonNull::new_unchecked(addr) }
    }
}
