//! Bytes that are there, and must be found.

use super::hear;
use crate::harness::{wait_until, watch};
use crate::tcp::pair;
use crate::world::{drivers, everywhere, on_fibers, runtime};
use sinew::WaitReason;
use sinew::io::Async;
use socket2::SockRef;
use std::io::{Read, Write};
use std::os::fd::AsFd;

#[test]
fn what_follows_an_urgent_byte_is_read_after_a_read_that_stopped_there() {
    everywhere(|| {
        let (mut stream, mut peer) = pair();
        // Watched, as it waits once.
        let sender = sinew::spawn(move || {
            peer.write_all(b"0").unwrap();
            peer
        });
        stream.read_exact(&mut [0]).unwrap();
        let mut peer = sender.join().unwrap();
        peer.write_all(b"abc").unwrap();
        SockRef::from(&peer).send_out_of_band(b"!").unwrap();
        peer.write_all(b"def").unwrap();
        // There are no more events to come.
        hear();
        let mut got = Vec::new();
        while got.len() < 6 {
            let mut bytes = [0; 100];
            let count = stream.read(&mut bytes).unwrap();
            assert!(count > 0);
            got.extend_from_slice(&bytes[..count]);
        }
        assert_eq!(got, b"abcdef");
    });
}

#[test]
fn where_waiting_is_forbidden_bytes_are_found_of_which_no_event_told_yet() {
    let _watch = watch();
    for driver in drivers() {
        runtime(driver, 1).run(|| {
            let (mut stream, mut peer) = pair();
            for _ in 0..3 {
                // All is read, so it counts as empty.
                peer.write_all(b"a").unwrap();
                assert_eq!(stream.read(&mut [0; 16]).unwrap(), 1);
                peer.write_all(b"b").unwrap();
                // On the fiber itself, so that its worker hears of nothing.
                let own = std::net::TcpStream::from(stream.as_fd().try_clone_to_owned().unwrap());
                assert_eq!(own.peek(&mut [0; 16]).unwrap(), 1);
                let count = sinew::no_suspend(|| stream.read(&mut [0; 16]));
                assert_eq!(count.unwrap(), 1);
            }
        });
    }
}

#[test]
fn the_end_of_one_async_does_not_make_another_of_the_same_file_block() {
    on_fibers(|| {
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let writer = Async::new(ours.try_clone().unwrap()).unwrap();
        let mut reader = Async::new(ours).unwrap();
        (&writer).write_all(b"hi").unwrap();
        drop(writer);
        let waits = sinew::spawn(move || reader.read_exact(&mut [0]).unwrap());
        // It would never get there, and on one worker nor would we.
        wait_until(|| waits.fiber().wait_reason() == WaitReason::Read);
        theirs.write_all(b"x").unwrap();
        waits.join().unwrap();
    });
}
