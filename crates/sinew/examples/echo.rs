//! An echo server: one fiber for each connection.
//!
//! `cargo run --release --example echo` talks to itself and ends; with an address it
//! serves until it is killed: `… --example echo 127.0.0.1:7777`.

use sinew::net::{TcpListener, TcpStream};
use std::io::{self, Read, Write};

fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; 1024];
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..count])?;
    }
}

fn serve(listener: &TcpListener) {
    for stream in listener.incoming() {
        match stream {
            Ok(stream) => drop(sinew::spawn(move || {
                if let Err(error) = echo(stream) {
                    eprintln!("a connection broke: {error}");
                }
            })),
            Err(_) if listener.is_closed() => {}
            Err(error) => eprintln!("nobody came: {error}"),
        }
    }
}

#[sinew::main]
fn main() -> io::Result<()> {
    if let Some(address) = std::env::args().nth(1) {
        serve(&TcpListener::bind(address)?);
        return Ok(());
    }
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    sinew::scope(|s| {
        s.spawn(|| serve(&listener));
        let clients: Vec<_> = (0..100)
            .map(|number| s.spawn(move || talk(address, number)))
            .collect();
        let echoed: usize = clients
            .into_iter()
            .map(|client| client.join().unwrap().unwrap())
            .sum();
        println!("{echoed} bytes came back");
        assert_eq!(echoed, 100 * 10 * 16);
        listener.close()
    })
}

fn talk(address: std::net::SocketAddr, number: u8) -> io::Result<usize> {
    let mut stream = TcpStream::connect(address)?;
    let mut echoed = 0;
    for round in 0..10 {
        let message = [number ^ round; 16];
        stream.write_all(&message)?;
        let mut answer = [0; 16];
        stream.read_exact(&mut answer)?;
        assert_eq!(answer, message);
        echoed += answer.len();
    }
    Ok(echoed)
}
