//! UDP: datagrams with and without a connection, their ends, and std's settings.

use crate::harness::{Rng, wait_until};
use crate::world::{everywhere, on_fibers};
use sinew::net::UdpSocket;
use sinew::{Cancelled, WaitReason};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const HERE: &str = "127.0.0.1:0";

fn local() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind(HERE).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// Two that are connected with each other.
fn pair() -> (UdpSocket, UdpSocket) {
    let ((one, at), (other, there)) = (local(), local());
    one.connect(there).unwrap();
    other.connect(at).unwrap();
    (one, other)
}

#[test]
fn a_datagram_tells_who_sent_it() {
    everywhere(|| {
        let ((one, at), (other, there)) = (local(), local());
        let echo = sinew::spawn(move || {
            let mut buffer = [0; 64];
            let (count, from) = other.recv_from(&mut buffer).unwrap();
            assert_eq!(from, at);
            other.send_to(&buffer[..count], from).unwrap()
        });
        assert_eq!(one.send_to(b"hello", there).unwrap(), 5);
        let mut buffer = [0; 64];
        assert_eq!(one.recv_from(&mut buffer).unwrap(), (5, there));
        assert_eq!(&buffer[..5], b"hello");
        assert_eq!(echo.join().unwrap(), 5);
    });
}

#[test]
fn a_datagram_over_ipv6_tells_who_sent_it() {
    let Ok(_) = std::net::UdpSocket::bind("[::1]:0") else {
        eprintln!("no IPv6 here");
        return;
    };
    everywhere(|| {
        let one = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
        let other = UdpSocket::bind("[::1]:0").unwrap();
        let at = one.local_addr().unwrap();
        let there = other.local_addr().unwrap();
        let receiver = sinew::spawn(move || {
            let mut buffer = [0; 8];
            assert_eq!(other.recv_from(&mut buffer).unwrap(), (2, at));
        });
        one.send_to(b"v6", there).unwrap();
        receiver.join().unwrap();
    });
}

#[test]
fn a_connected_socket_hears_its_peer_alone() {
    everywhere(|| {
        let ((one, at), (other, there), (stranger, _)) = (local(), local(), local());
        assert_eq!(one.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
        one.connect(there).unwrap();
        other.connect(&[at][..]).unwrap();
        assert_eq!(one.peer_addr().unwrap(), there);
        stranger.send_to(b"stranger", at).unwrap();
        assert_eq!(other.send(b"peer").unwrap(), 4);
        let mut buffer = [0; 64];
        assert_eq!(one.recv(&mut buffer).unwrap(), 4);
        assert_eq!(&buffer[..4], b"peer");
        one.set_nonblocking(true).unwrap();
        let nothing = one.recv(&mut buffer).unwrap_err();
        assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
    });
}

#[test]
fn names_and_lists_of_addresses_are_looked_up() {
    everywhere(|| {
        let (one, at) = local();
        let (other, _) = local();
        let mut buffer = [0; 8];
        other.send_to(b"1", ("127.0.0.1", at.port())).unwrap();
        other.send_to(b"2", format!("{at}")).unwrap();
        other.send_to(b"3", &[at, at][..]).unwrap();
        for text in [b"1", b"2", b"3"] {
            assert_eq!(one.recv(&mut buffer).unwrap(), 1);
            assert_eq!(&buffer[..1], text);
        }
        let nowhere: &[SocketAddr] = &[];
        let error = other.send_to(b"4", nowhere).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let error = other.connect(nowhere).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let error = UdpSocket::bind(nowhere).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn what_was_peeked_at_is_received_again() {
    everywhere(|| {
        let ((one, at), (other, there)) = (local(), local());
        let peeker = sinew::spawn(move || {
            let mut buffer = [0; 3];
            assert_eq!(one.peek_from(&mut buffer).unwrap(), (3, there));
            assert_eq!(&buffer, b"who");
            assert_eq!(one.peek(&mut buffer).unwrap(), 3);
            let mut all = [0; 16];
            assert_eq!(one.recv_from(&mut all).unwrap(), (10, there));
            assert_eq!(&all[..10], b"who's that");
        });
        other.send_to(b"who's that", at).unwrap();
        peeker.join().unwrap();
    });
}

#[test]
fn what_does_not_fit_is_lost_and_the_next_datagram_is_whole() {
    everywhere(|| {
        let (one, other) = pair();
        let receiver = sinew::spawn(move || {
            let mut small = [0; 4];
            assert_eq!(one.recv(&mut small).unwrap(), 4);
            assert_eq!(&small, b"long");
            let (count, _) = one.recv_from(&mut small).unwrap();
            assert_eq!(&small[..count], b"also");
            assert_eq!(one.recv(&mut []).unwrap(), 0);
            assert_eq!(one.recv(&mut small).unwrap(), 3);
            assert_eq!(&small[..3], b"end");
        });
        // The first is waited for, the others are there already.
        wait_until(|| receiver.fiber().wait_reason() == WaitReason::Read);
        for text in ["longer than that", "also long", "gone", "end"] {
            other.send(text.as_bytes()).unwrap();
        }
        receiver.join().unwrap();
    });
}

#[test]
fn an_empty_datagram_is_a_datagram() {
    everywhere(|| {
        let (one, other) = pair();
        let from = other.local_addr().unwrap();
        let receiver = sinew::spawn(move || {
            let mut buffer = [1; 4];
            assert_eq!(one.recv(&mut buffer).unwrap(), 0);
            assert_eq!(one.recv_from(&mut buffer).unwrap(), (0, from));
            assert_eq!(one.peek_from(&mut buffer).unwrap(), (4, from));
        });
        wait_until(|| receiver.fiber().wait_reason() == WaitReason::Read);
        assert_eq!(other.send(b"").unwrap(), 0);
        let to = other.peer_addr().unwrap();
        assert_eq!(other.send_to(b"", to).unwrap(), 0);
        other.send(b"more").unwrap();
        receiver.join().unwrap();
    });
}

#[test]
fn the_largest_datagram_arrives_whole_and_a_larger_one_is_refused() {
    everywhere(|| {
        let ((one, at), (other, there)) = (local(), local());
        let mut rng = Rng::new(5);
        let bytes: Vec<u8> = (0..65_507).map(|_| rng.next() as u8).collect();
        let expected = bytes.clone();
        let receiver = sinew::spawn(move || {
            let mut buffer = vec![0; 70_000];
            assert_eq!(one.recv_from(&mut buffer).unwrap(), (65_507, there));
            assert!(buffer[..65_507] == expected);
        });
        let error = other.send_to(&[0; 65_508], at).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
        assert_eq!(other.send_to(&bytes, at).unwrap(), bytes.len());
        receiver.join().unwrap();
    });
}

#[test]
fn a_timeout_is_would_block_and_loses_no_datagram() {
    everywhere(|| {
        let (one, other) = pair();
        assert_eq!(one.read_timeout().unwrap(), None);
        assert_eq!(one.write_timeout().unwrap(), None);
        let zero = one.set_read_timeout(Some(Duration::ZERO)).unwrap_err();
        assert_eq!(zero.kind(), ErrorKind::InvalidInput);
        let short = Some(Duration::from_millis(5));
        one.set_read_timeout(short).unwrap();
        one.set_write_timeout(short).unwrap();
        assert_eq!(one.read_timeout().unwrap(), short);
        assert_eq!(one.write_timeout().unwrap(), short);
        let mut buffer = [0; 8];
        let started = std::time::Instant::now();
        let late = one.recv(&mut buffer).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::WouldBlock);
        let late = one.recv_from(&mut buffer).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::WouldBlock);
        let late = one.peek_from(&mut buffer).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::WouldBlock);
        assert!(started.elapsed() >= Duration::from_millis(15));
        other.send(b"later").unwrap();
        one.set_read_timeout(None).unwrap();
        assert_eq!(one.recv(&mut buffer).unwrap(), 5);
        assert_eq!(&buffer[..5], b"later");
    });
}

#[test]
fn a_cancelled_receive_leaves_the_datagram_in_the_socket() {
    everywhere(|| {
        let (one, other) = pair();
        for with_address in [false, true] {
            let waiting = one.try_clone().unwrap();
            let receiver = sinew::spawn(move || {
                let mut buffer = [0; 8];
                if with_address {
                    waiting.recv_from(&mut buffer).map(|(count, _)| count)
                } else {
                    waiting.recv(&mut buffer)
                }
            });
            wait_until(|| receiver.fiber().wait_reason() == WaitReason::Read);
            receiver.cancel();
            let error = receiver.join().unwrap().unwrap_err();
            assert!(Cancelled::is_in(&error), "{error:?}");
            other.send(b"later").unwrap();
            let mut buffer = [0; 8];
            assert_eq!(one.recv(&mut buffer).unwrap(), 5);
        }
    });
}

#[test]
fn a_datagram_that_races_with_a_cancellation_is_received_or_stays() {
    on_fibers(|| {
        let (one, other) = pair();
        let sender = sinew::Builder::new().spread();
        let (go, going) = sinew::channel::bounded::<()>(1);
        let sending = sender
            .spawn(move || {
                while going.recv().is_ok() {
                    other.send(b"x").unwrap();
                }
            })
            .unwrap();
        for round in 0..300 {
            let waiting = one.try_clone().unwrap();
            let receiver = sinew::spawn(move || {
                let mut buffer = [0; 8];
                if round % 2 == 0 {
                    waiting.recv_from(&mut buffer).map(|(count, _)| count)
                } else {
                    waiting.recv(&mut buffer)
                }
            });
            if round % 3 > 0 {
                wait_until(|| receiver.fiber().wait_reason() == WaitReason::Read);
            }
            go.send(()).unwrap();
            if round % 5 > 0 {
                sinew::yield_now();
            }
            receiver.cancel();
            // It may have been cancelled before it began.
            match receiver.join().unwrap_or_else(|_| Err(Cancelled.into())) {
                Ok(count) => assert_eq!(count, 1),
                Err(error) => {
                    assert!(Cancelled::is_in(&error), "{error:?}");
                    let mut buffer = [0; 8];
                    assert_eq!(one.recv(&mut buffer).unwrap(), 1); // it is there
                }
            }
        }
        drop(go);
        sending.join().unwrap();
        one.set_nonblocking(true).unwrap();
        let nothing = one.recv(&mut [0]).unwrap_err();
        assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
    });
}

#[test]
fn closing_wakes_those_who_receive_on_all_workers_and_on_threads() {
    for connected in [false, true] {
        everywhere(|| {
            let (one, other) = if connected {
                pair()
            } else {
                (local().0, local().0)
            };
            let receive = |index: usize| {
                let socket = one.try_clone().unwrap();
                move || {
                    let mut buffer = [0; 8];
                    match index % 3 {
                        0 => socket.recv(&mut buffer).map(drop),
                        1 => socket.recv_from(&mut buffer).map(drop),
                        _ => socket.peek_from(&mut buffer).map(drop),
                    }
                }
            };
            let fibers: Vec<_> = (0..6)
                .map(|index| {
                    let builder = sinew::Builder::new().spread();
                    builder.spawn(receive(index)).unwrap()
                })
                .collect();
            let threads: Vec<_> = (0..3)
                .map(|index| std::thread::spawn(receive(index)))
                .collect();
            for fiber in &fibers {
                wait_until(|| fiber.fiber().wait_reason() == WaitReason::Read);
            }
            assert!(!other.is_closed() && !one.is_closed());
            one.try_clone().unwrap().close().unwrap();
            assert!(one.is_closed());
            for fiber in fibers {
                let error = fiber.join().unwrap().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::NotConnected, "{error:?}");
            }
            for thread in threads {
                let ended = sinew::blocking(|| thread.join().unwrap());
                let error = ended.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::NotConnected, "{error:?}");
            }
            let to = other.local_addr().unwrap();
            let error = one.send_to(b"x", to).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotConnected);
            let error = one.recv(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotConnected);
            one.set_nonblocking(true).unwrap();
            let error = one.send(b"x").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotConnected);
        });
    }
}

#[test]
fn a_thread_s_close_wakes_a_fiber() {
    on_fibers(|| {
        let (one, _) = local();
        let clone = one.try_clone().unwrap();
        let receiver = sinew::spawn(move || one.recv_from(&mut [0; 8]).unwrap_err().kind());
        wait_until(|| receiver.fiber().wait_reason() == WaitReason::Read);
        let closer = std::thread::spawn(move || clone.close());
        assert_eq!(receiver.join().unwrap(), ErrorKind::NotConnected);
        sinew::blocking(|| closer.join().unwrap()).unwrap();
    });
}

#[test]
fn each_datagram_goes_to_one_of_many_receivers() {
    everywhere(|| {
        const EACH: u64 = 64;
        let (one, at) = local();
        let sum = AtomicU64::new(0);
        sinew::scope(|s| {
            for index in 0..4 {
                let (one, sum) = (&one, &sum);
                s.spawn(move || {
                    let mut buffer = [0; 8];
                    loop {
                        let count = match index % 2 {
                            0 => one.recv(&mut buffer),
                            _ => one.recv_from(&mut buffer).map(|(count, _)| count),
                        };
                        match count {
                            Ok(count) => assert_eq!(count, 8),
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::NotConnected);
                                break;
                            }
                        }
                        sum.fetch_add(u64::from_le_bytes(buffer), Ordering::Relaxed);
                    }
                });
            }
            let (sender, _) = local();
            for number in 1..=EACH {
                sender.send_to(&number.to_le_bytes(), at).unwrap();
            }
            wait_until(|| sum.load(Ordering::Relaxed) >= EACH * (EACH + 1) / 2);
            one.close().unwrap();
        });
        assert_eq!(sum.into_inner(), EACH * (EACH + 1) / 2);
    });
}

#[test]
fn one_fiber_sends_while_another_receives_by_the_same_socket() {
    everywhere(|| {
        let (one, other) = pair();
        let echo = sinew::spawn(move || {
            let mut buffer = [0; 8];
            for _ in 0..200 {
                let count = other.recv(&mut buffer).unwrap();
                other.send(&buffer[..count]).unwrap();
            }
        });
        let one = &one;
        sinew::scope(|s| {
            let (ack, acked) = sinew::channel::bounded(32);
            s.spawn(move || {
                for number in 0..200u64 {
                    one.send(&number.to_le_bytes()).unwrap();
                    ack.send(()).unwrap(); // at most so many are under way
                }
            });
            for number in 0..200u64 {
                let mut buffer = [0; 8];
                assert_eq!(one.recv(&mut buffer).unwrap(), 8);
                assert_eq!(u64::from_le_bytes(buffer), number);
                acked.recv().unwrap();
            }
        });
        echo.join().unwrap();
    });
}

#[test]
fn a_port_with_nobody_refuses() {
    everywhere(|| {
        let (one, other) = pair();
        let (gone, there) = local();
        one.connect(there).unwrap();
        drop((other, gone));
        one.send(b"anybody?").unwrap();
        let error = one.recv(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert!(one.take_error().unwrap().is_none());
    });
}

#[test]
fn sockets_share_a_port_only_if_all_say_so() {
    everywhere(|| {
        let one = UdpSocket::bind_reuse_port(HERE).unwrap();
        let at = one.local_addr().unwrap();
        let other = UdpSocket::bind_reuse_port(at).unwrap();
        let taken = UdpSocket::bind(at).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AddrInUse);
        let (sender, _) = local();
        sender.send_to(b"x", at).unwrap();
        // One of them gets it; the other waits until it is closed.
        sinew::scope(|s| {
            let receivers = [&one, &other].map(|socket| s.spawn(move || socket.recv(&mut [0; 4])));
            wait_until(|| receivers.iter().any(|receiver| receiver.is_finished()));
            one.close().unwrap();
            other.close().unwrap();
            let got = receivers.map(|receiver| receiver.join().unwrap());
            assert_eq!(got.iter().filter(|got| matches!(got, Ok(1))).count(), 1);
        });
    });
}

#[test]
fn settings_are_the_system_s() {
    everywhere(|| {
        let (one, _) = local();
        one.set_broadcast(true).unwrap();
        assert!(one.broadcast().unwrap());
        one.set_ttl(7).unwrap();
        assert_eq!(one.ttl().unwrap(), 7);
        one.set_multicast_ttl_v4(3).unwrap();
        assert_eq!(one.multicast_ttl_v4().unwrap(), 3);
        one.set_multicast_loop_v4(false).unwrap();
        assert!(!one.multicast_loop_v4().unwrap());
        let group = Ipv4Addr::new(224, 0, 0, 123);
        one.join_multicast_v4(&group, &Ipv4Addr::LOCALHOST).unwrap();
        one.leave_multicast_v4(&group, &Ipv4Addr::LOCALHOST)
            .unwrap();
        let gone = one.leave_multicast_v4(&group, &Ipv4Addr::LOCALHOST);
        assert_eq!(gone.unwrap_err().kind(), ErrorKind::AddrNotAvailable);
        let std = one.into_std().unwrap();
        assert!(std.broadcast().unwrap());
        assert_eq!(std.ttl().unwrap(), 7);
    });
    let Ok(six) = UdpSocket::bind("[::1]:0") else {
        eprintln!("no IPv6 here");
        return;
    };
    six.set_multicast_loop_v6(false).unwrap();
    assert!(!six.multicast_loop_v6().unwrap());
    let group = "ff01::123".parse().unwrap();
    // SAFETY: a text with its end.
    let loopback = unsafe { libc::if_nametoindex(c"lo".as_ptr()) };
    six.join_multicast_v6(&group, loopback).unwrap();
    six.leave_multicast_v6(&group, loopback).unwrap();
}

#[test]
fn conversions_keep_timeouts_and_the_blocking_mode() {
    everywhere(|| {
        let time = Some(Duration::from_millis(1500));
        let other = Some(Duration::from_secs(3));
        let std = std::net::UdpSocket::bind(HERE).unwrap();
        std.set_read_timeout(time).unwrap();
        std.set_write_timeout(other).unwrap();
        let ours = UdpSocket::from(std);
        assert_eq!(ours.read_timeout().unwrap(), time);
        assert_eq!(ours.write_timeout().unwrap(), other);
        ours.set_read_timeout(other).unwrap();
        ours.set_write_timeout(None).unwrap();
        let at = ours.local_addr().unwrap();
        let clone = ours.try_clone().unwrap();
        for ours in [clone, ours] {
            // The first is a duplicate, the second the descriptor itself.
            let std: std::net::UdpSocket = ours.try_into().unwrap();
            assert_eq!(std.local_addr().unwrap(), at);
            assert_eq!(std.read_timeout().unwrap(), other);
            assert_eq!(std.write_timeout().unwrap(), None);
            assert!(!is_nonblocking(&std));
        }
    });
}

fn is_nonblocking(fd: &impl std::os::fd::AsRawFd) -> bool {
    // SAFETY: no pointers.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    flags & libc::O_NONBLOCK != 0
}

#[test]
fn a_socket_that_std_made_nonblocking_waits_and_stays_nonblocking() {
    everywhere(|| {
        let std = std::net::UdpSocket::bind(HERE).unwrap();
        std.set_nonblocking(true).unwrap();
        let at = std.local_addr().unwrap();
        let ours = UdpSocket::from(std);
        let receiver = sinew::spawn(move || {
            let mut buffer = [0; 8];
            assert_eq!(ours.recv_from(&mut buffer).unwrap().0, 3);
            assert_eq!(ours.recv(&mut buffer).unwrap(), 3);
            ours.into_std().unwrap()
        });
        wait_until(|| receiver.fiber().wait_reason() == WaitReason::Read);
        let (sender, _) = local();
        sender.send_to(b"one", at).unwrap();
        sender.send_to(b"two", at).unwrap();
        assert!(is_nonblocking(&receiver.join().unwrap()));
    });
}

#[test]
fn descriptors_are_lent_and_given_away() {
    use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
    everywhere(|| {
        let (one, at) = local();
        assert_eq!(one.as_fd().as_raw_fd(), one.as_raw_fd());
        let text = format!("{one:?}");
        assert!(text.contains(&at.to_string()), "{text}");
        let fd: OwnedFd = one.try_into().unwrap();
        // SAFETY: it was ours.
        let one = unsafe { UdpSocket::from_raw_fd(fd.into_raw_fd()) };
        assert_eq!(one.local_addr().unwrap(), at);
    });
}
