//! Cases in child processes, which are this same binary with a variable set.

use super::{echoes, kernel, leaks, limits, many, soak};
use crate::fs::owner;
use crate::harness::child::this_program;
use crate::harness::watch;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const CASE: &str = "SINEW_IO_TEST_CASE";

/// The entry of the child processes; nothing without the variable.
#[test]
fn child() {
    let Ok(case) = std::env::var(CASE) else {
        return;
    };
    let _watch = watch();
    match case.as_str() {
        "echo server" => echoes::server(),
        "echo clients" => echoes::clients(),
        "storm" => echoes::storm(),
        "slow and fast" => echoes::slow_and_fast(),
        "resets" => echoes::resets(),
        "few descriptors" => limits::server_with_few_descriptors(),
        "refused, auto" => kernel::refused_auto(),
        "refused, uring" => kernel::refused_uring(),
        "settings" => kernel::settings(),
        "leaks" => leaks::each_way_to_end(),
        "moved" => leaks::moved_about(),
        "timers" => many::timers_with_io(),
        "full ring" => many::more_reads_than_a_ring_holds(),
        "soak" => soak::soak(),
        "another root" => owner::change_root(),
        other => panic!("no such case: {other}"),
    }
}

/// A child process that runs.
pub struct Running {
    case: String,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    stderr: JoinHandle<String>,
}

/// One that has ended.
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// Starts a case with these variables.
pub fn start(case: &str, variables: &[(&str, &str)]) -> Running {
    let mut command = this_program();
    command
        .args(["--exact", "reliability::child::child", "--nocapture"])
        .arg("--test-threads=1")
        .env(CASE, case)
        .env_remove("SINEW_IO")
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    Running {
        case: case.to_owned(),
        stdin: child.stdin.take(),
        stdout: BufReader::new(child.stdout.take().unwrap()),
        // Drained by a thread: a full pipe would stop the child.
        stderr: std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stderr.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        }),
        child,
    }
}

impl Running {
    /// Waits for a line that begins with `word`; what follows it.
    pub fn says(&mut self, word: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let count = self.stdout.read_line(&mut line).unwrap();
            assert!(count > 0, "'{}' ended without saying '{word}'", self.case);
            // After what libtest has begun to say on the same line.
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Tells it to end, by the end of its input, and waits for that.
    pub fn end(mut self) -> Ended {
        drop(self.stdin.take());
        let mut stdout = self.stdout;
        let said = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stdout.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            // A hang is found by the child's own watch; this is for one that is
            // beyond that.
            if begun.elapsed() > Duration::from_secs(300) {
                let _ = self.child.kill();
                let _ = self.child.wait();
                panic!(
                    "'{}' hangs; it said:\n{}",
                    self.case,
                    self.stderr.join().unwrap()
                );
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        Ended {
            status,
            stdout: said.join().unwrap(),
            stderr: self.stderr.join().unwrap(),
        }
    }
}

impl Ended {
    #[track_caller]
    pub fn succeeded(&self) -> &Self {
        assert!(
            self.status.success(),
            "{}\n{}\n{}",
            self.status,
            self.stdout,
            self.stderr
        );
        self
    }
}

/// Runs a case on each driver.
pub fn on_each_driver(case: &str) {
    for driver in driver_names() {
        let _watch = watch();
        let begun = Instant::now();
        let ended = start(case, &[("SINEW_IO", driver)]).end();
        eprintln!("{driver}: {:?}\n{}", begun.elapsed(), ended.stdout);
        ended.succeeded();
    }
}

/// The drivers that this system has, as the variable calls them.
pub fn driver_names() -> Vec<&'static str> {
    crate::world::drivers()
        .into_iter()
        .map(|driver| match driver {
            sinew::IoDriver::Epoll => "epoll",
            _ => "uring",
        })
        .collect()
}

/// Waits, on a thread, until the parent says that it is over.
pub fn until_told_to_end() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
