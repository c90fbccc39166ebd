//! The thread-locals: which worker, which runtime, which proxy.
//!
//! The only file that declares any. A migratable fiber may be on another thread
//! after each suspension, and a compiler that has computed a thread-local's
//! address once may use it again: even through `#[inline(never)]` functions, if
//! it finds out that they are pure. So every access is a function that is never
//! inlined, contains a compiler barrier, and returns a plain value, never a
//! reference (a test in `tests/api/migrate.rs` proves it in a release build with
//! LTO).
//!
//! Constant-initialised and without destructors, but for the proxy and the locals: a
//! read is
//! one instruction and valid also in a signal handler.

use super::core::Core;
use super::shared::Shared;
use crate::fiber::cancel::Frame;
use crate::fiber::locals::Locals;
use crate::fiber::{Binding, ThreadProxy};
use crate::primitive;
use std::arch::asm;
use std::cell::{Cell, OnceCell};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

static NEVER: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The worker of this thread, if it is one.
    static CORE: Cell<*const Core> = const { Cell::new(ptr::null()) };
    /// The runtime whose pool this thread belongs to, if any.
    static POOL: Cell<*const Shared> = const { Cell::new(ptr::null()) };
    /// The flag that a safepoint looks at.
    static PREEMPT: Cell<*const AtomicBool> = const { Cell::new(&NEVER) };
    /// The innermost frame on this thread's own stack (`fiber::cancel`).
    static FRAMES: Cell<*const Frame> = const { Cell::new(ptr::null()) };
    /// The innermost binding of a scoped value there.
    static VALUES: Cell<*const Binding> = const { Cell::new(ptr::null()) };
    /// The thread's values of `fiber_local!`.
    static LOCALS: OwnLocals = const { OwnLocals(Locals::new()) };
    /// What stands for this thread where a fiber is expected.
    static PROXY: OnceCell<OwnProxy> = const { OnceCell::new() };
    /// The same once the locals of this thread are being destroyed: leaked, so
    /// that it needs no destructor.
    static LATE_PROXY: Cell<*const ThreadProxy> = const { Cell::new(ptr::null()) };
}

/// Says that the thread has ended when its locals are destroyed.
struct OwnProxy(Arc<ThreadProxy>);

impl Drop for OwnProxy {
    fn drop(&mut self) {
        self.0.set_ended();
    }
}

/// Drops them in order when the thread ends.
struct OwnLocals(Locals);

impl Drop for OwnLocals {
    fn drop(&mut self) {
        // A thread's: the panic hook has told of what panicked.
        let _panicked = self.0.drop_all();
    }
}

/// Keeps the compiler from treating the caller as pure.
#[inline(always)]
fn barrier() {
    // SAFETY: no instructions; not marked `nomem` or `pure`, so the compiler
    // must assume that memory changed, and cannot reuse an earlier result.
    unsafe { asm!("", options(nostack, preserves_flags)) };
}

/// This thread's worker; null on other threads.
#[inline(never)]
pub(crate) fn core() -> *const Core {
    barrier();
    CORE.get()
}

/// Makes this thread a worker, or ends that with null.
#[inline(never)]
pub(crate) fn set_core(core: *const Core) {
    barrier();
    CORE.set(core);
    let flag = if core.is_null() {
        ptr::from_ref(&NEVER)
    } else {
        // SAFETY: the worker's loop passes its own live core.
        ptr::from_ref(&unsafe { &*core }.remote().preempt)
    };
    PREEMPT.set(flag);
}

/// The runtime whose pool this thread belongs to; null on other threads.
#[inline(never)]
pub(crate) fn pool_of() -> *const Shared {
    barrier();
    POOL.get()
}

#[inline(never)]
pub(crate) fn set_pool_of(shared: *const Shared) {
    barrier();
    POOL.set(shared);
}

/// The innermost frame on this thread's own stack.
#[inline(never)]
pub(crate) fn frames() -> *const Frame {
    barrier();
    FRAMES.get()
}

#[inline(never)]
pub(crate) fn set_frames(frame: *const Frame) {
    barrier();
    FRAMES.set(frame);
}

/// The innermost binding of a scoped value on this thread's own stack.
#[inline(never)]
pub(crate) fn values() -> *const Binding {
    barrier();
    VALUES.get()
}

#[inline(never)]
pub(crate) fn set_values(binding: *const Binding) {
    barrier();
    VALUES.set(binding);
}

/// This thread's own values of `fiber_local!`; none while they are destroyed.
///
/// A pointer, for it is used by code that may not be left in between: a plain
/// thread stays what it is.
#[inline(never)]
pub(crate) fn locals() -> Option<ptr::NonNull<Locals>> {
    barrier();
    LOCALS.try_with(|own| ptr::NonNull::from(&own.0)).ok()
}

/// Whether the fiber should yield.
#[inline(never)]
pub(crate) fn preempt_requested() -> bool {
    barrier();
    let flag = PREEMPT.get();
    // SAFETY: a static, or the flag of the worker whose loop runs on this very
    // thread, whose core is alive (`sched::core`, invariant 2).
    unsafe { &*flag }.load(Ordering::Relaxed)
}

/// This thread's proxy, made at first use.
#[inline(never)]
pub(crate) fn proxy() -> Arc<ThreadProxy> {
    barrier();
    if primitive::MODELLED {
        // A model runs its threads on one OS thread, and a proxy must not
        // outlive a run of the model.
        return ThreadProxy::of_current_thread();
    }
    PROXY
        .try_with(|cell| {
            let own = cell.get_or_init(|| OwnProxy(ThreadProxy::of_current_thread()));
            own.0.clone()
        })
        .unwrap_or_else(|_| late_proxy())
}

/// One for the rest of the thread's life: whoever waits and whoever wakes it
/// must mean the same.
#[cold]
fn late_proxy() -> Arc<ThreadProxy> {
    if LATE_PROXY.get().is_null() {
        LATE_PROXY.set(Arc::into_raw(ThreadProxy::of_current_thread()));
    }
    // SAFETY: made by `into_raw` on this thread, and never freed: the count that
    // it took along stays.
    unsafe {
        Arc::increment_strong_count(LATE_PROXY.get());
        Arc::from_raw(LATE_PROXY.get())
    }
}
