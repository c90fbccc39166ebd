//! How a runtime ends.
//!
//! ```text
//!   running ─► closed: nobody spawns from outside any more
//!           ─► draining: wait for every fiber that is no daemon
//!           ─► cancelling: all others are cancelled, and awaited a while
//!           ─► stopped: workers, pool and monitor leave
//! ```
//!
//! Counting who is alive must not cost a shared counter per fiber. Each worker
//! counts what it spawned and what it finished, alone; the sums are compared
//! here. All `finished` are read first (Acquire), then all `spawned`. Let V be
//! the fibers whose spawn we see. If the sums are equal, all of V had finished;
//! a fiber counts its children before it finishes, and we acquired that, so the
//! children are in V too. So V is closed, and nothing that it began is alive.
//!
//! Who waits for the end stands in `Shared::drainers`; the flag `draining` makes
//! each worker that goes to sleep, or looks around, wake them to count again.
//! The last fiber's worker runs out of work after it, so it does go to sleep:
//! its count, the fence in `Idle::go_to_sleep`, its look at the flag; the
//! drainer: the flag, a fence, the sums. One of them sees the other.
//!
//! A request from inside (`Handle::shutdown`) closes the gate and cancels everybody before the
//! runtime is dropped; with a limit it also says when the two waits above give up
//! ([`give_up_after`]).
//!
//! Invariant (homes): a `Shared` is freed only when no fiber of it is alive; if
//! fibers are leaked it is leaked with them, so that wakes for them, which reach
//! its inboxes, do no harm. A fiber is alive until it has left its stack for good,
//! which is later than its completion. So as long as a fiber has not completed, or has
//! a context, the `Shared` at the address in its block is its own, and a runtime that is
//! known to be alive and has the same address is the same one.
//!
//! The threads of workers on which started fibers were leaked stay, too
//! (`worker::kept`). Each worker says that it has left its loop (`Remote::end`), and
//! the end waits for that: not for threads, some of which never end.

use super::first_frame::publish_outcome;
use crate::fiber::cancel::Descent;
use crate::fiber::locals::Locals;
use crate::fiber::{Begin, BlockRef, WaitReason, release, slab};
use crate::primitive::{Ordering, fence};
use crate::sched::shared::{Abandoned, Lives, Shared};
use crate::sys::fences;
use crate::wait::children;
use crate::wait::node::Node;
use crate::wait::{Deadline, WaitOutcome, WaitSpec, Waiter, wait};
use std::panic::Location;
use std::pin::pin;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Whose end is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whom {
    /// Every fiber that is no daemon.
    NonDaemons,
    /// Every fiber.
    All,
}

fn sum(shared: &Shared, of: impl Fn(&Lives) -> u64) -> u64 {
    let workers = shared.remotes.iter().map(|remote| &remote.counters.lives);
    workers
        .chain(std::iter::once(&shared.outside))
        .fold(0, |total, lives| total.wrapping_add(of(lives)))
}

/// How many fibers have begun and not ended; exact if it says zero.
pub(crate) fn alive(shared: &Shared, whom: Whom) -> u64 {
    let daemons = u64::from(whom == Whom::All);
    // Acquire: pairs with the Release in `run::finish` and `pool`; the order of
    // the two sums matters, see the header.
    let finished = sum(shared, |lives| {
        lives.finished.load(Ordering::Acquire)
            + daemons * lives.daemons_finished.load(Ordering::Acquire)
    });
    let spawned = sum(shared, |lives| {
        lives.spawned.load(Ordering::Relaxed)
            + daemons * lives.daemons_spawned.load(Ordering::Relaxed)
    });
    spawned.saturating_sub(finished)
}

/// Waits until none of them is alive; false if the deadline came first.
pub(crate) fn drain(
    shared: &Shared,
    whom: Whom,
    deadline: Option<Deadline>,
    at: &'static Location<'static>,
) -> bool {
    loop {
        // Looked at anew each time: who sets a limit wakes us.
        let limit = give_up_at(shared)
            .and_then(|at| Deadline::after(at.saturating_duration_since(Instant::now())));
        let deadline = Deadline::earlier(deadline, limit);
        let waiter = Waiter::for_current();
        let node = pin!(Node::new());
        node.belongs_to(&waiter, 0);
        {
            let mut drainers = shared.drainers.lock();
            // SAFETY: both stay in this frame; unlinked below or by `poke`.
            unsafe { drainers.push_back(NonNull::from(&*node).cast()) };
        }
        shared.draining.store(true, Ordering::Relaxed);
        // Pairs with the fence in `Idle::go_to_sleep`; see the header.
        fence(Ordering::SeqCst);
        let mut timed_out = false;
        let done = alive(shared, whom) == 0;
        // Nobody needs to wake us, but somebody may be about to.
        if done && unlink(shared, &node) {
            return true;
        }
        let leave = || unlink(shared, &node);
        let spec = WaitSpec::new(WaitReason::Shutdown, at)
            .deadline(deadline)
            .leaving_by(&leave);
        if wait(&waiter, &spec) == WaitOutcome::TimedOut {
            timed_out = true;
        }
        if done || timed_out {
            return done || alive(shared, whom) == 0;
        }
    }
}

/// False if it was unlinked already.
fn unlink(shared: &Shared, node: &Node) -> bool {
    let mut drainers = shared.drainers.lock();
    let linked = node.is_linked();
    if linked {
        // SAFETY: linked into this very list by `drain`.
        unsafe { drainers.remove(NonNull::from(node).cast()) };
    }
    linked
}

/// Wakes those who wait for fibers to end, to count again.
#[cold]
pub(crate) fn poke(shared: &Shared) {
    let mut woken = Vec::new();
    {
        let mut drainers = shared.drainers.lock();
        while let Some(links) = drainers.pop_front() {
            // SAFETY: linked, hence there; see `wait::end::wake_list`.
            woken.extend(unsafe { links.cast::<Node>().as_ref().claim() });
        }
        shared.draining.store(false, Ordering::Relaxed);
    }
    for wakeup in woken {
        wakeup.fire(); // a fiber or a thread, never a task: no user code
    }
}

/// Has the end give up those that are left after so much time, unless it was to do so earlier.
pub(crate) fn give_up_after(shared: &Shared, timeout: Duration) {
    // Beyond the clock's range is never.
    let Some(at) = Instant::now().checked_add(timeout) else {
        return;
    };
    {
        let mut limit = shared
            .give_up_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if limit.is_some_and(|(earlier, _)| earlier <= at) {
            return;
        }
        *limit = Some((at, timeout));
    }
    poke(shared); // those who wait already
}

fn give_up_limit(shared: &Shared) -> Option<(Instant, Duration)> {
    *shared
        .give_up_at
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

fn give_up_at(shared: &Shared) -> Option<Instant> {
    give_up_limit(shared).map(|(at, _)| at)
}

/// How long after the request those that are left are given up, if there is such a limit.
pub(crate) fn given_up_after(shared: &Shared) -> Option<Duration> {
    give_up_limit(shared).map(|(_, timeout)| timeout)
}

/// Whether the time has come to give up those that are left.
pub(crate) fn is_given_up(shared: &Shared) -> bool {
    give_up_at(shared).is_some_and(|at| at <= Instant::now())
}

/// Requests cancellation of every fiber of the runtime, and of those to come.
///
/// A fiber may be spawned meanwhile. Who spawns makes the fiber's block visible, fences, and looks
/// at the flag (`task::spawn::make_block`); we set the flag, fence, and look at all blocks. So
/// either the fiber is born cancelled, or we find it. If the kernel has refused our fence we look
/// once more a little later, for then nothing is certain.
pub(crate) fn cancel_from_now_on(shared: &Arc<Shared>) {
    // Relaxed: the fence orders it.
    shared.cancelling.store(true, Ordering::Relaxed);
    // Pairs with the light fence in `make_block`.
    let certain = fences::heavy();
    cancel_all(shared);
    if !certain {
        std::thread::sleep(Duration::from_millis(1));
        cancel_all(shared);
    }
}

/// Requests cancellation of every fiber of the runtime.
pub(crate) fn cancel_all(shared: &Arc<Shared>) {
    slab::for_each_of(shared.tag().as_ptr(), |block| {
        let mut descent = Descent::new();
        descent.shut_down_fiber(&block);
        descent.run();
    });
}

/// Takes what lies unstarted in queues that others can reach, of workers that
/// may never come back to them. What lies elsewhere is left to [`abandon_unstarted`].
pub(crate) fn abandon_queued(shared: &Shared) {
    let mails = shared.remotes.iter().map(|remote| &remote.mail);
    let injectors = mails.chain(std::iter::once(&shared.injectors));
    let injected = injectors.flat_map(|queue| std::iter::from_fn(|| queue.pop(true)));
    let deques = shared
        .remotes
        .iter()
        .filter_map(|remote| remote.stealers.as_ref());
    let stealable = deques.flat_map(|queue| std::iter::from_fn(|| queue.pop()));
    for entry in injected.chain(stealable) {
        let block = entry.block();
        // SAFETY: the entry owns the fiber, or a reference to its block.
        let fiber = unsafe { block.as_ref() };
        if !entry.is_fresh() {
            continue; // migratable and started: leaked, with its stack
        }
        if fiber.claim_start() {
            fiber.merge_entry();
            shared.abandoned.lock().push(Abandoned(block));
        } else {
            // SAFETY: the stale entry's own reference.
            unsafe { release(block, 1) };
        }
    }
}

/// Claims those that have not started and lie where only their worker can reach them, in its
/// own queues, while that worker is stuck in a fiber.
///
/// The worker may come back, and find the entry: it loses the claim, and drops the entry with
/// the reference that belongs to it.
pub(crate) fn abandon_unstarted(shared: &Arc<Shared>) {
    slab::for_each_of(shared.tag().as_ptr(), |block| {
        // A job of the pool is no fiber of a worker's, and the pool sees to it.
        if !block.kind().on_pool && block.claim_start() {
            // The run's reference is ours by the claim, so the block stays.
            shared.abandoned.lock().push(Abandoned(block.as_ptr()));
        }
    });
}

/// Ends the fibers that will never start: their joiners learn so, their closures
/// are leaked, but for those of scopes, which are dropped.
///
/// On the thread that ends the runtime: it may call wakers of async tasks.
pub(crate) fn fail_abandoned(shared: &Shared) {
    let abandoned = std::mem::take(&mut *shared.abandoned.lock());
    for Abandoned(block) in abandoned {
        // SAFETY: claimed, never started, and handed over by its worker: the
        // run, its reference and the slot with the closure are ours.
        unsafe {
            let fiber = block.as_ref();
            if fiber.future_parent().is_some() {
                // A scope waits for it, and perhaps for what its closure does when it is
                // dropped, and it is `Send`: so it is, here.
                (fiber.table().begin)(fiber.slot(), Begin::DropUnrun);
            } else {
                (fiber.table().give_up)(fiber.slot());
            }
            publish_outcome(fiber, &Locals::new());
            children::end_unbegun(fiber);
            release(block, if fiber.entry_merged() { 2 } else { 1 });
        }
    }
}

/// The fibers that are still there.
pub(crate) fn survivors(shared: &Arc<Shared>) -> Vec<BlockRef> {
    let mut left = Vec::new();
    slab::for_each_of(shared.tag().as_ptr(), |block| left.push(block));
    left
}

/// How many fibers have begun so far.
pub(crate) fn spawned(shared: &Shared) -> u64 {
    sum(shared, |lives| {
        lives.spawned.load(Ordering::Relaxed) + lives.daemons_spawned.load(Ordering::Relaxed)
    })
}
