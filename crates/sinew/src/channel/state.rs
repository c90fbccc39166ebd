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
//! Invariant 4 (tasks): a message that a task was given is in its slot, and the
//! task's seat in `untaken`, until the task takes it; on a closed channel others
//! may take it from there. So nobody is told that nothing will come while a
//! future that may be dropped has a message.
//! Both up to those who belong to one select, which does not deal with itself.

use super::buffer::{Buffer, OwnedBlock};
use super::parcel::Parcel;
use super::seat::{Fate, Seat};
use crate::wait::Waiter;
use crate::wait::node::{Node, Place, WaitList, Wakes};
use crate::wait::waiter::Wakeup;
use std::ptr::NonNull;

/// What a receiver found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A message, which is in its parcel now.
    Message,
    /// A select that will send: claimed, and matched with the receiver that will
    /// reserve itself under this number before it gives up the lock.
    Match(u64),
    Nothing,
    Closed,
}

/// What the lock guards.
///
/// What most sends and receives need is first, on the cache line of the lock.
#[repr(C)]
pub(super) struct State<T> {
    pub(super) buffer: Buffer<T>,
    /// 0: rendezvous; `usize::MAX`: unbounded.
    pub(super) capacity: usize,
    /// Whether a message may go into the buffer, or out of it, with nobody to be
    /// told and nothing promised; said anew by whoever may have changed that, see
    /// [`settle`](Self::settle).
    quiet_in: bool,
    quiet_out: bool,
    pub(super) closed: bool,
    pub(super) out_promised: usize,
    pub(super) slots_promised: usize,
    pub(super) matches: u64,
    pub(super) receivers: WaitList<Seat<T>>,
    pub(super) senders: WaitList<Seat<T>>,
    /// Receivers that are matched with a select that will send.
    pub(super) reserved: WaitList<Seat<T>>,
    /// Tasks that were given a message, and have not taken it.
    pub(super) untaken: WaitList<Seat<T>>,
    /// Those who only want to know when one could receive, or send.
    pub(super) recv_watchers: WaitList<Node>,
    pub(super) send_watchers: WaitList<Node>,
}

impl<T> State<T> {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            buffer: Buffer::new(capacity),
            capacity,
            quiet_in: true,
            quiet_out: true,
            closed: false,
            out_promised: 0,
            slots_promised: 0,
            matches: 0,
            receivers: WaitList::new(),
            senders: WaitList::new(),
            reserved: WaitList::new(),
            untaken: WaitList::new(),
            recv_watchers: WaitList::new(),
            send_watchers: WaitList::new(),
        }
    }

    /// How many messages can be received without waiting.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.buffer.len() - self.out_promised
    }

    /// How many messages are in the channel, also those that are promised to a
    /// select, which has not taken them yet.
    pub(super) fn held(&self) -> usize {
        if self.capacity == 0 {
            return 0; // they are on their way from hand to hand
        }
        self.buffer.len()
    }

    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.buffer.len() + self.slots_promised < self.capacity
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        !self.has_room()
    }

    /// Puts the message at `from` into the buffer if there is room and nobody is to
    /// be told; then says whether there is more room. None as well if a block has
    /// to be linked first.
    ///
    /// # Safety
    ///
    /// There is a message at `from`; if this is some, the caller does not use it after
    /// that.
    #[inline(always)]
    pub(super) unsafe fn put_quietly(&mut self, from: *const T) -> Option<bool> {
        if !self.quiet_in || self.buffer.len() >= self.capacity || !self.buffer.has_slot() {
            return None;
        }
        // SAFETY: just looked; the rest is the caller's promise.
        unsafe { self.buffer.push_at_hand(from) };
        Some(self.buffer.len() < self.capacity)
    }

    /// Takes a message out of the buffer if there is one and nobody is to be told;
    /// says whether there are more, and whether there is room. None as well at the
    /// end of a block.
    ///
    /// # Safety
    ///
    /// `to` is good for a write and holds nothing.
    #[inline(always)]
    pub(super) unsafe fn take_quietly(&mut self, to: *mut T) -> Option<(bool, bool)> {
        if !self.quiet_out || self.buffer.is_empty() || !self.buffer.is_at_hand() {
            return None;
        }
        // SAFETY: just looked; the rest is the caller's promise.
        unsafe { self.buffer.pop_at_hand(to) };
        // Not so if a message was put back into a buffer that was full again.
        let room = self.buffer.len() < self.capacity;
        Some((!self.buffer.is_empty(), room))
    }

    /// Takes a message out of the buffer, if there is one that is not promised, and
    /// lets senders in. The second is a block that is to be freed without the
    /// lock.
    ///
    /// # Safety
    ///
    /// As for [`take_quietly`](Self::take_quietly).
    pub(super) unsafe fn take_buffered(
        &mut self,
        to: *mut T,
        wakes: &mut Wakes,
    ) -> (bool, Option<OwnedBlock<T>>) {
        if self.len() == 0 {
            return (false, None);
        }
        let old = self.buffer.advance();
        // SAFETY: there is a message, and after `advance` it is at hand; the rest
        // is the caller's promise.
        unsafe { self.buffer.pop_at_hand(to) };
        self.admit(wakes);
        (true, old)
    }

    /// Whether a send that need not wait would have to make a block first.
    #[inline]
    pub(super) fn wants_block(&self) -> bool {
        self.has_room() && self.buffer.wants_block()
    }

    /// Says what may be done quietly from now on; before the lock is given back.
    #[inline]
    pub(super) fn settle(&mut self) {
        self.quiet_in = self.receivers.is_empty()
            && self.recv_watchers.is_empty()
            && self.slots_promised == 0
            && !self.closed;
        self.quiet_out = self.senders.is_empty()
            && self.send_watchers.is_empty()
            && self.out_promised == 0
            && !self.closed;
    }

    /// Whether a receive would not wait; `me` is a select that must not deal
    /// with itself.
    #[inline]
    pub(super) fn can_recv(&self, me: Option<&Waiter>) -> bool {
        let others = |seat: &Seat<T>| me.is_none_or(|me| !seat.node().is_of(me));
        self.len() > 0 || self.closed || self.capacity == 0 && self.senders.find(others).is_some()
    }

    /// Whether a send would not wait.
    #[inline]
    fn can_send(&self) -> bool {
        self.has_room() || self.closed || self.capacity == 0 && !self.receivers.is_empty()
    }

    /// Whether a receive, or a send, would not wait.
    #[inline]
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

    /// Hands the message of `from` to the oldest receiver that waits; false if there
    /// is none.
    ///
    /// # Safety
    ///
    /// As for [`append`](Self::append).
    #[inline]
    unsafe fn hand_over(
        &mut self,
        from: &Parcel<T>,
        me: Option<&Waiter>,
        wakes: &mut Wakes,
    ) -> bool {
        let Some((seat, wakeup)) = Self::claim(&mut self.receivers, me, false) else {
            return false;
        };
        // SAFETY: claimed by us, under the lock; the caller's promise.
        unsafe {
            self.give(seat.as_ref(), from);
            wakes.add(seat.as_ref().node(), wakeup);
        }
        true
    }

    /// Claims the oldest receiver that waits; the caller gives it a message.
    #[inline]
    pub(super) fn claim_receiver(&mut self) -> Option<(NonNull<Seat<T>>, Wakeup)> {
        self.receivers.claim_front()
    }

    /// Gives a claimed receiver the message of `from`.
    ///
    /// # Safety
    ///
    /// The caller has claimed the seat, and holds the lock; `from` as for
    /// [`append`](Self::append).
    #[inline]
    pub(super) unsafe fn give(&mut self, seat: &Seat<T>, from: &Parcel<T>) {
        if seat.has_slot() {
            // SAFETY: the caller's promise; the slot of a receiver that waits is
            // empty. A task's seat stays until it has left this line, too.
            unsafe {
                seat.pass().fill_from(from);
                if seat.node().waiter().is_task() {
                    self.untaken.push_back(seat);
                }
            }
        } else {
            // SAFETY: the caller's promise.
            unsafe { self.buffer.push_back(from) };
            self.out_promised += 1;
            seat.set_fate(Fate::Promised);
        }
    }

    /// Puts a message into the buffer, where nobody waits for it.
    ///
    /// # Safety
    ///
    /// `from` is full, and the caller is the one that may touch it.
    #[inline]
    pub(super) unsafe fn append(&mut self, from: &Parcel<T>, wakes: &mut Wakes) {
        // SAFETY: the caller's promise.
        unsafe { self.buffer.push_back(from) };
        if !self.recv_watchers.is_empty() {
            self.recv_watchers.claim_all(wakes);
        }
    }

    /// A message comes in: to who waits, else into the buffer.
    ///
    /// # Safety
    ///
    /// As for [`append`](Self::append).
    pub(super) unsafe fn put(&mut self, from: &Parcel<T>, wakes: &mut Wakes) {
        // SAFETY: the caller's promise; not handed over, it is still there.
        unsafe {
            if !self.hand_over(from, None, wakes) {
                self.append(from, wakes);
            }
        }
    }

    /// A task takes the message in its slot out of reach of others; false if
    /// another receiver has got it.
    pub(super) fn claim_own(&mut self, seat: &Seat<T>) -> bool {
        // SAFETY: a seat whose fate is `Passed` is linked only here.
        unsafe { self.untaken.remove(seat) }
    }

    /// The slot with the oldest message that a task was given and has not taken;
    /// the task finds that it has to stand in line again. The caller takes the
    /// message before it gives the lock back.
    fn claim_untaken(&mut self) -> Option<NonNull<Parcel<T>>> {
        let seat = self.untaken.pop_front()?;
        // SAFETY: it was linked, and we hold the lock: a task's seat stays for
        // as long, and its slot is ours.
        unsafe {
            let slot = NonNull::from(seat.as_ref().pass());
            seat.as_ref().set_fate(Fate::Again);
            Some(slot)
        }
    }

    fn tell_closed(&mut self, seat: NonNull<Seat<T>>, wakeup: Wakeup, wakes: &mut Wakes) {
        // SAFETY: claimed by the caller, under the lock.
        let seat = unsafe { seat.as_ref() };
        seat.set_fate(Fate::Closed);
        // SAFETY: as above.
        unsafe { wakes.add(seat.node(), wakeup) };
    }

    /// A message comes back that was on its way to a receiver that is gone; it
    /// is the oldest.
    ///
    /// # Safety
    ///
    /// As for [`append`](Self::append).
    pub(super) unsafe fn put_back(&mut self, from: &Parcel<T>, wakes: &mut Wakes) {
        // SAFETY: the caller's promise; not handed over, it is still there.
        unsafe {
            if !self.hand_over(from, None, wakes) {
                self.buffer.push_front(from);
                self.recv_watchers.claim_all(wakes);
            }
        }
    }

    /// Sends if that needs no waiting; if not (false) the message is still there.
    ///
    /// # Safety
    ///
    /// As for [`append`](Self::append).
    #[inline]
    pub(super) unsafe fn try_send(&mut self, from: &Parcel<T>, wakes: &mut Wakes) -> bool {
        if self.closed {
            return false;
        }
        // SAFETY: the caller's promise; not handed over, it is still there.
        unsafe {
            if self.hand_over(from, None, wakes) {
                return true;
            }
            if !self.has_room() {
                return false;
            }
            self.append(from, wakes);
        }
        true
    }

    /// Receives if that needs no waiting: into `to`, or without it into the buffer,
    /// as promised.
    ///
    /// `matching` says whether the caller can wait for a select that will send;
    /// `me` is a select that must not deal with itself.
    ///
    /// # Safety
    ///
    /// `to` is empty, and the caller is the one that may touch it.
    #[inline]
    pub(super) unsafe fn take(
        &mut self,
        to: Option<&Parcel<T>>,
        matching: bool,
        me: Option<&Waiter>,
        wakes: &mut Wakes,
    ) -> Found {
        if self.buffer.len() > self.out_promised {
            let to = to.expect("who wants a promise looks at `len` before");
            // SAFETY: there is a message; the rest is the caller's promise.
            unsafe { self.buffer.pop_front(to.room()) };
            to.set_full();
            self.admit(wakes);
            return Found::Message;
        }
        if self.capacity == 0 {
            if let Some((seat, wakeup)) = Self::claim(&mut self.senders, me, !matching) {
                // SAFETY: claimed by us, under the lock.
                let seat = unsafe { seat.as_ref() };
                let found = if seat.has_slot() {
                    // SAFETY: as above; it is a sender's, so it is full.
                    unsafe { self.receive_from(seat.pass(), to) };
                    Found::Message
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
        if !self.closed {
            return Found::Nothing;
        }
        // What a task has not taken it may never take.
        match self.claim_untaken() {
            Some(slot) => {
                // SAFETY: ours, and full: see `claim_untaken`.
                unsafe { self.receive_from(slot.as_ref(), to) };
                Found::Message
            }
            None => Found::Closed,
        }
    }

    /// Receives the message of `from` into `to`; or into the buffer, as promised.
    ///
    /// # Safety
    ///
    /// As for [`append`](Self::append) and [`take`](Self::take).
    unsafe fn receive_from(&mut self, from: &Parcel<T>, to: Option<&Parcel<T>>) {
        // SAFETY: the caller's promise.
        unsafe {
            match to {
                Some(to) => to.fill_from(from),
                None => {
                    self.buffer.push_back(from);
                    self.out_promised += 1;
                }
            }
        }
    }

    /// There may be room: senders that wait come in (invariant 2).
    #[inline]
    pub(super) fn admit(&mut self, wakes: &mut Wakes) {
        while self.has_room() {
            let Some((seat, wakeup)) = self.senders.claim_front() else {
                self.send_watchers.claim_all(wakes);
                return;
            };
            // SAFETY: claimed by us, under the lock.
            let seat = unsafe { seat.as_ref() };
            if seat.has_slot() {
                // SAFETY: as above; it is a sender's, so it is full.
                unsafe { self.put(seat.pass(), wakes) };
            } else {
                self.slots_promised += 1;
                seat.set_fate(Fate::Promised);
            }
            // SAFETY: as above.
            unsafe { wakes.add(seat.node(), wakeup) };
        }
    }

    /// Tells all who wait that the channel is disconnected; false if it was.
    pub(super) fn close(&mut self, wakes: &mut Wakes) -> bool {
        if std::mem::replace(&mut self.closed, true) {
            return false;
        }
        while let Some((seat, wakeup)) = self.receivers.claim_front() {
            match self.claim_untaken() {
                // SAFETY: claimed by us, under the lock; the slot is ours, and full
                // (see `claim_untaken`).
                Some(slot) => unsafe {
                    self.give(seat.as_ref(), slot.as_ref());
                    wakes.add(seat.as_ref().node(), wakeup);
                },
                None => self.tell_closed(seat, wakeup, wakes),
            }
        }
        while let Some((seat, wakeup)) = self.senders.claim_front() {
            self.tell_closed(seat, wakeup, wakes);
        }
        self.recv_watchers.claim_all(wakes);
        self.send_watchers.claim_all(wakes);
        true
    }

    /// Takes all messages out, to be dropped without the lock.
    pub(super) fn discard(&mut self) -> Buffer<T> {
        // No receiver is left that a message could be promised to; a promise
        // that was leaked goes with them.
        self.out_promised = 0;
        std::mem::replace(&mut self.buffer, Buffer::new(self.capacity))
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
