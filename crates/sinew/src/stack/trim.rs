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

/// What is to be left by a trim that is made in steps.
pub(crate) struct TrimGoal {
    /// Used free stacks.
    dirty: usize,
    /// Idle slabs of each class.
    idle: [usize; StackClass::COUNT],
}

/// A slot that is being cleaned. It is marked as taken, but has no handle.
type Cleaning = (u32, usize);

impl StackPool {
    /// Gives memory of free stacks back to the system.
    ///
    /// Takes a third of a microsecond a stack and more: for a worker that has no other
    /// hope. While stacks are being cleaned nobody can take them, so that a worker may
    /// have begun to starve meanwhile: see [`Trimmed::given`].
    pub(crate) fn trim(&self, level: Trim) -> Trimmed {
        let mut goal = self.trim_goal(level);
        let mut stacks = 0;
        while let Some(more) = self.give_some_back(&mut goal) {
            stacks += more;
        }
        self.trimmed(stacks)
    }

    /// What a trim of this level leaves; for [`trim_step`](Self::trim_step).
    pub(crate) fn trim_goal(&self, level: Trim) -> TrimGoal {
        let shelves = self.lock();
        let left_of = |count: usize, keep: usize| {
            let excess = count.saturating_sub(keep);
            match level {
                Trim::Half => count - excess.div_ceil(2),
                Trim::All => count - excess,
            }
        };
        TrimGoal {
            dirty: left_of(shelves.dirty, KEEP),
            // One slab of each class stays as a spare.
            idle: std::array::from_fn(|class| left_of(shelves.classes[class].idle.len(), 1)),
        }
    }

    /// A part of a [`trim`](Self::trim) that takes less than a millisecond, so that the
    /// monitor, which tells workers about time, may make it between two ticks. None if
    /// the goal is reached.
    pub(crate) fn trim_step(&self, goal: &mut TrimGoal) -> Option<Trimmed> {
        self.give_some_back(goal).map(|stacks| self.trimmed(stacks))
    }

    fn trimmed(&self, stacks: usize) -> Trimmed {
        // Whoever began to starve and then found nothing held the lock before
        // we last did, so that we see it.
        let given = if self.is_starving() && stacks > 0 {
            Given::Wanted
        } else {
            Given::Kept
        };
        Trimmed { stacks, given }
    }

    /// Unmaps one slab, or cleans a round of stacks; how many stacks that were, or none
    /// if the goal is reached.
    fn give_some_back(&self, goal: &mut TrimGoal) -> Option<usize> {
        let surplus = {
            let mut shelves = self.lock();
            let surplus = shelves.remove_surplus(goal);
            self.publish(&shelves);
            surplus
        };
        match surplus {
            Some((class, slab)) => {
                let stacks = slab.dirty();
                if self.unmap(slab) {
                    return Some(stacks);
                }
                goal.idle[class] = usize::MAX; // it would be refused again
                Some(0)
            }
            None => self.clean_a_round(goal),
        }
    }

    fn clean_a_round(&self, goal: &mut TrimGoal) -> Option<usize> {
        let mut shelves = self.lock();
        let work = shelves.take_dirty(goal.dirty);
        self.publish(&shelves);
        if work.is_empty() {
            return None;
        }
        let spans = shelves.spans_of(&work);
        drop(shelves);
        // SAFETY: the slots are marked as taken and have no handle, so
        // that nobody runs on them or needs their contents. The spans
        // cover their guards too, which survive this advice.
        let cleaned = unsafe { clean(&spans) };
        let mut shelves = self.lock();
        for &(id, slot) in &work {
            shelves.put_back(id, slot, cleaned);
        }
        self.publish(&shelves);
        if cleaned {
            return Some(work.len());
        }
        goal.dirty = usize::MAX; // locked memory: it would be refused again
        None
    }

    /// False if the slab could not be unmapped, and is kept.
    fn unmap(&self, slab: Slab) -> bool {
        let splits = slab.splits();
        match slab.unmap() {
            Ok(()) => {
                Guards::forget(splits);
                true
            }
            Err(slab) => {
                // It would have split a mapping, at vm.max_map_count.
                let mut shelves = self.lock();
                shelves.add(slab);
                self.publish(&shelves);
                false
            }
        }
    }
}

impl Shelves {
    /// Takes the youngest idle slab of a class out that has more of them than it is to
    /// keep.
    fn remove_surplus(&mut self, goal: &TrimGoal) -> Option<(usize, Slab)> {
        let has_more = |class: &usize| self.classes[*class].idle.len() > goal.idle[*class];
        let class = (0..StackClass::COUNT).find(has_more)?;
        let &id = self.classes[class].idle.last()?;
        Some((class, self.remove(id)))
    }

    /// Marks used slots as taken, youngest slabs of the biggest classes first,
    /// until `target` used ones are left or the round is full.
    fn take_dirty(&mut self, target: usize) -> Vec<Cleaning> {
        let mut work = Vec::new();
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
        work
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
