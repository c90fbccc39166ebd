//! Errors that several modules share.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// Implements [`Error`] for an error of ours, and its conversion into an `io::Error`, by one
/// table: each case has the kind that it is as an I/O error, or `None` if it says that
/// somebody was cancelled. Such a case has [`Cancelled`] as its source, so that
/// [`Cancelled::is_in`] finds it, and becomes what a cancelled I/O call returns.
///
/// An error that carries a message of the caller's (`SendError<T>`) drops the message in the
/// conversion; any other is kept inside of the `io::Error`.
macro_rules! impl_error {
    ($error:ident { $($case:pat => $kind:expr),+ $(,)? }) => {
        $crate::error::impl_error!(@kinds $error [] { $($case => $kind),+ });

        impl From<$error> for std::io::Error {
            fn from(error: $error) -> Self {
                match error.io_kind() {
                    Some(kind) => Self::new(kind, error),
                    None => $crate::error::Cancelled.into(),
                }
            }
        }
    };
    ($error:ident<T> { $($case:pat => $kind:expr),+ $(,)? }) => {
        $crate::error::impl_error!(@kinds $error [T] { $($case => $kind),+ });

        /// Drops the message; see `into_inner` for keeping it.
        impl<T> From<$error<T>> for std::io::Error {
            fn from(error: $error<T>) -> Self {
                match error.io_kind() {
                    Some(kind) => Self::new(kind, error.to_string()),
                    None => $crate::error::Cancelled.into(),
                }
            }
        }
    };
    (@kinds $error:ident [$($t:ident)?] { $($case:pat => $kind:expr),+ }) => {
        impl$(<$t>)? $error$(<$t>)? {
            /// Which kind of I/O error it is; none if somebody was cancelled.
            fn io_kind(&self) -> Option<std::io::ErrorKind> {
                match self {
                    $($case => $kind),+
                }
            }
        }

        impl$(<$t>)? std::error::Error for $error$(<$t>)? {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                match self.io_kind() {
                    Some(_) => None,
                    None => Some(&$crate::error::Cancelled),
                }
            }
        }
    };
}
pub(crate) use impl_error;

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

impl Error for Cancelled {}

impl Cancelled {
    /// Whether an error says that something was cancelled, in whatever form.
    ///
    /// Looks at the error itself, at what an [`io::Error`] holds, and at every
    /// [`source`](Error::source). It finds the error of a cancelled I/O call, the cases
    /// `Cancelled` of this crate's errors, and any of them inside of an error of your own that
    /// names it as its source.
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::Cancelled;
    /// use sinew::channel::RecvError;
    ///
    /// assert!(Cancelled::is_in(&Cancelled));
    /// assert!(Cancelled::is_in(&RecvError::Cancelled));
    /// assert!(!Cancelled::is_in(&RecvError::Disconnected));
    ///
    /// let error = std::io::Error::from(Cancelled);
    /// assert!(Cancelled::is_in(&error));
    /// assert_ne!(error.kind(), std::io::ErrorKind::Interrupted);
    /// ```
    pub fn is_in(error: &(dyn Error + 'static)) -> bool {
        let mut next = Some(error);
        while let Some(error) = next {
            if error.is::<Self>() {
                return true;
            }
            // The source of an `io::Error` is that of what it holds, which would be skipped.
            let held = error
                .downcast_ref::<io::Error>()
                .and_then(io::Error::get_ref);
            next = match held {
                Some(held) => Some(held),
                None => error.source(),
            };
        }
        false
    }
}

/// What the error of a cancelled I/O call holds. [`Cancelled`] is its source, so that it is
/// found by all who walk along the chain of sources: an `io::Error` is not in its own chain
/// by what it holds, but by the source of that.
struct CancelledCall;

impl fmt::Debug for CancelledCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&Cancelled, f)
    }
}

impl fmt::Display for CancelledCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the call was cancelled")
    }
}

impl Error for CancelledCall {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&Cancelled)
    }
}

/// As an I/O error a cancellation is `Other`, never `Interrupted`: std's
/// helpers retry that for ever. [`Cancelled`] is its [`source`](Error::source).
impl From<Cancelled> for io::Error {
    fn from(_: Cancelled) -> Self {
        Self::other(CancelledCall)
    }
}

/// Why [`JoinHandle::join`](crate::JoinHandle::join) has no value to give.
pub struct JoinError(pub(crate) Failure);

pub(crate) enum Failure {
    Panic(Payload),
    Cancelled,
    NoStack,
    GivenUp,
}

/// What a fiber panicked with, or a [`Watched`] around that.
///
/// Not a second field for the note: it would make the outcome of every fiber larger, and so
/// each join slower.
pub(crate) struct Payload(Box<dyn Any + Send>);

// SAFETY: through a shared reference only `text` reads the payload. It asks for the type and
// then reads nothing but a `&'static str`, a `String`, or the payload inside of a `Watched`,
// for which the same holds.
unsafe impl Sync for Payload {}

/// Panics that nobody was told of: their fibers' outcomes were dropped before anybody took
/// them. Kept by a runtime that runs a test, which fails because of them.
#[derive(Default)]
pub(crate) struct Unobserved(Mutex<Vec<String>>);

impl Unobserved {
    /// Notes one, in words.
    pub(crate) fn note(&self, panic: String) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(panic);
    }

    /// What was noted so far.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The payload of a panic that is noted if it is dropped before somebody takes it.
struct Watched {
    payload: Payload,
    note: Untaken,
}

/// A note of a panic, made when this is dropped unless `by` was taken away.
struct Untaken {
    panic: String,
    by: Option<Arc<Unobserved>>,
}

impl Drop for Untaken {
    fn drop(&mut self) {
        if let Some(by) = self.by.take() {
            by.note(std::mem::take(&mut self.panic));
        }
    }
}

impl Payload {
    pub(crate) fn new(payload: Box<dyn Any + Send>) -> Self {
        Self(payload)
    }

    /// Has the panic of `fiber`, as messages call it, noted if nobody takes it.
    pub(crate) fn watch(&mut self, fiber: &str, by: Arc<Unobserved>) {
        let panic = match self.text() {
            Some(text) => format!("{fiber}: {text}"),
            None => fiber.to_owned(),
        };
        let note = Untaken {
            panic,
            by: Some(by),
        };
        let payload = Self(std::mem::replace(&mut self.0, Box::new(())));
        self.0 = Box::new(Watched { payload, note });
    }

    /// Somebody has taken it.
    #[cold]
    pub(crate) fn observed(&mut self) {
        if let Some(watched) = self.0.downcast_mut::<Watched>() {
            watched.note.by = None;
            self.0 = std::mem::replace(&mut watched.payload.0, Box::new(()));
        }
    }

    /// The value that the fiber panicked with.
    pub(crate) fn into_inner(mut self) -> Box<dyn Any + Send> {
        self.observed();
        self.0
    }

    pub(crate) fn text(&self) -> Option<&str> {
        if let Some(watched) = self.0.downcast_ref::<Watched>() {
            return watched.payload.text();
        }
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

    /// Whether there was no stack to run the fiber on, and none in use that could have come
    /// back.
    pub fn is_no_stack(&self) -> bool {
        matches!(self.0, Failure::NoStack)
    }

    /// Whether the fiber never ran, because its runtime was given up before it began: see
    /// [`Runtime::shutdown_timeout`](crate::Runtime::shutdown_timeout).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use std::time::Duration;
    ///
    /// static BUSY: AtomicBool = AtomicBool::new(false);
    ///
    /// let runtime = sinew::Runtime::builder().workers(1).build()?;
    /// let _computes = runtime.spawn(|| {
    ///     BUSY.store(true, Ordering::Relaxed);
    ///     loop {
    ///         std::hint::spin_loop() // and never lets others run
    ///     }
    /// });
    /// while !BUSY.load(Ordering::Relaxed) {}
    /// let behind = runtime.spawn(|| "never begins");
    /// runtime.shutdown_timeout(Duration::from_millis(1)).unwrap_err();
    /// assert!(behind.join().unwrap_err().is_given_up());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn is_given_up(&self) -> bool {
        matches!(self.0, Failure::GivenUp)
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
            Failure::Panic(payload) => payload.into_inner(),
            Failure::Cancelled | Failure::NoStack | Failure::GivenUp => {
                panic!("into_panic called on a JoinError that is no panic: {self}")
            }
        }
    }

    fn panic_text(&self) -> Option<&str> {
        match &self.0 {
            Failure::Panic(payload) => payload.text(),
            Failure::Cancelled | Failure::NoStack | Failure::GivenUp => None,
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
            (Failure::GivenUp, _) => {
                f.write_str("the fiber never ran: its runtime was given up before it began")
            }
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
            (Failure::GivenUp, _) => f.write_str("GivenUp"),
        }
    }
}

impl_error!(JoinError {
    JoinError(Failure::Panic(_)) => Some(io::ErrorKind::Other),
    JoinError(Failure::Cancelled) => None,
    JoinError(Failure::NoStack) => Some(io::ErrorKind::OutOfMemory),
    JoinError(Failure::GivenUp) => Some(io::ErrorKind::Other),
});
