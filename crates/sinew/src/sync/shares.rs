//! Who holds an `RwLock`, and who stands in line for it.
//!
//! One word says who holds the lock and whether anybody stands in line:
//!
//! | `WRITER` | readers | `WAITERS` | meaning                                     |
//! |----------|---------|-----------|---------------------------------------------|
//! | 0        | 0       | 0         | free                                        |
//! | 0        | n       | 0         | n readers; more may come                    |
//! | 0        | n       | 1         | n readers, and the first in line is a writer |
//! | 1        | 0       | 0         | a writer                                    |
//! | 1        | 0       | 1         | a writer, and anybody in line               |
//! | 0        | 0       | 1         | the last reader left, and is about to serve |
//!
//! Who finds `WAITERS` set stands in line: a reader that comes after a writer
//! waits for it, so writers do not starve. Whoever gives the lock up serves the
//! line from the front: one writer, or all readers up to the next writer. So
//! readers that came before a writer go before it and do not starve either.
//!
//! The lock is handed over: who serves changes the word for those whose wait it
//! ends, under the lock of the line, so that nobody gets in between and a waiter
//! that was woken never has to look again. So that a line that has once formed
//! goes away again, who comes holds back a little before it stands in it (see
//! `sync::linger`); it counts as waiting from then on.
//!
//! Only the owner of a share of the lock takes it off the word. A reader does so
//! without the lock of the line; the last one, if it sees `WAITERS`, comes to
//! serve. A waiter sets `WAITERS` in the same read-modify-write that finds the
//! lock taken: so the last reader either is seen to have left, or sees the bit.
//!
//! Invariant 1 (shares): a guard stands for one share of the word, `WRITER` or
//! one reader, and never both kinds are there.
//! Invariant 2 (bit): `WAITERS` is changed only under the lock of the line, and
//! with that lock free it is set exactly if the line is not empty.
//! Invariant 3 (front): with the lock of the line free the first in line cannot
//! be served, or the last reader is on its way to do it.
//! Invariant 4 (closed): while `WAITERS` is set shares are added only under the
//! lock of the line.

use super::error::TimedOut;
use super::linger::linger;
use crate::error::Cancelled;
use crate::fiber::WaitReason;
use crate::primitive::{AtomicUsize, Ordering, const_fn};
use crate::sys::Lock;
use crate::wait::node::{Node, Place, WaitList, Wakes};
use crate::wait::{Deadline, Enlisted, Operation, WaitOutcome, WaitSpec, Waiter};
use crate::wait::{perform, point};
use std::panic::Location;

/// A writer's share.
pub(super) const WRITER: usize = 1 << 0;
/// Somebody stands in line.
const WAITERS: usize = 1 << 1;
/// One reader's share.
pub(super) const READER: usize = 1 << 2;
/// So many readers that only leaked guards can be the reason: no more may come.
/// (Those in line still may: they are too few to overflow.)
const TOO_MANY: usize = 1 << (usize::BITS - 1);

/// An `RwLock` without what it protects.
pub(super) struct Shares {
    /// See the module header.
    word: AtomicUsize,
    line: Lock<WaitList<Waiting>>,
}

/// One place in the line.
#[repr(C)]
struct Waiting {
    node: Node,
    /// The share that is waited for: `READER` or `WRITER`.
    share: usize,
}

// SAFETY: `repr(C)`, and the node is first.
unsafe impl Place for Waiting {
    fn node(&self) -> &Node {
        &self.node
    }
}

/// Whether a share can be added to those that `held` says; `WAITERS` in it is
/// no obstacle.
fn fits(share: usize, held: usize) -> bool {
    if share == WRITER {
        held & !WAITERS == 0
    } else {
        held & WRITER == 0
    }
}

impl Shares {
    const_fn! {
        pub(super) const fn new() -> Self {
            Self {
                word: AtomicUsize::new(0),
                line: Lock::new(WaitList::new()),
            }
        }
    }

    /// Takes a share if it can be had and nobody stands in line.
    #[inline]
    pub(super) fn try_take(&self, share: usize) -> bool {
        // Relaxed: the exchange decides.
        let mut now = self.word.load(Ordering::Relaxed);
        while now & (WAITERS | TOO_MANY) == 0 && fits(share, now) {
            // Acquire: what the former holders did comes before; pairs with the
            // Release in `give_read`, `give_write`, `downgrade` and `serve`.
            match self.word.compare_exchange_weak(
                now,
                now + share,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(seen) => now = seen,
            }
        }
        false
    }

    #[inline]
    pub(super) fn wait_for_ever(&self, share: usize, at: &'static Location<'static>) {
        if !self.try_take(share) {
            self.wait_for_ever_slow(share, at);
        }
    }

    #[cold]
    fn wait_for_ever_slow(&self, share: usize, at: &'static Location<'static>) {
        let outcome = self.wait(share, &WaitSpec::new(WaitReason::RwLock, at));
        debug_assert!(outcome.is_ok(), "nothing else can end the wait");
    }

    pub(super) fn wait_until(
        &self,
        share: usize,
        deadline: impl FnOnce() -> Option<Deadline>,
        at: &'static Location<'static>,
    ) -> Result<(), TimedOut> {
        if self.try_take(share) {
            return Ok(());
        }
        let spec = WaitSpec::new(WaitReason::RwLock, at).deadline(deadline());
        self.wait(share, &spec).map_err(TimedOut::of)
    }

    pub(super) fn wait_or_cancelled(
        &self,
        share: usize,
        at: &'static Location<'static>,
    ) -> Result<(), Cancelled> {
        point::check()?;
        if self.try_take(share) {
            return Ok(());
        }
        let spec = WaitSpec::new(WaitReason::RwLock, at).cancellable();
        self.wait(share, &spec).map_err(|_| Cancelled)
    }

    fn wait(&self, share: usize, spec: &WaitSpec<'_>) -> Result<(), WaitOutcome> {
        // Relaxed: only a guess; leaked guards do not come back.
        assert!(
            self.word.load(Ordering::Relaxed) & TOO_MANY == 0,
            "too many readers"
        );
        if linger(|| self.try_take(share)) {
            return Ok(());
        }
        perform(&Share::new(self, share), spec)
    }

    /// Gives a reader's share back.
    #[inline]
    pub(super) fn give_read(&self) {
        // Release: the next writer comes after what we read; pairs with
        // `try_take` and `serve`.
        let before = self.word.fetch_sub(READER, Ordering::Release);
        if before == READER | WAITERS {
            self.serve_and(0);
        }
    }

    /// Gives the writer's share back.
    #[inline]
    pub(super) fn give_write(&self) {
        // Release: the next holder sees what we wrote; pairs with `try_take`.
        let given = self
            .word
            .compare_exchange(WRITER, 0, Ordering::Release, Ordering::Relaxed);
        if given.is_err() {
            self.serve_and(WRITER);
        }
    }

    /// Makes a reader of the writer, and lets in those readers that are first
    /// in line.
    #[inline]
    pub(super) fn downgrade(&self) {
        // Release: the other readers see what we wrote; pairs with `try_take`.
        let changed =
            self.word
                .compare_exchange(WRITER, READER, Ordering::Release, Ordering::Relaxed);
        if changed.is_err() {
            self.serve_and(WRITER.wrapping_sub(READER));
        }
    }

    /// Gives up `less` of the word, which the caller holds, and serves the line.
    #[cold]
    fn serve_and(&self, less: usize) {
        let mut wakes = Wakes::new();
        self.serve(&mut self.line.lock(), less, &mut wakes);
        wakes.fire();
    }

    /// Serves those in line for whom there is room once `less` is given up
    /// (invariant 3).
    fn serve(&self, line: &mut WaitList<Waiting>, less: usize, wakes: &mut Wakes) {
        // Acquire: a writer that is let in comes after all that readers read
        // who have left; pairs with the Release in `give_read`. (A former writer
        // is ordered by the lock of the line, or is ourselves.)
        let seen = self.word.load(Ordering::Acquire);
        let mut held = seen.wrapping_sub(less) & !WAITERS;
        let after = loop {
            let Some(first) = line.front() else {
                break held;
            };
            let share = first.share;
            if !fits(share, held) {
                break held | WAITERS;
            }
            let place = line.pop_front().expect("there is a first");
            // SAFETY: it was linked, and we hold the lock.
            let place = unsafe { place.as_ref() };
            // SAFETY: as above; if the claim is lost its waiter comes for this
            // lock before it goes.
            if let Some(wakeup) = unsafe { place.node.claim() } {
                held += share;
                // SAFETY: claimed just now, under the lock.
                unsafe { wakes.add(&place.node, wakeup) };
            }
        };
        // Added, not stored: readers may have left since we looked. If they were
        // the last, and we leave WAITERS as it was, they come for the lock.
        //
        // Release: as in `give_write`; who is woken is ordered by its claim.
        let change = after.wrapping_sub(seen);
        if change != 0 {
            self.word.fetch_add(change, Ordering::Release);
        }
    }
}

/// One wait for a share.
pub(super) struct Share<'a> {
    place: Waiting,
    lock: &'a Shares,
}

impl<'a> Share<'a> {
    pub(super) fn new(lock: &'a Shares, share: usize) -> Self {
        let place = Waiting {
            node: Node::new(),
            share,
        };
        Self { place, lock }
    }
}

// SAFETY: the one place is linked only into the lock's own line, whose lock all
// claimants hold (`serve`), and `delist` takes.
unsafe impl Operation for Share<'_> {
    type Output = ();

    fn attempt(&self) -> Option<()> {
        self.lock.try_take(self.place.share).then_some(())
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<()> {
        let lock = self.lock;
        let mut line = lock.line.lock();
        // Relaxed: the exchanges decide.
        let mut now = lock.word.load(Ordering::Relaxed);
        // WAITERS changes only under the lock of the line (invariant 2).
        while now & WAITERS == 0 {
            let free = fits(self.place.share, now);
            let change = if free { self.place.share } else { WAITERS };
            // Acquire: as in `try_take`. For WAITERS Relaxed would do: the bit
            // sends others to the lock, which orders the rest.
            match lock.word.compare_exchange_weak(
                now,
                now + change,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                // It is waited for alone, not in a select, so that nobody else
                // can have claimed the waiter before.
                Ok(_) if free => return Enlisted::Done(()),
                Ok(_) => break,
                Err(seen) => now = seen,
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
            let mut line = self.lock.line.lock();
            // SAFETY: linked only by `enlist`, into this list.
            let linked = unsafe { line.remove(&self.place) };
            if linked {
                // It may have been a writer with readers behind it.
                self.lock.serve(&mut line, 0, &mut wakes);
            }
            linked
        };
        wakes.fire();
        linked
    }

    fn accept(&self) -> Option<()> {
        Some(()) // who woke us has added our share
    }

    fn pass_on(&self) {
        if self.place.share == WRITER {
            self.lock.give_write();
        } else {
            self.lock.give_read();
        }
    }
}
