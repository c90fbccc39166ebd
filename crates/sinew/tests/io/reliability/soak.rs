//! Everything at random, for a while.

use super::child::on_each_driver;
use super::server::Server;
use super::{at_length, leaving_nothing};
use crate::harness::Rng;
use sinew::net::TcpStream;
use sinew::{Cancelled, Handle};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::{Duration, Instant};

/// What a client may do to its connection.
fn misbehave(stream: &TcpStream, rng: &mut Rng, runtime: &Handle) -> io::Result<()> {
    let mut this = stream;
    match rng.below(10) {
        // A read that finds nothing, given up in one of three ways.
        0 => {
            let limit = Duration::from_micros(1 + rng.below(300));
            stream.set_read_timeout(Some(limit))?;
            let error = this.read(&mut [0; 8]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            stream.set_read_timeout(None)
        }
        1 => {
            let limit = Duration::from_micros(rng.below(300));
            let late = sinew::timeout(limit, || this.read(&mut [0; 8]));
            let error = late.unwrap_err().into_inner().unwrap_err();
            assert!(Cancelled::is_in(&error), "{error}");
            Ok(())
        }
        2 => {
            stream.set_nonblocking(true)?;
            let error = this.read(&mut [0; 8]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            stream.set_nonblocking(false)
        }
        3 => {
            stream.set_linger(Some(Duration::ZERO))?;
            Err(ErrorKind::ConnectionAborted.into())
        }
        4 => {
            stream.close()?;
            assert_eq!(
                this.read(&mut [0; 8]).unwrap_err().kind(),
                ErrorKind::NotConnected
            );
            Err(ErrorKind::ConnectionAborted.into())
        }
        5 => {
            // By std for a moment.
            let std = stream.try_clone()?.into_std()?;
            (&std).write_all(b"std")?;
            drop(std);
            let mut answer = [0; 3];
            this.read_exact(&mut answer)?;
            assert_eq!(&answer, b"std");
            Ok(())
        }
        // The usual.
        _ => {
            let bytes: Vec<u8> = (0..1 + rng.below(20_000))
                .map(|_| rng.next() as u8)
                .collect();
            let writer = runtime.spawn({
                let (stream, bytes) = (stream.try_clone()?, bytes.clone());
                move || (&stream).write_all(&bytes)
            });
            let mut answer = vec![0; bytes.len()];
            this.read_exact(&mut answer)?;
            writer.join().unwrap()?;
            assert!(answer == bytes, "it came back changed");
            Ok(())
        }
    }
}

fn client(address: SocketAddr, mut rng: Rng, until: Instant, runtime: &Handle) -> u64 {
    let mut done = 0;
    while Instant::now() < until {
        let stream = TcpStream::connect(address).unwrap();
        let ended = (0..1 + rng.below(20)).try_for_each(|_| {
            done += 1;
            misbehave(&stream, &mut rng, runtime)
        });
        match ended {
            Ok(()) => {
                stream.shutdown(Shutdown::Write).unwrap();
                assert_eq!((&stream).read(&mut [0]).unwrap(), 0);
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionAborted, "{error}"),
        }
    }
    done
}

pub(super) fn soak() {
    let seed = std::process::id().into();
    println!("seed {seed:#x}");
    let time = Duration::from_secs(if at_length() { 60 } else { 3 });
    leaving_nothing(2, |runtime| {
        let server = Server::start(runtime);
        let address = server.address();
        let until = Instant::now() + time;
        let mut rng = Rng::new(seed);
        // Fibers, and threads beside them.
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (rng, handle) = (rng.split(), runtime.handle());
                std::thread::spawn(move || client(address, rng, until, &handle))
            })
            .collect();
        let fibers: Vec<_> = (0..60)
            .map(|_| {
                let (rng, handle) = (rng.split(), runtime.handle());
                runtime.spawn(move || client(address, rng, until, &handle))
            })
            .collect();
        let fibers: u64 = fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum();
        let threads: u64 = threads.into_iter().map(|one| one.join().unwrap()).sum();
        println!("{fibers} things by fibers, {threads} by threads");
        server.stop();
    });
}

#[test]
fn everything_at_random_leaves_nothing_behind() {
    on_each_driver("soak");
}
