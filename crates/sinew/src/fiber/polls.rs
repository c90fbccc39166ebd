//! How often a fiber has tried in vain in its present turn; see `sched::polling`.
//!
//! A turn is told by the lowest bits of the worker's count of switches, so that a
//! switch itself has nothing to reset. If 256 switches lie between two tries the count
//! goes on where it was, and a yield comes sooner; that does no harm.

use std::cell::Cell;

/// The count; for the owner.
pub(crate) struct Polls {
    /// In the turn below.
    count: Cell<u8>,
    turn: Cell<u8>,
    /// In how many `poll`s of tasks the fiber is, in each other or suspended by coroutines.
    tasks: Cell<u16>,
}

impl Polls {
    pub(crate) fn new() -> Self {
        Self {
            count: Cell::new(0),
            turn: Cell::new(0),
            tasks: Cell::new(0),
        }
    }

    /// For a new fiber.
    pub(crate) fn reset(&self) {
        self.count.set(0);
        self.tasks.set(0);
    }

    /// Counts a failing try in this turn; true for every `every`th outside of a task's
    /// `poll`.
    pub(crate) fn count(&self, turn: u8, every: u8) -> bool {
        if self.tasks.get() > 0 {
            return false;
        }
        let mut now = self.count.get();
        if self.turn.replace(turn) != turn {
            now = 0;
        }
        let is_due = now + 1 >= every;
        self.count.set(if is_due { 0 } else { now + 1 });
        is_due
    }

    /// The `poll` of a task begins; true if that was counted, and
    /// [`leave_task`](Self::leave_task) is due at its end. One that is nested too deep is not
    /// counted: those around it are.
    pub(crate) fn enter_task(&self) -> bool {
        let more = self.tasks.get().checked_add(1);
        more.map(|more| self.tasks.set(more)).is_some()
    }

    /// A `poll` that was counted has ended.
    pub(crate) fn leave_task(&self) {
        self.tasks.set(self.tasks.get() - 1);
    }
}
