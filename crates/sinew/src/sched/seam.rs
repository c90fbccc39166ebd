//! What a simulation replaces: the clock, the choice of the next fiber, and how
//! a worker sleeps.
//!
//! Three small traits, so that a seed can drive the same scheduler that
//! production runs. None is called on the path of a switch unless it was
//! replaced: the default choice is "the oldest", which needs no call.

use crate::primitive::{AtomicU32, Ordering};
use crate::sys::futex;
use crate::timer::{RealClock, VirtualClock};
use std::any::Any;
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

    /// The seed of the worker's random numbers (the order in which a select tries its
    /// arms, say), so that all of a run can be repeated.
    fn seed(&self) -> u64;
}

/// How a worker waits for what comes from outside.
pub(crate) trait Driver: Send + Sync {
    /// Sleeps until unparked, until something arrives, or until `timeout` is
    /// over. An `unpark` that came before makes it return at once. Only the worker
    /// whose driver it is calls it, and `poll`.
    fn park(&self, timeout: Option<Duration>) -> Ended;

    /// Ends the current `park`, or the next one; from any thread.
    fn unpark(&self);

    /// Takes in what has arrived, without waiting; the worker calls it every
    /// bounded number of switches.
    fn poll(&self);

    /// The worker has left its loop: gives back what only its thread can. If its
    /// thread is `kept` for leaked fibers, all that the kernel may still write through
    /// stays.
    fn stop(&self, kept: bool);

    /// The thread of a spare worker ends, and has no fibers: gives back what only its
    /// thread can. Another thread may go on with the driver.
    fn rest(&self);

    /// For the layer that knows which it is.
    fn as_any(&self) -> &dyn Any;
}

/// What ended a `park`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Another thread, or time.
    Unparked,
    /// Something from outside the process: how soon that came says nothing about
    /// when the other workers will have something.
    Event,
}

const EMPTY: u32 = 0;
const PARKED: u32 = 1;
const NOTIFIED: u32 = 2;
const IN_KERNEL: u32 = 3;

/// Whether a worker sleeps, and where: the word between `park` and `unpark`.
///
/// | word        | who sets it                              | what `unpark` does |
/// |-------------|------------------------------------------|--------------------|
/// | `EMPTY`     | the worker, awake                        | sets `NOTIFIED`    |
/// | `NOTIFIED`  | `unpark`                                 | nothing            |
/// | `PARKED`    | the worker, before it sleeps on the word | wakes the futex    |
/// | `IN_KERNEL` | the worker, before it sleeps elsewhere   | rings the bell     |
pub(crate) struct ParkWord(AtomicU32);

impl ParkWord {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(EMPTY))
    }

    /// Sleeps on the word.
    pub(crate) fn park(&self, timeout: Option<Duration>) {
        // Relaxed: the swap below acquires.
        if self.0.swap(PARKED, Ordering::Relaxed) != NOTIFIED {
            futex::wait(&self.0, PARKED, timeout);
        }
        // Acquire: what came before the `unpark` is seen after the `park`; pairs
        // with the Release there.
        self.0.swap(EMPTY, Ordering::Acquire);
    }

    /// Sleeps elsewhere, by `sleep`, which is told whether it must not; whoever
    /// unparks rings a bell that ends it. True if somebody did.
    pub(crate) fn park_in_kernel(&self, sleep: impl FnOnce(bool)) -> bool {
        // Release: who sees `IN_KERNEL` sees the bell; pairs with the Acquire in
        // `unpark`.
        let before = self.0.swap(IN_KERNEL, Ordering::Release);
        sleep(before == NOTIFIED);
        // Acquire: as in `park`.
        let after = self.0.swap(EMPTY, Ordering::Acquire);
        before == NOTIFIED || after == NOTIFIED
    }

    /// Ends the current sleep, or the next one; `ring` is called for one elsewhere.
    pub(crate) fn unpark(&self, ring: impl FnOnce()) {
        // AcqRel: pairs with the swaps above.
        match self.0.swap(NOTIFIED, Ordering::AcqRel) {
            PARKED => futex::wake_one(&self.0),
            IN_KERNEL => ring(),
            _ => {}
        }
    }
}

/// Sleeps on a futex: the driver of a model.
#[cfg(all(test, loom))]
pub(crate) struct FutexDriver(ParkWord);

#[cfg(all(test, loom))]
impl FutexDriver {
    pub(crate) fn new() -> Self {
        Self(ParkWord::new())
    }
}

#[cfg(all(test, loom))]
impl Driver for FutexDriver {
    fn park(&self, timeout: Option<Duration>) -> Ended {
        self.0.park(timeout);
        Ended::Unparked
    }

    fn unpark(&self) {
        self.0.unpark(|| unreachable!("it sleeps on the word"));
    }

    fn poll(&self) {}

    fn stop(&self, _kept: bool) {}

    fn rest(&self) {}

    fn as_any(&self) -> &dyn Any {
        self
    }
}
