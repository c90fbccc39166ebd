//! Threads that may block: for system calls, foreign libraries and long sums.
//!
//! Elastic and first in, first out: a job goes to an idle thread; if there is
//! none a thread is started, up to the limit; beyond that jobs queue. A thread
//! that found nothing to do for the keep-alive time ends. A pool that nobody
//! uses has no threads.
//!
//! Invariant: a job in the queue has a thread that will take it: one is idle and
//! was signalled, or one is running and looks at the queue before it rests.
//! Invariant (clean): between two jobs no frame and no binding is linked on the thread.

use super::first_frame::run_to_completion;
use super::shutdown;
use crate::fiber::cancel::Frame;
use crate::fiber::locals::Locals;
use crate::fiber::users::left_out_of_order;
use crate::fiber::{Begin, Binding, Block, release};
use crate::primitive::fence;
use crate::sched::current;
use crate::sched::shared::Shared;
use std::collections::VecDeque;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a pool thread runs.
pub(crate) enum Job {
    /// A whole fiber's closure, from `spawn_blocking`; owns the run's reference.
    Task(NonNull<Block>),
    /// A closure on the stack of whoever waits for it, from `blocking`.
    Borrowed {
        /// Runs the closure and wakes who waits; never unwinds.
        run: unsafe fn(NonNull<()>),
        /// What to give it.
        data: NonNull<()>,
    },
}

// SAFETY: a task's closure is `Send`; a borrowed one too, and its owner waits
// until it has run.
unsafe impl Send for Job {}

/// How large a pool may grow, and how long its threads rest.
#[derive(Clone, Debug)]
pub(crate) struct PoolSettings {
    pub(crate) limit: usize,
    pub(crate) keep_alive: Duration,
    pub(crate) name: String,
}

struct Inner {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
    /// Signals sent to idle threads and not yet taken.
    signals: usize,
    stopping: bool,
}

/// See the module header.
pub(crate) struct Pool {
    settings: PoolSettings,
    inner: Mutex<Inner>,
    signal: Condvar,
    /// Queued and running jobs.
    jobs: AtomicUsize,
}

impl Pool {
    pub(crate) fn new(settings: PoolSettings) -> Self {
        Self {
            settings,
            inner: Mutex::new(Inner {
                queue: VecDeque::new(),
                threads: 0,
                idle: 0,
                signals: 0,
                stopping: false,
            }),
            signal: Condvar::new(),
            jobs: AtomicUsize::new(0),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // No user code runs under it, so nothing is ever half done.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a job is queued or running.
    pub(crate) fn is_busy(&self) -> bool {
        // Acquire: whoever sees the last job gone sees what it did.
        self.jobs.load(Ordering::Acquire) > 0
    }

    pub(crate) fn threads(&self) -> usize {
        self.inner().threads
    }

    /// Hands a job to a thread.
    ///
    /// # Errors
    ///
    /// The job comes back if there is no thread and none could be started.
    pub(crate) fn submit(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        job: Job,
    ) -> Result<(), (Job, io::Error)> {
        let mut inner = self.inner();
        if inner.idle <= inner.signals && inner.threads < self.settings.limit {
            match self.start_thread(shared) {
                Ok(()) => inner.threads += 1,
                Err(error) if inner.threads == 0 => return Err((job, error)),
                // Those that run will take it.
                Err(_) => {}
            }
        }
        // Relaxed: `is_busy` is asked by a worker that goes to sleep, and the
        // job's end reaches it through an inbox.
        self.jobs.fetch_add(1, Ordering::Relaxed);
        inner.queue.push_back(job);
        if inner.idle > inner.signals {
            inner.signals += 1;
            drop(inner);
            self.signal.notify_one();
        }
        Ok(())
    }

    fn start_thread(self: &Arc<Self>, shared: &Arc<Shared>) -> io::Result<()> {
        let (pool, shared) = (self.clone(), shared.clone());
        std::thread::Builder::new()
            .name(self.settings.name.clone())
            .spawn(move || pool.thread_main(&shared))
            .map(drop)
    }

    fn thread_main(&self, shared: &Arc<Shared>) {
        current::set_pool_of(Arc::as_ptr(shared));
        while let Some(job) = self.next_job() {
            // SAFETY: the queue owned the job, and it runs once.
            unsafe { run_job(shared, job) };
            // Release: pairs with `is_busy`.
            let last = self.jobs.fetch_sub(1, Ordering::Release) == 1;
            if last && shared.clock.stands() {
                shared.wake_all(); // now the clock may jump
            } else if last && shared.awaited.is_any() {
                // The monitor may sleep because the pool was busy, and is to look again
                // whether anybody can still wake the fibers (`stall`).
                fence(Ordering::SeqCst); // pairs with the one in `MonitorBell::sleep`
                shared.monitor.ring();
            }
        }
        current::set_pool_of(std::ptr::null());
    }

    /// The next job; none when the thread should end.
    fn next_job(&self) -> Option<Job> {
        let mut inner = self.inner();
        loop {
            if let Some(job) = inner.queue.pop_front() {
                return Some(job);
            }
            if inner.stopping {
                inner.threads -= 1;
                return None;
            }
            inner.idle += 1;
            let (guard, timeout) = self
                .signal
                .wait_timeout_while(inner, self.settings.keep_alive, |inner| {
                    inner.signals == 0 && !inner.stopping
                })
                .unwrap_or_else(PoisonError::into_inner);
            inner = guard;
            inner.idle -= 1;
            if inner.signals > 0 {
                inner.signals -= 1;
            } else if timeout.timed_out() && inner.queue.is_empty() {
                inner.threads -= 1;
                return None;
            }
        }
    }

    /// Lets the threads end once the queue is empty.
    pub(crate) fn stop(&self) {
        self.inner().stopping = true;
        self.signal.notify_all();
    }
}

/// # Safety
///
/// The caller took the job off the queue.
unsafe fn run_job(shared: &Shared, job: Job) {
    let linked = Linked::now();
    match job {
        Job::Task(block) => {
            // SAFETY: the job owns the run's reference.
            let fiber = unsafe { block.as_ref() };
            let begin = if fiber.state().load().cancelled() {
                Begin::DropUnrun
            } else {
                Begin::Run
            };
            // A pool thread's own locals outlive the job.
            let none = Locals::new();
            // SAFETY: jobs run once, so the slot still holds the closure.
            unsafe { run_to_completion(fiber, begin, &none, || linked.assert_the_same()) };
            let daemon = fiber.kind().daemon;
            // SAFETY: the run's reference.
            unsafe { release(block, 1) };
            let finished = if daemon {
                &shared.outside.daemons_finished
            } else {
                &shared.outside.finished
            };
            // Release: pairs with the Acquire in `shutdown::alive`.
            finished.fetch_add(1, Ordering::Release);
            // Pairs with the fence in `shutdown::drain`.
            fence(Ordering::SeqCst);
            if shared.draining.load(Ordering::Relaxed) {
                shutdown::poke(shared);
            }
        }
        // SAFETY: its owner waits until `run` has woken it.
        Job::Borrowed { run, data } => unsafe { run(data) },
    }
    linked.assert_the_same(); // wakers were called, too
}

/// What is linked on this thread's own stack.
struct Linked {
    frames: *const Frame,
    values: *const Binding,
}

impl Linked {
    fn now() -> Self {
        Self {
            frames: current::frames(),
            values: current::values(),
        }
    }

    /// A job has ended. A coroutine of another library that it left suspended inside of a
    /// frame or binding would have that seen by the jobs after it, and later perhaps leave
    /// it in the middle of theirs.
    fn assert_the_same(&self) {
        let now = Self::now();
        if !ptr::eq(now.frames, self.frames) || !ptr::eq(now.values, self.values) {
            left_out_of_order();
        }
    }
}

/// Ends a task that no thread could be found for; drops its closure here.
///
/// # Safety
///
/// `submit` handed the job of this block back, and the caller has the handle's
/// reference.
pub(crate) unsafe fn give_up(shared: &Shared, block: NonNull<Block>) {
    // Cancelled before it runs, so that it is only dropped.
    // SAFETY: alive by the caller's reference; nobody waits for it yet.
    let _ = unsafe { block.as_ref() }.state().cancel();
    // SAFETY: the job is ours.
    unsafe { run_job(shared, Job::Task(block)) };
}
