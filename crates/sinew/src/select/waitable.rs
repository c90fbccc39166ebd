//! What the arm `wait(x)` can wait for.

use super::arms::WaitArm;
use crate::cancel::{CancelToken, CancelledWait, TokenArm};
use crate::error::Cancelled;
use crate::sync::{Broken, Event, FairMutexGuard, Future, Notify, SequencerToken, Ticket};
use crate::sync::{EventWait, FutureWait, NotifyWait, SequencerWait, TicketWait};
use crate::task::Fiber;
use crate::wait::end::EndWait;
use crate::wait::select::{ArmRef, OperationArm};
use std::fmt;
use std::sync::Arc;

/// Something that an arm `wait(x)` of [`select!`](crate::select!) waits for.
///
/// | `x`                                                  | the arm yields            |
/// |------------------------------------------------------|---------------------------|
/// | `&`[`Event`]                                         | `()` once it is set       |
/// | `&`[`Notify`]                                        | `()`, and takes the permit |
/// | [`sequencer.token(n)`](crate::sync::Sequencer::token) | `()` once `n` is reached  |
/// | `&mut` [`Future`]                                    | its value, or [`Broken`]  |
/// | `&mut` [`Ticket`]                                    | the lock                  |
/// | `&`[`Fiber`]                                         | `()` once it has ended    |
/// | `&`[`CancelToken`], [`token.cancelled()`](CancelToken::cancelled) | `()` once it is cancelled |
/// | `&mut` [`Signal`](crate::signal::Signal)             | `()`, and has received it |
/// | `&Arc` of any of those by reference                  | the same                  |
///
/// An arm that is not chosen has no effect: the permit stays, the ticket keeps
/// its turn, the value its place.
///
/// ```
/// use sinew::sync::Event;
///
/// let (ready, never) = (Event::new(), Event::new());
/// ready.set();
/// let which = sinew::select! {
///     wait(&ready) -> outcome => outcome.map(|()| "ready"),
///     wait(&never) -> outcome => outcome.map(|()| "never"),
/// };
/// assert_eq!(which, Ok("ready"));
/// ```
///
/// Nothing else is: the receivers of [`oneshot`](crate::channel::oneshot),
/// [`broadcast`](crate::channel::broadcast) and [`watch`](crate::channel::watch) are
/// not; the [guide](crate::guide#select-and-race) says what to do instead.
#[diagnostic::on_unimplemented(
    message = "`wait(x)` of a select cannot wait for `{Self}`",
    label = "not something that can be waited for",
    note = "it takes `&Event`, `&Notify`, `&Fiber`, `&CancelToken`, an `&Arc` of one of these, `sequencer.token(n)`, `&mut sync::Future`, `&mut Ticket` and `&mut Signal`",
    note = "a receiver goes into `recv(receiver)`, a join handle into `join(handle)`; receivers of `oneshot`, `broadcast` and `watch` are no arms: `sync::promise` or a channel can take their place"
)]
pub trait Waitable: sealed::Sealed {
    /// What the wait yields.
    type Output;
    #[doc(hidden)]
    type Arm: WaitArm<Output = Self::Output>;
    #[doc(hidden)]
    #[track_caller]
    fn into_arm(self) -> Self::Arm;
}

pub(crate) mod sealed {
    use super::{
        Arc, CancelToken, CancelledWait, Event, Fiber, Future, Notify, SequencerToken, Ticket,
    };
    pub trait Sealed {}
    impl Sealed for &Event {}
    impl Sealed for &Notify {}
    impl Sealed for SequencerToken<'_> {}
    impl<T> Sealed for &mut Future<T> {}
    impl<T: ?Sized> Sealed for &mut Ticket<'_, T> {}
    impl Sealed for &Fiber {}
    impl Sealed for &CancelToken {}
    impl Sealed for CancelledWait<'_> {}
    impl<'a, W: ?Sized> Sealed for &'a Arc<W> where &'a W: Sealed {}
}

/// Makes the arm `wait(x)`.
///
/// # Panics
///
/// If `x` is a ticket that is spent, or a fiber that stands for a plain thread.
#[track_caller]
pub fn wait<W: Waitable>(x: W) -> W::Arm {
    x.into_arm()
}

/// An arm around an operation, under a public name.
macro_rules! arm {
    ($name:ident[$($parameter:tt)*]($($argument:tt)*): $operation:ty => $output:ty) => {
        #[doc(hidden)]
        pub struct $name<$($parameter)*>(OperationArm<$operation>);

        impl<$($parameter)*> WaitArm for $name<$($argument)*> {
            type Output = $output;

            fn as_arm(&mut self) -> ArmRef<'_> {
                ArmRef::new(&self.0)
            }

            fn take(self) -> Result<$output, Cancelled> {
                self.0.take()
            }
        }

        impl<$($parameter)*> fmt::Debug for $name<$($argument)*> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    };
}

arm!(EventArm['a]('a): EventWait<'a> => ());
arm!(NotifyArm['a]('a): NotifyWait<'a> => ());
arm!(SequencerArm['a]('a): SequencerWait<'a> => ());
arm!(FutureArm['a, T]('a, T): FutureWait<'a, T> => Result<T, Broken>);
arm!(TicketArm['a, 'm, T: ?Sized]('a, 'm, T):
    TicketWait<'m, T, &'a mut Ticket<'m, T>> => FairMutexGuard<'m, T>);
arm!(FiberArm['a]('a): EndWait<'a> => ());

impl<'a> Waitable for &'a Event {
    type Output = ();
    type Arm = EventArm<'a>;

    fn into_arm(self) -> EventArm<'a> {
        EventArm(OperationArm::point(self.operation()))
    }
}

impl<'a> Waitable for &'a Notify {
    type Output = ();
    type Arm = NotifyArm<'a>;

    fn into_arm(self) -> NotifyArm<'a> {
        NotifyArm(OperationArm::point(self.operation()))
    }
}

impl<'a> Waitable for SequencerToken<'a> {
    type Output = ();
    type Arm = SequencerArm<'a>;

    fn into_arm(self) -> SequencerArm<'a> {
        SequencerArm(OperationArm::point(self.operation()))
    }
}

impl<'a, T> Waitable for &'a mut Future<T> {
    type Output = Result<T, Broken>;
    type Arm = FutureArm<'a, T>;

    fn into_arm(self) -> FutureArm<'a, T> {
        FutureArm(OperationArm::point(self.operation()))
    }
}

impl<'a, 'm, T: ?Sized> Waitable for &'a mut Ticket<'m, T> {
    type Output = FairMutexGuard<'m, T>;
    type Arm = TicketArm<'a, 'm, T>;

    /// # Panics
    ///
    /// If it is spent.
    #[track_caller]
    fn into_arm(self) -> TicketArm<'a, 'm, T> {
        TicketArm(OperationArm::point(self.operation()))
    }
}

impl<'a> Waitable for &'a Fiber {
    type Output = ();
    type Arm = FiberArm<'a>;

    /// # Panics
    ///
    /// If it stands for a plain thread, whose end cannot be awaited.
    #[track_caller]
    fn into_arm(self) -> FiberArm<'a> {
        FiberArm(OperationArm::point(EndWait::new(self.block_to_await())))
    }
}

/// An arm that waits for a token.
#[doc(hidden)]
pub struct CancelTokenArm<'a>(TokenArm<'a>);

impl WaitArm for CancelTokenArm<'_> {
    type Output = ();

    fn as_arm(&mut self) -> ArmRef<'_> {
        self.0.as_arm()
    }

    fn take(self) -> Result<(), Cancelled> {
        self.0.take()
    }
}

impl fmt::Debug for CancelTokenArm<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CancelTokenArm")
    }
}

impl<'a> Waitable for &'a CancelToken {
    type Output = ();
    type Arm = CancelTokenArm<'a>;

    fn into_arm(self) -> CancelTokenArm<'a> {
        CancelTokenArm(TokenArm::new(self))
    }
}

impl<'a> Waitable for CancelledWait<'a> {
    type Output = ();
    type Arm = CancelTokenArm<'a>;

    fn into_arm(self) -> CancelTokenArm<'a> {
        CancelTokenArm(TokenArm::new(self.token()))
    }
}

impl<'a, W: ?Sized> Waitable for &'a Arc<W>
where
    &'a W: Waitable,
{
    type Output = <&'a W as Waitable>::Output;
    type Arm = <&'a W as Waitable>::Arm;

    #[track_caller]
    fn into_arm(self) -> Self::Arm {
        (**self).into_arm()
    }
}
