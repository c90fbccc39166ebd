//! How children are supervised, and what is told of them.

use crate::error::impl_error;
use std::fmt;
use std::io::ErrorKind;
use std::time::Duration;

/// Who is started again with a child that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Strategy {
    /// Nobody else.
    #[default]
    OneForOne,
    /// All that still run: they are cancelled, the last started first, and awaited. Those
    /// that are `Temporary`, or had ended for good before, are not started again.
    OneForAll,
    /// Those that were started after it, and still run; otherwise the same.
    RestForOne,
}

/// When a child is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Restart {
    /// However it ended.
    Permanent,
    /// If it failed: by an `Err` or a panic.
    #[default]
    Transient,
    /// Never.
    Temporary,
}

/// How children are supervised; the names and defaults are OTP's.
///
/// ```
/// use std::time::Duration;
/// use sinew::scope::{Strategy, Supervision};
///
/// let patient = Supervision::new()
///     .strategy(Strategy::RestForOne)
///     .intensity(10, Duration::from_secs(60));
/// assert_ne!(patient, Supervision::default());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "it does nothing until it is given to `supervise`"]
pub struct Supervision {
    pub(super) strategy: Strategy,
    pub(super) restarts: usize,
    pub(super) period: Duration,
}

impl Supervision {
    /// One for one, at most one restart in five seconds.
    pub fn new() -> Self {
        Self {
            strategy: Strategy::OneForOne,
            restarts: 1,
            period: Duration::from_secs(5),
        }
    }

    /// Who is started again with a child that is.
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// At most so many restarts within `period`; one more, and the supervisor gives up.
    pub fn intensity(mut self, restarts: usize, period: Duration) -> Self {
        (self.restarts, self.period) = (restarts, period);
        self
    }
}

impl Default for Supervision {
    fn default() -> Self {
        Self::new()
    }
}

/// How one run of a supervised child has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exit {
    /// It returned, and said no error.
    Normal,
    /// It returned this error; also if that is `Cancelled`, because it was told to stop.
    Failed(String),
    /// It panicked, with this text if it was one.
    Panicked(Option<String>),
    /// It was cancelled before it ran.
    Cancelled,
}

impl Exit {
    pub(super) fn is_failure(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Panicked(_))
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Normal => f.write_str("ended"),
            Self::Failed(error) => write!(f, "failed: {error}"),
            Self::Panicked(Some(text)) => write!(f, "panicked: {text}"),
            Self::Panicked(None) => f.write_str("panicked"),
            Self::Cancelled => f.write_str("was cancelled before it ran"),
        }
    }
}

/// What became of one child.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChildReport {
    /// Its name.
    pub name: String,
    /// How often it was started.
    pub starts: usize,
    /// How its last run ended.
    pub last_exit: Exit,
}

/// What became of all children, in the order in which they were first started.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// One for each child.
    pub children: Vec<ChildReport>,
    /// How many restarts there were, a group counted once.
    pub restarts: usize,
}

/// A supervisor gave up: there were too many restarts in too short a time, or no fiber
/// to be had for one.
#[derive(Clone, Debug)]
pub struct SupervisionError {
    pub(super) report: Report,
    pub(super) why: String,
}

impl SupervisionError {
    /// What became of the children.
    pub fn report(&self) -> &Report {
        &self.report
    }
}

impl fmt::Display for SupervisionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the supervisor gave up: {}", self.why)
    }
}

impl_error!(SupervisionError { _ => Some(ErrorKind::Other) });

/// What a supervised child may return: nothing, or a `Result` whose error can be shown.
#[diagnostic::on_unimplemented(
    message = "a supervised child cannot return `{Self}`",
    label = "neither `()` nor a `Result`",
    note = "it returns `()`, or a `Result` whose error is `Display`; a closure that is an endless loop must say so, by `|| -> Result<(), Cancelled>`"
)]
pub trait ChildResult {
    #[doc(hidden)]
    fn into_exit(self) -> Exit;
}

impl ChildResult for () {
    fn into_exit(self) -> Exit {
        Exit::Normal
    }
}

impl<T, E: fmt::Display> ChildResult for Result<T, E> {
    fn into_exit(self) -> Exit {
        match self {
            Ok(_) => Exit::Normal,
            Err(error) => Exit::Failed(error.to_string()),
        }
    }
}
