//! Priority inheritance: who waits for a fiber makes it as urgent as itself.
//!
//! Through `join` the fiber is known and kept by the handle. Through a lock it is
//! whoever holds it: the lock's word has the address of its block, which may have
//! ended since (a guard can be leaked, or dropped elsewhere), so a reference is
//! looked up ([`slab::find`]) and kept in the lock's [`Loan`] until it is
//! unlocked.
//!
//! A fiber counts the locks through which it has borrowed. While there are any
//! its priority only goes up; when the last is repaid it goes back to its own,
//! or to what those lend who wait for its end.
//!
//! Invariant (loan): a loan is made and repaid under the lock of the line of the
//! lock that it belongs to, while a waiter stands in that line.

use super::node::Node;
use super::waiter::Waiter;
use crate::fiber::{Block, BlockRef, slab};
use crate::primitive::{Ordering, fence};
use crate::sched::shared::{Remote, Shared};
use crate::sched::switch;
use std::ptr::NonNull;

/// To whom the waiters of a lock have lent.
pub(crate) struct Loan(Option<BlockRef>);

impl Loan {
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    pub(crate) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Lends the priority of `from` to the fiber at `holder`.
    pub(crate) fn lend(&mut self, from: &Block, holder: *const Block) {
        if self.0.is_none() {
            let Some(block) = slab::find(holder) else {
                return; // it has ended: its guard was leaked
            };
            // Relaxed: ordered by the fence; pairs with the one in `take_back`:
            // either that sees this loan, or we see what it has left to raise.
            block.loans().fetch_add(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            self.0 = Some(block);
        }
        if let Some(to) = &self.0 {
            lend_priority(from, to);
        }
    }

    /// A waiter has left: all that was lent goes back, for those who still wait
    /// lend anew. If that cannot be done here, it is when the lock is given back.
    pub(crate) fn reconsider(&mut self) {
        if self.0.as_ref().is_some_and(|to| may_take_back(to)) {
            self.repay();
        }
    }

    /// The lock is given back, and what was lent through it.
    pub(crate) fn repay(&mut self) {
        if let Some(block) = self.0.take() {
            // Relaxed: as above.
            if block.loans().fetch_sub(1, Ordering::Relaxed) == 1 {
                take_back(&block);
            }
        }
    }
}

/// Lets `to` run at least as urgently as `from`, the running fiber.
///
/// If `to` itself waits for a third fiber it is nudged, looks again, and passes
/// the priority on in its own wait.
pub(crate) fn lend_priority(from: &Block, to: &Block) {
    let priority = from.priority();
    if to.priority() >= priority || !to.raise_priority(priority) {
        return;
    }
    if to.runtime() == from.runtime() {
        // Relaxed: a worker looks at the flag when it next looks around.
        //
        // SAFETY: the home of a fiber is null or a `Remote` of its runtime, and
        // its runtime a `Shared`. It is alive because `from` is, which belongs to
        // the same one (of another runtime we could not know).
        unsafe {
            match to.home().cast::<Remote>().as_ref() {
                Some(home) => home.resort.store(true, Ordering::Relaxed),
                // Not started: in whichever queue.
                None => (*to.runtime().cast::<Shared>())
                    .remotes
                    .iter()
                    .for_each(|remote| remote.resort.store(true, Ordering::Relaxed)),
            }
        }
    }
    let wake = to.state().nudge();
    // SAFETY: the answer of this block's own word.
    unsafe { to.follow(wake) };
}

/// Whether it can be told here what those lend who wait for its end: the wait of
/// an owner may end at any moment, unless its fiber is the one that runs here.
fn may_take_back(from: &Block) -> bool {
    !from.state().load().owner_waits() || switch::running() == Some(NonNull::from(from))
}

/// A waiter gave up: what it lent goes back, what others lend stays.
#[cold]
pub(super) fn take_back(from: &Block) {
    if from.state().load().complete() {
        return; // nobody it could be taken from; and its owner may be gone
    }
    // Relaxed: as in `Loan::repay`.
    if from.loans().load(Ordering::Relaxed) > 0 {
        return; // what a lock's waiters lend stays until it is given back
    }
    let before = from.priority();
    let mut highest = from.base_priority();
    if from.state().load().owner_waits() {
        if !may_take_back(from) {
            return;
        }
        let owner = from.owner_waiter().get().cast::<Waiter>();
        // SAFETY: announced, and it waits until this fiber, which runs here, has
        // completed; it had not a moment ago, and nobody else completes it.
        highest = highest.max(unsafe { &*owner }.priority());
    }
    from.joiners().lock().for_each(|links| {
        // SAFETY: a linked node and its waiter are there; we hold the lock.
        highest = highest.max(unsafe { links.cast::<Node>().as_ref().waiter() }.priority());
    });
    from.lower_priority(before, highest);
    // Pairs with the one in `Loan::lend`.
    fence(Ordering::SeqCst);
    // Relaxed: ordered by the fence.
    if from.loans().load(Ordering::Relaxed) > 0 {
        // Through another lock, by who may have seen it as urgent as before: so it
        // stays until that is given back.
        from.raise_priority(before);
    }
}
