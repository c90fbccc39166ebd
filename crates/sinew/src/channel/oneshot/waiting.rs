//! Waiting for the message of a oneshot channel: as one who stands in line, and as a
//! task that polls the receiver itself.
//!
//! What always holds is in the header of `channel::oneshot`.

use super::{Disconnected, Receiver, RecvError, Shared};
use crate::wait::node::Node;
use crate::wait::{Enlisted, Operation, Waiter};
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// One wait for the message.
pub(super) struct Receiving<'a, T> {
    node: Node,
    shared: &'a Shared<T>,
}

impl<'a, T> Receiving<'a, T> {
    /// For the receiver only.
    pub(super) fn new(shared: &'a Shared<T>) -> Self {
        Self {
            node: Node::new(),
            shared,
        }
    }
}

// SAFETY: it is the receiver, borrowed, which may be shared if `T` is `Send`; the
// node may go to any thread.
unsafe impl<T: Send> Send for Receiving<'_, T> {}

// SAFETY: the one node is linked only into the line, whose lock all claimants hold,
// and `delist` takes.
unsafe impl<T> Operation for Receiving<'_, T> {
    type Output = Result<T, Disconnected>;

    fn attempt(&self) -> Option<Self::Output> {
        self.shared.take()
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<Self::Output> {
        debug_assert!(waiter.is_single());
        let mut line = self.shared.line.lock();
        if !self.shared.listen() {
            drop(line);
            return Enlisted::Done(self.shared.take().unwrap_or(Err(Disconnected)));
        }
        self.node.belongs_to(waiter, place);
        // SAFETY: the caller's promise.
        unsafe { line.waiting.push_back(&self.node) };
        Enlisted::Linked
    }

    fn delist(&self) -> bool {
        // SAFETY: linked only by `enlist`, into this list.
        unsafe { self.shared.line.lock().waiting.remove(&self.node) }
    }

    fn accept(&self) -> Option<Self::Output> {
        self.shared.take()
    }

    fn pass_on(&self) {} // the message is where it was; all were woken
}

/// Receives in async code, under any executor.
///
/// Polled again after it gave the message it says
/// [`Disconnected`](RecvError::Disconnected).
///
/// ```
/// let (tx, rx) = sinew::channel::oneshot::channel();
/// tx.send(1).unwrap();
/// assert_eq!(sinew::block_on(rx), Ok(1));
/// ```
impl<T> Future for Receiver<T> {
    type Output = Result<T, RecvError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let shared = self.shared();
        let disconnected = |Disconnected| RecvError::Disconnected;
        if let Some(outcome) = shared.take() {
            return Poll::Ready(outcome.map_err(disconnected));
        }
        let is_ours = |task: &Waker| task.will_wake(context.waker());
        if shared.line.lock().task.as_ref().is_some_and(is_ours) {
            return Poll::Pending; // there until it is taken to be woken
        }
        let mut task = Some(context.waker().clone());
        let mut line = shared.line.lock();
        let listens = shared.listen();
        if listens {
            mem::swap(&mut line.task, &mut task);
        }
        drop(line);
        drop(task);
        if listens {
            return Poll::Pending;
        }
        let outcome = shared.take().unwrap_or(Err(Disconnected));
        Poll::Ready(outcome.map_err(disconnected))
    }
}
