//! A forked child has none of the runtime's threads.

use super::{SIGABRT, run_case, runtime};
use crate::harness::{wait_until, watch};
use sinew::{Builder, Runtime, WaitReason};
use std::future::Future;
use std::io::Write as _;
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

pub fn child(case: &str) -> bool {
    match case {
        "fork" => fork_and_use(),
        "fork returns" => fork_and_return(),
        "fork on the pool" => fork_on_the_pool(),
        "fork without a runtime" => fork_without_a_runtime(),
        "fork waits" => fork_and_wait(),
        "fork computes" => fork_and_compute(),
        "fork with a pipe" => fork_with_a_pipe(),
        _ => return false,
    }
    true
}

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(code: i32) -> !;
    fn alarm(seconds: u32) -> u32;
}

/// Forks; the child's code is the number of uses that did not panic as told.
fn fork_and_use() {
    let runtime = runtime();
    let handle = runtime.handle();
    let parked = runtime.spawn(sinew::park);
    let fiber = parked.fiber();
    wait_until(|| fiber.wait_reason() == WaitReason::Park);
    // SAFETY: the child only makes calls that must panic, and leaves by `_exit`;
    // `alarm` ends it should it hang.
    let pid = unsafe { fork() };
    if pid == 0 {
        // SAFETY: as above.
        unsafe { alarm(10) };
        let uses: Vec<(&str, Box<dyn Fn()>)> = vec![
            ("spawn", Box::new(|| drop(sinew::spawn(|| ())))),
            ("Handle::spawn", Box::new(|| drop(handle.spawn(|| ())))),
            (
                "Builder::spawn",
                Box::new(|| drop(Builder::new().spawn(|| ()))),
            ),
            ("Runtime::run", Box::new(|| runtime.run(|| ()))),
            ("run", Box::new(|| sinew::run(|| ()))),
            ("build", Box::new(|| drop(Runtime::builder().build()))),
            (
                "spawn_blocking",
                Box::new(|| drop(sinew::spawn_blocking(|| ()))),
            ),
            ("wait", Box::new(|| fiber.wait().unwrap())),
        ];
        let mut wrong = 0;
        for (name, call) in &uses {
            // Said before, so that a hang is explained.
            eprintln!("in the child: {name}");
            let caught = catch_unwind(AssertUnwindSafe(call));
            let told = caught.is_err_and(|payload| {
                let text = payload
                    .downcast_ref::<&str>()
                    .map(|text| (*text).to_owned());
                let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
                text.is_some_and(|text| text.contains("forked child"))
            });
            if !told {
                eprintln!("{name} did not say that it is in a forked child");
                wrong += 1;
            }
        }
        // SAFETY: as above.
        unsafe { _exit(wrong) };
    }
    let mut status = -1;
    // SAFETY: our own child, and a place for its status.
    unsafe { waitpid(pid, &mut status, 0) };
    // The parent goes on as if nothing had been.
    fiber.unpark();
    parked.join().unwrap();
    assert_eq!(status, 0, "the forked child failed");
}

#[test]
fn every_use_in_a_forked_child_panics_with_that_text() {
    let _watch = watch();
    run_case("fork", &[]).succeeded();
}

/// A fiber forks, and its closure returns in the child too.
fn fork_and_return() {
    let runtime = runtime();
    runtime.run(|| {
        // SAFETY: what the child does before it is stopped is return.
        let pid = sinew::spawn(|| unsafe { fork() }).join().unwrap();
        let mut status = 0;
        // SAFETY: waits for our own child.
        assert_eq!(unsafe { waitpid(pid, &mut status, 0) }, pid);
        assert_eq!(status & 0x7f, SIGABRT, "the child did not abort: {status}");
    });
}

#[test]
fn a_forked_child_does_not_go_on_as_a_worker() {
    let ended = run_case("fork returns", &[]);
    ended.succeeded().says(&["exec or exit there instead"]);
}

/// A closure on the blocking pool forks, and returns or panics in the child too.
fn fork_on_the_pool() {
    /// As in the parent, in the child.
    fn both(panics: bool) -> i32 {
        // SAFETY: what the child does before it is stopped is return, or unwind.
        let pid = unsafe { fork() };
        if pid == 0 {
            // SAFETY: no pointers. Ends it should it hang.
            unsafe { alarm(10) };
            assert!(!panics, "in the child");
        }
        pid
    }
    fn has_aborted(pid: i32) {
        let mut status = 0;
        // SAFETY: waits for our own child.
        assert_eq!(unsafe { waitpid(pid, &mut status, 0) }, pid);
        assert_eq!(status & 0x7f, SIGABRT, "the child did not abort: {status}");
    }
    runtime().run(|| {
        for panics in [false, true] {
            has_aborted(sinew::blocking(|| both(panics)));
            has_aborted(sinew::spawn_blocking(move || both(panics)).join().unwrap());
        }
    });
}

#[test]
fn a_forked_child_does_not_go_on_as_a_thread_of_the_pool() {
    let _watch = watch();
    let ended = run_case("fork on the pool", &[]);
    ended.succeeded().says(&["exec or exit there instead"]);
}

/// The threads that the whole process shares are not in the child either.
fn fork_without_a_runtime() {
    use sinew::interop::{self, AsyncIo};
    use std::io::Write as _;

    let short = Duration::from_millis(1);
    sinew::block_on(interop::sleep(short));
    let mut signal = sinew::signal::signal(sinew::signal::SignalKind::user_defined1()).unwrap();
    let (near, mut far) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut near = Some(AsyncIo::new(sinew::net::UnixStream::from(near)).unwrap());
    let mut byte = [0];
    let mut read = |stream: &mut AsyncIo<_>, far: &mut std::os::unix::net::UnixStream| {
        // A task of a foreign executor: `sinew-io` watches the socket for it.
        let mut reading = std::pin::pin!(futures_util::AsyncReadExt::read(stream, &mut byte));
        let woken = Arc::new(Unpark(std::thread::current()));
        let waker = std::task::Waker::from(woken);
        let mut cx = std::task::Context::from_waker(&waker);
        assert!(reading.as_mut().poll(&mut cx).is_pending());
        far.write_all(&[7]).unwrap();
        while reading.as_mut().poll(&mut cx).is_pending() {
            std::thread::park();
        }
    };
    read(near.as_mut().unwrap(), &mut far);
    // SAFETY: the child makes calls that must panic, drops a socket, and leaves by `_exit`;
    // `alarm` ends it should it hang.
    let pid = unsafe { fork() };
    if pid == 0 {
        // SAFETY: as above.
        unsafe { alarm(10) };
        let refused = |call: &mut dyn FnMut()| {
            let caught = catch_unwind(AssertUnwindSafe(call));
            let payload = caught.expect_err("a wait in a forked child panics");
            let text = payload.downcast_ref::<&str>().expect("a message");
            assert!(text.contains("forked child"), "{text}");
        };
        let all = catch_unwind(AssertUnwindSafe(|| {
            refused(&mut || sinew::block_on(interop::sleep(short)));
            refused(&mut || signal.recv().unwrap());
            drop(near.take());
        }));
        // SAFETY: as above.
        unsafe { _exit(i32::from(all.is_err())) };
    }
    let mut status = -1;
    // SAFETY: our own child, and a place for its status.
    unsafe { waitpid(pid, &mut status, 0) };
    assert_eq!(status, 0, "the forked child failed");
    // The parent's socket is still watched.
    read(near.as_mut().unwrap(), &mut far);
}

/// Wakes a thread that runs a task.
struct Unpark(std::thread::Thread);

impl std::task::Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn a_fork_is_noticed_also_if_there_was_no_runtime_yet() {
    let _watch = watch();
    run_case("fork without a runtime", &[]).succeeded();
}

/// A fiber that is used to short waits forks, and waits in the child, where other
/// fibers seem to be ready.
fn fork_and_wait() {
    let runtime = Runtime::builder().workers(1).build().unwrap();
    runtime.run(|| {
        let (ping, pinged) = sinew::channel::bounded(1);
        let (pong, ponged) = sinew::channel::bounded(1);
        let other = sinew::spawn(move || pinged.iter().try_for_each(|n: u32| pong.send(n)));
        for n in 0..50 {
            ping.send(n).unwrap();
            assert_eq!(ponged.recv(), Ok(n));
        }
        let ready = sinew::spawn(|| ());
        // SAFETY: the child only makes calls that must panic, and leaves by
        // `_exit`; `alarm` ends it should it hang.
        let pid = unsafe { fork() };
        if pid == 0 {
            // SAFETY: as above.
            unsafe { alarm(10) };
            let received = catch_unwind(AssertUnwindSafe(|| ponged.recv()));
            let text = received.unwrap_err();
            let told = text
                .downcast_ref::<&str>()
                .is_some_and(|text| text.contains("forked child"));
            // SAFETY: ends the child without running anything of ours.
            unsafe { _exit(i32::from(!told)) };
        }
        let mut status = 0;
        // SAFETY: waits for our own child.
        assert_eq!(unsafe { waitpid(pid, &mut status, 0) }, pid);
        assert_eq!(status, 0, "the child did not panic as it should: {status}");
        ready.join().unwrap();
        drop(ping);
        other.join().unwrap().unwrap();
    });
}

#[test]
fn a_wait_in_a_forked_child_panics_also_if_others_seem_to_be_ready() {
    run_case("fork waits", &[]).succeeded();
}

/// A fiber that was asked to let others run forks: in the child nobody is there.
fn fork_and_compute() {
    runtime().run(|| {
        let begun = std::time::Instant::now();
        while begun.elapsed() < Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        // SAFETY: the child makes calls that need not wait, and leaves by `_exit`.
        let pid = unsafe { fork() };
        if pid == 0 {
            sinew::safepoint();
            let (tx, rx) = sinew::channel::unbounded();
            tx.send(7).unwrap();
            assert_eq!(rx.try_recv(), Ok(7));
            // SAFETY: ends the child.
            unsafe { _exit(0) };
        }
        let mut status = -1;
        // SAFETY: our own child, and a place for its status.
        assert_eq!(unsafe { waitpid(pid, &mut status, 0) }, pid);
        assert_eq!(status, 0);
    });
}

#[test]
fn a_forked_child_goes_on_where_nothing_has_to_wait() {
    let _watch = watch();
    run_case("fork computes", &[]).succeeded();
}

/// The child has the open file of an end together with its parent, and hands it away.
fn fork_with_a_pipe() {
    fn is_nonblocking(fd: &impl AsRawFd) -> bool {
        // SAFETY: no pointers.
        unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) & libc::O_NONBLOCK != 0 }
    }
    runtime().run(|| {
        let (_reader, writer) = sinew::io::pipe().unwrap();
        (&writer).write_all(b"used").unwrap();
        // SAFETY: the child makes system calls and leaves by `_exit`.
        let pid = unsafe { fork() };
        if pid == 0 {
            let blocks = !is_nonblocking(&OwnedFd::from(writer));
            // SAFETY: as above.
            unsafe { _exit(i32::from(!blocks)) };
        }
        let mut status = -1;
        // SAFETY: our own child, and a place for its status.
        assert_eq!(unsafe { waitpid(pid, &mut status, 0) }, pid);
        assert_eq!(status, 0, "the child's descriptor does not block");
        assert!(is_nonblocking(&writer), "the child took the setting back");
    });
}

#[test]
fn an_end_of_a_pipe_that_a_forked_child_hands_away_blocks_there_only() {
    let _watch = watch();
    run_case("fork with a pipe", &[]).succeeded();
}
