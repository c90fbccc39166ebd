//! A receive, or a send, as an arm of `select!`.

use super::chan::{At, Disconnected};
use super::error::{RecvError, SendError};
use super::parcel::Parcel;
use super::promise::{SendPermit, SendPromise};
use super::receiver::{Flavor, Receiver};
use super::sender::Sender;
use super::waits::Receiving;
use crate::error::Cancelled;
use crate::wait::select::{Arm, OperationArm};
use crate::wait::{Deadline, Enlisted, Operation, Waiter};
use std::cell::{Cell, UnsafeCell};

/// A receive as an arm.
///
/// What it needs to stand in line is made when it does: most selects find
/// something before. (That, and an order of arms without a division, made 160 ns
/// for a message sent to one of eight arms and selected 65.)
pub(crate) struct RecvChoice<'a, T> {
    receiver: &'a Receiver<T>,
    at: At,
    /// How it ended, if it was chosen; the message is in the parcel.
    output: Cell<Option<Result<(), RecvError>>>,
    message: Parcel<T>,
    /// Its place in the line of the channel. Written by `enlist`, when it is in
    /// none; from then on others use what is in it, as `Operation` has it.
    line: UnsafeCell<Option<Receiving<'a, T>>>,
}

impl<'a, T> RecvChoice<'a, T> {
    #[inline]
    pub(crate) fn new(receiver: &'a Receiver<T>, at: At) -> Self {
        Self {
            receiver,
            at,
            output: Cell::new(None),
            message: Parcel::empty(),
            line: UnsafeCell::new(None),
        }
    }

    /// What the arm yielded; it was chosen.
    #[inline]
    pub(crate) fn take(self) -> Result<T, RecvError> {
        match self.output.take().expect("the arm was chosen") {
            Ok(()) => Ok(self.message.take()),
            Err(error) => Err(error),
        }
    }

    fn yields(&self, received: Result<(), Disconnected>) {
        let output = received.map_err(|Disconnected| RecvError::Disconnected);
        self.output.set(Some(output));
    }

    /// Yields what was received, if anything was.
    fn yields_if(&self, received: Option<Result<(), Disconnected>>) -> bool {
        let done = received.is_some();
        if let Some(received) = received {
            self.yields(received);
        }
        done
    }

    /// The place in line, if it has had one.
    fn line(&self) -> Option<&Receiving<'a, T>> {
        // SAFETY: only `enlist` writes it, while nobody has a reference.
        unsafe { (*self.line.get()).as_ref() }
    }
}

// SAFETY: that of a channel does what its operation does; the others link
// nothing.
unsafe impl<T> Arm for RecvChoice<'_, T> {
    fn attempt(&self) -> bool {
        match &self.receiver.flavor {
            Flavor::Chan(chan) => {
                if !chan.may_be_ready(true) {
                    return false;
                }
                if chan.take_into(&self.message) {
                    self.yields(Ok(()));
                    return true;
                }
                // SAFETY: the parcel outlives the operation, and is not touched
                // meanwhile.
                let receiving = unsafe { Receiving::new(chan, &raw const self.message, self.at) };
                self.yields_if(receiving.attempt())
            }
            Flavor::Timer(timer, make) => {
                let moment = timer.try_take();
                if let Some(moment) = moment {
                    // SAFETY: the parcel is ours, and empty: in no line, and the
                    // arm has yielded nothing (`is_spent`).
                    unsafe { self.message.room().write(make(moment)) };
                    self.message.set_full();
                    self.yields(Ok(()));
                }
                moment.is_some()
            }
            Flavor::Never => false,
        }
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<()> {
        let Flavor::Chan(chan) = &self.receiver.flavor else {
            return Enlisted::Linked; // in no line: time will tell
        };
        // SAFETY: it is in no line: it has just been made, or was delisted before
        // the select started over. So nobody else knows of what is in the cell,
        // and no reference of our own is kept. The parcel is part of the arm, which
        // stays where it is until it has left the line (`Operation::enlist`).
        let line = unsafe {
            *self.line.get() = Some(Receiving::new(chan, &raw const self.message, self.at));
            (*self.line.get()).as_ref().expect("it was just put there")
        };
        // SAFETY: the caller's promise; the cell is part of the arm.
        unsafe { line.enlist(waiter, place) }.map(|received| self.yields(received))
    }

    fn delist(&self) {
        if let Some(line) = self.line() {
            line.delist();
        }
    }

    fn accept(&self) -> bool {
        let line = self.line().expect("nobody wakes who waits for time");
        self.yields_if(line.accept())
    }

    fn is_spent(&self) -> bool {
        self.output.get().is_some()
    }

    fn refuse(&self) {
        self.output.set(Some(Err(RecvError::Cancelled)));
    }

    fn may_look(&self) -> bool {
        match &self.receiver.flavor {
            Flavor::Chan(chan) => chan.has_buffer(),
            Flavor::Timer(..) | Flavor::Never => true,
        }
    }

    fn deadline(&self) -> Option<Deadline> {
        match &self.receiver.flavor {
            Flavor::Timer(timer, _) => timer.due(),
            _ => None,
        }
    }
}

/// A send as an arm.
pub(crate) struct SendChoice<'a, T> {
    arm: OperationArm<SendPromise<'a, T>>,
    has_buffer: bool,
}

/// What such an arm yields: the right to send one message.
pub(crate) struct SendRight<'a, T>(Result<SendPermit<'a, T>, Cancelled>);

impl<'a, T> SendChoice<'a, T> {
    pub(crate) fn new(sender: &'a Sender<T>) -> Self {
        Self {
            arm: OperationArm::point(SendPromise::new(sender.chan())),
            has_buffer: sender.chan().has_buffer(),
        }
    }

    /// What the arm yielded; it was chosen.
    pub(crate) fn take(self) -> SendRight<'a, T> {
        SendRight(self.arm.take())
    }
}

impl<T> SendRight<'_, T> {
    pub(crate) fn send(self, message: T, at: At) -> Result<(), SendError<T>> {
        match self.0 {
            Ok(permit) => {
                let parcel = Parcel::new(message);
                match permit.send(&parcel, at) {
                    Ok(()) => Ok(()),
                    Err(unsent) => Err(unsent.hand_back_untimed(&parcel)),
                }
            }
            Err(Cancelled) => Err(SendError::Cancelled(message)),
        }
    }
}

// SAFETY: does what its operation does.
unsafe impl<T> Arm for SendChoice<'_, T> {
    fn attempt(&self) -> bool {
        self.arm.attempt()
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<()> {
        // SAFETY: the caller's promise.
        unsafe { self.arm.enlist(waiter, place) }
    }

    fn delist(&self) {
        self.arm.delist();
    }

    fn accept(&self) -> bool {
        self.arm.accept()
    }

    fn may_look(&self) -> bool {
        self.has_buffer
    }

    fn is_spent(&self) -> bool {
        self.arm.is_spent()
    }

    fn refuse(&self) {
        self.arm.refuse();
    }
}
