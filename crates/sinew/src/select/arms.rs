//! The arms of `select!`, each with what it yields.
//!
//! A chosen arm hands its result out once all arms have left their lines and are
//! gone, so that the body may do with channels and handles what it likes. The
//! arm of a send yields a permit: the message is evaluated after that.

use crate::channel::{Receiver, RecvError, SendError, Sender};
use crate::channel::{RecvChoice, SendChoice};
use crate::error::{Cancelled, JoinError};
use crate::fiber::Block;
use crate::task::{JoinHandle, LocalJoinHandle};
use crate::wait::end::EndWait;
use crate::wait::select::{ArmRef, OperationArm};
use std::fmt;

/// The arm `recv(receiver)`.
pub struct RecvArm<'a, T>(RecvChoice<'a, T>);

/// Makes the arm `recv(receiver)`.
#[track_caller]
pub fn recv<T>(receiver: &Receiver<T>) -> RecvArm<'_, T> {
    RecvArm(RecvChoice::new(receiver, std::panic::Location::caller()))
}

impl<T> RecvArm<'_, T> {
    /// For the select, which has the arm for itself.
    pub fn as_arm(&mut self) -> ArmRef<'_> {
        ArmRef::new(&self.0)
    }

    /// What was received.
    ///
    /// # Errors
    ///
    /// [`RecvError`] as from `recv`.
    pub fn take(self) -> Result<T, RecvError> {
        self.0.take()
    }
}

/// The arm `send(sender, …)`.
pub struct SendArm<'a, T>(SendChoice<'a, T>);

/// Makes the arm `send(sender, …)`.
pub fn send<T>(sender: &Sender<T>) -> SendArm<'_, T> {
    SendArm(SendChoice::new(sender))
}

/// The right to send one message.
#[must_use = "a chosen send must be completed"]
pub struct Permit<'a, T>(crate::channel::SendRight<'a, T>);

impl<'a, T> SendArm<'a, T> {
    /// For the select, which has the arm for itself.
    pub fn as_arm(&mut self) -> ArmRef<'_> {
        ArmRef::new(&self.0)
    }

    /// The right to send.
    pub fn take(self) -> Permit<'a, T> {
        Permit(self.0.take())
    }
}

impl<T> Permit<'_, T> {
    /// Sends.
    ///
    /// # Errors
    ///
    /// [`SendError`] as from `send`.
    #[track_caller]
    pub fn send(self, message: T) -> Result<(), SendError<T>> {
        self.0.send(message, std::panic::Location::caller())
    }
}

/// A handle that the arm `join(handle)` takes.
#[diagnostic::on_unimplemented(
    message = "`join(handle)` of a select cannot join `{Self}`",
    label = "not a join handle",
    note = "it takes a `JoinHandle`, `LocalJoinHandle` or `ScopedJoinHandle` that can be borrowed, without `&` or `&mut` before it; for a fiber without its result there is `wait(&fiber)`"
)]
pub trait Joinable: sealed::Sealed {
    /// What the fiber returns.
    type Output;

    /// Makes the arm.
    fn arm(&self) -> JoinArm<'_>;

    /// The result of the fiber, which has ended.
    ///
    /// # Errors
    ///
    /// [`JoinError`] as from `join`.
    ///
    /// # Panics
    ///
    /// If the handle is spent: its result was taken before.
    #[track_caller]
    fn joined(&mut self) -> Result<Self::Output, JoinError>;

    /// Asks the fiber to stop.
    fn cancel(&self);
}

pub(crate) mod sealed {
    pub trait Sealed {}
    impl<T> Sealed for super::JoinHandle<T> {}
    impl<T> Sealed for super::LocalJoinHandle<T> {}
}

impl<T> Joinable for JoinHandle<T> {
    type Output = T;

    fn arm(&self) -> JoinArm<'_> {
        JoinArm::new(self.block())
    }

    #[track_caller]
    fn joined(&mut self) -> Result<T, JoinError> {
        self.take_ended()
    }

    fn cancel(&self) {
        self.cancel();
    }
}

impl<T> Joinable for LocalJoinHandle<T> {
    type Output = T;

    fn arm(&self) -> JoinArm<'_> {
        JoinArm::new(self.block())
    }

    #[track_caller]
    fn joined(&mut self) -> Result<T, JoinError> {
        self.take_ended()
    }

    fn cancel(&self) {
        self.cancel();
    }
}

/// The arm `join(handle)`; no cancellation point.
pub struct JoinArm<'a>(OperationArm<EndWait<'a>>);

impl<'a> JoinArm<'a> {
    pub(crate) fn new(fiber: &'a Block) -> Self {
        Self(OperationArm::no_point(EndWait::new(fiber)))
    }
}

/// Makes the arm `join(handle)`.
pub fn join<H: Joinable>(handle: &H) -> JoinArm<'_> {
    handle.arm()
}

/// The result of the handle whose arm was chosen.
///
/// # Errors
///
/// [`JoinError`] as from `join`.
///
/// # Panics
///
/// If the handle is spent: its result was taken before.
#[track_caller]
pub fn joined<H: Joinable>(handle: &mut H) -> Result<H::Output, JoinError> {
    handle.joined()
}

/// Asks the fiber of a losing handle to stop.
pub fn cancel<H: Joinable>(handle: &H) {
    handle.cancel();
}

impl JoinArm<'_> {
    /// For the select, which has the arm for itself.
    pub fn as_arm(&mut self) -> ArmRef<'_> {
        ArmRef::new(&self.0)
    }

    /// The fiber has ended: [`joined`] has its result.
    pub fn take(self) {}
}

/// The arm `wait(x)`.
pub trait WaitArm {
    /// What the wait yields.
    type Output;

    /// For the select, which has the arm for itself.
    fn as_arm(&mut self) -> ArmRef<'_>;

    /// What the wait yielded.
    ///
    /// # Errors
    ///
    /// [`Cancelled`] if the fiber was cancelled.
    fn take(self) -> Result<Self::Output, Cancelled>;
}

macro_rules! debug_as {
    ($($name:ident<$($parameter:tt),*>),*) => {
        $(impl<$($parameter),*> fmt::Debug for $name<$($parameter),*> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        })*
    };
}

debug_as!(RecvArm<'a, T>, SendArm<'a, T>, Permit<'a, T>, JoinArm<'a>);
