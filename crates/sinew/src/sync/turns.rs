//! Who holds a `FairMutex`, and who stands in line for it.
//!
//! | word                | meaning                                              |
//! |---------------------|------------------------------------------------------|
//! | 0                   | free, and the line is empty                          |
//! | `LOCKED`            | held, or reserved for a ticket; the line is empty    |
//! | `LOCKED \| WAITERS` | the same, and somebody stands in line                |
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
//! Invariant 1 (one): while `LOCKED` is set exactly one of these is there: a
//! guard, a ticket that was served, a wait that was served and has not made its
//! guard yet, or somebody who holds the lock of the line to find the next.
//! Invariant 2 (closed): while `WAITERS` is set, and while the holder is at the
//! lock of the line, the word is changed only under that lock; the line is not
//! empty only if it is set.
//! Invariant 3 (attended): a linked place that is attended belongs to a waiter
//! that is there. Places change only under the lock of the line.

use crate::fiber::WaitReason;
use crate::primitive::{AtomicUsize, Ordering, const_fn};
use crate::sys::Lock;
use crate::wait::node::{Node, Place, WaitList, Wakes};
use crate::wait::{Enlisted, Operation, WaitOutcome, WaitSpec, Waiter, perform};
use std::cell::Cell;
use std::panic::Location;

/// Held, or reserved for a ticket.
const LOCKED: usize = 1 << 0;
/// Somebody stands in line.
const WAITERS: usize = 1 << 1;

/// A `FairMutex` without what it protects.
pub(super) struct Turns {
    /// See the module header.
    word: AtomicUsize,
    line: Lock<WaitList<Waiting>>,
}

/// One place in the line.
#[repr(C)]
pub(super) struct Waiting {
    node: Node,
    /// Somebody waits at it (invariant 3).
    attended: Cell<bool>,
    /// The lock was handed over to it, or reserved for it; it is in no line.
    served: Cell<bool>,
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
        }
    }
}

impl Turns {
    const_fn! {
        pub(super) const fn new() -> Self {
            Self {
                word: AtomicUsize::new(0),
                line: Lock::new(WaitList::new()),
            }
        }
    }

    /// Locks if it is free, which it is not while anybody stands in line.
    #[inline]
    pub(super) fn try_lock(&self) -> bool {
        // Acquire: what the former holder did comes before; pairs with the
        // Release in `unlock` and `serve`.
        self.word
            .compare_exchange(0, LOCKED, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[cold]
    pub(super) fn lock_slow(&self, at: &'static Location<'static>) {
        let outcome = self.wait(&WaitSpec::new(WaitReason::Mutex, at));
        debug_assert!(outcome.is_ok(), "nothing else can end the wait");
    }

    pub(super) fn wait(&self, spec: &WaitSpec<'_>) -> Result<(), WaitOutcome> {
        perform(&Turn::new(self), spec)
    }

    /// Gives the lock to the next in line, or to whoever comes.
    #[inline]
    pub(super) fn unlock(&self) {
        // Release: the next holder sees what we did; pairs with `try_lock`.
        let given = self
            .word
            .compare_exchange(LOCKED, 0, Ordering::Release, Ordering::Relaxed);
        if given.is_err() {
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
    fn serve(&self, line: &mut WaitList<Waiting>, wakes: &mut Wakes) {
        if let Some(place) = line.pop_front() {
            // SAFETY: it was linked, and we hold the lock of the line.
            let place = unsafe { place.as_ref() };
            if place.attended.replace(false) {
                // SAFETY: as above; it was attended, so its waiter is there
                // (attended).
                if let Some(wakeup) = unsafe { place.node.claim() } {
                    // SAFETY: claimed just now, under the lock.
                    unsafe { wakes.add(&place.node, wakeup) };
                } // else it is a ticket in a select that chose another arm
            }
            place.served.set(true);
            return self.tell(line);
        }
        // Release: as in `unlock`. A store: we are the holder, and hold the lock
        // of the line (closed).
        self.word.store(0, Ordering::Release);
    }

    /// Makes the word say whether anybody stands in line; it is locked, and
    /// either `WAITERS` is set or the caller is the holder (closed).
    fn tell(&self, line: &WaitList<Waiting>) {
        let waiters = if line.is_empty() { 0 } else { WAITERS };
        // Relaxed: it stays locked. Who is handed the lock is ordered by its
        // claim, or by the lock of the line under which it finds itself served.
        self.word.store(LOCKED | waiters, Ordering::Relaxed);
    }

    /// Locks, or puts `place` at the end of the line; true if it has locked.
    ///
    /// # Safety
    ///
    /// The place stays where it is until it is served or leaves the line. It is
    /// not attended, or belongs to a waiter that stays as well.
    unsafe fn enter(&self, line: &mut WaitList<Waiting>, place: &Waiting) -> bool {
        // Acquire: as in `try_lock`. The bit alone would need no order: it sends
        // the holder to the lock of the line.
        let mut now = self.word.load(Ordering::Relaxed);
        while now & WAITERS == 0 {
            let next = if now == 0 { LOCKED } else { LOCKED | WAITERS };
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
        unsafe { line.push_back(place) };
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
        let _line = self.line.lock();
        if place.served.get() {
            return if waiter.take_oneself(number) {
                Enlisted::Done(())
            } else {
                Enlisted::Lost
            };
        }
        place.node.belongs_to(waiter, number);
        place.attended.set(true);
        Enlisted::Linked
    }

    /// Waits no more at a ticket's place, but keeps it; false if the place was
    /// served meanwhile.
    pub(super) fn abandon(&self, place: &Waiting) -> bool {
        let _line = self.line.lock();
        place.attended.replace(false)
    }

    /// Gives up a place, and the lock if the place was served.
    pub(super) fn leave(&self, place: &Waiting) {
        let mut wakes = Wakes::new();
        {
            let mut line = self.line.lock();
            // SAFETY: linked only by `enter`, into this list.
            if unsafe { line.remove(place) } {
                self.tell(&line);
            } else if place.served.get() {
                self.serve(&mut line, &mut wakes);
            }
        }
        wakes.fire();
    }
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
        self.place.node.belongs_to(waiter, place);
        self.place.attended.set(true);
        // SAFETY: the caller's promise. (It is waited for alone, not in a
        // select, so that nobody else can have claimed the waiter before.)
        if unsafe { self.turns.enter(&mut self.turns.line.lock(), &self.place) } {
            return Enlisted::Done(());
        }
        Enlisted::Linked
    }

    fn delist(&self) -> bool {
        let mut line = self.turns.line.lock();
        // SAFETY: linked only by `enter`, into this list.
        let linked = unsafe { line.remove(&self.place) };
        if linked {
            self.turns.tell(&line);
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
