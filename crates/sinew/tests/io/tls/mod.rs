//! TLS on our sockets: streams, listeners, and libraries that know nothing of us.

mod duplex;
mod listener;
mod split;
mod stream;
mod unmodified;

use sinew::net::{SocketAddr, TcpListener, TcpStream};
use sinew::tls::rustls::pki_types::pem::PemObject;
use sinew::tls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use sinew::tls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use sinew::tls::{TlsAcceptor, TlsConnector, TlsStream};
use std::io;
use std::sync::{Arc, OnceLock};

pub type Stream = TlsStream<TcpStream>;

struct Made {
    chain: String,
    key: String,
}

/// A certificate for "localhost", and its key.
fn made() -> &'static Made {
    static MADE: OnceLock<Made> = OnceLock::new();
    MADE.get_or_init(|| {
        let made = rcgen::generate_simple_self_signed(["localhost".into()]).unwrap();
        Made {
            chain: made.cert.pem(),
            key: made.signing_key.serialize_pem(),
        }
    })
}

pub fn acceptor() -> TlsAcceptor {
    TlsAcceptor::from_pem(made().chain.as_bytes(), made().key.as_bytes()).unwrap()
}

pub fn connector() -> TlsConnector {
    TlsConnector::with_roots(made().chain.as_bytes()).unwrap()
}

/// The same for rustls itself.
pub fn client_config() -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(made().chain.as_bytes()).unwrap())
        .unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots);
    Arc::new(config.with_no_client_auth())
}

pub fn server_config() -> Arc<ServerConfig> {
    let chain = CertificateDer::from_pem_slice(made().chain.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(made().key.as_bytes()).unwrap();
    let config = ServerConfig::builder().with_no_client_auth();
    Arc::new(config.with_single_cert(vec![chain], key).unwrap())
}

pub fn name() -> ServerName<'static> {
    "localhost".try_into().unwrap()
}

pub fn connect(address: SocketAddr) -> io::Result<Stream> {
    connector().connect(name(), TcpStream::connect(address)?)
}

/// Both ends of a TCP connection: who connected, who accepted.
pub fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    (client, server)
}

/// The same after the handshake.
pub fn streams() -> (Stream, Stream) {
    streams_of(connector(), acceptor())
}

pub fn streams_of(connector: TlsConnector, acceptor: TlsAcceptor) -> (Stream, Stream) {
    let (client, server) = sockets();
    let server = sinew::spawn(move || acceptor.accept(server).unwrap());
    let client = connector.connect(name(), client).unwrap();
    (client, server.join().unwrap())
}

/// Bytes in which a gap or a repetition shows.
pub fn pattern(length: usize) -> Vec<u8> {
    // A prime, so that no size of a buffer or record divides it.
    let block: Vec<u8> = (0..65_521u32).map(|i| (i ^ (i >> 8)) as u8).collect();
    let mut bytes = block.repeat(length / block.len() + 1);
    bytes.truncate(length);
    bytes
}
