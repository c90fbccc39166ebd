//! Waiting until a number of parties are done.
//!
//! Each [`WaitGroup`] is one member of its group; dropping it, or waiting, leaves
//! the group. One word has the number of members and a bit that says that somebody
//! stands in line. A waiter sets the bit under the lock, in the same
//! read-modify-write that finds members left; so the last one to leave either
//! comes before that and is seen by it, or sees the bit and comes to the lock.
//!
//! Invariant 1 (for good): a group without members never has any again: only a
//! member can be cloned, and who times out comes back only if there are some.

use crate::error::Cancelled;
use crate::fiber::WaitReason;
use crate::primitive::{AtomicUsize, Ordering};
use crate::sys::Lock;
use crate::time::Instant;
use crate::wait::node::{Node, WaitList, Wakes};
use crate::wait::{Deadline, Enlisted, Operation, Pending, WaitOutcome, WaitSpec, Waiter};
use crate::wait::{perform, point};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

/// Somebody stands in line.
const WAITERS: usize = 1 << 0;
/// One member. The `Arc` that comes with each cannot be cloned often enough for
/// their number to leave the word.
const MEMBER: usize = 1 << 1;

/// Waits for others to be done, however many they turn out to be.
///
/// Clone it for each of them; each drops its clone when it is done. Waiting drops
/// one's own and then waits for all others. It is no cancellation point;
/// [`wait_or_cancelled`](Self::wait_or_cancelled) is one.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use sinew::sync::WaitGroup;
///
/// sinew::run(|| {
///     let group = WaitGroup::new();
///     let done = Arc::new(AtomicU32::new(0));
///     for _ in 0..4 {
///         let (group, done) = (group.clone(), done.clone());
///         sinew::spawn(move || {
///             done.fetch_add(1, Ordering::Relaxed);
///             drop(group);
///         });
///     }
///     group.wait();
///     assert_eq!(done.load(Ordering::Relaxed), 4);
/// });
/// ```
pub struct WaitGroup {
    group: Arc<Group>,
}

struct Group {
    /// See the module header.
    word: AtomicUsize,
    line: Lock<WaitList<Node>>,
}

// User code never unwinds through a half-done change of it.
impl UnwindSafe for WaitGroup {}
impl RefUnwindSafe for WaitGroup {}

impl WaitGroup {
    /// A group of one.
    pub fn new() -> Self {
        Self {
            group: Arc::new(Group {
                word: AtomicUsize::new(MEMBER),
                line: Lock::new(WaitList::new()),
            }),
        }
    }

    /// Leaves the group, and waits until all others have.
    #[track_caller]
    pub fn wait(self) {
        let spec = WaitSpec::new(WaitReason::WaitGroup, Location::caller());
        match wait_by(&self.leave(), &spec) {
            Ok(()) => {}
            Err(_) => unreachable!("a wait that nothing ends early"),
        }
    }

    /// As [`wait`](Self::wait), but for `timeout` at most.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sinew::sync::WaitGroup;
    ///
    /// let group = WaitGroup::new();
    /// let other = group.clone();
    /// let group = group.wait_timeout(Duration::from_millis(1)).unwrap_err();
    /// drop(other);
    /// assert!(group.wait_timeout(Duration::ZERO).is_ok());
    /// ```
    ///
    /// # Errors
    ///
    /// Gives the group back if others were still in it: the caller is a member
    /// again. While it waited it was none.
    #[track_caller]
    pub fn wait_timeout(self, timeout: Duration) -> Result<(), Self> {
        let spec = WaitSpec::new(WaitReason::WaitGroup, Location::caller());
        self.wait_or_come_back(&spec.deadline(Deadline::after(timeout)))
    }

    /// As [`wait`](Self::wait), but until `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`wait_timeout`](Self::wait_timeout).
    #[track_caller]
    pub fn wait_deadline(self, deadline: Instant) -> Result<(), Self> {
        let spec = WaitSpec::new(WaitReason::WaitGroup, Location::caller());
        self.wait_or_come_back(&spec.deadline(Some(deadline.deadline())))
    }

    /// As [`wait`](Self::wait), and a cancellation point.
    ///
    /// # Errors
    ///
    /// [`Cancelled`] if the fiber was cancelled, before or during the wait; it has
    /// left the group all the same.
    #[track_caller]
    pub fn wait_or_cancelled(self) -> Result<(), Cancelled> {
        point::check()?;
        let spec = WaitSpec::new(WaitReason::WaitGroup, Location::caller());
        wait_by(&self.leave(), &spec.cancellable()).map_err(|_| Cancelled)
    }

    /// As [`wait`](Self::wait), in async code, under any executor.
    ///
    /// It leaves the group at once, not with the first poll.
    ///
    /// ```
    /// sinew::run(|| {
    ///     let group = sinew::sync::WaitGroup::new();
    ///     let other = group.clone();
    ///     let all_done = group.wait_async();
    ///     sinew::spawn(move || drop(other));
    ///     sinew::block_on(all_done);
    /// });
    /// ```
    pub fn wait_async(self) -> impl Future<Output = ()> + Send + 'static {
        Pending::new(GroupWait {
            node: Node::new(),
            group: self.leave(),
        })
    }

    fn wait_or_come_back(self, spec: &WaitSpec<'_>) -> Result<(), Self> {
        let group = self.leave();
        match wait_by(&group, spec) {
            Err(_) if group.join() => Err(Self { group }),
            _ => Ok(()),
        }
    }

    /// Ends the membership; the group's memory stays.
    fn leave(self) -> Arc<Group> {
        let this = ManuallyDrop::new(self);
        // SAFETY: read once, and `this` is never dropped.
        let group = unsafe { std::ptr::read(&this.group) };
        group.leave();
        group
    }
}

fn wait_by(group: &Group, spec: &WaitSpec<'_>) -> Result<(), WaitOutcome> {
    if group.is_done() {
        return Ok(());
    }
    let wait = GroupWait {
        node: Node::new(),
        group,
    };
    perform(&wait, spec)
}

impl Group {
    fn is_done(&self) -> bool {
        // Acquire: what the members did before they left; pairs with the Release
        // in `leave`, of each of them, for they are all read-modify-writes.
        self.word.load(Ordering::Acquire) < MEMBER
    }

    fn leave(&self) {
        // Release: pairs with the Acquire in `is_done` and `enlist`. Acquire: the
        // last one speaks for all to those in line.
        let before = self.word.fetch_sub(MEMBER, Ordering::AcqRel);
        if before == MEMBER | WAITERS {
            self.release();
        }
    }

    #[cold]
    fn release(&self) {
        let mut wakes = Wakes::new();
        self.line.lock().claim_all(&mut wakes);
        wakes.fire();
    }

    /// Comes back into the group, unless it has no members any more.
    fn join(&self) -> bool {
        // Acquire, here and below: as in `is_done`, if it is done.
        let mut now = self.word.load(Ordering::Acquire);
        while now >= MEMBER {
            // Release: keeps the edges from those who left before us.
            match self.word.compare_exchange_weak(
                now,
                now + MEMBER,
                Ordering::Release,
                Ordering::Acquire,
            ) {
                Ok(_) => return true,
                Err(seen) => now = seen,
            }
        }
        false
    }
}

impl Clone for WaitGroup {
    fn clone(&self) -> Self {
        let group = self.group.clone();
        // Relaxed: we are a member, so it is not done and nobody looks for more.
        group.word.fetch_add(MEMBER, Ordering::Relaxed);
        Self { group }
    }
}

impl Drop for WaitGroup {
    fn drop(&mut self) {
        self.group.leave();
    }
}

impl Default for WaitGroup {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for WaitGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: a number that may be old when it is read.
        let count = self.group.word.load(Ordering::Relaxed) / MEMBER;
        f.debug_struct("WaitGroup").field("count", &count).finish()
    }
}

/// One wait for a group's end.
struct GroupWait<G: Deref<Target = Group>> {
    node: Node,
    group: G,
}

// SAFETY: the one node is linked only into the group's line, whose lock `release`
// has while it claims, and `delist` takes.
unsafe impl<G: Deref<Target = Group>> Operation for GroupWait<G> {
    type Output = ();

    fn attempt(&self) -> Option<()> {
        self.group.is_done().then_some(())
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<()> {
        // Through `group`, for the guard may not outlive the answer.
        let group = &*self.group;
        let mut line = group.line.lock();
        // A group is waited for alone, not in a select, so that nobody can have
        // claimed the waiter. Acquire: as in `is_done`.
        if group.word.fetch_or(WAITERS, Ordering::Acquire) < MEMBER {
            return Enlisted::Done(());
        }
        self.node.belongs_to(waiter, place);
        // SAFETY: the caller's promise.
        unsafe { line.push_back(&self.node) };
        Enlisted::Linked
    }

    fn delist(&self) -> bool {
        // WAITERS may stay: it costs one look at an empty line, once.
        // SAFETY: linked only by `enlist`, into this list.
        unsafe { self.group.line.lock().remove(&self.node) }
    }

    fn accept(&self) -> Option<()> {
        Some(())
    }

    fn pass_on(&self) {} // all were woken: there is nothing to pass on
}
