//! Clients in one process, the server in another: each byte is checked.

use super::child::{driver_names, on_each_driver, start, until_told_to_end};
use super::server::Server;
use super::{at_length, descriptor_limit, leaving_nothing};
use crate::harness::{Rng, watch};
use sinew::net::TcpStream;
use sinew::sync::Barrier;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const ADDRESS: &str = "SINEW_IO_TEST_ADDRESS";

/// Sends a message and takes it back, each byte checked.
fn exchange(mut stream: &TcpStream, rng: &mut Rng, most: u64) {
    let mut message = [0; 512];
    let message = &mut message[..1 + rng.below(most) as usize];
    message.fill_with(|| rng.next() as u8);
    stream.write_all(message).unwrap();
    let mut answer = [0; 512];
    let answer = &mut answer[..message.len()];
    stream.read_exact(answer).unwrap();
    assert!(answer == message, "it came back changed");
}

fn end(mut stream: &TcpStream) {
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "there is more");
}

/// How many connections and how many echoes on each.
fn size() -> (usize, usize) {
    let (connections, echoes) = if at_length() {
        (10_000, 100)
    } else {
        (2000, 20)
    };
    // Some are for others.
    (connections.min(descriptor_limit() - 200), echoes)
}

pub(super) fn server() {
    leaving_nothing(2, |runtime| {
        let server = Server::start(runtime);
        println!("\nlistens on {}", server.address());
        until_told_to_end();
        assert_eq!(server.stop(), 0, "connections broke");
    });
}

pub(super) fn clients() {
    let address: SocketAddr = std::env::var(ADDRESS).unwrap().parse().unwrap();
    let (connections, echoes) = size();
    leaving_nothing(2, |runtime| {
        runtime.run(|| {
            // All are there before the first one speaks.
            let all = Arc::new(Barrier::new(connections));
            let clients: Vec<_> = (0..connections)
                .map(|number| {
                    let all = all.clone();
                    sinew::spawn(move || {
                        let stream = TcpStream::connect(address).unwrap();
                        all.wait();
                        let mut rng = Rng::new(number as u64);
                        for _ in 0..echoes {
                            exchange(&stream, &mut rng, 200);
                        }
                        end(&stream);
                    })
                })
                .collect();
            for client in clients {
                client.join().unwrap();
            }
        });
    });
    println!("{connections} connections, {echoes} echoes each");
}

#[test]
fn every_byte_of_many_connections_comes_back() {
    for driver in driver_names() {
        let _watch = watch();
        let mut server = start("echo server", &[("SINEW_IO", driver)]);
        let address = server.says("listens on");
        let clients = start("echo clients", &[("SINEW_IO", driver), (ADDRESS, &address)]);
        let clients = clients.end();
        eprintln!("{driver}: {}", clients.stdout);
        clients.succeeded();
        server.end().succeeded();
    }
}

/// Many that come, ask once and go.
pub(super) fn storm() {
    const AT_ONCE: usize = 100;
    let each = if at_length() { 500 } else { 25 };
    leaving_nothing(2, |runtime| {
        let server = Server::start(runtime);
        let address = server.address();
        let clients: Vec<_> = (0..AT_ONCE)
            .map(|number| {
                runtime.spawn(move || {
                    let mut rng = Rng::new(number as u64);
                    for _ in 0..each {
                        let stream = TcpStream::connect(address).unwrap();
                        exchange(&stream, &mut rng, 100);
                        if rng.chance(2) {
                            end(&stream);
                        }
                    }
                })
            })
            .collect();
        for client in clients {
            client.join().unwrap();
        }
        server.stop();
    });
}

#[test]
fn a_storm_of_short_connections_is_served_and_leaves_nothing() {
    on_each_driver("storm");
}

/// Some that say a byte at a time and then nothing, beside some that are quick.
pub(super) fn slow_and_fast() {
    const SLOW: usize = 400;
    const FAST: usize = 50;
    leaving_nothing(2, |runtime| {
        let server = Server::start(runtime);
        let address = server.address();
        let done = Arc::new(AtomicUsize::new(0));
        let slow: Vec<_> = (0..SLOW)
            .map(|number| {
                let done = done.clone();
                runtime.spawn(move || {
                    let stream = TcpStream::connect(address).unwrap();
                    let mut rounds = 0;
                    // As long as there is anybody quick.
                    // Relaxed: only a number.
                    while done.load(Ordering::Relaxed) < FAST {
                        exchange(&stream, &mut Rng::new(rounds), 1);
                        rounds += 1;
                        sinew::sleep(Duration::from_millis(20 + number as u64 % 50)).unwrap();
                    }
                    end(&stream);
                    assert!(rounds > 0);
                })
            })
            .collect();
        let fast: Vec<_> = (0..FAST)
            .map(|number| {
                let done = done.clone();
                runtime.spawn(move || {
                    let stream = TcpStream::connect(address).unwrap();
                    let mut rng = Rng::new(number as u64);
                    for _ in 0..100 {
                        exchange(&stream, &mut rng, 500);
                    }
                    end(&stream);
                    done.fetch_add(1, Ordering::Relaxed);
                })
            })
            .collect();
        for client in fast.into_iter().chain(slow) {
            client.join().unwrap();
        }
        assert_eq!(server.stop(), 0, "connections broke");
    });
}

#[test]
fn slow_clients_do_not_keep_quick_ones_from_their_answers() {
    on_each_driver("slow and fast");
}

/// Some that leave without a word in the middle of one.
pub(super) fn resets() {
    let seed = 0x5e7_0001;
    println!("seed {seed:#x}");
    let rounds = if at_length() { 200 } else { 10 };
    leaving_nothing(2, |runtime| {
        let server = Server::start(runtime);
        let address = server.address();
        let mut rng = Rng::new(seed);
        let clients: Vec<_> = (0..100)
            .map(|_| {
                let mut rng = rng.split();
                runtime.spawn(move || {
                    for _ in 0..rounds {
                        let stream = TcpStream::connect(address).unwrap();
                        stream.set_linger(Some(Duration::ZERO)).unwrap();
                        match rng.below(4) {
                            0 => {}
                            1 => (&stream).write_all(&[1; 5000]).unwrap(),
                            2 => exchange(&stream, &mut rng, 500),
                            _ => {
                                (&stream).write_all(&[2; 3000]).unwrap();
                                let mut some = vec![0; 1 + rng.below(2999) as usize];
                                (&stream).read_exact(&mut some).unwrap();
                            }
                        }
                    }
                    // And one that is well-behaved.
                    let stream = TcpStream::connect(address).unwrap();
                    for _ in 0..5 {
                        exchange(&stream, &mut rng, 500);
                    }
                    end(&stream);
                })
            })
            .collect();
        for client in clients {
            client.join().unwrap();
        }
        server.stop();
        let error = TcpStream::connect(address).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn resets_at_random_points_harm_nobody_else() {
    on_each_driver("resets");
}
