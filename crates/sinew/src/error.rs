//! Errors that several modules share.

use std::any::Any;
use std::fmt;

/// A wait ended because somebody asked this fiber to stop.
///
/// It is a value like any other: return it, or finish what you are doing
/// first. Every later cancellation point answers the same.
///
/// ```
/// use std::time::Duration;
///
/// sinew::run(|| {
///     let sleeper = sinew::spawn(|| sinew::sleep(Duration::from_secs(3600)));
///     while sleeper.fiber().wait_reason() != sinew::WaitReason::Sleep {
///         sinew::yield_now();
///     }
///     sleeper.cancel();
///     assert_eq!(sleeper.join().unwrap(), Err(sinew::Cancelled));
/// });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cancelled;

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the fiber was cancelled")
    }
}

impl std::error::Error for Cancelled {}

impl Cancelled {
    /// Whether an I/O error says that the operation was cancelled.
    ///
    /// ```
    /// let error = std::io::Error::from(sinew::Cancelled);
    /// assert!(sinew::Cancelled::is_in(&error));
    /// assert_ne!(error.kind(), std::io::ErrorKind::Interrupted);
    /// ```
    pub fn is_in(error: &std::io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

/// As an I/O error a cancellation is `Other`, never `Interrupted`: std's
/// helpers retry that for ever.
impl From<Cancelled> for std::io::Error {
    fn from(cancelled: Cancelled) -> Self {
        Self::other(cancelled)
    }
}

/// Why [`JoinHandle::join`](crate::JoinHandle::join) has no value to give.
pub struct JoinError(pub(crate) Failure);

pub(crate) enum Failure {
    Panic(Payload),
    Cancelled,
    NoStack,
}

/// What a fiber panicked with.
pub(crate) struct Payload(pub(crate) Box<dyn Any + Send>);

// SAFETY: through a shared reference only `text` reads it, which asks for the
// type and then for nothing but a `&'static str` or a `String`, both `Sync`.
unsafe impl Sync for Payload {}

impl Payload {
    pub(crate) fn text(&self) -> Option<&str> {
        let text = self.0.downcast_ref::<&'static str>().copied();
        text.or_else(|| self.0.downcast_ref::<String>().map(String::as_str))
    }
}

impl JoinError {
    /// Whether the fiber panicked.
    pub fn is_panic(&self) -> bool {
        matches!(self.0, Failure::Panic(_))
    }

    /// Whether the fiber was cancelled before it ever ran.
    ///
    /// A fiber that was cancelled while running ends with a value of its own,
    /// since cancellation does not unwind.
    pub fn is_cancelled(&self) -> bool {
        matches!(self.0, Failure::Cancelled)
    }

    /// Whether the runtime ended before there was a stack to run the fiber on.
    pub fn is_no_stack(&self) -> bool {
        matches!(self.0, Failure::NoStack)
    }

    /// What the fiber panicked with, as [`std::thread::Result`] has it.
    ///
    /// # Panics
    ///
    /// If it did not panic; see [`is_panic`](Self::is_panic).
    ///
    /// ```
    /// sinew::run(|| {
    ///     let error = sinew::spawn(|| panic!("boom")).join().unwrap_err();
    ///     assert_eq!(error.into_panic().downcast_ref(), Some(&"boom"));
    /// });
    /// ```
    #[track_caller]
    pub fn into_panic(self) -> Box<dyn Any + Send> {
        match self.0 {
            Failure::Panic(payload) => payload.0,
            Failure::Cancelled | Failure::NoStack => {
                panic!("into_panic called on a JoinError that is no panic: {self}")
            }
        }
    }

    fn panic_text(&self) -> Option<&str> {
        match &self.0 {
            Failure::Panic(payload) => payload.text(),
            Failure::Cancelled | Failure::NoStack => None,
        }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0, self.panic_text()) {
            (Failure::Panic(_), Some(text)) => write!(f, "the fiber panicked: {text}"),
            (Failure::Panic(_), None) => f.write_str("the fiber panicked"),
            (Failure::Cancelled, _) => f.write_str("the fiber was cancelled before it ran"),
            (Failure::NoStack, _) => f.write_str("no stack could be had for the fiber"),
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0, self.panic_text()) {
            (Failure::Panic(_), Some(text)) => f.debug_tuple("Panic").field(&text).finish(),
            (Failure::Panic(_), None) => f.write_str("Panic(..)"),
            (Failure::Cancelled, _) => f.write_str("Cancelled"),
            (Failure::NoStack, _) => f.write_str("NoStack"),
        }
    }
}

impl std::error::Error for JoinError {}
