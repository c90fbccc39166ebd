//! A great many of things at once: timers, and reads in flight.

use super::child::on_each_driver;
use super::leaving_nothing;
use super::server::Server;
use crate::harness::{Rng, wait_until};
use crate::tcp::pair;
use sinew::net::TcpStream;
use sinew::{Cancelled, WaitReason};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// More than a ring has entries, and more than it has completions.
const READS: usize = 6000;
const SHARED_BY: usize = 3;

/// So many reads on one worker, ended by bytes and by a cancellation.
pub(super) fn more_reads_than_a_ring_holds() {
    leaving_nothing(1, |runtime| {
        runtime.run(|| {
            let pairs: Vec<_> = (0..READS / SHARED_BY).map(|_| pair()).collect();
            for cancels in [false, true, false] {
                let ended = AtomicUsize::new(0);
                sinew::scope(|s| {
                    let readers: Vec<_> = (0..READS)
                        .map(|number| {
                            let (_, server) = &pairs[number / SHARED_BY];
                            let ended = &ended;
                            s.spawn(move || {
                                let mut byte = [0; 1];
                                match (&mut &*server).read(&mut byte) {
                                    Ok(count) => {
                                        assert_eq!(count, 1);
                                        assert_eq!(byte[0], (number / SHARED_BY) as u8);
                                    }
                                    Err(error) => {
                                        assert!(cancels && Cancelled::is_in(&error), "{error}");
                                    }
                                }
                                // Relaxed: the scope's end is what its reader waits for.
                                ended.fetch_add(1, Ordering::Relaxed);
                            })
                        })
                        .collect();
                    wait_until(|| {
                        readers
                            .iter()
                            .all(|reader| reader.fiber().wait_reason() == WaitReason::Read)
                    });
                    if cancels {
                        s.cancel();
                        return;
                    }
                    // All at once, while the worker is kept from looking.
                    std::thread::scope(|threads| {
                        threads.spawn(|| {
                            for (number, (client, _)) in pairs.iter().enumerate() {
                                let bytes = [number as u8; SHARED_BY];
                                (&mut &*client).write_all(&bytes).unwrap();
                            }
                        });
                    });
                });
                assert_eq!(ended.into_inner(), READS);
            }
        });
    });
}

#[test]
fn more_reads_than_a_ring_has_entries_all_come_to_an_end() {
    on_each_driver("full ring");
}

/// Sleepers by the thousand beside connections that are busy.
pub(super) fn timers_with_io() {
    const SLEEPERS: u64 = 24_000;
    let seed = 0x71e5;
    println!("seed {seed:#x}");
    leaving_nothing(2, |runtime| {
        let server = Server::start(runtime);
        let address = server.address();
        let awake = AtomicUsize::new(0);
        runtime.run(|| {
            sinew::scope(|s| {
                let awake = &awake;
                let mut rng = Rng::new(seed);
                for _ in 0..SLEEPERS {
                    let time = Duration::from_micros(rng.below(1_500_000));
                    s.spawn(move || {
                        let begun = Instant::now();
                        sinew::sleep(time).unwrap();
                        assert!(begun.elapsed() >= time);
                        // Relaxed: only a number.
                        awake.fetch_add(1, Ordering::Relaxed);
                    });
                }
                for _ in 0..50 {
                    s.spawn(move || {
                        let mut stream = TcpStream::connect(address).unwrap();
                        let limit = Some(Duration::from_secs(100));
                        stream.set_read_timeout(limit).unwrap();
                        let mut number = 0u64;
                        while awake.load(Ordering::Relaxed) < SLEEPERS as usize {
                            stream.write_all(&number.to_le_bytes()).unwrap();
                            let mut answer = [0; 8];
                            stream.read_exact(&mut answer).unwrap();
                            assert_eq!(u64::from_le_bytes(answer), number);
                            number += 1;
                            if number % 100 == 0 {
                                sinew::sleep(Duration::from_micros(number % 777)).unwrap();
                            }
                        }
                        assert!(number > 0);
                    });
                }
            });
        });
        assert_eq!(server.stop(), 0, "connections broke");
    });
}

#[test]
fn timers_by_the_thousand_and_busy_connections_do_not_starve_each_other() {
    on_each_driver("timers");
}
