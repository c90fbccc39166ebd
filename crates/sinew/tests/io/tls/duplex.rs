//! A connection that is read and written by reference.

use super::{pattern, sockets, streams};
use crate::harness::wait_until;
use crate::world::{everywhere, on_fibers};
use sinew::io::{Duplex, copy_bidirectional};
use sinew::{Cancelled, WaitReason};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;

const BULK: usize = 3_000_000;

#[test]
fn a_proxy_ends_tls_in_front_of_a_plain_server() {
    everywhere(|| {
        let (client, outer) = streams();
        let (inner, mut server) = sockets();
        let proxy = sinew::spawn(move || copy_bidirectional(&outer.into_duplex(), &inner).unwrap());
        // Both send more than fits anywhere, and tell their end.
        let server = sinew::spawn(move || {
            let mut other = server.try_clone().unwrap();
            let reader = sinew::spawn(move || {
                let mut got = Vec::new();
                other.read_to_end(&mut got).unwrap();
                got
            });
            server.write_all(&pattern(BULK + 1)).unwrap();
            server.shutdown(Shutdown::Write).unwrap();
            reader.join().unwrap()
        });
        let (mut from, mut to) = client.split();
        let writer = sinew::spawn(move || {
            to.write_all(&pattern(BULK)).unwrap();
            to.close_notify().unwrap();
        });
        let mut got = Vec::new();
        from.read_to_end(&mut got).unwrap();
        assert!(got == pattern(BULK + 1));
        writer.join().unwrap();
        assert!(server.join().unwrap() == pattern(BULK));
        assert_eq!(proxy.join().unwrap(), (BULK as u64, BULK as u64 + 1));
    });
}

#[test]
fn an_end_that_nobody_announced_is_no_end() {
    everywhere(|| {
        let (client, outer) = streams();
        let (inner, mut server) = sockets();
        let proxy = sinew::spawn(move || copy_bidirectional(&outer.into_duplex(), &inner));
        client.get_ref().shutdown(Shutdown::Write).unwrap();
        let error = proxy.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        // Whoever is behind the proxy is not told that all has come, but that it is over.
        assert_eq!(server.read(&mut [0; 1]).unwrap(), 0);
    });
}

#[test]
fn one_fiber_reads_while_another_writes_and_says_goodbye() {
    everywhere(|| {
        let (client, mut server) = streams();
        let client = std::sync::Arc::new(client.into_duplex());
        let reader = sinew::spawn({
            let client = client.clone();
            move || {
                let mut text = String::new();
                (&*client).read_to_string(&mut text).unwrap();
                text
            }
        });
        (&*client).write_all(b"there").unwrap();
        (&*client).flush().unwrap();
        client.shutdown_write().unwrap();
        let mut text = String::new();
        server.read_to_string(&mut text).unwrap();
        assert_eq!(text, "there");
        server.write_all(b"and back").unwrap();
        server.close_notify().unwrap();
        assert_eq!(reader.join().unwrap(), "and back");
    });
}

#[test]
fn a_cancellation_ends_a_read_and_who_waits_for_its_turn() {
    on_fibers(|| {
        let (client, _server) = streams();
        let client = std::sync::Arc::new(client.into_duplex());
        let readers = [(); 2].map(|()| {
            let client = client.clone();
            sinew::spawn(move || (&*client).read(&mut [0; 8]))
        });
        for reader in &readers {
            wait_until(|| reader.fiber().wait_reason() != WaitReason::None);
        }
        // The second first: it waits for the lock.
        for reader in readers.into_iter().rev() {
            reader.cancel();
            assert!(Cancelled::is_in(&reader.join().unwrap().unwrap_err()));
        }
    });
}
