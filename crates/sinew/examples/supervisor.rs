//! Services that are started again when they fail, as OTP's supervisors do.
//!
//! cargo run --example supervisor

use sinew::scope::{Restart, Strategy, Supervision, supervise};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

fn main() {
    sinew::run(|| {
        // A reader is of no use without its connection: both are started again.
        let (connects, reads) = (AtomicU32::new(0), AtomicU32::new(0));
        let limits = Supervision::new()
            .strategy(Strategy::RestForOne)
            .intensity(5, Duration::from_secs(10));
        let report = supervise(limits, |s| {
            s.child("connection", Restart::Transient, || {
                let attempt = connects.fetch_add(1, Ordering::Relaxed);
                while reads.load(Ordering::Relaxed) <= attempt {
                    sinew::checkpoint().map_err(|told| told.to_string())?; // serves
                }
                match attempt {
                    0 | 1 => Err(format!("connection {attempt} was reset")),
                    _ => Ok(()),
                }
            });
            s.child("reader", Restart::Transient, || {
                reads.fetch_add(1, Ordering::Relaxed);
                while connects.load(Ordering::Relaxed) < 3 {
                    sinew::checkpoint()?; // reads until it is told
                }
                Ok::<_, sinew::Cancelled>(())
            });
        });
        let report = report.expect("it comes up in time");
        for child in &report.children {
            println!(
                "{}: {} starts, at last it {}",
                child.name, child.starts, child.last_exit
            );
        }
        assert_eq!(report.restarts, 2);
        assert_eq!(report.children[0].starts, 3);

        // One that never comes up: the supervisor gives up, and says why.
        let hopeless = supervise(Supervision::new(), |s| {
            s.child("hopeless", Restart::Permanent, || Err::<(), _>("no disk"));
        });
        let error = hopeless.unwrap_err();
        println!("{error}");
        assert_eq!(error.report().children[0].starts, 2);
    });
}
