//! What a runtime is doing, in numbers.

use crate::reactor::Reactor;
use crate::sched::shared::Shared;
use crate::stack::GuardKind;
use crate::worker::services;
use crate::worker::shutdown::{self, Whom};
use std::sync::atomic::Ordering;

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
    /// Each worker's share.
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
        .remotes
        .iter()
        .map(|remote| {
            let counters = &remote.counters;
            let ended = counters.ended.load(Ordering::Relaxed);
            let reactor = remote.driver.as_any().downcast_ref::<Reactor>();
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
            }
        })
        .collect();
    let parked = shared.remotes.iter().fold(0u64, |sum, remote| {
        sum.wrapping_add(remote.counters.parked.load(Ordering::Relaxed))
    });
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
        workers,
    }
}
