//! The scope that keeps all results, in order.

use super::core::ScopeCore;
use crate::cancel::CancelToken;
use crate::error::JoinError;
use crate::fiber::CancelReason;
use crate::sys::Lock;
use crate::task::{Fiber, JoinHandle, Request, cannot_spawn};
use std::fmt;
use std::marker::PhantomData;
use std::panic::{Location, resume_unwind};

/// Runs `f`, which spawns fibers that may borrow, waits for all of them, and returns how
/// each has ended, in the order in which they were spawned.
///
/// No failure has an effect on the others: each is one of the results. Children that
/// return a `Result` can be gathered by `collect::<Result<Vec<_>, _>>()` afterwards; to
/// stop at the first failure there is [`nursery`](super::nursery).
///
/// # Panics
///
/// If `f` does, after all children have ended.
///
/// ```
/// let words = ["one", "three", "eleven"];
/// let lengths = sinew::scope::collect(|c| {
///     for word in &words {
///         c.spawn(|| word.len());
///     }
/// });
/// let lengths: Vec<usize> = lengths.into_iter().map(Result::unwrap).collect();
/// assert_eq!(lengths, [3, 5, 6]);
/// ```
#[must_use = "for children without results there is `scope`"]
#[track_caller]
pub fn collect<'env, F, T>(f: F) -> Vec<Result<T, JoinError>>
where
    F: for<'scope> FnOnce(&'scope Collect<'scope, 'env, T>),
    T: Send,
{
    let collect = Collect {
        core: ScopeCore::new(),
        handles: Lock::new(Vec::new()),
        scope: PhantomData,
        env: PhantomData,
    };
    let outcome = collect.core.run(|| f(&collect), Location::caller());
    let handles = std::mem::take(&mut *collect.handles.lock());
    match outcome {
        Err(panic) => {
            drop(handles);
            resume_unwind(panic)
        }
        Ok(()) => handles
            .into_iter()
            .flatten()
            .map(JoinHandle::join)
            .collect(),
    }
}

/// What the closure of [`collect`] spawns with.
pub struct Collect<'scope, 'env: 'scope, T> {
    core: ScopeCore,
    /// In the order in which they were spawned; none for one that is about to be, or
    /// could not. Taken when all have ended.
    handles: Lock<Vec<Option<JoinHandle<T>>>>,
    /// Invariant, as in [`Scope`](super::Scope).
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<'scope, T: Send> Collect<'scope, '_, T> {
    /// Starts a child that runs `f`, which may borrow; answers a handle to cancel or
    /// unpark it by.
    ///
    /// # Panics
    ///
    /// As [`spawn`](crate::spawn).
    #[track_caller]
    pub fn spawn<F>(&'scope self, f: F) -> Fiber
    where
        F: FnOnce() -> T + Send + 'scope,
        T: 'scope,
    {
        let request = Request::new(Location::caller());
        // First its place: it may be quick, and start others.
        let place = {
            let mut handles = self.handles.lock();
            handles.push(None);
            handles.len() - 1
        };
        // SAFETY: `Send`; valid for `'scope`, which ends after `run`. The handles are
        // taken out by `collect` before it returns.
        match unsafe { self.core.spawn(request, f) } {
            Ok(handle) => {
                let fiber = handle.fiber();
                self.handles.lock()[place] = Some(handle);
                fiber
            }
            Err(error) => cannot_spawn(&error),
        }
    }

    /// Cancels all children, those to come, and what runs in the closure.
    pub fn cancel(&self) {
        self.core.cancel(&CancelReason::Requested);
    }

    /// Whether it was cancelled, or something around it.
    pub fn is_cancelled(&self) -> bool {
        self.core.is_cancelled()
    }

    /// The token that stands for this scope: cancelled with it, and cancels it.
    pub fn token(&self) -> CancelToken {
        self.core.token()
    }
}

impl<T> fmt::Debug for Collect<'_, '_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collect")
            .field("is_cancelled", &self.core.is_cancelled())
            .finish_non_exhaustive()
    }
}
