//! Inside of `no_suspend` a wait is a panic, never an abort.

use super::{run_case, watch};
use crate::harness::wait_until;
use sinew::{Runtime, no_suspend};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

pub fn child(case: &str) -> bool {
    match case {
        "no_suspend run" => run_in_no_suspend(),
        "no_suspend drop" => drop_in_no_suspend(),
        "no_suspend unwind" => unwind_in_no_suspend(),
        "no_suspend shutdown" => shutdown_in_no_suspend(),
        "no_suspend command" => command_in_no_suspend(),
        _ => return false,
    }
    true
}

fn runtime() -> Runtime {
    Runtime::builder()
        .workers(1)
        .name("theirs")
        .build()
        .unwrap()
}

/// How many threads of this process are those of the runtime "theirs".
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok())
        .filter(|name| name.starts_with("theirs"))
        .count()
}

/// `f` panics because it would wait.
fn refused<T>(f: impl FnOnce() -> T) {
    let caught = catch_unwind(AssertUnwindSafe(f));
    let payload = caught.err().expect("a wait inside of `no_suspend` panics");
    let text = payload.downcast_ref::<&str>().expect("a message");
    assert!(text.contains("inside `no_suspend`"), "{text}");
}

fn run_in_no_suspend() {
    super::runtime().run(|| {
        refused(|| no_suspend(|| sinew::run(|| unreachable!("it was refused") as ())));
        let theirs = runtime();
        refused(|| no_suspend(|| theirs.run(|| unreachable!("it was refused") as ())));
        refused(|| no_suspend(|| sinew::scope(|_| unreachable!("it was refused") as ())));
        refused(|| no_suspend(|| sinew::blocking(|| unreachable!("it was refused") as ())));
        assert_eq!(theirs.run(|| 1), 1);
    });
}

/// The runtime ends, and waits for its fibers, on a thread of its own.
fn drop_in_no_suspend() {
    super::runtime().run(|| {
        let theirs = runtime();
        let (tell, hear) = sinew::channel::bounded(1);
        let fiber = theirs.spawn(move || hear.recv());
        no_suspend(|| drop(theirs));
        assert!(!fiber.is_finished());
        tell.send(5).unwrap();
        assert_eq!(fiber.join().unwrap(), Ok(5));
        wait_until(|| threads() == 0);
    });
}

fn unwind_in_no_suspend() {
    super::runtime().run(|| {
        let caught = catch_unwind(|| {
            no_suspend(|| {
                let theirs = runtime();
                theirs.spawn(|| ());
                crate::harness::panic_expected(4);
            })
        });
        assert!(crate::harness::is_expected(&*caught.unwrap_err(), 4));
        wait_until(|| threads() == 0);
    });
}

fn shutdown_in_no_suspend() {
    super::runtime().run(|| {
        for _ in 0..2 {
            let theirs = runtime();
            refused(|| no_suspend(|| theirs.shutdown()));
            wait_until(|| threads() == 0);
        }
    });
}

/// A child is not even started if it could not be waited for.
fn command_in_no_suspend() {
    super::runtime().run(|| {
        let file = std::env::temp_dir().join(format!("sinew-no-suspend-{}", std::process::id()));
        let touch = || {
            let mut touch = sinew::process::Command::new("touch");
            touch.arg(&file);
            touch
        };
        refused(|| no_suspend(|| touch().status()));
        refused(|| no_suspend(|| touch().output()));
        // One that is started later has ended later.
        assert!(Command::new("true").status().unwrap().success());
        assert!(!file.exists());
        // The same one is as it was: its streams are those of this process.
        let mut same = touch();
        refused(|| no_suspend(|| same.output()));
        let mut child = same.spawn().unwrap();
        assert!(child.stdin.is_none() && child.stdout.is_none() && child.stderr.is_none());
        assert!(child.wait().unwrap().success());
        std::fs::remove_file(&file).unwrap();
    });
}

#[test]
fn what_has_to_wait_is_refused_inside_of_no_suspend_before_it_begins() {
    let _watch = watch();
    run_case("no_suspend run", &[]).succeeded();
    run_case("no_suspend command", &[]).succeeded();
}

#[test]
fn a_runtime_dropped_inside_of_no_suspend_ends_on_a_thread_of_its_own() {
    let _watch = watch();
    run_case("no_suspend drop", &[]).succeeded();
    run_case("no_suspend shutdown", &[]).succeeded();
}

#[test]
fn a_panic_inside_of_no_suspend_past_a_runtime_is_no_abort() {
    let _watch = watch();
    run_case("no_suspend unwind", &[]).succeeded();
}
