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

/// What a trim that is made in steps has still to give back. Amounts, not levels to reach:
/// a load that comes and goes would be below none for long.
pub(crate) struct TrimGoal {
    /// Used free stacks.
    stacks: usize,
    /// Idle slabs of each class.
    slabs: [usize; StackClass::COUNT],
}

/// What a step of it did.
struct GivenBack {
    stacks: usize,
    /// Pages or addresses are free that were not.
    freed: bool,
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
        let mut all = GivenBack {
            stacks: 0,
            freed: false,
        };
        while let Some(more) = self.give_some_back(&mut goal) {
            all.stacks += more.stacks;
            all.freed |= more.freed;
        }
        self.trimmed(&all)
    }

    /// What a trim of this level gives back; for [`trim_step`](Self::trim_step).
    pub(crate) fn trim_goal(&self, level: Trim) -> TrimGoal {
        let shelves = self.lock();
        let excess = |count: usize, keep: usize| match level {
            Trim::Half => count.saturating_sub(keep).div_ceil(2),
            Trim::All => count.saturating_sub(keep),
        };
        TrimGoal {
            stacks: excess(shelves.dirty, KEEP),
            // One slab of each class stays as a spare.
            slabs: std::array::from_fn(|class| excess(shelves.classes[class].idle.len(), 1)),
        }
    }

    /// A part of a [`trim`](Self::trim), for the monitor, which tells workers about time and
    /// so should not be away for long: less than a millisecond if few pages of each stack
    /// were touched. None if there is nothing left to do.
    pub(crate) fn trim_step(&self, goal: &mut TrimGoal) -> Option<Trimmed> {
        let done = self.give_some_back(goal)?;
        Some(self.trimmed(&done))
    }

    fn trimmed(&self, done: &GivenBack) -> Trimmed {
        // Whoever began to starve and then found nothing held the lock before we last
        // did, which was after all of it was given back: so we see it.
        let given = if self.is_starving() && done.freed {
            Given::Wanted
        } else {
            Given::Kept
        };
        Trimmed {
            stacks: done.stacks,
            given,
        }
    }

    /// Unmaps one slab, or cleans a round of stacks; none if there is nothing left to do.
    fn give_some_back(&self, goal: &mut TrimGoal) -> Option<GivenBack> {
        let surplus = {
            let mut shelves = self.lock();
            let surplus = shelves.remove_surplus(goal);
            self.publish(&shelves);
            surplus
        };
        let Some((class, slab)) = surplus else {
            return self.clean_a_round(goal);
        };
        let stacks = slab.dirty();
        let freed = self.unmap(slab);
        if !freed {
            goal.slabs[class] = 0; // it would be refused again
            return Some(GivenBack { stacks: 0, freed });
        }
        goal.stacks = goal.stacks.saturating_sub(stacks);
        Some(GivenBack { stacks, freed })
    }

    fn clean_a_round(&self, goal: &mut TrimGoal) -> Option<GivenBack> {
        let mut shelves = self.lock();
        let work = shelves.take_dirty(goal.stacks.min(ROUND));
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
        if !cleaned {
            goal.stacks = 0; // locked memory: it would be refused again
            return None;
        }
        goal.stacks -= work.len();
        Some(GivenBack {
            stacks: work.len(),
            freed: true,
        })
    }

    /// False if the slab could not be unmapped, and is kept.
    fn unmap(&self, slab: Slab) -> bool {
        let splits = slab.splits();
        match slab.unmap() {
            Ok(()) => {
                Guards::forget(splits);
                drop(self.lock()); // see `trimmed`
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
    /// Takes the youngest idle slab of a class out of which some are to go, unless it is
    /// the last.
    fn remove_surplus(&mut self, goal: &mut TrimGoal) -> Option<(usize, Slab)> {
        let has_more =
            |class: &usize| goal.slabs[*class] > 0 && self.classes[*class].idle.len() > 1;
        let class = (0..StackClass::COUNT).find(has_more)?;
        let &id = self.classes[class].idle.last()?;
        goal.slabs[class] -= 1;
        Some((class, self.remove(id)))
    }

    /// Marks that many used slots as taken, youngest slabs of the biggest classes first,
    /// but for those that are kept.
    fn take_dirty(&mut self, most: usize) -> Vec<Cleaning> {
        let mut work = Vec::new();
        for class in (0..StackClass::COUNT).rev() {
            while self.dirty > KEEP && work.len() < most {
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
