//! A worker's timers: a hierarchical timing wheel.
//!
//! # How it works
//!
//! Time is cut into ticks, and a tick is written in digits of six bits. The
//! wheel stands at the tick `cur`. A timer that is due at tick `t` hangs in the
//! slot named by the highest digit in which `t` differs from `cur`: the digit's
//! place is the *level*, its value the *slot*.
//!
//! ```text
//! level 2   |  |  |##|  |  | …  64 slots, 4096 ticks each   268 ms
//! level 1   |  |##|  |##|  | …  64 slots,   64 ticks each   4.2 ms
//! level 0   |##|  |##|  |  | …  64 slots,    1 tick each    65.5 µs
//!            \_ head ⇄ node ⇄ node ⇄ (head)     nodes on fibers' stacks
//! ```
//!
//! Timers on a level share all higher digits with `cur`, so each is due before
//! any timer of a higher level: the first occupied slot of the lowest occupied
//! level comes next. Two bit scans find it, however far away it is. `cur` then
//! jumps to the start of that slot. On level 0 its timers are due and are handed
//! out; on a higher level they are hung up anew, on lower levels (*cascade*).
//! A timer is moved at most once per level, and no empty slot is ever visited.
//!
//! A slot can hold every timer there is (a million connections with the same
//! idle timeout), so a cascade is cut into pieces of [`CASCADE_BUDGET`] nodes.
//! Between two pieces `draining` names the slot, and timers inserted into its
//! range queue up behind those which are still there.
//!
//! # What always holds
//!
//! Invariant 1: a node is armed from `insert` until `cancel` or `expire`
//! unlinks it, and exactly one of the two does. Armed means linked: `next` and
//! `prev` are not null, and lead to heads of this wheel or to armed nodes.
//!
//! Invariant 2: a node due at tick `t` hangs in the slot that `t` and the
//! present `cur` name, or in the draining slot, whose start is `cur`.
//!
//! Invariant 3: a slot's bit is set if and only if its list is not empty, a
//! level's bit if and only if one of its slots' is; `draining` is 0 or a slot
//! above level 0 that is not empty.
//!
//! Invariant 4: `cur` never passes a tick at which a timer is still due, and is
//! never after the tick of `now_ns`.
//!
//! # What is promised
//!
//! * A timer never fires early: its deadline is rounded up to a tick.
//! * Timers fire in the order of their ticks, and those of one tick in the order
//!   in which they were inserted: by invariant 2 they are always neighbours in
//!   that order, and cascades move whole slots from the front. A deadline which
//!   the wheel has passed already counts as the tick where it stands.
//! * A deadline in the last tick of the clock, such as `u64::MAX`, is *never*.
//!
//! # Figures
//!
//! ns per operation, a million timers due within 60 s at random, inserted and
//! cancelled in two random orders; medians on a shared two-core 2.8 GHz Xeon
//! with load from elsewhere (the best runs are up to 45 % lower). *Packed*:
//! nodes 64 B apart. *Stacks*: nodes 4160 B apart, so that each is a TLB miss
//! too, as on a million fibers.
//!
//! |                                      | insert | cancel | fire, with cascades |
//! |--------------------------------------|-------:|-------:|--------------------:|
//! | wheel, packed                        |     35 |     58 |                 389 |
//! | bare list, same addresses and orders |     24 |     53 |                     |
//! | wheel, stacks                        |    137 |    457 |                 830 |
//! | bare list, same addresses and orders |    129 |    344 |                     |
//! | `BTreeMap<(deadline, node)>`         |    463 |    562 |                 170 |
//! | `BinaryHeap`                         |     37 |   none |                 558 |
//!
//! A timeout armed and taken back on a warm stack, with a million others standing,
//! costs 10 ns for both. Cold, an insert costs one miss (its node), a cancel up to
//! three (node and both neighbours, the latter two at once), as in any linked list.
//!
//! **Rejected.** `BTreeMap`: ten times the price for timers that are mostly
//! cancelled, and it allocates. `BinaryHeap`: a cancelled timer stays in it until
//! it is due, yet its node is gone from the stack. *Singly linked with a pointer
//! to the pointer before*: insert writes the same three lines (the old first node
//! must learn who precedes it), heads are half the size, but they fit L1 either
//! way, and one tick's timers would come out last first.
//!
//! **Not taken yet.** Links in a table of the wheel's own, 32 bytes an entry, and
//! only an index in the node. As a bare list: insert 24 and cancel 50 packed (in
//! the nodes 17 and 41), 92 and 125 on stacks (in the nodes 90 and 240), for the
//! table stays in L3 and needs few TLB entries. Its price is an allocation in
//! `insert` when the table grows.
//!
//! **Tick.** Insert and fire in a steady state of 1000 timers within 10 ms cost
//! 46 ns with ticks of 2^10 ns, 27 with 2^16 and 17 with 2^22; with 100 000 within
//! 1 s: 78, 59 and 42. Linux lets a sleeping thread oversleep by 50 µs by default
//! (timer slack), so ticks much below that are paid for and not seen; those of
//! 2^22 ns are 4 ms late. `TICK_SHIFT` may be 10, 16 or 22.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomPinned;
use std::process;
use std::ptr::{self, NonNull};

/// A tick is 2^16 ns, 65.5 µs; why, stands under "Tick" above.
const TICK_SHIFT: u32 = 16;

/// Six bits a digit, so that the occupancy of a level is one word.
const DIGIT_BITS: u32 = 6;
const SLOTS: usize = 1 << DIGIT_BITS;

/// The first tick that no clock reaches: where deadlines go which rounding up
/// carries out of `u64`.
const NEVER: u64 = 1 << (64 - TICK_SHIFT);

/// One level for each digit of a tick, and one more that only `NEVER` is on.
const LEVELS: usize = ((64 - TICK_SHIFT) / DIGIT_BITS) as usize + 1;
const _: () = assert!((64 - TICK_SHIFT) % DIGIT_BITS == 0);

/// How many nodes one call of `expire` moves to lower levels before it lets the
/// caller do something else: about a tick's worth if each is a miss to memory
/// and TLB (250 ns). Small in tests, so that they see it.
const CASCADE_BUDGET: usize = if cfg!(test) { 8 } else { 256 };

/// In a slot with at most so many nodes `next_wake` looks for the exact tick.
const LOOK: usize = 4;

/// A place in a circular list: the head of a slot, or the first field of a node.
#[repr(C)]
struct Links {
    next: Cell<*const Links>,
    prev: Cell<*const Links>,
}

/// One timer, on the stack of whoever waits for it.
///
/// It is 32 bytes that never straddle a cache line, because a cancel is little
/// else than cache misses.
///
/// Links and deadline of an armed node belong to whoever has the [`Wheel`];
/// all else, and all of a node that is not armed, to the owner of the node.
#[repr(C, align(32))]
pub(crate) struct TimerNode {
    /// Null when not armed. First, so that its address is that of the node.
    links: Links,
    /// In nanoseconds; `insert` lowers it to the present tick if it has passed.
    deadline: Cell<u64>,
    /// Not read here.
    owner: Cell<*const ()>,
    /// Its neighbours hold its address.
    _pin: PhantomPinned,
}

const _: () = assert!(size_of::<TimerNode>() == 32);

impl TimerNode {
    /// A timer that is not armed.
    pub(crate) const fn new(owner: *const ()) -> TimerNode {
        TimerNode {
            links: Links {
                next: Cell::new(ptr::null()),
                prev: Cell::new(ptr::null()),
            },
            deadline: Cell::new(0),
            owner: Cell::new(owner),
            _pin: PhantomPinned,
        }
    }

    /// The word that the owner left here.
    pub(crate) fn owner(&self) -> *const () {
        self.owner.get()
    }

    /// When it is due or was due last, in nanoseconds of the runtime's clock.
    ///
    /// This is the deadline given to [`Wheel::insert`], or a little less if that
    /// had passed already.
    #[cfg(test)]
    pub(crate) fn deadline(&self) -> u64 {
        self.deadline.get()
    }

    /// Whether it hangs in a wheel.
    pub(crate) fn is_armed(&self) -> bool {
        !self.links.next.get().is_null()
    }
}

impl Drop for TimerNode {
    fn drop(&mut self) {
        // One load of a line that is warm anyway. To go on would leave two
        // neighbours pointing into a dead frame.
        if self.is_armed() {
            eprintln!("sinew: a timer went out of scope while armed");
            process::abort();
        }
    }
}

impl fmt::Debug for TimerNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerNode")
            .field("armed", &self.is_armed())
            .field("deadline", &self.deadline.get())
            .field("owner", &self.owner.get())
            .finish()
    }
}

/// The timers of one worker.
///
/// Dropping it touches no node: those still armed are on stacks that were given
/// up (a started stack is never cut off), and nobody will cancel them.
pub(crate) struct Wheel {
    /// `LEVELS * SLOTS` list heads, 9 KiB, level by level. A raw allocation and
    /// not a `Box`, for nodes point to heads, and moving a box would claim that
    /// nobody else does.
    heads: NonNull<Links>,
    /// One bit for each slot, one word for each level.
    occupied: [u64; LEVELS],
    /// One bit for each level.
    levels: u32,
    /// The slot (as an index into `heads`) that a cascade is halfway through.
    draining: usize,
    /// The tick where the wheel stands.
    cur: u64,
    /// The latest instant that `expire` was told.
    now_ns: u64,
    /// How many nodes are armed.
    len: usize,
}

// SAFETY: what a wheel points to, its heads and the armed nodes, is touched only
// by who has the wheel (`insert`, points 2 and 3), so it moves along with it.
unsafe impl Send for Wheel {}

impl Wheel {
    const LAYOUT: Layout = match Layout::array::<Links>(LEVELS * SLOTS) {
        Ok(layout) => match layout.align_to(64) {
            Ok(layout) => layout,
            Err(_) => panic!("alignment of the heads"),
        },
        Err(_) => panic!("size of the heads"),
    };

    /// A wheel without timers that stands at `now_ns`.
    pub(crate) fn new(now_ns: u64) -> Wheel {
        // SAFETY: the layout is not of size zero.
        let heads = unsafe { alloc(Self::LAYOUT) }.cast::<Links>();
        let Some(heads) = NonNull::new(heads) else {
            handle_alloc_error(Self::LAYOUT);
        };
        for index in 0..LEVELS * SLOTS {
            // SAFETY: `LAYOUT` has room for so many, and they are ours alone.
            unsafe {
                let head = heads.add(index);
                head.write(Links {
                    next: Cell::new(head.as_ptr()),
                    prev: Cell::new(head.as_ptr()),
                });
            }
        }
        Wheel {
            heads,
            occupied: [0; LEVELS],
            levels: 0,
            draining: 0,
            cur: now_ns >> TICK_SHIFT,
            now_ns,
            len: 0,
        }
    }

    /// How many timers are armed.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Arms `node`, to be handed out by [`expire`](Wheel::expire) at
    /// `deadline_ns` or up to a tick later; at its next call if that has passed.
    ///
    /// # Safety
    ///
    /// 1. `node` is not armed, and the pointer is good for all of it (made from
    ///    a reference to the node, not to a field of it).
    /// 2. Until it was handed out or cancelled it stays where it is, and nobody
    ///    has a `&mut` to it.
    /// 3. Until then only the thread that has this wheel touches it.
    #[inline]
    pub(crate) unsafe fn insert(&mut self, node: NonNull<TimerNode>, deadline_ns: u64) {
        // What has passed must not wait for the tick to end, so it is rounded
        // down to a tick that has begun. Nothing gets early by that.
        let deadline = if deadline_ns <= self.now_ns {
            deadline_ns.min(self.now_ns >> TICK_SHIFT << TICK_SHIFT)
        } else {
            deadline_ns
        };
        let mut index = self.slot_of(deadline);
        if index / SLOTS < self.draining / SLOTS {
            // It differs from `cur` only below the digit being drained, so it is
            // due within that slot. Hung up lower at once, as was tried first, it
            // would overtake earlier timers of its tick.
            index = self.draining;
        }
        // SAFETY: `node` is good and not linked by point 1, and stays by point 2.
        unsafe {
            debug_assert!(!node.as_ref().is_armed(), "the timer is armed already");
            node.as_ref().deadline.set(deadline);
            self.link(node, index);
        }
        self.len += 1;
    }

    /// Disarms `node` and says whether it was armed.
    ///
    /// `false` means that it was handed out before, or never inserted.
    ///
    /// # Safety
    ///
    /// `node` is a live node, and if it is armed, then in this wheel.
    #[inline]
    pub(crate) unsafe fn cancel(&mut self, node: NonNull<TimerNode>) -> bool {
        // SAFETY: it is live, and armed in this wheel where we unlink it.
        unsafe {
            let node = node.as_ref();
            if !node.is_armed() {
                return false;
            }
            self.unlink(&node.links);
        }
        self.len -= 1;
        true
    }

    /// The instant at which to call [`expire`](Wheel::expire) next.
    ///
    /// `None` if no timer will ever be due. Never after the tick at which the
    /// first one is. It may be before that, when timers have to be moved to
    /// lower levels first, and it may have passed.
    ///
    /// Meant to be asked before going to sleep. It may read up to four nodes:
    /// without that, each sleep of more than 4 ms on an idle worker would wake
    /// it twice, first for a cascade.
    pub(crate) fn next_wake(&self) -> Option<u64> {
        if self.draining != 0 {
            return Some(self.cur << TICK_SHIFT);
        }
        let index = self.first_slot()?;
        let start = self.start_of(index);
        if start == NEVER {
            return None; // the highest level of all, so there is nothing else
        }
        let exact = if index < SLOTS {
            start
        } else {
            self.exact_tick(index).unwrap_or(start)
        };
        Some(exact << TICK_SHIFT)
    }

    /// Unlinks and returns a timer that is due at `now_ns`.
    ///
    /// To be called until it returns `None`; the order is that of the module's
    /// promises. The node is no longer armed, and this wheel keeps no pointer to
    /// it. Timers may be inserted and cancelled between two calls. A `now_ns`
    /// before that of an earlier call counts as the latter.
    ///
    /// `None` means that nothing is due, or that so many timers had to be moved
    /// that it is somebody else's turn. In that case [`next_wake`](Wheel::next_wake)
    /// is not after `now_ns`, so whoever honours it comes back.
    #[inline]
    pub(crate) fn expire(&mut self, now_ns: u64) -> Option<NonNull<TimerNode>> {
        self.now_ns = self.now_ns.max(now_ns);
        let target = self.now_ns >> TICK_SHIFT;
        for _ in 0..=CASCADE_BUDGET {
            let index = self.next_slot(target)?;
            // SAFETY: the slot is not empty (invariant 3), so its first link is
            // that of an armed node (invariant 1), which is live (`insert`,
            // point 2).
            let node = unsafe {
                let first = (*self.head(index)).next.get();
                self.unlink(&*first);
                NonNull::new_unchecked(first.cast_mut()).cast::<TimerNode>()
            };
            if index < SLOTS {
                self.len -= 1;
                return Some(node);
            }
            // SAFETY: as above, and it has been unlinked.
            unsafe {
                let lower = self.slot_of(node.as_ref().deadline.get());
                self.link(node, lower);
            }
        }
        None
    }

    /// The slot to take a node from, which starts at or before the tick
    /// `target`; moves `cur` to its start, or to `target` if there is none.
    #[inline]
    fn next_slot(&mut self, target: u64) -> Option<usize> {
        if self.draining != 0 {
            return Some(self.draining);
        }
        // Either jump keeps invariant 2: no slot starts between, so no timer's
        // highest differing digit changes, except within the slot jumped to.
        let next = self.first_slot().map(|index| (index, self.start_of(index)));
        match next {
            Some((index, start)) if start <= target => {
                self.cur = start;
                self.draining = if index < SLOTS { 0 } else { index };
                Some(index)
            }
            _ => {
                self.cur = target;
                None
            }
        }
    }

    /// The occupied slot that starts first.
    #[inline]
    fn first_slot(&self) -> Option<usize> {
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros() as usize;
        Some(level * SLOTS + self.occupied[level].trailing_zeros() as usize)
    }

    /// The tick at which an occupied slot starts.
    #[inline]
    fn start_of(&self, index: usize) -> u64 {
        let shift = (index / SLOTS) as u32 * DIGIT_BITS;
        let higher = self.cur >> shift >> DIGIT_BITS << DIGIT_BITS;
        (higher | (index % SLOTS) as u64) << shift
    }

    /// The slot for a deadline, seen from `cur` (invariant 2).
    #[inline]
    fn slot_of(&self, deadline: u64) -> usize {
        let tick = tick_of(deadline).max(self.cur);
        let level = ((tick ^ self.cur) | 1).ilog2() / DIGIT_BITS;
        let digit = (tick >> (level * DIGIT_BITS)) as usize % SLOTS;
        level as usize * SLOTS + digit
    }

    /// The first tick at which a timer in this slot is due, if it has but few.
    fn exact_tick(&self, index: usize) -> Option<u64> {
        let head = self.head(index);
        let mut first = NEVER;
        // SAFETY: links lead to armed nodes, which are live (invariant 1 and
        // `insert`, point 2), until they lead back to the head.
        unsafe {
            let mut at = (*head).next.get();
            for _ in 0..LOOK {
                first = first.min(tick_of((*at.cast::<TimerNode>()).deadline.get()));
                at = (*at).next.get();
                if ptr::eq(at, head) {
                    return Some(first);
                }
            }
        }
        None
    }

    #[inline]
    fn head(&self, index: usize) -> *const Links {
        debug_assert!(index < LEVELS * SLOTS);
        // SAFETY: levels are below `LEVELS` since ticks are at most `NEVER`, so
        // each index is within the allocation.
        unsafe { self.heads.add(index).as_ptr() }
    }

    /// Hangs `node` at the end of a slot.
    ///
    /// This writes three lines: node, head, and the last node so far, which in
    /// practice was inserted not long ago and is still warm.
    ///
    /// # Safety
    ///
    /// `node` is live and not linked, and stays so until it is unlinked.
    #[inline]
    unsafe fn link(&mut self, node: NonNull<TimerNode>, index: usize) {
        let head = self.head(index);
        // Made from the node and not from its field: `expire` turns it back into
        // a pointer that is good for the whole node.
        let this = node.as_ptr().cast::<Links>().cast_const();
        // SAFETY: `node` is live. The head is ours, and its `prev` leads to itself
        // or to an armed node, which is live (invariant 1).
        unsafe {
            let last = (*head).prev.get();
            (*this).next.set(head);
            (*this).prev.set(last);
            (*last).next.set(this);
            (*head).prev.set(this);
        }
        self.occupied[index / SLOTS] |= 1 << (index % SLOTS);
        self.levels |= 1 << (index / SLOTS);
    }

    /// Takes a node out of its list and marks it as not armed.
    ///
    /// A node need not know its slot: only the last of a list has to clear the
    /// slot's bit, and that one has the head on both sides.
    ///
    /// # Safety
    ///
    /// The links are those of a node armed in this wheel.
    #[inline]
    unsafe fn unlink(&mut self, links: &Links) {
        let (next, prev) = (links.next.get(), links.prev.get());
        // SAFETY: both lead to heads or armed nodes, which are live (invariant 1).
        unsafe {
            (*next).prev.set(prev);
            (*prev).next.set(next);
        }
        links.next.set(ptr::null());
        if ptr::eq(next, prev) {
            // SAFETY: a node between twice the same neighbour is alone, so that
            // is a head of this wheel.
            let index = unsafe { next.offset_from(self.heads.as_ptr()) } as usize;
            self.vacate(index);
        }
    }

    /// Notes that a slot has become empty (invariant 3).
    #[inline]
    fn vacate(&mut self, index: usize) {
        let level = index / SLOTS;
        self.occupied[level] &= !(1 << (index % SLOTS));
        if self.occupied[level] == 0 {
            self.levels &= !(1 << level);
        }
        if self.draining == index {
            self.draining = 0;
        }
    }
}

impl Drop for Wheel {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`, with this layout.
        unsafe { dealloc(self.heads.as_ptr().cast(), Self::LAYOUT) };
    }
}

impl fmt::Debug for Wheel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wheel")
            .field("len", &self.len)
            .field("tick", &self.cur)
            .field("next_wake", &self.next_wake())
            .finish()
    }
}

/// The first tick that does not begin before `deadline`.
#[inline]
fn tick_of(deadline: u64) -> u64 {
    // Not `deadline + (TICK - 1) >> TICK_SHIFT`: that wraps for `u64::MAX`, and
    // the timer that should never fire would be overdue.
    let whole = deadline >> TICK_SHIFT;
    whole + u64::from(whole << TICK_SHIFT != deadline)
}

#[cfg(test)]
mod tests;
