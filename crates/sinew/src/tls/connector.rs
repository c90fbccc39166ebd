//! Connections of clients.

use super::pem::{certificates, refused};
use super::session::{PATIENCE, Session, within};
use super::stream::TlsStream;
use crate::wait::place::Hint;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::fmt;
use std::io::{self, Read, Write};
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

/// Begins TLS as a client; clones share the configuration, and the sessions to resume.
///
/// See the [module](super) for an example.
#[derive(Clone)]
pub struct TlsConnector {
    config: Arc<ClientConfig>,
    patience: Duration,
}

impl TlsConnector {
    /// One with this configuration.
    pub fn new(config: Arc<ClientConfig>) -> Self {
        Self {
            config,
            patience: PATIENCE,
        }
    }

    /// One that trusts the certificates in `pem`, and whom they vouch for; it has no
    /// certificate itself.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if there is no certificate, or one that is none.
    ///
    /// ```
    /// use sinew::tls::TlsConnector;
    ///
    /// let made = rcgen::generate_simple_self_signed(["localhost".into()]).unwrap();
    /// assert!(TlsConnector::with_roots(made.cert.pem().as_bytes()).is_ok());
    /// assert!(TlsConnector::with_roots(b"nothing").is_err());
    /// ```
    pub fn with_roots(pem: &[u8]) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(pem)? {
            roots.add(certificate).map_err(refused)?;
        }
        // Named, since a program may have rustls with other providers as well.
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(refused)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self::new(Arc::new(config)))
    }

    /// The protocols to offer by ALPN, the best first, such as `[b"h2", b"http/1.1"]`.
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

    /// Does the handshake on `socket` with a server that has a certificate for `name`.
    ///
    /// Only this fiber waits. The limit holds for what waits in a cancellation point,
    /// as our sockets do.
    ///
    /// # Errors
    ///
    /// `InvalidData` with a `rustls::Error` if the two do not agree; `TimedOut`,
    /// `UnexpectedEof`; or the socket's own, such as a cancellation.
    #[track_caller]
    pub fn connect<S: Read + Write>(
        &self,
        name: ServerName<'static>,
        mut socket: S,
    ) -> io::Result<TlsStream<S>> {
        let _hint = Hint::new(Location::caller());
        let connection = ClientConnection::new(self.config.clone(), name).map_err(refused)?;
        let mut session = Session::new(connection.into());
        within(self.patience, || session.handshake(&mut socket))?;
        Ok(TlsStream::new(session, socket))
    }
}

impl From<Arc<ClientConfig>> for TlsConnector {
    fn from(config: Arc<ClientConfig>) -> Self {
        Self::new(config)
    }
}

impl fmt::Debug for TlsConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConnector").finish_non_exhaustive()
    }
}
