//! Suspending while unwinding, without anybody else noticing.
//!
//! std counts panics per thread. A fiber that suspends in a `Drop` during
//! unwinding (or in a panic hook) leaves that count raised, and the next fiber
//! on the same worker would see `panicking()`, poison its mutexes and abort
//! when it panics itself. There is no API to change the count, but it can be
//! moved by unwinding: `resume_unwind` raises it by one, and the `catch_unwind`
//! that ends the unwinding lowers it by one *on the thread where it ends*.
//!
//! A *weight* is a small coroutine stopped between the two, in a `Drop` that
//! runs during its unwinding:
//!
//! ```text
//!   make      catch_unwind ─► resume_unwind ─► Drop: suspend     count + 1
//!   complete                  Drop returns  ─► caught, returns   count − 1
//! ```
//!
//! When a fiber leaves with a count of n, n weights are completed on this
//! thread: the count is zero, as every other fiber expects. Before it goes on, n
//! weights are made: the count is n again. Weights that wait to be completed
//! are kept in one stock for the process. The first ones must be made somewhere
//! without raising the count of a thread that matters: on a short-lived thread,
//! which ends with a raised count of its own and runs nothing else.
//!
//! Completing a weight also clears std's "in a panic hook" mark, so a fiber that
//! suspends in a hook does not abort the next one that panics. The mark does not
//! come back with the count: a second panic inside the hook after the suspension
//! runs the hook again instead of aborting at once.
//!
//! Invariant (balance): between two fibers a worker's count is zero.
//!
//! Costs microseconds per suspension, paid only by fibers that wait while
//! unwinding; all others pay one load of a global (`std::thread::panicking`),
//! and, once there are weights in stock, a thread-local one as well: std's
//! count for the whole process includes them.

use crate::fiber::Block;
use crate::stack::{GuardChoice, HotStacks, PoolConfig, Stack, StackClass, StackPool};
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};

/// Enough for the unwinder, in debug builds too.
const WEIGHT_STACK: usize = 128 << 10;

/// A coroutine that is stopped in the middle of unwinding.
struct Weight(Coroutine<(), (), (), Stack>);

// SAFETY: everything on a weight's stack is ours: a unit payload in a box, the
// unwinder's state, and frames of `catch_unwind`, whose bookkeeping looks the
// thread's count up anew when it ends. That it ends on another thread than it
// began on is the point.
unsafe impl Send for Weight {}

/// Weights to complete, and the stacks of completed ones.
struct Stock {
    weights: Vec<Weight>,
    stacks: Option<HotStacks>,
}

// SAFETY: `HotStacks` is a plain cache that is not shared between threads; the
// mutex hands it to one at a time.
unsafe impl Send for Stock {}

static STOCK: Mutex<Stock> = Mutex::new(Stock {
    weights: Vec::new(),
    stacks: None,
});

fn stock() -> std::sync::MutexGuard<'static, Stock> {
    // Poisoned whenever it is used while panicking, which is all it is for.
    STOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

struct SuspendInDrop<'a>(&'a Yielder<(), ()>);

impl Drop for SuspendInDrop<'_> {
    fn drop(&mut self) {
        self.0.suspend(());
    }
}

impl Weight {
    /// Raises this thread's count by one.
    fn make() -> Self {
        let class = StackClass::for_size(WEIGHT_STACK).expect("a valid size");
        let stack = {
            let mut stock = stock();
            let stacks = stock.stacks.get_or_insert_with(|| {
                let pool = StackPool::new(PoolConfig {
                    guard: GuardChoice::Auto,
                    max_stacks: None,
                });
                HotStacks::new(Arc::new(pool), class)
            });
            stacks.take(class)
        };
        let stack = stack.unwrap_or_else(|error| {
            // A panic here would be a second one during unwinding.
            crate::sys::log::log(&format!(
                "cannot suspend a fiber that is unwinding: {error}"
            ));
            std::process::abort()
        });
        let mut coroutine = Coroutine::with_stack(stack, |yielder: &Yielder<(), ()>, ()| {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                let _suspend = SuspendInDrop(yielder);
                // `resume_unwind` raises the count and calls no hook.
                resume_unwind(Box::new(()));
            }));
            debug_assert!(caught.is_err());
        });
        match coroutine.resume(()) {
            CoroutineResult::Yield(()) => Self(coroutine),
            CoroutineResult::Return(()) => unreachable!("a weight stops before it ends"),
        }
    }

    /// Lowers this thread's count by one.
    fn complete(mut self) {
        match self.0.resume(()) {
            CoroutineResult::Return(()) => {}
            CoroutineResult::Yield(()) => unreachable!("a weight stops only once"),
        }
        let mut stock = stock();
        if let Some(stacks) = &mut stock.stacks {
            // Nobody starves in the stock's own pool.
            let _ = stacks.give(self.0.into_stack());
        }
    }
}

/// A weight made where its count does not matter.
fn mint() -> Weight {
    let made = std::thread::Builder::new()
        .name("sinew-panic-weight".into())
        .spawn(Weight::make);
    match made.map(std::thread::JoinHandle::join) {
        Ok(Ok(weight)) => weight,
        failed => {
            let why = match failed {
                Err(error) => error.to_string(),
                Ok(_) => "the helper thread panicked".into(),
            };
            crate::sys::log::log(&format!("cannot suspend a fiber that is unwinding: {why}"));
            std::process::abort()
        }
    }
}

/// A thread that seems to unwind more often than this at a time does not: its count has gone
/// below zero, where it is a huge number. That happens if a coroutine of another library is
/// suspended while it unwinds, its fiber leaves (so its panic is taken off the count with the
/// fiber's own), and another fiber lets it unwind to its end.
const DEEPEST: u16 = 256;

/// Brings the count to zero before `block` leaves; remembers how far it was.
#[cold]
pub(super) fn lower(block: &Block) {
    let mut lowered = 0;
    while std::thread::panicking() {
        if lowered == DEEPEST {
            crate::sys::log::log(
                "this thread's count of panics is wrong: was a coroutine suspended while it was \
                 unwinding, and ended by another fiber?",
            );
            std::process::abort();
        }
        let weight = stock().weights.pop();
        weight.unwrap_or_else(mint).complete();
        lowered += 1;
    }
    block.panics().set(lowered);
}

/// Brings the count back to where it was when `block` left.
#[cold]
pub(super) fn restore(block: &Block) {
    for _ in 0..block.panics().replace(0) {
        let weight = Weight::make();
        stock().weights.push(weight);
    }
}
