//! TLS by rustls on our sockets, or on anything that reads and writes.
//!
//! A [`TlsConnector`] makes connections of clients, a [`TlsAcceptor`] those of
//! servers; both do the handshake on the calling fiber and answer a [`TlsStream`]. A
//! [`TlsListener`] hands out connections before their [`Handshake`], so that it runs on
//! the connection's own fiber: whoever stalls there, or talks nonsense, keeps nobody
//! else waiting.
//!
//! ```
//! use sinew::net::{TcpListener, TcpStream};
//! use sinew::tls::{TlsAcceptor, TlsConnector, TlsListener};
//! use std::io::{Read, Write};
//!
//! let made = rcgen::generate_simple_self_signed(["localhost".into()]).unwrap();
//! let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
//!
//! sinew::run(|| -> std::io::Result<()> {
//!     let acceptor = TlsAcceptor::from_pem(chain.as_bytes(), key.as_bytes())?;
//!     let listener = TlsListener::new(TcpListener::bind("127.0.0.1:0")?, acceptor);
//!     let address = listener.local_addr()?;
//!     let server = sinew::spawn(move || -> std::io::Result<()> {
//!         let (handshake, _peer) = listener.accept()?;
//!         let mut stream = handshake.finish()?; // a server does this on a fiber of its own
//!         stream.write_all(b"hello")?;
//!         stream.close_notify()
//!     });
//!     let connector = TlsConnector::with_roots(chain.as_bytes())?;
//!     let name = "localhost".try_into().expect("a valid name");
//!     let mut stream = connector.connect(name, TcpStream::connect(address)?)?;
//!     let mut text = String::new();
//!     stream.read_to_string(&mut text)?;
//!     assert_eq!(text, "hello");
//!     server.join().unwrap()
//! })
//! .unwrap();
//! ```
//!
//! rustls's own `Stream` and `StreamOwned` run on our sockets unmodified, too. What
//! these here add: limits of time for handshakes, reads that get at what came before an
//! error, writes that never lose or repeat a byte when the socket's timeout ends them,
//! and halves ([`TlsStream::split`]) for a fiber that reads while another writes.
//!
//! A handshake was measured to fit into a stack of 32 KiB, of 64 KiB in unoptimised
//! code; other certificates and verifiers may take more, and the default has room.

mod acceptor;
mod connector;
mod duplex;
mod listener;
mod pem;
mod session;
mod split;
mod stream;

pub use acceptor::TlsAcceptor;
pub use connector::TlsConnector;
pub use duplex::TlsDuplex;
pub use listener::{Handshake, TlsIncoming, TlsListener};
pub use rustls;
pub use split::{TlsReader, TlsWriter};
pub use stream::TlsStream;
