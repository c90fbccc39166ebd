//! Channels that keep the newest value.
//!
//! For state that changes and of which only the present matters: a configuration, a
//! progress, "ready". There is always a value; receivers look at it when they like,
//! and can wait for it to change. Who looks rarely sees only the last of several
//! changes.
//!
//! If each change counts take [`broadcast`](super::broadcast), or
//! [`unbounded`](super::unbounded()) for one reader; for one value that comes once
//! [`oneshot`](super::oneshot), or a [`OnceLock`](crate::sync::OnceLock); for a mere
//! "it happened" an [`Event`](crate::sync::Event); for what many change and nobody
//! waits for an [`RwLock`].
//!
//! ```
//! use sinew::channel::{RecvError, watch};
//!
//! sinew::run(|| {
//!     let (limit, mut seen) = watch::channel(10);
//!     let worker = sinew::spawn(move || {
//!         let mut limits = vec![*seen.borrow_and_update()];
//!         while let Ok(()) = seen.changed() {
//!             limits.push(*seen.borrow_and_update());
//!         }
//!         (limits, seen.changed())
//!     });
//!     limit.send(20).unwrap();
//!     limit.send(30).unwrap();
//!     drop(limit); // ends the loop, after the last change was seen
//!     let (limits, end) = worker.join().unwrap();
//!     assert_eq!(limits.last(), Some(&30)); // whether or not it saw 10 and 20
//!     assert_eq!(end, Err(RecvError::Disconnected));
//! });
//! ```
//!
//! | what happens                  | what follows                                       |
//! |-------------------------------|----------------------------------------------------|
//! | the last sender is dropped    | waits end with `Disconnected`, once the last change was seen; the value stays |
//! | the last receiver is dropped  | `send` hands its value back, [`send_replace`](Sender::send_replace) goes on, [`closed`](Sender::closed) returns; [`subscribe`](Sender::subscribe) makes a new one |
//! | a receiver is slow            | it misses changes, never the last                  |
//! | a wait times out, or its fiber is cancelled | the change stays unseen, for the next wait |
//! | a [`Ref`] is kept             | senders wait for it: drop it soon                  |
//!
//! No arm of `select!` waits for a change: the [guide](crate::guide#select-and-race)
//! says what to do instead.
//!
//! # How it works
//!
//! The value is in an `RwLock` that parks fibers, so that user code may look at it,
//! change it in place, and even wait meanwhile. Its changes are counted
//! (`channel::news`); each receiver has the count of those that it has seen.
//!
//! Invariant 1 (version): changes are counted only by who has the value's write
//! lock. So who has its read lock and reads the count knows which version it is.
//!
//! Invariant 2 (locks): no other lock is held while user code runs. Those who wait
//! are told, and a value that was replaced is dropped, when the write lock was given
//! back.

mod closing;

use super::chan::At;
use super::error::{RecvError, RecvTimeoutError, SendError};
use super::news::{Look, News};
use crate::primitive::{AtomicUsize, Ordering};
use crate::sync::{RwLock, RwLockReadGuard};
use crate::time::Instant;
use crate::wait::{Deadline, WaitOutcome, point};
use std::fmt;
use std::mem;
use std::ops::Deref;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

/// Makes a channel that keeps one value, at first `init`: the newest.
///
/// ```
/// let (tx, rx) = sinew::channel::watch::channel("starting");
/// tx.send("ready").unwrap();
/// assert_eq!(*rx.borrow(), "ready");
/// ```
pub fn channel<T>(init: T) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        value: RwLock::new(init),
        news: News::after(1), // the first value is one, so that it can be unseen
        ends: News::new(),
        receivers: AtomicUsize::new(1),
        senders: AtomicUsize::new(1),
    });
    let receiver = Receiver {
        shared: shared.clone(),
        seen: 1,
    };
    (Sender { shared }, receiver)
}

/// Changes the value; a clone changes the same one.
///
/// When the last is dropped there are no more changes.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// Looks at the value, and waits for it to change.
///
/// Waiting for a change is a cancellation point. A clone has seen what the original
/// has, and goes on for itself.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    /// How many changes it has seen, the first value among them.
    seen: u64,
}

/// The value, borrowed; changes wait until this is dropped.
///
/// Who has one and borrows again may wait for ever: for a sender that came in
/// between, and waits for the first.
#[must_use = "the value is borrowed to look at it"]
pub struct Ref<'a, T> {
    guard: RwLockReadGuard<'a, T>,
}

/// What both ends share.
struct Shared<T> {
    value: RwLock<T>,
    /// See invariant 1; closed by the last sender's end.
    news: News,
    /// Counts how often the last receiver was dropped (`closing`).
    ends: News,
    receivers: AtomicUsize,
    senders: AtomicUsize,
}

// User code that unwinds unlocks the value, as with any `RwLock`.
impl<T> UnwindSafe for Sender<T> {}
impl<T> RefUnwindSafe for Sender<T> {}
impl<T> UnwindSafe for Receiver<T> {}
impl<T> RefUnwindSafe for Receiver<T> {}

impl<T> Sender<T> {
    /// Replaces the value, and wakes those who wait for a change.
    ///
    /// Waits while anybody has the value borrowed. No cancellation point.
    ///
    /// # Errors
    ///
    /// [`SendError::Disconnected`] hands `value` back if there is no receiver: see
    /// [`send_replace`](Self::send_replace).
    ///
    /// ```
    /// let (tx, rx) = sinew::channel::watch::channel(1);
    /// tx.send(2).unwrap();
    /// assert_eq!(*rx.borrow(), 2);
    /// drop(rx);
    /// assert_eq!(tx.send(3).unwrap_err().into_inner(), 3);
    /// ```
    #[track_caller]
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        if self.is_closed() {
            return Err(SendError::Disconnected(value));
        }
        drop(self.send_replace(value));
        Ok(())
    }

    /// Replaces the value, whether there are receivers or not, and answers the one
    /// that was. Waits as [`send`](Self::send) does.
    ///
    /// ```
    /// let (tx, rx) = sinew::channel::watch::channel(1);
    /// drop(rx);
    /// assert_eq!(tx.send_replace(2), 1);
    /// assert_eq!(*tx.subscribe().borrow(), 2);
    /// ```
    #[track_caller]
    pub fn send_replace(&self, mut value: T) -> T {
        self.send_modify(|current| mem::swap(current, &mut value));
        value
    }

    /// Changes the value in place, and wakes those who wait for a change. Waits as
    /// [`send`](Self::send) does.
    ///
    /// If `modify` panics that does not count as a change. It must not use the
    /// channel: the value is locked.
    ///
    /// ```
    /// let (tx, rx) = sinew::channel::watch::channel(vec![1]);
    /// tx.send_modify(|list| list.push(2));
    /// assert_eq!(*rx.borrow(), [1, 2]);
    /// ```
    #[track_caller]
    pub fn send_modify(&self, modify: impl FnOnce(&mut T)) {
        self.send_if_modified(|value| {
            modify(value);
            true
        });
    }

    /// As [`send_modify`](Self::send_modify), but it counts as a change only if
    /// `modify` says so; answers what it said.
    ///
    /// ```
    /// let (tx, rx) = sinew::channel::watch::channel(1);
    /// assert!(!tx.send_if_modified(|value| *value > 1));
    /// assert_eq!(rx.has_changed(), Ok(false));
    /// ```
    #[track_caller]
    pub fn send_if_modified(&self, modify: impl FnOnce(&mut T) -> bool) -> bool {
        let mut value = self.shared.value.write();
        if !modify(&mut value) {
            return false;
        }
        let waited = self.shared.news.publish();
        drop(value);
        self.shared.news.tell(waited);
        true
    }

    /// Borrows the value; waits while it is being changed.
    #[track_caller]
    pub fn borrow(&self) -> Ref<'_, T> {
        self.shared.borrow()
    }

    /// A receiver that has seen the value as it is.
    ///
    /// ```
    /// let (tx, _) = sinew::channel::watch::channel(1);
    /// let rx = tx.subscribe();
    /// assert_eq!((*rx.borrow(), rx.has_changed()), (1, Ok(false)));
    /// ```
    pub fn subscribe(&self) -> Receiver<T> {
        Receiver::of(&self.shared, self.shared.news.count())
    }

    /// How many receivers there are.
    pub fn receiver_count(&self) -> usize {
        // Relaxed: a number that may be old when it is read.
        self.shared.receivers.load(Ordering::Relaxed)
    }

    /// Whether there is no receiver.
    pub fn is_closed(&self) -> bool {
        self.receiver_count() == 0
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        // Relaxed: ours is one of them meanwhile, so it does not become 0.
        self.shared.senders.fetch_add(1, Ordering::Relaxed);
        Self {
            shared: self.shared.clone(),
        }
    }
}

/// The last tells the receivers that there are no more changes.
impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        // Release and Acquire: the changes of all senders come before the close of
        // the last.
        if self.shared.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            let (_, waited) = self.shared.news.close();
            self.shared.news.tell(waited);
        }
    }
}

impl<T> Shared<T> {
    #[track_caller]
    fn borrow(&self) -> Ref<'_, T> {
        Ref {
            guard: self.value.read(),
        }
    }
}

impl<T> Receiver<T> {
    fn of(shared: &Arc<Shared<T>>, seen: u64) -> Self {
        // Relaxed: a number, no more. It is not what keeps the memory.
        shared.receivers.fetch_add(1, Ordering::Relaxed);
        Self {
            shared: shared.clone(),
            seen,
        }
    }

    /// Borrows the value; waits while it is being changed.
    ///
    /// A change that was not seen stays one: see
    /// [`borrow_and_update`](Self::borrow_and_update).
    #[track_caller]
    pub fn borrow(&self) -> Ref<'_, T> {
        self.shared.borrow()
    }

    /// Borrows the value, and counts it as seen.
    ///
    /// ```
    /// let (tx, mut rx) = sinew::channel::watch::channel(1);
    /// tx.send(2).unwrap();
    /// assert_eq!((*rx.borrow(), rx.has_changed()), (2, Ok(true)));
    /// assert_eq!(*rx.borrow_and_update(), 2);
    /// assert_eq!(rx.has_changed(), Ok(false));
    /// ```
    #[track_caller]
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        let value = self.shared.borrow();
        self.seen = self.shared.news.count(); // of this very value (invariant 1)
        value
    }

    /// Whether there is a change that it has not seen. It never yields.
    ///
    /// # Errors
    ///
    /// [`RecvError::Disconnected`] if it has seen all, and every sender is gone.
    pub fn has_changed(&self) -> Result<bool, RecvError> {
        self.shared.news.look(self.seen).is_news()
    }

    /// Waits until there is a change that it has not seen, and counts it as seen. A
    /// cancellation point.
    ///
    /// Only this fiber waits; its worker runs others. If it is cancelled a change
    /// that comes can still be waited for.
    ///
    /// # Errors
    ///
    /// [`RecvError`] if it has seen all and every sender is gone, or the fiber was
    /// cancelled.
    ///
    /// ```
    /// use sinew::channel::{RecvError, watch};
    ///
    /// sinew::run(|| {
    ///     let (tx, mut rx) = watch::channel(1);
    ///     sinew::spawn(move || tx.send(2));
    ///     assert_eq!(rx.changed(), Ok(()));
    ///     assert_eq!(*rx.borrow(), 2);
    ///     assert_eq!(rx.changed(), Err(RecvError::Disconnected));
    /// });
    /// ```
    #[track_caller]
    pub fn changed(&mut self) -> Result<(), RecvError> {
        self.changed_by(|| None, Location::caller())
            .map_err(RecvTimeoutError::without_time)
    }

    /// As [`changed`](Self::changed), but waits for `timeout` at most.
    ///
    /// # Errors
    ///
    /// [`RecvTimeoutError`] also if the time was over first.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sinew::channel::{RecvTimeoutError, watch};
    ///
    /// let (_tx, mut rx) = watch::channel(1);
    /// let unchanged = rx.changed_timeout(Duration::from_millis(1));
    /// assert_eq!(unchanged, Err(RecvTimeoutError::Timeout));
    /// ```
    #[track_caller]
    pub fn changed_timeout(&mut self, timeout: Duration) -> Result<(), RecvTimeoutError> {
        self.changed_by(|| Deadline::after(timeout), Location::caller())
    }

    /// As [`changed`](Self::changed), but waits until `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`changed_timeout`](Self::changed_timeout).
    #[track_caller]
    pub fn changed_deadline(&mut self, deadline: Instant) -> Result<(), RecvTimeoutError> {
        self.changed_by(|| Some(deadline.deadline()), Location::caller())
    }

    fn changed_by<F>(&mut self, deadline: F, at: At) -> Result<(), RecvTimeoutError>
    where
        F: FnOnce() -> Option<Deadline>,
    {
        point::check()?;
        if self.shared.news.look(self.seen) == Look::Nothing {
            let waited = self.shared.news.wait(self.seen, deadline(), at);
            waited.map_err(gave_up)?;
        }
        self.see().map_err(RecvTimeoutError::from)
    }

    /// Counts the change that there is as seen, if the senders are not gone instead.
    fn see(&mut self) -> Result<(), RecvError> {
        match self.shared.news.look(self.seen) {
            Look::News(count) => self.seen = count,
            Look::Nothing => unreachable!("the wait would not have ended"),
            Look::Closed => return Err(RecvError::Disconnected),
        }
        Ok(())
    }

    /// Waits for a change in async code, under any executor.
    ///
    /// A future that is dropped leaves the change unseen.
    ///
    /// # Errors
    ///
    /// [`RecvError::Disconnected`] if it has seen all, and every sender is gone.
    ///
    /// ```
    /// let (tx, mut rx) = sinew::channel::watch::channel(1);
    /// tx.send(2).unwrap();
    /// assert_eq!(sinew::block_on(rx.changed_async()), Ok(()));
    /// ```
    pub async fn changed_async(&mut self) -> Result<(), RecvError> {
        self.shared.news.wait_async(self.seen).await;
        self.see()
    }

    /// Waits until the value is as `is_wanted` says, borrows it, and counts it as
    /// seen. A cancellation point.
    ///
    /// Looks at the value that there is first, then at each that it finds after a
    /// change. `is_wanted` must not use the channel: the value is locked.
    ///
    /// # Errors
    ///
    /// [`RecvError`] if the value is not as wanted and every sender is gone, or the
    /// fiber was cancelled.
    ///
    /// ```
    /// use sinew::channel::{RecvError, watch};
    ///
    /// let (tx, mut rx) = watch::channel(1);
    /// assert_eq!(*rx.wait_for(|value| *value < 10).unwrap(), 1);
    /// drop(tx);
    /// assert_eq!(rx.wait_for(|value| *value > 10).unwrap_err(), RecvError::Disconnected);
    /// ```
    #[track_caller]
    pub fn wait_for(&mut self, is_wanted: impl FnMut(&T) -> bool) -> Result<Ref<'_, T>, RecvError> {
        self.wait_for_by(is_wanted, None, Location::caller())
            .map_err(RecvTimeoutError::without_time)
    }

    /// As [`wait_for`](Self::wait_for), but waits for `timeout` at most.
    ///
    /// The time limits the wait for a change, not the look at the value: a sender
    /// that is just changing it is waited for.
    ///
    /// # Errors
    ///
    /// [`RecvTimeoutError`] also if the time was over first.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sinew::channel::{RecvTimeoutError, watch};
    ///
    /// let (_tx, mut rx) = watch::channel(1);
    /// let late = rx.wait_for_timeout(|value| *value > 10, Duration::from_millis(1));
    /// assert_eq!(late.unwrap_err(), RecvTimeoutError::Timeout);
    /// ```
    #[track_caller]
    pub fn wait_for_timeout(
        &mut self,
        is_wanted: impl FnMut(&T) -> bool,
        timeout: Duration,
    ) -> Result<Ref<'_, T>, RecvTimeoutError> {
        self.wait_for_by(is_wanted, Deadline::after(timeout), Location::caller())
    }

    /// As [`wait_for_timeout`](Self::wait_for_timeout), but waits until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`wait_for_timeout`](Self::wait_for_timeout).
    ///
    /// ```
    /// let (_tx, mut rx) = sinew::channel::watch::channel(1);
    /// assert!(rx.wait_for_deadline(|n| *n > 1, sinew::time::Instant::now()).is_err());
    /// ```
    #[track_caller]
    pub fn wait_for_deadline(
        &mut self,
        is_wanted: impl FnMut(&T) -> bool,
        deadline: Instant,
    ) -> Result<Ref<'_, T>, RecvTimeoutError> {
        self.wait_for_by(is_wanted, Some(deadline.deadline()), Location::caller())
    }

    fn wait_for_by(
        &mut self,
        mut is_wanted: impl FnMut(&T) -> bool,
        deadline: Option<Deadline>,
        at: At,
    ) -> Result<Ref<'_, T>, RecvTimeoutError> {
        let Self { shared, seen } = self;
        loop {
            // The check on entry, too.
            let guard = shared.value.read_or_cancelled()?;
            *seen = shared.news.count(); // of this very value (invariant 1)
            if is_wanted(&guard) {
                return Ok(Ref { guard });
            }
            drop(guard);
            if shared.news.look(*seen) == Look::Closed {
                return Err(RecvTimeoutError::Disconnected);
            }
            shared.news.wait(*seen, deadline, at).map_err(gave_up)?;
        }
    }

    /// As [`wait_for`](Self::wait_for), in async code, under any executor.
    ///
    /// # Errors
    ///
    /// [`RecvError::Disconnected`] if the value is not as wanted, and every sender
    /// is gone.
    pub async fn wait_for_async(
        &mut self,
        mut is_wanted: impl FnMut(&T) -> bool,
    ) -> Result<Ref<'_, T>, RecvError> {
        let Self { shared, seen } = self;
        loop {
            let guard = shared.value.read_async().await;
            *seen = shared.news.count(); // of this very value (invariant 1)
            if is_wanted(&guard) {
                return Ok(Ref { guard });
            }
            drop(guard);
            if shared.news.look(*seen) == Look::Closed {
                return Err(RecvError::Disconnected);
            }
            shared.news.wait_async(*seen).await;
        }
    }
}

fn gave_up(outcome: WaitOutcome) -> RecvTimeoutError {
    match outcome {
        WaitOutcome::Cancelled => RecvTimeoutError::Cancelled,
        _ => RecvTimeoutError::Timeout,
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self::of(&self.shared, self.seen)
    }
}

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: fmt::Debug> fmt::Debug for Ref<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: fmt::Display> fmt::Display for Ref<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: fmt::Debug> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("value", &self.shared.value)
            .field("receiver_count", &self.receiver_count())
            .finish()
    }
}

impl<T: fmt::Debug> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("value", &self.shared.value)
            .field("has_changed", &self.shared.news.look(self.seen).is_news())
            .finish()
    }
}
