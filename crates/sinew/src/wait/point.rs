//! What a cancellation point does before anything else.
//!
//! It looks, even if what it is about to do is ready: from the request on every
//! point answers `Cancelled`. Each such answer also yields, so that a loop that
//! ignores it freezes nobody.

use crate::error::Cancelled;
use crate::fiber::{Block, Intent};
use crate::sched::switch;
use std::ptr::NonNull;

/// Whether the running fiber was cancelled; false on a plain thread.
#[inline]
pub(crate) fn is_cancelled() -> bool {
    must_look(switch::running())
}

#[inline]
fn must_look(running: Option<NonNull<Block>>) -> bool {
    // SAFETY: the running fiber is alive.
    running.is_some_and(|block| unsafe { block.as_ref() }.state().look())
}

/// The check on entry.
#[inline]
pub(crate) fn check() -> Result<(), Cancelled> {
    check_for(switch::running())
}

/// The same for who has asked [`switch::running`] already.
#[inline]
pub(crate) fn check_for(running: Option<NonNull<Block>>) -> Result<(), Cancelled> {
    if must_look(running) {
        return told();
    }
    Ok(())
}

#[cold]
fn told() -> Result<(), Cancelled> {
    if let Some(block) = switch::running().filter(|_| switch::may_wait()) {
        // SAFETY: it runs here, may wait, and we hold nothing of the runtime's.
        unsafe { switch::leave(block, Intent::Yield) };
    }
    Err(Cancelled)
}
