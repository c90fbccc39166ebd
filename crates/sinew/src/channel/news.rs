//! A count of what was published, for receivers that each remember how much of it
//! they have seen; what `broadcast` and `watch` wait with.
//!
//! One word has the count, and two bits:
//!
//! | bit       | meaning                                     | set by                    |
//! |-----------|---------------------------------------------|---------------------------|
//! | `CLOSED`  | nothing more will be published              | `close`, once             |
//! | `WAITERS` | somebody waits, or did                      | who waits, under the lock |
//!
//! Publishing is one addition while nobody waits. Telling those who wait is a step
//! of its own, so that locks of the publisher's can be given back in between.
//!
//! Invariant 1 (no wait is missed): who waits sets `WAITERS` under the lock of the
//! line, in the same change that finds no news, and stays there until it is linked.
//! So who publishes or closes either comes before and is seen, or sees the bit and
//! comes to the lock.
//! Invariant 2 (no lock): those who wait are woken without the lock, for wakers are
//! user code.
//!
//! A waiter may be woken for what it has seen already: by somebody who published
//! before it waited, and told later. It looks again.

use super::chan::At;
use super::error::RecvError;
use crate::fiber::WaitReason;
use crate::primitive::{AtomicU64, Ordering};
use crate::sys::Lock;
use crate::wait::node::{Node, WaitList, Wakes};
use crate::wait::{Deadline, Enlisted, Operation, Pending, WaitOutcome, WaitSpec, Waiter, perform};

const CLOSED: u64 = 1 << 0;
const WAITERS: u64 = 1 << 1;
/// One that was published. The count has 62 bits: it does not overflow.
const ONE: u64 = 1 << 2;

/// See the module header.
pub(super) struct News {
    word: AtomicU64,
    line: Lock<WaitList<Node>>,
}

/// Whether somebody waits; then [`News::tell`] has to be called.
#[must_use = "those who wait must be told"]
pub(super) struct Waited(bool);

/// What there is for a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Something that it has not seen: the count is this.
    News(u64),
    /// Nothing, as yet.
    Nothing,
    /// Nothing, for good.
    Closed,
}

impl Look {
    /// Whether there is something new; an error if there never will be.
    pub(super) fn is_news(self) -> Result<bool, RecvError> {
        match self {
            Self::News(_) => Ok(true),
            Self::Nothing => Ok(false),
            Self::Closed => Err(RecvError::Disconnected),
        }
    }

    fn at(word: u64, seen: u64) -> Self {
        if word / ONE > seen {
            Self::News(word / ONE)
        } else if word & CLOSED != 0 {
            Self::Closed
        } else {
            Self::Nothing
        }
    }
}

impl News {
    pub(super) fn new() -> Self {
        Self::after(0)
    }

    /// With a count to begin with.
    pub(super) fn after(published: u64) -> Self {
        Self {
            word: AtomicU64::new(published * ONE),
            line: Lock::new(WaitList::new()),
        }
    }

    /// How much was published.
    pub(super) fn count(&self) -> u64 {
        // Acquire: what was published is seen; pairs with `publish`.
        self.word.load(Ordering::Acquire) / ONE
    }

    pub(super) fn is_closed(&self) -> bool {
        // Acquire: what came before the close is seen; pairs with `close`.
        self.word.load(Ordering::Acquire) & CLOSED != 0
    }

    /// What there is for who has seen this much.
    pub(super) fn look(&self, seen: u64) -> Look {
        // Acquire: as in `count` and `is_closed`.
        Look::at(self.word.load(Ordering::Acquire), seen)
    }

    /// Counts one more.
    pub(super) fn publish(&self) -> Waited {
        // Release: who sees the count sees what was published; pairs with `look`.
        let before = self.word.fetch_add(ONE, Ordering::Release);
        Waited(before & WAITERS != 0)
    }

    /// Ends it; the first half is false if it had ended.
    pub(super) fn close(&self) -> (bool, Waited) {
        // Release: as in `publish`.
        let before = self.word.fetch_or(CLOSED, Ordering::Release);
        (before & CLOSED == 0, Waited(before & WAITERS != 0))
    }

    /// Wakes those who wait; user code, so no lock may be held.
    #[inline]
    pub(super) fn tell(&self, waited: Waited) {
        if waited.0 {
            self.tell_slow();
        }
    }

    #[cold]
    fn tell_slow(&self) {
        let mut wakes = Wakes::new();
        {
            let mut line = self.line.lock();
            // Relaxed: set and taken away only under the lock.
            self.word.fetch_and(!WAITERS, Ordering::Relaxed);
            line.claim_all(&mut wakes);
        }
        wakes.fire();
    }

    /// Waits until there is news for who has seen this much, or it is closed; a
    /// cancellation point.
    ///
    /// # Errors
    ///
    /// How the wait ended instead.
    pub(super) fn wait(
        &self,
        seen: u64,
        deadline: Option<Deadline>,
        at: At,
    ) -> Result<(), WaitOutcome> {
        let spec = WaitSpec::new(WaitReason::Recv, at)
            .deadline(deadline)
            .cancellable();
        perform(&self.waiting(seen), &spec)
    }

    /// The same in async code.
    pub(super) fn wait_async(&self, seen: u64) -> impl Future<Output = ()> + Send + '_ {
        Pending::new(self.waiting(seen))
    }

    fn waiting(&self, seen: u64) -> Waiting<'_> {
        Waiting {
            node: Node::new(),
            news: self,
            seen,
        }
    }

    /// Says that somebody waits, under the lock of the line; false if there is
    /// nothing to wait for (invariant 1).
    fn listen(&self, seen: u64) -> bool {
        // Relaxed: the change decides.
        let mut now = self.word.load(Ordering::Relaxed);
        while Look::at(now, seen) == Look::Nothing {
            // Relaxed: it carries nothing; who publishes sees the bit since it
            // changes the same word, and finds us behind the lock.
            match self.word.compare_exchange_weak(
                now,
                now | WAITERS,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
        false
    }
}

/// One wait for news.
struct Waiting<'a> {
    node: Node,
    news: &'a News,
    seen: u64,
}

// SAFETY: the one node is linked only into the line, whose lock `tell` holds while
// it claims, and `delist` takes.
unsafe impl Operation for Waiting<'_> {
    type Output = ();

    fn attempt(&self) -> Option<()> {
        (self.news.look(self.seen) != Look::Nothing).then_some(())
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<()> {
        debug_assert!(waiter.is_single());
        let mut line = self.news.line.lock();
        if !self.news.listen(self.seen) {
            return Enlisted::Done(());
        }
        self.node.belongs_to(waiter, place);
        // SAFETY: the caller's promise.
        unsafe { line.push_back(&self.node) };
        Enlisted::Linked
    }

    fn delist(&self) -> bool {
        // SAFETY: linked only by `enlist`, into this list.
        unsafe { self.news.line.lock().remove(&self.node) }
    }

    fn accept(&self) -> Option<()> {
        self.attempt()
    }

    fn pass_on(&self) {} // all were woken, and what was published stays
}
