//! The handle of a scope's child, and the panics that nobody has asked for.

use crate::__select::{JoinArm, Joinable, sealed};
use crate::error::JoinError;
use crate::fiber::Block;
use crate::sched::switch;
use crate::task::{Fiber, JoinHandle};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// How many children have panicked, less those whose panic was handed to a joiner.
pub(super) struct Unhandled(AtomicUsize);

impl Unhandled {
    pub(super) fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Whether there are some; asked when all children have ended.
    pub(super) fn any(&self) -> bool {
        // Relaxed: the end of the children orders it.
        self.0.load(Ordering::Relaxed) > 0
    }

    /// Makes a child of `f` whose panic is counted.
    pub(super) fn watch<F>(&self, f: F) -> Child<'_, F> {
        Child {
            f,
            note: Note {
                unhandled: self,
                spawner: switch::running(),
            },
        }
    }
}

/// A child's closure, and after it (fields are dropped in this order) what looks
/// whether it panicked: in its body, or when it was dropped without running.
pub(super) struct Child<'a, F> {
    f: F,
    note: Note<'a>,
}

struct Note<'a> {
    unhandled: &'a Unhandled,
    /// Who drops it, perhaps while unwinding, if there is no fiber to be had for the
    /// child. Only compared.
    spawner: Option<NonNull<Block>>,
}

// SAFETY: the pointer is only compared.
unsafe impl Send for Note<'_> {}

impl Drop for Note<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() && switch::running() != self.spawner {
            // Relaxed: as in `any`.
            self.unhandled.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<F: FnOnce() -> T, T> Child<'_, F> {
    pub(super) fn run(self) -> T {
        let Self { f, note } = self;
        let _note = note;
        f()
    }
}

/// Owns the right to the result of a child of a [`scope`](crate::scope()).
///
/// Dropped, it changes nothing: the scope waits for the child anyway. Otherwise as
/// [`JoinHandle`].
pub struct ScopedJoinHandle<'scope, T> {
    inner: JoinHandle<T>,
    unhandled: &'scope Unhandled,
}

impl<'scope, T> ScopedJoinHandle<'scope, T> {
    pub(super) fn new(inner: JoinHandle<T>, unhandled: &'scope Unhandled) -> Self {
        Self { inner, unhandled }
    }

    /// A panic that was handed out is no concern of the scope's any more.
    fn handed_out(unhandled: &Unhandled, outcome: Result<T, JoinError>) -> Result<T, JoinError> {
        if outcome.as_ref().is_err_and(JoinError::is_panic) {
            // Relaxed: as in `Unhandled::any`; the child counted it before it ended.
            unhandled.0.fetch_sub(1, Ordering::Relaxed);
        }
        outcome
    }

    /// As [`JoinHandle::join`].
    ///
    /// # Errors
    ///
    /// [`JoinError`] if the child panicked, or was cancelled before it ran.
    ///
    /// ```
    /// sinew::scope(|s| {
    ///     let child = s.spawn(|| panic!("told to its joiner, not to the scope"));
    ///     assert!(child.join().unwrap_err().is_panic());
    /// });
    /// ```
    #[track_caller]
    pub fn join(self) -> Result<T, JoinError> {
        Self::handed_out(self.unhandled, self.inner.join())
    }

    /// As [`JoinHandle::try_join`].
    ///
    /// # Errors
    ///
    /// The handle itself while the child has not ended.
    pub fn try_join(self) -> Result<Result<T, JoinError>, Self> {
        let unhandled = self.unhandled;
        match self.inner.try_join() {
            Ok(outcome) => Ok(Self::handed_out(unhandled, outcome)),
            Err(inner) => Err(Self { inner, unhandled }),
        }
    }

    /// As [`JoinHandle::join_timeout`].
    ///
    /// # Errors
    ///
    /// The handle itself if the time was over first.
    #[track_caller]
    pub fn join_timeout(self, timeout: Duration) -> Result<Result<T, JoinError>, Self> {
        let unhandled = self.unhandled;
        match self.inner.join_timeout(timeout) {
            Ok(outcome) => Ok(Self::handed_out(unhandled, outcome)),
            Err(inner) => Err(Self { inner, unhandled }),
        }
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

/// Resolves to what [`ScopedJoinHandle::join`] returns; works under any executor.
///
/// # Panics
///
/// If polled again after it has resolved.
impl<T> Future for ScopedJoinHandle<'_, T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let unhandled = self.unhandled;
        let outcome = Pin::new(&mut self.inner).poll(context);
        outcome.map(|outcome| Self::handed_out(unhandled, outcome))
    }
}

impl<T> sealed::Sealed for ScopedJoinHandle<'_, T> {}

impl<T> Joinable for ScopedJoinHandle<'_, T> {
    type Output = T;

    fn arm(&self) -> JoinArm<'_> {
        JoinArm::new(self.inner.block())
    }

    #[track_caller]
    fn joined(&mut self) -> Result<T, JoinError> {
        Self::handed_out(self.unhandled, self.inner.take_ended())
    }

    fn cancel(&self) {
        self.inner.cancel();
    }
}

impl<T> fmt::Debug for ScopedJoinHandle<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopedJoinHandle")
            .field("fiber", &self.fiber())
            .finish()
    }
}
