//! A parallel downloader: several fibers fetch a part each, and a bar shows how far.
//!
//! `cargo run --release --example download` fetches from a server of its own; with a
//! server, a path and a file, from there: `… --example download example.org:80 /big big`.

use sinew::net::{TcpListener, TcpStream};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

/// What follows `name` in the lines up to the empty one.
fn field(reader: &mut impl BufRead, name: &str) -> io::Result<String> {
    let lines = reader.lines().map_while(Result::ok);
    let lines = lines.take_while(|line| !line.is_empty());
    let found = lines.filter_map(|line| Some(line.strip_prefix(name)?.to_owned()));
    found.last().ok_or(io::Error::other("it sends no parts"))
}

/// Asks for some bytes; how many there are in all, and from where to read those.
fn get(host: &str, path: &str, from: usize, to: usize) -> io::Result<(usize, impl Read)> {
    let mut stream = TcpStream::connect(host)?;
    let fields = format!("Host: {host}\r\nRange: bytes={from}-{to}\r\nConnection: close");
    write!(stream, "GET {path} HTTP/1.1\r\n{fields}\r\n\r\n")?;
    let mut reader = BufReader::new(stream);
    let part = field(&mut reader, "Content-Range: bytes ")?;
    let (_, all) = part.split_once('/').unwrap_or_default();
    Ok((all.parse().map_err(io::Error::other)?, reader))
}

fn download(host: &str, path: &str) -> io::Result<Vec<u8>> {
    let (all, _) = get(host, path, 0, 0)?;
    let (mut content, done) = (vec![0; all], &AtomicUsize::new(0));
    let size = all.div_ceil(8); // for eight fibers
    // The first error ends all of them.
    sinew::scope::nursery(|n| {
        for (at, part) in (0..).step_by(size).zip(content.chunks_mut(size)) {
            n.spawn(move || {
                let (_, mut body) = get(host, path, at, at + part.len() - 1)?;
                for piece in part.chunks_mut(64 << 10) {
                    body.read_exact(piece)?;
                    let before = done.fetch_add(piece.len(), Ordering::Relaxed); // only shown
                    let percent = 100 * (before + piece.len()) / all;
                    eprint!("\r[{:<50}] {percent:>3} %", "#".repeat(percent / 2));
                }
                io::Result::Ok(())
            });
        }
        Ok(())
    })?;
    Ok(content)
}

/// Sends the part of `content` that is asked for.
fn serve(mut stream: &TcpStream, content: &[u8]) -> io::Result<()> {
    let range = field(&mut BufReader::new(stream), "Range: bytes=")?;
    let (from, to) = range.split_once('-').unwrap();
    let part = format!("Content-Range: bytes {range}/{}", content.len());
    write!(stream, "HTTP/1.1 206 Partial Content\r\n{part}\r\n\r\n")?;
    stream.write_all(&content[from.parse().unwrap()..=to.parse().unwrap()])
}

#[sinew::main]
fn main() -> io::Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [host, path, file] = &arguments[..] {
        return std::fs::write(file, download(host, path)?);
    }
    let content: &Vec<_> = &(0..20 << 20).map(|n| (n ^ (n >> 8)) as u8).collect();
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let host = listener.local_addr()?.to_string();
    sinew::scope(|s| {
        s.spawn(|| {
            for stream in listener.incoming().filter_map(Result::ok) {
                s.spawn(move || serve(&stream, content));
            }
        });
        assert!(download(&host, "/")? == *content);
        println!("\n{} MiB by eight fibers", content.len() >> 20);
        listener.close()
    })
}
