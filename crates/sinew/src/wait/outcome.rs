//! How a wait ended: a word that is claimed once.

use crate::primitive::{AtomicU8, Ordering};

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum WaitOutcome {
    /// What was waited for has happened.
    Woken = 1,
    /// The deadline came first.
    TimedOut = 2,
    /// The waiting fiber was cancelled.
    Cancelled = 3,
}

const PENDING: u8 = 0;

/// The claim-once word.
pub(crate) struct Claim(AtomicU8);

impl Claim {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(PENDING))
    }

    /// Decides the outcome; true for exactly one caller.
    #[must_use = "who won must notify the waiter, who lost must not"]
    pub(crate) fn claim(&self, outcome: WaitOutcome) -> bool {
        // AcqRel, Release half: what the winner wrote before (a value handed
        // over, say) is seen by the waiter that reads the outcome. Acquire half:
        // the winner sees what the waiter wrote before it became claimable.
        self.0
            .compare_exchange(PENDING, outcome as u8, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Decides the outcome where nobody else could: no deadline, no
    /// cancellation, one waker.
    pub(crate) fn settle(&self, outcome: WaitOutcome) {
        // Release: as in `claim`.
        self.0.store(outcome as u8, Ordering::Release);
    }

    /// The outcome, once it is decided.
    pub(crate) fn get(&self) -> Option<WaitOutcome> {
        // Acquire: pairs with `claim`.
        match self.0.load(Ordering::Acquire) {
            1 => Some(WaitOutcome::Woken),
            2 => Some(WaitOutcome::TimedOut),
            3 => Some(WaitOutcome::Cancelled),
            _ => None,
        }
    }
}
