//! Waiting for a fiber's end.
//!
//! Any number of waiters of any kind stand in a list in the fiber's block. The
//! bit `WAITERS` and the bit `COMPLETE` are in one word: a waiter announces
//! itself there, under the list's lock, before it links itself; the fiber
//! completes there and looks at the list only if somebody was announced. So
//! either the waiter sees that it is too late, or the fiber sees the waiter.
//!
//! One waiter needs no list: the owner of the handle, of whom there is one. If
//! it waits without a deadline (and `join` is no cancellation point) nobody but
//! the completing fiber can end its wait, so it leaves its waiter in the block
//! and a bit in the word, and is woken by the fiber: no lock, and no claim to
//! race for. This is `join`; through the list it took 147 instead of 120 ns.

use super::lend;
use super::node::Node;
use super::operation::{Enlisted, Operation};
use super::outcome::WaitOutcome;
use super::spec::{OnCancel, WaitSpec};
use super::waiter::{Waiter, wait};
use crate::fiber::{Audience, Block};
use std::pin::pin;
use std::ptr::NonNull;
use std::task::{Context, Poll};

/// Links `node` into the list of `target`; false if that has completed.
///
/// # Safety
///
/// The node belongs to a waiter; both stay where they are until it is unlinked,
/// by a waker or by [`unlink`].
pub(crate) unsafe fn link(target: &Block, node: &Node) -> bool {
    let mut joiners = target.joiners().lock();
    if target.state().announce_waiter() {
        return false;
    }
    // SAFETY: the caller's promise; in no list yet.
    unsafe { joiners.push_back(NonNull::from(node).cast()) };
    true
}

/// Takes `node` out of the list; false if it was in it no more.
pub(crate) fn unlink(target: &Block, node: &Node) -> bool {
    let mut joiners = target.joiners().lock();
    let linked = node.is_linked();
    if linked {
        // SAFETY: linked by `link` into this very list.
        unsafe { joiners.remove(NonNull::from(node).cast()) };
    }
    linked
}

/// Waits until `target` has completed.
pub(crate) fn wait_for_end(target: &Block, spec: &WaitSpec<'_>) -> WaitOutcome {
    if target.state().load().complete() {
        return WaitOutcome::Woken;
    }
    let waiter = Waiter::for_current();
    let node = pin!(Node::new());
    node.belongs_to(&waiter, 0);
    // SAFETY: both are in this frame; `wait` returns after a claim, or after
    // `leave` has unlinked it.
    if !unsafe { link(target, &node) } {
        return WaitOutcome::Woken;
    }
    let leave = || unlink(target, &node);
    let spec = &WaitSpec {
        leave: Some(&leave),
        ..*spec
    };
    let outcome = wait(&waiter, spec);
    if outcome != WaitOutcome::Woken && spec.lend.is_some() {
        lend::take_back(target);
    }
    outcome
}

/// One wait for the end of a fiber, as an arm of a select.
#[repr(C)]
pub(crate) struct EndWait<'a> {
    node: Node,
    target: &'a Block,
}

impl<'a> EndWait<'a> {
    pub(crate) fn new(target: &'a Block) -> Self {
        Self {
            node: Node::new(),
            target,
        }
    }
}

// SAFETY: the one node is linked only into the list of the fiber, whose lock
// `wake_list` holds while it claims, and `delist` takes.
unsafe impl Operation for EndWait<'_> {
    type Output = ();

    fn attempt(&self) -> Option<()> {
        self.target.state().load().complete().then_some(())
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<()> {
        self.node.belongs_to(waiter, place);
        // SAFETY: the caller's promise.
        if unsafe { link(self.target, &self.node) } {
            Enlisted::Linked
        } else if waiter.take_oneself(place) {
            Enlisted::Done(())
        } else {
            Enlisted::Lost
        }
    }

    fn delist(&self) -> bool {
        unlink(self.target, &self.node)
    }

    fn accept(&self) -> Option<()> {
        Some(())
    }

    fn pass_on(&self) {} // all are told
}

/// Waits until `target` has completed, without a lock, deadline or
/// cancellation.
///
/// # Safety
///
/// The caller has the handle of `target`, and with it the place for its owner.
pub(crate) unsafe fn wait_as_owner(target: &Block, spec: &WaitSpec<'_>) {
    debug_assert!(spec.deadline.is_none() && spec.token.is_none());
    debug_assert!(!matches!(spec.on_cancel, OnCancel::Answer));
    let waiter = Waiter::for_current();
    target
        .owner_waiter()
        .set(std::ptr::from_ref(&waiter).cast());
    if !target.state().announce_owner() {
        wait(&waiter, spec);
    }
}

/// A task's wait for the end of a fiber, made when it is first polled, and freed
/// by [`forget_task`].
///
/// A leaked box: one that moves, as the handle does, would claim that nobody
/// else has its address, but the list has.
pub(crate) struct TaskWaiter(NonNull<TaskWait>);

struct TaskWait {
    waiter: Waiter,
    node: Node,
}

impl TaskWaiter {
    fn get(&self) -> &TaskWait {
        // SAFETY: allocated until `forget_task` consumes `self`.
        unsafe { self.0.as_ref() }
    }
}

/// Looks whether `target` has completed, and asks to be told if not.
pub(crate) fn poll_end(
    target: &Block,
    slot: &mut Option<TaskWaiter>,
    context: &mut Context<'_>,
) -> Poll<()> {
    if target.state().load().complete() {
        forget_task(target, slot);
        return Poll::Ready(());
    }
    let Some(wait) = slot else {
        let wait = Box::new(TaskWait {
            waiter: Waiter::for_task(context.waker().clone()),
            node: Node::new(),
        });
        let wait = slot.insert(TaskWaiter(NonNull::from(Box::leak(wait))));
        let TaskWait { waiter, node } = wait.get();
        node.belongs_to(waiter, 0);
        // SAFETY: leaked, so both stay; `forget_task` unlinks it.
        if unsafe { link(target, node) } {
            return Poll::Pending;
        }
        forget_task(target, slot);
        return Poll::Ready(());
    };
    // Claimed, perhaps since we looked: COMPLETE was set before that.
    if wait.get().waiter.is_claimed_or_woken_by(context.waker()) {
        return Poll::Ready(());
    }
    Poll::Pending
}

/// Ends a task's wait: nobody will touch the waiter any more.
pub(crate) fn forget_task(target: &Block, slot: &mut Option<TaskWaiter>) {
    if let Some(wait) = slot.take() {
        unlink(target, &wait.get().node);
        // SAFETY: leaked by `poll_end`, and in no list any more: nobody else has
        // its address.
        drop(unsafe { Box::from_raw(wait.0.as_ptr()) });
    }
}

/// Wakes all who wait for the end of `target`, which has just completed.
///
/// Calls the wakers of async tasks, so it runs on the fiber's own stack.
pub(crate) fn wake_joiners(target: &Block, audience: Audience) {
    if audience.owner {
        let waiter = target.owner_waiter().get().cast::<Waiter>();
        // SAFETY: announced before the fiber completed, so the owner waits for
        // the one notification that follows, in the frame that holds the waiter.
        unsafe { &*waiter }.settle().fire();
    }
    if audience.list {
        wake_list(target);
    }
}

/// Wakes all in the list.
pub(crate) fn wake_list(target: &Block) {
    loop {
        let (wakeup, last) = {
            let mut joiners = target.joiners().lock();
            let Some(links) = joiners.pop_front() else {
                return;
            };
            // SAFETY: it was linked, so it is there; a fiber's or thread's
            // waiter that lost the claim to us waits for our notification, one
            // that won it waits for this lock to unlink itself.
            let wakeup = unsafe { links.cast::<Node>().as_ref().claim() };
            // Nobody enters any more: COMPLETE is set.
            (wakeup, joiners.is_empty())
        };
        if let Some(wakeup) = wakeup {
            wakeup.fire();
        }
        if last {
            return;
        }
    }
}
