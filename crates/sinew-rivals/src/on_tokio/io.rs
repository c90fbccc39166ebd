//! Sockets and files.

use std::io::SeekFrom;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt, copy_bidirectional_with_sizes};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task;

use super::on;
use crate::child::{Job, report, steady};
use crate::serve::{
    ANYWHERE, BLOCK, BUFFER, Blocks, COPIED, IN_FLIGHT, MESSAGE, Offsets, announce,
    raise_file_limit, upstream,
};

/// Accepts forever and spawns what `handle` makes of each connection.
fn serve<F>(rt: &Runtime, handle: fn(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    raise_file_limit();
    on(rt, async move {
        let listener = TcpListener::bind(ANYWHERE).await.expect("can't listen");
        announce(listener.local_addr().expect("it has an address"));
        loop {
            let (stream, _) = listener.accept().await.expect("can't accept");
            tokio::spawn(handle(stream));
        }
    });
}

pub fn echo(rt: &Runtime) {
    serve(rt, echo_to);
}

async fn echo_to(mut stream: TcpStream) {
    let mut buffer = [0; BUFFER];
    while let Ok(n @ 1..) = stream.read(&mut buffer).await {
        if stream.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
}

pub fn short(rt: &Runtime) {
    serve(rt, answer_once);
}

async fn answer_once(mut stream: TcpStream) {
    let mut message = [0; MESSAGE];
    if stream.read_exact(&mut message).await.is_ok() {
        let _ = stream.write_all(&message).await; // we close it anyway
    }
}

/// With buffers as large as the chunks; by default they have 8 KiB.
pub fn proxy(rt: &Runtime) {
    serve(rt, forward);
}

async fn forward(mut near: TcpStream) {
    let mut far = TcpStream::connect(upstream()).await.expect("can't connect");
    let _ = copy_bidirectional_with_sizes(&mut near, &mut far, COPIED, COPIED).await; // its end
}

/// Somebody who waits for a connection that never comes, so that the driver
/// has something to wait for.
pub fn keep_waiting(rt: &Runtime) {
    on(rt, async {
        let listener = TcpListener::bind(ANYWHERE).await.expect("can't listen");
        tokio::spawn(async move { listener.accept().await.map(drop) });
    });
}

/// Reads with tokio's own files, which seek and then read; and as one trip to
/// the pool for each read, which is what its documentation advises for many
/// small operations.
pub fn file_read(job: &Job, rt: &Runtime) {
    let blocks = Arc::new(Blocks::new().expect("can't write a file"));
    let ns = steady(job.target(), |n| {
        let blocks = blocks.clone();
        in_flight(rt, n, move |reader, share| {
            let blocks = blocks.clone();
            async move {
                let mut file = File::open(blocks.path()).await.expect("can't open it");
                let mut offsets = Offsets::new(reader);
                let mut block = [0; BLOCK];
                for _ in 0..share {
                    let offset = offsets.next();
                    let at = SeekFrom::Start(offset);
                    file.seek(at).await.expect("can't seek");
                    file.read_exact(&mut block).await.expect("can't read");
                    assert!(Blocks::is_at(&block, offset));
                }
            }
        })
    });
    report("ns", ns);
    let file = Arc::new(std::fs::File::open(blocks.path()).expect("can't open it"));
    let ns = steady(job.target(), |n| {
        let file = file.clone();
        in_flight(rt, n, move |reader, share| {
            let file = file.clone();
            async move {
                let mut offsets = Offsets::new(reader);
                for _ in 0..share {
                    let (file, offset) = (file.clone(), offsets.next());
                    let read = task::spawn_blocking(move || {
                        let mut block = [0; BLOCK];
                        file.read_exact_at(&mut block, offset).expect("can't read");
                        block
                    });
                    assert!(Blocks::is_at(&read.await.expect("it panicked"), offset));
                }
            }
        })
    });
    report("ns_hop", ns);
}

/// `n` reads by as many tasks as may be in flight; each is told who it is and
/// how many are its own.
fn in_flight<F>(rt: &Runtime, n: u64, read: impl Fn(u64, u64) -> F + Send + 'static) -> Duration
where
    F: Future<Output = ()> + Send + 'static,
{
    on(rt, async move {
        let share = (n / IN_FLIGHT).max(1);
        let start = Instant::now();
        let tasks: Vec<_> = (0..IN_FLIGHT)
            .map(|reader| tokio::spawn(read(reader, share)))
            .collect();
        for task in tasks {
            task.await.expect("a task panicked");
        }
        start
            .elapsed()
            .mul_f64(n as f64 / (share * IN_FLIGHT) as f64)
    })
}
