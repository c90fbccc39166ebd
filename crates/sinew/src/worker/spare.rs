//! Spare workers: they stand in for workers that a fiber has blocked.
//!
//! A fiber that calls something that blocks takes its worker along. What has started there
//! has to wait, since it belongs to that thread. Fibers that have not started do not, if
//! there is another worker to start them.
//!
//! The monitor counts at each tick the workers and spares on duty that are not blocked. A
//! slot is taken for blocked if it has a current fiber, has not switched for [`PATIENCE`]
//! ticks, and its thread waited in the kernel at each of them (`hog::TurnWatch`).
//!
//! | runnable | unstarted fibers wait, nobody is free | the monitor                       |
//! |----------|---------------------------------------|-----------------------------------|
//! | too few  | for [`PATIENCE`] ticks                | calls one retired spare back, or starts one |
//! | too few  | no                                    | does nothing                      |
//! | enough   |                                       | does nothing                      |
//! | too many |                                       | retires that many spares          |
//!
//! "Enough" is the number of workers. So when a blocked worker is back, a spare retires: it
//! takes nothing new, gives its unstarted fibers to all, and runs those that it has started.
//! When it has none and has run nothing for some time ([`LINGER`]) its thread ends, and the
//! slot may be given to another one (`sched::duty`).
//!
//! Invariant 1 (nobody is left): the thread of a spare ends only if no started fiber has its
//! home there ([`Core::has_no_fibers`]). So nobody pushes into the inbox of a slot without a
//! thread: only wakers of such fibers do. Nothing else is ever sent to a spare: mail goes to
//! workers alone (`Core::less_loaded`).
//! Invariant 2 (the gate): a spare is started under the lock of [`Spares`], unless that was
//! closed. The end of a runtime closes it, and knows every thread from then on.

use super::retry::Retry;
use super::{kept, search, services, shutdown};
use crate::fiber::Block;
use crate::primitive::{Ordering, fence};
use crate::queue::deque::Deques;
use crate::reactor::Reactor;
use crate::sched::core::Core;
use crate::sched::shared::{Remote, Shared, WorkerEnd};
use crate::stack::Given;
use crate::sys::log::{self, log};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// For how many ticks in a row a worker must be blocked, and fibers wait.
const PATIENCE: u32 = 2;
/// The pause after the first try to start a spare for which there was no thread.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
/// How long a spare that has nothing to do stays.
pub(crate) const LINGER: Duration = Duration::from_secs(10);

/// Starts the thread of the worker in this slot.
pub(crate) type StartSpare = fn(&Arc<Shared>, usize) -> io::Result<JoinHandle<()>>;

/// The threads of a runtime's spares.
pub(crate) struct Spares {
    start: StartSpare,
    linger: Duration,
    threads: Mutex<SpareThreads>,
}

struct SpareThreads {
    /// No more are started: the runtime stops.
    closed: bool,
    /// Per slot; none while a thread has it.
    deques: Vec<Option<Deques>>,
    /// Some may have ended.
    handles: Vec<JoinHandle<()>>,
}

impl Spares {
    /// With a slot for each of `deques`.
    pub(crate) fn new(start: StartSpare, linger: Duration, deques: Vec<Deques>) -> Self {
        Self {
            start,
            linger,
            threads: Mutex::new(SpareThreads {
                closed: false,
                deques: deques.into_iter().map(Some).collect(),
                handles: Vec::new(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, SpareThreads> {
        // Nothing in it is ever half changed.
        self.threads.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Starts no more, and returns the threads that were started and may not have ended.
    pub(crate) fn close(&self) -> Vec<JoinHandle<()>> {
        let mut threads = self.lock();
        threads.closed = true;
        std::mem::take(&mut threads.handles)
    }

    /// Starts a thread in the first empty slot; false if there is none. An error is the
    /// system's, which gave no thread.
    fn start_one(&self, shared: &Arc<Shared>) -> io::Result<bool> {
        let slots = shared.remotes.iter().skip(shared.workers);
        let Some(remote) = slots.into_iter().find(|remote| remote.duty.fill()) else {
            return Ok(false);
        };
        let mut threads = self.lock();
        if threads.closed {
            remote.duty.vacate();
            return Ok(false);
        }
        shared.idle.join();
        remote.set_end(WorkerEnd::Running);
        // Before the thread queues anything; see `Shared::used`.
        shared
            .slots_used
            .fetch_max(remote.index + 1, Ordering::Relaxed);
        match (self.start)(shared, remote.index) {
            Ok(handle) => {
                threads.handles.retain(|handle| !handle.is_finished());
                threads.handles.push(handle);
                Ok(true)
            }
            Err(error) => {
                shared.idle.leave();
                remote.set_end(WorkerEnd::Stopped);
                remote.duty.vacate();
                Err(error)
            }
        }
    }
}

/// What the thread in a slot for spares begins with.
pub(crate) fn take_deques(shared: &Shared, index: usize) -> Deques {
    let mut threads = services::of(shared).spares.lock();
    let deques = threads.deques[index - shared.workers].take();
    deques.expect("a slot that was vacant has its deques")
}

/// The monitor's part; see the module header.
#[derive(Default)]
pub(crate) struct Compensation {
    /// For how many ticks in a row unstarted fibers have waited.
    unserved: u32,
    /// When to try again, after the system has given no thread.
    retry: Option<Retry>,
    /// That was said.
    said: bool,
}

impl Compensation {
    /// Looks whether there are too few workers, or too many. `waits` says for how many
    /// ticks the worker in a slot has been blocked.
    pub(crate) fn tick(
        &mut self,
        shared: &Arc<Shared>,
        now: Instant,
        waits: impl Fn(usize) -> u32,
    ) {
        if shared.remotes.len() == shared.workers {
            return;
        }
        let used = shared.used();
        let on_duty = || used.iter().filter(|remote| remote.duty.is_on());
        let is_blocked = |remote: &Remote| waits(remote.index) >= PATIENCE;
        let runnable = on_duty().filter(|remote| !is_blocked(remote)).count();
        if runnable > shared.workers {
            let spares = used[shared.workers..].iter().rev();
            let active = spares.filter(|remote| remote.duty.is_on() && !is_blocked(remote));
            for remote in active.take(runnable - shared.workers) {
                retire(remote);
            }
        }
        if on_duty().all(|remote| waits(remote.index) == 0) || !is_unserved(shared) {
            self.unserved = 0;
            return;
        }
        self.unserved += 1;
        let is_due = self.unserved >= PATIENCE && runnable < shared.workers;
        if is_due && (recall_one(shared) || self.start_one(shared, now)) {
            self.unserved = 0;
        }
    }

    fn start_one(&mut self, shared: &Arc<Shared>, now: Instant) -> bool {
        if self.retry.as_mut().is_some_and(|retry| !retry.is_due(now)) {
            return false;
        }
        let error = match services::of(shared).spares.start_one(shared) {
            Ok(started) => {
                self.retry = None;
                return started;
            }
            Err(error) => error,
        };
        if self.retry.is_none() {
            self.retry = Some(Retry::new(now + FIRST_PAUSE, FIRST_PAUSE));
        }
        // Once, and at a later try if it would have to wait: the monitor has other duties.
        if !self.said && !log::would_wait() {
            self.said = true;
            log(&format!(
                "runtime '{}': no thread for a spare worker: {error}",
                shared.settings.name
            ));
        }
        false
    }
}

/// Whether unstarted fibers wait and no worker is free to take them.
fn is_unserved(shared: &Shared) -> bool {
    let waiting = || {
        !shared.injectors.is_empty() || shared.used().iter().any(|remote| remote.stealable() > 0)
    };
    shared.idle.nobody_is_free() && waiting()
}

fn retire(remote: &Remote) {
    if remote.duty.retire() {
        remote.ask_to_resort(); // `heed` sees that it is retired
        remote.driver.unpark();
    }
}

fn recall_one(shared: &Shared) -> bool {
    let mut spares = shared.used()[shared.workers..].iter();
    let recalled = spares.find(|remote| remote.duty.recall());
    if let Some(remote) = recalled {
        remote.driver.unpark();
    }
    recalled.is_some()
}

/// The worker's loop saw its flag: it may have to retire.
pub(crate) fn heed(core: &Core) {
    if !core.takes_new() {
        core.hand_over();
    }
}

/// A migratable fiber comes to a worker that is not its home.
pub(crate) fn move_home(core: &Core, fiber: &Block) {
    let former = fiber.home().cast::<Remote>();
    // Relaxed: it was counted there when it started.
    core.remote().migrants.fetch_add(1, Ordering::Relaxed);
    fiber.set_home(core.home());
    // SAFETY: the home of a started fiber is a `Remote` of its runtime, which is ours.
    let former = unsafe { &*former };
    // Release: this worker is done with that slot; pairs with the Acquire in
    // `Core::has_no_fibers`.
    let last = former.migrants.fetch_sub(1, Ordering::Release) == 1;
    if last && former.index >= core.shared().workers {
        former.driver.unpark(); // it may have rested because of this one
    }
}

/// What the loop of a retired spare does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "who is to leave has given its slot up"]
pub(crate) enum Rest {
    /// Look for something to run.
    Again,
    /// End the thread.
    Leave,
}

/// Since when a retired spare has run nothing.
pub(crate) struct Retirement {
    since: Option<Instant>,
    /// Its count of switches then.
    switches: u64,
}

impl Retirement {
    pub(crate) fn new() -> Self {
        Self {
            since: None,
            switches: 0,
        }
    }

    /// Sleeps, as `sleep::sleep` does, but is not to be woken for new work.
    pub(crate) fn rest(&mut self, core: &Core) -> Rest {
        let shared = core.shared();
        let remote = core.remote();
        let wake_at = core.with_wheel(|wheel| wheel.next_wake());
        core.publish_load();
        shared.idle.begin_rest();
        // After the fence in `begin_rest`, as in `sleep::sleep`.
        if shared.draining.load(Ordering::Relaxed) {
            shutdown::poke(shared);
        }
        // It may have seen work as the last searcher, on its way to sleep, and retired then.
        if search::others_have_work(core) {
            shared.wake_searcher();
        }
        let left = self.left(core);
        if left == Some(Duration::ZERO) && may_leave(core) && remote.duty.leave() {
            shared.idle.end_rest();
            return Rest::Leave;
        }
        let something =
            shared.stop.load(Ordering::Relaxed) || remote.duty.is_on() || !remote.inbox.try_sleep();
        if !something {
            let now = shared.clock.now();
            let timer = wake_at.map(|at| Duration::from_nanos(at.saturating_sub(now)));
            // It would leave but may not: what keeps it wakes it (an operation of the ring,
            // a timer, a stack, the worker that takes its last migratable fiber).
            let left = left.filter(|left| !left.is_zero());
            let timeout = [timer, left].into_iter().flatten().min();
            remote.driver.park(timeout);
        }
        core.end_inbox_sleep();
        shared.idle.end_rest();
        // Pairs with the fence in `MonitorBell::sleep`.
        fence(Ordering::SeqCst);
        shared.monitor.ring();
        Rest::Again
    }

    /// How long it stays if nothing happens; none while it has fibers.
    fn left(&mut self, core: &Core) -> Option<Duration> {
        let now = Instant::now();
        // Relaxed: our own counter.
        let switches = core.remote().counters.switches.load(Ordering::Relaxed);
        if switches != self.switches {
            self.switches = switches;
            self.since = None;
        }
        let since = *self.since.get_or_insert(now);
        let linger = services::of(core.shared()).spares.linger;
        core.has_no_fibers()
            .then(|| linger.saturating_sub(now - since))
    }
}

/// Whether nothing is here that only this thread can do.
fn may_leave(core: &Core) -> bool {
    let remote = core.remote();
    let reactor = remote.driver.as_any().downcast_ref::<Reactor>();
    // SAFETY: on this worker's own thread.
    let is_needed = reactor.is_some_and(|reactor| unsafe { reactor.is_needed() });
    let nothing = core.has_no_fibers()
        && !core.has_ready()
        && remote.inbox.is_empty()
        && core.with_starved(|starved| starved.is_empty())
        && core.with_wheel(|wheel| wheel.len()) == 0
        && !is_needed
        // The registry has the last word, as at the end of a runtime.
        && !kept::must_stay(core);
    if nothing && core.with_stacks(|stacks| stacks.flush()) == Given::Wanted {
        super::starve::wake_starving(core.shared());
    }
    nothing
}

/// The thread of a worker has left its loop: that of a spare gives its slot back.
pub(crate) fn vacate(core: Core) {
    if !core.is_spare() {
        return;
    }
    let shared = core.shared().clone();
    let index = core.index();
    let deques = core.into_deques();
    let spares = &services::of(&shared).spares;
    spares.lock().deques[index - shared.workers] = Some(deques);
    shared.idle.leave();
    shared.remotes[index].duty.vacate();
}
