//! Something that is done once, by whoever comes first.
//!
//! One word tells how far it is:
//!
//! | bit        | meaning                                                        |
//! |------------|----------------------------------------------------------------|
//! | `RUNNING`  | somebody has the attempt: runs the initialiser, or soon will   |
//! | `COMPLETE` | done, for ever; the other bits mean nothing any more           |
//! | `WAITERS`  | somebody stands in line; set under the lock                    |
//! | `PANICKED` | an attempt has ended by a panic                                |
//!
//! There are two lines: callers, who take over if the attempt fails, and watchers,
//! who only wait for the end. The initialiser runs without the lock, so it may
//! wait for others. If it fails, the attempt goes straight to the first caller in
//! line, with `RUNNING` still set: one takes over, the others do not even wake.
//!
//! A waiter sets `WAITERS` under the lock in the same read-modify-write that finds
//! the end has not come; so the one who ends the attempt either comes before that
//! and is seen by it, or sees the bit and comes to the lock.
//!
//! Invariant 1 (attempt): at most one [`Attempt`] exists; it does exactly while
//! `RUNNING` is set, or is on its way to the caller that was claimed for it.
//! Invariant 2 (callers): callers stand in line only while `RUNNING` is set.

use super::error::TimedOut;
use crate::error::Cancelled;
use crate::fiber::WaitReason;
use crate::primitive::{AtomicU32, Ordering, const_fn};
use crate::sys::Lock;
use crate::time::Instant;
use crate::wait::node::{Node, WaitList, Wakes};
use crate::wait::{Deadline, Enlisted, Operation, Pending, WaitOutcome, WaitSpec, Waiter};
use crate::wait::{perform, point};
use std::fmt;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::time::Duration;

const RUNNING: u32 = 1 << 0;
const COMPLETE: u32 = 1 << 1;
const WAITERS: u32 = 1 << 2;
const PANICKED: u32 = 1 << 3;

/// Runs an initialiser once, whoever calls first; all others wait for its end.
///
/// The initialiser may wait; only the fibers that need it wait with it. If it
/// panics, the panic goes to its caller and the next caller tries again: there is
/// no poisoning. Calls on a `Once` that is done cost one load.
///
/// An initialiser that calls the same `Once` again, on its own fiber or by waiting
/// for one that does, waits for itself, for ever.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use sinew::sync::Once;
///
/// static INIT: Once = Once::new();
/// static CALLS: AtomicU32 = AtomicU32::new(0);
///
/// sinew::run(|| {
///     let init = || {
///         INIT.call_once(|| {
///             sinew::yield_now(); // it may wait
///             CALLS.fetch_add(1, Ordering::Relaxed);
///         });
///         CALLS.load(Ordering::Relaxed)
///     };
///     let fibers: Vec<_> = (0..4).map(|_| sinew::spawn(init)).collect();
///     for fiber in fibers {
///         assert_eq!(fiber.join().unwrap(), 1);
///     }
/// });
/// ```
pub struct Once {
    /// See the module header.
    word: AtomicU32,
    lines: Lock<Lines>,
}

struct Lines {
    callers: WaitList<Node>,
    watchers: WaitList<Node>,
}

// User code never unwinds through a half-done change of it.
impl UnwindSafe for Once {}
impl RefUnwindSafe for Once {}

impl Once {
    const_fn! {
        /// Not done yet.
        pub const fn new() -> Self {
            Self {
                word: AtomicU32::new(0),
                lines: Lock::new(Lines {
                    callers: WaitList::new(),
                    watchers: WaitList::new(),
                }),
            }
        }
    }

    /// Whether it is done.
    #[inline]
    pub fn is_completed(&self) -> bool {
        // Acquire: what the initialiser did is seen; pairs with the Release in
        // `Attempt::complete`.
        self.word.load(Ordering::Acquire) & COMPLETE != 0
    }

    /// Runs `f` if it is not done and nobody else is at it; waits if somebody is.
    ///
    /// Returns when it is done, by this call or another.
    ///
    /// ```
    /// use sinew::sync::Once;
    ///
    /// let once = Once::new();
    /// let failed = std::panic::catch_unwind(|| once.call_once(|| panic!("not now")));
    /// assert!(failed.is_err() && !once.is_completed());
    /// once.call_once(|| {}); // the next one tries again
    /// assert!(once.is_completed());
    /// ```
    ///
    /// # Panics
    ///
    /// If `f` does.
    #[inline]
    #[track_caller]
    pub fn call_once<F: FnOnce()>(&self, f: F) {
        self.call_once_force(|_| f());
    }

    /// As [`call_once`](Self::call_once), and tells `f` whether an earlier attempt
    /// has panicked.
    ///
    /// ```
    /// use sinew::sync::Once;
    ///
    /// let once = Once::new();
    /// let _ = std::panic::catch_unwind(|| once.call_once(|| panic!("not now")));
    /// once.call_once_force(|state| assert!(state.is_poisoned()));
    /// ```
    ///
    /// # Panics
    ///
    /// If `f` does.
    #[inline]
    #[track_caller]
    pub fn call_once_force<F: FnOnce(&OnceState)>(&self, f: F) {
        if self.is_completed() {
            return;
        }
        if let Some(attempt) = self.begin(Location::caller()) {
            f(&OnceState {
                panicked: attempt.panicked,
            });
            attempt.complete();
        }
    }

    /// As [`call_once`](Self::call_once), but a cancellation point: a fiber that
    /// is cancelled does not wait for somebody else's call. Its own call, once
    /// begun, it ends.
    ///
    /// # Errors
    ///
    /// [`Cancelled`] if the fiber was cancelled, before or during the wait.
    #[track_caller]
    pub fn call_once_or_cancelled<F: FnOnce()>(&self, f: F) -> Result<(), Cancelled> {
        if let Some(attempt) = self.begin_or_cancelled(Location::caller())? {
            f();
            attempt.complete();
        }
        Ok(())
    }

    /// Waits until it is done; runs nothing.
    ///
    /// Attempts that panic do not end the wait.
    #[track_caller]
    pub fn wait(&self) {
        let spec = WaitSpec::new(WaitReason::Once, Location::caller());
        match self.wait_by(&spec) {
            Ok(()) => {}
            Err(_) => unreachable!("a wait that nothing ends early"),
        }
    }

    /// As [`wait`](Self::wait), but for `timeout` at most.
    ///
    /// # Errors
    ///
    /// [`TimedOut`] if it was not done by then.
    #[track_caller]
    pub fn wait_timeout(&self, timeout: Duration) -> Result<(), TimedOut> {
        let spec = WaitSpec::new(WaitReason::Once, Location::caller());
        self.wait_by(&spec.deadline(Deadline::after(timeout)))
            .map_err(TimedOut::of)
    }

    /// As [`wait`](Self::wait), but until `deadline` at most.
    ///
    /// # Errors
    ///
    /// [`TimedOut`] if it was not done by then.
    #[track_caller]
    pub fn wait_deadline(&self, deadline: Instant) -> Result<(), TimedOut> {
        let spec = WaitSpec::new(WaitReason::Once, Location::caller());
        self.wait_by(&spec.deadline(Some(deadline.deadline())))
            .map_err(TimedOut::of)
    }

    /// As [`wait`](Self::wait), and a cancellation point.
    ///
    /// # Errors
    ///
    /// [`Cancelled`] if the fiber was cancelled, before or during the wait.
    #[track_caller]
    pub fn wait_or_cancelled(&self) -> Result<(), Cancelled> {
        point::check()?;
        let spec = WaitSpec::new(WaitReason::Once, Location::caller());
        self.wait_by(&spec.cancellable()).map_err(|_| Cancelled)
    }

    /// As [`wait`](Self::wait), in async code, under any executor.
    pub fn wait_async(&self) -> impl Future<Output = ()> + Send + '_ {
        Pending::new(Watch {
            node: Node::new(),
            once: self,
        })
    }

    fn wait_by(&self, spec: &WaitSpec<'_>) -> Result<(), WaitOutcome> {
        if self.is_completed() {
            return Ok(());
        }
        let watch = Watch {
            node: Node::new(),
            once: self,
        };
        perform(&watch, spec)
    }

    /// Waits for the end, or until the attempt is the caller's; none if it is
    /// done.
    #[cold]
    pub(super) fn begin(&self, at: &'static Location<'static>) -> Option<Attempt<'_>> {
        match self.begin_by(&WaitSpec::new(WaitReason::Once, at)) {
            Ok(attempt) => attempt,
            Err(_) => unreachable!("a wait that nothing ends early"),
        }
    }

    /// The same as a cancellation point.
    #[cold]
    pub(super) fn begin_or_cancelled(
        &self,
        at: &'static Location<'static>,
    ) -> Result<Option<Attempt<'_>>, Cancelled> {
        point::check()?;
        self.begin_by(&WaitSpec::new(WaitReason::Once, at).cancellable())
            .map_err(|_| Cancelled)
    }

    fn begin_by(&self, spec: &WaitSpec<'_>) -> Result<Option<Attempt<'_>>, WaitOutcome> {
        let call = Call {
            node: Node::new(),
            once: self,
        };
        match call.attempt() {
            Some(attempt) => Ok(attempt),
            None => perform(&call, spec),
        }
    }

    /// Takes the attempt if nobody has it.
    fn try_begin(&self) -> Began<'_> {
        // Acquire, here and in the exchange: what the initialiser did, or one
        // that failed; pairs with the Release in `complete` and `failed`.
        let mut now = self.word.load(Ordering::Acquire);
        loop {
            if now & COMPLETE != 0 {
                return Began::Complete;
            }
            if now & RUNNING != 0 {
                return Began::Running;
            }
            match self.word.compare_exchange_weak(
                now,
                now | RUNNING,
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    return Began::Ours(Attempt {
                        once: self,
                        panicked: now & PANICKED != 0,
                    });
                }
                Err(seen) => now = seen,
            }
        }
    }

    /// Ends an attempt that came to nothing: the first caller in line has it now.
    #[cold]
    fn failed(&self, panicked: u32) {
        // Relaxed: the exchange finds out.
        let mut now = self.word.load(Ordering::Relaxed);
        while now & WAITERS == 0 {
            // Release: pairs with the Acquire in `try_begin`.
            match self.word.compare_exchange_weak(
                now,
                now & !RUNNING | panicked,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(seen) => now = seen,
            }
        }
        let mut wakes = Wakes::new();
        {
            let mut lines = self.lines.lock();
            // With RUNNING set and the lock held nobody else changes the word.
            if let Some((place, wakeup)) = lines.callers.claim_front() {
                // Release: as above, though the one claimed is ordered by that.
                self.word.fetch_or(panicked, Ordering::Release);
                // SAFETY: claimed just now, under the lock.
                unsafe { wakes.add(place.as_ref(), wakeup) };
            } else {
                let waiters = if lines.watchers.is_empty() {
                    0
                } else {
                    WAITERS
                };
                let kept = now & PANICKED;
                // Release: as above.
                self.word
                    .store(kept | panicked | waiters, Ordering::Release);
            }
        }
        wakes.fire();
    }

    /// Wakes everybody: it is done.
    #[cold]
    fn release(&self) {
        let mut wakes = Wakes::new();
        {
            let mut lines = self.lines.lock();
            lines.callers.claim_all(&mut wakes);
            lines.watchers.claim_all(&mut wakes);
        }
        wakes.fire();
    }

    /// Sets WAITERS if one has to wait, as `has_to_wait` finds by the word; false
    /// if not. The caller holds the lock.
    fn about_to_stand(&self, has_to_wait: impl Fn(u32) -> bool) -> bool {
        // Acquire, here and below: if one need not wait, it is because of what
        // was done; pairs with `complete` and `failed`.
        let mut now = self.word.load(Ordering::Acquire);
        loop {
            if !has_to_wait(now) {
                return false;
            }
            if now & WAITERS != 0 {
                return true;
            }
            match self.word.compare_exchange_weak(
                now,
                now | WAITERS,
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => return true,
                Err(seen) => now = seen,
            }
        }
    }
}

impl Default for Once {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once").finish_non_exhaustive()
    }
}

/// What [`Once::call_once_force`] tells its closure.
pub struct OnceState {
    panicked: bool,
}

impl OnceState {
    /// Whether an earlier attempt has panicked.
    pub fn is_poisoned(&self) -> bool {
        self.panicked
    }
}

impl fmt::Debug for OnceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceState")
            .field("poisoned", &self.is_poisoned())
            .finish()
    }
}

/// The right, and the duty, to initialise; dropped by a panic it goes on to the
/// next caller.
#[must_use = "dropped, the attempt has failed"]
pub(super) struct Attempt<'a> {
    once: &'a Once,
    /// Has an earlier one panicked?
    panicked: bool,
}

impl Attempt<'_> {
    /// It is done.
    pub(super) fn complete(self) {
        let once = self.once;
        std::mem::forget(self);
        // Release: pairs with the Acquire in `is_completed`. Acquire: if somebody
        // waits, the lock orders the rest.
        if once.word.swap(COMPLETE, Ordering::AcqRel) & WAITERS != 0 {
            once.release();
        }
    }

    /// Nothing was done, for no fault of the initialiser's.
    pub(super) fn give_up(self) {
        let once = self.once;
        std::mem::forget(self);
        once.failed(0);
    }
}

/// The initialiser has panicked.
impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.once.failed(PANICKED);
    }
}

enum Began<'a> {
    Ours(Attempt<'a>),
    Running,
    Complete,
}

/// One wait of a caller: for the end, or for the attempt.
struct Call<'a> {
    node: Node,
    once: &'a Once,
}

// SAFETY: the one node is linked only into the callers' line, whose lock all
// claimants hold, and `delist` takes.
unsafe impl<'a> Operation for Call<'a> {
    type Output = Option<Attempt<'a>>;

    fn attempt(&self) -> Option<Self::Output> {
        match self.once.try_begin() {
            Began::Ours(attempt) => Some(Some(attempt)),
            Began::Complete => Some(None),
            Began::Running => None,
        }
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<Self::Output> {
        let mut lines = self.once.lines.lock();
        // A call is waited for alone, not in a select, so that nobody can have
        // claimed the waiter.
        loop {
            if let Some(attempt) = self.attempt() {
                return Enlisted::Done(attempt);
            }
            if self
                .once
                .about_to_stand(|word| word & COMPLETE == 0 && word & RUNNING != 0)
            {
                break;
            }
        }
        self.node.belongs_to(waiter, place);
        // SAFETY: the caller's promise.
        unsafe { lines.callers.push_back(&self.node) };
        Enlisted::Linked
    }

    fn delist(&self) -> bool {
        // SAFETY: linked only by `enlist`, into this list.
        unsafe { self.once.lines.lock().callers.remove(&self.node) }
    }

    fn accept(&self) -> Option<Self::Output> {
        // Woken at the end, or because the attempt is ours (invariant 1).
        Some(if self.once.is_completed() {
            None
        } else {
            Some(Attempt {
                once: self.once,
                // Relaxed: set, if it was, before we were notified.
                panicked: self.once.word.load(Ordering::Relaxed) & PANICKED != 0,
            })
        })
    }

    fn pass_on(&self) {
        unreachable!("no task calls an initialiser");
    }
}

/// One wait for the end.
struct Watch<'a> {
    node: Node,
    once: &'a Once,
}

// SAFETY: the one node is linked only into the watchers' line, whose lock
// `release` has while it claims, and `delist` takes.
unsafe impl Operation for Watch<'_> {
    type Output = ();

    fn attempt(&self) -> Option<()> {
        self.once.is_completed().then_some(())
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<()> {
        let mut lines = self.once.lines.lock();
        // Waited for alone, as in `Call`.
        if !self.once.about_to_stand(|word| word & COMPLETE == 0) {
            return Enlisted::Done(());
        }
        self.node.belongs_to(waiter, place);
        // SAFETY: the caller's promise.
        unsafe { lines.watchers.push_back(&self.node) };
        Enlisted::Linked
    }

    fn delist(&self) -> bool {
        // WAITERS may stay: it costs one look at empty lines, once.
        // SAFETY: linked only by `enlist`, into this list.
        unsafe { self.once.lines.lock().watchers.remove(&self.node) }
    }

    fn accept(&self) -> Option<()> {
        Some(())
    }

    fn pass_on(&self) {} // all were woken: there is nothing to pass on
}
