//! Whether a slot of the array of workers has a thread, and takes new fibers.
//!
//! A runtime has more slots than workers: the rest is for spares, which stand in for
//! workers that are blocked (`worker::spare`).
//!
//! ```text
//!              monitor                    monitor
//!   VACANT ───────────────► ON_DUTY ◄────────────────► RETIRED
//!     ▲                                                   │ its own thread
//!     └──────────────────── LEAVING ◄─────────────────────┘
//!          its own thread
//! ```
//!
//! A worker is `ON_DUTY` all its life. A retired spare takes nothing new: it runs what it
//! has started until that has ended. In `LEAVING` its thread gives back what it has; who
//! finds `VACANT` may give the slot to another thread.
//!
//! Invariant (one decides): from `RETIRED` both the monitor and the spare's thread may go
//! on. Both do so by compare-and-swap, so one of them learns that it was too late.

use crate::primitive::{AtomicU8, Ordering};

const VACANT: u8 = 0;
const ON_DUTY: u8 = 1;
const RETIRED: u8 = 2;
const LEAVING: u8 = 3;

/// See the module header.
pub(crate) struct Duty(AtomicU8);

impl Duty {
    /// That of a worker.
    pub(crate) fn on_duty() -> Self {
        Self(AtomicU8::new(ON_DUTY))
    }

    /// That of a spare without a thread.
    pub(crate) fn vacant() -> Self {
        Self(AtomicU8::new(VACANT))
    }

    /// Whether new fibers may be taken here.
    pub(crate) fn is_on(&self) -> bool {
        // Relaxed: the spare's own thread, whose queues no other thread depends on to be
        // emptied, and the monitor, which is the one that changes it.
        self.0.load(Ordering::Relaxed) == ON_DUTY
    }

    /// Whether the slot has a thread, or had one a moment ago.
    pub(crate) fn is_manned(&self) -> bool {
        // Relaxed: for statistics.
        self.0.load(Ordering::Relaxed) != VACANT
    }

    /// The monitor takes an empty slot for a new thread; false if it is not empty.
    #[must_use = "the slot may belong to another thread"]
    pub(crate) fn fill(&self) -> bool {
        // Acquire: pairs with the Release in `vacate`; what the last thread left is the
        // next one's. Only the monitor takes a vacant slot, so no compare-and-swap.
        if self.0.load(Ordering::Acquire) != VACANT {
            return false;
        }
        self.0.store(ON_DUTY, Ordering::Relaxed);
        true
    }

    /// The monitor lets a spare take nothing new from now on; false if it has left because
    /// the runtime stops.
    #[must_use = "it may have left"]
    pub(crate) fn retire(&self) -> bool {
        // Relaxed: `Remote::resort`, raised after it with Release, carries the edge.
        self.change(ON_DUTY, RETIRED)
    }

    /// The monitor calls a retired spare back; false if that is not to be had.
    #[must_use = "it may have left"]
    pub(crate) fn recall(&self) -> bool {
        self.change(RETIRED, ON_DUTY)
    }

    /// The thread of a retired spare is about to end; false if it was called back.
    #[must_use = "who was called back must not leave"]
    pub(crate) fn leave(&self) -> bool {
        self.change(RETIRED, LEAVING)
    }

    /// The last that a spare's thread does in its slot.
    pub(crate) fn vacate(&self) {
        // Release: pairs with the Acquire in `fill`.
        self.0.store(VACANT, Ordering::Release);
    }

    fn change(&self, from: u8, to: u8) -> bool {
        // Relaxed: invariant "one decides" needs the order of this word alone.
        self.0
            .compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}
