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

use super::awaited::Awaited;
use super::bell::MonitorBell;
use super::duty::Duty;
use super::idle::Idle;
use super::seam::{Clock, Driver};
use super::turns::TurnCounters;
use crate::error::Unobserved;
use crate::fiber::Block;
use crate::primitive::{self, AtomicU64, AtomicUsize};
use crate::queue::deque::{Injectors, Stealers};
use crate::queue::inbox::Inbox;
use crate::stack::{NoStack, Reserve, StackClass, StackPool};
use crate::sys::Lock;
use crate::sys::thread_state::ThreadCell;
use crate::util::list::List;
use crossbeam_utils::CachePadded;
use std::any::Any;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// A bit of [`Remote::starving`] beside those of the classes: fibers that will only end
/// wait for any small stack, or for [`Shared::reserve`].
pub(crate) const WANTS_RESERVE: u32 = 1 << 31;
const _: () = assert!(StackClass::COUNT < 31);

/// How a runtime was asked to be.
pub(crate) struct Settings {
    pub(crate) name: String,
    pub(crate) strict_order: bool,
    /// Workers look around by time, and fibers that compute come after the others.
    /// Not so with `strict_order`, in a simulation or on a virtual clock: there
    /// switches alone count.
    pub(crate) by_time: bool,
    pub(crate) class: StackClass,
    /// How long cancelled daemons are waited for at the end.
    pub(crate) daemon_grace: Duration,
    /// A panic on a fiber is preceded by a line that names the fiber.
    pub(crate) report_panics: bool,
    /// Of a runtime that runs a test: where panics go that nobody takes.
    pub(crate) unobserved: Option<Arc<Unobserved>>,
}

/// What all workers of a runtime share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    /// The workers', then slots for spares.
    pub(crate) remotes: Box<[CachePadded<Remote>]>,
    /// How many of `remotes` are workers'.
    pub(crate) workers: usize,
    /// How many of `remotes` have or had a thread; only the monitor raises it.
    pub(crate) slots_used: AtomicUsize,
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
    /// When the end gives up those that are left, and how long after the request that is; see
    /// `shutdown::give_up_after`.
    pub(crate) give_up_at: Mutex<Option<(Instant, Duration)>>,
    /// Those who wait for fibers of this runtime from outside; see `worker::stall`.
    pub(crate) awaited: Awaited,
    /// How many fibers wait for the end of a fiber of another runtime.
    pub(crate) joins_elsewhere: AtomicUsize,
    /// No new fibers from outside: the end has begun; see `submit::Gate`.
    pub(crate) closed: primitive::AtomicBool,
    /// No new fibers at all: the workers are about to stop.
    pub(crate) closed_for_all: primitive::AtomicBool,
    /// Spawns by threads that are no workers, under way; see `submit::Gate`.
    pub(crate) entering: AtomicUsize,
    /// Wakes of fibers by threads that are no workers, under way; see
    /// `submit::enqueue`.
    pub(crate) waking: AtomicUsize,
    /// The classes of which fibers wait for a stack, and why the first of them does.
    pub(crate) no_stack: Mutex<Vec<(StackClass, NoStack)>>,
    /// Mirrors the classes in `no_stack` ([`StackClass::bit`]), for a look without the lock.
    pub(crate) out_of_stacks: AtomicU32,
    /// It was said that a fiber has failed for want of a stack.
    pub(crate) said_no_stack: AtomicBool,
    /// A stack for fibers that only end.
    pub(crate) reserve: Reserve,
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
    /// Its fiber has not switched for a tick of the monitor, or fibers that compute
    /// take turns here: a new fiber is better off elsewhere.
    pub(crate) stuck: AtomicBool,
    /// Raised when the running fiber has run for more than a tick: whoever waits
    /// here is to run first. Safepoints look at it. See `worker::urgency`.
    pub(crate) preempt: AtomicBool,
    /// Raised with `preempt` when the fiber has used up its quantum.
    pub(crate) spent: AtomicBool,
    /// The count of switches for which `preempt` was raised.
    pub(crate) asked_in: AtomicU64,
    /// Raised by each tick: the worker is to look around before its next turn. Also
    /// raised with `resort`.
    pub(crate) look: AtomicBool,
    /// Preempted fibers are queued here; written by the worker alone.
    pub(crate) computes: AtomicBool,
    /// A queued fiber's priority was raised: sort the queues again.
    pub(crate) resort: AtomicBool,
    /// The classes ([`StackClass::bit`]) of which unstarted fibers wait here for a stack,
    /// and [`WANTS_RESERVE`]. Written by its own worker.
    pub(crate) starving: AtomicU32,
    /// A [`WorkerEnd`].
    end: AtomicU8,
    /// The kernel may have memory again for those who starve here: ask it once more.
    pub(crate) ask_kernel: AtomicBool,
    /// The fiber that runs now, for the monitor.
    pub(crate) current: AtomicPtr<Block>,
    /// Whether the slot has a thread, and takes new fibers.
    pub(crate) duty: Duty,
    /// Started migratable fibers whose home this is.
    pub(crate) migrants: AtomicUsize,
    pub(crate) counters: Counters,
    /// The worker's thread, for the monitor; none before it runs and after it has ended.
    pub(crate) thread: ThreadCell,
    /// How long fibers kept the worker; the monitor's.
    pub(crate) turns: TurnCounters,
}

/// What a worker counts (invariant 3).
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) lives: Lives,
    pub(crate) switches: AtomicU64,
    pub(crate) started: AtomicU64,
    pub(crate) ended: AtomicU64,
    /// Of the migratable ones: started here less ended here; wraps below zero.
    pub(crate) migratable: AtomicU64,
    pub(crate) stolen: AtomicU64,
    pub(crate) timers: AtomicU64,
    /// Parks less resumptions; wraps below zero for migratable fibers.
    pub(crate) parked: AtomicU64,
    /// Live started fibers + 8 × ready ones, published now and then.
    pub(crate) load: AtomicU64,
}

/// How far the end of a worker has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum WorkerEnd {
    /// It is in its loop, perhaps in a fiber that does not let go.
    Running,
    /// It has left its loop; its thread is about to end.
    Stopped,
    /// It has left its loop; its thread stays, for fibers that were leaked.
    Kept,
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
    pub(crate) fn new(
        index: usize,
        driver: Box<dyn Driver>,
        stealers: Option<Stealers>,
        duty: Duty,
    ) -> Self {
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
            spent: AtomicBool::new(false),
            asked_in: AtomicU64::new(0),
            look: AtomicBool::new(false),
            computes: AtomicBool::new(false),
            resort: AtomicBool::new(false),
            starving: AtomicU32::new(0),
            // A slot that has no thread has none that could run or stay.
            end: AtomicU8::new(if duty.is_on() {
                WorkerEnd::Running as u8
            } else {
                WorkerEnd::Stopped as u8
            }),
            ask_kernel: AtomicBool::new(false),
            current: AtomicPtr::new(ptr::null_mut()),
            duty,
            migrants: AtomicUsize::new(0),
            counters: Counters::default(),
            thread: ThreadCell::new(),
            turns: TurnCounters::default(),
        }
    }
}

impl Remote {
    /// Lets the worker sort its queues before its next turn: a priority was raised, or
    /// it is a spare that retires.
    pub(crate) fn ask_to_resort(&self) {
        // Release: the worker that sees the flag sees why it was raised, and the one that
        // sees `look` sees `resort`; both pair with `worker::urgency::take_request`.
        self.resort.swap(true, Ordering::Release);
        self.ask_to_look();
    }

    /// Lets the worker look around before its next turn.
    pub(crate) fn ask_to_look(&self) {
        // Release: as above. Every thread raises the flag by a read-modify-write: a store
        // would cut off the edge from another thread that has raised it before, and the
        // worker could take the flag away without seeing that one's reason.
        self.look.swap(true, Ordering::Release);
    }

    /// The same, for the worker itself.
    pub(crate) fn look_soon(&self) {
        // Relaxed: there is nothing to be seen; a read-modify-write, see `ask_to_look`.
        self.look.swap(true, Ordering::Relaxed);
    }

    /// How many unstarted fibers thieves could take here.
    pub(crate) fn stealable(&self) -> usize {
        let deque = self.stealers.as_ref().map_or(0, Stealers::len);
        deque + self.mail.len()
    }

    /// The worker says how it ended, as the last thing that it does with the runtime's
    /// queues.
    pub(crate) fn set_end(&self, end: WorkerEnd) {
        // Release: what the worker handed over is seen; pairs with `end`.
        self.end.store(end as u8, Ordering::Release);
    }

    pub(crate) fn end(&self) -> WorkerEnd {
        // Acquire: pairs with `set_end`.
        match self.end.load(Ordering::Acquire) {
            end if end == WorkerEnd::Running as u8 => WorkerEnd::Running,
            end if end == WorkerEnd::Stopped as u8 => WorkerEnd::Stopped,
            _ => WorkerEnd::Kept,
        }
    }
}

impl Shared {
    pub(crate) fn several_workers(&self) -> bool {
        self.workers > 1
    }

    /// The slots that have or had a thread: nobody else has ever queued anything.
    pub(crate) fn used(&self) -> &[CachePadded<Remote>] {
        // Relaxed: a slot is counted before its thread starts. So what that thread has
        // queued happens after; a reader that must see what it queued is ordered after
        // it by the fences of `sched::idle`, and sees the count as well.
        &self.remotes[..self.slots_used.load(Ordering::Relaxed)]
    }

    /// Why fibers of this class wait for a stack, if they do.
    pub(crate) fn why_no_stack(&self, class: StackClass) -> Option<NoStack> {
        let no_stack = self.no_stack.lock().unwrap_or_else(PoisonError::into_inner);
        let known = no_stack.iter().find(|(known, _)| *known == class);
        known.map(|(_, error)| error.clone())
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
