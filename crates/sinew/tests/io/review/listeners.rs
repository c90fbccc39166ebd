//! Listeners that are shared, non-blocking, or gone.

use super::{child, hear};
use crate::close::{Who, waiting};
use crate::harness::watch;
use crate::tcp::{has_flag_nonblocking, listen};
use crate::world::{drivers, everywhere, on_fibers, runtime};
use sinew::WaitReason;
use sinew::net::{TcpListener, TcpStream};
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Accepts one connection.
fn accept_one(listener: &TcpListener) {
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (_, from) = listener.accept().unwrap();
    assert_eq!(from, client.local_addr().unwrap());
}

/// Sets what a duplicate shares with the listener.
fn share_nonblocking(listener: &TcpListener) {
    let duplicate = listener.as_fd().try_clone_to_owned().unwrap();
    let duplicate = std::net::TcpListener::from(duplicate);
    duplicate.set_nonblocking(true).unwrap();
}

#[test]
fn into_std_of_a_listener_whose_clones_must_not_block_is_an_error() {
    everywhere(|| {
        let listener = listen();
        accept_one(&listener);
        let clone = listener.try_clone().unwrap();
        let made_so = has_flag_nonblocking(&listener);
        match listener.into_std() {
            Ok(std) => {
                // A ring needs no such setting, so both may have what they want.
                assert!(!made_so);
                assert!(!has_flag_nonblocking(&std));
            }
            Err(error) => {
                assert!(made_so);
                assert_eq!(error.kind(), ErrorKind::ResourceBusy);
            }
        }
        // The clone goes on in any case, and alone it may.
        accept_one(&clone);
        let std = clone.into_std().unwrap();
        assert!(!has_flag_nonblocking(&std));
        let _client = TcpStream::connect(std.local_addr().unwrap()).unwrap();
        std.accept().unwrap();
    });
}

#[test]
fn on_a_thread_a_listener_with_clones_is_not_handed_to_std() {
    let _watch = watch();
    let listener = listen();
    accept_one(&listener);
    let clone = listener.try_clone().unwrap();
    let error = listener.into_std().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceBusy);
    drop(clone);
}

#[test]
fn a_listener_that_a_thread_made_non_blocking_is_waited_for_by_an_iterator() {
    let _watch = watch();
    for driver in drivers() {
        for workers in [1, 2] {
            let runtime = runtime(driver, workers);
            let listener = listen();
            accept_one(&listener);
            assert!(has_flag_nonblocking(&listener));
            runtime.run(|| iterate_and_connect(&listener));
        }
    }
}

/// Has an iterator wait before somebody connects.
fn iterate_and_connect(listener: &TcpListener) {
    let clone = listener.try_clone().unwrap();
    let first = waiting(Who::Here, WaitReason::Accept, move || {
        let peer = clone.incoming().next().unwrap();
        peer.map(|peer| peer.peer_addr().unwrap())
    });
    // If the kernel refuses to wait it has said so by now.
    hear();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    assert_eq!(first.join().unwrap(), client.local_addr().unwrap());
}

#[test]
fn an_iterator_waits_although_a_duplicate_is_made_non_blocking() {
    on_fibers(|| {
        // Before it begins.
        let listener = listen();
        share_nonblocking(&listener);
        iterate_and_connect(&listener);
        // While it waits, and between two connections.
        let listener = listen();
        let address = listener.local_addr().unwrap();
        let clone = listener.try_clone().unwrap();
        let three = waiting(Who::Here, WaitReason::Accept, move || {
            let peers = clone.incoming().take(3);
            peers
                .map(|peer| peer.map(|peer| peer.peer_addr().unwrap()))
                .collect::<Vec<_>>()
        });
        hear();
        share_nonblocking(&listener);
        let mut expected = Vec::new();
        let clients: Vec<_> = (0..3)
            .map(|_| {
                let client = std::net::TcpStream::connect(address).unwrap();
                expected.push(client.local_addr().unwrap());
                hear(); // so that it waits again
                client
            })
            .collect();
        let got: Vec<_> = three.join().into_iter().map(Result::unwrap).collect();
        assert_eq!(got, expected);
        drop(clients);
    });
}

#[test]
fn an_iterator_says_would_block_while_a_clone_wants_that() {
    everywhere(|| {
        let listener = listen();
        let address = listener.local_addr().unwrap();
        let clone = listener.try_clone().unwrap();
        for has_begun in [true, false] {
            let mut incoming = listener.incoming();
            if has_begun {
                let _client = std::net::TcpStream::connect(address).unwrap();
                incoming.next().unwrap().unwrap();
            }
            clone.set_nonblocking(true).unwrap();
            for _ in 0..3 {
                let error = incoming.next().unwrap().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
            }
            let client = std::net::TcpStream::connect(address).unwrap();
            let peer = loop {
                match incoming.next().unwrap() {
                    Ok(peer) => break peer,
                    // The kernel's answer comes when the worker looks.
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
                sinew::yield_now();
            };
            assert_eq!(peer.peer_addr().unwrap(), client.local_addr().unwrap());
            clone.set_nonblocking(false).unwrap();
            let connects = sinew::spawn(move || TcpStream::connect(address).unwrap());
            let peer = incoming.next().unwrap().unwrap();
            let client = connects.join().unwrap();
            assert_eq!(peer.peer_addr().unwrap(), client.local_addr().unwrap());
        }
    });
}

pub(super) fn refuse_an_iterator_and_reuse_its_number() {
    child::runtime(1).run(|| {
        let listener = listen();
        let number = listener.as_raw_fd();
        let mut incoming = listener.into_incoming();
        let next = sinew::no_suspend(|| {
            // Nothing is there, and it must not wait.
            let refused = catch_unwind(AssertUnwindSafe(|| incoming.next()));
            assert!(refused.is_err());
            drop(incoming);
            std::net::TcpListener::bind("127.0.0.1:0").unwrap()
        });
        assert_eq!(next.as_raw_fd(), number);
        let client = std::net::TcpStream::connect(next.local_addr().unwrap()).unwrap();
        hear();
        next.set_nonblocking(true).unwrap();
        let (_, from) = next.accept().unwrap();
        assert_eq!(from, client.local_addr().unwrap());
    });
}

#[test]
fn an_iterator_that_was_refused_to_wait_takes_nothing_from_who_has_its_number_next() {
    child::run("number");
}
