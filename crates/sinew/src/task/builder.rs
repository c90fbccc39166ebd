//! Making a fiber that is not like the others.

use super::join::{JoinHandle, LocalJoinHandle};
use super::spawn::{Request, spawn_here, spawn_on};
use crate::fiber::Priority;
use crate::runtime::{Handle, shared_for_spawn, stack_class};
use crate::sched::submit::Placement;
use std::io;
use std::panic::Location;
use std::sync::Arc;

/// Settings of a fiber to be; the counterpart of `std::thread::Builder`.
///
/// ```
/// let fiber = sinew::Builder::new()
///     .name("parser")
///     .stack_size(1 << 20)
///     .priority(sinew::Priority::High)
///     .spawn(|| sinew::current().name().map(String::from))?;
/// assert_eq!(fiber.join().unwrap().as_deref(), Some("parser"));
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until `spawn` is called"]
pub struct Builder {
    name: Option<String>,
    stack_size: Option<usize>,
    priority: Priority,
    daemon: bool,
    spread: bool,
    migratable: bool,
}

impl Builder {
    /// The settings that [`spawn`](crate::spawn) uses.
    pub fn new() -> Self {
        Self::default()
    }

    /// What messages, reports and [`Fiber::name`](crate::Fiber::name) call it.
    ///
    /// As in std, a name must not contain a NUL byte: [`spawn`](Self::spawn) panics then.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// How much stack it may use, in bytes, guard included; rounded up to a
    /// power of two.
    ///
    /// The least, 16 KiB, is for closures that hardly call anything. Spawning
    /// takes several KiB, a panic message more; unoptimised code needs 64 KiB
    /// for either.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// How urgent it is.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// A daemon does not keep its runtime from ending: when all others have
    /// ended it is cancelled, waited for a while
    /// ([`RuntimeBuilder::daemon_grace`](crate::RuntimeBuilder::daemon_grace), five seconds by
    /// default), and then leaked.
    pub fn daemon(mut self, daemon: bool) -> Self {
        self.daemon = daemon;
        self
    }

    /// Starts it on the less loaded of this worker and a random other one, even
    /// if the difference is small.
    pub fn spread(mut self) -> Self {
        self.spread = true;
        self
    }

    /// Lets it move to another worker also after it has started.
    ///
    /// # Safety
    ///
    /// Rust does not support this for arbitrary code. Whatever is on the
    /// fiber's stack while it is suspended must be fit to be used by another
    /// thread: no `Rc`, no `MutexGuard` of std's, no reference to a
    /// thread-local; and no code between two suspensions may keep the address
    /// of a thread-local across them, as the compiler is free to do after
    /// inlining (the runtime's own accesses are safe).
    pub unsafe fn migratable(mut self) -> Self {
        self.migratable = true;
        self
    }

    /// Starts the fiber on the caller's runtime.
    ///
    /// # Errors
    ///
    /// `InvalidInput` names a setting out of range; `OutOfMemory` the call and
    /// the limit by which no stack was to be had; else the runtime has shut
    /// down.
    ///
    /// # Panics
    ///
    /// If the name contains a NUL byte, as in std.
    ///
    /// ```
    /// let error = sinew::Builder::new().stack_size(1).spawn(|| ()).unwrap_err();
    /// assert!(error.to_string().starts_with("stack_size is 1, but must be from"));
    /// ```
    #[track_caller]
    pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let request = self.request(Location::caller())?;
        // SAFETY: `'static` and `Send`.
        shared_for_spawn(|shared| unsafe { spawn_on(shared, request, f) })
    }

    /// As [`spawn`](Self::spawn), for a closure and a result that borrow; as std's.
    ///
    /// [`scope`](crate::scope()) does the same without `unsafe`.
    ///
    /// # Safety
    ///
    /// Nothing that the closure or its result borrows may end before the fiber has ended
    /// and its result was taken. So either the handle is [joined](JoinHandle::join) before
    /// that, or they borrow only what lives for ever.
    ///
    /// That the runtime has ended does not mean that the fiber has: one that could not end
    /// is leaked, and what it has lent may still be used
    /// ([`Runtime::shutdown_timeout`](crate::Runtime::shutdown_timeout)).
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn).
    ///
    /// # Panics
    ///
    /// As [`spawn`](Self::spawn).
    ///
    /// # Examples
    ///
    /// ```
    /// let text = String::from("borrowed");
    /// // SAFETY: the fiber is joined before `text` is dropped.
    /// let length = unsafe { sinew::Builder::new().spawn_unchecked(|| text.len()) }?;
    /// assert_eq!(length.join().unwrap(), 8);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub unsafe fn spawn_unchecked<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        let request = self.request(Location::caller())?;
        // SAFETY: `Send`; valid for long enough by the caller's promise.
        shared_for_spawn(|shared| unsafe { spawn_on(shared, request, f) })
    }

    /// Starts the fiber on this worker, where it stays; see
    /// [`spawn_local`](crate::spawn_local).
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn).
    ///
    /// # Panics
    ///
    /// On a thread that is no worker.
    ///
    /// ```
    /// sinew::run(|| {
    ///     let shared = std::rc::Rc::new(1);
    ///     let fiber = sinew::Builder::new().name("here").spawn_local(move || *shared);
    ///     assert_eq!(fiber.unwrap().join().unwrap(), 1);
    /// });
    /// ```
    #[track_caller]
    pub fn spawn_local<F, T>(self, f: F) -> io::Result<LocalJoinHandle<T>>
    where
        F: FnOnce() -> T + 'static,
        T: 'static,
    {
        spawn_here(self.request(Location::caller())?, f)
    }

    /// Starts the fiber on the runtime of `handle`.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn).
    ///
    /// ```
    /// let runtime = sinew::Runtime::builder().workers(1).build()?;
    /// let fiber = sinew::Builder::new().spawn_on(&runtime.handle(), || 42)?;
    /// assert_eq!(fiber.join().unwrap(), 42);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn spawn_on<F, T>(self, handle: &Handle, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        crate::sys::process::assert_not_forked();
        let request = self.request(Location::caller())?;
        // SAFETY: `'static` and `Send`.
        unsafe { spawn_on(&handle.shared, request, f) }
    }

    /// # Panics
    ///
    /// If the name contains a NUL byte, before anything was spawned or counted.
    #[track_caller]
    pub(crate) fn request(self, at: &'static Location<'static>) -> io::Result<Request> {
        if let Some(name) = &self.name {
            check_name(name);
        }
        let mut request = Request::new(at);
        if let Some(bytes) = self.stack_size {
            request.class = Some(stack_class("stack_size", bytes)?);
        }
        request.name = self.name.map(Arc::from);
        request.priority = self.priority;
        request.daemon = self.daemon;
        request.migratable = self.migratable;
        if self.spread {
            request.placement = Placement::Spread;
        }
        Ok(request)
    }
}

/// # Panics
///
/// If the name contains a NUL byte.
#[track_caller]
pub(crate) fn check_name(name: &str) {
    assert!(
        !name.contains('\0'),
        "fiber name may not contain interior null bytes"
    );
}
