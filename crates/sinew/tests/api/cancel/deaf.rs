//! A fiber that goes on and on after it was cancelled: told every time, in nobody's
//! way, and reported.

use crate::harness::{Gate, runtime, watch};
use sinew::{Builder, Cancelled};
use std::process::{Command, Stdio};
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
    let output = Command::new(std::env::current_exe().unwrap())
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
    let said = said_of("cancelled 5000");
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
    let said = said_of("limits-of-the-cancelled 3000");
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
