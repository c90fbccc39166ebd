//! A runtime of one's own, a fiber that hogs its worker, and the cure.
//!
//! `cargo run --release -p sinew --example hog`

use sinew::{Builder, Runtime};
use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Computes until `until` without ever letting others run.
fn hog(until: Instant) -> u64 {
    let mut rounds = 0;
    while Instant::now() < until {
        rounds = black_box(rounds + 1);
    }
    rounds
}

/// The same with a safepoint at the entry and in the loop.
#[sinew::preemptible]
fn polite(until: Instant) -> u64 {
    let mut rounds = 0;
    while Instant::now() < until {
        rounds = black_box(rounds + 1);
    }
    rounds
}

/// How long a fiber that is ready waits behind `work` on the only worker.
fn delay_behind(runtime: &Runtime, name: &str, work: fn(Instant) -> u64) -> Duration {
    runtime.run(|| {
        let until = Instant::now() + Duration::from_millis(120);
        let busy = Builder::new()
            .name(name)
            .spawn(move || work(until))
            .expect("in range");
        let ready = Instant::now();
        let other = sinew::spawn(move || ready.elapsed());
        assert!(busy.join().expect("it does not panic") > 0);
        other.join().expect("it does not panic")
    })
}

fn main() -> std::io::Result<()> {
    let reports = Arc::new(Mutex::new(Vec::new()));
    let told = reports.clone();
    let runtime = Runtime::builder()
        .name("example")
        .workers(1)
        .quantum(Duration::from_millis(5))
        .report_hogs_after(Duration::from_millis(50))
        // Called on the monitor's thread, so a std mutex is right here.
        .on_hog(move |report| told.lock().unwrap().push(report.clone()))
        .build()?;

    let mut behind_hog = Duration::ZERO;
    // Again if the hog itself has hardly run, because others hog this machine.
    while reports.lock().unwrap().is_empty() {
        behind_hog = delay_behind(&runtime, "hog", hog);
    }
    let behind_polite = delay_behind(&runtime, "polite", polite);
    println!("a ready fiber waited {behind_hog:.1?} behind the hog");
    println!("a ready fiber waited {behind_polite:.1?} behind the polite one");
    assert!(behind_hog >= Duration::from_millis(100));
    assert!(behind_polite < behind_hog);

    let reports = reports.lock().unwrap();
    let report = reports.first().expect("the monitor has seen the hog");
    assert_eq!(report.name.as_deref(), Some("hog"));
    let place = report.spawned_at.expect("always known");
    println!(
        "reported: '{}' ran for {:.0?} on worker {}, spawned at {place}",
        report.name.as_deref().unwrap_or(""),
        report.running_for,
        report.worker
    );
    Ok(())
}
