//! Limits of time, in std's way and in ours.

use super::{fill, narrow_pair, pair};
use crate::world::{everywhere, on_fibers};
use sinew::Cancelled;
use sinew::net::{TcpListener, TcpStream};
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(20);

#[test]
fn a_timeout_of_zero_is_invalid_input() {
    everywhere(|| {
        let (client, server) = pair();
        for error in [
            client.set_read_timeout(Some(Duration::ZERO)).unwrap_err(),
            client.set_write_timeout(Some(Duration::ZERO)).unwrap_err(),
            TcpStream::connect_timeout(&server.local_addr().unwrap(), Duration::ZERO)
                .map(|_| ())
                .unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
        assert_eq!(client.read_timeout().unwrap(), None);
        assert_eq!(client.write_timeout().unwrap(), None);
    });
}

#[test]
fn a_timeout_is_told_as_it_was_set_and_shared_by_clones() {
    everywhere(|| {
        let (client, _server) = pair();
        let clone = client.try_clone().unwrap();
        for timeout in [Some(SHORT), Some(Duration::MAX), None] {
            client.set_read_timeout(timeout).unwrap();
            let told = clone.read_timeout().unwrap();
            // For ever is for ever, said either way.
            assert!(told == timeout || (timeout == Some(Duration::MAX) && told.is_none()));
        }
        clone.set_write_timeout(Some(SHORT)).unwrap();
        assert_eq!(client.write_timeout().unwrap(), Some(SHORT));
    });
}

#[test]
fn a_read_that_takes_too_long_says_would_block_and_loses_nothing() {
    everywhere(|| {
        let (client, server) = pair();
        server.set_read_timeout(Some(SHORT)).unwrap();
        let begun = Instant::now();
        let error = (&server).read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        assert!(begun.elapsed() >= SHORT);
        let error = server.peek(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        let mut one = [0; 8];
        let error = (&server)
            .read_vectored(&mut [std::io::IoSliceMut::new(&mut one)])
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        (&client).write_all(b"all of it").unwrap();
        let mut text = [0; 9];
        (&server).read_exact(&mut text).unwrap();
        assert_eq!(&text, b"all of it");
    });
}

#[test]
fn a_write_that_takes_too_long_says_would_block_and_counts_right() {
    everywhere(|| {
        let (client, server) = narrow_pair();
        let mut sent = fill(&client);
        client.set_write_timeout(Some(SHORT)).unwrap();
        let error = loop {
            match (&client).write(&[7; 1024]) {
                Ok(count) => sent += count,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        drop(client);
        let mut received = Vec::new();
        (&server).read_to_end(&mut received).unwrap();
        assert_eq!(received.len(), sent);
        assert!(received.iter().all(|byte| *byte == 7));
    });
}

#[test]
fn reads_and_writes_have_their_own_limits() {
    everywhere(|| {
        let (client, server) = narrow_pair();
        server.set_write_timeout(Some(SHORT)).unwrap();
        let reader = sinew::spawn({
            let server = server.try_clone().unwrap();
            move || (&server).read(&mut [0; 8])
        });
        let error = (&server).write_all(&[0; 1 << 20]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        // The read was not limited.
        (&client).write_all(b"x").unwrap();
        assert_eq!(reader.join().unwrap().unwrap(), 1);
    });
}

#[test]
fn a_connection_that_is_not_answered_times_out() {
    everywhere(|| {
        // Its backlog holds one; when it is full the kernel answers no more.
        let listener = TcpListener::builder()
            .backlog(0)
            .bind("127.0.0.1:0")
            .unwrap();
        let address = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        let error = loop {
            assert!(waiting.len() < 16, "the backlog is never full");
            let begun = Instant::now();
            match TcpStream::connect_timeout(&address, 5 * SHORT) {
                Ok(stream) => waiting.push(stream),
                Err(error) => {
                    assert!(begun.elapsed() >= 5 * SHORT);
                    break error;
                }
            }
        };
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn a_connection_within_its_time_is_as_any_other() {
    everywhere(|| {
        let listener = super::listen();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect_timeout(&address, Duration::from_secs(60)).unwrap();
        assert!(!super::has_flag_nonblocking(&client));
        let (mut server, _) = listener.accept().unwrap();
        (&client).write_all(b"x").unwrap();
        assert_eq!(server.read(&mut [0; 8]).unwrap(), 1);
        // Its limit was that of connecting alone.
        assert_eq!(client.read_timeout().unwrap(), None);
    });
}

#[test]
fn a_limit_around_a_read_ends_it_and_loses_nothing() {
    everywhere(|| {
        let (client, server) = pair();
        let late = sinew::timeout(SHORT, || (&server).read(&mut [0; 8]));
        let error = late.unwrap_err().into_inner().unwrap_err();
        assert!(Cancelled::is_in(&error), "{error}");
        (&client).write_all(b"all of it").unwrap();
        let mut text = [0; 9];
        (&server).read_exact(&mut text).unwrap();
        assert_eq!(&text, b"all of it");
    });
}

#[test]
fn a_limit_around_other_waits_ends_them_too() {
    everywhere(|| {
        let listener = super::listen();
        let late = sinew::timeout(SHORT, || listener.accept().map(|_| ()));
        assert!(Cancelled::is_in(
            &late.unwrap_err().into_inner().unwrap_err()
        ));
        let late = sinew::timeout(SHORT, || listener.incoming().next().unwrap().map(|_| ()));
        assert!(Cancelled::is_in(
            &late.unwrap_err().into_inner().unwrap_err()
        ));
        let (client, server) = narrow_pair();
        let late = sinew::timeout(SHORT, || (&client).write_all(&[1; 4 << 20]));
        assert!(Cancelled::is_in(
            &late.unwrap_err().into_inner().unwrap_err()
        ));
        let late = sinew::timeout(SHORT, || client.peek(&mut [0; 8]));
        assert!(Cancelled::is_in(
            &late.unwrap_err().into_inner().unwrap_err()
        ));
        drop(server);
        // The listener goes on as if nothing had been.
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).unwrap();
        let (_, from) = listener.accept().unwrap();
        assert_eq!(from, client.local_addr().unwrap());
    });
}

#[test]
fn the_shorter_of_two_limits_counts() {
    on_fibers(|| {
        let (_client, server) = pair();
        server.set_read_timeout(Some(SHORT)).unwrap();
        let outcome = sinew::timeout(Duration::from_secs(60), || (&server).read(&mut [0; 8]));
        assert_eq!(outcome.unwrap().unwrap_err().kind(), ErrorKind::WouldBlock);
        server
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let outcome = sinew::timeout(SHORT, || (&server).read(&mut [0; 8]));
        let error = outcome.unwrap_err().into_inner().unwrap_err();
        assert!(Cancelled::is_in(&error));
    });
}

#[test]
fn bytes_that_are_there_are_read_whatever_the_limit() {
    everywhere(|| {
        let (client, server) = pair();
        server
            .set_read_timeout(Some(Duration::from_nanos(1)))
            .unwrap();
        (&client).write_all(&[5; 100]).unwrap();
        let mut read = 0;
        while read < 100 {
            match (&server).read(&mut [0; 7]) {
                Ok(count) => read += count,
                // Only until they came.
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        assert_eq!(read, 100);
    });
}
