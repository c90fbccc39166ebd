//! Operations that may have to wait, told once for fibers, threads, tasks and
//! selects.
//!
//! A primitive describes each of its waits as an [`Operation`]: how to do it if
//! it can be done now, how to stand in line if not, and what follows when a
//! waker has ended the wait. Three drivers use that: [`perform`] parks a fiber or
//! a thread, [`Pending`](super::Pending) is a task's future, and a select
//! (`wait::select`) stands in several lines at once.
//!
//! ```text
//!              ┌─ Done ─────────────────────────────► output
//!   enlist ────┤                     ┌─ Some ───────► output
//!              └─ Linked ─ … woken ──┴─ accept ─ None: enlist again
//!                          … gave up ── delist
//!                          … a task that was woken, and is dropped ── pass_on
//! ```

use super::outcome::WaitOutcome;
use super::point;
use super::spec::{OnCancel, WaitSpec};
use super::waiter::{Waiter, wait};
use crate::fiber::Block;
use crate::sched::switch;
use std::ptr::NonNull;

/// What standing in line came to.
#[must_use = "a place that was linked must be awaited or unlinked"]
pub(crate) enum Enlisted<T> {
    /// It is in the line.
    Linked,
    /// It could be done, and was; nothing is linked.
    Done(T),
    /// It could be done, but the waiter was claimed at another place; nothing
    /// is linked.
    Lost,
    /// It could be done and the waiter was taken for it, but then the other side
    /// left: start over with a new waiter; nothing is linked.
    Again,
}

impl<T> Enlisted<T> {
    pub(crate) fn map<U>(self, f: impl FnOnce(T) -> U) -> Enlisted<U> {
        match self {
            Self::Linked => Enlisted::Linked,
            Self::Done(output) => Enlisted::Done(f(output)),
            Self::Lost => Enlisted::Lost,
            Self::Again => Enlisted::Again,
        }
    }
}

/// One wait of a primitive; lives where it waits, and is not moved while linked.
///
/// # Safety
///
/// * `enlist` links places of the operation's own only, and only into lists
///   whose lock each claimant holds while it claims.
/// * After `delist` none of its places is linked, and no claimant holds that lock
///   on its account.
pub(crate) unsafe trait Operation {
    /// What the operation yields.
    type Output;

    /// Does it if that needs no waiting.
    fn attempt(&self) -> Option<Self::Output>;

    /// The same in a task, whose thread must not wait even for a moment.
    fn attempt_in_task(&self) -> Option<Self::Output> {
        self.attempt()
    }

    /// Does it, or stands in line for `waiter` as its place with this number.
    ///
    /// If it can be done the waiter is taken first
    /// ([`Waiter::take_oneself`]): it may have been claimed elsewhere.
    ///
    /// # Safety
    ///
    /// Operation and waiter stay where they are until the wait has ended by a
    /// claim at this place, or `delist` was called.
    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<Self::Output>;

    /// Leaves the line; false if it was in it no more.
    fn delist(&self) -> bool;

    /// Goes on after a waker has ended the wait at this place; none if it has
    /// to stand in line again.
    fn accept(&self) -> Option<Self::Output>;

    /// The same in a task.
    fn accept_in_task(&self) -> Option<Self::Output> {
        self.accept()
    }

    /// What a waker gave goes to the next in line: nobody wants it here.
    ///
    /// Called after `delist`, instead of `accept`.
    fn pass_on(&self);
}

/// Does `operation`, parking this fiber or thread for as long as it takes.
///
/// If it is a cancellation point this also is the check on entry.
///
/// # Errors
///
/// How the wait ended if not by being woken; then nothing was done.
#[inline]
pub(crate) fn perform<O: Operation>(
    operation: &O,
    spec: &WaitSpec<'_>,
) -> Result<O::Output, WaitOutcome> {
    perform_for(switch::running(), operation, spec)
}

/// The same for who has asked [`switch::running`] already.
#[inline]
pub(crate) fn perform_for<O: Operation>(
    mut fiber: Option<NonNull<Block>>,
    operation: &O,
    spec: &WaitSpec<'_>,
) -> Result<O::Output, WaitOutcome> {
    if matches!(spec.on_cancel, OnCancel::Answer) && point::check_for(fiber).is_err() {
        return Err(WaitOutcome::Cancelled);
    }
    // SAFETY: the running fiber is alive.
    let me = fiber.map(|block| unsafe { block.as_ref() });
    // On a thread a waiter costs more than a look; where waiting is forbidden
    // the look is all there is.
    if me.is_none_or(|me| me.no_suspend().get() > 0) {
        if let Some(output) = operation.attempt() {
            return Ok(output);
        }
    }
    let leave = || operation.delist();
    let spec = &WaitSpec {
        leave: Some(&leave),
        ..*spec
    };
    loop {
        let waiter = Waiter::of(switch::checked(fiber));
        // SAFETY: both stay where they are: `wait` returns after a claim, or
        // after `leave` has taken the operation out of its line.
        match unsafe { operation.enlist(&waiter, 0) } {
            Enlisted::Done(output) => return Ok(output),
            Enlisted::Lost | Enlisted::Again => unreachable!("a waiter with one place"),
            Enlisted::Linked => {}
        }
        match wait(&waiter, spec) {
            WaitOutcome::Woken => {
                if let Some(output) = operation.accept() {
                    return Ok(output);
                }
                // Asked anew: what `accept` has called may have been suspended on the
                // stack of a coroutine, which another fiber has resumed.
                fiber = switch::running();
            }
            gave_up => return Err(gave_up),
        }
    }
}
