//! Connections of servers.

use super::pem::{certificates, private_key, refused};
use super::session::{PATIENCE, Session, within};
use super::stream::TlsStream;
use crate::wait::place::Hint;
use rustls::crypto::ring;
use rustls::{ServerConfig, ServerConnection};
use std::fmt;
use std::io::{self, Read, Write};
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

/// Begins TLS as a server; clones share the configuration.
///
/// See the [module](super) for an example.
#[derive(Clone)]
pub struct TlsAcceptor {
    config: Arc<ServerConfig>,
    patience: Duration,
}

impl TlsAcceptor {
    /// One with this configuration.
    pub fn new(config: Arc<ServerConfig>) -> Self {
        Self {
            config,
            patience: PATIENCE,
        }
    }

    /// One that shows the certificates in `chain`, its own first, and has the private
    /// key in `key`; it asks clients for no certificate.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if either is missing, or they do not belong together.
    ///
    /// ```
    /// use sinew::tls::TlsAcceptor;
    ///
    /// let made = rcgen::generate_simple_self_signed(["localhost".into()]).unwrap();
    /// let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    /// assert!(TlsAcceptor::from_pem(chain.as_bytes(), key.as_bytes()).is_ok());
    /// assert!(TlsAcceptor::from_pem(chain.as_bytes(), b"").is_err());
    /// ```
    pub fn from_pem(chain: &[u8], key: &[u8]) -> io::Result<Self> {
        // Named, since a program may have rustls with other providers as well.
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(refused)?
            .with_no_client_auth()
            .with_single_cert(certificates(chain)?, private_key(key)?)
            .map_err(refused)?;
        Ok(Self::new(Arc::new(config)))
    }

    /// The protocols to agree to by ALPN, the best first, such as `[b"h2", b"http/1.1"]`.
    pub fn alpn<P: AsRef<[u8]>>(mut self, protocols: impl IntoIterator<Item = P>) -> Self {
        let protocols = protocols.into_iter().map(|name| name.as_ref().to_vec());
        Arc::make_mut(&mut self.config).alpn_protocols = protocols.collect();
        self
    }

    /// How long a handshake may take; ten seconds by default.
    pub fn handshake_timeout(mut self, limit: Duration) -> Self {
        self.patience = limit;
        self
    }

    /// Does the handshake on `socket`, with a client.
    ///
    /// Only this fiber waits; so a server calls it on the connection's fiber, never in
    /// its accept loop. The limit holds for what waits in a cancellation point, as our
    /// sockets do.
    ///
    /// # Errors
    ///
    /// `InvalidData` with a `rustls::Error` if the two do not agree, or the client
    /// does not talk TLS; `TimedOut`, `UnexpectedEof`; or the socket's own, such as a
    /// cancellation.
    #[track_caller]
    pub fn accept<S: Read + Write>(&self, mut socket: S) -> io::Result<TlsStream<S>> {
        let _hint = Hint::new(Location::caller());
        let connection = ServerConnection::new(self.config.clone()).map_err(refused)?;
        let mut session = Session::new(connection.into());
        within(self.patience, || session.handshake(&mut socket))?;
        Ok(TlsStream::new(session, socket))
    }
}

impl From<Arc<ServerConfig>> for TlsAcceptor {
    fn from(config: Arc<ServerConfig>) -> Self {
        Self::new(config)
    }
}

impl fmt::Debug for TlsAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsAcceptor").finish_non_exhaustive()
    }
}
