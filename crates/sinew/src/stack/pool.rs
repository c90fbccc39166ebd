//! The stacks of one runtime that no worker holds.
//!
//! Used (*dirty*) stacks are handed out first, since they cost no call and no
//! fault. Only when there are none, fresh ones are guarded and their top page
//! is touched, a batch at a time and outside the lock: the slots are marked as
//! taken before, and a failure puts them back.
//!
//! Invariant 1: no user code runs under the lock, and no system call but the
//! `mmap` of a new slab.
//! Invariant 2: a slab that is not idle when the pool drops is leaked: somebody
//! may still run there (rule 3).

use std::ops::DerefMut;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::class::StackClass;
use super::guard::{GuardChoice, GuardKind, Guards};
use super::handle::Stack;
use super::no_stack::NoStack;
use super::shelves::{Picked, Shelves};
use crate::primitive;
use crate::sys::Lock;
use crate::sys::map::{Span, page_size};

/// The most stacks handed over at a time.
pub(super) const MAX_BATCH: usize = 64;
/// Free stacks that keep their pages through every trim.
pub(super) const KEEP: usize = 64;

/// How a pool is made.
#[derive(Clone, Debug, Default)]
pub(crate) struct PoolConfig {
    /// How stacks are guarded.
    pub(crate) guard: GuardChoice,
    /// The most stacks outside the pool at a time, workers' hot ones included;
    /// for tests.
    pub(crate) max_stacks: Option<usize>,
}

/// What became of a stack that was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "somebody may wait for this stack"]
pub(crate) enum Given {
    /// Nobody waits for it.
    Kept,
    /// It is in the pool, and somebody waits: wake the starving workers.
    Wanted,
}

/// A pool in numbers, taken at about the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolStats {
    /// Held by fibers (or leaked).
    pub(crate) stacks_in_use: usize,
    /// Guarded and free, here or hot with a worker.
    pub(crate) stacks_free: usize,
    /// Addresses reserved for slabs.
    pub(crate) reserved_bytes: usize,
    /// How they are guarded.
    pub(crate) guard: GuardKind,
}

/// Keeps a word that all workers read away from words that some write.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart<T>(T);

/// The stacks of one runtime.
#[derive(Debug)]
pub(crate) struct StackPool {
    /// How many wait for a stack. Read at each give, seldom written.
    starving: Apart<primitive::AtomicUsize>,
    /// See [`StackPool::excess`]; written under the lock.
    excess: AtomicUsize,
    tag: u16,
    max_stacks: usize,
    guards: Guards,
    shelves: Lock<Shelves>,
    /// How many hot stacks each worker has; each written by its worker only.
    hot: Mutex<Vec<Weak<AtomicUsize>>>,
}

impl StackPool {
    /// A pool without stacks; nothing is mapped before the first is taken.
    pub(crate) fn new(config: PoolConfig) -> StackPool {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        StackPool {
            starving: Apart::default(),
            excess: AtomicUsize::new(0),
            // Relaxed: only the number matters.
            tag: NEXT.fetch_add(1, Relaxed),
            max_stacks: config.max_stacks.unwrap_or(usize::MAX),
            guards: Guards::new(config.guard),
            shelves: Lock::new(Shelves::new(config.max_stacks)),
            hot: Mutex::new(Vec::new()),
        }
    }

    /// Appends between one and `want` stacks to `into`, the best one last.
    pub(super) fn take(
        &self,
        class: StackClass,
        want: usize,
        into: &mut Vec<Stack>,
    ) -> Result<(), NoStack> {
        let first = into.len();
        let mut picked = [Picked::default(); MAX_BATCH];
        let mut count = 0;
        {
            let mut shelves = self.lock();
            let want = want
                .clamp(1, MAX_BATCH)
                .min(self.max_stacks.saturating_sub(shelves.out));
            if want == 0 {
                return Err(NoStack::pool_limit(class.bytes(), self.max_stacks));
            }
            while into.len() - first < want {
                let Some((slab, slot, low)) = shelves.pick_dirty(class) else {
                    break;
                };
                // SAFETY: the slot was dirty, so that it has a guard, and is
                // taken now: invariants 1 and 2 of `handle`.
                into.push(unsafe { Stack::new(low, slot, class, slab, self.tag) });
            }
            if into.len() == first {
                while count < want {
                    match shelves.pick_fresh(class) {
                        Ok(pick) => picked[count] = pick,
                        Err(_) if count > 0 => break,
                        Err(error) => {
                            drop(shelves); // counting mappings takes long
                            return Err(NoStack::refused(class.bytes(), "mmap", &error));
                        }
                    }
                    count += 1;
                }
            }
            self.publish(&shelves);
        }
        let picked = &picked[..count];
        let result = self.prepare(class, picked);
        let ready = *result.as_ref().map_or_else(|(ready, _)| ready, |()| &count);
        for pick in &picked[..ready] {
            let Picked {
                slab, slot, low, ..
            } = *pick;
            // SAFETY: the slot is taken, and `prepare` put a guard in it:
            // invariants 1 and 2 of `handle`.
            into.push(unsafe { Stack::new(low, slot, class, slab, self.tag) });
        }
        into[first..].reverse();
        match result {
            Err((0, error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Guards and touches fresh slots; puts back those that got no guard.
    fn prepare(&self, class: StackClass, picked: &[Picked]) -> Result<(), (usize, NoStack)> {
        let mut spans = [Span { start: 0, len: 0 }; MAX_BATCH];
        // Slots that have a guard already need no call: raw ones come last
        // within a slab, but not over several, so each is looked at.
        let mut raw = 0;
        for pick in picked.iter().filter(|pick| pick.raw) {
            spans[raw] = Span {
                start: pick.low,
                len: class.guard_bytes(),
            };
            raw += 1;
        }
        // SAFETY: the slots are taken and have no handle yet, so that they are
        // ours alone, and being fresh they hold nothing.
        let (split, result) = unsafe { self.guards.install(class, &spans[..raw]) };
        if split != 0 {
            let mut shelves = self.lock();
            for (index, pick) in picked.iter().filter(|pick| pick.raw).enumerate() {
                if split & (1 << index) != 0 {
                    shelves.slab_mut(pick.slab).note_split();
                }
            }
        }
        let result = result.map_err(|(done, error)| {
            // The first slot without a guard, counted over all of them.
            let ready = picked
                .iter()
                .enumerate()
                .filter(|(_, pick)| pick.raw)
                .nth(done)
                .map_or(picked.len(), |(index, _)| index);
            let mut shelves = self.lock();
            for pick in &picked[ready..] {
                shelves.unpick(pick);
            }
            self.publish(&shelves);
            (ready, error)
        });
        let ready = result
            .as_ref()
            .map_or_else(|(ready, _)| *ready, |()| picked.len());
        let page = page_size();
        for (span, pick) in spans.iter_mut().zip(&picked[..ready]) {
            *span = Span {
                start: pick.low + class.bytes() - page,
                len: page,
            };
        }
        // SAFETY: as above.
        unsafe { self.guards.populate(&spans[..ready]) };
        result
    }

    /// Takes stacks back; they keep their pages until a trim. Answers whether
    /// somebody waits for them.
    pub(super) fn put(&self, stacks: impl Iterator<Item = Stack>) -> Given {
        let mut shelves = self.lock();
        for stack in stacks {
            assert_eq!(
                stack.pool(),
                self.tag,
                "a stack was given to a pool it is not from"
            );
            shelves.put_dirty(stack);
        }
        self.publish(&shelves);
        drop(shelves);
        // Looked at after the lock was ours: whoever began to starve and then
        // found nothing here held the lock before us, so that we see it; whoever
        // comes after us finds these stacks. So none lies here unheard of.
        if self.is_starving() {
            Given::Wanted
        } else {
            Given::Kept
        }
    }

    /// Says that somebody waits for a stack: from now on each
    /// [`HotStacks::give`](super::HotStacks::give) brings its stack here.
    ///
    /// A starving worker calls this, tries to take once more, and then wakes
    /// the others, each of which calls [`HotStacks::flush`](super::HotStacks::flush):
    /// what is hot with a worker only that worker can bring. After that no
    /// stack comes back without somebody being told [`Given::Wanted`].
    pub(crate) fn begin_starving(&self) {
        // SeqCst: in one order with the fences of the idle protocol, so that a
        // worker that goes to sleep after we looked for sleepers sees it.
        self.starving.0.fetch_add(1, SeqCst);
    }

    /// Takes one [`begin_starving`](Self::begin_starving) back.
    pub(crate) fn end_starving(&self) {
        // Relaxed is enough to stop: a give that still sees the old count only
        // brings its stack here without need. SeqCst costs nothing on this path.
        let before = self.starving.0.fetch_sub(1, SeqCst);
        debug_assert!(before > 0, "starving ended more often than it began");
    }

    /// Whether anybody waits for a stack.
    #[inline]
    pub(crate) fn is_starving(&self) -> bool {
        // Relaxed: a give that misses it keeps its stack hot; that worker is
        // woken and flushes (see `begin_starving`), which is ordered by the
        // wake-up.
        self.starving.0.load(Relaxed) != 0
    }

    /// Whether every stack is here: none is in use or hot with a worker, so that none can
    /// come back.
    pub(crate) fn is_complete(&self) -> bool {
        self.lock().out == 0
    }

    /// Whether a stack of this class can be had without asking the kernel for memory.
    pub(crate) fn has(&self, class: StackClass) -> bool {
        let shelves = self.lock();
        shelves.out < self.max_stacks && shelves.has(class)
    }

    /// How much a [`trim`](Self::trim) could give back, in stacks and slabs;
    /// 0 when there is nothing to do. One load.
    pub(crate) fn excess(&self) -> usize {
        // Relaxed: a hint; `trim` looks again under the lock.
        self.excess.load(Relaxed)
    }

    /// What the pool holds.
    pub(crate) fn stats(&self) -> PoolStats {
        // Relaxed: each count is right on its own; together they are as good
        // as any picture of a moving thing.
        let hot: usize = self
            .hot
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .filter_map(|count| Some(count.upgrade()?.load(Relaxed)))
            .sum();
        let shelves = self.lock();
        let in_use = shelves.out.saturating_sub(hot);
        PoolStats {
            stacks_in_use: in_use,
            stacks_free: shelves.guarded.saturating_sub(in_use),
            reserved_bytes: shelves.reserved,
            guard: self.guards.kind(),
        }
    }

    /// Takes part in [`stats`](Self::stats).
    pub(super) fn count_hot(&self, count: &Arc<AtomicUsize>) {
        let mut hot = self.hot.lock().unwrap_or_else(PoisonError::into_inner);
        hot.retain(|count| count.strong_count() > 0);
        hot.push(Arc::downgrade(count));
    }

    /// Marks the stacks of this pool.
    pub(super) fn tag(&self) -> u16 {
        self.tag
    }

    /// Nothing that runs under the lock leaves it half done except by a broken
    /// invariant, which ends the runtime anyway: so poison tells nothing.
    pub(super) fn lock(&self) -> impl DerefMut<Target = Shelves> {
        self.shelves.lock()
    }

    /// Brings `excess` up to date; called before the lock is left.
    pub(super) fn publish(&self, shelves: &Shelves) {
        // Relaxed: see `excess`.
        self.excess.store(
            shelves.dirty.saturating_sub(KEEP) + shelves.surplus(),
            Relaxed,
        );
    }
}

impl Drop for StackPool {
    fn drop(&mut self) {
        let shelves = self.shelves.get_mut();
        for slab in shelves.slabs.drain(..).flatten() {
            if slab.taken() == 0 {
                let splits = slab.splits();
                match slab.unmap() {
                    Ok(()) => Guards::forget(splits),
                    Err(slab) => slab.leak(),
                }
            } else {
                slab.leak(); // invariant 2
            }
        }
    }
}
