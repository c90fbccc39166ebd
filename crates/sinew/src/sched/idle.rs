//! Who sleeps, who searches, and whom to wake for new work.
//!
//! Work that any worker may take (deques, injectors) must never lie there while
//! everybody sleeps; nor should each new fiber wake everybody. One word counts
//! the workers that *search* and those that *sleep*; a lock guards the list of
//! the sleepers' numbers.
//!
//! ```text
//!   submitter                          worker that found nothing
//!   ─────────                          ─────────────────────────
//!   push the fiber                     searching − 1, sleeping + 1
//!   fence                              fence
//!   read the word                      look at every queue once more
//!   nobody searches, one sleeps?       something there? leave again, as a searcher
//!     → take one off the list, wake    else sleep
//! ```
//!
//! Of two sides that each write and then look at the other's writing, at least
//! one sees the other: the fences make it so. If the submitter sees a searcher
//! it may rely on it: that searcher's last look is still to come, after its own
//! change of the word. If that look finds something the worker counts as a searcher again:
//! several submitters may have relied on it, and it takes one fiber. What it leaves there
//! it passes on when its search ends, like any searcher.
//!
//! A retired spare (`sched::duty`) must not be chosen to look for work. It *rests* instead:
//! it is counted, for the monitor, and stands in no list. A submitter may have relied on it
//! as a searcher before. So it ends its search, if it counts as one, and looks at all queues
//! once more before its rest. If there is work it wakes another worker.
//!
//! Invariant 1: `word` counts exactly the workers that called `start_search`
//! and not `end_search` (or were woken as searchers), and those in `sleepers`.
//! Invariant 2: a worker taken off the list by [`Idle::claim_sleeper`] was
//! counted as a searcher at that moment, and learns so from
//! [`Idle::leave_sleep`].

use crate::primitive::{AtomicUsize, Ordering, fence};
use crate::sys::Lock;

const SEARCHER: usize = 1;
const SLEEPER: usize = 1 << 32;
const RESTING: usize = 1 << 48;

fn searchers(word: usize) -> usize {
    word % SLEEPER
}

fn sleepers(word: usize) -> usize {
    word % RESTING / SLEEPER
}

fn resting(word: usize) -> usize {
    word / RESTING
}

/// How a worker came out of its sleep.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// By itself: a timer, its inbox, or a stop.
    OnItsOwn,
    /// Chosen to look for work, or because it saw some: it counts as a searcher now.
    AsSearcher,
}

/// See the module header.
pub(crate) struct Idle {
    word: AtomicUsize,
    list: Lock<Vec<usize>>,
    /// How many workers there are, with spares.
    workers: AtomicUsize,
}

impl Idle {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            word: AtomicUsize::new(0),
            list: Lock::new(Vec::with_capacity(workers)),
            workers: AtomicUsize::new(workers),
        }
    }

    /// One worker more; before its thread starts.
    pub(crate) fn join(&self) {
        // Relaxed, here and below: the monitor, which joins others, is the one that
        // depends on it; the limit of searchers is a matter of taste.
        self.workers.fetch_add(1, Ordering::Relaxed);
    }

    /// One worker less; it neither searches nor sleeps nor rests.
    pub(crate) fn leave(&self) {
        self.workers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether no worker sleeps that could be woken for work, and none searches.
    pub(crate) fn nobody_is_free(&self) -> bool {
        // Relaxed: a hint.
        let word = self.word.load(Ordering::Relaxed);
        searchers(word) == 0 && sleepers(word) == 0
    }

    /// A retired spare sleeps from now on, and is not to be chosen.
    pub(crate) fn begin_rest(&self) {
        self.word.fetch_add(RESTING, Ordering::Relaxed);
        // Pairs with the fence in `shutdown::drain`, as that in `go_to_sleep` does.
        fence(Ordering::SeqCst);
    }

    /// It is awake again.
    pub(crate) fn end_rest(&self) {
        self.word.fetch_sub(RESTING, Ordering::Relaxed);
    }

    /// The worker to wake for work that was just made visible, if any.
    pub(crate) fn claim_sleeper(&self) -> Option<usize> {
        // Pairs with the fence in `go_to_sleep`: see the module header.
        fence(Ordering::SeqCst);
        // Relaxed: the fence orders it.
        let word = self.word.load(Ordering::Relaxed);
        if searchers(word) > 0 || sleepers(word) == 0 {
            return None;
        }
        self.claim_sleeper_slow()
    }

    #[cold]
    fn claim_sleeper_slow(&self) -> Option<usize> {
        let mut list = self.list.lock();
        // Another submitter may have been faster; its searcher serves us too.
        if searchers(self.word.load(Ordering::Relaxed)) > 0 {
            return None;
        }
        let worker = list.pop()?;
        // Relaxed: under the lock; readers outside are ordered by their fences.
        self.word.fetch_sub(SLEEPER - SEARCHER, Ordering::Relaxed);
        Some(worker)
    }

    /// Whether the caller may search; at most half of the workers do at once.
    #[must_use = "who may not search goes to sleep"]
    pub(crate) fn start_search(&self) -> bool {
        // Relaxed: the limit is a matter of taste, not of correctness.
        let workers = self.workers.load(Ordering::Relaxed);
        if 2 * searchers(self.word.load(Ordering::Relaxed)) >= workers {
            return false;
        }
        self.word.fetch_add(SEARCHER, Ordering::Relaxed);
        true
    }

    /// The search found something; true if nobody searches any more.
    ///
    /// Whoever submitted while we searched relied on us: the last searcher
    /// looks whether there is more, and wakes another one if so.
    #[must_use = "the last searcher must pass the duty on"]
    pub(crate) fn end_search(&self) -> bool {
        let before = self.word.fetch_sub(SEARCHER, Ordering::Relaxed);
        // Pairs with the fence in `claim_sleeper`: a submitter that still saw us
        // searching has pushed what our next look sees.
        fence(Ordering::SeqCst);
        searchers(before) == 1
    }

    /// Enters the list; the caller must look at every queue once more.
    pub(crate) fn go_to_sleep(&self, worker: usize, was_searching: bool) {
        {
            let mut list = self.list.lock();
            list.push(worker);
            let change = if was_searching {
                SLEEPER - SEARCHER
            } else {
                SLEEPER
            };
            self.word.fetch_add(change, Ordering::Relaxed);
        }
        // Pairs with the fence in `claim_sleeper`.
        fence(Ordering::SeqCst);
    }

    /// Leaves the list again, if nobody has taken us off it already. `saw_work` says what
    /// the last look found, after [`go_to_sleep`](Self::go_to_sleep).
    pub(crate) fn leave_sleep(&self, worker: usize, saw_work: bool) -> Left {
        let mut list = self.list.lock();
        let Some(at) = list.iter().position(|&listed| listed == worker) else {
            return Left::AsSearcher;
        };
        list.swap_remove(at);
        // Relaxed: as in `claim_sleeper_slow`.
        if saw_work {
            self.word.fetch_sub(SLEEPER - SEARCHER, Ordering::Relaxed);
            Left::AsSearcher
        } else {
            self.word.fetch_sub(SLEEPER, Ordering::Relaxed);
            Left::OnItsOwn
        }
    }

    /// Whether a worker sleeps or searches, and could take new work at once.
    pub(crate) fn somebody_is_idle(&self) -> bool {
        // Relaxed: a hint for where work goes first. Spares that rest take none.
        self.word.load(Ordering::Relaxed) % RESTING != 0
    }

    /// Whether every worker sleeps; for the monitor, which asks under its own
    /// protocol.
    pub(crate) fn all_asleep(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        // Too large a number of workers, of a spare that just left, is harmless: the
        // monitor asks again.
        sleepers(word) + resting(word) == self.workers.load(Ordering::Relaxed)
    }
}
