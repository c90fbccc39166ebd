//! Polling is harmless: a fiber that tries again and again lets others run.
//!
//! Code that was written for threads may wait by trying in a loop: `try_recv` until
//! there is something, `try_lock` until it is free. The kernel takes such a thread
//! off its CPU in the end; a fiber would keep its worker for ever, and the fiber
//! that it polls for may be pinned to that very worker. So each failing try counts
//! in its fiber, and every [`EVERY`]th since the fiber was last resumed yields.
//!
//! This is the one place for the rule. The public functions call [`failed`] where
//! they have failed; what the library itself tries does not count.
//!
//! It is a courtesy, so it never panics and never forces anything: where a fiber may
//! not suspend (`no_suspend`, a forked child), while it unwinds, in the `poll` of a
//! task that it drives (tasks wait by `Pending` alone), on a plain thread (also one
//! that destroys its locals) and in a model it does nothing.

use super::{current, switch};
use crate::fiber::{Block, Intent};
use crate::primitive::MODELLED;
use crate::sys::process;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// How many failing tries in one turn of a fiber there are to a yield.
pub(crate) const EVERY: u8 = 64;

/// Counts a failing `try_` call of the running fiber; see the module header.
#[cold]
#[inline(never)]
pub(crate) fn failed() {
    if MODELLED {
        return;
    }
    let Some(block) = switch::running() else {
        return;
    };
    // SAFETY: the running fiber is alive.
    let fiber = unsafe { block.as_ref() };
    // SAFETY: a fiber runs here, so this thread has a live core; the borrow ends
    // before we switch.
    let counters = &unsafe { &*current::core() }.remote().counters;
    // Relaxed: this thread's own counter; its lowest bits.
    let turn = counters.switches.load(Ordering::Relaxed) as u8;
    if !fiber.polls().count(turn, EVERY) {
        return;
    }
    if fiber.no_suspend().get() > 0 || std::thread::panicking() || process::is_forked() {
        return;
    }
    // SAFETY: it runs here and may wait. Our callers are public functions, on the
    // way back to user code: they hold nothing of the runtime's.
    unsafe { switch::leave(block, Intent::Yield) };
}

/// The same for a try that says whether it succeeded; returns that.
#[inline]
pub(crate) fn tried(succeeded: bool) -> bool {
    if !succeeded {
        failed();
    }
    succeeded
}

/// The same for a try that is a `Result`.
#[inline]
pub(crate) fn tried_ok<T, E>(result: Result<T, E>) -> Result<T, E> {
    tried(result.is_ok());
    result
}

/// Runs `poll`, the `poll` of a task, in which no try of `fiber` yields.
///
/// If a coroutine of another library is suspended in there, and another fiber resumes it, it
/// still counts for this one until it has ended.
///
/// # Safety
///
/// `fiber` is the running fiber, none on a plain thread. The caller has a reference to its
/// block until this returns or unwinds.
pub(crate) unsafe fn in_task<T>(fiber: Option<NonNull<Block>>, poll: impl FnOnce() -> T) -> T {
    /// Also when `poll` unwinds.
    struct Leave(NonNull<Block>);
    impl Drop for Leave {
        fn drop(&mut self) {
            // SAFETY: the caller's reference keeps the block, and in it this fiber, though
            // that may have ended. We are on its thread, which a coroutine does not leave.
            unsafe { self.0.as_ref() }.polls().leave_task();
        }
    }
    // SAFETY: the running fiber is alive.
    let counted = fiber.filter(|block| unsafe { block.as_ref() }.polls().enter_task());
    let _leave = counted.map(Leave);
    poll()
}
