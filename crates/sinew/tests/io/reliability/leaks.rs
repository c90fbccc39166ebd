//! Whether descriptors, stacks or timers are left behind.

use super::child::on_each_driver;
use super::leaving_nothing;
use crate::harness::{panic_expected, wait_until};
use crate::tcp::{listen, narrow_pair, pair};
use sinew::net::{TcpListener, TcpStream};
use sinew::{CancelToken, WaitReason};
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

/// Every way in which a wait and a socket can end.
pub(super) fn each_way_to_end() {
    for workers in [1, 2] {
        leaving_nothing(workers, |runtime| {
            for _ in 0..20 {
                runtime.run(one_of_each);
                // A fiber that panics with sockets on its stack.
                let (one, two) = pair();
                let panics = runtime.spawn(move || {
                    let _held = (&one, two.read_timeout());
                    (&one).write_all(b"x").unwrap();
                    panic_expected(1);
                });
                assert!(panics.join().is_err());
            }
        });
    }
    // Runtimes that end while somebody waits.
    for workers in [1, 2] {
        for _ in 0..5 {
            leaving_nothing(workers, |runtime| {
                let (client, server) = pair();
                let (listener, stop) = (listen(), CancelToken::new());
                let theirs = stop.clone();
                let reads = runtime.spawn(move || {
                    let _kept = client;
                    theirs.enter(|| (&server).read(&mut [0; 8]).map(|_| ()))
                });
                let theirs = stop.clone();
                let accepts = runtime
                    .spawn(move || theirs.enter(|| listener.into_incoming().next().map(|_| ())));
                wait_until(|| {
                    reads.fiber().wait_reason() == WaitReason::Read
                        && accepts.fiber().wait_reason() == WaitReason::Accept
                });
                stop.cancel();
                assert!(reads.join().unwrap().is_err());
                accepts.join().unwrap();
            });
        }
    }
}

fn one_of_each() {
    let short = Duration::from_millis(2);
    // Cancelled, timed out and closed while waiting.
    let (client, server) = pair();
    assert!(sinew::timeout(short, || (&server).read(&mut [0; 8])).is_err());
    server.set_read_timeout(Some(short)).unwrap();
    assert!((&server).read(&mut [0; 8]).is_err());
    server.set_read_timeout(None).unwrap();
    let clone = server.try_clone().unwrap();
    let reader = sinew::spawn(move || (&clone).read(&mut [0; 8]).is_err());
    wait_until(|| reader.fiber().wait_reason() == WaitReason::Read);
    server.close().unwrap();
    reader.join().unwrap();
    drop((client, server));
    // To std and back.
    let (client, server) = pair();
    let std = client.into_std().unwrap();
    let duplicate = std.try_clone().unwrap();
    drop((TcpStream::from(std), duplicate, server));
    // A write that is given up.
    let (client, server) = narrow_pair();
    assert!(sinew::timeout(short, || (&client).write_all(&[0; 1 << 20])).is_err());
    drop((client, server));
    // Accepted, accepted ahead, and left in the backlog.
    let listener = listen();
    let address = listener.local_addr().unwrap();
    let clients: Vec<_> = (0..100)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    drop(listener.accept().unwrap());
    let mut incoming = listener.into_incoming();
    drop(incoming.next().unwrap().unwrap());
    drop((incoming, clients));
    // A connection that is refused, and one that is given up.
    assert!(TcpStream::connect(address).is_err());
    let full = TcpListener::builder()
        .backlog(0)
        .bind("127.0.0.1:0")
        .unwrap();
    let address = full.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, 5 * short) {
        waiting.push(stream);
        assert!(waiting.len() < 16, "the backlog is never full");
    }
}

#[test]
fn no_way_to_end_a_wait_leaves_anything_behind() {
    on_each_driver("leaks");
}

/// Sockets that are used on both workers, and dropped wherever.
pub(super) fn moved_about() {
    leaving_nothing(2, |runtime| {
        for round in 0..300u32 {
            let (client, server) = pair();
            let (client, server) = (Arc::new(client), Arc::new(server));
            let readers: Vec<_> = (0..4)
                .map(|_| {
                    let theirs = server.clone();
                    let spread = sinew::Builder::new().spread();
                    let read = move || (&*theirs).read(&mut [0; 1]).unwrap();
                    spread.spawn_on(&runtime.handle(), read).unwrap()
                })
                .collect();
            wait_until(|| {
                readers
                    .iter()
                    .all(|reader| reader.fiber().wait_reason() == WaitReason::Read)
            });
            (&*client).write_all(b"four").unwrap();
            let last = server.clone();
            drop(server);
            for reader in readers {
                assert_eq!(reader.join().unwrap(), 1);
            }
            // Its last owner is a thread, a fiber, or one that is gone by itself.
            match round % 3 {
                0 => drop(last),
                1 => runtime.spawn(move || drop(last)).join().unwrap(),
                _ => std::thread::spawn(move || drop(last)).join().unwrap(),
            }
            wait_until(|| {
                client.set_nonblocking(true).unwrap();
                matches!((&*client).read(&mut [0; 1]), Ok(0))
            });
        }
    });
}

#[test]
fn sockets_dropped_elsewhere_leave_nothing_behind() {
    on_each_driver("moved");
}
