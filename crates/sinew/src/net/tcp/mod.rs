//! TCP.

mod incoming;
mod listener;
mod stream;

pub use incoming::{Incoming, IntoIncoming};
pub use listener::{TcpListener, TcpListenerBuilder};
pub use stream::TcpStream;
