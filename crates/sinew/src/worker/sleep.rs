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
//! worker that was woken soon after it fell asleep looks out for work before its
//! next sleep; one that sleeps long stops doing so. An idle worker looks out for
//! nothing.

use super::{search, shutdown};
use crate::primitive::{Ordering, fence};
use crate::sched::core::Core;
use crate::sched::idle::Left;
use crate::sched::seam::Ended;
use std::time::Duration;

/// A sleep shorter than this (ns) is no sleep, but the cost of one.
const SHORT: u64 = 100_000;
/// The least and the most time to look out for work (ns). The most is more than
/// a wake-up takes: else two workers that answer each other would both sleep each
/// time, each being woken for longer than the other looks out (8 to 50 µs a round
/// trip instead of less than 1).
const LEAST_LOOK_OUT: u64 = 10_000;
const MOST_LOOK_OUT: u64 = 100_000;
/// After this many times in vain a worker sleeps without looking out, until it
/// has slept so often.
const GIVES_UP: u32 = 6;
const TRIES_AGAIN: u32 = 100;

/// Sleeps until there may be something to do; answers whether this worker is
/// counted as a searcher from now on.
pub(crate) fn sleep(core: &Core, searching: bool) -> bool {
    let shared = core.shared();
    let remote = core.remote();
    let wake_at = core.with_wheel(|wheel| wheel.next_wake());
    let stands = shared.clock.stands();
    if stands {
        // Before time jumps: what has happened has happened before.
        remote.driver.poll();
        if core.has_ready() {
            if searching {
                search::end_search(core);
            }
            return false;
        }
    }
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
    let saw_work = search::others_have_work(core);
    let something = saw_work || shared.stop.load(Ordering::Relaxed) || !remote.inbox.try_sleep();
    if !something {
        let fell_asleep = shared.clock.now();
        let timeout = wake_at.map(|at| Duration::from_nanos(at.saturating_sub(fell_asleep)));
        let ended = remote.driver.park(timeout);
        if shared.can_look_out && ended == Ended::Unparked {
            learn(core, shared.clock.now().saturating_sub(fell_asleep));
        }
    }
    core.end_inbox_sleep();
    let left = shared.idle.leave_sleep(core.index(), saw_work);
    // Pairs with the fence in `MonitorBell::sleep`.
    fence(Ordering::SeqCst);
    shared.monitor.ring();
    left == Left::AsSearcher
}

/// Looks out for longer after a short sleep, and not for long after a long one.
fn learn(core: &Core, slept: u64) {
    let in_vain = core.in_vain().get();
    if in_vain >= GIVES_UP {
        // Whoever is to make work may need this very CPU: sleep for some time.
        core.set_look_out(0);
        core.in_vain().set((in_vain + 1) % TRIES_AGAIN);
        return;
    }
    let now = core.look_out();
    core.set_look_out(if slept < SHORT {
        (now * 2).clamp(LEAST_LOOK_OUT, MOST_LOOK_OUT)
    } else if now > LEAST_LOOK_OUT {
        now / 4
    } else {
        0
    });
}

/// Looks out for work for a moment, if that has been worth it; true if there is
/// some.
fn look_out(core: &Core, searching: bool) -> bool {
    if core.look_out() == 0 {
        return false;
    }
    let shared = core.shared();
    let remote = core.remote();
    remote.driver.poll();
    if core.has_ready() {
        return true;
    }
    let until = shared.clock.now() + core.look_out();
    while shared.clock.now() < until {
        for _ in 0..8 {
            std::hint::spin_loop();
            let found = !remote.inbox.is_empty()
                || !remote.mail.is_empty()
                || searching && !shared.injectors.is_empty()
                || shared.stop.load(Ordering::Relaxed);
            if found {
                core.in_vain().set(0);
                return true;
            }
        }
    }
    core.in_vain().set(core.in_vain().get() + 1);
    false
}
