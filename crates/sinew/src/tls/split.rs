//! The halves of a connection, for two fibers.
//!
//! They share the session under a lock, which is held to encrypt and to decrypt, never
//! while one of them waits for the socket: each has a buffer of its own for that.
//!
//! ```text
//!   TlsReader: socket ─ read ─► incoming ─ lock ─► session ─► plaintext
//!   TlsWriter: plaintext ─ lock ─► session ─► outgoing ─ write ─► socket
//! ```
//!
//! Invariant (one writer): only the half that writes takes records out of the session,
//! so they reach the socket in their order, and the half that reads never waits for room
//! in it: with a peer that does the same, nobody could go on.

use super::session::{Session, uninterrupted};
use crate::sync::Mutex;
use crate::wait::place::Hint;
use std::fmt;
use std::io::{self, Read, Write};
use std::panic::Location;
use std::sync::Arc;

/// The largest record, and some.
const INCOMING: usize = 18 * 1024;

struct Shared<S> {
    session: Mutex<Session>,
    socket: S,
}

pub(super) fn halves<S>(session: Session, socket: S) -> (TlsReader<S>, TlsWriter<S>) {
    let shared = Arc::new(Shared {
        session: Mutex::new(session),
        socket,
    });
    let reader = TlsReader {
        shared: shared.clone(),
        incoming: Box::new([0; INCOMING]),
        unread: 0..0,
    };
    let writer = TlsWriter {
        shared,
        outgoing: Vec::new(),
        sent: 0,
    };
    (reader, writer)
}

/// The half that reads; see [`TlsStream::split`](super::TlsStream::split).
pub struct TlsReader<S> {
    shared: Arc<Shared<S>>,
    incoming: Box<[u8; INCOMING]>,
    /// What of it the session has not got yet.
    unread: std::ops::Range<usize>,
}

impl<S> TlsReader<S> {
    /// The socket below.
    pub fn get_ref(&self) -> &S {
        &self.shared.socket
    }
}

impl<S> Read for TlsReader<S>
where
    for<'a> &'a S: Read,
{
    #[track_caller]
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let _hint = Hint::new(Location::caller());
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            {
                let mut session = self.shared.session.lock();
                if let Some(count) = session.take(into)? {
                    return Ok(count);
                }
                if !self.unread.is_empty() {
                    let mut records = &self.incoming[self.unread.clone()];
                    self.unread.start += session.feed(&mut records)?;
                    continue;
                }
            }
            let mut socket = &self.shared.socket;
            // Through a `dyn`, so that the socket asks for the hint: a closure has no caller.
            let socket: &mut dyn Read = &mut socket;
            let count = uninterrupted(|| socket.read(&mut self.incoming[..]))?;
            self.unread = 0..count;
            if count == 0 {
                // So that the session knows.
                self.shared.session.lock().feed(&mut io::empty())?;
            }
        }
    }
}

/// The half that writes; see [`TlsStream::split`](super::TlsStream::split).
pub struct TlsWriter<S> {
    shared: Arc<Shared<S>>,
    /// Records, of which the first bytes are sent.
    outgoing: Vec<u8>,
    sent: usize,
}

impl<S> TlsWriter<S> {
    /// The socket below.
    pub fn get_ref(&self) -> &S {
        &self.shared.socket
    }
}

impl<S> TlsWriter<S>
where
    for<'a> &'a S: Write,
{
    /// As [`TlsStream::close_notify`](super::TlsStream::close_notify).
    ///
    /// # Errors
    ///
    /// The socket's; [`flush`](Write::flush) tries again.
    #[track_caller]
    pub fn close_notify(&mut self) -> io::Result<()> {
        self.shared.session.lock().say_goodbye();
        self.flush()
    }

    /// Sends what the session has for the peer, and what was left the last time.
    fn send(&mut self) -> io::Result<()> {
        self.write_out()?;
        {
            let mut session = self.shared.session.lock();
            if session.wants_to_send() {
                session.send(&mut self.outgoing)?;
            }
        }
        self.write_out()
    }

    fn write_out(&mut self) -> io::Result<()> {
        let mut socket = &self.shared.socket;
        // As in `read`.
        let socket: &mut dyn Write = &mut socket;
        while self.sent < self.outgoing.len() {
            match uninterrupted(|| socket.write(&self.outgoing[self.sent..]))? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => self.sent += count,
            }
        }
        self.outgoing.clear();
        self.sent = 0;
        Ok(())
    }
}

impl<S> Write for TlsWriter<S>
where
    for<'a> &'a S: Write,
{
    #[track_caller]
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let _hint = Hint::new(Location::caller());
        self.send()?;
        let count = self.shared.session.lock().put(from)?;
        // They are taken now. If they cannot all be sent, the next call says why.
        let _sent = self.send();
        Ok(count)
    }

    #[track_caller]
    fn flush(&mut self) -> io::Result<()> {
        let _hint = Hint::new(Location::caller());
        self.send()?;
        (&self.shared.socket).flush()
    }
}

impl<S: fmt::Debug> fmt::Debug for TlsReader<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TlsReader").field(self.get_ref()).finish()
    }
}

impl<S: fmt::Debug> fmt::Debug for TlsWriter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TlsWriter").field(self.get_ref()).finish()
    }
}
