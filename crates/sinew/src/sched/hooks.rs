//! User code that runs at every switch: the process's pair of hooks, and, with the
//! feature `tracing`, the spans of the fiber.
//!
//! All fibers of a worker share its thread, hence every context that a library keeps per
//! thread. A hook takes the fiber's context off the thread before the fiber leaves it, and
//! puts it back when the fiber is there again:
//!
//! ```text
//!   first frame    resume hook
//!   …
//!   leave          suspend hook ─► switch ─► (other fibers) ─► switch ─► resume hook
//!   …
//!   first frame    suspend hook: the last thing on this stack that is user code
//! ```
//!
//! The calls are on the fiber's own stack, inside the switch: the fiber may be in a wait
//! queue already, and somebody may have claimed its wait. A second wait would take the
//! notification of the first. So hooks run under `no_suspend`, and since nothing may unwind
//! out of a switch, a panic in one aborts the process.
//!
//! The pair is set before the first runtime is built and never changes after that. So a
//! fiber that was suspended by one pair is resumed by the same pair, and a switch reads
//! nothing but one pointer.
//!
//! Invariant 1 (settled): the pointer is not null from the start of the first runtime on,
//! and then never changes.
//! Invariant 2 (pairs): on each thread calls of resume and suspend alternate, beginning with
//! a resume, each pair of them for one fiber. A fiber that is leaked while it waits has had
//! its suspend; a fiber that is leaked while it runs keeps its thread.
//! Invariant 3 (uncounted): while a hook runs the thread's count of panics is zero, also if
//! the fiber is unwinding. So a panic in a hook is one panic, not a second one.

use crate::fiber::locals::Locals;
use crate::fiber::{Block, IN_HOOK};
use crate::sys::log::log;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The two functions.
pub(crate) struct Pair {
    pub(crate) suspend: Box<dyn Fn() + Send + Sync>,
    pub(crate) resume: Box<dyn Fn() + Send + Sync>,
}

/// Why a pair was not installed.
pub(crate) enum Refused {
    /// There is one already.
    AlreadySet,
    /// A runtime was started without one.
    Started,
}

/// Alone in its cache line, which is written twice at most.
#[repr(align(64))]
struct Settled(AtomicPtr<Pair>);

/// Null while a pair may be installed; [`without`] if a runtime was started before one was;
/// else a leaked pair.
static PAIR: Settled = Settled(AtomicPtr::new(ptr::null_mut()));

/// Stands for "no hooks, for good": an address that no pair has.
const fn without() -> *mut Pair {
    ptr::without_provenance_mut(1)
}

/// Installs the pair for all fibers of this process.
pub(crate) fn install(pair: Pair) -> Result<(), Refused> {
    let pair = Box::into_raw(Box::new(pair));
    // Release: whoever finds the pair sees what is in it; pairs with the Acquire in
    // `settle`. Relaxed on failure: only the address is looked at.
    let installed =
        PAIR.0
            .compare_exchange(ptr::null_mut(), pair, Ordering::Release, Ordering::Relaxed);
    let Err(found) = installed else {
        return Ok(());
    };
    // SAFETY: ours from above, and nobody else has seen it.
    drop(unsafe { Box::from_raw(pair) });
    if found == without() {
        Err(Refused::Started)
    } else {
        Err(Refused::AlreadySet)
    }
}

/// A runtime is about to start: from now on no pair can be installed (invariant 1).
pub(crate) fn settle() {
    // Acquire: pairs with the Release in `install`. The threads of the runtime are started
    // after this, so they and all that they start see the pair, too.
    let _ = PAIR.0.compare_exchange(
        ptr::null_mut(),
        without(),
        Ordering::Acquire,
        Ordering::Acquire,
    );
}

/// The pair, if there is one.
#[inline(always)]
fn pair() -> Option<&'static Pair> {
    // Relaxed: a fiber runs, so `settle` was called before on the thread that started the
    // runtime, and the value does not change any more (invariant 1).
    let pair = PAIR.0.load(Ordering::Relaxed);
    // Both null, which models see, and `without` are no addresses of pairs.
    if pair.addr() <= 1 {
        return None;
    }
    // SAFETY: leaked by `install`, and never freed once it was installed.
    Some(unsafe { &*pair })
}

/// Whether a switch has to call anything.
#[inline(always)]
fn wanted() -> bool {
    #[cfg(feature = "tracing")]
    if tracing_core::dispatcher::has_been_set() {
        return true;
    }
    pair().is_some()
}

/// The running fiber `fiber` is about to leave its stack.
#[inline(always)]
pub(crate) fn suspend(fiber: &Block) {
    if wanted() {
        suspend_slow(fiber);
    }
}

/// The fiber is back on its stack, perhaps on another thread if it is migratable.
#[inline(always)]
pub(crate) fn resume(fiber: &Block) {
    if wanted() {
        resume_slow(fiber);
    }
}

/// The fiber is about to leave its stack for good. What hooks have made of its locals is
/// dropped, under the same rules. True if the drop of one panicked.
#[inline(always)]
pub(crate) fn end(fiber: &Block, locals: &Locals) -> bool {
    wanted() && end_slow(fiber, locals)
}

const SUSPEND: &str =
    "a suspend hook, or a tracing subscriber in one, panicked or tried to wait; see sinew::hooks";
const RESUME: &str =
    "a resume hook, or a tracing subscriber in one, panicked or tried to wait; see sinew::hooks";

#[cold]
#[inline(never)]
fn suspend_slow(fiber: &Block) {
    guarded(fiber, SUSPEND, || {
        // While the spans are still there: a hook may write to the log.
        call(|pair| (pair.suspend)());
        #[cfg(feature = "tracing")]
        root(fiber).spans().take_off();
    });
}

#[cold]
#[inline(never)]
fn resume_slow(fiber: &Block) {
    guarded(fiber, RESUME, || {
        #[cfg(feature = "tracing")]
        root(fiber).spans().put_back();
        call(|pair| (pair.resume)());
    });
}

#[cold]
#[inline(never)]
fn end_slow(fiber: &Block, locals: &Locals) -> bool {
    let mut panicked = false;
    guarded(fiber, SUSPEND, || {
        call(|pair| (pair.suspend)());
        #[cfg(feature = "tracing")]
        root(fiber).spans().discard();
        panicked = locals.drop_all();
    });
    panicked
}

fn call(hook: impl FnOnce(&'static Pair)) {
    if let Some(pair) = pair() {
        hook(pair);
    }
}

/// Runs `hooks` so that they can neither wait nor unwind.
fn guarded(fiber: &Block, refused: &str, hooks: impl FnOnce()) {
    // The fiber may be in the middle of a wait, and on a coroutine of another library that a hook
    // suspends: so it is counted as one that has not returned (`fiber::users`).
    // Until it has, the fiber may not leave its worker, so no other can resume the coroutine.
    // SAFETY: the fiber runs here, and its end looks at the count. A model has no root.
    let _user = unsafe { fiber.root().as_ref().map(|root| root.users().enter()) };
    let depth = fiber.no_suspend();
    let before = depth.replace(depth.get() | IN_HOOK);
    // Caught here, not by a guard's `Drop`: the first resume and the last suspend are at the
    // root of the stack, where no frame further out need catch anything. Then unwinding would
    // not even begin, and no guard would be dropped.
    if catch_unwind(AssertUnwindSafe(hooks)).is_err() {
        log(refused);
        std::process::abort();
    }
    // As it was, whatever coroutines have entered or left meanwhile: the fiber may be in the
    // middle of a wait, which must go on.
    depth.set(before);
}

#[cfg(feature = "tracing")]
fn root(fiber: &Block) -> &crate::fiber::Root {
    // SAFETY: the fiber runs here and its first frame has not returned, so it has a root.
    unsafe { &*fiber.root() }
}
