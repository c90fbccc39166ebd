//! Fibers that nobody can wake any more, and somebody who waits for them.
//!
//! Two fibers that each hold what the other wants wait in silence, and so does who waits for them.
//! If all workers sleep, no timer is set, nothing runs on the blocking pool and no fiber waits for
//! I/O, a signal, a future or the end of another runtime or its fibers, then the fibers wait for
//! each other, or for what a plain thread or a fiber of another runtime does.
//! That is worth a list, if somebody waits from outside for them (`sched::awaited`), and has done
//! so for some seconds; once in a runtime's life.
//!
//! The monitor finds out, and idling stays free: when it goes to sleep because every worker does,
//! and the quick conditions hold, it sleeps with a time limit. If nobody rang it by then it looks
//! at every fiber. After that look it sleeps without a limit, until something has run or somebody
//! else has begun to wait.

use super::fibers::{FiberInfo, FiberState};
use super::services;
use super::shutdown::{self, Whom};
use crate::fiber::{WaitReason, slab};
use crate::sched::shared::Shared;
use crate::sys::log::log;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// So many fibers are listed.
const SHOWN: usize = 20;

/// Signals are listened to: a select may be waiting for one.
static SIGNALS: AtomicBool = AtomicBool::new(false);

/// From now on a select may be waiting for a signal.
pub(crate) fn signals_may_come() {
    // Relaxed: it only keeps a report from being made.
    SIGNALS.store(true, Ordering::Relaxed);
}

/// What the monitor remembers of its last look.
#[derive(Default)]
pub(super) struct StallWatch {
    /// What had happened by then.
    looked_at: Option<(u64, u64)>,
    reported: bool,
}

impl StallWatch {
    /// How long the monitor is to sleep before it looks; none for as long as nobody rings.
    pub(super) fn patience(&self, shared: &Shared, after: Duration) -> Option<Duration> {
        let due = !self.reported && self.looked_at != Some(happened(shared)) && may_stall(shared);
        due.then_some(after)
    }

    /// The time is over, and nobody has rung.
    pub(super) fn look(&mut self, shared: &Arc<Shared>, after: Duration) {
        if !may_stall(shared) {
            return;
        }
        self.looked_at = Some(happened(shared));
        let mut all_stuck = true;
        slab::for_each_of(shared.tag().as_ptr(), |block| {
            all_stuck &= is_stuck(&FiberInfo::of(shared, &block));
        });
        if all_stuck {
            self.reported = true;
            report(shared, after);
        }
    }
}

/// Changes whenever a fiber runs, or somebody begins to wait from outside.
fn happened(shared: &Shared) -> (u64, u64) {
    // Relaxed: the workers sleep.
    let switches = shared.remotes.iter().fold(0u64, |sum, remote| {
        sum.wrapping_add(remote.counters.switches.load(Ordering::Relaxed))
    });
    (switches, shared.awaited.begun())
}

/// What can be said without a look at each fiber.
fn may_stall(shared: &Shared) -> bool {
    // Relaxed: published by each worker before it slept.
    let timers =
        |remote: &crate::sched::shared::Remote| remote.counters.timers.load(Ordering::Relaxed);
    shared.awaited.is_any()
        && shared.idle.all_asleep()
        && !services::of(shared).pool.is_busy()
        // Relaxed: as above.
        && shared.joins_elsewhere.load(Ordering::Relaxed) == 0
        && shared.remotes.iter().all(|remote| timers(remote) == 0)
        && shutdown::alive(shared, Whom::All) > 0
}

/// Whether only another fiber or a plain thread can wake it.
fn is_stuck(fiber: &FiberInfo) -> bool {
    use WaitReason as Reason;
    if fiber.state != FiberState::Waiting {
        return false;
    }
    match fiber.waits_for {
        Reason::Read
        | Reason::Write
        | Reason::Accept
        | Reason::Connect
        | Reason::File
        | Reason::Process
        | Reason::Signal
        | Reason::Sleep
        | Reason::Deaf
        | Reason::Blocking
        | Reason::Future
        | Reason::Shutdown // of another runtime
        | Reason::None => false,
        // Relaxed: see `signals_may_come`.
        Reason::Select => !SIGNALS.load(Ordering::Relaxed),
        _ => true,
    }
}

#[cold]
fn report(shared: &Arc<Shared>, after: Duration) {
    log(&format!(
        "runtime '{}': nothing has happened for {after:?} while its end is awaited: no fiber is \
         ready, no timer is set, and none waits for I/O; they wait for each other, for themselves (a \
         lock taken twice), or for another thread or runtime:{}",
        shared.settings.name,
        super::fibers::listed(shared, SHOWN),
    ));
}
