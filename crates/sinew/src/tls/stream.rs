//! A connection that talks TLS.

use super::duplex::TlsDuplex;
use super::session::Session;
use super::split::{self, TlsReader, TlsWriter};
use crate::error::Cancelled;
use crate::io::Duplex;
use crate::net::TcpStream;
use crate::wait::place::Hint;
use rustls::Connection;
use rustls::pki_types::CertificateDer;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::panic::Location;

/// A connection that talks TLS, on a socket of ours or on anything that reads and
/// writes; its handshake is done.
///
/// It reads and writes through [`Read`] and [`Write`]. A read that finds the bytes
/// ended though the peer has not said so ([`close_notify`](Self::close_notify)) fails
/// with `UnexpectedEof`: somebody may have cut them off. Dropped it says nothing to the
/// peer, since that might have to wait.
///
/// **Timeouts and cancelling** lose nothing. A write takes what it answers; if the
/// socket does not take all of that in time, the rest is sent by the next write,
/// [`flush`](Write::flush) or read, which then has the error to tell. So a write that
/// fails took nothing, and may be repeated.
///
/// See the [module](super) for an example.
pub struct TlsStream<S> {
    session: Session,
    socket: S,
}

impl<S> TlsStream<S> {
    pub(super) fn new(session: Session, socket: S) -> Self {
        Self { session, socket }
    }

    /// The socket below.
    pub fn get_ref(&self) -> &S {
        &self.socket
    }

    /// The socket below; to read or write it breaks the connection.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.socket
    }

    /// The socket below; what arrived and was not read is lost.
    pub fn into_inner(self) -> S {
        self.socket
    }

    /// What rustls knows of the connection.
    pub fn connection(&self) -> &Connection {
        self.session.connection()
    }

    /// The protocol that both sides agreed to by ALPN, if they did.
    pub fn alpn_protocol(&self) -> Option<&[u8]> {
        self.connection().alpn_protocol()
    }

    /// The certificates that the peer showed, its own first.
    pub fn peer_certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.connection().peer_certificates()
    }

    /// Makes halves of it, so that one fiber may read while another writes.
    ///
    /// The half that reads never writes: what rustls wants to answer to the peer
    /// (a change of keys, an alert) is sent by the other half's next write or flush. Who
    /// copies both ways takes [`into_duplex`](Self::into_duplex) and
    /// [`copy_bidirectional`](crate::io::copy_bidirectional), which end one direction with
    /// the other.
    ///
    /// ```
    /// # use sinew::net::{TcpListener, TcpStream};
    /// # use sinew::tls::{TlsAcceptor, TlsConnector, TlsListener};
    /// # use std::io::{self, Read, Write};
    /// # let made = rcgen::generate_simple_self_signed(["localhost".into()]).unwrap();
    /// # let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    /// # sinew::run(|| -> io::Result<()> {
    /// # let acceptor = TlsAcceptor::from_pem(chain.as_bytes(), key.as_bytes())?;
    /// # let listener = TlsListener::new(TcpListener::bind("127.0.0.1:0")?, acceptor);
    /// # let address = listener.local_addr()?;
    /// // An echo, on the other side.
    /// let server = sinew::spawn(move || -> io::Result<()> {
    ///     let (mut from, mut to) = listener.accept()?.0.finish()?.split();
    ///     io::copy(&mut from, &mut to)?;
    ///     to.close_notify()
    /// });
    /// # let connector = TlsConnector::with_roots(chain.as_bytes())?;
    /// # let name = "localhost".try_into().expect("a valid name");
    /// # let stream = connector.connect(name, TcpStream::connect(address)?)?;
    /// let (mut from, mut to) = stream.split();
    /// let writer = sinew::spawn(move || -> io::Result<()> {
    ///     to.write_all(b"there and back")?;
    ///     to.close_notify()
    /// });
    /// let mut text = String::new();
    /// from.read_to_string(&mut text)?;
    /// assert_eq!(text, "there and back");
    /// # writer.join().unwrap()?;
    /// # server.join().unwrap()
    /// # })
    /// # .unwrap();
    /// ```
    pub fn split(self) -> (TlsReader<S>, TlsWriter<S>)
    where
        for<'a> &'a S: Read + Write,
    {
        split::halves(self.session, self.socket)
    }

    /// The same, kept together: a stream that is read and written by reference, as
    /// [`copy_bidirectional`](crate::io::copy_bidirectional) does it.
    ///
    /// ```
    /// # use sinew::net::{TcpListener, TcpStream};
    /// # use sinew::tls::{TlsAcceptor, TlsConnector, TlsListener};
    /// # use std::io::{self, Read, Write};
    /// # let made = rcgen::generate_simple_self_signed(["localhost".into()]).unwrap();
    /// # let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    /// # sinew::run(|| -> io::Result<()> {
    /// # let acceptor = TlsAcceptor::from_pem(chain.as_bytes(), key.as_bytes())?;
    /// # let listener = TlsListener::new(TcpListener::bind("127.0.0.1:0")?, acceptor);
    /// # let address = listener.local_addr()?;
    /// # let plain = TcpListener::bind("127.0.0.1:0")?;
    /// # let backend = plain.local_addr()?;
    /// # let server = sinew::spawn(move || io::copy(&mut &plain.accept()?.0, &mut io::sink()));
    /// // A proxy that ends TLS in front of a plain server.
    /// let proxy = sinew::spawn(move || {
    ///     let client = listener.accept()?.0.finish()?.into_duplex();
    ///     sinew::io::copy_bidirectional(&client, &TcpStream::connect(backend)?)
    /// });
    /// # let connector = TlsConnector::with_roots(chain.as_bytes())?;
    /// # let name = "localhost".try_into().expect("a valid name");
    /// # let mut stream = connector.connect(name, TcpStream::connect(address)?)?;
    /// stream.write_all(b"secret")?; // a client's
    /// stream.close_notify()?;
    /// assert_eq!(stream.read(&mut [0; 8])?, 0);
    /// assert_eq!(proxy.join().unwrap()?, (6, 0));
    /// # assert_eq!(server.join().unwrap()?, 6);
    /// # Ok(())
    /// # })
    /// # .unwrap();
    /// ```
    pub fn into_duplex(self) -> TlsDuplex
    where
        S: Duplex + Send + Sync + 'static,
        for<'a> &'a S: Read + Write,
    {
        TlsDuplex::new(self.split())
    }
}

impl<S: Read + Write> TlsStream<S> {
    /// Tells the peer that nothing follows, after all that was written; it may go on
    /// writing, and this side reading.
    ///
    /// # Errors
    ///
    /// The socket's; [`flush`](Write::flush) tries again.
    #[track_caller]
    pub fn close_notify(&mut self) -> io::Result<()> {
        self.session.say_goodbye();
        self.flush()
    }

    /// Sends what an earlier write or answer left, before a read waits: the peer may
    /// wait for it before it says anything.
    fn send_before_waiting(&mut self) -> io::Result<()> {
        match self.session.send(&mut self.socket) {
            Err(error) if is_for_now(&error) => Err(error),
            // What cannot be sent any more is the next write's concern; there may be
            // something to read still.
            _ => Ok(()),
        }
    }
}

/// Whether an operation failed that may be repeated.
fn is_for_now(error: &io::Error) -> bool {
    let kind = error.kind();
    matches!(kind, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) || Cancelled::is_in(error)
}

impl TlsStream<TcpStream> {
    /// Tells the peer that nothing follows, and ends the writing side of the connection
    /// below.
    ///
    /// # Errors
    ///
    /// The socket's.
    #[track_caller]
    pub fn shutdown(&mut self) -> io::Result<()> {
        self.close_notify()?;
        self.socket.shutdown(Shutdown::Write)
    }
}

impl<S: Read + Write> Read for TlsStream<S> {
    #[track_caller]
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let _hint = Hint::new(Location::caller());
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            if let Some(count) = self.session.take(into)? {
                return Ok(count);
            }
            self.send_before_waiting()?;
            self.session.feed(&mut self.socket)?;
            if self.session.failure().is_some() {
                self.session.last_words(&mut self.socket);
            }
        }
    }
}

impl<S: Read + Write> Write for TlsStream<S> {
    #[track_caller]
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let _hint = Hint::new(Location::caller());
        self.session.send(&mut self.socket)?;
        let count = self.session.put(from)?;
        // They are taken now. If they cannot all be sent, the next call says why.
        let _sent = self.session.send(&mut self.socket);
        Ok(count)
    }

    #[track_caller]
    fn flush(&mut self) -> io::Result<()> {
        let _hint = Hint::new(Location::caller());
        self.session.send(&mut self.socket)?;
        self.socket.flush()
    }
}

impl<S: fmt::Debug> fmt::Debug for TlsStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream")
            .field("socket", &self.socket)
            .field("version", &self.connection().protocol_version())
            .finish_non_exhaustive()
    }
}
