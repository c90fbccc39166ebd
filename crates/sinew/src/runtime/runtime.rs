//! A runtime: its threads, its life and its end.

use super::builder::{Config, RuntimeBuilder};
use super::shutdown_error::ShutdownError;
use super::stats::RuntimeStats;
use super::{overflow, panic_hook, shared_for_spawn, stats};
use crate::queue::deque::Deques;
use crate::reactor::Reactor;
use crate::sched::awaited::Awaited;
use crate::sched::bell::MonitorBell;
use crate::sched::core::Core;
use crate::sched::duty::Duty;
use crate::sched::idle::Idle;
use crate::sched::seam::Choice;
use crate::sched::shared::{Lives, Remote, Settings, Shared, WorkerEnd};
use crate::sched::{current, hooks, submit, switch};
use crate::stack::overflow::AltStack;
use crate::stack::{PoolConfig, Reserve, StackPool};
use crate::sys::Lock;
use crate::sys::process::AbortOnUnwind;
use crate::sys::thread_state::{self, ThreadRef};
use crate::sys::{cpu, fences, process};
use crate::util::list::List;
use crate::util::rng::os_seed;
use crate::wait::Deadline;
use crate::worker::monitor::{self, MonitorSettings};
use crate::worker::pool::{Pool, PoolSettings};
use crate::worker::run;
use crate::worker::services::{self, Services};
use crate::worker::shutdown::{self, Whom};
use crate::worker::spare::{self, Spares};
use std::fmt;
use std::io;
use std::panic::Location;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long threads that may be stuck are waited for, once they were stopped.
const THREAD_GRACE: Duration = Duration::from_millis(100);

/// Worker threads, a blocking pool and a monitor that run fibers.
///
/// Several may live in one process. Dropping one waits for all its fibers that
/// are no daemons, then cancels the daemons and waits for them, for
/// [`daemon_grace`](RuntimeBuilder::daemon_grace) at most;
/// what has not ended by then is reported and leaked, never cut off, and the
/// threads of the workers that it started on are kept. Dropped on
/// one of its own fibers or pool threads, or inside of
/// [`no_suspend`](crate::no_suspend), it only starts to shut down.
///
/// ```
/// let runtime = sinew::Runtime::builder().workers(2).build()?;
/// let text = String::from("borrowed");
/// let length = runtime.run(|| text.len());
/// assert_eq!(length, 8);
/// # std::io::Result::Ok(())
/// ```
pub struct Runtime {
    shared: Arc<Shared>,
    /// Taken when the end begins.
    threads: Option<Threads>,
}

// A panic elsewhere cannot break a runtime.
impl std::panic::UnwindSafe for Runtime {}
impl std::panic::RefUnwindSafe for Runtime {}

struct Threads {
    workers: Vec<JoinHandle<()>>,
    monitor: Option<JoinHandle<()>>,
}

impl Runtime {
    /// Settings for a new runtime.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::new()
    }

    /// A runtime with the default settings.
    ///
    /// # Errors
    ///
    /// As [`RuntimeBuilder::build`].
    pub fn new() -> io::Result<Self> {
        Self::builder().build()
    }

    /// A handle to spawn by, from anywhere; it does not keep the runtime going.
    pub fn handle(&self) -> Handle {
        Handle {
            shared: self.shared.clone(),
        }
    }

    /// What the runtime is doing and has done.
    ///
    /// ```
    /// let runtime = sinew::Runtime::builder().workers(1).build()?;
    /// runtime.run(|| sinew::spawn(|| ()).join().unwrap());
    /// assert_eq!(runtime.stats().spawned, 2);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn stats(&self) -> RuntimeStats {
        stats::of(&self.shared)
    }

    /// Closes the runtime to threads outside, and waits for all fibers that are no daemons;
    /// false if `limit` was over first.
    pub(crate) fn drain_within(
        &self,
        limit: Option<Duration>,
        at: &'static Location<'static>,
    ) -> bool {
        submit::close(&self.shared);
        let _waits = self.shared.awaited.begin(&self.shared.monitor);
        let deadline = limit.and_then(Deadline::after);
        shutdown::drain(&self.shared, Whom::NonDaemons, deadline, at)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(super) fn start(config: Config) -> io::Result<Self> {
        process::about_to_start_threads();
        hooks::settle();
        fences::register();
        overflow::install()?;
        if config.report_panics {
            panic_hook::install();
        }
        let several = config.workers > 1;
        let spares = if config.spare_workers > 0 && !thread_state::is_known() {
            0
        } else {
            config.spare_workers
        };
        let slots = config.workers + spares;
        let mut deques: Vec<Deques> = (0..slots).map(|_| Deques::new()).collect();
        let remotes = deques.iter().enumerate().map(|(index, deques)| {
            let stealers = several.then(|| deques.stealers());
            let driver = Reactor::new(config.driver, config.ring_size);
            let duty = if index < config.workers {
                Duty::on_duty()
            } else {
                Duty::vacant()
            };
            Remote::new(index, Box::new(driver), stealers, duty).into()
        });
        let shared = Arc::new(Shared {
            settings: Settings {
                name: config.name.clone(),
                strict_order: config.strict_order,
                by_time: !config.strict_order && config.choice.is_none() && !config.clock.stands(),
                class: config.class,
                daemon_grace: config.daemon_grace,
                report_panics: config.report_panics,
                unobserved: config.unobserved,
            },
            remotes: remotes.collect(),
            workers: config.workers,
            slots_used: config.workers.into(),
            injectors: crate::queue::deque::Injectors::new(),
            idle: Idle::new(config.workers),
            clock: config.clock,
            stacks: Arc::new(StackPool::new(PoolConfig {
                guard: config.guard,
                max_stacks: config.max_stacks,
            })),
            stop: Default::default(),
            draining: Default::default(),
            can_look_out: cpu::allowed().is_ok_and(|cpus| cpus.len() > 1),
            cancelling: Default::default(),
            give_up_at: Default::default(),
            awaited: Awaited::default(),
            joins_elsewhere: Default::default(),
            closed: Default::default(),
            closed_for_all: Default::default(),
            entering: Default::default(),
            waking: Default::default(),
            no_stack: Mutex::new(Vec::new()),
            out_of_stacks: Default::default(),
            said_no_stack: Default::default(),
            reserve: Reserve::new(config.guard),
            outside: Lives::default(),
            abandoned: Lock::new(Vec::new()),
            given_up: Default::default(),
            drainers: Lock::new(List::new()),
            monitor: MonitorBell::default(),
            services: OnceLock::new(),
        });
        if let Err(error) = shared.reserve.fill() {
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, error));
        }
        let pool = Pool::new(PoolSettings {
            limit: config.blocking_threads,
            keep_alive: config.keep_alive,
            name: format!("{}-blocking", config.name),
        });
        let spare_deques = deques.split_off(config.workers);
        let start_spare =
            |shared: &Arc<Shared>, index| start_worker(shared, index, None, None, None);
        let services = Services {
            pool: Arc::new(pool),
            spares: Spares::new(start_spare, config.spare_linger, spare_deques),
        };
        let fresh = shared.services.set(Box::new(services)).is_ok();
        assert!(fresh, "a new runtime has no services yet");
        let mut runtime = Self {
            shared: shared.clone(),
            threads: Some(Threads {
                workers: Vec::new(),
                monitor: None,
            }),
        };
        let cpus = if config.pin_workers {
            cpu::allowed()?
        } else {
            Vec::new()
        };
        let threads = runtime.threads.as_mut().expect("just made");
        let mut choice = config.choice;
        for (index, deques) in deques.into_iter().enumerate() {
            let cpu = (!cpus.is_empty()).then(|| cpus[index % cpus.len()]);
            let thread = start_worker(&shared, index, Some(deques), choice.take(), cpu)?;
            threads.workers.push(thread);
        }
        let settings = MonitorSettings {
            quantum: config.quantum,
            hog_after: config.hog_after,
            on_hog: config.on_hog,
            stalled_after: config.stalled_after,
        };
        let watched = shared.clone();
        let monitor = std::thread::Builder::new()
            .name(format!("{}-monitor", config.name))
            .spawn(move || {
                // A callback that spawns, or ends the runtime, is inside.
                current::set_pool_of(Arc::as_ptr(&watched));
                monitor::run(&watched, &settings);
                current::set_pool_of(std::ptr::null());
            })?;
        threads.monitor = Some(monitor);
        Ok(runtime)
    }

    /// Cancels every fiber and waits for all of them, however long that takes.
    ///
    /// As [`shutdown_timeout`](Self::shutdown_timeout) without a limit, but for that of an earlier
    /// [`Handle::shutdown_timeout`].
    ///
    /// # Panics
    ///
    /// As [`shutdown_timeout`](Self::shutdown_timeout).
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = sinew::Runtime::builder().workers(1).build()?;
    /// let sleeper = runtime.spawn(|| sinew::sleep(Duration::from_secs(3600)));
    /// runtime.shutdown();
    /// assert!(sleeper.is_finished());
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn shutdown(self) {
        // Beyond the clock's range is for ever, so nobody is left; unless a handle's request has
        // set a limit (`Handle::shutdown_timeout`).
        log_leaks(self.shutdown_timeout(Duration::MAX));
    }

    /// Cancels every fiber and waits for all of them, at most for `timeout`.
    ///
    /// Fibers parked in a cancellation point end their wait with
    /// [`Cancelled`](crate::Cancelled); fibers that never started drop their
    /// closure. On one of the runtime's own fibers or pool threads it only
    /// starts the shutdown and answers `Ok`.
    ///
    /// # Errors
    ///
    /// [`ShutdownError`] names the fibers that had not ended in time. They are
    /// leaked, with their stacks and all that is on them, and a later wake of
    /// one does nothing. The threads of workers on which they had started are
    /// kept, since the fibers may borrow from their thread-locals
    /// ([`ShutdownError::kept_threads`]).
    ///
    /// # Panics
    ///
    /// Inside of [`no_suspend`](crate::no_suspend) on a fiber of another runtime; the
    /// runtime then ends as if it had been dropped there.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let runtime = sinew::Runtime::builder().workers(1).build()?;
    /// let sleeper = runtime.spawn(|| sinew::sleep(Duration::from_secs(3600)));
    /// runtime.shutdown_timeout(Duration::from_secs(60)).unwrap();
    /// assert!(sleeper.is_finished());
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Result<(), ShutdownError> {
        if !is_inside(&self.shared) {
            // While it is still whole: if this unwinds, `drop` ends it.
            switch::about_to_wait();
        }
        let Some(threads) = self.threads.take() else {
            return Ok(());
        };
        let ending = Ending {
            shared: self.shared.clone(),
            threads,
            at: Location::caller(),
        };
        ending.on_a_thread_of_its_own_if_needed(move |ending| {
            let shared = ending.shared.clone();
            let _waits = shared.awaited.begin(&shared.monitor);
            ending.cancel_and_stop(timeout)
        })
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let Some(threads) = self.threads.take() else {
            return;
        };
        if process::is_forked() {
            // Its threads are the parent's; here is nothing to wait for.
            std::mem::forget((threads, self.shared.clone()));
            return;
        }
        let ending = Ending {
            shared: self.shared.clone(),
            threads,
            at: Location::caller(),
        };
        let ended = ending.on_a_thread_of_its_own_if_needed(|ending| {
            let shared = ending.shared.clone();
            let _waits = shared.awaited.begin(&shared.monitor);
            shutdown::drain(&shared, Whom::NonDaemons, None, ending.at);
            ending.cancel_and_stop(shared.settings.daemon_grace)
        });
        log_leaks(ended);
    }
}

/// A runtime that is about to end.
struct Ending {
    shared: Arc<Shared>,
    threads: Threads,
    at: &'static Location<'static>,
}

impl Ending {
    /// A fiber or pool thread of the runtime cannot wait for its own end, and nobody can
    /// inside of `no_suspend`, where a panic might be a second one while unwinding.
    fn on_a_thread_of_its_own_if_needed(
        self,
        end: impl FnOnce(Self) -> Result<(), ShutdownError> + Send + 'static,
    ) -> Result<(), ShutdownError> {
        // From now on only what is inside may spawn: else threads outside could
        // keep a runtime that is to end going for ever.
        submit::close(&self.shared);
        if !is_inside(&self.shared) && switch::may_wait() {
            return end(self);
        }
        let name = format!("{}-shutdown", self.shared.settings.name);
        let started = std::thread::Builder::new().name(name).spawn(move || {
            log_leaks(end(self));
        });
        if let Err(error) = started {
            crate::sys::log::log(&format!(
                "no thread to shut a runtime down by, so it goes on: {error}"
            ));
        }
        Ok(())
    }

    fn cancel_and_stop(self, timeout: Duration) -> Result<(), ShutdownError> {
        let shared = &self.shared;
        // Relaxed: looked at again and again below.
        shared.cancelling.store(true, Ordering::Relaxed);
        let deadline = Deadline::after(timeout);
        // A fiber may be spawned while we cancel, by one that has not seen the
        // flag; so cancel again, ever less often.
        let mut pause = Duration::from_millis(10);
        let mut ended = false;
        while !ended {
            shutdown::cancel_all(shared);
            let soon = Deadline::after(pause);
            let next = deadline.map_or(soon, |last| soon.map(|soon| soon.min(last)));
            ended = shutdown::drain(shared, Whom::All, next, self.at);
            pause *= 2;
            if ended {
                submit::close_for_all(shared);
                // The monitor's callback may have come in before.
                ended = shutdown::alive(shared, Whom::All) == 0;
            }
            if next == deadline && deadline.is_some() || shutdown::is_given_up(shared) {
                break;
            }
        }
        submit::close_for_all(shared);
        shared.stop.store(true, Ordering::Release);
        shared.wake_all();
        shared.monitor.stop();
        services::of(shared).pool.stop();
        let mut workers = self.threads.workers;
        workers.extend(services::of(shared).spares.close());
        let mut error = None;
        if ended {
            submit::wait_for_wakers(shared);
            for worker in workers {
                // A worker that panicked has aborted the process.
                let _ = worker.join();
            }
        } else {
            // Wakes of leaked fibers go to inboxes of `shared`.
            std::mem::forget(shared.clone());
            // A worker whose fiber does not let go does not stop; and not for the threads:
            // those with leaked fibers never end.
            let ends = || shared.remotes.iter().map(|remote| remote.end());
            wait_a_while(|| ends().all(|end| end != WorkerEnd::Running));
            let requested = shutdown::given_up_after(shared);
            let timeout = requested.map_or(timeout, |requested| requested.min(timeout));
            error = Some(ShutdownError::new(shared, timeout));
            // What the others left behind; a late one does this itself. Relaxed:
            // set before, and read after, the lock of what was left.
            shared.given_up.store(true, Ordering::Relaxed);
            shutdown::abandon_queued(shared);
            shutdown::abandon_unstarted(shared);
            shutdown::fail_abandoned(shared);
        }
        if let Some(monitor) = self.threads.monitor {
            // It may be in a callback that does not return.
            wait_a_while(|| monitor.is_finished());
        }
        error.map_or(Ok(()), Err)
    }
}

/// Says what was leaked where nobody gets the error.
fn log_leaks(ended: Result<(), ShutdownError>) {
    if let Err(error) = ended {
        crate::sys::log::log(&error.to_string());
    }
}

/// Waits for threads that were told to stop, but may be stuck in user code.
fn wait_a_while(ended: impl Fn() -> bool) {
    let patience = Instant::now() + THREAD_GRACE;
    while !ended() && Instant::now() < patience {
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Whether the caller is a fiber, a pool thread or the monitor of this very
/// runtime.
fn is_inside(shared: &Arc<Shared>) -> bool {
    // SAFETY: a non-null core is this thread's and alive.
    let core = unsafe { current::core().as_ref() };
    core.is_some_and(|core| Arc::ptr_eq(core.shared(), shared))
        || std::ptr::eq(current::pool_of(), Arc::as_ptr(shared))
}

/// Starts the thread of a worker, or of a spare, which has no `deques` of its own.
fn start_worker(
    shared: &Arc<Shared>,
    index: usize,
    deques: Option<Deques>,
    choice: Option<Box<dyn Choice>>,
    cpu: Option<usize>,
) -> io::Result<JoinHandle<()>> {
    let seed = choice.as_ref().map_or_else(os_seed, |choice| choice.seed());
    let shared = shared.clone();
    let kind = if index < shared.workers {
        "worker"
    } else {
        "spare"
    };
    std::thread::Builder::new()
        .name(format!("{}-{kind}-{index}", shared.settings.name))
        .spawn(move || {
            // Unwinding out of the loop would drop live fibers' stacks.
            let abort = AbortOnUnwind("a worker thread panicked: this is a bug in sinew");
            if let Some(Err(error)) = cpu.map(cpu::pin_to) {
                crate::sys::log::log(&format!("worker {index} could not be pinned: {error}"));
            }
            let alt_stack = AltStack::install();
            if let Err(error) = &alt_stack {
                crate::sys::log::log(&format!(
                    "worker {index} has no alternate stack, so a stack overflow \
                     will not be explained: {error}"
                ));
            }
            let thread = ThreadRef::current();
            if thread.is_none() {
                crate::sys::log::log(&format!(
                    "worker {index} has no CPU clock, so fibers that hog it are not reported"
                ));
            }
            let deques = deques.unwrap_or_else(|| spare::take_deques(&shared, index));
            let core = Core::new(shared, index, deques, choice, seed);
            core.remote().thread.set(thread);
            run::run(&core);
            core.remote().thread.set(None);
            spare::vacate(core);
            std::mem::forget(abort);
        })
}

/// Spawns fibers on a runtime from anywhere.
///
/// ```
/// let runtime = sinew::Runtime::builder().workers(1).build()?;
/// let handle = runtime.handle();
/// let answer = std::thread::spawn(move || handle.spawn(|| 42).join().unwrap());
/// assert_eq!(answer.join().unwrap(), 42);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone)]
pub struct Handle {
    pub(crate) shared: Arc<Shared>,
}

impl Handle {
    /// The runtime that a [`spawn`](crate::spawn) from here goes to.
    ///
    /// ```
    /// sinew::run(|| {
    ///     let stats = sinew::Handle::current().stats();
    ///     assert_eq!(stats.live, 1);
    /// });
    /// ```
    pub fn current() -> Self {
        shared_for_spawn(|shared| Self {
            shared: shared.clone(),
        })
    }

    /// What the runtime is doing and has done.
    pub fn stats(&self) -> RuntimeStats {
        stats::of(&self.shared)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("runtime", &self.shared.settings.name)
            .finish()
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("name", &self.shared.settings.name)
            .field("workers", &self.shared.workers)
            .finish()
    }
}
