//! Threads of workers that cannot end, because fibers were leaked.
//!
//! A runtime that is given up leaks its started fibers. Their stacks stay, but frames on
//! them may also borrow from the *thread*: `X.with(|x| …)` of a `thread_local!` hands out
//! a reference that is good until the thread ends, and a pinned fiber may keep it across
//! waits. It may have lent it on: to a closure of `blocking`, to children of a scope, to
//! a closure of another runtime's `run`, or, as the buffer of a read, to the kernel. All
//! these go on after the runtime was given up.
//!
//! So a worker that is the home of a started fiber never returns from its thread's
//! main function: the thread-locals are not destroyed, and the core, the ring and the
//! alternate stack stay where they are. What costs something and is used by nobody goes:
//! the epoll set, which writes to no memory of ours, and the cached stacks and blocks.
//!
//! Invariant (kept): a thread-local of a worker's thread is destroyed only when no
//! started fiber has this worker as its home. Only the worker's own thread makes it a
//! home, so if [`slab::is_home`] returns false after the last switch, that is final.
//!
//! Process exit does not wait for such threads: they are as detached as any other.

use crate::fiber::slab;
use crate::primitive::AtomicU32;
use crate::sched::core::Core;
use crate::sys::{futex, process};

/// Whether this worker, which has left its loop, is the home of a leaked fiber.
pub(super) fn must_stay(core: &Core) -> bool {
    slab::is_home(core.home())
}

/// Gives back what no leaked fiber uses; the worker's thread is about to stay for ever.
pub(super) fn give_back(core: &Core) {
    // Nobody starts a fiber any more, so it does not matter if stacks are wanted.
    let _ = core.with_stacks(|stacks| stacks.flush());
    core.with_blocks(|blocks| blocks.shrink_to(0));
}

/// Sleeps until the process ends; never returns, and runs no user code.
pub(super) fn sleep_for_ever() -> ! {
    // Else a handler of the program could run here, in the middle of nothing.
    process::block_all_signals();
    let word = AtomicU32::new(0);
    loop {
        // Nobody knows the word. What ends the wait all the same is spurious.
        futex::wait(&word, 0, None);
    }
}
