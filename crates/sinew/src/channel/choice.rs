//! A receive, or a send, as an arm of `select!`.

use super::chan::{At, Disconnected};
use super::error::{RecvError, SendError, SendTimeoutError};
use super::promise::{SendPermit, SendPromise};
use super::receiver::{Flavor, Receiver};
use super::sender::Sender;
use super::timers::Timer;
use super::waits::Receiving;
use crate::error::Cancelled;
use crate::time::Instant;
use crate::wait::select::{Arm, OperationArm};
use crate::wait::{Deadline, Enlisted, Waiter};
use std::cell::Cell;

/// A receive as an arm.
// The arm of a channel is the rule; boxing it would be an allocation for each.
#[allow(clippy::large_enum_variant)]
pub(crate) enum RecvChoice<'a, T> {
    Chan(OperationArm<Receiving<'a, T>>),
    Timer {
        timer: &'a Timer,
        make: fn(Instant) -> T,
        output: Cell<Option<Result<Instant, Cancelled>>>,
    },
    Never,
}

impl<'a, T> RecvChoice<'a, T> {
    pub(crate) fn new(receiver: &'a Receiver<T>, at: At) -> Self {
        match &receiver.flavor {
            Flavor::Chan(chan) => Self::Chan(OperationArm::point(Receiving::new(chan, at))),
            Flavor::Timer(timer, make) => Self::Timer {
                timer,
                make: *make,
                output: Cell::new(None),
            },
            Flavor::Never => Self::Never,
        }
    }

    /// What the arm yielded; it was chosen.
    pub(crate) fn take(self) -> Result<T, RecvError> {
        match self {
            Self::Chan(arm) => match arm.take()? {
                Ok(message) => Ok(message),
                Err(Disconnected) => Err(RecvError::Disconnected),
            },
            Self::Timer { make, output, .. } => {
                Ok(make(output.take().expect("the arm was chosen")?))
            }
            // It can be chosen in no other way.
            Self::Never => Err(RecvError::Cancelled),
        }
    }
}

// SAFETY: that of a channel does what its operation does; the others link
// nothing.
unsafe impl<T> Arm for RecvChoice<'_, T> {
    fn attempt(&self) -> bool {
        match self {
            Self::Chan(arm) => arm.attempt(),
            Self::Timer { timer, output, .. } => {
                let moment = timer.try_take();
                output.set(moment.map(Ok));
                moment.is_some()
            }
            Self::Never => false,
        }
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<()> {
        match self {
            // SAFETY: the caller's promise.
            Self::Chan(arm) => unsafe { arm.enlist(waiter, place) },
            _ => Enlisted::Linked, // in no line: time will tell
        }
    }

    fn delist(&self) {
        if let Self::Chan(arm) = self {
            arm.delist();
        }
    }

    fn accept(&self) -> bool {
        match self {
            Self::Chan(arm) => arm.accept(),
            _ => unreachable!("nobody wakes who waits for time"),
        }
    }

    fn refuse(&self) {
        match self {
            Self::Chan(arm) => arm.refuse(),
            Self::Timer { output, .. } => output.set(Some(Err(Cancelled))),
            Self::Never => {}
        }
    }

    fn deadline(&self) -> Option<Deadline> {
        match self {
            Self::Timer { timer, .. } => timer.due(),
            _ => None,
        }
    }
}

/// A send as an arm.
pub(crate) struct SendChoice<'a, T>(OperationArm<SendPromise<'a, T>>);

/// What such an arm yields: the right to send one message.
pub(crate) struct SendRight<'a, T>(Result<SendPermit<'a, T>, Cancelled>);

impl<'a, T> SendChoice<'a, T> {
    pub(crate) fn new(sender: &'a Sender<T>) -> Self {
        Self(OperationArm::point(SendPromise::new(sender.chan())))
    }

    /// What the arm yielded; it was chosen.
    pub(crate) fn take(self) -> SendRight<'a, T> {
        SendRight(self.0.take())
    }
}

impl<T> SendRight<'_, T> {
    pub(crate) fn send(self, message: T, at: At) -> Result<(), SendError<T>> {
        match self.0 {
            Ok(permit) => permit
                .send(message, at)
                .map_err(SendTimeoutError::without_time),
            Err(Cancelled) => Err(SendError::Cancelled(message)),
        }
    }
}

// SAFETY: does what its operation does.
unsafe impl<T> Arm for SendChoice<'_, T> {
    fn attempt(&self) -> bool {
        self.0.attempt()
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<()> {
        // SAFETY: the caller's promise.
        unsafe { self.0.enlist(waiter, place) }
    }

    fn delist(&self) {
        self.0.delist();
    }

    fn accept(&self) -> bool {
        self.0.accept()
    }

    fn refuse(&self) {
        self.0.refuse();
    }
}
