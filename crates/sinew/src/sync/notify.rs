//! A wake-up that is kept until somebody comes for it.
//!
//! One word says whether a notification is kept (the permit) and whether anybody
//! stands in line; never both:
//!
//! | word      | meaning                                | who changes it             |
//! |-----------|----------------------------------------|----------------------------|
//! | `EMPTY`   | no permit, nobody in line              | anybody, without the lock  |
//! | `PERMIT`  | one permit, nobody in line             | anybody, without the lock  |
//! | `WAITERS` | no permit, somebody in line            | who holds the line's lock  |
//! | `HELD`    | the permit is about to be taken, or put back | who holds the line's lock |
//!
//! A waiter sets `WAITERS` under the lock, in the same read-modify-write that
//! finds no permit: a notification either comes before that and is seen by it, or
//! sees `WAITERS` and comes to the lock. `HELD` is for a select, which may find
//! that another arm was faster and must put the permit back: meanwhile nobody
//! may think that there is none.
//!
//! Invariant 1 (line): with the lock free, the word is `WAITERS` exactly while
//! the line is not empty, and it is not `HELD`.
//! Invariant 2 (one each): a notification of `notify_one` ends one wait or
//! becomes the permit; a wait that it ended and whose future was dropped passes
//! it on.

use super::error::WaitTimeoutError;
use crate::error::Cancelled;
use crate::fiber::WaitReason;
use crate::primitive::{AtomicU32, Ordering, const_fn};
use crate::sched::polling;
use crate::sys::Lock;
use crate::time::Instant;
use crate::wait::node::{Node, Place, WaitList, Wakes};
use crate::wait::{Deadline, Enlisted, Operation, Pending, WaitOutcome, WaitSpec, Waiter};
use crate::wait::{perform, point};
use std::cell::Cell;
use std::fmt;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::time::Duration;

const EMPTY: u32 = 0;
const PERMIT: u32 = 1;
const WAITERS: u32 = 2;
const HELD: u32 = 3;

/// Wakes one waiter, or all who wait; a single wake-up is kept for later.
///
/// [`notify_one`](Self::notify_one) wakes who has waited longest. If nobody
/// waits, the next [`wait`](Self::wait) passes at once: one such permit is kept,
/// not more. [`notify_waiters`](Self::notify_waiters) wakes all who wait now and
/// keeps nothing. Waiting is a cancellation point; a wait that is cancelled or
/// times out takes no notification along.
///
/// A place to wait, not a place to keep data: put what changed elsewhere (under a
/// lock, in an atomic), notify, and look again after each wait.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use sinew::sync::Notify;
///
/// sinew::run(|| {
///     let work = Arc::new((AtomicU32::new(0), Notify::new()));
///     let worker = sinew::spawn({
///         let work = work.clone();
///         move || {
///             while work.0.load(Ordering::Relaxed) < 3 {
///                 work.1.wait().unwrap();
///             }
///             work.0.load(Ordering::Relaxed)
///         }
///     });
///     for _ in 0..3 {
///         work.0.fetch_add(1, Ordering::Relaxed);
///         work.1.notify_one();
///     }
///     assert_eq!(worker.join().unwrap(), 3);
/// });
/// ```
pub struct Notify {
    /// See the module header.
    word: AtomicU32,
    line: Lock<WaitList<Waiting>>,
}

/// One place in the line.
#[repr(C)]
struct Waiting {
    node: Node,
    /// Set under the lock by a `notify_one` that has claimed the waiter.
    owes_one: Cell<bool>,
}

// SAFETY: `repr(C)`, and the node is first.
unsafe impl Place for Waiting {
    fn node(&self) -> &Node {
        &self.node
    }
}

// User code never unwinds through a half-done change of it.
impl UnwindSafe for Notify {}
impl RefUnwindSafe for Notify {}

impl Notify {
    const_fn! {
        /// No permit, nobody waits.
        pub const fn new() -> Self {
            Self {
                word: AtomicU32::new(EMPTY),
                line: Lock::new(WaitList::new()),
            }
        }
    }

    /// Wakes who has waited longest; if nobody waits, keeps one permit for who
    /// comes next.
    ///
    /// ```
    /// let notify = sinew::sync::Notify::new();
    /// notify.notify_one();
    /// notify.notify_one(); // one permit is kept, not two
    /// assert!(notify.try_wait());
    /// assert!(!notify.try_wait());
    /// ```
    pub fn notify_one(&self) {
        // Relaxed: the exchange finds out.
        let mut now = self.word.load(Ordering::Relaxed);
        while now == EMPTY || now == PERMIT {
            // Release: who takes the permit sees what we did before; pairs with
            // the Acquire in `try_wait` and `enlist`. Also where there is a
            // permit already: without our store no edge would lead from us.
            match self
                .word
                .compare_exchange_weak(now, PERMIT, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(seen) => now = seen,
            }
        }
        self.notify_one_slow();
    }

    #[cold]
    fn notify_one_slow(&self) {
        let mut wakes = Wakes::new();
        {
            let mut line = self.line.lock();
            // Under the lock it is not HELD (invariant 1), and WAITERS stays.
            let mut now = self.word.load(Ordering::Relaxed);
            while now != WAITERS {
                // Release: as in `notify_one`.
                match self.word.compare_exchange_weak(
                    now,
                    PERMIT,
                    Ordering::Release,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => return,
                    Err(seen) => now = seen,
                }
            }
            let claimed = line.claim_front();
            // Release: as in `notify_one`, if it is the permit. Whom we claimed
            // sees what came before by the claim.
            if claimed.is_none() {
                self.word.store(PERMIT, Ordering::Release);
            } else if line.is_empty() {
                self.word.store(EMPTY, Ordering::Release);
            }
            if let Some((place, wakeup)) = claimed {
                // SAFETY: claimed by us, not fired, and we hold the lock
                // (`wait::node`, invariant 2).
                let place = unsafe { place.as_ref() };
                place.owes_one.set(true);
                // SAFETY: claimed just now, under the lock.
                unsafe { wakes.add(&place.node, wakeup) };
            }
        }
        wakes.fire();
    }

    /// Wakes all who wait now, and nobody who comes later: no permit is made, and
    /// one that is kept stays.
    ///
    /// A task waits from the first poll of its future on.
    pub fn notify_waiters(&self) {
        // A read-modify-write, for it sees the latest word. Release: who stands
        // in line after this sees what we did before; pairs with the AcqRel in
        // `enlist`. So a task that polls once and then looks for what we did
        // either sees it, or is woken.
        if self.word.fetch_or(0, Ordering::AcqRel) != WAITERS {
            return;
        }
        let mut wakes = Wakes::new();
        {
            let mut line = self.line.lock();
            line.claim_all(&mut wakes);
            self.line_may_be_empty(&line);
        }
        wakes.fire();
    }

    /// Takes the permit, if there is one.
    ///
    /// A loop of failing tries is a place where other fibers may run: every 64th in one turn
    /// of a fiber yields.
    pub fn try_wait(&self) -> bool {
        polling::tried(self.try_take())
    }

    /// The same without a count of tries in vain.
    fn try_take(&self) -> bool {
        // Relaxed: the exchange finds out.
        let mut now = self.word.load(Ordering::Relaxed);
        loop {
            match now {
                PERMIT => {
                    // Acquire: pairs with the Release in `notify_one`.
                    match self.word.compare_exchange_weak(
                        PERMIT,
                        EMPTY,
                        Ordering::Acquire,
                        Ordering::Relaxed,
                    ) {
                        Ok(_) => return true,
                        Err(seen) => now = seen,
                    }
                }
                HELD => {
                    // Decided as soon as the lock is free.
                    drop(self.line.lock());
                    now = self.word.load(Ordering::Relaxed);
                }
                _ => return false,
            }
        }
    }

    /// Waits for a notification; a cancellation point.
    ///
    /// # Errors
    ///
    /// [`Cancelled`] if the fiber was cancelled, before or during the wait; then
    /// no notification was taken.
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
    /// use sinew::sync::{Notify, WaitTimeoutError};
    ///
    /// let notify = Notify::new();
    /// notify.notify_waiters(); // nobody waits: no effect
    /// let outcome = notify.wait_timeout(Duration::from_millis(1));
    /// assert_eq!(outcome, Err(WaitTimeoutError::Timeout));
    /// ```
    ///
    /// # Errors
    ///
    /// [`WaitTimeoutError`] if the time was over first or the fiber was
    /// cancelled; then no notification was taken.
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
    /// A future that is dropped leaves the line; if `notify_one` had chosen it
    /// already, the notification goes to the next one.
    ///
    /// ```
    /// let notify = sinew::sync::Notify::new();
    /// notify.notify_one();
    /// sinew::block_on(notify.wait_async());
    /// assert!(!notify.try_wait());
    /// ```
    pub fn wait_async(&self) -> impl Future<Output = ()> + Send + '_ {
        Pending::new(self.operation())
    }

    fn wait_by(
        &self,
        deadline: Option<Deadline>,
        at: &'static Location<'static>,
    ) -> Result<(), WaitOutcome> {
        if self.try_take() {
            return Ok(());
        }
        let spec = WaitSpec::new(WaitReason::Notify, at)
            .deadline(deadline)
            .cancellable();
        perform(&self.operation(), &spec)
    }

    pub(crate) fn operation(&self) -> NotifyWait<'_> {
        NotifyWait {
            place: Waiting {
                node: Node::new(),
                owes_one: Cell::new(false),
            },
            notify: self,
        }
    }

    /// Keeps invariant 1 after places have left the line.
    fn line_may_be_empty(&self, line: &WaitList<Waiting>) {
        // Relaxed: WAITERS is changed only under the lock, which we hold; and if
        // it is something else it does not become WAITERS.
        if line.is_empty() && self.word.load(Ordering::Relaxed) == WAITERS {
            // Release: as in `notify_waiters`.
            self.word.store(EMPTY, Ordering::Release);
        }
    }
}

impl Default for Notify {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Notify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: may be old when it is read.
        let word = self.word.load(Ordering::Relaxed);
        f.debug_struct("Notify")
            .field("has_permit", &(word == PERMIT || word == HELD))
            .finish_non_exhaustive()
    }
}

/// One wait for a notification.
pub(crate) struct NotifyWait<'a> {
    place: Waiting,
    notify: &'a Notify,
}

// SAFETY: the one place is linked only into the line, whose lock all claimants
// hold while they claim, and `delist` takes.
unsafe impl Operation for NotifyWait<'_> {
    type Output = ();

    fn attempt(&self) -> Option<()> {
        self.notify.try_take().then_some(())
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<()> {
        let word = &self.notify.word;
        let mut line = self.notify.line.lock();
        loop {
            // AcqRel, Acquire half: pairs with `notify_waiters`. Release half:
            // keeps the edges that lead here from it for those who come next.
            match word.compare_exchange(EMPTY, WAITERS, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) | Err(WAITERS) => break,
                Err(_) => {}
            }
            // Acquire: pairs with the Release in `notify_one`.
            if word
                .compare_exchange(PERMIT, HELD, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
            {
                continue; // taken by another meanwhile
            }
            let taken = waiter.take_oneself(place);
            // AcqRel: the next one sees what we saw, as it would have without us.
            word.swap(if taken { EMPTY } else { PERMIT }, Ordering::AcqRel);
            return if taken {
                Enlisted::Done(())
            } else {
                Enlisted::Lost
            };
        }
        self.place.node.belongs_to(waiter, place);
        // SAFETY: the caller's promise.
        unsafe { line.push_back(&self.place) };
        Enlisted::Linked
    }

    fn delist(&self) -> bool {
        let mut line = self.notify.line.lock();
        // SAFETY: linked only by `enlist`, into this list.
        let linked = unsafe { line.remove(&self.place) };
        self.notify.line_may_be_empty(&line);
        linked
    }

    fn accept(&self) -> Option<()> {
        Some(())
    }

    fn pass_on(&self) {
        // A `notify_waiters` was for us alone.
        if self.place.owes_one.get() {
            self.notify.notify_one();
        }
    }
}
