//! Waiting for a change of what a mutex protects.
//!
//! A waiter enters the line, and gives the mutex back before it lets go of the
//! line's lock: so a notification that follows the change, which is made under
//! the mutex, finds it there. Giving the mutex back may wake an async task, whose
//! waker is user code: while that runs the waiter is *busy*, and a notification
//! is noted at its place instead of ending a wait that has not begun. It is woken by a notification or by nothing: there are no
//! spurious wake-ups. One that gives up leaves the line under its lock, or finds
//! that it was notified already and takes that: so no notification is lost to
//! somebody who does not want it.

use super::mutex::{Mutex, MutexGuard};
use crate::error::Cancelled;
use crate::fiber::WaitReason;
use crate::primitive::const_fn;
use crate::sys::Lock;
use crate::time::Instant;
use crate::wait::node::{Node, Place, WaitList, Wakes};
use crate::wait::{Deadline, Enlisted, Operation, Pending, WaitOutcome, WaitSpec, Waiter, perform};
use std::cell::Cell;
use std::fmt;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::time::Duration;

/// Lets fibers wait until something that a [`Mutex`] protects has changed; std's,
/// without spurious wake-ups.
///
/// Waiting is no cancellation point; [`wait_or_cancelled`](Self::wait_or_cancelled)
/// is.
///
/// ```
/// use std::sync::Arc;
/// use sinew::sync::{Condvar, Mutex};
///
/// sinew::run(|| {
///     let pair = Arc::new((Mutex::new(false), Condvar::new()));
///     let other = pair.clone();
///     sinew::spawn(move || {
///         *other.0.lock() = true;
///         other.1.notify_one();
///     });
///     let (ready, changed) = &*pair;
///     let ready = changed.wait_while(ready.lock(), |ready| !*ready);
///     assert!(*ready);
/// });
/// ```
pub struct Condvar {
    line: Lock<WaitList<Waiting>>,
}

/// One place in the line.
#[repr(C)]
struct Waiting {
    node: Node,
    /// It was woken by `notify_one`: if it does not want that, another may. Set
    /// under the lock of the line.
    by_one: Cell<bool>,
    /// It runs wakers, and will look at `notified` before it waits; both under
    /// the lock of the line.
    busy: Cell<bool>,
    notified: Cell<bool>,
}

// SAFETY: `repr(C)`, and the node is first.
unsafe impl Place for Waiting {
    fn node(&self) -> &Node {
        &self.node
    }
}

impl UnwindSafe for Condvar {}
impl RefUnwindSafe for Condvar {}

impl Condvar {
    const_fn! {
        /// A condition variable that nobody waits for.
        pub const fn new() -> Self {
            Self {
                line: Lock::new(WaitList::new()),
            }
        }
    }

    /// Wakes the one that has waited longest, if any waits.
    pub fn notify_one(&self) {
        let mut wakes = Wakes::new();
        {
            let mut line = self.line.lock();
            if let Some(first) = line.pop_front() {
                // SAFETY: it was linked, and we hold the lock.
                let first = unsafe { first.as_ref() };
                first.by_one.set(true);
                notify(first, &mut wakes);
            }
        }
        wakes.fire();
    }

    /// Wakes all who wait now.
    pub fn notify_all(&self) {
        let mut wakes = Wakes::new();
        {
            let mut line = self.line.lock();
            while let Some(place) = line.pop_front() {
                // SAFETY: it was linked, and we hold the lock.
                notify(unsafe { place.as_ref() }, &mut wakes);
            }
        }
        wakes.fire();
    }

    /// Gives the lock back, waits for a notification, and locks again.
    #[track_caller]
    pub fn wait<'a, T: ?Sized>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.wait_by(guard, None, false, Location::caller()).0
    }

    /// Waits as long as `condition` holds; it is asked under the lock.
    #[track_caller]
    pub fn wait_while<'a, T: ?Sized>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        let at = Location::caller();
        while condition(&mut guard) {
            guard = self.wait_by(guard, None, false, at).0;
        }
        guard
    }

    /// As [`wait`](Self::wait), but for `timeout` at most; then it still has to
    /// lock again, which may take longer.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sinew::sync::{Condvar, Mutex};
    ///
    /// let (mutex, condvar) = (Mutex::new(()), Condvar::new());
    /// let (_guard, result) = condvar.wait_timeout(mutex.lock(), Duration::from_millis(1));
    /// assert!(result.timed_out());
    /// ```
    #[track_caller]
    pub fn wait_timeout<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> (MutexGuard<'a, T>, WaitTimeoutResult) {
        self.wait_timed(guard, Deadline::after(timeout), Location::caller())
    }

    /// As [`wait`](Self::wait), but until `deadline` at most.
    #[track_caller]
    pub fn wait_deadline<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline: Instant,
    ) -> (MutexGuard<'a, T>, WaitTimeoutResult) {
        self.wait_timed(guard, Some(deadline.deadline()), Location::caller())
    }

    /// As [`wait_while`](Self::wait_while), but for `timeout` at most.
    ///
    /// The result says that the time was over only if `condition` still holds.
    #[track_caller]
    pub fn wait_timeout_while<'a, T: ?Sized>(
        &self,
        mut guard: MutexGuard<'a, T>,
        timeout: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> (MutexGuard<'a, T>, WaitTimeoutResult) {
        let at = Location::caller();
        let deadline = Deadline::after(timeout);
        let mut timed_out = false;
        while condition(&mut guard) {
            if timed_out {
                return (guard, WaitTimeoutResult(true));
            }
            let result;
            (guard, result) = self.wait_timed(guard, deadline, at);
            timed_out = result.timed_out();
        }
        (guard, WaitTimeoutResult(false))
    }

    fn wait_timed<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline: Option<Deadline>,
        at: &'static Location<'static>,
    ) -> (MutexGuard<'a, T>, WaitTimeoutResult) {
        let (guard, outcome) = self.wait_by(guard, deadline, false, at);
        (guard, WaitTimeoutResult(outcome.is_err()))
    }

    /// As [`wait`](Self::wait), but a cancellation point: a fiber that is
    /// cancelled stops waiting, and locks again.
    ///
    /// A fiber that was cancelled before keeps the lock all the time.
    #[track_caller]
    pub fn wait_or_cancelled<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
    ) -> (MutexGuard<'a, T>, Result<(), Cancelled>) {
        let (guard, outcome) = self.wait_by(guard, None, true, Location::caller());
        (guard, outcome.map(|_| ()).map_err(|_| Cancelled))
    }

    /// As [`wait_while`](Self::wait_while), but a cancellation point.
    ///
    /// `Err` only if `condition` still holds.
    #[track_caller]
    pub fn wait_while_or_cancelled<'a, T: ?Sized>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> (MutexGuard<'a, T>, Result<(), Cancelled>) {
        let at = Location::caller();
        let mut outcome = Ok(true);
        while condition(&mut guard) {
            if outcome.is_err() {
                return (guard, Err(Cancelled));
            }
            (guard, outcome) = self.wait_by(guard, None, true, at);
        }
        (guard, Ok(()))
    }

    /// As [`wait`](Self::wait), in async code, under any executor.
    ///
    /// The lock is given back when the future is first polled. A future that is
    /// dropped after it was notified passes the notification on.
    pub async fn wait_async<'a, T: ?Sized>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let mutex = guard.mutex();
        let by_one = Pending::new(Wait::new(self, guard)).await;
        // Until it has the lock again it may still be dropped.
        let notified = Notified {
            condvar: self,
            by_one,
        };
        let guard = mutex.lock_async().await;
        std::mem::forget(notified);
        guard
    }

    fn wait_by<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline: Option<Deadline>,
        cancellable: bool,
        at: &'static Location<'static>,
    ) -> (MutexGuard<'a, T>, Result<bool, WaitOutcome>) {
        let mutex: &'a Mutex<T> = guard.mutex();
        let wait = Wait::new(self, guard);
        let spec = WaitSpec::new(WaitReason::Condvar, at).deadline(deadline);
        let spec = if cancellable {
            spec.cancellable()
        } else {
            spec
        };
        let outcome = perform(&wait, &spec);
        // Still there if the fiber was cancelled before it could begin.
        let guard = wait.guard.take();
        (guard.unwrap_or_else(|| mutex.lock()), outcome)
    }
}

/// Ends the wait at a place that was just taken from the line, or keeps it from
/// beginning.
fn notify(place: &Waiting, wakes: &mut Wakes) {
    if place.busy.get() {
        place.notified.set(true);
        return;
    }
    // SAFETY: linked until now, and we hold the lock. A wait with one place
    // cannot have been claimed.
    unsafe {
        let wakeup = place.node.claim().expect("it stood in line");
        wakes.add(&place.node, wakeup);
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Condvar { .. }")
    }
}

/// Whether a wait with a time limit ended because of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// True if the time was over before a notification came.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

/// A notification that was taken; dropped, it goes to the next who waits.
struct Notified<'c> {
    condvar: &'c Condvar,
    by_one: bool,
}

impl Drop for Notified<'_> {
    fn drop(&mut self) {
        if self.by_one {
            self.condvar.notify_one();
        }
    }
}

/// One wait for a notification.
struct Wait<'c, 'a, T: ?Sized> {
    place: Waiting,
    condvar: &'c Condvar,
    /// There until the wait has begun.
    guard: Cell<Option<MutexGuard<'a, T>>>,
}

impl<'c, 'a, T: ?Sized> Wait<'c, 'a, T> {
    fn new(condvar: &'c Condvar, guard: MutexGuard<'a, T>) -> Self {
        Self {
            place: Waiting {
                node: Node::new(),
                by_one: Cell::new(false),
                busy: Cell::new(false),
                notified: Cell::new(false),
            },
            condvar,
            guard: Cell::new(Some(guard)),
        }
    }
}

// SAFETY: the place is touched under the lock of the line, or by the waiter when
// it is in none; the guard may be sent if this holds.
unsafe impl<'a, T: ?Sized> Send for Wait<'_, 'a, T> where MutexGuard<'a, T>: Send {}

// SAFETY: the one place is linked only into the condvar's line, whose lock all
// claimants hold, and `delist` takes.
unsafe impl<T: ?Sized> Operation for Wait<'_, '_, T> {
    /// Whether it was by `notify_one`.
    type Output = bool;

    fn attempt(&self) -> Option<bool> {
        None // only what comes later counts
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<bool> {
        let mut wakes = Wakes::new();
        {
            let mut line = self.condvar.line.lock();
            self.place.node.belongs_to(waiter, place);
            // SAFETY: the caller's promise.
            unsafe { line.push_back(&self.place) };
            let guard = self.guard.take();
            guard.expect("a wait begins once").unlock_into(&mut wakes);
            self.place.busy.set(wakes.has_tasks());
        }
        let was_busy = wakes.has_tasks();
        if was_busy {
            // In line, and in the middle of a wait. Does not unwind.
            waiter.stay(|| wakes.fire());
            let _line = self.condvar.line.lock();
            self.place.busy.set(false);
            if self.place.notified.get() {
                return Enlisted::Done(self.place.by_one.get());
            }
        } else {
            wakes.fire(); // no user code
        }
        Enlisted::Linked
    }

    fn delist(&self) -> bool {
        // SAFETY: linked only by `enlist`, into this list.
        unsafe { self.condvar.line.lock().remove(&self.place) }
    }

    fn accept(&self) -> Option<bool> {
        Some(self.place.by_one.get())
    }

    fn pass_on(&self) {
        drop(Notified {
            condvar: self.condvar,
            by_one: self.place.by_one.get(),
        });
    }
}
