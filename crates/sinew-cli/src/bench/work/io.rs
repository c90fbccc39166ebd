//! Sockets.

use std::io::{Read, Write};
use std::sync::Arc;
use std::thread;

use sinew::net::{TcpListener, TcpStream};
use sinew::{Runtime, spawn};

use super::super::child::{Job, Rally};
use super::super::serve::{ANYWHERE, BUFFER, MESSAGE, announce, raise_file_limit, upstream};
use super::runtime;

/// Accepts forever and runs `handle` in a fiber for each connection.
fn serve(rt: &Runtime, handle: fn(TcpStream)) {
    raise_file_limit();
    rt.run(|| {
        let listener = TcpListener::bind(ANYWHERE).expect("can't listen");
        announce(listener.local_addr().expect("it has an address"));
        for stream in listener.incoming() {
            let stream = stream.expect("can't accept");
            spawn(move || handle(stream)); // detached
        }
    });
}

pub fn echo(rt: &Runtime) {
    serve(rt, echo_to);
}

fn echo_to(mut stream: TcpStream) {
    let mut buffer = [0; BUFFER];
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..n]).is_err() {
            return;
        }
    }
}

/// On stacks like those of the million sleepers: page tables count.
pub fn idle_conn(job: &Job) {
    let rt = Runtime::builder()
        .workers(job.workers)
        .stack_size(64 * 1024)
        .build()
        .expect("the runtime did not start");
    serve(&rt, echo_to);
}

pub fn short(rt: &Runtime) {
    serve(rt, |mut stream| {
        let mut message = [0; MESSAGE];
        if stream.read_exact(&mut message).is_ok() {
            let _ = stream.write_all(&message); // we close it anyway
        }
    });
}

pub fn proxy(rt: &Runtime) {
    serve(rt, |near| {
        let far = TcpStream::connect(upstream()).expect("can't connect");
        let _ = sinew::io::copy_bidirectional(&near, &far); // its end, whatever it was
    });
}

/// While a fiber waits for a connection that never comes, so that the driver
/// has something to wait for.
pub fn wake(job: &Job) {
    Rally::prepare(job);
    let rt = runtime(job);
    let listener = rt.run(|| Arc::new(TcpListener::bind(ANYWHERE).expect("can't listen")));
    let waiting = rt.spawn({
        let listener = listener.clone();
        move || listener.accept().map(drop)
    });
    let rally = Rally::new();
    let player = rt.spawn({
        let rally = rally.clone();
        move || rally.play(sinew::park)
    });
    let fiber = player.fiber().clone();
    rally.serve(job, || fiber.unpark());
    player.join().unwrap();
    // Whoever comes ends it.
    let at = listener.local_addr().expect("it has an address");
    let caller = thread::spawn(move || std::net::TcpStream::connect(at).map(drop));
    waiting.join().unwrap().expect("nobody came");
    caller.join().unwrap().expect("can't connect");
}
