//! How a child of a scope that judges its children has failed.

use crate::error::{Cancelled, Payload};
use crate::worker::first_frame::watch_caught;
use std::any::Any;
use std::error::Error;
use std::fmt;
use std::io;
use std::panic::resume_unwind;

/// Why a child of a [`nursery`](super::nursery) or a [`race`](super::race()) has no
/// result.
///
/// ```
/// use sinew::scope::{Failure, nursery};
///
/// let failed: Result<(), Failure<&str>> = nursery(|n| {
///     n.spawn(|| Err::<(), _>("no route to host"));
///     Ok(())
/// });
/// assert_eq!(failed.unwrap_err().into_error(), Some("no route to host"));
/// ```
#[non_exhaustive]
pub enum Failure<E> {
    /// It returned this error.
    Error(E),
    /// It panicked.
    Panic(Panic),
    /// It was cancelled before it ran.
    Cancelled,
}

/// What a child has panicked with.
pub struct Panic(Payload);

impl Panic {
    pub(super) fn new(payload: Box<dyn Any + Send>) -> Self {
        Self(Payload::new(payload))
    }

    /// The running child's; a test hears of it if nobody gets it ([`Failure::handed_out`]).
    pub(super) fn of_child(payload: Box<dyn Any + Send>) -> Self {
        let mut payload = Payload::new(payload);
        watch_caught(&mut payload);
        Self(payload)
    }

    /// What it said, if that was text.
    pub fn text(&self) -> Option<&str> {
        self.0.text()
    }

    /// The payload, as [`std::thread::Result`] has it.
    pub fn into_inner(self) -> Box<dyn Any + Send> {
        self.0.into_inner()
    }

    /// Lets the panic go on here.
    pub fn resume(self) -> ! {
        resume_unwind(self.0.into_inner())
    }
}

impl fmt::Debug for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Panic").field(&self.0.text()).finish()
    }
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.text() {
            Some(text) => write!(f, "a child panicked: {text}"),
            None => f.write_str("a child panicked"),
        }
    }
}

impl<E> Failure<E> {
    /// The caller of the scope gets it.
    pub(super) fn handed_out(mut self) -> Self {
        if let Self::Panic(panic) = &mut self {
            panic.0.observed();
        }
        self
    }

    /// The error that the child returned, if it did.
    pub fn into_error(self) -> Option<E> {
        match self {
            Self::Error(error) => Some(error),
            Self::Panic(_) | Self::Cancelled => None,
        }
    }

    /// The same, but a panic of the child goes on here.
    ///
    /// # Panics
    ///
    /// If the child did.
    pub fn error_or_resume(self) -> Option<E> {
        match self {
            Self::Panic(panic) => panic.resume(),
            other => other.into_error(),
        }
    }

    /// Whether the child panicked.
    pub fn is_panic(&self) -> bool {
        matches!(self, Self::Panic(_))
    }

    /// Whether the child was cancelled before it ran. One that was told while it ran has
    /// returned an error of its own.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::Cancelled)
    }
}

impl<E: fmt::Debug> fmt::Debug for Failure<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => f.debug_tuple("Error").field(error).finish(),
            Self::Panic(panic) => fmt::Debug::fmt(panic, f),
            Self::Cancelled => f.write_str("Cancelled"),
        }
    }
}

impl<E: fmt::Display> fmt::Display for Failure<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => error.fmt(f),
            Self::Panic(panic) => panic.fmt(f),
            Self::Cancelled => f.write_str("a child was cancelled before it ran"),
        }
    }
}

impl<E: Error + 'static> Error for Failure<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Error(error) => Some(error),
            Self::Panic(_) => None,
            Self::Cancelled => Some(&Cancelled),
        }
    }
}

/// The error itself; a panic, or a child that never ran ([`Cancelled`]), as an error of kind
/// `Other`.
///
/// ```
/// use std::io;
/// use std::time::Duration;
/// use sinew::scope::nursery;
///
/// /// All pages, or the first error, within a second.
/// fn fetch_all(pages: &[&str]) -> io::Result<usize> {
///     let lengths = sinew::timeout(Duration::from_secs(1), || {
///         nursery(|n| {
///             let pages: Vec<_> = pages.iter().map(|page| n.spawn(|| fetch(page))).collect();
///             let mut sum = 0;
///             for page in pages {
///                 sum += page.join()?; // `Cancelled` becomes an `io::Error`
///             }
///             Ok::<_, io::Error>(sum)
///         })
///     })?; // `Elapsed` does, too
///     Ok(lengths?) // and so does `Failure<io::Error>`
/// }
///
/// fn fetch(page: &str) -> io::Result<usize> {
///     match page {
///         "missing" => Err(io::ErrorKind::NotFound.into()),
///         page => Ok(page.len()),
///     }
/// }
///
/// assert_eq!(fetch_all(&["index", "about"]).unwrap(), 10);
/// let error = fetch_all(&["index", "missing"]).unwrap_err();
/// assert_eq!(error.kind(), io::ErrorKind::NotFound);
/// ```
impl<E> From<Failure<E>> for io::Error
where
    io::Error: From<E>,
{
    fn from(failure: Failure<E>) -> Self {
        match failure {
            Failure::Error(error) => error.into(),
            Failure::Cancelled => Cancelled.into(),
            Failure::Panic(panic) => Self::other(panic.to_string()),
        }
    }
}
