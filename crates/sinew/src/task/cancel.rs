//! Asking whether this fiber was asked to stop.

use super::park::yield_now;
use crate::error::Cancelled;
use crate::sched::switch;

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
    // SAFETY: the running fiber is alive.
    switch::running().is_some_and(|block| unsafe { block.as_ref() }.state().look())
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
    if is_cancelled() {
        return told();
    }
    Ok(())
}

#[cold]
fn told() -> Result<(), Cancelled> {
    yield_now();
    Err(Cancelled)
}

/// Lets other fibers run, then answers as [`check_cancelled`].
///
/// # Errors
///
/// [`Cancelled`] if this fiber was cancelled.
///
/// ```
/// sinew::run(|| {
///     let endless = sinew::spawn(|| {
///         while sinew::checkpoint().is_ok() {}
///         "stopped"
///     });
///     endless.cancel();
///     // Either it ran until it was told, or it was cancelled before it began.
///     assert_ne!(endless.join().ok(), Some("running"));
/// });
/// ```
pub fn checkpoint() -> Result<(), Cancelled> {
    yield_now();
    if is_cancelled() {
        Err(Cancelled)
    } else {
        Ok(())
    }
}
