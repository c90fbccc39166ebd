//! What all kinds of scopes have in common.
//!
//! Soundness does not depend on any destructor: [`ScopeCore::run`] is a function that
//! does not return, nor unwind, before the last child has said that it ended, as the
//! last thing it does with what it borrowed (`wait::children`). Where that cannot be
//! awaited the process is aborted. A handle that is leaked keeps its child's result,
//! which nobody drops then, and nothing else.

use crate::fiber::CancelReason;
use crate::fiber::cancel::frame::Outward;
use crate::fiber::cancel::{Descent, Nest};
use crate::runtime::{awaiting_children, shared_for_spawn};
use crate::sched::switch;
use crate::sys::process::AbortOnUnwind;
use crate::task::{JoinHandle, Request, spawn_on};
use crate::wait::chain::{self, LinkedNest, Strand};
use crate::wait::children;
use std::io;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cancel::{CancelToken, Target, TokenCore};

/// A nest, and how it is left.
pub(super) struct ScopeCore {
    nest: Nest,
    cancel_on_exit: AtomicBool,
    /// Keeps the proxy of a thread whose scope it is.
    _strand: Strand,
}

// A panic never leaves it half changed.
impl std::panic::UnwindSafe for ScopeCore {}
impl std::panic::RefUnwindSafe for ScopeCore {}
// SAFETY: the strand is only kept; the nest may be used from any thread.
unsafe impl Sync for ScopeCore {}

impl ScopeCore {
    /// A scope of who runs here.
    ///
    /// # Panics
    ///
    /// Where waiting is not allowed.
    pub(super) fn new() -> Self {
        switch::about_to_wait();
        let strand = Strand::current();
        Self {
            nest: Nest::new(strand.owner(), chain::values()),
            cancel_on_exit: AtomicBool::new(false),
            _strand: strand,
        }
    }

    /// Runs `body`, waits for all children, and answers how `body` ended.
    pub(super) fn run<T>(
        &self,
        body: impl FnOnce() -> T,
        at: &'static Location<'static>,
    ) -> std::thread::Result<T> {
        // SAFETY: unlinked below; nothing in between unwinds.
        let (linked, cancelled) = unsafe { LinkedNest::new(&self.nest) };
        if let Some(reason) = cancelled {
            self.nest.begin_cancelled(reason);
        }
        // Children borrow from frames outward of this one.
        let abort = AbortOnUnwind("a wait for borrowing fibers was cut short");
        let outcome = catch_unwind(AssertUnwindSafe(body));
        // Relaxed: set by the body, or by a child that may as well have been late.
        if self.cancel_on_exit.load(Ordering::Relaxed) {
            self.cancel(&CancelReason::ScopeEnded);
        }
        awaiting_children(|| children::wait_for_all(&self.nest, at));
        if let Some(hook) = self.nest.take_hook() {
            hook.detach();
        }
        drop(linked);
        std::mem::forget(abort);
        outcome
    }

    pub(super) fn cancel(&self, reason: &CancelReason) {
        let mut descent = Descent::new();
        descent.cancel_nest(&self.nest, reason);
        descent.run();
    }

    /// Whether it was cancelled; who asks was told so, as by `is_cancelled` of the crate.
    pub(super) fn is_cancelled(&self) -> bool {
        let cancelled = self.nest.is_cancelled();
        if cancelled {
            let frame = self.nest.frame();
            // SAFETY: who asks keeps the scope, and so all that is outward of it.
            let cause = unsafe { Outward::from(frame, frame.owner()) }.cause();
            if let Some(cause) = cause {
                // SAFETY: as above.
                unsafe { cause.observe() };
            }
        }
        cancelled
    }

    pub(super) fn cancel_on_exit(&self) {
        self.cancel_on_exit.store(true, Ordering::Relaxed);
    }

    pub(super) fn token(&self) -> CancelToken {
        let target = Target::Nest(NonNull::from(&self.nest));
        let hook = self.nest.hook_or(|| Arc::new(TokenCore::new(target)));
        let token = CancelToken::of_hook(hook);
        // After it was hung there: who cancels the scope later sees it.
        if let Some(reason) = self.nest.reason() {
            token.cancel_with(reason);
        }
        token
    }

    /// Starts a child.
    ///
    /// # Safety
    ///
    /// `f` and its value are `Send`, and valid for as long as [`run`](Self::run) has not
    /// returned; the value is taken or dropped by then, or never.
    pub(super) unsafe fn spawn<F: FnOnce() -> T, T>(
        &self,
        request: Request,
        f: F,
    ) -> io::Result<JoinHandle<T>> {
        let request = request.child_of(&self.nest);
        let counted = CountedChild::new(&self.nest);
        // SAFETY: the caller's promise; `run` waits for each child that was counted.
        let spawned = shared_for_spawn(|shared| unsafe { spawn_on(shared, request, f) });
        if spawned.is_ok() {
            // From here on the child itself says when it has ended.
            std::mem::forget(counted);
        }
        spawned
    }
}

/// A child that is counted and not yet made; taken back when dropped.
///
/// A spawn may fail, and may also unwind: the global runtime cannot be started, or the
/// closure of a refused spawn panics when it is dropped. Either way no child will ever
/// say that it has ended, so the owner must not wait for one.
struct CountedChild<'a>(&'a Nest);

impl<'a> CountedChild<'a> {
    fn new(nest: &'a Nest) -> Self {
        nest.count_child();
        Self(nest)
    }
}

impl Drop for CountedChild<'_> {
    fn drop(&mut self) {
        self.0.uncount_child();
    }
}
