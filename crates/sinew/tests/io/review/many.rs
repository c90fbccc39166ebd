//! More at once than one call of the kernel brings; in processes of their own, for the
//! descriptors.

use super::child::{run, runtime};
use crate::harness::{Rng, wait_until, watch};
use crate::tcp::listen;
use crate::world;
use sinew::io::Async;
use sinew::net::{TcpStream, UnixStream};
use sinew::{Cancelled, IoDriver, WaitReason};
use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

/// Allows as many descriptors as may be.
fn allow_many_descriptors() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a place for the limits, and limits to read.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = limit.rlim_max;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
}

pub(super) fn more_events_than_one_look_takes() {
    // A worker takes 4096 before its fibers run again.
    const EVENTS: usize = 5000;
    allow_many_descriptors();
    runtime(1).run(|| {
        let (mut reader, mut writer) = std::os::unix::net::UnixStream::pair().unwrap();
        // Each is watched, so that one byte is an event for all.
        let duplicates: Vec<_> = (0..EVENTS)
            .map(|_| Async::new(reader.try_clone().unwrap()).unwrap())
            .collect();
        for _ in 0..2 {
            sinew::scope(|s| {
                let waiters: Vec<_> = duplicates
                    .iter()
                    .map(|duplicate| s.spawn(|| duplicate.readable().unwrap()))
                    .collect();
                wait_until(|| {
                    let mut waiters = waiters.iter();
                    waiters.all(|waiter| waiter.fiber().wait_reason() == WaitReason::Read)
                });
                // Nobody reads it: that might be another event, which tells of the rest.
                writer.write_all(b"x").unwrap();
            });
            reader.read_exact(&mut [0]).unwrap();
        }
    });
}

#[test]
fn more_events_than_one_look_takes_are_all_heard_of() {
    run("leftovers");
}

pub(super) fn more_reads_than_a_ring_has_answers() {
    const SOCKETS: usize = 1500;
    const READERS: usize = 4;
    allow_many_descriptors();
    runtime(1).run(|| {
        for end in ["bytes", "close", "cancel"] {
            let pairs: Vec<_> = (0..SOCKETS).map(|_| UnixStream::pair().unwrap()).collect();
            let readers: Vec<_> = (0..SOCKETS * READERS)
                .map(|number| {
                    let ours = pairs[number % SOCKETS].0.try_clone().unwrap();
                    sinew::spawn(move || (&ours).read(&mut [0]))
                })
                .collect();
            wait_until(|| {
                let mut readers = readers.iter();
                readers.all(|reader| reader.fiber().wait_reason() == WaitReason::Read)
            });
            match end {
                "bytes" => pairs
                    .iter()
                    .for_each(|(_, theirs)| (&*theirs).write_all(&[7; READERS]).unwrap()),
                "close" => pairs.iter().for_each(|(ours, _)| ours.close().unwrap()),
                _ => readers.iter().for_each(|reader| {
                    reader.cancel();
                }),
            }
            for reader in readers {
                let outcome = reader.join().unwrap();
                let expected = match (end, &outcome) {
                    ("bytes", Ok(count)) => *count == 1,
                    ("close", Err(error)) => error.kind() == ErrorKind::NotConnected,
                    ("cancel", Err(error)) => Cancelled::is_in(error),
                    _ => false,
                };
                assert!(expected, "{end}: {outcome:?}");
            }
        }
    });
}

#[test]
fn more_reads_than_a_ring_has_answers_end_by_bytes_by_closing_and_by_cancelling() {
    run("flood");
}

/// Sends on all of so many connections, then waits for all answers, so many times.
fn echoes(driver: IoDriver, connections: usize, rounds: usize) {
    eprintln!("{driver:?}: {connections} connections, {rounds} rounds");
    let runtime = world::runtime(driver, 1);
    let listener = listen();
    let address = listener.local_addr().unwrap();
    let server = runtime.spawn(move || {
        sinew::scope(|s| {
            for _ in 0..connections {
                let (mut stream, _) = listener.accept().unwrap();
                s.spawn(move || {
                    let mut message = [0; 64];
                    while stream.read_exact(&mut message).is_ok() {
                        stream.write_all(&message).unwrap();
                    }
                });
            }
        });
    });
    let mut clients: Vec<_> = (0..connections)
        .map(|_| std::net::TcpStream::connect(address).unwrap())
        .collect();
    for round in 0..rounds {
        let message = [round as u8; 64];
        for client in &mut clients {
            client.write_all(&message).unwrap();
        }
        for client in &mut clients {
            let mut answer = [0; 64];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(answer, message);
        }
    }
    drop(clients);
    server.join().unwrap();
}

#[test]
fn one_worker_answers_a_plain_thread_that_then_sends_nothing_more() {
    // A ring may say that there is more when there is not, if the last message comes
    // while it takes in the one before: with few connections most messages are the last.
    for (connections, rounds) in [(2, 30_000), (5, 15_000), (100, 200)] {
        for driver in world::drivers() {
            let _watch = watch();
            // An epoll has no such word; it is here for the answers.
            let rounds = match driver {
                IoDriver::Epoll => rounds.min(1000),
                _ => rounds,
            };
            echoes(driver, connections, rounds);
        }
    }
}

/// How a read may be ended.
const BY_BYTE: u64 = 0;
const BY_CLOSE: u64 = 1;
const BY_THE_PEER: u64 = 2;
const BY_CLOSE_ALONE: u64 = 3;

/// One read with a short timeout, which something else ends at about that time.
fn read_and_end(rng: &mut Rng) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let how = rng.below(4);
    if how != BY_CLOSE_ALONE {
        let timeout = Duration::from_micros(1 + rng.below(400));
        ours.set_read_timeout(Some(timeout)).unwrap();
    }
    let clone = ours.try_clone().unwrap();
    let reader = sinew::spawn(move || (&ours).read(&mut [0; 64]));
    // No order depends on it: any is right.
    sinew::sleep(Duration::from_micros(rng.below(300))).unwrap();
    let mut theirs = Some(theirs);
    match how {
        BY_BYTE => theirs.as_mut().unwrap().write_all(b"x").unwrap(),
        BY_THE_PEER => drop(theirs.take()),
        _ => clone.close().unwrap(),
    }
    let outcome = reader.join().unwrap();
    let expected = match (how, outcome.as_ref().map_err(std::io::Error::kind)) {
        (BY_BYTE, Ok(count)) => *count == 1,
        (BY_THE_PEER, Ok(count)) => *count == 0,
        (BY_CLOSE | BY_CLOSE_ALONE, Err(ErrorKind::NotConnected)) => true,
        (BY_BYTE | BY_THE_PEER | BY_CLOSE, Err(ErrorKind::WouldBlock)) => true,
        _ => false,
    };
    assert!(expected, "{how}: {outcome:?}");
}

#[test]
fn reads_end_as_they_should_when_bytes_ends_closes_and_timeouts_race() {
    const ROUNDS: u64 = 5;
    const READS: u64 = 200;
    let seed = u64::from(std::process::id());
    eprintln!("seed {seed}");
    world::on_fibers(|| {
        let mut rng = Rng::new(seed);
        for _ in 0..ROUNDS {
            sinew::scope(|s| {
                for _ in 0..READS {
                    let mut rng = rng.split();
                    s.spawn(move || read_and_end(&mut rng));
                }
            });
        }
    });
}

#[test]
fn a_read_that_is_closed_under_it_never_takes_that_for_the_end() {
    world::on_fibers(|| {
        for round in 0..200 {
            let (_client, server): (TcpStream, TcpStream) = crate::tcp::pair();
            let clone = server.try_clone().unwrap();
            let reader = sinew::spawn(move || (&server).read(&mut [0; 8]));
            // Before it waits, and while it does.
            if round % 2 == 0 {
                wait_until(|| reader.fiber().wait_reason() == WaitReason::Read);
            } else {
                sinew::yield_now();
            }
            clone.close().unwrap();
            let error = reader.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotConnected, "{error}");
        }
    });
}
