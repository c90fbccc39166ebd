//! TCP connections, one after the other.

use super::listener::TcpListener;
use super::stream::TcpStream;
use crate::net::incoming::Arrivals;
use crate::net::socket::{At, Socket};
use std::fmt;
use std::io;

/// The connections of a listener; see [`TcpListener::incoming`].
pub struct Incoming<'a> {
    listener: &'a TcpListener,
    arrivals: Arrivals,
}

impl<'a> Incoming<'a> {
    pub(super) fn new(listener: &'a TcpListener, at: At) -> Self {
        Self {
            listener,
            arrivals: Arrivals::new(at),
        }
    }
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<io::Result<TcpStream>> {
        let next = self.arrivals.next(&self.listener.socket)?;
        Some(next.map(|fd| TcpStream {
            socket: Socket::tcp(fd),
        }))
    }
}

impl fmt::Debug for Incoming<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Incoming").field(self.listener).finish()
    }
}

/// The same, with the listener; see [`TcpListener::into_incoming`].
pub struct IntoIncoming {
    /// First, so that it is dropped first: it has an operation on the listener.
    arrivals: Arrivals,
    listener: TcpListener,
}

impl IntoIncoming {
    pub(super) fn new(listener: TcpListener, at: At) -> Self {
        Self {
            arrivals: Arrivals::new(at),
            listener,
        }
    }
}

impl Iterator for IntoIncoming {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<io::Result<TcpStream>> {
        let next = self.arrivals.next(&self.listener.socket)?;
        Some(next.map(|fd| TcpStream {
            socket: Socket::tcp(fd),
        }))
    }
}

impl fmt::Debug for IntoIncoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IntoIncoming").field(&self.listener).finish()
    }
}
