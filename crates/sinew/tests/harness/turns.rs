//! Fibers that compute, and how often the worker went from one of them to another.

use super::Gate;
use sinew::{Builder, JoinHandle, Priority};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    /// The number of this worker, once one of these fibers has run on it, and which
    /// of them ran last. Read and written between two switches only.
    static WORKER: Cell<usize> = const { Cell::new(usize::MAX) };
    static RAN_LAST: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Two workers, and a spare for each: a worker that waits for memory is taken for blocked.
const THREADS: usize = 4;

/// Turns of computing fibers, counted on each worker.
#[derive(Clone)]
pub struct Turns(Arc<Counts>);

struct Counts {
    workers: AtomicUsize,
    turns: [AtomicUsize; THREADS],
    fibers: AtomicUsize,
    begun: AtomicUsize,
    stop: Gate,
}

impl Turns {
    pub fn new() -> Self {
        Self(Arc::new(Counts {
            workers: AtomicUsize::new(0),
            turns: [const { AtomicUsize::new(0) }; THREADS],
            fibers: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            stop: Gate::new(),
        }))
    }

    /// The number of the worker that the caller, a fiber, runs on.
    pub fn worker(&self) -> usize {
        if WORKER.get() == usize::MAX {
            WORKER.set(self.0.workers.fetch_add(1, Ordering::Relaxed));
        }
        WORKER.get()
    }

    /// How many turns computing fibers have had on a worker.
    pub fn on(&self, worker: usize) -> usize {
        self.0.turns[worker].load(Ordering::Relaxed)
    }

    /// Whether every computing fiber has had a turn.
    pub fn all_have_begun(&self) -> bool {
        let [fibers, begun] = [&self.0.fibers, &self.0.begun].map(|n| n.load(Ordering::Relaxed));
        fibers == begun
    }

    /// Spawns a fiber that computes, with safepoints, until `stop`; its handle returns
    /// how many turns it had.
    pub fn compute(&self, priority: Priority) -> JoinHandle<usize> {
        let turns = self.clone();
        let me = self.0.fibers.fetch_add(1, Ordering::Relaxed);
        let builder = Builder::new().priority(priority);
        let fiber = builder.spawn(move || {
            turns.0.begun.fetch_add(1, Ordering::Relaxed);
            let mut own = 0;
            while !turns.0.stop.is_open() {
                if RAN_LAST.get() != me {
                    RAN_LAST.set(me);
                    let worker = turns.worker();
                    turns.0.turns[worker].fetch_add(1, Ordering::Relaxed);
                    own += 1;
                }
                for n in 0..100u32 {
                    std::hint::black_box(n);
                }
                sinew::safepoint();
            }
            own
        });
        fiber.unwrap()
    }

    /// Another fiber runs here: the next computing one has a new turn, whichever it is.
    pub fn interrupt(&self) {
        RAN_LAST.set(usize::MAX);
    }

    /// Ends all of them.
    pub fn stop(&self) {
        self.0.stop.open();
    }

    /// Ends all of them when dropped: also if the test fails.
    pub fn stop_later(&self) -> StopLater {
        StopLater(self.clone())
    }
}

/// See [`Turns::stop_later`].
pub struct StopLater(Turns);

impl Drop for StopLater {
    fn drop(&mut self) {
        self.0.stop();
    }
}
