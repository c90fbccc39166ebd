//! Waiting for a fiber's result.

use super::fiber::Fiber;
use crate::error::JoinError;
use crate::fiber::cancel::{Errands, descent};
use crate::fiber::{Block, BlockRef, Detached, TakeOutcome, WaitReason, release};
use crate::queue::Entry;
use crate::runtime::shared_for_spawn;
use crate::sched::shared::Shared;
use crate::sched::{current, polling, switch};
use crate::wait::chain;
use crate::wait::end::{self, TaskWaiter};
use crate::wait::lend;
use crate::wait::{Deadline, WaitOutcome, WaitSpec};
use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

/// Owns the right to a fiber's result.
///
/// Wait for it with [`join`](Self::join) from a fiber or a plain thread, or
/// `.await` it in async code. Dropped, it detaches the fiber.
///
/// ```
/// sinew::run(|| {
///     let handle = sinew::spawn(|| "done");
///     assert_eq!(handle.join().unwrap(), "done");
/// });
/// ```
pub struct JoinHandle<T> {
    block: BlockRef,
    take: TakeOutcome<T>,
    /// The wait of the task that polled this handle, if one did.
    task: Option<TaskWaiter>,
    /// A poll has handed the outcome out.
    taken: bool,
}

// SAFETY: the handle gives out a `T` made by another thread, no more; the
// waiter is only touched through `&mut`, or under the list's lock.
unsafe impl<T: Send> Send for JoinHandle<T> {}
// SAFETY: through `&JoinHandle` only atomics of the block are reached.
unsafe impl<T: Send> Sync for JoinHandle<T> {}

impl<T> Unpin for JoinHandle<T> {}
// As std's: a panic cannot break what the handle refers to.
impl<T> std::panic::UnwindSafe for JoinHandle<T> {}
impl<T> std::panic::RefUnwindSafe for JoinHandle<T> {}

impl<T> JoinHandle<T> {
    pub(super) fn new(block: BlockRef, take: TakeOutcome<T>) -> Self {
        Self {
            block,
            take,
            task: None,
            taken: false,
        }
    }

    /// Waits for the fiber's end, and returns its result.
    ///
    /// Only this fiber waits; its worker runs others. While it waits the other
    /// fiber is at least as urgent as this one. Waiting is no cancellation
    /// point: the result is always awaited. But if this fiber is cancelled, or what
    /// it is inside of, before or meanwhile, that is passed on to the other.
    ///
    /// # Errors
    ///
    /// [`JoinError`] if the fiber panicked, or was cancelled before it ran.
    #[track_caller]
    pub fn join(self) -> Result<T, JoinError> {
        self.wait_for_end(None, Location::caller());
        self.take_outcome()
    }

    /// Returns the result if the fiber has ended, else the handle.
    ///
    /// A loop of failing tries is a place where other fibers may run: every 64th in one turn
    /// of a fiber yields.
    ///
    /// ```
    /// sinew::run(|| {
    ///     let handle = sinew::spawn(sinew::park);
    ///     let handle = handle.try_join().unwrap_err();
    ///     handle.fiber().unpark();
    ///     handle.join().unwrap();
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// The handle itself while the fiber has not ended.
    pub fn try_join(self) -> Result<Result<T, JoinError>, Self> {
        if polling::tried(self.is_finished()) {
            Ok(self.take_outcome())
        } else {
            Err(self)
        }
    }

    /// Waits for the fiber's end, at most for `timeout`; cancels nothing.
    ///
    /// # Errors
    ///
    /// The handle itself if the time was over first.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// sinew::run(|| {
    ///     let handle = sinew::spawn(sinew::park);
    ///     let handle = handle.join_timeout(Duration::from_millis(1)).unwrap_err();
    ///     handle.fiber().unpark();
    ///     handle.join().unwrap();
    /// });
    /// ```
    #[track_caller]
    pub fn join_timeout(self, timeout: Duration) -> Result<Result<T, JoinError>, Self> {
        // Beyond the clock's range is for ever.
        let ended = self.wait_for_end(Deadline::after(timeout), Location::caller());
        if ended {
            Ok(self.take_outcome())
        } else {
            Err(self)
        }
    }

    /// Whether the fiber has ended; then `join` returns at once.
    ///
    /// It never yields: a list of handles may be searched with a std lock held. A loop that
    /// waits for the end should wait by `join`, or yield.
    pub fn is_finished(&self) -> bool {
        self.block.state().load().complete()
    }

    /// Asks the fiber to stop; see [`Fiber::cancel`].
    pub fn cancel(&self) {
        descent::cancel_fiber(&self.block);
    }

    /// A handle to the fiber itself.
    pub fn fiber(&self) -> Fiber {
        Fiber::from_block(self.block.clone())
    }

    /// The fiber's block, for a select.
    pub(crate) fn block(&self) -> &Block {
        &self.block
    }

    /// The outcome of a fiber that has ended; the handle is spent after that.
    #[track_caller]
    pub(crate) fn take_ended(&mut self) -> Result<T, JoinError> {
        assert!(!self.taken, "a JoinHandle was joined after it had resolved");
        assert!(self.is_finished(), "the fiber has not ended");
        end::forget_task(&self.block, &mut self.task);
        self.taken = true;
        // SAFETY: COMPLETE was seen with Acquire while HANDLE is set, so the
        // outcome is there and ours (state, invariant 4); marked as taken, so
        // that nobody takes it again.
        unsafe { (self.take)(self.block.slot()) }
    }

    /// True if it has ended, false if the deadline came first.
    fn wait_for_end(&self, deadline: Option<Deadline>, at: &'static Location<'static>) -> bool {
        if self.is_finished() {
            return true;
        }
        let me = switch::about_to_wait();
        if let Some(me) = me {
            self.run_next_here(me);
        }
        let _elsewhere = me.and_then(|me| Elsewhere::begin(me, &self.block));
        let spec = WaitSpec::new(WaitReason::Join, at).lending_to(&self.block);
        if deadline.is_none() {
            let passed_on = Cell::new(false);
            let pass_on = |errands: &mut Errands| {
                passed_on.set(true);
                descent::cancel_fiber_into(&self.block, errands);
            };
            let spec = spec.passing_on(&pass_on);
            // SAFETY: `self` is the handle.
            unsafe { end::wait_as_owner(&self.block, &spec) };
            if passed_on.get() && self.block.state().load().was_told() {
                // A limit, say, has had an effect.
                chain::observe_cause();
            }
            return true;
        }
        let spec = spec.deadline(deadline);
        end::wait_for_end(&self.block, &spec) == WaitOutcome::Woken
    }

    /// If the fiber has not started, lets it run next on this worker: the
    /// joiner is about to leave it anyway.
    fn run_next_here(&self, me: NonNull<Block>) {
        let block = &*self.block;
        // SAFETY: the running fiber is alive.
        let me = unsafe { me.as_ref() };
        // So that it may run before what is less urgent than us.
        lend::lend_priority(me, block);
        // One that is not claimed has not completed, so an equal address is our own
        // runtime (`wait::lend`); the claim below says it for sure.
        if block.is_claimed() || block.runtime() != me.runtime() {
            return;
        }
        // SAFETY: a fiber runs here, so this thread has a live core; it is not
        // used beyond this call, which does not switch.
        let core = unsafe { &*current::core() };
        if !core.may_run_next() {
            return;
        }
        if block.kind().local && block.home() != core.home() {
            return;
        }
        if !block.claim_start() {
            return;
        }
        if core.take_claimed(Entry::fresh(self.block.as_ptr())) {
            block.merge_entry();
        } // else the entry stays in its queue, stale
        core.learn_join(true);
        let entry = Entry::started(self.block.as_ptr());
        if let Err(entry) = core.try_run_next(entry) {
            core.push_private(entry);
        }
    }

    /// The outcome of a fiber that has ended.
    #[track_caller]
    fn take_outcome(mut self) -> Result<T, JoinError> {
        assert!(!self.taken, "a JoinHandle was joined after it had resolved");
        debug_assert!(self.is_finished());
        end::forget_task(&self.block, &mut self.task);
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: COMPLETE was seen with Acquire while HANDLE is set, so the
        // outcome is there and ours (state, invariant 4); `self` is gone, so it
        // is taken once, and its reference is released once.
        unsafe {
            let outcome = (this.take)(this.block.slot());
            release(this.block.as_ptr(), 1);
            outcome
        }
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        end::forget_task(&self.block, &mut self.task);
        if self.taken {
            return;
        }
        match self.block.state().detach() {
            Detached::Running => {}
            // SAFETY: the outcome is ours (state, invariant 4). The block's
            // reference is dropped after this, also if it unwinds.
            Detached::OutcomeIsOurs => unsafe {
                (self.block.table().drop_outcome)(self.block.slot());
            },
        }
    }
}

/// Resolves to what [`JoinHandle::join`] returns; works under any executor.
///
/// ```
/// sinew::run(|| {
///     let handle = sinew::spawn(|| 1);
///     let sum = sinew::block_on(async { handle.await.unwrap() + 1 });
///     assert_eq!(sum, 2);
/// });
/// ```
///
/// # Panics
///
/// If polled again after it has resolved.
impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        assert!(!this.taken, "a JoinHandle was polled after it had resolved");
        if end::poll_end(&this.block, &mut this.task, context).is_pending() {
            return Poll::Pending;
        }
        Poll::Ready(this.take_ended())
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle")
            .field("fiber", &self.fiber())
            .finish()
    }
}

/// As [`JoinHandle`], for a fiber that stays on this worker; not `Send`.
///
/// ```compile_fail
/// fn is_send<T: Send>() {}
/// is_send::<sinew::LocalJoinHandle<()>>();
/// ```
pub struct LocalJoinHandle<T> {
    inner: JoinHandle<T>,
    /// Neither `Send` nor `Sync`: the result belongs to this thread.
    _local: PhantomData<*const ()>,
}

impl<T> LocalJoinHandle<T> {
    pub(super) fn new(inner: JoinHandle<T>) -> Self {
        Self {
            inner,
            _local: PhantomData,
        }
    }

    /// As [`JoinHandle::join`].
    ///
    /// # Errors
    ///
    /// As [`JoinHandle::join`].
    #[track_caller]
    pub fn join(self) -> Result<T, JoinError> {
        self.inner.join()
    }

    /// As [`JoinHandle::try_join`].
    ///
    /// # Errors
    ///
    /// The handle itself while the fiber has not ended.
    pub fn try_join(self) -> Result<Result<T, JoinError>, Self> {
        self.inner.try_join().map_err(Self::new)
    }

    /// As [`JoinHandle::join_timeout`].
    ///
    /// # Errors
    ///
    /// The handle itself if the time was over first.
    #[track_caller]
    pub fn join_timeout(self, timeout: Duration) -> Result<Result<T, JoinError>, Self> {
        self.inner.join_timeout(timeout).map_err(Self::new)
    }

    /// As [`JoinHandle::is_finished`].
    pub fn is_finished(&self) -> bool {
        self.inner.is_finished()
    }

    /// As [`JoinHandle::cancel`].
    pub fn cancel(&self) {
        self.inner.cancel();
    }

    /// As [`JoinHandle::fiber`].
    pub fn fiber(&self) -> Fiber {
        self.inner.fiber()
    }
}

impl<T> LocalJoinHandle<T> {
    /// As [`JoinHandle::block`].
    pub(crate) fn block(&self) -> &Block {
        self.inner.block()
    }

    /// As [`JoinHandle::take_ended`].
    #[track_caller]
    pub(crate) fn take_ended(&mut self) -> Result<T, JoinError> {
        self.inner.take_ended()
    }
}

impl<T> Future for LocalJoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.inner).poll(context)
    }
}

impl<T> fmt::Debug for LocalJoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// Counts a fiber that waits for one of another runtime, until it is dropped.
struct Elsewhere(Arc<Shared>);

impl Elsewhere {
    /// None if `me`, the running fiber, waits for `other` in its own runtime.
    #[inline]
    fn begin(me: NonNull<Block>, other: &Block) -> Option<Self> {
        // SAFETY: the running fiber is alive.
        let own = unsafe { me.as_ref() }.runtime();
        (own != other.runtime()).then(Self::count)
    }

    #[cold]
    fn count() -> Self {
        let shared = shared_for_spawn(Arc::clone);
        // Relaxed: read by the monitor while all workers sleep (`worker::stall`).
        shared.joins_elsewhere.fetch_add(1, Ordering::Relaxed);
        Self(shared)
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        // Relaxed: as above.
        self.0.joins_elsewhere.fetch_sub(1, Ordering::Relaxed);
    }
}
