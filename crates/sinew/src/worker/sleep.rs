//! Going to sleep, and waking up.
//!
//! Three things may end a sleep, and none may be missed:
//!
//! 1. Work that any worker may take: `sched::idle`; we enter the list, then look
//!    once more.
//! 2. Fibers for this very worker: the inbox, whose head says that we sleep.
//! 3. Timers: they are our own, so their time is known before we sleep.
//!
//! A sleep and its end cost 30 to 60 µs here, and the waker a system call. When
//! fibers of two workers answer each other, each sleep is as short as that. So a
//! worker that was woken soon after it fell asleep, or found work while it looked
//! out for it, looks out before its next sleep, for a few µs; one that sleeps
//! long stops doing so. An idle worker looks out for nothing.

use super::{search, shutdown};
use crate::primitive::{Ordering, fence};
use crate::sched::core::Core;
use crate::sched::idle::Left;
use std::time::Duration;

/// A sleep shorter than this (ns) is no sleep, but the cost of one.
const SHORT: u64 = 100_000;
/// How often to look before sleeping; with the pauses some 5 to 10 µs.
const LOOKS: u32 = 100;
const PAUSES: u32 = 2;

/// Sleeps until there may be something to do; answers whether this worker is
/// counted as a searcher from now on.
pub(crate) fn sleep(core: &Core, searching: bool) -> bool {
    let shared = core.shared();
    let remote = core.remote();
    let wake_at = core.with_wheel(|wheel| wheel.next_wake());
    let stands = shared.clock.stands();
    if let Some(at) = wake_at.filter(|_| stands) {
        // The next timer is now, unless a pool thread may still bring something
        // before, or has just done so (its last job is counted out after that).
        let pool_is_idle = !super::services::of(shared).pool.is_busy();
        if pool_is_idle && remote.inbox.is_empty() && shared.injectors.is_empty() {
            shared.clock.skip_to(at);
            if searching {
                search::end_search(core);
            }
            return false;
        }
    }
    if !stands && look_out(core, searching) {
        return searching;
    }
    core.publish_load();
    shared.idle.go_to_sleep(core.index(), searching);
    // After the fence in `go_to_sleep`: whoever starts to drain after our last
    // fiber ended sees its count; before, we see the flag.
    if shared.draining.load(Ordering::Relaxed) {
        shutdown::poke(shared);
    }
    let something = search::others_have_work(core)
        || shared.stop.load(Ordering::Relaxed)
        || !remote.inbox.try_sleep();
    if !something {
        let fell_asleep = shared.clock.now();
        let timeout = wake_at.map(|at| Duration::from_nanos(at.saturating_sub(fell_asleep)));
        remote.driver.park(timeout);
        if shared.can_look_out && shared.clock.now().saturating_sub(fell_asleep) < SHORT {
            core.learn_hope(true);
        }
    }
    core.end_inbox_sleep();
    let left = shared.idle.leave_sleep(core.index());
    // Pairs with the fence in `MonitorBell::sleep`.
    fence(Ordering::SeqCst);
    shared.monitor.ring();
    left == Left::AsSearcher
}

/// Looks out for work for a moment, if that has been worth it; true if there is
/// some.
fn look_out(core: &Core, searching: bool) -> bool {
    if !core.hopes() {
        return false;
    }
    let shared = core.shared();
    let remote = core.remote();
    for _ in 0..LOOKS {
        for _ in 0..PAUSES {
            std::hint::spin_loop();
        }
        let found = !remote.inbox.is_empty()
            || !remote.mail.is_empty()
            || searching && !shared.injectors.is_empty()
            || shared.stop.load(Ordering::Relaxed);
        if found {
            core.learn_hope(true);
            return true;
        }
    }
    core.learn_hope(false);
    false
}
