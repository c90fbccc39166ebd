//! Where the monitor sleeps while every worker does.
//!
//! The monitor hangs the bell up (`ASLEEP`), fences, and looks once more whether
//! all workers sleep; a worker leaves the list of sleepers, fences, and looks at
//! the bell. One of the two sees the other.

use crate::primitive::{AtomicU32, Ordering, fence};
use crate::sys::futex;
use std::time::{Duration, Instant};

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

    /// Sleeps until rung, unless `still` says otherwise after the bell was hung, and for no
    /// longer than `limit` says then; true if that was over first.
    pub(crate) fn sleep(
        &self,
        still: impl FnOnce() -> bool,
        limit: impl FnOnce() -> Option<Duration>,
    ) -> bool {
        if !self.change(Self::AWAKE, Self::ASLEEP) {
            return false; // stopped
        }
        // Pairs with the fence of whoever rings.
        fence(Ordering::SeqCst);
        if !still() {
            // Lost to a ring or a stop: both leave it awake.
            self.change(Self::ASLEEP, Self::AWAKE);
            return false;
        }
        // Beyond the clock's range is for ever.
        let until = limit().and_then(|limit| Instant::now().checked_add(limit));
        while self.0.load(Ordering::Relaxed) == Self::ASLEEP {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return self.change(Self::ASLEEP, Self::AWAKE);
            }
            futex::wait(&self.0, Self::ASLEEP, left);
        }
        false
    }

    fn change(&self, from: u32, to: u32) -> bool {
        // Relaxed: the fences order what matters.
        self.0
            .compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}
