//! Models of the idle protocol, the monitor's bell and the word of a worker that sleeps.
//!
//! Deque and injector are crossbeam's and no loom types: `Queue` stands for them.
//! `Crew::work` follows `worker::run` and `worker::sleep`.
//!
//! Every ordering below was weakened once by hand; the model named caught it.
//!
//! | weakened                                    | caught by |
//! |---------------------------------------------|-----------|
//! | `Idle::claim_sleeper` without its fence     | `a_submitter_sees_the_sleeper…`, `no_work_lies_in_a_queue…` |
//! | `Idle::go_to_sleep` without its fence       | `a_submitter_sees_the_sleeper…`, `no_work_lies_in_a_queue…` |
//! | `Idle::end_search` without its fence        | `work_that_a_leaving_searcher…` |
//! | `Idle::leave_sleep` without the searcher    | `a_worker_that_is_blocked…` |
//! | `ParkWord::park` Acquire → Relaxed (1)      | `…after_the_park_that_it_ends`, `a_worker_that_slept_on_its_word…` |
//! | `ParkWord::park_in_kernel` Release → Relaxed | `…after_the_sleep_in_the_kernel…`, `a_worker_that_slept_on_its_word…` |
//! | `ParkWord::park_in_kernel` Acquire → Relaxed | the same, `an_event_ends_a_sleep…` |
//! | `ParkWord::park_in_kernel` sleeps though it was unparked | `…after_the_sleep_in_the_kernel…`, `a_worker_that_slept_on_its_word…` |
//! | `ParkWord::park_in_kernel` does not tell of an unpark before | `an_event_ends_a_sleep…` |
//! | `ParkWord::unpark` AcqRel → Acquire         | all four of the word |
//! | `ParkWord::unpark` AcqRel → Release         | `…after_the_sleep_in_the_kernel…`, `a_worker_that_slept_on_its_word…` |
//! | `MonitorBell::sleep` without its fence      | `the_monitor_never_sleeps…` |
//! | the look before the rest of a retired spare (here; copied from `worker::spare`) | `work_that_a_retiring_spare…` |
//! | the fence before `ring` (here; copied from `worker::sleep`) | `the_monitor_never_sleeps…` |
//!
//! (1) The first swap needs none: the second one reads what it wrote, which continues
//! the release sequence of the `unpark` that it read.

use super::awaited::Awaited;
use super::bell::MonitorBell;
use super::idle::{Idle, Left};
use super::seam::{Driver, FutexDriver, ParkWord};
use crate::primitive::model::Plain;
use crate::primitive::{AtomicBool, AtomicUsize, Ordering, fence, poll};
use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;
use std::os::fd::RawFd;

const WORKERS: usize = 2;

fn bounded(preemptions: usize) -> Builder {
    let mut model = Builder::new();
    model.preemption_bound = Some(preemptions);
    model
}

/// A stand-in for deque and injector: counts jobs, each with a payload.
///
/// No stronger than it must be: a push releases, a pop acquires, and a look
/// from afar may see an old number.
struct Queue {
    jobs: AtomicUsize,
    payload: UnsafeCell<u32>,
}

// SAFETY: loom checks every access to the payload.
unsafe impl Sync for Queue {}

impl Queue {
    fn new() -> Self {
        Self {
            jobs: AtomicUsize::new(0),
            payload: UnsafeCell::new(0),
        }
    }

    fn push(&self) {
        self.jobs.fetch_add(1, Ordering::Release);
    }

    fn look(&self) -> bool {
        self.jobs.load(Ordering::Relaxed) > 0
    }

    fn pop(&self) -> bool {
        let mut jobs = self.jobs.load(Ordering::Relaxed);
        while jobs > 0 {
            let taken =
                self.jobs
                    .compare_exchange(jobs, jobs - 1, Ordering::Acquire, Ordering::Relaxed);
            match taken {
                Ok(_) => return true,
                Err(seen) => jobs = seen,
            }
        }
        false
    }
}

/// Workers, what they run, and where they sleep.
struct Crew {
    idle: Idle,
    queue: Queue,
    drivers: [FutexDriver; WORKERS],
    ran: AtomicUsize,
    stop: AtomicBool,
    /// Worker 1 is a spare that takes nothing new.
    retired: AtomicBool,
}

impl Crew {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            idle: Idle::new(WORKERS),
            queue: Queue::new(),
            drivers: std::array::from_fn(|_| FutexDriver::new()),
            ran: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            retired: AtomicBool::new(false),
        })
    }

    fn wake_searcher(&self) {
        if let Some(worker) = self.idle.claim_sleeper() {
            self.drivers[worker].unpark();
        }
    }

    fn submit(&self) {
        self.queue.push();
        self.wake_searcher();
    }

    /// The loop of `worker::run` with the sleep of `worker::sleep`; ends once
    /// `jobs` have run, by telling the others.
    fn work(&self, worker: usize, jobs: usize) {
        let mut searching = false;
        while !self.stop.load(Ordering::Relaxed) {
            if worker == 1 && self.retired.load(Ordering::Relaxed) {
                // As the loop's `search::end_search`, and the look in `Retirement::rest`.
                if searching && self.idle.end_search() && self.queue.look() {
                    self.wake_searcher();
                }
                self.idle.begin_rest();
                if self.queue.look() {
                    self.wake_searcher();
                }
                return;
            }
            searching = searching || self.idle.start_search();
            if searching && self.queue.pop() {
                searching = false;
                if self.idle.end_search() && self.queue.look() {
                    self.wake_searcher();
                }
                if self.ran.fetch_add(1, Ordering::Relaxed) + 1 == jobs {
                    self.stop.store(true, Ordering::Relaxed);
                    for driver in &self.drivers {
                        driver.unpark();
                    }
                }
                continue;
            }
            self.idle.go_to_sleep(worker, searching);
            let saw_work = self.queue.look();
            if !saw_work && !self.stop.load(Ordering::Relaxed) {
                self.drivers[worker].park(None);
            } else {
                thread::yield_now(); // another one searches: let it
            }
            searching = self.idle.leave_sleep(worker, saw_work) == Left::AsSearcher;
        }
    }
}

impl Crew {
    /// The same for two jobs that block their worker until both have begun, so that each needs
    /// a worker of its own.
    fn work_that_blocks(&self, worker: usize) {
        let mut searching = false;
        loop {
            // A worker takes some also while it does not search (`Core::take_mail`).
            let mut took = self.queue.pop();
            if !took {
                searching = searching || self.idle.start_search();
                took = searching && self.queue.pop();
            }
            if took {
                if searching && self.idle.end_search() && self.queue.look() {
                    self.wake_searcher();
                }
                if self.ran.fetch_add(1, Ordering::Relaxed) + 1 == WORKERS {
                    self.drivers.iter().for_each(FutexDriver::unpark);
                } else {
                    while self.ran.load(Ordering::Relaxed) < WORKERS {
                        self.drivers[worker].park(None);
                    }
                }
                return;
            }
            self.idle.go_to_sleep(worker, searching);
            let saw_work = self.queue.look();
            if !saw_work {
                self.drivers[worker].park(None);
            }
            searching = self.idle.leave_sleep(worker, saw_work) == Left::AsSearcher;
        }
    }
}

/// A worker that has seen two jobs in its last look, for both of which it was relied on, takes
/// one, and does not leave the other behind.
#[test]
fn a_worker_that_is_blocked_by_what_it_found_has_passed_the_rest_on() {
    bounded(3).check(|| {
        let crew = Crew::new();
        let workers = [0, 1].map(|worker| {
            let crew = crew.clone();
            thread::spawn(move || crew.work_that_blocks(worker))
        });
        crew.submit();
        crew.submit();
        for worker in workers {
            worker.join().unwrap();
        }
        assert!(!crew.queue.look());
    });
}

/// A sleep that nobody ends is a deadlock, which loom reports.
#[test]
fn no_work_lies_in_a_queue_while_everybody_sleeps() {
    // Two workers' loops, each with a lock: with three preemptions it takes
    // almost a minute.
    bounded(2).check(|| {
        let crew = Crew::new();
        let workers = [0, 1].map(|worker| {
            let crew = crew.clone();
            thread::spawn(move || crew.work(worker, 2))
        });
        crew.submit();
        crew.submit();
        for worker in workers {
            worker.join().unwrap();
        }
        assert_eq!(crew.ran.load(Ordering::Relaxed), 2);
        assert!(!crew.queue.look());
    });
}

/// As above, and a spare may retire at any moment: also when it was just chosen to look
/// for work.
#[test]
fn work_that_a_retiring_spare_was_relied_on_for_is_run_by_a_worker() {
    bounded(2).check(|| {
        let crew = Crew::new();
        let workers = [0, 1].map(|worker| {
            let crew = crew.clone();
            thread::spawn(move || crew.work(worker, 1))
        });
        crew.submit();
        // As `spare::retire`.
        crew.retired.store(true, Ordering::Relaxed);
        crew.drivers[1].unpark();
        for worker in workers {
            worker.join().unwrap();
        }
        assert_eq!(crew.ran.load(Ordering::Relaxed), 1);
    });
}

/// A retired spare is counted while it rests, though it stands in no list.
#[test]
fn the_monitor_sleeps_beside_a_resting_spare_and_not_beside_one_that_is_awake() {
    loom::model(|| {
        let shared = Arc::new((Idle::new(1), MonitorBell::default()));
        shared.0.join();
        shared.0.go_to_sleep(0, false);
        shared.0.begin_rest();
        assert!(shared.0.all_asleep());
        assert_eq!(shared.0.claim_sleeper(), Some(0), "the spare is not chosen");
        assert_eq!(shared.0.claim_sleeper(), None);
        assert_eq!(shared.0.leave_sleep(0, false), Left::AsSearcher);
        shared.0.go_to_sleep(0, true);
        let spare = thread::spawn({
            let shared = shared.clone();
            move || {
                shared.0.end_rest();
                // As in `Retirement::rest`.
                fence(Ordering::SeqCst);
                shared.1.ring();
            }
        });
        // Ends because it is rung, or because the spare is seen to be awake.
        shared.1.sleep(|| shared.0.all_asleep(), || None);
        spare.join().unwrap();
        assert!(!shared.0.all_asleep());
        shared.0.leave();
        assert!(shared.0.all_asleep());
    });
}

#[test]
fn a_submitter_sees_the_sleeper_or_the_sleeper_sees_the_work() {
    for searching in [false, true] {
        loom::model(move || {
            let crew = Crew::new();
            if searching {
                assert!(crew.idle.start_search());
            }
            let submitter = thread::spawn({
                let crew = crew.clone();
                move || {
                    // SAFETY: loom checks that nobody else uses the cell now.
                    crew.queue.payload.with_mut(|at| unsafe { *at = 1 });
                    crew.queue.push();
                    crew.idle.claim_sleeper()
                }
            });
            crew.idle.go_to_sleep(0, searching);
            let seen = crew.queue.look();
            if seen {
                assert!(crew.queue.pop());
                // SAFETY: loom checks that nobody writes the cell now.
                crew.queue.payload.with(|at| assert_eq!(unsafe { *at }, 1));
            }
            let woken = submitter.join().unwrap();
            assert!(seen || woken == Some(0), "work lies there and all sleep");
            let left = crew.idle.leave_sleep(0, seen);
            assert_eq!(left == Left::AsSearcher, seen || woken.is_some());
        });
    }
}

#[test]
fn two_submitters_wake_one_sleeper_each_at_most_and_one_in_all_while_it_searches() {
    loom::model(|| {
        let crew = Crew::new();
        crew.idle.go_to_sleep(0, false);
        crew.idle.go_to_sleep(1, false);
        assert!(crew.idle.all_asleep());
        let other = thread::spawn({
            let crew = crew.clone();
            move || crew.idle.claim_sleeper()
        });
        let mine = crew.idle.claim_sleeper();
        let theirs = other.join().unwrap();
        assert!(
            mine.is_some() != theirs.is_some(),
            "a herd: {mine:?} and {theirs:?}"
        );
    });
}

/// The searcher found one job; a second one comes while it leaves the search,
/// and another worker sleeps.
#[test]
fn work_that_a_leaving_searcher_was_relied_on_for_wakes_another_worker() {
    loom::model(|| {
        let crew = Crew::new();
        assert!(crew.idle.start_search());
        crew.idle.go_to_sleep(1, false);
        crew.queue.push();
        let submitter = thread::spawn({
            let crew = crew.clone();
            move || {
                crew.queue.push();
                crew.idle.claim_sleeper()
            }
        });
        assert!(crew.queue.pop());
        // As `search::end_search`.
        let passed_on = if crew.idle.end_search() && crew.queue.look() {
            crew.idle.claim_sleeper()
        } else {
            None
        };
        let woken = submitter.join().unwrap();
        // We are busy with the first job now, perhaps for long.
        assert!(
            passed_on.or(woken) == Some(1),
            "a job waits for a busy worker while another sleeps"
        );
    });
}

#[test]
fn the_monitor_never_sleeps_while_a_worker_is_awake() {
    loom::model(|| {
        let shared = Arc::new((Idle::new(1), MonitorBell::default()));
        shared.0.go_to_sleep(0, false);
        let worker = thread::spawn({
            let shared = shared.clone();
            move || {
                // As the end of `worker::sleep`.
                assert_eq!(shared.0.leave_sleep(0, false), Left::OnItsOwn);
                fence(Ordering::SeqCst);
                shared.1.ring();
            }
        });
        // Returns, or loom reports a deadlock.
        shared.1.sleep(|| shared.0.all_asleep(), || None);
        worker.join().unwrap();
    });
}

/// Who begins to wait for fibers while the monitor goes to sleep is seen, or rings it.
#[test]
fn the_monitor_hears_of_a_wait_from_outside() {
    loom::model(|| {
        let shared = Arc::new((Awaited::default(), MonitorBell::default()));
        let waiter = thread::spawn({
            let shared = shared.clone();
            move || std::mem::forget(shared.0.begin(&shared.1))
        });
        // Returns, or loom reports a deadlock.
        shared.1.sleep(|| !shared.0.is_any(), || None);
        // And knows of it when it is about to sleep again.
        let look = || {
            assert!(shared.0.is_any());
            false
        };
        shared.1.sleep(look, || None);
        waiter.join().unwrap();
    });
}

#[test]
fn a_stopped_monitor_does_not_sleep() {
    loom::model(|| {
        let bell = Arc::new(MonitorBell::default());
        let stopper = thread::spawn({
            let bell = bell.clone();
            move || bell.stop()
        });
        let ringer = thread::spawn({
            let bell = bell.clone();
            move || bell.ring()
        });
        bell.sleep(|| true, || None);
        stopper.join().unwrap();
        ringer.join().unwrap();
        bell.sleep(|| true, || None);
    });
}

#[test]
fn what_came_before_an_unpark_is_seen_after_the_park_that_it_ends() {
    loom::model(|| {
        let sleeper = Arc::new((FutexDriver::new(), AtomicUsize::new(0)));
        let unparkers = [0, 1].map(|_| {
            let sleeper = sleeper.clone();
            thread::spawn(move || {
                sleeper.1.fetch_add(1, Ordering::Relaxed);
                sleeper.0.unpark();
            })
        });
        while sleeper.1.load(Ordering::Relaxed) < 2 {
            sleeper.0.park(None);
        }
        for unparker in unparkers {
            unparker.join().unwrap();
        }
    });
}

/// A worker's driver, as `reactor::driver` has it: its bell, and an event of a descriptor.
struct Sleeper {
    word: ParkWord,
    /// Stands for the `OnceLock`: none until the worker sleeps in the kernel.
    bell: Plain<Option<RawFd>>,
    descriptor: RawFd,
    /// What others have done for it.
    done: AtomicUsize,
}

impl Sleeper {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            word: ParkWord::new(),
            bell: Plain::new(None),
            descriptor: poll::take_bell().unwrap(),
            done: AtomicUsize::new(0),
        })
    }

    fn unpark(&self) {
        self.word
            .unpark(|| poll::ring(self.bell.get().expect("it sleeps there")));
    }

    fn help(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
        self.unpark();
    }

    fn done(&self) -> usize {
        self.done.load(Ordering::Relaxed)
    }

    fn make_bell(&self) {
        self.bell.set(Some(poll::take_bell().unwrap()));
    }

    /// Whether somebody unparked it, and whether there was an event.
    fn park_in_kernel(&self) -> (bool, bool) {
        let bell = self.bell.get().expect("made before");
        let mut event = false;
        let unparked = self.word.park_in_kernel(|at_once| {
            event = poll::wait(self.descriptor, bell, at_once);
        });
        (unparked, event)
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        poll::give_bell(self.descriptor);
        if let Some(bell) = self.bell.get() {
            poll::give_bell(bell);
        }
    }
}

/// Who rings finds the bell: loom sees a race if it does not see it for sure.
#[test]
fn what_came_before_an_unpark_is_seen_after_the_sleep_in_the_kernel_that_it_ends() {
    bounded(3).check(|| {
        let sleeper = Sleeper::new();
        let unparkers = [0, 1].map(|_| {
            let sleeper = sleeper.clone();
            thread::spawn(move || sleeper.help())
        });
        sleeper.make_bell();
        while sleeper.done() < 2 {
            sleeper.park_in_kernel();
        }
        for unparker in unparkers {
            unparker.join().unwrap();
        }
    });
}

#[test]
fn a_worker_that_slept_on_its_word_and_then_sleeps_in_the_kernel_is_unparked_in_both() {
    bounded(3).check(|| {
        let sleeper = Sleeper::new();
        let unparkers = [0, 1].map(|_| {
            let sleeper = sleeper.clone();
            thread::spawn(move || sleeper.help())
        });
        if sleeper.done() < 2 {
            sleeper.word.park(None);
        }
        sleeper.make_bell();
        while sleeper.done() < 2 {
            sleeper.park_in_kernel();
        }
        for unparker in unparkers {
            unparker.join().unwrap();
        }
    });
}

#[test]
fn an_event_ends_a_sleep_in_the_kernel_and_an_unpark_next_to_it_is_told_apart() {
    loom::model(|| {
        let sleeper = Sleeper::new();
        sleeper.make_bell();
        let kernel = thread::spawn({
            let sleeper = sleeper.clone();
            move || poll::ring(sleeper.descriptor)
        });
        let unparker = thread::spawn({
            let sleeper = sleeper.clone();
            move || sleeper.help()
        });
        let (unparked, event) = sleeper.park_in_kernel();
        assert!(unparked || event, "it woke for nothing");
        if unparked {
            assert_eq!(sleeper.done(), 1);
        }
        unparker.join().unwrap();
        if !unparked {
            // It is meant for the next sleep.
            assert!(sleeper.park_in_kernel().0);
        }
        kernel.join().unwrap();
    });
}
