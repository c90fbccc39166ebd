//! What a second review found.

use crate::harness::watch;
use crate::tcp::{listen, pair};
use crate::world::{drivers, everywhere, runtime};
use sinew::io::Async;
use sinew::net::{TcpStream, UnixStream};
use socket2::SockRef;
use std::io::{ErrorKind, IoSliceMut, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A peer must not be able to say that our listener was closed.
#[test]
fn a_connection_that_was_accepted_ahead_and_reset_is_no_error() {
    everywhere(|| {
        let listener = listen();
        let address = listener.local_addr().unwrap();
        let clients = [(); 4].map(|()| TcpStream::connect(address).unwrap());
        // On a ring all of them, most likely; the rest is left.
        drop(listener.incoming().next().unwrap().unwrap());
        let [_, reset, reset_too, stays] = clients;
        for client in [reset, reset_too] {
            client.set_linger(Some(Duration::ZERO)).unwrap();
            drop(client);
        }
        let wanted = stays.local_addr().unwrap();
        // Those that were reset may be found or not, as the kernel likes.
        while listener.accept().unwrap().1 != wanted {}
    });
}

/// On one worker `other` must have its turn before `call` was made a thousand times.
fn lets_others_run(mut call: impl FnMut()) {
    let ran = Arc::new(AtomicBool::new(false));
    let other = sinew::spawn({
        let ran = ran.clone();
        move || ran.store(true, Ordering::Relaxed)
    });
    let calls = (0..1000).take_while(|_| {
        call();
        !ran.load(Ordering::Relaxed)
    });
    assert!(calls.count() < 1000);
    other.join().unwrap();
}

#[test]
fn calls_that_never_wait_let_others_run_whatever_they_answer() {
    let _watch = watch();
    for driver in drivers() {
        runtime(driver, 1).run(|| {
            let (mut one, mut other) = UnixStream::pair().unwrap();
            one.set_nonblocking(true).unwrap();
            // Nothing is there.
            lets_others_run(|| {
                let error = one.read(&mut [0]).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
            });
            // There is.
            other.write_all(&[7; 2000]).unwrap();
            lets_others_run(|| assert_eq!(one.read(&mut [0]).unwrap(), 1));
            // It always fails.
            drop(one);
            lets_others_run(|| {
                let error = other.write(b"x").unwrap_err();
                assert_eq!(error.kind(), ErrorKind::BrokenPipe);
            });
        });
    }
}

/// To epoll both are the same number.
#[test]
fn two_asyncs_of_one_descriptor_wait_on_one_worker() {
    let _watch = watch();
    for driver in drivers() {
        runtime(driver, 1).run(|| {
            let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            sinew::scope(|s| {
                let readers = [(); 2].map(|()| {
                    let socket = &ours;
                    s.spawn(move || {
                        let mut socket = Async::new(socket).unwrap();
                        socket.read_exact(&mut [0]).unwrap();
                    })
                });
                // Both wait by now, or will not have to.
                sinew::yield_now();
                (&theirs).write_all(b"12").unwrap();
                for reader in readers {
                    reader.join().unwrap();
                }
            });
            // What it took to watch twice is closed: the other end hears that all are gone.
            drop(ours);
            assert_eq!((&theirs).read(&mut [0]).unwrap(), 0);
        });
    }
}

#[test]
fn reading_into_nothing_does_not_wait() {
    everywhere(|| {
        let (mut stream, mut peer) = pair();
        let mut no_room = [IoSliceMut::new(&mut []), IoSliceMut::new(&mut [])];
        assert_eq!(stream.read_vectored(&mut no_room).unwrap(), 0);
        assert_eq!(stream.read_vectored(&mut []).unwrap(), 0);
        peer.write_all(b"x").unwrap();
        assert_eq!(stream.read_vectored(&mut no_room).unwrap(), 0);
        stream.read_exact(&mut [0]).unwrap();
    });
}

#[test]
fn an_urgent_byte_makes_a_descriptor_readable_also_for_threads() {
    everywhere(|| {
        let (stream, peer) = pair();
        let stream = Async::new(stream.into_std().unwrap()).unwrap();
        let sends = std::thread::spawn(move || {
            SockRef::from(&peer).send_out_of_band(b"!").unwrap();
            peer
        });
        stream.readable().unwrap();
        drop(sends.join().unwrap());
    });
}

#[test]
fn a_read_timeout_has_the_error_number_that_std_has() {
    everywhere(|| {
        let (mut stream, _peer) = pair();
        stream
            .set_read_timeout(Some(Duration::from_millis(1)))
            .unwrap();
        let error = stream.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        assert_eq!(error.raw_os_error(), Some(libc::EAGAIN));
    });
}
