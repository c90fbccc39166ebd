//! How a wait ended: a word that is claimed once.

use crate::primitive::{AtomicU32, Ordering};

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitOutcome {
    /// What was waited for has happened.
    Woken,
    /// The deadline came first.
    TimedOut,
    /// The waiting fiber was cancelled.
    Cancelled,
}

const PENDING: u32 = 0;
const TIMED_OUT: u32 = 1;
const CANCELLED: u32 = 2;
/// Woken, through the place with the number that is added to this.
const WOKEN: u32 = 3;

/// The claim-once word.
///
/// A wait with one place in one list is decided under that list's lock, by who
/// wakes it and by itself when it gives up: then a store is enough. A select
/// stands in several lists; those who wake it race, and itself, by
/// compare-and-swap. The word also says at which place it was woken.
pub(crate) struct Claim(AtomicU32);

impl Claim {
    #[inline]
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(PENDING))
    }

    fn word(outcome: WaitOutcome) -> u32 {
        match outcome {
            WaitOutcome::Woken => WOKEN,
            WaitOutcome::TimedOut => TIMED_OUT,
            WaitOutcome::Cancelled => CANCELLED,
        }
    }

    fn decide(&self, word: u32) -> bool {
        // AcqRel, Release half: what the winner wrote before (a value handed
        // over, say) is seen by the waiter that reads the outcome. Acquire half:
        // the winner sees what the waiter wrote before it became claimable.
        self.0
            .compare_exchange(PENDING, word, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Ends the wait because what was waited for has happened, at the place
    /// with this number; true for exactly one claimant.
    #[must_use = "who won must notify the waiter, who lost must not"]
    pub(crate) fn wake(&self, place: u32) -> bool {
        self.decide(WOKEN + place)
    }

    /// Ends the own wait; true if nobody was first.
    #[must_use = "if another claimed the wait, its notification must be taken"]
    pub(crate) fn give_up(&self, outcome: WaitOutcome) -> bool {
        self.decide(Self::word(outcome))
    }

    /// Decides the outcome where nobody else can now.
    #[inline]
    pub(crate) fn settle(&self, outcome: WaitOutcome) {
        debug_assert!(self.get().is_none());
        // Release: as in `decide`.
        self.0.store(Self::word(outcome), Ordering::Release);
    }

    /// The outcome, once it is decided.
    #[inline]
    pub(crate) fn get(&self) -> Option<WaitOutcome> {
        // Acquire: pairs with `decide` and `settle`.
        match self.0.load(Ordering::Acquire) {
            PENDING => None,
            TIMED_OUT => Some(WaitOutcome::TimedOut),
            CANCELLED => Some(WaitOutcome::Cancelled),
            _ => Some(WaitOutcome::Woken),
        }
    }

    /// At which place the wait was woken, if it was.
    pub(crate) fn place(&self) -> Option<u32> {
        // Acquire: as in `get`.
        self.0.load(Ordering::Acquire).checked_sub(WOKEN)
    }
}
