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
//!   nobody searches, one sleeps?       something there? leave again
//!     → take one off the list, wake    else sleep
//! ```
//!
//! Of two sides that each write and then look at the other's writing, at least
//! one sees the other: the fences make it so. If the submitter sees a searcher
//! it may rely on it: that searcher's last look is still to come, after its own
//! change of the word.
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

fn searchers(word: usize) -> usize {
    word % SLEEPER
}

fn sleepers(word: usize) -> usize {
    word / SLEEPER
}

/// How a worker came out of its sleep.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// By itself: a timer, its inbox, or a stop.
    OnItsOwn,
    /// Chosen to look for work: it counts as a searcher now.
    AsSearcher,
}

/// See the module header.
pub(crate) struct Idle {
    word: AtomicUsize,
    list: Lock<Vec<usize>>,
    workers: usize,
}

impl Idle {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            word: AtomicUsize::new(0),
            list: Lock::new(Vec::with_capacity(workers)),
            workers,
        }
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
        if 2 * searchers(self.word.load(Ordering::Relaxed)) >= self.workers {
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

    /// Leaves the list again, if nobody has taken us off it already.
    pub(crate) fn leave_sleep(&self, worker: usize) -> Left {
        let mut list = self.list.lock();
        match list.iter().position(|&listed| listed == worker) {
            Some(at) => {
                list.swap_remove(at);
                self.word.fetch_sub(SLEEPER, Ordering::Relaxed);
                Left::OnItsOwn
            }
            None => Left::AsSearcher,
        }
    }

    /// Whether every worker sleeps; for the monitor, which asks under its own
    /// protocol.
    pub(crate) fn all_asleep(&self) -> bool {
        sleepers(self.word.load(Ordering::Relaxed)) == self.workers
    }
}
