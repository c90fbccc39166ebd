//! Waiting for what the kernel does not tell.
//!
//! A Unix socket that finds the other side full is told to try again, and of nothing
//! else: a backlog with room again, or a queue of datagrams that somebody else had
//! filled, is no event of this socket, which is ready all the time. (A ring would have
//! a thread of the kernel's block there, one for each such call.) So we try again
//! after a pause, which grows.

use crate::error::Cancelled;
use crate::reactor::{How, Source};
use crate::wait::{Deadline, WaitOutcome, WaitSpec, perform};
use std::io;
use std::time::Duration;

const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(50);

/// How long to wait before the next try.
pub(super) struct Pause {
    next: Duration,
}

impl Pause {
    pub(super) fn new() -> Self {
        Self { next: SHORTEST }
    }

    /// Waits until it is time, or `source` is closed.
    ///
    /// # Errors
    ///
    /// A cancellation; `how.timed_out` if there is no time left.
    pub(super) fn wait(&mut self, source: &Source, how: &How) -> io::Result<()> {
        let deadline = Deadline::earlier(how.deadline, Deadline::after(self.next));
        let spec = WaitSpec::new(how.reason, how.at)
            .deadline(deadline)
            .cancellable();
        match perform(&source.readiness().closing(how.direction), &spec) {
            Err(WaitOutcome::Cancelled) => Err(Cancelled.into()),
            Err(outcome) if deadline == how.deadline => Err(how.error(outcome)),
            Ok(()) | Err(_) => {
                self.next = (self.next * 2).min(LONGEST);
                Ok(())
            }
        }
    }
}
