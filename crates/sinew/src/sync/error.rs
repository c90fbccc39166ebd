//! Why a wait of this module ended without what was waited for.

use crate::error::{Cancelled, impl_error};
use crate::wait::WaitOutcome;
use std::fmt;
use std::io::ErrorKind;

/// The time was over first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOut;

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("timed out")
    }
}

impl_error!(TimedOut { Self => Some(ErrorKind::TimedOut) });

impl TimedOut {
    /// Of a wait that is no cancellation point.
    pub(super) fn of(_outcome: WaitOutcome) -> Self {
        debug_assert_eq!(_outcome, WaitOutcome::TimedOut);
        Self
    }
}

/// Why a wait with a time limit that is a cancellation point ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitTimeoutError {
    /// The time was over first.
    Timeout,
    /// The waiting fiber was cancelled.
    Cancelled,
}

impl WaitTimeoutError {
    pub(super) fn of(outcome: WaitOutcome) -> Self {
        match outcome {
            WaitOutcome::Cancelled => Self::Cancelled,
            _ => Self::Timeout,
        }
    }
}

impl fmt::Display for WaitTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => TimedOut.fmt(f),
            Self::Cancelled => Cancelled.fmt(f),
        }
    }
}

impl_error!(WaitTimeoutError {
    Self::Timeout => Some(ErrorKind::TimedOut),
    Self::Cancelled => None,
});

impl From<Cancelled> for WaitTimeoutError {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

/// A lock is held by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TryLockError {
    /// Taking it would mean waiting.
    WouldBlock,
}

impl fmt::Display for TryLockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the lock is held by another")
    }
}

impl_error!(TryLockError { Self::WouldBlock => Some(ErrorKind::WouldBlock) });
