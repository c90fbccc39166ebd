//! Work for threads that may block.

use super::join::JoinHandle;
use super::spawn::{Request, cannot_spawn, enter, make_block};
use crate::fiber::{WaitReason, taker};
use crate::runtime::shared_for_spawn;
use crate::sched::core::Core;
use crate::sched::{current, submit, switch};
use crate::wait::{WaitSpec, Waiter, wait};
use crate::worker::pool::Job;
use crate::worker::services;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::ptr::NonNull;

/// Runs `f` on a thread of the blocking pool, and returns a handle to wait for
/// its result.
///
/// The pool belongs to the runtime: it grows up to a limit
/// ([`RuntimeBuilder::blocking_threads`](crate::RuntimeBuilder::blocking_threads)),
/// beyond which jobs queue, first in, first out. Cancelled before a thread took
/// it, the job only drops its closure.
///
/// # Panics
///
/// If there is no thread and none can be started, or the runtime has shut down.
///
/// ```
/// sinew::run(|| {
///     let listing = sinew::spawn_blocking(|| std::fs::read_dir("/").unwrap().count());
///     assert!(listing.join().unwrap() > 0);
/// });
/// ```
#[track_caller]
pub fn spawn_blocking<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let request = Request::new(Location::caller());
    let made = shared_for_spawn(|shared| {
        let gate = enter(shared)?;
        // SAFETY: `'static` and `Send`.
        let block = match unsafe { make_block(shared, request, true, f) } {
            Ok(block) => block,
            Err((error, f)) => {
                drop(gate);
                drop(f); // user code: not under the gate
                return Err(error);
            }
        };
        // SAFETY: a non-null core is this thread's and alive.
        let core: Option<&Core> = unsafe { current::core().as_ref() };
        submit::count_spawn(shared, core, false);
        let job = Job::Task(block.as_ptr());
        match services::of(shared).pool.submit(shared, job) {
            Ok(()) => Ok(JoinHandle::new(block, taker::<F, T>())),
            Err((_job, error)) => {
                // Counted, so the runtime waits for it without the gate.
                drop(gate);
                // The closure is dropped here, on the caller's stack.
                // SAFETY: the job came back, so it is ours to end.
                unsafe { crate::worker::pool::give_up(shared, block.as_ptr()) };
                drop(JoinHandle::new(block, taker::<F, T>()));
                Err(error)
            }
        }
    });
    match made {
        Ok(handle) => handle,
        Err(error) => cannot_spawn(&error),
    }
}

/// Runs `f` on a thread of the blocking pool while this fiber waits; `f` may
/// borrow from the fiber's stack.
///
/// The worker runs other fibers meanwhile. Waiting is no cancellation point: a
/// closure that has begun cannot be stopped. A panic of `f` goes on in the
/// caller. On a plain thread `f` just runs, in place.
///
/// # Panics
///
/// If `f` does, or if there is no thread and none can be started.
///
/// ```
/// sinew::run(|| {
///     let mut text = String::from("read ");
///     sinew::blocking(|| text.push_str("on another thread"));
///     assert_eq!(text, "read on another thread");
/// });
/// ```
#[track_caller]
pub fn blocking<F, T>(f: F) -> T
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    if switch::running().is_none() {
        return f();
    }
    let job = Borrowed {
        closure: UnsafeCell::new(Some(f)),
        result: UnsafeCell::new(None),
        waiter: Waiter::for_current(),
    };
    let submitted = shared_for_spawn(|shared| {
        let job = Job::Borrowed {
            run: Borrowed::<F, T>::run,
            data: NonNull::from(&job).cast(),
        };
        services::of(shared).pool.submit(shared, job)
    });
    if let Err((_job, error)) = submitted {
        panic!("cannot run a closure on the blocking pool: {error}");
    }
    let spec = WaitSpec::new(WaitReason::Blocking, Location::caller());
    wait(&job.waiter, &spec); // does not unwind: the pool thread uses our frame
    match job.result.into_inner() {
        Some(Ok(value)) => value,
        Some(Err(payload)) => resume_unwind(payload),
        None => unreachable!("the job has run: it claimed our wait"),
    }
}

/// A closure on the stack of the fiber that waits for it.
///
/// The cells belong to the pool thread from `submit` until it claims the
/// waiter, and to the fiber after it took the notification.
struct Borrowed<F, T> {
    closure: UnsafeCell<Option<F>>,
    result: UnsafeCell<Option<std::thread::Result<T>>>,
    waiter: Waiter,
}

impl<F: FnOnce() -> T, T> Borrowed<F, T> {
    /// # Safety
    ///
    /// `data` is a `Borrowed<F, T>` whose fiber waits for this one call.
    unsafe fn run(data: NonNull<()>) {
        // SAFETY: the fiber does not leave `blocking` before our notification.
        let job = unsafe { data.cast::<Self>().as_ref() };
        // SAFETY: the cells are ours now; see the type.
        let closure = unsafe { (*job.closure.get()).take() };
        let closure = closure.expect("a job runs once");
        let result = catch_unwind(AssertUnwindSafe(closure));
        // SAFETY: as above.
        unsafe { *job.result.get() = Some(result) };
        // Nothing else claims this waiter: no list, no deadline.
        if let Some(wakeup) = job.waiter.claim(0) {
            wakeup.fire();
        }
    }
}
