//! What is promised to selects; see the header of `channel::state`.

use super::parcel::Parcel;
use super::seat::{Fate, Seat};
use super::state::{Found, State};
use crate::wait::Waiter;
use crate::wait::node::{Place, Wakes};
use std::ptr::NonNull;

/// What a select that wants to send, or a dynamic one that wants to receive,
/// found.
pub(super) enum Grant {
    /// It has its promise.
    Now(Fate),
    /// It has to stand in line.
    Wait,
    /// The select was claimed at another place.
    Lost,
    /// The select has claimed itself for this, but then the other side left.
    Again,
}

impl<T> State<T> {
    /// Promises a select that it can send, if that needs no waiting; `me` and
    /// `place` are it, if it stands in line elsewhere already.
    pub(super) fn grant_send(&mut self, me: Option<(&Waiter, u32)>) -> Grant {
        if self.closed || self.has_room() {
            if me.is_some_and(|(me, place)| !me.take_oneself(place)) {
                return Grant::Lost;
            }
            if self.closed {
                return Grant::Now(Fate::Closed);
            }
            self.slots_promised += 1;
            return Grant::Now(Fate::Promised);
        }
        if self.capacity > 0 {
            return Grant::Wait;
        }
        let waiter = me.map(|(me, _)| me);
        let candidate = |seat: &Seat<T>| waiter.is_none_or(|me| !seat.node().is_of(me));
        if self.receivers.find(candidate).is_none() {
            return Grant::Wait;
        }
        if me.is_some_and(|(me, place)| !me.take_oneself(place)) {
            return Grant::Lost;
        }
        while let Some(seat) = self.receivers.find(candidate) {
            // SAFETY: just found linked in this list.
            let seat = unsafe { seat.as_ref() };
            // SAFETY: as above.
            unsafe { self.receivers.remove(seat) };
            // A wait with one place stays as it is: while it is set apart it
            // cannot give up (`unlink_receiver`). A select must be claimed, or
            // another arm might be chosen.
            //
            // SAFETY: it was linked, and we hold the lock.
            let stays = unsafe { seat.node().waiter() }.is_single()
                || unsafe { seat.node().claim() }.is_some();
            if stays {
                self.matches += 1;
                // SAFETY: it stays until it is notified or unlinks itself.
                unsafe { self.reserve(seat, self.matches) };
                return Grant::Now(Fate::Matched(self.matches));
            }
        }
        // Those who were there have given up.
        if waiter.is_none_or(Waiter::is_single) {
            Grant::Wait
        } else {
            Grant::Again
        }
    }

    /// Promises a dynamic select a message, if that needs no waiting.
    ///
    /// `Now(Matched)`: it must wait for a select that will send, see
    /// [`Found::Match`].
    pub(super) fn grant_recv(
        &mut self,
        matching: bool,
        me: Option<(&Waiter, u32)>,
        wakes: &mut Wakes,
    ) -> Grant {
        let waiter = me.map(|(me, _)| me);
        let sender = |seat: &Seat<T>| {
            waiter.is_none_or(|me| !seat.node().is_of(me)) && (matching || seat.has_slot())
        };
        let something = self.len() > 0
            || self.closed
            || self.capacity == 0 && self.senders.find(sender).is_some();
        if !something {
            return Grant::Wait;
        }
        if me.is_some_and(|(me, place)| !me.take_oneself(place)) {
            return Grant::Lost;
        }
        if self.len() > 0 {
            self.out_promised += 1;
            return Grant::Now(Fate::Promised);
        }
        // SAFETY: without a parcel there is nothing to be promised.
        match unsafe { self.take(None, matching, waiter, wakes) } {
            Found::Message => Grant::Now(Fate::Promised),
            Found::Match(number) => Grant::Now(Fate::Matched(number)),
            Found::Closed => Grant::Now(Fate::Closed),
            Found::Nothing if waiter.is_none_or(Waiter::is_single) => Grant::Wait,
            Found::Nothing => Grant::Again,
        }
    }

    /// A select that was promised a slot of the buffer has its message; false, and
    /// the message is still there, if the channel was closed meanwhile.
    ///
    /// # Safety
    ///
    /// As for [`append`](Self::append).
    pub(super) unsafe fn fill_slot(&mut self, from: &Parcel<T>, wakes: &mut Wakes) -> bool {
        self.slots_promised -= 1;
        if self.closed {
            return false;
        }
        // SAFETY: the caller's promise.
        unsafe { self.put(from, wakes) };
        // If a receiver took it the slot is still free.
        self.admit(wakes);
        true
    }

    /// A select that was promised a slot will not use it.
    pub(super) fn waive_slot(&mut self, wakes: &mut Wakes) {
        self.slots_promised -= 1;
        self.admit(wakes);
    }

    /// A select that was matched has its message; false, and the message is still
    /// there, if the partner has left.
    ///
    /// # Safety
    ///
    /// As for [`append`](Self::append).
    pub(super) unsafe fn fill_match(
        &mut self,
        number: u64,
        from: &Parcel<T>,
        wakes: &mut Wakes,
    ) -> bool {
        let Some(seat) = self.take_reserved(number, wakes) else {
            return false;
        };
        // SAFETY: claimed, and not yet notified; we hold the lock. The rest is the
        // caller's promise.
        unsafe { self.give(seat.as_ref(), from) };
        true
    }

    /// A select that was matched will send nothing.
    pub(super) fn waive_match(&mut self, number: u64, wakes: &mut Wakes) {
        if let Some(seat) = self.take_reserved(number, wakes) {
            // SAFETY: claimed, and not yet notified; we hold the lock.
            unsafe { seat.as_ref() }.set_fate(Fate::Again);
        }
    }

    /// Takes the receiver that was set apart under this number, claimed and
    /// about to be woken.
    fn take_reserved(&mut self, number: u64, wakes: &mut Wakes) -> Option<NonNull<Seat<T>>> {
        let found = self.reserved.find(|seat| seat.reserved() == number)?;
        // SAFETY: just found linked in this list.
        let seat = unsafe { found.as_ref() };
        // SAFETY: as above.
        unsafe { self.reserved.remove(seat) };
        seat.reserve(0);
        // SAFETY: linked until now, and we hold the lock.
        let waiter = unsafe { seat.node().waiter() };
        let wakeup = if waiter.is_single() {
            // SAFETY: as above.
            unsafe { seat.node().claim() }
        } else {
            waiter.early_wakeup() // claimed when it was set apart
        };
        let wakeup = wakeup.expect("nobody else could claim it");
        // SAFETY: the claim is ours, and was not fired.
        unsafe { wakes.add(seat.node(), wakeup) };
        Some(found)
    }

    /// Takes a message that was promised.
    ///
    /// # Safety
    ///
    /// `to` is empty, and the caller is the one that may touch it.
    #[inline]
    pub(super) unsafe fn take_promised(&mut self, to: &Parcel<T>, wakes: &mut Wakes) {
        self.out_promised -= 1;
        // SAFETY: what was promised is there; the rest is the caller's promise.
        unsafe { self.buffer.pop_front(to.room()) };
        to.set_full();
        self.admit(wakes);
    }

    /// A message that was promised is not wanted: anybody may have it.
    pub(super) fn waive_promised(&mut self, wakes: &mut Wakes) {
        self.out_promised -= 1;
        let Some((seat, wakeup)) = self.claim_receiver() else {
            self.watchers(true).claim_all(wakes); // it stays where it is
            return;
        };
        // SAFETY: claimed by us, under the lock.
        let receiver = unsafe { seat.as_ref() };
        if receiver.has_slot() {
            let message = Parcel::empty();
            // SAFETY: what was promised is there; the parcel is empty, and ours.
            unsafe { self.buffer.pop_front(message.room()) };
            message.set_full();
            // SAFETY: claimed by us; the parcel is full, and ours.
            unsafe { self.give(receiver, &message) };
        } else {
            self.out_promised += 1; // it waits for a promise as well
            receiver.set_fate(Fate::Promised);
        }
        // SAFETY: as above.
        unsafe { wakes.add(receiver.node(), wakeup) };
        // If a receiver took it there is room.
        self.admit(wakes);
    }
}
