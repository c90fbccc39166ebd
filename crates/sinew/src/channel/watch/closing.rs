//! Waiting for the last receiver to go, and receivers that change their mind about what
//! they have seen.
//!
//! The drop that makes the number of receivers 0 counts one *end* (`Shared::ends`).
//!
//! Invariant (no end is missed): the number of receivers is lowered before the end is
//! counted, and who waits reads the count of ends before the number. So it sees 0, or it
//! waits for an end that it has not counted.

use super::{Receiver, Sender};
use crate::channel::chan::At;
use crate::error::Cancelled;
use crate::primitive::Ordering;
use crate::sync::WaitTimeoutError;
use crate::time::Instant;
use crate::wait::{Deadline, WaitOutcome, point};
use std::panic::Location;
use std::time::Duration;

impl<T> Sender<T> {
    /// Waits until there is no receiver; a cancellation point.
    ///
    /// Only this fiber waits; its worker runs others. Receivers that [`subscribe`] later
    /// may be there again when this returns.
    ///
    /// [`subscribe`]: Self::subscribe
    ///
    /// # Errors
    ///
    /// [`Cancelled`] if the fiber was cancelled, before or during the wait.
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::channel::watch;
    ///
    /// sinew::run(|| {
    ///     let (tx, rx) = watch::channel(1);
    ///     sinew::spawn(move || drop(rx));
    ///     assert_eq!(tx.closed(), Ok(()));
    ///     assert!(tx.is_closed());
    /// });
    /// ```
    #[track_caller]
    pub fn closed(&self) -> Result<(), Cancelled> {
        self.closed_by(|| None, Location::caller())
            .map_err(|_| Cancelled)
    }

    /// As [`closed`](Self::closed), but waits for `timeout` at most.
    ///
    /// # Errors
    ///
    /// [`WaitTimeoutError`] also if the time was over first.
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::channel::watch;
    /// use sinew::sync::WaitTimeoutError;
    /// use std::time::Duration;
    ///
    /// let (tx, _rx) = watch::channel(1);
    /// let open = tx.closed_timeout(Duration::from_millis(1));
    /// assert_eq!(open, Err(WaitTimeoutError::Timeout));
    /// ```
    #[track_caller]
    pub fn closed_timeout(&self, timeout: Duration) -> Result<(), WaitTimeoutError> {
        self.closed_by(|| Deadline::after(timeout), Location::caller())
    }

    /// As [`closed`](Self::closed), but waits until `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`closed_timeout`](Self::closed_timeout).
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::channel::watch;
    /// use sinew::time::Instant;
    ///
    /// let (tx, rx) = watch::channel(1);
    /// assert!(tx.closed_deadline(Instant::now()).is_err());
    /// drop(rx);
    /// assert!(tx.closed_deadline(Instant::now()).is_ok());
    /// ```
    #[track_caller]
    pub fn closed_deadline(&self, deadline: Instant) -> Result<(), WaitTimeoutError> {
        self.closed_by(|| Some(deadline.deadline()), Location::caller())
    }

    /// Waits until there is no receiver, in async code, under any executor.
    ///
    /// # Examples
    ///
    /// ```
    /// let (tx, rx) = sinew::channel::watch::channel(1);
    /// drop(rx);
    /// sinew::block_on(tx.closed_async());
    /// assert!(tx.is_closed());
    /// ```
    pub async fn closed_async(&self) {
        loop {
            let ends = self.shared.ends.count();
            if self.has_no_receiver() {
                return;
            }
            self.shared.ends.wait_async(ends).await;
        }
    }

    fn has_no_receiver(&self) -> bool {
        // Acquire: what the receivers did before they went is seen; pairs with their
        // `drop`. Not before the count of ends, which the caller has acquired.
        self.shared.receivers.load(Ordering::Acquire) == 0
    }

    fn closed_by(
        &self,
        deadline: impl FnOnce() -> Option<Deadline>,
        at: At,
    ) -> Result<(), WaitTimeoutError> {
        point::check()?;
        let mut ends = self.shared.ends.count();
        if self.has_no_receiver() {
            return Ok(());
        }
        let deadline = deadline();
        loop {
            self.shared
                .ends
                .wait(ends, deadline, at)
                .map_err(|outcome| match outcome {
                    WaitOutcome::Cancelled => WaitTimeoutError::Cancelled,
                    _ => WaitTimeoutError::Timeout,
                })?;
            ends = self.shared.ends.count();
            if self.has_no_receiver() {
                return Ok(());
            }
        }
    }
}

impl<T> Receiver<T> {
    /// Counts the present value as seen, as [`borrow_and_update`] does, but without
    /// waiting for anybody.
    ///
    /// [`borrow_and_update`]: Self::borrow_and_update
    ///
    /// # Examples
    ///
    /// ```
    /// let (tx, mut rx) = sinew::channel::watch::channel(1);
    /// tx.send(2).unwrap();
    /// rx.mark_unchanged();
    /// assert_eq!(rx.has_changed(), Ok(false));
    /// ```
    pub fn mark_unchanged(&mut self) {
        self.seen = self.shared.news.count();
    }

    /// Counts the present value as not seen: the next wait for a change returns at once.
    ///
    /// # Examples
    ///
    /// ```
    /// let (_tx, mut rx) = sinew::channel::watch::channel(1);
    /// assert_eq!(rx.has_changed(), Ok(false));
    /// rx.mark_changed();
    /// assert_eq!(rx.has_changed(), Ok(true));
    /// assert_eq!(rx.changed(), Ok(()));
    /// ```
    pub fn mark_changed(&mut self) {
        // The first value counts as a change, so there is a number below (`channel`).
        self.seen = self.shared.news.count() - 1;
    }
}

/// The last tells the senders that wait for that.
impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        // Release and Acquire: what all receivers did comes before the end that the last
        // one counts.
        if self.shared.receivers.fetch_sub(1, Ordering::AcqRel) == 1 {
            let waited = self.shared.ends.publish();
            self.shared.ends.tell(waited);
        }
    }
}
