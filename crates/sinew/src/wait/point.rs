//! What a cancellation point does before anything else.
//!
//! It looks, even if what it is about to do is ready: from the request on every
//! point answers `Cancelled`. Each such answer also yields, so that a loop that
//! ignores it freezes nobody.

use crate::error::Cancelled;
use crate::fiber::Intent;
use crate::sched::switch;

/// Whether the running fiber was cancelled; false on a plain thread.
#[inline]
pub(crate) fn is_cancelled() -> bool {
    // SAFETY: the running fiber is alive.
    switch::running().is_some_and(|block| unsafe { block.as_ref() }.state().look())
}

/// The check on entry.
#[inline]
pub(crate) fn check() -> Result<(), Cancelled> {
    if is_cancelled() {
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
