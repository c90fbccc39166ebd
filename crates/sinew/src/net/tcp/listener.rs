//! A TCP port to connect to.

use super::incoming::{Incoming, IntoIncoming};
use super::stream::TcpStream;
use crate::net::addr::{self, ToSocketAddrs};
use crate::net::convert::converts;
use crate::net::socket::Socket;
use socket2::{SockAddr, Type};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::panic::Location;

/// How many connections may wait to be accepted; the system has a limit of its own
/// (`net.core.somaxconn`).
const BACKLOG: i32 = 4096;

/// A TCP port that accepts connections: std's `TcpListener`, on which only the fiber
/// waits.
///
/// Any number of fibers may accept from it, on all workers, by reference or by clones.
/// [`close`](Self::close) ends their waits.
///
/// ```
/// use std::io::{Read, Write};
/// use sinew::net::{TcpListener, TcpStream};
///
/// sinew::run(|| -> std::io::Result<()> {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let address = listener.local_addr()?;
///     sinew::scope(|s| {
///         s.spawn(|| {
///             for peer in listener.incoming() {
///                 let Ok(mut peer) = peer else { break };
///                 peer.write_all(b"hi").unwrap();
///             }
///         });
///         for _ in 0..3 {
///             let mut text = String::new();
///             TcpStream::connect(address).unwrap().read_to_string(&mut text).unwrap();
///             assert_eq!(text, "hi");
///         }
///         listener.close().unwrap();
///     });
///     Ok(())
/// })
/// .unwrap();
/// ```
pub struct TcpListener {
    pub(in crate::net) socket: Socket,
}

/// How a [`TcpListener`] listens; see [`TcpListener::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `bind` is called"]
pub struct TcpListenerBuilder {
    backlog: i32,
    reuse_port: bool,
    only_v6: Option<bool>,
}

impl TcpListenerBuilder {
    /// How many connections may wait to be accepted; 4096 by default, or what the
    /// system allows if that is less.
    pub fn backlog(mut self, backlog: u32) -> Self {
        self.backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
        self
    }

    /// Lets several listeners share the port (`SO_REUSEPORT`): the system spreads the
    /// connections over them. Accept from each on a fiber of its own
    /// ([`Builder::spread`](crate::Builder::spread) keeps them apart), and serve by
    /// [`spawn_local`](crate::spawn_local), so that a connection stays where it came in.
    pub fn reuse_port(mut self, reuse: bool) -> Self {
        self.reuse_port = reuse;
        self
    }

    /// Whether an IPv6 socket also takes IPv4 connections; as the system has it by
    /// default.
    pub fn only_v6(mut self, only: bool) -> Self {
        self.only_v6 = Some(only);
        self
    }

    /// Listens on the first of `addresses` that can be had.
    ///
    /// # Errors
    ///
    /// The error of the last address, or of the lookup.
    #[track_caller]
    pub fn bind<A: ToSocketAddrs>(&self, addresses: A) -> io::Result<TcpListener> {
        addr::each(addresses, |address| self.bind_to(&SockAddr::from(address)))
    }

    fn bind_to(&self, address: &SockAddr) -> io::Result<TcpListener> {
        let socket = Socket::fresh(address, Type::STREAM)?;
        // As std: else a restarted server waits for old connections to be forgotten.
        socket.set_reuse_address(true)?;
        if self.reuse_port {
            socket.set_reuse_port(true)?;
        }
        if let (Some(only), true) = (self.only_v6, address.is_ipv6()) {
            socket.set_only_v6(only)?;
        }
        socket.bind(address)?;
        socket.listen(self.backlog)?;
        Ok(TcpListener {
            socket: Socket::tcp(socket.into()),
        })
    }
}

impl TcpListener {
    /// For `interop`, whose listeners take over what was left in it.
    #[cfg(any(feature = "futures-io", feature = "hyper"))]
    pub(crate) fn source(&self) -> &crate::reactor::Source {
        self.socket.source()
    }

    /// Listens on the first of `addresses` that can be had.
    ///
    /// # Errors
    ///
    /// The error of the last address, or of the lookup.
    #[track_caller]
    pub fn bind<A: ToSocketAddrs>(addresses: A) -> io::Result<Self> {
        Self::builder().bind(addresses)
    }

    /// More ways to listen.
    ///
    /// ```
    /// use sinew::net::TcpListener;
    ///
    /// let shared = TcpListener::builder().reuse_port(true);
    /// let one = shared.bind("127.0.0.1:0")?;
    /// let other = shared.bind(one.local_addr()?)?;
    /// assert_eq!(one.local_addr()?, other.local_addr()?);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn builder() -> TcpListenerBuilder {
        TcpListenerBuilder {
            backlog: BACKLOG,
            reuse_port: false,
            only_v6: None,
        }
    }

    /// Waits for a connection, and answers it with the peer's address.
    ///
    /// # Errors
    ///
    /// The system's. Out of descriptors (`EMFILE`) the connection stays in the
    /// listener's backlog: the next call waits a little, then tries again, so a loop
    /// that goes on after an error neither dies nor spins.
    #[track_caller]
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (fd, address) = self.socket.accept(Location::caller())?;
        let stream = TcpStream {
            socket: Socket::tcp(fd),
        };
        Ok((stream, as_socket(&address)?))
    }

    /// Iterates over the connections that come in; ends after an error that says that
    /// none will come any more, being closed or cancelled.
    ///
    /// On io_uring the kernel accepts ahead for it, up to 64 connections: several fibers that
    /// share a listener and serve by themselves should call [`accept`](Self::accept). What
    /// was accepted and not handed out is left to who accepts next when the iterator is
    /// dropped, and is closed with the listener. The iterator stays with its fiber.
    #[track_caller]
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming::new(self, Location::caller())
    }

    /// The same, by value.
    #[track_caller]
    pub fn into_incoming(self) -> IntoIncoming {
        IntoIncoming::new(self, Location::caller())
    }

    /// The address it listens on.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        as_socket(&self.socket.options().local_addr()?)
    }

    /// Another owner of the same listener.
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
}

converts!(
    TcpListener,
    std::net::TcpListener,
    Socket::tcp,
    "`TcpListener`"
);

/// An address of the internet's.
pub(super) fn as_socket(address: &SockAddr) -> io::Result<SocketAddr> {
    address
        .as_socket()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "invalid argument"))
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("TcpListener");
        if let Ok(address) = self.local_addr() {
            f.field("addr", &address);
        }
        f.field("fd", &self.as_fd().as_raw_fd()).finish()
    }
}
