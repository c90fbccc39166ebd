//! Being asked to stop, asking others, and setting limits.
//!
//! What a request is, and how it reaches those it is for, is told in the header of
//! `fiber::cancel`; what a point does in `wait::point`. Here is what users call.

mod finally;
mod shield;
mod timeout;
mod token;

pub use finally::finally;
pub use shield::shield;
pub use timeout::{Elapsed, deadline, timeout};
pub use token::{CancelToken, CancelledWait};
pub(crate) use token::{Target, TokenArm, TokenCore};

use crate::error::Cancelled;
use crate::fiber::CancelReason;
use crate::wait::point;

/// Whether what runs here was cancelled: this fiber, or a scope, a limit or a token
/// that it is inside of.
///
/// On a plain thread only the latter: nobody can cancel the thread itself.
///
/// ```
/// sinew::run(|| {
///     assert!(!sinew::is_cancelled());
///     sinew::current().cancel();
///     assert!(sinew::is_cancelled());
///     sinew::shield(|| assert!(!sinew::is_cancelled()));
/// });
/// ```
pub fn is_cancelled() -> bool {
    point::is_cancelled()
}

/// Answers `Err` if what runs here was cancelled: a cancellation point that does not
/// wait.
///
/// Each `Err` also yields, so that a loop which ignores it freezes nobody.
///
/// # Errors
///
/// [`Cancelled`], from the request on, every time.
///
/// ```
/// fn work() -> Result<u32, sinew::Cancelled> {
///     let mut sum = 0;
///     for i in 0..10 {
///         sinew::check_cancelled()?;
///         sum += i;
///     }
///     Ok(sum)
/// }
/// assert_eq!(sinew::run(work), Ok(45));
/// ```
#[inline]
pub fn check_cancelled() -> Result<(), Cancelled> {
    point::check()
}

/// Why what runs here was cancelled; none if it was not.
///
/// ```
/// use sinew::{CancelReason, CancelToken};
///
/// let token = CancelToken::new();
/// token.cancel_with("enough");
/// token.enter(|| assert_eq!(sinew::cancel_reason(), Some(CancelReason::from("enough"))));
/// assert_eq!(sinew::cancel_reason(), None);
/// ```
pub fn cancel_reason() -> Option<CancelReason> {
    point::reason()
}
