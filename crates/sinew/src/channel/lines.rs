//! Entering and leaving the lines of a channel; what they are is told in the header of
//! `channel::state`.

use super::seat::{Fate, Seat};
use super::state::State;
use crate::wait::node::{Place, Wakes};

impl<T> State<T> {
    /// Puts a receiver into the line.
    ///
    /// # Safety
    ///
    /// Its node belongs to a waiter; both stay until it is unlinked.
    #[inline]
    pub(super) unsafe fn link_receiver(&mut self, seat: &Seat<T>, wakes: &mut Wakes) {
        seat.set_fate(Fate::Waits);
        // SAFETY: the caller's promise.
        unsafe { self.receivers.push_back(seat) };
        if self.capacity == 0 {
            self.send_watchers.claim_all(wakes);
        }
    }

    /// Puts a sender into the line.
    ///
    /// # Safety
    ///
    /// As for [`link_receiver`](Self::link_receiver).
    #[inline]
    pub(super) unsafe fn link_sender(&mut self, seat: &Seat<T>, wakes: &mut Wakes) {
        seat.set_fate(Fate::Waits);
        // SAFETY: the caller's promise.
        unsafe { self.senders.push_back(seat) };
        if self.capacity == 0 {
            self.recv_watchers.claim_all(wakes);
        }
    }

    /// Sets a receiver apart for the select that it was matched with.
    ///
    /// # Safety
    ///
    /// As for [`link_receiver`](Self::link_receiver).
    pub(super) unsafe fn reserve(&mut self, seat: &Seat<T>, number: u64) {
        seat.set_fate(Fate::Waits);
        seat.reserve(number);
        // SAFETY: the caller's promise.
        unsafe { self.reserved.push_back(seat) };
    }

    /// Takes a receiver out of its line; false if it is in none, or set apart
    /// and not a task's: then its message is being made.
    pub(super) fn unlink_receiver(&mut self, seat: &Seat<T>) -> bool {
        if seat.fate() == Fate::Passed {
            return false; // in `untaken`, if anywhere; see `claim_own`
        }
        // SAFETY: set apart, it is linked.
        if seat.reserved() != 0 && !unsafe { seat.node().waiter() }.is_task() {
            return false;
        }
        let line = if seat.reserved() == 0 {
            &mut self.receivers
        } else {
            &mut self.reserved
        };
        // SAFETY: it is linked only by this file, in the line that `reserved`
        // tells.
        let linked = unsafe { line.remove(seat) };
        seat.reserve(0);
        linked
    }

    /// Takes a sender out of its line; false if it is in none.
    pub(super) fn unlink_sender(&mut self, seat: &Seat<T>) -> bool {
        // SAFETY: linked only by `link_sender`.
        unsafe { self.senders.remove(seat) }
    }
}
