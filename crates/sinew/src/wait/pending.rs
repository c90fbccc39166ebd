//! A task's wait, as a future.
//!
//! Dropped while it waits it leaves the line; dropped after a waker has ended
//! its wait it passes on what it was given. Nothing is lost either way.

use super::operation::{Enlisted, Operation};
use super::waiter::Waiter;
use std::future::Future;
use std::marker::PhantomPinned;
use std::pin::Pin;
use std::task::{Context, Poll};

/// What an `_async` method returns; does nothing until it is polled.
#[must_use = "futures do nothing unless polled"]
pub(crate) struct Pending<O: Operation> {
    operation: O,
    /// There while the operation stands in line, or did and was woken.
    waiter: Option<Waiter>,
    done: bool,
    /// Woken, and has neither accepted that nor stood in line again.
    woken: bool,
    /// Lists point into it.
    _pin: PhantomPinned,
}

impl<O: Operation> Pending<O> {
    pub(crate) fn new(operation: O) -> Self {
        Self {
            operation,
            waiter: None,
            done: false,
            woken: false,
            _pin: PhantomPinned,
        }
    }
}

impl<O: Operation> Future for Pending<O> {
    type Output = O::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<O::Output> {
        // SAFETY: nothing is moved out of what is pinned: the operation stays,
        // and the waiter is replaced only when it is in no list.
        let this = unsafe { self.get_unchecked_mut() };
        assert!(!this.done, "a future was polled after it had resolved");
        if let Some(waiter) = &this.waiter {
            if !waiter.is_claimed_or_woken_by(context.waker()) {
                return Poll::Pending;
            }
            // The claimant may still be at it: it holds the lock, and this one
            // waits for that.
            this.operation.delist();
            this.woken = true;
            this.waiter = None; // without its waker, which the claimant has
            if let Some(output) = this.operation.accept_in_task() {
                (this.woken, this.done) = (false, true);
                return Poll::Ready(output);
            }
        } else if let Some(output) = this.operation.attempt_in_task() {
            this.done = true;
            return Poll::Ready(output);
        }
        // User code, which may panic: `woken` tells `drop` what is owed.
        let waker = context.waker().clone();
        let waiter = this.waiter.insert(Waiter::for_task(waker));
        this.woken = false;
        // SAFETY: pinned; `drop` delists.
        match unsafe { this.operation.enlist(waiter, 0) } {
            Enlisted::Linked => Poll::Pending,
            Enlisted::Done(output) => {
                waiter.drop_waker();
                this.waiter = None;
                this.done = true;
                Poll::Ready(output)
            }
            Enlisted::Lost | Enlisted::Again => unreachable!("a waiter with one place"),
        }
    }
}

impl<O: Operation> Drop for Pending<O> {
    fn drop(&mut self) {
        if let Some(waiter) = &self.waiter {
            self.operation.delist();
            // After that nobody claims it any more.
            self.woken = waiter.outcome().is_some();
        }
        if self.woken {
            self.operation.pass_on();
        }
    }
}
