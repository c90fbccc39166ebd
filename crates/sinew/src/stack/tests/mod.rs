//! What a runtime relies on. `pool.rs`: pool and hot stacks together;
//! `crash.rs`: guards and the handler; `limits.rs`: memory given back, used up
//! and refused.

#[path = "../../../tests/harness/child.rs"]
mod child;
mod crash;
mod limits;
mod pool;

use std::os::unix::process::ExitStatusExt;
use std::process::{Output, exit};
use std::sync::Arc;

use super::*;

const KIB: usize = 1 << 10;
const CHILD: &str = "SINEW_STACK_TEST_CHILD";
/// How a child ends that came to its end: a test binary that found no test to
/// run would end with 0.
const LIVED: i32 = 70;

fn class(bytes: usize) -> StackClass {
    StackClass::for_size(bytes).unwrap()
}

fn pool(guard: GuardChoice, max_stacks: Option<usize>) -> Arc<StackPool> {
    Arc::new(StackPool::new(PoolConfig { guard, max_stacks }))
}

fn auto() -> Arc<StackPool> {
    pool(GuardChoice::Auto, None)
}

/// Writes to the lowest and the highest usable word.
fn touch(stack: &Stack) {
    let low = stack.guard().end as *mut usize;
    let high = (stack.base().get() - size_of::<usize>()) as *mut usize;
    // SAFETY: both lie in the usable part of a stack that we hold.
    unsafe {
        low.write_volatile(1);
        high.write_volatile(2);
    }
}

fn take(hot: &mut HotStacks, class: StackClass, count: usize) -> Vec<Stack> {
    (0..count).map(|_| hot.take(class).unwrap()).collect()
}

fn give_all(hot: &mut HotStacks, stacks: Vec<Stack>) {
    for stack in stacks {
        assert_eq!(hot.give(stack), Given::Kept);
    }
}

/// Runs `body` in a child process, which is the named test alone.
fn in_child(module: &str, test: &str, body: fn()) -> Output {
    if std::env::var_os(CHILD).is_some() {
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: a valid limit: no core files from deaths that we want.
        unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) };
        body();
        exit(LIVED);
    }
    let path = format!("{}::{test}", module.split_once("::").unwrap().1);
    child::this_program()
        .args(["--exact", &path, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap()
}

/// A number of KiB from `/proc/self/status`.
fn status_kib(field: &str) -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .unwrap();
    line.trim_start_matches(':')
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

/// Whether ASan or the like is linked in, known by the terabytes it reserves.
/// It has its own opinion on faults, keeps freed memory and needs mappings.
fn under_sanitizer() -> bool {
    status_kib("VmSize") > 1 << 32
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn assert_lived(output: &Output) {
    assert_eq!(
        output.status.code(),
        Some(LIVED),
        "{:?}\n{}",
        output.status,
        stderr(output)
    );
}

fn assert_died_by(output: &Output, signal: i32) {
    assert_eq!(
        output.status.signal(),
        Some(signal),
        "{:?}\n{}",
        output.status,
        stderr(output)
    );
}

fn hot(guard: GuardChoice, bytes: usize) -> HotStacks {
    HotStacks::new(pool(guard, None), class(bytes))
}

fn take_one(hot: &mut HotStacks, bytes: usize) -> Result<Stack, NoStack> {
    hot.take(class(bytes))
}

fn write_to(address: usize) {
    // Unsound on purpose: the child must fault.
    // SAFETY: none; the process is expected to end here.
    unsafe { (address as *mut u8).write_volatile(1) };
}
