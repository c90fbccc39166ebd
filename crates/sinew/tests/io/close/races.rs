//! Closing in a race with those who begin to wait, and with what arrives.

use super::is_closed;
use crate::harness::{Rng, watch};
use crate::tcp::{listen, pair};
use crate::world::{drivers, runtime};
use sinew::net::TcpStream;
use std::io::{Read, Write};
use std::sync::mpsc;

/// Rounds for each driver and number of workers.
const ROUNDS: u64 = 500;

/// Calls `round` with somebody who does things on another thread, a random moment after
/// they were given to it.
fn in_races(seed: u64, round: impl Fn(&mpsc::Sender<Box<dyn FnOnce() + Send>>) + Sync) {
    let _watch = watch();
    eprintln!("seed {seed:#x}");
    for driver in drivers() {
        for workers in [1, 2] {
            eprintln!("{driver:?}, {workers} workers");
            let (give, given) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
            let mut rng = Rng::new(seed);
            let other = std::thread::spawn(move || {
                for act in given {
                    for _ in 0..rng.below(3000) {
                        std::hint::spin_loop();
                    }
                    act();
                }
            });
            runtime(driver, workers).run(|| {
                for _ in 0..ROUNDS {
                    round(&give);
                }
            });
            drop(give);
            other.join().unwrap();
        }
    }
}

#[test]
fn a_close_racing_with_a_read_is_never_missed() {
    in_races(0xc105_e001, |elsewhere| {
        let (_client, server) = pair();
        let clone = server.try_clone().unwrap();
        elsewhere
            .send(Box::new(move || clone.close().unwrap()))
            .unwrap();
        is_closed((&server).read(&mut [0; 8]));
        is_closed((&server).read(&mut [0; 8]));
    });
}

#[test]
fn a_close_racing_with_an_accept_is_never_missed() {
    in_races(0xc105_e002, |elsewhere| {
        let listener = listen();
        let clone = listener.try_clone().unwrap();
        elsewhere
            .send(Box::new(move || clone.close().unwrap()))
            .unwrap();
        is_closed(listener.accept());
        let listener = listen();
        let clone = listener.try_clone().unwrap();
        elsewhere
            .send(Box::new(move || clone.close().unwrap()))
            .unwrap();
        let mut incoming = listener.incoming();
        is_closed(incoming.next().unwrap());
        assert!(incoming.next().is_none());
    });
}

#[test]
fn a_close_racing_with_writes_ends_them() {
    in_races(0xc105_e003, |elsewhere| {
        let (client, _server) = crate::tcp::narrow_pair();
        let clone = client.try_clone().unwrap();
        elsewhere
            .send(Box::new(move || clone.close().unwrap()))
            .unwrap();
        is_closed((&client).write_all(&[1; 1 << 20]));
    });
}

#[test]
fn bytes_that_were_read_before_a_close_are_in_order() {
    in_races(0xc105_e004, |elsewhere| {
        let (client, server) = pair();
        let clone = server.try_clone().unwrap();
        // Kept open, so that it is no end of the peer's.
        let feeds = client.try_clone().unwrap();
        elsewhere
            .send(Box::new(move || {
                // It may be closed at any moment by the time they arrive.
                for n in 0..20u8 {
                    let _gone = (&feeds).write(&[n]);
                }
                clone.close().unwrap();
            }))
            .unwrap();
        let mut next = 0;
        let mut buffer = [0; 3];
        let outcome = loop {
            match (&server).read(&mut buffer) {
                Ok(0) => panic!("the peer did not end it"),
                Ok(count) => {
                    for byte in &buffer[..count] {
                        assert_eq!(*byte, next);
                        next += 1;
                    }
                }
                end => break end,
            }
        };
        is_closed(outcome);
    });
}

#[test]
fn a_duplicate_that_outlives_a_socket_tells_nobody_else_of_its_events() {
    use std::os::fd::{AsFd, AsRawFd, OwnedFd};
    // The kernel watches what a descriptor stands for, so one that is only closed is
    // watched for as long as a duplicate lives.
    let _watch = watch();
    for driver in drivers() {
        runtime(driver, 1).run(|| {
            let mut old: Vec<(TcpStream, OwnedFd)> = Vec::new();
            for _ in 0..100 {
                let (client, server) = pair();
                let number = server.as_raw_fd();
                let duplicate = server.as_fd().try_clone_to_owned().unwrap();
                let reader = sinew::spawn_local(move || {
                    (&server).read_exact(&mut [0; 1]).unwrap();
                });
                crate::harness::wait_until(|| {
                    reader.fiber().wait_reason() == sinew::WaitReason::Read
                });
                (&client).write_all(b"x").unwrap();
                reader.join().unwrap();
                old.push((client, duplicate));
                // What comes for the old ones is not for the new one, which may have
                // the same number.
                let (client, server) = pair();
                let same = client.as_raw_fd() == number || server.as_raw_fd() == number;
                let reader = sinew::spawn_local(move || {
                    let mut bytes = [0; 2];
                    (&server).read_exact(&mut bytes).unwrap();
                    bytes
                });
                for (client, _) in &old {
                    (&mut &*client).write_all(b"old").unwrap();
                }
                sinew::yield_now();
                (&client).write_all(b"ab").unwrap();
                assert_eq!(&reader.join().unwrap(), b"ab", "the same number: {same}");
            }
        });
    }
}

#[test]
fn a_drop_elsewhere_racing_with_use_here_keeps_the_rest_alive() {
    in_races(0xc105_e005, |elsewhere| {
        let (client, server) = pair();
        let clone = server.try_clone().unwrap();
        let one: TcpStream = client.try_clone().unwrap();
        elsewhere
            .send(Box::new(move || {
                drop(clone);
                (&one).write_all(b"x").unwrap();
            }))
            .unwrap();
        assert_eq!((&server).read(&mut [0; 8]).unwrap(), 1);
        drop(client);
        assert_eq!((&server).read(&mut [0; 8]).unwrap(), 0);
    });
}
