//! One connection's state of TLS, and its ways to move bytes.
//!
//! ```text
//!   socket ── feed ──► records ── process ──► plaintext ── take ──► reader
//!   socket ◄── send ── records ◄─────────────────────────── put ─── writer
//! ```
//!
//! Invariant (order): what arrived before an error is taken before the error is told;
//! what was put is sent before anything is put after it.

use crate::cancel::timeout;
use crate::error::Cancelled;
use rustls::Connection;
use std::io::{self, Read, Write};
use std::time::Duration;

/// How long a handshake may take by default.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// How long telling the peer what it did wrong may take: it may not even read.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// See the module header.
pub(super) struct Session {
    connection: Connection,
    /// Why nothing of the peer's is understood any more.
    failure: Option<rustls::Error>,
    /// We have said that nothing follows.
    said_goodbye: bool,
}

impl Session {
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            connection,
            failure: None,
            said_goodbye: false,
        }
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Does the handshake, all of it.
    pub(super) fn handshake<S: Read + Write>(&mut self, socket: &mut S) -> io::Result<()> {
        while self.connection.is_handshaking() {
            if self.connection.wants_write() {
                self.send(socket)?;
                continue;
            }
            let count = self.feed(socket)?;
            if let Some(error) = self.failure() {
                self.last_words(socket);
                return Err(error);
            }
            if count == 0 {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the peer went away during the TLS handshake",
                ));
            }
        }
        self.send(socket) // a client's last message, a server's tickets
    }

    /// Takes what has arrived; none if nothing has, zero at the end.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` if the bytes ended and the peer had not said that they would.
    pub(super) fn take(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        match self.connection.reader().read(into) {
            Ok(count) => Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.failure().map_or(Ok(None), Err)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads once from `socket`, and makes of it what there is to make: records that
    /// are wrong become the [`failure`](Self::failure).
    pub(super) fn feed(&mut self, socket: &mut dyn Read) -> io::Result<usize> {
        let count = uninterrupted(|| self.connection.read_tls(socket))?;
        if let Err(error) = self.connection.process_new_packets() {
            self.failure.get_or_insert(error);
        }
        Ok(count)
    }

    /// What the peer did wrong, if it did.
    pub(super) fn failure(&self) -> Option<io::Error> {
        let failure = self.failure.clone()?;
        Some(io::Error::new(io::ErrorKind::InvalidData, failure))
    }

    pub(super) fn wants_to_send(&self) -> bool {
        self.connection.wants_write()
    }

    /// Takes over as much of `from` as there is room for; nothing waits to be sent.
    ///
    /// # Errors
    ///
    /// `BrokenPipe` after [`say_goodbye`](Self::say_goodbye); the failure, if there is
    /// one.
    pub(super) fn put(&mut self, from: &[u8]) -> io::Result<usize> {
        if self.said_goodbye {
            return Err(io::Error::new(
                io::ErrorKind::BrokenPipe,
                "written after close_notify",
            ));
        }
        self.connection.writer().write(from)
    }

    /// Says that nothing follows.
    pub(super) fn say_goodbye(&mut self) {
        self.connection.send_close_notify();
        self.said_goodbye = true;
    }

    /// Writes all that is to be sent; what an error leaves is kept for the next time.
    pub(super) fn send(&mut self, socket: &mut dyn Write) -> io::Result<()> {
        while self.connection.wants_write() {
            if uninterrupted(|| self.connection.write_tls(socket))? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Tells the peer what it did wrong, if that can be done at all.
    #[cold]
    pub(super) fn last_words(&mut self, socket: &mut dyn Write) {
        // Its failure is the error that counts, however this goes.
        let _told = timeout(LAST_WORDS, || self.send(socket));
    }
}

/// Does a handshake within `limit`.
pub(super) fn within(limit: Duration, shake: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    match timeout(limit, shake) {
        Ok(done) => done,
        Err(elapsed) => elapsed.into_inner().map_err(|error| {
            if Cancelled::is_in(&error) {
                io::Error::new(io::ErrorKind::TimedOut, "the TLS handshake took too long")
            } else {
                error
            }
        }),
    }
}

/// Makes a call again that a signal interrupted.
pub(super) fn uninterrupted(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}
