//! A forked child shares descriptors, registrations and the ring with its parent, and
//! must leave them alone.

use super::child::{run, runtime};
use crate::harness::{Gate, wait_until};
use crate::tcp::listen;
use sinew::io::Async;
use sinew::net::TcpStream;
use sinew::{Runtime, WaitReason};
use std::io::{Read, Write};

/// Forks; none in the child, which ends by itself should it hang.
fn fork() -> Option<libc::pid_t> {
    // SAFETY: what the cases do in the child before they `leave` is what they test.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: no pointers.
            unsafe { libc::alarm(60) };
            None
        }
        child => {
            assert!(child > 0, "{}", std::io::Error::last_os_error());
            Some(child)
        }
    }
}

/// Ends the child, running nothing else.
fn leave() -> ! {
    // SAFETY: it ends the process.
    unsafe { libc::_exit(0) }
}

/// Waits until the child has left, which it must have done by `leave`.
fn has_left(child: libc::pid_t) {
    let mut status = -1;
    // SAFETY: our own child, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the forked child failed");
}

/// Has a fiber read a byte that is written when it waits; what it read from.
fn read_later<R: Read + Send + 'static>(
    runtime: &Runtime,
    mut from: R,
    mut writer: impl Write,
) -> R {
    let reader = runtime.spawn(move || {
        from.read_exact(&mut [0]).unwrap();
        from
    });
    wait_until(|| reader.fiber().wait_reason() == WaitReason::Read);
    writer.write_all(b"x").unwrap();
    reader.join().unwrap()
}

fn drop_in_a_child<R: Read + Send + 'static>(from: R, writer: impl Write) {
    let mut writer = writer;
    let runtime = runtime(1);
    let from = read_later(&runtime, from, &mut writer);
    let Some(child) = fork() else {
        drop(from);
        leave();
    };
    has_left(child);
    drop(read_later(&runtime, from, &mut writer));
}

pub(super) fn drop_a_socket() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    drop_in_a_child(TcpStream::from(server), client);
}

#[test]
fn a_socket_that_a_forked_child_drops_is_still_watched_for_the_parent() {
    run("fork, socket");
}

pub(super) fn drop_any_descriptor() {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    drop_in_a_child(Async::new(ours).unwrap(), theirs);
}

#[test]
fn any_descriptor_that_a_forked_child_drops_is_still_watched_for_the_parent() {
    run("fork, any descriptor");
}

pub(super) fn drop_an_iterator() {
    let runtime = runtime(1);
    let (tell, told) = std::sync::mpsc::channel();
    let forked = Gate::new();
    let theirs = forked.clone();
    let accepts = runtime.spawn(move || {
        let listener = listen();
        let address = listener.local_addr().unwrap();
        let mut incoming = listener.into_incoming();
        let first = std::net::TcpStream::connect(address).unwrap();
        drop(incoming.next().unwrap().unwrap());
        let Some(child) = fork() else {
            drop(incoming);
            leave();
        };
        has_left(child);
        drop(first);
        tell.send(address).unwrap();
        theirs.open();
        let peer = incoming.next().unwrap().unwrap();
        peer.peer_addr().unwrap()
    });
    forked.pass();
    let address = told.recv().unwrap();
    wait_until(|| accepts.fiber().wait_reason() == WaitReason::Accept);
    // The worker has asked its kernel again: what the child might have left there would
    // have come to effect.
    runtime.run(super::hear);
    let second = std::net::TcpStream::connect(address).unwrap();
    assert_eq!(accepts.join().unwrap(), second.local_addr().unwrap());
}

#[test]
fn an_iterator_that_a_forked_child_drops_goes_on_in_the_parent() {
    run("fork, iterator");
}

pub(super) fn write_often() {
    runtime(1).run(|| {
        let (mut client, mut server) = crate::tcp::pair();
        client.write_all(b"x").unwrap();
        let Some(child) = fork() else {
            for _ in 0..100 {
                if client.write_all(b"y").is_err() {
                    std::process::abort();
                }
            }
            leave();
        };
        has_left(child);
        let mut all = [0; 101];
        server.read_exact(&mut all).unwrap();
        assert_eq!((all[0], &all[1..]), (b'x', &[b'y'; 100][..]));
    });
}

#[test]
fn a_forked_child_writes_as_often_as_it_likes() {
    run("fork, writes");
}
