//! What one worker owns: its queues, timers, stacks and blocks.
//!
//! Fibers and the worker's loop both reach the core through a raw pointer
//! (`sched::current`). They run on one thread, so they never touch it at the
//! same time, but a reference into it must not live across a switch.
//!
//! Invariant 1 (one at a time): `&mut` borrows of a core's parts last for one
//! call of this file's methods or one `with_*` closure, and no user code runs
//! and no switch happens inside.
//! Invariant 2 (alive): a core outlives every fiber that runs on it: it is dropped
//! after the last switch of the loop, and never if fibers were leaked here
//! (`worker::kept`).

use super::queues::Queues;
use super::seam::Choice;
use super::shared::{Remote, Shared};
use super::starved::Starved;
use crate::fiber::slab::BlockCache;
use crate::fiber::{Block, Priority};
use crate::queue::Entry;
use crate::queue::deque::{Deques, Injectors};
use crate::queue::fifo::Levels;
use crate::queue::level::LevelPicker;
use crate::queue::preempted::Preempted;
use crate::stack::HotStacks;
use crate::timer::Wheel;
use crate::util::rng::Rng;
use std::cell::{Cell, UnsafeCell};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A fiber woken by the running one, or claimed by a joiner, may run next this
/// many times in a row before the queues have their turn.
///
/// Without it a tree of fibers that join their children, as skynet is, starts a
/// whole level before the first leaf ends, each fiber on a stack of its own.
pub(crate) const NEXT_IN_A_ROW: u32 = 64;

/// What one worker owns; see the module header.
pub(crate) struct Core {
    shared: Arc<Shared>,
    /// Points into `shared`, which lives as long as the core.
    remote: NonNull<Remote>,
    index: usize,
    several: bool,
    /// In a slot for spares.
    is_spare: bool,
    looks_again: bool,
    may_spin: bool,
    pub(crate) current: Cell<*const Block>,
    /// Runs before the queues, if it may.
    run_next: Cell<Option<Entry>>,
    in_a_row: Cell<u32>,
    /// How surely a spawned fiber is soon joined by its spawner, 0 to 3: then
    /// waking a thief for it is wasted.
    joins_soon: Cell<u8>,
    /// How long it pays to look out for work before sleeping (ns), and how often
    /// in a row that was in vain.
    look_out: Cell<u64>,
    in_vain: Cell<u32>,
    /// Batches taken from injectors so far.
    batches: Cell<u32>,
    /// How many fibers the worker's own loop has woken, and not yet loaded ahead.
    cold: Cell<u32>,
    /// Calls in a row that did not have to wait; see `reactor::call`.
    burst: Cell<u32>,
    queues: UnsafeCell<Queues>,
    wheel: UnsafeCell<Wheel>,
    stacks: UnsafeCell<HotStacks>,
    blocks: UnsafeCell<BlockCache>,
    rng: UnsafeCell<Rng>,
    /// Unstarted fibers that found no stack, and those that will only end.
    starved: UnsafeCell<Starved>,
    /// The fiber that runs on the runtime's reserve, if it is one of ours.
    pub(crate) on_reserve: Cell<*const Block>,
}

impl Core {
    pub(crate) fn new(
        shared: Arc<Shared>,
        index: usize,
        deques: Deques,
        choice: Option<Box<dyn Choice>>,
        seed: u64,
    ) -> Self {
        let stacks = HotStacks::new(shared.stacks.clone(), shared.settings.class);
        let now = shared.clock.now();
        Self {
            remote: NonNull::from(&*shared.remotes[index]),
            index,
            several: shared.several_workers(),
            is_spare: index >= shared.workers,
            may_spin: shared.can_look_out
                && !shared.settings.strict_order
                && !shared.clock.stands(),
            looks_again: !shared.settings.strict_order && !shared.clock.stands(),
            current: Cell::new(ptr::null()),
            run_next: Cell::new(None),
            in_a_row: Cell::new(0),
            joins_soon: Cell::new(0),
            look_out: Cell::new(0),
            in_vain: Cell::new(0),
            batches: Cell::new(0),
            cold: Cell::new(0),
            burst: Cell::new(0),
            queues: UnsafeCell::new(Queues {
                ready: Levels::new(),
                preempted: Preempted::new(),
                deques,
                offered: false,
                picker: LevelPicker::new(),
                private_in_a_row: [0; Priority::LEVELS],
                choice,
            }),
            wheel: UnsafeCell::new(Wheel::new(now)),
            stacks: UnsafeCell::new(stacks),
            blocks: UnsafeCell::new(BlockCache::new()),
            rng: UnsafeCell::new(Rng::new(seed ^ index as u64)),
            starved: UnsafeCell::new(Starved::default()),
            on_reserve: Cell::new(ptr::null()),
            shared,
        }
    }

    /// How long it pays to look out for work before sleeping (ns).
    pub(crate) fn look_out(&self) -> u64 {
        self.look_out.get()
    }

    pub(crate) fn set_look_out(&self, nanos: u64) {
        self.look_out.set(nanos);
    }

    /// Counts one more; true for each `limit`th.
    #[inline]
    pub(crate) fn counts_to(&self, limit: u32) -> bool {
        let count = self.burst.get() + 1;
        self.burst.set(if count >= limit { 0 } else { count });
        count >= limit
    }

    /// How often in a row looking out was in vain.
    pub(crate) fn in_vain(&self) -> &Cell<u32> {
        &self.in_vain
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn index(&self) -> usize {
        self.index
    }

    pub(crate) fn several(&self) -> bool {
        self.several
    }

    /// Whether time counts here, and not switches alone (`worker::urgency`).
    pub(crate) fn by_time(&self) -> bool {
        self.shared.settings.by_time
    }

    /// Whether what lies in the deque is left to idle workers for now.
    pub(crate) fn offers(&self) -> bool {
        self.queues(|queues| queues.offered)
    }

    /// Whether this worker may take fibers that have not started here.
    #[inline]
    pub(crate) fn takes_new(&self) -> bool {
        !self.is_spare || self.remote().duty.is_on()
    }

    pub(crate) fn is_spare(&self) -> bool {
        self.is_spare
    }

    /// Hands what thieves could take to all workers: a retired spare's.
    pub(crate) fn hand_over(&self) {
        let mut some = false;
        while let Some((level, entry)) = self.queues(|queues| queues.deques.pop_any()) {
            self.shared.injectors.push(level, entry);
            some = true;
        }
        if some {
            self.shared.wake_searcher();
        }
    }

    /// Whether no started fiber belongs to this worker, running or not.
    pub(crate) fn has_no_fibers(&self) -> bool {
        let counters = &self.remote().counters;
        // Relaxed: our own counters.
        let started = counters.started.load(Ordering::Relaxed);
        let ended = counters.ended.load(Ordering::Relaxed);
        let migratable = counters.migratable.load(Ordering::Relaxed);
        let pinned = started.wrapping_sub(ended).wrapping_sub(migratable);
        // Acquire: who took the last one away is done with this slot; pairs with the
        // Release in `run::resume`.
        pinned == 0 && self.remote().migrants.load(Ordering::Acquire) == 0
    }

    /// The thieves' side of the deque goes on with what this returns.
    pub(crate) fn into_deques(self) -> Deques {
        self.queues.into_inner().deques
    }

    /// Whether fibers may let others run before they wait (`wait::look`).
    pub(crate) fn looks_again(&self) -> bool {
        self.looks_again
    }

    /// The same while nobody else is ready here: there are other CPUs.
    pub(crate) fn may_spin(&self) -> bool {
        self.may_spin
    }

    #[inline]
    pub(crate) fn remote(&self) -> &Remote {
        // SAFETY: in `shared`, which we hold.
        unsafe { self.remote.as_ref() }
    }

    /// The value of `Block::home` for fibers of this worker.
    pub(crate) fn home(&self) -> *mut () {
        ptr::from_ref(self.remote()).cast_mut().cast()
    }

    fn queues<R>(&self, with: impl FnOnce(&mut Queues) -> R) -> R {
        // SAFETY: invariant 1: only this file calls it, with closures that
        // neither switch nor call out.
        with(unsafe { &mut *self.queues.get() })
    }

    /// Calls `with` on the timers.
    pub(crate) fn with_wheel<R>(&self, with: impl FnOnce(&mut Wheel) -> R) -> R {
        // SAFETY: invariant 1: callers only insert, cancel and expire.
        with(unsafe { &mut *self.wheel.get() })
    }

    /// Calls `with` on the stack cache.
    pub(crate) fn with_stacks<R>(&self, with: impl FnOnce(&mut HotStacks) -> R) -> R {
        // SAFETY: invariant 1: callers only take and give.
        with(unsafe { &mut *self.stacks.get() })
    }

    /// Calls `with` on the block cache.
    pub(crate) fn with_blocks<R>(&self, with: impl FnOnce(&mut BlockCache) -> R) -> R {
        // SAFETY: invariant 1: callers only take and give.
        with(unsafe { &mut *self.blocks.get() })
    }

    /// Calls `with` on the fibers that wait for a stack.
    pub(crate) fn with_starved<R>(&self, with: impl FnOnce(&mut Starved) -> R) -> R {
        // SAFETY: invariant 1: callers only push and pop.
        with(unsafe { &mut *self.starved.get() })
    }

    /// A random number below `bound`.
    pub(crate) fn random(&self, bound: usize) -> usize {
        // SAFETY: invariant 1.
        unsafe { &mut *self.rng.get() }.below(bound)
    }

    fn level_of(entry: Entry) -> usize {
        // SAFETY: an entry keeps its block alive.
        unsafe { entry.block().as_ref() }.level()
    }

    /// Queues an entry that only this worker may run.
    pub(crate) fn push_private(&self, entry: Entry) {
        let level = Self::level_of(entry);
        self.queues(|queues| queues.ready.push(level, entry));
    }

    /// Queues an entry that thieves may take; answers how many there are now.
    ///
    /// With one worker there are no thieves, and one FIFO for all.
    pub(crate) fn push_stealable(&self, entry: Entry) -> usize {
        if !self.several {
            self.push_private(entry);
            return 0;
        }
        if !self.takes_new() {
            self.shared.injectors.push(Self::level_of(entry), entry);
            self.shared.wake_searcher();
            return 0;
        }
        let level = Self::level_of(entry);
        self.queues(|queues| {
            queues.deques.push(level, entry);
            queues.deques.len()
        })
    }

    /// Lets `entry` run before the queues have their turn, if order allows;
    /// else hands it back.
    pub(crate) fn try_run_next(&self, entry: Entry) -> Result<(), Entry> {
        if self.shared.settings.strict_order || self.in_a_row.get() >= NEXT_IN_A_ROW {
            return Err(entry);
        }
        let ready = self.queues(|queues| {
            queues.ready.ready() | queues.preempted.ready() | queues.deques.maybe()
        });
        if ready >> Self::level_of(entry) > 1 {
            return Err(entry); // something more urgent waits
        }
        self.queue_former(self.run_next.replace(Some(entry)));
        Ok(())
    }

    /// Queues an entry that was to run next, and does not.
    #[inline]
    fn queue_former(&self, former: Option<Entry>) {
        match former {
            Some(former) if former.is_fresh() => {
                self.push_stealable(former);
            }
            Some(former) => self.push_private(former),
            None => {}
        }
    }

    /// Ends a row of fibers that ran next: the queues have their turn.
    pub(crate) fn end_row(&self) {
        self.queue_former(self.run_next.take());
    }

    /// Whether a claimed fiber could run next; see [`Core::try_run_next`].
    pub(crate) fn may_run_next(&self) -> bool {
        !self.shared.settings.strict_order && self.in_a_row.get() < NEXT_IN_A_ROW
    }

    /// The next entry if it is the one that runs next, or if private ones of one level are
    /// all that is ready. Mostly so among fibers that yield or wake each other, for which it
    /// is inlined: a call of [`next_own`](Self::next_own) saves and restores many registers.
    #[inline(always)]
    pub(crate) fn next_at_hand(&self) -> Option<Entry> {
        if let Some(entry) = self.run_next.take() {
            self.in_a_row.set(self.in_a_row.get() + 1);
            return Some(entry);
        }
        self.in_a_row.set(0);
        if self.cold.get() > 0 {
            return None;
        }
        self.queues(Queues::next_alone)
    }

    /// The next entry of this worker's own: run-next, private queue, deque or
    /// preempted. `looked` says whether the worker has looked around in this turn,
    /// and asked its driver: if not, none is returned in the place of a preempted one.
    pub(crate) fn next_own(&self, looked: bool) -> Option<Entry> {
        if let Some(entry) = self.run_next.take() {
            self.in_a_row.set(self.in_a_row.get() + 1);
            return Some(entry);
        }
        self.in_a_row.set(0);
        let cold = self.cold.get();
        self.queues(|queues| {
            let entry = if queues.preempted.ready() != 0 {
                queues.next_beside_preempted(looked)
            } else {
                queues.next_of_both() // with one worker the deque is empty
            };
            if cold > 0 {
                self.cold.set(cold - 1);
                queues.load_ahead();
            }
            entry
        })
    }

    /// Whether fibers that compute are queued here.
    #[inline]
    pub(crate) fn has_preempted(&self) -> bool {
        self.queues(|queues| queues.preempted.ready() != 0)
    }

    /// Lets others see whether fibers that compute are queued here.
    pub(super) fn publish_computes(&self) {
        // Relaxed: a hint for where new fibers go, and for the monitor.
        let computes = &self.remote().computes;
        computes.store(self.has_preempted(), Ordering::Relaxed);
    }

    /// Queues a fiber that computes, behind the others of its priority.
    pub(crate) fn push_preempted(&self, block: NonNull<Block>) {
        let entry = Entry::started(block);
        let level = Self::level_of(entry);
        self.queues(|queues| queues.preempted.push(level, entry));
        self.publish_computes();
    }

    /// Notes how long fibers have been passed over (`queue::share`); `running` is
    /// the level of a fiber that computes now. Reads the clock if that matters.
    pub(crate) fn keep_shares(&self, running: Option<usize>) {
        let running_bit = running.map_or(0, |level| 1 << level);
        let matters = self.queues(|queues| {
            let preempted = queues.preempted.ready();
            let all = queues.ready.ready() | queues.deques.maybe() | preempted | running_bit;
            preempted != 0 || all.count_ones() > 1 || queues.picker.owed() != 0
        });
        if !matters {
            return;
        }
        let now = self.shared.clock.now();
        self.queues(|queues| {
            let preempted = queues.preempted.ready();
            let all = queues.ready.ready() | queues.deques.maybe() | preempted | running_bit;
            queues.picker.look(all, now);
            queues.preempted.look(all, running, now);
        });
    }

    /// Whether a fiber of `level` that computes must let others run.
    pub(crate) fn must_give_way(&self, level: usize) -> bool {
        self.run_next.get().is_some()
            || self.queues(|queues| {
                let ready = queues.ready.ready() | queues.stealable();
                let all = ready | queues.preempted.ready();
                let lower = all & ((1 << level) - 1);
                ready >> level != 0 || all >> level > 1 || lower & queues.picker.owed() != 0
            })
    }

    /// On a worker with fibers that compute, or whose fiber `runs_on` and computes:
    /// leaves what other workers could take to an idle one, if there is one, until
    /// the next look around. A started fiber stays where it started, so that one
    /// started here would share the worker with those for good. Says whether it does.
    pub(crate) fn offer_if_computing(&self, runs_on: bool) -> bool {
        let offers = self.several
            && (runs_on || self.has_preempted())
            && self.shared.idle.somebody_is_idle()
            && !self.queues(|queues| queues.offered)
            && (self.has_stealable()
                || !self.remote().mail.is_empty()
                || !self.shared.injectors.is_empty());
        self.queues(|queues| queues.offered = offers);
        if offers {
            self.shared.wake_searcher();
        }
        offers
    }

    /// Takes what was left to idle workers: no fiber computes here any more.
    pub(crate) fn end_offer(&self) {
        self.queues(|queues| queues.offered = false);
    }

    /// A fiber was woken by events or time, not by another fiber: its stack and its
    /// block may be in no cache.
    #[inline]
    pub(crate) fn woke_cold(&self) {
        self.cold.set(self.cold.get().saturating_add(1));
    }

    /// Takes from `victim`; keeps a batch and answers one, and how many came.
    pub(crate) fn steal_from(&self, victim: &Remote) -> Option<(Entry, usize)> {
        let stealers = victim.stealers.as_ref()?;
        self.queues(|queues| {
            let before = queues.deques.len();
            let stolen = queues.deques.steal_from(stealers);
            let entry = stolen.or_else(|| queues.deques.take_from(&victim.mail, true))?;
            Some((entry, 1 + queues.deques.len().saturating_sub(before)))
        })
    }

    /// Takes a batch from the runtime's injectors; keeps all but one.
    pub(crate) fn take_injected(&self) -> Option<Entry> {
        self.take_batch(&self.shared.injectors)
    }

    fn take_batch(&self, from: &Injectors) -> Option<Entry> {
        if from.is_empty() {
            return None;
        }
        // Urgent ones first; but now and then the other way round, so that a
        // flow of them does not keep the others out.
        let turn = self.batches.get().wrapping_add(1);
        self.batches.set(turn);
        let urgent_first = turn % 8 != 0;
        if self.several {
            self.queues(|queues| queues.deques.take_from(from, urgent_first))
        } else {
            from.pop(urgent_first)
        }
    }

    /// Queues what was sent to this worker and to the runtime: what is there
    /// now, or a batch of it.
    pub(crate) fn take_mail(&self) {
        let (injectors, mail) = (&self.shared.injectors, &self.remote().mail);
        // With one worker there are no batches, and order matters: all of it.
        let most = if self.several { 1 } else { injectors.len() };
        let mut came = 0;
        for _ in 0..most {
            let Some(entry) = self.take_batch(injectors) else {
                break;
            };
            came = self.push_stealable(entry);
        }
        for _ in 0..mail.len() {
            let Some(entry) = self.take_batch(mail) else {
                break;
            };
            came = self.push_stealable(entry);
        }
        if came > 1 {
            // While they changed queues a sleeper's last look may have missed
            // them in both.
            self.shared.wake_searcher();
        }
    }

    /// Takes the entry of a fiber that a joiner has just claimed out of this
    /// worker's queues, if it is easily found; else it stays there, stale.
    ///
    /// Easily found are the youngest of the private queue, and the only one of
    /// the deque (which would also lure thieves).
    pub(crate) fn take_claimed(&self, entry: Entry) -> bool {
        let level = Self::level_of(entry);
        let several = self.several;
        self.queues(|queues| {
            if queues.ready.pop_youngest(level, entry) {
                return true;
            }
            if !several || queues.deques.maybe() == 0 || queues.deques.len() != 1 {
                return false;
            }
            match queues.deques.pop(level) {
                Some(found) if found == entry => true,
                Some(other) => {
                    queues.deques.push(level, other);
                    false
                }
                None => false,
            }
        })
    }

    pub(crate) fn has_stealable(&self) -> bool {
        self.stealable() > 0
    }

    /// How many entries thieves could take.
    pub(crate) fn stealable(&self) -> usize {
        self.queues(|queues| {
            if queues.deques.maybe() == 0 {
                0
            } else {
                queues.deques.len()
            }
        })
    }

    /// Sorts the queues again after a priority was inherited.
    pub(crate) fn resort(&self) {
        self.queues(|queues| {
            queues.ready.resort(Self::level_of);
            queues.preempted.resort(Self::level_of);
            queues.deques.resort(Self::level_of);
        });
    }

    /// Fibers that are ready to run here.
    pub(crate) fn ready(&self) -> usize {
        let next = usize::from(self.run_next.get().is_some());
        self.queues(|queues| queues.ready.len() + queues.preempted.len() + queues.deques.len())
            + next
    }

    /// Whether there are any.
    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        self.run_next.get().is_some()
            || self.queues(|queues| {
                queues.ready.ready() | queues.preempted.ready() | queues.deques.maybe() != 0
            })
    }

    /// Whether a fiber spawned now will probably be joined at once.
    pub(crate) fn expects_join(&self) -> bool {
        self.joins_soon.get() >= 2
    }

    /// Learns from a spawn: joined by its spawner before anybody wanted it?
    pub(crate) fn learn_join(&self, joined: bool) {
        let now = self.joins_soon.get();
        self.joins_soon
            .set(if joined { (now + 1).min(3) } else { 0 });
    }
}
