//! Cancelling, limits and arriving bytes, all at the same moment, thousands of times.

use crate::harness::{Rng, watch};
use crate::tcp::{listen, narrow_pair, pair};
use crate::world::{drivers, runtime};
use sinew::net::TcpStream;
use sinew::{CancelToken, Cancelled};
use std::io::{ErrorKind, Read, Write};
use std::sync::mpsc;
use std::time::Duration;

/// Rounds for each driver and number of workers.
const ROUNDS: u64 = 3000;

fn spin(times: u64) {
    for _ in 0..times {
        std::hint::spin_loop();
    }
}

/// What came, checked to be the numbers from 0 on.
#[derive(Default)]
struct Counted {
    bytes: u64,
    gave_up: u64,
}

impl Counted {
    fn take(&mut self, bytes: &[u8]) {
        assert!(!bytes.is_empty(), "nobody has ended it");
        for byte in bytes {
            assert_eq!(*byte, self.bytes as u8, "at byte {}", self.bytes);
            self.bytes += 1;
        }
    }

    /// Reads the rest, so that all are accounted for.
    fn finish(mut self, mut stream: &TcpStream, sent: u64) {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        for byte in rest {
            self.take(&[byte]);
        }
        assert_eq!(self.bytes, sent);
        eprintln!("{sent} bytes, given up {} times", self.gave_up);
    }
}

fn on_each(seed: u64, test: impl Fn(&mut Rng) + Sync) {
    let _watch = watch();
    eprintln!("seed {seed:#x}");
    for driver in drivers() {
        for workers in [1, 2] {
            eprintln!("{driver:?}, {workers} workers");
            runtime(driver, workers).run(|| test(&mut Rng::new(seed)));
        }
    }
}

#[test]
fn a_cancelled_read_racing_with_bytes_loses_and_doubles_none() {
    on_each(0xca9c_0001, |rng| {
        let (client, server) = pair();
        let (give, given) = mpsc::channel::<CancelToken>();
        let mut theirs = rng.split();
        // One thread does both, so that they are as near as can be.
        let other = std::thread::spawn(move || {
            let mut sent = 0u64;
            for stop in given {
                let first = theirs.chance(2);
                if first {
                    stop.cancel();
                }
                spin(theirs.below(800));
                let more = theirs.below(3);
                let bytes: Vec<u8> = (sent..sent + more).map(|n| n as u8).collect();
                (&client).write_all(&bytes).unwrap();
                sent += more;
                spin(theirs.below(800));
                if !first {
                    stop.cancel();
                }
            }
            sent
        });
        let mut counted = Counted::default();
        for _ in 0..ROUNDS {
            let stop = CancelToken::new();
            let mut buffer = [0xee; 4];
            let outcome = stop.enter(|| {
                give.send(stop.clone()).unwrap();
                (&server).read(&mut buffer)
            });
            match outcome {
                Ok(count) => counted.take(&buffer[..count]),
                Err(error) => {
                    assert!(Cancelled::is_in(&error), "{error}");
                    // What was not returned was not taken.
                    assert_eq!(buffer, [0xee; 4]);
                    counted.gave_up += 1;
                }
            }
        }
        drop(give);
        let sent = other.join().unwrap();
        counted.finish(&server, sent);
    });
}

#[test]
fn a_read_whose_time_is_over_racing_with_bytes_loses_and_doubles_none() {
    on_each(0xca9c_0002, |rng| {
        let (client, server) = pair();
        let mut theirs = rng.split();
        let (begin, begun) = mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            let mut sent = 0u64;
            for () in begun {
                spin(theirs.below(4000));
                (&client).write_all(&[sent as u8]).unwrap();
                sent += 1;
            }
            sent
        });
        let mut counted = Counted::default();
        for round in 0..ROUNDS {
            let limit = Duration::from_nanos(1 + rng.below(80_000));
            begin.send(()).unwrap();
            let mut buffer = [0xee; 4];
            // Each kind of limit.
            let outcome = if round % 2 == 0 {
                server.set_read_timeout(Some(limit)).unwrap();
                (&server).read(&mut buffer)
            } else {
                server.set_read_timeout(None).unwrap();
                match sinew::timeout(limit, || (&server).read(&mut buffer)) {
                    Ok(outcome) => outcome,
                    Err(late) => late.into_inner(),
                }
            };
            match outcome {
                Ok(count) => counted.take(&buffer[..count]),
                Err(error) => {
                    let over = error.kind() == ErrorKind::WouldBlock || Cancelled::is_in(&error);
                    assert!(over, "{error}");
                    assert_eq!(buffer, [0xee; 4]);
                    counted.gave_up += 1;
                }
            }
        }
        drop(begin);
        server.set_read_timeout(None).unwrap();
        let sent = other.join().unwrap();
        counted.finish(&server, sent);
    });
}

#[test]
fn a_cancelled_write_racing_with_room_tells_how_much_was_written() {
    on_each(0xca9c_0003, |rng| {
        let (client, server) = narrow_pair();
        let mut theirs = rng.split();
        let reader = std::thread::spawn(move || {
            let mut counted = Counted::default();
            let mut buffer = [0; 3000];
            loop {
                let want = 1 + theirs.below(3000) as usize;
                match (&server).read(&mut buffer[..want]).unwrap() {
                    0 => return counted.bytes,
                    count => counted.take(&buffer[..count]),
                }
                spin(theirs.below(2000));
            }
        });
        let mut sent = 0u64;
        let mut gave_up = 0u64;
        for _ in 0..ROUNDS {
            let limit = Duration::from_nanos(1 + rng.below(60_000));
            let bytes: Vec<u8> = (sent..sent + 700).map(|n| n as u8).collect();
            let outcome = match sinew::timeout(limit, || (&client).write(&bytes)) {
                Ok(outcome) => outcome,
                Err(late) => late.into_inner(),
            };
            match outcome {
                Ok(count) => sent += count as u64,
                Err(error) => {
                    assert!(Cancelled::is_in(&error), "{error}");
                    gave_up += 1;
                }
            }
        }
        drop(client);
        assert_eq!(reader.join().unwrap(), sent);
        eprintln!("{sent} bytes, given up {gave_up} times");
    });
}

#[test]
fn a_cancelled_accept_racing_with_connections_loses_none() {
    on_each(0xca9c_0004, |rng| {
        let listener = listen();
        let address = listener.local_addr().unwrap();
        let (give, given) = mpsc::channel::<CancelToken>();
        let mut theirs = rng.split();
        let other = std::thread::spawn(move || {
            let mut clients = Vec::new();
            for stop in given {
                let first = theirs.chance(2);
                if first {
                    stop.cancel();
                }
                spin(theirs.below(400));
                clients.push(TcpStream::connect(address).unwrap());
                spin(theirs.below(400));
                if !first {
                    stop.cancel();
                }
            }
            clients
        });
        let mut accepted = Vec::new();
        let rounds = 300;
        for _ in 0..rounds {
            let stop = CancelToken::new();
            let outcome = stop.enter(|| {
                give.send(stop.clone()).unwrap();
                listener.accept()
            });
            match outcome {
                Ok((stream, from)) => accepted.push((stream, from)),
                Err(error) => assert!(Cancelled::is_in(&error), "{error}"),
            }
        }
        drop(give);
        let clients = other.join().unwrap();
        while accepted.len() < rounds {
            accepted.push(listener.accept().unwrap());
        }
        // In order, each once, and each is alive.
        for (client, (server, from)) in clients.iter().zip(&accepted) {
            assert_eq!(client.local_addr().unwrap(), *from);
            (&mut &*client).write_all(b"x").unwrap();
            assert_eq!((&mut &*server).read(&mut [0; 8]).unwrap(), 1);
        }
    });
}

#[test]
fn a_cancelled_connect_racing_with_its_answer_is_one_or_the_other() {
    on_each(0xca9c_0005, |rng| {
        let listener = listen();
        let address = listener.local_addr().unwrap();
        for _ in 0..300 {
            let limit = Duration::from_nanos(1 + rng.below(60_000));
            let outcome = match sinew::timeout(limit, || TcpStream::connect(address)) {
                Ok(outcome) => outcome,
                Err(late) => late.into_inner(),
            };
            match outcome {
                Ok(client) => {
                    // Those that were given up before it may be in the backlog, too.
                    let mine = client.local_addr().unwrap();
                    let server = loop {
                        let (server, from) = listener.accept().unwrap();
                        if from == mine {
                            break server;
                        }
                    };
                    (&client).write_all(b"x").unwrap();
                    assert_eq!((&server).read(&mut [0; 8]).unwrap(), 1);
                }
                Err(error) => assert!(Cancelled::is_in(&error), "{error}"),
            }
        }
    });
}

#[test]
fn a_fiber_cancelled_by_another_of_its_worker_loses_no_byte() {
    on_each(0xca9c_0006, |rng| {
        let (client, server) = pair();
        let mut counted = Counted::default();
        let mut sent = 0u64;
        for _ in 0..ROUNDS {
            let (bytes, read) = sinew::scope(|s| {
                let server = &server;
                let reader = s.spawn(move || {
                    let mut buffer = [0; 4];
                    let read = (&*server).read(&mut buffer);
                    (buffer, read)
                });
                if rng.chance(2) {
                    sinew::yield_now();
                }
                if rng.chance(2) {
                    (&client).write_all(&[sent as u8]).unwrap();
                    sent += 1;
                }
                if rng.chance(2) {
                    sinew::yield_now();
                }
                reader.cancel();
                // One that never began was dropped.
                let ended = reader.join();
                ended.unwrap_or_else(|_| ([0; 4], Err(Cancelled.into())))
            });
            match read {
                Ok(count) => counted.take(&bytes[..count]),
                Err(error) => {
                    assert!(Cancelled::is_in(&error), "{error}");
                    counted.gave_up += 1;
                }
            }
        }
        drop(client);
        counted.finish(&server, sent);
    });
}
