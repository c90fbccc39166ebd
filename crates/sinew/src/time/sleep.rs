//! Doing nothing for a while.

use super::instant::Instant;
use crate::error::Cancelled;
use crate::fiber::WaitReason;
use crate::wait::{Deadline, WaitOutcome, WaitSpec, Waiter, point, wait};
use std::panic::Location;
use std::time::Duration;

/// Waits for at least `duration`; a cancellation point.
///
/// Only this fiber waits; its worker runs others. On a plain thread it blocks
/// that thread.
///
/// # Errors
///
/// [`Cancelled`] if the fiber was cancelled, before or during the sleep.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// sinew::run(|| {
///     let start = Instant::now();
///     sinew::sleep(Duration::from_millis(5)).unwrap();
///     assert!(start.elapsed() >= Duration::from_millis(5));
/// });
/// ```
#[track_caller]
pub fn sleep(duration: Duration) -> Result<(), Cancelled> {
    sleep_to(Deadline::after(duration), Location::caller())
}

/// Waits until `deadline` has come; a cancellation point.
///
/// # Errors
///
/// [`Cancelled`] if the fiber was cancelled, before or during the sleep.
///
/// ```
/// use std::time::Duration;
/// use sinew::time::Instant;
///
/// sinew::run(|| {
///     let deadline = Instant::now() + Duration::from_millis(2);
///     sinew::sleep_until(deadline).unwrap();
///     assert!(Instant::now() >= deadline);
/// });
/// ```
#[track_caller]
pub fn sleep_until(deadline: Instant) -> Result<(), Cancelled> {
    sleep_to(Some(deadline.deadline()), Location::caller())
}

pub(super) fn sleep_to(
    deadline: Option<Deadline>,
    at: &'static Location<'static>,
) -> Result<(), Cancelled> {
    point::check()?;
    let spec = WaitSpec::new(WaitReason::Sleep, at)
        .deadline(deadline)
        .cancellable();
    match wait(&Waiter::for_current(), &spec) {
        WaitOutcome::Cancelled => Err(Cancelled),
        WaitOutcome::TimedOut | WaitOutcome::Woken => Ok(()),
    }
}
