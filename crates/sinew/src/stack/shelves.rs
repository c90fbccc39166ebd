//! Which slabs a pool has, and which of them can serve what.
//!
//! Slabs are kept in one table; for each class three sets say which of them
//! have used slots, slots without pages, and nobody running on them. All sets
//! are ordered by number, and the lowest is taken first: old slabs fill up, and
//! young ones become wholly free and can be unmapped.
//!
//! Invariant 1: `out` counts the slots for which a handle exists or is being
//! made; a slab's `taken` counts those and the ones [`super::trim`] works on.
//! Invariant 2: a slab is in each set of its class that its `summary` names,
//! and in no other.
//! Invariant 3: a slab leaves the table only while idle, so that no handle
//! points to it.

use std::collections::BTreeSet;
use std::io;

use super::class::StackClass;
use super::handle::Stack;
use super::slab::{Slab, Summary};

/// All slabs of a pool; behind its lock.
#[derive(Debug, Default)]
pub(super) struct Shelves {
    pub(super) slabs: Vec<Option<Slab>>,
    pub(super) classes: [Shelf; StackClass::COUNT],
    /// Free stacks that have pages.
    pub(super) dirty: usize,
    /// Free entries of `slabs`.
    vacant: BTreeSet<u32>,
    /// Slots with guards, in all slabs.
    pub(super) guarded: usize,
    /// Slots outside the pool.
    pub(super) out: usize,
    /// Bytes of addresses in all slabs.
    pub(super) reserved: usize,
    /// The most slots in a slab, if there is a limit.
    most: Option<usize>,
}

/// The slabs of one class, by what can be had from them.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    pub(super) dirty: BTreeSet<u32>,
    fresh: BTreeSet<u32>,
    pub(super) idle: BTreeSet<u32>,
}

/// A fresh slot on its way to become a stack.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Picked {
    pub(super) slab: u32,
    pub(super) slot: usize,
    /// Its low end.
    pub(super) low: usize,
    /// Whether it has no guard yet.
    pub(super) raw: bool,
}

impl Shelves {
    /// No slabs yet; none will have more than `most` slots.
    pub(super) fn new(most: Option<usize>) -> Self {
        Self {
            most,
            ..Self::default()
        }
    }

    /// Whether a slab of this class has a slot to give.
    pub(super) fn has(&self, class: StackClass) -> bool {
        let shelf = &self.classes[class.index()];
        !shelf.dirty.is_empty() || !shelf.fresh.is_empty()
    }

    /// Takes the best used slot of a class: slab, slot and low end.
    pub(super) fn pick_dirty(&mut self, class: StackClass) -> Option<(u32, usize, usize)> {
        let id = *self.classes[class.index()].dirty.first()?;
        let (slot, low) = self.change(id, |slab| {
            let slot = slab
                .take_dirty()
                .expect("invariant 2: the slab has used slots");
            (slot, slab.low(slot))
        });
        self.dirty -= 1;
        self.out += 1;
        Some((id, slot, low))
    }

    /// Takes the best slot without pages, mapping a slab if there is none.
    pub(super) fn pick_fresh(&mut self, class: StackClass) -> io::Result<Picked> {
        let id = match self.classes[class.index()].fresh.first() {
            Some(id) => *id,
            None => self.add(Slab::new(class, self.most)?),
        };
        let pick = self.change(id, |slab| {
            let fresh = slab
                .take_fresh()
                .expect("invariant 2: the slab has fresh slots");
            Picked {
                slab: id,
                slot: fresh.slot,
                low: slab.low(fresh.slot),
                raw: fresh.raw,
            }
        });
        self.guarded += usize::from(pick.raw);
        self.out += 1;
        Ok(pick)
    }

    /// Undoes `pick_fresh` for a slot that got no guard, or no use.
    pub(super) fn unpick(&mut self, pick: &Picked) {
        self.change(pick.slab, |slab| {
            if pick.raw {
                slab.put_raw(pick.slot)
            } else {
                slab.put_clean(pick.slot)
            }
        });
        self.guarded -= usize::from(pick.raw);
        self.out -= 1;
    }

    /// Takes back a stack that somebody ran on; its handle ends.
    pub(super) fn put_dirty(&mut self, stack: Stack) {
        let (low, class) = (stack.limit().get(), stack.class());
        self.change(stack.slab(), |slab| {
            assert_eq!(slab.class(), class, "a stack lies in a slab of its class");
            let slot = slab.slot_at(low).expect("a stack lies in its slab");
            slab.put_dirty(slot);
        });
        self.dirty += 1;
        self.out -= 1;
    }

    /// Enters a slab into the table.
    pub(super) fn add(&mut self, slab: Slab) -> u32 {
        self.reserved += slab.bytes();
        self.guarded += slab.guarded();
        self.dirty += slab.dirty();
        let (class, summary) = (slab.class(), slab.summary());
        let id = self.vacant.pop_first().unwrap_or(self.slabs.len() as u32);
        if id as usize == self.slabs.len() {
            self.slabs.push(None);
        }
        self.slabs[id as usize] = Some(slab);
        self.classes[class.index()].file(id, Summary::default(), summary);
        id
    }

    /// Takes an idle slab out of the table.
    pub(super) fn remove(&mut self, id: u32) -> Slab {
        let slab = self.slabs[id as usize]
            .take()
            .expect("invariant 2: a filed slab exists");
        assert!(slab.summary().idle, "invariant 3: only idle slabs leave");
        self.classes[slab.class().index()].file(id, slab.summary(), Summary::default());
        self.vacant.insert(id);
        self.reserved -= slab.bytes();
        self.guarded -= slab.guarded();
        self.dirty -= slab.dirty();
        slab
    }

    /// Changes a slab and keeps invariant 2.
    pub(super) fn change<R>(&mut self, id: u32, f: impl FnOnce(&mut Slab) -> R) -> R {
        let slab = self.slabs[id as usize]
            .as_mut()
            .expect("invariant 3: the slab is in use");
        let (class, before) = (slab.class(), slab.summary());
        let answer = f(slab);
        let after = slab.summary();
        if before != after {
            self.classes[class.index()].file(id, before, after);
        }
        answer
    }

    /// A slab, for what changes no set.
    pub(super) fn slab_mut(&mut self, id: u32) -> &mut Slab {
        self.slabs[id as usize]
            .as_mut()
            .expect("invariant 3: the slab is in use")
    }

    /// Idle slabs beyond one of each class.
    pub(super) fn surplus(&self) -> usize {
        self.classes
            .iter()
            .map(|shelf| shelf.idle.len().saturating_sub(1))
            .sum()
    }
}

impl Shelf {
    /// Moves a slab between the sets.
    fn file(&mut self, id: u32, before: Summary, after: Summary) {
        let sets = [
            (&mut self.dirty, before.dirty, after.dirty),
            (&mut self.fresh, before.fresh, after.fresh),
            (&mut self.idle, before.idle, after.idle),
        ];
        for (set, before, after) in sets {
            match (before, after) {
                (false, true) => drop(set.insert(id)),
                (true, false) => drop(set.remove(&id)),
                _ => {}
            }
        }
    }
}
