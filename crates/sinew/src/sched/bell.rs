//! Where the monitor sleeps while every worker does.
//!
//! The monitor hangs the bell up (`ASLEEP`), fences, and looks once more whether
//! all workers sleep; a worker leaves the list of sleepers, fences, and looks at
//! the bell. One of the two sees the other.

use crate::primitive::{AtomicU32, Ordering, fence};
use crate::sys::futex;
use std::time::Duration;

/// See the module header.
#[derive(Default)]
pub(crate) struct MonitorBell(pub(crate) AtomicU32);

impl MonitorBell {
    const AWAKE: u32 = 0;
    const ASLEEP: u32 = 1;
    const STOPPED: u32 = 2;

    /// Sleeps for one tick, or until [`MonitorBell::stop`].
    pub(crate) fn doze(&self, tick: Duration) {
        if self.0.load(Ordering::Relaxed) == Self::AWAKE {
            futex::wait(&self.0, Self::AWAKE, Some(tick));
        }
    }

    /// Wakes the monitor for good.
    pub(crate) fn stop(&self) {
        // A swap: loom knows an order of changes only among read-modify-writes.
        self.0.swap(Self::STOPPED, Ordering::Relaxed);
        futex::wake_one(&self.0);
    }

    /// Wakes the monitor, if it sleeps.
    pub(crate) fn ring(&self) {
        // Relaxed: the caller's fence orders it.
        if self.0.load(Ordering::Relaxed) == Self::ASLEEP && self.change(Self::ASLEEP, Self::AWAKE)
        {
            futex::wake_one(&self.0);
        }
    }

    /// Sleeps until rung, unless `still` says otherwise after the bell was hung.
    pub(crate) fn sleep(&self, still: impl FnOnce() -> bool) {
        if !self.change(Self::AWAKE, Self::ASLEEP) {
            return; // stopped
        }
        // Pairs with the fence of whoever rings.
        fence(Ordering::SeqCst);
        if still() {
            while self.0.load(Ordering::Relaxed) == Self::ASLEEP {
                futex::wait(&self.0, Self::ASLEEP, None);
            }
        } else {
            // Lost to a ring or a stop: both leave it awake.
            self.change(Self::ASLEEP, Self::AWAKE);
        }
    }

    fn change(&self, from: u32, to: u32) -> bool {
        // Relaxed: the fences order what matters.
        self.0
            .compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}
