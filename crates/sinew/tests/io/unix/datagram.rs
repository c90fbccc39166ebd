//! Datagrams: whole, in order, and waited for by who sends too.

use super::{Folder, assert_closed, assert_would_block, name};
use crate::harness::{Gate, wait_until};
use crate::world::{everywhere, on_fibers};
use sinew::net::UnixDatagram;
use sinew::{Cancelled, Handle, WaitReason};
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self as std_unix, SocketAddr};
use std::path::Path;
use std::time::Duration;

#[test]
fn a_datagram_tells_the_path_it_comes_from() {
    everywhere(|| {
        let folder = Folder::new();
        let (at, there) = (folder.file("one"), folder.file("other"));
        let one = UnixDatagram::bind(&at).unwrap();
        let other = UnixDatagram::bind(&there).unwrap();
        assert_eq!(one.local_addr().unwrap().as_pathname(), Some(&*at));
        let receiver = sinew::spawn(move || {
            let mut buffer = [0; 16];
            let (count, from) = other.recv_from(&mut buffer).unwrap();
            let path = from.as_pathname().unwrap();
            other.send_to(&buffer[..count], path).unwrap()
        });
        assert_eq!(one.send_to(b"hello", &there).unwrap(), 5);
        let mut buffer = [0; 16];
        let (count, from) = one.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..count], b"hello");
        assert_eq!(from.as_pathname(), Some(&*there));
        assert_eq!(receiver.join().unwrap(), 5);
        let missing = one.send_to(b"x", folder.file("none")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        let refused = one.send_to(b"x", &there).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_datagram_tells_the_abstract_name_it_comes_from_or_that_there_is_none() {
    everywhere(|| {
        let (at, there) = (name(), name());
        let one = UnixDatagram::bind_addr(&at).unwrap();
        let other = UnixDatagram::bind_addr(&there).unwrap();
        let nameless = UnixDatagram::unbound().unwrap();
        assert!(nameless.local_addr().unwrap().is_unnamed());
        let receiver = sinew::spawn(move || {
            let mut buffer = [0; 16];
            let (count, from) = other.recv_from(&mut buffer).unwrap();
            assert_eq!(&buffer[..count], b"named");
            assert_eq!(from.as_abstract_name(), at.as_abstract_name());
            let (count, from) = other.peek_from(&mut buffer).unwrap();
            assert_eq!((count, from.is_unnamed()), (4, true));
            let (count, from) = other.recv_from(&mut buffer).unwrap();
            assert_eq!((count, from.is_unnamed()), (4, true));
        });
        wait_until(|| receiver.fiber().wait_reason() == WaitReason::Read);
        one.send_to_addr(b"named", &there).unwrap();
        assert_eq!(nameless.send_to_addr(b"none", &there).unwrap(), 4);
        receiver.join().unwrap();
    });
}

#[test]
fn a_datagram_from_a_name_that_std_cannot_say_is_not_lost() {
    everywhere(|| {
        let folder = Folder::new();
        let at = name();
        let one = UnixDatagram::bind_addr(&at).unwrap();
        let sender = bound_to_the_last_byte(&folder.0);
        sender.send_to_addr(b"x", &at).unwrap();
        let (count, from) = one.recv_from(&mut [0; 4]).unwrap();
        assert_eq!((count, from.is_unnamed()), (1, true));
    });
}

/// One whose path fills all the room there is, without a NUL.
fn bound_to_the_last_byte(folder: &Path) -> std_unix::UnixDatagram {
    let socket = std_unix::UnixDatagram::unbound().unwrap();
    // SAFETY: all zeros is an address without a name.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let start = format!("{}/", folder.display());
    let path = start.bytes().chain(std::iter::repeat(b'x'));
    for (byte, room) in path.zip(&mut address.sun_path) {
        *room = byte as libc::c_char;
    }
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: an address of this length.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    assert_eq!(bound, 0, "{}", io::Error::last_os_error());
    socket
}

#[test]
fn a_connected_datagram_socket_sends_and_receives() {
    everywhere(|| {
        let folder = Folder::new();
        let (at, there) = (folder.file("one"), name());
        let one = UnixDatagram::bind(&at).unwrap();
        let other = UnixDatagram::bind_addr(&there).unwrap();
        assert_eq!(one.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
        assert_eq!(one.send(b"x").unwrap_err().kind(), ErrorKind::NotConnected);
        one.connect_addr(&there).unwrap();
        other.connect(&at).unwrap();
        let peer = other.peer_addr().unwrap();
        assert_eq!(peer.as_pathname(), Some(&*at));
        let echo = sinew::spawn(move || {
            let mut buffer = [0; 8];
            let count = other.recv(&mut buffer).unwrap();
            other.send(&buffer[..count]).unwrap();
        });
        one.send(b"hello").unwrap();
        let mut buffer = [0; 8];
        assert_eq!(one.peek(&mut buffer).unwrap(), 5);
        assert_eq!(one.recv(&mut buffer).unwrap(), 5);
        assert_eq!(&buffer[..5], b"hello");
        echo.join().unwrap();
        let missing = one.connect(folder.file("none")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    });
}

#[test]
fn datagrams_may_be_empty_and_are_cut_to_the_buffer() {
    everywhere(|| {
        let (one, other) = UnixDatagram::pair().unwrap();
        let clone = one.try_clone().unwrap();
        let receiver = sinew::spawn(move || {
            let mut small = [0; 4];
            assert_eq!(one.recv(&mut small).unwrap(), 4);
            assert_eq!(&small, b"long");
            assert_eq!(one.recv(&mut small).unwrap(), 0);
            assert_eq!(one.recv_from(&mut small).unwrap().0, 0);
            assert_eq!(one.recv_from(&mut small).unwrap().0, 4);
            assert_eq!(&small, b"also");
            assert_eq!(one.recv(&mut small).unwrap(), 3);
            // Shut down, there is nothing for ever.
            assert_eq!(one.recv(&mut small).unwrap(), 0);
            assert_eq!(one.recv(&mut small).unwrap(), 0);
        });
        wait_until(|| receiver.fiber().wait_reason() == WaitReason::Read);
        for text in ["longer than that", "", "", "also long", "end"] {
            assert_eq!(other.send(text.as_bytes()).unwrap(), text.len());
        }
        clone.shutdown(Shutdown::Both).unwrap();
        receiver.join().unwrap();
        let broken = clone.send(b"x").unwrap_err();
        assert_eq!(broken.kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn datagrams_arrive_in_order_while_the_sender_waits_for_room() {
    const MANY: u32 = 400;
    for connected in [false, true] {
        everywhere(|| {
            let at = name();
            let one = UnixDatagram::bind_addr(&at).unwrap();
            let sender = sinew::spawn(move || {
                let socket = UnixDatagram::unbound().unwrap();
                if connected {
                    socket.connect_addr(&at).unwrap();
                }
                for number in 0..MANY {
                    let text = number.to_le_bytes();
                    let sent = if connected {
                        socket.send(&text)
                    } else {
                        socket.send_to_addr(&text, &at)
                    };
                    assert_eq!(sent.unwrap(), 4);
                }
            });
            for number in 0..MANY {
                let mut text = [0; 4];
                assert_eq!(one.recv(&mut text).unwrap(), 4);
                assert_eq!(u32::from_le_bytes(text), number);
            }
            sender.join().unwrap();
        });
    }
}

/// Fills a receiver with datagrams of others; answers how many there are.
fn fill(at: &SocketAddr) -> usize {
    let mut count = 0;
    loop {
        let other = std_unix::UnixDatagram::unbound().unwrap();
        other.set_nonblocking(true).unwrap();
        match other.send_to_addr(b"other", at) {
            Ok(_) => count += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                return count;
            }
        }
    }
}

#[test]
fn who_sends_to_a_full_receiver_waits_and_keeps_nobody_from_sending_to_others() {
    everywhere(|| {
        let (at, free) = (name(), name());
        let receiver = UnixDatagram::bind_addr(&at).unwrap();
        let other = UnixDatagram::bind_addr(&free).unwrap();
        let count = fill(&at);
        let socket = UnixDatagram::unbound().unwrap();
        let clone = socket.try_clone().unwrap();
        let sender = sinew::spawn(move || clone.send_to_addr(b"mine", &at));
        wait_until(|| sender.fiber().wait_reason() == WaitReason::Write);
        for _ in 0..3 {
            socket.send_to_addr(b"x", &free).unwrap();
            assert_eq!(other.recv(&mut [0; 8]).unwrap(), 1);
        }
        let mut buffer = [0; 8];
        for _ in 0..count {
            let length = receiver.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"other");
        }
        let length = receiver.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"mine");
        assert_eq!(sender.join().unwrap().unwrap(), 4);
    });
}

/// Each try that fails is an event of the sending socket: it must not be taken for one
/// of the receiver.
#[test]
fn who_waits_for_a_full_receiver_does_not_try_all_the_time() {
    on_fibers(|| {
        let (at, own) = (name(), name());
        let _receiver = UnixDatagram::bind_addr(&at).unwrap();
        fill(&at);
        let socket = UnixDatagram::bind_addr(&own).unwrap();
        // So it is watched.
        let clone = socket.try_clone().unwrap();
        let reader = sinew::spawn(move || clone.recv(&mut [0; 8]));
        wait_until(|| reader.fiber().wait_reason() == WaitReason::Read);
        let limit = Duration::from_millis(300);
        socket.set_write_timeout(Some(limit)).unwrap();
        let before = Handle::current().stats().switches;
        assert_would_block(socket.send_to_addr(b"mine", &at));
        let tries = Handle::current().stats().switches - before;
        assert!(tries < 300, "{tries} switches"); // some 15; it was 17,000
        socket.close().unwrap();
        assert_closed(reader.join().unwrap());
    });
}

#[test]
fn a_send_to_a_full_receiver_times_out_is_cancelled_and_is_closed() {
    for connected in [false, true] {
        everywhere(|| {
            let at = name();
            let receiver = UnixDatagram::bind_addr(&at).unwrap();
            let count = fill(&at);
            let socket = UnixDatagram::unbound().unwrap();
            if connected {
                socket.connect_addr(&at).unwrap();
            }
            let send = move |socket: &UnixDatagram, at: &SocketAddr| {
                if connected {
                    socket.send(b"mine")
                } else {
                    socket.send_to_addr(b"mine", at)
                }
            };
            socket.set_nonblocking(true).unwrap();
            assert_would_block(send(&socket, &at));
            socket.set_nonblocking(false).unwrap();
            socket
                .set_write_timeout(Some(Duration::from_millis(4)))
                .unwrap();
            let started = std::time::Instant::now();
            assert_would_block(send(&socket, &at));
            assert!(started.elapsed() >= Duration::from_millis(4));
            socket.set_write_timeout(None).unwrap();

            let start = |spread: bool| {
                let (clone, at) = (socket.try_clone().unwrap(), at.clone());
                let builder = sinew::Builder::new();
                let builder = if spread { builder.spread() } else { builder };
                builder.spawn(move || send(&clone, &at)).unwrap()
            };
            let sender = start(false);
            wait_until(|| sender.fiber().wait_reason() == WaitReason::Write);
            sender.cancel();
            let error = sender.join().unwrap().unwrap_err();
            assert!(Cancelled::is_in(&error), "{error:?}");

            let senders = [start(false), start(true)];
            for sender in &senders {
                wait_until(|| sender.fiber().wait_reason() == WaitReason::Write);
            }
            let (clone, address) = (socket.try_clone().unwrap(), at.clone());
            let thread = std::thread::spawn(move || send(&clone, &address));
            socket.close().unwrap();
            for sender in senders {
                assert_closed(sender.join().unwrap());
            }
            assert_closed(sinew::blocking(|| thread.join().unwrap()));

            // None of them has sent.
            for _ in 0..count {
                assert_eq!(receiver.recv(&mut [0; 8]).unwrap(), 5);
            }
            receiver.set_nonblocking(true).unwrap();
            assert_would_block(receiver.recv(&mut [0; 8]));
        });
    }
}

#[test]
fn a_receive_that_timed_out_or_was_cancelled_leaves_the_datagram() {
    everywhere(|| {
        let (one, other) = UnixDatagram::pair().unwrap();
        one.set_read_timeout(Some(Duration::from_millis(4)))
            .unwrap();
        assert_would_block(one.recv(&mut [0; 8]));
        assert_would_block(one.recv_from(&mut [0; 8]));
        one.set_read_timeout(None).unwrap();
        let clone = one.try_clone().unwrap();
        let receiver = sinew::spawn(move || clone.recv_from(&mut [0; 8]).map(drop));
        wait_until(|| receiver.fiber().wait_reason() == WaitReason::Read);
        receiver.cancel();
        let error = receiver.join().unwrap().unwrap_err();
        assert!(Cancelled::is_in(&error), "{error:?}");
        other.send(b"later").unwrap();
        assert_eq!(one.recv(&mut [0; 8]).unwrap(), 5);
    });
}

#[test]
fn closing_a_datagram_socket_wakes_who_receives_on_all_workers_and_on_threads() {
    for connected in [false, true] {
        everywhere(|| {
            let (one, _other) = if connected {
                UnixDatagram::pair().unwrap()
            } else {
                let named = || UnixDatagram::bind_addr(&name()).unwrap();
                (named(), named())
            };
            let receive = |with_address: bool| {
                let one = one.try_clone().unwrap();
                move || {
                    let mut buffer = [0; 8];
                    if with_address {
                        one.recv_from(&mut buffer).map(drop)
                    } else {
                        one.recv(&mut buffer).map(drop)
                    }
                }
            };
            let fibers: Vec<_> = (0..6)
                .map(|index| {
                    let builder = sinew::Builder::new().spread();
                    builder.spawn(receive(index % 2 == 0)).unwrap()
                })
                .collect();
            let threads = [true, false].map(|with| std::thread::spawn(receive(with)));
            for fiber in &fibers {
                wait_until(|| fiber.fiber().wait_reason() == WaitReason::Read);
            }
            one.close().unwrap();
            for fiber in fibers {
                assert_closed(fiber.join().unwrap());
            }
            for thread in threads {
                assert_closed(sinew::blocking(|| thread.join().unwrap()));
            }
            assert_closed(one.recv(&mut [0]));
            assert_closed(one.send_to_addr(b"x", &name()));
        });
    }
}

#[test]
fn a_sender_that_never_waits_lets_others_run() {
    on_fibers(|| {
        let (at, ready) = (name(), Gate::new());
        let receiver = std_unix::UnixDatagram::bind_addr(&at).unwrap();
        let (stop, stopped) = (Gate::new(), ready.clone());
        let drain = std::thread::spawn({
            let stop = stop.clone();
            move || {
                while !stop.is_open() {
                    receiver.recv(&mut [0; 8]).unwrap();
                }
                receiver.set_nonblocking(true).unwrap();
                while receiver.recv(&mut [0; 8]).is_ok() {}
            }
        });
        let runs = sinew::spawn_local(move || ready.open());
        let socket = UnixDatagram::unbound().unwrap();
        while !stopped.is_open() {
            socket.send_to_addr(b"x", &at).unwrap();
        }
        stop.open();
        runs.join().unwrap();
        // Whatever it waits for last.
        let _ended = socket.send_to_addr(b"x", &at);
        sinew::blocking(|| drain.join().unwrap());
    });
}
