//! Async libraries on our sockets, timers and fibers.

mod futures;
mod hyper;
mod sleep;

use crate::harness::watch;
use crate::world::everywhere;
use sinew::net::{TcpListener, TcpStream};
use std::future::Future;
use std::pin::Pin;

/// A task that any executor takes.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs what `test` makes under `block_on` on fibers of both drivers and on a plain
/// thread, and under an executor that knows nothing of us.
pub fn under_each_executor(test: impl Fn() -> Task + Sync) {
    everywhere(|| sinew::block_on(test()));
    let _watch = watch();
    for threads in [1, 2] {
        eprintln!("tokio, {threads} threads");
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .build()
            .unwrap();
        // On a thread of its pool, not on this one.
        tokio.block_on(tokio.spawn(test())).unwrap();
    }
}

/// Both ends of a TCP connection: who connected, who accepted.
pub fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    (client, server)
}
