//! A connection within this machine.

use super::addr;
use super::pause::Pause;
use crate::fiber::WaitReason;
use crate::net::convert::{converts, copies_both_ways, has_timeouts, reads_and_writes};
use crate::net::socket::{At, Socket};
use crate::reactor::{Call, Direction, How, call};
use socket2::{SockAddr, SockRef, Type};
use std::fmt;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::SocketAddr;
use std::panic::Location;
use std::path::Path;

/// A Unix connection: std's `UnixStream`, on which only the fiber waits.
///
/// It reads and writes through [`Read`](std::io::Read) and
/// [`Write`](std::io::Write), also by `&UnixStream`, so that one fiber may read while
/// another writes. Clones ([`try_clone`](Self::try_clone)) are the same connection.
/// Every operation is a cancellation point: bytes that one `read` or `write` has moved
/// are returned, so it loses nothing.
///
/// ```
/// use std::io::{Read, Write};
/// use sinew::net::UnixStream;
///
/// sinew::run(|| -> std::io::Result<()> {
///     let (mut one, mut other) = UnixStream::pair()?;
///     let writer = sinew::spawn(move || other.write_all(b"hello"));
///     let mut text = String::new();
///     one.read_to_string(&mut text)?;
///     assert_eq!(text, "hello");
///     writer.join().unwrap()
/// })
/// .unwrap();
/// ```
pub struct UnixStream {
    pub(in crate::net) socket: Socket,
}

impl UnixStream {
    /// Connects to who listens on `path`, waiting while too many others do.
    ///
    /// # Errors
    ///
    /// The system's: `NotFound` without a file there, `ConnectionRefused` if nobody
    /// listens.
    #[track_caller]
    pub fn connect<P: AsRef<Path>>(path: P) -> io::Result<Self> {
        let at = Location::caller();
        Self::connect_to(&addr::of_path(path.as_ref())?, at)
    }

    /// Connects to who listens on `address`, which may be an abstract name too.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    #[track_caller]
    pub fn connect_addr(address: &SocketAddr) -> io::Result<Self> {
        let at = Location::caller();
        Self::connect_to(&addr::from_std(address)?, at)
    }

    fn connect_to(address: &SockAddr, at: At) -> io::Result<Self> {
        // Nobody else has this socket yet, so nobody minds `O_NONBLOCK`.
        let fresh = Socket::fresh(address, Type::STREAM.nonblocking())?;
        let socket = Socket::new(fresh.into());
        let how = How::of(socket.source(), Direction::Write, at).because(WaitReason::Connect);
        let mut pause = Pause::new();
        while !call::make(socket.source(), &how, &mut Knock(address))? {
            pause.wait(socket.source(), &how)?;
        }
        socket.options().set_nonblocking(false)?;
        Ok(Self { socket })
    }

    /// Makes two that are connected with each other.
    ///
    /// # Errors
    ///
    /// The system's, such as being out of descriptors.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = std::os::unix::net::UnixStream::pair()?;
        let make = |std: std::os::unix::net::UnixStream| Self {
            socket: Socket::new(std.into()),
        };
        Ok((make(one), make(other)))
    }

    /// The peer's address.
    ///
    /// # Errors
    ///
    /// The system's, such as `NotConnected`.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        addr::to_std(&self.socket.options().peer_addr()?)
    }

    /// Our own address: mostly none.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        addr::to_std(&self.socket.options().local_addr()?)
    }

    /// Ends one direction, or both; who waits for it is woken.
    ///
    /// # Errors
    ///
    /// The system's, such as `NotConnected`.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.shutdown(how)
    }

    /// Another owner of the same connection.
    ///
    /// Unlike std's it is no new descriptor.
    ///
    /// # Errors
    ///
    /// Never; as std has it.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            socket: self.socket.clone(),
        })
    }

    /// Reads what is there, or comes next, without taking it.
    ///
    /// # Errors
    ///
    /// As a read.
    #[track_caller]
    pub fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.recv(into, libc::MSG_PEEK, Location::caller())
    }
}

converts!(
    UnixStream,
    std::os::unix::net::UnixStream,
    Socket::new,
    "`UnixStream`"
);
has_timeouts!(UnixStream);
reads_and_writes!(UnixStream);
copies_both_ways!(UnixStream);

/// `connect(2)` by a socket that does not block; false if the backlog is full.
///
/// There is nothing else to wait for: the listener need not have accepted.
struct Knock<'a>(&'a SockAddr);

impl Call for Knock<'_> {
    type Output = bool;

    fn attempt(&mut self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        match SockRef::from(&fd).connect(self.0) {
            // Not left to who waits for readiness: there is no such event.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            connected => connected.map(|()| true),
        }
    }
}

impl fmt::Debug for UnixStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("UnixStream");
        if let Ok(address) = self.local_addr() {
            f.field("addr", &address);
        }
        if let Ok(address) = self.peer_addr() {
            f.field("peer", &address);
        }
        f.field("fd", &self.as_fd().as_raw_fd()).finish()
    }
}
