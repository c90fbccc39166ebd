//! TCP: connecting, accepting, reading, writing.

use crate::world::everywhere;
use sinew::net::{TcpListener, TcpStream};
use std::io::{Read, Write};
use std::net::Shutdown;

#[test]
fn what_is_written_is_read() {
    everywhere(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = sinew::spawn(move || {
            let (mut peer, from) = listener.accept().unwrap();
            assert!(from.ip().is_loopback());
            let mut text = String::new();
            peer.read_to_string(&mut text).unwrap();
            peer.write_all(text.to_uppercase().as_bytes()).unwrap();
        });
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"hello").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "HELLO");
        server.join().unwrap();
    });
}
