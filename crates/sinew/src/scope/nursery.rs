//! The scope that stops at the first failure.

use super::core::ScopeCore;
use super::failure::Failure;
use super::judged::{Judge, JudgedChild};
use crate::cancel::CancelToken;
use crate::error::Cancelled;
use crate::fiber::CancelReason;
use crate::sys::Lock;
use crate::task::{Fiber, JoinHandle, Request, cannot_spawn};
use std::fmt;
use std::marker::PhantomData;
use std::panic::{Location, resume_unwind};

/// Runs `f`, which may spawn fallible fibers that borrow, and waits for all of them; the
/// first failure cancels the rest, and is what this returns.
///
/// A failure is an `Err` of a child or of `f` itself, a panic of a child, or a child that
/// was cancelled before it ran. From then on the other children, and `f`, are cancelled:
/// their points say so. All are awaited, as in every scope. This is Trio's nursery, but for
/// later errors, which are dropped, and `allSuccessfulOrThrow` of JEP 505.
///
/// # Errors
///
/// The first [`Failure`]; later ones, which are often no more than `Cancelled` itself, are
/// dropped.
///
/// # Panics
///
/// If `f` does, after the rest was cancelled and has ended.
///
/// ```
/// use std::time::Duration;
/// use sinew::scope::{Failure, nursery};
///
/// let parts = ["a", "b", "!"];
/// let outcome = nursery(|n| {
///     for part in &parts {
///         n.spawn(move || if *part == "!" { Err("bad part") } else { Ok(part.len()) });
///     }
///     n.spawn(|| {
///         // Would take an hour, but is cancelled with the rest.
///         sinew::sleep(Duration::from_secs(3600)).map_err(|_| "cancelled")
///     });
///     Ok("all done")
/// });
/// assert!(matches!(outcome, Err(Failure::Error("bad part"))));
/// ```
#[track_caller]
pub fn nursery<'env, F, T, E>(f: F) -> Result<T, Failure<E>>
where
    F: for<'scope> FnOnce(&'scope Nursery<'scope, 'env, E>) -> Result<T, E>,
    E: Send,
{
    let nursery = Nursery {
        core: ScopeCore::new(),
        first: Lock::new(None),
        scope: PhantomData,
        env: PhantomData,
    };
    let body = || match f(&nursery) {
        Ok(value) => Some(value),
        Err(error) => {
            nursery.fail(Failure::Error(error));
            None
        }
    };
    // Also if it panics: there is nobody left to whom a result would matter.
    let body = || {
        let cancel = CancelUnlessReturned(&nursery.core);
        let value = body();
        std::mem::forget(cancel);
        value
    };
    let outcome = nursery.core.run(body, Location::caller());
    let first = nursery.first.lock().take();
    match (outcome, first) {
        (Err(panic), _) => resume_unwind(panic),
        (Ok(_), Some(failure)) => Err(failure.handed_out()),
        (Ok(Some(value)), None) => Ok(value),
        (Ok(None), None) => unreachable!("the body has failed, and said so"),
    }
}

/// Cancels a scope whose body unwinds.
pub(super) struct CancelUnlessReturned<'a>(pub(super) &'a ScopeCore);

impl Drop for CancelUnlessReturned<'_> {
    fn drop(&mut self) {
        self.0.cancel(&CancelReason::Failed);
    }
}

/// What the closure of [`nursery`] spawns with.
///
/// As in every scope children may borrow what lives longer than the call, and nothing
/// else:
///
/// ```compile_fail,E0597
/// let _: Result<(), sinew::scope::Failure<()>> = sinew::scope::nursery(|n| {
///     let inside = 1;
///     n.spawn(|| Ok(assert_eq!(inside, 1)));
///     Ok(())
/// });
/// ```
pub struct Nursery<'scope, 'env: 'scope, E> {
    core: ScopeCore,
    /// The first failure. Errors are dropped without the lock.
    first: Lock<Option<Failure<E>>>,
    /// Invariant, as in [`Scope`](super::Scope).
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<E> Nursery<'_, '_, E> {
    fn fail(&self, failure: Failure<E>) {
        let mut failure = Some(failure);
        {
            let mut first = self.first.lock();
            if first.is_none() {
                *first = failure.take();
            }
        }
        drop(failure);
        self.core.cancel(&CancelReason::Failed);
    }
}

impl<T, E> Judge<T, E> for Nursery<'_, '_, E> {
    type Kept = T;

    fn succeeded(&self, value: T) -> Option<T> {
        Some(value)
    }

    fn failed(&self, failure: Failure<E>) {
        self.fail(failure);
    }
}

impl<'scope, E: Send> Nursery<'scope, '_, E> {
    /// Starts a child that runs `f`, which may borrow; its failure is the nursery's.
    ///
    /// # Panics
    ///
    /// As [`spawn`](crate::spawn).
    #[track_caller]
    pub fn spawn<F, T>(&'scope self, f: F) -> NurseryHandle<'scope, T>
    where
        F: FnOnce() -> Result<T, E> + Send + 'scope,
        T: Send + 'scope,
        E: 'scope,
    {
        let child = JudgedChild::<F, T, E, Self>::new(self, f);
        let request = Request::new(Location::caller());
        // SAFETY: `Send`; valid for `'scope`, which ends after `run`. The handle cannot
        // leave `'scope` either.
        match unsafe { self.core.spawn(request, move || child.run()) } {
            Ok(inner) => NurseryHandle {
                inner,
                scope: PhantomData,
            },
            Err(error) => cannot_spawn(&error),
        }
    }

    /// Cancels all children, those to come, and what runs in the closure.
    ///
    /// A child that has not begun by then counts as failed ([`Failure::Cancelled`]). So
    /// whether the nursery answers `Ok` may depend on who ran first; ask
    /// [`is_cancelled`](Self::is_cancelled) instead.
    pub fn cancel(&self) {
        self.core.cancel(&CancelReason::Requested);
    }

    /// As [`cancel`](Self::cancel), and says why.
    pub fn cancel_with(&self, reason: impl Into<CancelReason>) {
        self.core.cancel(&reason.into());
    }

    /// Whether it was cancelled: by a failure, by somebody, or with what is around it.
    pub fn is_cancelled(&self) -> bool {
        self.core.is_cancelled()
    }

    /// The token that stands for this nursery: cancelled with it, and cancels it.
    pub fn token(&self) -> CancelToken {
        self.core.token()
    }
}

impl<E> fmt::Debug for Nursery<'_, '_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nursery")
            .field("is_cancelled", &self.core.is_cancelled())
            .finish_non_exhaustive()
    }
}

/// Owns the right to the value of a child of a [`nursery`].
///
/// ```
/// use sinew::Cancelled;
/// use sinew::scope::{Failure, nursery};
///
/// let sum = nursery(|n| {
///     let (a, b) = (n.spawn(|| Ok(1)), n.spawn(|| Ok(2)));
///     Ok::<_, Cancelled>(a.join()? + b.join()?)
/// });
/// assert!(matches!(sum, Ok(3)));
/// ```
pub struct NurseryHandle<'scope, T> {
    inner: JoinHandle<Option<T>>,
    scope: PhantomData<&'scope ()>,
}

impl<T> NurseryHandle<'_, T> {
    /// Waits for the child's end, and returns its value; otherwise as
    /// [`JoinHandle::join`].
    ///
    /// # Errors
    ///
    /// [`Cancelled`] if the child failed: how, the nursery tells, which is cancelled by
    /// that. For `join()?` the error of the closure is one that is made from `Cancelled`.
    #[track_caller]
    pub fn join(self) -> Result<T, Cancelled> {
        self.inner.join().ok().flatten().ok_or(Cancelled)
    }

    /// Whether the child has ended; then `join` returns at once.
    pub fn is_finished(&self) -> bool {
        self.inner.is_finished()
    }

    /// Asks the child to stop; see [`Fiber::cancel`].
    pub fn cancel(&self) {
        self.inner.cancel();
    }

    /// A handle to the fiber itself.
    pub fn fiber(&self) -> Fiber {
        self.inner.fiber()
    }
}

impl<T> fmt::Debug for NurseryHandle<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NurseryHandle")
            .field("fiber", &self.fiber())
            .finish()
    }
}
