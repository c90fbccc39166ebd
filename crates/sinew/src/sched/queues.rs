//! A worker's queues, and whose turn it is.
//!
//! | queue       | holds                                                      |
//! |-------------|------------------------------------------------------------|
//! | `ready`     | started fibers that were woken or have yielded; with one worker, all others |
//! | `deques`    | unstarted and migratable fibers, which thieves may take    |
//! | `preempted` | started fibers that compute (`queue::preempted`)           |
//!
//! The picker chooses the level (`queue::level`); within it `ready` and `deques` come
//! before `preempted`, unless that is owed a turn.

use super::seam::Choice;
use crate::fiber::Priority;
use crate::queue::Entry;
use crate::queue::deque::Deques;
use crate::queue::fifo::Levels;
use crate::queue::level::LevelPicker;
use crate::queue::preempted::Preempted;
use crate::sys::cache;

/// With several workers this many started fibers run for each unstarted one, if
/// there are both. Taking turns one by one starts nearly all of 100k fibers that
/// yield ten times before the first ends, each on a fresh stack.
const STARTED_FIRST: u32 = 15;

/// How much of a stack is loaded ahead: the frames of a wait, and the caller's.
const FRAME_LINES: usize = 14;

/// See the module header.
pub(super) struct Queues {
    pub(super) ready: Levels,
    pub(super) preempted: Preempted,
    pub(super) deques: Deques,
    /// What lies in the deque is left to idle workers until the next look around
    /// (`Core::offer_if_computing`).
    pub(super) offered: bool,
    pub(super) picker: LevelPicker,
    /// Per level: private entries taken, while there were both, since the last
    /// one from the deque.
    pub(super) private_in_a_row: [u32; Priority::LEVELS],
    pub(super) choice: Option<Box<dyn Choice>>,
}

impl Queues {
    /// The next private entry of a level, as the choice says.
    // Always inlined: a call of its own is a tenth of what a yield takes.
    #[inline(always)]
    pub(super) fn next_private(&mut self, level: usize) -> Option<Entry> {
        match &mut self.choice {
            None => self.ready.pop(level),
            Some(choice) => {
                let ready = self.ready.level_len(level);
                let index = choice.pick(ready);
                assert!(index < ready, "a choice of {index} among {ready}");
                self.ready.pop_at(level, index)
            }
        }
    }

    /// Starts to load what a switch to the next fibers needs: the block of the one after
    /// the next, and of the next, whose block should be there by now, its stack.
    #[inline]
    pub(super) fn load_ahead(&self) {
        if let Some(later) = self.ready.coming(1) {
            let block = later.block().as_ptr();
            cache::prefetch(block);
            cache::prefetch(block.wrapping_byte_add(cache::LINE));
        }
        let next = self.ready.coming(0).filter(|next| !next.is_fresh());
        if let Some(next) = next {
            // SAFETY: the entry of a started fiber owns it.
            let frame = unsafe { next.block().as_ref() }.rests_at();
            for line in 0..FRAME_LINES {
                cache::prefetch(frame.wrapping_byte_add(line * cache::LINE));
            }
        }
    }

    /// The levels of the deque from which this worker takes now.
    #[inline]
    pub(super) fn stealable(&self) -> u8 {
        if self.offered { 0 } else { self.deques.maybe() }
    }

    /// The next entry if private ones of one level are all that is ready.
    #[inline(always)]
    pub(super) fn next_alone(&mut self) -> Option<Entry> {
        let private = self.ready.ready();
        if self.preempted.ready() | self.deques.maybe() != 0
            || !private.is_power_of_two()
            || self.choice.is_some()
        {
            return None;
        }
        self.ready.pop(private.trailing_zeros() as usize)
    }

    /// The next entry while no preempted fiber is queued: mostly private ones, so that
    /// what has begun ends and its stack serves the next, but the deque has its turn,
    /// in each level.
    pub(super) fn next_of_both(&mut self) -> Option<Entry> {
        loop {
            let (private, stealable) = (self.ready.ready(), self.deques.maybe());
            let all = private | stealable;
            if all.is_power_of_two() {
                // The one level that there is, without a pick: nothing has to be remembered
                // while an entry is taken.
                let level = all.trailing_zeros() as usize;
                if let Some(entry) = self.next_of_level(level, private, stealable) {
                    return Some(entry);
                }
                continue;
            }
            let pick = self.picker.pick(all, 0)?;
            if let Some(entry) = self.next_of_level(pick.level, private, stealable) {
                self.picker.taken(pick);
                return Some(entry);
            }
        }
    }

    /// The next entry of a level that was picked; none if its only hope was the hint
    /// of a deque, and wrong: then the caller picks again.
    #[inline]
    fn next_of_level(&mut self, level: usize, private: u8, stealable: u8) -> Option<Entry> {
        let bit = 1 << level;
        if private & bit == 0 {
            // The deque's bit is a hint. If it was wrong it is cleared now.
            return self.deques.pop(level);
        }
        let in_a_row = &mut self.private_in_a_row[level];
        if stealable & bit != 0 {
            if *in_a_row >= STARTED_FIRST {
                *in_a_row = 0;
                if let Some(entry) = self.deques.pop(level) {
                    return Some(entry);
                }
            } else {
                *in_a_row += 1;
            }
        }
        self.next_private(level)
    }

    /// The next entry while preempted fibers are queued. One of these may keep the
    /// worker for long, so that none is returned before the worker has looked around.
    #[cold]
    #[inline(never)]
    pub(super) fn next_beside_preempted(&mut self, looked: bool) -> Option<Entry> {
        loop {
            let (private, stealable) = (self.ready.ready(), self.stealable());
            let preempted = self.preempted.ready();
            let ready = private | stealable;
            let pick = self.picker.pick(ready, preempted)?;
            let level = pick.level;
            let (behind, others) = (preempted >> level & 1 != 0, ready >> level & 1 != 0);
            if behind && self.preempted.have_turn(level, others) {
                if !looked {
                    return None;
                }
                self.picker.taken(pick);
                return self.preempted.pop(level);
            }
            if let Some(entry) = self.next_of_level(level, private, stealable) {
                self.picker.taken(pick);
                return Some(entry);
            }
        }
    }
}
