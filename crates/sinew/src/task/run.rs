//! Running a closure in a fiber and waiting for it, with borrows.

use super::spawn::{Request, cannot_spawn, spawn_on};
use crate::error::{Failure, JoinError};
use crate::runtime::Runtime;
use crate::sched::shared::Shared;
use crate::sched::switch;
use crate::sys::process::AbortOnUnwind;
use std::panic::{Location, resume_unwind};
use std::sync::Arc;

/// Starts a runtime, runs `f` in a fiber of it, waits for every fiber that is
/// no daemon, and stops the runtime.
///
/// A panic of `f` goes on in the caller, after the wait. What `f` returns must be
/// `Send`, as a `Box<dyn Error + Send + Sync>` is and a `Box<dyn Error>` is not.
///
/// # Panics
///
/// If `f` does, if the runtime cannot be started, or inside of
/// [`no_suspend`](crate::no_suspend).
///
/// ```
/// let greeting = String::from("hello");
/// let length = sinew::run(|| greeting.len());
/// assert_eq!(length, 5);
/// ```
#[track_caller]
pub fn run<F, T>(f: F) -> T
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    // Before there is a runtime, whose end waits as well.
    switch::about_to_wait();
    match Runtime::new() {
        Ok(runtime) => runtime.run(f),
        Err(error) => panic!("cannot start a runtime: {error}"),
    }
}

impl Runtime {
    /// Runs `f` in a fiber of this runtime and returns its value; `f` may
    /// borrow.
    ///
    /// Unlike the free [`run`] it waits for `f` only: other fibers go on, until
    /// the runtime is dropped. Called from a fiber, of this or another runtime,
    /// only that fiber waits.
    /// A panic of `f` goes on in the caller.
    ///
    /// # Panics
    ///
    /// If `f` does, if no stack or memory is to be had, or inside of
    /// [`no_suspend`](crate::no_suspend).
    ///
    /// ```
    /// let runtime = sinew::Runtime::builder().workers(1).build()?;
    /// let mut seen = Vec::new();
    /// runtime.run(|| seen.push(1));
    /// assert_eq!(seen, [1]);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn run<F, T>(&self, f: F) -> T
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        run_borrowed(self.shared(), f, Location::caller())
    }
}

#[track_caller]
fn run_borrowed<F, T>(shared: &Arc<Shared>, f: F, at: &'static Location<'static>) -> T
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    switch::about_to_wait();
    let request = Request {
        always_runs: true,
        ..Request::new(at)
    };
    // SAFETY: `Send`; and what `f` and its value borrow outlives this call,
    // which does not return before the fiber has completed and the outcome was
    // taken. `join` cannot be left in another way: it neither unwinds once the
    // fiber exists nor is it a cancellation point.
    let handle = match unsafe { spawn_on(shared, request, f) } {
        Ok(handle) => handle,
        Err(error) => cannot_spawn(&error),
    };
    let _waits = shared.awaited.begin(&shared.monitor);
    // `join` must not unwind while the fiber borrows from this stack.
    let abort = AbortOnUnwind("a wait for a borrowing fiber was cut short");
    let outcome = handle.join();
    std::mem::forget(abort);
    match outcome {
        Ok(value) => value,
        Err(JoinError(Failure::Panic(payload))) => resume_unwind(payload.into_inner()),
        Err(error) => panic!("the closure did not run: {error}"),
    }
}
