//! Fibers that others hand to one particular worker.
//!
//! A stack of blocks linked through themselves: a push is one compare-exchange,
//! the owner takes everything with one swap and turns it around, so that the
//! order is first in, first out within each batch.
//!
//! The head has one value more than "empty" and "a block": `ASLEEP`, which the
//! owner leaves there when it finds the inbox empty and goes to sleep. Whoever
//! replaces that value must wake the owner; nobody else needs to. So "the owner
//! looked once more" and "somebody pushed" are changes of the same word, no
//! fence is needed, and a burst of pushes costs one wake-up.
//!
//! Invariant (link): while a block is in an inbox its `link` belongs to the
//! inbox; a fiber is in at most one, since being there is being owned by it.

use crate::fiber::Block;
use crate::primitive::{AtomicPtr, Ordering};
use std::ptr::{self, NonNull};

/// What a pusher must do next.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a sleeping owner that nobody wakes never sees the fiber"]
pub(crate) enum Pushed {
    /// The owner is awake, or another pusher wakes it.
    Quiet,
    /// The owner sleeps: wake it.
    WakeOwner,
}

/// See the module header.
pub(crate) struct Inbox {
    head: AtomicPtr<Block>,
}

/// No block has this address: they are aligned.
fn asleep() -> *mut Block {
    ptr::without_provenance_mut(1)
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self {
            head: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Hands a fiber to the owner.
    ///
    /// # Safety
    ///
    /// The caller owns the fiber, and with it the block's `link`.
    pub(crate) unsafe fn push(&self, block: NonNull<Block>) -> Pushed {
        // SAFETY: owned by the caller, hence alive.
        let link = unsafe { block.as_ref() }.link();
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            let below = if head == asleep() {
                ptr::null_mut()
            } else {
                head
            };
            // Relaxed: published by the exchange below.
            link.store(below, Ordering::Relaxed);
            // Release: the owner sees the block and all that was written before
            // the push; pairs with the Acquire in `take_all`.
            match self.head.compare_exchange_weak(
                head,
                block.as_ptr(),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) if head == asleep() => return Pushed::WakeOwner,
                Ok(_) => return Pushed::Quiet,
                Err(seen) => head = seen,
            }
        }
    }

    /// Whether there seems to be something; for the owner's quick look.
    pub(crate) fn is_empty(&self) -> bool {
        // Relaxed: `take_all` acquires.
        let head = self.head.load(Ordering::Relaxed);
        head.is_null() || head == asleep()
    }

    /// Takes everything, oldest first, and calls `each`; for the owner.
    ///
    /// Also ends a sleep: the next pusher finds an awake owner.
    pub(crate) fn take_all(&self, mut each: impl FnMut(NonNull<Block>)) {
        // Acquire: pairs with the Release of every push in the chain (each later
        // push continues the release sequence of the ones below it).
        let mut head = self.head.swap(ptr::null_mut(), Ordering::Acquire);
        if head == asleep() {
            return;
        }
        let mut reversed: *mut Block = ptr::null_mut();
        while let Some(block) = NonNull::new(head) {
            // SAFETY: blocks in the inbox are owned by it, hence alive, and the
            // chain is ours since the swap.
            let link = unsafe { block.as_ref() }.link();
            head = link.load(Ordering::Relaxed);
            link.store(reversed, Ordering::Relaxed);
            reversed = block.as_ptr();
        }
        while let Some(block) = NonNull::new(reversed) {
            // SAFETY: as above; read before `each`, which takes ownership.
            reversed = unsafe { block.as_ref() }.link().load(Ordering::Relaxed);
            each(block);
        }
    }

    /// Says that the owner goes to sleep; false if something has come.
    #[must_use = "an owner that sleeps on a full inbox never wakes"]
    pub(crate) fn try_sleep(&self) -> bool {
        // Relaxed: on success nothing is read; on failure `take_all` acquires.
        self.head
            .compare_exchange(
                ptr::null_mut(),
                asleep(),
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .is_ok()
    }
}
