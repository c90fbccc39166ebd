//! Copying: all of a reader, and both ways between two streams.

use crate::harness::{Rng, wait_until};
use crate::world::{everywhere, on_fibers};
use sinew::Cancelled;
use sinew::io::{Async, copy, copy_bidirectional};
use sinew::net::{TcpListener, TcpStream};
use std::io::{self, Read, Write};
use std::net::Shutdown;

/// Two connected streams.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let accepting = sinew::spawn(move || listener.accept().unwrap().0);
    let one = TcpStream::connect(address).unwrap();
    (one, accepting.join().unwrap())
}

fn bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..count).map(|_| rng.next() as u8).collect()
}

#[test]
fn all_of_a_reader_is_copied() {
    everywhere(|| {
        let sent = bytes(1, 1_000_003);
        let (mut one, mut other) = pair();
        let expected = sent.clone();
        let sender = sinew::spawn(move || {
            let count = copy(&mut &sent[..], &mut one).unwrap();
            one.shutdown(Shutdown::Write).unwrap();
            (count, one)
        });
        let mut received = Vec::new();
        assert_eq!(copy(&mut other, &mut received).unwrap(), 1_000_003);
        assert!(received == expected);
        assert_eq!(sender.join().unwrap().0, 1_000_003);
    });
}

#[test]
fn a_copy_goes_on_after_an_interruption_and_stops_at_an_error() {
    struct Moody(Vec<io::Result<usize>>);
    impl Read for Moody {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let next = self.0.pop().unwrap_or(Ok(0));
            if let Ok(count) = next {
                into[..count].fill(7);
            }
            next
        }
    }
    let mut copied = Vec::new();
    let interrupted = || Err(io::ErrorKind::Interrupted.into());
    let mut reader = Moody(vec![Ok(2), interrupted(), Ok(3)]);
    assert_eq!(copy(&mut reader, &mut copied).unwrap(), 5);
    assert_eq!(copied, [7; 5]);
    let mut reader = Moody(vec![Ok(2), Err(io::ErrorKind::TimedOut.into()), Ok(3)]);
    let error = copy(&mut reader, &mut copied).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!(copied.len(), 8);
}

#[test]
fn bytes_go_both_ways_and_are_counted() {
    everywhere(|| {
        let (there, back) = (bytes(2, 700_001), bytes(3, 300_007));
        let (client, a) = pair();
        let (b, server) = pair();
        sinew::scope(|s| {
            let proxy = s.spawn(|| copy_bidirectional(&a, &b).unwrap());
            for (stream, send, expect) in [(&client, &there, &back), (&server, &back, &there)] {
                s.spawn(move || {
                    (&*stream).write_all(send).unwrap();
                    stream.shutdown(Shutdown::Write).unwrap();
                });
                s.spawn(move || {
                    let mut received = Vec::new();
                    (&*stream).read_to_end(&mut received).unwrap();
                    assert!(received == *expect);
                });
            }
            assert_eq!(proxy.join().unwrap(), (700_001, 300_007));
        });
    });
}

#[test]
fn the_end_of_one_side_is_passed_on_and_the_other_may_still_answer() {
    everywhere(|| {
        let (mut client, a) = pair();
        let (b, mut server) = pair();
        sinew::scope(|s| {
            let proxy = s.spawn(|| copy_bidirectional(&a, &b).unwrap());
            client.write_all(b"question").unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            let mut question = String::new();
            server.read_to_string(&mut question).unwrap(); // ends: it was passed on
            assert_eq!(question, "question");
            assert!(!proxy.is_finished());
            server.write_all(b"the answer").unwrap();
            drop(server);
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert_eq!(answer, "the answer");
            assert_eq!(proxy.join().unwrap(), (8, 10));
        });
    });
}

#[test]
fn an_error_of_one_direction_ends_the_other() {
    everywhere(|| {
        let (client, a) = pair();
        let (b, _server) = pair();
        sinew::scope(|s| {
            let proxy = s.spawn(|| copy_bidirectional(&a, &b));
            client.set_linger(Some(std::time::Duration::ZERO)).unwrap();
            drop(client); // resets the connection
            let error = proxy.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        });
    });
}

#[test]
fn a_cancellation_reaches_both_directions() {
    on_fibers(|| {
        let (_client, a) = pair();
        let (b, _server) = pair();
        let proxy = sinew::spawn(move || copy_bidirectional(&a, &b));
        wait_until(|| proxy.fiber().wait_reason() == sinew::WaitReason::Read);
        proxy.cancel();
        let error = proxy.join().unwrap().unwrap_err();
        assert!(Cancelled::is_in(&error), "{error}");
    });
}

#[test]
fn closing_a_side_ends_the_copy() {
    everywhere(|| {
        let (_client, a) = pair();
        let (b, server) = pair();
        let closer = a.try_clone().unwrap();
        let proxy = sinew::spawn(move || copy_bidirectional(&a, &b));
        wait_until(|| proxy.fiber().wait_reason() == sinew::WaitReason::Read);
        closer.close().unwrap();
        drop(server); // if the close is taken for an end, that is no hang but a failure
        let error = proxy.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotConnected);
    });
}

#[test]
fn streams_of_different_kinds_are_copied_between() {
    everywhere(|| {
        let (mut client, a) = pair();
        let (b, mut server) = std::os::unix::net::UnixStream::pair().unwrap();
        let b = Async::new(b).unwrap();
        sinew::scope(|s| {
            let proxy = s.spawn(|| copy_bidirectional(&a, &b).unwrap());
            server.write_all(b"five!").unwrap(); // does not block
            drop(server);
            client.shutdown(Shutdown::Write).unwrap();
            let mut text = String::new();
            client.read_to_string(&mut text).unwrap();
            assert_eq!(text, "five!");
            assert_eq!(proxy.join().unwrap(), (0, 5));
        });
    });
}

#[test]
fn bulk_goes_both_ways_at_once_unchanged() {
    const BULK: usize = 6 << 20;
    everywhere(|| {
        let (client, outer) = pair();
        let (inner, server) = pair();
        let proxy = sinew::spawn(move || copy_bidirectional(&outer, &inner).unwrap());
        let ends = [(client, 1, 2), (server, 2, 1)].map(|(end, mine, theirs)| {
            sinew::spawn(move || {
                sinew::scope(|s| {
                    s.spawn(|| {
                        (&end).write_all(&bytes(mine, BULK)).unwrap();
                        end.shutdown(Shutdown::Write).unwrap();
                    });
                    let mut received = Vec::new();
                    (&end).read_to_end(&mut received).unwrap();
                    assert!(received == bytes(theirs, BULK));
                });
            })
        });
        for end in ends {
            end.join().unwrap();
        }
        assert_eq!(proxy.join().unwrap(), (BULK as u64, BULK as u64));
    });
}
