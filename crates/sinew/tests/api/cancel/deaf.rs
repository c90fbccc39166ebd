//! A fiber that goes on and on after it was cancelled: told every time, in nobody's
//! way, and reported.

use crate::harness::{Gate, runtime, watch};
use sinew::{Builder, Cancelled};
use std::process::{Command, Stdio};

const CASE: &str = "SINEW_TEST_DEAF";

/// The child process: this same binary with a variable set.
#[test]
fn child() {
    let Ok(times) = std::env::var(CASE) else {
        return;
    };
    let times: u32 = times.parse().unwrap();
    let _watch = watch();
    runtime(1).run(|| {
        let deaf = Builder::new().name("deaf one").spawn(move || {
            sinew::current().cancel();
            for _ in 0..times {
                assert_eq!(sinew::check_cancelled(), Err(Cancelled));
            }
        });
        deaf.unwrap().join().unwrap();
    });
}

/// What a fiber makes us say that is told so often.
fn said_of(times: u32) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "cancel::deaf::child", "--nocapture"])
        .env(CASE, times.to_string())
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
    assert_eq!(said_of(999), "");
    let said = said_of(5000);
    for word in ["deaf one", "1000 times", "deaf.rs"] {
        assert!(said.contains(word), "no '{word}' in: {said}");
    }
    assert_eq!(said.matches("sinew:").count(), 1, "{said}");
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
