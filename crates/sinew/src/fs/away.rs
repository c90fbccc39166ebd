//! Calls that may block, away from the worker.

use crate::task::blocking;
use crate::wait::point;
use std::io;

/// Makes a call that may block: on the pool if a fiber asks, in place on a thread.
///
/// # Errors
///
/// The call's own, or a cancellation before it was made.
#[track_caller]
pub(super) fn call<T: Send>(call: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    point::check()?;
    blocking(call)
}
