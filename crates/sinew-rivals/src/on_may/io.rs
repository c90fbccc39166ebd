//! Sockets.

use std::io::{self, Read, Write};
use std::net::Shutdown;

use may::go;
use may::net::{TcpListener, TcpStream};

use super::on;
use crate::child::{Job, Rally};
use crate::serve::{ANYWHERE, BUFFER, COPIED, MESSAGE, announce, raise_file_limit, upstream};

/// Accepts forever and runs `handle` in a coroutine for each connection.
fn serve(handle: fn(TcpStream)) {
    raise_file_limit();
    on(move || {
        let listener = TcpListener::bind(ANYWHERE).expect("can't listen");
        announce(listener.local_addr().expect("it has an address"));
        loop {
            let (stream, _) = listener.accept().expect("can't accept");
            go!(move || handle(stream));
        }
    });
}

pub fn echo() {
    serve(|mut stream| {
        let mut buffer = [0; BUFFER];
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            if stream.write_all(&buffer[..n]).is_err() {
                return;
            }
        }
    });
}

pub fn short() {
    serve(|mut stream| {
        let mut message = [0; MESSAGE];
        if stream.read_exact(&mut message).is_ok() {
            let _ = stream.write_all(&message); // we close it anyway
        }
    });
}

/// A coroutine for each direction.
pub fn proxy() {
    serve(|near| {
        let far = TcpStream::connect(upstream()).expect("can't connect");
        let there = (
            near.try_clone().expect("no descriptor"),
            far.try_clone().expect("no descriptor"),
        );
        let back = go!(move || copy(far, near));
        let _ = copy(there.0, there.1); // its end, whatever it was
        let _ = back.join();
    });
}

fn copy(mut from: TcpStream, mut to: TcpStream) -> io::Result<()> {
    let mut chunk = vec![0; COPIED]; // too large for its stack
    loop {
        match from.read(&mut chunk)? {
            0 => return to.shutdown(Shutdown::Write),
            n => to.write_all(&chunk[..n])?,
        }
    }
}

/// Somebody who waits for a connection that never comes, so that there is
/// something to wait for.
pub fn keep_waiting(job: &Job) {
    Rally::prepare(job); // before the workers start
    if job.is_apart() {
        may::config().set_worker_pin(false); // it would undo ours
    }
    on(|| {
        let listener = TcpListener::bind(ANYWHERE).expect("can't listen");
        go!(move || listener.accept().map(drop));
    });
}
