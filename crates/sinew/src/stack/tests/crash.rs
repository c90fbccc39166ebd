//! Guards and the handler. What ends a process runs in a child.

use std::process::exit;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use corosensei::Coroutine;

use super::*;
use crate::stack::overflow::{AltStack, Fault, OverflowBy, OverflowReport, ShortName};

/// The guard of the one stack that the child overflows, and no thread-local:
/// `sched::current` alone declares those.
static GUARD: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

fn set_guard(stack: &Stack) {
    GUARD[0].store(stack.guard().start, SeqCst);
    GUARD[1].store(stack.guard().end, SeqCst);
}

fn describe(fault: &Fault) -> Option<OverflowReport> {
    let [start, end] = [0, 1].map(|end: usize| GUARD[end].load(SeqCst));
    let by = OverflowBy::find(fault, &(start..end))?;
    Some(OverflowReport {
        id: ShortName::shown(42),
        name: ShortName::new("deep"),
        spawned_at: None,
        stack_bytes: 256 * KIB,
        guard: start..end,
        by,
    })
}

#[inline(never)]
fn recurse(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 8]);
    if depth == u64::MAX {
        0
    } else {
        recurse(depth + 1) + std::hint::black_box(frame)[3]
    }
}

#[test]
fn the_guard_of_a_region_stack_faults_at_both_ends() {
    let output = in_child(
        module_path!(),
        "the_guard_of_a_region_stack_faults_at_both_ends",
        || {
            guard_faults(GuardChoice::Auto);
        },
    );
    assert_lived(&output);
}

#[test]
fn the_guard_of_an_mprotect_stack_faults_at_both_ends() {
    let output = in_child(
        module_path!(),
        "the_guard_of_an_mprotect_stack_faults_at_both_ends",
        || {
            guard_faults(GuardChoice::ForceMprotect);
        },
    );
    assert_lived(&output);
}

/// Writes through the kernel, which answers `EFAULT` where we would die.
fn guard_faults(choice: GuardChoice) {
    let mut fds = [0; 2];
    // SAFETY: room for two descriptors.
    assert_eq!(unsafe { libc::pipe(fds.as_mut_ptr()) }, 0);
    let faults = |address: usize| {
        // SAFETY: the kernel checks the address that it writes to.
        let rc = unsafe {
            assert_eq!(libc::write(fds[1], b"x".as_ptr().cast(), 1), 1);
            libc::read(fds[0], address as *mut _, 1)
        };
        if rc == -1 {
            let mut byte = 0u8;
            // SAFETY: room for one byte.
            unsafe { libc::read(fds[0], (&raw mut byte).cast(), 1) };
        }
        rc == -1
    };
    for bytes in [16 * KIB, 64 * KIB, 256 * KIB] {
        let mut hot = hot(choice, bytes);
        let stacks: Vec<Stack> = (0..70)
            .map(|_| take_one(&mut hot, bytes).unwrap())
            .collect();
        for stack in &stacks {
            let guard = stack.guard();
            assert!(faults(guard.start) && faults(guard.end - 1));
            assert!(!faults(guard.end) && !faults(stack.base().get() - 1));
        }
        // They still do after their pages were given back.
        let (lows, pool): (Vec<usize>, _) = (
            stacks.iter().map(|s| s.guard().start).collect(),
            hot.pool().clone(),
        );
        give_all(&mut hot, stacks);
        drop(hot);
        let _ = pool.trim(Trim::All);
        assert!(lows.iter().all(|low| faults(*low)));
    }
}

#[test]
fn an_overflow_names_the_fiber_and_aborts() {
    let output = in_child(
        module_path!(),
        "an_overflow_names_the_fiber_and_aborts",
        || {
            overflow::install(describe).unwrap();
            overflow::install(describe).unwrap();
            let _alt = AltStack::install().unwrap();
            let mut hot = hot(GuardChoice::Auto, 256 * KIB);
            let stack = take_one(&mut hot, 256 * KIB).unwrap();
            set_guard(&stack);
            let mut coroutine: Coroutine<(), (), u64, Stack> =
                Coroutine::with_stack(stack, |_, ()| recurse(0));
            coroutine.resume(());
        },
    );
    assert_died_by(&output, libc::SIGABRT);
    let text = stderr(&output);
    assert!(
        text.contains("fiber 'deep' (id 42) overflowed its stack of 256 KiB"),
        "{text}"
    );
    assert!(
        text.contains("remedy: give it more with Builder::stack_size"),
        "{text}"
    );
    assert!(
        text.contains("recurse") || text.contains("backtrace failed"),
        "{text}"
    );
    assert!(text.lines().count() < 80, "{text}");
}

#[test]
fn an_overflow_on_an_mprotect_guard_is_named_too() {
    let output = in_child(
        module_path!(),
        "an_overflow_on_an_mprotect_guard_is_named_too",
        || {
            overflow::install(describe).unwrap();
            let _alt = AltStack::install().unwrap();
            let mut hot = hot(GuardChoice::ForceMprotect, 64 * KIB);
            let stack = take_one(&mut hot, 64 * KIB).unwrap();
            set_guard(&stack);
            let mut coroutine: Coroutine<(), (), u64, Stack> =
                Coroutine::with_stack(stack, |_, ()| recurse(0));
            coroutine.resume(());
        },
    );
    assert_died_by(&output, libc::SIGABRT);
    assert!(
        stderr(&output).contains("fiber 'deep' (id 42) overflowed"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_null_write_dies_by_sigsegv_as_before() {
    if under_sanitizer() {
        return;
    }
    let output = in_child(
        module_path!(),
        "a_null_write_dies_by_sigsegv_as_before",
        || {
            overflow::install(describe).unwrap();
            let _alt = AltStack::install().unwrap();
            write_to(8);
        },
    );
    assert_died_by(&output, libc::SIGSEGV);
    assert!(!stderr(&output).contains("sinew:"), "{}", stderr(&output));
}

#[test]
fn a_default_or_ignored_sigsegv_still_kills() {
    let output = in_child(
        module_path!(),
        "a_default_or_ignored_sigsegv_still_kills",
        || {
            // SAFETY: a plain disposition.
            unsafe { libc::signal(libc::SIGSEGV, libc::SIG_IGN) };
            overflow::install(describe).unwrap();
            // SAFETY: raise takes no pointers. Sent, not a fault: still ignored.
            unsafe { libc::raise(libc::SIGSEGV) };
            eprintln!("still here");
            write_to(8);
        },
    );
    assert_died_by(&output, libc::SIGSEGV);
    assert!(
        stderr(&output).contains("still here"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_sent_sigsegv_kills_where_the_default_was_set() {
    let output = in_child(
        module_path!(),
        "a_sent_sigsegv_kills_where_the_default_was_set",
        || {
            // SAFETY: a plain disposition; raise takes no pointers.
            unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
            overflow::install(describe).unwrap();
            // SAFETY: as above.
            unsafe { libc::raise(libc::SIGSEGV) };
        },
    );
    assert_died_by(&output, libc::SIGSEGV);
}

static HEARD: AtomicUsize = AtomicUsize::new(0);

extern "C" fn user_handler(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel hands a valid siginfo over.
    HEARD.store(unsafe { (*info).si_addr() } as usize, SeqCst);
    exit(if HEARD.load(SeqCst) == 24 { 17 } else { 18 });
}

extern "C" fn plain_handler(signal: i32) {
    exit(if signal == libc::SIGSEGV { 19 } else { 20 });
}

#[test]
fn a_handler_that_was_there_before_still_gets_other_faults() {
    let output = in_child(
        module_path!(),
        "a_handler_that_was_there_before_still_gets_other_faults",
        || {
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = user_handler;
            // SAFETY: all-zero is a valid sigaction, and the handler has the
            // signature that SA_SIGINFO promises.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = handler as usize;
                action.sa_flags = libc::SA_SIGINFO;
                assert_eq!(
                    libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()),
                    0
                );
            }
            overflow::install(describe).unwrap();
            write_to(24);
        },
    );
    assert_eq!(output.status.code(), Some(17), "{}", stderr(&output));
}

#[test]
fn a_plain_handler_that_was_there_before_still_gets_other_faults() {
    let output = in_child(
        module_path!(),
        "a_plain_handler_that_was_there_before_still_gets_other_faults",
        || {
            let handler: extern "C" fn(i32) = plain_handler;
            // SAFETY: the handler has the signature that signal(2) promises.
            unsafe { libc::signal(libc::SIGSEGV, handler as usize) };
            overflow::install(describe).unwrap();
            write_to(24);
        },
    );
    assert_eq!(output.status.code(), Some(19), "{}", stderr(&output));
}

#[test]
fn an_alternate_stack_is_replaced_and_brought_back() {
    let current = || {
        // SAFETY: all-zero is a valid stack_t, and null means only read.
        unsafe {
            let mut now: libc::stack_t = std::mem::zeroed();
            assert_eq!(libc::sigaltstack(std::ptr::null(), &mut now), 0);
            (now.ss_sp as usize, now.ss_size)
        }
    };
    let before = current();
    let alt = AltStack::install().unwrap();
    assert_eq!(current().1, 256 * KIB);
    assert_ne!(current().0, before.0);
    drop(alt);
    assert_eq!(current().0, before.0);
}
