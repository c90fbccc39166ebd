//! Going to sleep, and waking up.
//!
//! Three things may end a sleep, and none may be missed:
//!
//! 1. Work that any worker may take: `sched::idle`; we enter the list, then look
//!    once more.
//! 2. Fibers for this very worker: the inbox, whose head says that we sleep.
//! 3. Timers: they are our own, so their time is known before we sleep.

use super::{search, shutdown};
use crate::primitive::{Ordering, fence};
use crate::sched::core::Core;
use crate::sched::idle::Left;
use std::time::Duration;

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
        let timeout = wake_at.map(|at| Duration::from_nanos(at.saturating_sub(shared.clock.now())));
        remote.driver.park(timeout);
    }
    core.end_inbox_sleep();
    let left = shared.idle.leave_sleep(core.index());
    // Pairs with the fence in `MonitorBell::sleep`.
    fence(Ordering::SeqCst);
    shared.monitor.ring();
    left == Left::AsSearcher
}
