//! Running a future to its end, on a fiber or a thread.

use super::park::yield_now;
use crate::error::Cancelled;
use crate::fiber::{Block, BlockRef, ThreadProxy, WaitReason};
use crate::sched::{current, polling, switch};
use crate::wait::fiber_waker::fiber_waker;
use crate::wait::{Token, WaitOutcome, WaitSpec, Waiter, point, wait};
use std::future::Future;
use std::panic::Location;
use std::pin::pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};

/// Runs `future` to its end and returns its output.
///
/// On a fiber only that fiber waits; on a plain thread the thread does. The
/// waker may be kept, cloned and woken from anywhere at any time. Waiting is no
/// cancellation point.
///
/// ```
/// sinew::run(|| {
///     let sum = sinew::block_on(async { sinew::spawn(|| 40).await.unwrap() + 2 });
///     assert_eq!(sum, 42);
/// });
/// ```
#[track_caller]
pub fn block_on<F: Future>(future: F) -> F::Output {
    let spec = WaitSpec::new(WaitReason::Future, Location::caller());
    match poll_until_ready(future, &spec) {
        Ok(output) => output,
        Err(Cancelled) => unreachable!("the wait is no point"),
    }
}

/// As [`block_on`], but a cancellation point: if who waits is cancelled the future is
/// dropped where it stands.
///
/// # Errors
///
/// [`Cancelled`] if who waits was cancelled, before or during the wait.
///
/// ```
/// sinew::run(|| {
///     assert_eq!(sinew::block_on_or_cancelled(async { 1 }), Ok(1));
///     sinew::current().cancel();
///     let stuck = sinew::block_on_or_cancelled(std::future::pending::<()>());
///     assert_eq!(stuck, Err(sinew::Cancelled));
/// });
/// ```
#[track_caller]
pub fn block_on_or_cancelled<F: Future>(future: F) -> Result<F::Output, Cancelled> {
    point::check()?;
    let spec = WaitSpec::new(WaitReason::Future, Location::caller()).cancellable();
    poll_until_ready(future, &spec)
}

fn poll_until_ready<F: Future>(future: F, spec: &WaitSpec<'_>) -> Result<F::Output, Cancelled> {
    let mut future = pin!(future);
    let mut poller = Poller::new();
    loop {
        let mut context = Context::from_waker(&poller.waker);
        // SAFETY: it runs here, and the waker has a reference to it.
        let polled =
            unsafe { polling::in_task(poller.fiber, || future.as_mut().poll(&mut context)) };
        if let Poll::Ready(output) = polled {
            return Ok(output);
        }
        if !poller.runs_here() {
            // What the future has kept wakes the other one.
            poller = Poller::new();
            continue;
        }
        let spec = WaitSpec {
            token: Some(Token::Poll),
            ..*spec
        };
        let before = switches();
        if wait(&Waiter::for_current(), &spec) == WaitOutcome::Cancelled {
            return Err(Cancelled);
        }
        poller.took = true;
        if before.is_some() && before == switches() {
            // It was told to poll again before it could leave: a future that wakes
            // itself means to let others run.
            yield_now();
        }
    }
}

/// The fiber or thread that polls.
///
/// Another fiber takes its place if `poll` suspends a coroutine of another library, on whose
/// stack it was called, and that other fiber resumes it.
struct Poller {
    /// None on a plain thread. Kept by the waker, so no other is ever at its address.
    fiber: Option<NonNull<Block>>,
    /// Tells it to poll again.
    waker: Waker,
    /// It took such a word, which may have been meant for a `block_on` around this one: in
    /// that case the outer one is told to poll once more.
    took: bool,
}

impl Poller {
    /// The one that runs here.
    fn new() -> Self {
        let fiber = switch::running();
        let waker = match fiber {
            // SAFETY: the running fiber is alive.
            Some(block) => fiber_waker(unsafe { BlockRef::acquire(block) }),
            None => Waker::from(Arc::new(ThreadWaker(current::proxy()))),
        };
        Self {
            fiber,
            waker,
            took: false,
        }
    }

    /// Whether it still is the one that runs here. A coroutine does not leave its thread.
    fn runs_here(&self) -> bool {
        self.fiber == switch::running()
    }
}

/// Gives a taken word back to an outer `block_on`, also when unwinding.
impl Drop for Poller {
    fn drop(&mut self) {
        if !self.took {
            return;
        }
        match self.fiber {
            // It may wait at this moment.
            _ if !self.runs_here() => self.waker.wake_by_ref(),
            // SAFETY: the running fiber is alive.
            Some(block) => unsafe { block.as_ref() }.state().return_poll(),
            None => current::proxy().return_poll(),
        }
    }
}

/// How often this worker has switched; none on a plain thread.
fn switches() -> Option<u64> {
    // SAFETY: a non-null core is this thread's and alive.
    let core = unsafe { current::core().as_ref() }?;
    // Relaxed: this thread's own counter.
    Some(core.remote().counters.switches.load(Ordering::Relaxed))
}

struct ThreadWaker(Arc<ThreadProxy>);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.wake_poll();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.wake_poll();
    }
}
