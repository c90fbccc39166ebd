//! Why a channel did not take or give a message.
//!
//! Each error hands back the message that was not sent.

use crate::error::{Cancelled, impl_error};
use std::fmt;
use std::io::ErrorKind;

const SENDING_DISCONNECTED: &str = "sending on a disconnected channel";
const RECEIVING_DISCONNECTED: &str = "receiving on an empty and disconnected channel";

/// Why [`Sender::send`](super::Sender::send) did not send.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError<T> {
    /// Every receiver is gone, or the channel was closed.
    Disconnected(T),
    /// The sending fiber was cancelled.
    Cancelled(T),
}

impl<T> SendError<T> {
    /// The message that was not sent.
    ///
    /// ```
    /// let (tx, rx) = sinew::channel::unbounded();
    /// drop(rx);
    /// assert_eq!(tx.send("letter").unwrap_err().into_inner(), "letter");
    /// ```
    pub fn into_inner(self) -> T {
        match self {
            Self::Disconnected(message) | Self::Cancelled(message) => message,
        }
    }

    /// Whether nobody can receive any more.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, Self::Disconnected(_))
    }

    /// Whether the sending fiber was cancelled.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::Cancelled(_))
    }
}

/// Why [`Sender::try_send`](super::Sender::try_send) did not send.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// No room now (or, without capacity, no receiver that waits); later there
    /// may be.
    Full(T),
    /// Every receiver is gone, or the channel was closed.
    Disconnected(T),
}

impl<T> TrySendError<T> {
    /// The message that was not sent.
    pub fn into_inner(self) -> T {
        match self {
            Self::Full(message) | Self::Disconnected(message) => message,
        }
    }

    /// Whether there was no room.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full(_))
    }

    /// Whether nobody can receive any more.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, Self::Disconnected(_))
    }
}

/// Why [`Sender::send_timeout`](super::Sender::send_timeout) did not send.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendTimeoutError<T> {
    /// The time was over first.
    Timeout(T),
    /// Every receiver is gone, or the channel was closed.
    Disconnected(T),
    /// The sending fiber was cancelled.
    Cancelled(T),
}

impl<T> SendTimeoutError<T> {
    /// The message that was not sent.
    pub fn into_inner(self) -> T {
        match self {
            Self::Timeout(message) | Self::Disconnected(message) | Self::Cancelled(message) => {
                message
            }
        }
    }

    /// Whether the time was over first.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Timeout(_))
    }

    /// Whether nobody can receive any more.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, Self::Disconnected(_))
    }

    /// Whether the sending fiber was cancelled.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::Cancelled(_))
    }
}

/// Why [`Receiver::recv`](super::Receiver::recv) got no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecvError {
    /// The channel is empty, and every sender is gone or it was closed.
    Disconnected,
    /// The receiving fiber was cancelled.
    Cancelled,
}

impl RecvError {
    /// Whether nothing will ever come.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, Self::Disconnected)
    }

    /// Whether the receiving fiber was cancelled.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::Cancelled)
    }
}

/// Why [`Receiver::try_recv`](super::Receiver::try_recv) got no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryRecvError {
    /// Nothing is there now; later there may be.
    Empty,
    /// The channel is empty, and every sender is gone or it was closed.
    Disconnected,
}

impl TryRecvError {
    /// Whether there was no message.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }

    /// Whether nothing will ever come.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, Self::Disconnected)
    }
}

/// Why [`Receiver::recv_timeout`](super::Receiver::recv_timeout) got no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecvTimeoutError {
    /// The time was over first.
    Timeout,
    /// The channel is empty, and every sender is gone or it was closed.
    Disconnected,
    /// The receiving fiber was cancelled.
    Cancelled,
}

impl RecvTimeoutError {
    /// Whether the time was over first.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Timeout)
    }

    /// Whether nothing will ever come.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, Self::Disconnected)
    }

    /// Whether the receiving fiber was cancelled.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::Cancelled)
    }

    /// Of a wait without a deadline.
    pub(super) fn without_time(self) -> RecvError {
        match self {
            Self::Disconnected => RecvError::Disconnected,
            Self::Cancelled | Self::Timeout => RecvError::Cancelled,
        }
    }
}

/// No operation of [`Select::try_select`](super::Select::try_select) was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrySelectError;

/// No operation of [`Select::select_timeout`](super::Select::select_timeout)
/// was ready in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectTimeoutError;

/// No operation of [`Select::try_ready`](super::Select::try_ready) was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TryReadyError;

/// No operation of [`Select::ready_timeout`](super::Select::ready_timeout) was
/// ready in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyTimeoutError;

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disconnected(_) => "Disconnected(..)",
            Self::Cancelled(_) => "Cancelled(..)",
        })
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disconnected(_) => f.write_str(SENDING_DISCONNECTED),
            Self::Cancelled(_) => Cancelled.fmt(f),
        }
    }
}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full(..)",
            Self::Disconnected(_) => "Disconnected(..)",
        })
    }
}

impl<T> fmt::Display for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "sending on a full channel",
            Self::Disconnected(_) => SENDING_DISCONNECTED,
        })
    }
}

impl<T> fmt::Debug for SendTimeoutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Timeout(_) => "Timeout(..)",
            Self::Disconnected(_) => "Disconnected(..)",
            Self::Cancelled(_) => "Cancelled(..)",
        })
    }
}

impl<T> fmt::Display for SendTimeoutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout(_) => f.write_str("timed out waiting on send operation"),
            Self::Disconnected(_) => f.write_str(SENDING_DISCONNECTED),
            Self::Cancelled(_) => Cancelled.fmt(f),
        }
    }
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disconnected => f.write_str(RECEIVING_DISCONNECTED),
            Self::Cancelled => Cancelled.fmt(f),
        }
    }
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "receiving on an empty channel",
            Self::Disconnected => RECEIVING_DISCONNECTED,
        })
    }
}

impl fmt::Display for RecvTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("timed out waiting on receive operation"),
            Self::Disconnected => f.write_str(RECEIVING_DISCONNECTED),
            Self::Cancelled => Cancelled.fmt(f),
        }
    }
}

impl fmt::Display for TrySelectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("all operations in select would block")
    }
}

impl fmt::Display for SelectTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("timed out waiting on select")
    }
}

impl fmt::Display for TryReadyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no operation is ready")
    }
}

impl fmt::Display for ReadyTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("timed out waiting for an operation to be ready")
    }
}

impl_error!(SendError<T> {
    Self::Disconnected(_) => Some(ErrorKind::BrokenPipe),
    Self::Cancelled(_) => None,
});
impl_error!(TrySendError<T> {
    Self::Full(_) => Some(ErrorKind::WouldBlock),
    Self::Disconnected(_) => Some(ErrorKind::BrokenPipe),
});
impl_error!(SendTimeoutError<T> {
    Self::Timeout(_) => Some(ErrorKind::TimedOut),
    Self::Disconnected(_) => Some(ErrorKind::BrokenPipe),
    Self::Cancelled(_) => None,
});
impl_error!(RecvError {
    Self::Disconnected => Some(ErrorKind::UnexpectedEof),
    Self::Cancelled => None,
});
impl_error!(TryRecvError {
    Self::Empty => Some(ErrorKind::WouldBlock),
    Self::Disconnected => Some(ErrorKind::UnexpectedEof),
});
impl_error!(RecvTimeoutError {
    Self::Timeout => Some(ErrorKind::TimedOut),
    Self::Disconnected => Some(ErrorKind::UnexpectedEof),
    Self::Cancelled => None,
});
impl_error!(TrySelectError { Self => Some(ErrorKind::WouldBlock) });
impl_error!(SelectTimeoutError { Self => Some(ErrorKind::TimedOut) });
impl_error!(TryReadyError { Self => Some(ErrorKind::WouldBlock) });
impl_error!(ReadyTimeoutError { Self => Some(ErrorKind::TimedOut) });

impl<T> From<SendError<T>> for SendTimeoutError<T> {
    fn from(error: SendError<T>) -> Self {
        match error {
            SendError::Disconnected(message) => Self::Disconnected(message),
            SendError::Cancelled(message) => Self::Cancelled(message),
        }
    }
}

impl From<RecvError> for RecvTimeoutError {
    fn from(error: RecvError) -> Self {
        match error {
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
