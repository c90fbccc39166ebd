//! How a ready fiber gets into a queue.
//!
//! | what                      | from its own worker          | from elsewhere                    |
//! |---------------------------|------------------------------|-----------------------------------|
//! | woken                     | run-next, else private queue | the inbox of its worker           |
//! | spawned                   | deque; private queue if local| an injector of the runtime        |
//! | spawned, other less loaded| that worker's mail           |                                   |
//!
//! Waking a thief for a fiber that its spawner joins a moment later is wasted
//! twice: the wake-up costs a system call, and the thief finds nothing. So a
//! worker that has seen its lone spawns joined at once defers the wake-up: to
//! its next switch that leaves the fiber behind, or to the monitor's next tick
//! if it does not switch at all. The first spawn after any other one wakes.

use super::core::Core;
use super::current;
use super::shared::{Remote, Shared, bump};
use crate::fiber::{Block, Ops, OpsOf, slab};
use crate::primitive::{self, Ordering, fence};
use crate::queue::Entry;
use crate::queue::inbox::Pushed;
use std::ptr::NonNull;
use std::sync::Arc;

/// With fewer started fibers than this a worker keeps a lone new one: moving it
/// to a sleeping worker costs a wake-up, 30 µs and more.
const KEEP_LOCAL: usize = 64;
/// With this many unstarted fibers a worker leaves the rest to thieves, who
/// take them in batches.
const LEAVE_TO_THIEVES: usize = 64;

/// How blocks reach this layer.
pub(crate) struct SchedOps;

impl OpsOf for SchedOps {
    const OPS: Ops = Ops { enqueue, recycle };
}

/// Hands a woken fiber to its worker from wherever we are.
///
/// # Safety
///
/// The caller owns the fiber; `remote` is a worker of its runtime.
unsafe fn mail(remote: &Remote, block: NonNull<Block>) {
    // SAFETY: the caller's promise.
    if unsafe { remote.inbox.push(block) } == Pushed::WakeOwner {
        remote.driver.unpark();
    }
}

/// Puts a woken fiber back.
///
/// # Safety
///
/// The caller owns the fiber (`fiber::state`, invariant 3).
unsafe fn enqueue(block: NonNull<Block>) {
    // SAFETY: owned by us.
    let fiber = unsafe { block.as_ref() };
    let home = fiber.home();
    // SAFETY: a non-null core is this thread's and alive (core, invariant 2).
    let core = unsafe { current::core().as_ref() };
    let runtime = fiber.runtime().cast::<Shared>().cast_const();
    // The fiber is ours, so its runtime is alive, and so is that of a core: equal
    // addresses are the same one.
    match core {
        Some(core) if core.home() == home => return core.wake_here(block),
        // SAFETY: the home of a started fiber is a `Remote` of its runtime, which
        // is this worker's own.
        Some(core) if Arc::as_ptr(core.shared()) == runtime => unsafe {
            return mail(&*home.cast::<Remote>(), block);
        },
        _ => {}
    }
    // We are outside. The runtime is alive while the fiber is ours, but once it
    // is in the inbox it may run, end, and let its runtime end, before we have
    // woken the worker: so `waking` keeps it for that long.
    //
    // SAFETY: the fiber that we own keeps its runtime alive here (`worker::shutdown`,
    // invariant "homes"), and so its workers, one of which is its home.
    unsafe {
        let waking = Waking::begin(runtime);
        mail(&*home.cast::<Remote>(), block);
        drop(waking);
    }
}

/// A wake from outside, under way: the end of the runtime waits for it.
///
/// Not a counted reference to the runtime, which could be the last: the waking thread may
/// hold the lock of a nest, a token or a fiber's joiners, which is no place to take a
/// runtime apart.
///
/// It is counted before the fiber is put into the inbox. That happens before the fiber's
/// next run and end, that before the thread which ends the runtime finds no fiber alive,
/// and that before it looks whether somebody is counted here ([`wait_for_wakers`]).
pub(crate) struct Waking(*const Shared);

impl Waking {
    /// # Safety
    ///
    /// The caller owns a fiber of the runtime, and puts it into an inbox, if at all, while
    /// it has the returned guard.
    pub(crate) unsafe fn begin(shared: *const Shared) -> Self {
        // Relaxed: the push publishes it.
        // SAFETY: alive, since the fiber is (`worker::shutdown`, invariant "homes").
        unsafe { (*shared).waking.fetch_add(1, Ordering::Relaxed) };
        Self(shared)
    }
}

impl Drop for Waking {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `wait_for_wakers`. The last access.
        // SAFETY: not freed while we are counted.
        unsafe { (*self.0).waking.fetch_sub(1, Ordering::Release) };
    }
}

/// Waits for threads outside that have put a fiber of this runtime into an inbox and may
/// not be done with its worker. Every fiber has ended, so no others come.
pub(crate) fn wait_for_wakers(shared: &Shared) {
    // Acquire: pairs with the Release in `Waking::drop`. What is awaited is short.
    while shared.waking.load(Ordering::Acquire) > 0 {
        primitive::yield_thread();
    }
}

/// # Safety
///
/// The block has no references left.
unsafe fn recycle(block: NonNull<Block>) {
    // SAFETY: as in `enqueue`.
    match unsafe { current::core().as_ref() } {
        // SAFETY: the caller's promise.
        Some(core) => core.with_blocks(|blocks| unsafe { blocks.give(block) }),
        // SAFETY: the caller's promise.
        None => unsafe { slab::give_one(block) },
    }
}

impl Core {
    /// Queues a fiber of this worker that was just woken here.
    pub(crate) fn wake_here(&self, block: NonNull<Block>) {
        bump(&self.remote().counters.parked, u64::MAX);
        let entry = Entry::started(block);
        // Only one woken by a running fiber may run next; timers keep order.
        if self.current.get().is_null() {
            self.woke_cold();
            self.requeue(block);
        } else if let Err(_entry) = self.try_run_next(entry) {
            self.requeue(block);
        }
    }

    /// Queues a started fiber at the end.
    pub(crate) fn requeue(&self, block: NonNull<Block>) {
        // SAFETY: owned by us.
        let fiber = unsafe { block.as_ref() };
        let entry = Entry::started(block);
        if self.several() && fiber.kind().migratable && !fiber.pinned() {
            self.push_stealable(entry);
            self.offer_to_thieves(1);
        } else {
            self.push_private(entry);
        }
    }

    /// Queues a started fiber that computes. A migratable one goes to a worker that
    /// has nothing to do, if there is one.
    pub(crate) fn requeue_preempted(&self, block: NonNull<Block>) {
        // SAFETY: owned by us.
        let fiber = unsafe { block.as_ref() };
        let movable = self.several() && fiber.kind().migratable && !fiber.pinned();
        if movable && self.shared().idle.somebody_is_idle() {
            self.requeue(block);
        } else {
            self.push_preempted(block);
        }
    }

    /// Takes everything out of the inbox.
    pub(crate) fn empty_inbox(&self) {
        if !self.remote().inbox.is_empty() {
            self.end_inbox_sleep();
        }
    }

    /// The same, and lets pushers know that this worker is awake.
    pub(crate) fn end_inbox_sleep(&self) {
        self.remote().inbox.take_all(|block| {
            bump(&self.remote().counters.parked, u64::MAX);
            self.requeue(block);
        });
    }

    /// Tells sleeping workers of what lies in the deque, now or later.
    fn offer_to_thieves(&self, waiting: usize) {
        if !self.several() {
            return;
        }
        if waiting < 2 && self.expects_join() {
            // Relaxed: our own next switch and the monitor look at it; neither
            // reads anything through it.
            self.remote().deferred.store(true, Ordering::Relaxed);
        } else {
            self.shared().wake_searcher();
        }
    }

    /// Makes good a deferred wake-up; called when another fiber runs next.
    pub(crate) fn settle_deferred(&self) {
        let deferred = &self.remote().deferred;
        if deferred.load(Ordering::Relaxed) {
            deferred.store(false, Ordering::Relaxed);
            if self.has_stealable() {
                self.learn_join(false);
                self.shared().wake_searcher();
            }
        }
    }

    /// The worker, other than this one, that a new fiber should go to.
    ///
    /// What lies unstarted in the deque is anybody's already, so only a worker
    /// with little of it looks further: by mail go the first of a burst, and
    /// those that one by one make a worker heavy with started fibers.
    fn less_loaded(&self, spread: bool) -> Option<&Remote> {
        if !self.several() {
            return None;
        }
        let waiting = self.stealable();
        // Relaxed: a hint of the monitor's.
        if waiting == 0 && self.by_time() && self.remote().stuck.load(Ordering::Relaxed) {
            if let Some(other) = self.without_computing() {
                return Some(other);
            }
        }
        if !spread
            && (waiting == 0 && self.started_here() < KEEP_LOCAL || waiting >= LEAVE_TO_THIEVES)
        {
            return None;
        }
        let mine = self.load();
        let remotes = &self.shared().remotes;
        // Only workers are sent any: a spare takes what it finds, while it is needed.
        let workers = self.shared().workers;
        let mut other = self.random(workers - usize::from(!self.is_spare()));
        if other >= self.index() {
            other += 1;
        }
        // Relaxed: a hint, published now and then by that worker.
        let load = &remotes[other].counters.load;
        let theirs = load.load(Ordering::Relaxed) as usize;
        // Less than four fifths. "Less than half" in its place leaves bursts of
        // 10 and 20 split 2 to 1: a yield among 10 fibers on two workers took
        // 14.3 instead of 12.2 ns (skynet: 212 instead of 224 ms).
        let enough = if spread { mine } else { mine * 4 / 5 };
        if theirs >= enough || remotes[other].stuck.load(Ordering::Relaxed) {
            return None;
        }
        // It will see the fiber later than the next spawner sees its load.
        load.fetch_add(8, Ordering::Relaxed);
        Some(&remotes[other])
    }
}

impl Core {
    /// For a new fiber of a worker on which others compute: a worker on which none
    /// does, and that has not much more to do. The new fiber stays where it starts,
    /// and beside those it would wait for a tick of the monitor each time.
    #[cold]
    fn without_computing(&self) -> Option<&Remote> {
        let enough = self.load() + 8 * KEEP_LOCAL;
        // As in `less_loaded`: workers alone are sent any. The slot of a spare may have no
        // thread that would take it.
        let remotes = &self.shared().remotes[..self.shared().workers];
        let first = self.random(remotes.len());
        let other = (0..remotes.len())
            .map(|offset| &*remotes[(first + offset) % remotes.len()])
            .filter(|other| other.index != self.index())
            // Relaxed: hints.
            .find(|other| {
                !other.stuck.load(Ordering::Relaxed)
                    && (other.counters.load.load(Ordering::Relaxed) as usize) < enough
            })?;
        // As in `less_loaded`.
        other.counters.load.fetch_add(8, Ordering::Relaxed);
        Some(other)
    }
}

/// Where a new fiber should go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// As the loads suggest.
    Balanced,
    /// To the less loaded of two workers.
    Spread,
    /// To this worker, for good.
    Here,
}

/// The way into a runtime for new fibers.
///
/// A fiber may always spawn: its runtime cannot end while it is alive. A thread
/// that is no worker races with the end. It announces itself, fences, and looks
/// whether the gate is closed for it; who closes the gate says so, fences, and
/// waits until nobody is on the way in. So what was let in is counted and queued
/// before anything is concluded from the gate's being closed. It closes twice:
/// for threads outside when the end begins ([`close`]), and for the runtime's
/// own threads (jobs of the pool, which may spawn while it drains, and the
/// monitor's callback) when the workers are about to stop ([`close_for_all`]).
///
/// No user code runs on the way in.
pub(crate) struct Gate<'a>(Option<&'a Shared>);

impl<'a> Gate<'a> {
    /// None if the gate is closed for this thread.
    pub(crate) fn enter(shared: &'a Arc<Shared>) -> Option<Self> {
        // SAFETY: as in `enqueue`.
        let core = unsafe { current::core().as_ref() };
        if core.is_some_and(|core| Arc::ptr_eq(core.shared(), shared)) {
            // Relaxed: only a fiber that was leaked can find it closed.
            return (!shared.closed_for_all.load(Ordering::Relaxed)).then_some(Self(None));
        }
        // Relaxed: ordered by the fence; pairs with the one in `wait_for_gate`.
        shared.entering.fetch_add(1, Ordering::Relaxed);
        let gate = Self(Some(shared));
        fence(Ordering::SeqCst);
        let own = std::ptr::eq(current::pool_of(), Arc::as_ptr(shared));
        let closed = if own {
            &shared.closed_for_all
        } else {
            &shared.closed
        };
        (!closed.load(Ordering::Relaxed)).then_some(gate)
    }
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.0 {
            // Release: what we queued is seen by who closes; pairs with
            // `wait_for_gate`.
            shared.entering.fetch_sub(1, Ordering::Release);
        }
    }
}

/// Lets nobody in from outside any more; returns when nobody is on the way in.
pub(crate) fn close(shared: &Shared) {
    shared.closed.store(true, Ordering::Relaxed);
    wait_for_gate(shared);
}

/// Lets no thread of the runtime in any more either.
pub(crate) fn close_for_all(shared: &Shared) {
    shared.closed_for_all.store(true, Ordering::Relaxed);
    wait_for_gate(shared);
}

fn wait_for_gate(shared: &Shared) {
    // Pairs with the fence in `Gate::enter`.
    fence(Ordering::SeqCst);
    // Acquire: pairs with the Release in `Gate::drop`. The way in is short.
    while shared.entering.load(Ordering::Acquire) > 0 {
        primitive::yield_thread();
    }
}

/// Takes a block for a new fiber of `shared`, from the cheapest place.
pub(crate) fn take_block() -> std::io::Result<NonNull<Block>> {
    // SAFETY: as in `enqueue`.
    match unsafe { current::core().as_ref() } {
        Some(core) => core.with_blocks(slab::BlockCache::take),
        None => slab::take_one(),
    }
}

/// Queues a fiber that was just made.
///
/// # Safety
///
/// The caller made the block, for `shared`, and has not queued it. With
/// `Placement::Here` the caller is on a worker of `shared`.
pub(crate) unsafe fn submit_new(shared: &Shared, block: NonNull<Block>, placement: Placement) {
    // SAFETY: made by the caller.
    let fiber = unsafe { block.as_ref() };
    // SAFETY: as in `enqueue`.
    let core = unsafe { current::core().as_ref() };
    let core = core.filter(|core| std::ptr::eq(&**core.shared(), shared));
    let level = fiber.priority() as usize;
    count_spawn(shared, core, fiber.kind().daemon);
    let Some(core) = core else {
        shared.injectors.push(level, Entry::fresh(block));
        shared.wake_searcher();
        return;
    };
    if placement == Placement::Here {
        fiber.set_home(core.home());
        core.push_private(Entry::fresh(block));
        return;
    }
    if let Some(other) = core.less_loaded(placement == Placement::Spread) {
        other.mail.push(level, Entry::fresh(block));
        // Leaves a token if it is awake: no need to know.
        other.driver.unpark();
        return;
    }
    let waiting = core.push_stealable(Entry::fresh(block));
    core.offer_to_thieves(waiting);
}

/// Counts a fiber in before anybody can see it.
pub(crate) fn count_spawn(shared: &Shared, core: Option<&Core>, daemon: bool) {
    match core.filter(|core| std::ptr::eq(&**core.shared(), shared)) {
        Some(core) => {
            let lives = &core.remote().counters.lives;
            // Published by the queue that the fiber goes through; see
            // `worker::shutdown` for how the sums are read.
            let counter = if daemon {
                &lives.daemons_spawned
            } else {
                &lives.spawned
            };
            bump(counter, 1);
        }
        None => {
            let lives = &shared.outside;
            let counter = if daemon {
                &lives.daemons_spawned
            } else {
                &lives.spawned
            };
            // SeqCst is not needed: as above.
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}
