//! What is said of fibers that had not ended when their runtime was given up.

use crate::error::impl_error;
use crate::fiber::{FiberId, WaitReason};
use crate::sched::shared::{Shared, WorkerEnd};
use crate::worker::shutdown;
use std::fmt;
use std::io::ErrorKind;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

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

/// Some fibers did not end in time; see [`Runtime::shutdown_timeout`](crate::Runtime::shutdown_timeout).
#[derive(Clone, Debug)]
pub struct ShutdownError {
    runtime: String,
    timeout: Duration,
    leaked: Vec<LeakedFiber>,
    kept_threads: usize,
}

impl ShutdownError {
    pub(super) fn new(shared: &Arc<Shared>, timeout: Duration) -> Self {
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
            kept_threads: shared
                .remotes
                .iter()
                .filter(|remote| remote.end() != WorkerEnd::Stopped)
                .count(),
        }
    }

    /// The fibers that were leaked.
    pub fn leaked(&self) -> &[LeakedFiber] {
        &self.leaked
    }

    /// How many worker threads stay because of them.
    ///
    /// A leaked fiber may have lent a reference to a thread-local of its worker to code
    /// that goes on: a closure of [`blocking`](crate::blocking()), a child of a scope, the
    /// kernel. So the thread of a worker on which started fibers were leaked does not end
    /// before the process does; it sleeps, and process exit does not wait for it. A worker
    /// whose fiber had not let go of it by now is counted, too: its thread may yet end.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = sinew::Runtime::builder().workers(2).build()?;
    /// let (started, has_started) = std::sync::mpsc::channel();
    /// let _deaf = runtime.spawn(move || {
    ///     started.send(()).unwrap();
    ///     loop {
    ///         sinew::park(); // a cancellation ends it once, and is ignored
    ///     }
    /// });
    /// has_started.recv().unwrap();
    /// let error = runtime.shutdown_timeout(Duration::from_millis(10)).unwrap_err();
    /// assert_eq!(error.leaked().len(), 1);
    /// assert_eq!(error.kept_threads(), 1);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn kept_threads(&self) -> usize {
        self.kept_threads
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
        let threads = match self.kept_threads {
            0 => return Ok(()),
            1 => "1 worker thread is".to_owned(),
            kept => format!("{kept} worker threads are"),
        };
        write!(f, "; {threads} kept for the rest of the process")
    }
}

impl_error!(ShutdownError { _ => Some(ErrorKind::TimedOut) });
