//! Giving the CPU to others: until unparked, or for a moment.

use crate::error::Cancelled;
use crate::fiber::{Intent, WaitReason};
use crate::sched::switch;
use crate::wait::point::is_cancelled;
use crate::wait::{Deadline, Token, WaitOutcome, WaitSpec, Waiter, wait};
use std::panic::Location;
use std::time::Duration;

/// Waits until [`Fiber::unpark`](crate::Fiber::unpark) leaves a token, and
/// takes it; returns at once if there is one.
///
/// The rules are std's: tokens do not add up, and what came before the `unpark`
/// is seen after the `park`. Unlike std's, it does not return without a token,
/// but a [`cancel`](crate::Fiber::cancel) leaves one, and so do a
/// [`timeout`](crate::timeout()) that is reached and a token or scope that is cancelled while
/// one is inside. On a plain thread it
/// blocks that thread; its token is not the one of `std::thread::park`.
///
/// ```
/// sinew::run(|| {
///     let main = sinew::current();
///     let other = sinew::spawn(move || main.unpark());
///     sinew::park();
///     other.join().unwrap();
/// });
/// ```
#[track_caller]
pub fn park() {
    park_until(None, Location::caller());
}

/// As [`park`], but returns after `timeout` at the latest.
///
/// ```
/// use std::time::Duration;
///
/// sinew::run(|| {
///     sinew::park_timeout(Duration::from_millis(1)); // nobody unparks
///     sinew::current().unpark();
///     sinew::park_timeout(Duration::MAX); // somebody has
/// });
/// ```
#[track_caller]
pub fn park_timeout(timeout: Duration) {
    park_until(Deadline::after(timeout), Location::caller());
}

/// As [`park`], but a cancellation point.
///
/// # Errors
///
/// [`Cancelled`] if the fiber was cancelled, before or during the wait; a token
/// that is there stays.
///
/// ```
/// sinew::run(|| {
///     sinew::current().unpark();
///     assert_eq!(sinew::park_or_cancelled(), Ok(()));
///     sinew::current().cancel();
///     assert_eq!(sinew::park_or_cancelled(), Err(sinew::Cancelled));
/// });
/// ```
#[track_caller]
pub fn park_or_cancelled() -> Result<(), Cancelled> {
    crate::wait::point::check()?;
    let spec = WaitSpec::new(WaitReason::Park, Location::caller())
        .until(Token::Unpark)
        .cancellable();
    match wait(&Waiter::for_current(), &spec) {
        WaitOutcome::Woken if !is_cancelled() => Ok(()),
        WaitOutcome::Woken => {
            // `cancel` leaves a token, too: whose this was cannot be told.
            super::current().unpark();
            Err(Cancelled)
        }
        _ => Err(Cancelled),
    }
}

fn park_until(deadline: Option<Deadline>, at: &'static Location<'static>) {
    let spec = WaitSpec::new(WaitReason::Park, at)
        .deadline(deadline)
        .until(Token::Unpark);
    // Whether by token or by time: std does not tell either.
    wait(&Waiter::for_current(), &spec);
}

/// Lets other ready fibers run first.
///
/// On a plain thread this is [`std::thread::yield_now`].
///
/// ```
/// let runtime = sinew::Runtime::builder().workers(1).build()?;
/// runtime.run(|| {
///     let other = sinew::spawn(|| ());
///     sinew::yield_now();
///     assert!(other.is_finished());
/// });
/// # std::io::Result::Ok(())
/// ```
// Always inlined, for the reason told at `switch::leave`.
#[inline(always)]
pub fn yield_now() {
    match switch::about_to_wait() {
        // SAFETY: it runs here, may wait, and we hold nothing of the runtime's.
        Some(block) => unsafe { switch::leave(block, Intent::Yield) },
        None => std::thread::yield_now(),
    }
}

/// Lets other fibers run, then answers as
/// [`check_cancelled`](crate::check_cancelled).
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
    crate::wait::point::check_after_yield()
}
