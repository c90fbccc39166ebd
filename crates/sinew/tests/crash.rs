//! What ends a process, and what must not: each case in a child process, which
//! is this same binary with a variable set.

// `map(|()| ())` gives a body that only panics the type `()`; the others are
// what the tests are about.
#![allow(clippy::map_identity, clippy::type_complexity)]

#[path = "crash/descriptors.rs"]
mod descriptors;
#[path = "crash/forks.rs"]
mod forks;
#[path = "harness/mod.rs"]
mod harness;
#[path = "crash/messages.rs"]
mod messages;
#[path = "crash/no_suspend.rs"]
mod no_suspend;
#[path = "crash/signals.rs"]
mod signals;
#[path = "crash/stacks.rs"]
mod stacks;

#[path = "crash/coroutines.rs"]
mod coroutines;

use harness::child::this_program;
use harness::{Gate, OnDrop, wait_until, watch};
use sinew::{Builder, Runtime, WaitReason};
use std::io::Write as _;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::panic::catch_unwind;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const CASE: &str = "SINEW_TEST_CASE";
const SIGABRT: i32 = 6;
const SIGSEGV: i32 = 11;

/// The entry of the child processes; nothing without the variable.
#[test]
fn child() {
    let Ok(case) = std::env::var(CASE) else {
        return;
    };
    match case.as_str() {
        "overflow named" => overflow(Builder::new().name("deep diver").stack_size(64 << 10)),
        "overflow unnamed" => overflow(Builder::new().stack_size(256 << 10)),
        "overflow smallest" => overflow(Builder::new().name("tiny").stack_size(16 << 10)),
        "overflow later" => overflow_after_a_switch(),
        "overflow big frame" => overflow_by_one_frame(),
        "overflow thread" => overflow_of_a_thread(),
        "overflow unheard" => {
            fill_stderr();
            let _ = runtime().spawn(|| recurse(0)).join();
        }
        "segv fiber" => runtime().run(write_to_null),
        "segv thread" => {
            runtime().run(|| ());
            write_to_null();
        }
        "memory" => memory_goes_and_comes_back(),
        "command" => run_a_command(),
        "global" => println!("{:?}", sinew::spawn(|| 1).join()),
        "env" => print_settings(),
        "parked" => leave_parked_fibers(),
        "forget" => forget_a_runtime(),
        "exit" => runtime().run(|| std::process::exit(7)),
        "hook waits" => hook_that_waits(),
        "hook waits and others panic" => hook_that_waits_while_others_panic(),
        "panic in drop" => panic_in_a_drop_while_unwinding(),
        "hog" => hog(),
        "blocked hog" => blocked_hog(),
        "hog unheard" => hog_unheard(),
        "stopped" => be_stopped(),
        "leak" => leak(),
        other => {
            let known = [
                coroutines::child,
                stacks::child,
                no_suspend::child,
                descriptors::child,
                forks::child,
                signals::child,
                messages::child,
            ];
            let found = known.iter().any(|child| child(other));
            assert!(found, "no such case: {other}");
        }
    }
}

struct Ended {
    status: ExitStatus,
    stderr: String,
    stdout: String,
}

/// Runs a case in a child of its own, with these variables.
fn run_case(case: &str, variables: &[(&str, &str)]) -> Ended {
    let mut command = this_program();
    command
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(CASE, case)
        .env_remove("RUST_BACKTRACE")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    for name in [
        "SINEW_WORKERS",
        "SINEW_STACK_KB",
        "SINEW_BLOCKING_THREADS",
        "SINEW_IO",
    ] {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied());
    let mut child = command.spawn().unwrap();
    // Drained by threads: a full pipe would stop the child.
    fn drain(mut from: impl std::io::Read + Send + 'static) -> std::thread::JoinHandle<String> {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = from.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }
    let stdout = drain(child.stdout.take().unwrap());
    let stderr = drain(child.stderr.take().unwrap());
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > Duration::from_secs(60) {
            let _ = child.kill();
            let _ = child.wait();
            panic!(
                "the child '{case}' hangs; it said:\n{}",
                stderr.join().unwrap()
            );
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Ended {
        status,
        stderr: stderr.join().unwrap(),
        stdout: stdout.join().unwrap(),
    }
}

impl Ended {
    #[track_caller]
    fn says(&self, words: &[&str]) -> &Self {
        for word in words {
            let said = self.stderr.contains(word) || self.stdout.contains(word);
            assert!(said, "'{word}' is not in\n{}\n{}", self.stdout, self.stderr);
        }
        self
    }

    #[track_caller]
    fn died_by(&self, signal: i32) -> &Self {
        assert_eq!(
            self.status.signal(),
            Some(signal),
            "{}\n{}",
            self.status,
            self.stderr
        );
        self
    }

    #[track_caller]
    fn succeeded(&self) -> &Self {
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

fn runtime() -> Runtime {
    harness::runtime(1)
}

// ---------------------------------------------------------------- overflow

#[expect(unconditional_recursion, reason = "that is the test")]
fn recurse(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 16]);
    recurse(depth + 1) + std::hint::black_box(frame)[3]
}

fn overflow(builder: Builder) {
    let runtime = runtime();
    let go = Gate::new();
    let gate = go.clone();
    let fiber = builder.spawn_on(&runtime.handle(), move || {
        gate.pass();
        recurse(0)
    });
    let fiber = fiber.unwrap();
    eprintln!("id is {}.", fiber.fiber().id());
    go.open();
    let _ = fiber.join();
}

/// The id that `overflow` printed.
fn printed_id(ended: &Ended) -> &str {
    let (_, rest) = ended
        .stderr
        .split_once("id is ")
        .expect("the child prints an id");
    let line = rest.lines().next().unwrap();
    line.strip_suffix('.').expect("a whole line")
}

fn overflow_after_a_switch() {
    let runtime = harness::runtime(2);
    // Others are about, and the fiber has left its stack and come back.
    let others: Vec<_> = (0..10).map(|_| runtime.spawn(sinew::park)).collect();
    let builder = Builder::new().name("late").stack_size(128 << 10);
    let fiber = builder.spawn_on(&runtime.handle(), || {
        sinew::sleep(Duration::from_millis(1)).unwrap();
        sinew::yield_now();
        recurse(0)
    });
    let _ = fiber.unwrap().join();
    drop(others);
}

fn overflow_by_one_frame() {
    #[inline(never)]
    fn large() -> u8 {
        let frame = std::hint::black_box([1u8; 200 << 10]);
        frame[std::hint::black_box(77)]
    }
    let runtime = runtime();
    let builder = Builder::new().name("one frame").stack_size(64 << 10);
    let _ = builder.spawn_on(&runtime.handle(), large).unwrap().join();
}

fn overflow_of_a_thread() {
    runtime().run(|| ());
    let thread = std::thread::Builder::new()
        .name("plain".into())
        .stack_size(64 << 10);
    let _ = thread.spawn(|| recurse(0)).unwrap().join();
}

/// From now on standard error is a socket that nobody reads, and full.
fn fill_stderr() {
    let (unread, full) = UnixStream::pair().unwrap();
    full.set_nonblocking(true).unwrap();
    while (&full).write(&[b' '; 256]).is_ok() {}
    full.set_nonblocking(false).unwrap();
    // SAFETY: no pointers; the copy stays open.
    assert_eq!(unsafe { libc::dup2(full.as_raw_fd(), 2) }, 2);
    std::mem::forget(unread);
}

#[test]
fn an_overflow_aborts_also_if_nobody_reads_the_message() {
    let _watch = watch();
    run_case("overflow unheard", &[]).died_by(SIGABRT);
}

#[test]
fn an_overflow_names_fiber_id_place_size_and_remedy_and_aborts() {
    let _watch = watch();
    let ended = run_case("overflow named", &[]);
    ended.died_by(SIGABRT);
    let id = printed_id(&ended);
    ended.says(&[
        &format!("fiber 'deep diver' (id {id}), spawned at crates/sinew/tests/crash.rs:"),
        ", overflowed its stack of 64 KiB",
        "Builder::stack_size",
        "SINEW_STACK_KB",
    ]);
}

#[test]
fn an_overflow_of_a_fiber_without_a_name_tells_its_id_and_place() {
    let _watch = watch();
    let ended = run_case("overflow unnamed", &[]);
    ended.died_by(SIGABRT);
    let id = printed_id(&ended);
    ended.says(&[
        &format!("fiber {id}, spawned at crates/sinew/tests/crash.rs:"),
        ", overflowed its stack of 256 KiB",
    ]);
}

#[test]
fn an_overflow_of_the_smallest_stack_is_explained_too() {
    let _watch = watch();
    let ended = run_case("overflow smallest", &[]);
    ended.died_by(SIGABRT).says(&["'tiny'", "16 KiB"]);
}

#[test]
fn an_overflow_after_switches_among_others_names_the_right_fiber() {
    let _watch = watch();
    run_case("overflow later", &[])
        .died_by(SIGABRT)
        .says(&["'late'", "128 KiB"]);
}

#[test]
fn a_frame_larger_than_the_whole_stack_hits_the_guard() {
    let _watch = watch();
    run_case("overflow big frame", &[])
        .died_by(SIGABRT)
        .says(&["'one frame'", "64 KiB"]);
}

#[test]
fn the_overflow_of_a_plain_thread_is_told_by_std_as_before() {
    let _watch = watch();
    let ended = run_case("overflow thread", &[]);
    ended
        .died_by(SIGABRT)
        .says(&["thread 'plain'", "has overflowed its stack"]);
    assert!(!ended.stderr.contains("sinew: fiber"), "{}", ended.stderr);
}

fn write_to_null() {
    // SAFETY: not at all; the fault is the test. Page zero is never mapped.
    unsafe { std::hint::black_box(std::ptr::without_provenance_mut::<u8>(64)).write_volatile(1) };
}

#[test]
fn any_other_fault_kills_by_sigsegv_as_before() {
    let _watch = watch();
    for case in ["segv fiber", "segv thread"] {
        let ended = run_case(case, &[]);
        ended.died_by(SIGSEGV);
        assert!(!ended.stderr.contains("overflowed"), "{}", ended.stderr);
    }
}

#[repr(C)]
struct Limit {
    soft: u64,
    hard: u64,
}

unsafe extern "C" {
    fn setrlimit(resource: i32, limit: *const Limit) -> i32;
    fn getrlimit(resource: i32, limit: *mut Limit) -> i32;
}

/// No stack of 4 MiB fits, then it does: nothing of ours is freed in between. A fiber
/// has a stack all the while, which might come back: so others wait.
fn memory_goes_and_comes_back() {
    const RLIMIT_AS: i32 = 9;
    let runtime = runtime();
    // Until its monitor runs, which makes this fiber yield: the start of a thread needs
    // memory, too.
    runtime.run(|| {
        let other = sinew::spawn_local(|| ());
        while !other.is_finished() {
            sinew::safepoint();
        }
    });
    let occupant = runtime.spawn(sinew::park);
    wait_until(|| occupant.fiber().wait_reason() == WaitReason::Park);
    let mut limit = Limit { soft: 0, hard: 0 };
    // SAFETY: the pointers are to live limits.
    assert_eq!(unsafe { getrlimit(RLIMIT_AS, &mut limit) }, 0);
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    let tight = Limit {
        soft: pages * 4096 + (2 << 20),
        hard: limit.hard,
    };
    // SAFETY: as above.
    assert_eq!(unsafe { setrlimit(RLIMIT_AS, &tight) }, 0);
    let large = || Builder::new().stack_size(4 << 20);
    let starved = large().spawn_on(&runtime.handle(), || 42).unwrap();
    let error = loop {
        match large().spawn_on(&runtime.handle(), || ()) {
            Ok(_) => std::thread::yield_now(),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory);
    assert!(!starved.is_finished());
    // SAFETY: as above.
    assert_eq!(unsafe { setrlimit(RLIMIT_AS, &limit) }, 0);
    assert_eq!(starved.join().unwrap(), 42);
    while let Err(_still) = large().spawn_on(&runtime.handle(), || ()) {
        std::thread::yield_now();
    }
    occupant.fiber().unpark();
    occupant.join().unwrap();
}

#[test]
fn a_runtime_recovers_when_memory_comes_back() {
    run_case("memory", &[]).succeeded();
}

fn run_a_command() {
    runtime().run(|| {
        let status = sinew::blocking(|| Command::new("true").status());
        assert!(status.unwrap().success());
        // On the fiber itself too: it blocks the worker, but works.
        assert!(Command::new("true").status().unwrap().success());
        assert_eq!(sinew::spawn(|| 3).join().unwrap(), 3);
    });
}

#[test]
fn a_fork_with_exec_does_no_harm() {
    let _watch = watch();
    run_case("command", &[]).succeeded();
}

// ------------------------------------------------------------- environment

#[test]
fn the_global_runtime_panics_with_the_bad_variable_and_its_range() {
    let _watch = watch();
    for (name, value, range) in [
        ("SINEW_WORKERS", "0", "1 to 1024"),
        ("SINEW_WORKERS", "many", "1 to 1024"),
        ("SINEW_WORKERS", "-1", "1 to 1024"),
        ("SINEW_WORKERS", "", "1 to 1024"),
        ("SINEW_WORKERS", "99999999999999999999999", "1 to 1024"),
        ("SINEW_STACK_KB", "1", "16 to 1048576"),
        ("SINEW_STACK_KB", "2000000", "16 to 1048576"),
        ("SINEW_BLOCKING_THREADS", "0", "1 to 65536"),
        ("SINEW_IO", "carrier-pigeon", "auto"),
    ] {
        let ended = run_case("global", &[(name, value)]);
        assert!(!ended.status.success(), "{name}={value} was taken");
        ended.says(&[&format!("{name} is "), value, range]);
    }
}

fn print_settings() {
    let set = Runtime::builder().workers(1).build().unwrap();
    println!("set {}", set.stats().workers.len());
    let free = Runtime::new().unwrap();
    println!("free {}", free.stats().workers.len());
    // 16 MiB of frames fit only if the variable was seen.
    fn deep(kib: usize) -> u8 {
        let frame = std::hint::black_box([1u8; 1024]);
        if kib == 0 {
            frame[5]
        } else {
            deep(kib - 1).wrapping_add(frame[7])
        }
    }
    println!("global {}", sinew::spawn(|| deep(4 << 10)).join().is_ok());
}

#[test]
fn variables_are_defaults_that_the_program_overrides() {
    let _watch = watch();
    let variables = [
        ("SINEW_WORKERS", "3"),
        ("SINEW_STACK_KB", "32768"),
        ("SINEW_IO", "auto"),
    ];
    let ended = run_case("env", &variables);
    ended.succeeded().says(&["set 1", "free 3", "global true"]);
}

// ---------------------------------------------------------------- the exit

fn leave_parked_fibers() {
    for _ in 0..10 {
        drop(sinew::spawn(sinew::park));
    }
    let asleep = sinew::spawn(|| sinew::sleep(Duration::from_secs(3600)));
    wait_until(|| asleep.fiber().wait_reason() == WaitReason::Sleep);
    let begun = Gate::new();
    let theirs = begun.clone();
    drop(sinew::spawn_blocking(move || {
        theirs.open();
        std::thread::sleep(Duration::from_secs(3600));
    }));
    begun.pass();
    println!("main returns");
}

#[test]
fn the_process_ends_with_main_whatever_the_global_runtime_does() {
    let _watch = watch();
    run_case("parked", &[]).succeeded().says(&["main returns"]);
}

fn forget_a_runtime() {
    let runtime = harness::runtime(2);
    let spins = runtime.spawn(|| {
        loop {
            std::hint::spin_loop();
        }
    });
    drop::<sinew::JoinHandle<()>>(spins);
    drop(runtime.spawn(sinew::park));
    std::mem::forget(runtime);
    println!("main returns");
}

#[test]
fn the_process_ends_with_main_although_a_forgotten_runtime_is_busy() {
    let _watch = watch();
    run_case("forget", &[]).succeeded().says(&["main returns"]);
}

#[test]
fn a_fiber_may_exit_the_process() {
    let _watch = watch();
    assert_eq!(run_case("exit", &[]).status.code(), Some(7));
}

// ------------------------------------------------------------------ panics

fn hook_that_waits() {
    let calls = Arc::new(Mutex::new(0));
    let theirs = calls.clone();
    std::panic::set_hook(Box::new(move |_| {
        assert!(std::thread::panicking());
        sinew::yield_now();
        sinew::sleep(Duration::from_millis(1)).unwrap();
        assert_eq!(sinew::spawn(|| 2).join().unwrap(), 2);
        assert!(std::thread::panicking());
        *theirs.lock().unwrap_or_else(|e| e.into_inner()) += 1;
    }));
    for workers in [1, 2] {
        harness::runtime(workers).run(|| {
            let innocent = Arc::new(Mutex::new(0));
            let stop = Gate::new();
            let (theirs, gate) = (innocent.clone(), stop.clone());
            let witness = sinew::spawn(move || {
                while !gate.is_open() {
                    assert!(!std::thread::panicking());
                    *theirs.lock().unwrap() += 1;
                    sinew::yield_now();
                }
            });
            for _ in 0..5 {
                let error = sinew::spawn(|| panic!("seen by the hook")).join();
                assert!(error.map(|()| ()).unwrap_err().is_panic());
                assert!(!std::thread::panicking());
            }
            stop.open();
            witness.join().unwrap();
            assert!(*innocent.lock().unwrap() > 0);
        });
    }
    let _ = std::panic::take_hook();
    assert_eq!(*calls.lock().unwrap_or_else(|e| e.into_inner()), 10);
    println!("all is well");
}

#[test]
fn a_panic_hook_may_wait_and_nobody_else_notices() {
    let _watch = watch();
    run_case("hook waits", &[])
        .succeeded()
        .says(&["all is well"]);
}

fn hook_that_waits_while_others_panic() {
    std::panic::set_hook(Box::new(|_| {
        for _ in 0..5 {
            sinew::yield_now();
        }
    }));
    for workers in [1, 2] {
        harness::runtime(workers).run(|| {
            // All of them are in the hook at once, on the same worker.
            let fibers: Vec<_> = (0..10usize)
                .map(|i| {
                    sinew::spawn(move || {
                        let _waits = OnDrop(|| {
                            assert!(std::thread::panicking());
                            sinew::yield_now();
                            // A panic of its own, caught, hook and all.
                            let caught = catch_unwind(|| panic!("inner"));
                            assert!(caught.is_err());
                            sinew::yield_now();
                        });
                        std::panic::panic_any(i);
                    })
                })
                .collect();
            for (i, fiber) in fibers.into_iter().enumerate() {
                let error = fiber.join().map(|()| ()).unwrap_err();
                assert_eq!(error.into_panic().downcast_ref(), Some(&i));
            }
            assert!(!std::thread::panicking());
        });
    }
    let _ = std::panic::take_hook();
    println!("all is well");
}

#[test]
fn many_fibers_wait_in_the_panic_hook_at_once() {
    let _watch = watch();
    run_case("hook waits and others panic", &[])
        .succeeded()
        .says(&["all is well"]);
}

fn panic_in_a_drop_while_unwinding() {
    runtime().run(|| {
        let fiber = sinew::spawn(|| {
            let _first = OnDrop(|| {
                sinew::yield_now();
                panic!("the second");
            });
            panic!("the first");
        });
        let _ = fiber.join().map(|()| ());
    });
}

#[test]
fn a_panic_that_escapes_a_drop_during_unwinding_aborts_as_in_std() {
    let _watch = watch();
    run_case("panic in drop", &[])
        .died_by(SIGABRT)
        .says(&["the first", "the second"]);
}

// ------------------------------------------------------------- log lines

/// Both workers are blocked by what only a third fiber ends, and reports of that cannot be
/// written: a spare worker starts all the same.
fn hog_unheard() {
    fill_stderr();
    let runtime = Runtime::builder()
        .workers(2)
        .spare_workers(1)
        .report_hogs_after(Duration::from_millis(1))
        .build()
        .unwrap();
    let (wakes, waits) = std::sync::mpsc::channel();
    let waits = Arc::new(Mutex::new(waits));
    let blocked = [(); 2].map(|()| {
        let waits = waits.clone();
        runtime.spawn(move || waits.lock().unwrap().recv().unwrap())
    });
    let is_blocked = |worker: &sinew::WorkerStats| worker.blocked > Duration::ZERO;
    wait_until(|| {
        runtime
            .stats()
            .workers
            .iter()
            .filter(|w| is_blocked(w))
            .count()
            >= 2
    });
    let third = runtime.spawn(move || blocked.iter().for_each(|_| wakes.send(()).unwrap()));
    third.join().unwrap();
}

#[test]
fn a_report_that_cannot_be_written_keeps_nobody_waiting() {
    let _watch = watch();
    run_case("hog unheard", &[]).succeeded();
}

fn hog() {
    let runtime = Runtime::builder()
        .workers(1)
        .report_hogs_after(Duration::from_millis(5))
        .build()
        .unwrap();
    let hog = Builder::new()
        .name("glutton")
        .spawn_on(&runtime.handle(), || {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(300) {
                std::hint::spin_loop();
            }
        });
    hog.unwrap().join().unwrap();
}

#[test]
fn a_hog_is_told_of_on_standard_error() {
    let _watch = watch();
    let ended = run_case("hog", &[]);
    ended.succeeded().says(&[
        "sinew: fiber 'glutton'",
        "worker 0",
        "crash.rs",
        "safepoint",
    ]);
}

fn blocked_hog() {
    let runtime = Runtime::builder()
        .workers(1)
        .report_hogs_after(Duration::from_millis(5))
        .build()
        .unwrap();
    let hog = Builder::new()
        .name("sleeper")
        .spawn_on(&runtime.handle(), || {
            std::thread::sleep(Duration::from_millis(300));
        });
    hog.unwrap().join().unwrap();
}

#[test]
fn the_line_about_a_hog_names_the_one_remedy_that_applies() {
    let _watch = watch();
    let computes = run_case("hog", &[]);
    computes.succeeded().says(&["computes", "safepoint"]);
    assert!(!computes.stderr.contains("blocking"), "{}", computes.stderr);
    let blocks = run_case("blocked hog", &[]);
    blocks.succeeded().says(&[
        "sinew: fiber 'sleeper'",
        "is blocked in system call clock_nanosleep",
        "its I/O and its timers wait",
        "use sinew::sleep",
    ]);
    assert!(!blocks.stderr.contains("safepoint"), "{}", blocks.stderr);
}

/// How much CPU time this thread has used.
fn own_cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a place to write to.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(failed, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Computes in turns that are short by the CPU's clock, while the whole process is
/// stopped for longer than a turn may last.
fn be_stopped() {
    for workers in [1, 2] {
        let runtime = Runtime::builder()
            .workers(workers)
            .report_hogs_after(Duration::from_millis(100))
            .build()
            .unwrap();
        let over = Gate::new();
        let computing: Vec<_> = (0..workers)
            .map(|_| {
                let over = over.clone();
                runtime.spawn(move || {
                    while !over.is_open() {
                        let begun = own_cpu_time();
                        while own_cpu_time() - begun < Duration::from_millis(30) {
                            std::hint::spin_loop();
                        }
                        sinew::yield_now();
                    }
                })
            })
            .collect();
        let me = std::process::id();
        let stop = format!("kill -STOP {me}; sleep 0.3; kill -CONT {me}; sleep 0.1");
        for _ in 0..3 {
            let stopped = Command::new("sh").args(["-c", &stop]).status().unwrap();
            assert!(stopped.success());
        }
        over.open();
        for computing in computing {
            computing.join().unwrap();
        }
    }
}

#[test]
fn a_process_that_was_stopped_reports_no_hog() {
    let _watch = watch();
    let ended = run_case("stopped", &[]);
    ended.succeeded();
    assert!(!ended.stderr.contains("has not let go"), "{}", ended.stderr);
}

fn leak() {
    let runtime = Runtime::builder().workers(1).name("leaky").build().unwrap();
    let stuck = Builder::new()
        .name("barnacle")
        .daemon(true)
        .spawn_on(&runtime.handle(), || {
            loop {
                sinew::park();
            }
        });
    let stuck: sinew::JoinHandle<()> = stuck.unwrap();
    wait_until(|| stuck.fiber().wait_reason() == WaitReason::Park);
    // Waits for the daemon a few seconds; then nobody gets an error.
    drop(runtime);
    stuck.fiber().unpark();
}

#[test]
fn a_leaked_fiber_is_told_of_on_standard_error() {
    let _watch = watch();
    run_case("leak", &[]).succeeded().says(&[
        "sinew: runtime 'leaky'",
        "'barnacle'",
        "1 worker thread is kept",
    ]);
}
