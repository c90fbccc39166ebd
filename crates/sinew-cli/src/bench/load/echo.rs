//! Messages of 64 bytes there and back, one in flight on each connection;
//! every byte that comes back is checked.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::super::serve::MESSAGE;
use super::SILENCE;
use super::meter::Meter;
use super::poll::{EDGE, Poll, READ};

/// Connections made before we see to it that the server has taken them: its
/// queue may have room for 128, and one that finds no room costs a second.
const BEFORE_LOOK: usize = 64;

/// One connection with at most one message in flight.
struct Connection {
    stream: TcpStream,
    /// Which connection, and which message of it.
    id: u32,
    sequence: u32,
    /// Bytes of the answer that have come.
    got: usize,
    answer: [u8; MESSAGE],
    sent: Instant,
}

/// Connections to one server.
pub struct Echo {
    connections: Vec<Connection>,
    poll: Poll,
    in_flight: usize,
}

impl Echo {
    /// Connects `n` times. With `quiet` nothing is sent before all are there,
    /// but on the last one.
    pub fn connect(addr: SocketAddr, n: usize, quiet: bool) -> io::Result<Echo> {
        let mut echo = Echo {
            connections: Vec::with_capacity(n),
            poll: Poll::new()?,
            in_flight: 0,
        };
        echo.add(addr, n, quiet)?;
        Ok(echo)
    }

    /// Connects `n` more times.
    pub fn add(&mut self, addr: SocketAddr, n: usize, quiet: bool) -> io::Result<()> {
        for i in 1..=n {
            let stream = TcpStream::connect(addr)?;
            let mut connection = Connection {
                stream,
                id: self.connections.len() as u32,
                sequence: 0,
                got: 0,
                answer: [0; MESSAGE],
                sent: Instant::now(),
            };
            if i == n || (i % BEFORE_LOOK == 0 && !quiet) {
                connection.look()?;
            } else if i % BEFORE_LOOK == 0 {
                std::thread::sleep(Duration::from_millis(2)); // gives it time, no more
            }
            connection.stream.set_nonblocking(true)?;
            let token = self.connections.len();
            self.poll.add(&connection.stream, token, READ | EDGE)?;
            self.connections.push(connection);
        }
        Ok(())
    }

    /// One message on each connection, there and back.
    pub fn greet(&mut self) -> io::Result<()> {
        for connection in &mut self.connections {
            connection.send(Instant::now())?;
            self.in_flight += 1;
        }
        while self.in_flight > 0 {
            self.turn(|_| {}, false)?;
        }
        Ok(())
    }

    /// Keeps all connections busy until the meter says that it is over, and
    /// waits for the last answers.
    pub fn run(&mut self, meter: &mut Meter) -> io::Result<()> {
        for connection in &mut self.connections {
            connection.send(Instant::now())?;
            self.in_flight += 1;
        }
        while meter.goes_on(Instant::now())? {
            self.turn(|latency| meter.took(latency), true)?;
        }
        while self.in_flight > 0 {
            self.turn(|_| {}, false)?;
        }
        Ok(())
    }

    /// Takes what has come; `more`: an answer is followed by the next message.
    fn turn(&mut self, mut took: impl FnMut(Duration), more: bool) -> io::Result<()> {
        let n = self.poll.wait(SILENCE)?;
        if n == 0 {
            return Err(io::Error::other(format!(
                "the server is silent, {} answers are missing",
                self.in_flight
            )));
        }
        for at in 0..n {
            let connection = &mut self.connections[self.poll.event(at).0];
            if !connection.receive()? {
                continue;
            }
            let now = Instant::now();
            took(now - connection.sent);
            if more {
                connection.send(now)?;
            } else {
                self.in_flight -= 1;
            }
        }
        Ok(())
    }
}

impl Connection {
    /// One message there and back, blocking: then the server has accepted this
    /// connection and, since it takes them in order, all before it.
    fn look(&mut self) -> io::Result<()> {
        self.stream.set_read_timeout(Some(SILENCE))?;
        self.send(Instant::now())?;
        self.stream.read_exact(&mut self.answer)?;
        self.check()
    }

    #[inline]
    fn send(&mut self, now: Instant) -> io::Result<()> {
        self.got = 0;
        self.sent = now;
        self.sequence += 1;
        let message = message(self.id, self.sequence);
        // A socket with nothing in flight has room for all of it.
        match self.stream.write(&message)? {
            MESSAGE => Ok(()),
            n => Err(io::Error::other(format!("wrote only {n} bytes"))),
        }
    }

    /// Reads what is there; true when the answer is complete and right.
    ///
    /// One read is enough for each edge: there is nothing behind the answer,
    /// and what comes later is an edge of its own.
    #[inline]
    fn receive(&mut self) -> io::Result<bool> {
        match self.stream.read(&mut self.answer[self.got..]) {
            Ok(0) => Err(io::Error::other("the server closed a connection")),
            Ok(n) => {
                self.got += n;
                if self.got < MESSAGE {
                    return Ok(false);
                }
                self.check()?;
                Ok(true)
            }
            Err(problem) if problem.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(problem) => Err(problem),
        }
    }

    #[inline]
    fn check(&self) -> io::Result<()> {
        if self.answer == message(self.id, self.sequence) {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "wrong bytes came back on connection {}, message {}",
            self.id, self.sequence
        )))
    }
}

/// A message that no other connection sends, nor this one at another time.
#[inline]
pub fn message(id: u32, sequence: u32) -> [u8; MESSAGE] {
    let seed = (u64::from(id) << 32 | u64::from(sequence)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut message = [0; MESSAGE];
    for (i, word) in message.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&seed.rotate_left(7 * i as u32).to_le_bytes());
    }
    message
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::super::meter::Span;
    use super::*;

    /// A server with a thread for each of `n` connections; each answers with
    /// what `spoil` makes of it.
    fn server(n: usize, spoil: fn(&mut [u8])) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().take(n) {
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    let mut buffer = [0; 48]; // a message comes in two parts
                    while let Ok(read @ 1..) = stream.read(&mut buffer) {
                        spoil(&mut buffer[..read]);
                        if stream.write_all(&buffer[..read]).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        addr
    }

    fn short() -> Span {
        Span::of(0.05)
    }

    #[test]
    fn an_honest_server_is_measured() {
        let addr = server(10, |_| {});
        let mut echo = Echo::connect(addr, 6, false).unwrap();
        echo.add(addr, 4, true).unwrap();
        echo.greet().unwrap();
        let mut meter = Meter::start(None, short());
        echo.run(&mut meter).unwrap();
        assert_eq!(echo.in_flight, 0);
    }

    #[test]
    fn a_wrong_byte_is_found() {
        let addr = server(3, |bytes| bytes[bytes.len() - 1] ^= 1);
        let problem = Echo::connect(addr, 3, false).err().unwrap().to_string();
        assert!(problem.contains("wrong bytes"), "{problem}");
    }

    #[test]
    fn a_connection_that_is_closed_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut message = [0; MESSAGE];
            stream.read_exact(&mut message).unwrap();
            stream.write_all(&message).unwrap();
            stream.read_exact(&mut message).unwrap();
        });
        let mut echo = Echo::connect(addr, 1, false).unwrap();
        let mut meter = Meter::start(None, short());
        assert!(echo.run(&mut meter).is_err());
        server.join().unwrap();
    }

    #[test]
    fn messages_differ_from_each_other() {
        let mut seen = std::collections::HashSet::new();
        for id in 0..30 {
            for sequence in 0..30 {
                assert!(seen.insert(message(id, sequence)));
            }
        }
    }
}
