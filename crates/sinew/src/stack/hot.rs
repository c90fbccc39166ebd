//! Stacks that one worker keeps at hand.
//!
//! A fiber that ends leaves a stack whose pages and cache lines are hot; the
//! next fiber that starts on this worker gets it. Each class has a pile, last
//! in, first out, that only its worker touches: no atomics but plain stores of
//! a counter, no system calls.
//!
//! An empty pile is refilled from the pool with a batch that doubles each time
//! (1, 2, 4 … 64), so that a runtime with three fibers has three stacks and one
//! that spawns a million rarely takes the lock. A pile that overflows hands
//! its older half back and halves the next batch.
//!
//! While somebody starves ([`StackPool::begin_starving`]) nothing is kept: what
//! comes back goes to the pool at once, with all that is hot here, and the
//! caller is told to wake those who wait.
//!
//! Invariant 1: a pile holds stacks of its class and of `pool` only.
//! Invariant 2: `count` is the sum of all piles' lengths.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::class::StackClass;
use super::handle::Stack;
use super::no_stack::NoStack;
use super::pool::{Given, MAX_BATCH, StackPool};
use super::trim::Trim;

/// The most stacks in a pile of small ones.
const PILE: usize = 2 * MAX_BATCH;
/// Reserve in a pile of big stacks, which may be resident up to that much.
const PILE_BYTES: usize = 256 << 20;
/// The fewest that a full pile holds.
const MIN_PILE: usize = 4;
/// How many [`HotStacks::flush`] leaves.
const FEW: usize = 4;

/// One worker's stacks of one class.
#[derive(Debug)]
struct Pile {
    class: StackClass,
    stacks: Vec<Stack>,
    /// How many the next refill asks for.
    batch: usize,
    /// More than this many overflow.
    max: usize,
}

/// One worker's stacks.
#[derive(Debug)]
pub(crate) struct HotStacks {
    pool: Arc<StackPool>,
    /// The class that most fibers use.
    common: Pile,
    /// Other classes, as they come.
    others: Vec<Pile>,
    /// Read by [`StackPool::stats`], written by us alone.
    count: Arc<AtomicUsize>,
    /// Not `Sync`: a worker's own.
    _own: PhantomData<Cell<()>>,
}

impl HotStacks {
    /// Nothing yet; `common` is the class that is to be fast.
    pub(crate) fn new(pool: Arc<StackPool>, common: StackClass) -> HotStacks {
        let count = Arc::new(AtomicUsize::new(0));
        pool.count_hot(&count);
        let common = Pile::new(common);
        HotStacks {
            pool,
            common,
            others: Vec::new(),
            count,
            _own: PhantomData,
        }
    }

    /// A stack for a fiber that starts now.
    ///
    /// # Errors
    ///
    /// [`NoStack`] when there is none here and the pool can make none.
    #[inline]
    pub(crate) fn take(&mut self, class: StackClass) -> Result<Stack, NoStack> {
        if class == self.common.class {
            if let Some(stack) = self.common.stacks.pop() {
                self.add_count(-1);
                return Ok(stack);
            }
        }
        self.take_slow(class)
    }

    #[cold]
    #[inline(never)]
    fn take_slow(&mut self, class: StackClass) -> Result<Stack, NoStack> {
        let pile = pile_of(&mut self.common, &mut self.others, class);
        if pile.stacks.is_empty() {
            // Who shares with the starving takes no more than is needed.
            let want = if self.pool.is_starving() {
                1
            } else {
                pile.batch
            };
            if let Err(error) = self.pool.take(class, want, &mut pile.stacks) {
                // Free stacks of other classes may hold what is missing.
                if self.pool.excess() == 0 || self.pool.trim(Trim::All).stacks == 0 {
                    return Err(error);
                }
                self.pool.take(class, want, &mut pile.stacks)?;
            }
            pile.batch = (pile.batch * 2).min(pile.max / 2);
        }
        let stack = pile.stacks.pop().expect("the pool gave at least one");
        self.recount();
        Ok(stack)
    }

    /// Takes back the stack of a fiber that has ended.
    #[inline]
    pub(crate) fn give(&mut self, stack: Stack) -> Given {
        let common = &mut self.common;
        if stack.class() == common.class
            && stack.pool() == self.pool.tag()
            && common.stacks.len() < common.max
            && !self.pool.is_starving()
        {
            common.stacks.push(stack);
            self.add_count(1);
            return Given::Kept;
        }
        self.give_slow(stack)
    }

    #[cold]
    #[inline(never)]
    fn give_slow(&mut self, stack: Stack) -> Given {
        assert_eq!(
            stack.pool(),
            self.pool.tag(),
            "a stack was given to a pool it is not from"
        );
        let pile = pile_of(&mut self.common, &mut self.others, stack.class());
        pile.stacks.push(stack);
        if self.pool.is_starving() {
            return self.flush();
        }
        let mut given = Given::Kept;
        if pile.stacks.len() > pile.max {
            // The older half: its lines are the coldest.
            given = self.pool.put(pile.stacks.drain(..pile.max / 2));
            pile.batch = (pile.batch / 2).max(1);
        }
        self.recount();
        given
    }

    /// Hands all but a few stacks to the pool, and all while somebody starves;
    /// for a worker that runs out of work, or was woken by a starving one.
    ///
    /// Answers [`Given::Wanted`] if it brought stacks that somebody waits for.
    pub(crate) fn flush(&mut self) -> Given {
        let keep = if self.pool.is_starving() { 0 } else { FEW };
        let mut given = Given::Kept;
        for pile in std::iter::once(&mut self.common).chain(&mut self.others) {
            let surplus = pile.stacks.len().saturating_sub(keep);
            if surplus > 0 && self.pool.put(pile.stacks.drain(..surplus)) == Given::Wanted {
                given = Given::Wanted;
            }
            pile.batch = 1;
        }
        self.recount();
        given
    }

    /// How many stacks are hot here.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        // Relaxed: we are the one who writes it.
        self.count.load(Relaxed)
    }

    /// The pool that this worker shares with others.
    #[cfg(test)]
    pub(crate) fn pool(&self) -> &Arc<StackPool> {
        &self.pool
    }

    #[inline]
    fn add_count(&self, by: isize) {
        // Relaxed, and not one read-modify-write: we alone write it, and
        // `stats` wants only a number.
        self.count
            .store(self.count.load(Relaxed).wrapping_add_signed(by), Relaxed);
    }

    fn recount(&self) {
        let others: usize = self.others.iter().map(|pile| pile.stacks.len()).sum();
        // Relaxed: as above.
        self.count.store(self.common.stacks.len() + others, Relaxed);
    }
}

impl Drop for HotStacks {
    fn drop(&mut self) {
        for pile in std::iter::once(&mut self.common).chain(&mut self.others) {
            // A worker that ends while others starve flushes before, and tells
            // them; here nobody is left to tell.
            let _ = self.pool.put(pile.stacks.drain(..));
        }
    }
}

impl Pile {
    fn new(class: StackClass) -> Pile {
        let max = (PILE_BYTES / class.bytes()).clamp(MIN_PILE, PILE);
        // One more than `max`, for the one that overflows.
        Pile {
            class,
            stacks: Vec::with_capacity(max + 1),
            batch: 1,
            max,
        }
    }
}

/// The pile of a class. Not a method: the caller uses the pool beside it.
fn pile_of<'a>(common: &'a mut Pile, others: &'a mut Vec<Pile>, class: StackClass) -> &'a mut Pile {
    if common.class == class {
        return common;
    }
    // A handful at most: looking through them is quicker than hashing.
    let index = others
        .iter()
        .position(|pile| pile.class == class)
        .unwrap_or_else(|| {
            others.push(Pile::new(class));
            others.len() - 1
        });
    &mut others[index]
}
