//! One wait for permits of a [`Semaphore`]; see `sync::semaphore`.

use super::permit::TryAcquireError;
use super::semaphore::{CLOSED, PERMIT, Semaphore, WAITERS};
use crate::primitive::Ordering;
use crate::wait::node::{Node, Place, Wakes};
use crate::wait::{Enlisted, Operation, Waiter};
use std::cell::Cell;
use std::ops::Deref;

/// One place in the line.
#[repr(C)]
pub(super) struct Waiting {
    pub(super) node: Node,
    pub(super) wanted: usize,
    /// Set under the lock by who claims it for having permits.
    pub(super) granted: Cell<bool>,
}

// SAFETY: `repr(C)`, and the node is first.
unsafe impl Place for Waiting {
    fn node(&self) -> &Node {
        &self.node
    }
}

/// The semaphore is closed.
pub(super) struct Closed;

/// One wait for permits.
pub(super) struct Acquire<S: Deref<Target = Semaphore>> {
    place: Waiting,
    semaphore: S,
}

impl<S: Deref<Target = Semaphore>> Acquire<S> {
    pub(super) fn new(semaphore: S, wanted: usize) -> Self {
        Self {
            place: Waiting {
                node: Node::new(),
                wanted,
                granted: Cell::new(false),
            },
            semaphore,
        }
    }

    fn outcome(taken: Result<(), TryAcquireError>) -> Option<Result<(), Closed>> {
        match taken {
            Ok(()) => Some(Ok(())),
            Err(TryAcquireError::Closed) => Some(Err(Closed)),
            Err(TryAcquireError::NoPermits) => None,
        }
    }
}

// SAFETY: the cell is touched under the lock of the line, or by the waiter when
// it is in none (`wait::node`, invariant 1).
unsafe impl<S: Deref<Target = Semaphore> + Send> Send for Acquire<S> {}

// SAFETY: the one place is linked only into the semaphore's line, whose lock all
// claimants hold, and `delist` takes.
unsafe impl<S: Deref<Target = Semaphore>> Operation for Acquire<S> {
    type Output = Result<(), Closed>;

    fn attempt(&self) -> Option<Self::Output> {
        Self::outcome(self.semaphore.try_take(self.place.wanted))
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<Self::Output> {
        let semaphore = &*self.semaphore;
        let mut line = semaphore.line.lock();
        // A semaphore is waited for alone, not in a select, so that nobody else
        // can have claimed the waiter before we have taken permits.
        loop {
            if let Some(outcome) = Self::outcome(semaphore.try_take(self.place.wanted)) {
                return Enlisted::Done(outcome);
            }
            let now = semaphore.word.load(Ordering::Relaxed);
            if now & CLOSED != 0 || now & WAITERS == 0 && now / PERMIT >= self.place.wanted {
                continue; // changed since we tried
            }
            // Acquire: what came before the permits that are there already, and
            // may be granted with others later; pairs with the Release in
            // `give`. Those that come later come under the lock.
            if semaphore
                .word
                .compare_exchange(now, now | WAITERS, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
            {
                break;
            }
        }
        self.place.node.belongs_to(waiter, place);
        // SAFETY: the caller's promise.
        unsafe { line.push_back(&self.place) };
        Enlisted::Linked
    }

    fn delist(&self) -> bool {
        let mut wakes = Wakes::new();
        let linked = {
            let mut line = self.semaphore.line.lock();
            // SAFETY: linked only by `enlist`, into this list.
            let linked = unsafe { line.remove(&self.place) };
            if linked {
                // It may have been the first, and the next may want less.
                self.semaphore.serve(&mut line, &mut wakes);
            }
            linked
        };
        wakes.fire();
        linked
    }

    fn accept(&self) -> Option<Self::Output> {
        Some(if self.place.granted.get() {
            Ok(())
        } else {
            Err(Closed)
        })
    }

    fn pass_on(&self) {
        if self.place.granted.get() {
            self.semaphore.give(self.place.wanted);
        }
    }
}
