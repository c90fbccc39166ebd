//! Connections: by name, by pairs, while the backlog is full.

use super::{Folder, assert_closed, assert_would_block, is_nonblocking, name};
use crate::harness::wait_until;
use crate::world::everywhere;
use sinew::net::{UnixDatagram, UnixListener, UnixStream};
use sinew::{Cancelled, WaitReason};
use socket2::SockRef;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::time::Duration;

#[test]
fn a_stream_by_a_path_has_its_name() {
    everywhere(|| {
        let folder = Folder::new();
        let path = folder.file("listener");
        let listener = UnixListener::bind(&path).unwrap();
        let taken = UnixListener::bind(&path).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AddrInUse);
        let at = listener.local_addr().unwrap();
        assert_eq!(at.as_pathname(), Some(&*path));
        let server = sinew::spawn(move || {
            let (mut peer, from) = listener.accept().unwrap();
            assert!(from.is_unnamed());
            assert_eq!(peer.local_addr().unwrap().as_pathname(), at.as_pathname());
            let mut text = String::new();
            peer.read_to_string(&mut text).unwrap();
            peer.write_all(text.to_uppercase().as_bytes()).unwrap();
        });
        let mut stream = UnixStream::connect(&path).unwrap();
        assert!(!is_nonblocking(&stream));
        assert_eq!(stream.peer_addr().unwrap().as_pathname(), Some(&*path));
        assert!(stream.local_addr().unwrap().is_unnamed());
        stream.write_all(b"hello").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "HELLO");
        server.join().unwrap();
        // The listener is gone, its file is not.
        let refused = UnixStream::connect(&path).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        let missing = UnixStream::connect(folder.file("none")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    });
}

#[test]
fn a_stream_by_an_abstract_name_has_its_name() {
    everywhere(|| {
        let at = name();
        let listener = UnixListener::bind_addr(&at).unwrap();
        let own = listener.local_addr().unwrap();
        assert_eq!(own.as_abstract_name(), at.as_abstract_name());
        let server = sinew::spawn(move || {
            let (mut peer, from) = listener.accept().unwrap();
            assert!(from.is_unnamed());
            peer.write_all(b"hi").unwrap();
        });
        let mut stream = UnixStream::connect_addr(&at).unwrap();
        let peer = stream.peer_addr().unwrap();
        assert_eq!(peer.as_abstract_name(), at.as_abstract_name());
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hi");
        server.join().unwrap();
        let refused = UnixStream::connect_addr(&at).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_path_that_the_system_cannot_have_is_invalid_input() {
    everywhere(|| {
        for path in ["x".repeat(200), "a\0b".to_owned()] {
            let errors = [
                UnixStream::connect(&path).unwrap_err(),
                UnixListener::bind(&path).unwrap_err(),
                UnixDatagram::bind(&path).unwrap_err(),
                UnixDatagram::unbound().unwrap().connect(&path).unwrap_err(),
                UnixDatagram::unbound()
                    .unwrap()
                    .send_to(b"x", &path)
                    .unwrap_err(),
            ];
            for error in errors {
                assert_eq!(error.kind(), ErrorKind::InvalidInput);
            }
        }
    });
}

#[test]
fn both_ends_of_a_pair_read_and_write_at_once() {
    everywhere(|| {
        let (one, other) = UnixStream::pair().unwrap();
        assert!(one.peer_addr().unwrap().is_unnamed());
        let data: Vec<u8> = (0..1_000_000u32).map(|byte| byte as u8).collect();
        let (data, one, other) = (&data, &one, &other);
        sinew::scope(|s| {
            for mut end in [one, other] {
                // Far more than fits into the socket.
                s.spawn(move || {
                    end.write_all(data).unwrap();
                    end.shutdown(Shutdown::Write).unwrap();
                });
                s.spawn(move || {
                    let mut read = Vec::new();
                    end.read_to_end(&mut read).unwrap();
                    assert!(read == *data);
                });
            }
        });
    });
}

#[test]
fn a_stream_moves_several_buffers_in_one_call_and_peeks() {
    everywhere(|| {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let parts = [IoSlice::new(b"he"), IoSlice::new(b""), IoSlice::new(b"llo")];
        assert_eq!(one.write_vectored(&parts).unwrap(), 5);
        one.flush().unwrap();
        let mut seen = [0; 4];
        assert_eq!(other.peek(&mut seen).unwrap(), 4);
        assert_eq!(&seen, b"hell");
        let (mut first, mut second) = ([0; 1], [0; 8]);
        let mut parts = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        assert_eq!(other.read_vectored(&mut parts).unwrap(), 5);
        assert_eq!((&first, &second[..4]), (b"h", &b"ello"[..]));
    });
}

#[test]
fn a_stream_s_timeouts_are_would_block_and_lose_nothing() {
    everywhere(|| {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let short = Some(Duration::from_millis(5));
        let zero = one.set_write_timeout(Some(Duration::ZERO)).unwrap_err();
        assert_eq!(zero.kind(), ErrorKind::InvalidInput);
        one.set_read_timeout(short).unwrap();
        one.set_write_timeout(short).unwrap();
        assert_eq!(one.read_timeout().unwrap(), short);
        assert_eq!(one.write_timeout().unwrap(), short);
        let mut buffer = [0; 8];
        assert_would_block(one.read(&mut buffer));
        other.write_all(b"later").unwrap();
        assert_eq!(one.read(&mut buffer).unwrap(), 5);
        let mut written = 0;
        let full = loop {
            match one.write(&[7; 65_536]) {
                Ok(count) => written += count,
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        drop(one);
        let mut all = Vec::new();
        other.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), written);
    });
}

#[test]
fn incoming_connections_end_when_the_listener_is_closed() {
    everywhere(|| {
        let at = name();
        let listener = UnixListener::bind_addr(&at).unwrap();
        let clone = listener.try_clone().unwrap();
        let greet = |peers: &mut dyn Iterator<Item = io::Result<UnixStream>>| {
            let mut served = 0;
            let end = loop {
                match peers.next() {
                    Some(Ok(mut peer)) => peer.write_all(b"hi").unwrap(),
                    Some(Err(error)) => break error,
                    None => unreachable!("not without an error"),
                }
                served += 1;
            };
            assert!(peers.next().is_none());
            (served, end.kind())
        };
        let server = sinew::spawn(move || {
            let mut first = (&listener).into_iter();
            first.next().unwrap().unwrap().write_all(b"hi").unwrap();
            assert!(format!("{first:?}").contains("UnixListener"));
            drop(first);
            let mut second = listener.incoming();
            second.next().unwrap().unwrap().write_all(b"hi").unwrap();
            drop(second);
            let mut rest = listener.into_incoming();
            assert!(format!("{rest:?}").contains("UnixListener"));
            greet(&mut rest)
        });
        for _ in 0..5 {
            let mut text = String::new();
            let stream = UnixStream::connect_addr(&at).unwrap();
            // An iterator that ends closes what it had accepted ahead.
            match (&stream).read_to_string(&mut text) {
                Ok(0) => {}
                Ok(_) => assert_eq!(text, "hi"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
            }
        }
        wait_until(|| server.fiber().wait_reason() == WaitReason::Accept);
        clone.close().unwrap();
        let (served, end) = server.join().unwrap();
        assert!(served <= 3, "{served}");
        assert_eq!(end, ErrorKind::NotConnected);
    });
}

#[test]
fn closing_a_listener_wakes_who_accepts_on_all_workers_and_on_threads() {
    everywhere(|| {
        let listener = UnixListener::bind_addr(&name()).unwrap();
        let accept = || {
            let listener = listener.try_clone().unwrap();
            move || listener.accept().map(drop)
        };
        let fibers: Vec<_> = (0..4)
            .map(|_| sinew::Builder::new().spread().spawn(accept()).unwrap())
            .collect();
        let threads: Vec<_> = (0..2).map(|_| std::thread::spawn(accept())).collect();
        for fiber in &fibers {
            wait_until(|| fiber.fiber().wait_reason() == WaitReason::Accept);
        }
        listener.close().unwrap();
        for fiber in fibers {
            assert_closed(fiber.join().unwrap());
        }
        for thread in threads {
            assert_closed(sinew::blocking(|| thread.join().unwrap()));
        }
        assert_closed(listener.accept().map(drop));
    });
}

#[test]
fn a_cancelled_accept_leaves_the_connection_to_the_next() {
    everywhere(|| {
        let at = name();
        let listener = UnixListener::bind_addr(&at).unwrap();
        let clone = listener.try_clone().unwrap();
        let acceptor = sinew::spawn(move || clone.accept().map(drop));
        wait_until(|| acceptor.fiber().wait_reason() == WaitReason::Accept);
        acceptor.cancel();
        let error = acceptor.join().unwrap().unwrap_err();
        assert!(Cancelled::is_in(&error), "{error:?}");
        let mut stream = UnixStream::connect_addr(&at).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        listener.set_nonblocking(true).unwrap();
        assert_would_block(listener.accept());
    });
}

/// A listener whose backlog has room for one, taken.
fn full(at: &SocketAddr) -> (UnixListener, UnixStream) {
    let listener = UnixListener::bind_addr(at).unwrap();
    SockRef::from(&listener).listen(0).unwrap();
    let first = UnixStream::connect_addr(at).unwrap();
    (listener, first)
}

#[test]
fn a_connect_waits_while_the_backlog_is_full() {
    everywhere(|| {
        let at = name();
        let (listener, mut first) = full(&at);
        let connects: Vec<_> = (0..5u8)
            .map(|number| {
                let at = at.clone();
                sinew::spawn(move || {
                    let mut stream = UnixStream::connect_addr(&at).unwrap();
                    assert!(!is_nonblocking(&stream));
                    stream.write_all(&[number]).unwrap();
                })
            })
            .collect();
        for connect in &connects {
            wait_until(|| connect.fiber().wait_reason() == WaitReason::Connect);
        }
        first.write_all(&[9]).unwrap();
        let mut numbers: Vec<u8> = (0..6)
            .map(|_| {
                let (mut peer, _) = listener.accept().unwrap();
                let mut number = [0];
                peer.read_exact(&mut number).unwrap();
                number[0]
            })
            .collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 9]);
        for connect in connects {
            connect.join().unwrap();
        }
    });
}

#[test]
fn a_thread_s_connect_waits_while_the_backlog_is_full() {
    everywhere(|| {
        let at = name();
        let (listener, _first) = full(&at);
        let address = at.clone();
        let connect = std::thread::spawn(move || UnixStream::connect_addr(&address).map(drop));
        for _ in 0..2 {
            listener.accept().unwrap();
        }
        sinew::blocking(|| connect.join().unwrap()).unwrap();
    });
}

#[test]
fn a_connect_that_waits_for_the_backlog_can_be_cancelled() {
    everywhere(|| {
        let at = name();
        let (listener, _first) = full(&at);
        let address = at.clone();
        let connect = sinew::spawn(move || UnixStream::connect_addr(&address).map(drop));
        wait_until(|| connect.fiber().wait_reason() == WaitReason::Connect);
        connect.cancel();
        let error = connect.join().unwrap().unwrap_err();
        assert!(Cancelled::is_in(&error), "{error:?}");
        listener.accept().unwrap();
        listener.set_nonblocking(true).unwrap();
        assert_would_block(listener.accept());
    });
}

#[test]
fn a_connect_that_waits_for_the_backlog_is_refused_when_the_listener_goes() {
    everywhere(|| {
        let at = name();
        let (listener, _first) = full(&at);
        let address = at.clone();
        let connect = sinew::spawn(move || UnixStream::connect_addr(&address).map(drop));
        wait_until(|| connect.fiber().wait_reason() == WaitReason::Connect);
        drop(listener);
        let error = connect.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn closing_a_stream_wakes_who_reads_and_who_writes() {
    everywhere(|| {
        let (one, other) = UnixStream::pair().unwrap();
        let (reading, mut writing) = (one.try_clone().unwrap(), one.try_clone().unwrap());
        let reader = sinew::spawn(move || (&reading).read(&mut [0; 8]));
        let writer = sinew::spawn(move || writing.write_all(&vec![0; 8 << 20]));
        wait_until(|| reader.fiber().wait_reason() == WaitReason::Read);
        wait_until(|| writer.fiber().wait_reason() == WaitReason::Write);
        one.close().unwrap();
        assert_closed(reader.join().unwrap());
        assert_closed(writer.join().unwrap());
        assert_closed((&one).read(&mut [0]));
        assert_closed((&one).write(&[0]));
        let mut rest = Vec::new();
        (&other).read_to_end(&mut rest).unwrap();
    });
}
