//! A fiber that goes on and on after it was cancelled: told every time, in nobody's
//! way, and reported.

use crate::harness::child::this_program;
use crate::harness::{Gate, runtime, watch};
use sinew::{Builder, Cancelled};
use std::process::Stdio;
use std::time::Duration;

const CASE: &str = "SINEW_TEST_DEAF";

/// The child process: this same binary with a variable set.
#[test]
fn child() {
    let Ok(case) = std::env::var(CASE) else {
        return;
    };
    let (kind, times) = case.split_once(' ').unwrap();
    let (kind, times): (String, u32) = (kind.to_owned(), times.parse().unwrap());
    let _watch = watch();
    runtime(1).run(|| {
        let deaf = Builder::new().name("deaf one").spawn(move || match &*kind {
            "cancelled" => {
                sinew::current().cancel();
                for _ in 0..times {
                    assert_eq!(sinew::check_cancelled(), Err(Cancelled));
                }
            }
            "limits" => {
                for _ in 0..times {
                    let late = sinew::timeout(Duration::ZERO, sinew::check_cancelled);
                    assert_eq!(late.unwrap_err().into_inner(), Err(Cancelled));
                }
            }
            "limits-of-the-cancelled" => {
                sinew::current().cancel();
                for _ in 0..times {
                    let told = sinew::timeout(Duration::ZERO, sinew::check_cancelled);
                    assert_eq!(told.unwrap(), Err(Cancelled));
                }
            }
            _ => panic!("no such case"),
        });
        deaf.unwrap().join().unwrap();
    });
}

/// What a fiber makes us say that is told so often.
fn said_of(case: &str) -> String {
    let output = this_program()
        .args(["--exact", "cancel::deaf::child", "--nocapture"])
        .env(CASE, case)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("1 passed"), "{said}");
    // A slow machine may make us say other things, too.
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines().filter(|line| line.contains("told")).collect()
}

#[test]
fn a_fiber_that_is_told_a_thousand_times_is_reported_once() {
    let _watch = watch();
    assert_eq!(said_of("cancelled 999"), "");
    let said = said_of("cancelled 1050");
    for word in ["deaf one", "1000 times", "deaf.rs"] {
        assert!(said.contains(word), "no '{word}' in: {said}");
    }
    assert_eq!(said.matches("sinew:").count(), 1, "{said}");
}

/// Each is over when its limit is; but who is cancelled from outside stays so.
#[test]
fn a_fiber_that_meets_a_thousand_limits_is_not_reported() {
    let _watch = watch();
    assert_eq!(said_of("limits 3000"), "");
    let said = said_of("limits-of-the-cancelled 1010");
    assert!(said.contains("1000 times"), "{said}");
}

#[test]
fn every_answer_lets_others_run() {
    let _watch = watch();
    // One worker: both go forward only if each answer yields.
    runtime(1).run(|| {
        let stop = Gate::new();
        let theirs = stop.clone();
        let deaf = sinew::spawn(move || {
            sinew::current().cancel();
            let mut told = 0;
            while !theirs.is_open() {
                assert_eq!(sinew::check_cancelled(), Err(Cancelled));
                told += 1;
            }
            told
        });
        let counter = sinew::spawn(|| (0..20).for_each(|_| sinew::yield_now()));
        counter.join().unwrap();
        stop.open();
        assert!(deaf.join().unwrap() >= 19);
    });
}

/// How a fiber may be told, again and again.
type Point = fn() -> bool;

const POINTS: [(&str, Point); 6] = [
    ("check_cancelled", || sinew::check_cancelled().is_err()),
    ("checkpoint", || sinew::checkpoint().is_err()),
    ("sleep", || sinew::sleep(Duration::from_secs(3600)).is_err()),
    ("recv", || {
        let (_tx, rx) = sinew::channel::bounded::<()>(1);
        rx.recv().is_err()
    }),
    ("block_on_or_cancelled", || {
        sinew::block_on_or_cancelled(std::future::pending::<()>()).is_err()
    }),
    ("accept", || {
        thread_local!(static LISTENER: sinew::net::TcpListener =
            sinew::net::TcpListener::bind("127.0.0.1:0").unwrap());
        LISTENER.with(|listener| listener.accept().is_err())
    }),
];

/// Told 1010 times, a fiber has slept for 0.1 + 0.2 + … + 6.4 + 4 × 10 ms at least: that is
/// 0.05 s of the runtime's clock, for which it used no CPU.
#[test]
fn a_deaf_fiber_is_slowed_down_whatever_the_point() {
    let _watch = watch();
    for workers in [1, 2] {
        for (name, point) in POINTS {
            runtime(workers).run(move || {
                sinew::current().cancel();
                let slept = |times: u32| {
                    let start = std::time::Instant::now();
                    for _ in 0..times {
                        assert!(point(), "{name}");
                    }
                    start.elapsed()
                };
                slept(999);
                let slept = slept(11);
                assert!(slept >= Duration::from_millis(50), "{name}: {slept:?}");
            });
        }
    }
}

/// While it is slowed down it says so; and what is left for it meanwhile is not lost.
#[test]
fn a_deaf_fiber_loses_no_token_while_it_sleeps() {
    let _watch = watch();
    for workers in [1, 2] {
        runtime(workers).run(|| {
            let stop = Gate::new();
            let theirs = stop.clone();
            let deaf = sinew::spawn(move || {
                sinew::current().cancel();
                sinew::park(); // takes the token of the request itself
                while !theirs.is_open() {
                    assert_eq!(sinew::check_cancelled(), Err(Cancelled));
                }
                sinew::park(); // hangs if the token was lost
            });
            let fiber = deaf.fiber();
            crate::harness::wait_until(|| fiber.wait_reason() == sinew::WaitReason::Deaf);
            fiber.unpark();
            stop.open();
            deaf.join().unwrap();
        });
    }
}

/// A limit that is over begins the count anew: 5 x 500 are no thousand in a row.
#[test]
fn limits_that_are_over_begin_the_count_anew() {
    let _watch = watch();
    runtime(1).run(|| {
        let fiber = sinew::current();
        for _ in 0..5 {
            let over = sinew::timeout(Duration::ZERO, || {
                for _ in 0..500 {
                    assert_eq!(sinew::check_cancelled(), Err(Cancelled));
                }
            });
            over.unwrap_err();
        }
        // It never waited but by yielding, which leaves no place.
        assert_eq!(fiber.waits_at(), None);
    });
}
