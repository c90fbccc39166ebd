//! Unix connections, one after the other.

use super::listener::UnixListener;
use super::stream::UnixStream;
use crate::net::incoming::Arrivals;
use crate::net::socket::{At, Socket};
use std::fmt;
use std::io;

/// The connections of a listener; see [`UnixListener::incoming`].
pub struct UnixIncoming<'a> {
    listener: &'a UnixListener,
    arrivals: Arrivals,
}

impl<'a> UnixIncoming<'a> {
    pub(super) fn new(listener: &'a UnixListener, at: At) -> Self {
        Self {
            listener,
            arrivals: Arrivals::new(at),
        }
    }
}

impl Iterator for UnixIncoming<'_> {
    type Item = io::Result<UnixStream>;

    fn next(&mut self) -> Option<io::Result<UnixStream>> {
        let next = self.arrivals.next(&self.listener.socket)?;
        Some(next.map(|fd| UnixStream {
            socket: Socket::new(fd),
        }))
    }
}

impl fmt::Debug for UnixIncoming<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UnixIncoming").field(self.listener).finish()
    }
}

/// The same, with the listener; see [`UnixListener::into_incoming`].
pub struct UnixIntoIncoming {
    /// First, so that it is dropped first: it has an operation on the listener.
    arrivals: Arrivals,
    listener: UnixListener,
}

impl UnixIntoIncoming {
    pub(super) fn new(listener: UnixListener, at: At) -> Self {
        Self {
            arrivals: Arrivals::new(at),
            listener,
        }
    }
}

impl Iterator for UnixIntoIncoming {
    type Item = io::Result<UnixStream>;

    fn next(&mut self) -> Option<io::Result<UnixStream>> {
        let next = self.arrivals.next(&self.listener.socket)?;
        Some(next.map(|fd| UnixStream {
            socket: Socket::new(fd),
        }))
    }
}

impl fmt::Debug for UnixIntoIncoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UnixIntoIncoming")
            .field(&self.listener)
            .finish()
    }
}
