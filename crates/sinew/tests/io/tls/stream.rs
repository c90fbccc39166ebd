//! One connection.

use super::{acceptor, connector, name, pattern, sockets, streams, streams_of};
use crate::world::{everywhere, on_fibers};
use sinew::net::TcpListener;
use sinew::tls::rustls;
use sinew::tls::{TlsAcceptor, TlsConnector};
use sinew::{Cancelled, WaitReason};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

#[test]
fn what_is_written_is_read() {
    everywhere(|| {
        let (mut client, mut server) = streams();
        client.write_all(b"hello").unwrap();
        let mut text = [0; 5];
        server.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"hello");
        server.write_all(b"yes?").unwrap();
        server.close_notify().unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "yes?");
    });
}

#[test]
fn both_sides_know_the_other() {
    everywhere(|| {
        let (client, server) = streams();
        assert_eq!(client.peer_certificates().unwrap().len(), 1);
        assert!(server.peer_certificates().is_none());
        assert!(client.alpn_protocol().is_none());
        let rustls::Connection::Server(connection) = server.connection() else {
            panic!("a server's");
        };
        assert_eq!(connection.server_name(), Some("localhost"));
        let address = client.get_ref().local_addr().unwrap();
        assert_eq!(server.into_inner().peer_addr().unwrap(), address);
    });
}

#[test]
fn the_first_protocol_of_the_server_that_the_client_has_is_taken() {
    everywhere(|| {
        let (client, server) = streams_of(
            connector().alpn(["http/1.1", "h2"]),
            acceptor().alpn(["h3", "h2", "http/1.1"]),
        );
        assert_eq!(client.alpn_protocol(), Some(&b"h2"[..]));
        assert_eq!(server.alpn_protocol(), Some(&b"h2"[..]));
    });
}

#[test]
fn two_without_a_protocol_in_common_do_not_connect() {
    everywhere(|| {
        let (client, server) = sockets();
        let server = sinew::spawn(move || acceptor().alpn(["one"]).accept(server));
        let client = connector().alpn(["other"]).connect(name(), client);
        assert_eq!(client.unwrap_err().kind(), ErrorKind::InvalidData);
        let error = server.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    });
}

#[test]
fn a_stranger_is_not_trusted() {
    everywhere(|| {
        let other = rcgen::generate_simple_self_signed(["localhost".into()]).unwrap();
        let connector = TlsConnector::with_roots(other.cert.pem().as_bytes()).unwrap();
        let (client, server) = sockets();
        let server = sinew::spawn(move || acceptor().accept(server));
        let error = connector.connect(name(), client).unwrap_err();
        let inner = error.get_ref().and_then(|e| e.downcast_ref());
        let why: &rustls::Error = inner.expect("rustls's own");
        assert!(matches!(why, rustls::Error::InvalidCertificate(_)), "{why}");
        // It is told, by an alert.
        let error = server.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    });
}

#[test]
fn nonsense_for_a_certificate_is_an_error_that_says_so() {
    let made = rcgen::generate_simple_self_signed(["localhost".into()]).unwrap();
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    for (chain, key) in [
        ("", &*key),
        (&*chain, ""),
        (&*key, &*key),
        (&*chain, &*chain),
    ] {
        let error = TlsAcceptor::from_pem(chain.as_bytes(), key.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
}

#[test]
fn large_transfers_arrive_whole_both_ways() {
    everywhere(|| {
        let sent = pattern(3_000_000);
        let expected = sent.clone();
        let (mut client, mut server) = streams();
        let server = sinew::spawn(move || {
            let mut got = Vec::new();
            server.read_to_end(&mut got).unwrap();
            assert!(got == expected);
            got.reverse();
            server.write_all(&got).unwrap();
            server.shutdown().unwrap();
        });
        client.write_all(&sent).unwrap();
        client.close_notify().unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        answer.reverse();
        assert!(answer == sent);
        server.join().unwrap();
    });
}

#[test]
fn an_end_that_nobody_announced_is_unexpected() {
    everywhere(|| {
        let (mut client, mut server) = streams();
        client.write_all(b"to be continued").unwrap();
        client.get_ref().shutdown(Shutdown::Write).unwrap();
        let mut text = Vec::new();
        let error = server.read_to_end(&mut text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        assert_eq!(text, b"to be continued"); // what came before it is there
        let again = server.read(&mut [0; 8]).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::UnexpectedEof);
    });
}

#[test]
fn after_close_notify_nothing_is_written_and_all_is_read() {
    everywhere(|| {
        let (mut client, mut server) = streams();
        client.close_notify().unwrap();
        let error = client.write(b"more").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        assert_eq!(server.read(&mut [0; 8]).unwrap(), 0);
        assert_eq!(server.read(&mut [0; 8]).unwrap(), 0); // and again
        server.write_all(b"late").unwrap();
        server.close_notify().unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert_eq!(text, "late");
    });
}

#[test]
fn what_came_before_garbage_is_read_before_the_error() {
    everywhere(|| {
        let (mut client, mut server) = streams();
        client.write_all(b"sense").unwrap();
        client.get_mut().write_all(b"garbage, no record").unwrap();
        let mut text = [0; 5];
        server.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"sense");
        for _ in 0..2 {
            let error = server.read(&mut [0; 8]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData);
        }
        assert!(server.write(b"anyone?").is_err());
        // The other side was told.
        let error = client.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    });
}

#[test]
fn a_write_whose_time_is_over_loses_nothing_and_repeats_nothing() {
    everywhere(|| {
        let (mut client, mut server) = streams();
        let tick = Some(Duration::from_millis(1));
        client.get_ref().set_write_timeout(tick).unwrap();
        let (full, is_full) = sinew::channel::bounded(1);
        let sent = pattern(12_000_000); // more than the system buffers
        let expected = sent.clone();
        let server = sinew::spawn(move || {
            is_full.recv().unwrap();
            let mut got = Vec::new();
            server.read_to_end(&mut got).unwrap();
            assert_eq!(got.len(), expected.len());
            assert!(got == expected);
        });
        let mut rest = &sent[..];
        let mut blocked = 0;
        while !rest.is_empty() {
            match client.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    blocked += 1;
                    // The reader begins when there is no room for sure.
                    let _begun = full.try_send(());
                }
            }
        }
        assert!(blocked > 0);
        while let Err(error) = client.flush() {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
        }
        client.get_ref().set_write_timeout(None).unwrap();
        client.close_notify().unwrap();
        server.join().unwrap();
    });
}

#[test]
fn a_read_whose_time_is_over_may_be_repeated() {
    everywhere(|| {
        let (mut client, mut server) = streams();
        let tick = Some(Duration::from_millis(1));
        server.get_ref().set_read_timeout(tick).unwrap();
        let error = server.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        // One record, in two parts with a timeout between.
        let record = {
            let mut tap = Vec::new();
            client.write_all(&pattern(5000)).unwrap();
            let raw = server.get_mut();
            raw.set_read_timeout(None).unwrap();
            let mut header = [0; 5];
            raw.read_exact(&mut header).unwrap();
            tap.extend_from_slice(&header);
            let mut body = vec![0; usize::from(u16::from_be_bytes([header[3], header[4]]))];
            raw.read_exact(&mut body).unwrap();
            tap.extend(body);
            tap
        };
        let (mut from, to) = sockets();
        to.set_read_timeout(tick).unwrap();
        *server.get_mut() = to;
        let (head, tail) = record.split_at(1000);
        from.write_all(head).unwrap();
        let error = server.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        server.get_ref().set_read_timeout(None).unwrap();
        from.write_all(tail).unwrap();
        let mut got = vec![0; 5000];
        server.read_exact(&mut got).unwrap();
        assert!(got == pattern(5000));
    });
}

#[test]
fn a_cancelled_handshake_says_so() {
    on_fibers(|| {
        let (client, server) = sockets();
        let fibers = [
            sinew::spawn(move || acceptor().accept(server).map(drop)),
            sinew::spawn(move || {
                // To one that never answers.
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let address = listener.local_addr().unwrap();
                super::connect(address).map(drop)
            }),
        ];
        for fiber in fibers {
            while fiber.fiber().wait_reason() != WaitReason::Read {
                sinew::yield_now();
            }
            fiber.cancel();
            let error = fiber.join().unwrap().unwrap_err();
            assert!(Cancelled::is_in(&error), "{error}");
        }
        drop(client);
    });
}

#[test]
fn a_cancelled_read_leaves_what_comes_to_the_next() {
    on_fibers(|| {
        let (mut client, mut server) = streams();
        let reader = sinew::spawn(move || {
            let error = server.read(&mut [0; 8]).unwrap_err();
            assert!(Cancelled::is_in(&error), "{error}");
            server
        });
        while reader.fiber().wait_reason() != WaitReason::Read {
            sinew::yield_now();
        }
        reader.cancel();
        let mut server = reader.join().unwrap();
        client.write_all(b"still here").unwrap();
        let mut text = [0; 10];
        server.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"still here");
    });
}

#[test]
fn a_client_gives_up_on_a_silent_server() {
    everywhere(|| {
        let (client, _server) = sockets();
        let impatient = connector().handshake_timeout(Duration::from_millis(5));
        let error = impatient.connect(name(), client).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn a_handshake_fits_into_half_of_the_default_stack() {
    on_fibers(|| {
        let (client, server) = sockets();
        let small = || sinew::Builder::new().stack_size(128 * 1024);
        let server = small()
            .spawn(move || acceptor().accept(server).map(drop))
            .unwrap();
        let client = small().spawn(move || connector().connect(name(), client).map(drop));
        client.unwrap().join().unwrap().unwrap();
        server.join().unwrap().unwrap();
    });
}
