//! What the workers of a runtime share, and what others see of each.
//!
//! | type       | one per | touched by                             |
//! |------------|---------|----------------------------------------|
//! | [`Shared`] | runtime | everybody                              |
//! | [`Remote`] | worker  | everybody: what others see of a worker |
//!
//! Invariant (counters): each counter of a [`Remote`] is written by its own
//! worker alone, so a load and a store do for an addition. (`load` is the
//! exception: a spawner that sends a fiber adds to it, the worker overwrites it.)

use super::bell::MonitorBell;
use super::idle::Idle;
use super::seam::{Clock, Driver};
use crate::fiber::Block;
use crate::primitive::{self, AtomicU64, AtomicUsize};
use crate::queue::deque::{Injectors, Stealers};
use crate::queue::inbox::Inbox;
use crate::stack::{NoStack, StackClass, StackPool};
use crate::sys::Lock;
use crate::util::list::List;
use crossbeam_utils::CachePadded;
use std::any::Any;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

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
    /// There are several CPUs: who looks out for work does not keep it from
    /// being made.
    pub(crate) can_look_out: bool,
    /// New fibers are born cancelled: the runtime is ending.
    pub(crate) cancelling: AtomicBool,
    /// No new fibers from outside: the end has begun; see `submit::Gate`.
    pub(crate) closed: primitive::AtomicBool,
    /// No new fibers at all: the workers are about to stop.
    pub(crate) closed_for_all: primitive::AtomicBool,
    /// Spawns by threads that are no workers, under way; see `submit::Gate`.
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
    /// Unstarted fibers that other workers sent; thieves may take them.
    pub(crate) mail: Injectors,
    /// A fiber lies in the deque and nobody was woken for it yet.
    pub(crate) deferred: AtomicBool,
    /// A thief saw a lone fiber in the deque and went to sleep.
    pub(crate) left_behind: AtomicBool,
    /// Its fiber has not switched for a tick of the monitor.
    pub(crate) stuck: AtomicBool,
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
            mail: Injectors::new(),
            deferred: AtomicBool::new(false),
            left_behind: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
            preempt: AtomicBool::new(false),
            resort: AtomicBool::new(false),
            starving: AtomicBool::new(false),
            current: AtomicPtr::new(ptr::null_mut()),
            counters: Counters::default(),
        }
    }
}

impl Remote {
    /// How many unstarted fibers thieves could take here.
    pub(crate) fn stealable(&self) -> usize {
        let deque = self.stealers.as_ref().map_or(0, Stealers::len);
        deque + self.mail.len()
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
