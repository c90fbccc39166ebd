//! The monitor: a thread that watches the workers while they work.
//!
//! Once per [`TICK`] it
//!
//! * raises the flag of a worker whose fiber has run for a whole quantum, which
//!   safepoints look at, and lets its next cancellation point look at its limits of
//!   time, for which a timer does not fire while the worker is not left;
//! * reports a fiber that hogs its worker;
//! * wakes a thief for a fiber that lies in the deque of a worker that does not
//!   switch (`sched::submit`);
//! * gives memory of free stacks back.
//!
//! It reads no clock of a worker's: a worker that has not switched since the
//! last tick has the same count of switches. When every worker sleeps, the
//! monitor tidies up once more and sleeps too, until a worker rings it awake.

use super::run::wake_starving;
use super::shutdown;
use crate::fiber::{Block, FiberId, slab};
use crate::sched::shared::{Remote, Shared};
use crate::stack::{Given, Trim};
use crate::sys::log::log;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(1);
/// The same where there is one worker.
const LONG_TICK: Duration = Duration::from_millis(5);
/// Between two rounds of giving memory back while there is work.
const TRIM_EVERY: Duration = Duration::from_millis(100);
/// All workers must have slept this long before the monitor sleeps.
const LINGER: Duration = Duration::from_millis(50);

/// A fiber that has run for long without a pause, whether or not others wait.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HogReport {
    /// The fiber's id.
    pub id: FiberId,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// The worker that runs it.
    pub worker: usize,
    /// For how long it has run without a pause.
    pub running_for: Duration,
    /// Where it was spawned.
    pub spawned_at: Option<&'static Location<'static>>,
    /// Where it waited last, if it ever did.
    pub last_wait: Option<&'static Location<'static>>,
}

/// What is told of a hog.
pub(crate) type OnHog = Arc<dyn Fn(&HogReport) + Send + Sync>;

/// How the monitor of a runtime was asked to be.
#[derive(Clone)]
pub(crate) struct MonitorSettings {
    pub(crate) quantum: Duration,
    pub(crate) hog_after: Duration,
    pub(crate) on_hog: Option<OnHog>,
}

/// What the monitor remembers of one worker.
struct Watch {
    switches: u64,
    since: Instant,
    reported: bool,
}

/// The monitor thread's loop.
pub(crate) fn run(shared: &Shared, settings: &MonitorSettings) {
    let start = Instant::now();
    let mut watches: Vec<Watch> = shared
        .remotes
        .iter()
        .map(|_| Watch {
            switches: 0,
            since: start,
            reported: false,
        })
        .collect();
    // Nobody steals from a worker that is alone, so only its quantum matters; and the
    // monitor runs on the very CPU that the worker wants: a tick each ms took 3 % of it
    // under load.
    let tick = if shared.several_workers() {
        TICK
    } else {
        (settings.quantum / 2).clamp(TICK, LONG_TICK)
    };
    let mut trimmed = start;
    let mut asleep_since = None;
    let mut retry = Retry::new(start);
    while !shared.stop.load(Ordering::Relaxed) {
        shared.monitor.doze(tick);
        let now = Instant::now();
        for (remote, watch) in shared.remotes.iter().zip(&mut watches) {
            observe(shared, remote, watch, settings, now);
        }
        // Relaxed: a worker that never switches again does not look at it.
        if shared.draining.load(Ordering::Relaxed) {
            shutdown::poke(shared);
        }
        if now - trimmed >= TRIM_EVERY {
            trimmed = now;
            slab::trim(false);
            if shared.stacks.excess() > 0 {
                trim(shared, Trim::Half);
            }
        }
        // Relaxed: looked at again at the next tick.
        if shared.out_of_stacks.load(Ordering::Relaxed) {
            // Memory may come back without any stack of ours being freed.
            if retry.is_due(now) {
                wake_starving(shared);
            }
            continue;
        }
        retry = Retry::new(now);
        if !shared.idle.all_asleep() {
            asleep_since = None;
            continue;
        }
        if now - *asleep_since.get_or_insert(now) >= LINGER {
            trim(shared, Trim::All);
            slab::trim(true);
            shared
                .monitor
                .sleep(|| shared.idle.all_asleep() && !shared.stop.load(Ordering::Relaxed));
            asleep_since = None;
            let now = Instant::now();
            for watch in &mut watches {
                watch.since = now; // nobody ran while we slept
            }
        }
    }
}

/// Ever longer pauses between tries to get a stack.
struct Retry {
    next: Instant,
    pause: Duration,
}

impl Retry {
    const LONGEST: Duration = Duration::from_millis(100);

    fn new(now: Instant) -> Self {
        Self {
            next: now,
            pause: TICK,
        }
    }

    fn is_due(&mut self, now: Instant) -> bool {
        if now < self.next {
            return false;
        }
        self.next = now + self.pause;
        self.pause = (2 * self.pause).min(Self::LONGEST);
        true
    }
}

fn trim(shared: &Shared, level: Trim) {
    if shared.stacks.trim(level).given == Given::Wanted {
        wake_starving(shared);
    }
}

fn observe(
    shared: &Shared,
    remote: &Remote,
    watch: &mut Watch,
    settings: &MonitorSettings,
    now: Instant,
) {
    // Relaxed throughout: hints that the next tick corrects.
    let has_lone = remote.left_behind.swap(false, Ordering::Relaxed)
        | remote.deferred.swap(false, Ordering::Relaxed);
    let switches = remote.counters.switches.load(Ordering::Relaxed);
    let running = !remote.current.load(Ordering::Relaxed).is_null();
    if has_lone && remote.stealable() > 0 {
        shared.wake_searcher();
    }
    if switches != watch.switches || !running {
        remote.stuck.store(false, Ordering::Relaxed);
        *watch = Watch {
            switches,
            since: now,
            reported: false,
        };
        return;
    }
    let running_for = now - watch.since;
    if running_for >= TICK {
        remote.stuck.store(true, Ordering::Relaxed);
        if remote.stealable() > 0 {
            shared.wake_searcher(); // it does not get to them
        }
    }
    if running_for >= settings.quantum {
        remote.preempt.store(true, Ordering::Relaxed);
        let load = || remote.current.load(Ordering::Acquire).cast_const();
        // If the block is another's by now, that looks in vain, once.
        // SAFETY: the word is atomic, and mapped under the slab's lock; a block that
        // is free does not mind the bit.
        unsafe { slab::peek(load, |block, _| block.state().look_soon()) };
    }
    if running_for >= settings.hog_after && !watch.reported {
        watch.reported = true;
        if let Some(report) = describe(remote, switches, running_for) {
            match &settings.on_hog {
                Some(callback) => {
                    let callback = std::panic::AssertUnwindSafe(|| callback(&report));
                    if std::panic::catch_unwind(callback).is_err() {
                        log("the hog callback panicked");
                    }
                }
                None => log_hog(&report),
            }
        }
    }
}

/// Reads who runs on a worker, unless it changes meanwhile.
fn describe(remote: &Remote, switches: u64, running_for: Duration) -> Option<HogReport> {
    let load = || remote.current.load(Ordering::Acquire).cast_const();
    let look = |block: &Block, extras: Option<&crate::fiber::Extras>| HogReport {
        id: FiberId::new(block.id()),
        name: extras.and_then(|extras| extras.name.as_deref().map(String::from)),
        worker: remote.index,
        running_for,
        spawned_at: block.spawned_at(),
        last_wait: block.waits_at(),
    };
    // SAFETY: what `look` reads is atomic, or extras, which stay allocated
    // under the slab's lock.
    let report = unsafe { slab::peek(load, look) }?;
    // If the worker has not switched, the block was this fiber's all the time.
    let unchanged = remote.counters.switches.load(Ordering::Acquire) == switches;
    unchanged.then_some(report)
}

fn log_hog(report: &HogReport) {
    let place = |what: &str, at: Option<&Location<'_>>| {
        at.map_or_else(String::new, |at| format!(", {what} at {at}"))
    };
    log(&format!(
        "fiber {} has not let go of worker {} for {} ms{}{}; if it computes, call \
         sinew::safepoint() in its loops; if it blocks (a std lock or channel, a system call), \
         use sinew::blocking, and hold no std lock across a wait",
        report.id.with_name(report.name.as_deref()),
        report.worker,
        report.running_for.as_millis(),
        place("spawned", report.spawned_at),
        place("last waited", report.last_wait),
    ));
}
