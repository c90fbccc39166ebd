//! What a runtime shares and what each worker owns.
//!
//! | type       | one per | touched by                                               |
//! |------------|---------|----------------------------------------------------------|
//! | [`Shared`] | runtime | everybody                                                |
//! | [`Remote`] | worker  | everybody: what others see of a worker                   |
//! | [`Core`]   | worker  | its thread alone, from the loop and from fibers on it    |
//!
//! Fibers and the loop both reach the core through a raw pointer
//! (`sched::current`). They run on one thread, so they never touch it at the
//! same time, but a reference into it must not live across a switch.
//!
//! Invariant 1 (one at a time): `&mut` borrows of a core's parts last for one
//! call of this file's methods or one `with_*` closure, and no user code runs
//! and no switch happens inside.
//! Invariant 2 (alive): a core outlives every fiber that runs on it: the loop
//! drops it after its last switch.
//! Invariant 3 (counters): each counter of a [`Remote`] is written by its own
//! worker alone, so a load and a store do for an addition.

use super::idle::Idle;
use super::seam::{Choice, Clock, Driver};
use crate::fiber::Block;
use crate::fiber::slab::BlockCache;
use crate::primitive::{self, AtomicU32, AtomicU64, AtomicUsize, Lock, fence};
use crate::queue::Entry;
use crate::queue::deque::{Deques, Injectors, Stealers};
use crate::queue::fifo::Levels;
use crate::queue::inbox::Inbox;
use crate::queue::level::LevelPicker;
use crate::stack::{HotStacks, NoStack, StackClass, StackPool};
use crate::sys::futex;
use crate::timer::Wheel;
use crate::util::list::List;
use crate::util::rng::Rng;
use crossbeam_utils::CachePadded;
use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::collections::VecDeque;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// A fiber woken by the running one, or claimed by a joiner, may run next this
/// many times in a row before the queues have their turn.
///
/// Measured on skynet (1M leaves, cold): 64 keeps 17k stacks alive, plain FIFO
/// 111k; see docs/bench.md.
pub(crate) const NEXT_IN_A_ROW: u32 = 64;

/// With several workers this many started fibers run for each unstarted one, if
/// there are both. Taking turns one by one starts nearly all of 100k fibers that
/// yield ten times before the first ends, each on a fresh stack.
const STARTED_FIRST: u32 = 15;

/// How a runtime was asked to be.
pub(crate) struct Settings {
    pub(crate) name: String,
    pub(crate) strict_order: bool,
    pub(crate) class: StackClass,
}

/// What all workers of a runtime share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) remotes: Box<[CachePadded<Remote>]>,
    pub(crate) injectors: Injectors,
    pub(crate) idle: Idle,
    pub(crate) clock: Box<dyn Clock>,
    pub(crate) stacks: Arc<StackPool>,
    /// Workers leave their loop.
    pub(crate) stop: AtomicBool,
    /// Somebody waits for fibers to end; see `worker::shutdown`.
    pub(crate) draining: primitive::AtomicBool,
    /// New fibers are born cancelled: the runtime is ending.
    pub(crate) cancelling: AtomicBool,
    /// No new fibers: the runtime has ended.
    pub(crate) closed: primitive::AtomicBool,
    /// Spawns from outside that are under way; see `submit::Gate`.
    pub(crate) entering: AtomicUsize,
    /// Why the last fiber found no stack, while that lasts.
    pub(crate) no_stack: Mutex<Option<NoStack>>,
    /// Mirrors `no_stack.is_some()`, for a look without the lock.
    pub(crate) out_of_stacks: AtomicBool,
    /// What threads outside have spawned, and pool threads have finished.
    pub(crate) outside: Lives,
    /// Claimed fibers that never got a stack, left by workers that stopped.
    pub(crate) abandoned: Lock<Vec<Abandoned>>,
    /// Whoever ends the runtime has looked there for the last time.
    pub(crate) given_up: AtomicBool,
    /// Those who wait for fibers to end.
    pub(crate) drainers: Lock<List>,
    /// Set while the monitor sleeps; see `worker::monitor`.
    pub(crate) monitor: MonitorBell,
    /// The blocking pool and the monitor, which are layers above.
    pub(crate) services: OnceLock<Box<dyn Any + Send + Sync>>,
}

/// Where the monitor sleeps while every worker does.
///
/// The monitor rings itself in by `ASLEEP` and a fence, then looks once more
/// whether all workers sleep; a worker leaves the list of sleepers, fences, and
/// looks at the bell. One of the two sees the other.
#[derive(Default)]
pub(crate) struct MonitorBell(pub(crate) AtomicU32);

impl MonitorBell {
    const AWAKE: u32 = 0;
    const ASLEEP: u32 = 1;
    const STOPPED: u32 = 2;

    /// Sleeps for one tick, or until [`MonitorBell::stop`].
    pub(crate) fn doze(&self, tick: Duration) {
        if self.0.load(Ordering::Relaxed) == Self::AWAKE {
            futex::wait(&self.0, Self::AWAKE, Some(tick));
        }
    }

    /// Wakes the monitor for good.
    pub(crate) fn stop(&self) {
        // A swap: loom knows an order of changes only among read-modify-writes.
        self.0.swap(Self::STOPPED, Ordering::Relaxed);
        futex::wake_one(&self.0);
    }

    /// Wakes the monitor, if it sleeps.
    pub(crate) fn ring(&self) {
        // Relaxed: the caller's fence orders it.
        if self.0.load(Ordering::Relaxed) == Self::ASLEEP && self.change(Self::ASLEEP, Self::AWAKE)
        {
            futex::wake_one(&self.0);
        }
    }

    /// Sleeps until rung, unless `still` says otherwise after the bell was hung.
    pub(crate) fn sleep(&self, still: impl FnOnce() -> bool) {
        if !self.change(Self::AWAKE, Self::ASLEEP) {
            return; // stopped
        }
        // Pairs with the fence of whoever rings.
        fence(Ordering::SeqCst);
        if still() {
            while self.0.load(Ordering::Relaxed) == Self::ASLEEP {
                futex::wait(&self.0, Self::ASLEEP, None);
            }
        } else {
            // Lost to a ring or a stop: both leave it awake.
            self.change(Self::ASLEEP, Self::AWAKE);
        }
    }

    fn change(&self, from: u32, to: u32) -> bool {
        // Relaxed: the fences order what matters.
        self.0
            .compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}

/// A fiber that was claimed for its start and will not start.
pub(crate) struct Abandoned(pub(crate) NonNull<Block>);

// SAFETY: whoever has it owns the fiber's run; its closure, if it is not
// `Send`, is never touched again.
unsafe impl Send for Abandoned {}

/// How many fibers began and ended, as counted in one place.
#[derive(Default)]
pub(crate) struct Lives {
    pub(crate) spawned: AtomicU64,
    pub(crate) finished: AtomicU64,
    pub(crate) daemons_spawned: AtomicU64,
    pub(crate) daemons_finished: AtomicU64,
}

/// What others see of one worker.
pub(crate) struct Remote {
    pub(crate) index: usize,
    pub(crate) inbox: Inbox,
    pub(crate) driver: Box<dyn Driver>,
    /// The thieves' side of the deque; none with one worker.
    pub(crate) stealers: Option<Stealers>,
    /// A fiber lies in the deque and nobody was woken for it yet.
    pub(crate) deferred: AtomicBool,
    /// A thief saw a lone fiber in the deque and went to sleep.
    pub(crate) left_behind: AtomicBool,
    /// Raised when the running fiber has used up its quantum.
    pub(crate) preempt: AtomicBool,
    /// A queued fiber's priority was raised: sort the queues again.
    pub(crate) resort: AtomicBool,
    /// Unstarted fibers wait here for a stack.
    pub(crate) starving: AtomicBool,
    /// The fiber that runs now, for the monitor.
    pub(crate) current: AtomicPtr<Block>,
    pub(crate) counters: Counters,
}

/// What a worker counts (invariant 3).
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) lives: Lives,
    pub(crate) switches: AtomicU64,
    pub(crate) started: AtomicU64,
    pub(crate) ended: AtomicU64,
    pub(crate) stolen: AtomicU64,
    pub(crate) timers: AtomicU64,
    /// Parks less resumptions; wraps below zero for migratable fibers.
    pub(crate) parked: AtomicU64,
    /// Live started fibers + 8 × ready ones, published now and then.
    pub(crate) load: AtomicU64,
}

/// Adds to a counter that only this thread writes.
#[inline]
pub(crate) fn bump(counter: &AtomicU64, by: u64) {
    // Relaxed, and no read-modify-write: invariant 3. Readers want a recent
    // value, not an order.
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(by),
        Ordering::Relaxed,
    );
}

impl Remote {
    pub(crate) fn new(index: usize, driver: Box<dyn Driver>, stealers: Option<Stealers>) -> Self {
        Self {
            index,
            inbox: Inbox::new(),
            driver,
            stealers,
            deferred: AtomicBool::new(false),
            left_behind: AtomicBool::new(false),
            preempt: AtomicBool::new(false),
            resort: AtomicBool::new(false),
            starving: AtomicBool::new(false),
            current: AtomicPtr::new(ptr::null_mut()),
            counters: Counters::default(),
        }
    }
}

impl Shared {
    pub(crate) fn several_workers(&self) -> bool {
        self.remotes.len() > 1
    }

    /// Wakes a sleeper to look for work that was just made visible.
    pub(crate) fn wake_searcher(&self) {
        if let Some(worker) = self.idle.claim_sleeper() {
            self.remotes[worker].driver.unpark();
        }
    }

    pub(crate) fn wake_all(&self) {
        for remote in &self.remotes {
            remote.driver.unpark();
        }
    }

    /// The block's `runtime` field: a pointer from which an `Arc` can be made
    /// again while the runtime is known to be alive.
    pub(crate) fn tag(self: &Arc<Self>) -> NonNull<()> {
        let tag = Arc::as_ptr(self).cast_mut().cast();
        NonNull::new(tag).expect("an Arc is never null")
    }
}

// A panic never leaves it half changed: user code runs under none of its locks.
impl std::panic::RefUnwindSafe for Shared {}

/// Why a fiber left its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// To the end of the queue.
    Yield,
    /// Until somebody wakes it.
    Park,
}

/// What one worker owns; see the module header.
pub(crate) struct Core {
    shared: Arc<Shared>,
    /// Points into `shared`, which lives as long as the core.
    remote: NonNull<Remote>,
    index: usize,
    several: bool,
    pub(crate) current: Cell<*const Block>,
    pub(crate) intent: Cell<Intent>,
    /// Runs before the queues, if it may.
    run_next: Cell<Option<Entry>>,
    in_a_row: Cell<u32>,
    /// How surely a spawned fiber is soon joined by its spawner, 0 to 3: then
    /// waking a thief for it is wasted.
    joins_soon: Cell<u8>,
    queues: UnsafeCell<Queues>,
    wheel: UnsafeCell<Wheel>,
    stacks: UnsafeCell<HotStacks>,
    blocks: UnsafeCell<BlockCache>,
    rng: UnsafeCell<Rng>,
    /// Unstarted fibers that found no stack, in order.
    starved: UnsafeCell<VecDeque<NonNull<Block>>>,
}

struct Queues {
    ready: Levels,
    deques: Deques,
    picker: LevelPicker,
    /// Private entries taken since the last one from the deque.
    private_in_a_row: u32,
    choice: Option<Box<dyn Choice>>,
}

impl Queues {
    /// The next private entry of a level, as the choice says.
    #[inline]
    fn next_private(&mut self, level: usize) -> Option<Entry> {
        match &mut self.choice {
            None => self.ready.pop(level),
            Some(choice) => {
                let ready = self.ready.level_len(level);
                let index = choice.pick(ready);
                assert!(index < ready, "a choice of {index} among {ready}");
                self.ready.pop_at(level, index)
            }
        }
    }

    /// The next entry: mostly private ones, so that what has begun ends and its
    /// stack serves the next, but the deque has its turn.
    fn next_of_both(&mut self) -> Option<Entry> {
        loop {
            let private = self.ready.ready();
            let stealable = self.deques.maybe();
            let level = self.picker.pick(private | stealable)?;
            let bit = 1 << level;
            if private & bit != 0 && (self.private_in_a_row < STARTED_FIRST || stealable & bit == 0)
            {
                self.private_in_a_row += 1;
                return self.next_private(level);
            }
            self.private_in_a_row = 0;
            // The deque's bit is a hint: if it was wrong it is cleared now, and
            // we look again.
            if let Some(entry) = self.deques.pop(level) {
                return Some(entry);
            }
        }
    }
}

impl Core {
    pub(crate) fn new(
        shared: Arc<Shared>,
        index: usize,
        deques: Deques,
        choice: Option<Box<dyn Choice>>,
        seed: u64,
    ) -> Self {
        let stacks = HotStacks::new(shared.stacks.clone(), shared.settings.class);
        let now = shared.clock.now();
        Self {
            remote: NonNull::from(&*shared.remotes[index]),
            index,
            several: shared.several_workers(),
            current: Cell::new(ptr::null()),
            intent: Cell::new(Intent::Yield),
            run_next: Cell::new(None),
            in_a_row: Cell::new(0),
            joins_soon: Cell::new(0),
            queues: UnsafeCell::new(Queues {
                ready: Levels::new(),
                deques,
                picker: LevelPicker::new(),
                private_in_a_row: 0,
                choice,
            }),
            wheel: UnsafeCell::new(Wheel::new(now)),
            stacks: UnsafeCell::new(stacks),
            blocks: UnsafeCell::new(BlockCache::new()),
            rng: UnsafeCell::new(Rng::new(seed ^ index as u64)),
            starved: UnsafeCell::new(VecDeque::new()),
            shared,
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn index(&self) -> usize {
        self.index
    }

    pub(crate) fn several(&self) -> bool {
        self.several
    }

    #[inline]
    pub(crate) fn remote(&self) -> &Remote {
        // SAFETY: in `shared`, which we hold.
        unsafe { self.remote.as_ref() }
    }

    /// The value of `Block::home` for fibers of this worker.
    pub(crate) fn home(&self) -> *mut () {
        ptr::from_ref(self.remote()).cast_mut().cast()
    }

    fn queues<R>(&self, with: impl FnOnce(&mut Queues) -> R) -> R {
        // SAFETY: invariant 1: only this file calls it, with closures that
        // neither switch nor call out.
        with(unsafe { &mut *self.queues.get() })
    }

    /// Calls `with` on the timers.
    pub(crate) fn with_wheel<R>(&self, with: impl FnOnce(&mut Wheel) -> R) -> R {
        // SAFETY: invariant 1: callers only insert, cancel and expire.
        with(unsafe { &mut *self.wheel.get() })
    }

    /// Calls `with` on the stack cache.
    pub(crate) fn with_stacks<R>(&self, with: impl FnOnce(&mut HotStacks) -> R) -> R {
        // SAFETY: invariant 1: callers only take and give.
        with(unsafe { &mut *self.stacks.get() })
    }

    /// Calls `with` on the block cache.
    pub(crate) fn with_blocks<R>(&self, with: impl FnOnce(&mut BlockCache) -> R) -> R {
        // SAFETY: invariant 1: callers only take and give.
        with(unsafe { &mut *self.blocks.get() })
    }

    /// Calls `with` on the fibers that wait for a stack.
    pub(crate) fn with_starved<R>(
        &self,
        with: impl FnOnce(&mut VecDeque<NonNull<Block>>) -> R,
    ) -> R {
        // SAFETY: invariant 1: callers only push and pop.
        with(unsafe { &mut *self.starved.get() })
    }

    /// A random number below `bound`.
    pub(crate) fn random(&self, bound: usize) -> usize {
        // SAFETY: invariant 1.
        unsafe { &mut *self.rng.get() }.below(bound)
    }

    fn level_of(entry: Entry) -> usize {
        // SAFETY: an entry keeps its block alive.
        unsafe { entry.block().as_ref() }.priority() as usize
    }

    /// Queues an entry that only this worker may run.
    pub(crate) fn push_private(&self, entry: Entry) {
        let level = Self::level_of(entry);
        self.queues(|queues| queues.ready.push(level, entry));
    }

    /// Queues an entry that thieves may take; answers how many there are now.
    ///
    /// With one worker there are no thieves, and one FIFO for all.
    pub(crate) fn push_stealable(&self, entry: Entry) -> usize {
        if !self.several {
            self.push_private(entry);
            return 0;
        }
        let level = Self::level_of(entry);
        self.queues(|queues| {
            queues.deques.push(level, entry);
            queues.deques.len()
        })
    }

    /// Lets `entry` run before the queues have their turn, if order allows;
    /// else hands it back.
    pub(crate) fn try_run_next(&self, entry: Entry) -> Result<(), Entry> {
        if self.shared.settings.strict_order || self.in_a_row.get() >= NEXT_IN_A_ROW {
            return Err(entry);
        }
        let ready = self.queues(|queues| queues.ready.ready() | queues.deques.maybe());
        if ready >> Self::level_of(entry) > 1 {
            return Err(entry); // something more urgent waits
        }
        match self.run_next.replace(Some(entry)) {
            Some(former) if former.is_fresh() => {
                self.push_stealable(former);
            }
            Some(former) => self.push_private(former),
            None => {}
        }
        Ok(())
    }

    /// Whether a claimed fiber could run next; see [`Core::try_run_next`].
    pub(crate) fn may_run_next(&self) -> bool {
        !self.shared.settings.strict_order && self.in_a_row.get() < NEXT_IN_A_ROW
    }

    /// The next entry of this worker's own: run-next, private queue or deque.
    #[inline]
    pub(crate) fn next_own(&self) -> Option<Entry> {
        if let Some(entry) = self.run_next.take() {
            self.in_a_row.set(self.in_a_row.get() + 1);
            return Some(entry);
        }
        self.in_a_row.set(0);
        let several = self.several;
        self.queues(|queues| {
            if several {
                queues.next_of_both()
            } else {
                let level = queues.picker.pick(queues.ready.ready())?;
                queues.next_private(level)
            }
        })
    }

    /// Takes from `victim`; keeps a batch and answers one, and how many came.
    pub(crate) fn steal_from(&self, victim: &Remote) -> Option<(Entry, usize)> {
        let stealers = victim.stealers.as_ref()?;
        self.queues(|queues| {
            let before = queues.deques.len();
            let entry = queues.deques.steal_from(stealers)?;
            Some((entry, 1 + queues.deques.len().saturating_sub(before)))
        })
    }

    /// Takes from the injectors; keeps a batch and answers one.
    pub(crate) fn take_injected(&self) -> Option<Entry> {
        self.queues(|queues| queues.deques.take_from(&self.shared.injectors))
    }

    /// Takes the entry of a fiber that a joiner has just claimed out of this
    /// worker's queues, if it is easily found; else it stays there, stale.
    ///
    /// Easily found are the youngest of the private queue, and the only one of
    /// the deque (which would also lure thieves).
    pub(crate) fn take_claimed(&self, entry: Entry) -> bool {
        let level = Self::level_of(entry);
        let several = self.several;
        self.queues(|queues| {
            if queues.ready.pop_youngest(level, entry) {
                return true;
            }
            if !several || queues.deques.maybe() == 0 || queues.deques.len() != 1 {
                return false;
            }
            match queues.deques.pop(level) {
                Some(found) if found == entry => true,
                Some(other) => {
                    queues.deques.push(level, other);
                    false
                }
                None => false,
            }
        })
    }

    pub(crate) fn has_stealable(&self) -> bool {
        self.stealable() > 0
    }

    /// How many entries thieves could take.
    pub(crate) fn stealable(&self) -> usize {
        self.queues(|queues| {
            if queues.deques.maybe() == 0 {
                0
            } else {
                queues.deques.len()
            }
        })
    }

    /// Fibers that have started here and not ended.
    pub(crate) fn started_here(&self) -> usize {
        // Relaxed: our own counters.
        let counters = &self.remote().counters;
        let ended = counters.ended.load(Ordering::Relaxed);
        // A migratable fiber may end on another worker than it started on.
        counters
            .started
            .load(Ordering::Relaxed)
            .saturating_sub(ended) as usize
    }

    /// Sorts the queues again after a priority was inherited.
    pub(crate) fn resort(&self) {
        self.queues(|queues| {
            queues.ready.resort(Self::level_of);
            queues.deques.resort(Self::level_of);
        });
    }

    /// Fibers that are ready to run here.
    pub(crate) fn ready(&self) -> usize {
        let next = usize::from(self.run_next.get().is_some());
        self.queues(|queues| queues.ready.len() + queues.deques.len()) + next
    }

    /// The load as SPEC defines it: live started fibers + 8 × ready ones.
    pub(crate) fn load(&self) -> usize {
        self.started_here() + 8 * self.ready()
    }

    /// Lets other workers see the load.
    pub(crate) fn publish_load(&self) {
        let load = self.load() as u64;
        let counters = &self.remote().counters;
        counters.load.store(load, Ordering::Relaxed);
        let timers = self.with_wheel(|wheel| wheel.len()) as u64;
        counters.timers.store(timers, Ordering::Relaxed);
    }

    /// Whether a fiber spawned now will probably be joined at once.
    pub(crate) fn expects_join(&self) -> bool {
        self.joins_soon.get() >= 2
    }

    /// Learns from a spawn: joined by its spawner before anybody wanted it?
    pub(crate) fn learn_join(&self, joined: bool) {
        let now = self.joins_soon.get();
        self.joins_soon
            .set(if joined { (now + 1).min(3) } else { 0 });
    }
}
