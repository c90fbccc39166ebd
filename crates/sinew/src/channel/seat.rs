//! A sender's or receiver's seat in a channel: how it waits, and what became of
//! its wait.
//!
//! A plain `send` or `recv` waits with a *slot*, a [`Parcel`]: the other side takes
//! the message out of it, or puts it there, and the wait is over. A select cannot, because
//! the message of a `send` arm is made only after that arm was chosen, and a
//! dynamic select does not know the type of what it receives. It waits for a
//! *promise*: see `channel::state`.

use super::parcel::Parcel;
use crate::wait::node::{Node, Place};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;

/// How a wait on a channel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Not yet.
    Waits,
    /// The message went through the slot.
    Passed,
    /// There is a message (or room for one) in the buffer that is its own.
    Promised,
    /// A receiver is reserved for this sender's message, under this number.
    Matched(u64),
    /// The channel is disconnected.
    Closed,
    /// Whom it was matched with has left: stand in line again.
    Again,
}

/// One place in a line of a channel with messages of type `T`.
#[repr(C)]
pub(super) struct Seat<T> {
    node: Node,
    /// Where the message is put or taken; null for who waits for a promise.
    /// The parcel stays for as long as the seat is linked or claimed.
    slot: Cell<*const Parcel<T>>,
    fate: Cell<Fate>,
    /// The match that this receiver is reserved for, or 0.
    reserved: Cell<u64>,
    messages: PhantomData<T>,
}

// SAFETY: `repr(C)`, and the node is first.
unsafe impl<T> Place for Seat<T> {
    fn node(&self) -> &Node {
        &self.node
    }
}

impl<T> Seat<T> {
    #[inline]
    pub(super) fn new() -> Self {
        Self {
            node: Node::new(),
            slot: Cell::new(ptr::null()),
            fate: Cell::new(Fate::Waits),
            reserved: Cell::new(0),
            messages: PhantomData,
        }
    }

    /// Where the message goes; null to wait for a promise.
    #[inline]
    pub(super) fn set_slot(&self, slot: *const Parcel<T>) {
        self.slot.set(slot);
    }

    #[inline]
    pub(super) fn has_slot(&self) -> bool {
        !self.slot.get().is_null()
    }

    /// The slot, to put a message into or to take it out of; says that the message
    /// went through it.
    ///
    /// # Safety
    ///
    /// There is a slot, and the caller is the one that may touch it: it holds
    /// the lock and the seat is linked, or was claimed by the caller. A message
    /// does go through it before the owner is notified or the lock given back.
    #[inline]
    pub(super) unsafe fn pass(&self) -> &Parcel<T> {
        debug_assert!(self.has_slot());
        self.fate.set(Fate::Passed);
        // SAFETY: the caller's promise; see the field.
        unsafe { &*self.slot.get() }
    }

    pub(super) fn fate(&self) -> Fate {
        self.fate.get()
    }

    pub(super) fn set_fate(&self, fate: Fate) {
        self.fate.set(fate);
    }

    /// The match that it is reserved for, or 0.
    pub(super) fn reserved(&self) -> u64 {
        self.reserved.get()
    }

    pub(super) fn reserve(&self, number: u64) {
        self.reserved.set(number);
    }
}
