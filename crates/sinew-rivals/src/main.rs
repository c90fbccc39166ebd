//! The workloads of `sinew bench` on other runtimes.
//!
//! `rivals RIVAL NAME --workers N --scale S` runs one workload once and prints
//! its figures; the protocol, the sizes and the shared halves of the workloads
//! are in `child.rs`, which belongs to `sinew-cli`. Each rival is set up as its
//! own documentation advises for speed. This is a workspace of its own, so that
//! nobody who builds or tests Sinew has to build its rivals.

// crossbeam's `select!` takes several steps for each arm, and one has 32.
#![recursion_limit = "256"]

mod on_crossbeam;
mod on_may;
mod on_parking_lot;
mod on_tokio;
mod raw;
mod raw_epoll;
mod raw_uring;

#[path = "../../sinew-cli/src/bench/child.rs"]
#[allow(dead_code, reason = "sinew-cli uses the rest")]
mod child;

#[path = "../../sinew-cli/src/bench/waits.rs"]
#[allow(dead_code, reason = "sinew-cli uses the rest")]
mod waits;

#[path = "../../sinew-cli/src/bench/serve.rs"]
#[allow(dead_code, reason = "sinew-cli uses the rest")]
mod serve;

use std::process::ExitCode;

/// Why nothing was measured.
pub enum Failure {
    /// This rival has no such workload.
    Unknown,
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let rival = args.next().unwrap_or_default();
    let job = match child::Job::parse(args) {
        Ok(job) => job,
        Err(problem) => {
            eprintln!("rivals: {problem}");
            return ExitCode::from(2);
        }
    };
    let done = match rival.as_str() {
        "tokio-ct" => on_tokio::run(&job, on_tokio::Flavour::CurrentThread),
        "tokio-mt" => on_tokio::run(&job, on_tokio::Flavour::MultiThread),
        "may" => on_may::run(&job),
        "raw" => raw::run(&job),
        "raw-epoll" => raw_epoll::run(&job),
        "raw-uring" => raw_uring::run(&job),
        "crossbeam" => on_crossbeam::run(&job),
        "parking_lot" => on_parking_lot::run(&job),
        _ => {
            eprintln!(
                "rivals: unknown rival `{rival}`; there are tokio-ct, tokio-mt, may, raw, \
                 raw-epoll, raw-uring, crossbeam, parking_lot"
            );
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Unknown) => {
            eprintln!("rivals: {rival} has no workload `{}`", job.name);
            ExitCode::from(3)
        }
    }
}
