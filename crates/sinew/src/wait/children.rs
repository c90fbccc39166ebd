//! Waiting for the children of a scope.
//!
//! A nest (`fiber::cancel::nest`) counts its children under its lock as they end.
//! Its owner looks at the count under the same lock, and if there are some leaves its
//! waiter there; the last child settles that wait. No deadline and no cancellation
//! ends it: what the children borrow is outward of the owner's frame.
//!
//! A child says that it ended as the last thing it does, under the lock; after it has
//! given the lock back it touches nothing of the nest any more. If the owner waits it
//! is then notified, through its block or proxy, which it does not leave before.

use super::spec::WaitSpec;
use super::waiter::{Waiter, wait};
use crate::fiber::cancel::{ChildPlace, Nest, Owner};
use crate::fiber::users::left_out_of_order;
use crate::fiber::{Block, Root, WaitReason};
use crate::sched::switch;
use std::panic::Location;
use std::ptr::{self, NonNull};

/// A fiber begins; true if it is the child of a nest that is cancelled.
///
/// # Safety
///
/// `block` is the running fiber, `root` its root; if it is a child it was counted, and
/// [`end`] is called.
pub(crate) unsafe fn begin(block: NonNull<Block>, root: &Root) -> bool {
    root.parent().is_some_and(|nest| {
        // SAFETY: the caller's promise; a nest outlives its children.
        let (place, cancelled) = unsafe { nest.as_ref().begin_child(block) };
        root.place().set(Some(place));
        cancelled
    })
}

/// A fiber ends: tells its nest, if it is the child of one.
///
/// # Safety
///
/// [`begin`] was called with this root; nothing of what the nest outlives is used
/// afterwards.
pub(crate) unsafe fn end(root: &Root) {
    if let Some(nest) = root.parent() {
        // SAFETY: the caller's promise.
        unsafe { end_counted(nest.as_ref(), root.place().get()) };
    }
}

/// The same for a fiber that never began, and never will.
///
/// # Safety
///
/// It was counted, if it is to be a child, and its closure is not touched any more.
pub(crate) unsafe fn end_unbegun(fiber: &Block) {
    if let Some(nest) = fiber.future_parent() {
        // SAFETY: the caller's promise.
        unsafe { end_counted(nest.as_ref(), None) };
    }
}

/// # Safety
///
/// As for [`Nest::end_child`].
unsafe fn end_counted(nest: &Nest, place: Option<ChildPlace>) {
    // SAFETY: the caller's promise.
    let wakeup = unsafe {
        nest.end_child(place, |inner| {
            let waiter = std::mem::replace(&mut inner.waiter, ptr::null());
            // SAFETY: left there by `wait_for_all`, which does not return before the
            // notification that follows.
            waiter.cast::<Waiter>().as_ref().map(Waiter::settle)
        })
    };
    if let Some(wakeup) = wakeup {
        wakeup.fire(); // a fiber or a thread: no user code
    }
}

/// Waits until the last child of `nest` has ended; its owner calls this, when nobody
/// but a child can spawn another.
///
/// The scope was entered where waiting is allowed. If it is not any more, the body has left
/// a coroutine of another library suspended inside of `no_suspend`: aborts.
pub(crate) fn wait_for_all(nest: &Nest, at: &'static Location<'static>) {
    if nest.is_empty_or_tells(ptr::null()) {
        return;
    }
    if !switch::may_wait() {
        left_out_of_order();
    }
    let waiter = Waiter::for_current();
    if !nest.is_empty_or_tells(ptr::from_ref(&waiter).cast()) {
        let spec = WaitSpec::new(WaitReason::Scope, at);
        wait(&waiter, &spec); // does not unwind: the last child uses our frame
    }
}

/// Links `nest` as the innermost of the running fiber or thread, whose it is.
pub(crate) fn link(nest: &Nest) {
    match nest.frame().owner() {
        Owner::Fiber(block) => {
            // SAFETY: the running fiber is alive, and has a root.
            let (fiber, root) = unsafe { (block.as_ref(), &*block.as_ref().root()) };
            let _lock = fiber.joiners().lock();
            nest.link(root.nests());
            fiber.state().hang();
        }
        Owner::Thread(proxy) => {
            // SAFETY: this thread's own.
            nest.link(unsafe { proxy.as_ref() }.nests().lock().cell());
        }
    }
}

/// Unlinks it again.
pub(crate) fn unlink(nest: &Nest) {
    match nest.frame().owner() {
        Owner::Fiber(block) => {
            // SAFETY: as in `link`.
            let (fiber, root) = unsafe { (block.as_ref(), &*block.as_ref().root()) };
            let _lock = fiber.joiners().lock();
            nest.unlink(root.nests());
        }
        Owner::Thread(proxy) => {
            // SAFETY: as in `link`.
            nest.unlink(unsafe { proxy.as_ref() }.nests().lock().cell());
        }
    }
}
