//! Connections, one after the other.

use super::socket::{At, Socket};
use crate::error::Cancelled;
use crate::reactor::Accepting;
use std::io;
use std::marker::PhantomData;
use std::os::fd::OwnedFd;

/// What an iterator over incoming connections keeps; it stays with its fiber.
pub(super) struct Arrivals {
    ahead: Option<Accepting>,
    began: bool,
    ended: bool,
    at: At,
    _here: PhantomData<*const ()>,
}

impl Arrivals {
    pub(super) fn new(at: At) -> Self {
        Self {
            ahead: None,
            began: false,
            ended: false,
            at,
            _here: PhantomData,
        }
    }

    /// The next connection of `socket`; none after an error that says that there
    /// will be no more.
    pub(super) fn next(&mut self, socket: &Socket) -> Option<io::Result<OwnedFd>> {
        if self.ended {
            return None;
        }
        if !std::mem::replace(&mut self.began, true) {
            self.ahead = Accepting::new(socket.source());
        }
        let mut next = match &self.ahead {
            Some(ahead) => socket.accept_ahead(ahead, self.at),
            None => socket.accept(self.at).map(|(fd, _)| fd),
        };
        let refused = |next: &io::Result<OwnedFd>| {
            let error = next.as_ref().err();
            error.and_then(io::Error::raw_os_error) == Some(libc::EAGAIN)
        };
        if self.ahead.is_some() && refused(&next) {
            // Somebody has made it non-blocking: some kernels won't wait then.
            self.ahead = None;
            next = socket.accept(self.at).map(|(fd, _)| fd);
        }
        if let Err(error) = &next {
            // A listener that is no listener, or was shut down by its descriptor,
            // would say so for ever.
            let dead = error.raw_os_error() == Some(libc::EINVAL);
            self.ended = dead || Cancelled::is_in(error) || socket.source().is_closed();
        }
        Some(next)
    }
}
