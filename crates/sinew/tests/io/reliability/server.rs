//! The echo server of these tests.

use sinew::Runtime;
use sinew::net::{TcpListener, TcpStream};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Serves until it is stopped; see there.
pub struct Server {
    listener: Arc<TcpListener>,
    accepts: sinew::JoinHandle<()>,
    /// How many connections ended in an error.
    broken: Arc<AtomicU64>,
}

/// Echoes until the end.
pub fn echo(mut stream: &TcpStream) -> io::Result<()> {
    let mut buffer = [0; 1024];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            count => stream.write_all(&buffer[..count])?,
        }
    }
}

impl Server {
    pub fn start(runtime: &Runtime) -> Self {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
        let broken = Arc::<AtomicU64>::default();
        let (theirs, errors) = (listener.clone(), broken.clone());
        let accepts = runtime.spawn(move || {
            for stream in theirs.incoming() {
                let Ok(stream) = stream else { break };
                let errors = errors.clone();
                drop(sinew::spawn(move || {
                    if echo(&stream).is_err() {
                        // Relaxed: read when all is over.
                        errors.fetch_add(1, Ordering::Relaxed);
                    }
                }));
            }
        });
        Self {
            listener,
            accepts,
            broken,
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// Takes no more connections; how many were broken so far.
    pub fn stop(self) -> u64 {
        self.listener.close().unwrap();
        self.accepts.join().unwrap();
        self.broken.load(Ordering::Relaxed)
    }
}
