//! Hooks that run whenever a fiber is suspended or resumed: for contexts that a library
//! keeps per thread.
//!
//! All fibers of a worker share one OS thread. If a library has a "current" something in a
//! thread-local (a locale, a GL context, a request that is traced), and a fiber sets it and
//! then waits, the next fiber of the worker finds it there. A pair of hooks makes such a
//! context the fiber's own: the *suspend* hook takes it off the thread and keeps it, the
//! *resume* hook puts it back.
//!
//! For spans of `tracing` there is no need of that: the feature `tracing` does it, without
//! any code (see the [guide](crate::guide#spans-of-tracing)).
//!
//! # When they run
//!
//! * A fiber that starts: *resume*, before its closure.
//! * A fiber that leaves its worker, to wait or to yield: *suspend*, on the worker that it
//!   leaves. When it goes on: *resume*, on the worker where it goes on. Without
//!   [`Builder::migratable`](crate::Builder::migratable) that is the same one.
//! * A fiber that ends: *suspend*, after its closure, its fiber-locals and its result are
//!   done with. It is not resumed again.
//!
//! So on each thread the calls alternate, and a thread between two fibers has had a
//! *suspend* last. A fiber that is leaked by
//! [`shutdown_timeout`](crate::Runtime::shutdown_timeout) while it waits has had its *suspend*
//! and is never resumed. Threads of the blocking pool run no fibers, and plain threads never
//! call a hook.
//!
//! # What they may do
//!
//! Hooks run on the fiber's own stack, in the middle of a switch. [`current`](crate::current)
//! is the fiber that leaves or comes back. A hook
//!
//! * must not wait: it runs inside of [`no_suspend`](crate::no_suspend), where a wait is a
//!   panic. Locks of [`sync`](crate::sync) that are free can be had, `try_` methods can be
//!   called, and so can `spawn`, `unpark` and `cancel`;
//! * must not panic: **a panic in a hook aborts the process**, with a message;
//! * should be short: it is a part of every switch;
//! * needs room on the stack of every fiber, also of the smallest.
//!
//! A hook that is called while its fiber unwinds sees `std::thread::panicking()` false.
//!
//! What belongs to a fiber can be kept in a [`fiber_local!`](crate::fiber_local): the first
//! *resume* may make it, before the fiber itself can use any. At the end it is dropped with
//! the other fiber-locals. If the last *suspend* makes it once more, that one is dropped right
//! after the hook, under the same rules: its destructor must not wait.

use crate::sched::hooks::{self, Pair, Refused};
use std::error::Error;
use std::fmt;
use std::io;

/// A pair of hooks for all fibers of the process; see the [module](self).
///
/// # Examples
///
/// A library that has a current user in a thread-local:
///
/// ```standalone_crate
/// use std::cell::Cell;
///
/// thread_local!(static USER: Cell<u32> = const { Cell::new(0) });
/// sinew::fiber_local!(static KEPT: Cell<u32> = const { Cell::new(0) });
///
/// sinew::hooks::SwitchHooks::new()
///     .on_suspend(|| KEPT.set(USER.replace(0)))
///     .on_resume(|| USER.set(KEPT.get()))
///     .install()?;
///
/// let runtime = sinew::Runtime::builder().workers(1).build()?;
/// runtime.run(|| {
///     let fibers = [1, 2, 3].map(|user| {
///         sinew::spawn(move || {
///             USER.set(user);
///             sinew::yield_now(); // the others set theirs
///             assert_eq!(USER.get(), user);
///         })
///     });
///     for fiber in fibers {
///         fiber.join().unwrap();
///     }
///     assert_eq!(USER.get(), 0);
/// });
/// # std::io::Result::Ok(())
/// ```
#[must_use = "hooks do nothing before they are installed"]
pub struct SwitchHooks(Pair);

impl SwitchHooks {
    /// Two hooks that do nothing.
    ///
    /// # Examples
    ///
    /// ```standalone_crate
    /// assert!(sinew::hooks::SwitchHooks::new().install().is_ok());
    /// ```
    pub fn new() -> Self {
        Self(Pair {
            suspend: Box::new(|| ()),
            resume: Box::new(|| ()),
        })
    }

    /// Sets what is called before a fiber leaves its worker.
    ///
    /// # Examples
    ///
    /// ```standalone_crate
    /// use std::sync::atomic::{AtomicU32, Ordering};
    ///
    /// static LEFT: AtomicU32 = AtomicU32::new(0);
    /// sinew::hooks::SwitchHooks::new()
    ///     .on_suspend(|| _ = LEFT.fetch_add(1, Ordering::Relaxed))
    ///     .install()?;
    /// sinew::run(sinew::yield_now);
    /// assert!(LEFT.load(Ordering::Relaxed) >= 2); // the yield, and the end
    /// # std::io::Result::Ok(())
    /// ```
    pub fn on_suspend(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.0.suspend = Box::new(hook);
        self
    }

    /// Sets what is called when a fiber starts or goes on.
    ///
    /// # Examples
    ///
    /// ```standalone_crate
    /// use std::sync::atomic::{AtomicU32, Ordering};
    ///
    /// static CAME: AtomicU32 = AtomicU32::new(0);
    /// sinew::hooks::SwitchHooks::new()
    ///     .on_resume(|| _ = CAME.fetch_add(1, Ordering::Relaxed))
    ///     .install()?;
    /// sinew::run(sinew::yield_now);
    /// assert!(CAME.load(Ordering::Relaxed) >= 2); // the start, and after the yield
    /// # std::io::Result::Ok(())
    /// ```
    pub fn on_resume(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.0.resume = Box::new(hook);
        self
    }

    /// Installs the pair for the whole process, for good.
    ///
    /// There is one pair in a process, so this belongs into `main`, not into a library. Does
    /// not wait.
    ///
    /// # Errors
    ///
    /// [`InstallHooksError`] if there is a pair already, or if a runtime was started before:
    /// its fibers would be resumed by a hook that never saw them suspended. The global
    /// runtime counts, and so does one that has ended since.
    ///
    /// # Examples
    ///
    /// ```standalone_crate
    /// use sinew::hooks::{InstallHooksError, SwitchHooks};
    ///
    /// sinew::run(|| ());
    /// assert_eq!(SwitchHooks::new().install(), Err(InstallHooksError::RuntimeStarted));
    /// ```
    pub fn install(self) -> Result<(), InstallHooksError> {
        hooks::install(self.0).map_err(|refused| match refused {
            Refused::AlreadySet => InstallHooksError::AlreadyInstalled,
            Refused::Started => InstallHooksError::RuntimeStarted,
        })
    }
}

impl Default for SwitchHooks {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SwitchHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SwitchHooks").finish_non_exhaustive()
    }
}

/// Why [`SwitchHooks::install`] did not install a pair.
///
/// # Examples
///
/// ```standalone_crate
/// use sinew::hooks::{InstallHooksError, SwitchHooks};
///
/// assert_eq!(SwitchHooks::new().install(), Ok(()));
/// assert_eq!(SwitchHooks::new().install(), Err(InstallHooksError::AlreadyInstalled));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InstallHooksError {
    /// The process has a pair of hooks already.
    AlreadyInstalled,
    /// A runtime was started before.
    RuntimeStarted,
}

impl fmt::Display for InstallHooksError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AlreadyInstalled => "the process has switch hooks already",
            Self::RuntimeStarted => {
                "switch hooks must be installed before the first runtime is started"
            }
        })
    }
}

impl Error for InstallHooksError {}

impl From<InstallHooksError> for io::Error {
    fn from(error: InstallHooksError) -> Self {
        Self::other(error)
    }
}
