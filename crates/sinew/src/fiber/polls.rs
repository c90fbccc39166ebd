//! How often a fiber has tried in vain in its present turn; see `sched::polling`.
//!
//! A turn is told by the lowest bits of the worker's count of switches, so that a
//! switch itself has nothing to reset. If 256 switches lie between two tries the count
//! goes on where it was, and a yield comes sooner; that does no harm.

use std::cell::Cell;

/// Set while the fiber polls a task.
const IN_TASK: u8 = 1 << 7;

/// The count; for the owner.
pub(crate) struct Polls {
    /// In the turn below, with [`IN_TASK`].
    count: Cell<u8>,
    turn: Cell<u8>,
}

impl Polls {
    pub(crate) fn new() -> Self {
        Self {
            count: Cell::new(0),
            turn: Cell::new(0),
        }
    }

    /// For a new fiber.
    pub(crate) fn reset(&self) {
        self.count.set(0);
    }

    /// Counts a failing try in this turn; true for every `every`th outside of a task's
    /// `poll`.
    pub(crate) fn count(&self, turn: u8, every: u8) -> bool {
        let mut now = self.count.get();
        if now & IN_TASK != 0 {
            return false;
        }
        if self.turn.replace(turn) != turn {
            now = 0;
        }
        let is_due = now + 1 >= every;
        self.count.set(if is_due { 0 } else { now + 1 });
        is_due
    }

    /// Says whether the fiber polls a task; returns what was.
    pub(crate) fn set_in_task(&self, now: bool) -> bool {
        let before = self.count.get();
        let bit = if now { IN_TASK } else { 0 };
        self.count.set(before & !IN_TASK | bit);
        before & IN_TASK != 0
    }
}
