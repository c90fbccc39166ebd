//! Fibers that keep their worker: the reports say how, and the statistics how long.

use crate::harness::{Gate, Log, wait_until, watch};
use sinew::{Builder, HogCause, HogReport, Runtime};
use std::sync::mpsc;
use std::time::Duration;

const SOON: Duration = Duration::from_millis(20);

/// Runs `hog` on a fiber until it is reported, and returns its report; `hog` ends when
/// the gate that it is given is open.
fn report_of(workers: usize, hog: impl FnOnce(Gate) + Send + 'static) -> HogReport {
    let (reported, reports) = (Gate::new(), Log::new());
    let runtime = {
        let (reported, reports) = (reported.clone(), reports.clone());
        Runtime::builder()
            .workers(workers)
            .report_hogs_after(SOON)
            .on_hog(move |report| {
                reports.push(report.clone());
                reported.open();
            })
            .build()
            .unwrap()
    };
    let hog = runtime.spawn(move || hog(reported));
    let id = hog.fiber().id();
    hog.join().unwrap();
    let mut reports = reports.take();
    reports.retain(|report| report.id == id);
    assert_eq!(reports.len(), 1, "once a turn: {reports:?}");
    reports.pop().unwrap()
}

#[test]
fn a_fiber_that_computes_is_reported_as_computing() {
    let _watch = watch();
    for workers in [1, 2] {
        let report = report_of(workers, |reported| {
            while !reported.is_open() {
                std::hint::spin_loop();
            }
        });
        assert_eq!(report.cause, HogCause::Computes, "{report:?}");
        assert!(report.cpu_time >= SOON / 2, "{report:?}");
        assert!(report.running_for >= SOON, "{report:?}");
    }
}

#[test]
fn a_fiber_that_blocks_is_reported_with_the_system_call() {
    let _watch = watch();
    for workers in [1, 2] {
        let sleeps = report_of(workers, |reported| {
            while !reported.is_open() {
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let waits = report_of(workers, |reported| {
            let (keep, never) = mpsc::channel::<()>();
            while !reported.is_open() {
                let _ = never.recv_timeout(Duration::from_millis(50));
            }
            drop(keep);
        });
        let reads = report_of(workers, |reported| {
            use std::io::Read;
            use std::os::unix::net::UnixStream;
            let (mut one, other) = UnixStream::pair().unwrap();
            one.set_read_timeout(Some(Duration::from_millis(50)))
                .unwrap();
            while !reported.is_open() {
                let _ = one.read(&mut [0]);
            }
            drop(other);
        });
        for (report, call) in [
            (sleeps, "clock_nanosleep"),
            (waits, "futex"),
            (reads, "recvfrom"),
        ] {
            let expected = HogCause::Blocked {
                system_call: Some(call.into()),
            };
            assert_eq!(report.cause, expected, "{report:?}");
            assert!(report.cpu_time < report.running_for, "{report:?}");
        }
    }
}

#[test]
fn a_fiber_that_lets_others_run_is_not_reported() {
    let _watch = watch();
    let reports = Log::new();
    let log = reports.clone();
    let runtime = Runtime::builder()
        .workers(1)
        .report_hogs_after(Duration::from_millis(100))
        .on_hog(move |report| log.push(report.clone()))
        .build()
        .unwrap();
    // Longer in all than the limit, but not at a time.
    runtime.run(|| {
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(10));
            sinew::yield_now();
        }
    });
    drop(runtime);
    assert_eq!(reports.len(), 0);
}

#[test]
fn a_turn_that_computes_is_measured_while_it_lasts() {
    let _watch = watch();
    for workers in [1, 2] {
        let runtime = Runtime::builder()
            .workers(workers)
            .on_hog(|_| ())
            .build()
            .unwrap();
        let over = Gate::new();
        let theirs = over.clone();
        let hog = runtime.spawn(move || {
            while !theirs.is_open() {
                std::hint::spin_loop();
            }
        });
        wait_until(|| {
            let workers = runtime.stats().workers;
            workers.iter().any(|worker| worker.turns_over_10ms == 1)
        });
        let stats = runtime.stats();
        let mut hogs = stats
            .workers
            .iter()
            .filter(|worker| worker.turns_over_10ms > 0);
        let worker = hogs.next().unwrap();
        assert!(
            worker.longest_turn >= Duration::from_millis(10),
            "{stats:?}"
        );
        assert_eq!(worker.turns_over_1ms, 1, "{stats:?}");
        assert!(worker.blocked < worker.longest_turn, "{stats:?}");
        assert!(hogs.next().is_none(), "{stats:?}");
        over.open();
        hog.join().unwrap();
    }
}

#[test]
fn time_blocked_is_measured_while_it_lasts() {
    let _watch = watch();
    for workers in [1, 2] {
        let runtime = Runtime::builder()
            .workers(workers)
            .on_hog(|_| ())
            .build()
            .unwrap();
        let (go, wait) = mpsc::channel::<()>();
        let blocks = Builder::new()
            .spawn_on(&runtime.handle(), move || wait.recv())
            .unwrap();
        let longest = Duration::from_millis(100);
        wait_until(|| {
            let workers = runtime.stats().workers;
            workers.iter().any(|worker| worker.blocked >= longest)
        });
        let stats = runtime.stats();
        let worker = stats.workers.iter().max_by_key(|worker| worker.blocked);
        let worker = worker.unwrap();
        assert_eq!(worker.turns_over_100ms, 1, "{stats:?}");
        assert!(worker.longest_turn >= worker.blocked, "{stats:?}");
        go.send(()).unwrap();
        blocks.join().unwrap().unwrap();
    }
}
