//! A port forwarder: what comes to one address goes to another, and back.
//!
//! `cargo run --release --example proxy` forwards to a server of its own and ends; with
//! two addresses it goes on until it is killed:
//! `… --example proxy 127.0.0.1:8080 example.org:80`.

use sinew::io::copy_bidirectional;
use sinew::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicU64, Ordering};

const CLIENTS: u64 = 20;
const BYTES: usize = 1 << 20;

/// Forwards until the listener is closed; how many bytes went there and back.
fn forward(listener: &TcpListener, to: &(impl ToSocketAddrs + Sync)) -> u64 {
    let moved = AtomicU64::new(0);
    let one = |client: TcpStream| {
        let (there, back) = copy_bidirectional(&client, &TcpStream::connect(to)?)?;
        // Relaxed: a sum that is read when all have ended.
        moved.fetch_add(there + back, Ordering::Relaxed);
        io::Result::Ok(())
    };
    sinew::scope(|s| {
        for client in listener.incoming().filter_map(Result::ok) {
            let one = &one;
            s.spawn(move || one(client).inspect_err(|error| eprintln!("it broke: {error}")));
        }
    });
    moved.into_inner()
}

/// Answers a question, whatever its length, by its opposite.
fn answer(stream: &mut TcpStream) -> io::Result<()> {
    let mut question = Vec::new();
    stream.read_to_end(&mut question)?;
    question.iter_mut().for_each(|byte| *byte = !*byte);
    stream.write_all(&question)
}

fn ask(at: SocketAddr, number: u64) -> io::Result<()> {
    let mut stream = TcpStream::connect(at)?;
    stream.write_all(&vec![number as u8; BYTES])?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    assert!(answer == vec![!number as u8; BYTES]);
    Ok(())
}

#[sinew::main]
fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    if let (Some(from), Some(to)) = (arguments.next(), arguments.next()) {
        forward(&TcpListener::bind(from)?, &to);
        return Ok(());
    }
    let (server, proxy) = (listen()?, listen()?);
    let (to, at) = (server.local_addr()?, proxy.local_addr()?);
    sinew::scope(|s| {
        s.spawn(|| {
            for mut stream in server.incoming().filter_map(Result::ok) {
                s.spawn(move || answer(&mut stream));
            }
        });
        let forwards = s.spawn(|| forward(&proxy, &to));
        let clients: Vec<_> = (0..CLIENTS).map(|n| s.spawn(move || ask(at, n))).collect();
        let asked = clients.into_iter().try_for_each(|c| c.join().unwrap());
        proxy.close().and(server.close())?;
        let moved = forwards.join().unwrap();
        println!("{CLIENTS} connections, {} MiB forwarded", moved >> 20);
        assert_eq!(moved, CLIENTS * 2 * BYTES as u64);
        asked
    })
}

fn listen() -> io::Result<TcpListener> {
    TcpListener::bind("127.0.0.1:0")
}
