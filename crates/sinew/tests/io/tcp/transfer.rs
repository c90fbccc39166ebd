//! Moving bytes: in parts, in bulk, both ways at once, and their end.

use super::{fill, narrow_pair, pair};
use crate::harness::{Rng, watch};
use crate::world::{drivers, everywhere, on_fibers, runtime};
use sinew::net::TcpStream;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

/// No power of two, so that a block that comes twice or not at all is seen.
const PATTERN: usize = 65_521;

fn pattern(seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..PATTERN).map(|_| rng.next() as u8).collect()
}

/// Sends that many bytes of the pattern, in pieces of random sizes; how many of these did
/// not fit at once.
fn send(mut stream: &TcpStream, pattern: &[u8], total: usize, rng: &mut Rng, most: u64) -> usize {
    let (mut sent, mut partial) = (0, 0);
    while sent < total {
        let at = sent % PATTERN;
        let want = (1 + rng.below(most) as usize)
            .min(PATTERN - at)
            .min(total - sent);
        let count = stream.write(&pattern[at..at + want]).unwrap();
        assert!(count > 0 && count <= want);
        sent += count;
        partial += usize::from(count < want);
    }
    partial
}

/// Receives that many, and checks each.
fn receive(mut stream: &TcpStream, pattern: &[u8], total: usize, rng: &mut Rng, most: u64) {
    let mut buffer = vec![0; most as usize];
    let mut received = 0;
    while received < total {
        let want = 1 + rng.below(most) as usize;
        let count = stream.read(&mut buffer[..want]).unwrap();
        assert!(count > 0 && count <= want, "it ended at {received}");
        let mut got = &buffer[..count];
        while !got.is_empty() {
            let at = received % PATTERN;
            let part = got.len().min(PATTERN - at);
            assert!(
                got[..part] == pattern[at..at + part],
                "wrong near {received}"
            );
            got = &got[part..];
            received += part;
        }
    }
    assert_eq!(received, total);
}

/// Both ends send and receive `total` bytes at the same time: four fibers; how many writes
/// were partial.
fn both_ways(client: TcpStream, server: TcpStream, total: usize, most: u64, seed: u64) -> usize {
    eprintln!("seed {seed:#x}");
    let mut rng = Rng::new(seed);
    let (up, down) = (pattern(1), pattern(2));
    let mut rngs = [(); 4].map(|()| rng.split());
    let [one, two, three, four] = &mut rngs;
    let (client, server, up, down) = (&client, &server, &up, &down);
    let partial = sinew::scope(|s| {
        let up_goes = s.spawn(move || {
            let partial = send(client, up, total, one, most);
            client.shutdown(Shutdown::Write).unwrap();
            partial
        });
        let down_goes = s.spawn(move || {
            let partial = send(server, down, total, two, most);
            server.shutdown(Shutdown::Write).unwrap();
            partial
        });
        s.spawn(move || receive(client, down, total, three, most));
        s.spawn(move || receive(server, up, total, four, most));
        up_goes.join().unwrap() + down_goes.join().unwrap()
    });
    assert_eq!((&mut &*client).read(&mut [0]).unwrap(), 0);
    assert_eq!((&mut &*server).read(&mut [0]).unwrap(), 0);
    partial
}

#[test]
fn two_fibers_use_one_socket_both_ways_at_once() {
    everywhere(|| {
        let (client, server) = pair();
        both_ways(client, server, 2 << 20, 40_000, 0x2f1b);
    });
}

#[test]
fn large_transfers_both_ways_lose_and_double_nothing() {
    for driver in drivers() {
        let _watch = watch();
        runtime(driver, 2).run(|| {
            let (client, server) = pair();
            both_ways(client, server, 64 << 20, 256 << 10, 0x6464);
        });
    }
}

#[test]
fn tiny_buffers_make_writes_partial_and_nothing_is_lost() {
    on_fibers(|| {
        let (client, server) = narrow_pair();
        let partial = both_ways(client, server, 96 << 10, 9_000, 0x7171);
        assert!(partial > 0);
    });
}

#[test]
fn a_writer_waits_for_its_reader() {
    everywhere(|| {
        let (client, server) = narrow_pair();
        let filled = fill(&client);
        assert!(filled < 1 << 20, "{filled} bytes are not narrow");
        let writer = sinew::spawn(move || (&client).write_all(&[7; 32 << 10]));
        assert!(!writer.is_finished());
        let mut received = Vec::new();
        (&server).read_to_end(&mut received).unwrap();
        assert_eq!(received.len(), filled + (32 << 10));
        writer.join().unwrap().unwrap();
    });
}

#[test]
fn a_half_closed_connection_works_the_other_way() {
    everywhere(|| {
        let (client, server) = pair();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!((&server).read(&mut [0; 8]).unwrap(), 0);
        let error = (&client).write(b"x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        (&server).write_all(b"still there").unwrap();
        server.shutdown(Shutdown::Write).unwrap();
        let mut text = String::new();
        (&client).read_to_string(&mut text).unwrap();
        assert_eq!(text, "still there");
    });
}

#[test]
fn who_shuts_its_reading_side_reads_the_end_and_may_write() {
    everywhere(|| {
        let (client, server) = pair();
        client.shutdown(Shutdown::Read).unwrap();
        assert_eq!((&client).read(&mut [0; 8]).unwrap(), 0);
        (&client).write_all(b"and yet").unwrap();
        let mut text = [0; 7];
        (&server).read_exact(&mut text).unwrap();
        assert_eq!(&text, b"and yet");
    });
}

#[test]
fn shutting_down_twice_is_no_harm_but_of_the_unconnected_an_error() {
    everywhere(|| {
        let (client, server) = pair();
        client.shutdown(Shutdown::Both).unwrap();
        drop(server);
        // As std has it: the second is fine, or says that it is over.
        if let Err(error) = client.shutdown(Shutdown::Both) {
            assert_eq!(error.kind(), ErrorKind::NotConnected);
        }
        assert_eq!((&client).read(&mut [0; 8]).unwrap(), 0);
    });
}

#[test]
fn a_peek_leaves_what_it_saw() {
    everywhere(|| {
        let (client, server) = pair();
        let peeker = sinew::spawn(move || {
            let mut seen = [0; 3];
            // The first one waits for them.
            assert!(server.peek(&mut seen).unwrap() > 0);
            while server.peek(&mut seen).unwrap() < 3 {}
            assert_eq!(&seen, b"abc");
            assert_eq!(server.peek(&mut [0; 2]).unwrap(), 2);
            let mut text = [0; 6];
            (&server).read_exact(&mut text).unwrap();
            assert_eq!(&text, b"abcdef");
            assert_eq!(server.peek(&mut seen).unwrap(), 0);
        });
        (&client).write_all(b"abcdef").unwrap();
        drop(client);
        peeker.join().unwrap();
    });
}

#[test]
fn parts_are_written_and_read_in_order_also_empty_ones() {
    everywhere(|| {
        let (client, server) = pair();
        let parts = [
            IoSlice::new(b""),
            IoSlice::new(b"one"),
            IoSlice::new(b""),
            IoSlice::new(b"two!"),
            IoSlice::new(b""),
        ];
        assert_eq!((&client).write_vectored(&parts).unwrap(), 7);
        (&client).write_all(b"..").unwrap();
        let (mut one, mut two, mut three) = ([0; 2], [0; 0], [0; 7]);
        let mut read = 0;
        while read < 9 {
            // All were sent, so they come; all at once as a rule.
            let mut into = [
                IoSliceMut::new(&mut one),
                IoSliceMut::new(&mut two),
                IoSliceMut::new(&mut three),
            ];
            assert_eq!(server.peek(&mut [0; 1]).unwrap(), 1);
            if server.peek(&mut [0; 9]).unwrap() == 9 {
                read = (&server).read_vectored(&mut into).unwrap();
            }
        }
        assert_eq!((&one, &three), (b"on", b"etwo!.."));
    });
}

#[test]
fn a_vectored_read_waits_for_its_first_byte() {
    everywhere(|| {
        let (client, server) = pair();
        let reader = sinew::spawn(move || {
            let (mut one, mut two) = ([0; 1], [0; 10]);
            let mut into = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
            let count = (&server).read_vectored(&mut into).unwrap();
            (count, one[0], two[0])
        });
        sinew::yield_now();
        (&client).write_all(b"xy").unwrap();
        let (count, x, y) = reader.join().unwrap();
        assert_eq!((count, x, y), (2, b'x', b'y'));
    });
}

#[test]
fn a_vectored_write_waits_for_room() {
    everywhere(|| {
        let (client, server) = narrow_pair();
        let filled = fill(&client);
        let writer = sinew::spawn(move || {
            let parts = [IoSlice::new(b""), IoSlice::new(b"ab"), IoSlice::new(b"cd")];
            (&client).write_vectored(&parts).unwrap()
        });
        let mut received = Vec::new();
        (&server).read_to_end(&mut received).unwrap();
        let written = writer.join().unwrap();
        assert!((1..=4).contains(&written));
        assert_eq!(&received[filled..], &b"abcd"[..written]);
    });
}

#[test]
fn more_parts_than_a_call_takes_are_written_in_several() {
    everywhere(|| {
        let (client, server) = pair();
        let bytes: Vec<u8> = (0..3000u32).map(|n| n as u8).collect();
        let parts: Vec<_> = bytes.chunks(1).map(IoSlice::new).collect();
        let mut written = 0;
        while written < parts.len() {
            let count = (&client).write_vectored(&parts[written..]).unwrap();
            assert!(count > 0);
            written += count;
        }
        let mut received = vec![0; bytes.len()];
        let mut read = 0;
        while read < received.len() {
            let mut into: Vec<_> = received[read..]
                .chunks_mut(1)
                .map(IoSliceMut::new)
                .collect();
            read += (&server).read_vectored(&mut into).unwrap();
        }
        assert_eq!(received, bytes);
    });
}

#[test]
fn nothing_is_written_and_read_by_empty_buffers() {
    everywhere(|| {
        let (client, server) = pair();
        assert_eq!((&client).write(&[]).unwrap(), 0);
        assert_eq!((&client).write_vectored(&[]).unwrap(), 0);
        assert_eq!((&client).write_vectored(&[IoSlice::new(&[])]).unwrap(), 0);
        (&client).write_all(b"x").unwrap();
        // Not an end, and the byte stays.
        assert_eq!(server.peek(&mut [0; 1]).unwrap(), 1);
        assert_eq!((&server).read(&mut []).unwrap(), 0);
        assert_eq!((&server).read_vectored(&mut []).unwrap(), 0);
        let mut none = [0; 0];
        let mut into = [IoSliceMut::new(&mut none)];
        assert_eq!((&server).read_vectored(&mut into).unwrap(), 0);
        assert_eq!((&server).read(&mut [0; 8]).unwrap(), 1);
        (&client).flush().unwrap();
    });
}

#[test]
fn who_writes_to_a_peer_that_is_gone_is_told_without_a_signal() {
    everywhere(|| {
        let (client, server) = pair();
        (&client).write_all(b"unread").unwrap();
        drop(server);
        // The first may still go out; the answer to it is a reset.
        let error = loop {
            if let Err(error) = (&client).write(b"x") {
                break error;
            }
        };
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
fn resets_at_random_points_are_told_and_what_came_before_is_right() {
    on_fibers(|| {
        let seed = 0xabcd_0001;
        eprintln!("seed {seed:#x}");
        let mut rng = Rng::new(seed);
        let pattern = pattern(3);
        let pattern = &pattern;
        for _ in 0..200 {
            let (client, server) = pair();
            let until = rng.below(200_000) as usize;
            let mut theirs = rng.split();
            sinew::scope(|s| {
                s.spawn(move || {
                    send(&client, pattern, until, &mut theirs, 5000);
                    client.set_linger(Some(Duration::ZERO)).unwrap();
                });
                s.spawn(move || {
                    let mut received = Vec::new();
                    let mut buffer = [0; 3000];
                    let error = loop {
                        match (&server).read(&mut buffer) {
                            Ok(0) => panic!("a reset is no end"),
                            Ok(count) => received.extend_from_slice(&buffer[..count]),
                            Err(error) => break error,
                        }
                    };
                    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
                    assert!(received.len() <= until);
                    for (got, wanted) in received.chunks(PATTERN).zip(std::iter::repeat(pattern)) {
                        assert!(*got == wanted[..got.len()]);
                    }
                });
            });
        }
    });
}
