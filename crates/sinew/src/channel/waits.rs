//! A plain send, and a plain receive, that may have to wait.
//!
//! Each is an [`Operation`] of `wait`, with a seat and a parcel for the message;
//! what it does under the channel's lock is in `channel::state`.

use super::chan::Refused;
use super::chan::{At, Chan, Disconnected};
use super::parcel::Parcel;
use super::seat::{Fate, Seat};
use super::state::Found;
use crate::sched::switch;
use crate::task::safepoint;
use crate::wait::node::{Place, Wakes};
use crate::wait::{Enlisted, Operation, Waiter};

/// One receive.
#[repr(C)]
pub(crate) struct Receiving<'a, T> {
    seat: Seat<T>,
    /// Where the message goes (`channel::parcel`); it outlives the operation.
    to: *const Parcel<T>,
    chan: &'a Chan<T>,
    at: At,
}

// SAFETY: what it shares with other threads is shared as `wait::node` has it;
// the message itself must be `Send`.
unsafe impl<T: Send> Send for Receiving<'_, T> {}

impl<'a, T> Receiving<'a, T> {
    /// A receive into `to`, which is empty.
    ///
    /// # Safety
    ///
    /// `to` stays where it is for as long as the operation is used, and is not
    /// touched while that stands in line.
    #[inline]
    pub(crate) unsafe fn new(chan: &'a Chan<T>, to: *const Parcel<T>, at: At) -> Self {
        Self {
            seat: Seat::new(),
            to,
            chan,
            at,
        }
    }

    #[inline]
    fn to(&self) -> &Parcel<T> {
        // SAFETY: the promise of `new`. Used only while the seat is in no line:
        // then the parcel is ours.
        unsafe { &*self.to }
    }

    /// What became of a wait that has ended; none to stand in line again.
    fn outcome(&self) -> Option<Result<(), Disconnected>> {
        match self.seat.fate() {
            Fate::Passed => Some(Ok(())),
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
    ) -> Enlisted<Result<(), Disconnected>> {
        self.seat.set_slot(self.to);
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
                // SAFETY: the parcel is empty, and the seat in no line: ours.
                match unsafe { state.take(Some(self.to()), matching, select, &mut wakes) } {
                    Found::Message => {
                        drop(state);
                        wakes.fire_for(select);
                        if me.is_some() && !is_task {
                            // A loop of receives that need not wait lets others
                            // run, too.
                            safepoint();
                        }
                        return Enlisted::Done(Ok(()));
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
    /// The message is in the parcel.
    type Output = Result<(), Disconnected>;

    #[inline]
    fn attempt(&self) -> Option<Self::Output> {
        if !self.chan.may_be_ready(true) {
            return None;
        }
        if self.chan.take_into(self.to()) {
            return Some(Ok(()));
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
                // SAFETY: it was put there, and is in reach of nobody else now.
                unsafe { state.put_back(self.to(), wakes) };
            }
        });
    }
}

/// One send.
#[repr(C)]
pub(crate) struct Sending<'a, T> {
    seat: Seat<T>,
    /// Where the message is (`channel::parcel`); it outlives the operation.
    from: *const Parcel<T>,
    chan: &'a Chan<T>,
}

// SAFETY: as for `Receiving`.
unsafe impl<T: Send> Send for Sending<'_, T> {}

impl<'a, T> Sending<'a, T> {
    /// A send of the message in `from`, which is full. If it is not sent it is
    /// there afterwards.
    ///
    /// # Safety
    ///
    /// As for [`Receiving::new`].
    #[inline]
    pub(crate) unsafe fn new(chan: &'a Chan<T>, from: *const Parcel<T>) -> Self {
        Self {
            seat: Seat::new(),
            from,
            chan,
        }
    }

    #[inline]
    fn from(&self) -> &Parcel<T> {
        // SAFETY: as for `Receiving::to`.
        unsafe { &*self.from }
    }
}

// SAFETY: as for `Receiving`.
unsafe impl<T> Operation for Sending<'_, T> {
    /// The message is still in the parcel if nobody can receive it any more.
    type Output = Result<(), Disconnected>;

    fn attempt(&self) -> Option<Self::Output> {
        match self.chan.try_send(self.from()) {
            Ok(()) => Some(Ok(())),
            Err(Refused::Disconnected) => Some(Err(Disconnected)),
            Err(Refused::Full) => None,
        }
    }

    #[inline]
    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<Self::Output> {
        debug_assert!(waiter.is_single());
        let mut wakes = Wakes::new();
        let mut state = self.chan.lock();
        // SAFETY: not sent yet, so it is full; the seat is in no line: ours.
        if unsafe { state.try_send(self.from(), &mut wakes) } {
            drop(state);
            wakes.fire();
            return Enlisted::Done(Ok(()));
        }
        if state.closed {
            return Enlisted::Done(Err(Disconnected));
        }
        self.seat.set_slot(self.from);
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
            Fate::Closed => Some(Err(Disconnected)),
            _ => unreachable!("a sender with its message is not matched"),
        }
    }

    fn pass_on(&self) {} // it was sent; or it is dropped with the parcel, unsent
}
