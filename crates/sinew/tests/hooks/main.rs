//! What runs at a switch: the process's pair of hooks, and spans of `tracing`.
//!
//! Hooks and a global subscriber are set once in a process, before its first runtime. So each
//! test runs in a child of its own, which is this same binary.

mod coroutines;
#[path = "../harness/mod.rs"]
mod harness;
mod pair;
mod spans;

use harness::child::this_program;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

const CHILD: &str = "SINEW_TEST_CHILD";
const SIGABRT: i32 = 6;

/// Runs `body` in a process of its own; the output of that if this is the parent. `test` is
/// the full name of the calling test.
#[track_caller]
fn child(test: &str, body: impl FnOnce()) -> Option<Output> {
    if std::env::var(CHILD).is_ok_and(|child| child == test) {
        let _watch = harness::watch_before_any_runtime();
        body();
        return None;
    }
    let child = this_program()
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, test)
        .env_remove("RUST_BACKTRACE")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    // It may have been aborted in the middle of the test, but it must have begun one.
    assert!(text.contains("running 1 test"), "no test is named {test}");
    Some(output)
}

/// The same for a body that must succeed.
#[track_caller]
fn alone(test: &str, body: impl FnOnce()) {
    if let Some(output) = child(test, body) {
        assert!(
            output.status.success(),
            "{test}: {}\n{}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
    }
}

/// The same for a body that must abort the process, and say these words.
#[track_caller]
fn aborts(test: &str, words: &[&str], body: impl FnOnce()) {
    use std::os::unix::process::ExitStatusExt;
    if let Some(output) = child(test, body) {
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(SIGABRT), "{said}");
        for word in words {
            assert!(said.contains(word), "{test}: no '{word}' in:\n{said}");
        }
    }
}

/// Waits on a plain thread until `condition` holds; the watch ends it otherwise.
fn wait_on_thread(mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        std::thread::sleep(Duration::from_millis(1));
        assert!(begun.elapsed() < Duration::from_secs(110), "it hangs");
    }
}
