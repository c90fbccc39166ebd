//! The frames and bindings of whoever runs here: a fiber, or a plain thread.
//!
//! A fiber has them at the root of its stack, a thread in thread-locals. They are
//! linked and unlinked like stack frames: each by the call that made it, before it
//! returns or unwinds. If that is not the order in which they are left, a coroutine was
//! suspended inside of one (`fiber::users`), and the process is aborted.

use super::{children, point};
use crate::fiber::cancel::{CancelReason, Cause, Frame, Nest, Owner};
use crate::fiber::locals::Locals;
use crate::fiber::users::{User, left_out_of_order};
use crate::fiber::{Binding, ThreadProxy};
use crate::sched::{current, switch};
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// Who runs here; not to be kept beyond the call that asked.
pub(crate) struct Strand {
    owner: Owner,
    /// Keeps a thread's proxy.
    _proxy: Option<Arc<ThreadProxy>>,
}

impl Strand {
    #[inline]
    pub(crate) fn current() -> Self {
        match switch::running() {
            Some(block) => Self {
                owner: Owner::Fiber(block),
                _proxy: None,
            },
            None => Self::thread(),
        }
    }

    #[cold]
    fn thread() -> Self {
        let proxy = current::proxy();
        Self {
            owner: Owner::of_thread(&proxy),
            _proxy: Some(proxy),
        }
    }

    #[inline]
    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }
}

#[inline]
fn innermost(owner: Owner) -> *const Frame {
    match owner {
        // SAFETY: it runs here.
        Owner::Fiber(block) => unsafe { block.as_ref().frames() },
        Owner::Thread(_) => current::frames(),
    }
}

#[inline]
fn set_innermost(owner: Owner, frame: *const Frame) {
    match owner {
        // SAFETY: it runs here, so it has a root.
        Owner::Fiber(block) => unsafe { (*block.as_ref().root()).frames().set(frame) },
        Owner::Thread(_) => current::set_frames(frame),
    }
}

/// A frame that is linked; unlinked when this is dropped.
pub(crate) struct LinkedFrame<'a>(&'a Frame);

impl<'a> LinkedFrame<'a> {
    /// Links `frame` as the innermost of who runs here, whose it is.
    ///
    /// # Safety
    ///
    /// The answer is dropped by the call that made it, and the frame stays until
    /// then.
    #[inline]
    pub(crate) unsafe fn new(frame: &'a Frame) -> Self {
        let owner = frame.owner();
        frame.set_outer(innermost(owner));
        set_innermost(owner, frame);
        Self(frame)
    }
}

impl Drop for LinkedFrame<'_> {
    #[inline]
    fn drop(&mut self) {
        let owner = self.0.owner();
        if !ptr::eq(innermost(owner), self.0) {
            left_out_of_order();
        }
        set_innermost(owner, self.0.outer());
        if self.0.is_observed() {
            forget_told(owner);
        }
    }
}

/// A request is over of which somebody was told: who is told of the next ones, one after
/// the other, is not deaf.
#[cold]
fn forget_told(owner: Owner) {
    if let Owner::Fiber(block) = owner {
        // SAFETY: it has a root: it runs here, or is of this worker and has not ended, since
        // a frame of it was linked until now.
        unsafe { &*block.as_ref().root() }.forget_told();
    }
}

/// A nest that is linked, as a frame and as a nest.
pub(crate) struct LinkedNest<'a> {
    nest: &'a Nest,
    _frame: LinkedFrame<'a>,
    /// Counts at the binding that its children begin with, if there is one.
    _values: Option<User>,
}

impl<'a> LinkedNest<'a> {
    /// Links `nest` as the innermost of who runs here; answers why it is cancelled from
    /// the start, if it is.
    ///
    /// # Safety
    ///
    /// As for [`LinkedFrame::new`].
    pub(crate) unsafe fn new(nest: &'a Nest) -> (Self, Option<CancelReason>) {
        // SAFETY: the caller's promise.
        let frame = unsafe { LinkedFrame::new(nest.frame()) };
        children::link(nest);
        // SAFETY: the innermost binding, or boundary, of the fiber or thread that runs
        // here: its end looks at the count.
        let values = unsafe { nest.values().as_ref().map(|own| own.users().enter()) };
        let linked = Self {
            nest,
            _frame: frame,
            _values: values,
        };
        // After it was linked (`fiber::cancel`, invariant 3).
        // SAFETY: `with_cause` promises that it is linked.
        let reason = with_cause(|cause| unsafe { cause.reason() });
        (linked, reason)
    }
}

impl Drop for LinkedNest<'_> {
    fn drop(&mut self) {
        let frame = self.nest.frame();
        if !ptr::eq(innermost(frame.owner()), frame) {
            left_out_of_order();
        }
        children::unlink(self.nest);
    }
}

/// Whether who runs here is cancelled; nobody was told of it by this. Marks limits that were
/// reached, and calls wakers.
#[inline]
pub(crate) fn look() -> bool {
    with_cause(|_cause| ()).is_some()
}

/// See [`point::with_cause`].
#[inline]
fn with_cause<T>(f: impl FnOnce(Cause) -> T) -> Option<T> {
    let running = switch::running();
    if point::may_be_cancelled(running) {
        return point::with_cause(running, f);
    }
    None
}

/// Notes that somebody was told because of what who runs here is cancelled by.
#[cold]
pub(crate) fn observe_cause() {
    let running = switch::running();
    if point::may_be_cancelled(running) {
        point::cause_seen(running);
    }
}

/// A shield of `owner` was left: it looks again at what is outward of it. A thread does so
/// at each point anyway.
///
/// Another fiber may leave it, which has resumed the coroutine that was suspended inside. Then
/// the owner has perhaps looked meanwhile, found the shield, and waits: so it is woken, too.
///
/// # Safety
///
/// The shield's frame was linked until now, and nothing has run on this thread since.
#[inline]
pub(crate) unsafe fn shield_was_left(owner: Owner) {
    let Owner::Fiber(block) = owner else {
        return;
    };
    // SAFETY: the end of a fiber aborts while a frame of it is linked (`fiber::users`), and
    // this one was until now. A coroutine does not leave its thread, so the owner is of this
    // worker. If it is another than the running fiber it does not run now, and cannot end.
    let fiber = unsafe { block.as_ref() };
    // SAFETY: it runs here, or cannot run before we return.
    let framed = !unsafe { fiber.frames() }.is_null();
    if !framed && !fiber.state().load().cancelled() {
        return;
    }
    if switch::running() == Some(block) {
        fiber.state().look_soon();
    } else {
        // SAFETY: the answer of this block's own word.
        unsafe { fiber.follow(fiber.state().look_now()) };
    }
}

/// Calls `f`, which calls user code, for a caller that goes on with the running fiber after
/// that: that has its block, or is in the middle of a wait.
///
/// The user code may be on the stack of a coroutine of another library, and be suspended
/// there. The fiber must not end meanwhile, which is why it counts this, and nobody else
/// can go on in its place.
pub(crate) fn stay<R>(f: impl FnOnce() -> R) -> R {
    let running = switch::running();
    // SAFETY: the running fiber is alive.
    let root = running.and_then(|block| unsafe { block.as_ref().root().as_ref() });
    let Some(root) = root else {
        return f(); // a thread, or a model, which has no stacks
    };
    // SAFETY: the fiber runs here, and its end looks at the count.
    let _user = unsafe { root.users().enter() };
    let result = f();
    if switch::running() != running {
        left_out_of_order();
    }
    result
}

/// The innermost binding of a scoped value.
#[inline]
pub(crate) fn values() -> *const Binding {
    match switch::running() {
        // SAFETY: the running fiber is alive, and has a root.
        Some(block) => unsafe { (*block.as_ref().root()).values().get() },
        None => current::values(),
    }
}

/// Changes it.
#[inline]
pub(crate) fn set_values(binding: *const Binding) {
    match switch::running() {
        // SAFETY: as in `values`.
        Some(block) => unsafe { (*block.as_ref().root()).values().set(binding) },
        None => current::set_values(binding),
    }
}

/// The values of `fiber_local!` of who runs here; none on a thread that destroys its
/// own. Good until the fiber or thread ends, and used by that alone.
#[inline]
pub(crate) fn locals() -> Option<NonNull<Locals>> {
    match switch::running() {
        // SAFETY: as in `values`.
        Some(block) => Some(NonNull::from(unsafe { (*block.as_ref().root()).locals() })),
        None => current::locals(),
    }
}
