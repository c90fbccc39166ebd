//! Where a fiber waits in I/O: a line of the program, never one of this crate.

use crate::harness::wait_until;
use crate::tls::{connector, name, sockets, streams};
use crate::world::on_fibers;
use sinew::io::{Async, copy_bidirectional};
use sinew::net::{TcpListener, UdpSocket, UnixListener, UnixStream};
use sinew::{Handle, WaitReason};
use std::io::{BufRead, BufReader, Read, Write};
use std::panic::Location;
use std::process::Stdio;

/// Where `wait` waits, once it does; cancelled after that.
fn place_of<T: Send + 'static>(
    what: &str,
    wait: impl FnOnce() -> T + Send + 'static,
) -> Option<&'static Location<'static>> {
    let waits = sinew::spawn(wait);
    let fiber = waits.fiber();
    let mut at = None;
    wait_until(|| {
        // One look at both: it may wait for something else first, such as a handshake's lock.
        let listed = Handle::current().fibers().find(|one| one.id == fiber.id());
        let parked = listed.filter(|one| one.waits_for != WaitReason::None);
        at = parked.as_ref().and_then(|one| one.waits_at);
        assert!(!waits.is_finished(), "{what} did not wait");
        parked.is_some()
    });
    waits.cancel();
    drop(waits.join());
    at
}

#[track_caller]
fn assert_here<T: Send + 'static>(what: &str, wait: impl FnOnce() -> T + Send + 'static) {
    let at = place_of(what, wait).unwrap_or_else(|| panic!("{what}: no place"));
    assert!(at.file().ends_with("tests/io/places.rs"), "{what}: {at}");
}

/// Through code of std the place is a line of std's.
#[track_caller]
fn assert_not_ours<T: Send + 'static>(what: &str, wait: impl FnOnce() -> T + Send + 'static) {
    if let Some(at) = place_of(what, wait) {
        assert!(!at.file().contains("sinew/src/"), "{what}: {at}");
    }
}

#[test]
fn sockets_wait_at_a_line_of_the_program() {
    on_fibers(|| {
        let (one, mut other) = sockets();
        assert_here("read by reference", {
            let one = one.try_clone().unwrap();
            move || (&one).read(&mut [0; 1])
        });
        assert_here("read", {
            let mut one = one.try_clone().unwrap();
            move || one.read(&mut [0; 1])
        });
        assert_here("write", {
            let mut one = one.try_clone().unwrap();
            move || while one.write(&[0; 65536]).is_ok() {}
        });
        assert_here("sinew::io::copy", {
            let mut one = one.try_clone().unwrap();
            move || sinew::io::copy(&mut one, &mut std::io::sink())
        });
        assert_not_ours("read_exact", {
            let mut one = one.try_clone().unwrap();
            move || one.read_exact(&mut [0; 1])
        });
        assert_not_ours("a buffered line", {
            let one = one.try_clone().unwrap();
            move || BufReader::new(one).read_line(&mut String::new())
        });
        // Called so, a method takes its own definition for its caller.
        assert_not_ours("a boxed reader", {
            let mut one: Box<dyn Read + Send> = Box::new(one.try_clone().unwrap());
            move || one.read(&mut [0; 1])
        });
        let (left, right) = UnixStream::pair().unwrap();
        assert_here("copy_bidirectional", move || {
            copy_bidirectional(&one, &left)
        });
        drop(right);
        let _ = other.flush();

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_here("accept and incoming", move || {
            listener
                .incoming()
                .next()
                .map(|_| listener.accept().map(drop))
        });
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_here("recv_from", move || socket.recv_from(&mut [0; 1]));
        let folder = tempfile();
        let listener = UnixListener::bind(&folder).unwrap();
        assert_here("unix accept", move || listener.accept().map(drop));
        std::fs::remove_file(folder).unwrap();
        let (left, _right) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut left = Async::new(left).unwrap();
        assert_here("Async", move || left.read(&mut [0; 1]));
    });
}

/// A path that nobody else has.
fn tempfile() -> std::path::PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("sinew-places-{}-{number}", std::process::id());
    std::env::temp_dir().join(name)
}

#[test]
fn children_and_signals_wait_at_a_line_of_the_program() {
    on_fibers(|| {
        assert_here("the output of a child", || {
            let mut cat = sinew::process::Command::new("cat");
            let cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = cat.kill_on_drop(true).spawn().unwrap();
            let mut output = child.stdout.take().unwrap();
            let got = output.read(&mut [0; 1]);
            drop(child.stdin.take());
            got
        });
        assert_here("a child's end", || {
            let mut sleep = sinew::process::Command::new("sleep");
            sleep.arg("1000").kill_on_drop(true).spawn().unwrap().wait()
        });
    });
}

#[test]
fn tls_waits_at_a_line_of_the_program() {
    on_fibers(|| {
        let (mut one, other) = streams();
        assert_here("read", move || one.read(&mut [0; 1]));
        drop(other);
        let (mut one, other) = streams();
        assert_here("write", move || while one.write(&[0; 65536]).is_ok() {});
        drop(other);
        let (one, other) = streams();
        let (mut from, _to) = one.split();
        assert_here("the reading half", move || from.read(&mut [0; 1]));
        drop(other);
        let (one, other) = streams();
        let (_from, mut to) = one.split();
        assert_here("the writing half", move || {
            while to.write(&[0; 65536]).is_ok() && to.flush().is_ok() {}
        });
        drop(other);
        let (one, other) = streams();
        let mut one = one.into_duplex();
        assert_here("both, by reference", move || one.read(&mut [0; 1]));
        drop(other);
        let (one, other) = sockets();
        assert_here("a handshake", move || {
            connector().connect(name(), one).map(drop)
        });
        drop(other);
        // A hint is gone with the call that left it.
        let (one, other) = streams();
        let (plain, _peer) = sockets();
        assert_not_ours("plain after TLS", move || {
            let mut one = one;
            one.write_all(b"x").unwrap();
            let mut boxed: Box<dyn Read> = Box::new(plain);
            boxed.read(&mut [0; 1])
        });
        drop(other);
    });
}
