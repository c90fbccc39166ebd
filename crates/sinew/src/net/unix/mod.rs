//! Unix sockets: connections and datagrams within this machine, by names.
//!
//! Addresses are std's (`std::os::unix::net::SocketAddr`), so what std can name can be
//! named here: paths, abstract names, and no name.

mod addr;
mod datagram;
mod incoming;
mod listener;
mod pause;
mod stream;

pub use datagram::UnixDatagram;
pub use incoming::{UnixIncoming, UnixIntoIncoming};
pub use listener::UnixListener;
pub use stream::UnixStream;
