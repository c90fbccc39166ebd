//! What a fiber does that keeps its worker, and the report of it.
//!
//! At each tick the monitor asks how the turn of a worker that has not switched goes on
//! ([`TurnWatch::goes_on`]). The time since the last tick is split into three:
//!
//! | the worker's thread           | known by                            | the fiber |
//! |-------------------------------|-------------------------------------|-----------|
//! | used the CPU                  | its CPU clock                       | computes  |
//! | waited in the kernel          | `/proc` says so at the tick         | is blocked|
//! | neither                       | the rest                            | is innocent: there was no CPU for it |
//!
//! Only the first two count as *held*. So a process that was stopped, or a machine that
//! has more to do than CPUs, makes no reports. `/proc` is asked only if the CPU clock did
//! not advance, because that costs several microseconds.
//!
//! The monitor may be late for the same reasons. A thread that waits at two ticks far
//! apart may have been stopped for nearly all of the time between: no more than
//! [`MOST_BLOCKED`] of it are held.

use crate::fiber::{Block, Extras, FiberId, slab};
use crate::sched::shared::Remote;
use crate::sys::log::{self, log};
use crate::sys::process;
use crate::sys::thread_state::{Activity, KernelWait, ThreadRef, call_name};
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How much of the time between two ticks a thread that waits is taken to have waited.
const MOST_BLOCKED: Duration = Duration::from_millis(10);

/// A fiber that has kept its worker for long, whether or not others wait.
///
/// # Examples
///
/// ```
/// use sinew::{HogCause, Runtime};
/// use std::sync::mpsc;
/// use std::time::Duration;
///
/// let (told, heard) = mpsc::channel();
/// let runtime = Runtime::builder()
///     .workers(1)
///     .report_hogs_after(Duration::from_millis(5))
///     .on_hog(move |report| drop(told.send(report.clone())))
///     .build()?;
/// let (go, wait) = mpsc::channel();
/// let hog = runtime.spawn(move || wait.recv()); // std's channel blocks the worker
/// let report = heard.recv().unwrap();
/// assert_eq!(report.id, hog.fiber().id());
/// assert!(matches!(report.cause, HogCause::Blocked { .. }));
/// go.send(()).unwrap();
/// hog.join().unwrap().unwrap();
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HogReport {
    /// The fiber's id.
    pub id: FiberId,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// The worker that runs it; spare workers come behind the others.
    pub worker: usize,
    /// For how long it has run without a pause, by the clock on the wall.
    pub running_for: Duration,
    /// How much of that it has used the CPU.
    pub cpu_time: Duration,
    /// Whether it computes or blocks.
    pub cause: HogCause,
    /// Where it was spawned.
    pub spawned_at: Option<&'static Location<'static>>,
    /// Where it waited last, if it ever did.
    pub last_wait: Option<&'static Location<'static>>,
}

/// How a fiber keeps its worker; see [`HogReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HogCause {
    /// It has used the CPU all the time, or most of it.
    Computes,
    /// It made its worker's thread wait in the kernel, for most of the time.
    ///
    /// All other fibers that this worker has started, its I/O and its timers wait
    /// with it.
    Blocked {
        /// The system call that it waits in. A call that the runtime has no name for is
        /// `"number 123"`; `None` if it is a page fault, or could not be found out.
        system_call: Option<String>,
    },
}

/// What is told of a hog.
pub(crate) type OnHog = Arc<dyn Fn(&HogReport) + Send + Sync>;

/// What the monitor knows of a worker's present turn; see the module header.
pub(crate) struct TurnWatch {
    thread: Option<Arc<ThreadRef>>,
    /// The last tick, and the CPU time of the thread then.
    seen: Instant,
    cpu: Duration,
    /// Of this turn.
    computed: Duration,
    blocked: Duration,
    /// For how many ticks in a row the thread was seen to wait.
    waits: u32,
    /// Where, when it was first seen to.
    last_wait: KernelWait,
    reported: bool,
}

impl TurnWatch {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            thread: None,
            seen: now,
            cpu: Duration::ZERO,
            computed: Duration::ZERO,
            blocked: Duration::ZERO,
            waits: 0,
            last_wait: KernelWait::Unknown,
            reported: false,
        }
    }

    /// Another turn has begun since the last tick, or no fiber runs.
    pub(crate) fn begin(&mut self, remote: &Remote, runs: bool, now: Instant) {
        *self = Self::new(now);
        if runs {
            self.thread = remote.thread.get();
            self.cpu = self.read_clock().unwrap_or_default();
        }
    }

    fn read_clock(&self) -> Option<Duration> {
        self.thread.as_ref().and_then(|thread| thread.cpu_time())
    }

    /// The same turn has gone on since the last tick.
    pub(crate) fn goes_on(&mut self, remote: &Remote, now: Instant) {
        let gap = now - std::mem::replace(&mut self.seen, now);
        let (Some(thread), Some(cpu)) = (&self.thread, self.read_clock()) else {
            return; // the worker said at its start that it cannot be watched
        };
        let before = self.held();
        let computed = cpu.saturating_sub(self.cpu).min(gap);
        self.cpu = cpu;
        self.computed += computed;
        let mut blocked = Duration::ZERO;
        if computed < gap / 2 && thread.activity() == Activity::Waits {
            blocked = (gap - computed).min(MOST_BLOCKED);
            self.blocked += blocked;
            self.waits += 1;
            if self.waits == 1 || self.last_wait == KernelWait::Unknown {
                self.last_wait = thread.kernel_wait();
            }
        } else {
            self.waits = 0;
        }
        remote.turns.book(before, self.held(), blocked);
    }

    /// For how many ticks in a row the worker's thread has waited in the kernel, while
    /// the turn went on.
    pub(crate) fn waits(&self) -> u32 {
        self.waits
    }

    /// For how long the fiber has kept the worker from others, as far as that is known.
    fn held(&self) -> Duration {
        self.computed + self.blocked
    }

    /// Tells of the fiber, once a turn, if it has held the worker for `hog_after`.
    pub(crate) fn report_after(
        &mut self,
        hog_after: Duration,
        remote: &Remote,
        switches: u64,
        running_for: Duration,
        on_hog: Option<&OnHog>,
    ) {
        if self.reported || self.held() < hog_after {
            return;
        }
        if on_hog.is_none() && log::would_wait() {
            return; // at a later tick: the monitor has other duties
        }
        self.reported = true;
        let Some(report) = self.describe(remote, switches, running_for) else {
            return;
        };
        match on_hog {
            Some(callback) => {
                let callback = std::panic::AssertUnwindSafe(|| callback(&report));
                if std::panic::catch_unwind(callback).is_err() {
                    log("the hog callback panicked");
                }
                process::stop_forked_thread();
            }
            None => log_hog(&report),
        }
    }

    fn cause(&self) -> HogCause {
        if self.computed >= self.blocked {
            return HogCause::Computes;
        }
        let system_call = match self.last_wait {
            KernelWait::Call(number) => {
                let name = call_name(number).map(String::from);
                Some(name.unwrap_or_else(|| format!("number {number}")))
            }
            KernelWait::Fault | KernelWait::Unknown => None,
        };
        HogCause::Blocked { system_call }
    }

    /// Reads who runs on a worker, unless it changes meanwhile.
    fn describe(&self, remote: &Remote, switches: u64, running_for: Duration) -> Option<HogReport> {
        let load = || remote.current.load(Ordering::Acquire).cast_const();
        let cause = self.cause();
        let look = |block: &Block, extras: Option<&Extras>| HogReport {
            id: FiberId::new(block.id()),
            name: extras.and_then(|extras| extras.name.as_deref().map(String::from)),
            worker: remote.index,
            running_for,
            cpu_time: self.computed,
            cause: cause.clone(),
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
}

fn log_hog(report: &HogReport) {
    let place = |what: &str, at: Option<&Location<'_>>| {
        at.map_or_else(String::new, |at| format!(", {what} at {at}"))
    };
    let (does, remedy) = match &report.cause {
        HogCause::Computes => ("computes".to_owned(), COMPUTES),
        HogCause::Blocked { system_call: None } => ("is blocked in the kernel".into(), BLOCKS),
        HogCause::Blocked {
            system_call: Some(call),
        } => (
            format!("is blocked in system call {call}"),
            remedy_for(call),
        ),
    };
    log(&format!(
        "fiber {} {does}, and has not let go of worker {} for {} ms{}{}; {remedy}",
        report.id.with_name(report.name.as_deref()),
        report.worker,
        report.running_for.as_millis(),
        place("spawned", report.spawned_at),
        place("last waited", report.last_wait),
    ));
}

const COMPUTES: &str = "call sinew::safepoint() in its loops";
const BLOCKS: &str = "the fibers that this worker has started, its I/O and its timers wait; \
                      use the calls of sinew, or wrap this one in sinew::blocking";

/// What helps against a call that blocks.
fn remedy_for(call: &str) -> &'static str {
    match call {
        "futex" | "futex_waitv" => {
            "the fibers that this worker has started, its I/O and its timers wait; \
             a std lock or channel does this: use those of sinew, or sinew::blocking, and hold \
             no std lock (nor a guard of another crate's map) across a wait"
        }
        "nanosleep" | "clock_nanosleep" => {
            "the fibers that this worker has started, its I/O and its timers wait; \
             use sinew::sleep"
        }
        _ => BLOCKS,
    }
}
