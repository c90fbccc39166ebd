//! Latency bounded by time: who must let others run, and when.
//!
//! A worker that switches often looks around by count (`run::LOOK_AROUND`). One
//! whose fibers compute switches rarely, and would let timers, events and woken
//! fibers wait for 61 turns of whatever length. A worker reads no clock when it
//! switches, so the monitor tells it about time, by three flags of its [`Remote`]:
//!
//! | flag      | raised by a tick that finds                    | what follows |
//! |-----------|------------------------------------------------|--------------|
//! | `look`    | a running fiber                                | before its next turn the worker looks around: it asks its driver, fires timers, takes in inbox, mail and injectors; then it notes who was passed over for too long (`queue::share`) |
//! | `preempt` | one that has run for more than [`ASKED_AFTER`] | at its next safepoint the fiber leaves its stack, and the worker looks around |
//! | `spent`   | one that has used up its quantum               | as `preempt`, and the fiber's turn ends |
//!
//! A fiber that leaves at a safepoint before its quantum is used up *gives way* only
//! if somebody waits: a ready fiber of its priority or above, or a lower one that is
//! owed a turn. Else it goes on, and the monitor counts that as the same turn. So the
//! monitor need not know who waits on a worker: the worker looks itself, at each tick,
//! which costs it less than a microsecond. (Asking the kernel from the
//! monitor's thread would need its descriptors to outlive the worker, and published
//! lengths of queues would cost each switch a store.)
//!
//! A fiber that gives way, or whose quantum is used up, is *preempted*: it is queued
//! behind the others of its priority (`queue::preempted`), where it has a least share
//! of time. A fiber that yields keeps its place in the order of those that yield, and
//! one that parks is woken like any other, however long they ran; for both the worker
//! looks around, too.
//!
//! All flags are hints. With `preempt` the monitor stores in which turn, told by the
//! worker's count of switches, it is raised ([`Remote::asked_in`]). A fiber that finds a
//! request for the turn before its own leaves its stack for it, but is resumed at once.
//!
//! Where switches alone count (`Settings::by_time` is false) the monitor raises
//! `preempt` with `spent` only, a preempted fiber goes to the end of the one queue,
//! and nobody looks around for it.

use super::run::look_around;
use super::spare;
use crate::fiber::{Block, Intent};
use crate::sched::core::Core;
use crate::sched::shared::{Remote, Settings};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a fiber runs before those who wait on its worker come first.
pub(super) const ASKED_AFTER: Duration = Duration::from_millis(1);

/// Tells a worker about time; the monitor, at each tick that finds a fiber running.
/// `switches` is the worker's count of them, and `running_for` how long the fiber is known
/// to have run since the last one. True if it was asked to leave.
pub(super) fn remind(
    remote: &Remote,
    settings: &Settings,
    switches: u64,
    running_for: Duration,
    quantum: Duration,
) -> bool {
    let spent = running_for >= quantum;
    let asked = spent || settings.by_time && running_for >= ASKED_AFTER;
    if asked {
        ask(remote, switches, spent);
    }
    if settings.by_time {
        remote.ask_to_look();
    }
    asked
}

/// Asks the fiber to leave that runs in the turn after so many switches.
pub(crate) fn ask(remote: &Remote, switches: u64, spent: bool) {
    // Relaxed: carried by the flag.
    remote.asked_in.store(switches, Ordering::Relaxed);
    if spent {
        remote.spent.store(true, Ordering::Relaxed);
    }
    // Release: pairs with the swap in `asked`.
    remote.preempt.store(true, Ordering::Release);
}

/// What becomes of a fiber that has left its stack while it was asked to.
pub(super) enum Asked {
    /// It is resumed at once, in the same turn.
    GoesOn,
    /// It is queued with the preempted ones.
    Behind,
    /// What it intends.
    AsItIntends,
}

/// Decides about a fiber that was asked to leave, and has left with `intent`; none if
/// it has ended.
#[cold]
#[inline(never)]
pub(super) fn asked(core: &Core, block: NonNull<Block>, intent: Option<Intent>) -> Asked {
    let remote = core.remote();
    // Acquire: pairs with the Release in `ask`.
    remote.preempt.swap(false, Ordering::Acquire);
    // A load and a store: what the monitor raises in between, it raises again.
    let spent = remote.spent.load(Ordering::Relaxed);
    remote.spent.store(false, Ordering::Relaxed);
    // Relaxed: the worker's own counter.
    let turn = remote.counters.switches.load(Ordering::Relaxed);
    let is_late = remote.asked_in.load(Ordering::Relaxed) != turn;
    match intent {
        Some(Intent::Safepoint) if is_late => Asked::GoesOn,
        _ if is_late || !core.by_time() => Asked::AsItIntends,
        None | Some(Intent::Park | Intent::Yield) => {
            remote.look_soon();
            Asked::AsItIntends
        }
        Some(Intent::Safepoint) if spent => {
            remote.look_soon();
            Asked::Behind
        }
        Some(Intent::Safepoint) => {
            // SAFETY: it has just left its stack, and is owned by this worker.
            let level = unsafe { block.as_ref() }.level();
            take_request(core);
            core.offer_if_computing(true);
            remote.driver.poll();
            look_around(core);
            core.keep_shares(Some(level));
            if core.must_give_way(level) {
                Asked::Behind
            } else {
                Asked::GoesOn
            }
        }
    }
}

/// The worker was asked to look, and does so between two turns; false if only switches
/// count here.
#[cold]
#[inline(never)]
pub(super) fn look(core: &Core) -> bool {
    take_request(core);
    if !core.by_time() {
        return false;
    }
    core.end_row();
    core.offer_if_computing(false);
    core.remote().driver.poll();
    look_around(core);
    core.keep_shares(None);
    true
}

/// Takes the request to look, and sorts the queues if that was asked for.
fn take_request(core: &Core) {
    let remote = core.remote();
    // Acquire, both: pair with the Releases in `Remote::ask_to_resort` and `ask_to_look`.
    remote.look.swap(false, Ordering::Acquire);
    if remote.resort.swap(false, Ordering::Acquire) {
        core.resort();
        spare::heed(core);
    }
}
