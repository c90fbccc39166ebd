//! A `Waker` that is a counted reference to a fiber's block: no allocation.
//!
//! It is known by its table, so that a worker may call it on its own stack, where
//! foreign wakers, which are user code, must not run.

use crate::fiber::{Block, BlockRef};
use std::ptr::{self, NonNull};
use std::task::{RawWaker, RawWakerVTable, Waker};

/// A waker that makes the fiber poll its future again.
pub(crate) fn fiber_waker(block: BlockRef) -> Waker {
    // SAFETY: the table's functions keep the count as `RawWaker` demands, and
    // blocks are `Send + Sync`.
    unsafe { Waker::from_raw(raw(block)) }
}

/// Whether it is one of these: then its functions are ours.
pub(crate) fn is_of_a_fiber(waker: &Waker) -> bool {
    ptr::eq(waker.vtable(), &TABLE)
}

fn raw(block: BlockRef) -> RawWaker {
    RawWaker::new(block.into_counted().as_ptr().cast(), &TABLE)
}

static TABLE: RawWakerVTable = RawWakerVTable::new(
    |data| {
        // SAFETY: the waker's own reference keeps the block.
        raw(unsafe { BlockRef::acquire(block_of(data)) })
    },
    |data| {
        // SAFETY: takes over the waker's reference.
        let block = unsafe { BlockRef::from_counted(block_of(data)) };
        wake(&block);
    },
    |data| {
        // SAFETY: the waker's own reference keeps the block, beyond the call.
        wake(unsafe { block_of(data).as_ref() });
    },
    |data| {
        // SAFETY: takes over the waker's reference.
        drop(unsafe { BlockRef::from_counted(block_of(data)) });
    },
);

fn block_of(data: *const ()) -> NonNull<Block> {
    NonNull::new(data.cast_mut().cast()).expect("a waker holds a block")
}

fn wake(block: &Block) {
    let wake = block.state().wake_poll();
    // SAFETY: the answer of this block's own word.
    unsafe { block.follow(wake) };
}
