//! A whole service, which SIGTERM or Ctrl-C ends in steps: the guide has a chapter about it.
//! Without an address to serve at (`cargo run --example service -- 127.0.0.1:7000`) it tries itself.

use sinew::net::{SocketAddr, TcpListener, TcpStream};
use sinew::signal::{SignalKind, signal};
use sinew::{CancelToken, select};
use std::io::{self, BufRead, BufReader, Write};
use std::time::Duration;

/// Enters `stop` only between two requests: it ends an idle connection, but no request.
fn converse(stream: &TcpStream, stop: &CancelToken) -> io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    while let Some(Ok(line)) = stop.enter(|| lines.next()) {
        writeln!(&*stream, "working")?;
        let work = if line == "forever" { 1 << 40 } else { 20 };
        sinew::sleep(Duration::from_millis(work))?; // ends early at the deadline
        writeln!(&*stream, "done")?;
    }
    Ok(())
}

/// Accepts until `stop` is cancelled; returns when the last request has ended.
fn serve(listener: &TcpListener, stop: &CancelToken) -> io::Result<()> {
    sinew::scope(|requests| {
        let accept = |stream: io::Result<TcpStream>| {
            let talk = move || stream.and_then(|stream| converse(&stream, stop));
            requests.spawn(|| talk().unwrap_or_else(|error| eprintln!("a connection: {error}")));
        };
        stop.enter(|| listener.incoming().for_each(accept)); // not its children
        listener.close() // from now on clients are refused
    })
}

fn run(listener: &TcpListener, drain: Duration) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut told = || select! { wait(&mut terminate) -> t => t, wait(&mut interrupt) -> t => t };
    let (stop, all) = (CancelToken::new(), CancelToken::new());
    sinew::scope(|s| {
        let watcher = s.spawn(|| {
            told()?;
            stop.cancel_with("shutting down");
            let again = sinew::timeout(drain, &mut told).unwrap_or_else(|_late| {
                all.cancel_with("not done in time");
                told()
            });
            again.map(|()| std::process::exit(1)) // at once
        });
        let served = all.enter(|| serve(listener, &stop));
        watcher.cancel(); // all was done in time
        served
    })
}

fn try_it(address: SocketAddr) {
    let ask = |line| {
        let stream = TcpStream::connect(address).unwrap();
        writeln!(&stream, "{line}").unwrap();
        let mut answers = BufReader::new(stream).lines().map(Result::unwrap);
        assert_eq!(answers.next().unwrap(), "working");
        answers
    };
    let (stuck, quick) = (ask("forever"), ask("once"));
    SignalKind::terminate().raise().unwrap();
    assert!(quick.eq(["done"])); // it was under way
    assert_eq!(stuck.count(), 0); // it was not done in time
}

#[sinew::main]
fn main() -> io::Result<()> {
    if let Some(address) = std::env::args().nth(1) {
        return run(&TcpListener::bind(address)?, Duration::from_secs(10));
    }
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let trial = sinew::spawn(move || try_it(address));
    run(&listener, Duration::from_millis(200))?;
    assert!(TcpStream::connect(address).is_err());
    Ok(trial.join()?)
}
