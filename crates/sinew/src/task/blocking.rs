//! Work for threads that may block.

use super::join::JoinHandle;
use super::spawn::{Request, cannot_spawn, enter, make_block};
use crate::fiber::cancel::{Descent, Errands, Frame, FrameKind, Owner};
use crate::fiber::users::left_out_of_order;
use crate::fiber::{Binding, Block, ThreadProxy, WaitReason, taker};
use crate::runtime::shared_for_spawn;
use crate::sched::core::Core;
use crate::sched::{current, submit, switch};
use crate::sys::{Lock, process};
use crate::wait::chain::{self, LinkedFrame};
use crate::wait::{WaitSpec, Waiter, wait};
use crate::worker::pool::Job;
use crate::worker::services;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// Runs `f` on a thread of the blocking pool, and returns a handle to wait for
/// its result.
///
/// The pool belongs to the runtime: it grows up to a limit
/// ([`RuntimeBuilder::blocking_threads`](crate::RuntimeBuilder::blocking_threads)),
/// beyond which jobs queue, first in, first out. Cancelled before a thread took
/// it, the job only drops its closure. Once a thread has taken it `cancel` has no
/// effect: cancellation points in `f` are not told. Use [`blocking`] in a fiber
/// that can be cancelled if they are to be.
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
/// The worker runs other fibers meanwhile. Waiting is no cancellation point: the
/// closure is always awaited. But cancellation points *in* it see what the caller is
/// cancelled by. A panic of `f` goes on in the caller. On a plain thread `f` just
/// runs, in place.
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
    blocking_at(Location::caller(), f)
}

/// The same for a caller further out.
pub(crate) fn blocking_at<F, T>(at: &'static Location<'static>, f: F) -> T
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    let Some(caller) = switch::running() else {
        return f();
    };
    // Marks limits that were reached: the pool thread does not look at our clock.
    chain::look();
    let lent = Frame::new(Owner::Fiber(caller), FrameKind::Lent, None);
    let job = Borrowed {
        closure: UnsafeCell::new(Some(f)),
        result: UnsafeCell::new(None),
        waiter: Waiter::for_current(),
        caller,
        frames: &raw const lent,
        values: chain::values(),
        runner: Lock::new(None),
    };
    // SAFETY: both are dropped when this call returns or unwinds, the frame last.
    let _linked = unsafe { LinkedFrame::new(&lent) };
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
    let pass_on = |errands: &mut Errands| job.tell_runner(errands);
    let spec = WaitSpec::new(WaitReason::Blocking, at).passing_on(&pass_on);
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
    /// Whose frames and scoped values the closure sees.
    caller: NonNull<Block>,
    /// The innermost of those, of the kind `Lent`.
    frames: *const Frame,
    values: *const Binding,
    /// The pool thread, while it runs the closure.
    runner: Lock<Option<Arc<ThreadProxy>>>,
}

impl<F, T> Borrowed<F, T> {
    /// The caller is cancelled: so are the waits of the pool thread, and the scopes on
    /// its stack. If it has not begun it will see that itself.
    fn tell_runner(&self, errands: &mut Errands) {
        let runner = {
            let runner = self.runner.lock();
            // Under the lock: later the thread may have gone on to another job, whose
            // `park` is none of ours. `run_as_caller` takes the token away after it has
            // taken the runner out.
            runner.as_ref().inspect(|proxy| proxy.unpark()).cloned()
        };
        if let Some(proxy) = runner {
            // If the thread has gone on meanwhile, none of its scopes is inside of a frame
            // of ours, and this finds nothing to cancel.
            // SAFETY: we have it.
            unsafe { Descent::of(Owner::of_thread(&proxy)) }.run_into(errands);
        }
    }

    /// Runs the closure as the caller's.
    fn run_as_caller(&self, closure: impl FnOnce() -> T) -> std::thread::Result<T> {
        let proxy = current::proxy();
        proxy.take_token(); // for one of `spawn_blocking`, which nobody takes away
        *self.runner.lock() = Some(proxy.clone());
        let kind = FrameKind::Caller(self.caller, self.frames);
        let frame = Frame::new(Owner::of_thread(&proxy), kind, None);
        let inherited = Binding::boundary(self.values);
        // Null before, and again after (`worker::pool`, invariant "clean").
        debug_assert!(current::values().is_null());
        current::set_values(&inherited);
        let result = {
            // SAFETY: both end with this block; the closure does not unwind from it.
            let _linked = unsafe { LinkedFrame::new(&frame) };
            if chain::look() {
                // Told while nobody ran the closure: its first `park` returns, too.
                proxy.unpark();
            }
            catch_unwind(AssertUnwindSafe(closure))
        };
        process::stop_forked_thread();
        if !ptr::eq(current::values(), &inherited) || inherited.users().are_there() {
            left_out_of_order();
        }
        current::set_values(ptr::null());
        drop(self.runner.lock().take());
        // From now on nobody unparks the thread because of this job; and the next one
        // must not find what is left of it.
        proxy.take_token();
        result
    }
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
        let result = job.run_as_caller(closure);
        // SAFETY: as above.
        unsafe { *job.result.get() = Some(result) };
        // Nothing else claims this waiter: no list, no deadline.
        if let Some(wakeup) = job.waiter.claim(0) {
            wakeup.fire();
        }
    }
}
