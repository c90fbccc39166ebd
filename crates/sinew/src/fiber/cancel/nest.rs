//! A scope as cancellation knows it: a frame with children.

use super::children::{ChildPlace, Children};
use super::descent::Hook;
use super::frame::{Frame, FrameKind, Owner};
use super::reason::CancelReason;
use crate::fiber::{Binding, Block};
use crate::primitive::{AtomicUsize, Ordering};
use crate::sys::Lock;
use std::cell::Cell;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// One scope; lives in the frame of the call that made it.
#[repr(C)]
pub(crate) struct Nest {
    /// First, so that a frame of this kind is known to be in a nest.
    frame: Frame,
    /// The next nest outward of the same owner; under the owner's lock.
    outer: Cell<*const Nest>,
    /// The innermost binding of a scoped value where it was made: its children
    /// begin with that.
    values: *const Binding,
    /// Children that were spawned and have not ended.
    live: AtomicUsize,
    inner: Lock<Inner>,
}

/// What others touch of it, under its lock.
pub(crate) struct Inner {
    /// The children that have started.
    pub(super) children: Children,
    /// Why it was cancelled, if it was: who starts from now on is.
    pub(super) cancelled: Option<CancelReason>,
    /// The token that stands for it.
    pub(super) hook: Option<Arc<dyn Hook>>,
    /// The waiter of the owner, who waits for the last child; see
    /// `wait::children`.
    pub(crate) waiter: *const (),
}

// SAFETY: the pointer is followed under the lock, while the waiter is there.
unsafe impl Send for Inner {}
// SAFETY: `outer` is touched under the owner's lock (`fiber::cancel`, invariant
// 2); `values` is constant, and followed by children, which the nest outlives; the
// rest is shareable itself.
unsafe impl Sync for Nest {}

impl Nest {
    pub(crate) fn new(owner: Owner, values: *const Binding) -> Self {
        Self {
            frame: Frame::new(owner, FrameKind::Nest, None),
            outer: Cell::new(ptr::null()),
            values,
            live: AtomicUsize::new(0),
            inner: Lock::new(Inner {
                children: Children::new(),
                cancelled: None,
                hook: None,
                waiter: ptr::null(),
            }),
        }
    }

    pub(crate) fn frame(&self) -> &Frame {
        &self.frame
    }

    pub(crate) fn values(&self) -> *const Binding {
        self.values
    }

    pub(super) fn inner(&self) -> &Lock<Inner> {
        &self.inner
    }

    /// Links it as the innermost of `nests`, under the owner's lock.
    pub(crate) fn link(&self, nests: &Cell<*const Nest>) {
        self.outer.set(nests.get());
        nests.set(self);
    }

    /// Unlinks it, the innermost, under the owner's lock.
    pub(crate) fn unlink(&self, nests: &Cell<*const Nest>) {
        debug_assert!(ptr::eq(nests.get(), self));
        nests.set(self.outer.get());
    }

    /// Counts a child that is about to be queued.
    pub(crate) fn count_child(&self) {
        // Relaxed: counted by the owner, or by a child whose own end, under the
        // lock, comes after.
        self.live.fetch_add(1, Ordering::Relaxed);
    }

    /// It was made inside of what is cancelled already: so are its children.
    pub(crate) fn begin_cancelled(&self, reason: CancelReason) {
        let mut inner = self.inner.lock();
        inner.cancelled.get_or_insert(reason);
    }

    /// Takes a child back that was counted, and never queued.
    ///
    /// For who keeps the nest alive: the owner, or a child.
    pub(crate) fn uncount_child(&self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
    }

    fn has_children(&self) -> bool {
        // Relaxed: under the lock, or a hint.
        self.live.load(Ordering::Relaxed) > 0
    }

    /// A child starts; answers its place, and whether the nest is cancelled.
    ///
    /// # Safety
    ///
    /// The child was counted, and its block stays until `end_child`.
    pub(crate) unsafe fn begin_child(&self, block: NonNull<Block>) -> (ChildPlace, bool) {
        let mut inner = self.inner.lock();
        (inner.children.insert(block), inner.cancelled.is_some())
    }

    /// A child that has a place, but has not begun to run, gives it back: until it begins
    /// it is not told of a cancellation.
    ///
    /// # Safety
    ///
    /// `place` is what `begin_child` answered; the child is still counted.
    pub(crate) unsafe fn leave_place(&self, place: ChildPlace) {
        self.inner.lock().children.remove(place);
    }

    /// A child ends; `last` is called under the lock if it was the last one. After
    /// that the nest may be gone (invariant 4).
    ///
    /// # Safety
    ///
    /// It was counted, and `place` is what `begin_child` answered, if it began.
    pub(crate) unsafe fn end_child<T>(
        &self,
        place: Option<ChildPlace>,
        last: impl FnOnce(&mut Inner) -> Option<T>,
    ) -> Option<T> {
        let mut inner = self.inner.lock();
        if let Some(place) = place {
            inner.children.remove(place);
        }
        // Relaxed: the lock orders it before the owner's look.
        if self.live.fetch_sub(1, Ordering::Relaxed) == 1 {
            last(&mut inner)
        } else {
            None
        }
    }

    /// Whether no child is left; if some are, `waiter` is told of the last.
    pub(crate) fn is_empty_or_tells(&self, waiter: *const ()) -> bool {
        let mut inner = self.inner.lock();
        let empty = !self.has_children();
        inner.waiter = if empty { ptr::null() } else { waiter };
        empty
    }

    /// Why it was cancelled, if it was.
    pub(crate) fn reason(&self) -> Option<CancelReason> {
        self.inner.lock().cancelled.clone()
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.inner.lock().cancelled.is_some()
    }

    /// The token that stands for the nest; made by `make` if there is none yet.
    pub(crate) fn hook_or(&self, make: impl FnOnce() -> Arc<dyn Hook>) -> Arc<dyn Hook> {
        if let Some(hook) = &self.inner.lock().hook {
            return hook.clone();
        }
        let made = make(); // allocates: not under the lock
        let mut inner = self.inner.lock();
        inner.hook.get_or_insert(made).clone()
    }

    /// Takes the token that stands for it.
    pub(crate) fn take_hook(&self) -> Option<Arc<dyn Hook>> {
        self.inner.lock().hook.take()
    }
}
