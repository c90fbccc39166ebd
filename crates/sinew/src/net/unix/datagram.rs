//! Datagrams within this machine.

use super::addr;
use super::pause::Pause;
use crate::io::datagram::{self, SendTo};
use crate::net::convert::{converts, has_timeouts};
use crate::net::socket::{At, Socket};
use crate::reactor::{Direction, How, call};
use socket2::SockAddr;
use std::fmt;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::SocketAddr;
use std::panic::Location;
use std::path::Path;

/// A Unix socket of datagrams: std's `UnixDatagram`, on which only the fiber waits.
///
/// Any number of fibers may send and receive by it, on all workers, by reference or by
/// clones ([`try_clone`](Self::try_clone)); each datagram goes to one of them, whole,
/// and none is lost: who sends waits while the other side is full.
/// [`close`](Self::close) ends all waits. Every operation that may wait is a
/// cancellation point: a receive that was cancelled or timed out leaves what comes
/// later in the socket.
///
/// ```
/// use sinew::net::UnixDatagram;
///
/// sinew::run(|| -> std::io::Result<()> {
///     let (one, other) = UnixDatagram::pair()?;
///     let sender = sinew::spawn(move || other.send(b"hello"));
///     let mut text = [0; 16];
///     let count = one.recv(&mut text)?;
///     assert_eq!(&text[..count], b"hello");
///     assert_eq!(sender.join().unwrap()?, 5);
///     Ok(())
/// })
/// .unwrap();
/// ```
pub struct UnixDatagram {
    socket: Socket,
}

impl UnixDatagram {
    /// Makes a socket with the name `path`, where it makes a file.
    ///
    /// # Errors
    ///
    /// The system's, such as `AddrInUse` if there is something already.
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<Self> {
        std::os::unix::net::UnixDatagram::bind(path).map(Self::fresh)
    }

    /// Makes a socket with this address, which may be an abstract name too.
    ///
    /// # Errors
    ///
    /// As [`bind`](Self::bind).
    pub fn bind_addr(address: &SocketAddr) -> io::Result<Self> {
        std::os::unix::net::UnixDatagram::bind_addr(address).map(Self::fresh)
    }

    /// Makes a socket without a name: nobody can send to it.
    ///
    /// # Errors
    ///
    /// The system's, such as being out of descriptors.
    pub fn unbound() -> io::Result<Self> {
        std::os::unix::net::UnixDatagram::unbound().map(Self::fresh)
    }

    /// Makes two that are connected with each other.
    ///
    /// # Errors
    ///
    /// The system's, such as being out of descriptors.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = std::os::unix::net::UnixDatagram::pair()?;
        Ok((Self::fresh(one), Self::fresh(other)))
    }

    fn fresh(std: std::os::unix::net::UnixDatagram) -> Self {
        Self {
            socket: Socket::new(std.into()),
        }
    }

    /// Makes `path` the only address that [`send`](Self::send) sends to and that is
    /// received from.
    ///
    /// # Errors
    ///
    /// The system's: `NotFound` without a file there, `ConnectionRefused` if nobody has
    /// the name.
    pub fn connect<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        let address = addr::of_path(path.as_ref())?;
        self.socket.options().connect(&address)
    }

    /// The same with an address, which may be an abstract name too.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub fn connect_addr(&self, address: &SocketAddr) -> io::Result<()> {
        self.socket.options().connect(&addr::from_std(address)?)
    }

    /// Sends a datagram to the address that it is connected to, waiting while that is
    /// full; answers its length.
    ///
    /// # Errors
    ///
    /// The system's, such as `ConnectionRefused` if the other side is gone.
    #[track_caller]
    pub fn send(&self, from: &[u8]) -> io::Result<usize> {
        datagram::send_within(self.socket.source(), from, Location::caller())
    }

    /// Sends a datagram to `path`, waiting while that is full; answers its length.
    ///
    /// # Errors
    ///
    /// The system's: `NotFound` without a file there, `ConnectionRefused` if nobody has
    /// the name.
    #[track_caller]
    pub fn send_to<P: AsRef<Path>>(&self, from: &[u8], path: P) -> io::Result<usize> {
        let at = Location::caller();
        self.send_to_raw(from, &addr::of_path(path.as_ref())?, at)
    }

    /// The same to an address, which may be an abstract name too.
    ///
    /// # Errors
    ///
    /// As [`send_to`](Self::send_to).
    #[track_caller]
    pub fn send_to_addr(&self, from: &[u8], address: &SocketAddr) -> io::Result<usize> {
        let at = Location::caller();
        self.send_to_raw(from, &addr::from_std(address)?, at)
    }

    /// Readiness tells nothing here: it is that of this socket, or of the one that it
    /// is connected to. Nor must a full receiver make those wait who send to others.
    fn send_to_raw(&self, from: &[u8], to: &SockAddr, at: At) -> io::Result<usize> {
        let source = self.socket.source();
        let how = How::of(source, Direction::Write, at);
        let at_once = How {
            waits: false,
            ..how
        };
        let mut send = SendTo::new(from, to);
        let mut pause = Pause::new();
        loop {
            match call::make(source, &at_once, &mut send) {
                Err(error) if how.waits && error.kind() == io::ErrorKind::WouldBlock => {
                    pause.wait(source, &how)?;
                }
                done => return done,
            }
        }
    }

    /// Waits for a datagram; answers its length. What does not fit into `into` is
    /// lost.
    ///
    /// # Errors
    ///
    /// The system's.
    #[track_caller]
    pub fn recv(&self, into: &mut [u8]) -> io::Result<usize> {
        self.recv_any(into, 0, Location::caller())
            .map(|(count, _)| count)
    }

    /// Waits for a datagram; answers its length and who sent it, which may have no
    /// name. What does not fit into `into` is lost.
    ///
    /// # Errors
    ///
    /// The system's.
    #[track_caller]
    pub fn recv_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.recv_with(into, 0, Location::caller())
    }

    /// As [`recv`](Self::recv), but the datagram stays where it is.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv).
    #[track_caller]
    pub fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        self.recv_any(into, libc::MSG_PEEK, Location::caller())
            .map(|(count, _)| count)
    }

    /// As [`recv_from`](Self::recv_from), but the datagram stays where it is.
    ///
    /// # Errors
    ///
    /// As [`recv_from`](Self::recv_from).
    #[track_caller]
    pub fn peek_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.recv_with(into, libc::MSG_PEEK, Location::caller())
    }

    fn recv_with(&self, into: &mut [u8], flags: i32, at: At) -> io::Result<(usize, SocketAddr)> {
        let (count, from) = self.recv_any(into, flags, at)?;
        Ok((count, addr::to_std(&from)?))
    }

    fn recv_any(&self, into: &mut [u8], flags: i32, at: At) -> io::Result<(usize, SockAddr)> {
        datagram::recv_from_or_end(self.socket.source(), into, flags, at)
    }

    /// Our own address.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        addr::to_std(&self.socket.options().local_addr()?)
    }

    /// The address that it is connected to.
    ///
    /// # Errors
    ///
    /// The system's: `NotConnected` if it is not.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        addr::to_std(&self.socket.options().peer_addr()?)
    }

    /// Ends one direction, or both; who waits for it is woken. Receiving then answers
    /// 0 when all that came before was taken.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.shutdown(how)
    }

    /// Another owner of the same socket.
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
}

converts!(
    UnixDatagram,
    std::os::unix::net::UnixDatagram,
    Socket::new,
    "`UnixDatagram`"
);
has_timeouts!(UnixDatagram);

impl fmt::Debug for UnixDatagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("UnixDatagram");
        if let Ok(address) = self.local_addr() {
            f.field("addr", &address);
        }
        if let Ok(address) = self.peer_addr() {
            f.field("peer", &address);
        }
        f.field("fd", &self.as_fd().as_raw_fd()).finish()
    }
}
