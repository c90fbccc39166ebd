//! What a fiber has while it runs: at the root of its stack, not in its block.
//!
//! Made by the first frame, and gone with it. All of it is the fiber's own, but
//! for the nests, which are followed by others under the lock of the block's
//! `joiners`. Before the first frame returns it takes the root out of the block
//! under the former lock ([`Root::leave`]), if anybody may look there. And it looks
//! whether something that points here is left in a coroutine's frames (`fiber::users`).

use super::binding::Binding;
use super::block::Block;
use super::cancel::{ChildPlace, Frame, Nest};
use super::locals::Locals;
#[cfg(feature = "tracing")]
use super::spans::SuspendedSpans;
use super::users::{self, Users};
use std::cell::Cell;
use std::panic::Location;
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
    values: Cell<*const Binding>,
    /// Between the bindings that its parent's scope was made in and its own. Its count
    /// is also that of the fiber itself.
    inherited: Binding,
    locals: Locals,
    /// How often a point has said `Cancelled`.
    told: Cell<u32>,
    /// The line of the program that waits where it cannot be seen; see `wait::place`.
    hint: Cell<Option<&'static Location<'static>>>,
    /// Its spans while it is off its thread.
    #[cfg(feature = "tracing")]
    spans: SuspendedSpans,
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
            values: Cell::new(ptr::null()),
            inherited: Binding::boundary(values),
            locals: Locals::new(),
            told: Cell::new(0),
            hint: Cell::new(None),
            #[cfg(feature = "tracing")]
            spans: SuspendedSpans::new(),
        }
    }

    /// Begins with the bindings of its parent's scope; once, when it is in its place.
    pub(crate) fn inherit(&self) {
        self.values.set(self.first_values());
    }

    /// The content of `values` while nothing is bound in this fiber.
    #[inline]
    fn first_values(&self) -> *const Binding {
        if self.inherited.outer().is_null() {
            ptr::null()
        } else {
            &raw const self.inherited
        }
    }

    /// Calls that keep the fiber, or bindings of its parent, while they run user code.
    pub(crate) fn users(&self) -> &Users {
        self.inherited.users()
    }

    pub(crate) fn hint(&self) -> &Cell<Option<&'static Location<'static>>> {
        &self.hint
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

    pub(crate) fn values(&self) -> &Cell<*const Binding> {
        &self.values
    }

    pub(crate) fn locals(&self) -> &Locals {
        &self.locals
    }

    #[cfg(feature = "tracing")]
    pub(crate) fn spans(&self) -> &SuspendedSpans {
        &self.spans
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
        // All that is linked or counted here is in calls that have returned, unless such
        // a call is suspended on the stack of a coroutine. A nest is a frame, too.
        let framed = !self.frames.get().is_null();
        let bound = !ptr::eq(self.values.get(), self.first_values());
        if framed || bound || self.users().are_there() {
            users::ended_inside();
        }
        debug_assert!(self.nests.get().is_null());
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
