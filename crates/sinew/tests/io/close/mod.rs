//! `close` and `shutdown` end the waits of everybody, wherever they wait.

mod races;
mod waiting;

use crate::harness::watch;
use crate::tcp::{listen, narrow_pair, pair};
use crate::world::{drivers, everywhere, runtime};
use sinew::WaitReason;
use sinew::net::{TcpListener, TcpStream};
use std::cell::Cell;
use std::io::{self, ErrorKind, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::rc::Rc;
use std::sync::Arc;
pub use waiting::{Who, waiting};

/// Calls `test` on a fiber for each who may wait: on each driver, with one worker and
/// with two.
pub fn for_each_waiter(test: impl Fn(Who) + Sync) {
    let _watch = watch();
    for driver in drivers() {
        for workers in [1, 2] {
            runtime(driver, workers).run(|| {
                for who in Who::with_workers(workers) {
                    eprintln!("{driver:?}, {workers} workers, {who:?}");
                    test(*who);
                }
            });
        }
    }
}

fn is_closed<T: std::fmt::Debug>(outcome: io::Result<T>) {
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::NotConnected);
}

/// What a stream may wait in.
type Wait = fn(&TcpStream) -> io::Result<usize>;

const READS: [Wait; 3] = [
    |mut stream| stream.read(&mut [0; 8]),
    |stream| stream.peek(&mut [0; 8]),
    |mut stream| stream.read_vectored(&mut [IoSliceMut::new(&mut [0; 8])]),
];

/// More than a narrow connection holds.
const MUCH: usize = 1 << 20;

const WRITES: [Wait; 2] = [
    |mut stream| stream.write_all(&[0; MUCH]).map(|()| MUCH),
    |mut stream| {
        let mut written = 0;
        while written < MUCH {
            let part = [0; 4096];
            written += stream.write_vectored(&[io::IoSlice::new(&part)])?;
        }
        Ok(written)
    },
];

#[test]
fn closing_ends_a_read_wherever_it_waits() {
    for_each_waiter(|who| {
        for read in READS {
            let (_client, server) = pair();
            let server = Arc::new(server);
            let theirs = server.clone();
            let reader = waiting(who, WaitReason::Read, move || read(&theirs));
            assert!(!server.is_closed());
            server.close().unwrap();
            is_closed(reader.join());
            assert!(server.is_closed());
        }
    });
}

#[test]
fn closing_ends_a_write_wherever_it_waits() {
    for_each_waiter(|who| {
        for write in WRITES {
            let (client, _server) = narrow_pair();
            let client = Arc::new(client);
            let theirs = client.clone();
            let writer = waiting(who, WaitReason::Write, move || write(&theirs));
            client.close().unwrap();
            is_closed(writer.join());
        }
    });
}

#[test]
fn closing_ends_an_accept_wherever_it_waits() {
    for_each_waiter(|who| {
        let waits: [fn(TcpListener) -> io::Result<TcpStream>; 3] = [
            |listener| listener.accept().map(|(stream, _)| stream),
            |listener| listener.incoming().next().unwrap(),
            |listener| listener.into_incoming().next().unwrap(),
        ];
        for wait in waits {
            let listener = listen();
            let theirs = listener.try_clone().unwrap();
            let acceptor = waiting(who, WaitReason::Accept, move || wait(theirs));
            listener.close().unwrap();
            is_closed(acceptor.join());
            assert!(listener.is_closed());
        }
    });
}

#[test]
fn closing_ends_the_waits_of_everybody_at_once() {
    for_each_waiter(|_| {
        let (_client, server) = narrow_pair();
        let server = Arc::new(server);
        let mut waits = Vec::new();
        for who in [Who::Here, Who::Thread, Who::Anywhere] {
            for (reason, wait) in [
                (WaitReason::Read, READS[0]),
                (WaitReason::Read, READS[2]),
                (WaitReason::Write, WRITES[0]),
            ] {
                let theirs = server.clone();
                waits.push(waiting(who, reason, move || wait(&theirs)));
            }
        }
        server.close().unwrap();
        for wait in waits {
            is_closed(wait.join());
        }
    });
}

#[test]
fn a_thread_or_a_clone_may_close_as_well() {
    for_each_waiter(|who| {
        let (_client, server) = pair();
        let server = Arc::new(server);
        let theirs = server.clone();
        let reader = waiting(who, WaitReason::Read, move || READS[0](&theirs));
        let clone = server.try_clone().unwrap();
        std::thread::spawn(move || clone.close().unwrap())
            .join()
            .unwrap();
        is_closed(reader.join());
        assert!(server.is_closed());
    });
}

#[test]
fn what_is_closed_stays_closed_for_all_operations() {
    everywhere(|| {
        let (client, server) = pair();
        (&client).write_all(b"unread").unwrap();
        let clone = server.try_clone().unwrap();
        clone.close().unwrap();
        for wait in READS.iter().chain(&WRITES) {
            is_closed(wait(&server));
            server.set_nonblocking(true).unwrap();
            is_closed(wait(&server));
            server.set_nonblocking(false).unwrap();
        }
        // Again is no harm, and the descriptor is still ours.
        clone.close().unwrap();
        assert!(server.local_addr().is_ok());
        let listener = listen();
        let address = listener.local_addr().unwrap();
        listener.close().unwrap();
        is_closed(listener.accept());
        is_closed(listener.incoming().next().unwrap());
        let error = TcpStream::connect(address).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn the_peer_of_what_is_closed_sees_the_end() {
    everywhere(|| {
        let (client, server) = pair();
        (&server).write_all(b"last words").unwrap();
        server.close().unwrap();
        let mut text = String::new();
        (&client).read_to_string(&mut text).unwrap();
        assert_eq!(text, "last words");
    });
}

#[test]
fn shutting_down_ends_a_read_wherever_it_waits() {
    for_each_waiter(|who| {
        for (read, how) in READS
            .iter()
            .zip([Shutdown::Read, Shutdown::Both, Shutdown::Both])
        {
            let (_client, server) = pair();
            let server = Arc::new(server);
            let theirs = server.clone();
            let reader = waiting(who, WaitReason::Read, move || read(&theirs));
            server.shutdown(how).unwrap();
            assert_eq!(reader.join().unwrap(), 0);
        }
    });
}

#[test]
fn shutting_down_ends_a_write_wherever_it_waits() {
    for_each_waiter(|who| {
        for (write, how) in WRITES.iter().zip([Shutdown::Write, Shutdown::Both]) {
            let (client, _server) = narrow_pair();
            let client = Arc::new(client);
            let theirs = client.clone();
            let writer = waiting(who, WaitReason::Write, move || write(&theirs));
            client.shutdown(how).unwrap();
            let error = writer.join().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        }
    });
}

#[test]
fn the_peers_end_and_its_reset_end_a_wait_wherever_it_waits() {
    for_each_waiter(|who| {
        let (client, server) = pair();
        let reader = waiting(who, WaitReason::Read, move || READS[0](&server));
        drop(client);
        assert_eq!(reader.join().unwrap(), 0);

        let (client, server) = pair();
        let reader = waiting(who, WaitReason::Read, move || READS[2](&server));
        client.set_linger(Some(std::time::Duration::ZERO)).unwrap();
        drop(client);
        let error = reader.join().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);

        let (client, server) = narrow_pair();
        let writer = waiting(who, WaitReason::Write, move || WRITES[0](&server));
        client.set_linger(Some(std::time::Duration::ZERO)).unwrap();
        drop(client);
        let error = writer.join().unwrap_err();
        assert!(
            matches!(
                error.kind(),
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
            ),
            "{error}"
        );
    });
}

#[test]
fn bytes_and_room_end_a_wait_wherever_it_waits() {
    for_each_waiter(|who| {
        for read in READS {
            let (client, server) = pair();
            let reader = waiting(who, WaitReason::Read, move || read(&server));
            (&client).write_all(b"three").unwrap();
            assert_eq!(reader.join().unwrap(), 5);
        }
        for write in WRITES {
            let (client, server) = narrow_pair();
            let writer = waiting(who, WaitReason::Write, move || write(&client));
            let mut received = Vec::new();
            (&server).read_to_end(&mut received).unwrap();
            assert_eq!(received.len(), writer.join().unwrap());
        }
        let listener = listen();
        let address = listener.local_addr().unwrap();
        let acceptor = waiting(who, WaitReason::Accept, move || listener.accept());
        let client = TcpStream::connect(address).unwrap();
        let (_, from) = acceptor.join().unwrap();
        assert_eq!(from, client.local_addr().unwrap());
    });
}

/// Calls that fail at once, in loops that ignore that, let the other fibers of the worker run.
#[test]
fn a_loop_of_calls_on_what_is_closed_lets_others_run() {
    fn until_another_ran(mut call: impl FnMut()) {
        let ran = Rc::new(Cell::new(false));
        let theirs = ran.clone();
        let other = sinew::spawn_local(move || theirs.set(true));
        while !ran.get() {
            call();
        }
        other.join().unwrap();
    }
    let _watch = watch();
    for driver in drivers() {
        runtime(driver, 1).run(|| {
            let (stream, _peer) = pair();
            stream.close().unwrap();
            for call in READS.iter().chain(&WRITES) {
                until_another_ran(|| is_closed(call(&stream)));
            }
            let listener = listen();
            listener.close().unwrap();
            until_another_ran(|| is_closed(listener.accept()));
        });
    }
}
