//! The load generator of the I/O workloads: `sinew __load`.
//!
//! It depends on nothing that is measured: a loop around epoll, on a CPU of its
//! own, which keeps a server on the other CPU busy, checks what comes back, and
//! reads how much CPU time the server's process has used.
//!
//! ```text
//! sinew __load echo  --addr 127.0.0.1:PORT --connections 100 --seconds 3 --server-pid PID
//! sinew __load short --addr 127.0.0.1:PORT --connections 64  --seconds 3 --server-pid PID
//! sinew __load proxy --addr 127.0.0.1:PORT --connections 8   --seconds 3 --server-pid PID --upstream 127.0.0.1:PORT
//! ```
//!
//! measures a server that somebody else started (`taskset -c 0 SERVER &`). An
//! echo server sends everything back; a short one answers the first 64 bytes and
//! closes; a proxy connects to `--upstream`, where this program listens. `quiet`
//! is `echo` on connections that are all made first, on any CPU, and `idle` weighs
//! an echo server with connections that do nothing (`bytes_each`). The rivals can
//! be started so too, and say where they listen: `rivals raw-uring echo_100`. What
//! is printed, `key value`:
//!
//! | key | what |
//! |---|---|
//! | `msgs` | messages (connections, chunks of 64 KiB) that were done while measured |
//! | `wall_ns` | time for each |
//! | `cpu_ns` | CPU time of the server for each, with `--server-pid` |
//! | `p50_us`, `p99_us` | from the first byte sent (the connect) to the last received |
//! | `unevenness` | CPU time of the busiest thread over an even share, with `--workers 2` or more |
//!
//! `sinew bench` runs `sinew __load run NAME --workers N --scale S -- SERVER…`
//! which starts the server itself and knows how NAME is loaded.

mod beside;
mod echo;
mod histogram;
mod meter;
mod poll;
mod proxy;
mod server;
mod short;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::time::Duration;

use echo::Echo;
use meter::{Meter, Span};
use server::{Process, Server};

use super::child::{self, Job, report};
use super::serve::{ANYWHERE, CHUNK, raise_file_limit};

/// A server that says nothing for so long has failed.
const SILENCE: Duration = Duration::from_secs(10);

/// How often a server whose other tasks compute is asked for each order.
const SAMPLES: u64 = 300;

/// Connections whose memory does not count: what is made once is made by then.
const FIRST: usize = 100;

/// What to do with a server that runs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Messages there and back.
    Echo,
    /// Connections that end after one message.
    Short,
    /// Both ends of a proxy.
    Proxy,
    /// All connections are there before the first message.
    Quiet,
    /// Nothing: what do the connections weigh?
    Idle,
    /// One message at a time, beside tasks that compute: so many of each order.
    Beside(u64),
}

/// How a server is loaded.
#[derive(Clone, Debug, PartialEq)]
struct Load {
    kind: Kind,
    connections: usize,
    span: Span,
    workers: usize,
}

impl Load {
    /// How the workload `job` is loaded.
    fn of(job: &Job) -> Option<Load> {
        let (kind, connections, seconds) = match job.name.as_str() {
            "echo_100" => (Kind::Echo, 100, 3.0),
            "echo_9000" => (Kind::Echo, job.count(9_000).max(100), 3.0),
            "short" => (Kind::Short, 64, 3.0),
            "proxy" => (Kind::Proxy, 8, 3.0),
            "io_even" => (Kind::Quiet, job.count(1_000).max(20), 2.0),
            "idle_conn" => (Kind::Idle, job.count(5_000).max(100), 1.0),
            "busy_1" | "busy_3" | "busy_10" | "busy_fewer" => {
                (Kind::Beside(job.count(SAMPLES).max(20)), 1, 1.0)
            }
            _ => return None,
        };
        Some(Load {
            kind,
            connections: connections as usize,
            span: Span::of(seconds * job.scale.max(0.02)),
            workers: job.workers,
        })
    }

    /// Whether the server has one CPU and we have the other.
    fn is_pinned(&self) -> bool {
        !matches!(self.kind, Kind::Quiet | Kind::Beside(_))
    }

    fn run(
        &self,
        addr: SocketAddr,
        server: Option<Process>,
        upstream: Option<&TcpListener>,
    ) -> io::Result<()> {
        let n = self.connections;
        let meter = match self.kind {
            Kind::Idle => return weigh(addr, server, n),
            Kind::Beside(samples) => return beside::run(addr, samples, self.workers, SILENCE),
            Kind::Echo | Kind::Quiet => {
                let mut echo = Echo::connect(addr, n, self.kind == Kind::Quiet)?;
                let mut meter = Meter::start(server, self.span);
                echo.run(&mut meter)?;
                meter
            }
            Kind::Short => {
                let mut meter = Meter::start(server, self.span);
                short::run(addr, n, &mut meter)?;
                meter
            }
            Kind::Proxy => {
                let upstream = upstream.ok_or_else(|| io::Error::other("no upstream"))?;
                let mut meter = Meter::start(server, self.span);
                proxy::run(addr, upstream, n, &mut meter)?;
                meter
            }
        };
        let unit = match self.kind {
            Kind::Proxy => CHUNK as u64,
            _ => 1,
        };
        meter.report(unit, self.workers);
        Ok(())
    }
}

/// Memory of the server for each of `n` connections that have been used once.
fn weigh(addr: SocketAddr, server: Option<Process>, n: usize) -> io::Result<()> {
    let server = server.ok_or_else(|| io::Error::other("whose memory?"))?;
    let mut echo = Echo::connect(addr, FIRST, false)?;
    echo.greet()?;
    let before = server.memory()?;
    echo.add(addr, n, false)?;
    echo.greet()?;
    let grown = server.memory()?.saturating_sub(before);
    report("bytes_each", grown as f64 / n as f64);
    Ok(())
}

/// Runs `sinew __load` with these words.
pub fn run(words: &[String]) -> ExitCode {
    raise_file_limit();
    let done = match words.split_first() {
        Some((word, rest)) if word == "run" => run_workload(rest),
        Some((word, rest)) => run_by_hand(word, rest),
        None => Err(io::Error::other("what load?")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("sinew __load: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// `NAME --workers N --scale S -- SERVER…`
fn run_workload(words: &[String]) -> io::Result<()> {
    let mut parts = words.splitn(2, |word| word == "--");
    let job = parts.next().unwrap_or_default().iter().cloned();
    let job = Job::parse(job).map_err(io::Error::other)?;
    let command = parts.next().unwrap_or_default();
    let load =
        Load::of(&job).ok_or_else(|| io::Error::other(format!("`{}` has no server", job.name)))?;
    let upstream = match load.kind {
        Kind::Proxy => Some(TcpListener::bind(ANYWHERE)?),
        _ => None,
    };
    let at = upstream.as_ref().map(TcpListener::local_addr).transpose()?;
    let server = Server::start(command, load.is_pinned(), at)?;
    match load.run(server.addr, Some(server.process()), upstream.as_ref()) {
        Ok(()) => Ok(()),
        Err(problem) => Err(server.explain(problem)),
    }
}

/// `echo|short|proxy --addr A …`
fn run_by_hand(word: &str, words: &[String]) -> io::Result<()> {
    let order = Order::parse(word, words).map_err(io::Error::other)?;
    let upstream = order.upstream.map(TcpListener::bind).transpose()?;
    if order.load.is_pinned() {
        child::stay_on(1);
    }
    let server = order.server.map(Process);
    order.load.run(order.addr, server, upstream.as_ref())
}

/// A load on a server that runs already.
#[derive(Debug, PartialEq)]
struct Order {
    load: Load,
    addr: SocketAddr,
    server: Option<u32>,
    upstream: Option<SocketAddr>,
}

impl Order {
    fn parse(word: &str, words: &[String]) -> Result<Order, String> {
        let (kind, connections) = match word {
            "echo" => (Kind::Echo, 100),
            "quiet" => (Kind::Quiet, 1_000),
            "idle" => (Kind::Idle, 5_000),
            "short" => (Kind::Short, 64),
            "proxy" => (Kind::Proxy, 8),
            _ => return Err(format!("there is no load `{word}`")),
        };
        let mut load = Load {
            kind,
            connections,
            span: Span::of(3.0),
            workers: 1,
        };
        let (mut addr, mut server, mut upstream) = (None, None, None);
        for pair in words.chunks(2) {
            let [key, value] = pair else {
                return Err(format!("{} needs a value", pair[0]));
            };
            let bad = || format!("{key}: `{value}` makes no sense");
            match key.as_str() {
                "--addr" => addr = Some(value.parse().map_err(|_| bad())?),
                "--upstream" => upstream = Some(value.parse().map_err(|_| bad())?),
                "--server-pid" => server = Some(value.parse().map_err(|_| bad())?),
                "--workers" => load.workers = value.parse().map_err(|_| bad())?,
                "--connections" => load.connections = value.parse().map_err(|_| bad())?,
                "--seconds" => match value.parse() {
                    Ok(seconds @ 0.0..=600.0) => load.span = Span::of(seconds),
                    _ => return Err(bad()),
                },
                _ => return Err(format!("unknown option `{key}`")),
            }
        }
        Ok(Order {
            load,
            addr: addr.ok_or("--addr is missing")?,
            server,
            upstream,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::{Kind as Needs, all};
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn an_order_is_read_from_its_words() {
        let order = Order::parse(
            "echo",
            &words("--addr 127.0.0.1:80 --connections 7 --seconds 2 --server-pid 9"),
        )
        .unwrap();
        assert_eq!(order.addr, "127.0.0.1:80".parse().unwrap());
        assert_eq!((order.load.connections, order.server), (7, Some(9)));
        assert_eq!(order.load.span, Span::of(2.0));
    }

    #[test]
    fn an_order_that_makes_no_sense_is_refused() {
        for (word, line) in [
            ("shout", "--addr 127.0.0.1:80"),
            ("echo", ""),
            ("echo", "--addr nowhere"),
            ("echo", "--addr"),
            ("echo", "--addr 127.0.0.1:80 --seconds -1"),
            ("echo", "--addr 127.0.0.1:80 --loud yes"),
        ] {
            assert!(Order::parse(word, &words(line)).is_err(), "{word} {line}");
        }
    }

    #[test]
    fn every_workload_with_a_server_has_a_load() {
        for workload in all() {
            let job = Job {
                name: workload.name.to_owned(),
                workers: 1,
                scale: 0.01,
            };
            let load = Load::of(&job);
            assert_eq!(
                load.is_some(),
                workload.kind == Needs::Served,
                "{}",
                workload.name
            );
            // A smoke test is short.
            assert!(load.is_none_or(|load| load.span.measured < Duration::from_millis(100)));
        }
    }
}
