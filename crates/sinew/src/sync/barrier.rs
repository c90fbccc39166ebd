//! A place where a number of fibers wait for each other.
//!
//! The line holds those who have arrived. Who finds that only it is missing takes
//! all of them out, wakes them and is the leader; the barrier is then as new, so
//! that the next generation may gather while the former one is still waking up.
//!
//! To time out and to be released may happen at once. What counts is the line: a
//! wait gives up by leaving it, under its lock, and was then never counted; who
//! was in it when the last one came is released, even if its time was over.
//!
//! Invariant 1 (count): `waiting` is the length of the line, and smaller than
//! `size`.
//! Invariant 2 (all or nobody): a generation is released under one hold of the
//! lock: the `size` - 1 waits in line are ended, and the one who came last leads.

use super::error::TimedOut;
use crate::error::Cancelled;
use crate::fiber::WaitReason;
use crate::primitive::const_fn;
use crate::sys::Lock;
use crate::time::Instant;
use crate::wait::node::{Node, WaitList, Wakes};
use crate::wait::{Deadline, Enlisted, Operation, Pending, WaitOutcome, WaitSpec, Waiter};
use crate::wait::{perform, point};
use std::fmt;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::time::Duration;

/// Lets a fixed number of fibers, threads or tasks go on together.
///
/// It may be used again at once: the next as many make up the next generation.
/// Waiting is no cancellation point; [`wait_or_cancelled`](Self::wait_or_cancelled)
/// is one.
///
/// ```
/// use std::sync::Arc;
/// use sinew::sync::Barrier;
///
/// sinew::run(|| {
///     let barrier = Arc::new(Barrier::new(3));
///     let fibers: Vec<_> = (0..3)
///         .map(|_| {
///             let barrier = barrier.clone();
///             sinew::spawn(move || barrier.wait().is_leader())
///         })
///         .collect();
///     let leaders = fibers.into_iter().filter_map(|fiber| fiber.join().ok());
///     assert_eq!(leaders.filter(|&leader| leader).count(), 1);
/// });
/// ```
pub struct Barrier {
    /// How many make up a generation; at least one.
    size: usize,
    line: Lock<Line>,
}

struct Line {
    waiting: usize,
    nodes: WaitList<Node>,
}

// User code never unwinds through a half-done change of it.
impl UnwindSafe for Barrier {}
impl RefUnwindSafe for Barrier {}

impl Barrier {
    const_fn! {
        /// A barrier for `n`; one for none is one for one.
        pub const fn new(n: usize) -> Self {
            Self {
                size: if n == 0 { 1 } else { n },
                line: Lock::new(Line {
                    waiting: 0,
                    nodes: WaitList::new(),
                }),
            }
        }
    }

    /// Waits until all have come.
    ///
    /// Exactly one of each generation is its leader: who came last.
    #[track_caller]
    pub fn wait(&self) -> BarrierWaitResult {
        let spec = WaitSpec::new(WaitReason::Barrier, Location::caller());
        match self.wait_by(&spec) {
            Ok(result) => result,
            Err(_) => unreachable!("a wait that nothing ends early"),
        }
    }

    /// As [`wait`](Self::wait), but for `timeout` at most; who gave up is not
    /// counted.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sinew::sync::{Barrier, TimedOut};
    ///
    /// let two = Barrier::new(2);
    /// for _ in 0..3 {
    ///     assert_eq!(two.wait_timeout(Duration::from_millis(1)).unwrap_err(), TimedOut);
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`TimedOut`] if too few had come by then.
    #[track_caller]
    pub fn wait_timeout(&self, timeout: Duration) -> Result<BarrierWaitResult, TimedOut> {
        let spec = WaitSpec::new(WaitReason::Barrier, Location::caller());
        self.wait_by(&spec.deadline(Deadline::after(timeout)))
            .map_err(TimedOut::of)
    }

    /// As [`wait`](Self::wait), but until `deadline` at most; who gave up is not
    /// counted.
    ///
    /// # Errors
    ///
    /// [`TimedOut`] if too few had come by then.
    #[track_caller]
    pub fn wait_deadline(&self, deadline: Instant) -> Result<BarrierWaitResult, TimedOut> {
        let spec = WaitSpec::new(WaitReason::Barrier, Location::caller());
        self.wait_by(&spec.deadline(Some(deadline.deadline())))
            .map_err(TimedOut::of)
    }

    /// As [`wait`](Self::wait), and a cancellation point; who was cancelled is not
    /// counted.
    ///
    /// # Errors
    ///
    /// [`Cancelled`] if the fiber was cancelled, before or during the wait.
    #[track_caller]
    pub fn wait_or_cancelled(&self) -> Result<BarrierWaitResult, Cancelled> {
        point::check()?;
        let spec = WaitSpec::new(WaitReason::Barrier, Location::caller());
        self.wait_by(&spec.cancellable()).map_err(|_| Cancelled)
    }

    /// Waits in async code, under any executor.
    ///
    /// It has come with the first poll; a future that is dropped before the
    /// others came is not counted.
    pub fn wait_async(&self) -> impl Future<Output = BarrierWaitResult> + Send + '_ {
        Pending::new(self.operation())
    }

    fn wait_by(&self, spec: &WaitSpec<'_>) -> Result<BarrierWaitResult, WaitOutcome> {
        if self.size == 1 {
            return Ok(BarrierWaitResult(true));
        }
        perform(&self.operation(), spec)
    }

    fn operation(&self) -> Arrival<'_> {
        Arrival {
            node: Node::new(),
            barrier: self,
        }
    }

    /// Releases the others if the caller is the last one; the caller holds the
    /// lock, and fires the wake-ups without it.
    fn complete(&self, line: &mut Line, wakes: &mut Wakes) -> bool {
        if line.waiting + 1 < self.size {
            return false;
        }
        line.nodes.claim_all(wakes);
        line.waiting = 0;
        true
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier").finish_non_exhaustive()
    }
}

/// Whether a [`Barrier::wait`] was the leader's.
pub struct BarrierWaitResult(bool);

impl BarrierWaitResult {
    /// True for exactly one of each generation.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.0
    }
}

impl fmt::Debug for BarrierWaitResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BarrierWaitResult")
            .field("is_leader", &self.is_leader())
            .finish()
    }
}

/// One wait at a barrier.
struct Arrival<'a> {
    node: Node,
    barrier: &'a Barrier,
}

// SAFETY: the one node is linked only into the barrier's line, whose lock
// `complete` has while it claims, and `delist` takes.
unsafe impl Operation for Arrival<'_> {
    type Output = BarrierWaitResult;

    fn attempt(&self) -> Option<BarrierWaitResult> {
        let mut wakes = Wakes::new();
        let last = {
            let mut line = self.barrier.line.lock();
            self.barrier.complete(&mut line, &mut wakes)
        };
        wakes.fire();
        last.then_some(BarrierWaitResult(true))
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<BarrierWaitResult> {
        let mut wakes = Wakes::new();
        {
            // A barrier is waited for alone, not in a select, so that nobody can
            // have claimed the waiter.
            let mut line = self.barrier.line.lock();
            if !self.barrier.complete(&mut line, &mut wakes) {
                self.node.belongs_to(waiter, place);
                // SAFETY: the caller's promise.
                unsafe { line.nodes.push_back(&self.node) };
                line.waiting += 1;
                return Enlisted::Linked;
            }
        }
        wakes.fire();
        Enlisted::Done(BarrierWaitResult(true))
    }

    fn delist(&self) -> bool {
        let mut line = self.barrier.line.lock();
        // SAFETY: linked only by `enlist`, into this list.
        let linked = unsafe { line.nodes.remove(&self.node) };
        if linked {
            line.waiting -= 1;
        }
        linked
    }

    fn accept(&self) -> Option<BarrierWaitResult> {
        Some(BarrierWaitResult(false))
    }

    fn pass_on(&self) {} // it had come: the others have gone on
}
