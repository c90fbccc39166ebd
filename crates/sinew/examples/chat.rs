//! A chat room: each line goes to all who are there. Nobody waits for slow readers: who
//! falls behind is told how much it missed, who does not read at all has to go.
//!
//! `cargo run --release --example chat` talks to itself; with an address it serves `nc`s.

use sinew::channel::broadcast::{self, RecvError};
use sinew::net::{TcpListener, TcpStream};
use std::io::{self, BufRead, BufReader, Write};
use std::time::Duration;

const LINES: usize = 250;
const ALL: usize = 4 * LINES; // by four of them

fn visit(stream: &TcpStream, room: &broadcast::Sender<String>) {
    sinew::scope(|s| {
        s.cancel_on_exit();
        s.spawn(|| tell(stream, room.subscribe()).or_else(|_| stream.close())); // ends the loop below
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let _heard_by = room.send(line + "\n");
        }
    });
}

/// Passes all that is said on to one of them.
fn tell(mut to: &TcpStream, mut news: broadcast::Receiver<String>) -> io::Result<()> {
    to.set_nodelay(true)?; // a line is small, and to be read at once
    to.set_write_timeout(Some(Duration::from_millis(500)))?;
    to.write_all(b"welcome\n")?;
    loop {
        match news.recv() {
            Ok(line) => to.write_all(line.as_bytes())?,
            Err(RecvError::Lagged(lines)) => writeln!(to, "… you missed {lines} lines")?,
            Err(_) => return Ok(()),
        }
    }
}

/// Says some lines, each when the last one came back, and hears all; how many.
fn chat(mut stream: &TcpStream, name: usize) -> io::Result<usize> {
    let mut heard = BufReader::new(stream).lines().map_while(Result::ok);
    let mut count = heard.by_ref().take(1).count(); // the welcome
    for number in 0..LINES {
        let mine = format!("{name} says {number} {}", "bla ".repeat(2000));
        stream.write_all(format!("{mine}\n").as_bytes())?;
        count += 1 + heard.by_ref().take_while(|line| *line != mine).count();
    }
    Ok(count + heard.take(1 + ALL - count).count())
}

#[sinew::main]
fn main() -> io::Result<()> {
    let (room, _) = broadcast::channel(ALL);
    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0"))?;
    let at = listener.local_addr()?;
    let server = sinew::Builder::new().daemon(true).spawn(move || {
        for stream in listener.incoming().filter_map(Result::ok) {
            let room = room.clone();
            drop(sinew::spawn(move || visit(&stream, &room)));
        }
    })?;
    let _killed = address.map(|_| server.join());
    // All are there before the first one speaks.
    let enter = |_| TcpStream::connect(at).and_then(|s| s.peek(&mut [0]).map(|_| s));
    let sleeper = enter(0)?;
    let all: Vec<_> = (0..4).map(enter).collect::<Result<_, _>>()?;
    sinew::scope(|s| {
        for (name, stream) in all.iter().enumerate() {
            s.spawn(move || assert_eq!(chat(stream, name).unwrap(), 1 + ALL));
        }
    });
    sinew::sleep(Duration::from_secs(1))?; // longer than anybody waits for it
    sleeper.set_read_timeout(Some(Duration::from_secs(2)))?;
    let heard = BufReader::new(sleeper).lines().map_while(Result::ok);
    println!(
        "{ALL} lines for each; who slept heard {}",
        heard.count() - 1
    );
    Ok(())
}
