//! TCP: connecting, accepting, reading, writing, with std's methods and errors.

mod accepting;
mod addresses;
mod incoming;
mod options;
mod std_types;
mod timeouts;
mod transfer;

use crate::world::everywhere;
use sinew::net::{TcpListener, TcpStream};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd};

/// A port of its own.
pub fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

/// A port that nobody else can have meanwhile: on an address that no other test binds or
/// connects from.
pub fn listen_alone() -> TcpListener {
    TcpListener::bind("127.77.0.1:0").unwrap()
}

/// Both ends of a connection.
pub fn pair() -> (TcpStream, TcpStream) {
    let listener = listen();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, from) = listener.accept().unwrap();
    assert_eq!(from, client.local_addr().unwrap());
    (client, server)
}

/// Both ends of a connection that holds little: each end's buffers are as small as
/// the kernel lets them be.
pub fn narrow_pair() -> (TcpStream, TcpStream) {
    // What is accepted has the listener's buffers, and the window is agreed upon with
    // the first packet: so it is set before.
    let listener = listen();
    narrow(&listener);
    let address = listener.local_addr().unwrap();
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    narrow(&socket);
    socket.connect(&address.into()).unwrap();
    let client = TcpStream::from(std::net::TcpStream::from(socket));
    let (server, _) = listener.accept().unwrap();
    (client, server)
}

/// With the least that the kernel allows (2304 bytes to receive, less than a packet's own
/// weight) it drops what comes, and its timers make minutes of a test, with std's sockets too.
fn narrow(socket: &impl AsFd) {
    const LEAST: usize = 4096;
    let socket = socket2::SockRef::from(socket);
    socket.set_send_buffer_size(LEAST).unwrap();
    socket.set_recv_buffer_size(LEAST).unwrap();
}

/// Writes until there is no room; how much that was.
pub fn fill(stream: &TcpStream) -> usize {
    stream.set_nonblocking(true).unwrap();
    let mut written = 0;
    let mut calm = 0;
    // The kernel moves what was sent to the peer's buffer in its own time, and then has
    // room again.
    while calm < 3 {
        match (&*stream).write(&[7; 64 << 10]) {
            Ok(count) => {
                written += count;
                calm = 0;
            }
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                calm += 1;
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        }
    }
    stream.set_nonblocking(false).unwrap();
    written
}

/// Whether the descriptor itself never blocks: a setting that others share.
pub fn has_flag_nonblocking(of: &impl AsRawFd) -> bool {
    // SAFETY: no pointers.
    let flags = unsafe { libc::fcntl(of.as_raw_fd(), libc::F_GETFL) };
    assert!(flags >= 0);
    flags & libc::O_NONBLOCK != 0
}

#[test]
fn what_is_written_is_read() {
    everywhere(|| {
        let listener = listen();
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
