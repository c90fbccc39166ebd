//! Who holds a `FairMutex`, and who stands in line for it.
//!
//! | word                | meaning                                              |
//! |---------------------|------------------------------------------------------|
//! | 0                   | free, and the line is empty                          |
//! | `LOCKED`            | held, or reserved for a ticket; the line is empty    |
//! | `LOCKED \| WAITERS` | the same, and there is a line, or a loan to repay    |
//!
//! While it is locked the word also has the holder: the address of the block of
//! the fiber that locked (or has the ticket), and that fiber's own priority.
//!
//! Without waiters the word is taken and given back by compare-and-swap. With
//! them it stays `LOCKED`: who unlocks hands the lock over to the first in line,
//! under the line's lock, so that nobody gets in between.
//!
//! A place in the line is that of a wait, on the waiting stack, or that of a
//! `Ticket`, in a box of its own, since its owner need not wait yet. A ticket
//! that is *attended* has a waiter: it is woken when it is served. One that is
//! not has just the lock reserved for it. A ticket whose owner stops waiting
//! keeps its place; it gives it up, and passes the lock on if that was reserved
//! for it, when it is dropped.
//!
//! A fiber in line that is more urgent than the holder lends it its priority
//! (`wait::lend`) when it comes, and again when it became more urgent itself.
//! What was lent is repaid when the lock is handed over, and the next holder
//! borrows from those who still wait.
//!
//! Invariant 1 (one): while `LOCKED` is set exactly one of these is there: a
//! guard, a ticket that was served, a wait that was served and has not made its
//! guard yet, or somebody who holds the lock of the line to find the next.
//! Invariant 2 (closed): while `WAITERS` is set, and while the holder is at the
//! lock of the line, the word is changed only under that lock; the line is not
//! empty only if it is set.
//! Invariant 3 (attended): a linked place that is attended belongs to a waiter
//! that is there. Places change only under the lock of the line.
//! Invariant 4 (highest): nobody who waits in line is more urgent than `highest`
//! says, unless it is about to come for the lock of the line and say so.

use crate::fiber::{Block, Priority, WaitReason};
use crate::primitive::{AtomicUsize, Ordering, const_fn};
use crate::sched::switch;
use crate::sys::Lock;
use crate::wait::lend::Loan;
use crate::wait::node::{Node, Place, WaitList, Wakes};
use crate::wait::{Enlisted, Operation, WaitOutcome, WaitSpec, Waiter, perform};
use std::cell::Cell;
use std::panic::Location;
use std::ptr::NonNull;

/// Held, or reserved for a ticket.
const LOCKED: usize = 1 << 0;
/// Somebody stands in line.
const WAITERS: usize = 1 << 1;
/// The holder's own priority.
const PRIORITY: usize = 3 << PRIORITY_SHIFT;
const PRIORITY_SHIFT: u32 = 2;
/// The address of the holder's block; null for a thread or a task.
const HOLDER: usize = !(align_of::<Block>() - 1);
const _: () = assert!(HOLDER & (PRIORITY | WAITERS | LOCKED) == 0);

/// A `FairMutex` without what it protects.
pub(super) struct Turns {
    /// See the module header.
    word: AtomicUsize,
    line: Lock<Line>,
}

struct Line {
    places: WaitList<Waiting>,
    /// What those in line have lent to the holder.
    loan: Loan,
    /// The highest priority in the line, or a higher one (invariant 4).
    highest: Priority,
}

/// One place in the line.
#[repr(C)]
pub(super) struct Waiting {
    node: Node,
    /// Somebody waits at it (invariant 3).
    attended: Cell<bool>,
    /// The lock was handed over to it, or reserved for it; it is in no line.
    served: Cell<bool>,
    /// What the word says of its owner, once the lock is its own.
    holder: Cell<usize>,
    /// How urgent its owner was when it last said so. Set by the owner, under
    /// the lock of the line; so the owner may read it without.
    urgency: Cell<Priority>,
}

// SAFETY: `repr(C)`, and the node is first.
unsafe impl Place for Waiting {
    fn node(&self) -> &Node {
        &self.node
    }
}

impl Waiting {
    pub(super) fn new() -> Self {
        Self {
            node: Node::new(),
            attended: Cell::new(false),
            served: Cell::new(false),
            holder: Cell::new(0),
            urgency: Cell::new(Priority::Low),
        }
    }

    /// Waits at this place for `waiter`.
    fn belongs_to(&self, waiter: &Waiter, number: u32) {
        self.node.belongs_to(waiter, number);
        self.attended.set(true);
        self.holder.set(holder_bits(waiter.fiber()));
    }
}

/// What the word says of a holder that is alive.
#[inline]
fn holder_bits(fiber: Option<NonNull<Block>>) -> usize {
    match fiber {
        Some(block) => {
            // Its own priority, not one that it has borrowed and may repay
            // before we look. SAFETY: the fiber is alive.
            let priority = unsafe { block.as_ref() }.base_priority() as usize;
            block.as_ptr() as usize | priority << PRIORITY_SHIFT
        }
        // Nobody is more urgent than a thread or a task: they cannot borrow.
        None => (Priority::Critical as usize) << PRIORITY_SHIFT,
    }
}

/// The holder's own priority, as the word has it.
fn priority_of(word: usize) -> usize {
    (word & PRIORITY) >> PRIORITY_SHIFT
}

impl Turns {
    const_fn! {
        pub(super) const fn new() -> Self {
            Self {
                word: AtomicUsize::new(0),
                line: Lock::new(Line {
                    places: WaitList::new(),
                    loan: Loan::none(),
                    highest: Priority::Low,
                }),
            }
        }
    }

    /// Locks if it is free, which it is not while anybody stands in line.
    #[inline]
    pub(super) fn try_lock(&self) -> bool {
        // Acquire: what the former holder did comes before; pairs with the
        // Release in `unlock` and `serve`.
        let locked = LOCKED | holder_bits(switch::running());
        self.word
            .compare_exchange(0, locked, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[cold]
    pub(super) fn lock_slow(&self, at: &'static Location<'static>) {
        let outcome = self.wait(WaitSpec::new(WaitReason::Mutex, at));
        debug_assert!(outcome.is_ok(), "nothing else can end the wait");
    }

    pub(super) fn wait(&self, spec: WaitSpec<'_>) -> Result<(), WaitOutcome> {
        let turn = Turn::new(self);
        let lend = |from: &Block| self.lend_again(from, &turn.place);
        perform(&turn, &spec.lending_by(&lend))
    }

    /// Gives the lock to the next in line, or to whoever comes.
    #[inline]
    pub(super) fn unlock(&self) {
        // Relaxed: only to know the holder, which stays until we have gone.
        let now = self.word.load(Ordering::Relaxed);
        // Release: the next holder sees what we did; pairs with `try_lock`.
        if now & WAITERS != 0
            || self
                .word
                .compare_exchange(now, 0, Ordering::Release, Ordering::Relaxed)
                .is_err()
        {
            self.unlock_slow();
        }
    }

    #[cold]
    fn unlock_slow(&self) {
        let mut wakes = Wakes::new();
        self.serve(&mut self.line.lock(), &mut wakes);
        wakes.fire();
    }

    /// Hands the lock, which the caller gives up, to the first in line.
    fn serve(&self, line: &mut Line, wakes: &mut Wakes) {
        line.loan.repay();
        let Some(place) = line.places.pop_front() else {
            line.highest = Priority::Low;
            // Release: as in `unlock`. A store: we are the holder, and hold the
            // lock of the line (closed).
            return self.word.store(0, Ordering::Release);
        };
        // SAFETY: it was linked, and we hold the lock of the line.
        let place = unsafe { place.as_ref() };
        let holder = place.holder.get();
        if place.attended.replace(false) {
            // SAFETY: as above; it was attended, so its waiter is there
            // (attended).
            if let Some(wakeup) = unsafe { place.node.claim() } {
                // SAFETY: claimed just now, under the lock.
                unsafe { wakes.add(&place.node, wakeup) };
            } // else it is a ticket in a select that chose another arm
        }
        place.served.set(true);
        let waiters = if line.places.is_empty() { 0 } else { WAITERS };
        // Relaxed: it stays locked. Who is handed the lock is ordered by its
        // claim, or by the lock of the line under which it finds itself served.
        // A store: as above.
        self.word
            .store(LOCKED | holder | waiters, Ordering::Relaxed);
        if line.highest as usize > priority_of(holder) {
            borrow(line, holder);
        }
    }

    /// Somebody has left the line, and its place; under the lock of the line.
    fn left(&self, line: &mut Line, place: &Waiting) {
        self.take_back(line, place);
        if line.places.is_empty() {
            line.loan.reconsider();
            line.highest = Priority::Low;
            if line.loan.is_none() {
                // Relaxed: it stays locked, and who enters next has this lock.
                self.word.fetch_and(!WAITERS, Ordering::Relaxed);
            } // else the holder has to come and repay
        }
    }

    /// Nobody waits at `place` any more: what was lent from there goes back, what
    /// others lend stays. Before `WAITERS` is cleared: until then the holder
    /// cannot go without the lock of the line (closed).
    fn take_back(&self, line: &mut Line, place: &Waiting) {
        let lent = place.urgency.replace(Priority::Low);
        // Relaxed: as in `lend`.
        let now = self.word.load(Ordering::Relaxed);
        if lent as usize > priority_of(now) {
            line.loan.reconsider();
            borrow(line, now);
        }
    }

    /// Lends the priority of `from`, which waits at `place`, to the holder;
    /// under the lock of the line.
    fn lend(&self, line: &mut Line, from: &Block, place: &Waiting) {
        let priority = from.priority();
        place.urgency.set(priority);
        line.highest = line.highest.max(priority);
        // Relaxed: somebody stands in line, so it changes only under this lock
        // (closed).
        let now = self.word.load(Ordering::Relaxed);
        if priority as usize > priority_of(now) {
            line.loan.lend(from, holder_of(now));
        }
    }

    /// The same when a fiber that waits looks again: it may have borrowed itself.
    pub(super) fn lend_again(&self, from: &Block, place: &Waiting) {
        if from.priority() > place.urgency.get() {
            let mut line = self.line.lock();
            if place.node.is_linked() {
                self.lend(&mut line, from, place);
            }
        }
    }

    /// As [`lend`](Self::lend), for who has just come to wait at `place`.
    fn lend_first(&self, line: &mut Line, waiter: &Waiter, place: &Waiting) {
        if let Some(from) = waiter.fiber() {
            // SAFETY: the fiber is about to wait, so it is alive.
            self.lend(line, unsafe { from.as_ref() }, place);
        }
    }

    /// Locks, or puts `place` at the end of the line; true if it has locked.
    ///
    /// # Safety
    ///
    /// The place stays where it is until it is served or leaves the line. It is
    /// not attended, or belongs to a waiter that stays as well.
    unsafe fn enter(&self, line: &mut Line, place: &Waiting) -> bool {
        // Acquire: as in `try_lock`. The bit alone would need no order: it sends
        // the holder to the lock of the line.
        let mut now = self.word.load(Ordering::Relaxed);
        while now & WAITERS == 0 {
            let next = if now == 0 {
                LOCKED | place.holder.get()
            } else {
                now | WAITERS
            };
            match self
                .word
                .compare_exchange_weak(now, next, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(0) => return true,
                Ok(_) => break,
                Err(seen) => now = seen,
            }
        }
        // SAFETY: the caller's promise. A place without a waiter may be linked
        // too: `serve` asks for one only if it is attended.
        unsafe { line.places.push_back(place) };
        false
    }

    /// The first step of a two-step lock; true if it has locked already.
    ///
    /// # Safety
    ///
    /// The place is a ticket's, and stays where it is until
    /// [`is_served`](Self::is_served) has said so, or [`leave`](Self::leave) was
    /// called.
    pub(super) unsafe fn enter_unattended(&self, place: &Waiting) -> bool {
        place.holder.set(holder_bits(switch::running()));
        // SAFETY: the caller's promise.
        unsafe { self.enter(&mut self.line.lock(), place) }
    }

    /// Whether it is held or reserved at this moment.
    pub(super) fn is_locked(&self) -> bool {
        // Relaxed: may be old when it is read.
        self.word.load(Ordering::Relaxed) & LOCKED != 0
    }

    /// Whether the lock was reserved for this place, or handed over to it.
    pub(super) fn is_served(&self, place: &Waiting) -> bool {
        let _line = self.line.lock();
        place.served.get()
    }

    /// Waits at a ticket's place from now on.
    ///
    /// # Safety
    ///
    /// The waiter stays where it is until the wait has ended by a claim at this
    /// place, or [`abandon`](Self::abandon) was called.
    pub(super) unsafe fn attend(
        &self,
        place: &Waiting,
        waiter: &Waiter,
        number: u32,
    ) -> Enlisted<()> {
        let mut line = self.line.lock();
        if place.served.get() {
            return if waiter.take_oneself(number) {
                Enlisted::Done(())
            } else {
                Enlisted::Lost
            };
        }
        place.belongs_to(waiter, number);
        self.lend_first(&mut line, waiter, place);
        Enlisted::Linked
    }

    /// Waits no more at a ticket's place, but keeps it; false if the place was
    /// served meanwhile.
    pub(super) fn abandon(&self, place: &Waiting) -> bool {
        let mut line = self.line.lock();
        let waited = place.attended.replace(false);
        if waited {
            self.take_back(&mut line, place);
        }
        waited
    }

    /// Gives up a place, and the lock if the place was served.
    pub(super) fn leave(&self, place: &Waiting) {
        let mut wakes = Wakes::new();
        {
            let mut line = self.line.lock();
            // SAFETY: linked only by `enter`, into this list.
            if unsafe { line.places.remove(place) } {
                self.left(&mut line, place);
            } else if place.served.get() {
                self.serve(&mut line, &mut wakes);
            }
        }
        wakes.fire();
    }
}

/// The block of the holder that the word names.
fn holder_of(word: usize) -> *const Block {
    (word & HOLDER) as *const Block
}

/// The holder that the word names borrows from those in line who are more
/// urgent.
#[cold]
fn borrow(line: &mut Line, holder: usize) {
    let Line { places, loan, .. } = line;
    let mut highest = Priority::Low;
    places.for_each(|place| {
        if !place.attended.get() {
            return;
        }
        // SAFETY: linked, attended, and we hold the lock (attended).
        let Some(from) = unsafe { place.node.waiter() }.fiber() else {
            return;
        };
        // What it has said, not what it may be by now: it will say so itself.
        let urgency = place.urgency.get();
        highest = highest.max(urgency);
        if urgency as usize > priority_of(holder) {
            // SAFETY: a fiber that stands in line is alive.
            loan.lend(unsafe { from.as_ref() }, holder_of(holder));
        }
    });
    line.highest = highest;
}

/// One wait for the lock, with its place on the waiting stack.
pub(super) struct Turn<'a> {
    place: Waiting,
    turns: &'a Turns,
}

// SAFETY: the cells are touched under the lock of the line, or by the waiter
// when it is in none (`wait::node`, invariant 1).
unsafe impl Send for Turn<'_> {}

impl<'a> Turn<'a> {
    pub(super) fn new(turns: &'a Turns) -> Self {
        Self {
            place: Waiting::new(),
            turns,
        }
    }
}

// SAFETY: the one place is linked only into the mutex's own line, whose lock all
// claimants hold (`serve`), and `delist` takes.
unsafe impl Operation for Turn<'_> {
    type Output = ();

    fn attempt(&self) -> Option<()> {
        self.turns.try_lock().then_some(())
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<()> {
        self.place.belongs_to(waiter, place);
        let mut line = self.turns.line.lock();
        // SAFETY: the caller's promise. (It is waited for alone, not in a
        // select, so that nobody else can have claimed the waiter before.)
        if unsafe { self.turns.enter(&mut line, &self.place) } {
            return Enlisted::Done(());
        }
        self.turns.lend_first(&mut line, waiter, &self.place);
        Enlisted::Linked
    }

    fn delist(&self) -> bool {
        let mut line = self.turns.line.lock();
        // SAFETY: linked only by `enter`, into this list.
        let linked = unsafe { line.places.remove(&self.place) };
        if linked {
            self.turns.left(&mut line, &self.place);
        }
        linked
    }

    fn accept(&self) -> Option<()> {
        Some(()) // handed over by who woke us
    }

    fn pass_on(&self) {
        self.turns.unlock();
    }
}
