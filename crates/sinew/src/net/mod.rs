//! Sockets on which only the fiber waits: std's API.

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
