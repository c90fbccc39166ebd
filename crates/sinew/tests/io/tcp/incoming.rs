//! Connections one after the other, and those that were accepted ahead.

use super::{listen, listen_alone};
use crate::harness::{panic_expected, wait_until, watch};
use crate::world::{drivers, everywhere, on_fibers, runtime};
use sinew::net::{TcpListener, TcpStream};
use sinew::{Cancelled, IoDriver, WaitReason};
use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

#[test]
fn connections_come_one_after_the_other() {
    everywhere(|| {
        let listener = listen();
        let address = listener.local_addr().unwrap();
        let clients = sinew::spawn(move || {
            (0..100u8)
                .map(|n| {
                    let client = TcpStream::connect(address).unwrap();
                    (&client).write_all(&[n]).unwrap();
                    client
                })
                .collect::<Vec<_>>()
        });
        for (n, peer) in (0..100u8).zip(listener.incoming()) {
            let mut number = [0];
            peer.unwrap().read_exact(&mut number).unwrap();
            assert_eq!(number[0], n);
        }
        assert_eq!(clients.join().unwrap().len(), 100);
        // The listener goes on without the iterator.
        let client = TcpStream::connect(address).unwrap();
        let (_, from) = listener.accept().unwrap();
        assert_eq!(from, client.local_addr().unwrap());
    });
}

#[test]
fn by_value_the_iterator_keeps_the_listener() {
    everywhere(|| {
        let listener = listen();
        let address = listener.local_addr().unwrap();
        let mut incoming = listener.into_incoming();
        let client = TcpStream::connect(address).unwrap();
        let peer = incoming.next().unwrap().unwrap();
        assert_eq!(peer.peer_addr().unwrap(), client.local_addr().unwrap());
        drop(incoming);
        let error = TcpStream::connect(address).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn what_was_accepted_ahead_is_closed_with_the_iterator() {
    everywhere(|| {
        let listener = listen();
        let address = listener.local_addr().unwrap();
        let mut incoming = listener.into_incoming();
        let first = TcpStream::connect(address).unwrap();
        let others: Vec<_> = (0..200)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        let peer = incoming.next().unwrap().unwrap();
        assert_eq!(peer.peer_addr().unwrap(), first.local_addr().unwrap());
        drop(incoming);
        for mut other in others {
            // An end, or a reset by the backlog of a listener that is gone.
            match other.read(&mut [0; 1]) {
                Ok(count) => assert_eq!(count, 0),
                Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
            }
        }
        // And the one that was handed out lives.
        (&peer).write_all(b"x").unwrap();
        assert_eq!((&first).read(&mut [0; 8]).unwrap(), 1);
    });
}

#[test]
fn the_port_is_free_as_soon_as_iterator_and_listener_are_gone() {
    everywhere(|| {
        let listener = listen_alone();
        let address = listener.local_addr().unwrap();
        let mut listener = Some(listener);
        for _ in 0..50 {
            let current = listener.take().unwrap();
            let client = TcpStream::connect(address).unwrap();
            let mut incoming = current.into_incoming();
            drop(incoming.next().unwrap().unwrap());
            drop((incoming, client));
            listener = Some(TcpListener::bind(address).unwrap());
            let current = listener.as_ref().unwrap();
            let client = TcpStream::connect(address).unwrap();
            drop(current.incoming().next().unwrap().unwrap());
            drop((listener.take(), client));
            listener = Some(TcpListener::bind(address).unwrap());
        }
    });
}

#[test]
fn an_iterator_that_was_parked_lets_go_of_the_port_too() {
    on_fibers(|| {
        let listener = listen_alone();
        let address = listener.local_addr().unwrap();
        let waits = sinew::spawn(move || listener.into_incoming().next().unwrap().map(|_| ()));
        wait_until(|| waits.fiber().wait_reason() == WaitReason::Accept);
        waits.cancel();
        let error = waits.join().unwrap().unwrap_err();
        assert!(Cancelled::is_in(&error), "{error}");
        drop(TcpListener::bind(address).unwrap());
    });
}

#[test]
fn the_iterator_ends_after_it_was_cancelled() {
    everywhere(|| {
        let listener = listen();
        let address = listener.local_addr().unwrap();
        let mut incoming = listener.incoming();
        let client = TcpStream::connect(address).unwrap();
        drop(incoming.next().unwrap().unwrap());
        let late = sinew::timeout(Duration::from_millis(5), || incoming.next());
        let error = late.unwrap_err().into_inner().unwrap().unwrap_err();
        assert!(Cancelled::is_in(&error));
        assert!(incoming.next().is_none());
        assert!(incoming.next().is_none());
        drop((incoming, client));
        // Another one begins anew.
        let client = TcpStream::connect(address).unwrap();
        let peer = listener.incoming().next().unwrap().unwrap();
        assert_eq!(peer.peer_addr().unwrap(), client.local_addr().unwrap());
    });
}

#[test]
fn the_iterator_ends_after_its_listener_was_closed() {
    everywhere(|| {
        let listener = listen();
        let mut incoming = listener.incoming();
        let closer = sinew::spawn({
            let listener = listener.try_clone().unwrap();
            move || listener.close().unwrap()
        });
        assert!(incoming.next().unwrap().is_err());
        assert!(incoming.next().is_none());
        closer.join().unwrap();
        let error = listener.incoming().next().unwrap().map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotConnected);
    });
}

#[test]
fn a_cancelled_iterator_that_goes_on_in_peace_loses_no_connection() {
    on_fibers(|| {
        let listener = listen();
        let address = listener.local_addr().unwrap();
        let mut got = 0;
        let mut client = 0;
        // Each iterator may have accepted ahead when its limit is over: then those are
        // closed, but the next `accept` must never hang on what is in the backlog.
        for round in 0..50u64 {
            let connects = TcpStream::connect(address).unwrap();
            client += 1;
            let mut incoming = listener.incoming();
            let first = sinew::timeout(Duration::from_micros(round * 20), || incoming.next());
            let first = match first {
                Ok(first) => first,
                Err(late) => late.into_inner(),
            };
            match first.unwrap() {
                Ok(_) => got += 1,
                Err(error) => assert!(Cancelled::is_in(&error)),
            }
            drop((incoming, connects));
        }
        assert!(got <= client);
        listener.set_nonblocking(true).unwrap();
        while listener.accept().is_ok() {}
        listener.set_nonblocking(false).unwrap();
        let connects = TcpStream::connect(address).unwrap();
        let (_, from) = listener.accept().unwrap();
        assert_eq!(from, connects.local_addr().unwrap());
    });
}

#[test]
fn a_panic_while_iterating_lets_go_of_the_port() {
    for driver in drivers() {
        let _watch = watch();
        let runtime = runtime(driver, 1);
        let listener = listen_alone();
        let address = listener.local_addr().unwrap();
        let clients: Vec<_> = (0..10)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        let fiber = runtime.spawn(move || {
            let mut incoming = listener.into_incoming();
            drop(incoming.next().unwrap().unwrap());
            panic_expected(9);
        });
        assert!(fiber.join().is_err());
        drop(clients);
        drop(TcpListener::bind(address).unwrap());
    }
}

#[test]
fn an_iterator_is_dropped_where_waiting_is_forbidden() {
    for driver in drivers() {
        let _watch = watch();
        runtime(driver, 1).run(|| {
            for _ in 0..20 {
                let listener = listen_alone();
                let address = listener.local_addr().unwrap();
                let mut incoming = listener.into_incoming();
                let client = TcpStream::connect(address).unwrap();
                drop(incoming.next().unwrap().unwrap());
                let ahead = TcpStream::connect(address).unwrap();
                sinew::no_suspend(|| drop(incoming));
                // In a while all is let go of, without anybody's help.
                let mut ahead = ahead;
                let _end = ahead.read(&mut [0; 1]);
                wait_until(|| TcpListener::bind(address).is_ok());
                drop(client);
            }
        });
    }
}

#[test]
fn what_was_accepted_ahead_is_left_to_who_accepts_next() {
    everywhere(|| {
        let listener = listen();
        let address = listener.local_addr().unwrap();
        let clients: Vec<_> = (0..40u8)
            .map(|n| {
                let client = TcpStream::connect(address).unwrap();
                (&client).write_all(&[n]).unwrap();
                client
            })
            .collect();
        let number = |mut peer: TcpStream| {
            let mut number = [0];
            peer.read_exact(&mut number).unwrap();
            number[0]
        };
        let mut served: Vec<u8> = Vec::new();
        for round in 0..10 {
            let two = listener.incoming().take(2);
            served.extend(two.map(|peer| number(peer.unwrap())));
            if round % 2 == 0 {
                let (peer, from) = listener.accept().unwrap();
                assert_eq!(peer.peer_addr().unwrap(), from);
                served.push(number(peer));
            }
            let one = listener.incoming().next().unwrap().unwrap();
            served.push(number(one));
        }
        served.extend((0..5).map(|_| number(listener.accept().unwrap().0)));
        served.sort_unstable();
        assert_eq!(served, (0..40).collect::<Vec<u8>>());
        drop(clients);
    });
}

/// Who accepts ahead takes what others wait for; when it goes they get it.
#[test]
fn what_was_accepted_ahead_is_left_to_who_waits_already() {
    on_fibers(|| {
        for iterates in [false, true] {
            let listener = listen();
            let address = listener.local_addr().unwrap();
            let mut hoards = listener.incoming();
            let first = TcpStream::connect(address).unwrap();
            drop(hoards.next().unwrap().unwrap());
            let late = listener.try_clone().unwrap();
            let waits = sinew::spawn(move || {
                let peer = if iterates {
                    late.incoming().next().unwrap()
                } else {
                    late.accept().map(|(peer, _)| peer)
                };
                peer.unwrap().peer_addr().unwrap()
            });
            wait_until(|| waits.fiber().wait_reason() == WaitReason::Accept);
            // The iterator's operation is the older one: on a ring it gets them, and each
            // connect that waits turns the ring.
            let clients: Vec<_> = (0..8)
                .map(|_| TcpStream::connect(address).unwrap())
                .collect();
            drop(hoards);
            let from = waits.join().unwrap();
            let ours = |client: &TcpStream| client.local_addr().unwrap() == from;
            assert!(clients.iter().any(ours), "{from}");
            drop(first);
        }
    });
}

/// Also if another worker, which has nothing to do, still knows the listener.
#[test]
fn what_was_accepted_ahead_is_closed_with_a_listener_that_is_watched_elsewhere() {
    let _watch = watch();
    let elsewhere = runtime(IoDriver::Epoll, 1);
    for driver in drivers() {
        let listener = listen();
        let address = listener.local_addr().unwrap();
        let clone = listener.try_clone().unwrap();
        let waits = elsewhere.spawn(move || drop(clone.accept().unwrap()));
        wait_until(|| waits.fiber().wait_reason() == WaitReason::Accept);
        let first = TcpStream::connect(address).unwrap();
        waits.join().unwrap();
        let clients: Vec<_> = (0..4)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        runtime(driver, 1).run(move || drop(listener.incoming().next().unwrap().unwrap()));
        for mut client in clients {
            // An end, or a reset by the backlog of a listener that is gone.
            match client.read(&mut [0; 1]) {
                Ok(count) => assert_eq!(count, 0),
                Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
            }
        }
        drop(first);
    }
}

#[test]
fn a_closed_listener_hands_out_nothing_that_was_accepted_ahead() {
    everywhere(|| {
        let listener = listen();
        let address = listener.local_addr().unwrap();
        let clients: Vec<_> = (0..10)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        drop(listener.incoming().next().unwrap().unwrap());
        listener.close().unwrap();
        let error = listener.accept().map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotConnected);
        drop(listener);
        for client in clients {
            // The end, or a reset: nobody serves it.
            let mut byte = [0];
            assert!(matches!((&client).read(&mut byte), Ok(0) | Err(_)));
        }
    });
}

#[test]
fn the_port_is_free_after_a_runtime_that_ended_before_the_last_answer() {
    let _watch = watch();
    for driver in drivers() {
        for _ in 0..20 {
            let address = runtime(driver, 1).run(|| {
                let listener = listen_alone();
                let address = listener.local_addr().unwrap();
                let mut incoming = listener.into_incoming();
                let client = TcpStream::connect(address).unwrap();
                // Closed by the client first, so the port is not in use for that.
                let peer = incoming.next().unwrap().unwrap();
                drop(client);
                assert_eq!((&peer).read(&mut [0]).unwrap(), 0);
                sinew::no_suspend(|| drop(incoming)); // may not wait for the answer
                address
            });
            drop(std::net::TcpListener::bind(address).unwrap());
        }
    }
}
