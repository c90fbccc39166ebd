//! What a runtime says on standard error: of panics, and of fibers that wait for each other.
//! Each case is a child process: this same binary with a variable set.

use crate::harness::child::this_program;
use crate::harness::watch;
use sinew::sync::{Mutex, Semaphore};
use sinew::{Builder, FiberInfo, Runtime, RuntimeBuilder, WaitReason};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const CASE: &str = "SINEW_TEST_REPORT";

#[test]
fn child() {
    let Ok(case) = std::env::var(CASE) else {
        return;
    };
    match &*case {
        "panic" => {
            std::panic::set_hook(Box::new(|info| {
                eprintln!("found: {}", info.location().unwrap())
            }));
            panic_on_fiber(one_worker());
            // A plain thread has no fiber to name.
            let thread = std::thread::spawn(|| panic!("on a thread"));
            assert!(thread.join().is_err());
        }
        "panic twice" => {
            panic_on_fiber(one_worker());
            panic_on_fiber(one_worker());
        }
        "panic unreported" => {
            drop(one_worker().build().unwrap()); // installs the hook
            panic_on_fiber(one_worker().report_panics(false));
        }
        "first runtime while unwinding" => {
            struct Late;
            impl Drop for Late {
                fn drop(&mut self) {
                    panic_on_fiber(one_worker());
                }
            }
            let unwound = std::panic::catch_unwind(|| {
                let _late = Late;
                panic!("on a thread");
            });
            assert!(unwound.is_err());
            panic_on_fiber(one_worker());
        }
        "stalled run" => stalling(1).run(deadlock),
        "stalled run of two" => stalling(2).run(deadlock),
        "stalled late" => stalling(1).run(|| {
            // Longer than the limit, so that it is not the first look that finds it.
            sinew::sleep(Duration::from_millis(400)).unwrap();
            deadlock();
        }),
        "stalled after a pool's job" => stalling(1).run(|| {
            // Longer than the monitor needs to fall asleep, which it does without a limit
            // while the pool is busy. When the job ends nothing else happens.
            let job = || std::thread::sleep(Duration::from_millis(400));
            drop(sinew::spawn_blocking(job));
            deadlock();
        }),
        "stalled drop" => {
            let runtime = stalling(2);
            drop(runtime.spawn(deadlock));
            drop(runtime);
        }
        "stalled before the drop" => {
            let runtime = stalling(1);
            drop(runtime.spawn(deadlock));
            // All sleep, the monitor too; nobody waits yet.
            std::thread::sleep(Duration::from_millis(400));
            drop(runtime);
        }
        "stalled shutdown" => {
            let runtime = stalling(1);
            drop(runtime.spawn(deadlock));
            let locks = |fiber: &FiberInfo| fiber.waits_for == WaitReason::Mutex;
            while runtime.fibers().filter(locks).count() < 2 {
                std::thread::yield_now();
            }
            runtime.shutdown(); // a lock is no cancellation point
        }
        "stalled scope" => sinew::scope(|s| {
            s.spawn(deadlock);
        }),
        "busy with timers" => idle(|| sinew::sleep(Duration::from_millis(700)).unwrap()),
        "busy with limits" => idle(|| {
            let nothing = Semaphore::new(0);
            let limit = Duration::from_millis(700);
            assert!(sinew::timeout(limit, || nothing.acquire().is_err()).is_err());
        }),
        "busy with a pool" => idle(|| {
            sinew::blocking(|| std::thread::sleep(Duration::from_millis(700)));
        }),
        "busy with a socket" => idle(|| {
            let listener = sinew::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let later = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(700));
                std::net::TcpStream::connect(address).unwrap()
            });
            listener.accept().unwrap();
            drop(later.join());
        }),
        "busy with a signal" => idle(|| {
            let me = std::process::id().to_string();
            let later = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(700));
                Command::new("kill").args(["-USR1", &me]).status().unwrap()
            });
            let mut signals = sinew::signal::signal(sinew::signal::SignalKind::user_defined1());
            signals.as_mut().unwrap().recv().unwrap();
            drop(later.join());
        }),
        "busy with another runtime's fiber" => idle(|| {
            let other = one_worker().build().unwrap();
            let sleeper = other.spawn(|| sinew::sleep(Duration::from_millis(700)));
            sleeper.join().unwrap().unwrap();
        }),
        "busy with another runtime's end" => idle(|| {
            let other = one_worker().build().unwrap();
            drop(other.spawn(|| sinew::sleep(Duration::from_millis(700))));
            drop(other);
        }),
        "idle but not awaited" => {
            let runtime = stalling(1);
            let parked = runtime.spawn(sinew::park);
            std::thread::sleep(Duration::from_millis(700));
            parked.fiber().unpark();
        }
        other => panic!("no such case: {other}"),
    }
}

fn one_worker() -> RuntimeBuilder {
    Runtime::builder().workers(1)
}

fn panic_on_fiber(builder: RuntimeBuilder) {
    let runtime = builder.build().unwrap();
    let named = Builder::new().name("worker-7");
    let panics = named.spawn_on(&runtime.handle(), || panic!("oh dear"));
    assert!(panics.unwrap().join().map(|()| ()).unwrap_err().is_panic());
}

fn stalling(workers: usize) -> Runtime {
    let builder = Runtime::builder().workers(workers);
    let builder = builder.report_stalls_after(Duration::from_millis(100));
    builder.build().unwrap()
}

/// Runs what is idle for some time, and not stalled.
fn idle(f: impl FnOnce() + Send) {
    stalling(2).run(f);
}

/// Two fibers, two locks; does not return.
fn deadlock() {
    let locks = Arc::new([Mutex::new(()), Mutex::new(())]);
    let [one, other] = [(0, 1), (1, 0)].map(|(first, second)| {
        let locks = locks.clone();
        let name = format!("locks {first} first");
        let fiber = Builder::new().name(name).spawn(move || {
            let _first = locks[first].lock();
            sinew::sleep(Duration::from_millis(20)).unwrap();
            let _second = locks[second].lock();
        });
        fiber.unwrap()
    });
    one.join().unwrap();
    other.join().unwrap();
}

fn command(case: &str) -> Command {
    let mut command = this_program();
    command
        .args(["--exact", "reports::child", "--nocapture"])
        .env(CASE, case)
        .env_remove("SINEW_REPORT_PANICS")
        .env_remove("RUST_BACKTRACE")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// What a child says that ends by itself.
fn said_by(case: &str, command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{case}: {said}");
    said
}

#[test]
fn a_line_with_name_and_place_goes_before_what_the_found_hook_says() {
    let _watch = watch();
    let said = said_by("panic", &mut command("panic"));
    let lines: Vec<_> = said
        .lines()
        .filter(|line| !line.contains("worker 0 for"))
        .collect();
    assert_eq!(lines.len(), 3, "{said}");
    for word in [
        "sinew: fiber 'worker-7' (id ",
        "spawned at ",
        "reports.rs:",
        "panics",
    ] {
        assert!(lines[0].contains(word), "no '{word}' in: {said}");
    }
    assert!(lines[1].starts_with("found: "), "{said}");
    assert!(lines[2].starts_with("found: "), "{said}");
}

#[test]
fn the_hook_is_installed_once() {
    let _watch = watch();
    let said = said_by("panic twice", &mut command("panic twice"));
    assert_eq!(said.matches("'worker-7'").count(), 2, "{said}");
    assert_eq!(said.matches("oh dear").count(), 2, "{said}");
}

#[test]
fn a_setting_or_a_variable_turns_the_line_off() {
    let _watch = watch();
    let said = said_by("panic unreported", &mut command("panic unreported"));
    assert!(!said.contains("worker-7"), "{said}");
    assert!(said.contains("oh dear"), "{said}");
    let said = said_by("panic", command("panic").env("SINEW_REPORT_PANICS", "0"));
    assert!(!said.contains("worker-7"), "{said}");
    let refused = command("panic")
        .env("SINEW_REPORT_PANICS", "2")
        .output()
        .unwrap();
    assert!(!refused.status.success());
}

/// std lets nobody change the hook then: the runtime is made all the same.
#[test]
fn a_runtime_may_be_the_first_while_a_thread_unwinds() {
    let _watch = watch();
    let case = "first runtime while unwinding";
    let said = said_by(case, &mut command(case));
    assert_eq!(said.matches("oh dear").count(), 2, "{said}");
    assert_eq!(said.matches("'worker-7'").count(), 1, "{said}");
}

/// A child that is ended with this.
struct Hanging(Child);

impl Drop for Hanging {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Reads what a child says that hangs, until it has listed its two fibers.
fn assert_lists_deadlock(case: &str) {
    let mut child = Hanging(command(case).spawn().unwrap());
    let said = BufReader::new(child.0.stderr.take().unwrap());
    let mut listed = Vec::new();
    let mut headed = false;
    for line in said.lines() {
        let line = line.unwrap();
        headed = headed || line.contains("nothing has happened");
        if headed && line.contains("'locks") {
            listed.push(line);
        }
        if listed.len() == 2 {
            break;
        }
    }
    listed.sort();
    for (line, name) in listed.iter().zip(["'locks 0 first'", "'locks 1 first'"]) {
        for word in [name, "waits in Mutex at ", "reports.rs:", "spawned at "] {
            assert!(line.contains(word), "{case}: no '{word}' in: {line}");
        }
    }
    assert_eq!(listed.len(), 2, "{case}");
}

#[test]
fn fibers_that_wait_for_each_other_are_listed_for_who_waits_for_them() {
    let _watch = watch();
    for case in [
        "stalled run",
        "stalled run of two",
        "stalled late",
        "stalled after a pool's job",
        "stalled drop",
        "stalled before the drop",
        "stalled shutdown",
    ] {
        assert_lists_deadlock(case);
    }
}

/// On the global runtime, after the usual 5 s.
#[test]
fn fibers_of_a_plain_thread_s_scope_are_listed() {
    let _watch = watch();
    assert_lists_deadlock("stalled scope");
}

#[test]
fn fibers_that_may_still_be_woken_are_not_listed() {
    let _watch = watch();
    for case in [
        "busy with timers",
        "busy with limits",
        "busy with a pool",
        "busy with a socket",
        "busy with a signal",
        "busy with another runtime's fiber",
        "busy with another runtime's end",
        "idle but not awaited",
    ] {
        let said = said_by(case, &mut command(case));
        assert!(!said.contains("nothing has happened"), "{case}: {said}");
    }
}
