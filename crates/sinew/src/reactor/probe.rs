//! Which driver a runtime gets.

use super::driver::DriverKind;
use crate::sys::log::log;
use crate::sys::uring::Uring;
use std::io;
use std::sync::{Once, OnceLock};

/// How a runtime does I/O; see
/// [`RuntimeBuilder::io_driver`](crate::RuntimeBuilder::io_driver).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum IoDriver {
    /// The faster one that the system allows.
    #[default]
    Auto,
    /// io_uring, or nothing.
    Uring,
    /// Epoll.
    Epoll,
}

/// What `auto` takes where both can be had; `docs/bench.md` has the figures.
const FASTER: DriverKind = DriverKind::Uring;

/// Whether io_uring can be had, asked once; else why not. Containers forbid it as a
/// rule, by their system call filters.
fn uring() -> Result<(), (io::ErrorKind, String)> {
    static ASKED: OnceLock<Result<(), (io::ErrorKind, String)>> = OnceLock::new();
    ASKED
        .get_or_init(|| Uring::probe().map_err(|error| (error.kind(), error.to_string())))
        .clone()
}

impl IoDriver {
    /// The driver to use.
    ///
    /// # Errors
    ///
    /// If only io_uring will do, and the system refuses it.
    pub(crate) fn settle(self) -> io::Result<DriverKind> {
        static SAID: Once = Once::new();
        match (self, FASTER) {
            (Self::Epoll, _) | (Self::Auto, DriverKind::Epoll) => Ok(DriverKind::Epoll),
            (Self::Auto, DriverKind::Uring) => match uring() {
                Ok(()) => Ok(DriverKind::Uring),
                Err((_, reason)) => {
                    SAID.call_once(|| log(&format!("io_uring: {reason}; using epoll instead")));
                    Ok(DriverKind::Epoll)
                }
            },
            (Self::Uring, _) => match uring() {
                Ok(()) => Ok(DriverKind::Uring),
                Err((kind, reason)) => Err(io::Error::new(
                    kind,
                    format!("the I/O driver is 'uring', but the system refuses io_uring: {reason}"),
                )),
            },
        }
    }
}
