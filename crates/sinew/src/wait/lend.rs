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
//! or to what those lend who wait for its end. The count has 8 bits and saturates: a
//! fiber that has once borrowed through [`MANY`] locks at a time keeps the priority
//! that it was raised to until it ends.
//!
//! A block says by addresses where its fiber is: in which runtime, on which worker. They are
//! followed only where the runtime is known to be there. A runtime outlives its fibers'
//! completion (`worker::shutdown`, invariant "homes"), and the running fiber's is alive:
//! so while another fiber has not completed, equal addresses mean the same runtime. One
//! that has completed may be of a runtime that is gone, whose address another has now: it
//! is never followed, and nothing is lent to it.
//!
//! Invariant (loan): a loan is made and repaid under the lock of the line of the
//! lock that it belongs to, while a waiter stands in that line.

use super::node::Node;
use super::waiter::Waiter;
use crate::fiber::{Block, BlockRef, slab};
use crate::primitive::{AtomicU8, Ordering, fence};
use crate::sched::shared::{Remote, Shared};
use crate::sched::switch;
use std::ptr::NonNull;

/// So many loans are not counted any more, and never fewer again.
const MANY: u8 = u8::MAX;

/// Counts one more loan.
fn count_loan(loans: &AtomicU8) {
    // Relaxed: ordered by the fence that follows in `Loan::lend`. Each lock has a line of
    // its own, so two may count at once.
    let _ = loans.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
        count.checked_add(1)
    });
}

/// Counts one loan less; true if it was the last.
fn uncount_loan(loans: &AtomicU8) -> bool {
    // Relaxed: as above; what follows looks again.
    let before = loans.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
        (count != MANY).then(|| count - 1)
    });
    before == Ok(1)
}

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
                return; // it has completed: its guard is elsewhere, or was leaked
            };
            // Before the fence, which pairs with the one in `take_back`: either that
            // sees this loan, or we see what it has left to raise.
            count_loan(block.loans());
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
            if uncount_loan(block.loans()) {
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
    // A look at the word after `from` has begun to run. Suppose that `to` belonged to a
    // runtime that is gone, and whose address that of `from` has: `to` completed before
    // its memory was freed, that was before it was allocated again, and that was before
    // `from` was spawned there. So this look, which comes after, would see COMPLETE.
    let same = to.runtime() == from.runtime() && !to.state().load().complete();
    if same {
        // A worker looks at the flag before its next turn.
        //
        // SAFETY: the home of a fiber is null or a `Remote` of its runtime, and
        // its runtime a `Shared`. It is that of `from`, as said above, and alive for
        // as long as `from` runs, even if `to` completes meanwhile.
        unsafe {
            match to.home().cast::<Remote>().as_ref() {
                Some(home) => home.ask_to_resort(),
                // Not started: in whichever queue.
                None => (*to.runtime().cast::<Shared>())
                    .remotes
                    .iter()
                    .for_each(|remote| remote.ask_to_resort()),
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Loan, lend_priority};
    use crate::fiber::{Block, BlockRef, Priority, slab};
    use crate::sched::core::Core;
    use crate::sched::{current, switch};
    use crate::{Builder, Runtime, WaitReason};
    use std::sync::atomic::Ordering;

    /// Calls `test` with the running fiber, which is urgent, and with its core.
    fn urgently(runtime: &Runtime, test: impl FnOnce(&Block, &Core) + Send + 'static) {
        let urgent = Builder::new().priority(Priority::Critical);
        let fiber = urgent.spawn_on(&runtime.handle(), move || {
            let block = switch::running().unwrap();
            // SAFETY: a fiber runs here; nothing in the test switches.
            unsafe { test(block.as_ref(), &*current::core()) };
        });
        fiber.unwrap().join().unwrap();
    }

    fn reference(block: &Block) -> BlockRef {
        // SAFETY: the handle has a reference.
        unsafe { BlockRef::acquire(block.into()) }
    }

    #[test]
    fn nothing_is_lent_to_a_fiber_that_has_completed() {
        let runtime = Runtime::builder().workers(1).build().unwrap();
        let ended = runtime.spawn(|| 7);
        while !ended.is_finished() {
            std::thread::yield_now();
        }
        assert!(slab::find(ended.block()).is_none());
        let to = reference(ended.block());
        urgently(&runtime, move |from, core| {
            let resort = &core.remote().resort;
            resort.store(false, Ordering::Relaxed);
            // Of this very runtime, as far as addresses tell.
            assert_eq!(to.runtime(), from.runtime());
            lend_priority(from, &to);
            assert!(
                !resort.load(Ordering::Relaxed),
                "it was followed to its worker"
            );
            let mut loan = Loan::none();
            loan.lend(from, to.as_ptr().as_ptr());
            assert!(loan.is_none());
        });
        assert_eq!(ended.join().unwrap(), 7);
    }

    #[test]
    fn something_is_lent_to_a_fiber_that_has_not() {
        let runtime = Runtime::builder().workers(1).build().unwrap();
        let low = Builder::new().priority(Priority::Low);
        let waits = low.spawn_on(&runtime.handle(), crate::park).unwrap();
        while waits.fiber().wait_reason() != WaitReason::Park {
            std::thread::yield_now();
        }
        let to = reference(waits.block());
        urgently(&runtime, move |from, core| {
            let resort = &core.remote().resort;
            resort.store(false, Ordering::Relaxed);
            let mut loan = Loan::none();
            loan.lend(from, to.as_ptr().as_ptr());
            assert!(!loan.is_none());
            assert!(resort.load(Ordering::Relaxed));
            assert_eq!(to.priority(), Priority::Critical);
            loan.repay();
            assert_eq!(to.priority(), Priority::Low);
        });
        waits.fiber().unpark();
        waits.join().unwrap();
    }
}
