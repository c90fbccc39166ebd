//! Cancellation and limits: they end a wait, and no byte is lost or doubled.

mod races;

use crate::close::{Who, for_each_waiter, waiting};
use crate::harness::{is_expected, panic_expected, wait_until, watch};
use crate::tcp::{listen, listen_alone, narrow_pair, pair};
use crate::world::{drivers, everywhere, on_fibers, runtime};
use sinew::net::{TcpListener, TcpStream};
use sinew::{CancelToken, Cancelled, WaitReason};
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[track_caller]
fn is_cancelled<T: std::fmt::Debug>(outcome: io::Result<T>) {
    let error = outcome.unwrap_err();
    assert!(Cancelled::is_in(&error), "{error}");
}

/// Calls `wait` where `token` cancels it.
fn under<T: Send + 'static>(
    token: &CancelToken,
    wait: impl FnOnce() -> T + Send + 'static,
) -> impl FnOnce() -> T + Send + 'static {
    let token = token.clone();
    move || token.enter(wait)
}

#[test]
fn cancelling_ends_a_read_and_a_write_wherever_they_wait() {
    for_each_waiter(|who| {
        let (client, server) = pair();
        let server = Arc::new(server);
        let stop = CancelToken::new();
        let theirs = server.clone();
        let read = under(&stop, move || (&*theirs).read(&mut [0; 8]));
        let reader = waiting(who, WaitReason::Read, read);
        stop.cancel();
        is_cancelled(reader.join());
        (&client).write_all(b"later").unwrap();
        assert_eq!((&*server).read(&mut [0; 8]).unwrap(), 5);

        let (client, server) = narrow_pair();
        let stop = CancelToken::new();
        let write = under(&stop, move || {
            let mut written = 0;
            loop {
                match (&client).write(&[0; 8192]) {
                    Ok(count) => written += count,
                    Err(error) => return (written, error),
                }
            }
        });
        let writer = waiting(who, WaitReason::Write, write);
        stop.cancel();
        let (written, error) = writer.join();
        assert!(Cancelled::is_in(&error), "{error}");
        let mut received = Vec::new();
        (&server).read_to_end(&mut received).unwrap();
        assert_eq!(received.len(), written);
    });
}

#[test]
fn cancelling_ends_an_accept_and_the_listener_goes_on() {
    for_each_waiter(|who| {
        let listener = listen();
        let address = listener.local_addr().unwrap();
        for by_iterator in [false, true] {
            let stop = CancelToken::new();
            let theirs = listener.try_clone().unwrap();
            let accept = under(&stop, move || {
                if by_iterator {
                    theirs.incoming().next().unwrap().map(|_| ())
                } else {
                    theirs.accept().map(|_| ())
                }
            });
            let acceptor = waiting(who, WaitReason::Accept, accept);
            stop.cancel();
            is_cancelled(acceptor.join());
            let client = TcpStream::connect(address).unwrap();
            let (_, from) = listener.accept().unwrap();
            assert_eq!(from, client.local_addr().unwrap());
        }
    });
}

#[test]
fn cancelling_ends_a_connect_and_frees_its_descriptor() {
    for_each_waiter(|who| {
        // Its backlog holds one; when it is full the kernel answers no more.
        let listener = TcpListener::builder()
            .backlog(0)
            .bind("127.0.0.1:0")
            .unwrap();
        let address = listener.local_addr().unwrap();
        let mut clients = Vec::new();
        let limit = Duration::from_millis(50);
        while let Ok(client) = TcpStream::connect_timeout(&address, limit) {
            clients.push(client);
            assert!(clients.len() < 16, "the backlog is never full");
        }
        let stop = CancelToken::new();
        let connect = under(&stop, move || TcpStream::connect(address).map(|_| ()));
        let connects = waiting(who, WaitReason::Connect, connect);
        stop.cancel();
        is_cancelled(connects.join());
    });
}

#[test]
fn who_is_cancelled_already_does_not_begin() {
    everywhere(|| {
        let (client, server) = pair();
        (&client).write_all(b"there").unwrap();
        let listener = listen();
        let address = listener.local_addr().unwrap();
        let stop = CancelToken::new();
        stop.cancel();
        stop.enter(|| {
            is_cancelled((&server).read(&mut [0; 8]));
            is_cancelled((&server).write(b"x"));
            is_cancelled(server.peek(&mut [0; 8]));
            is_cancelled(listener.accept());
            is_cancelled(listener.incoming().next().unwrap());
            is_cancelled(TcpStream::connect(address));
            is_cancelled(TcpStream::connect("localhost:1"));
            // Where it is shielded it works.
            sinew::shield(|| assert_eq!((&server).read(&mut [0; 8]).unwrap(), 5));
        });
        client.set_nonblocking(true).unwrap();
        assert!((&client).read(&mut [0; 8]).is_err(), "nothing was written");
    });
}

#[test]
fn a_shielded_read_is_not_cancelled() {
    on_fibers(|| {
        let (client, server) = pair();
        let reader = sinew::spawn(move || {
            let shielded = sinew::shield(|| (&server).read(&mut [0; 8]));
            (shielded, (&server).read(&mut [0; 8]))
        });
        wait_until(|| reader.fiber().wait_reason() == WaitReason::Read);
        reader.cancel();
        sinew::yield_now();
        (&client).write_all(b"x").unwrap();
        let (shielded, open) = reader.join().unwrap();
        assert_eq!(shielded.unwrap(), 1);
        is_cancelled(open);
    });
}

#[test]
fn a_scope_cancels_a_thousand_parked_readers() {
    const READERS: usize = 1000;
    on_fibers(|| {
        let pairs: Vec<_> = (0..READERS).map(|_| pair()).collect();
        let cancelled = AtomicUsize::new(0);
        sinew::scope(|s| {
            let readers: Vec<_> = pairs
                .iter()
                .map(|(_, server)| {
                    let cancelled = &cancelled;
                    s.spawn(move || {
                        is_cancelled((&mut &*server).read(&mut [0; 8]));
                        // Relaxed: the scope's end is what the reader of it waits for.
                        cancelled.fetch_add(1, Ordering::Relaxed);
                    })
                })
                .collect();
            wait_until(|| {
                readers
                    .iter()
                    .all(|reader| reader.fiber().wait_reason() == WaitReason::Read)
            });
            s.cancel();
        });
        assert_eq!(cancelled.into_inner(), READERS);
        // All are as they were.
        for (client, server) in &pairs {
            (&mut &*client).write_all(b"x").unwrap();
            assert_eq!((&mut &*server).read(&mut [0; 8]).unwrap(), 1);
        }
    });
}

#[test]
fn a_panic_closes_the_sockets_it_unwinds() {
    on_fibers(|| {
        let (client, server) = pair();
        let holder = sinew::spawn(move || {
            let _read = (&server).read(&mut [0; 1]).unwrap();
            panic_expected(5);
        });
        (&client).write_all(b"x").unwrap();
        let error = holder.join().unwrap_err();
        assert!(is_expected(&*error.into_panic(), 5));
        assert_eq!((&client).read(&mut [0; 8]).unwrap(), 0);
    });
}

#[test]
fn sockets_are_used_and_dropped_while_a_panic_unwinds() {
    struct Says(TcpStream);
    impl Drop for Says {
        fn drop(&mut self) {
            // It waits, on a fiber that unwinds.
            self.0.write_all(b"bye").unwrap();
            assert_eq!(self.0.read(&mut [0; 8]).unwrap(), 3);
        }
    }
    on_fibers(|| {
        let (client, server) = pair();
        let holder = sinew::spawn(move || {
            let _says = Says(server);
            panic_expected(6);
        });
        let mut text = [0; 3];
        (&client).read_exact(&mut text).unwrap();
        assert_eq!(&text, b"bye");
        (&client).write_all(b"bye").unwrap();
        assert!(holder.join().unwrap_err().is_panic());
    });
}

#[test]
fn a_runtime_that_shuts_down_ends_all_waits() {
    for driver in drivers() {
        let _watch = watch();
        for workers in [1, 2] {
            let runtime = runtime(driver, workers);
            let (one, reads) = pair();
            let (two, writes) = narrow_pair();
            let accepts = listen_alone();
            let iterates = listen_alone();
            let addresses = [
                accepts.local_addr().unwrap(),
                iterates.local_addr().unwrap(),
            ];
            let fibers = [
                runtime.spawn(move || (&reads).read(&mut [0; 8]).map(|_| ())),
                runtime.spawn(move || (&writes).write_all(&[0; 1 << 20])),
                runtime.spawn(move || accepts.accept().map(|_| ())),
                runtime.spawn(move || iterates.into_incoming().next().unwrap().map(|_| ())),
            ];
            wait_until(|| {
                fibers.iter().all(|fiber| {
                    let reason = fiber.fiber().wait_reason();
                    matches!(
                        reason,
                        WaitReason::Read | WaitReason::Write | WaitReason::Accept
                    )
                })
            });
            runtime.shutdown();
            for fiber in fibers {
                is_cancelled(fiber.join().unwrap());
            }
            // What they held is closed.
            assert_eq!((&one).read(&mut [0; 8]).unwrap(), 0);
            drop(two);
            for address in addresses {
                drop(TcpListener::bind(address).unwrap());
            }
        }
    }
}

#[test]
fn sockets_outlive_the_runtime_that_watched_them() {
    for driver in drivers() {
        let _watch = watch();
        let (client, server) = pair();
        let server = Arc::new(server);
        let first = runtime(driver, 1);
        let theirs = server.clone();
        let reader = first.spawn(move || (&*theirs).read(&mut [0; 8]).unwrap());
        wait_until(|| reader.fiber().wait_reason() == WaitReason::Read);
        (&client).write_all(b"first").unwrap();
        assert_eq!(reader.join().unwrap(), 5);
        drop(first);
        let theirs = server.clone();
        let second = runtime(driver, 1);
        let reader = second.spawn(move || (&*theirs).read(&mut [0; 8]).unwrap());
        wait_until(|| reader.fiber().wait_reason() == WaitReason::Read);
        (&client).write_all(b"second").unwrap();
        assert_eq!(reader.join().unwrap(), 6);
        // And here, on a plain thread.
        (&client).write_all(b"x").unwrap();
        assert_eq!((&*server).read(&mut [0; 8]).unwrap(), 1);
    }
}

#[test]
fn a_thread_that_waits_can_be_cancelled_by_a_limit_and_by_a_token() {
    let _watch = watch();
    let (_client, server) = pair();
    let late = sinew::timeout(Duration::from_millis(10), || (&server).read(&mut [0; 8]));
    is_cancelled(late.unwrap_err().into_inner());
    let stop = CancelToken::new();
    let read = under(&stop, move || (&server).read(&mut [0; 8]));
    let reader = waiting(Who::Thread, WaitReason::Read, read);
    stop.cancel();
    is_cancelled(reader.join());
}
