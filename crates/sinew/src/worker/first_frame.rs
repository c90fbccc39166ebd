//! The root of every fiber's stack.
//!
//! Runs the closure, drops the fiber's locals, publishes the outcome, wakes who waits
//! for it: all on the fiber's own stack, because each of these may call user code (the
//! closure, drops, a task's waker, hooks). The last thing is to tell the scope that it is a
//! child of, which may be gone after that. What remains, reusing
//! the stack and the block, is the worker's, after the last switch.

use crate::error::Payload;
use crate::fiber::cancel::{Cause, Descent, descent};
use crate::fiber::locals::Locals;
use crate::fiber::{Begin, Block, Completed, FiberId, Root, Suspender};
use crate::sched::hooks;
use crate::sched::shared::Shared;
use crate::sched::switch;
use crate::sys::process;
use crate::wait::children;
use crate::wait::end::{wake_joiners, wake_list};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

/// Begins as `otherwise` says, unless the fiber was cancelled.
///
/// # Safety
///
/// `block` was claimed for its start by the worker that runs this, on the
/// block's own new stack.
pub(crate) unsafe fn first_frame(block: NonNull<Block>, suspender: &Suspender, otherwise: Begin) {
    // SAFETY: owned by this worker while it runs.
    let fiber = unsafe { block.as_ref() };
    fiber.set_suspender(suspender);
    let root = Root::new(block);
    root.inherit();
    fiber.set_root(&root);
    hooks::resume(fiber);
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
        otherwise
    };
    // SAFETY: it was claimed once and the slot still holds the closure.
    unsafe { run_to_completion(fiber, begin, root.locals(), || ()) };
    // The hooks' state may be in its locals, which are at its root.
    if hooks::end(fiber, root.locals()) {
        note_panic(fiber, LOCAL_PANICKED);
    }
    root.leave(fiber);
    // SAFETY: begun above. After this nothing that the fiber borrowed is used.
    unsafe { children::end(&root) };
}

/// Runs what the slot holds, publishes the outcome, and wakes who waits. Calls `ran` before
/// anybody hears of the outcome.
///
/// # Safety
///
/// The caller claimed the fiber's start; the slot holds the closure.
pub(crate) unsafe fn run_to_completion(
    fiber: &Block,
    begin: Begin,
    locals: &Locals,
    ran: impl FnOnce(),
) {
    // SAFETY: the slot holds the closure, and is ours.
    let panicked = unsafe { (fiber.table().begin)(fiber.slot(), begin) };
    // Before anything that other threads have a share in.
    process::stop_forked_thread();
    ran();
    // No frame of its own is inside of `no_suspend` any more, but one of a coroutine may be.
    fiber.no_suspend().set(0);
    if panicked {
        // SAFETY: the outcome was just stored, and is ours.
        unsafe { watch_panic(fiber) };
    }
    drop_locals(fiber, locals);
    // SAFETY: the outcome was just stored.
    unsafe { publish_outcome(fiber, locals) };
}

/// Has a test that runs the fiber hear of its panic if nobody takes it. A scope sees to its
/// children's ([`watch_caught`]).
///
/// # Safety
///
/// The slot holds the outcome, and the caller owns the run.
#[cold]
unsafe fn watch_panic(fiber: &Block) {
    // SAFETY: a fiber's runtime outlives it (`worker::shutdown`, invariant "homes").
    let shared = unsafe { &*fiber.runtime().cast::<Shared>() };
    let Some(unobserved) = &shared.settings.unobserved else {
        return;
    };
    // SAFETY: the fiber's own root, or none.
    let root = unsafe { fiber.root().as_ref() };
    if root.is_some_and(|root| root.parent().is_some()) {
        return;
    }
    let named = called(fiber);
    // SAFETY: the caller's promise.
    unsafe {
        (fiber.table().watch_panic)(fiber.slot(), &mut |payload| {
            payload.watch(&named, unobserved.clone());
        });
    }
}

/// The same for a panic of the running fiber that a scope has caught.
#[cold]
pub(crate) fn watch_caught(payload: &mut Payload) {
    let Some(block) = switch::running() else {
        return;
    };
    // SAFETY: the running fiber is alive.
    let fiber = unsafe { block.as_ref() };
    // SAFETY: as in `watch_panic`.
    let shared = unsafe { &*fiber.runtime().cast::<Shared>() };
    if let Some(unobserved) = &shared.settings.unobserved {
        payload.watch(&called(fiber), unobserved.clone());
    }
}

/// How messages call a fiber that has not ended, and where it comes from.
pub(crate) fn called(fiber: &Block) -> String {
    // SAFETY: who calls this keeps the fiber, and so its extras.
    let name = unsafe { fiber.extras().as_ref() }.and_then(|extras| extras.name.as_deref());
    let spawned = fiber
        .spawned_at()
        .map_or_else(String::new, |at| format!(", spawned at {at}"));
    let id = FiberId::new(fiber.id());
    format!("fiber {}{spawned}", id.with_name(name))
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
    drop_locals(fiber, locals); // what a waker has made
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

const LOCAL_PANICKED: &str = "the drop of a fiber-local panicked";

/// Drops the fiber's locals: those that are there.
#[inline]
fn drop_locals(fiber: &Block, locals: &Locals) {
    if locals.drop_all() {
        note_panic(fiber, LOCAL_PANICKED);
    }
}

/// A test hears of a panic that no handle tells of.
#[cold]
fn note_panic(fiber: &Block, what: &str) {
    // SAFETY: as in `watch_panic`.
    let shared = unsafe { &*fiber.runtime().cast::<Shared>() };
    if let Some(unobserved) = &shared.settings.unobserved {
        unobserved.note(format!("{}: {what}", called(fiber)));
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
                note_panic(fiber, "its value panicked when dropped");
            }
            drop_locals(fiber, locals); // what that drop has made
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
