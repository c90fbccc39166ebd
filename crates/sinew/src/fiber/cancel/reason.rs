//! Why something was cancelled.

use std::fmt;
use std::sync::Arc;

/// Why something was cancelled; see [`cancel_reason`](crate::cancel_reason) and
/// [`CancelToken::reason`](crate::CancelToken::reason).
///
/// ```
/// use sinew::{CancelReason, CancelToken};
///
/// let token = CancelToken::new();
/// token.cancel_with("the disk is full");
/// let reason = token.reason().unwrap();
/// assert_eq!(reason, CancelReason::from("the disk is full"));
/// assert_eq!(reason.to_string(), "the disk is full");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CancelReason {
    /// Somebody called `cancel`.
    Requested,
    /// Its time was over.
    Deadline,
    /// Another child of the same scope failed.
    Failed,
    /// Another child of the same race was first.
    Lost,
    /// The body of its scope has ended.
    ScopeEnded,
    /// Its supervisor starts it again, or has given up.
    Supervisor,
    /// Its runtime shuts down.
    Shutdown,
    /// What was given to `cancel_with`.
    Other(Arc<str>),
}

impl fmt::Display for CancelReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requested => "cancelled on request",
            Self::Deadline => "the deadline has passed",
            Self::Failed => "another child of the scope failed",
            Self::Lost => "another child won the race",
            Self::ScopeEnded => "the body of the scope has ended",
            Self::Supervisor => "stopped by its supervisor",
            Self::Shutdown => "the runtime shuts down",
            Self::Other(text) => text,
        })
    }
}

impl From<&str> for CancelReason {
    fn from(text: &str) -> Self {
        Self::Other(text.into())
    }
}

impl From<String> for CancelReason {
    fn from(text: String) -> Self {
        Self::Other(text.into())
    }
}
