//! Accepting connections without waiting for their handshakes.

use super::acceptor::TlsAcceptor;
use super::stream::TlsStream;
use crate::net::{Incoming, SocketAddr, TcpListener, TcpStream};
use std::fmt;
use std::io;

/// A TCP listener whose connections talk TLS.
///
/// It accepts, and leaves each handshake to who gets the connection:
///
/// ```no_run
/// use std::io::{self, Write};
/// use sinew::tls::TlsListener;
///
/// fn serve(listener: &TlsListener) {
///     for handshake in listener.incoming() {
///         match handshake {
///             Ok(handshake) => drop(sinew::spawn(move || -> io::Result<()> {
///                 let mut stream = handshake.finish()?;
///                 stream.write_all(b"hello")?;
///                 stream.close_notify()
///             })),
///             Err(error) => eprintln!("nobody came: {error}"),
///         }
///     }
/// }
/// ```
#[derive(Debug)]
pub struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl TlsListener {
    /// One that begins TLS by `acceptor` on what `listener` accepts.
    pub fn new(listener: TcpListener, acceptor: TlsAcceptor) -> Self {
        Self { listener, acceptor }
    }

    /// Waits for a connection, and answers it with the peer's address, before its
    /// handshake.
    ///
    /// # Errors
    ///
    /// As [`TcpListener::accept`]: of the listener, never of a peer's TLS.
    #[track_caller]
    pub fn accept(&self) -> io::Result<(Handshake, SocketAddr)> {
        let (socket, peer) = self.listener.accept()?;
        Ok((self.begin(socket), peer))
    }

    /// Iterates over the connections that come in, before their handshakes; as
    /// [`TcpListener::incoming`].
    #[track_caller]
    pub fn incoming(&self) -> TlsIncoming<'_> {
        TlsIncoming {
            sockets: self.listener.incoming(),
            listener: self,
        }
    }

    fn begin(&self, socket: TcpStream) -> Handshake {
        Handshake {
            socket,
            acceptor: self.acceptor.clone(),
        }
    }

    /// The address it listens on.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Ends all accepting, now and later; as [`TcpListener::close`].
    ///
    /// # Errors
    ///
    /// The system's; it is closed all the same.
    pub fn close(&self) -> io::Result<()> {
        self.listener.close()
    }

    /// The listener below.
    pub fn get_ref(&self) -> &TcpListener {
        &self.listener
    }

    /// The listener below, for other use.
    pub fn into_inner(self) -> TcpListener {
        self.listener
    }
}

/// The connections of a listener; see [`TlsListener::incoming`].
pub struct TlsIncoming<'a> {
    sockets: Incoming<'a>,
    listener: &'a TlsListener,
}

impl Iterator for TlsIncoming<'_> {
    type Item = io::Result<Handshake>;

    fn next(&mut self) -> Option<io::Result<Handshake>> {
        let socket = self.sockets.next()?;
        Some(socket.map(|socket| self.listener.begin(socket)))
    }
}

impl fmt::Debug for TlsIncoming<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TlsIncoming").field(self.listener).finish()
    }
}

/// A connection that was accepted and has not said a word of TLS yet.
///
/// Dropped it closes the connection.
#[derive(Debug)]
#[must_use = "the peer waits for its handshake"]
pub struct Handshake {
    socket: TcpStream,
    acceptor: TlsAcceptor,
}

impl Handshake {
    /// Does the handshake, here: on the connection's own fiber.
    ///
    /// # Errors
    ///
    /// As [`TlsAcceptor::accept`]; the connection is closed.
    #[track_caller]
    pub fn finish(self) -> io::Result<TlsStream<TcpStream>> {
        self.acceptor.accept(self.socket)
    }

    /// The connection below, to look at or to set options.
    pub fn get_ref(&self) -> &TcpStream {
        &self.socket
    }

    /// The connection below, without TLS.
    pub fn into_inner(self) -> TcpStream {
        self.socket
    }
}
