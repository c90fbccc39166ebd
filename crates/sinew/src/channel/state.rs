//! A channel: its messages, and who waits for them.
//!
//! Everything is under one lock, held for a few instructions. A message goes the
//! shortest way: if a receiver waits it is handed to it directly, else it goes
//! into the buffer, else its sender waits.
//!
//! Promises. A select that chose to send has no message yet (its expression is
//! evaluated then), and a dynamic select that chose to receive has no place for
//! one. What it gets instead is a promise, which nobody else can take:
//!
//! | chosen to   | with capacity                             | without (rendezvous)                        |
//! |-------------|-------------------------------------------|---------------------------------------------|
//! | send        | a slot of the buffer (`slots_promised`)   | a receiver, set apart in `reserved`         |
//! | receive     | a message in the buffer (`out_promised`)  | the same: the buffer holds only such ones   |
//!
//! A receiver that is set apart does not leave: a fiber or thread is notified
//! when the message comes, and cannot give up before; one that finds a select
//! that wants to send waits for it without a deadline (for as long as that select takes to
//! evaluate one expression). Only the future of a task can be dropped meanwhile;
//! then the select, whose partner it was, sends as a plain `send` does.
//!
//! Invariant 1 (receivers wait for nothing): a receiver stands in `receivers`
//! only while the buffer has no message but promised ones and, without capacity,
//! no sender stands in `senders`.
//! Invariant 2 (senders wait for room): a sender stands in `senders` only while
//! there is no room; without capacity: no receiver in `receivers`.
//! Invariant 3 (closed): both lines are empty once `closed` is set.
//! Both up to those who belong to one select, which does not deal with itself.

use super::seat::{Fate, Seat};
use crate::wait::Waiter;
use crate::wait::node::{Node, Place, WaitList, Wakes};
use crate::wait::waiter::Wakeup;
use std::collections::VecDeque;
use std::ptr::NonNull;

/// As much of a buffer is allocated at once; more as it fills.
const ALLOCATED: usize = 1024;

/// What a receiver found.
pub(super) enum Found<T> {
    Message(T),
    /// A select that will send: claimed, and matched with the receiver that will
    /// reserve itself under this number before it gives up the lock.
    Match(u64),
    Nothing,
    Closed,
}

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

/// What the lock guards.
pub(super) struct State<T> {
    buffer: VecDeque<T>,
    /// 0: rendezvous; `usize::MAX`: unbounded.
    capacity: usize,
    out_promised: usize,
    slots_promised: usize,
    pub(super) closed: bool,
    matches: u64,
    receivers: WaitList<Seat<T>>,
    senders: WaitList<Seat<T>>,
    /// Receivers that are matched with a select that will send.
    reserved: WaitList<Seat<T>>,
    /// Those who only want to know when one could receive, or send.
    recv_watchers: WaitList<Node>,
    send_watchers: WaitList<Node>,
}

impl<T> State<T> {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            buffer: VecDeque::with_capacity(if capacity == usize::MAX {
                0
            } else {
                capacity.min(ALLOCATED)
            }),
            capacity,
            out_promised: 0,
            slots_promised: 0,
            closed: false,
            matches: 0,
            receivers: WaitList::new(),
            senders: WaitList::new(),
            reserved: WaitList::new(),
            recv_watchers: WaitList::new(),
            send_watchers: WaitList::new(),
        }
    }

    /// How many messages can be received without waiting.
    pub(super) fn len(&self) -> usize {
        self.buffer.len() - self.out_promised
    }

    #[inline]
    fn has_room(&self) -> bool {
        self.buffer.len() + self.slots_promised < self.capacity
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        !self.has_room()
    }

    /// Whether a receive would not wait; `me` is a select that must not deal
    /// with itself.
    pub(super) fn can_recv(&self, me: Option<&Waiter>) -> bool {
        let others = |seat: &Seat<T>| me.is_none_or(|me| !seat.node().is_of(me));
        self.len() > 0 || self.closed || self.capacity == 0 && self.senders.find(others).is_some()
    }

    /// Whether a send would not wait.
    fn can_send(&self) -> bool {
        self.has_room() || self.closed || self.capacity == 0 && !self.receivers.is_empty()
    }

    /// Whether a receive, or a send, would not wait.
    pub(super) fn is_ready(&self, receiving: bool) -> bool {
        if receiving {
            self.can_recv(None)
        } else {
            self.can_send()
        }
    }

    /// Claims the oldest of `line` that is not of the waiter `me` and, if asked
    /// for, has a slot.
    #[inline]
    fn claim(
        line: &mut WaitList<Seat<T>>,
        me: Option<&Waiter>,
        with_slot: bool,
    ) -> Option<(NonNull<Seat<T>>, Wakeup)> {
        if me.is_none() && !with_slot {
            return line.claim_front();
        }
        loop {
            let seat = line.find(|seat| {
                me.is_none_or(|me| !seat.node().is_of(me)) && (!with_slot || seat.has_slot())
            })?;
            // SAFETY: just found linked, in this list.
            let seat_ref = unsafe { seat.as_ref() };
            // SAFETY: as above.
            unsafe { line.remove(seat_ref) };
            // SAFETY: it was linked, and we hold the lock.
            if let Some(wakeup) = unsafe { seat_ref.node().claim() } {
                return Some((seat, wakeup));
            }
        }
    }

    /// Hands a message to the oldest receiver that waits, or gives it back.
    #[inline]
    fn hand_over(&mut self, message: T, me: Option<&Waiter>, wakes: &mut Wakes) -> Option<T> {
        let Some((seat, wakeup)) = Self::claim(&mut self.receivers, me, false) else {
            return Some(message);
        };
        // SAFETY: claimed by us, under the lock.
        let seat = unsafe { seat.as_ref() };
        self.give(seat, message);
        // SAFETY: as above.
        unsafe { wakes.add(seat.node(), wakeup) };
        None
    }

    /// Claims the oldest receiver that waits; the caller gives it a message.
    #[inline]
    pub(super) fn claim_receiver(&mut self) -> Option<(NonNull<Seat<T>>, Wakeup)> {
        self.receivers.claim_front()
    }

    /// Gives a claimed receiver its message.
    #[inline]
    pub(super) fn give(&mut self, seat: &Seat<T>, message: T) {
        if seat.has_slot() {
            // SAFETY: claimed by the caller, who holds the lock.
            unsafe { seat.put(message) };
        } else {
            self.buffer.push_back(message);
            self.out_promised += 1;
            seat.set_fate(Fate::Promised);
        }
    }

    /// Puts a message into the buffer, where nobody waits for it.
    #[inline]
    pub(super) fn append(&mut self, message: T, wakes: &mut Wakes) {
        self.buffer.push_back(message);
        if !self.recv_watchers.is_empty() {
            self.recv_watchers.claim_all(wakes);
        }
    }

    /// A message comes in: to who waits, else into the buffer.
    fn put(&mut self, message: T, wakes: &mut Wakes) {
        if let Some(message) = self.hand_over(message, None, wakes) {
            self.append(message, wakes);
        }
    }

    /// A message comes back that was on its way to a receiver that is gone; it
    /// is the oldest.
    pub(super) fn put_back(&mut self, message: T, wakes: &mut Wakes) {
        if let Some(message) = self.hand_over(message, None, wakes) {
            self.buffer.push_front(message);
            self.recv_watchers.claim_all(wakes);
        }
    }

    /// Sends if that needs no waiting; else the message comes back.
    #[inline]
    pub(super) fn try_send(&mut self, message: T, wakes: &mut Wakes) -> Result<(), T> {
        if self.closed {
            return Err(message);
        }
        let Some(message) = self.hand_over(message, None, wakes) else {
            return Ok(());
        };
        if !self.has_room() {
            return Err(message);
        }
        self.append(message, wakes);
        Ok(())
    }

    /// Receives if that needs no waiting.
    ///
    /// `matching` says whether the caller can wait for a select that will send;
    /// `me` is a select that must not deal with itself.
    #[inline]
    pub(super) fn take(
        &mut self,
        matching: bool,
        me: Option<&Waiter>,
        wakes: &mut Wakes,
    ) -> Found<T> {
        if self.buffer.len() > self.out_promised {
            let message = self.buffer.pop_front().expect("it is not empty");
            self.admit(wakes);
            return Found::Message(message);
        }
        if self.capacity == 0 {
            if let Some((seat, wakeup)) = Self::claim(&mut self.senders, me, !matching) {
                // SAFETY: claimed by us, under the lock.
                let seat = unsafe { seat.as_ref() };
                let found = if seat.has_slot() {
                    // SAFETY: as above; it is a sender's.
                    Found::Message(unsafe { seat.take() })
                } else {
                    self.matches += 1;
                    seat.set_fate(Fate::Matched(self.matches));
                    Found::Match(self.matches)
                };
                // SAFETY: as above.
                unsafe { wakes.add(seat.node(), wakeup) };
                return found;
            }
        }
        if self.closed {
            Found::Closed
        } else {
            Found::Nothing
        }
    }

    /// There may be room: senders that wait come in (invariant 2).
    #[inline]
    fn admit(&mut self, wakes: &mut Wakes) {
        while self.has_room() {
            let Some((seat, wakeup)) = self.senders.claim_front() else {
                self.send_watchers.claim_all(wakes);
                return;
            };
            // SAFETY: claimed by us, under the lock.
            let seat = unsafe { seat.as_ref() };
            if seat.has_slot() {
                // SAFETY: as above; it is a sender's.
                let message = unsafe { seat.take() };
                self.put(message, wakes);
            } else {
                self.slots_promised += 1;
                seat.set_fate(Fate::Promised);
            }
            // SAFETY: as above.
            unsafe { wakes.add(seat.node(), wakeup) };
        }
    }

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
        match self.take(matching, waiter, wakes) {
            Found::Message(message) => {
                self.buffer.push_back(message);
                self.out_promised += 1;
                Grant::Now(Fate::Promised)
            }
            Found::Match(number) => Grant::Now(Fate::Matched(number)),
            Found::Closed => Grant::Now(Fate::Closed),
            Found::Nothing if waiter.is_none_or(Waiter::is_single) => Grant::Wait,
            Found::Nothing => Grant::Again,
        }
    }

    /// A select that was promised a slot of the buffer has its message.
    pub(super) fn fill_slot(&mut self, message: T, wakes: &mut Wakes) -> Result<(), T> {
        self.slots_promised -= 1;
        if self.closed {
            return Err(message);
        }
        self.put(message, wakes);
        // If a receiver took it the slot is still free.
        self.admit(wakes);
        Ok(())
    }

    /// A select that was promised a slot will not use it.
    pub(super) fn waive_slot(&mut self, wakes: &mut Wakes) {
        self.slots_promised -= 1;
        self.admit(wakes);
    }

    /// A select that was matched has its message; it comes back if the partner
    /// has left.
    pub(super) fn fill_match(&mut self, number: u64, message: T, wakes: &mut Wakes) -> Option<T> {
        let Some(seat) = self.take_reserved(number, wakes) else {
            return Some(message);
        };
        // SAFETY: claimed, and not yet notified; we hold the lock.
        self.give(unsafe { seat.as_ref() }, message);
        None
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
    pub(super) fn take_promised(&mut self, wakes: &mut Wakes) -> T {
        self.out_promised -= 1;
        let message = self.buffer.pop_front().expect("it was promised");
        self.admit(wakes);
        message
    }

    /// A message that was promised is not wanted: anybody may have it.
    pub(super) fn waive_promised(&mut self, wakes: &mut Wakes) {
        self.out_promised -= 1;
        let message = self.buffer.pop_front().expect("it was promised");
        self.put_back(message, wakes);
    }

    /// Tells all who wait that the channel is disconnected; false if it was.
    pub(super) fn close(&mut self, wakes: &mut Wakes) -> bool {
        if std::mem::replace(&mut self.closed, true) {
            return false;
        }
        for line in [&mut self.receivers, &mut self.senders] {
            while let Some((seat, wakeup)) = line.claim_front() {
                // SAFETY: claimed by us, under the lock.
                let seat = unsafe { seat.as_ref() };
                seat.set_fate(Fate::Closed);
                // SAFETY: as above.
                unsafe { wakes.add(seat.node(), wakeup) };
            }
        }
        self.recv_watchers.claim_all(wakes);
        self.send_watchers.claim_all(wakes);
        true
    }

    /// Takes all messages out, to be dropped without the lock.
    pub(super) fn discard(&mut self) -> VecDeque<T> {
        debug_assert_eq!(self.out_promised, 0);
        std::mem::take(&mut self.buffer)
    }

    /// Whoever only wants to know when one could receive (or send).
    pub(super) fn watchers(&mut self, receiving: bool) -> &mut WaitList<Node> {
        if receiving {
            &mut self.recv_watchers
        } else {
            &mut self.send_watchers
        }
    }
}
