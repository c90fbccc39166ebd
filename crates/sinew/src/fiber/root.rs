//! What a fiber has while it runs: at the root of its stack, not in its block.
//!
//! Made by the first frame, and gone with it. All of it is the fiber's own, but
//! for the nests, which are followed by others under the lock of the block's
//! `joiners`. Before the first frame returns it takes the root out of the block
//! under the former lock ([`Root::leave`]), if anybody may look there.

use super::block::Block;
use super::cancel::{ChildPlace, Frame, Nest};
use super::locals::Locals;
use std::cell::Cell;
use std::ptr::{self, NonNull};

/// See the module header.
pub(crate) struct Root {
    /// The innermost of its frames.
    frames: Cell<*const Frame>,
    /// The innermost of its nests.
    nests: Cell<*const Nest>,
    parent: Option<NonNull<Nest>>,
    /// Its place there.
    place: Cell<Option<ChildPlace>>,
    /// The innermost binding of a scoped value.
    values: Cell<*const ()>,
    locals: Locals,
    /// How often a point has said `Cancelled`.
    told: Cell<u32>,
}

impl Root {
    pub(crate) fn new(block: NonNull<Block>) -> Self {
        // SAFETY: the caller runs this fiber, which keeps its block.
        let parent = unsafe { block.as_ref() }.future_parent();
        // SAFETY: a parent outlives its children.
        let values = parent.map_or(ptr::null(), |nest| unsafe { nest.as_ref() }.values());
        Self {
            frames: Cell::new(ptr::null()),
            nests: Cell::new(ptr::null()),
            parent,
            place: Cell::new(None),
            values: Cell::new(values),
            locals: Locals::new(),
            told: Cell::new(0),
        }
    }

    #[inline]
    pub(crate) fn frames(&self) -> &Cell<*const Frame> {
        &self.frames
    }

    pub(crate) fn nests(&self) -> &Cell<*const Nest> {
        &self.nests
    }

    /// The nest that it is a child of.
    pub(crate) fn parent(&self) -> Option<NonNull<Nest>> {
        self.parent
    }

    pub(crate) fn place(&self) -> &Cell<Option<ChildPlace>> {
        &self.place
    }

    pub(crate) fn values(&self) -> &Cell<*const ()> {
        &self.values
    }

    pub(crate) fn locals(&self) -> &Locals {
        &self.locals
    }

    /// Begins to count anew.
    pub(crate) fn forget_told(&self) {
        self.told.set(0);
    }

    /// Counts one more answer `Cancelled`.
    pub(crate) fn count_told(&self) -> u32 {
        let told = self.told.get().saturating_add(1);
        self.told.set(told);
        told
    }

    /// The fiber has completed and is about to leave its stack for good: nobody looks
    /// here any more (`Block::root_for_others`).
    #[inline]
    pub(crate) fn leave(&self, block: &Block) {
        debug_assert!(self.frames.get().is_null() && self.nests.get().is_null());
        if block.state().load().hangs() {
            Self::take_out(block);
        }
    }

    #[cold]
    fn take_out(block: &Block) {
        let _lock = block.joiners().lock();
        block.set_root(ptr::null());
    }
}
