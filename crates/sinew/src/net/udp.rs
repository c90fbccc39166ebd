//! UDP.

use super::addr::{self, ToSocketAddrs};
use super::convert::{converts, has_timeouts};
use super::socket::Socket;
use crate::io::datagram;
use socket2::{SockAddr, Type};
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::panic::Location;

/// A UDP socket: std's `UdpSocket`, on which only the fiber waits.
///
/// Any number of fibers may send and receive by it, on all workers, by reference or by
/// clones ([`try_clone`](Self::try_clone)); each datagram goes to one of them.
/// [`close`](Self::close) ends their waits. Every operation that may wait is a
/// cancellation point: a receive that was cancelled or timed out leaves what comes
/// later in the socket.
///
/// ```
/// use sinew::net::UdpSocket;
///
/// sinew::run(|| -> std::io::Result<()> {
///     let server = UdpSocket::bind("127.0.0.1:0")?;
///     let address = server.local_addr()?;
///     let echo = sinew::spawn(move || -> std::io::Result<()> {
///         let mut buffer = [0; 1500];
///         let (count, from) = server.recv_from(&mut buffer)?;
///         server.send_to(&buffer[..count], from)?;
///         Ok(())
///     });
///     let client = UdpSocket::bind("127.0.0.1:0")?;
///     client.connect(address)?;
///     client.send(b"hello")?;
///     let mut answer = [0; 16];
///     let count = client.recv(&mut answer)?;
///     assert_eq!(&answer[..count], b"hello");
///     echo.join().unwrap()
/// })
/// .unwrap();
/// ```
pub struct UdpSocket {
    socket: Socket,
}

impl UdpSocket {
    /// Makes a socket on the first of `addresses` that can be had.
    ///
    /// # Errors
    ///
    /// The error of the last address, or of the lookup.
    #[track_caller]
    pub fn bind<A: ToSocketAddrs>(addresses: A) -> io::Result<Self> {
        addr::each(addresses, |address| Self::bind_to(address, false))
    }

    /// The same on a port that several sockets share (`SO_REUSEPORT`), all of which
    /// must be made so: the system spreads the datagrams over them, those of one
    /// sender always to the same.
    ///
    /// ```
    /// use sinew::net::UdpSocket;
    ///
    /// let one = UdpSocket::bind_reuse_port("127.0.0.1:0")?;
    /// let other = UdpSocket::bind_reuse_port(one.local_addr()?)?;
    /// assert_eq!(one.local_addr()?, other.local_addr()?);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`bind`](Self::bind).
    #[track_caller]
    pub fn bind_reuse_port<A: ToSocketAddrs>(addresses: A) -> io::Result<Self> {
        addr::each(addresses, |address| Self::bind_to(address, true))
    }

    fn bind_to(address: SocketAddr, reuse_port: bool) -> io::Result<Self> {
        let address = SockAddr::from(address);
        let fresh = Socket::fresh(&address, Type::DGRAM)?;
        if reuse_port {
            fresh.set_reuse_port(true)?;
        }
        fresh.bind(&address)?;
        Ok(Self {
            socket: Socket::new(fresh.into()),
        })
    }

    /// Makes the first of `addresses` that will do the only one that
    /// [`send`](Self::send) sends to and that is received from.
    ///
    /// It waits for nothing but a lookup: nobody is asked.
    ///
    /// # Errors
    ///
    /// The error of the last address, or of the lookup.
    #[track_caller]
    pub fn connect<A: ToSocketAddrs>(&self, addresses: A) -> io::Result<()> {
        addr::each(addresses, |address| {
            self.socket.options().connect(&SockAddr::from(address))
        })
    }

    /// Sends a datagram to the address that it is connected to; answers its length.
    ///
    /// # Errors
    ///
    /// The system's, such as `ConnectionRefused` if an earlier one found nobody there.
    #[track_caller]
    pub fn send(&self, from: &[u8]) -> io::Result<usize> {
        self.socket.send(from, Location::caller())
    }

    /// Sends a datagram to the first of `addresses`; answers its length.
    ///
    /// # Errors
    ///
    /// The system's, or that of the lookup; `InvalidInput` if there is no address.
    #[track_caller]
    pub fn send_to<A: ToSocketAddrs>(&self, from: &[u8], addresses: A) -> io::Result<usize> {
        let at = Location::caller();
        let Some(to) = addresses.to_socket_addrs()?.next() else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "no addresses to send data to",
            ));
        };
        datagram::send_to(self.socket.source(), from, &SockAddr::from(to), at)
    }

    /// Waits for a datagram; answers its length. What does not fit into `into` is
    /// lost.
    ///
    /// # Errors
    ///
    /// The system's, such as `ConnectionRefused` if what was sent found nobody there.
    #[track_caller]
    pub fn recv(&self, into: &mut [u8]) -> io::Result<usize> {
        datagram::recv(self.socket.source(), into, 0, Location::caller())
    }

    /// Waits for a datagram; answers its length and who sent it. What does not fit
    /// into `into` is lost.
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
        let source = self.socket.source();
        datagram::recv(source, into, libc::MSG_PEEK, Location::caller())
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

    fn recv_with(
        &self,
        into: &mut [u8],
        flags: i32,
        at: &'static Location<'static>,
    ) -> io::Result<(usize, SocketAddr)> {
        let (count, from) = datagram::recv_from(self.socket.source(), into, flags, at)?;
        Ok((count, as_socket(&from)?))
    }

    /// Our own address.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        as_socket(&self.socket.options().local_addr()?)
    }

    /// The address that it is connected to.
    ///
    /// # Errors
    ///
    /// The system's: `NotConnected` if it is not.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        as_socket(&self.socket.options().peer_addr()?)
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

/// Settings of the system's.
impl UdpSocket {
    /// Whether it may send to broadcast addresses (`SO_BROADCAST`).
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn set_broadcast(&self, broadcast: bool) -> io::Result<()> {
        self.socket.options().set_broadcast(broadcast)
    }

    /// Whether it may send to broadcast addresses.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn broadcast(&self) -> io::Result<bool> {
        self.socket.options().broadcast()
    }

    /// Whether this machine receives what it sends to IPv4 groups
    /// (`IP_MULTICAST_LOOP`).
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn set_multicast_loop_v4(&self, back: bool) -> io::Result<()> {
        self.socket.options().set_multicast_loop_v4(back)
    }

    /// Whether this machine receives what it sends to IPv4 groups.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn multicast_loop_v4(&self) -> io::Result<bool> {
        self.socket.options().multicast_loop_v4()
    }

    /// How many hops a packet to an IPv4 group may take (`IP_MULTICAST_TTL`).
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn set_multicast_ttl_v4(&self, ttl: u32) -> io::Result<()> {
        self.socket.options().set_multicast_ttl_v4(ttl)
    }

    /// How many hops a packet to an IPv4 group may take.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn multicast_ttl_v4(&self) -> io::Result<u32> {
        self.socket.options().multicast_ttl_v4()
    }

    /// Whether this machine receives what it sends to IPv6 groups
    /// (`IPV6_MULTICAST_LOOP`).
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn set_multicast_loop_v6(&self, back: bool) -> io::Result<()> {
        self.socket.options().set_multicast_loop_v6(back)
    }

    /// Whether this machine receives what it sends to IPv6 groups.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn multicast_loop_v6(&self) -> io::Result<bool> {
        self.socket.options().multicast_loop_v6()
    }

    /// Receives what is sent to the group, by the interface with this address; any if
    /// it is unspecified.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn join_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.socket.options().join_multicast_v4(group, interface)
    }

    /// Receives what is sent to the group, by the interface with this number; any if
    /// it is 0.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.socket.options().join_multicast_v6(group, interface)
    }

    /// Takes [`join_multicast_v4`](Self::join_multicast_v4) back.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn leave_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.socket.options().leave_multicast_v4(group, interface)
    }

    /// Takes [`join_multicast_v6`](Self::join_multicast_v6) back.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn leave_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.socket.options().leave_multicast_v6(group, interface)
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

converts!(UdpSocket, std::net::UdpSocket, Socket::new, "`UdpSocket`");
has_timeouts!(UdpSocket);

/// An address of the internet's.
fn as_socket(address: &SockAddr) -> io::Result<SocketAddr> {
    address
        .as_socket()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "invalid argument"))
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("UdpSocket");
        if let Ok(address) = self.local_addr() {
            f.field("addr", &address);
        }
        if let Ok(address) = self.peer_addr() {
            f.field("peer", &address);
        }
        f.field("fd", &self.as_fd().as_raw_fd()).finish()
    }
}
