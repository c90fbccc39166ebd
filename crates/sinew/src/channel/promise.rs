//! What a select is promised on a channel, and how it makes use of that.
//!
//! See `channel::state` for what a promise is. It is kept in a permit: used, or
//! given up when the permit is dropped.

use super::chan::{At, Chan, Disconnected, Unsent};
use super::grants::Grant;
use super::parcel::Parcel;
use super::seat::{Fate, Seat};
use super::state::State;
use crate::sched::switch;
use crate::wait::node::{Node, Place, Wakes};
use crate::wait::{Enlisted, Operation, Waiter};

impl<T> Chan<T> {
    /// Promises a select that it can send, or puts `seat` into the line for it;
    /// `None` for who will not wait.
    pub(super) fn promise_send(
        &self,
        seat: &Seat<T>,
        me: Option<(&Waiter, u32)>,
    ) -> Enlisted<Fate> {
        if me.is_none() && !self.may_be_ready(false) {
            return Enlisted::Again;
        }
        let mut wakes = Wakes::new();
        let mut state = self.lock();
        match (state.grant_send(me), me) {
            (Grant::Now(fate), _) => return Enlisted::Done(fate),
            (Grant::Lost, _) => return Enlisted::Lost,
            (Grant::Again, _) | (Grant::Wait, None) => return Enlisted::Again,
            (Grant::Wait, Some((waiter, place))) => {
                seat.node().belongs_to(waiter, place);
                // SAFETY: the caller of `enlist` promised it.
                unsafe { state.link_sender(seat, &mut wakes) };
            }
        }
        drop(state);
        wakes.fire();
        Enlisted::Linked
    }

    /// Promises a dynamic select that it can receive, or puts `seat` into the
    /// line for it; `None` for who will not wait.
    pub(super) fn promise_recv(
        &self,
        seat: &Seat<T>,
        me: Option<(&Waiter, u32)>,
        at: At,
    ) -> Enlisted<Fate> {
        if me.is_none() && !self.may_be_ready(true) {
            return Enlisted::Again;
        }
        let mut wakes = Wakes::new();
        let mut state = self.lock();
        match (state.grant_recv(switch::may_wait(), me, &mut wakes), me) {
            (Grant::Now(Fate::Matched(number)), _) => {
                self.await_match(state, wakes, seat, number, at);
                return match seat.fate() {
                    Fate::Again => Enlisted::Again,
                    fate => Enlisted::Done(fate),
                };
            }
            (Grant::Now(fate), _) => {
                drop(state);
                wakes.fire_for(me.map(|(waiter, _)| waiter));
                return Enlisted::Done(fate);
            }
            (Grant::Lost, _) => return Enlisted::Lost,
            (Grant::Again, _) | (Grant::Wait, None) => return Enlisted::Again,
            (Grant::Wait, Some((waiter, place))) => {
                seat.node().belongs_to(waiter, place);
                // SAFETY: the caller of `enlist` promised it.
                unsafe { state.link_receiver(seat, &mut wakes) };
            }
        }
        drop(state);
        wakes.fire();
        Enlisted::Linked
    }

    /// Takes a seat out of the line of receivers, or of senders.
    pub(super) fn unlink(&self, seat: &Seat<T>, receiving: bool) -> bool {
        let mut state = self.lock();
        if receiving {
            state.unlink_receiver(seat)
        } else {
            state.unlink_sender(seat)
        }
    }

    /// Whether a receive, or a send, would not wait.
    pub(super) fn is_ready(&self, receiving: bool) -> bool {
        self.lock().is_ready(receiving)
    }

    /// Stands in line to be told when a receive, or a send, would not wait.
    ///
    /// # Safety
    ///
    /// As for [`Operation::enlist`].
    pub(super) unsafe fn watch(
        &self,
        node: &Node,
        receiving: bool,
        (waiter, place): (&Waiter, u32),
    ) -> Enlisted<()> {
        let mut state = self.lock();
        if state.is_ready(receiving) {
            return if waiter.take_oneself(place) {
                Enlisted::Done(())
            } else {
                Enlisted::Lost
            };
        }
        node.belongs_to(waiter, place);
        // SAFETY: the caller's promise.
        unsafe { state.watchers(receiving).push_back(node) };
        Enlisted::Linked
    }

    pub(super) fn unwatch(&self, node: &Node, receiving: bool) -> bool {
        let mut state = self.lock();
        // SAFETY: linked only by `watch`, into this list.
        unsafe { state.watchers(receiving).remove(node) }
    }
}

/// One wait of a select for a promise that it can send.
#[repr(C)]
pub(crate) struct SendPromise<'a, T> {
    seat: Seat<T>,
    chan: &'a Chan<T>,
}

impl<'a, T> SendPromise<'a, T> {
    pub(crate) fn new(chan: &'a Chan<T>) -> Self {
        Self {
            seat: Seat::new(),
            chan,
        }
    }
}

// SAFETY: as for `Receiving`.
unsafe impl<'a, T> Operation for SendPromise<'a, T> {
    type Output = SendPermit<'a, T>;

    fn attempt(&self) -> Option<Self::Output> {
        match self.chan.promise_send(&self.seat, None) {
            Enlisted::Done(fate) => Some(SendPermit::new(self.chan, fate)),
            _ => None,
        }
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<Self::Output> {
        self.chan
            .promise_send(&self.seat, Some((waiter, place)))
            .map(|fate| SendPermit::new(self.chan, fate))
    }

    fn delist(&self) -> bool {
        self.chan.unlink(&self.seat, false)
    }

    fn accept(&self) -> Option<Self::Output> {
        Some(SendPermit::new(self.chan, self.seat.fate()))
    }

    fn pass_on(&self) {
        drop(self.accept());
    }
}

/// The promise that one message can be sent; given up if dropped.
pub(crate) struct SendPermit<'a, T> {
    chan: &'a Chan<T>,
    fate: Fate,
}

impl<'a, T> SendPermit<'a, T> {
    pub(super) fn new(chan: &'a Chan<T>, fate: Fate) -> Self {
        Self { chan, fate }
    }

    /// Sends the message of `from`, which is full; it is there afterwards if nobody
    /// can receive it.
    #[inline]
    pub(crate) fn send(mut self, from: &Parcel<T>, at: At) -> Result<(), Unsent> {
        let chan = self.chan;
        match std::mem::replace(&mut self.fate, Fate::Closed) {
            Fate::Promised => {
                // SAFETY: the parcel is the caller's, and full.
                if chan.change(|state, wakes| unsafe { state.fill_slot(from, wakes) }) {
                    return Ok(());
                }
                Err(Unsent::Disconnected)
            }
            Fate::Matched(number) => {
                // SAFETY: as above.
                if chan.change(|state, wakes| unsafe { state.fill_match(number, from, wakes) }) {
                    return Ok(());
                }
                // It was the future of a task, and was dropped.
                chan.send_slow(switch::running(), from, None, at)
            }
            _ => Err(Unsent::Disconnected),
        }
    }
}

impl<T> Drop for SendPermit<'_, T> {
    fn drop(&mut self) {
        match self.fate {
            Fate::Promised => self.chan.change(State::waive_slot),
            Fate::Matched(number) => self
                .chan
                .change(|state, wakes| state.waive_match(number, wakes)),
            _ => {}
        }
    }
}

/// The promise that one message can be received; given up if dropped.
pub(crate) struct RecvPermit<'a, T> {
    chan: &'a Chan<T>,
    fate: Fate,
}

impl<'a, T> RecvPermit<'a, T> {
    pub(super) fn new(chan: &'a Chan<T>, fate: Fate) -> Self {
        Self { chan, fate }
    }

    /// Receives into `to`, which is empty.
    #[inline]
    pub(crate) fn recv(mut self, to: &Parcel<T>) -> Result<(), Disconnected> {
        match std::mem::replace(&mut self.fate, Fate::Closed) {
            Fate::Promised => {
                // SAFETY: the parcel is the caller's, and empty.
                self.chan
                    .change(|state, wakes| unsafe { state.take_promised(to, wakes) });
                Ok(())
            }
            _ => Err(Disconnected),
        }
    }
}

impl<T> Drop for RecvPermit<'_, T> {
    fn drop(&mut self) {
        if self.fate == Fate::Promised {
            self.chan.change(State::waive_promised);
        }
    }
}
