//! Certificates and keys, as text.

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io;

/// The certificates in `text`, of which there must be one at least.
pub(super) fn certificates(text: &[u8]) -> io::Result<Vec<CertificateDer<'static>>> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(text)
        .collect::<Result<_, _>>()
        .map_err(|error| unusable("certificate", error))?;
    if chain.is_empty() {
        return Err(unusable("certificate", pem::Error::NoItemsFound));
    }
    Ok(chain)
}

/// The first private key in `text`.
pub(super) fn private_key(text: &[u8]) -> io::Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(text).map_err(|error| unusable("private key", error))
}

fn unusable(what: &str, error: pem::Error) -> io::Error {
    let message = format!("no {what} to be had from the PEM: {error}");
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// What rustls does not take.
pub(super) fn refused(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}
