//! Ever longer pauses between tries of what the kernel has refused.

use std::time::{Duration, Instant};

const LONGEST: Duration = Duration::from_millis(100);

/// When the next try is due.
pub(super) struct Retry {
    next: Instant,
    pause: Duration,
}

impl Retry {
    /// The next try is due at once; the pause after it is `first`.
    pub(super) fn new(now: Instant, first: Duration) -> Self {
        Self {
            next: now,
            pause: first,
        }
    }

    /// Whether a try is due; if so the next one is not for a while.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        if now < self.next {
            return false;
        }
        self.next = now + self.pause;
        self.pause = (2 * self.pause).min(LONGEST);
        true
    }
}
