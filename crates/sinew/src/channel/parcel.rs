//! Room for one message that stays where it is while it changes hands.
//!
//! A message may be large, and each move of it through a frame costs that much
//! of a fiber's stack: a message of 32 KiB that went by value through the calls
//! of a send needed more than the 192 KiB that a fiber has in a release build. So
//! the outermost call puts the message into a parcel, the calls inside pass the
//! parcel's address, and the message is copied once: into the buffer, or into
//! the parcel of a receiver.
//!
//! What is left are the copies that the outermost calls make. Measured with 32 KiB in an
//! optimised build, caller included: five sizes of a message for `send`, two or three for
//! `send_timeout` and the sends of a select, two to four for a receive, two for a oneshot.
//! Without optimisation (48 KiB): 17 for `send`, 19 for `try_send`, 12 or 13 for the other
//! sends, 5 to 11 for a receive. `tests/crash/messages.rs` holds that.
//!
//! Invariant (one at a time): a parcel is its owner's (it is not `Sync`) while no
//! seat with its address is linked or claimed. Otherwise it is the claimant's of
//! that seat, under the lock or before it notifies the owner.

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;

/// See the module header.
pub(crate) struct Parcel<T> {
    /// Initialised while `full` is set.
    message: UnsafeCell<MaybeUninit<T>>,
    full: Cell<bool>,
}

impl<T> Parcel<T> {
    #[inline(always)]
    pub(crate) fn new(message: T) -> Self {
        Self {
            message: UnsafeCell::new(MaybeUninit::new(message)),
            full: Cell::new(true),
        }
    }

    #[inline(always)]
    pub(crate) fn empty() -> Self {
        Self {
            message: UnsafeCell::new(MaybeUninit::uninit()),
            full: Cell::new(false),
        }
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.full.get()
    }

    /// The message, for the owner.
    ///
    /// # Panics
    ///
    /// If there is none.
    #[inline(always)]
    pub(crate) fn take(&self) -> T {
        assert!(self.full.replace(false), "the message is there");
        // SAFETY: it was full, and is not any more: the message moves out once.
        unsafe { (*self.message.get()).assume_init_read() }
    }

    /// Where the message is that the caller moves elsewhere, at once.
    ///
    /// # Safety
    ///
    /// It is full, and the caller is the one that may touch it (the invariant).
    #[inline(always)]
    pub(super) unsafe fn give_up(&self) -> *const T {
        debug_assert!(self.is_full());
        self.full.set(false);
        self.message.get().cast()
    }

    /// Moves the message to `to`.
    ///
    /// # Safety
    ///
    /// It is full, the caller is the one that may touch it (the invariant), and
    /// `to` is good for a write and holds nothing.
    #[inline(always)]
    pub(super) unsafe fn move_to(&self, to: *mut T) {
        debug_assert!(self.is_full());
        self.full.set(false);
        // SAFETY: the caller's promise; two different places.
        unsafe { to.copy_from_nonoverlapping(self.message.get().cast(), 1) };
    }

    /// Puts the message of `from` into this one.
    ///
    /// # Safety
    ///
    /// This one is empty, `from` is full, and the caller is the one that may
    /// touch both (the invariant).
    #[inline(always)]
    pub(super) unsafe fn fill_from(&self, from: &Self) {
        // SAFETY: the caller's promise.
        unsafe { from.move_to(self.room()) };
        self.set_full();
    }

    /// Where a message is to be put; [`set_full`](Self::set_full) follows.
    #[inline(always)]
    pub(super) fn room(&self) -> *mut T {
        debug_assert!(!self.is_full());
        self.message.get().cast()
    }

    /// A message was put into [`room`](Self::room).
    #[inline(always)]
    pub(super) fn set_full(&self) {
        self.full.set(true);
    }
}

impl<T> Drop for Parcel<T> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.full.get() {
            // SAFETY: it is full, and nobody else has it any more.
            unsafe { self.message.get_mut().assume_init_drop() };
        }
    }
}
