//! A TCP connection.

use crate::net::addr::{self, ToSocketAddrs};
use crate::net::convert::{converts, copies_both_ways, has_timeouts, reads_and_writes};
use crate::net::socket::{At, Socket};
use socket2::{SockAddr, Type};
use std::fmt;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::panic::Location;
use std::time::Duration;

/// A TCP connection: std's `TcpStream`, on which only the fiber waits.
///
/// It reads and writes through [`Read`](std::io::Read) and
/// [`Write`](std::io::Write), also by `&TcpStream`, so that one fiber may read while
/// another writes. Clones ([`try_clone`](Self::try_clone)) are the same connection.
/// Every operation is a cancellation point: bytes that one `read` or `write` has moved
/// are returned, so it loses nothing.
///
/// ```
/// use std::io::{Read, Write};
/// use sinew::net::{TcpListener, TcpStream};
///
/// sinew::run(|| -> std::io::Result<()> {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let address = listener.local_addr()?;
///     let server = sinew::spawn(move || -> std::io::Result<()> {
///         let (mut peer, _) = listener.accept()?;
///         peer.write_all(b"hello")
///     });
///     let mut text = String::new();
///     TcpStream::connect(address)?.read_to_string(&mut text)?;
///     assert_eq!(text, "hello");
///     server.join().unwrap()
/// })
/// .unwrap();
/// ```
pub struct TcpStream {
    pub(in crate::net) socket: Socket,
}

impl TcpStream {
    /// Connects to the first of `addresses` that can be reached.
    ///
    /// # Errors
    ///
    /// The error of the last address, or of the lookup.
    #[track_caller]
    pub fn connect<A: ToSocketAddrs>(addresses: A) -> io::Result<Self> {
        let at = Location::caller();
        addr::each(addresses, |address| Self::connect_to(address, None, at))
    }

    /// Connects to `address`, within `timeout`.
    ///
    /// # Errors
    ///
    /// `TimedOut`, or the system's; `InvalidInput` for a timeout of zero.
    #[track_caller]
    pub fn connect_timeout(address: &SocketAddr, timeout: Duration) -> io::Result<Self> {
        if timeout.is_zero() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "cannot set a 0 duration timeout",
            ));
        }
        Self::connect_to(*address, Some(timeout), Location::caller())
    }

    fn connect_to(address: SocketAddr, timeout: Option<Duration>, at: At) -> io::Result<Self> {
        let address = SockAddr::from(address);
        let fresh = Socket::fresh(&address, Type::STREAM)?;
        let socket = Socket::tcp(fresh.into());
        socket.connect(&address, timeout, at)?;
        Ok(Self { socket })
    }

    /// The peer's address.
    ///
    /// # Errors
    ///
    /// The system's, such as `NotConnected`.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        super::listener::as_socket(&self.socket.options().peer_addr()?)
    }

    /// Our own address.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        super::listener::as_socket(&self.socket.options().local_addr()?)
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

    /// Whether small writes are sent at once (`TCP_NODELAY`).
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.socket.options().set_tcp_nodelay(nodelay)
    }

    /// Whether small writes are sent at once.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.socket.options().tcp_nodelay()
    }

    /// How many hops a packet may take (`IP_TTL`).
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.socket.options().set_ttl_v4(ttl)
    }

    /// How many hops a packet may take.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn ttl(&self) -> io::Result<u32> {
        self.socket.options().ttl_v4()
    }

    /// What closing does with unsent bytes (`SO_LINGER`); `Some(ZERO)` resets the
    /// connection.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.socket.options().set_linger(linger)
    }

    /// What closing does with unsent bytes.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        self.socket.options().linger()
    }
}

converts!(TcpStream, std::net::TcpStream, Socket::new, "`TcpStream`");
has_timeouts!(TcpStream);
reads_and_writes!(TcpStream);
copies_both_ways!(TcpStream);

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("TcpStream");
        if let Ok(address) = self.local_addr() {
            f.field("addr", &address);
        }
        if let Ok(address) = self.peer_addr() {
            f.field("peer", &address);
        }
        f.field("fd", &self.as_fd().as_raw_fd()).finish()
    }
}
