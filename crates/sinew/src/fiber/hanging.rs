//! What hangs on a fiber, as others find it: the root of its stack with its nests, and
//! the token that stands for it.

use super::block::{Block, Extras, TO_BE_CHILD};
use super::cancel::{CancelReason, Frame, Hook, Nest};
use super::root::Root;
use crate::primitive::Ordering;
use std::ptr::{self, NonNull};
use std::sync::Arc;

impl Block {
    /// The root of its stack; null while it has none. For the owner, or under the
    /// lock of `joiners`.
    #[inline]
    pub(crate) fn root(&self) -> *const Root {
        // Relaxed: for the owner. Others come by `root_for_others`.
        let root = self.root_cell().load(Ordering::Relaxed);
        if root.addr() & TO_BE_CHILD == 0 {
            root.cast_const().cast()
        } else {
            ptr::null()
        }
    }

    /// The nest it is to be a child of; asked once, before it has a root.
    pub(crate) fn future_parent(&self) -> Option<NonNull<Nest>> {
        // Relaxed: written by who spawned it, seen through the queue.
        let root = self.root_cell().load(Ordering::Relaxed);
        let parent = root.map_addr(|addr| addr & !TO_BE_CHILD);
        (root.addr() & TO_BE_CHILD != 0)
            .then(|| NonNull::new(parent.cast()))
            .flatten()
    }

    /// Says where the root of its stack is; for the fiber itself.
    pub(crate) fn set_root(&self, root: *const Root) {
        // Release: who finds it sees what is there; pairs with `root_for_others`.
        self.root_cell()
            .store(root.cast_mut().cast(), Ordering::Release);
    }

    /// The innermost of the fiber's own frames.
    ///
    /// # Safety
    ///
    /// It runs here, or waits for the caller.
    #[inline]
    pub(crate) unsafe fn frames(&self) -> *const Frame {
        // SAFETY: a fiber that has begun and not ended has a root.
        unsafe { (*self.root()).frames().get() }
    }

    /// The root of its stack, for others, who hold the lock of `joiners`.
    ///
    /// In this order: HANGS was set before COMPLETE, so the fiber comes to the lock
    /// to take its root away before it leaves its stack ([`Root::leave`]).
    pub(crate) fn root_for_others(&self) -> Option<&Root> {
        let state = self.state().load();
        if !state.hangs() || state.complete() {
            return None;
        }
        // Acquire: pairs with `set_root`, which is done without the lock at the start.
        let root = self.root_cell().load(Ordering::Acquire);
        if root.addr() & TO_BE_CHILD != 0 {
            return None;
        }
        // SAFETY: null, or there for as long as the caller holds the lock.
        unsafe { root.cast::<Root>().as_ref() }
    }

    /// Why its root was marked; asked by itself, or by another that got `root` under
    /// the lock and still holds it.
    pub(crate) fn reason(&self, root: Option<&Root>) -> CancelReason {
        if self.state().load().shut_down() {
            return CancelReason::Shutdown;
        }
        // SAFETY: a fiber that has its root has not told its parent that it ended.
        let given = root
            .and_then(Root::parent)
            .and_then(|nest| unsafe { nest.as_ref() }.reason());
        given
            .or_else(|| self.hook().and_then(|hook| hook.reason()))
            .unwrap_or(CancelReason::Requested)
    }

    /// The token that stands for it, if one was asked for.
    pub(crate) fn hook(&self) -> Option<Arc<dyn Hook>> {
        // SAFETY: extras live as long as the block is referenced.
        let extras = unsafe { self.extras().as_ref() }?;
        extras.hook.lock().clone()
    }

    /// The same; made by `make` if there is none yet.
    pub(crate) fn hook_or(&self, make: impl FnOnce() -> Arc<dyn Hook>) -> Arc<dyn Hook> {
        let hook = self.hook().unwrap_or_else(|| {
            let made = make();
            self.extras_or_new().hook.lock().get_or_insert(made).clone()
        });
        // Also if another has made it, who is perhaps not yet here.
        self.state().hang_token();
        hook
    }

    /// Takes the token that stands for it.
    pub(crate) fn take_hook(&self) -> Option<Arc<dyn Hook>> {
        // SAFETY: as in `hook`.
        let extras = unsafe { self.extras().as_ref() }?;
        extras.hook.lock().take()
    }

    /// The extras; made if there are none.
    fn extras_or_new(&self) -> &Extras {
        let mut extras = self.extras();
        if extras.is_null() {
            let new = Box::into_raw(Box::new(Extras::new(None)));
            // Release: pairs with `extras`. Acquire: we see those of who was first.
            extras = match self.extras_cell().compare_exchange(
                ptr::null_mut(),
                new,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => new,
                Err(first) => {
                    // SAFETY: made above, and nobody else has seen it.
                    drop(unsafe { Box::from_raw(new) });
                    first
                }
            };
        }
        // SAFETY: extras live as long as the block is referenced, which it is.
        unsafe { &*extras }
    }
}
