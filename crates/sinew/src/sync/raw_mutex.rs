//! Who holds a [`Mutex`](super::Mutex), and who waits for it.
//!
//! ```text
//!  63                               6   5   4     3        2        1        0
//! +----------------------------------+----------+--------+-------+---------+--------+
//! | block of the fiber that holds it | PRIORITY | URGENT | WOKEN | WAITERS | LOCKED |
//! +----------------------------------+----------+--------+-------+---------+--------+
//! ```
//!
//! The lock is not handed over: it is given back, the first in line is woken and
//! tries again. Whoever runs may take it before (*barging*); so a fiber that
//! locks and unlocks in a loop does not wait for a switch each time. One that was
//! woken and came too late [`PATIENCE`] times is handed the lock, so nobody
//! starves.
//!
//! | `WAITERS` | `WOKEN` | who gives the lock back                                 |
//! |-----------|---------|---------------------------------------------------------|
//! | 0         | 0       | just does                                               |
//! | 1         | 1       | just does: who was woken is on its way to try           |
//! | 1         | 0       | under the lock of the line, and wakes the first in it   |
//!
//! Priorities: the word has the holder's own, without what it has borrowed. A waiter
//! that is more urgent lends (`wait::lend`), and sets `URGENT`, which sends who
//! gives the lock back, and who takes it next, to the lock of the line: the one
//! to repay, the other to borrow from those who still wait. Who takes it and is
//! less urgent than most fibers are looks into the line in any case. So among
//! fibers of the usual priority nobody does: with a bit that was also set by a
//! waiter that found the lock free, and stayed while there was a line, each lock
//! of 100 fibers on two workers took 290 instead of 55 ns.
//!
//! Invariant 1: `WAITERS` is set while the line is not empty.
//! Invariant 2 (on its way): `WOKEN` is set by who wakes a waiter, and cleared by
//! that waiter: when it takes the lock, in the step that puts it back in line
//! (which finds the lock held), or when its future is dropped.
//! Invariant 3: the lock is free, and somebody stands in line, only while
//! `WOKEN` is set or the lock of the line is held.
//! Invariant 4 (urgent): `URGENT` is set while a loan is made, and while somebody
//! stands in line whose priority is above [`USUAL`]; it is cleared, and loans are
//! made, under the lock of the line.

use crate::fiber::{Block, Priority, WaitReason};
use crate::primitive::{AtomicUsize, MODELLED, Ordering, const_fn};
use crate::sched::{current, switch};
use crate::sys::Lock;
use crate::wait::lend::Loan;
use crate::wait::node::{Node, Place, WaitList, Wakes};
use crate::wait::{Deadline, Enlisted, Operation, WaitOutcome, WaitSpec, Waiter, perform};
use std::cell::Cell;
use std::panic::Location;
use std::ptr::NonNull;

const LOCKED: usize = 1 << 0;
/// Somebody stands in line.
const WAITERS: usize = 1 << 1;
/// Somebody was woken to try.
const WOKEN: usize = 1 << 2;
/// Somebody in line is more urgent than the holder, or than most (invariant 4).
const URGENT: usize = 1 << 3;
const PRIORITY_SHIFT: u32 = 4;
const PRIORITY: usize = 3 << PRIORITY_SHIFT;
/// What is left is the address of a block, which is aligned to 64 bytes.
const HOLDER: usize = !63;

/// The priority that most fibers have.
const USUAL: usize = Priority::Normal as usize;

/// How often a waiter comes too late before it is handed the lock.
const PATIENCE: u32 = if MODELLED { 1 } else { 8 };
/// How often a fiber looks before it stands in line, if others may run
/// meanwhile: the critical sections of most programs are shorter.
const SPINS: u32 = if MODELLED { 1 } else { 40 };

/// A mutex without what it protects.
pub(crate) struct RawMutex {
    /// See the module header.
    word: AtomicUsize,
    line: Lock<Line>,
}

struct Line {
    places: WaitList<Waiting>,
    loan: Loan,
}

/// One place in the line.
#[repr(C)]
pub(super) struct Waiting {
    node: Node,
    /// It was handed the lock; set under the lock of the line.
    granted: Cell<bool>,
    /// How often it was woken and came too late.
    too_late: Cell<u32>,
    /// It was woken, and has neither tried nor stood in line again.
    on_its_way: Cell<bool>,
    /// What the word says of who waits here, once it holds the lock.
    holder: Cell<usize>,
}

// SAFETY: `repr(C)`, and the node is first.
unsafe impl Place for Waiting {
    fn node(&self) -> &Node {
        &self.node
    }
}

/// What the word says of a holder.
fn holder_bits(fiber: Option<NonNull<Block>>) -> usize {
    match fiber {
        Some(block) => {
            // Its own, not what it has borrowed: that goes back sooner than this
            // lock, perhaps.
            //
            // SAFETY: the running fiber is alive.
            let priority = unsafe { block.as_ref() }.base_priority() as usize;
            block.as_ptr() as usize | priority << PRIORITY_SHIFT
        }
        // Nobody is more urgent than a thread or a task: they cannot borrow.
        None => (Priority::Critical as usize) << PRIORITY_SHIFT,
    }
}

impl RawMutex {
    const_fn! {
        pub(super) const fn new() -> Self {
            Self {
                word: AtomicUsize::new(0),
                line: Lock::new(Line {
                    places: WaitList::new(),
                    loan: Loan::none(),
                }),
            }
        }
    }

    pub(super) fn is_locked(&self) -> bool {
        self.word.load(Ordering::Relaxed) & LOCKED != 0
    }

    #[inline]
    pub(super) fn try_lock(&self) -> bool {
        self.try_lock_as(holder_bits(switch::running()))
    }

    /// Takes it for `holder` if it is free.
    #[inline]
    fn try_lock_as(&self, holder: usize) -> bool {
        // Acquire: what the former holder did comes before; pairs with the
        // Release in `unlock_fast`, `unlock_slow` and `replace`.
        self.word
            .compare_exchange(0, holder | LOCKED, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            || self.barge(holder, 0)
    }

    /// Takes it if it is free though others wait, and clears `bits`.
    #[cold]
    fn barge(&self, holder: usize, bits: usize) -> bool {
        let mut now = self.word.load(Ordering::Relaxed);
        while now & LOCKED == 0 {
            let next = now & !bits | holder | LOCKED;
            // Acquire: as in `try_lock_as`.
            match self
                .word
                .compare_exchange_weak(now, next, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => {
                    let in_line = now & (WAITERS | WOKEN) != 0;
                    if now & URGENT != 0 || in_line && priority_in(holder) < USUAL {
                        self.borrow();
                    }
                    return true;
                }
                Err(seen) => now = seen,
            }
        }
        false
    }

    #[inline]
    pub(super) fn lock(&self, at: &'static Location<'static>) {
        let fiber = switch::running();
        if !self.try_lock_as(holder_bits(fiber)) {
            let spec = WaitSpec::new(WaitReason::Mutex, at);
            let locked = self.lock_slow(spec);
            debug_assert!(locked.is_ok());
        }
    }

    /// Locks, or gives up as `deadline` and `cancellable` say.
    pub(super) fn lock_by(
        &self,
        deadline: Option<Deadline>,
        cancellable: bool,
        at: &'static Location<'static>,
    ) -> Result<(), WaitOutcome> {
        if self.try_lock() {
            return Ok(());
        }
        let spec = WaitSpec::new(WaitReason::Mutex, at).deadline(deadline);
        self.lock_slow(if cancellable {
            spec.cancellable()
        } else {
            spec
        })
    }

    #[cold]
    fn lock_slow(&self, spec: WaitSpec<'_>) -> Result<(), WaitOutcome> {
        if self.spin() {
            return Ok(());
        }
        let lend = |from: &Block| self.lend(from);
        perform(&LockWait::new(self), &spec.lending_by(&lend))
    }

    /// Looks for a moment whether it becomes free: only if whoever holds it may
    /// run on another thread.
    fn spin(&self) -> bool {
        let fiber = switch::running();
        // SAFETY: if a fiber runs here this thread has a live core.
        if fiber.is_some() && !unsafe { &*current::core() }.several() {
            return false;
        }
        for _ in 0..SPINS {
            let now = self.word.load(Ordering::Relaxed);
            if now & LOCKED == 0 && self.try_lock_as(holder_bits(fiber)) {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    /// # Safety
    ///
    /// The caller holds the lock, and does so no more.
    #[inline]
    pub(super) unsafe fn unlock(&self) {
        if !self.unlock_fast() {
            let mut wakes = Wakes::new();
            self.unlock_slow(&mut wakes);
            wakes.fire();
        }
    }

    /// As [`unlock`](Self::unlock), but leaves it to the caller to fire.
    ///
    /// # Safety
    ///
    /// As for [`unlock`](Self::unlock).
    pub(super) unsafe fn unlock_into(&self, wakes: &mut Wakes) {
        if !self.unlock_fast() {
            self.unlock_slow(wakes);
        }
    }

    #[inline]
    fn unlock_fast(&self) -> bool {
        let now = self.word.load(Ordering::Relaxed);
        // Release: the next holder sees what we did; pairs with `try_lock_as`.
        now & (WAITERS | WOKEN | URGENT) == 0
            && self
                .word
                .compare_exchange(now, 0, Ordering::Release, Ordering::Relaxed)
                .is_ok()
    }

    #[cold]
    fn unlock_slow(&self, wakes: &mut Wakes) {
        let mut now = self.word.load(Ordering::Relaxed);
        // Who was woken is on its way: nothing to do but to give it back.
        while now & URGENT == 0 && (now & WAITERS == 0 || now & WOKEN != 0) {
            let next = now & (WAITERS | WOKEN);
            // Release: as in `unlock_fast`.
            match self
                .word
                .compare_exchange_weak(now, next, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(seen) => now = seen,
            }
        }
        let mut line = self.line.lock();
        line.loan.repay();
        self.give_back(&mut line, wakes);
    }

    /// Gives the lock to the first in line, or back, and wakes the first.
    fn give_back(&self, line: &mut Line, wakes: &mut Wakes) {
        let impatient = line
            .places
            .front()
            .is_some_and(|first| first.too_late.get() >= PATIENCE);
        if impatient {
            if let Some((place, wakeup)) = line.places.claim_front() {
                // SAFETY: claimed by us, under the lock.
                let place = unsafe { place.as_ref() };
                place.granted.set(true);
                let holder = place.holder.get();
                // SAFETY: as above.
                unsafe { wakes.add(&place.node, wakeup) };
                let waiters = if line.places.is_empty() { 0 } else { WAITERS };
                self.replace(|now| now & (WOKEN | URGENT) | waiters | holder | LOCKED);
                let urgent = self.word.load(Ordering::Relaxed) & URGENT != 0;
                if urgent || priority_in(holder) < USUAL {
                    self.borrow_in(line);
                }
                return;
            }
        }
        // Somebody may be on its way since we looked.
        let mut woken = self.word.load(Ordering::Relaxed) & WOKEN;
        if woken == 0 && wake_first(line, wakes) {
            woken = WOKEN;
        }
        let waiters = if line.places.is_empty() { 0 } else { WAITERS };
        // Who comes next has to look only if there is somebody to lend to it.
        let urgent = if woken | waiters == 0 { 0 } else { URGENT };
        self.replace(|now| now & urgent | woken | waiters);
    }

    /// Changes the word of a lock that the caller holds.
    fn replace(&self, next: impl Fn(usize) -> usize) {
        let mut now = self.word.load(Ordering::Relaxed);
        // Release: as in `unlock_fast`. Relaxed: a look at what else has changed.
        while let Err(seen) =
            self.word
                .compare_exchange_weak(now, next(now), Ordering::Release, Ordering::Relaxed)
        {
            now = seen;
        }
    }

    /// Lends the priority of `from`, which stands in line, to the holder.
    fn lend(&self, from: &Block) {
        let urgency = from.priority() as usize;
        let now = self.word.load(Ordering::Relaxed);
        // Of a lock that is free the next holder is not known: if it is less
        // urgent than most it looks into the line by itself.
        let above_holder = now & LOCKED != 0 && urgency > priority_in(now);
        // That `URGENT` is set now says nothing: who found nobody urgent in line,
        // before we were, may be about to clear it.
        if !above_holder && urgency <= USUAL {
            return;
        }
        let mut line = self.line.lock();
        // With the lock of the line, and `URGENT` set, the holder stays.
        let now = self.word.fetch_or(URGENT, Ordering::Relaxed);
        let holder = (now & HOLDER) as *const Block;
        if now & LOCKED != 0 && !holder.is_null() && urgency > priority_in(now) {
            line.loan.lend(from, holder);
        }
    }

    /// The new holder borrows from those who wait.
    #[cold]
    fn borrow(&self) {
        self.borrow_in(&mut self.line.lock());
    }

    fn borrow_in(&self, line: &mut Line) {
        // Before anybody is lent to: from here on the holder stays.
        let now = self.word.fetch_or(URGENT, Ordering::Relaxed);
        let held = now & LOCKED != 0;
        let holder = (now & HOLDER) as *const Block;
        let mut urgent = false;
        let Line { places, loan } = line;
        places.for_each(|place| {
            // SAFETY: linked, and we hold the lock.
            let waiter = unsafe { place.node.waiter() };
            let Some(from) = waiter.fiber() else { return };
            // SAFETY: a fiber that stands in line is alive.
            let from = unsafe { from.as_ref() };
            let urgency = from.priority() as usize;
            urgent |= urgency > USUAL;
            if held && !holder.is_null() && urgency > priority_in(now) {
                loan.lend(from, holder);
            }
        });
        if !urgent && loan.is_none() {
            // Invariant 4: who becomes more urgent later lends by itself.
            self.word.fetch_and(!URGENT, Ordering::Relaxed);
        }
    }
}

/// The priority of the holder that a word tells of.
fn priority_in(word: usize) -> usize {
    (word & PRIORITY) >> PRIORITY_SHIFT
}

/// Wakes the first in line, to try; false if the line is empty.
fn wake_first(line: &mut Line, wakes: &mut Wakes) -> bool {
    let Some((place, wakeup)) = line.places.claim_front() else {
        return false;
    };
    // SAFETY: claimed by us, under the lock.
    let place = unsafe { place.as_ref() };
    place.on_its_way.set(true);
    // SAFETY: as above.
    unsafe { wakes.add(&place.node, wakeup) };
    true
}

/// One wait for a mutex.
pub(super) struct LockWait<'a> {
    place: Waiting,
    raw: &'a RawMutex,
}

// SAFETY: the cells are touched under the lock of the line, or by the waiter when
// it is in none (`wait::node`, invariant 1).
unsafe impl Send for LockWait<'_> {}

impl<'a> LockWait<'a> {
    pub(super) fn new(raw: &'a RawMutex) -> Self {
        Self {
            place: Waiting {
                node: Node::new(),
                granted: Cell::new(false),
                too_late: Cell::new(0),
                on_its_way: Cell::new(false),
                holder: Cell::new(0),
            },
            raw,
        }
    }
}

// SAFETY: the one place is linked only into the mutex's line, whose lock all
// claimants hold, and `delist` takes.
unsafe impl Operation for LockWait<'_> {
    type Output = ();

    fn attempt(&self) -> Option<()> {
        self.raw.try_lock().then_some(())
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<()> {
        let raw = self.raw;
        let holder = holder_bits(waiter.fiber());
        self.place.holder.set(holder);
        // Invariant 2: the step that finds the lock held clears it.
        let clear = if self.place.on_its_way.take() {
            WOKEN
        } else {
            0
        };
        let mut line = raw.line.lock();
        let mut now = raw.word.load(Ordering::Relaxed);
        loop {
            let next = if now & LOCKED == 0 {
                now & !clear | holder | LOCKED
            } else {
                now & !clear | WAITERS
            };
            // Acquire: as in `try_lock_as`.
            match raw
                .word
                .compare_exchange_weak(now, next, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) if now & LOCKED == 0 => {
                    if now & URGENT != 0 || priority_in(holder) < USUAL {
                        raw.borrow_in(&mut line);
                    }
                    return Enlisted::Done(());
                }
                Ok(_) => break,
                Err(seen) => now = seen,
            }
        }
        self.place.node.belongs_to(waiter, place);
        // SAFETY: the caller's promise.
        unsafe {
            if self.place.too_late.get() > 0 {
                line.places.push_front(&self.place);
            } else {
                line.places.push_back(&self.place);
            }
        }
        Enlisted::Linked
    }

    fn delist(&self) -> bool {
        let mut line = self.raw.line.lock();
        // WAITERS may stay: it sends the next who unlocks to an empty line, once.
        // SAFETY: linked only by `enlist`, into this list.
        let linked = unsafe { line.places.remove(&self.place) };
        if linked && self.raw.word.load(Ordering::Relaxed) & URGENT != 0 {
            // What it has lent goes back; what the others lend stays.
            line.loan.reconsider();
            self.raw.borrow_in(&mut line);
        }
        linked
    }

    fn accept(&self) -> Option<()> {
        if self.place.granted.get() {
            return Some(());
        }
        debug_assert!(self.place.on_its_way.get());
        if self.raw.barge(self.place.holder.get(), WOKEN) {
            self.place.on_its_way.set(false);
            return Some(());
        }
        self.place.too_late.set(self.place.too_late.get() + 1);
        None
    }

    fn pass_on(&self) {
        if self.place.granted.get() {
            // SAFETY: it was handed the lock, and nobody made a guard of it.
            return unsafe { self.raw.unlock() };
        }
        // Nobody is on the way any more (invariant 2). If the lock is free the
        // next in line must be (invariant 3); if not, who gives it back sees to
        // that.
        let mut wakes = Wakes::new();
        {
            let mut line = self.raw.line.lock();
            // Relaxed: the lock itself is not taken by this.
            let now = self.raw.word.fetch_and(!WOKEN, Ordering::Relaxed);
            if now & LOCKED == 0 && wake_first(&mut line, &mut wakes) {
                self.raw.word.fetch_or(WOKEN, Ordering::Relaxed);
            }
        }
        wakes.fire();
    }
}
