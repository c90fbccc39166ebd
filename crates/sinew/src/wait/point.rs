//! What a cancellation point does before anything else, and what a wait does when
//! it is told to look at its frames.
//!
//! A point looks, even if what it is about to do is ready: from the request on every
//! point answers `Cancelled`. Each such answer also yields, so that a loop that
//! ignores it freezes nobody. On a fiber the look is one load, of the bit LOOK; only
//! if that is set it walks over its frames (`fiber::cancel`). On a thread it walks if
//! there are any.
//!
//! Deadlines of frames are found here, too: the timer of a `timeout` only tells its
//! fiber to look, and the monitor does so for one that has run for long; who looks
//! reads the clock, and marks the frames whose time is over.

use super::deadline;
use crate::error::Cancelled;
use crate::fiber::cancel::frame::{Outward, Step};
use crate::fiber::cancel::{Cause, Descent, Errands, Owner};
use crate::fiber::{Block, CancelReason, Intent, ThreadProxy};
use crate::sched::{current, switch};
use crate::sys::log::log;
use std::ptr::NonNull;
use std::sync::Arc;

/// How often a fiber is told that it was cancelled before that is reported.
const PATIENCE: u32 = 1000;

/// Whether the running fiber or thread is cancelled. No point, but who asks was
/// told so, too.
#[inline]
pub(crate) fn is_cancelled() -> bool {
    let running = switch::running();
    may_be_cancelled(running) && cause_seen(running).is_some()
}

/// Whether it is worth a walk.
#[inline]
pub(super) fn may_be_cancelled(running: Option<NonNull<Block>>) -> bool {
    match running {
        // SAFETY: the running fiber is alive.
        Some(block) => unsafe { block.as_ref() }.state().look(),
        None => !current::frames().is_null(),
    }
}

/// The check on entry.
#[inline]
pub(crate) fn check() -> Result<(), Cancelled> {
    check_for(switch::running())
}

/// The same for who has asked [`switch::running`] already.
#[inline]
pub(crate) fn check_for(running: Option<NonNull<Block>>) -> Result<(), Cancelled> {
    if may_be_cancelled(running) {
        return check_slow(running);
    }
    Ok(())
}

#[cold]
fn check_slow(running: Option<NonNull<Block>>) -> Result<(), Cancelled> {
    if cause_seen(running).is_none() {
        return Ok(());
    }
    match running {
        // SAFETY: it runs here.
        Some(block) => unsafe { tell(block) },
        None => std::thread::yield_now(),
    }
    Err(Cancelled)
}

/// Counts that the fiber was told, and yields.
///
/// # Safety
///
/// It runs here.
unsafe fn tell(block: NonNull<Block>) {
    // SAFETY: the running fiber is alive, and has a root.
    let fiber = unsafe { block.as_ref() };
    // SAFETY: as above.
    if unsafe { &*fiber.root() }.count_told() == PATIENCE {
        report_deaf(fiber);
    }
    if switch::may_wait() {
        // SAFETY: it runs here, may wait, and we hold nothing of the runtime's.
        unsafe { switch::leave(block, Intent::Yield) };
    }
}

#[cold]
fn report_deaf(fiber: &Block) {
    // SAFETY: the running fiber's extras are there.
    let name = unsafe { fiber.extras().as_ref() }.and_then(|extras| extras.name.as_deref());
    let spawned = fiber
        .spawned_at()
        .map_or_else(String::new, |at| format!(", spawned at {at}"));
    let id = crate::fiber::FiberId::new(fiber.id());
    log(&format!(
        "fiber {} was told {PATIENCE} times that it is cancelled, and goes on{spawned}; does a \
         loop ignore `Err(Cancelled)`?",
        id.with_name(name),
    ));
}

/// By what the running fiber or thread is cancelled; the frame is told that this was
/// seen.
#[cold]
pub(crate) fn cause_seen(running: Option<NonNull<Block>>) -> Option<Cause> {
    let cause = cause(running);
    if let Some(cause) = cause {
        // SAFETY: our own frames are linked.
        unsafe { cause.observe() };
    }
    cause
}

/// By what the running fiber or thread is cancelled. Calls wakers: not in a wait.
#[cold]
pub(super) fn cause(running: Option<NonNull<Block>>) -> Option<Cause> {
    let mut errands = Errands::new();
    let cause = cause_in_wait(running, &mut errands);
    errands.run();
    cause
}

/// The same, but for the wakers.
///
/// Who made the request is perhaps still on its way down. So that nobody is told before
/// those below are (a scope that one is in says the same as a point in it, and has the
/// reason), who finds a cause goes down itself.
#[cold]
pub(super) fn cause_in_wait(
    running: Option<NonNull<Block>>,
    errands: &mut Errands,
) -> Option<Cause> {
    let Some(block) = running else {
        return with_thread(|owner| {
            expire(owner, errands);
            let cause = walk(owner).cause()?;
            // SAFETY: it is the caller.
            unsafe { Descent::of(owner) }.run_into(errands);
            Some(cause)
        });
    };
    let owner = Owner::Fiber(block);
    expire(owner, errands);
    let mut cause = walk(owner).cause();
    if cause.is_none() {
        // SAFETY: the running fiber is alive.
        let state = unsafe { block.as_ref() }.state();
        state.stop_looking();
        cause = walk(owner).cause();
        if cause.is_some() {
            state.look_soon(); // it came in between
        }
    }
    if cause.is_some() {
        // SAFETY: it is the caller.
        unsafe { Descent::of(owner) }.run_into(errands);
    }
    cause
}

/// Why the running fiber or thread is cancelled.
pub(crate) fn reason() -> Option<CancelReason> {
    let running = switch::running();
    if !may_be_cancelled(running) {
        return None;
    }
    // SAFETY: our own frames are linked, and a fiber that asks has not ended; one
    // that waits for this thread does neither.
    cause_seen(running).map(|cause| unsafe { cause.reason() })
}

/// The frames of the calling fiber or thread, from the innermost outward.
fn walk(owner: Owner) -> Outward {
    let innermost = match owner {
        // SAFETY: it runs here.
        Owner::Fiber(block) => unsafe { block.as_ref().frames() },
        Owner::Thread(_) => current::frames(),
    };
    // SAFETY: our own, so they stay as they are while we walk.
    unsafe { Outward::from(innermost, owner) }
}

/// Calls `f` with this thread as the owner of its frames.
fn with_thread<T>(f: impl FnOnce(Owner) -> T) -> T {
    let proxy: Arc<ThreadProxy> = current::proxy();
    f(Owner::of_thread(&proxy))
}

/// Marks our own frames whose time is over, and cancels what is inside of them.
fn expire(owner: Owner, errands: &mut Errands) {
    let Some(earliest) = walk(owner).deadline() else {
        return;
    };
    let now = deadline::now();
    if earliest > now {
        return;
    }
    let mut tokens = Vec::new();
    let mut frames = walk(owner);
    while let Some(Step::Frame(frame)) = frames.next() {
        if frame.owner() != owner {
            break; // another's, who waits for us
        }
        tokens.extend(frame.expire(now));
    }
    if let Owner::Thread(proxy) = owner {
        // A `park` returns once; on a fiber the timer has seen to that.
        // SAFETY: the calling thread's own.
        unsafe { proxy.as_ref() }.unpark();
    }
    // SAFETY: it is the caller.
    let mut descent = unsafe { Descent::of(owner) };
    for token in tokens {
        descent.cancel_hook(token, CancelReason::Deadline);
    }
    descent.run_into(errands);
}

/// When the first of this thread's frames reaches its deadline.
pub(super) fn thread_deadline() -> Option<u64> {
    if current::frames().is_null() {
        return None;
    }
    with_thread(|owner| walk(owner).deadline())
}

/// Who runs here looks at its frames at its next point: it has marked one itself.
pub(crate) fn look_soon() {
    if let Some(block) = switch::running() {
        // SAFETY: the running fiber is alive.
        unsafe { block.as_ref() }.state().look_soon();
    }
}
