//! What a cancellation point does before anything else, and what a wait does when
//! it is told to look at its frames.
//!
//! A point looks, even if what it is about to do is ready: from the request on every
//! point answers `Cancelled`. Each such answer also yields, so that a loop that
//! ignores it freezes nobody. A fiber that was told so a thousand times is reported, and each
//! further answer makes it sleep, longer and longer: such a loop (an `accept` whose errors are
//! only logged) would otherwise use up a CPU until its runtime gives up. It sleeps by a wait of
//! its own that nothing but time ends, and that takes neither tokens nor notifications: those
//! are there when it goes on. On a fiber the look is one load, of the bit LOOK; only
//! if that is set it walks over its frames (`fiber::cancel`). On a thread it walks if
//! there are any.
//!
//! Deadlines of frames are found here, too: the timer of a `timeout` only tells its
//! fiber to look, and the monitor does so for one that has run for long; who looks
//! reads the clock, and marks the frames whose time is over.

use super::chain;
use super::deadline::{self, Deadline};
use super::spec::WaitSpec;
use super::waiter::{Waiter, wait};
use crate::error::Cancelled;
use crate::fiber::cancel::frame::{Outward, Step};
use crate::fiber::cancel::{Cause, Descent, Errands, Owner};
use crate::fiber::{Block, CancelReason, Intent, ThreadProxy, WaitReason};
use crate::sched::{current, switch};
use crate::sys::log::log;
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

/// How often a fiber is told that it was cancelled before that is reported, and the fiber is
/// slowed down.
const PATIENCE: u32 = 1000;
/// How long it sleeps at first, and at most (ns); doubled each time.
const FIRST_PAUSE: u64 = 100_000;
const LONGEST_PAUSE: u64 = 10_000_000;

/// Whether the running fiber or thread is cancelled. No point, but who asks was
/// told so, too.
#[inline]
pub(crate) fn is_cancelled() -> bool {
    let running = switch::running();
    may_be_cancelled(running) && cause_seen(running)
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
    if !cause_seen(running) {
        return Ok(());
    }
    match running {
        // SAFETY: it runs here.
        Some(block) => unsafe { tell(block) },
        None => std::thread::yield_now(),
    }
    Err(Cancelled)
}

/// The check of who has just yielded: it does not do so again.
pub(crate) fn check_after_yield() -> Result<(), Cancelled> {
    let running = switch::running();
    if !may_be_cancelled(running) || !cause_seen(running) {
        return Ok(());
    }
    if let Some(block) = running {
        // SAFETY: it runs here.
        unsafe { count(block) };
    }
    Err(Cancelled)
}

/// Counts that the fiber was told, and yields.
///
/// # Safety
///
/// It runs here.
unsafe fn tell(block: NonNull<Block>) {
    // SAFETY: the caller's promise.
    let slept = unsafe { count(block) };
    if !slept && switch::may_wait() {
        // SAFETY: it runs here, may wait, and we hold nothing of the runtime's.
        unsafe { switch::leave(block, Intent::Yield) };
    }
}

/// Counts that the fiber was told; true if it was slowed down because of that.
///
/// # Safety
///
/// It runs here.
unsafe fn count(block: NonNull<Block>) -> bool {
    // SAFETY: the running fiber is alive, and has a root.
    let fiber = unsafe { block.as_ref() };
    // SAFETY: as above.
    let told = unsafe { &*fiber.root() }.count_told();
    if told == PATIENCE {
        report_deaf(fiber);
    }
    let slow = told >= PATIENCE && switch::may_wait();
    if slow {
        slow_down(block, told - PATIENCE);
    }
    slow
}

/// Makes the running fiber sleep; no point, and no token is taken.
#[cold]
fn slow_down(block: NonNull<Block>, times_before: u32) {
    // SAFETY: the running fiber is alive.
    let fiber = unsafe { block.as_ref() };
    let pause = FIRST_PAUSE
        .saturating_mul(1 << times_before.min(16))
        .min(LONGEST_PAUSE);
    // Not a line of ours: where it waited last, or where it comes from.
    let at = fiber.waits_at().or_else(|| fiber.spawned_at());
    let at = at.unwrap_or_else(|| Location::caller());
    let spec =
        WaitSpec::new(WaitReason::Deaf, at).deadline(Deadline::after(Duration::from_nanos(pause)));
    wait(&Waiter::of(Some(block)), &spec);
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
         loop ignore `Err(Cancelled)`? From now on each answer makes it sleep for up to 10 ms",
        id.with_name(name),
    ));
}

/// Whether the running fiber or thread is cancelled; the frame is told that this was
/// seen.
#[cold]
pub(super) fn cause_seen(running: Option<NonNull<Block>>) -> bool {
    // SAFETY: `with_cause` promises that it is linked.
    with_cause(running, |cause| unsafe { cause.observe() }).is_some()
}

/// Calls `f` with that by which the running fiber or thread is cancelled, if it is. Calls
/// wakers: not in a wait.
///
/// The cause is good inside of `f` alone, where its frame is linked: a waker may resume a
/// coroutine that was suspended in a frame of ours, and that may end, with the frame. The
/// fiber itself does not end meanwhile, and is the one that runs here afterwards
/// ([`chain::stay`]).
#[cold]
pub(super) fn with_cause<T>(
    running: Option<NonNull<Block>>,
    f: impl FnOnce(Cause) -> T,
) -> Option<T> {
    let mut errands = Errands::new();
    let answer = cause_in_wait(running, &mut errands).map(f);
    chain::stay(|| errands.run());
    answer
}

/// Notes that the running fiber or thread was told, because of what it is cancelled by at this
/// moment: by nothing, if the frame went away meanwhile. Calls no wakers.
pub(super) fn observe_in_wait(running: Option<NonNull<Block>>) {
    let observe = |owner| {
        if let Some(cause) = walk(owner).cause() {
            // SAFETY: our own frames are linked, and nothing has run since the walk.
            unsafe { cause.observe() };
        }
    };
    match running {
        Some(block) => observe(Owner::Fiber(block)),
        None => with_thread(observe),
    }
}

/// What the running fiber or thread is cancelled by. Unlike [`with_cause`] this calls no
/// wakers: they are left in `errands`.
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
    with_cause(running, |cause| {
        // SAFETY: `with_cause` promises that it is linked; a fiber that asks has not ended,
        // nor has one that waits for this thread.
        unsafe {
            cause.observe();
            cause.reason()
        }
    })
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
