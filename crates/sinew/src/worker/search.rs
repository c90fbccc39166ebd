//! Looking for work that others have.
//!
//! A patient thief: it takes from a victim that has two or more unstarted
//! fibers, or one that has waited while the victim did not switch for
//! [`PATIENCE`], or whose fibers compute. A lone fiber is usually about to run where it is, warm, and
//! taking it costs both workers more than it brings.

use crate::queue::Entry;
use crate::sched::core::Core;
use crate::sched::shared::{Remote, bump};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a lone fiber must have waited before it is stolen.
const PATIENCE: Duration = Duration::from_micros(20);

/// What a look at all victims gave.
enum Look {
    Found(Entry),
    /// Somebody has just one: its number, and its switches at that time.
    Lone(usize, u64),
    Nothing,
}

/// Takes an entry from the injectors or from another worker; the caller counts
/// as a searcher, and goes on to do so.
pub(crate) fn search(core: &Core) -> Option<Entry> {
    match look(core) {
        Look::Found(entry) => Some(entry),
        Look::Nothing => None,
        Look::Lone(victim, switches) => wait_for_lone(core, victim, switches),
    }
}

/// The caller found work and searches no more; the last searcher passes the
/// duty on if there is more than it takes itself.
pub(crate) fn end_search(core: &Core) {
    if core.shared().idle.end_search() && (core.has_stealable() || others_have_work(core)) {
        core.shared().wake_searcher();
    }
}

fn look(core: &Core) -> Look {
    if let Some(entry) = core.take_injected() {
        return Look::Found(entry);
    }
    let remotes = core.shared().used();
    let first = core.random(remotes.len());
    let mut lone = Look::Nothing;
    for offset in 0..remotes.len() {
        let victim = (first + offset) % remotes.len();
        if victim == core.index() {
            continue;
        }
        let remote = &*remotes[victim];
        match remote.stealable() {
            0 => {}
            // Relaxed: a hint of the monitor's.
            1 if !remote.stuck.load(Ordering::Relaxed) => {
                lone = Look::Lone(victim, switches(remote));
            }
            _ => {
                if let Some(entry) = steal(core, remote) {
                    return Look::Found(entry);
                }
            }
        }
    }
    lone
}

/// Waits a moment for the victim to run its lone fiber itself.
fn wait_for_lone(core: &Core, victim: usize, switches_then: u64) -> Option<Entry> {
    let remote = &*core.shared().remotes[victim];
    let since = Instant::now();
    while since.elapsed() < PATIENCE {
        for _ in 0..32 {
            std::hint::spin_loop();
        }
        if !core.remote().inbox.is_empty() || core.shared().stop.load(Ordering::Relaxed) {
            return None;
        }
        if switches(remote) != switches_then {
            // It lives. If it still leaves work behind it will say so at its
            // next switch (`Core::settle_deferred`) or spawn.
            return match look(core) {
                Look::Found(entry) => Some(entry),
                _ => None,
            };
        }
    }
    steal(core, remote)
}

/// Takes a batch from a worker that has far more to do than this one, or does
/// not get to it, although this one has something to do itself.
///
/// Started fibers stay where they are. Without this a worker that has stolen a
/// few long-lived ones would leave hundreds of unstarted ones to another.
pub(crate) fn even_out(core: &Core) {
    let remotes = core.shared().used();
    let victim = &*remotes[core.random(remotes.len())];
    if victim.index == core.index() {
        return;
    }
    // Relaxed: a hint, published now and then.
    let theirs = victim.counters.load.load(Ordering::Relaxed) as usize;
    let waiting = victim.stealable();
    let stuck = waiting > 0 && victim.stuck.load(Ordering::Relaxed);
    // Where fibers compute a new one would stay beside them for good. The CPU is used
    // either way, though not in equal shares. Relaxed: as above.
    let computes = core.has_preempted() || core.remote().stuck.load(Ordering::Relaxed);
    if stuck || !computes && waiting >= 2 && 2 * core.load() < theirs {
        if let Some(entry) = steal(core, victim) {
            if core.push_stealable(entry) > 1 {
                // As in `Core::take_mail`.
                core.shared().wake_searcher();
            }
        }
    }
}

fn steal(core: &Core, victim: &Remote) -> Option<Entry> {
    let (entry, count) = core.steal_from(victim)?;
    bump(&core.remote().counters.stolen, count as u64);
    Some(entry)
}

fn switches(remote: &Remote) -> u64 {
    remote.counters.switches.load(Ordering::Relaxed)
}

/// The last look before sleep: whether there is anything worth staying for.
///
/// A lone fiber is left to its worker, but marked, so that the monitor wakes a
/// thief for it should that worker not get to it.
pub(crate) fn others_have_work(core: &Core) -> bool {
    let shared = core.shared();
    if !shared.injectors.is_empty() || !core.remote().mail.is_empty() {
        return true;
    }
    let mut several = false;
    for remote in shared.used() {
        if remote.index == core.index() {
            continue;
        }
        match remote.stealable() {
            0 => {}
            // Relaxed: the monitor looks at the deque itself.
            1 => remote.left_behind.store(true, Ordering::Relaxed),
            _ => several = true,
        }
    }
    several
}
