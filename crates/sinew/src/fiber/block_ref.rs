//! References to blocks, counted.

use super::block::Block;
use std::ptr::NonNull;

/// An owned reference to a block: keeps the memory, not the stack.
pub(crate) struct BlockRef(NonNull<Block>);

// SAFETY: a block is `Send + Sync`, and the count is atomic.
unsafe impl Send for BlockRef {}
// SAFETY: as above.
unsafe impl Sync for BlockRef {}

impl BlockRef {
    /// Takes over a reference that is counted already.
    ///
    /// # Safety
    ///
    /// The caller owns one reference and gives it up.
    pub(crate) unsafe fn from_counted(block: NonNull<Block>) -> Self {
        Self(block)
    }

    /// Makes a new reference.
    ///
    /// # Safety
    ///
    /// The block is occupied, and stays so until this returns.
    pub(crate) unsafe fn acquire(block: NonNull<Block>) -> Self {
        // SAFETY: the caller's promise.
        unsafe { block.as_ref() }.state().acquire();
        Self(block)
    }

    /// Gives the counted reference to the caller.
    pub(crate) fn into_counted(self) -> NonNull<Block> {
        let block = self.0;
        std::mem::forget(self);
        block
    }

    pub(crate) fn as_ptr(&self) -> NonNull<Block> {
        self.0
    }
}

impl std::ops::Deref for BlockRef {
    type Target = Block;
    fn deref(&self) -> &Block {
        // SAFETY: our reference keeps the block occupied.
        unsafe { self.0.as_ref() }
    }
}

impl Clone for BlockRef {
    fn clone(&self) -> Self {
        // SAFETY: `self` keeps it occupied.
        unsafe { Self::acquire(self.0) }
    }
}

impl Drop for BlockRef {
    fn drop(&mut self) {
        // SAFETY: we own one reference.
        unsafe { release(self.0, 1) };
    }
}

/// Gives `count` references up, and the block if they were the last.
///
/// # Safety
///
/// The caller owns that many references and uses none of them again.
pub(crate) unsafe fn release(block: NonNull<Block>, count: u64) {
    // SAFETY: occupied until our references are gone.
    let held = unsafe { block.as_ref() };
    let ops = held.ops();
    if held.state().release(count) {
        // SAFETY: nobody else has a reference; closure and outcome were dropped
        // before (`fiber::slot`), so this frees raw memory only.
        unsafe { (ops.recycle)(block) };
    }
}
