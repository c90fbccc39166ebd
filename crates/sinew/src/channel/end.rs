//! One end of a channel, whatever its messages are: what a dynamic select needs
//! of it.

use super::chan::{At, Chan};
use super::promise::{RecvPermit, SendPermit};
use super::receiver::{Flavor, Receiver};
use super::seat::{Fate, Seat};
use super::sender::Sender;
use crate::time::Instant;
use crate::wait::node::Place;
use crate::wait::{Deadline, Enlisted, Waiter};
use std::ptr;

/// What was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chosen {
    /// A promise, or news that the channel is disconnected.
    Channel(Fate),
    /// The message of a timer.
    Moment(Instant),
    /// Nothing: the fiber was cancelled.
    Cancelled,
}

/// A seat for messages of any type.
pub(super) type AnySeat = Seat<()>;

/// Lends a seat of a select to a channel of any type.
fn typed<T>(seat: &AnySeat) -> &Seat<T> {
    // SAFETY: `repr(C)`, and of the type of messages it has only a pointer to
    // one, which is null here and stays so.
    unsafe { &*ptr::from_ref(seat).cast::<Seat<T>>() }
}

/// One end of a channel of any type.
pub(super) trait End {
    /// Chooses the operation if that needs no waiting.
    fn attempt(&self, seat: &AnySeat, at: At) -> Option<Chosen>;
    /// # Safety
    ///
    /// As for `Operation::enlist`.
    unsafe fn enlist(&self, seat: &AnySeat, me: (&Waiter, u32), at: At) -> Enlisted<Chosen>;
    fn delist(&self, seat: &AnySeat);
    /// When it may be ready without being woken.
    fn deadline(&self) -> Option<Deadline>;
    fn is_ready(&self) -> bool;
    /// # Safety
    ///
    /// As for `Operation::enlist`.
    unsafe fn watch(&self, seat: &AnySeat, me: (&Waiter, u32)) -> Enlisted<()>;
    fn unwatch(&self, seat: &AnySeat);
    /// Whether messages wait in it until they are taken.
    fn has_buffer(&self) -> bool;
    /// Whether it is an end of a rendezvous, and somebody seems to be at the other.
    fn meets(&self) -> bool;
    /// What was chosen will not be used.
    fn waive(&self, chosen: Chosen);
    /// An address that tells ends apart.
    fn address(&self) -> *const ();
}

impl<T> End for Sender<T> {
    fn attempt(&self, seat: &AnySeat, _at: At) -> Option<Chosen> {
        match self.chan().promise_send(typed(seat), None) {
            Enlisted::Done(fate) => Some(Chosen::Channel(fate)),
            _ => None,
        }
    }

    unsafe fn enlist(&self, seat: &AnySeat, me: (&Waiter, u32), _at: At) -> Enlisted<Chosen> {
        self.chan()
            .promise_send(typed(seat), Some(me))
            .map(Chosen::Channel)
    }

    fn delist(&self, seat: &AnySeat) {
        self.chan().unlink(typed(seat), false);
    }

    fn deadline(&self) -> Option<Deadline> {
        None
    }

    fn is_ready(&self) -> bool {
        self.chan().is_ready(false)
    }

    unsafe fn watch(&self, seat: &AnySeat, me: (&Waiter, u32)) -> Enlisted<()> {
        // SAFETY: the caller's promise.
        unsafe { self.chan().watch(seat.node(), false, me) }
    }

    fn unwatch(&self, seat: &AnySeat) {
        self.chan().unwatch(seat.node(), false);
    }

    fn has_buffer(&self) -> bool {
        self.chan().has_buffer()
    }

    fn meets(&self) -> bool {
        !self.chan().has_buffer() && self.chan().may_be_ready(false)
    }

    fn waive(&self, chosen: Chosen) {
        if let Chosen::Channel(fate) = chosen {
            drop(SendPermit::new(self.chan(), fate));
        }
    }

    fn address(&self) -> *const () {
        ptr::from_ref(self).cast()
    }
}

impl<T> Receiver<T> {
    fn chan(&self) -> Option<&Chan<T>> {
        match &self.flavor {
            Flavor::Chan(chan) => Some(chan),
            Flavor::Timer(..) | Flavor::Never => None,
        }
    }
}

impl<T> End for Receiver<T> {
    fn attempt(&self, seat: &AnySeat, at: At) -> Option<Chosen> {
        match &self.flavor {
            Flavor::Chan(chan) => match chan.promise_recv(typed(seat), None, at) {
                Enlisted::Done(fate) => Some(Chosen::Channel(fate)),
                _ => None,
            },
            Flavor::Timer(timer, _) => timer.try_take().map(Chosen::Moment),
            Flavor::Never => None,
        }
    }

    unsafe fn enlist(&self, seat: &AnySeat, me: (&Waiter, u32), at: At) -> Enlisted<Chosen> {
        match self.chan() {
            Some(chan) => chan
                .promise_recv(typed(seat), Some(me), at)
                .map(Chosen::Channel),
            None => Enlisted::Linked, // in no line: time will tell
        }
    }

    fn delist(&self, seat: &AnySeat) {
        if let Some(chan) = self.chan() {
            chan.unlink(typed(seat), true);
        }
    }

    fn deadline(&self) -> Option<Deadline> {
        match &self.flavor {
            Flavor::Timer(timer, _) => timer.due(),
            Flavor::Chan(_) | Flavor::Never => None,
        }
    }

    fn is_ready(&self) -> bool {
        match &self.flavor {
            Flavor::Chan(chan) => chan.is_ready(true),
            Flavor::Timer(timer, _) => timer.is_due(),
            Flavor::Never => false,
        }
    }

    unsafe fn watch(&self, seat: &AnySeat, me: (&Waiter, u32)) -> Enlisted<()> {
        match self.chan() {
            // SAFETY: the caller's promise.
            Some(chan) => unsafe { chan.watch(seat.node(), true, me) },
            None => Enlisted::Linked,
        }
    }

    fn unwatch(&self, seat: &AnySeat) {
        if let Some(chan) = self.chan() {
            chan.unwatch(seat.node(), true);
        }
    }

    fn has_buffer(&self) -> bool {
        self.chan().is_some_and(Chan::has_buffer)
    }

    fn meets(&self) -> bool {
        self.chan()
            .is_some_and(|chan| !chan.has_buffer() && chan.may_be_ready(true))
    }

    fn waive(&self, chosen: Chosen) {
        if let (Chosen::Channel(fate), Some(chan)) = (chosen, self.chan()) {
            drop(RecvPermit::new(chan, fate));
        }
    }

    fn address(&self) -> *const () {
        ptr::from_ref(self).cast()
    }
}
