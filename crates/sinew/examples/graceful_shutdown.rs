//! A service that is asked to stop: a tree of tokens, limits, shields and cleanup.
//!
//! cargo run --example graceful_shutdown

use sinew::channel::{Receiver, Sender, unbounded};
use sinew::{CancelReason, CancelToken, Cancelled, finally, select, timeout};
use std::time::Duration;

/// Serves requests until it is told to stop; then finishes those that are queued.
fn serve(name: &str, requests: &Receiver<u32>, log: &Sender<String>) -> Result<u32, Cancelled> {
    let mut served = 0;
    finally(
        || {
            loop {
                let request = select! {
                    recv(requests) -> request => request,
                    cancelled => break,
                };
                let Ok(_request) = request else { break };
                // Each request has a limit of its own.
                let late = timeout(Duration::from_secs(1), || sinew::sleep(Duration::ZERO));
                served += u32::from(late.is_ok());
            }
            // Told, but not cut off: what is queued is served to the end.
            served += requests.try_iter().count() as u32;
            sinew::check_cancelled().map(|()| served)
        },
        // Once, however it ended; it may wait although the fiber is cancelled.
        || log.send(format!("{name} has closed its files")).unwrap(),
    )
}

fn main() {
    sinew::run(|| {
        let service = CancelToken::new();
        let (log, lines) = unbounded();
        let (ask, asked) = unbounded();
        for request in 0..10 {
            ask.send(request).unwrap();
        }
        sinew::scope(|s| {
            let workers = ["one", "two"].map(|name| {
                let (stop, asked, log) = (service.child(), asked.clone(), log.clone());
                s.spawn(move || {
                    let outcome = stop.enter(|| {
                        let outcome = serve(name, &asked, &log);
                        (outcome, sinew::cancel_reason())
                    });
                    println!("{name}: {outcome:?}");
                    outcome
                })
            });
            while !asked.is_empty() {
                sinew::yield_now();
            }
            service.cancel_with("maintenance");
            for worker in workers {
                let (outcome, why) = worker.join().unwrap();
                assert_eq!(outcome, Err(Cancelled));
                assert_eq!(why, Some(CancelReason::from("maintenance")));
            }
        });
        drop(log);
        let mut lines: Vec<String> = lines.iter().collect();
        lines.sort();
        println!("{lines:#?}");
        assert_eq!(
            lines,
            ["one has closed its files", "two has closed its files"]
        );
    });
}
