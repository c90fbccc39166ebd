//! A count of things that happened, and those who wait for the next.
//!
//! A [`Sequencer`] that is only ever incremented, and a flag that ends all
//! waiting. The word of the sequencer is that of the futex: a counter of 63 bits
//! and one that says that somebody waits, so that nothing that is posted between
//! a look and a wait is missed.
//!
//! The flag is set under the lock of the sequencer's line, where a waiter looks at
//! it before it links itself: so it is seen by the `stop` that follows.
//!
//! A count that is reached counts more than the flag: what was posted before the
//! stop is not lost.

use super::error::TimedOut;
use super::sequencer::{Sequencer, SequencerWait};
use crate::error::{Cancelled, impl_error};
use crate::fiber::WaitReason;
use crate::primitive::{AtomicBool, Ordering, const_fn};
use crate::sched::polling;
use crate::time::Instant;
use crate::wait::{Deadline, Enlisted, Operation, Pending, WaitOutcome, WaitSpec, Waiter};
use crate::wait::{perform, point};
use std::fmt;
use std::io::ErrorKind;
use std::panic::Location;
use std::time::Duration;

/// Counts posts; waits until there were so many, or until it is stopped.
///
/// The way to wait for a condition that is kept elsewhere: read the count, look at
/// the condition, and if it does not hold wait for the next post. A post that
/// comes in between ends the wait at once. Waiting is a cancellation point.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use sinew::sync::Futex;
///
/// sinew::run(|| {
///     let shared = Arc::new((AtomicU32::new(0), Futex::new()));
///     let waiter = sinew::spawn({
///         let shared = shared.clone();
///         move || {
///             let (ready, futex) = &*shared;
///             loop {
///                 let seen = futex.get();
///                 if ready.load(Ordering::Relaxed) == 3 {
///                     return;
///                 }
///                 futex.wait(seen + 1).unwrap();
///             }
///         }
///     });
///     for _ in 0..3 {
///         shared.0.fetch_add(1, Ordering::Relaxed);
///         shared.1.post();
///     }
///     waiter.join().unwrap();
///     assert_eq!(shared.1.get(), 3);
/// });
/// ```
pub struct Futex {
    posts: Sequencer,
    stopped: AtomicBool,
}

impl Futex {
    const_fn! {
        /// Nothing has been posted.
        pub const fn new() -> Self {
            Self {
                posts: Sequencer::new(),
                stopped: AtomicBool::new(false),
            }
        }
    }

    /// How often it was posted.
    pub fn get(&self) -> u64 {
        self.posts.get()
    }

    /// Adds one to the count, wakes those who waited for that, and answers the new
    /// count.
    pub fn post(&self) -> u64 {
        self.posts.increment()
    }

    /// Refuses all who wait, and all who come, unless their count was reached.
    ///
    /// ```
    /// use sinew::sync::{Futex, FutexError};
    ///
    /// let futex = Futex::new();
    /// futex.post();
    /// futex.stop();
    /// assert_eq!(futex.wait(1), Ok(()));
    /// assert_eq!(futex.wait(2), Err(FutexError::Stopped));
    /// ```
    pub fn stop(&self) {
        self.posts.wake_all_after(|| {
            // Release: who is refused sees what came before; pairs with
            // `is_stopped`.
            self.stopped.store(true, Ordering::Release);
        });
    }

    /// Whether it was stopped.
    pub fn is_stopped(&self) -> bool {
        // Acquire: pairs with the Release in `stop`.
        self.stopped.load(Ordering::Acquire)
    }

    /// Waits until the count has reached `token`; a cancellation point.
    ///
    /// # Errors
    ///
    /// [`FutexError`] if the futex was stopped first, or the fiber was cancelled.
    #[track_caller]
    pub fn wait(&self, token: u64) -> Result<(), FutexError> {
        point::check()?;
        match self.wait_by(token, None, Location::caller()) {
            Err(FutexTimeoutError::Stopped) => Err(FutexError::Stopped),
            Err(_) => Err(FutexError::Cancelled),
            Ok(()) => Ok(()),
        }
    }

    /// Waits for the next post; short for `wait(get() + 1)`.
    ///
    /// Posts that came before are not seen: where that matters, read the count
    /// first.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    #[track_caller]
    pub fn wait_next(&self) -> Result<(), FutexError> {
        self.wait(self.get() + 1)
    }

    /// Whether the count has reached `token`.
    ///
    /// A loop of failing tries is a place where other fibers may run: every 64th in one turn
    /// of a fiber yields.
    ///
    /// # Errors
    ///
    /// [`FutexError::Stopped`] if it has not, and the futex was stopped.
    pub fn try_wait(&self, token: u64) -> Result<bool, FutexError> {
        let outcome = self.outcome(token);
        if !matches!(outcome, Some(Ok(()))) {
            polling::failed();
        }
        match outcome {
            None => Ok(false),
            Some(Ok(())) => Ok(true),
            Some(Err(Stopped)) => Err(FutexError::Stopped),
        }
    }

    /// As [`wait`](Self::wait), but for `timeout` at most.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sinew::sync::{Futex, FutexTimeoutError};
    ///
    /// let futex = Futex::new();
    /// let outcome = futex.wait_timeout(1, Duration::from_millis(1));
    /// assert_eq!(outcome, Err(FutexTimeoutError::Timeout));
    /// ```
    ///
    /// # Errors
    ///
    /// [`FutexTimeoutError`] also if the time was over first.
    #[track_caller]
    pub fn wait_timeout(&self, token: u64, timeout: Duration) -> Result<(), FutexTimeoutError> {
        point::check()?;
        self.wait_by(token, Deadline::after(timeout), Location::caller())
    }

    /// As [`wait`](Self::wait), but until `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`wait_timeout`](Self::wait_timeout).
    #[track_caller]
    pub fn wait_deadline(&self, token: u64, deadline: Instant) -> Result<(), FutexTimeoutError> {
        point::check()?;
        self.wait_by(token, Some(deadline.deadline()), Location::caller())
    }

    /// As [`wait`](Self::wait), in async code, under any executor.
    ///
    /// ```
    /// let futex = sinew::sync::Futex::new();
    /// futex.post();
    /// assert_eq!(sinew::block_on(futex.wait_async(1)), Ok(()));
    /// ```
    pub fn wait_async(&self, token: u64) -> impl Future<Output = Result<(), FutexError>> + Send {
        let pending = Pending::new(self.operation(token));
        async move { pending.await.map_err(|Stopped| FutexError::Stopped) }
    }

    /// What a wait would come to now; none if it would wait.
    fn outcome(&self, token: u64) -> Option<Result<(), Stopped>> {
        // In this order: what is reached is reached before the stop, or after.
        let stopped = self.is_stopped();
        if self.posts.has_reached(token) {
            return Some(Ok(()));
        }
        stopped.then_some(Err(Stopped))
    }

    fn wait_by(
        &self,
        token: u64,
        deadline: Option<Deadline>,
        at: &'static Location<'static>,
    ) -> Result<(), FutexTimeoutError> {
        let spec = WaitSpec::new(WaitReason::Futex, at)
            .deadline(deadline)
            .cancellable();
        let outcome = match self.outcome(token) {
            Some(outcome) => Ok(outcome),
            None => perform(&self.operation(token), &spec),
        };
        match outcome {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Stopped)) => Err(FutexTimeoutError::Stopped),
            Err(WaitOutcome::Cancelled) => Err(FutexTimeoutError::Cancelled),
            Err(_) => Err(FutexTimeoutError::Timeout),
        }
    }

    fn operation(&self, token: u64) -> FutexWait<'_> {
        FutexWait {
            wait: self.posts.token(token).operation(),
            futex: self,
        }
    }
}

impl Default for Futex {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Futex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Futex")
            .field("count", &self.get())
            .field("is_stopped", &self.is_stopped())
            .finish()
    }
}

/// The futex was stopped before the count was reached.
struct Stopped;

/// One wait for a count.
struct FutexWait<'a> {
    wait: SequencerWait<'a>,
    futex: &'a Futex,
}

impl FutexWait<'_> {
    /// After it could pass: why?
    fn reason(&self) -> Result<(), Stopped> {
        if self.wait.is_reached() {
            Ok(())
        } else {
            Err(Stopped)
        }
    }
}

// SAFETY: links and unlinks as the wait of the sequencer does; `stop` claims under
// the same lock.
unsafe impl Operation for FutexWait<'_> {
    type Output = Result<(), Stopped>;

    fn attempt(&self) -> Option<Self::Output> {
        self.futex.outcome(self.wait.value())
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<Self::Output> {
        let stopped = || self.futex.is_stopped();
        // SAFETY: the caller's promise.
        match unsafe { self.wait.enlist_unless(stopped, waiter, place) } {
            Enlisted::Linked => Enlisted::Linked,
            Enlisted::Done(()) => Enlisted::Done(self.reason()),
            Enlisted::Lost => Enlisted::Lost,
            Enlisted::Again => Enlisted::Again,
        }
    }

    fn delist(&self) -> bool {
        self.wait.delist()
    }

    fn accept(&self) -> Option<Self::Output> {
        Some(self.reason())
    }

    fn pass_on(&self) {} // it takes nothing along
}

const STOPPED_TEXT: &str = "the futex was stopped";

/// Why [`Futex::wait`] ended before the count was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FutexError {
    /// The futex was stopped.
    Stopped,
    /// The waiting fiber was cancelled.
    Cancelled,
}

impl fmt::Display for FutexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str(STOPPED_TEXT),
            Self::Cancelled => Cancelled.fmt(f),
        }
    }
}

impl_error!(FutexError {
    Self::Stopped => Some(ErrorKind::BrokenPipe),
    Self::Cancelled => None,
});

impl From<Cancelled> for FutexError {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

/// Why [`Futex::wait_timeout`] ended before the count was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FutexTimeoutError {
    /// The time was over first.
    Timeout,
    /// The futex was stopped.
    Stopped,
    /// The waiting fiber was cancelled.
    Cancelled,
}

impl fmt::Display for FutexTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => TimedOut.fmt(f),
            Self::Stopped => f.write_str(STOPPED_TEXT),
            Self::Cancelled => Cancelled.fmt(f),
        }
    }
}

impl_error!(FutexTimeoutError {
    Self::Timeout => Some(ErrorKind::TimedOut),
    Self::Stopped => Some(ErrorKind::BrokenPipe),
    Self::Cancelled => None,
});

impl From<Cancelled> for FutexTimeoutError {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}
