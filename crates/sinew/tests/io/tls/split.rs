//! The halves of a connection.

use super::{acceptor, client_config, name, pattern, sockets, streams};
use crate::world::everywhere;
use sinew::tls::rustls::{ClientConnection, StreamOwned};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

#[test]
fn one_fiber_reads_while_another_writes() {
    everywhere(|| {
        // Each side writes more than the system buffers before it reads in turn: with
        // one fiber each, nobody would go on.
        let (client, server) = streams();
        let sides = [client, server].map(|stream| {
            let (mut from, mut to) = stream.split();
            let writer = sinew::spawn(move || {
                to.write_all(&pattern(9_000_000)).unwrap();
                to.close_notify().unwrap();
            });
            let reader = sinew::spawn(move || {
                let mut got = Vec::new();
                from.read_to_end(&mut got).unwrap();
                assert!(got == pattern(9_000_000));
            });
            [reader, writer]
        });
        for fiber in sides.into_iter().flatten() {
            fiber.join().unwrap();
        }
    });
}

#[test]
fn a_half_loses_nothing_when_its_time_is_over() {
    everywhere(|| {
        let (client, mut server) = streams();
        let (mut from, mut to) = client.split();
        let tick = Some(Duration::from_millis(1));
        from.get_ref().set_read_timeout(tick).unwrap();
        let error = from.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        to.get_ref().set_write_timeout(tick).unwrap();
        let sent = pattern(12_000_000);
        let mut rest = &sent[..];
        while let Ok(count) = to.write(rest) {
            rest = &rest[count..];
        }
        let expected = sent.clone();
        let server = sinew::spawn(move || {
            let mut got = Vec::new();
            server.read_to_end(&mut got).unwrap();
            assert!(got == expected);
        });
        while !rest.is_empty() {
            match to.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        to.get_ref().set_write_timeout(None).unwrap();
        to.close_notify().unwrap();
        server.join().unwrap();
    });
}

#[test]
fn a_half_tells_an_end_that_nobody_announced() {
    everywhere(|| {
        let (client, mut server) = streams();
        server.write_all(b"and then").unwrap();
        server.get_ref().shutdown(Shutdown::Write).unwrap();
        let (mut from, _to) = client.split();
        let mut text = Vec::new();
        let error = from.read_to_end(&mut text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        assert_eq!(text, b"and then");
    });
}

#[test]
fn the_peer_may_ask_for_new_keys_at_any_time() {
    everywhere(|| {
        let (client, server) = sockets();
        let echo = sinew::spawn(move || {
            // The half that reads hears of it, the one that writes answers.
            let (mut from, mut to) = acceptor().accept(server).unwrap().split();
            std::io::copy(&mut from, &mut to).unwrap();
            to.close_notify().unwrap();
        });
        let connection = ClientConnection::new(client_config(), name()).unwrap();
        let mut client = StreamOwned::new(connection, client);
        for _ in 0..3 {
            client.write_all(&pattern(100_000)).unwrap();
            client.conn.refresh_traffic_keys().unwrap();
        }
        client.conn.send_close_notify();
        client.flush().unwrap();
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        assert!(got == pattern(100_000).repeat(3));
        echo.join().unwrap();
    });
}
