//! One small stack that a runtime sets aside when it is built.
//!
//! A fiber that was cancelled before it ran, or that can get no stack, still has a closure
//! to drop and somebody to tell of its end. Both are user code, which runs on a fiber's
//! stack only. So there is always one for that: fibers that will only end, and find no
//! small stack in the runtime's own pool, take turns on it (`worker::starve`). They may wait
//! there as on any other, but not for each other.
//!
//! It comes from a pool of its own, so that it counts for nothing in the runtime's.
//!
//! Invariant: the stack is in `free`, or one fiber runs on it, or (leaked) never ends.

use super::class::StackClass;
use super::guard::GuardChoice;
use super::handle::Stack;
use super::no_stack::NoStack;
use super::pool::{PoolConfig, StackPool};
use crate::sys::Lock;

/// Enough for a drop that panics with a message, also in a debug build.
const BYTES: usize = 64 << 10;

/// See the module header.
#[derive(Debug)]
pub(crate) struct Reserve {
    pool: StackPool,
    free: Lock<Option<Stack>>,
}

impl Reserve {
    /// Nothing is set aside yet.
    pub(crate) fn new(guard: GuardChoice) -> Self {
        Self {
            pool: StackPool::new(PoolConfig {
                guard,
                max_stacks: Some(1),
            }),
            free: Lock::new(None),
        }
    }

    /// The class of the stack.
    pub(crate) fn class() -> StackClass {
        StackClass::for_size(BYTES).expect("a valid size")
    }

    /// Sets the stack aside; called once.
    pub(crate) fn fill(&self) -> Result<(), NoStack> {
        let mut stacks = Vec::with_capacity(1);
        self.pool.take(Self::class(), 1, &mut stacks)?;
        *self.free.lock() = stacks.pop();
        Ok(())
    }

    /// The stack, if nobody has it.
    ///
    /// A worker that is refused has said before that it waits for it. The one that gives
    /// the stack back takes the lock after that, so it sees who waits.
    pub(crate) fn take(&self) -> Option<Stack> {
        self.free.lock().take()
    }

    /// Takes it back; the caller then wakes those who wait for it.
    pub(crate) fn give(&self, stack: Stack) {
        debug_assert_eq!(stack.pool(), self.pool.tag());
        *self.free.lock() = Some(stack);
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        if let Some(stack) = self.free.get_mut().take() {
            // Nobody starves in this pool.
            let _ = self.pool.put(std::iter::once(stack));
        } // else a leaked fiber has it: its slab is leaked with it
    }
}
