//! Cases in child processes, which are this same binary with a variable set.

use super::{forks, listeners, many};
use crate::harness::child::this_program;
use crate::harness::watch;
use crate::world::drivers;
use sinew::io::Async;
use sinew::net::IntoIncoming;
use sinew::{IoDriver, Runtime, WaitReason};
use std::cell::RefCell;
use std::io::{Read, Write};
use std::process::Stdio;

const CASE: &str = "SINEW_IO_REVIEW_CASE";
const ERROR: &str = "SINEW_IO_REVIEW_ERROR";

/// The entry of the child processes; nothing without the variable.
#[test]
fn child() {
    let Ok(case) = std::env::var(CASE) else {
        return;
    };
    let _watch = watch();
    match case.as_str() {
        "fork, socket" => forks::drop_a_socket(),
        "fork, any descriptor" => forks::drop_any_descriptor(),
        "fork, iterator" => forks::drop_an_iterator(),
        "fork, writes" => forks::write_often(),
        "filter" => read_where_epoll_pwait2_is_refused(),
        "thread local" => keep_an_iterator_in_a_thread_local(),
        "number" => listeners::refuse_an_iterator_and_reuse_its_number(),
        "leftovers" => many::more_events_than_one_look_takes(),
        "flood" => many::more_reads_than_a_ring_has_answers(),
        other => panic!("no such case: {other}"),
    }
}

/// Runs a case with this driver; it must succeed.
fn run_with(case: &str, driver: IoDriver, variables: &[(&str, &str)]) {
    let driver = match driver {
        IoDriver::Epoll => "epoll",
        _ => "uring",
    };
    let mut command = this_program();
    command
        .args(["--exact", "review::child::child", "--nocapture"])
        .arg("--test-threads=1")
        .env(CASE, case)
        .env("SINEW_IO", driver)
        .envs(variables.iter().copied())
        .stdin(Stdio::null());
    // No watch over this: the child has its own, and says more.
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "'{case}' with {driver}: {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Runs a case with each driver.
pub fn run(case: &str) {
    for driver in drivers() {
        run_with(case, driver, &[]);
    }
}

/// A runtime of the driver that this child is for.
pub fn runtime(workers: usize) -> Runtime {
    Runtime::builder().workers(workers).build().unwrap()
}

/// Has `epoll_pwait2` answer this error to this thread and all that it starts, as a
/// filter does that is older than the call.
fn refuse_epoll_pwait2(error: u32) {
    const LOAD_NUMBER: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut steps = [
        step(LOAD_NUMBER, 0, 0, 0),
        step(IF_EQUAL, 0, 1, libc::SYS_epoll_pwait2 as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | error),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the second takes a program, which is there; both only take rights away.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &program), 0);
    }
}

fn read_where_epoll_pwait2_is_refused() {
    refuse_epoll_pwait2(std::env::var(ERROR).unwrap().parse().unwrap());
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        // A ring, too, watches that by its registry.
        let mut ours = Async::new(ours).unwrap();
        let reader = runtime.spawn(move || ours.read(&mut [0; 8]));
        while reader.fiber().wait_reason() != WaitReason::Read {
            std::thread::yield_now();
        }
        theirs.write_all(b"x").unwrap();
        assert_eq!(reader.join().unwrap().unwrap(), 1);
        // And time passes: the wait is in milliseconds then.
        runtime.run(|| sinew::sleep(std::time::Duration::from_micros(1500)).unwrap());
    }
}

#[test]
fn events_are_heard_of_where_a_filter_refuses_epoll_pwait2() {
    for driver in drivers() {
        for error in [libc::EPERM, libc::ENOSYS] {
            run_with("filter", driver, &[(ERROR, &error.to_string())]);
        }
    }
}

thread_local! {
    static KEPT: RefCell<Option<IntoIncoming>> = const { RefCell::new(None) };
}

fn keep_an_iterator_in_a_thread_local() {
    for accepts in [true, false] {
        let runtime = runtime(1);
        runtime.run(|| {
            let listener = crate::tcp::listen();
            let address = listener.local_addr().unwrap();
            let mut incoming = listener.into_incoming();
            if accepts {
                let _client = std::net::TcpStream::connect(address).unwrap();
                drop(incoming.next().unwrap().unwrap());
            }
            KEPT.with(|kept| *kept.borrow_mut() = Some(incoming));
        });
        // Ends the worker, then its thread and what that has kept.
        drop(runtime);
    }
}

#[test]
fn an_iterator_may_outlive_its_worker_in_a_thread_local() {
    run("thread local");
}
