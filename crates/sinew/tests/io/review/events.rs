//! An event is for who waits for readiness, not for who waits for an answer, though both
//! stand in the same line.

use super::hear;
use crate::harness::{wait_until, watch};
use crate::tcp::pair;
use crate::world::{drivers, runtime};
use futures_util::AsyncReadExt;
use sinew::interop::AsyncIo;
use sinew::net::TcpStream;
use sinew::{JoinHandle, Runtime, WaitReason};
use socket2::SockRef;
use std::io::{self, Read, Write};

/// Has a fiber wait for a byte.
fn read(runtime: &Runtime, stream: &TcpStream) -> JoinHandle<io::Result<usize>> {
    let mut stream = stream.try_clone().unwrap();
    let reader = runtime.spawn(move || stream.read(&mut [0]));
    wait_until(|| reader.fiber().wait_reason() == WaitReason::Read);
    // Where it waits is known to the kernel, and what that says at once was heard.
    runtime.run(hear);
    runtime.run(hear);
    reader
}

/// An urgent byte is an event, but nothing that a read would bring; then both read.
fn wakes_only_by_bytes(
    peer: &mut TcpStream,
    runtimes: [&Runtime; 2],
    readers: [JoinHandle<io::Result<usize>>; 2],
) {
    // One only: with a second one the first would be a byte as any other.
    SockRef::from(&*peer).send_out_of_band(b"!").unwrap();
    for runtime in runtimes {
        runtime.run(hear);
    }
    for reader in &readers {
        assert!(!reader.is_finished());
    }
    peer.write_all(b"ab").unwrap();
    for reader in readers {
        assert_eq!(reader.join().unwrap().unwrap(), 1);
    }
}

#[test]
fn an_event_heard_by_one_runtime_ends_no_read_of_anothers_ring() {
    let _watch = watch();
    for theirs in drivers() {
        for ours in drivers() {
            let runtimes = [&runtime(ours, 1), &runtime(theirs, 1)];
            let (mut peer, stream) = pair();
            let readers = runtimes.map(|runtime| read(runtime, &stream));
            wakes_only_by_bytes(&mut peer, runtimes, readers);
        }
    }
}

#[test]
fn a_task_that_polls_a_socket_ends_no_read_of_a_fiber() {
    let _watch = watch();
    for driver in drivers() {
        for workers in [1, 2] {
            let runtime = runtime(driver, workers);
            let (mut peer, stream) = pair();
            let reader = read(&runtime, &stream);
            let clone = stream.try_clone().unwrap();
            let polls = runtime.spawn(move || {
                let mut polled = AsyncIo::new(clone).unwrap();
                sinew::block_on(async { polled.read(&mut [0]).await })
            });
            runtime.run(hear);
            wakes_only_by_bytes(&mut peer, [&runtime; 2], [reader, polls]);
        }
    }
}
