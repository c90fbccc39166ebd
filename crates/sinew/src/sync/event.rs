//! A flag that fibers wait for.
//!
//! The flag is changed under the lock of the line, and read without it by those
//! who find it set. A waiter looks once more under the lock before it links
//! itself: so it is seen by the `set` that follows.

use super::error::WaitTimeoutError;
use crate::error::Cancelled;
use crate::fiber::WaitReason;
use crate::primitive::{AtomicBool, Ordering, const_fn};
use crate::sched::polling;
use crate::sys::Lock;
use crate::time::Instant;
use crate::wait::node::{Node, Place, WaitList, Wakes};
use crate::wait::{Deadline, Enlisted, Operation, Pending, WaitOutcome, WaitSpec, Waiter};
use crate::wait::{perform, point};
use std::fmt;
use std::panic::Location;
use std::task::Waker;
use std::time::Duration;

/// A manual-reset event: set or unset, with any number of waiters.
///
/// [`set`](Self::set) wakes all who wait, and lets all who come later pass until
/// [`reset`](Self::reset). Waiting is a cancellation point.
///
/// ```
/// use std::sync::Arc;
/// use sinew::sync::Event;
///
/// sinew::run(|| {
///     let ready = Arc::new(Event::new());
///     let waiter = sinew::spawn({
///         let ready = ready.clone();
///         move || ready.wait().is_ok()
///     });
///     ready.set();
///     assert!(waiter.join().unwrap());
/// });
/// ```
pub struct Event {
    set: AtomicBool,
    line: Lock<WaitList<Node>>,
}

impl Event {
    const_fn! {
        /// An event that is not set.
        pub const fn new() -> Self {
            Self {
                set: AtomicBool::new(false),
                line: Lock::new(WaitList::new()),
            }
        }
    }

    /// Whether it is set.
    pub fn is_set(&self) -> bool {
        // Acquire: pairs with the Release in `set`.
        self.set.load(Ordering::Acquire)
    }

    /// Sets it, and wakes all who wait.
    pub fn set(&self) {
        self.set_and_claim().fire();
    }

    /// The same, but the tasks among those who wait are left for the caller to wake.
    pub(crate) fn set_but_tasks(&self) -> Vec<Waker> {
        self.set_and_claim().fire_but_tasks()
    }

    fn set_and_claim(&self) -> Wakes {
        let mut wakes = Wakes::new();
        let mut line = self.line.lock();
        // Release: who passes sees what came before; pairs with `is_set`.
        self.set.store(true, Ordering::Release);
        line.claim_all(&mut wakes);
        drop(line);
        wakes
    }

    /// Unsets it: who comes from now on waits.
    pub fn reset(&self) {
        let _line = self.line.lock();
        // Relaxed: says nothing but that one has to wait.
        self.set.store(false, Ordering::Relaxed);
    }

    /// Whether a wait would pass at once; the same as [`is_set`](Self::is_set),
    /// but for the count of tries.
    ///
    /// A loop of failing tries is a place where other fibers may run: every 64th in one turn
    /// of a fiber yields.
    pub fn try_wait(&self) -> bool {
        polling::tried(self.is_set())
    }

    /// Waits until it is set; a cancellation point.
    ///
    /// # Errors
    ///
    /// [`Cancelled`] if the fiber was cancelled, before or during the wait.
    #[track_caller]
    pub fn wait(&self) -> Result<(), Cancelled> {
        point::check()?;
        self.wait_by(None, Location::caller())
            .map_err(|_| Cancelled)
    }

    /// As [`wait`](Self::wait), but for `timeout` at most.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sinew::sync::{Event, WaitTimeoutError};
    ///
    /// let never = Event::new();
    /// let outcome = never.wait_timeout(Duration::from_millis(1));
    /// assert_eq!(outcome, Err(WaitTimeoutError::Timeout));
    /// ```
    ///
    /// # Errors
    ///
    /// [`WaitTimeoutError`] if the time was over first or the fiber was
    /// cancelled.
    #[track_caller]
    pub fn wait_timeout(&self, timeout: Duration) -> Result<(), WaitTimeoutError> {
        point::check()?;
        self.wait_by(Deadline::after(timeout), Location::caller())
            .map_err(WaitTimeoutError::of)
    }

    /// As [`wait`](Self::wait), but until `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`wait_timeout`](Self::wait_timeout).
    #[track_caller]
    pub fn wait_deadline(&self, deadline: Instant) -> Result<(), WaitTimeoutError> {
        point::check()?;
        self.wait_by(Some(deadline.deadline()), Location::caller())
            .map_err(WaitTimeoutError::of)
    }

    /// Waits in async code, under any executor.
    ///
    /// ```
    /// let event = sinew::sync::Event::new();
    /// event.set();
    /// sinew::block_on(event.wait_async());
    /// ```
    pub fn wait_async(&self) -> impl Future<Output = ()> + Send + '_ {
        Pending::new(self.operation())
    }

    fn wait_by(
        &self,
        deadline: Option<Deadline>,
        at: &'static Location<'static>,
    ) -> Result<(), WaitOutcome> {
        if self.is_set() {
            return Ok(());
        }
        let spec = WaitSpec::new(WaitReason::Event, at)
            .deadline(deadline)
            .cancellable();
        perform(&self.operation(), &spec)
    }

    pub(crate) fn operation(&self) -> EventWait<'_> {
        EventWait {
            node: Node::new(),
            event: self,
        }
    }
}

impl Default for Event {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("is_set", &self.is_set())
            .finish()
    }
}

/// One wait for an event.
#[repr(C)]
pub(crate) struct EventWait<'a> {
    node: Node,
    event: &'a Event,
}

// SAFETY: `repr(C)`, and the node is first.
unsafe impl Place for EventWait<'_> {
    fn node(&self) -> &Node {
        &self.node
    }
}

// SAFETY: the one node is linked only into the event's line, whose lock `set`
// holds while it claims, and `delist` takes.
unsafe impl Operation for EventWait<'_> {
    type Output = ();

    fn attempt(&self) -> Option<()> {
        self.event.is_set().then_some(())
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<()> {
        let mut line = self.event.line.lock();
        if self.event.is_set() {
            return if waiter.take_oneself(place) {
                Enlisted::Done(())
            } else {
                Enlisted::Lost
            };
        }
        self.node.belongs_to(waiter, place);
        // SAFETY: the caller's promise.
        unsafe { line.push_back(&self.node) };
        Enlisted::Linked
    }

    fn delist(&self) -> bool {
        // SAFETY: linked only by `enlist`, into this list.
        unsafe { self.event.line.lock().remove(&self.node) }
    }

    fn accept(&self) -> Option<()> {
        Some(())
    }

    fn pass_on(&self) {} // all were woken: there is nothing to pass on
}
