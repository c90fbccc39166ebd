//! What a runtime is doing, in numbers.

use crate::reactor::Reactor;
use crate::sched::shared::Shared;
use crate::stack::GuardKind;
use crate::worker::services;
use crate::worker::shutdown::{self, Whom};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How stacks are guarded against overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GuardStats {
    /// Guard regions inside few mappings (`MADV_GUARD_INSTALL`).
    Region,
    /// One protected mapping per stack (`mprotect`).
    Mprotect,
    /// Some this way, some that.
    Mixed,
}

/// One worker's share.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// let runtime = sinew::Runtime::builder().workers(1).build()?;
/// runtime.run(|| {
///     while sinew::Handle::current().stats().workers[0].blocked.is_zero() {
///         // std's sleep blocks the worker; `sinew::sleep` would not.
///         std::thread::sleep(Duration::from_millis(50));
///     }
/// });
/// let worker = &runtime.stats().workers[0];
/// assert!(worker.longest_turn >= worker.blocked);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerStats {
    /// Switches to a fiber so far.
    pub switches: u64,
    /// Fibers taken from other workers so far.
    pub stolen: u64,
    /// Fibers that started here and have not ended.
    pub started: u64,
    /// Timers that are set.
    pub timers: u64,
    /// Operations that the kernel carries out: with io_uring, those that fibers
    /// wait for.
    pub io_operations: usize,
    /// Descriptors whose readiness is watched.
    pub io_watched: usize,
    /// The longest turn so far: how long a fiber kept the worker without a pause.
    ///
    /// Only time counts in which the fiber used the CPU or was blocked in the kernel, not
    /// time in which there was no CPU for the worker's thread. This and the next four are
    /// measured at the monitor's ticks, which come every 1 to 5 ms: a turn is counted
    /// shorter by up to two ticks than it was, and one that is over before its second tick
    /// is not counted. A turn that goes on is included.
    pub longest_turn: Duration,
    /// Turns of 1 ms and longer.
    pub turns_over_1ms: u64,
    /// Turns of 10 ms and longer.
    pub turns_over_10ms: u64,
    /// Turns of 100 ms and longer.
    pub turns_over_100ms: u64,
    /// For how long fibers have blocked the worker's thread in the kernel: in system calls
    /// of theirs, or in page faults that had to wait.
    ///
    /// All fibers that have started on this worker wait as long, as do its I/O and its
    /// timers. Remains zero where `/proc` cannot be read.
    pub blocked: Duration,
}

/// A snapshot of a runtime; see [`Runtime::stats`](crate::Runtime::stats).
///
/// The numbers are read one after the other while the workers go on, so they
/// fit each other only when nothing runs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuntimeStats {
    /// Fibers and blocking tasks spawned so far.
    pub spawned: u64,
    /// Those that have not ended.
    pub live: u64,
    /// Fibers that wait for something.
    pub parked: u64,
    /// Fibers taken from other workers so far.
    pub stolen: u64,
    /// Switches to a fiber so far.
    pub switches: u64,
    /// Timers that are set.
    pub timers: u64,
    /// Stacks that fibers are on.
    pub stacks: usize,
    /// Free stacks kept for the next fibers.
    pub stacks_free: usize,
    /// Address space reserved for stacks, in bytes.
    pub stack_bytes_reserved: usize,
    /// How stacks are guarded.
    pub guard: GuardStats,
    /// Threads of the blocking pool.
    pub blocking_threads: usize,
    /// How workers do I/O: `"uring"` or `"epoll"`.
    pub driver: &'static str,
    /// Threads of spare workers.
    pub spare_threads: usize,
    /// Each worker's share; behind those of the workers, in the order of their first
    /// start, those of the spare workers that ever ran.
    pub workers: Vec<WorkerStats>,
}

fn driver_of(shared: &Shared) -> &'static str {
    let driver = shared.remotes[0].driver.as_any();
    driver
        .downcast_ref::<Reactor>()
        .map_or("replaced", |reactor| reactor.kind().name())
}

pub(super) fn of(shared: &Shared) -> RuntimeStats {
    // Relaxed: each number is a recent one; none says anything about another.
    let workers: Vec<WorkerStats> = shared
        .used()
        .iter()
        .map(|remote| {
            let counters = &remote.counters;
            let ended = counters.ended.load(Ordering::Relaxed);
            let reactor = remote.driver.as_any().downcast_ref::<Reactor>();
            let turns = remote.turns.read();
            let [turns_over_1ms, turns_over_10ms, turns_over_100ms] = turns.over;
            let (io_operations, io_watched) = reactor.map_or((0, 0), Reactor::occupancy);
            WorkerStats {
                switches: counters.switches.load(Ordering::Relaxed),
                stolen: counters.stolen.load(Ordering::Relaxed),
                started: counters
                    .started
                    .load(Ordering::Relaxed)
                    .saturating_sub(ended),
                timers: counters.timers.load(Ordering::Relaxed),
                io_operations,
                io_watched,
                longest_turn: turns.longest,
                turns_over_1ms,
                turns_over_10ms,
                turns_over_100ms,
                blocked: turns.blocked,
            }
        })
        .collect();
    let parked = shared.remotes.iter().fold(0u64, |sum, remote| {
        sum.wrapping_add(remote.counters.parked.load(Ordering::Relaxed))
    });
    let spares = shared.remotes.iter().skip(shared.workers);
    let live = shutdown::alive(shared, Whom::All);
    let stacks = shared.stacks.stats();
    RuntimeStats {
        spawned: shutdown::spawned(shared),
        live,
        parked,
        stolen: workers.iter().map(|worker| worker.stolen).sum(),
        switches: workers.iter().map(|worker| worker.switches).sum(),
        timers: workers.iter().map(|worker| worker.timers).sum(),
        stacks: stacks.stacks_in_use,
        stacks_free: stacks.stacks_free,
        stack_bytes_reserved: stacks.reserved_bytes,
        guard: match stacks.guard {
            GuardKind::Region => GuardStats::Region,
            GuardKind::Mprotect => GuardStats::Mprotect,
            GuardKind::Mixed => GuardStats::Mixed,
        },
        blocking_threads: services::of(shared).pool.threads(),
        driver: driver_of(shared),
        spare_threads: spares.filter(|remote| remote.duty.is_manned()).count(),
        workers,
    }
}
