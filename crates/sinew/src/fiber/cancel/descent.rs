//! Cancelling, downward; see the header of `fiber::cancel`.
//!
//! A descent has a list of what is left to do, so that it needs neither recursion
//! (fibers have small stacks) nor two locks at once: it looks at one owner's nests
//! at a time, under that owner's lock, and under it at one nest's children at a
//! time. What it meets that has more below, it puts on its list: a fiber by a
//! reference to its block, a token by its own.
//!
//! Tokens wake async tasks, which is user code: so a descent runs on the stack of
//! the fiber or thread that cancels, never on a worker's. A deadline is passed on
//! by the fiber whose it is, when it looks. That may be in the middle of a wait, where no
//! user code may run: if that waited as well, one of the two would take the other's
//! notification. So wakers are gathered ([`Errands`]), and called when the tree was told.

use super::frame::{Cause, Frame, Outward, Owner};
use super::nest::Nest;
use super::reason::CancelReason;
use crate::fiber::{Block, BlockRef, ThreadProxy, Told};
use crate::sys::log::log;
use std::sync::{Arc, Mutex, PoisonError};

/// A token, as it hangs on what it stands for.
pub(crate) trait Hook: Send + Sync {
    /// What it stands for was cancelled: so is the token, and what is below.
    fn cancelled(
        self: Arc<Self>,
        reason: &CancelReason,
        descent: &mut Descent,
        errands: &mut Errands,
    );

    /// What it stood for has ended.
    fn detach(&self);

    /// Why it was cancelled, if it was.
    fn reason(&self) -> Option<CancelReason>;

    /// Itself, for who knows what it is.
    fn into_any(self: Arc<Self>) -> Arc<dyn std::any::Any + Send + Sync>;
}

/// A fiber or thread whose nests are still to be looked at.
enum Left {
    Fiber(BlockRef),
    Thread(Arc<ThreadProxy>),
    Hook(Arc<dyn Hook>, CancelReason),
}

/// Wakers of tasks to be called: user code.
#[must_use = "tasks that are not woken wait for ever"]
pub(crate) struct Errands(Vec<Errand>);

/// One of them, or several of one token.
pub(crate) type Errand = Box<dyn FnOnce() + Send>;

/// What could not be done elsewhere, for want of a thread; done by the next who can.
static LEFT_OVER: Mutex<Vec<Errand>> = Mutex::new(Vec::new());

impl Errands {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn add(&mut self, errand: Errand) {
        self.0.push(errand);
    }

    /// Does them here, where user code may run.
    #[inline]
    pub(crate) fn run(self) {
        if !self.0.is_empty() {
            self.0.into_iter().for_each(|errand| errand());
            Self::run_left_over();
        }
    }

    #[cold]
    fn run_left_over() {
        let left = std::mem::take(&mut *LEFT_OVER.lock().unwrap_or_else(PoisonError::into_inner));
        left.into_iter().for_each(|errand| errand());
    }

    /// Does them on a thread started for that: here is a wait. Few waits ever come here: a
    /// limit of time must be reached while its fiber waits for something else than what
    /// ends by that, and tasks must await a token of what is inside.
    #[inline]
    pub(crate) fn run_elsewhere(self) {
        if !self.0.is_empty() {
            self.start_thread();
        }
    }

    #[cold]
    fn start_thread(self) {
        let mut left = LEFT_OVER.lock().unwrap_or_else(PoisonError::into_inner);
        left.extend(self.0);
        drop(left);
        let started = std::thread::Builder::new()
            .name("sinew-wakers".into())
            .spawn(Self::run_left_over);
        if let Err(error) = started {
            log(&format!(
                "wakers of tasks that await a token are late: {error}"
            ));
        }
    }
}

/// What is left to do of a cancellation.
#[must_use = "what is below is cancelled by `run`"]
pub(crate) struct Descent {
    left: Vec<Left>,
}

impl Descent {
    pub(crate) fn new() -> Self {
        Self { left: Vec::new() }
    }

    /// Cancels a fiber: marks its root.
    pub(crate) fn cancel_fiber(&mut self, block: &Block) {
        self.fiber_was_told(block, block.state().cancel());
    }

    /// The same because its runtime ends.
    pub(crate) fn shut_down_fiber(&mut self, block: &Block) {
        self.fiber_was_told(block, block.state().shut_down());
    }

    fn fiber_was_told(&mut self, block: &Block, told: Told) {
        if told.hangs {
            // SAFETY: the caller has the block.
            self.left
                .push(Left::Fiber(unsafe { BlockRef::acquire(block.into()) }));
        }
        // SAFETY: the answer of this block's own word.
        unsafe { block.follow(told.wake) };
    }

    /// Cancels a nest: its children, and its owner inside of it.
    pub(crate) fn cancel_nest(&mut self, nest: &Nest, reason: &CancelReason) {
        self.cancel_children(nest, reason);
        if nest.frame().mark() {
            self.frame_was_marked(nest.frame());
        }
    }

    /// Cancels what is inside of a frame of another kind.
    pub(crate) fn cancel_frame(&mut self, frame: &Frame) {
        if frame.mark() {
            self.frame_was_marked(frame);
        }
    }

    /// Tells the owner, and goes on with its nests.
    fn frame_was_marked(&mut self, frame: &Frame) {
        // SAFETY: a linked frame's owner is alive; who called us keeps it linked.
        unsafe { frame.owner().tell() };
        // SAFETY: as above.
        unsafe { self.look_at(frame.owner()) };
    }

    /// Puts an owner on the list.
    ///
    /// # Safety
    ///
    /// It is alive.
    unsafe fn look_at(&mut self, owner: Owner) {
        match owner {
            Owner::Fiber(block) => {
                // SAFETY: the caller's promise.
                let hangs = unsafe { block.as_ref() }.state().load().hangs();
                if hangs {
                    // SAFETY: as above.
                    self.left
                        .push(Left::Fiber(unsafe { BlockRef::acquire(block) }));
                }
            }
            Owner::Thread(proxy) => {
                // SAFETY: as above; proxies are only ever in an `Arc`.
                let proxy = unsafe {
                    Arc::increment_strong_count(proxy.as_ptr());
                    Arc::from_raw(proxy.as_ptr())
                };
                self.left.push(Left::Thread(proxy));
            }
        }
    }

    /// Puts a fiber or thread on the list: something outward of its nests may have
    /// been marked.
    ///
    /// # Safety
    ///
    /// It is alive.
    pub(crate) unsafe fn of(owner: Owner) -> Self {
        let mut descent = Self::new();
        // SAFETY: the caller's promise.
        unsafe { descent.look_at(owner) };
        descent
    }

    /// Puts a token on the list.
    pub(crate) fn cancel_hook(&mut self, hook: Arc<dyn Hook>, reason: CancelReason) {
        self.left.push(Left::Hook(hook, reason));
    }

    /// Does what is left, and calls wakers. No lock may be held, and we are in no wait.
    pub(crate) fn run(self) {
        let mut errands = Errands::new();
        self.run_into(&mut errands);
        errands.run();
    }

    /// Does what is left, but for the wakers. No lock may be held.
    pub(crate) fn run_into(mut self, errands: &mut Errands) {
        while let Some(left) = self.left.pop() {
            match left {
                Left::Fiber(block) => self.enter_fiber(&block),
                Left::Thread(proxy) => {
                    let nests = proxy.nests().lock();
                    // SAFETY: we hold the thread's lock.
                    unsafe { self.enter_nests(nests.innermost()) };
                }
                Left::Hook(hook, reason) => hook.cancelled(&reason, &mut self, errands),
            }
        }
    }

    fn enter_fiber(&mut self, block: &Block) {
        let _lock = block.joiners().lock();
        let root = block.root_for_others();
        if let Some(root) = root {
            // SAFETY: we hold the fiber's lock.
            unsafe { self.enter_nests(root.nests().get()) };
        }
        if block.state().load().cancelled() {
            if let Some(hook) = block.hook() {
                self.left.push(Left::Hook(hook, block.reason(root)));
            }
        }
    }

    /// Cancels the children of those nests, from `innermost` outward, that a marked
    /// frame is visible from.
    ///
    /// # Safety
    ///
    /// The caller holds the lock of their owner (invariant 2).
    unsafe fn enter_nests(&mut self, innermost: *const Nest) {
        // SAFETY: null, or linked.
        let Some(innermost) = (unsafe { innermost.as_ref() }) else {
            return;
        };
        let owner = innermost.frame().owner();
        let mut from = std::ptr::from_ref(innermost.frame());
        while !from.is_null() {
            // A stretch between two shields: first who is the cause, then who is
            // inside of it.
            // SAFETY: linked, and outward stays (invariant 1).
            let cause = unsafe { Outward::from(from, owner) }.cause();
            // SAFETY: as above.
            from = unsafe { self.enter_stretch(from, cause) };
        }
    }

    /// Cancels the nests from `from` outward to `cause`; answers what comes after
    /// the shield that ends the stretch.
    ///
    /// # Safety
    ///
    /// As for [`enter_nests`](Self::enter_nests).
    unsafe fn enter_stretch(&mut self, from: *const Frame, cause: Option<Cause>) -> *const Frame {
        // SAFETY: the caller's promise.
        let reason = cause.map(|cause| unsafe { cause.reason() });
        let mut reached = false;
        let mut at = from;
        // SAFETY: null, or linked.
        while let Some(frame) = unsafe { at.as_ref() } {
            at = frame.outer();
            if frame.ends_stretch() {
                break;
            }
            if let (Some(cause), Some(reason), false) = (cause, &reason, reached) {
                if let Some(nest) = frame.as_nest() {
                    self.cancel_children(nest, reason);
                }
                reached = cause.is(frame);
            }
        }
        at
    }

    /// Cancels all children of `nest`, and those that are to come.
    fn cancel_children(&mut self, nest: &Nest, reason: &CancelReason) {
        let mut inner = nest.inner().lock();
        if inner.cancelled.is_some() {
            return; // they were told before
        }
        inner.cancelled = Some(reason.clone());
        if let Some(hook) = &inner.hook {
            self.left.push(Left::Hook(hook.clone(), reason.clone()));
        }
        inner.children.for_each(|child| {
            // SAFETY: in the table, so the child has not said that it ended, and runs on
            // with its block.
            self.cancel_fiber(unsafe { child.as_ref() });
        });
    }
}

impl Drop for Descent {
    fn drop(&mut self) {
        debug_assert!(self.left.is_empty() || std::thread::panicking());
    }
}

/// Cancels a fiber, and all that is below.
pub(crate) fn cancel_fiber(block: &Block) {
    let mut errands = Errands::new();
    cancel_fiber_into(block, &mut errands);
    errands.run();
}

/// The same, but for the wakers.
pub(crate) fn cancel_fiber_into(block: &Block, errands: &mut Errands) {
    let mut descent = Descent::new();
    descent.cancel_fiber(block);
    descent.run_into(errands);
}
