//! The scope that stops at the first success.

use super::core::ScopeCore;
use super::failure::Failure;
use super::judged::{Judge, JudgedChild};
use super::nursery::CancelUnlessReturned;
use crate::cancel::CancelToken;
use crate::fiber::CancelReason;
use crate::sys::Lock;
use crate::task::{Fiber, Request, cannot_spawn};
use std::error::Error;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::panic::{Location, resume_unwind};

/// Runs `f`, which spawns fallible fibers that may borrow; the first that succeeds wins,
/// the rest are cancelled, and awaited.
///
/// This is `anySuccessfulResultOrThrow` of JEP 505. To race fibers that exist already,
/// without waiting for the losers, there is [`race!`](crate::race!).
///
/// # Errors
///
/// [`NoWinner`] if none has succeeded, with the failure of each.
///
/// # Panics
///
/// If `f` does, after the children were cancelled and have ended.
///
/// ```
/// use std::time::Duration;
/// use sinew::scope::race;
///
/// let mirrors = [3600, 0, 3600];
/// let first = race(|r| {
///     for seconds in &mirrors {
///         r.spawn(move || {
///             sinew::sleep(Duration::from_secs(*seconds))?;
///             Ok::<_, sinew::Cancelled>(*seconds)
///         });
///     }
/// });
/// assert_eq!(first.unwrap(), 0);
/// ```
#[track_caller]
pub fn race<'env, F, T, E>(f: F) -> Result<T, NoWinner<E>>
where
    F: for<'scope> FnOnce(&'scope Race<'scope, 'env, T, E>),
    T: Send,
    E: Send,
{
    let race = Race {
        core: ScopeCore::new(),
        ends: Lock::new(Ends {
            winner: None,
            failures: Vec::new(),
        }),
        scope: PhantomData,
        env: PhantomData,
    };
    let body = || {
        let cancel = CancelUnlessReturned(&race.core);
        f(&race);
        std::mem::forget(cancel);
    };
    let outcome = race.core.run(body, Location::caller());
    let (winner, failures) = {
        let mut ends = race.ends.lock();
        (ends.winner.take(), std::mem::take(&mut ends.failures))
    };
    match (outcome, winner) {
        (Err(panic), _) => resume_unwind(panic),
        (Ok(()), Some(value)) => Ok(value),
        (Ok(()), None) => {
            let failures = failures.into_iter().map(Failure::handed_out).collect();
            Err(NoWinner { failures })
        }
    }
}

/// How the children have ended so far. What is not kept is dropped without the lock.
struct Ends<T, E> {
    winner: Option<T>,
    failures: Vec<Failure<E>>,
}

/// What the closure of [`race`] spawns with.
pub struct Race<'scope, 'env: 'scope, T, E> {
    core: ScopeCore,
    ends: Lock<Ends<T, E>>,
    /// Invariant, as in [`Scope`](super::Scope).
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<T, E> Judge<T, E> for Race<'_, '_, T, E> {
    type Kept = ();

    fn succeeded(&self, value: T) -> Option<()> {
        let mut late = Some(value);
        {
            let mut ends = self.ends.lock();
            if ends.winner.is_none() {
                ends.winner = late.take();
            }
        }
        drop(late);
        self.core.cancel(&CancelReason::Lost);
        Some(())
    }

    fn failed(&self, failure: Failure<E>) {
        self.ends.lock().failures.push(failure);
    }
}

impl<'scope, T: Send, E: Send> Race<'scope, '_, T, E> {
    /// Starts a child that runs `f`, which may borrow; answers a handle to cancel or
    /// unpark it by.
    ///
    /// Once there is a winner a new child is cancelled before it runs.
    ///
    /// # Panics
    ///
    /// As [`spawn`](crate::spawn).
    #[track_caller]
    pub fn spawn<F>(&'scope self, f: F) -> Fiber
    where
        F: FnOnce() -> Result<T, E> + Send + 'scope,
        T: 'scope,
        E: 'scope,
    {
        let child = JudgedChild::<F, T, E, Self>::new(self, f);
        let request = Request::new(Location::caller());
        // SAFETY: `Send`; valid for `'scope`, which ends after `run`. The handle is
        // dropped here, and the value is `()`.
        match unsafe { self.core.spawn(request, move || child.run()) } {
            Ok(handle) => handle.fiber(),
            Err(error) => cannot_spawn(&error),
        }
    }

    /// Whether there is a winner.
    pub fn is_won(&self) -> bool {
        self.ends.lock().winner.is_some()
    }

    /// Cancels all children, those to come, and what runs in the closure.
    pub fn cancel(&self) {
        self.core.cancel(&CancelReason::Requested);
    }

    /// Whether it was cancelled: because there is a winner, by somebody, or with what is
    /// around it.
    pub fn is_cancelled(&self) -> bool {
        self.core.is_cancelled()
    }

    /// The token that stands for this race: cancelled with it, and cancels it.
    pub fn token(&self) -> CancelToken {
        self.core.token()
    }
}

impl<T, E> fmt::Debug for Race<'_, '_, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Race")
            .field("is_cancelled", &self.core.is_cancelled())
            .finish_non_exhaustive()
    }
}

/// No child of a [`race`] has succeeded.
///
/// ```
/// use sinew::scope::race;
///
/// let lost = race(|r| {
///     r.spawn(|| Err::<(), _>("down"));
/// });
/// let failures = lost.unwrap_err().into_failures();
/// assert_eq!(failures.len(), 1);
/// assert_eq!(failures[0].to_string(), "down");
/// ```
pub struct NoWinner<E> {
    failures: Vec<Failure<E>>,
}

impl<E> NoWinner<E> {
    /// How each child has failed, in the order in which they did; empty if there were
    /// none.
    pub fn failures(&self) -> &[Failure<E>] {
        &self.failures
    }

    /// The same, to keep.
    pub fn into_failures(self) -> Vec<Failure<E>> {
        self.failures
    }
}

const NOBODY: &str = "nobody took part in the race";

impl<E: fmt::Debug> fmt::Debug for NoWinner<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NoWinner")
            .field("failures", &self.failures)
            .finish()
    }
}

impl<E: fmt::Display> fmt::Display for NoWinner<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.failures.as_slice() {
            [] => f.write_str(NOBODY),
            [first, rest @ ..] => {
                write!(
                    f,
                    "none of {} children succeeded; first: {first}",
                    rest.len() + 1
                )
            }
        }
    }
}

impl<E: Error + 'static> Error for NoWinner<E> {
    /// The first failure.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let first = self.failures.first();
        first.map(|failure| failure as &(dyn Error + 'static))
    }
}

/// The error that the first failure becomes, of kind `Other` if nobody took part.
///
/// ```
/// use std::io;
/// use sinew::scope::race;
///
/// fn first_mirror() -> io::Result<u32> {
///     let won = race(|r| {
///         r.spawn(|| Err(io::Error::from(io::ErrorKind::NotFound)));
///     })?;
///     Ok(won)
/// }
/// assert_eq!(first_mirror().unwrap_err().kind(), io::ErrorKind::NotFound);
/// ```
impl<E> From<NoWinner<E>> for io::Error
where
    io::Error: From<E>,
{
    fn from(nobody: NoWinner<E>) -> Self {
        let first = nobody.failures.into_iter().next();
        first.map_or_else(|| Self::other(NOBODY), |failure| failure.into())
    }
}
