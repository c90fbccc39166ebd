//! `Runtime::builder()`: settings, checked all at once by `build`.

use super::config;
use super::runtime::Runtime;
use crate::reactor::{DriverKind, IoDriver, RingSize};
use crate::sched::seam::{Choice, Clock};
use crate::stack::{GuardChoice, StackClass};
use crate::timer::RealClock;
use crate::worker::monitor::{HogReport, OnHog};
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
    stack_size: Option<usize>,
    blocking_threads: Option<usize>,
    name: Option<String>,
    pin_workers: bool,
    strict_order: bool,
    keep_alive: Duration,
    quantum: Duration,
    hog_after: Duration,
    on_hog: Option<OnHog>,
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
    pub(super) class: StackClass,
    pub(super) blocking_threads: usize,
    pub(super) name: String,
    pub(super) pin_workers: bool,
    pub(super) strict_order: bool,
    pub(super) keep_alive: Duration,
    pub(super) quantum: Duration,
    pub(super) hog_after: Duration,
    pub(super) on_hog: Option<OnHog>,
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
            stack_size: None,
            blocking_threads: None,
            name: None,
            pin_workers: false,
            strict_order: false,
            keep_alive: config::KEEP_ALIVE,
            quantum: config::QUANTUM,
            hog_after: config::HOG_AFTER,
            on_hog: None,
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

    /// How long a fiber may run before a [`safepoint`](crate::safepoint)
    /// yields; 10 ms by default.
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
        Runtime::start(Config {
            workers,
            class: config::default_stack_class(self.stack_size)?,
            blocking_threads: config::blocking_threads(self.blocking_threads)?,
            name: self.name.unwrap_or_else(|| "sinew".into()),
            pin_workers: self.pin_workers,
            strict_order: self.strict_order,
            keep_alive: self.keep_alive,
            quantum: self.quantum,
            hog_after: self.hog_after,
            on_hog: self.on_hog,
            guard: self.guard,
            max_stacks: self.max_stacks,
            clock: self.clock.unwrap_or_else(|| Box::new(RealClock::new())),
            choice: self.choice,
            driver: io.settle()?,
            ring_size: self.ring_size,
        })
    }
}
