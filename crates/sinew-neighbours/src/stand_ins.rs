//! Small servers on loopback that answer after [`DELAY`](crate::DELAY): HTTP, Redis, WebSocket.
//!
//! A thread for each connection, with std alone: what is measured is the client.

use crate::DELAY;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

/// Accepts connections for as long as the process lives.
fn serve(each: fn(TcpStream) -> io::Result<()>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that goes away in the middle is no concern of ours.
            thread::spawn(move || each(stream));
        }
    });
    Ok(address)
}

fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end().to_owned())
}

/// HTTP/1.1: "slow" to every request.
pub fn http() -> io::Result<SocketAddr> {
    serve(|stream| {
        let mut requests = BufReader::new(stream.try_clone()?);
        loop {
            while !line(&mut requests)?.is_empty() {}
            thread::sleep(DELAY);
            (&stream).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nslow")?;
        }
    })
}

/// Redis: nil to `BLPOP`, late; `+OK` to all else, at once.
pub fn redis() -> io::Result<SocketAddr> {
    fn number(text: &str) -> io::Result<usize> {
        let digits = text.get(1..).unwrap_or_default();
        digits
            .parse()
            .map_err(|_| io::ErrorKind::InvalidData.into())
    }
    serve(|stream| {
        let mut commands = BufReader::new(stream.try_clone()?);
        loop {
            // An array of bulk strings: "*2", "$3", "GET", "$1", "x".
            let mut words = Vec::new();
            for _ in 0..number(&line(&mut commands)?)? {
                let mut word = vec![0; number(&line(&mut commands)?)? + 2];
                commands.read_exact(&mut word)?;
                words.push(word);
            }
            if words
                .first()
                .is_some_and(|word| word.eq_ignore_ascii_case(b"BLPOP\r\n"))
            {
                thread::sleep(DELAY);
                (&stream).write_all(b"*-1\r\n")?;
            } else {
                (&stream).write_all(b"+OK\r\n")?;
            }
        }
    })
}

/// WebSocket: every message comes back.
pub fn websocket() -> io::Result<SocketAddr> {
    serve(|stream| {
        let mut socket = tungstenite::accept(stream).map_err(io::Error::other)?;
        loop {
            let message = socket.read().map_err(io::Error::other)?;
            thread::sleep(DELAY);
            socket.send(message).map_err(io::Error::other)?;
        }
    })
}
