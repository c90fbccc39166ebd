//! From std's types and to them.

use super::{has_flag_nonblocking, listen, pair};
use crate::world::everywhere;
use sinew::net::{TcpListener, TcpStream};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::time::Duration;

#[test]
fn a_stream_of_std_keeps_its_timeouts_and_goes_on() {
    everywhere(|| {
        let (client, server) = pair();
        let std = client.into_std().unwrap();
        std.set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        std.set_write_timeout(Some(Duration::from_secs(7))).unwrap();
        let ours = TcpStream::from(std);
        let read = ours.read_timeout().unwrap().unwrap();
        // The kernel rounds up to its own ticks.
        assert!(read >= Duration::from_millis(20) && read < Duration::from_secs(1));
        assert_eq!(ours.write_timeout().unwrap(), Some(Duration::from_secs(7)));
        let error = (&ours).read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        (&server).write_all(b"late").unwrap();
        let mut text = [0; 4];
        (&ours).read_exact(&mut text).unwrap();
        assert_eq!(&text, b"late");
    });
}

#[test]
fn our_stream_keeps_its_timeouts_as_stds_and_blocks_again() {
    everywhere(|| {
        let (client, server) = pair();
        client
            .set_read_timeout(Some(Duration::from_millis(40)))
            .unwrap();
        client
            .set_write_timeout(Some(Duration::from_secs(9)))
            .unwrap();
        // Once used, so that it is watched by a worker.
        assert!((&client).read(&mut [0; 8]).is_err());
        let mut std: std::net::TcpStream = client.try_into().unwrap();
        assert!(!has_flag_nonblocking(&std));
        assert_eq!(std.write_timeout().unwrap(), Some(Duration::from_secs(9)));
        let error = std.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        std.set_read_timeout(None).unwrap();
        let writer = std::thread::spawn(move || (&server).write_all(b"to a thread").unwrap());
        let mut text = [0; 11];
        std.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"to a thread");
        writer.join().unwrap();
    });
}

#[test]
fn a_clone_becomes_a_duplicate_and_the_rest_goes_on() {
    everywhere(|| {
        let (client, server) = pair();
        let clone = client.try_clone().unwrap();
        assert_eq!(client.as_raw_fd(), clone.as_raw_fd());
        let std = clone.into_std().unwrap();
        assert_ne!(client.as_raw_fd(), std.as_raw_fd());
        (&std).write_all(b"1").unwrap();
        drop(std);
        (&client).write_all(b"2").unwrap();
        let mut text = [0; 2];
        (&server).read_exact(&mut text).unwrap();
        assert_eq!(&text, b"12");
    });
}

#[test]
fn a_listener_goes_to_std_and_comes_back() {
    everywhere(|| {
        let listener = listen();
        let address = listener.local_addr().unwrap();
        // It is used, so that a thread or epoll has made it non-blocking.
        let one = TcpStream::connect(address).unwrap();
        listener.accept().unwrap();
        let std = listener.into_std().unwrap();
        assert!(!has_flag_nonblocking(&std));
        let two = TcpStream::connect(address).unwrap();
        std.accept().unwrap();
        let ours = TcpListener::from(std);
        assert_eq!(ours.local_addr().unwrap(), address);
        let three = TcpStream::connect(address).unwrap();
        let (_, from) = ours.accept().unwrap();
        assert_eq!(from, three.local_addr().unwrap());
        drop((one, two));
    });
}

#[test]
fn a_socket_that_std_made_nonblocking_waits_with_us_and_stays_so() {
    everywhere(|| {
        let (client, server) = pair();
        let std = client.into_std().unwrap();
        std.set_nonblocking(true).unwrap();
        let ours = TcpStream::from(std);
        let writer = sinew::spawn(move || {
            (&server).write_all(b"x").unwrap();
            server
        });
        assert_eq!((&ours).read(&mut [0; 8]).unwrap(), 1);
        writer.join().unwrap();
        // It was not us who made it so.
        assert!(has_flag_nonblocking(&ours.into_std().unwrap()));

        let std = listen().into_std().unwrap();
        std.set_nonblocking(true).unwrap();
        let ours = TcpListener::from(std);
        let address = ours.local_addr().unwrap();
        let client = sinew::spawn(move || TcpStream::connect(address).unwrap());
        ours.accept().unwrap();
        client.join().unwrap();
        assert!(has_flag_nonblocking(&ours.into_std().unwrap()));
    });
}

#[test]
fn descriptors_go_in_and_out() {
    everywhere(|| {
        let (client, server) = pair();
        let raw = client.as_raw_fd();
        let fd = OwnedFd::try_from(client).unwrap();
        assert_eq!(fd.as_raw_fd(), raw);
        let client = TcpStream::from(fd);
        let raw = client.into_raw_fd();
        // SAFETY: it was given up, so it is ours.
        let client = unsafe { TcpStream::from_raw_fd(raw) };
        (&client).write_all(b"still").unwrap();
        let mut text = [0; 5];
        (&server).read_exact(&mut text).unwrap();
        assert_eq!(&text, b"still");
        let fd = OwnedFd::try_from(listen()).unwrap();
        assert!(TcpListener::from(fd).local_addr().is_ok());
    });
}
