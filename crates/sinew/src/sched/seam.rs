//! What a simulation replaces: the clock, the choice of the next fiber, and how
//! a worker sleeps.
//!
//! Three small traits, so that a seed can drive the same scheduler that
//! production runs. None is called on the path of a switch unless it was
//! replaced: the default choice is "the oldest", which needs no call.

use crate::primitive::{AtomicU32, Ordering};
use crate::sys::futex;
use crate::timer::{RealClock, VirtualClock};
use std::time::Duration;

/// Tells the time, in nanoseconds.
pub(crate) trait Clock: Send + Sync {
    /// Never goes back.
    fn now(&self) -> u64;

    /// Whether it stands still until it is moved.
    fn stands(&self) -> bool;

    /// Jumps to `at` because nothing can happen before; only if it stands.
    fn skip_to(&self, at: u64);
}

impl Clock for RealClock {
    fn now(&self) -> u64 {
        self.now_ns()
    }

    fn stands(&self) -> bool {
        false
    }

    fn skip_to(&self, _at: u64) {}
}

impl Clock for VirtualClock {
    fn now(&self) -> u64 {
        self.now_ns()
    }

    fn stands(&self) -> bool {
        true
    }

    fn skip_to(&self, at: u64) {
        self.advance_to(at);
    }
}

/// Chooses which of the ready fibers of one priority runs next.
pub(crate) trait Choice: Send {
    /// An index below `ready`, which is at least 1; 0 is the oldest.
    fn pick(&mut self, ready: usize) -> usize;
}

/// How a worker waits for what comes from outside.
pub(crate) trait Driver: Send + Sync {
    /// Sleeps until unparked, until something arrives, or until `timeout` is
    /// over. An `unpark` that came before makes it return at once.
    fn park(&self, timeout: Option<Duration>);

    /// Ends the current `park`, or the next one; from any thread.
    fn unpark(&self);

    /// Takes in what has arrived, without waiting; the worker calls it every
    /// bounded number of switches.
    fn poll(&self);
}

const EMPTY: u32 = 0;
const PARKED: u32 = 1;
const NOTIFIED: u32 = 2;

/// Sleeps on a futex: the driver of a runtime without I/O.
pub(crate) struct FutexDriver(AtomicU32);

impl FutexDriver {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(EMPTY))
    }
}

impl Driver for FutexDriver {
    fn park(&self, timeout: Option<Duration>) {
        // Acquire: what came before the `unpark` is seen after the `park`.
        if self.0.swap(PARKED, Ordering::Acquire) != NOTIFIED {
            futex::wait(&self.0, PARKED, timeout);
        }
        self.0.swap(EMPTY, Ordering::Acquire);
    }

    fn unpark(&self) {
        // Release: pairs with the Acquire in `park`.
        if self.0.swap(NOTIFIED, Ordering::Release) == PARKED {
            futex::wake_one(&self.0);
        }
    }

    fn poll(&self) {}
}
