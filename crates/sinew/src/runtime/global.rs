//! The runtime that plain threads use.
//!
//! Started when the first plain thread spawns a fiber, and never dropped: the
//! process ends with `main`, as it does for detached threads.

use super::runtime::Runtime;
use crate::sched::shared::Shared;
use crate::sched::{current, switch};
use crate::sys::process;
use std::mem::ManuallyDrop;
use std::sync::{Arc, OnceLock};

static GLOBAL: OnceLock<Runtime> = OnceLock::new();

fn global() -> &'static Runtime {
    GLOBAL.get_or_init(|| {
        Runtime::builder()
            .name("sinew-global")
            .build()
            .unwrap_or_else(|error| panic!("cannot start the global runtime: {error}"))
    })
}

/// Calls `with` on the runtime that a `spawn` from here belongs to: the
/// worker's, the pool thread's, or the global one.
pub(crate) fn shared_for_spawn<R>(with: impl FnOnce(&Arc<Shared>) -> R) -> R {
    process::assert_not_forked();
    let core = current::core();
    if !core.is_null() {
        // SAFETY: a non-null core is this thread's and alive, and has an `Arc`. This is not one
        // more, and counts nothing down. `with` may drop closures, which may suspend, and a
        // migratable fiber may leave the worker and its core there. But user code runs on a
        // worker only in a fiber, and a `Shared` is freed only when no fiber of it is alive
        // (`worker::shutdown`, invariant "homes").
        let shared = unsafe { Arc::from_raw(Arc::as_ptr((*core).shared())) };
        let shared = ManuallyDrop::new(shared);
        return with(&shared);
    }
    let pool = current::pool_of();
    if !pool.is_null() {
        // SAFETY: a pool thread holds an `Arc` of its runtime while it runs
        // jobs; this makes one more from it for the time of the call.
        let shared = unsafe {
            Arc::increment_strong_count(pool);
            Arc::from_raw(pool)
        };
        return with(&shared);
    }
    with(global().shared())
}

/// Whether it is the global runtime.
pub(super) fn is_global(shared: &Arc<Shared>) -> bool {
    // It is never freed, so no other is ever at its address.
    GLOBAL
        .get()
        .is_some_and(|global| Arc::ptr_eq(global.shared(), shared))
}

/// Calls `wait`, which waits for the children of a scope. The children of a plain thread are
/// fibers of the global runtime, if there is one; it is told that somebody waits for them
/// (`worker::stall`).
pub(crate) fn awaiting_children<R>(wait: impl FnOnce() -> R) -> R {
    let global = GLOBAL.get().filter(|_| switch::running().is_none());
    let shared = global.map(|global| &**global.shared());
    let _waits = shared.map(|shared| shared.awaited.begin(&shared.monitor));
    wait()
}
