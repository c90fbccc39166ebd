//! Requests to stop that are handed around: tokens, in trees.
//!
//! A token is a request for whoever looks at it, waits for it, or has entered it. It
//! may stand for a fiber or a scope, and then is cancelled with it, and cancels it. To
//! cancel a token cancels all tokens below it, at once; never the one above.

mod core;
mod waits;

pub(crate) use self::core::{Target, TokenCore};
pub use waits::CancelledWait;
pub(crate) use waits::TokenArm;

use self::core::{Entered, InList};
use super::timeout::Alarm;
use crate::error::Cancelled;
use crate::fiber::cancel::{Frame, FrameKind, Hook};
use crate::fiber::{CancelReason, WaitReason};
use crate::sync::WaitTimeoutError;
use crate::task::Fiber;
use crate::time::Instant;
use crate::util::list::Links;
use crate::wait::chain::{LinkedFrame, Strand};
use crate::wait::{Deadline, WaitOutcome, WaitSpec, deadline, perform, point};
use std::fmt;
use std::panic::Location;
use std::pin::pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

/// A request to stop, for as many as it concerns; clones are the same token.
///
/// | to | call |
/// |---|---|
/// | ask | [`cancel`](Self::cancel), [`cancel_with`](Self::cancel_with) |
/// | be asked at every point of a closure | [`enter`](Self::enter) |
/// | look | [`is_cancelled`](Self::is_cancelled), [`reason`](Self::reason) |
/// | wait for it | [`wait`](Self::wait); `wait(&token)` in a [`select!`](crate::select!); [`cancelled`](Self::cancelled)`().await` |
/// | narrow it | [`child`](Self::child), [`child_with_timeout`](Self::child_with_timeout) |
///
/// Tokens form a tree: what is below is cancelled with what is above, at once, and
/// never the other way round. Each fiber and each scope has one
/// ([`Fiber::token`], [`Scope::token`](crate::scope::Scope::token)).
///
/// ```
/// use sinew::{CancelReason, CancelToken, Cancelled};
///
/// let server = CancelToken::new();
/// let request = server.child();
/// let work = request.enter(|| {
///     sinew::check_cancelled()?;
///     server.cancel_with("going down");
///     sinew::check_cancelled() // a point inside says so
/// });
/// assert_eq!(work, Err(Cancelled));
/// assert_eq!(request.reason(), Some(CancelReason::from("going down")));
/// ```
#[derive(Clone)]
pub struct CancelToken {
    core: Arc<TokenCore>,
}

impl CancelToken {
    /// A token with nothing above it.
    pub fn new() -> Self {
        Self::of(Arc::new(TokenCore::new(Target::None)))
    }

    pub(crate) fn of(core: Arc<TokenCore>) -> Self {
        Self { core }
    }

    /// The token behind a hook: all hooks are tokens.
    pub(crate) fn of_hook(hook: Arc<dyn Hook>) -> Self {
        let core = hook.into_any().downcast().expect("a hook is a token");
        Self { core }
    }

    /// A token below this one: cancelled when this is, or on its own.
    ///
    /// ```
    /// use sinew::CancelToken;
    ///
    /// let above = CancelToken::new();
    /// let (one, other) = (above.child(), above.child());
    /// one.cancel();
    /// assert!(!above.is_cancelled() && !other.is_cancelled());
    /// above.cancel();
    /// assert!(other.is_cancelled());
    /// ```
    #[must_use = "a token that nobody has cancels nobody"]
    pub fn child(&self) -> Self {
        Self::of(self.core.child(None))
    }

    /// A token below this one that is cancelled at `deadline` at the latest.
    pub fn child_with_deadline(&self, deadline: Instant) -> Self {
        Self::of(self.core.child(Some(deadline.deadline())))
    }

    /// A token below this one that is cancelled after `timeout` at the latest.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sinew::{CancelReason, CancelToken};
    ///
    /// let limited = CancelToken::new().child_with_timeout(Duration::from_millis(1));
    /// limited.wait().unwrap();
    /// assert_eq!(limited.reason(), Some(CancelReason::Deadline));
    /// ```
    pub fn child_with_timeout(&self, timeout: Duration) -> Self {
        Self::of(self.core.child(Deadline::after(timeout)))
    }

    /// Cancels it, and all that is below.
    ///
    /// When this returns every token below is cancelled, and every fiber below was
    /// told. Only the first call does anything.
    pub fn cancel(&self) {
        self.core.cancel(&CancelReason::Requested);
    }

    /// As [`cancel`](Self::cancel), and says why.
    pub fn cancel_with(&self, reason: impl Into<CancelReason>) {
        self.core.cancel(&reason.into());
    }

    /// Whether it was cancelled, or its deadline has passed.
    pub fn is_cancelled(&self) -> bool {
        self.core.is_cancelled()
    }

    /// Why it was cancelled, if it was.
    pub fn reason(&self) -> Option<CancelReason> {
        self.is_cancelled().then(|| self.core.reason_now())
    }

    /// When it is cancelled at the latest: the earliest deadline of its own and of
    /// those above.
    pub fn deadline(&self) -> Option<Instant> {
        self.core.deadline.map(Instant::of_deadline)
    }

    /// Runs `f` so that every cancellation point in it answers
    /// [`Cancelled`] once this token is cancelled.
    ///
    /// Works on a plain thread, too. It reaches the children of scopes that are made in `f`,
    /// not those that `f` spawns into a scope around it: so an accept loop inside of `enter`,
    /// with its scope around, stops accepting and lets its children finish.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sinew::{CancelToken, Cancelled};
    ///
    /// let token = CancelToken::new();
    /// let theirs = token.clone();
    /// let thread = std::thread::spawn(move || {
    ///     theirs.enter(|| sinew::sleep(Duration::from_secs(3600)))
    /// });
    /// token.cancel();
    /// assert_eq!(thread.join().unwrap(), Err(Cancelled));
    /// ```
    pub fn enter<T>(&self, f: impl FnOnce() -> T) -> T {
        let strand = Strand::current();
        // By this pointer a count may be taken, too.
        let hook: *const dyn Hook = Arc::<TokenCore>::as_ptr(&self.core);
        let hook = NonNull::new(hook.cast_mut()).expect("an Arc is never null");
        let kind = FrameKind::Token(hook);
        let deadline = self.core.deadline;
        let entered = Entered {
            links: Links::new(),
            frame: Frame::new(strand.owner(), kind, deadline.map(|at| at.0)),
        };
        // SAFETY: both end with this call, also by a panic.
        let _linked = unsafe { LinkedFrame::new(&entered.frame) };
        let alarm = deadline.map(|_| Alarm::new(strand.owner()));
        let alarm = pin!(alarm);
        if let (Some(alarm), Some(at)) = (alarm.as_ref().as_pin_ref(), deadline) {
            alarm.arm(at, at.0 <= deadline::now());
        }
        // SAFETY: linked above, and unlinked after this is dropped.
        let _in_list = unsafe { InList::new(&self.core, &entered) };
        if entered.frame.is_marked() {
            point::look_soon();
        }
        f()
    }

    /// Waits until it is cancelled; a cancellation point itself.
    ///
    /// # Errors
    ///
    /// [`Cancelled`] if who waits is cancelled first. Who has entered this very token may
    /// get either answer.
    #[track_caller]
    pub fn wait(&self) -> Result<(), Cancelled> {
        match self.wait_by(None, Location::caller()) {
            Ok(()) => Ok(()),
            Err(WaitTimeoutError::Cancelled | WaitTimeoutError::Timeout) => Err(Cancelled),
        }
    }

    /// As [`wait`](Self::wait), but for `timeout` at most.
    ///
    /// # Errors
    ///
    /// [`WaitTimeoutError`] if the time was over first or who waits was cancelled.
    #[track_caller]
    pub fn wait_timeout(&self, timeout: Duration) -> Result<(), WaitTimeoutError> {
        self.wait_by(Deadline::after(timeout), Location::caller())
    }

    /// As [`wait`](Self::wait), but until `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`wait_timeout`](Self::wait_timeout).
    #[track_caller]
    pub fn wait_deadline(&self, deadline: Instant) -> Result<(), WaitTimeoutError> {
        self.wait_by(Some(deadline.deadline()), Location::caller())
    }

    fn wait_by(
        &self,
        deadline: Option<Deadline>,
        at: &'static Location<'static>,
    ) -> Result<(), WaitTimeoutError> {
        point::check()?;
        let until = Deadline::earlier(self.core.deadline, deadline);
        let spec = WaitSpec::new(WaitReason::Event, at)
            .deadline(until)
            .cancellable();
        loop {
            if self.is_cancelled() {
                return Ok(());
            }
            match perform(&self.core.cancelled.operation(), &spec) {
                Ok(()) => return Ok(()),
                Err(WaitOutcome::Cancelled) => return Err(WaitTimeoutError::Cancelled),
                Err(_) if self.is_cancelled() => return Ok(()),
                Err(_) => {
                    if deadline.is_some_and(|at| at.0 <= deadline::now()) {
                        return Err(WaitTimeoutError::Timeout);
                    }
                }
            }
        }
    }

    /// Waits until it is cancelled, in async code under any executor, or as an arm
    /// `wait(token.cancelled())` of a select, for which `wait(&token)` does as well.
    ///
    /// ```
    /// use sinew::CancelToken;
    ///
    /// let token = CancelToken::new();
    /// token.cancel();
    /// sinew::block_on(token.cancelled());
    /// let told = sinew::select! {
    ///     wait(token.cancelled()) -> told => told,
    /// };
    /// assert_eq!(told, Ok(()));
    /// ```
    pub fn cancelled(&self) -> CancelledWait<'_> {
        CancelledWait::new(self)
    }
}

impl Default for CancelToken {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelToken")
            .field("reason", &self.core.reason.get())
            .field("deadline", &self.deadline())
            .finish_non_exhaustive()
    }
}

/// Two tokens are equal if they are clones of each other.
impl PartialEq for CancelToken {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.core, &other.core)
    }
}

impl Eq for CancelToken {}

impl Fiber {
    /// The token that stands for this fiber: cancelled with it, and cancels it.
    ///
    /// Tokens below it are cancelled with the fiber. On a plain thread, which cannot be
    /// cancelled, and of a fiber that has ended, it is a token that stands for nothing.
    ///
    /// ```
    /// use sinew::CancelReason;
    ///
    /// sinew::run(|| {
    ///     let fiber = sinew::spawn(|| {
    ///         while sinew::checkpoint().is_ok() {}
    ///         sinew::cancel_reason()
    ///     });
    ///     let below = fiber.fiber().token().child();
    ///     while fiber.fiber().wait_reason() != sinew::WaitReason::None {}
    ///     fiber.fiber().token().cancel_with("no longer needed");
    ///     assert!(below.is_cancelled());
    ///     // It may have been cancelled before it ever ran.
    ///     if let Ok(reason) = fiber.join() {
    ///         assert_eq!(reason, Some(CancelReason::from("no longer needed")));
    ///     }
    /// });
    /// ```
    pub fn token(&self) -> CancelToken {
        let Some(block) = self.as_block() else {
            return CancelToken::new();
        };
        let hook = block.hook_or(|| Arc::new(TokenCore::new(Target::Fiber(block.clone()))));
        let token = CancelToken::of_hook(hook);
        // After it was hung there: who cancels or ends the fiber later sees it.
        let state = block.state().load();
        if state.cancelled() {
            let reason = {
                let _lock = block.joiners().lock();
                block.reason(block.root_for_others())
            };
            token.core.cancel(&reason);
        }
        if state.complete() {
            block.take_hook();
            token.core.detach();
        }
        token
    }
}
