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

/// What the lock guards.
///
/// What most sends and receives need is first, on the cache line of the lock.
#[repr(C)]
pub(super) struct State<T> {
    pub(super) buffer: VecDeque<T>,
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
    untaken: WaitList<Seat<T>>,
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

    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.buffer.len() + self.slots_promised < self.capacity
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        !self.has_room()
    }

    /// Puts a message into the buffer if there is room and nobody is to be told;
    /// then says whether there is more room.
    #[inline]
    pub(super) fn put_quietly(&mut self, message: T) -> Result<bool, T> {
        if !self.quiet_in || self.buffer.len() >= self.capacity {
            return Err(message);
        }
        self.buffer.push_back(message);
        Ok(self.buffer.len() < self.capacity)
    }

    /// Takes a message out of the buffer if there is one and nobody is to be told;
    /// also says whether there are more, and whether there is room.
    #[inline]
    pub(super) fn take_quietly(&mut self) -> Option<(T, bool, bool)> {
        if !self.quiet_out {
            return None;
        }
        let message = self.buffer.pop_front()?;
        // Not so if a message was put back into a buffer that was full again.
        let room = self.buffer.len() < self.capacity;
        Some((message, !self.buffer.is_empty(), room))
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
            // SAFETY: claimed by the caller, who holds the lock; a task's seat
            // stays until it has left this line, too.
            unsafe {
                seat.put(message);
                if seat.node().waiter().is_task() {
                    self.untaken.push_back(seat);
                }
            }
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
    pub(super) fn put(&mut self, message: T, wakes: &mut Wakes) {
        if let Some(message) = self.hand_over(message, None, wakes) {
            self.append(message, wakes);
        }
    }

    /// A task takes the message in its slot out of reach of others; false if
    /// another receiver has got it.
    pub(super) fn claim_own(&mut self, seat: &Seat<T>) -> bool {
        // SAFETY: a seat whose fate is `Passed` is linked only here.
        unsafe { self.untaken.remove(seat) }
    }

    /// The oldest message that a task was given and has not taken; it finds that
    /// it has to stand in line again.
    fn take_untaken(&mut self) -> Option<T> {
        let seat = self.untaken.pop_front()?;
        // SAFETY: it was linked, and we hold the lock: a task's seat stays for
        // as long, and its slot is ours.
        unsafe {
            let message = seat.as_ref().take();
            seat.as_ref().set_fate(Fate::Again);
            Some(message)
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
        if !self.closed {
            return Found::Nothing;
        }
        // What a task has not taken it may never take.
        match self.take_untaken() {
            Some(message) => Found::Message(message),
            None => Found::Closed,
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

    /// Tells all who wait that the channel is disconnected; false if it was.
    pub(super) fn close(&mut self, wakes: &mut Wakes) -> bool {
        if std::mem::replace(&mut self.closed, true) {
            return false;
        }
        while let Some((seat, wakeup)) = self.receivers.claim_front() {
            match self.take_untaken() {
                Some(message) => {
                    // SAFETY: claimed by us, under the lock.
                    self.give(unsafe { seat.as_ref() }, message);
                    // SAFETY: as above.
                    unsafe { wakes.add(seat.as_ref().node(), wakeup) };
                }
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
    pub(super) fn discard(&mut self) -> VecDeque<T> {
        // No receiver is left that a message could be promised to; a promise
        // that was leaked goes with them.
        self.out_promised = 0;
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
