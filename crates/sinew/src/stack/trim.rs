//! Giving memory back after a peak.
//!
//! Two ways, and both work outside the pool's lock:
//!
//! 1. A wholly free slab is unmapped, its page tables with it; of each class
//!    one stays as a spare. This is the only way that frees page tables: guard
//!    markers keep theirs through `MADV_DONTNEED`.
//! 2. Free stacks in slabs that are still in use lose their pages, youngest
//!    slabs first. Neighbours go in one range, and many ranges in one call.
//!
//! Measured here for slots of 64 / 256 KiB with one touched page: unmapping
//! takes 125 / 275 ns a stack, `MADV_DONTNEED` 290–390 / 400 ns in batched
//! ranges.

use super::class::StackClass;
use super::guard::Guards;
use super::pool::{Given, KEEP, StackPool};
use super::shelves::Shelves;
use super::slab::Slab;
use crate::sys::map::{self, Advice, Span};

/// The most stacks cleaned between two looks at the pool. It bounds how many a
/// taker finds missing, and how long the lock is held.
const ROUND: usize = 512;

/// How much to give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trim {
    /// About half of what is too much: for a load that may come back.
    Half,
    /// All but a few.
    All,
}

/// What a trim did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "somebody may have waited for what it freed"]
pub(crate) struct Trimmed {
    /// How many stacks lost their pages or their slab.
    pub(crate) stacks: usize,
    /// Whether somebody starves, who may find room now.
    pub(crate) given: Given,
}

/// A slot that is being cleaned. It is marked as taken, but has no handle.
type Cleaning = (u32, usize);

impl StackPool {
    /// Gives memory of free stacks back to the system.
    ///
    /// Takes a third of a microsecond a stack and more: for the monitor, or for
    /// a worker that has no other hope. While stacks are being cleaned nobody
    /// can take them, so that a worker may have begun to starve meanwhile: see
    /// [`Trimmed::given`].
    pub(crate) fn trim(&self, level: Trim) -> Trimmed {
        let stacks = self.trim_stacks(level);
        // Whoever began to starve and then found nothing held the lock before
        // we last did, so that we see it.
        let given = if self.is_starving() && stacks > 0 {
            Given::Wanted
        } else {
            Given::Kept
        };
        Trimmed { stacks, given }
    }

    fn trim_stacks(&self, level: Trim) -> usize {
        let (slabs, target) = {
            let mut shelves = self.lock();
            let excess = shelves.dirty.saturating_sub(KEEP);
            let target = match level {
                Trim::Half => shelves.dirty - excess.div_ceil(2),
                Trim::All => shelves.dirty - excess,
            };
            let slabs = shelves.remove_surplus(level);
            self.publish(&shelves);
            (slabs, target)
        };
        let mut released = 0;
        for slab in slabs {
            released += slab.dirty();
            self.unmap(slab);
        }
        let mut work = Vec::new();
        loop {
            let mut shelves = self.lock();
            shelves.take_dirty(target, &mut work);
            self.publish(&shelves);
            if work.is_empty() {
                return released;
            }
            let spans = shelves.spans_of(&work);
            drop(shelves);
            // SAFETY: the slots are marked as taken and have no handle, so
            // that nobody runs on them or needs their contents. The spans
            // cover their guards too, which survive this advice.
            let cleaned = unsafe { clean(&spans) };
            let mut shelves = self.lock();
            let count = work.len();
            for (id, slot) in work.drain(..) {
                shelves.put_back(id, slot, cleaned);
            }
            self.publish(&shelves);
            if !cleaned {
                return released; // locked memory: it would be refused again
            }
            released += count;
        }
    }

    fn unmap(&self, slab: Slab) {
        let splits = slab.splits();
        match slab.unmap() {
            Ok(()) => Guards::forget(splits),
            Err(slab) => {
                // It would have split a mapping, at vm.max_map_count: keep it.
                let mut shelves = self.lock();
                shelves.add(slab);
                self.publish(&shelves);
            }
        }
    }
}

impl Shelves {
    /// Takes idle slabs out, youngest first: all of each class but a spare one,
    /// or half as many.
    fn remove_surplus(&mut self, level: Trim) -> Vec<Slab> {
        let mut removed = Vec::new();
        for class in 0..StackClass::COUNT {
            let surplus = self.classes[class].idle.len().saturating_sub(1);
            let count = match level {
                Trim::Half => surplus.div_ceil(2),
                Trim::All => surplus,
            };
            for _ in 0..count {
                let Some(&id) = self.classes[class].idle.last() else {
                    break;
                };
                removed.push(self.remove(id));
            }
        }
        removed
    }

    /// Marks used slots as taken, youngest slabs of the biggest classes first,
    /// until `target` used ones are left or the round is full.
    fn take_dirty(&mut self, target: usize, work: &mut Vec<Cleaning>) {
        for class in (0..StackClass::COUNT).rev() {
            while self.dirty > target && work.len() < ROUND {
                let Some(&id) = self.classes[class].dirty.last() else {
                    break;
                };
                let slot = self
                    .change(id, Slab::take_dirty)
                    .expect("the slab has used slots");
                self.dirty -= 1;
                work.push((id, slot));
            }
        }
    }

    /// Runs of neighbouring slots as one span each. Slots of one slab come in
    /// rising order from `take_dirty`.
    fn spans_of(&self, work: &[Cleaning]) -> Vec<Span> {
        work.chunk_by(|(a, i), (b, j)| a == b && i + 1 == *j)
            .map(|run| {
                let (id, slot) = run[0];
                let slab = self.slabs[id as usize]
                    .as_ref()
                    .expect("slots of it are taken");
                slab.slots_span(slot, run.len())
            })
            .collect()
    }

    fn put_back(&mut self, id: u32, slot: usize, cleaned: bool) {
        self.change(id, |slab| {
            if cleaned {
                slab.put_clean(slot)
            } else {
                slab.put_dirty(slot)
            }
        });
        self.dirty += usize::from(!cleaned);
    }
}

/// Drops the pages of all spans; `false` if the kernel refused any.
///
/// # Safety
///
/// The caller owns the spans and nobody needs what is in them.
unsafe fn clean(spans: &[Span]) -> bool {
    // SAFETY: handed on from our caller.
    match unsafe { map::advise_each(spans, Advice::DontNeed) } {
        Ok(()) => true,
        Err((done, _)) => spans[done..]
            .iter()
            // SAFETY: handed on from our caller.
            .all(|span| unsafe { map::advise(*span, Advice::DontNeed) }.is_ok()),
    }
}
