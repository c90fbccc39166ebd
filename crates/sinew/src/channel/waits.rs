//! A plain send, and a plain receive, that may have to wait.
//!
//! Each is an [`Operation`] of `wait`, with a seat and a slot for the message;
//! what it does under the channel's lock is in `channel::state`.

use super::chan::{At, Chan, Disconnected};
use super::error::TrySendError;
use super::seat::{Fate, Seat};
use super::state::Found;
use crate::sched::switch;
use crate::task::safepoint;
use crate::wait::node::{Place, Wakes};
use crate::wait::{Enlisted, Operation, Waiter};
use std::cell::UnsafeCell;

/// One receive.
#[repr(C)]
pub(crate) struct Receiving<'a, T> {
    seat: Seat<T>,
    /// Touched by who claims the seat, under the lock or before it notifies us;
    /// by us when the seat is in no line.
    slot: UnsafeCell<Option<T>>,
    chan: &'a Chan<T>,
    at: At,
}

// SAFETY: what it shares with other threads is shared as `wait::node` has it;
// the message itself must be `Send`.
unsafe impl<T: Send> Send for Receiving<'_, T> {}

impl<'a, T> Receiving<'a, T> {
    #[inline]
    pub(crate) fn new(chan: &'a Chan<T>, at: At) -> Self {
        Self {
            seat: Seat::new(),
            slot: UnsafeCell::new(None),
            chan,
            at,
        }
    }

    fn take_slot(&self) -> Option<T> {
        // SAFETY: the seat is in no line and we were notified: the slot is ours.
        unsafe { (*self.slot.get()).take() }
    }

    /// What became of a wait that has ended; none to stand in line again.
    fn outcome(&self) -> Option<Result<T, Disconnected>> {
        match self.seat.fate() {
            Fate::Passed => Some(Ok(self.take_slot().expect("it was put there"))),
            Fate::Closed => Some(Err(Disconnected)),
            _ => None,
        }
    }

    /// Receives, or stands in line for `me`; `None` for who will not wait.
    /// `matching`: it may wait for a select that will send, or is a task's.
    #[inline]
    fn receive(
        &self,
        me: Option<(&Waiter, u32)>,
        matching: bool,
    ) -> Enlisted<Result<T, Disconnected>> {
        self.seat.set_slot(self.slot.get());
        let waiter = me.map(|(waiter, _)| waiter);
        let select = waiter.filter(|waiter| !waiter.is_single());
        let is_task = waiter.is_some_and(Waiter::is_task);
        loop {
            let mut wakes = Wakes::new();
            let mut state = self.chan.lock();
            if select.is_some() && !state.can_recv(select) {
                // As below; the waiter must not be taken.
            } else {
                if let Some(select) = select {
                    if !select.take_oneself(me.map_or(0, |(_, place)| place)) {
                        return Enlisted::Lost;
                    }
                }
                match state.take(matching, select, &mut wakes) {
                    Found::Message(message) => {
                        drop(state);
                        wakes.fire_for(select);
                        if me.is_some() && !is_task {
                            // A loop of receives that need not wait lets others
                            // run, too.
                            safepoint();
                        }
                        return Enlisted::Done(Ok(message));
                    }
                    Found::Closed => return Enlisted::Done(Err(Disconnected)),
                    Found::Match(number) if is_task => {
                        let (waiter, place) = me.expect("a task waits");
                        self.seat.node().belongs_to(waiter, place);
                        // SAFETY: the caller of `enlist` promised it.
                        unsafe { state.reserve(&self.seat, number) };
                        drop(state);
                        wakes.fire();
                        return Enlisted::Linked;
                    }
                    Found::Match(number) => {
                        let (chan, at) = (self.chan, self.at);
                        chan.await_match(state, wakes, &self.seat, number, at);
                        match self.outcome() {
                            Some(outcome) => return Enlisted::Done(outcome),
                            // The select's message was never made.
                            None if select.is_some() => return Enlisted::Again,
                            None => continue,
                        }
                    }
                    Found::Nothing if select.is_some() => return Enlisted::Again,
                    Found::Nothing => {}
                }
            }
            let Some((waiter, place)) = me else {
                return Enlisted::Again;
            };
            self.seat.node().belongs_to(waiter, place);
            // SAFETY: the caller of `enlist` promised it.
            unsafe { state.link_receiver(&self.seat, &mut wakes) };
            drop(state);
            wakes.fire();
            return Enlisted::Linked;
        }
    }
}

// SAFETY: the one seat is linked only into lines of the channel, whose lock all
// claimants hold, and `delist` takes.
unsafe impl<T> Operation for Receiving<'_, T> {
    type Output = Result<T, Disconnected>;

    #[inline]
    fn attempt(&self) -> Option<Self::Output> {
        if !self.chan.may_be_ready(true) {
            return None;
        }
        if let Some(message) = self.chan.take_buffered() {
            return Some(Ok(message));
        }
        match self.receive(None, switch::may_wait()) {
            Enlisted::Done(outcome) => Some(outcome),
            _ => None,
        }
    }

    fn attempt_in_task(&self) -> Option<Self::Output> {
        if !self.chan.may_be_ready(true) {
            return None;
        }
        match self.receive(None, false) {
            Enlisted::Done(outcome) => Some(outcome),
            _ => None,
        }
    }

    #[inline]
    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<Self::Output> {
        self.receive(Some((waiter, place)), true)
    }

    fn delist(&self) -> bool {
        self.chan.lock().unlink_receiver(&self.seat)
    }

    fn accept(&self) -> Option<Self::Output> {
        self.outcome()
    }

    fn accept_in_task(&self) -> Option<Self::Output> {
        {
            let mut state = self.chan.lock();
            if self.seat.fate() == Fate::Passed {
                let own = state.claim_own(&self.seat);
                debug_assert!(own, "who takes it away says so");
            }
        }
        self.outcome() // none if another receiver has got it
    }

    fn pass_on(&self) {
        self.chan.change(|state, wakes| {
            if self.seat.fate() == Fate::Passed && state.claim_own(&self.seat) {
                let message = self.take_slot().expect("it was put there");
                state.put_back(message, wakes);
            }
        });
    }
}

/// One send.
#[repr(C)]
pub(crate) struct Sending<'a, T> {
    seat: Seat<T>,
    /// As in [`Receiving`].
    slot: UnsafeCell<Option<T>>,
    chan: &'a Chan<T>,
}

// SAFETY: as for `Receiving`.
unsafe impl<T: Send> Send for Sending<'_, T> {}

impl<'a, T> Sending<'a, T> {
    #[inline]
    pub(crate) fn new(chan: &'a Chan<T>, message: T) -> Self {
        Self {
            seat: Seat::new(),
            slot: UnsafeCell::new(Some(message)),
            chan,
        }
    }

    /// The message, after a wait that has ended without sending it.
    #[inline]
    pub(super) fn unsent(&self) -> T {
        // SAFETY: the seat is in no line: the slot is ours.
        unsafe { (*self.slot.get()).take() }.expect("it was not sent")
    }

    #[inline]
    fn give_back(&self, message: T) {
        // SAFETY: the seat is in no line: the slot is ours.
        unsafe { *self.slot.get() = Some(message) };
    }
}

// SAFETY: as for `Receiving`.
unsafe impl<T> Operation for Sending<'_, T> {
    /// The message comes back if nobody can receive it any more.
    type Output = Result<(), T>;

    fn attempt(&self) -> Option<Self::Output> {
        match self.chan.try_send(self.unsent()) {
            Ok(()) => Some(Ok(())),
            Err(TrySendError::Disconnected(message)) => Some(Err(message)),
            Err(TrySendError::Full(message)) => {
                self.give_back(message);
                None
            }
        }
    }

    #[inline]
    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<Self::Output> {
        debug_assert!(waiter.is_single());
        let mut wakes = Wakes::new();
        let mut state = self.chan.lock();
        let closed = state.closed;
        match state.try_send(self.unsent(), &mut wakes) {
            Ok(()) => {
                drop(state);
                wakes.fire();
                return Enlisted::Done(Ok(()));
            }
            Err(message) if closed => return Enlisted::Done(Err(message)),
            Err(message) => self.give_back(message),
        }
        self.seat.set_slot(self.slot.get());
        self.seat.node().belongs_to(waiter, place);
        // SAFETY: the caller's promise.
        unsafe { state.link_sender(&self.seat, &mut wakes) };
        drop(state);
        wakes.fire();
        Enlisted::Linked
    }

    fn delist(&self) -> bool {
        self.chan.lock().unlink_sender(&self.seat)
    }

    fn accept(&self) -> Option<Self::Output> {
        match self.seat.fate() {
            Fate::Passed => Some(Ok(())),
            Fate::Closed => Some(Err(self.unsent())),
            _ => unreachable!("a sender with its message is not matched"),
        }
    }

    fn pass_on(&self) {} // it was sent; or it is dropped with us, unsent
}
