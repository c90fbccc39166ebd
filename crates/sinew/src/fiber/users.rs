//! Counting calls that keep something of a fiber while they run user code.
//!
//! Usually a call that returns is inside of the call around it, so a pointer that it keeps
//! to a frame outward of it is good until it is done. A coroutine of another library
//! breaks that: user code that we call on the coroutine's stack may suspend there, and
//! the stack below it goes on without it. The coroutine may be resumed, or dropped, later,
//! by another fiber of the same worker (it is not `Send`), or never.
//!
//! So what is kept meanwhile is counted, or linked, where it is, and what is about to go
//! away looks there:
//!
//! | kept by | what | where | found by |
//! |---|---|---|---|
//! | `scope`, `timeout`, `shield`, `enter` | frame, block, nest | linked at the root (`wait::chain`) | the frame outward, the fiber's end: abort |
//! | `bind` | binding | linked at the root | the binding outward, the fiber's end: abort |
//! | `scope` | the binding that its children begin with | [`Users`] of the binding | the end of `bind`: abort |
//! | `ScopedValue::with` | binding | [`Users`] of the binding, or of the root if it is a parent's | the end of `bind`, the fiber's end: abort |
//! | `blocking` | the caller's frames, which the pool thread walks | a frame of its own, linked at the root | the frame outward, the fiber's end: abort |
//! | a wait, select or cancellation point that calls wakers, `Async::read_with`, a switch that calls hooks | block, timer, place in a line | [`Users`] of the root (`wait::chain::stay`) | the fiber's end, its own return on another fiber: abort |
//! | `FiberKey::with` | value | [`Users`] of the value | the fiber's end: leaks it, and says so |
//! | a job of the pool | frames and bindings on its thread, which later jobs would see | linked in thread-locals | its end, if they are not as before: abort |
//! | `finally` | nothing while its body runs; its cleanup runs in a `shield` | | |
//! | `shield` | its fiber, which it tells to look | linked, as above: the fiber has not ended | |
//! | `block_on` | the fiber that polls | a counted reference, in its waker | itself, if another comes back from `poll`: polls again |
//! | the `poll` in it | a count in the block (`sched::polling`) | kept by that reference | undone there, though the fiber may have ended |
//! | `no_suspend` | nothing: it knows its fiber by its id | | a scope that has to wait for a child: abort |
//!
//! The memory of a suspended coroutine's frames stays until the guards in them have run,
//! so what is linked or counted there is never dangling itself.
//!
//! Invariant (one thread): a count is touched by the thread of the fiber or thread whose
//! it is. Children on other threads count at their own root.

use crate::sys::log::log;
use std::cell::Cell;
use std::ptr::NonNull;

/// How many calls keep something at this moment.
pub(crate) struct Users(Cell<u32>);

impl Users {
    pub(crate) const fn new() -> Self {
        Self(Cell::new(0))
    }

    #[inline]
    pub(crate) fn are_there(&self) -> bool {
        self.0.get() > 0
    }

    /// Counts one more, until the returned guard is dropped.
    ///
    /// # Safety
    ///
    /// The code that ends the counted thing looks here first, and frees neither that nor
    /// this count while there are users. The caller is on the thread whose count it is.
    #[inline]
    pub(crate) unsafe fn enter(&self) -> User {
        let more = self.0.get().checked_add(1);
        self.0.set(more.expect("fewer users than 2^32"));
        User(NonNull::from(self))
    }
}

/// One that is counted. Not `Send`, so it goes on the thread where it came.
#[must_use = "it is counted until this is dropped"]
pub(crate) struct User(NonNull<Users>);

impl Drop for User {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: not freed while we are counted, as `enter` was promised.
        let count = unsafe { &self.0.as_ref().0 };
        count.set(count.get() - 1);
    }
}

/// A call that linked something returns, or unwinds, while one inside of it has not: it is
/// on a stack of its own, a coroutine's of another library, and was suspended in there. To
/// go on would leave pointers to frames that are gone.
#[cold]
pub(crate) fn left_out_of_order() -> ! {
    log(
        "a scope, limit or binding was left before one inside of it: was a coroutine suspended there?",
    );
    std::process::abort()
}

/// The same for a fiber that ends.
#[cold]
pub(crate) fn ended_inside() -> ! {
    log("a fiber ended inside of a scope, limit or binding: was a coroutine suspended there?");
    std::process::abort()
}
