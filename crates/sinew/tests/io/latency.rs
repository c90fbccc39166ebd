//! How long a fiber waits for a socket beside others that compute: counted in their
//! turns, for a loaded machine makes turns longer and not more.

use crate::harness::turns::Turns;
use crate::harness::watch;
use crate::world::{drivers, runtime};
use sinew::Priority;
use sinew::net::TcpListener;
use std::io::{Read, Write};
use std::net::TcpStream as ThreadStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// As in the tests of the API: far less than the 61 switches after which a worker
/// looks around in any case.
const FEW: usize = 12;
const SAMPLES: usize = 15;

/// Serves a plain thread, which sends single bytes and waits for each to come back.
/// Returns how many turns the computing fibers had before each was received.
fn waits_of_a_server(turns: &Turns) -> Vec<usize> {
    let here = turns.worker();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let received = Arc::new(AtomicUsize::new(0));
    let (theirs, clock) = (received.clone(), turns.clone());
    let client = std::thread::spawn(move || {
        let mut stream = ThreadStream::connect(at).unwrap();
        let waits = (0..SAMPLES).map(|_| {
            stream.write_all(&[1]).unwrap();
            // After the message, for this thread may have to wait for a CPU.
            let before = clock.on(here);
            stream.read_exact(&mut [0]).unwrap();
            theirs.load(Ordering::Relaxed).saturating_sub(before)
        });
        waits.collect()
    });
    let (mut stream, _) = listener.accept().unwrap();
    let mut byte = [0];
    while stream.read(&mut byte).unwrap() == 1 {
        // Published by the answer.
        received.store(turns.on(here), Ordering::Relaxed);
        stream.write_all(&byte).unwrap();
    }
    client.join().unwrap()
}

#[test]
fn a_server_among_computing_fibers_waits_for_few_turns() {
    let _watch = watch();
    for driver in drivers() {
        for workers in [1, 2] {
            for each in [1, 3, 10] {
                let waits = runtime(driver, workers).run(|| {
                    let turns = Turns::new();
                    let _stop = turns.stop_later();
                    let fibers: Vec<_> = (0..each * workers)
                        .map(|_| turns.compute(Priority::Normal))
                        .collect();
                    let waits = waits_of_a_server(&turns);
                    turns.stop();
                    for fiber in fibers {
                        fiber.join().unwrap();
                    }
                    waits
                });
                let few = waits.iter().all(|turns| *turns <= FEW);
                assert!(few, "{driver:?}, {workers} workers, {each} each: {waits:?}");
            }
        }
    }
}
