//! Asking whether this fiber was asked to stop.

use crate::error::Cancelled;
use crate::wait::point;

/// Whether this fiber was cancelled; always false on a plain thread.
///
/// ```
/// sinew::run(|| {
///     assert!(!sinew::is_cancelled());
///     sinew::current().cancel();
///     assert!(sinew::is_cancelled());
/// });
/// ```
pub fn is_cancelled() -> bool {
    point::is_cancelled()
}

/// Answers `Err` if this fiber was cancelled: a cancellation point that does
/// not wait.
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
pub fn check_cancelled() -> Result<(), Cancelled> {
    point::check()
}
