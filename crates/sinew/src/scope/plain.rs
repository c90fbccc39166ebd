//! The scope that waits for all.

use super::core::ScopeCore;
use super::handle::{ScopedJoinHandle, Unhandled};
use crate::cancel::CancelToken;
use crate::fiber::CancelReason;
use crate::task::{Builder, Request, cannot_spawn};
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::panic::{Location, resume_unwind};

/// Runs `f`, which may spawn fibers that borrow, and waits for all of them.
///
/// The rules are those of [`std::thread::scope`]: children may borrow whatever lives
/// longer than this call, mutably too, and run in parallel; those that were not joined
/// are awaited before this returns, also if `f` panics.
///
/// Cancelling this fiber, or a [`timeout`](crate::timeout) around, or the
/// [scope](Scope::cancel) itself, cancels all children, and the scopes in them, at once.
/// Waiting for them is no cancellation point.
///
/// [Other kinds of scopes](mod@crate::scope#which-one-do-i-want) stop at the first failure,
/// at the first success, or start children again.
///
/// # Panics
///
/// If `f` does, with its panic; else if a child did and nobody has joined it.
///
/// ```
/// let mut numbers = vec![1, 2, 3];
/// let mut sum = 0;
///
/// sinew::run(|| {
///     sinew::scope(|s| {
///         s.spawn(|| sum = numbers.iter().sum()); // borrows both
///         s.spawn(|| assert_eq!(numbers.len(), 3));
///     });
///     numbers.push(sum); // all children have ended
/// });
/// assert_eq!(numbers, [1, 2, 3, 6]);
/// ```
#[track_caller]
pub fn scope<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    let scope = Scope {
        core: ScopeCore::new(),
        unhandled: Unhandled::new(),
        scope: PhantomData,
        env: PhantomData,
    };
    match scope.core.run(|| f(&scope), Location::caller()) {
        Err(panic) => resume_unwind(panic),
        Ok(_) if scope.unhandled.any() => panic!("a scoped fiber panicked"),
        Ok(value) => value,
    }
}

/// What the closure of [`scope`] spawns with.
///
/// `'env` is the lifetime of what children may borrow, `'scope` that of the children;
/// see [`std::thread::Scope`], which it is the counterpart of.
///
/// A child cannot borrow what is made inside of the closure:
///
/// ```compile_fail,E0597
/// sinew::scope(|s| {
///     let inside = 1;
///     s.spawn(|| assert_eq!(inside, 1));
/// });
/// ```
///
/// nor can its handle leave:
///
/// ```compile_fail
/// let handle = sinew::scope(|s| s.spawn(|| 1));
/// ```
///
/// nor can it take what must stay on its thread:
///
/// ```compile_fail,E0277
/// let local = std::rc::Rc::new(1);
/// sinew::scope(|s| {
///     s.spawn(|| assert_eq!(*local, 1));
/// });
/// ```
pub struct Scope<'scope, 'env: 'scope> {
    core: ScopeCore,
    unhandled: Unhandled,
    /// Invariant, as in std: else a child could be given a shorter life than it has.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a child that runs `f`, which may borrow.
    ///
    /// Children may spawn others of the same scope: they may capture `&Scope` itself.
    ///
    /// # Panics
    ///
    /// As [`spawn`](crate::spawn).
    ///
    /// ```
    /// let text = String::from("borrowed");
    /// let length = sinew::scope(|s| s.spawn(|| text.len()).join().unwrap());
    /// assert_eq!(length, 8);
    /// ```
    #[track_caller]
    pub fn spawn<F, T>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        match self.spawn_as(Request::new(Location::caller()), f) {
            Ok(handle) => handle,
            Err(error) => cannot_spawn(&error),
        }
    }

    fn spawn_as<F, T>(
        &'scope self,
        request: Request,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let child = self.unhandled.watch(f);
        // SAFETY: `Send`; valid for `'scope`, which ends after `run`. The handle cannot
        // leave `'scope` either.
        let handle = unsafe { self.core.spawn(request, move || child.run()) }?;
        Ok(ScopedJoinHandle::new(handle, &self.unhandled))
    }

    /// Cancels all children, those to come, and what runs in the closure of the scope.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// sinew::scope(|s| {
    ///     s.spawn(|| sinew::sleep(Duration::from_secs(3600)));
    ///     s.cancel();
    ///     assert_eq!(sinew::check_cancelled(), Err(sinew::Cancelled));
    /// });
    /// assert_eq!(sinew::check_cancelled(), Ok(()));
    /// ```
    pub fn cancel(&self) {
        self.core.cancel(&CancelReason::Requested);
    }

    /// As [`cancel`](Self::cancel), and says why.
    pub fn cancel_with(&self, reason: impl Into<CancelReason>) {
        self.core.cancel(&reason.into());
    }

    /// Whether it was cancelled, or something around it.
    pub fn is_cancelled(&self) -> bool {
        self.core.is_cancelled()
    }

    /// Cancels the children that are left when the closure of the scope has ended, by
    /// `return`, `?` or a panic, instead of waiting for them to finish.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let found = sinew::scope(|s| {
    ///     s.cancel_on_exit();
    ///     s.spawn(|| sinew::sleep(Duration::from_secs(3600))); // a heartbeat, say
    ///     7
    /// });
    /// assert_eq!(found, 7);
    /// ```
    pub fn cancel_on_exit(&self) {
        self.core.cancel_on_exit();
    }

    /// The token that stands for this scope: cancelled with it, and cancels it.
    ///
    /// ```
    /// let token = sinew::scope(|s| {
    ///     let token = s.token();
    ///     token.cancel();
    ///     assert!(s.is_cancelled());
    ///     token
    /// });
    /// token.cancel(); // the scope has ended: nothing happens
    /// ```
    pub fn token(&self) -> CancelToken {
        self.core.token()
    }
}

impl Builder {
    /// Starts the fiber as a child of `scope`; as std's `Builder::spawn_scoped`.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn).
    ///
    /// ```
    /// let names = [1, 2].map(|n| format!("number {n}"));
    /// sinew::scope(|s| {
    ///     for name in &names {
    ///         let named = sinew::Builder::new().name(name);
    ///         let child = named.spawn_scoped(s, || sinew::current().name() == Some(name));
    ///         assert!(child.unwrap().join().unwrap());
    ///     }
    /// });
    /// ```
    #[track_caller]
    pub fn spawn_scoped<'scope, F, T>(
        self,
        scope: &'scope Scope<'scope, '_>,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        scope.spawn_as(self.request(Location::caller())?, f)
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("is_cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}
