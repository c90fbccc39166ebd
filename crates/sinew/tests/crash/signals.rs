//! Signals that come while fibers run, and Ctrl-C.

use super::{SIGSEGV, run_case, watch};
use crate::harness::{Gate, wait_until};
use sinew::signal::{SignalKind, ctrl_c, signal};
use sinew::{Builder, WaitReason};
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const SIGINT: i32 = 2;

pub fn child(case: &str) -> bool {
    match case {
        "signals on full stacks" => signals_on_full_stacks(),
        "foreign signal on a full stack" => foreign_signal_on_a_full_stack(),
        "second ctrl-c" => second_ctrl_c(),
        "ctrl-c listened" => listened_to_ctrl_c(),
        "ctrl-c after a listener" => ctrl_c_after_a_listener(),
        "ctrl-c cancelled" => cancelled_ctrl_c(),
        "ctrl-c former handler" => former_handler(),
        "listen on a small stack" => listen_on_a_small_stack(),
        "handler taken away" => handler_taken_away(),
        "ctrl-c behind another" => ctrl_c_behind_another(),
        "one-shot handler" => one_shot_handler(),
        "signal in a forked child" => signal_in_a_forked_child(),
        "signals not blocked" => signals_are_not_blocked(),
        _ => return false,
    }
    true
}

/// Where the caller's stack ends, nearly. The address of a variable does not tell that: ASan
/// keeps variables elsewhere.
#[inline(always)]
fn stack_pointer() -> usize {
    let here: usize;
    // SAFETY: reads a register.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        std::arch::asm!("mov {}, rsp", out(reg) here, options(nomem, nostack, preserves_flags));
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!("mov {}, sp", out(reg) here, options(nomem, nostack, preserves_flags));
    }
    here
}

/// The size of a fiber's stack that is soon full. ASan's frames are larger.
const SMALL: usize = if cfg!(feature = "sanitizer") { 64 } else { 16 } << 10;

/// Calls `f` with about `left` bytes of the fiber's stack of `SMALL` left.
fn deep(left: usize, f: &mut dyn FnMut()) {
    #[inline(never)]
    fn down(low: usize, left: usize, f: &mut dyn FnMut()) {
        // The frame is not larger than what is kept free for the next one.
        const FRAME: usize = if cfg!(feature = "sanitizer") {
            1024
        } else {
            600
        };
        let frame = MaybeUninit::<[u8; 256]>::uninit();
        if stack_pointer() - low > left + FRAME {
            down(low, left, f);
        } else {
            f();
        }
        black_box(&frame);
    }
    let low = stack_pointer() & !(SMALL - 1);
    down(low + 4096, left, f); // above the guard
}

/// Each fiber runs with less than the kernel's frame left.
fn signals_on_full_stacks() {
    let mut heard = signal(SignalKind::user_defined1()).unwrap();
    let runtime = super::runtime();
    let over = Arc::new(AtomicBool::new(false));
    let turns = Arc::new(AtomicUsize::new(0));
    let (theirs, count) = (over.clone(), turns.clone());
    let fiber = Builder::new()
        .stack_size(SMALL)
        .spawn_on(&runtime.handle(), move || {
            deep(700, &mut || {
                while !theirs.load(Ordering::Relaxed) {
                    count.fetch_add(1, Ordering::Relaxed);
                    std::hint::spin_loop();
                }
            });
        });
    let fiber = fiber.unwrap();
    wait_until(|| turns.load(Ordering::Relaxed) > 0);
    let worker = worker_thread();
    for _ in 0..100 {
        // SAFETY: no pointers; the thread is the worker's, which lives.
        let sent =
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), worker, libc::SIGUSR1) };
        assert_eq!(sent, 0);
        heard.recv().unwrap();
    }
    over.store(true, Ordering::Relaxed);
    fiber.join().unwrap();
}

/// The thread id of the only worker.
fn worker_thread() -> i32 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    for task in tasks {
        let task = task.unwrap();
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap();
        if name.contains("worker") {
            return task.file_name().to_str().unwrap().parse().unwrap();
        }
    }
    panic!("there is no worker");
}

#[test]
fn signals_that_are_listened_to_need_no_room_on_a_fiber_s_stack() {
    let _watch = watch();
    run_case("signals on full stacks", &[]).succeeded();
}

/// A handler of somebody else, without `SA_ONSTACK`: it cannot work, but it is explained.
fn foreign_signal_on_a_full_stack() {
    extern "C" fn nothing(_signal: i32) {}
    // SAFETY: an all-zero action is valid, and the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        assert_eq!(
            libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut()),
            0
        );
    }
    let runtime = super::runtime();
    let builder = Builder::new().name("brimful").stack_size(SMALL);
    let fiber = builder.spawn_on(&runtime.handle(), || {
        deep(300, &mut || {
            // SAFETY: no pointers.
            unsafe { libc::raise(libc::SIGUSR2) };
        });
    });
    let _ = fiber.unwrap().join();
}

#[test]
fn a_foreign_signal_on_a_full_stack_is_explained() {
    let _watch = watch();
    let ended = run_case("foreign signal on a full stack", &[]);
    assert!(!ended.status.success());
    ended.says(&[
        "'brimful'",
        "perhaps a signal on a full stack",
        "SA_ONSTACK",
    ]);
}

/// Children must not inherit blocked signals.
fn signals_are_not_blocked() {
    let blocked = || {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("SigBlk:"));
        line.expect("a line of /proc")
            .trim_start_matches("SigBlk:")
            .trim()
            .to_owned()
    };
    let _listens = signal(SignalKind::interrupt()).unwrap();
    let here = blocked();
    super::runtime().run(|| {
        assert_eq!(blocked(), here, "worker");
        assert_eq!(sinew::blocking(blocked), here, "pool");
    });
}

#[test]
fn workers_and_pool_threads_block_no_signals() {
    let _watch = watch();
    run_case("signals not blocked", &[]).succeeded();
}

// ------------------------------------------------------------------- Ctrl-C

fn interrupt() {
    SignalKind::interrupt().raise().unwrap();
}

/// A shell lets its background jobs ignore Ctrl-C, and so their children.
fn do_not_ignore_interrupts() {
    // SAFETY: the default action is no code of ours.
    let former = unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
    assert_ne!(former, libc::SIG_ERR);
}

/// One is received, the next ends the program.
fn second_ctrl_c() {
    do_not_ignore_interrupts();
    super::runtime().run(|| {
        for round in 0..3 {
            let stops = sinew::spawn(ctrl_c);
            wait_until(|| stops.fiber().wait_reason() == WaitReason::Signal);
            interrupt();
            stops.join().unwrap().unwrap();
            eprintln!("received {round}");
        }
    });
    interrupt();
    // Delivered to this thread or another before the call returns, or soon after it.
    loop {
        std::thread::park();
    }
}

#[test]
fn once_a_ctrl_c_was_received_and_nobody_listens_the_next_ends_the_program() {
    let _watch = watch();
    run_case("second ctrl-c", &[])
        .died_by(SIGINT)
        .says(&["received 0", "received 2"]);
}

/// While a `Signal` lives each one is received, also after a one-shot has returned.
fn listened_to_ctrl_c() {
    super::runtime().run(|| {
        let mut listens = signal(SignalKind::interrupt()).unwrap();
        let stops = sinew::spawn(ctrl_c);
        wait_until(|| stops.fiber().wait_reason() == WaitReason::Signal);
        interrupt();
        stops.join().unwrap().unwrap();
        listens.recv().unwrap();
        for _ in 0..10 {
            interrupt();
            listens.recv().unwrap();
        }
    });
}

#[test]
fn while_the_program_listens_each_ctrl_c_is_delivered() {
    let _watch = watch();
    run_case("ctrl-c listened", &[]).succeeded();
}

/// A one-shot has returned; after it a listener comes and goes.
fn ctrl_c_after_a_listener() {
    do_not_ignore_interrupts();
    super::runtime().run(|| {
        let stops = sinew::spawn(ctrl_c);
        wait_until(|| stops.fiber().wait_reason() == WaitReason::Signal);
        interrupt();
        stops.join().unwrap().unwrap();
        let mut listens = signal(SignalKind::interrupt()).unwrap();
        interrupt();
        listens.recv().unwrap();
        eprintln!("received by a listener");
    });
    interrupt();
    loop {
        std::thread::park();
    }
}

#[test]
fn a_ctrl_c_ends_the_program_also_if_a_listener_came_and_went_after_the_last_one() {
    let _watch = watch();
    run_case("ctrl-c after a listener", &[])
        .died_by(SIGINT)
        .says(&["received by a listener"]);
}

/// A one-shot that was cancelled listens no more, either.
fn cancelled_ctrl_c() {
    do_not_ignore_interrupts();
    super::runtime().run(|| {
        let stops = sinew::spawn(ctrl_c);
        wait_until(|| stops.fiber().wait_reason() == WaitReason::Signal);
        stops.cancel();
        assert!(stops.join().unwrap().is_err());
    });
    interrupt();
    loop {
        std::thread::park();
    }
}

#[test]
fn a_cancelled_ctrl_c_gives_the_signal_its_default_action_back() {
    let _watch = watch();
    run_case("ctrl-c cancelled", &[]).died_by(SIGINT);
}

/// A handler that was there before is called, while we listen and after.
fn former_handler() {
    static CALLED: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn former(_signal: i32) {
        CALLED.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: an all-zero action is valid, and the handler only counts.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = former as *const () as usize;
        assert_eq!(
            libc::sigaction(libc::SIGINT, &action, std::ptr::null_mut()),
            0
        );
    }
    let go = Gate::new();
    super::runtime().run(|| {
        let stops = sinew::spawn(ctrl_c);
        wait_until(|| stops.fiber().wait_reason() == WaitReason::Signal);
        interrupt();
        stops.join().unwrap().unwrap();
        go.open();
    });
    assert_eq!(CALLED.load(Ordering::Relaxed), 1);
    interrupt();
    wait_until(|| CALLED.load(Ordering::Relaxed) == 2);
}

#[test]
fn a_handler_that_was_there_before_stays() {
    let _watch = watch();
    run_case("ctrl-c former handler", &[]).succeeded();
}

/// The first to listen sets everything up, and has little room for that.
fn listen_on_a_small_stack() {
    // Code without optimisation needs more.
    let size = if cfg!(debug_assertions) { 32 } else { 16 } << 10;
    let runtime = super::runtime();
    let small = Builder::new().stack_size(size);
    let listens = small.spawn_on(&runtime.handle(), || {
        signal(SignalKind::interrupt()).is_ok()
    });
    assert!(listens.unwrap().join().unwrap());
}

#[test]
fn a_fiber_with_a_small_stack_may_be_the_first_to_listen() {
    let _watch = watch();
    run_case("listen on a small stack", &[]).succeeded();
}

/// What the signal's action is, and what it was.
fn set_action(signal: i32, handler: usize, flags: i32) -> libc::sigaction {
    // SAFETY: all-zero actions are valid; the callers' handlers do what a handler may.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut former: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(signal, &action, &mut former), 0);
        former
    }
}

/// Foreign code gives the signal its default action while the program listens: the next who
/// listens receives all the same.
fn handler_taken_away() {
    super::runtime().run(|| {
        let mut before = signal(SignalKind::interrupt()).unwrap();
        set_action(SIGINT, libc::SIG_DFL, 0);
        let mut after = signal(SignalKind::interrupt()).unwrap();
        interrupt();
        before.recv().unwrap();
        after.recv().unwrap();
    });
}

#[test]
fn a_handler_that_was_taken_away_is_installed_anew() {
    let _watch = watch();
    run_case("handler taken away", &[]).succeeded();
}

/// A foreign handler is in front of ours when nobody listens any more, and goes then.
fn ctrl_c_behind_another() {
    static BEHIND: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn in_front(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);
        let behind = BEHIND.load(Ordering::Relaxed);
        // SAFETY: the address of a handler that was installed with `SA_SIGINFO`.
        unsafe { std::mem::transmute::<usize, Handler>(behind)(signal, info, context) };
    }
    do_not_ignore_interrupts();
    super::runtime().run(|| {
        let stops = sinew::spawn(ctrl_c);
        wait_until(|| stops.fiber().wait_reason() == WaitReason::Signal);
        // Known before it is called.
        let mut ours = set_action(SIGINT, libc::SIG_IGN, 0);
        BEHIND.store(ours.sa_sigaction, Ordering::Relaxed);
        set_action(SIGINT, in_front as *const () as usize, libc::SA_SIGINFO);
        interrupt();
        stops.join().unwrap().unwrap();
        interrupt(); // the one in front is still there: nothing happens
        eprintln!("still here");
        // SAFETY: what was installed before.
        let again = unsafe { libc::sigaction(SIGINT, &ours, &mut ours) };
        assert_eq!(again, 0);
    });
    interrupt();
    loop {
        std::thread::park();
    }
}

#[test]
fn a_ctrl_c_that_nobody_wants_ends_the_program_also_if_another_handler_was_in_front() {
    let _watch = watch();
    run_case("ctrl-c behind another", &[])
        .died_by(SIGINT)
        .says(&["still here"]);
}

/// A former handler that wanted to be called once is, also across our own.
fn one_shot_handler() {
    extern "C" fn once(_signal: i32) {}
    set_action(SIGINT, once as *const () as usize, libc::SA_RESETHAND);
    super::runtime().run(|| {
        let stops = sinew::spawn(ctrl_c);
        wait_until(|| stops.fiber().wait_reason() == WaitReason::Signal);
        interrupt();
        stops.join().unwrap().unwrap();
    });
    interrupt();
    loop {
        std::thread::park();
    }
}

#[test]
fn a_former_handler_that_was_to_be_called_once_is_not_given_back() {
    let _watch = watch();
    run_case("one-shot handler", &[]).died_by(SIGINT);
}

/// A forked child has no thread that could receive.
fn signal_in_a_forked_child() {
    do_not_ignore_interrupts();
    super::runtime().run(|| {
        let _listens = signal(SignalKind::interrupt()).unwrap();
        // SAFETY: the child raises a signal, and leaves by `_exit` if it is still there.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            interrupt();
            // SAFETY: ends the process.
            unsafe { libc::_exit(1) };
        }
        let mut status = 0;
        // SAFETY: our own child, and a place for its status.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        assert_eq!(status & 0x7f, SIGINT, "{status}");
    });
}

#[test]
fn a_signal_that_the_parent_listens_to_ends_a_forked_child() {
    let _watch = watch();
    run_case("signal in a forked child", &[]).succeeded();
}

#[test]
fn a_fault_that_is_no_signal_on_a_full_stack_is_passed_on_as_ever() {
    let _watch = watch();
    let ended = run_case("segv fiber", &[]);
    ended.died_by(SIGSEGV);
    assert!(!ended.stderr.contains("full stack"), "{}", ended.stderr);
}
