//! `Runtime::builder()`: settings, checked all at once by `build`.

use super::config;
use super::runtime::Runtime;
use crate::error::Unobserved;
use crate::reactor::{DriverKind, IoDriver, RingSize};
use crate::sched::seam::{Choice, Clock};
use crate::stack::{GuardChoice, StackClass};
use crate::timer::RealClock;
use crate::worker::hog::{HogReport, OnHog};
use crate::worker::spare;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Settings of a [`Runtime`] to be.
///
/// ```
/// let runtime = sinew::Runtime::builder()
///     .workers(2)
///     .name("crawler")
///     .build()?;
/// assert_eq!(runtime.run(|| 6 * 7), 42);
/// # std::io::Result::Ok(())
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct RuntimeBuilder {
    workers: Option<usize>,
    spare_workers: Option<usize>,
    pub(super) spare_linger: Duration,
    stack_size: Option<usize>,
    blocking_threads: Option<usize>,
    name: Option<String>,
    pin_workers: bool,
    strict_order: bool,
    keep_alive: Duration,
    quantum: Duration,
    hog_after: Duration,
    on_hog: Option<OnHog>,
    stalled_after: Duration,
    daemon_grace: Duration,
    report_panics: Option<bool>,
    unobserved: Option<Arc<Unobserved>>,
    pub(super) guard: GuardChoice,
    pub(super) max_stacks: Option<usize>,
    pub(super) clock: Option<Box<dyn Clock>>,
    pub(super) choice: Option<Box<dyn Choice>>,
    io_driver: Option<IoDriver>,
    pub(super) ring_size: RingSize,
}

/// Checked settings.
pub(super) struct Config {
    pub(super) workers: usize,
    pub(super) spare_workers: usize,
    pub(super) spare_linger: Duration,
    pub(super) class: StackClass,
    pub(super) blocking_threads: usize,
    pub(super) name: String,
    pub(super) pin_workers: bool,
    pub(super) strict_order: bool,
    pub(super) keep_alive: Duration,
    pub(super) quantum: Duration,
    pub(super) hog_after: Duration,
    pub(super) on_hog: Option<OnHog>,
    pub(super) stalled_after: Duration,
    pub(super) daemon_grace: Duration,
    pub(super) report_panics: bool,
    pub(super) unobserved: Option<Arc<Unobserved>>,
    pub(super) guard: GuardChoice,
    pub(super) max_stacks: Option<usize>,
    pub(super) clock: Box<dyn Clock>,
    pub(super) choice: Option<Box<dyn Choice>>,
    pub(super) driver: DriverKind,
    pub(super) ring_size: RingSize,
}

impl RuntimeBuilder {
    pub(super) fn new() -> Self {
        Self {
            workers: None,
            spare_workers: None,
            spare_linger: spare::LINGER,
            stack_size: None,
            blocking_threads: None,
            name: None,
            pin_workers: false,
            strict_order: false,
            keep_alive: config::KEEP_ALIVE,
            quantum: config::QUANTUM,
            hog_after: config::HOG_AFTER,
            on_hog: None,
            stalled_after: config::STALLED_AFTER,
            daemon_grace: config::DAEMON_GRACE,
            report_panics: None,
            unobserved: None,
            guard: GuardChoice::Auto,
            max_stacks: None,
            clock: None,
            choice: None,
            io_driver: None,
            ring_size: RingSize::default(),
        }
    }

    /// How many threads run fibers, from 1 to 1024.
    ///
    /// By default as many as there are usable CPUs, or `SINEW_WORKERS`.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// How many spare workers may stand in for workers that fibers have blocked, up to 1024.
    ///
    /// A fiber that blocks its worker's thread (a lock or a channel of std, a call of a
    /// library that does I/O by itself) keeps everything on that worker waiting. If fibers
    /// that have not started wait too and no worker is free, another thread starts them,
    /// a few milliseconds later. It takes no more when the blocked worker is back, and ends when its
    /// fibers have ended and 10 seconds have passed. Fibers that had started on the blocked
    /// worker, its I/O and its timers still wait: [`blocking`](crate::blocking) is what
    /// avoids that.
    ///
    /// By default as many as there are workers. There are none with one worker or with
    /// [`strict_order`](Self::strict_order), nor where `/proc` cannot be read, which is said
    /// once on standard error. [`pin_workers`](Self::pin_workers) does not concern spares.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::mpsc;
    ///
    /// let runtime = sinew::Runtime::builder().workers(2).spare_workers(1).build()?;
    /// let (go, wait) = mpsc::channel(); // std's: both workers block
    /// let wait = std::sync::Mutex::new(wait);
    /// let wait = std::sync::Arc::new(wait);
    /// let blocked = [(); 2].map(|()| {
    ///     let wait = wait.clone();
    ///     runtime.spawn(move || wait.lock().unwrap().recv())
    /// });
    /// // A spare runs what lets them go on.
    /// runtime.spawn(move || [(); 2].map(|()| go.send(()).unwrap())).join().unwrap();
    /// for blocked in blocked {
    ///     blocked.join().unwrap().unwrap();
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    pub fn spare_workers(mut self, spares: usize) -> Self {
        self.spare_workers = Some(spares);
        self
    }

    /// How much stack a fiber may use, in bytes, guard included; rounded up to
    /// a power of two.
    ///
    /// Only touched pages cost memory. By default 256 KiB, 1 MiB in debug
    /// builds, or `SINEW_STACK_KB`.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// How many threads [`blocking`](crate::blocking) and
    /// [`spawn_blocking`](crate::spawn_blocking) may use at once.
    ///
    /// Further closures wait in a queue. So a closure on the pool that waits for another one
    /// there, directly or through a fiber that it joins, may wait for ever: if this many do
    /// so at once, no thread is left for what they wait for.
    ///
    /// By default 512, or `SINEW_BLOCKING_THREADS`.
    pub fn blocking_threads(mut self, limit: usize) -> Self {
        self.blocking_threads = Some(limit);
        self
    }

    /// How long an idle blocking thread stays; 10 seconds by default.
    pub fn blocking_keep_alive(mut self, time: Duration) -> Self {
        self.keep_alive = time;
        self
    }

    /// What its threads are called, and messages call the runtime.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Binds each worker to a CPU of its own, as far as there are enough.
    pub fn pin_workers(mut self, pin: bool) -> Self {
        self.pin_workers = pin;
        self
    }

    /// Whether a ready fiber always runs after all that were ready before it.
    ///
    /// Otherwise a fiber that the running one wakes or joins may run next, up
    /// to 64 times in a row, which is faster. With one worker and a strict
    /// order each of N ready fibers runs again after exactly N − 1 others.
    pub fn strict_order(mut self, strict: bool) -> Self {
        self.strict_order = strict;
        self
    }

    /// How sockets and files are waited for.
    ///
    /// By default what `SINEW_IO` says (`auto`, `uring` or `epoll`), and without it the
    /// faster one that the system allows: io_uring is often forbidden in containers.
    /// [`RuntimeStats::driver`](crate::RuntimeStats::driver) tells which it is.
    ///
    /// ```
    /// use sinew::{IoDriver, Runtime};
    ///
    /// let runtime = Runtime::builder().io_driver(IoDriver::Epoll).build()?;
    /// assert_eq!(runtime.stats().driver, "epoll");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn io_driver(mut self, driver: IoDriver) -> Self {
        self.io_driver = Some(driver);
        self
    }

    /// How long a fiber may run before a [`safepoint`](crate::safepoint) lets others
    /// run that compute, too; 10 ms by default. Those that were woken, have yielded or
    /// have not started come first before that, see [`safepoint`](crate::safepoint).
    pub fn quantum(mut self, quantum: Duration) -> Self {
        self.quantum = quantum;
        self
    }

    /// How long a fiber may run without a pause before it is reported; 100 ms
    /// by default.
    pub fn report_hogs_after(mut self, time: Duration) -> Self {
        self.hog_after = time;
        self
    }

    /// Whom to tell of a fiber that hogs its worker, instead of a line on
    /// standard error.
    ///
    /// Called once per hogging run, on the runtime's monitor thread; it should
    /// not block.
    pub fn on_hog(mut self, callback: impl Fn(&HogReport) + Send + Sync + 'static) -> Self {
        self.on_hog = Some(Arc::new(callback));
        self
    }

    /// How long all fibers may wait with nothing ready, no timer and no I/O, while somebody
    /// waits for them in [`run`](crate::run), in the runtime's drop or in the
    /// [`scope`](crate::scope()) of a plain thread, before they are listed on standard error; 5
    /// seconds by default.
    ///
    /// Such fibers wait for each other, or for what a plain thread does. They are listed once in
    /// the runtime's life; nothing else happens to them. `Duration::MAX` turns the list off.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = sinew::Runtime::builder()
    ///     .workers(1)
    ///     .report_stalls_after(Duration::MAX)
    ///     .build()?;
    /// assert_eq!(runtime.run(|| 1), 1);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn report_stalls_after(mut self, time: Duration) -> Self {
        self.stalled_after = time;
        self
    }

    /// How long a runtime that is dropped waits for its daemons, which it has cancelled; 5
    /// seconds by default.
    ///
    /// [`run`](crate::run) and `#[sinew::main]` end by such a drop. A daemon that has not ended by
    /// then is reported, and leaked with its stack; it is never cut off. With `Duration::ZERO`
    /// daemons are cancelled and not waited for at all.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = sinew::Runtime::builder()
    ///     .workers(1)
    ///     .daemon_grace(Duration::from_millis(10))
    ///     .build()?;
    /// // `park` is no cancellation point, so this daemon never ends.
    /// let daemon = sinew::Builder::new().daemon(true);
    /// let daemon = daemon.spawn_on(&runtime.handle(), || loop { sinew::park() })?;
    /// while daemon.fiber().wait_reason() != sinew::WaitReason::Park {
    ///     std::thread::yield_now(); // cancelled before it began it would end
    /// }
    /// drop(runtime);
    /// assert!(!daemon.is_finished());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn daemon_grace(mut self, grace: Duration) -> Self {
        self.daemon_grace = grace;
        self
    }

    /// Whether a panic on a fiber is preceded by a line on standard error that names the fiber,
    /// its id, and where it was spawned; true by default, or what `SINEW_REPORT_PANICS` says (0
    /// or 1).
    ///
    /// std's message names only the thread, which is a worker. The line is written by a panic
    /// hook that the first runtime with this setting installs, once; it then calls the hook that
    /// it found. A hook that the program sets later replaces it, unless that calls the one it
    /// found, too.
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = sinew::Runtime::builder()
    ///     .workers(1)
    ///     .report_panics(false)
    ///     .build()?;
    /// assert!(runtime.spawn(|| panic!("only std speaks")).join().is_err());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn report_panics(mut self, report: bool) -> Self {
        self.report_panics = Some(report);
        self
    }

    /// Notes there the panics that nobody takes.
    pub(crate) fn observed_by(mut self, unobserved: Arc<Unobserved>) -> Self {
        self.unobserved = Some(unobserved);
        self
    }

    /// Starts the runtime.
    ///
    /// # Errors
    ///
    /// `InvalidInput` names the setting or variable and its allowed range; any
    /// other error is the system's, when a thread could not be started.
    ///
    /// ```
    /// let error = sinew::Runtime::builder().workers(0).build().unwrap_err();
    /// assert_eq!(error.to_string(), "workers is 0, but must be from 1 to 1024");
    /// ```
    pub fn build(self) -> io::Result<Runtime> {
        let io = config::io(self.io_driver)?;
        if self.name.as_ref().is_some_and(|name| name.contains('\0')) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "name contains a NUL byte, which no thread's name may",
            ));
        }
        for (setting, time) in [
            ("quantum", self.quantum),
            ("report_hogs_after", self.hog_after),
        ] {
            if time.is_zero() {
                let message = format!("{setting} is zero, but must be longer");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
        }
        let workers = config::workers(self.workers)?;
        if workers > 1 && (self.choice.is_some() || self.clock.is_some()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a scripted choice or a virtual clock needs exactly one worker",
            ));
        }
        let spares = config::spare_workers(self.spare_workers, workers)?;
        let may_have_spares = workers > 1 && !self.strict_order;
        Runtime::start(Config {
            workers,
            spare_workers: if may_have_spares { spares } else { 0 },
            spare_linger: self.spare_linger,
            class: config::default_stack_class(self.stack_size)?,
            blocking_threads: config::blocking_threads(self.blocking_threads)?,
            name: self.name.unwrap_or_else(|| "sinew".into()),
            pin_workers: self.pin_workers,
            strict_order: self.strict_order,
            keep_alive: self.keep_alive,
            quantum: self.quantum,
            hog_after: self.hog_after,
            on_hog: self.on_hog,
            stalled_after: self.stalled_after,
            daemon_grace: self.daemon_grace,
            report_panics: config::report_panics(self.report_panics)?,
            unobserved: self.unobserved,
            guard: self.guard,
            max_stacks: self.max_stacks,
            clock: self.clock.unwrap_or_else(|| Box::new(RealClock::new())),
            choice: self.choice,
            driver: io.settle()?,
            ring_size: self.ring_size,
        })
    }
}
