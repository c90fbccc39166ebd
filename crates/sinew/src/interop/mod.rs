//! Our sockets, timers and fibers for async libraries.
//!
//! Fibers need none of this among themselves. It is for libraries that are written as
//! futures: they get sockets ([`AsyncIo`], [`AsyncListener`]) and time ([`sleep`]) that
//! wake whatever task polls them: a fiber or a thread in [`block_on`](crate::block_on), or
//! a task of another executor.
//!
//! | feature | what you gain |
//! |---|---|
//! | `futures-io` | `AsyncRead` and `AsyncWrite` of `futures-io` for [`AsyncIo`] |
//! | `hyper` | `Read` and `Write` of `hyper::rt` for [`AsyncIo`], `SinewTimer`, `SinewExecutor` |
//!
//! `sinew::tls` is for fibers: async code that talks TLS puts a library of its own, such as
//! `futures-rustls`, on an [`AsyncIo`].
//!
//! ```
//! use sinew::interop::AsyncIo;
//! use sinew::net::{TcpListener, TcpStream};
//! # #[cfg(feature = "futures-io")]
//! use futures_util::{AsyncReadExt, AsyncWriteExt};
//!
//! # #[cfg(feature = "futures-io")]
//! sinew::run(|| -> std::io::Result<()> {
//!     let listener = TcpListener::bind("127.0.0.1:0")?;
//!     let address = listener.local_addr()?;
//!     let server = sinew::spawn(move || -> std::io::Result<()> {
//!         let mut peer = AsyncIo::new(listener.accept()?.0)?;
//!         sinew::block_on(async {
//!             peer.write_all(b"hello").await?;
//!             peer.close().await
//!         })
//!     });
//!     let mut stream = AsyncIo::new(TcpStream::connect(address)?)?;
//!     let mut text = String::new();
//!     sinew::block_on(stream.read_to_string(&mut text))?;
//!     assert_eq!(text, "hello");
//!     server.join().unwrap()
//! })
//! .unwrap();
//! ```

mod async_io;
#[cfg(feature = "futures-io")]
mod futures;
#[cfg(feature = "hyper")]
mod hyper;
mod listener;

pub use async_io::{AsyncIo, StreamSocket};
#[cfg(feature = "hyper")]
pub use hyper::{SinewExecutor, SinewTimer};
pub use listener::{AsyncListener, ListeningSocket};

pub use crate::time::alarm::{Sleep, sleep};
