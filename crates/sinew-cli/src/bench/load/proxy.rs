//! Both ends of a proxy: what one end of a connection sends has to come out
//! at the other, in both directions at once, as fast as the proxy can.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

use super::super::serve::CHUNK;
use super::SILENCE;
use super::meter::Meter;
use super::poll::{Poll, READ, WRITE};

/// The stream repeats after so many bytes: a prime, so that no chunk begins
/// where another did.
const PERIOD: usize = 65_521;
/// So much of both ends of what has come is checked; all would cost more than
/// the copy did.
const CHECKED: usize = 32;

/// One end of a proxied connection.
struct End {
    stream: TcpStream,
    sent: usize,
    received: usize,
}

/// Connects `pairs` times through the proxy at `addr`, which connects to
/// `upstream`, and moves chunks until the meter says that it is over.
pub fn run(
    addr: SocketAddr,
    upstream: &TcpListener,
    pairs: usize,
    meter: &mut Meter,
) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let mut ends = Vec::with_capacity(2 * pairs);
    for _ in 0..pairs {
        let near = TcpStream::connect(addr)?;
        // One at a time: so we know who belongs to whom.
        let far = accept(upstream)?;
        for stream in [near, far] {
            stream.set_nonblocking(true)?;
            poll.add(&stream, ends.len(), READ | WRITE)?;
            ends.push(End {
                stream,
                sent: 0,
                received: 0,
            });
        }
    }
    let pattern = pattern();
    let mut buffer = vec![0; CHUNK];
    while meter.goes_on(Instant::now())? {
        let n = poll.wait(SILENCE)?;
        if n == 0 {
            return Err(io::Error::other("the proxy is silent"));
        }
        for at in 0..n {
            let (token, ready) = poll.event(at);
            let end = &mut ends[token];
            if ready & !WRITE != 0 {
                meter.done(end.receive(&mut buffer, &pattern)? as u64);
            }
            if ready & WRITE != 0 {
                end.send(&pattern)?;
            }
        }
    }
    Ok(())
}

/// The next connection to `upstream`, which a proxy owes us by now.
fn accept(upstream: &TcpListener) -> io::Result<TcpStream> {
    let mut poll = Poll::new()?;
    poll.add(upstream, 0, READ)?;
    if poll.wait(SILENCE)? == 0 {
        return Err(io::Error::other("the proxy does not connect"));
    }
    Ok(upstream.accept()?.0)
}

impl End {
    fn send(&mut self, pattern: &[u8]) -> io::Result<()> {
        let from = self.sent % PERIOD;
        match self.stream.write(&pattern[from..from + CHUNK]) {
            Ok(n) => self.sent += n,
            Err(problem) if problem.kind() == io::ErrorKind::WouldBlock => {}
            Err(problem) => return Err(problem),
        }
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8], pattern: &[u8]) -> io::Result<usize> {
        let n = match self.stream.read(buffer) {
            Ok(0) => return Err(io::Error::other("the proxy closed a connection")),
            Ok(n) => n,
            Err(problem) if problem.kind() == io::ErrorKind::WouldBlock => 0,
            Err(problem) => return Err(problem),
        };
        let from = self.received % PERIOD;
        let (got, expected) = (&buffer[..n], &pattern[from..from + n]);
        let edge = n.min(CHECKED);
        if got[..edge] != expected[..edge] || got[n - edge..] != expected[n - edge..] {
            return Err(io::Error::other(format!(
                "wrong bytes came out after {} bytes",
                self.received
            )));
        }
        self.received += n;
        Ok(n)
    }
}

/// A period of noise, and as much again as a chunk may need.
fn pattern() -> Vec<u8> {
    let mut state = 1_u32;
    let noise: Vec<u8> = (0..PERIOD)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect();
    noise.iter().copied().cycle().take(PERIOD + CHUNK).collect()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::super::meter::Span;
    use super::*;

    /// A proxy with two threads for each connection; the first `spoilt` bytes
    /// on the way there are lost.
    fn proxied(spoilt: usize) -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
        let (addr, to) = (
            listener.local_addr().unwrap(),
            upstream.local_addr().unwrap(),
        );
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let far = TcpStream::connect(to).unwrap();
                let (near2, far2) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                thread::spawn(move || {
                    let mut lost = vec![0; spoilt];
                    let _ = (&near).read_exact(&mut lost);
                    io::copy(&mut &near, &mut &far)
                });
                thread::spawn(move || io::copy(&mut &far2, &mut &near2));
            }
        });
        let mut meter = Meter::start(None, Span::of(0.05));
        run(addr, &upstream, 2, &mut meter)
    }

    #[test]
    fn an_honest_proxy_is_measured() {
        proxied(0).unwrap();
    }

    #[test]
    fn a_proxy_that_loses_a_byte_is_found() {
        let problem = proxied(1).unwrap_err().to_string();
        assert!(problem.contains("wrong bytes"), "{problem}");
    }

    #[test]
    fn every_part_of_the_pattern_continues_the_one_before() {
        let pattern = pattern();
        assert_eq!(pattern[..CHUNK], pattern[PERIOD..]);
    }
}
