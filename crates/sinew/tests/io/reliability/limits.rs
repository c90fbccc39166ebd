//! A process that is out of descriptors.

use super::child::{driver_names, start, until_told_to_end};
use super::server::echo;
use crate::harness::watch;
use sinew::Runtime;
use sinew::net::TcpListener;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const BY_ITERATOR: &str = "SINEW_IO_TEST_INCOMING";
const FEW: u64 = 64;

fn allow_few_descriptors() {
    let limit = libc::rlimit {
        rlim_cur: FEW,
        rlim_max: FEW,
    };
    // SAFETY: a limit to read.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
}

pub(super) fn server_with_few_descriptors() {
    allow_few_descriptors();
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
    println!("\nlistens on {}", listener.local_addr().unwrap());
    let failures = Arc::<AtomicU64>::default();
    let accepts = runtime.spawn({
        let (listener, failures) = (listener.clone(), failures.clone());
        let mut incoming = std::env::var_os(BY_ITERATOR).is_some();
        move || {
            let mut iterator = std::mem::take(&mut incoming).then(|| listener.incoming());
            loop {
                let next = match &mut iterator {
                    Some(iterator) => iterator.next(),
                    None => Some(listener.accept().map(|(stream, _)| stream)),
                };
                match next {
                    Some(Ok(stream)) => drop(sinew::spawn(move || echo(&stream))),
                    Some(Err(error)) if error.raw_os_error() == Some(libc::EMFILE) => {
                        // Relaxed: a number. Said once: then the other side goes on.
                        if failures.fetch_add(1, Ordering::Relaxed) == 0 {
                            println!("\nexhausted");
                        }
                    }
                    Some(Err(error)) => {
                        assert!(listener.is_closed(), "{error}");
                        return;
                    }
                    None => return,
                }
            }
        }
    });
    until_told_to_end();
    listener.close().unwrap();
    accepts.join().unwrap();
    println!("\nfailures {}", failures.load(Ordering::Relaxed));
}

#[test]
fn an_accept_loop_out_of_descriptors_neither_dies_nor_spins() {
    let _watch = watch();
    for driver in driver_names() {
        for by_iterator in [false, true] {
            eprintln!("{driver}, by iterator: {by_iterator}");
            let mut variables = vec![("SINEW_IO", driver)];
            variables.extend(by_iterator.then_some((BY_ITERATOR, "1")));
            let begun = Instant::now();
            let mut server = start("few descriptors", &variables);
            let address = server.says("listens on");
            // More than it can have.
            let clients: Vec<_> = (0..2 * FEW)
                .map(|_| std::net::TcpStream::connect(&address).unwrap())
                .collect();
            server.says("exhausted");
            // No order depends on it: it is time to spin in.
            std::thread::sleep(Duration::from_millis(200));
            // All are served, each making room for another.
            for mut client in clients {
                client.write_all(b"served").unwrap();
                let mut answer = [0; 6];
                client.read_exact(&mut answer).unwrap();
                assert_eq!(&answer, b"served");
            }
            let ended = server.end();
            let millis = begun.elapsed().as_millis() as u64;
            let (_, failures) = ended.succeeded().stdout.split_once("failures ").unwrap();
            let failures: u64 = failures.split_whitespace().next().unwrap().parse().unwrap();
            eprintln!("{failures} failures in {millis} ms");
            // It pauses for 10 ms after each; a loop that spins has a thousand times
            // as many.
            assert!(
                failures > 0 && failures < millis,
                "{failures} in {millis} ms"
            );
        }
    }
}
