//! The root of every fiber's stack.
//!
//! Runs the closure, publishes the outcome, wakes who waits for it: all on the
//! fiber's own stack, because each of these may call user code (the closure,
//! the drop of an outcome nobody wants, a task's waker). What remains, reusing
//! the stack and the block, is the worker's, after the last switch.

use crate::fiber::{Begin, Block, Completed, Suspender};
use crate::wait::end::{wake_joiners, wake_list};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

/// # Safety
///
/// `block` was claimed for its start by the worker that runs this, on the
/// block's own new stack.
pub(crate) unsafe fn first_frame(block: NonNull<Block>, suspender: &Suspender) {
    // SAFETY: owned by this worker while it runs.
    let fiber = unsafe { block.as_ref() };
    fiber.set_suspender(suspender);
    let begin = if fiber.state().look() {
        Begin::DropUnrun
    } else {
        Begin::Run
    };
    // SAFETY: it was claimed once and the slot still holds the closure.
    unsafe { run_to_completion(fiber, begin) };
}

/// Runs what the slot holds, publishes the outcome, and wakes who waits.
///
/// # Safety
///
/// The caller claimed the fiber's start; the slot holds the closure.
pub(crate) unsafe fn run_to_completion(fiber: &Block, begin: Begin) {
    // SAFETY: the slot holds the closure, and is ours.
    unsafe { (fiber.table().begin)(fiber.slot(), begin) };
    // SAFETY: the outcome was just stored.
    unsafe { publish_outcome(fiber) };
}

/// Publishes the outcome that was stored in the slot, and wakes who waits.
///
/// # Safety
///
/// The slot holds the outcome, and the caller owns the run.
pub(crate) unsafe fn publish_outcome(fiber: &Block) {
    let audience = match fiber.state().complete() {
        Completed::ForHandle(audience) => audience,
        Completed::OutcomeIsOurs => {
            // SAFETY: no handle: the outcome is ours (state, invariant 4).
            let dropped = catch_unwind(AssertUnwindSafe(|| unsafe {
                (fiber.table().drop_outcome)(fiber.slot());
            }));
            // A panic in the drop of a value nobody asked for ends here, as a
            // panic in a detached fiber's body does; the hook has told of it.
            // Its payload may itself panic when dropped: leak it instead.
            if let Err(payload) = dropped {
                std::mem::forget(payload);
            }
            fiber.state().complete_empty()
        }
    };
    if !audience.list {
        // Only a fiber or thread, if any: no user code.
        return wake_joiners(fiber, audience);
    }
    let woken = catch_unwind(AssertUnwindSafe(|| wake_joiners(fiber, audience)));
    let mut panicked = woken.err();
    while let Some(payload) = panicked {
        // A foreign waker panicked: the others must still be woken.
        std::mem::forget(payload);
        panicked = catch_unwind(AssertUnwindSafe(|| wake_list(fiber))).err();
    }
}
