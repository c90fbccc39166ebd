//! The one place where a fiber leaves its stack.
//!
//! ```text
//!   worker's stack          fiber's stack
//!   ──────────────          ─────────────
//!   resume(context) ──────► (first frame, or returns from `leave`)
//!                           …
//!                           leave(intent)
//!   intent? ◄────────────── suspend
//! ```
//!
//! The fiber only says what it intends; the worker acts on it *after* the
//! switch, when the context is saved (`fiber::state`, invariant 2). So a fiber
//! is never in a queue, and never woken onto another thread, while it is still
//! on its stack.
//!
//! Hooks run between the fiber's last statement and the switch ([`hooks`]). For
//! them a fiber that unwinds is like any other: they come after its panics were
//! taken off the thread's count, and before those are put back (`panics`).

use super::{current, hooks, panics};
use crate::fiber::{Block, Intent};
use crate::sys::process;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// The fiber that runs on this thread, if one does.
#[inline]
pub(crate) fn running() -> Option<NonNull<Block>> {
    let core = current::core();
    if core.is_null() {
        return None;
    }
    // SAFETY: a non-null core is this thread's and alive (core, invariant 2).
    NonNull::new(unsafe { &*core }.current.get().cast_mut())
}

/// The fiber that runs on this thread, if one does and it may wait.
///
/// Every wait asks this first, before anything of it can be seen by others: a
/// panic in the middle would free a waiter that others hold.
///
/// # Panics
///
/// Where waiting is not allowed: inside `no_suspend`, and in a forked child.
#[inline]
pub(crate) fn about_to_wait() -> Option<NonNull<Block>> {
    checked(running())
}

/// The same for who has asked [`running`] already.
///
/// # Panics
///
/// As [`about_to_wait`].
#[inline]
pub(crate) fn checked(running: Option<NonNull<Block>>) -> Option<NonNull<Block>> {
    process::assert_not_forked();
    let block = running?;
    // SAFETY: the running fiber is alive.
    if unsafe { block.as_ref() }.no_suspend().get() > 0 {
        refuse();
    }
    Some(block)
}

/// Whether a wait is allowed here; see [`about_to_wait`].
#[inline]
pub(crate) fn may_wait() -> bool {
    // SAFETY: the running fiber is alive.
    running().is_none_or(|block| unsafe { block.as_ref() }.no_suspend().get() == 0)
}

/// Leaves the stack of the running fiber until it is resumed, perhaps on
/// another thread if it is migratable. Never unwinds.
///
/// # Safety
///
/// `block` is the fiber that runs on this thread, as [`about_to_wait`] has said. The caller holds no lock of the runtime and no reference into a
/// core or a thread-local.
// Always inlined: a CPU predicts where a `ret` goes by the calls before it, and
// a switch by corosensei is a `call` on the worker's side and a `ret` on the
// fiber's. A function that is entered before the switch and left after it makes
// both its own return and the switch's a misprediction: 42 instead of 22 ns for
// a yield.
#[inline(always)]
pub(crate) unsafe fn leave(block: NonNull<Block>, intent: Intent) {
    // SAFETY: the running fiber is owned by its worker, hence alive.
    let fiber = unsafe { block.as_ref() };
    if std::thread::panicking() {
        panics::lower(fiber);
    }
    hooks::suspend(fiber);
    let frame = MaybeUninit::<u8>::uninit();
    fiber.set_rests_at(frame.as_ptr().cast());
    // SAFETY: the suspender of a running fiber points to the root of its own
    // stack (set by the first frame), which is where we are.
    unsafe { (*fiber.suspender()).suspend(intent) };
    hooks::resume(fiber);
    if fiber.panics().get() > 0 {
        panics::restore(fiber);
    }
}

/// Lets others run if the monitor asks for it, and the fiber may wait.
#[inline]
pub(crate) fn safepoint() {
    if current::preempt_requested() {
        yield_if_allowed();
    }
}

#[cold]
#[inline(never)]
fn yield_if_allowed() {
    if let Some(block) = running() {
        // SAFETY: the running fiber is alive.
        let allowed = unsafe { block.as_ref() }.no_suspend().get() == 0;
        // A forked child has no worker to go to; nothing here has to wait, so it goes on.
        if allowed && !process::is_forked() {
            // SAFETY: it runs here, may wait, and we hold nothing of the
            // runtime's.
            unsafe { leave(block, Intent::Safepoint) };
        }
    }
}

#[cold]
#[inline(never)]
fn refuse() -> ! {
    panic!("a fiber tried to wait inside `no_suspend`");
}
