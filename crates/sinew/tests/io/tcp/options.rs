//! Settings of sockets, and what they say of themselves.

use super::{has_flag_nonblocking, listen, pair};
use crate::world::everywhere;
use sinew::net::TcpStream;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

#[test]
fn small_writes_are_sent_at_once_if_told() {
    everywhere(|| {
        let (client, _server) = pair();
        assert!(!client.nodelay().unwrap());
        client.set_nodelay(true).unwrap();
        assert!(client.nodelay().unwrap());
        // A clone is the same connection.
        assert!(client.try_clone().unwrap().nodelay().unwrap());
    });
}

#[test]
fn the_number_of_hops_can_be_set() {
    everywhere(|| {
        let listener = listen();
        listener.set_ttl(33).unwrap();
        assert_eq!(listener.ttl().unwrap(), 33);
        let (client, _server) = pair();
        client.set_ttl(44).unwrap();
        assert_eq!(client.ttl().unwrap(), 44);
        let error = client.set_ttl(0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn lingering_can_be_set() {
    everywhere(|| {
        let (client, _server) = pair();
        assert_eq!(client.linger().unwrap(), None);
        for linger in [Some(Duration::from_secs(3)), Some(Duration::ZERO), None] {
            client.set_linger(linger).unwrap();
            assert_eq!(client.linger().unwrap(), linger);
        }
    });
}

#[test]
fn a_connection_closed_without_lingering_is_reset() {
    everywhere(|| {
        let (client, mut server) = pair();
        client.set_linger(Some(Duration::ZERO)).unwrap();
        drop(client);
        let error = server.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        // It was told once; what is left is the end.
        assert_eq!(server.read(&mut [0; 8]).unwrap(), 0);
        let error = server.write(b"x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn a_pending_error_can_be_taken() {
    everywhere(|| {
        let (client, server) = pair();
        assert!(server.take_error().unwrap().is_none());
        assert!(listen().take_error().unwrap().is_none());
        client.set_linger(Some(Duration::ZERO)).unwrap();
        drop(client);
        let error = server.take_error().unwrap().expect("it was reset");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert!(server.take_error().unwrap().is_none());
    });
}

#[test]
fn what_must_not_wait_says_that_it_would() {
    everywhere(|| {
        let (client, server) = pair();
        let would_block = |result: std::io::Result<usize>| {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::WouldBlock);
        };
        client.set_nonblocking(true).unwrap();
        would_block((&client).read(&mut [0; 8]));
        would_block(client.peek(&mut [0; 8]));
        would_block((&client).read_vectored(&mut [std::io::IoSliceMut::new(&mut [0; 8])]));
        let written = loop {
            if let Err(error) = (&client).write(&[1; 64 << 10]) {
                break error;
            }
        };
        assert_eq!(written.kind(), ErrorKind::WouldBlock);
        // Clones are the same connection; the descriptor is not touched.
        would_block(client.try_clone().unwrap().read(&mut [0; 8]));
        assert!(!has_flag_nonblocking(&client));
        client.set_nonblocking(false).unwrap();
        (&server).write_all(b"now").unwrap();
        let mut text = [0; 3];
        (&client).read_exact(&mut text).unwrap();
        assert_eq!(&text, b"now");
    });
}

#[test]
fn a_listener_that_must_not_wait_says_that_it_would() {
    everywhere(|| {
        let listener = listen();
        listener.set_nonblocking(true).unwrap();
        let would_block = |error: std::io::Error| assert_eq!(error.kind(), ErrorKind::WouldBlock);
        would_block(listener.accept().map(|_| ()).unwrap_err());
        let mut incoming = listener.incoming();
        // It is no end: more may come.
        would_block(incoming.next().unwrap().map(|_| ()).unwrap_err());
        would_block(incoming.next().unwrap().map(|_| ()).unwrap_err());
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let accepted = loop {
            // On loopback it is there at once; but that is the kernel's affair.
            if let Ok(accepted) = incoming.next().unwrap() {
                break accepted;
            }
        };
        assert_eq!(accepted.peer_addr().unwrap(), client.local_addr().unwrap());
        // What was accepted waits as usual.
        (&client).write_all(b"x").unwrap();
        assert_eq!((&accepted).read(&mut [0; 8]).unwrap(), 1);
    });
}

#[test]
fn a_listener_may_be_told_not_to_wait_while_it_iterates() {
    everywhere(|| {
        let listener = listen();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut incoming = listener.incoming();
        incoming.next().unwrap().unwrap();
        listener.set_nonblocking(true).unwrap();
        // A limit, so that one that waits fails instead of hanging.
        let next = sinew::timeout(Duration::from_secs(1), || incoming.next());
        let next = next.expect("it waits").unwrap();
        assert_eq!(next.map(|_| ()).unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(client);
    });
}

#[test]
fn streams_never_share_the_setting_not_to_block() {
    everywhere(|| {
        let (client, server) = pair();
        let reader = sinew::spawn({
            let server = server.try_clone().unwrap();
            move || (&server).read(&mut [0; 8]).unwrap()
        });
        (&client).write_all(b"x").unwrap();
        reader.join().unwrap();
        // Neither by connecting, nor by accepting, nor by waiting.
        assert!(!has_flag_nonblocking(&client));
        assert!(!has_flag_nonblocking(&server));
    });
}

#[test]
fn debug_output_names_addresses_and_descriptor() {
    everywhere(|| {
        let (client, _server) = pair();
        let listener = listen();
        let (local, peer) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        let fd = client.as_raw_fd();
        assert_eq!(client.as_fd().as_raw_fd(), fd);
        let text = format!("{client:?}");
        assert!(text.starts_with("TcpStream {"), "{text}");
        for part in [local.to_string(), peer.to_string(), fd.to_string()] {
            assert!(text.contains(&part), "no {part} in {text}");
        }
        let address = listener.local_addr().unwrap().to_string();
        for text in [
            format!("{listener:?}"),
            format!("{:?}", listener.incoming()),
            format!("{:?}", listener.try_clone().unwrap().into_incoming()),
        ] {
            assert!(text.contains(&address), "no {address} in {text}");
        }
        assert!(format!("{listener:?}").starts_with("TcpListener {"));
    });
}
