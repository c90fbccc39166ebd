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

/// Asks to be told of forks from now on; called when the first runtime starts.
pub(crate) fn watch_forks() {
    REGISTER.call_once(|| {
        // SAFETY: the handler is async-signal-safe: it stores to a static.
        let error = unsafe { libc::pthread_atfork(None, None, Some(mark_child)) };
        assert_eq!(error, 0, "pthread_atfork failed with error {error}");
    });
}

/// Whether this process was forked after a runtime had started.
pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Panics in a process that was forked after a runtime had started.
#[inline]
pub(crate) fn assert_not_forked() {
    if FORKED.load(Ordering::Relaxed) {
        forked();
    }
}

/// Ends a forked child in which a worker's loop was about to go on.
#[inline]
pub(crate) fn stop_forked_worker() {
    if FORKED.load(Ordering::Relaxed) {
        super::log::log(
            "a fiber that had forked came back to its worker in the child, \
             which has no runtime: exec or exit there instead",
        );
        std::process::abort();
    }
}

#[cold]
#[inline(never)]
fn forked() -> ! {
    panic!(
        "sinew cannot be used in a forked child: its worker threads exist only in the parent; exec first, or start sinew after the fork"
    );
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
