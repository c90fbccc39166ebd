//! Limits of time: frames that are marked when it is over.
//!
//! The closure runs on the same fiber. A timer in the wheel of the fiber's worker, in
//! the same stack frame, tells the fiber to look when the time is over; on a plain
//! thread, which has no wheel, each wait ends by then to look. Who looks marks the
//! frame (`wait::point`), and from then on each point inside says `Cancelled`.

use crate::error::impl_error;
use crate::fiber::Block;
use crate::fiber::cancel::{Frame, FrameKind, Owner};
use crate::sched::current;
use crate::time::Instant;
use crate::timer::TimerNode;
use crate::wait::chain::{LinkedFrame, Strand};
use crate::wait::waiter::OF_A_FRAME;
use crate::wait::{Deadline, deadline};
use std::fmt;
use std::io;
use std::pin::{Pin, pin};
use std::ptr::NonNull;
use std::time::Duration;

/// Runs `f`, and cancels what it does once `limit` is over.
///
/// `f` runs here and now, on this fiber. When the time is over every cancellation
/// point in it answers [`Cancelled`](crate::Cancelled), and a wait in one ends; children
/// of scopes in it are cancelled, a `join` in it passes the request on. Nothing is cut
/// off: `f` goes on until it returns, and what it returns is never lost.
///
/// What has no point is awaited, however long it takes: a computation, `Mutex::lock`,
/// [`block_on`](crate::block_on) (there is
/// [`block_on_or_cancelled`](crate::block_on_or_cancelled)).
///
/// Limits nest, each reports only what it caused; if several are over when a point is met
/// it is the outermost. Inside of a [`shield`](crate::shield) an outer limit is not seen, an
/// inner one works. It reaches the children of scopes that are made in `f`, not those that
/// `f` spawns into a scope around it.
///
/// # Errors
///
/// [`Elapsed`], with what `f` returned, if somebody in `f` was told, by a point or by
/// [`is_cancelled`](crate::is_cancelled()), because the time was over. If `f` took longer
/// but met no point, this is no error.
///
/// ```
/// use std::time::Duration;
/// use sinew::{Cancelled, timeout};
///
/// sinew::run(|| {
///     let quick = timeout(Duration::from_secs(60), || 1 + 1);
///     assert_eq!(quick, Ok(2));
///
///     let slow = timeout(Duration::from_millis(1), || {
///         sinew::sleep(Duration::from_secs(3600))
///     });
///     assert_eq!(slow.unwrap_err().into_inner(), Err(Cancelled));
/// });
/// ```
pub fn timeout<T>(limit: Duration, f: impl FnOnce() -> T) -> Result<T, Elapsed<T>> {
    // Beyond the clock's range is for ever.
    match Deadline::after(limit) {
        Some(deadline) => run_until(deadline, limit.is_zero(), f),
        None => Ok(f()),
    }
}

/// As [`timeout`], until a moment.
///
/// # Errors
///
/// As [`timeout`].
///
/// ```
/// use std::time::Duration;
/// use sinew::time::Instant;
///
/// let by = Instant::now() + Duration::from_millis(1);
/// let late = sinew::deadline(by, || sinew::sleep(Duration::from_secs(3600)));
/// assert!(late.is_err());
/// assert!(Instant::now() >= by);
/// ```
pub fn deadline<T>(by: Instant, f: impl FnOnce() -> T) -> Result<T, Elapsed<T>> {
    let by = by.deadline();
    run_until(by, by.0 <= deadline::now(), f)
}

#[inline]
fn run_until<T>(deadline: Deadline, over: bool, f: impl FnOnce() -> T) -> Result<T, Elapsed<T>> {
    let strand = Strand::current();
    let frame = Frame::new(strand.owner(), FrameKind::Limit, Some(deadline.0));
    let value = {
        // SAFETY: both end with this block, also by a panic.
        let _linked = unsafe { LinkedFrame::new(&frame) };
        let alarm = pin!(Alarm::new(strand.owner()));
        alarm.as_ref().arm(deadline, over);
        f()
    };
    if frame.is_observed() {
        Err(Elapsed { value })
    } else {
        Ok(value)
    }
}

/// Tells a fiber to look at its frames, when it is time; disarmed when dropped.
pub(super) struct Alarm {
    timer: TimerNode,
    fiber: Option<NonNull<Block>>,
    armed_outside: std::cell::Cell<bool>,
}

impl Alarm {
    /// For who runs here; a thread needs none.
    #[inline]
    pub(super) fn new(owner: Owner) -> Self {
        let fiber = match owner {
            Owner::Fiber(block) => Some(block),
            Owner::Thread(_) => None,
        };
        let owner = fiber.map_or(std::ptr::null(), |block| {
            let block: *const () = block.as_ptr().cast();
            block.map_addr(|addr| addr | OF_A_FRAME)
        });
        Self {
            timer: TimerNode::new(owner),
            fiber,
            armed_outside: std::cell::Cell::new(false),
        }
    }

    /// Arms it, once; if its time is `over` the fiber looks at its next point.
    #[inline]
    pub(super) fn arm(self: Pin<&Self>, deadline: Deadline, over: bool) {
        let Some(block) = self.fiber else {
            return;
        };
        // SAFETY: the running fiber is alive.
        let fiber = unsafe { block.as_ref() };
        if over {
            fiber.state().look_soon();
        }
        self.armed_outside.set(fiber.pinned());
        let node = NonNull::from(&self.get_ref().timer);
        // SAFETY: a fiber runs here, so this thread has a live core. The node is
        // pinned, and disarmed when it is dropped, on this same worker:
        // `pinned` keeps even a migratable fiber here.
        unsafe { &*current::core() }.with_wheel(|wheel| unsafe { wheel.insert(node, deadline.0) });
        fiber.set_pinned(true);
    }
}

impl Drop for Alarm {
    #[inline]
    fn drop(&mut self) {
        let Some(block) = self.fiber else {
            return;
        };
        let node = NonNull::from(&self.timer);
        // SAFETY: as in `arm`; one that has fired is not in the wheel any more, which
        // `cancel` notices.
        unsafe {
            (*current::core()).with_wheel(|wheel| wheel.cancel(node));
            block.as_ref().set_pinned(self.armed_outside.get());
        }
    }
}

/// A limit of time was reached, and something was cancelled because of it; has what
/// the closure returned.
///
/// As an [`io::Error`] it is `TimedOut`.
///
/// ```
/// use std::io;
/// use std::time::Duration;
///
/// fn nap() -> io::Result<()> {
///     sinew::timeout(Duration::from_millis(1), || {
///         sinew::sleep(Duration::from_secs(3600)).map_err(io::Error::from)
///     })?
/// }
/// assert_eq!(nap().unwrap_err().kind(), io::ErrorKind::TimedOut);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Elapsed<T> {
    value: T,
}

impl<T> Elapsed<T> {
    /// What the closure returned.
    pub fn into_inner(self) -> T {
        self.value
    }

    /// The same, to look at.
    pub fn get_ref(&self) -> &T {
        &self.value
    }
}

impl<T> fmt::Debug for Elapsed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elapsed").finish_non_exhaustive()
    }
}

impl<T> fmt::Display for Elapsed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time limit was reached")
    }
}

impl_error!(Elapsed<T> { _ => Some(io::ErrorKind::TimedOut) });
