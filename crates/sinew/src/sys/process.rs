//! Noticing a fork.
//!
//! A forked child has one thread: no worker, no pool, no monitor runs in it, so
//! nothing of the runtime can work there. The child is told by a handler that
//! `fork` calls, and every entry point looks at the flag it leaves.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static FORKED: AtomicBool = AtomicBool::new(false);
static REGISTER: Once = Once::new();

extern "C" fn mark_child() {
    // Relaxed: the child is single-threaded when this runs.
    FORKED.store(true, Ordering::Relaxed);
}

/// Called before a thread of ours starts on which others rely: those of a runtime, and those
/// that the whole process shares. From now on a forked child is noticed.
///
/// # Panics
///
/// In a forked child.
pub(crate) fn about_to_start_threads() {
    assert_not_forked();
    REGISTER.call_once(|| {
        // SAFETY: the handler is async-signal-safe: it stores to a static.
        let error = unsafe { libc::pthread_atfork(None, None, Some(mark_child)) };
        assert_eq!(error, 0, "pthread_atfork failed with error {error}");
    });
}

/// Whether this process was forked after a thread of ours had started.
pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Panics in a process that was forked after a thread of ours had started.
#[inline]
pub(crate) fn assert_not_forked() {
    if FORKED.load(Ordering::Relaxed) {
        forked();
    }
}

/// Ends a forked child in which a thread of ours was about to go on: a worker, one of the
/// blocking pool, or one that has called a task's waker.
#[inline]
pub(crate) fn stop_forked_thread() {
    if FORKED.load(Ordering::Relaxed) {
        stop_forked_thread_slow();
    }
}

#[cold]
#[inline(never)]
fn stop_forked_thread_slow() -> ! {
    super::log::log(
        "code on a fiber, on the blocking pool or in a waker has forked and came back to the \
         runtime in the child, which has none: exec or exit there instead",
    );
    std::process::abort();
}

#[cold]
#[inline(never)]
fn forked() -> ! {
    panic!(
        "sinew cannot be used in a forked child: its worker threads exist only in the parent; exec first, or start sinew after the fork"
    );
}

/// Lets no signal be delivered to this thread any more, but those of its own faults.
pub(crate) fn block_all_signals() {
    // SAFETY: both calls get a signal set of our own, which `sigfillset` initialises.
    // Neither can fail with a valid `how`.
    unsafe {
        let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut());
    }
}

/// Aborts with this text when it is dropped by a panic; `forget` it otherwise.
///
/// For calls that must not be left before something has ended.
pub(crate) struct AbortOnUnwind(pub(crate) &'static str);

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        super::log::log(self.0);
        std::process::abort();
    }
}
