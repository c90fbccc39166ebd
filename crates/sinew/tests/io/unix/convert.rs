//! To std's types and descriptors, and back.

use super::{assert_would_block, is_nonblocking, name};
use crate::harness::wait_until;
use crate::world::everywhere;
use sinew::WaitReason;
use sinew::net::{UnixDatagram, UnixListener, UnixStream};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net as std_unix;
use std::time::Duration;

#[test]
fn conversions_keep_timeouts_and_the_blocking_mode() {
    everywhere(|| {
        let (time, other) = (
            Some(Duration::from_millis(1500)),
            Some(Duration::from_secs(3)),
        );
        let (std, _end) = std_unix::UnixStream::pair().unwrap();
        std.set_read_timeout(time).unwrap();
        let ours = UnixStream::from(std);
        assert_eq!(ours.read_timeout().unwrap(), time);
        assert_eq!(ours.write_timeout().unwrap(), None);
        ours.set_write_timeout(other).unwrap();
        let std: std_unix::UnixStream = ours.try_into().unwrap();
        assert_eq!(std.read_timeout().unwrap(), time);
        assert_eq!(std.write_timeout().unwrap(), other);
        assert!(!is_nonblocking(&std));

        let (std, _end) = std_unix::UnixDatagram::pair().unwrap();
        std.set_write_timeout(time).unwrap();
        std.set_nonblocking(true).unwrap();
        let ours = UnixDatagram::from(std);
        assert_eq!(ours.write_timeout().unwrap(), time);
        let clone = ours.try_clone().unwrap();
        for ours in [clone, ours] {
            let std = ours.into_std().unwrap();
            assert_eq!(std.write_timeout().unwrap(), time);
            assert!(is_nonblocking(&std));
        }
    });
}

#[test]
fn a_listener_that_has_accepted_is_std_s_again_and_blocks() {
    everywhere(|| {
        let at = name();
        let std = std_unix::UnixListener::bind_addr(&at).unwrap();
        let listener = UnixListener::from(std);
        let acceptor = sinew::spawn(move || {
            let (peer, _) = listener.accept().unwrap();
            assert!(!is_nonblocking(&peer));
            listener.into_std().unwrap()
        });
        wait_until(|| acceptor.fiber().wait_reason() == WaitReason::Accept);
        let _stream = UnixStream::connect_addr(&at).unwrap();
        let std = acceptor.join().unwrap();
        assert!(!is_nonblocking(&std));
        let own = std.local_addr().unwrap();
        assert_eq!(own.as_abstract_name(), at.as_abstract_name());
        std.set_nonblocking(true).unwrap();
        assert_would_block(std.accept());
        // A listener that does not block waits here all the same.
        let listener = UnixListener::from(std);
        let acceptor = sinew::spawn(move || listener.accept().map(drop));
        wait_until(|| acceptor.fiber().wait_reason() == WaitReason::Accept);
        let _stream = UnixStream::connect_addr(&at).unwrap();
        acceptor.join().unwrap().unwrap();
    });
}

#[test]
fn sockets_that_std_made_nonblocking_wait_here() {
    everywhere(|| {
        let (one, other) = std_unix::UnixDatagram::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        let (one, other) = (UnixDatagram::from(one), UnixDatagram::from(other));
        let receiver = sinew::spawn(move || {
            assert_eq!(one.recv_from(&mut [0; 8]).unwrap().0, 1);
            assert_eq!(one.recv(&mut [0; 8]).unwrap(), 2);
        });
        wait_until(|| receiver.fiber().wait_reason() == WaitReason::Read);
        other.send(b"x").unwrap();
        other.send(b"xy").unwrap();
        receiver.join().unwrap();
    });
}

#[test]
fn descriptors_are_lent_and_given_away() {
    everywhere(|| {
        let (one, mut other) = UnixStream::pair().unwrap();
        assert_eq!(one.as_fd().as_raw_fd(), one.as_raw_fd());
        assert!(format!("{one:?}").contains("UnixStream"));
        assert!(one.take_error().unwrap().is_none());
        let fd: OwnedFd = one.try_into().unwrap();
        // SAFETY: it was ours.
        let mut one = unsafe { UnixStream::from_raw_fd(fd.into_raw_fd()) };
        one.write_all(b"x").unwrap();
        other.read_exact(&mut [0]).unwrap();

        let socket = UnixDatagram::bind_addr(&name()).unwrap();
        assert!(format!("{socket:?}").contains("sinew-test"), "{socket:?}");
        let own = socket.local_addr().unwrap();
        let fd: OwnedFd = socket.try_into().unwrap();
        let again = UnixDatagram::from(fd).local_addr().unwrap();
        assert_eq!(again.as_abstract_name(), own.as_abstract_name());
    });
}

#[test]
fn all_sockets_and_pipes_of_children_give_their_descriptors_up() {
    /// Gives it up, and takes it back: it was not closed, and blocks.
    fn there_and_back<T: IntoRawFd + AsRawFd + FromRawFd>(it: T) -> T {
        let raw = it.as_raw_fd();
        assert_eq!(it.into_raw_fd(), raw);
        // SAFETY: it was given up, so it is ours.
        unsafe { T::from_raw_fd(raw) }
    }
    everywhere(|| {
        let listener = sinew::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stream = there_and_back(sinew::net::TcpStream::connect(address).unwrap());
        let (_peer, from) = there_and_back(listener).accept().unwrap();
        assert_eq!(from, stream.local_addr().unwrap());
        let udp = there_and_back(sinew::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        assert!(udp.local_addr().is_ok());
        let (one, other) = UnixStream::pair().unwrap();
        (&there_and_back(one)).write_all(b"x").unwrap();
        (&there_and_back(other)).read_exact(&mut [0]).unwrap();
        let (one, _other) = UnixDatagram::pair().unwrap();
        assert!(there_and_back(one).local_addr().is_ok());
        let mut cat = sinew::process::Command::new("cat")
            .stdin(sinew::process::Stdio::piped())
            .stdout(sinew::process::Stdio::piped())
            .stderr(sinew::process::Stdio::piped())
            .spawn()
            .unwrap();
        let fds = [
            cat.stdin.take().unwrap().into_raw_fd(),
            cat.stdout.take().unwrap().into_raw_fd(),
            cat.stderr.take().unwrap().into_raw_fd(),
        ];
        for fd in fds {
            // SAFETY: it was given up, so it is ours.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            assert!(!is_nonblocking(&fd));
        }
        assert!(cat.wait().unwrap().success()); // its input has ended
    });
}

#[test]
fn a_socket_with_clones_gives_up_a_duplicate() {
    everywhere(|| {
        let (one, other) = UnixStream::pair().unwrap();
        let clone = one.try_clone().unwrap();
        let raw = clone.into_raw_fd();
        assert_ne!(raw, one.as_raw_fd());
        // SAFETY: it was given up, so it is ours.
        drop(unsafe { OwnedFd::from_raw_fd(raw) });
        (&one).write_all(b"x").unwrap();
        (&other).read_exact(&mut [0]).unwrap();
    });
}
