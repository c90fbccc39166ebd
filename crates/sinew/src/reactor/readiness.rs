//! What is known of a descriptor, and who waits for it to change.
//!
//! The kernel tells of changes, once (edge-triggered). So what it told is kept
//! until a call proves otherwise: a direction is *ready* until a call says that it
//! would block, or moved less than it could have.
//!
//! ```text
//!   who uses it                            who hears of events
//!   ───────────                            ───────────────────
//!   look: ready, at tick t                 set the direction's bit, tick + 1
//!   call ─► would block                    take the line's lock, claim all, fire
//!   clear the bit, if it is still tick t
//!   lock the line; not ready? link
//! ```
//!
//! Invariant 1 (tick): a bit is cleared only by who looked before its call, and
//! if nothing was heard since. What is heard after the look may be what the call
//! did not see. Ticks have 54 bits and do not come round: a thread that is stopped
//! between its look and its call, by a debugger say, would have to miss 2^54 events,
//! which take 571 years at a million a second.
//! Invariant 2 (no wait is missed): who is about to link a place sets the direction's
//! waiting bit, under the line's lock, and links only if the word it found there is
//! not ready. Who makes it ready finds that bit, by its own change of the same word,
//! or was before; if it finds it, it takes the lock, clears the bit and claims. So
//! without a waiting bit an event costs no lock.
//!
//! A new descriptor is taken for ready: the first call finds out. When a worker
//! begins to watch one, the kernel tells what is ready at that moment, so nothing
//! is missed between the first call and the watching.

use crate::primitive::{AtomicU64, Ordering};
use crate::sys::epoll::{FAULT, HANG_UP, IN, OUT, PRIORITY, READ_END};
use crate::sys::{Lock, cache};
use crate::wait::node::{Node, Place, WaitList, Wakes};
use crate::wait::{Enlisted, Operation, Waiter};
use std::ops::Deref;
use std::ptr;
use std::sync::atomic::AtomicPtr;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

impl Direction {
    /// The bits that make it ready.
    const fn ready(self) -> u64 {
        match self {
            Self::Read => READABLE | MORE | READ_ENDED | CLOSED | LEFT,
            Self::Write => WRITABLE | WRITE_ENDED | CLOSED,
        }
    }

    /// The bits that a call which would block clears: what the kernel told.
    const fn proven_wrong(self) -> u64 {
        match self {
            Self::Read => (self.ready() | CAREFUL) & !(CLOSED | LEFT),
            Self::Write => self.ready() & !CLOSED,
        }
    }

    /// The bit that somebody may wait by.
    const fn waiting(self) -> u64 {
        match self {
            Self::Read => WAITING_READ,
            Self::Write => WAITING_WRITE,
        }
    }

    /// The bit that a short transfer clears; the end stays the end.
    const fn moving(self) -> u64 {
        match self {
            Self::Read => READABLE | MORE,
            Self::Write => WRITABLE,
        }
    }
}

const READABLE: u64 = 1 << 0;
const WRITABLE: u64 = 1 << 1;
/// The peer has shut its side, or both did: reading never waits again, unless a
/// call says that it would (a FIFO that is opened anew).
const READ_ENDED: u64 = 1 << 2;
const WRITE_ENDED: u64 = 1 << 3;
/// This program has closed it; for good.
const CLOSED: u64 = 1 << 4;
/// There may be places of [`ReadyWait`]s in the line.
const WAITING_READ: u64 = 1 << 5;
const WAITING_WRITE: u64 = 1 << 6;
/// A read left something behind: unlike `READABLE` this is known, not assumed.
const MORE: u64 = 1 << 7;
/// A short read says nothing: it may have stopped at an urgent byte, or before an error.
const CAREFUL: u64 = 1 << 8;
/// Connections that somebody has accepted ahead are left here (`source`).
const LEFT: u64 = 1 << 9;
/// One more for each event (invariant 1).
const TICK: u64 = 1 << 10;

/// How far from its place in line the waiter of a fiber is, about.
const WAITER_BELOW: usize = 128;

/// What was known when somebody looked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look(u64);

impl Look {
    pub(crate) fn is_ready(self, direction: Direction) -> bool {
        self.0 & direction.ready() != 0
    }

    /// Whether a call is known to find something, or room.
    pub(crate) fn has_more(self, direction: Direction) -> bool {
        match direction {
            Direction::Read => self.0 & MORE != 0,
            Direction::Write => self.0 & WRITABLE != 0,
        }
    }

    /// Whether nothing is known of it: no call has been made yet, or an event was heard.
    pub(crate) fn is_fresh(self, direction: Direction) -> bool {
        direction == Direction::Read && self.0 & (READABLE | MORE) == READABLE
    }

    pub(crate) fn is_closed(self) -> bool {
        self.0 & CLOSED != 0
    }

    /// Whether connections were left here.
    pub(crate) fn has_left(self) -> bool {
        self.0 & LEFT != 0
    }

    fn tick(self) -> u64 {
        self.0 / TICK
    }
}

impl std::fmt::Debug for Look {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Look")
            .field("read", &self.is_ready(Direction::Read))
            .field("write", &self.is_ready(Direction::Write))
            .field("closed", &self.is_closed())
            .field("tick", &self.tick())
            .finish()
    }
}

/// See the module header. In order: what an event of a reader needs first.
#[repr(C)]
pub(crate) struct Readiness {
    word: AtomicU64,
    readers: Lock<WaitList<Node>>,
    /// Where the place in line is, and the fiber, of who waited last: to be loaded
    /// ahead, nothing else. They may be gone.
    place: AtomicPtr<()>,
    fiber: AtomicPtr<()>,
    writers: Lock<WaitList<Node>>,
}

impl Readiness {
    pub(crate) fn new() -> Self {
        Self {
            word: AtomicU64::new(READABLE | WRITABLE),
            readers: Lock::new(WaitList::new()),
            place: AtomicPtr::new(ptr::null_mut()),
            fiber: AtomicPtr::new(ptr::null_mut()),
            writers: Lock::new(WaitList::new()),
        }
    }

    /// What is known now.
    #[inline]
    pub(crate) fn look(&self) -> Look {
        // Acquire: who sees an event sees what came before it; pairs with `hear`
        // and `close`.
        Look(self.word.load(Ordering::Acquire))
    }

    /// A call after `look` said that it would block.
    pub(crate) fn would_block(&self, look: Look, direction: Direction) {
        self.clear(look, direction.proven_wrong());
    }

    /// A call after `look` moved less than there was room for: there is no more,
    /// unless it is the end.
    pub(crate) fn drained(&self, look: Look, direction: Direction) {
        if direction == Direction::Write || look.0 & CAREFUL == 0 {
            self.clear(look, direction.moving());
        }
    }

    fn clear(&self, look: Look, bits: u64) {
        let mut now = look.0;
        // Invariant 1. Relaxed: whoever waits looks again under a lock.
        while now & bits != 0 && Look(now).tick() == look.tick() {
            match self.word.compare_exchange_weak(
                now,
                now & !bits,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(changed) => now = changed,
            }
        }
    }

    /// The kernel has carried out a call in this direction, and could do another.
    pub(crate) fn seems_ready(&self, direction: Direction) {
        // Relaxed: a hint for the next call of who says so.
        self.word.fetch_or(direction.moving(), Ordering::Relaxed);
    }

    /// The kernel has told of `events`; the claimed waits are the caller's to fire.
    pub(crate) fn hear(&self, events: u32) -> Wakes {
        let mut bits = 0;
        if events & (IN | PRIORITY | READ_END | HANG_UP | FAULT) != 0 {
            bits |= READABLE;
        }
        if events & (OUT | HANG_UP | FAULT) != 0 {
            bits |= WRITABLE;
        }
        if events & (READ_END | HANG_UP) != 0 {
            bits |= READ_ENDED;
        }
        if events & HANG_UP != 0 {
            bits |= WRITE_ENDED;
        }
        if events & (PRIORITY | FAULT) != 0 {
            bits |= CAREFUL;
        }
        self.set(bits, false)
    }

    /// Marks it as closed by this program, and claims all who wait.
    pub(crate) fn close(&self) -> Wakes {
        self.set(CLOSED, true)
    }

    /// Connections were left here, or no more are.
    pub(super) fn note_left(&self, some: bool) {
        // Release: who sees it finds them; pairs with `look`.
        if some {
            self.word.fetch_or(LEFT, Ordering::Release);
        } else {
            self.word.fetch_and(!LEFT, Ordering::Release);
        }
    }

    /// After `note_left`: claims all who wait to read, in whatever way.
    pub(super) fn tell_readers(&self) -> Wakes {
        self.set(READABLE, true)
    }

    /// A worker that has watched it does so no more: all waiters try again, and those that
    /// have to wait are watched for by their own worker.
    pub(crate) fn disown(&self) -> Wakes {
        self.set(READABLE | WRITABLE, false)
    }

    /// With `all` also who waits for something else than readiness, and has set no bit.
    fn set(&self, bits: u64, all: bool) -> Wakes {
        let mut now = self.word.load(Ordering::Relaxed);
        // AcqRel: pairs with `look`; see there.
        while let Err(changed) = self.word.compare_exchange_weak(
            now,
            (now | bits).wrapping_add(TICK),
            Ordering::AcqRel,
            Ordering::Relaxed,
        ) {
            now = changed;
        }
        let mut wakes = Wakes::new();
        for direction in [Direction::Read, Direction::Write] {
            let waited_for = all || now & direction.waiting() != 0;
            if bits & direction.ready() != 0 && waited_for {
                let mut line = self.line(direction).lock();
                // Relaxed: set and cleared under this lock.
                self.word.fetch_and(!direction.waiting(), Ordering::Relaxed);
                line.claim_all(&mut wakes);
            }
        }
        wakes
    }

    /// Says that somebody is about to link a place, under the line's lock; what is
    /// known at that moment (invariant 2).
    fn announce(&self, direction: Direction) -> Look {
        // Acquire: as in `look`. A read-modify-write, as in `set`: one of the two
        // comes first, and the other sees it.
        Look(self.word.fetch_or(direction.waiting(), Ordering::Acquire))
    }

    /// Says whom the next event will find.
    fn expect(&self, place: &Node, waiter: &Waiter) {
        // Relaxed: hints.
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        self.place
            .store(ptr::from_ref(place).cast_mut().cast(), relaxed);
        if let Some(fiber) = waiter.fiber() {
            self.fiber.store(fiber.as_ptr().cast(), relaxed);
        }
    }

    /// Starts to load what an event needs, once this here is loaded.
    pub(super) fn load_ahead(&self) {
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        let place = self.place.load(relaxed).cast_const();
        cache::prefetch(place);
        // The waiter: it is in the frame of the function that was called next.
        cache::prefetch(place.wrapping_byte_sub(WAITER_BELOW));
        let fiber = self.fiber.load(relaxed).cast_const();
        cache::prefetch(fiber);
    }

    /// Those who wait for a direction.
    pub(crate) fn line(&self, direction: Direction) -> &Lock<WaitList<Node>> {
        match direction {
            Direction::Read => &self.readers,
            Direction::Write => &self.writers,
        }
    }

    /// Waits until the direction is ready.
    pub(crate) fn ready(&self, direction: Direction) -> ReadyWait<&Self> {
        ReadyWait::new(self, direction)
    }

    /// Waits until it is closed, or is told so by an event that another waits for.
    ///
    /// Ready or not: for who knows that the kernel does not tell what it waits for. It
    /// has no waiting bit. A call that fails for want of room elsewhere makes an event of
    /// its own, and who waited for that would try again and again.
    pub(crate) fn closing(&self, direction: Direction) -> ReadyWait<&Self> {
        ReadyWait {
            until: Until::Closed,
            ..ReadyWait::new(self, direction)
        }
    }
}

/// What ends a [`ReadyWait`].
#[derive(Clone, Copy)]
enum Until {
    Ready,
    Closed,
}

/// One wait for one direction; `R` refers to the readiness, for as long.
#[repr(C)]
pub(crate) struct ReadyWait<R> {
    node: Node,
    readiness: R,
    direction: Direction,
    until: Until,
}

impl<R> ReadyWait<R> {
    pub(crate) fn new(readiness: R, direction: Direction) -> Self {
        Self {
            node: Node::new(),
            readiness,
            direction,
            until: Until::Ready,
        }
    }

    fn is_over(&self, look: Look) -> bool {
        match self.until {
            Until::Ready => look.is_ready(self.direction),
            Until::Closed => look.is_closed(),
        }
    }
}

// SAFETY: `repr(C)`, and the node is first.
unsafe impl<R> Place for ReadyWait<R> {
    fn node(&self) -> &Node {
        &self.node
    }
}

// SAFETY: the one node is linked only into the line of its direction, whose lock
// `set` holds while it claims, and `delist` takes. The references that it is made with
// (`&Readiness`, `Kept`) are always to the same readiness.
unsafe impl<R: Deref<Target = Readiness>> Operation for ReadyWait<R> {
    type Output = ();

    fn attempt(&self) -> Option<()> {
        self.is_over(self.readiness.look()).then_some(())
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<()> {
        let mut line = self.readiness.line(self.direction).lock();
        let look = match self.until {
            Until::Ready => self.readiness.announce(self.direction),
            // Under the lock: who closes claims all who are linked, after that.
            Until::Closed => self.readiness.look(),
        };
        if self.is_over(look) {
            return if waiter.take_oneself(place) {
                Enlisted::Done(())
            } else {
                Enlisted::Lost
            };
        }
        self.node.belongs_to(waiter, place);
        self.readiness.expect(&self.node, waiter);
        // SAFETY: the caller's promise.
        unsafe { line.push_back(&self.node) };
        Enlisted::Linked
    }

    fn delist(&self) -> bool {
        let mut line = self.readiness.line(self.direction).lock();
        // SAFETY: linked only by `enlist`, into this list.
        unsafe { line.remove(&self.node) }
    }

    fn accept(&self) -> Option<()> {
        Some(())
    }

    fn pass_on(&self) {} // all were woken: there is nothing to pass on
}
