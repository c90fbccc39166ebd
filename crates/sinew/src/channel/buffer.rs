//! The messages of a channel, in the order in which they came: a list of blocks.
//!
//! ```text
//!   head ──► [ · · 3 4 ] ──► [ 5 6 7 8 ] ──► [ 9 · · · ] ◄── tail      spare ──► [ ]
//!                head_at                        tail_at
//! ```
//!
//! A channel has no block until its first message. When the last one is full the
//! next block is linked to it, so growth moves no message. A block whose messages
//! are all taken is kept as the *spare* one, or given back if there is a spare
//! already: after a peak a channel keeps two blocks. A channel that is emptied
//! again and again stays in one block, from its start.
//!
//! All of this is under the channel's lock. So that no memory is asked for or
//! given back under it, a sender that finds no slot gives the lock back, makes a
//! block, and lends it ([`lend_spare`](Buffer::lend_spare)); a receiver that comes
//! to the end of a block takes it along ([`advance`](Buffer::advance)) and frees
//! it without the lock. Both happen once in a block, and the check for them is the
//! one for the end of a block, which is needed anyway. Rare ways (a message that
//! a dropped future puts back, a promise) allocate where they are.
//!
//! Invariant 1 (initialised): the messages are in the slots from `head_at` of the
//! first block to `tail_at` of the last, `len` of them; all other slots are
//! uninitialised.
//! Invariant 2 (no empty tail): with messages, the last one is in the last block.
//! Without, first and last block are the same, and both indices 0; or there is
//! none, and both indices are `slots`.
//! Invariant 3 (owned): a block is in the list, the spare, or an [`OwnedBlock`].

use super::parcel::Parcel;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::mem::size_of;
use std::ptr::{self, NonNull};

/// Messages of one block, at most: it is worth a call of the allocator.
const MOST_SLOTS: usize = 64;
/// Bytes of one block, about; one message may be more.
const BLOCK_BYTES: usize = 4096;

/// A block; its messages follow in memory.
#[repr(C)]
struct MessageBlock<T> {
    next: *mut MessageBlock<T>,
    /// How many messages it has room for.
    slots: u8,
    messages: [T; 0],
}

/// Where the messages of `block` begin.
///
/// # Safety
///
/// `block` was made by [`OwnedBlock::new`] and not freed.
#[inline(always)]
unsafe fn messages_of<T>(block: *mut MessageBlock<T>) -> *mut T {
    // SAFETY: the caller's promise; the pointer is good for the whole allocation.
    unsafe { (&raw mut (*block).messages).cast() }
}

/// A block that is in no list, without messages.
pub(super) struct OwnedBlock<T>(NonNull<MessageBlock<T>>);

impl<T> OwnedBlock<T> {
    fn layout(slots: u8) -> Layout {
        let messages = Layout::array::<T>(usize::from(slots));
        let whole = messages.and_then(|messages| Layout::new::<MessageBlock<T>>().extend(messages));
        whole.expect("a block is smaller than the address space").0
    }

    #[cold]
    pub(super) fn new(slots: u8) -> Self {
        let layout = Self::layout(slots);
        // SAFETY: not of size 0: there is a link.
        let block = unsafe { alloc(layout) }.cast::<MessageBlock<T>>();
        let Some(block) = NonNull::new(block) else {
            handle_alloc_error(layout);
        };
        // SAFETY: just allocated, large enough and aligned for it.
        unsafe {
            block.write(MessageBlock {
                next: ptr::null_mut(),
                slots,
                messages: [],
            });
        }
        Self(block)
    }

    fn into_raw(self) -> *mut MessageBlock<T> {
        let block = self.0.as_ptr();
        std::mem::forget(self);
        block
    }
}

impl<T> Drop for OwnedBlock<T> {
    fn drop(&mut self) {
        // SAFETY: made by `new`, with this layout; ours (invariant 3), and without
        // messages.
        unsafe {
            let slots = self.0.as_ref().slots;
            dealloc(self.0.as_ptr().cast(), Self::layout(slots));
        }
    }
}

/// See the module header. The fields that each send and receive needs fit into
/// one cache line with the lock.
#[repr(C)]
pub(super) struct Buffer<T> {
    len: usize,
    head: *mut MessageBlock<T>,
    tail: *mut MessageBlock<T>,
    spare: *mut MessageBlock<T>,
    head_at: u8,
    tail_at: u8,
    /// Of each block.
    slots: u8,
    messages: PhantomData<T>,
}

// SAFETY: it owns its blocks, and the messages in them.
unsafe impl<T: Send> Send for Buffer<T> {}

impl<T> Buffer<T> {
    /// A buffer that will hold `capacity` messages at most; allocates nothing.
    pub(super) fn new(capacity: usize) -> Self {
        let most = (BLOCK_BYTES / size_of::<T>().max(1)).clamp(1, MOST_SLOTS);
        // Without capacity it holds what is promised to selects.
        let slots = most.min(capacity.max(1)) as u8;
        Self {
            len: 0,
            head: ptr::null_mut(),
            tail: ptr::null_mut(),
            spare: ptr::null_mut(),
            head_at: slots,
            tail_at: slots,
            slots,
            messages: PhantomData,
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Messages of one block.
    pub(super) fn slots(&self) -> u8 {
        self.slots
    }

    /// Whether a message can be appended without another block.
    #[inline]
    pub(super) fn has_slot(&self) -> bool {
        self.tail_at < self.slots
    }

    /// Whether a block should be made first for a message to be appended. Not the
    /// first one of a channel: nobody waits for its lock yet.
    #[inline]
    pub(super) fn wants_block(&self) -> bool {
        !self.has_slot() && self.spare.is_null() && !self.tail.is_null()
    }

    /// Whether the oldest message, if there is one, is in the first block.
    #[inline]
    pub(super) fn is_at_hand(&self) -> bool {
        self.head_at < self.slots
    }

    /// Keeps a block for later; it comes back if there is a spare one.
    pub(super) fn lend_spare(&mut self, block: OwnedBlock<T>) -> Option<OwnedBlock<T>> {
        if !self.spare.is_null() {
            return Some(block);
        }
        self.spare = block.into_raw();
        None
    }

    /// The spare block, or a new one.
    #[cold]
    fn next_block(&mut self) -> *mut MessageBlock<T> {
        let spare = std::mem::replace(&mut self.spare, ptr::null_mut());
        if spare.is_null() {
            OwnedBlock::new(self.slots).into_raw()
        } else {
            spare
        }
    }

    /// Links a block behind the last.
    #[cold]
    fn extend(&mut self) {
        let block = self.next_block();
        // SAFETY: ours, and in no list (invariant 3).
        unsafe { (*block).next = ptr::null_mut() };
        if self.tail.is_null() {
            self.head = block;
            self.head_at = 0;
        } else {
            // SAFETY: the last block of the list.
            unsafe { (*self.tail).next = block };
        }
        self.tail = block;
        self.tail_at = 0;
    }

    /// Appends the message of `from`.
    ///
    /// # Safety
    ///
    /// `from` is full, and the caller is the one that may touch it.
    #[inline]
    pub(super) unsafe fn push_back(&mut self, from: &Parcel<T>) {
        if !self.has_slot() {
            self.extend();
        }
        // SAFETY: the caller's promise.
        unsafe { self.push_at_hand(from.give_up()) };
    }

    /// Appends the message at `from`, which moves.
    ///
    /// # Safety
    ///
    /// There is a [slot](Self::has_slot); there is a message at `from`, which the
    /// caller does not use after that.
    #[inline(always)]
    pub(super) unsafe fn push_at_hand(&mut self, from: *const T) {
        debug_assert!(self.has_slot());
        // SAFETY: the slot is in the last block, and uninitialised (invariant 1);
        // the rest is the caller's promise.
        unsafe {
            let slot = messages_of(self.tail).add(usize::from(self.tail_at));
            slot.copy_from_nonoverlapping(from, 1);
        }
        self.tail_at += 1;
        self.len += 1;
    }

    /// Puts the message of `from` before all others.
    ///
    /// # Safety
    ///
    /// As for [`push_back`](Self::push_back).
    pub(super) unsafe fn push_front(&mut self, from: &Parcel<T>) {
        if self.is_empty() {
            // SAFETY: the caller's promise.
            return unsafe { self.push_back(from) };
        }
        if self.head_at == 0 {
            let block = self.next_block();
            // SAFETY: ours, and in no list (invariant 3).
            unsafe { (*block).next = self.head };
            self.head = block;
            self.head_at = self.slots;
        }
        self.head_at -= 1;
        // SAFETY: the slot before the oldest message is uninitialised (invariant
        // 1); the rest is the caller's promise.
        unsafe {
            let slot = messages_of(self.head).add(usize::from(self.head_at));
            from.move_to(slot);
        }
        self.len += 1;
    }

    /// Leaves the first block behind if all its messages were taken; it is kept
    /// as a spare one, or handed to the caller.
    #[cold]
    pub(super) fn advance(&mut self) -> Option<OwnedBlock<T>> {
        if self.is_at_hand() || self.is_empty() {
            return None;
        }
        let block = self.head;
        // SAFETY: the first block has no message and there are some, so it is not
        // the last (invariant 2), and is out of the list after this.
        let old = unsafe {
            self.head = (*block).next;
            OwnedBlock(NonNull::new_unchecked(block))
        };
        self.head_at = 0;
        self.lend_spare(old)
    }

    /// Moves the oldest message to `to`.
    ///
    /// # Safety
    ///
    /// There is a message, [at hand](Self::is_at_hand); `to` is good for a write
    /// and holds nothing.
    #[inline(always)]
    pub(super) unsafe fn pop_at_hand(&mut self, to: *mut T) {
        debug_assert!(!self.is_empty() && self.is_at_hand());
        // SAFETY: the caller's promise: the slot is initialised (invariant 1), and
        // is not from here on.
        unsafe {
            let slot = messages_of(self.head).add(usize::from(self.head_at));
            to.copy_from_nonoverlapping(slot, 1);
        }
        self.step();
    }

    /// The oldest message has left its slot, which was at hand.
    #[inline(always)]
    fn step(&mut self) {
        self.len -= 1;
        if self.len == 0 {
            // It was the newest, too, so this is the last block (invariant 2).
            self.head_at = 0;
            self.tail_at = 0;
        } else {
            self.head_at += 1;
        }
    }

    /// Moves the oldest message to `to`; may free a block.
    ///
    /// # Safety
    ///
    /// There is a message; `to` is good for a write and holds nothing.
    #[inline]
    pub(super) unsafe fn pop_front(&mut self, to: *mut T) {
        if !self.is_at_hand() {
            drop(self.advance());
        }
        // SAFETY: the caller's promise; after `advance` it is at hand.
        unsafe { self.pop_at_hand(to) };
    }
}

/// Drops the messages, oldest first. As crossbeam's, if the drop of one unwinds
/// the rest is leaked: a second panic would end the process.
impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        while !self.is_empty() {
            drop(self.advance());
            // SAFETY: initialised (invariant 1), and not after this: `step` comes
            // first, so that a panic leaves the message out of the list.
            unsafe {
                let slot = messages_of(self.head).add(usize::from(self.head_at));
                self.step();
                slot.drop_in_place();
            }
        }
        for block in [self.head, self.spare] {
            if let Some(block) = NonNull::new(block) {
                drop(OwnedBlock(block));
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Buffer, MOST_SLOTS, Parcel};
    use crate::util::rng::{Rng, os_seed};
    use std::collections::VecDeque;

    /// How many blocks it has, with the spare one.
    fn blocks<T>(buffer: &Buffer<T>) -> usize {
        let mut count = usize::from(!buffer.spare.is_null());
        let mut block = buffer.head;
        while !block.is_null() {
            count += 1;
            // SAFETY: a block of the list.
            block = unsafe { (*block).next };
        }
        count
    }

    fn push<T>(buffer: &mut Buffer<T>, message: T) {
        // SAFETY: the parcel is full, and ours.
        unsafe { buffer.push_back(&Parcel::new(message)) };
    }

    fn pop<T>(buffer: &mut Buffer<T>) -> Option<T> {
        if buffer.is_empty() {
            return None;
        }
        let to = Parcel::empty();
        // SAFETY: there is a message, and the parcel is empty, and ours.
        unsafe { buffer.pop_front(to.room()) };
        to.set_full();
        Some(to.take())
    }

    #[test]
    fn a_buffer_has_no_block_before_its_first_message() {
        let mut buffer = Buffer::<[u8; 1 << 20]>::new(1000);
        assert_eq!(blocks(&buffer), 0);
        assert_eq!(buffer.slots(), 1);
        // Not through the stack: a message of a MiB, of which one word is written.
        buffer.extend();
        assert_eq!(blocks(&buffer), 1, "and one for the first");
        assert_eq!(
            Buffer::<u8>::new(3).slots(),
            3,
            "nor more than its capacity"
        );
    }

    #[test]
    fn after_a_peak_two_blocks_are_left() {
        let mut buffer = Buffer::new(usize::MAX);
        for peak in 1..4 {
            let count = peak * 100 * MOST_SLOTS;
            (0..count).for_each(|i| push(&mut buffer, i));
            assert!(blocks(&buffer) >= peak * 100);
            (0..count).for_each(|i| assert_eq!(pop(&mut buffer), Some(i)));
            assert_eq!((buffer.len(), blocks(&buffer)), (0, 2));
        }
    }

    #[test]
    fn a_buffer_that_is_emptied_again_and_again_stays_in_one_block() {
        let mut buffer = Buffer::new(usize::MAX);
        for i in 0..1000 {
            push(&mut buffer, i);
            assert_eq!(pop(&mut buffer), Some(i));
            assert_eq!(blocks(&buffer), 1);
        }
    }

    #[test]
    fn it_does_as_a_ring_does() {
        let seed = os_seed();
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        for capacity in [1, 2, 7, 64, 65, usize::MAX] {
            let (mut buffer, mut ring) = (Buffer::new(capacity), VecDeque::new());
            for i in 0..20_000 {
                // Grows for a while, then shrinks for a while.
                let grows = i / 2000 % 2 == 0;
                match (rng.below(8), grows) {
                    (0, _) if ring.len() < capacity => {
                        // SAFETY: the parcel is full, and ours.
                        unsafe { buffer.push_front(&Parcel::new(Box::new(i))) };
                        ring.push_front(Box::new(i));
                    }
                    (1..=2, false) | (1..=5, true) if ring.len() < capacity => {
                        push(&mut buffer, Box::new(i));
                        ring.push_back(Box::new(i));
                    }
                    _ => assert_eq!(pop(&mut buffer), ring.pop_front()),
                }
                assert_eq!(buffer.len(), ring.len());
            }
        }
    }
}
