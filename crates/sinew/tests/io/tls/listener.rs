//! Accepting: whatever one client does, the others are served.

use super::{Stream, acceptor, connect};
use crate::world::everywhere;
use sinew::channel::{Receiver, unbounded};
use sinew::net::{SocketAddr, TcpListener, TcpStream};
use sinew::tls::{TlsAcceptor, TlsListener};
use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;

/// A server that echoes, one fiber for each connection, and tells what became of each;
/// stopped by its listener's `close`.
struct Server {
    address: SocketAddr,
    listener: TcpListener,
    ends: Receiver<io::Result<u64>>,
    serving: sinew::JoinHandle<()>,
}

impl Server {
    fn start(acceptor: TlsAcceptor) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tls = TlsListener::new(listener.try_clone().unwrap(), acceptor);
        let (tell, ends) = unbounded();
        Self {
            address: tls.local_addr().unwrap(),
            listener,
            ends,
            serving: sinew::spawn(move || {
                for handshake in tls.incoming() {
                    let Ok(handshake) = handshake else { break };
                    let tell = tell.clone();
                    sinew::spawn(move || tell.send(handshake.finish().and_then(echo)));
                }
            }),
        }
    }

    /// Whether a client that behaves is served.
    fn assert_serves(&self) {
        let mut stream = connect(self.address).unwrap();
        stream.write_all(b"ping").unwrap();
        stream.close_notify().unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "ping");
    }

    fn stop(self) {
        self.listener.close().unwrap();
        self.serving.join().unwrap();
    }
}

fn echo(mut stream: Stream) -> io::Result<u64> {
    let mut text = Vec::new();
    stream.read_to_end(&mut text)?;
    stream.write_all(&text)?;
    stream.close_notify()?;
    Ok(text.len() as u64)
}

#[test]
fn accept_does_not_wait_for_the_handshake() {
    everywhere(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let listener = TlsListener::new(listener, acceptor());
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (handshake, peer) = listener.accept().unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
        assert_eq!(handshake.get_ref().peer_addr().unwrap(), peer);
        drop(client);
        assert!(handshake.finish().is_err());
    });
}

#[test]
fn many_clients_are_served_at_once() {
    everywhere(|| {
        let server = Server::start(acceptor());
        sinew::scope(|s| {
            for _ in 0..20 {
                s.spawn(|| server.assert_serves());
            }
        });
        for _ in 0..20 {
            assert_eq!(server.ends.recv().unwrap().unwrap(), 4);
        }
        server.stop();
    });
}

#[test]
fn a_plain_text_probe_harms_nobody() {
    everywhere(|| {
        let server = Server::start(acceptor());
        let mut probe = TcpStream::connect(server.address).unwrap();
        probe
            .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .unwrap();
        let error = server.ends.recv().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        server.assert_serves();
        // It got an alert, or a reset if it came after that: an end in any case.
        let _answer = probe.read_to_end(&mut Vec::new());
        server.stop();
    });
}

#[test]
fn a_garbage_record_harms_nobody() {
    everywhere(|| {
        let server = Server::start(acceptor());
        // It looks like a record of a handshake: type 22, version 3.3, 64 bytes.
        let mut record = vec![22, 3, 3, 0, 64];
        record.extend([0xa5; 64]);
        let mut client = TcpStream::connect(server.address).unwrap();
        client.write_all(&record).unwrap();
        let error = server.ends.recv().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        server.assert_serves();
        server.stop();
    });
}

#[test]
fn a_stalled_handshake_keeps_nobody_waiting() {
    everywhere(|| {
        let server = Server::start(acceptor());
        let stalled: Vec<_> = (0..5)
            .map(|_| TcpStream::connect(server.address).unwrap())
            .collect();
        for _ in 0..3 {
            server.assert_serves();
            assert_eq!(server.ends.recv().unwrap().unwrap(), 4);
        }
        assert!(server.ends.try_recv().is_err()); // the others wait still
        drop(stalled);
        for _ in 0..5 {
            let error = server.ends.recv().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        }
        server.stop();
    });
}

#[test]
fn a_stalled_handshake_is_given_up() {
    everywhere(|| {
        let server = Server::start(acceptor().handshake_timeout(Duration::from_millis(20)));
        let silent = TcpStream::connect(server.address).unwrap();
        let mut slow = TcpStream::connect(server.address).unwrap();
        slow.write_all(&[22, 3, 1]).unwrap(); // part of a record
        for _ in 0..2 {
            let error = server.ends.recv().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut);
        }
        drop(silent);
        server.stop();
    });
}

#[test]
fn a_client_that_leaves_in_the_middle_harms_nobody() {
    everywhere(|| {
        let server = Server::start(acceptor());
        let mut client = TcpStream::connect(server.address).unwrap();
        client.write_all(&[22, 3, 1, 1, 0, 1]).unwrap();
        drop(client);
        let error = server.ends.recv().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        server.assert_serves();
        server.stop();
    });
}
