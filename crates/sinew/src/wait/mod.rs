//! One way to wait, for fibers, OS threads and async tasks.
//!
//! A wait is a [`Waiter`]: it knows whom to wake and has one claim-once word
//! ([`outcome`]) that being woken, timing out, being cancelled and closing race
//! for. With its places in lists ([`node`]) it lives on the waiting stack (or
//! pinned in a future) and costs no allocation.
//!
//! ```text
//!   waiter                                  waker
//!   ──────                                  ─────
//!   link a place into a list (lock)         take it off the list and claim the
//!   wait: leave the CPU until notified      wait (lock); if won:
//!   claimed by another? take the            notify its fiber, thread or task
//!   notification, then go
//!   timed out or cancelled: leave the
//!   list (lock), or claim the wait itself
//!   if it is in several
//! ```
//!
//! Invariant 1 (claim once): exactly one side wins a waiter's claim.
//! Invariant 2 (exact): a claim won by another is followed by exactly one
//! notification, and the waiter does not return before it took it. So the
//! winner may use the waiter's target without a reference until then, and
//! nothing of the waiter after.
//! Invariant 3 (tasks): an async task's waiter is claimed only under the lock of
//! the list that it is in, and unlinked under the same lock before it is freed.

pub(crate) mod chain;
pub(crate) mod children;
pub(crate) mod deadline;
pub(crate) mod end;
pub(crate) mod fiber_waker;
pub(crate) mod lend;
pub(crate) mod look;
pub(crate) mod node;
pub(crate) mod operation;
pub(crate) mod outcome;
pub(crate) mod pending;
pub(crate) mod place;
pub(crate) mod point;
pub(crate) mod select;
pub(crate) mod spec;
pub(crate) mod waiter;

#[cfg(all(test, loom))]
mod children_loom_tests;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, loom))]
mod operation_loom_tests;

pub(crate) use deadline::Deadline;
pub(crate) use operation::{Enlisted, Operation, perform, perform_for};
pub(crate) use outcome::WaitOutcome;
pub(crate) use pending::Pending;
pub(crate) use spec::{Token, WaitSpec};
pub(crate) use waiter::{Waiter, wait};
