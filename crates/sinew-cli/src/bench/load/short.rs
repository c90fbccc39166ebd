//! Short connections: connect, one request, one response, and the server
//! closes. A fixed number is under way at any time.
//!
//! The side that closes first keeps the address pair for a minute. That is the
//! server, which takes a new connection from the same port nevertheless, so
//! ports do not run out.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::super::serve::MESSAGE;
use super::SILENCE;
use super::echo::message;
use super::meter::Meter;
use super::poll::{CLOSED, Poll};

/// One connection under way.
struct Visit {
    stream: TcpStream,
    began: Instant,
    id: u32,
}

/// `at_once` connections under way, one after the other, until the meter says
/// that it is over.
pub fn run(addr: SocketAddr, at_once: usize, meter: &mut Meter) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let mut made = 0;
    let mut visits = Vec::with_capacity(at_once);
    for token in 0..at_once {
        made += 1;
        visits.push(Some(Visit::begin(addr, made, &poll, token)?));
    }
    let mut open = at_once;
    while open > 0 {
        let more = meter.goes_on(Instant::now())?;
        let n = poll.wait(SILENCE)?;
        if n == 0 {
            return Err(io::Error::other("the server is silent"));
        }
        for at in 0..n {
            let token = poll.event(at).0;
            let Some(visit) = visits[token].take() else {
                continue;
            };
            meter.took(visit.end()?);
            open -= 1;
            if more {
                made += 1;
                visits[token] = Some(Visit::begin(addr, made, &poll, token)?);
                open += 1;
            }
        }
    }
    Ok(())
}

impl Visit {
    fn begin(addr: SocketAddr, id: u32, poll: &Poll, token: usize) -> io::Result<Visit> {
        let began = Instant::now();
        let mut stream = TcpStream::connect(addr)?;
        stream.write_all(&message(id, 0))?;
        // One event for the whole visit: when the server has closed, the
        // response is there too.
        poll.add(&stream, token, CLOSED)?;
        Ok(Visit { stream, began, id })
    }

    /// Checks the response of a server that has closed, and closes.
    fn end(mut self) -> io::Result<Duration> {
        // A byte more than a response has, to see that there is none.
        let mut answer = [0; MESSAGE + 1];
        let mut got = 0;
        while got < MESSAGE {
            match self.stream.read(&mut answer[got..])? {
                0 => return Err(io::Error::other(format!("a response of {got} bytes"))),
                n => got += n,
            }
        }
        if got == MESSAGE && answer[..MESSAGE] == message(self.id, 0) {
            return Ok(self.began.elapsed());
        }
        Err(io::Error::other("wrong bytes came back"))
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::super::meter::Span;
    use super::*;

    /// Runs the load on a server that reads a message, hands it to `answer`
    /// and closes.
    fn served_by(answer: fn(&mut TcpStream, &mut [u8; MESSAGE])) -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut message = [0; MESSAGE];
                if stream.read_exact(&mut message).is_ok() {
                    answer(&mut stream, &mut message);
                }
            }
        });
        run(addr, 4, &mut Meter::start(None, Span::of(0.05)))
    }

    #[test]
    fn a_server_that_answers_and_closes_is_measured() {
        served_by(|stream, message| stream.write_all(message).unwrap()).unwrap();
    }

    #[test]
    fn a_response_that_is_too_short_is_found() {
        let problem = served_by(|stream, message| {
            let _ = stream.write_all(&message[1..]); // it may be gone
        })
        .unwrap_err();
        assert!(problem.to_string().contains("63 bytes"), "{problem}");
    }

    #[test]
    fn a_response_that_is_wrong_is_found() {
        let problem = served_by(|stream, message| {
            message[63] ^= 1;
            let _ = stream.write_all(message);
        })
        .unwrap_err();
        assert!(problem.to_string().contains("wrong bytes"), "{problem}");
    }
}
