//! Taking connections: by many at once, and using them elsewhere.

use super::{listen, pair};
use crate::harness::{Gate, wait_until, watch};
use crate::world::{drivers, everywhere, on_fibers, runtime};
use sinew::WaitReason;
use sinew::net::TcpStream;
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Mutex;

/// Runs `f` on another worker than this one, of two; this one is not yielded
/// until it began, so nobody else can start it.
fn on_the_other_worker<T: Send + 'static>(
    f: impl FnOnce() -> T + Send + 'static,
) -> sinew::JoinHandle<T> {
    let here = std::thread::current().id();
    let begun = Gate::new();
    let theirs = begun.clone();
    let fiber = sinew::spawn(move || {
        assert_ne!(std::thread::current().id(), here);
        theirs.open();
        f()
    });
    begun.spin();
    fiber
}

#[test]
fn a_connection_accepted_on_one_worker_is_read_on_another() {
    for driver in drivers() {
        let _watch = watch();
        runtime(driver, 2).run(|| {
            for _ in 0..50 {
                let (client, server) = pair();
                // Used here first, so that this worker watches it.
                let reader = sinew::spawn_local({
                    let server = server.try_clone().unwrap();
                    move || (&server).read(&mut [0; 8]).unwrap()
                });
                wait_until(|| reader.fiber().wait_reason() == WaitReason::Read);
                (&client).write_all(b"here").unwrap();
                assert_eq!(reader.join().unwrap(), 4);
                let reader = on_the_other_worker(move || {
                    let mut text = String::new();
                    (&server).read_to_string(&mut text).unwrap();
                    (&server).write_all(text.as_bytes()).unwrap();
                    text
                });
                wait_until(|| reader.fiber().wait_reason() == WaitReason::Read);
                (&client).write_all(b"there").unwrap();
                client.shutdown(Shutdown::Write).unwrap();
                assert_eq!(reader.join().unwrap(), "there");
                let mut text = String::new();
                (&client).read_to_string(&mut text).unwrap();
                assert_eq!(text, "there");
            }
        });
    }
}

#[test]
fn one_reads_here_while_another_writes_there() {
    for driver in drivers() {
        let _watch = watch();
        runtime(driver, 2).run(|| {
            let (client, server) = pair();
            let echo = server.try_clone().unwrap();
            let writer = on_the_other_worker(move || {
                for n in 0..2000u32 {
                    (&echo).write_all(&n.to_le_bytes()).unwrap();
                }
            });
            let feeder = client.try_clone().unwrap();
            let feeds = on_the_other_worker(move || {
                for n in 0..2000u32 {
                    (&feeder).write_all(&n.to_le_bytes()).unwrap();
                }
            });
            for n in 0..2000u32 {
                let mut number = [0; 4];
                (&server).read_exact(&mut number).unwrap();
                assert_eq!(u32::from_le_bytes(number), n);
                (&client).read_exact(&mut number).unwrap();
                assert_eq!(u32::from_le_bytes(number), n);
            }
            writer.join().unwrap();
            feeds.join().unwrap();
        });
    }
}

#[test]
fn each_connection_goes_to_exactly_one_of_many_acceptors() {
    const CONNECTIONS: usize = 200;
    everywhere(|| {
        let listener = listen();
        let address = listener.local_addr().unwrap();
        let taken = Mutex::new(Vec::new());
        sinew::scope(|s| {
            let acceptors: Vec<_> = (0..20)
                .map(|number| {
                    let (listener, taken) = (&listener, &taken);
                    s.spawn(move || {
                        // Some by the iterator: what it took ahead must not be lost
                        // to the others while it lives.
                        let mut incoming = (number % 4 == 0).then(|| listener.incoming());
                        loop {
                            let peer = match &mut incoming {
                                None => listener.accept().map(|(stream, _)| stream),
                                Some(incoming) => incoming.next().unwrap(),
                            };
                            match peer {
                                Ok(peer) => taken.lock().unwrap().push(peer.peer_addr().unwrap()),
                                Err(_) => break,
                            }
                        }
                    })
                })
                .collect();
            let clients: Vec<_> = (0..CONNECTIONS)
                .map(|_| TcpStream::connect(address).unwrap())
                .collect();
            wait_until(|| taken.lock().unwrap().len() >= CONNECTIONS);
            let expected: HashSet<_> = clients.iter().map(|c| c.local_addr().unwrap()).collect();
            listener.close().unwrap();
            for acceptor in acceptors {
                acceptor.join().unwrap();
            }
            let taken = taken.lock().unwrap();
            assert_eq!(taken.len(), CONNECTIONS);
            assert_eq!(taken.iter().copied().collect::<HashSet<_>>(), expected);
        });
    });
}

#[test]
fn many_readers_of_one_socket_share_what_comes() {
    everywhere(|| {
        let (client, server) = pair();
        let counts = sinew::scope(|s| {
            let readers: Vec<_> = (0..10)
                .map(|_| {
                    let server = &server;
                    s.spawn(move || {
                        let mut count = 0;
                        loop {
                            match (&*server).read(&mut [0; 3]).unwrap() {
                                0 => return count,
                                more => count += more,
                            }
                        }
                    })
                })
                .collect();
            for _ in 0..500 {
                (&client).write_all(&[1; 7]).unwrap();
            }
            // The end is for all of them.
            client.shutdown(Shutdown::Write).unwrap();
            readers
                .into_iter()
                .map(|reader| reader.join().unwrap())
                .sum::<usize>()
        });
        assert_eq!(counts, 3500);
    });
}

#[test]
fn a_worker_stuck_in_foreign_code_does_not_keep_what_it_accepted() {
    for driver in drivers() {
        let _watch = watch();
        runtime(driver, 2).run(|| {
            let listener = listen();
            let address = listener.local_addr().unwrap();
            let done = Gate::new();
            let stuck = Gate::new();
            let acceptor = on_the_other_worker({
                let (done, stuck) = (done.clone(), stuck.clone());
                move || {
                    let peers: Vec<_> = listener.incoming().take(8).collect();
                    let handlers = peers.into_iter().map(|peer| {
                        let peer = peer.unwrap();
                        sinew::spawn(move || {
                            let mut text = [0; 2];
                            (&peer).read_exact(&mut text).unwrap();
                            (&peer).write_all(&text).unwrap();
                        })
                    });
                    let handlers: Vec<_> = handlers.collect();
                    // Accepted, not started; and now this worker is gone for the world.
                    stuck.open();
                    while !done.is_open() {
                        std::thread::sleep(std::time::Duration::from_millis(1));
                    }
                    for handler in handlers {
                        handler.join().unwrap();
                    }
                }
            });
            let clients: Vec<_> = (0..8)
                .map(|_| TcpStream::connect(address).unwrap())
                .collect();
            stuck.pass();
            for mut client in &clients {
                client.write_all(b"ok").unwrap();
                client.read_exact(&mut [0; 2]).unwrap();
            }
            done.open();
            acceptor.join().unwrap();
        });
    }
}

#[test]
fn what_is_accepted_before_its_client_left_can_be_read() {
    on_fibers(|| {
        let listener = listen();
        let address = listener.local_addr().unwrap();
        for n in 0..50u8 {
            let client = TcpStream::connect(address).unwrap();
            (&client).write_all(&[n]).unwrap();
        }
        for (n, peer) in (0..50u8).zip(listener.incoming()) {
            let mut bytes = Vec::new();
            peer.unwrap().read_to_end(&mut bytes).unwrap();
            assert_eq!(bytes, [n]);
        }
    });
}
