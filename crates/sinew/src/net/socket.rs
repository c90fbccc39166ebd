//! What all sockets are made of: a shared source, and the calls on it.

use super::connect::Connect;
use crate::cancel::check_cancelled;
use crate::fiber::WaitReason;
use crate::io::transfer::{Recv, RecvParts, Send, SendParts};
use crate::net::accept::{self, Accept};
use crate::reactor::{Accepting, Direction, How, Source, call, closed};
use crate::wait::Deadline;
use socket2::{SockAddr, SockRef, Type};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::Location;
use std::time::Duration;

/// How long to wait for a descriptor to come back.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(10);

pub(super) type At = &'static Location<'static>;

/// A socket; its clones are the same one.
#[derive(Clone)]
pub(super) struct Socket {
    source: Source,
    /// A stream of TCP that we have made: a short transfer tells that there is no more
    /// for now. One of a Unix socket may also be short because of what was sent along
    /// with a byte, and one that came from elsewhere because of a record of kernel TLS.
    tells: bool,
}

impl Socket {
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self {
            source: Source::new(fd),
            tells: false,
        }
    }

    pub(super) fn tcp(fd: OwnedFd) -> Self {
        Self {
            source: Source::new(fd),
            tells: true,
        }
    }

    /// A new socket for `address`.
    pub(super) fn fresh(address: &SockAddr, kind: Type) -> io::Result<socket2::Socket> {
        socket2::Socket::new(address.domain(), kind, None)
    }

    pub(super) fn source(&self) -> &Source {
        &self.source
    }

    pub(super) fn options(&self) -> SockRef<'_> {
        SockRef::from(&self.source)
    }

    #[inline]
    pub(super) fn recv(&self, into: &mut [u8], flags: i32, at: At) -> io::Result<usize> {
        let how = How::of(&self.source, Direction::Read, at);
        let tells = self.tells && flags == 0;
        let count = call::make(&self.source, &how, &mut Recv::new(into, flags, tells))?;
        self.unless_closed(count)
    }

    /// Shut down by `close`, a stream reads as if the peer had ended it.
    #[inline]
    fn unless_closed(&self, count: usize) -> io::Result<usize> {
        if count == 0 && self.source.is_closed() {
            return Err(closed());
        }
        Ok(count)
    }

    #[inline]
    pub(super) fn send(&self, from: &[u8], at: At) -> io::Result<usize> {
        let how = How::of(&self.source, Direction::Write, at);
        let tells = self.tells;
        let flags = 0;
        call::make(&self.source, &how, &mut Send { from, flags, tells })
    }

    pub(super) fn recv_parts(&self, into: &mut [IoSliceMut<'_>], at: At) -> io::Result<usize> {
        // As `readv` has it: `recvmsg` would wait.
        if into.iter().all(|part| part.is_empty()) {
            return Ok(0);
        }
        let how = How::of(&self.source, Direction::Read, at);
        let count = call::make(&self.source, &how, &mut RecvParts::new(into))?;
        self.unless_closed(count)
    }

    pub(super) fn send_parts(&self, from: &[IoSlice<'_>], at: At) -> io::Result<usize> {
        let how = How::of(&self.source, Direction::Write, at);
        call::make(&self.source, &how, &mut SendParts::new(from))
    }

    /// Takes the next connection, and where it comes from.
    pub(super) fn accept(&self, at: At) -> io::Result<(OwnedFd, SockAddr)> {
        self.accepting(
            |how| loop {
                // On a ring the call below does not look.
                check_cancelled()?;
                if let Some(left) = accept::take_left(&self.source) {
                    return Ok(left);
                }
                let mut accept = Accept::new(&self.source);
                match call::make(&self.source, how, &mut accept) {
                    // Some were left meanwhile.
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    done => return done,
                }
            },
            at,
        )
    }

    /// The same by who accepts ahead.
    pub(super) fn accept_ahead(&self, ahead: &Accepting, at: At) -> io::Result<OwnedFd> {
        self.accepting(|how| ahead.next(how), at)
    }

    /// Calls `accept`, after a pause if the last one found no descriptor: the
    /// connection is still there then, so the next would fail at once, and so on.
    fn accepting<T>(&self, accept: impl FnOnce(&How) -> io::Result<T>, at: At) -> io::Result<T> {
        let how = How::of(&self.source, Direction::Read, at).because(WaitReason::Accept);
        if self.source.take_exhausted() && how.waits {
            crate::time::sleep(EXHAUSTED_PAUSE)?;
        }
        accept(&how).inspect_err(|error| {
            let code = error.raw_os_error();
            if matches!(
                code,
                Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
            ) {
                self.source.set_exhausted();
            }
        })
    }

    /// Connects `socket`, which nobody else has, to `address`.
    pub(super) fn connect(
        &self,
        address: &SockAddr,
        timeout: Option<Duration>,
        at: At,
    ) -> io::Result<()> {
        let mut how = How::of(&self.source, Direction::Write, at).because(WaitReason::Connect);
        how.deadline = timeout.and_then(Deadline::after);
        how.timed_out = io::ErrorKind::TimedOut;
        let mut connect = Connect::new(&self.source, address);
        call::make(&self.source, &how, &mut connect)?;
        self.source.make_blocking_again()
    }

    pub(super) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.options().shutdown(how)
    }

    /// Ends all use of it, here and in its clones, now and later.
    pub(super) fn close(&self) -> io::Result<()> {
        // First: who is woken by what follows must see why.
        self.source.close();
        match self.shutdown(Shutdown::Both) {
            // It was not connected, or is no more: closed it is.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            ended => ended,
        }
    }

    /// The descriptor, blocking as before; a duplicate if there are clones.
    pub(super) fn into_fd(self) -> io::Result<OwnedFd> {
        match self.source.try_into_fd() {
            Ok(fd) => Ok(fd),
            // A duplicate shares the setting, and ours must not block.
            Err(shared) if shared.is_nonblocking() => Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                "the listener has clones that accept without blocking",
            )),
            Err(shared) => shared.as_fd().try_clone_to_owned(),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }
}
