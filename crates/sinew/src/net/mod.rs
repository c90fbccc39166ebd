//! Sockets on which only the fiber waits: std's API.
//!
//! | for | see |
//! |---|---|
//! | TCP | [`TcpListener`], [`TcpStream`] |
//! | UDP | [`UdpSocket`] |
//! | sockets of this machine | [`UnixListener`], [`UnixStream`], [`UnixDatagram`] |
//! | names | [`lookup_host`], [`ToSocketAddrs`] |
//!
//! Names, methods, error kinds and traits are std's; each operation is a cancellation
//! point, and works on plain threads too, which then block. What differs: a clone is the
//! same socket and no new descriptor; `close(&self)` ends all use of it, wherever somebody
//! waits; `set_nonblocking` concerns this socket and its clones, not the descriptor;
//! `incoming()` ends when its listener is closed, stays with its fiber, and on io_uring
//! accepts ahead; [`ToSocketAddrs`] is a trait of our own, whose lookups keep no worker.

mod accept;
mod addr;
mod connect;
mod convert;
mod incoming;
mod socket;
mod tcp;
mod udp;
mod unix;

pub use addr::{ToSocketAddrs, lookup_host};
pub use std::net::{
    AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, SocketAddrV4, SocketAddrV6,
};
pub use tcp::{Incoming, IntoIncoming, TcpListener, TcpListenerBuilder, TcpStream};
pub use udp::UdpSocket;
pub use unix::{UnixDatagram, UnixIncoming, UnixIntoIncoming, UnixListener, UnixStream};
