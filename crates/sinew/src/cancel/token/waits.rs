//! Waiting for a token: as a future, and as an arm of a select.

use super::CancelToken;
use crate::error::Cancelled;
use crate::sync::EventWait;
use crate::task::AsyncSleep;
use crate::wait::select::{Arm, ArmRef, OperationArm};
use crate::wait::{Deadline, Enlisted, Pending, Waiter};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A wait until a token is cancelled; see [`CancelToken::cancelled`].
#[must_use = "futures do nothing unless polled"]
pub struct CancelledWait<'a> {
    token: &'a CancelToken,
    /// Pinned with this.
    pending: Pending<EventWait<'a>>,
    /// Wakes the task at the deadline, for the executor knows no time of ours.
    sleeper: Option<AsyncSleep>,
}

impl<'a> CancelledWait<'a> {
    pub(super) fn new(token: &'a CancelToken) -> Self {
        Self {
            token,
            pending: Pending::new(token.core.cancelled.operation()),
            sleeper: None,
        }
    }

    /// The token that is waited for.
    pub(crate) fn token(&self) -> &'a CancelToken {
        self.token
    }
}

impl Future for CancelledWait<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // SAFETY: `pending` is not moved; the rest is not pinned.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: pinned, since `self` is.
        let told = unsafe { Pin::new_unchecked(&mut this.pending) }.poll(context);
        let Some(deadline) = this.token.core.deadline.filter(|_| told.is_pending()) else {
            return told;
        };
        while !this.token.is_cancelled() {
            let sleeper = this
                .sleeper
                .get_or_insert_with(|| AsyncSleep::until(deadline));
            if Pin::new(sleeper).poll(context).is_pending() {
                return Poll::Pending;
            }
            this.sleeper = None;
        }
        Poll::Ready(())
    }
}

impl fmt::Debug for CancelledWait<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CancelledWait").field(self.token).finish()
    }
}

/// The arm `wait(&token)` of a select.
pub(crate) struct TokenArm<'a> {
    token: &'a CancelToken,
    arm: OperationArm<EventWait<'a>>,
}

impl<'a> TokenArm<'a> {
    pub(crate) fn new(token: &'a CancelToken) -> Self {
        Self {
            token,
            arm: OperationArm::point(token.core.cancelled.operation()),
        }
    }

    pub(crate) fn as_arm(&self) -> ArmRef<'_> {
        ArmRef::new(self)
    }

    pub(crate) fn take(&self) -> Result<(), Cancelled> {
        self.arm.take()
    }
}

// SAFETY: does what the arm of the token's event does.
unsafe impl Arm for TokenArm<'_> {
    fn attempt(&self) -> bool {
        self.token.is_cancelled() && self.arm.attempt()
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

    fn is_spent(&self) -> bool {
        self.arm.is_spent()
    }

    fn refuse(&self) {
        self.arm.refuse();
    }

    fn deadline(&self) -> Option<Deadline> {
        self.token.core.deadline
    }
}
