//! Answering and sleeping beside tasks that compute.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use sinew::net::{TcpListener, TcpStream};
use sinew::{Runtime, safepoint, sleep, spawn};

use super::super::child::{Job, fib};
use super::super::serve::{
    ANYWHERE, MESSAGE, Order, PIECE, SETTLE, SHORT_NAP, announce, busy_tasks,
};

/// How many pieces of work each computing task has done.
type Pieces = Arc<[AtomicU64]>;

/// Accepts forever, beside tasks that compute, and runs a fiber for each connection.
pub fn serve(job: &Job, rt: &Runtime) {
    rt.run(|| {
        let pieces: Pieces = (0..busy_tasks(job)).map(|_| AtomicU64::new(0)).collect();
        for number in 0..pieces.len() {
            let pieces = pieces.clone();
            spawn(move || compute(&pieces[number])); // detached
        }
        // Until it is known that they compute.
        sleep(SETTLE).expect("nobody cancels");
        let listener = TcpListener::bind(ANYWHERE).expect("can't listen");
        announce(listener.local_addr().expect("it has an address"));
        for stream in listener.incoming() {
            let (stream, pieces) = (stream.expect("can't accept"), pieces.clone());
            spawn(move || answer(stream, &pieces)); // detached
        }
    });
}

fn compute(pieces: &AtomicU64) {
    loop {
        fib(PIECE);
        pieces.store(pieces.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        safepoint();
    }
}

fn answer(mut stream: TcpStream, pieces: &[AtomicU64]) {
    stream.set_nodelay(true).expect("a socket of TCP");
    let mut message = [0; MESSAGE];
    while stream.read_exact(&mut message).is_ok() {
        let value = match Order::of(&message) {
            Order::Echo => 0,
            Order::Nap => {
                let start = Instant::now();
                sleep(SHORT_NAP).expect("nobody cancels");
                start.elapsed().saturating_sub(SHORT_NAP).as_nanos() as u64
            }
            Order::Count => pieces.iter().map(|n| n.load(Ordering::Relaxed)).sum(),
        };
        Order::set_value(&mut message, value);
        if stream.write_all(&message).is_err() {
            return;
        }
    }
}
