//! A value that one side owes the other: the side that waits.
//!
//! The protocol is told in [`promise`](mod@super::promise). A future waits in one of
//! four ways: a fiber or thread stands in the line; so does a select; a task
//! leaves its waker; a callback takes the future's place. All but the callback
//! need the future for themselves (`&mut self`), so that the value is taken once.

use super::error::TimedOut;
use super::promise::{Broken, Listener, Promise, Shared};
use crate::error::{Cancelled, impl_error};
use crate::fiber::WaitReason;
use crate::sched::polling;
use crate::time::Instant;
use crate::wait::node::Node;
use crate::wait::select::{ArmRef, OnCancel, OperationArm, Patience, SelectSpec, Selected, select};
use crate::wait::{Deadline, Enlisted, Operation, WaitOutcome, WaitSpec, Waiter};
use crate::wait::{perform, point};
use std::cell::Cell;
use std::fmt;
use std::io::ErrorKind;
use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::ptr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// How many futures [`Future::wait_any`] waits for without allocating.
const FEW: usize = 8;

/// The side that waits for a value; see [`promise`](super::promise()).
///
/// Waiting is a cancellation point, and takes nothing along if it times out or is
/// cancelled. It is also a [`std::future::Future`], for async code. Once it has
/// given its value it has none to give ([`Broken`]) until it is
/// [reset](Self::reset).
pub struct Future<T> {
    shared: Arc<Shared<T>>,
}

// User code never unwinds through a half-done change of it.
impl<T> UnwindSafe for Future<T> {}
impl<T> RefUnwindSafe for Future<T> {}

impl<T> Future<T> {
    pub(super) fn of(shared: Arc<Shared<T>>) -> Self {
        Self { shared }
    }

    /// Whether the promise was kept or broken: then no wait has to wait.
    pub fn is_set(&self) -> bool {
        self.shared.is_decided()
    }

    /// Takes the value if it is there; none if not yet, or not any more.
    ///
    /// A loop of failing tries is a place where other fibers may run: every 64th in one turn
    /// of a fiber yields.
    ///
    /// ```
    /// let (promise, mut future) = sinew::sync::promise();
    /// assert_eq!(future.try_take(), None);
    /// promise.set(1).unwrap();
    /// assert_eq!(future.try_take(), Some(Ok(1)));
    /// assert_eq!(future.try_take(), None);
    /// ```
    ///
    /// # Errors
    ///
    /// [`Broken`] if the promise was dropped.
    pub fn try_take(&mut self) -> Option<Result<T, Broken>> {
        let outcome = match self.take() {
            Some(Err(Broken)) if self.shared.is_kept() => None,
            outcome => outcome,
        };
        polling::tried(outcome.is_some());
        outcome
    }

    /// What the promise came to, if it was kept or broken.
    fn take(&mut self) -> Option<Result<T, Broken>> {
        // SAFETY: we are the future, and the only one by `&mut self`.
        unsafe { self.shared.take() }
    }

    /// Waits for the value; a cancellation point.
    ///
    /// # Errors
    ///
    /// [`WaitFutureError`] if the promise was dropped, or the fiber was cancelled;
    /// then a value that comes can still be waited for.
    #[track_caller]
    pub fn wait(&mut self) -> Result<T, WaitFutureError> {
        point::check()?;
        self.wait_by(None, Location::caller())
            .map_err(|error| match error {
                WaitFutureTimeoutError::Broken => WaitFutureError::Broken,
                _ => WaitFutureError::Cancelled,
            })
    }

    /// As [`wait`](Self::wait), but for `timeout` at most.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sinew::sync::{WaitFutureTimeoutError, promise};
    ///
    /// let (promise, mut future) = promise::<u32>();
    /// let outcome = future.wait_timeout(Duration::from_millis(1));
    /// assert_eq!(outcome, Err(WaitFutureTimeoutError::Timeout));
    /// promise.set(1).unwrap();
    /// assert_eq!(future.wait_timeout(Duration::ZERO), Ok(1));
    /// ```
    ///
    /// # Errors
    ///
    /// [`WaitFutureTimeoutError`] also if the time was over first.
    #[track_caller]
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<T, WaitFutureTimeoutError> {
        point::check()?;
        self.wait_by(Deadline::after(timeout), Location::caller())
    }

    /// As [`wait`](Self::wait), but until `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`wait_timeout`](Self::wait_timeout).
    #[track_caller]
    pub fn wait_deadline(&mut self, deadline: Instant) -> Result<T, WaitFutureTimeoutError> {
        point::check()?;
        self.wait_by(Some(deadline.deadline()), Location::caller())
    }

    /// Waits until one of `futures` is set, and answers which: the first one, if
    /// several are. A cancellation point; takes no value.
    ///
    /// Up to eight need no allocation.
    ///
    /// ```
    /// use sinew::sync::{Future, promise};
    ///
    /// let (first, mut a) = promise::<&str>();
    /// let (second, mut b) = promise();
    /// second.set("b").unwrap();
    /// assert_eq!(Future::wait_any(&mut [&mut a, &mut b]), Ok(1));
    /// assert_eq!(b.try_take(), Some(Ok("b")));
    /// # drop(first);
    /// ```
    ///
    /// # Errors
    ///
    /// [`Cancelled`] if the fiber was cancelled, before or during the wait.
    ///
    /// # Panics
    ///
    /// If there is no future to wait for.
    #[track_caller]
    pub fn wait_any(futures: &mut [&mut Self]) -> Result<usize, Cancelled> {
        assert!(!futures.is_empty(), "wait_any was called without a future");
        let at = Location::caller();
        let mut arms = futures.iter().map(|future| {
            // One answer for all arms: the select tells the caller.
            OperationArm::no_point(future.readiness())
        });
        if arms.len() > FEW {
            let arms: Vec<_> = arms.collect();
            let arms: Vec<ArmRef<'_>> = arms.iter().map(ArmRef::new).collect();
            return wait_any_of(&arms, at);
        }
        let count = arms.len();
        let arms: [_; FEW] = std::array::from_fn(|_| arms.next());
        let first = arms[0].as_ref().expect("not empty");
        // Behind the last one the first again, only to fill the array.
        let arms = arms
            .each_ref()
            .map(|arm| ArmRef::new(arm.as_ref().unwrap_or(first)));
        wait_any_of(&arms[..count], at)
    }

    /// Makes it the future of a new promise.
    ///
    /// A value that it has is dropped; if the old promise is not decided yet its
    /// `set` gets the value back. Memory is used again where that is possible.
    ///
    /// ```
    /// let (promise, mut future) = sinew::sync::promise();
    /// promise.set(1).unwrap();
    /// assert_eq!(future.wait(), Ok(1));
    /// let promise = future.reset();
    /// assert!(!future.is_set());
    /// promise.set(2).unwrap();
    /// assert_eq!(future.wait(), Ok(2));
    /// ```
    pub fn reset(&mut self) -> Promise<T> {
        // What was is dropped last, for that may run code of the value's; if it
        // panics the new promise counts as broken.
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            let old = mem::replace(shared, Shared::new());
            let promise = Promise::of(self.shared.clone());
            drop(old);
            promise
        } else {
            let old = mem::replace(self, Self::of(Arc::new(Shared::new())));
            let promise = Promise::of(self.shared.clone());
            drop(old);
            promise
        }
    }

    /// Calls `callback` with the outcome: now if it is known, else by whoever
    /// keeps or drops the promise, on its fiber or thread.
    ///
    /// ```
    /// use std::sync::mpsc;
    ///
    /// let (promise, future) = sinew::sync::promise();
    /// let (tx, rx) = mpsc::channel();
    /// future.subscribe(move |outcome| tx.send(outcome).unwrap());
    /// promise.set(1).unwrap();
    /// assert_eq!(rx.recv(), Ok(Ok(1)));
    /// ```
    pub fn subscribe<F>(mut self, callback: F)
    where
        F: FnOnce(Result<T, Broken>) + Send + 'static,
    {
        if let Some(outcome) = self.take() {
            drop(self);
            return callback(outcome);
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: read once, and `this` is never dropped: the callback takes its
        // place.
        let shared = unsafe { ptr::read(&this.shared) };
        let mut other = Some(Listener::Callback(Box::new(callback)));
        {
            let mut line = shared.line.lock();
            if shared.listen() {
                mem::swap(&mut line.listener, &mut other);
            }
        }
        // The waker of a task that does not wait any more; or the callback, if the
        // promise was faster.
        if let Some(Listener::Callback(callback)) = other {
            // SAFETY: it did not get into the line, so the future's place is ours.
            let outcome = unsafe { shared.take() };
            callback(outcome.unwrap_or(Err(Broken)));
        }
    }

    fn wait_by(
        &mut self,
        deadline: Option<Deadline>,
        at: &'static Location<'static>,
    ) -> Result<T, WaitFutureTimeoutError> {
        let outcome = match self.take() {
            Some(outcome) => Ok(outcome),
            None => {
                let spec = WaitSpec::new(WaitReason::Promise, at)
                    .deadline(deadline)
                    .cancellable();
                perform(&self.operation(), &spec)
            }
        };
        match outcome {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(Broken)) => Err(WaitFutureTimeoutError::Broken),
            Err(WaitOutcome::Cancelled) => Err(WaitFutureTimeoutError::Cancelled),
            Err(_) => Err(WaitFutureTimeoutError::Timeout),
        }
    }

    /// A wait that takes the value.
    pub(crate) fn operation(&mut self) -> FutureWait<'_, T> {
        FutureWait {
            ready: self.readiness(),
            alone: PhantomData,
        }
    }

    /// A wait that takes nothing.
    fn readiness(&self) -> Readiness<'_, T> {
        Readiness {
            node: Node::new(),
            shared: &self.shared,
        }
    }
}

fn wait_any_of(arms: &[ArmRef<'_>], at: &'static Location<'static>) -> Result<usize, Cancelled> {
    let spec = SelectSpec {
        biased: true,
        patience: Patience::Until(None),
        on_cancel: OnCancel::TellCaller,
        at,
    };
    match select(arms, &spec) {
        Selected::Arm(index) => Ok(index),
        Selected::Cancelled => Err(Cancelled),
        Selected::None => unreachable!("a wait without a time limit"),
    }
}

impl<T> Drop for Future<T> {
    fn drop(&mut self) {
        self.shared.leave();
    }
}

/// Waits in async code, under any executor.
///
/// ```
/// let (promise, mut future) = sinew::sync::promise();
/// promise.set(1).unwrap();
/// assert_eq!(sinew::block_on(&mut future), Ok(1));
/// ```
impl<T> std::future::Future for Future<T> {
    type Output = Result<T, Broken>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Some(outcome) = this.take() {
            return Poll::Ready(outcome);
        }
        let known = match &this.shared.line.lock().listener {
            Some(Listener::Task(waker)) => waker.will_wake(context.waker()),
            _ => false,
        };
        if known {
            return Poll::Pending; // there until the promise takes it
        }
        let mut listener = Some(Listener::Task(context.waker().clone()));
        let listens = {
            let mut line = this.shared.line.lock();
            let listens = this.shared.listen();
            if listens {
                mem::swap(&mut line.listener, &mut listener);
            }
            listens
        };
        drop(listener);
        if listens {
            return Poll::Pending;
        }
        this.take().map_or(Poll::Pending, Poll::Ready)
    }
}

impl<T> fmt::Debug for Future<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Future")
            .field("is_set", &self.is_set())
            .finish()
    }
}

/// One wait that takes nothing.
struct Readiness<'a, T> {
    node: Node,
    shared: &'a Shared<T>,
}

// SAFETY: the one node is linked only into the line, whose lock `tell` has while
// it claims, and `delist` takes.
unsafe impl<T> Operation for Readiness<'_, T> {
    type Output = ();

    fn attempt(&self) -> Option<()> {
        self.shared.is_decided().then_some(())
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<()> {
        let mut line = self.shared.line.lock();
        if !self.shared.listen() {
            return if waiter.take_oneself(place) {
                Enlisted::Done(())
            } else {
                Enlisted::Lost
            };
        }
        self.node.belongs_to(waiter, place);
        // SAFETY: the caller's promise.
        unsafe { line.waiting.push_back(&self.node) };
        Enlisted::Linked
    }

    fn delist(&self) -> bool {
        // LISTENER may stay: it costs one look at an empty line, once.
        // SAFETY: linked only by `enlist`, into this list.
        unsafe { self.shared.line.lock().waiting.remove(&self.node) }
    }

    fn accept(&self) -> Option<()> {
        Some(())
    }

    fn pass_on(&self) {} // it takes nothing along
}

/// One wait that takes the value.
pub(crate) struct FutureWait<'a, T> {
    ready: Readiness<'a, T>,
    /// It has the future for itself, and is not to be shared either.
    alone: PhantomData<(&'a mut Future<T>, Cell<()>)>,
}

impl<T> FutureWait<'_, T> {
    fn take(&self) -> Option<Result<T, Broken>> {
        // SAFETY: the future is borrowed for us alone (`alone`).
        unsafe { self.ready.shared.take() }
    }
}

// SAFETY: links and unlinks as `Readiness` does.
unsafe impl<T> Operation for FutureWait<'_, T> {
    type Output = Result<T, Broken>;

    fn attempt(&self) -> Option<Self::Output> {
        self.take()
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<Self::Output> {
        // SAFETY: the caller's promise.
        match unsafe { self.ready.enlist(waiter, place) } {
            Enlisted::Linked => Enlisted::Linked,
            // Decided, and for good: the value is there to be taken.
            Enlisted::Done(()) => Enlisted::Done(self.take().unwrap_or(Err(Broken))),
            Enlisted::Lost => Enlisted::Lost,
            Enlisted::Again => Enlisted::Again,
        }
    }

    fn delist(&self) -> bool {
        self.ready.delist()
    }

    fn accept(&self) -> Option<Self::Output> {
        self.take()
    }

    fn pass_on(&self) {} // the value stays in the future
}

/// Why [`Future::wait`] has no value to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitFutureError {
    /// The promise was dropped without a value, or the value was taken.
    Broken,
    /// The waiting fiber was cancelled.
    Cancelled,
}

impl fmt::Display for WaitFutureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken => Broken.fmt(f),
            Self::Cancelled => Cancelled.fmt(f),
        }
    }
}

impl_error!(WaitFutureError {
    Self::Broken => Some(ErrorKind::BrokenPipe),
    Self::Cancelled => None,
});

impl From<Cancelled> for WaitFutureError {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

/// Why [`Future::wait_timeout`] has no value to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitFutureTimeoutError {
    /// The time was over first.
    Timeout,
    /// The promise was dropped without a value, or the value was taken.
    Broken,
    /// The waiting fiber was cancelled.
    Cancelled,
}

impl fmt::Display for WaitFutureTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => TimedOut.fmt(f),
            Self::Broken => Broken.fmt(f),
            Self::Cancelled => Cancelled.fmt(f),
        }
    }
}

impl_error!(WaitFutureTimeoutError {
    Self::Timeout => Some(ErrorKind::TimedOut),
    Self::Broken => Some(ErrorKind::BrokenPipe),
    Self::Cancelled => None,
});

impl From<Cancelled> for WaitFutureTimeoutError {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}
