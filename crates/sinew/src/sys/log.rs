//! One line on standard error, for what has no caller to return an error to:
//! fall-backs, exhaustion, leaked fibers and hogs.

use super::poll::{self, PollFor};
use super::segv::write_stderr;

/// Writes `sinew: MESSAGE`.
///
/// By `write(2)`, not through std's lock of standard error: a worker may say
/// something while a fiber of the same thread is suspended under that lock.
pub(crate) fn log(message: &str) {
    write_stderr(format!("sinew: {message}\n").as_bytes());
}

/// Whether a line would have to wait, because nobody reads standard error. Allowed in a signal
/// handler.
pub(crate) fn would_wait() -> bool {
    !poll::is_ready(PollFor {
        fd: libc::STDERR_FILENO,
        events: libc::POLLOUT,
    })
}
