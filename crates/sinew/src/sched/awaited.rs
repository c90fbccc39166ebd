//! How many wait from outside for fibers of a runtime: in `run`, in the runtime's drop, in the
//! scope of a plain thread.
//!
//! Only while somebody does, fibers that nobody can wake any more are worth a report
//! (`worker::stall`). The monitor looks at the count when it is about to sleep, and somebody may
//! begin to wait after that. So who begins counts itself, fences, and rings the monitor; the
//! monitor hangs its bell up, fences, and looks at the count (`sched::bell`). One of the two sees
//! the other.

use super::bell::MonitorBell;
use crate::primitive::{AtomicU64, Ordering, fence};

/// See the module header.
#[derive(Default)]
pub(crate) struct Awaited {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Awaited {
    /// Counts a wait from outside, until the answer is dropped.
    pub(crate) fn begin<'a>(&'a self, monitor: &MonitorBell) -> Waits<'a> {
        // Relaxed: ordered by the fence; see the header.
        self.begun.fetch_add(1, Ordering::Relaxed);
        // Pairs with the fence in `MonitorBell::sleep`.
        fence(Ordering::SeqCst);
        monitor.ring();
        Waits(self)
    }

    /// How many have begun so far.
    pub(crate) fn begun(&self) -> u64 {
        // Relaxed: the monitor's fence orders it.
        self.begun.load(Ordering::Relaxed)
    }

    /// Whether somebody waits.
    pub(crate) fn is_any(&self) -> bool {
        // Relaxed: as above; one that ends just now makes a report late, not wrong.
        self.begun() > self.ended.load(Ordering::Relaxed)
    }
}

/// A wait that is counted.
#[must_use = "the wait is counted until this is dropped"]
pub(crate) struct Waits<'a>(&'a Awaited);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        // Relaxed: see `is_any`.
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}
