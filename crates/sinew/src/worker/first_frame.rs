//! The root of every fiber's stack.
//!
//! Runs the closure, drops the fiber's locals, publishes the outcome, wakes who waits
//! for it: all on the fiber's own stack, because each of these may call user code (the
//! closure, drops, a task's waker). The last thing is to tell the scope that it is a
//! child of, which may be gone after that. What remains, reusing
//! the stack and the block, is the worker's, after the last switch.

use crate::fiber::cancel::{Cause, Descent, descent};
use crate::fiber::locals::Locals;
use crate::fiber::{Begin, Block, Completed, Root, Suspender};
use crate::wait::children;
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
    let root = Root::new(block);
    fiber.set_root(&root);
    // SAFETY: counted when it was spawned, once; ended below.
    let orphaned = unsafe { children::begin(block, &root) };
    if orphaned {
        descent::cancel_fiber(fiber);
    }
    let begin = if fiber.state().load().cancelled() && !fiber.kind().always_runs {
        // SAFETY: the fiber's own.
        unsafe { Cause::Root(block).observe() };
        Begin::DropUnrun
    } else {
        Begin::Run
    };
    // SAFETY: it was claimed once and the slot still holds the closure.
    unsafe { run_to_completion(fiber, begin, root.locals()) };
    root.leave(fiber);
    // SAFETY: begun above. After this nothing that the fiber borrowed is used.
    unsafe { children::end(&root) };
}

/// Runs what the slot holds, publishes the outcome, and wakes who waits.
///
/// # Safety
///
/// The caller claimed the fiber's start; the slot holds the closure.
pub(crate) unsafe fn run_to_completion(fiber: &Block, begin: Begin, locals: &Locals) {
    // SAFETY: the slot holds the closure, and is ours.
    unsafe { (fiber.table().begin)(fiber.slot(), begin) };
    locals.drop_all();
    // SAFETY: the outcome was just stored.
    unsafe { publish_outcome(fiber, locals) };
}

/// Publishes the outcome that was stored in the slot, and wakes who waits.
///
/// # Safety
///
/// The slot holds the outcome, and the caller owns the run.
pub(crate) unsafe fn publish_outcome(fiber: &Block, locals: &Locals) {
    if fiber.state().load().hangs() {
        tell_token(fiber);
    }
    // SAFETY: the caller's promise.
    unsafe { publish_and_wake(fiber, locals) };
    locals.drop_all(); // what a waker has made
    // After it has completed: who hangs a token on it from now on sees that.
    if fiber.state().load().hangs() {
        tell_token(fiber);
        if let Some(hook) = fiber.take_hook() {
            hook.detach();
        }
    }
}

/// If the fiber was cancelled, and ends before who did that comes to its token: then the
/// token is told here, for it does not stand for the fiber any more after this.
#[cold]
fn tell_token(fiber: &Block) {
    if !fiber.state().load().cancelled() {
        return;
    }
    if let Some(hook) = fiber.hook() {
        // SAFETY: the fiber's own root, or none.
        let reason = fiber.reason(unsafe { fiber.root().as_ref() });
        let mut descent = Descent::new();
        descent.cancel_hook(hook, reason);
        descent.run();
    }
}

/// # Safety
///
/// As for [`publish_outcome`].
unsafe fn publish_and_wake(fiber: &Block, locals: &Locals) {
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
            locals.drop_all(); // what that drop has made
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
