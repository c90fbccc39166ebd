//! A runtime: its threads, its life and its end.

use super::builder::{Config, RuntimeBuilder};
use super::stats::RuntimeStats;
use super::{config, overflow, shared_for_spawn, stats};
use crate::fiber::{FiberId, WaitReason};
use crate::queue::deque::Deques;
use crate::reactor::Reactor;
use crate::sched::bell::MonitorBell;
use crate::sched::core::Core;
use crate::sched::idle::Idle;
use crate::sched::seam::Choice;
use crate::sched::shared::{Lives, Remote, Settings, Shared};
use crate::sched::{current, submit};
use crate::stack::overflow::AltStack;
use crate::stack::{PoolConfig, StackPool};
use crate::sys::Lock;
use crate::sys::process::AbortOnUnwind;
use crate::sys::{cpu, fences, process};
use crate::util::list::List;
use crate::wait::Deadline;
use crate::worker::monitor::{self, MonitorSettings};
use crate::worker::pool::{Pool, PoolSettings};
use crate::worker::run;
use crate::worker::services::{self, Services};
use crate::worker::shutdown::{self, Whom};
use std::fmt;
use std::io;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long threads that may be stuck are waited for, once they were stopped.
const THREAD_GRACE: Duration = Duration::from_millis(100);

/// Worker threads, a blocking pool and a monitor that run fibers.
///
/// Several may live in one process. Dropping one waits for all its fibers that
/// are no daemons, then cancels the daemons and waits a few seconds for them;
/// what has not ended by then is reported and leaked, never cut off. Dropped on
/// one of its own fibers or pool threads it only starts to shut down.
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

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(super) fn start(config: Config) -> io::Result<Self> {
        process::assert_not_forked();
        process::watch_forks();
        fences::register();
        overflow::install()?;
        let several = config.workers > 1;
        let deques: Vec<Deques> = (0..config.workers).map(|_| Deques::new()).collect();
        let remotes = deques.iter().enumerate().map(|(index, deques)| {
            let stealers = several.then(|| deques.stealers());
            let driver = Reactor::new(config.driver, config.ring_size);
            Remote::new(index, Box::new(driver), stealers).into()
        });
        let shared = Arc::new(Shared {
            settings: Settings {
                name: config.name.clone(),
                strict_order: config.strict_order,
                class: config.class,
            },
            remotes: remotes.collect(),
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
            closed: Default::default(),
            closed_for_all: Default::default(),
            entering: Default::default(),
            no_stack: Mutex::new(None),
            out_of_stacks: Default::default(),
            outside: Lives::default(),
            abandoned: Lock::new(Vec::new()),
            given_up: Default::default(),
            drainers: Lock::new(List::new()),
            monitor: MonitorBell::default(),
            services: OnceLock::new(),
        });
        let pool = Pool::new(PoolSettings {
            limit: config.blocking_threads,
            keep_alive: config.keep_alive,
            name: format!("{}-blocking", config.name),
        });
        let services = Services {
            pool: Arc::new(pool),
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
            let thread = start_worker(&shared, index, deques, choice.take(), cpu)?;
            threads.workers.push(thread);
        }
        let settings = MonitorSettings {
            quantum: config.quantum,
            hog_after: config.hog_after,
            on_hog: config.on_hog,
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
    /// As [`shutdown_timeout`](Self::shutdown_timeout) without a limit.
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
        // Beyond the clock's range is for ever, so nobody is left.
        let ended = self.shutdown_timeout(Duration::MAX);
        debug_assert!(ended.is_ok());
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
    /// one does nothing.
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
        let Some(threads) = self.threads.take() else {
            return Ok(());
        };
        let ending = Ending {
            shared: self.shared.clone(),
            threads,
            at: Location::caller(),
        };
        ending.on_a_thread_of_its_own_if_needed(move |ending| ending.cancel_and_stop(timeout))
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
            shutdown::drain(&ending.shared, Whom::NonDaemons, None, ending.at);
            ending.cancel_and_stop(config::DAEMON_GRACE)
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
    /// A fiber or pool thread of the runtime cannot wait for its own end.
    fn on_a_thread_of_its_own_if_needed(
        self,
        end: impl FnOnce(Self) -> Result<(), ShutdownError> + Send + 'static,
    ) -> Result<(), ShutdownError> {
        // From now on only what is inside may spawn: else threads outside could
        // keep a runtime that is to end going for ever.
        submit::close(&self.shared);
        if !is_inside(&self.shared) {
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
            if next == deadline && deadline.is_some() {
                break;
            }
        }
        submit::close_for_all(shared);
        shared.stop.store(true, Ordering::Release);
        shared.wake_all();
        shared.monitor.stop();
        services::of(shared).pool.stop();
        let mut error = None;
        if ended {
            for worker in self.threads.workers {
                // A worker that panicked has aborted the process.
                let _ = worker.join();
            }
        } else {
            // Wakes of leaked fibers go to inboxes of `shared`.
            std::mem::forget(shared.clone());
            // A worker that runs a fiber which does not end does not end either.
            wait_a_while(|| self.threads.workers.iter().all(JoinHandle::is_finished));
            error = Some(ShutdownError::new(shared, timeout));
            // What the others left behind; a late one does this itself. Relaxed:
            // set before, and read after, the lock of what was left.
            shared.given_up.store(true, Ordering::Relaxed);
            shutdown::abandon_queued(shared);
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

fn start_worker(
    shared: &Arc<Shared>,
    index: usize,
    deques: Deques,
    choice: Option<Box<dyn Choice>>,
    cpu: Option<usize>,
) -> io::Result<JoinHandle<()>> {
    static SEED: AtomicU64 = AtomicU64::new(0x5eed);
    // Relaxed: any different numbers do.
    let seed = SEED.fetch_add(0x9e37_79b9, Ordering::Relaxed);
    let shared = shared.clone();
    std::thread::Builder::new()
        .name(format!("{}-worker-{index}", shared.settings.name))
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
            let core = Core::new(shared, index, deques, choice, seed);
            run::run(&core);
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
            .field("workers", &self.shared.remotes.len())
            .finish()
    }
}

/// A fiber that had not ended when its runtime was given up.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LeakedFiber {
    /// Its id.
    pub id: FiberId,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// What it waits for; `None` if it runs or never started.
    pub waits_for: WaitReason,
    /// Where it waits, or waited last.
    pub waits_at: Option<&'static Location<'static>>,
    /// Where it was spawned.
    pub spawned_at: Option<&'static Location<'static>>,
}

/// Some fibers did not end in time; see [`Runtime::shutdown_timeout`].
#[derive(Clone, Debug)]
pub struct ShutdownError {
    runtime: String,
    timeout: Duration,
    leaked: Vec<LeakedFiber>,
}

impl ShutdownError {
    fn new(shared: &Arc<Shared>, timeout: Duration) -> Self {
        let survivors = shutdown::survivors(shared);
        let leaked = survivors.iter().map(|block| {
            // SAFETY: the reference keeps the block and its extras.
            let extras = unsafe { block.extras().as_ref() };
            LeakedFiber {
                id: FiberId::new(block.id()),
                name: extras.and_then(|extras| extras.name.as_deref().map(String::from)),
                waits_for: block.wait_reason(),
                waits_at: block.waits_at(),
                spawned_at: block.spawned_at(),
            }
        });
        Self {
            runtime: shared.settings.name.clone(),
            timeout,
            leaked: leaked.collect(),
        }
    }

    /// The fibers that were leaked.
    pub fn leaked(&self) -> &[LeakedFiber] {
        &self.leaked
    }
}

impl fmt::Display for ShutdownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        let count = self.leaked.len();
        write!(
            f,
            "runtime '{}': {count} fiber{} had not ended {:?} after being cancelled, and {} leaked:",
            self.runtime,
            if count == 1 { "" } else { "s" },
            self.timeout,
            if count == 1 { "is" } else { "are" },
        )?;
        for (index, fiber) in self.leaked.iter().take(SHOWN).enumerate() {
            let comma = if index == 0 { "" } else { ";" };
            write!(f, "{comma} {}", fiber.id.with_name(fiber.name.as_deref()))?;
            if let Some(at) = fiber
                .waits_at
                .filter(|_| fiber.waits_for != WaitReason::None)
            {
                write!(f, ", waits in {:?} at {at}", fiber.waits_for)?;
            }
            if let Some(at) = fiber.spawned_at {
                write!(f, ", spawned at {at}")?;
            }
        }
        if self.leaked.len() > SHOWN {
            write!(f, "; and {} more", self.leaked.len() - SHOWN)?;
        }
        Ok(())
    }
}

impl std::error::Error for ShutdownError {}
