//! From names to addresses, and the addresses of sockets.

use super::{listen, listen_alone, pair};
use crate::harness::wait_until;
use crate::world::everywhere;
use sinew::net::{TcpListener, TcpStream, ToSocketAddrs, lookup_host};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

fn first(from: impl ToSocketAddrs) -> SocketAddr {
    from.to_socket_addrs().unwrap().next().unwrap()
}

#[test]
fn all_that_std_takes_for_an_address_is_one() {
    everywhere(|| {
        let (v4, v6) = (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
        let four: SocketAddr = "127.0.0.1:80".parse().unwrap();
        let six: SocketAddr = "[::1]:80".parse().unwrap();
        assert_eq!(first(four), four);
        assert_eq!(first(SocketAddrV4::new(v4, 80)), four);
        assert_eq!(first(SocketAddrV6::new(v6, 80, 0, 0)), six);
        assert_eq!(first((IpAddr::V4(v4), 80)), four);
        assert_eq!(first((v4, 80)), four);
        assert_eq!(first((v6, 80)), six);
        assert_eq!(first(("127.0.0.1", 80)), four);
        assert_eq!(first(("::1", 80)), six);
        assert_eq!(first(("127.0.0.1".to_owned(), 80)), four);
        assert_eq!(first("127.0.0.1:80"), four);
        assert_eq!(first("[::1]:80".to_owned()), six);
        assert_eq!(first(&[six, four][..]), six);
        let reference = &four;
        assert_eq!(first(reference), four);
    });
}

#[test]
fn a_name_is_looked_up() {
    everywhere(|| {
        for found in [
            lookup_host("localhost:80").unwrap().collect::<Vec<_>>(),
            lookup_host(("localhost", 80)).unwrap().collect(),
            lookup_host(("localhost".to_owned(), 80)).unwrap().collect(),
        ] {
            assert!(!found.is_empty());
            for address in found {
                assert!(address.ip().is_loopback() && address.port() == 80);
            }
        }
    });
}

#[test]
fn a_text_without_a_port_is_invalid_input() {
    everywhere(|| {
        for text in ["", "localhost", "localhost:", "localhost:port", "127.0.0.1"] {
            let error = lookup_host(text).map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}: {error}");
        }
    });
}

#[test]
fn a_name_that_nobody_has_is_an_error() {
    everywhere(|| {
        assert!(lookup_host("no.such.name.invalid:80").is_err());
        assert!(TcpStream::connect("no.such.name.invalid:80").is_err());
        assert!(TcpListener::bind(("no.such.name.invalid", 0)).is_err());
    });
}

#[test]
fn the_first_address_that_answers_is_taken() {
    everywhere(|| {
        let listener = listen();
        let there = listener.local_addr().unwrap();
        let gone = listen().local_addr().unwrap();
        let stream = TcpStream::connect(&[gone, there][..]).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), there);
        // Nobody can have 192.0.2.1 of its own: it is for documents.
        let foreign: SocketAddr = "192.0.2.1:0".parse().unwrap();
        let local: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let bound = TcpListener::bind(&[foreign, local][..]).unwrap();
        assert!(bound.local_addr().unwrap().ip().is_loopback());
    });
}

#[test]
fn no_address_at_all_is_invalid_input() {
    everywhere(|| {
        let none: &[SocketAddr] = &[];
        let error = TcpStream::connect(none).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let error = TcpListener::bind(none).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn a_connection_refused_is_told_as_that() {
    everywhere(|| {
        let gone = listen().local_addr().unwrap();
        let error = TcpStream::connect(gone).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        let limit = std::time::Duration::from_secs(60);
        let error = TcpStream::connect_timeout(&gone, limit)
            .map(|_| ())
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_port_that_is_taken_is_in_use() {
    everywhere(|| {
        let taken = listen();
        let error = TcpListener::bind(taken.local_addr().unwrap())
            .map(|_| ())
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
    });
}

#[test]
fn an_address_that_is_not_ours_is_not_available() {
    everywhere(|| {
        let error = TcpListener::bind("192.0.2.1:0").map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
    });
}

#[test]
fn both_ends_agree_on_their_addresses() {
    everywhere(|| {
        let (client, server) = pair();
        assert_eq!(client.local_addr().unwrap(), server.peer_addr().unwrap());
        assert_eq!(client.peer_addr().unwrap(), server.local_addr().unwrap());
    });
}

#[test]
fn ipv6_works_as_ipv4() {
    everywhere(|| {
        let listener = TcpListener::bind("[::1]:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert!(address.is_ipv6());
        let client = TcpStream::connect(address).unwrap();
        let (server, from) = listener.accept().unwrap();
        assert_eq!(from, client.local_addr().unwrap());
        assert_eq!(server.peer_addr().unwrap(), from);
        assert_eq!(client.peer_addr().unwrap(), address);
    });
}

#[test]
fn an_ipv6_listener_takes_ipv4_only_if_told() {
    everywhere(|| {
        let both = TcpListener::builder()
            .only_v6(false)
            .bind("[::]:0")
            .unwrap();
        let port = both.local_addr().unwrap().port();
        let client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let (_, from) = both.accept().unwrap();
        assert_eq!(from.port(), client.local_addr().unwrap().port());

        let six = TcpListener::builder().only_v6(true).bind("[::]:0").unwrap();
        let port = six.local_addr().unwrap().port();
        let error = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            .map(|_| ())
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_port_is_free_again_when_its_listener_is_dropped() {
    everywhere(|| {
        let listener = listen_alone();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).unwrap();
        let (server, _) = listener.accept().unwrap();
        drop((listener, client, server));
        // Old connections may linger; a listener is not kept from the port by them.
        drop(TcpListener::bind(address).unwrap());
    });
}

#[test]
fn listeners_may_share_a_port() {
    everywhere(|| {
        let shared = TcpListener::builder().reuse_port(true);
        let one = shared.bind("127.0.0.1:0").unwrap();
        let address = one.local_addr().unwrap();
        let other = shared.bind(address).unwrap();
        let accepted = |listener: &TcpListener| {
            listener.set_nonblocking(true).unwrap();
            std::iter::from_fn(|| listener.accept().ok()).count()
        };
        let clients: Vec<_> = (0..64)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        let (mut first, mut second) = (0, 0);
        wait_until(|| {
            first += accepted(&one);
            second += accepted(&other);
            first + second == clients.len()
        });
        // By a hash of the ports: all 64 on one side are not to be expected.
        assert!(first > 0 && second > 0, "{first} and {second}");
    });
}
