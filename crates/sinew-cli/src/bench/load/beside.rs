//! One connection to a server whose other tasks compute: how late are its answers,
//! and its naps, which it measures itself?

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::super::child::report;
use super::super::serve::{MESSAGE, Order};
use super::histogram::Histogram;

/// The longest pause before a message.
const LONGEST_PAUSE: Duration = Duration::from_millis(3);

/// A connection of which one message is under way at a time.
struct Client(TcpStream);

impl Client {
    /// Sends an order; the value of the answer, and how long it took.
    fn ask(&mut self, order: Order) -> io::Result<(u64, Duration)> {
        let mut message = [7; MESSAGE];
        order.write_to(&mut message);
        let start = Instant::now();
        self.0.write_all(&message)?;
        self.0.read_exact(&mut message)?;
        Ok((Order::value(&message), start.elapsed()))
    }
}

/// Takes so many samples of each kind from the server at `addr`, and reports them.
pub fn run(addr: SocketAddr, samples: u64, workers: usize, silence: Duration) -> io::Result<()> {
    let stream = TcpStream::connect(addr)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(silence))?;
    let mut client = Client(stream);
    let (before, _) = client.ask(Order::Count)?;
    let start = Instant::now();
    // A message comes at any time of a computing task's turn, not just after an answer.
    let mut pauses = 0x9E37_79B9_7F4A_7C15_u64;
    let (mut naps, mut echoes) = (Histogram::new(), Histogram::new());
    for _ in 0..samples {
        naps.add(client.ask(Order::Nap)?.0);
        pauses = pauses.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        thread::sleep(LONGEST_PAUSE.mul_f64((pauses >> 32) as f64 / 2f64.powi(32)));
        echoes.add(client.ask(Order::Echo)?.1.as_nanos() as u64);
    }
    let took = start.elapsed().as_nanos() as f64 * workers as f64;
    let pieces = client.ask(Order::Count)?.0 - before;
    for (what, latencies) in [("sleep", &naps), ("echo", &echoes)] {
        for (name, part) in [("p50", 0.5), ("p99", 0.99)] {
            let micros = latencies.quantile(part) as f64 / 1e3;
            report(&format!("{what}_{name}_us"), micros);
        }
    }
    report("piece_ns", took / pieces.max(1) as f64);
    Ok(())
}
