//! Making fibers.

use super::join::{JoinHandle, LocalJoinHandle};
use crate::fiber::cancel::Nest;
use crate::fiber::{Birth, BlockRef, Kind, Priority, taker};
use crate::runtime::{Handle, Runtime, shared_for_spawn};
use crate::sched::shared::Shared;
use crate::sched::submit::{self, Gate, Placement, SchedOps};
use crate::sched::{current, switch};
use crate::stack::StackClass;
use crate::sys::fences;
use std::io;
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How a fiber should be made.
pub(crate) struct Request {
    pub(super) name: Option<Arc<str>>,
    pub(super) class: Option<StackClass>,
    pub(super) priority: Priority,
    pub(super) daemon: bool,
    pub(super) migratable: bool,
    pub(super) placement: Placement,
    pub(super) at: &'static Location<'static>,
    /// The nest that it is to be a child of.
    pub(super) parent: Option<NonNull<Nest>>,
    /// Even if it is cancelled before it begins.
    pub(super) always_runs: bool,
}

impl Request {
    /// The same as a child of `nest`, which outlives the fiber.
    pub(crate) fn child_of(self, nest: &Nest) -> Self {
        Self {
            parent: Some(NonNull::from(nest)),
            ..self
        }
    }

    pub(crate) fn new(at: &'static Location<'static>) -> Self {
        Self {
            name: None,
            class: None,
            priority: Priority::Normal,
            daemon: false,
            migratable: false,
            placement: Placement::Balanced,
            at,
            parent: None,
            always_runs: false,
        }
    }
}

/// The way into a runtime, or the error that it has ended.
pub(super) fn enter(shared: &Arc<Shared>) -> io::Result<Gate<'_>> {
    Gate::enter(shared).ok_or_else(|| {
        let name = &shared.settings.name;
        io::Error::other(format!(
            "the runtime '{name}' has shut down, or is about to"
        ))
    })
}

/// Fills a block for a new fiber of `shared`; not yet queued. Hands the closure
/// back with an error: its drop is user code, which does not belong under the
/// caller's gate.
///
/// # Safety
///
/// The closure and its outcome stay valid until the fiber has completed and the
/// outcome was taken; they are `Send` unless they stay on this thread.
pub(super) unsafe fn make_block<F: FnOnce() -> T, T>(
    shared: &Arc<Shared>,
    request: Request,
    on_pool: bool,
    closure: F,
) -> Result<BlockRef, (io::Error, F)> {
    let class = request.class.unwrap_or(shared.settings.class);
    // Relaxed: a hint; the error is behind a lock.
    if shared.out_of_stacks.load(Ordering::Relaxed) & class.bit() != 0 && !on_pool {
        if let Some(error) = shared.why_no_stack(class) {
            let error = io::Error::new(io::ErrorKind::OutOfMemory, error);
            return Err((error, closure));
        }
    }
    let block = match submit::take_block() {
        Ok(block) => block,
        Err(error) => return Err((error, closure)),
    };
    let birth = Birth {
        runtime: shared.tag(),
        ops: SchedOps,
        class,
        priority: request.priority,
        kind: Kind {
            daemon: request.daemon,
            local: request.placement == Placement::Here,
            migratable: request.migratable,
            on_pool,
            always_runs: request.always_runs,
        },
        name: request.name,
        spawned_at: request.at,
        parent: request.parent,
    };
    // SAFETY: fresh from the slab; the handle's reference is ours to take over.
    unsafe {
        block.as_ref().occupy(birth, closure);
        // Pairs with the heavy fence in `shutdown::cancel_from_now_on`: either that finds the
        // block, or we see the flag.
        fences::light();
        if shared.cancelling.load(Ordering::Relaxed) {
            // Not queued yet, so there is nobody to wake.
            let _ = block.as_ref().state().shut_down();
        }
        Ok(BlockRef::from_counted(block))
    }
}

/// Makes a fiber and queues it.
///
/// # Safety
///
/// As [`make_block`]; `Placement::Here` only on a worker of `shared`.
pub(crate) unsafe fn spawn_on<F: FnOnce() -> T, T>(
    shared: &Arc<Shared>,
    request: Request,
    closure: F,
) -> io::Result<JoinHandle<T>> {
    let placement = request.placement;
    let gate = enter(shared)?;
    // SAFETY: the caller's promise.
    match unsafe { make_block(shared, request, false, closure) } {
        Ok(block) => {
            // SAFETY: just made for this runtime.
            unsafe { submit::submit_new(shared, block.as_ptr(), placement) };
            Ok(JoinHandle::new(block, taker::<F, T>()))
        }
        Err((error, closure)) => {
            drop(gate);
            drop(closure);
            Err(error)
        }
    }
}

#[cold]
#[track_caller]
pub(crate) fn cannot_spawn(error: &io::Error) -> ! {
    panic!("cannot spawn a fiber: {error}")
}

/// Starts a fiber that runs `f`, and returns a handle to wait for its result.
///
/// It runs on the runtime of the caller; called from a plain thread, on a
/// global runtime that starts with the first such call. Dropping the handle
/// detaches the fiber: it goes on. If it panics, `join` returns the panic and
/// nobody else notices.
///
/// # Panics
///
/// If no stack or memory is to be had, or the runtime has shut down;
/// [`Builder::spawn`](crate::Builder::spawn) returns that as an error.
///
/// ```
/// sinew::run(|| {
///     let answer = sinew::spawn(|| 6 * 7);
///     assert_eq!(answer.join().unwrap(), 42);
/// });
/// ```
#[track_caller]
pub fn spawn<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let request = Request::new(Location::caller());
    // SAFETY: `'static` and `Send`.
    match shared_for_spawn(|shared| unsafe { spawn_on(shared, request, f) }) {
        Ok(handle) => handle,
        Err(error) => cannot_spawn(&error),
    }
}

/// Starts a fiber on this worker, where it stays, so `f` need not be `Send`.
///
/// # Panics
///
/// On a thread that is no worker, and as [`spawn`].
///
/// ```
/// use std::cell::Cell;
/// use std::rc::Rc;
///
/// sinew::run(|| {
///     let count = Rc::new(Cell::new(0));
///     let theirs = count.clone();
///     sinew::spawn_local(move || theirs.set(1)).join().unwrap();
///     assert_eq!(count.get(), 1);
/// });
/// ```
#[track_caller]
pub fn spawn_local<F, T>(f: F) -> LocalJoinHandle<T>
where
    F: FnOnce() -> T + 'static,
    T: 'static,
{
    match spawn_here(Request::new(Location::caller()), f) {
        Ok(handle) => handle,
        Err(error) => cannot_spawn(&error),
    }
}

/// Makes a fiber that stays on this worker.
#[track_caller]
pub(super) fn spawn_here<F, T>(mut request: Request, f: F) -> io::Result<LocalJoinHandle<T>>
where
    F: FnOnce() -> T + 'static,
    T: 'static,
{
    assert!(
        switch::running().is_some(),
        "spawn_local called outside of a fiber: there is no worker to stay on; \
         call it inside sinew::run, or use sinew::spawn"
    );
    request.placement = Placement::Here;
    request.migratable = false;
    // SAFETY: a fiber runs here, so the core is alive. `'static`; the fiber
    // stays on this worker, and so does its handle, which is not `Send`.
    let handle = unsafe { spawn_on((*current::core()).shared(), request, f) }?;
    Ok(LocalJoinHandle::new(handle))
}

impl Runtime {
    /// Starts a fiber on this runtime; otherwise as [`spawn`].
    ///
    /// ```
    /// let runtime = sinew::Runtime::builder().workers(1).build()?;
    /// assert_eq!(runtime.spawn(|| 42).join().unwrap(), 42);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Panics
    ///
    /// As [`spawn`].
    #[track_caller]
    pub fn spawn<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        spawn_from_outside(self.shared(), f)
    }
}

impl Handle {
    /// Starts a fiber on the handle's runtime; otherwise as [`spawn`].
    ///
    /// # Panics
    ///
    /// As [`spawn`], also once the runtime has begun to shut down.
    #[track_caller]
    pub fn spawn<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        spawn_from_outside(&self.shared, f)
    }
}

#[track_caller]
fn spawn_from_outside<F, T>(shared: &Arc<Shared>, f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    crate::sys::process::assert_not_forked();
    let request = Request::new(Location::caller());
    // SAFETY: `'static` and `Send`.
    match unsafe { spawn_on(shared, request, f) } {
        Ok(handle) => handle,
        Err(error) => cannot_spawn(&error),
    }
}
