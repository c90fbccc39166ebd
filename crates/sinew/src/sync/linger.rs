//! Holding back for a moment before standing in line.
//!
//! Where a lock is handed over, its line feeds itself: while anybody stands in
//! it all who come stand in it too, and with fibers pinned to their workers each
//! hand-over may have to wake a sleeping one. Four readers and two writers on two
//! workers fell to 7–9 µs per lock that way, and stayed there.
//!
//! So who comes holds back, for about as long as it takes to wake a worker: the
//! line runs dry meanwhile, and those who run take the lock from each other
//! without it. Nobody in line is overtaken, since the lock is not to be had while
//! there are any. Meanwhile other fibers of this worker run, if there are any:
//! one of them may be next in line.
//!
//! | looks | yields at most | ns per lock: mean, worst | held across a yield |
//! |-------|----------------|--------------------------|---------------------|
//! | 0     | 0              | 3295, 9370               | 2952, 7919          |
//! | 400   | 0              | 290, 536                 | 1893, 4266          |
//! | 100   | 4              | 346, 1169                | 744, 1919           |
//! | 400   | 4              | 65, 107                  | 277, 455            |
//! | 100   | 8              | 113, 424                 | 563, 1508           |
//! | 400   | 8              | 53, 76                   | 265, 535            |
//! | tokio |                | 305, 385                 | 706, 922            |
//!
//! (15 runs of each in turn, of 300,000 locks, two workers on two busy CPUs.)
//! Spinning in the line instead, until the lock is handed over, was no cure: 318
//! and 529 ns where tokio took 256 and 615, and far worse while both workers
//! shared a CPU.

use crate::fiber::Intent;
use crate::sched::{current, switch};
use crate::wait::deadline;

/// How often to look: some 6 µs, about what waking a worker takes.
const LOOKS: u32 = 400;
/// How often to let others run meanwhile.
const YIELDS: u32 = 8;
/// Others that run for longer than this (ns) have better things to do than to
/// pass the lock around: no more waiting outside of the line.
const LONG: u64 = 10_000;

/// Looks again and again, for a moment, whether `attempt` succeeds.
///
/// Only for fibers of runtimes with several workers: with one the lock does not
/// become free while this fiber runs. A plain thread does not hold back either:
/// the kernel wakes it as fast as anything here would.
///
/// # Panics
///
/// Where waiting is not allowed: see [`switch::about_to_wait`].
#[must_use = "what was attempted may have succeeded"]
pub(super) fn linger(mut attempt: impl FnMut() -> bool) -> bool {
    let Some(block) = switch::about_to_wait() else {
        return false;
    };
    let mut yields = 0;
    for _ in 0..LOOKS {
        // Looked up each time: a migratable fiber may have come to another
        // worker. SAFETY: a fiber runs here, so this thread has a live core.
        let core = unsafe { &*current::core() };
        if !core.several() {
            return false;
        }
        core.empty_inbox();
        if core.ready() == 0 {
            std::hint::spin_loop();
        } else if yields == YIELDS {
            return false;
        } else {
            yields += 1;
            let since = deadline::now();
            // SAFETY: it runs here and may wait; we hold nothing of the
            // runtime's.
            unsafe { switch::leave(block, Intent::Yield) };
            if deadline::now().saturating_sub(since) > LONG {
                return attempt();
            }
        }
        if attempt() {
            return true;
        }
    }
    false
}
