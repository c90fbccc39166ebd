//! A value that one side owes the other: the promise, and what both sides share.
//!
//! One word tells how far it is:
//!
//! | bit        | meaning                                              | set by             |
//! |------------|------------------------------------------------------|--------------------|
//! | `KEPT`     | the value was written                                | the promise, once  |
//! | `BROKEN`   | the promise was dropped without a value              | the promise, once  |
//! | `LISTENER` | somebody waits, or is to be called; set under the lock | the future       |
//! | `GONE`     | the future was dropped, or is another promise's now  | the future, once   |
//!
//! Whoever listens sets `LISTENER` under the lock, in the same read-modify-write
//! that finds nothing decided; so the promise either comes before that and is seen
//! by it, or sees the bit and comes to the lock. `KEPT` and `GONE` decide in the
//! same way who is left with a value that nobody waits for any more.
//!
//! Invariant 1 (decided once): exactly one of `KEPT` and `BROKEN` is set, once.
//! Invariant 2 (value): until `KEPT` is set only the promise touches the value.
//! Then it is the future's; or the callback's, which takes the future's place; or,
//! if `GONE` came first, still the promise's.
//! Invariant 3 (lock): values, wakers and callbacks are dropped, cloned and called
//! without the lock.

use super::future::Future;
use crate::error::impl_error;
use crate::primitive::{AtomicU32, Ordering};
use crate::sys::Lock;
use crate::wait::node::{Node, WaitList, Wakes};
use crate::wait::waiter::quietly;
use std::cell::UnsafeCell;
use std::fmt;
use std::io::ErrorKind;
use std::mem::ManuallyDrop;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr;
use std::sync::Arc;
use std::task::Waker;

const KEPT: u32 = 1 << 0;
const BROKEN: u32 = 1 << 1;
const LISTENER: u32 = 1 << 2;
const GONE: u32 = 1 << 3;

/// Makes a promise, and the future that it will be kept to.
///
/// One side keeps the [`Promise`] by [`set`](Promise::set), or breaks it by
/// dropping it; the other side waits for that with the [`Future`].
///
/// ```
/// sinew::run(|| {
///     let (promise, mut answer) = sinew::sync::promise();
///     sinew::spawn(move || promise.set(42));
///     assert_eq!(answer.wait(), Ok(42));
/// });
/// ```
pub fn promise<T>() -> (Promise<T>, Future<T>) {
    let shared = Arc::new(Shared::new());
    (Promise::of(shared.clone()), Future::of(shared))
}

/// The side that owes a value; see [`promise`].
///
/// Dropped without one it is broken: the other side is told [`Broken`].
#[must_use = "a promise that is dropped is broken"]
pub struct Promise<T> {
    shared: Arc<Shared<T>>,
}

// User code never unwinds through a half-done change of it.
impl<T> UnwindSafe for Promise<T> {}
impl<T> RefUnwindSafe for Promise<T> {}

impl<T> Promise<T> {
    pub(super) fn of(shared: Arc<Shared<T>>) -> Self {
        Self { shared }
    }

    /// Keeps the promise: hands `value` over, and wakes who waits for it.
    ///
    /// A callback that was [subscribed](Future::subscribe) is called now, by this
    /// fiber or thread; if it panics, so does this.
    ///
    /// ```
    /// let (promise, future) = sinew::sync::promise();
    /// drop(future);
    /// assert_eq!(promise.set(1), Err(1));
    /// ```
    ///
    /// # Errors
    ///
    /// Hands `value` back if the future is gone.
    pub fn set(self, value: T) -> Result<(), T> {
        let this = ManuallyDrop::new(self);
        // SAFETY: read once, and `this` is never dropped.
        let shared = unsafe { ptr::read(&this.shared) };
        // SAFETY: not decided: we are the promise (invariant 2).
        unsafe { *shared.value.get() = Some(value) };
        let before = shared.decide(KEPT);
        if before & GONE != 0 {
            // SAFETY: GONE came first (invariant 2).
            return match unsafe { (*shared.value.get()).take() } {
                Some(value) => Err(value),
                None => unreachable!("written just now"),
            };
        }
        if before & LISTENER != 0 {
            shared.tell();
        }
        Ok(())
    }
}

/// Breaks it.
impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        let before = self.shared.decide(BROKEN);
        if before & (GONE | LISTENER) == LISTENER {
            self.shared.tell();
        }
    }
}

impl<T> fmt::Debug for Promise<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Promise").finish_non_exhaustive()
    }
}

/// A promise was dropped without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the promise was dropped without a value")
    }
}

impl_error!(Broken { Self => Some(ErrorKind::BrokenPipe) });

/// What promise and future share.
pub(super) struct Shared<T> {
    /// See the module header.
    word: AtomicU32,
    /// See invariant 2.
    value: UnsafeCell<Option<T>>,
    pub(super) line: Lock<Line<T>>,
}

// SAFETY: shared, it moves a value from one thread to another, no more: the cell
// is used by one at a time (invariant 2), the rest is shareable itself.
unsafe impl<T: Send> Sync for Shared<T> {}

/// Who is to be told.
pub(super) struct Line<T> {
    /// Fibers, threads and selects: one at most, for waiting takes `&mut self`.
    pub(super) waiting: WaitList<Node>,
    pub(super) listener: Option<Listener<T>>,
}

/// Who is to be told, and does not wait in the line.
pub(super) enum Listener<T> {
    Task(Waker),
    Callback(Callback<T>),
}

pub(super) type Callback<T> = Box<dyn FnOnce(Result<T, Broken>) + Send>;

impl<T> Shared<T> {
    pub(super) fn new() -> Self {
        Self {
            word: AtomicU32::new(0),
            value: UnsafeCell::new(None),
            line: Lock::new(Line {
                waiting: WaitList::new(),
                listener: None,
            }),
        }
    }

    /// Whether the promise was kept or broken.
    pub(super) fn is_decided(&self) -> bool {
        // Acquire: the value, and what came before it, is seen; pairs with the
        // Release in `decide`.
        self.word.load(Ordering::Acquire) & (KEPT | BROKEN) != 0
    }

    /// Whether it was kept, after it was seen to be decided.
    pub(super) fn is_kept(&self) -> bool {
        // Relaxed: it is decided for good.
        self.word.load(Ordering::Relaxed) & KEPT != 0
    }

    /// Keeps or breaks the promise; answers the word that was.
    fn decide(&self, how: u32) -> u32 {
        // Release: pairs with the Acquire in `is_decided`, `listen` and `leave`.
        // Acquire: if the future is gone, it is done with all this.
        self.word.fetch_or(how, Ordering::AcqRel)
    }

    /// Sets LISTENER, under the lock of the line; false if the promise was kept or
    /// broken before.
    pub(super) fn listen(&self) -> bool {
        // Acquire: as in `is_decided`.
        self.word.fetch_or(LISTENER, Ordering::Acquire) & (KEPT | BROKEN) == 0
    }

    /// The future wants nothing any more; what it had is dropped.
    pub(super) fn leave(&self) {
        // Release: pairs with `decide`. Acquire: the value is seen, if it is ours.
        let before = self.word.fetch_or(GONE, Ordering::AcqRel);
        if before & LISTENER != 0 {
            let listener = self.line.lock().listener.take();
            drop(listener);
        }
        if before & KEPT != 0 {
            // SAFETY: KEPT came first, so it is ours (invariant 2).
            drop(unsafe { (*self.value.get()).take() });
        }
    }

    /// What the promise came to, if it was kept or broken; [`Broken`] also if the
    /// value was taken already.
    ///
    /// # Safety
    ///
    /// The caller is the future, or who has its place, and the only one.
    pub(super) unsafe fn take(&self) -> Option<Result<T, Broken>> {
        if !self.is_decided() {
            return None;
        }
        // SAFETY: decided, so the value is the caller's (invariant 2); if it was
        // broken there is none.
        let value = unsafe { (*self.value.get()).take() };
        Some(value.ok_or(Broken))
    }

    /// Wakes or calls who listens; the promise was kept or broken.
    #[cold]
    fn tell(&self) {
        let mut wakes = Wakes::new();
        let listener = {
            let mut line = self.line.lock();
            line.waiting.claim_all(&mut wakes);
            line.listener.take()
        };
        wakes.fire();
        match listener {
            None => {}
            Some(Listener::Task(waker)) => quietly(|| waker.wake()),
            Some(Listener::Callback(callback)) => {
                // SAFETY: the callback has the future's place (invariant 2), and
                // it was taken out of the line once.
                let outcome = unsafe { self.take() };
                callback(outcome.unwrap_or(Err(Broken)));
            }
        }
    }
}
