//! Why a receive from a broadcast channel failed.

use crate::error::{Cancelled, impl_error};
use std::fmt;
use std::io::ErrorKind;

/// Why [`Receiver::recv`](super::Receiver::recv) got no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecvError {
    /// So many messages were missed; the next is the oldest that is kept.
    Lagged(u64),
    /// All was received, and every sender is gone or the channel was closed.
    Disconnected,
    /// The receiving fiber was cancelled.
    Cancelled,
}

/// Why [`Receiver::try_recv`](super::Receiver::try_recv) got no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryRecvError {
    /// There is none now.
    Empty,
    /// So many messages were missed; the next is the oldest that is kept.
    Lagged(u64),
    /// All was received, and every sender is gone or the channel was closed.
    Disconnected,
}

/// Why [`Receiver::recv_timeout`](super::Receiver::recv_timeout) got no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecvTimeoutError {
    /// The time was over first.
    Timeout,
    /// So many messages were missed; the next is the oldest that is kept.
    Lagged(u64),
    /// All was received, and every sender is gone or the channel was closed.
    Disconnected,
    /// The receiving fiber was cancelled.
    Cancelled,
}

impl RecvTimeoutError {
    /// Of a look at the end of a wait.
    pub(super) fn of(error: TryRecvError) -> Self {
        match error {
            TryRecvError::Empty => Self::Timeout,
            TryRecvError::Lagged(missed) => Self::Lagged(missed),
            TryRecvError::Disconnected => Self::Disconnected,
        }
    }

    /// Of a wait without a deadline.
    pub(super) fn without_time(self) -> RecvError {
        match self {
            Self::Lagged(missed) => RecvError::Lagged(missed),
            Self::Disconnected => RecvError::Disconnected,
            Self::Cancelled | Self::Timeout => RecvError::Cancelled,
        }
    }
}

impl fmt::Display for RecvTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("timed out waiting on receive operation"),
            Self::Lagged(missed) => write!(f, "receiver fell behind by {missed} messages"),
            Self::Disconnected => f.write_str("receiving on an empty and disconnected channel"),
            Self::Cancelled => Cancelled.fmt(f),
        }
    }
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        RecvTimeoutError::from(*self).fmt(f)
    }
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("receiving on an empty channel"),
            _ => RecvTimeoutError::of(*self).fmt(f),
        }
    }
}

impl_error!(RecvError {
    Self::Lagged(_) => Some(ErrorKind::Other),
    Self::Disconnected => Some(ErrorKind::UnexpectedEof),
    Self::Cancelled => None,
});
impl_error!(TryRecvError {
    Self::Empty => Some(ErrorKind::WouldBlock),
    Self::Lagged(_) => Some(ErrorKind::Other),
    Self::Disconnected => Some(ErrorKind::UnexpectedEof),
});
impl_error!(RecvTimeoutError {
    Self::Timeout => Some(ErrorKind::TimedOut),
    Self::Lagged(_) => Some(ErrorKind::Other),
    Self::Disconnected => Some(ErrorKind::UnexpectedEof),
    Self::Cancelled => None,
});

impl From<RecvError> for RecvTimeoutError {
    fn from(error: RecvError) -> Self {
        match error {
            RecvError::Lagged(missed) => Self::Lagged(missed),
            RecvError::Disconnected => Self::Disconnected,
            RecvError::Cancelled => Self::Cancelled,
        }
    }
}

impl From<Cancelled> for RecvError {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

impl From<Cancelled> for RecvTimeoutError {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}
