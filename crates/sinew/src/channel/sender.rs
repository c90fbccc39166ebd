//! The end that messages go into.

use super::chan::{At, Chan, Disconnected, Refused, StateGuard};
use super::error::{SendError, SendTimeoutError, TrySendError};
use super::parcel::Parcel;
use super::waits::Sending;
use crate::fiber::Block;
use crate::sched::{polling, switch};
use crate::task::safepoint;
use crate::time::Instant;
use crate::wait::{Deadline, Pending, point};
use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

/// Sends messages into a channel; clones send into the same one.
///
/// When the last one is dropped the channel is disconnected: what is in it can
/// still be received.
pub struct Sender<T> {
    chan: Arc<Chan<T>>,
}

impl<T> UnwindSafe for Sender<T> {}
impl<T> RefUnwindSafe for Sender<T> {}

impl<T> Sender<T> {
    /// Takes over one count of senders.
    pub(super) fn new(chan: Arc<Chan<T>>) -> Self {
        Self { chan }
    }

    pub(crate) fn chan(&self) -> &Chan<T> {
        &self.chan
    }

    /// Sends `message` if that needs no waiting.
    ///
    /// Without capacity it is sent only if a receiver waits.
    ///
    /// Does not wait, but if it fails again and again other fibers may run: every
    /// 64th failing `try_` call since this fiber was last resumed yields.
    ///
    /// # Errors
    ///
    /// [`TrySendError`] hands the message back if there is no room or nobody can
    /// receive any more.
    ///
    /// ```
    /// use sinew::channel::{TrySendError, bounded};
    ///
    /// let (tx, rx) = bounded(1);
    /// assert_eq!(tx.try_send(1), Ok(()));
    /// assert_eq!(tx.try_send(2), Err(TrySendError::Full(2)));
    /// drop(rx);
    /// assert_eq!(tx.try_send(3), Err(TrySendError::Disconnected(3)));
    /// ```
    pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        let message = ManuallyDrop::new(message);
        // SAFETY: the message is ours; sent, it is forgotten.
        match unsafe { self.chan.put_quietly(&raw const *message) } {
            Ok(()) => Ok(()),
            Err(state) => self.try_send_slow(state, ManuallyDrop::into_inner(message)),
        }
    }

    #[inline(never)]
    fn try_send_slow(&self, state: StateGuard<'_, T>, message: T) -> Result<(), TrySendError<T>> {
        let parcel = Parcel::new(message);
        let refused = match self.chan.send_or_tell(state, &parcel) {
            Ok(()) => return Ok(()),
            Err(refused) => refused,
        };
        polling::failed();
        match refused {
            Refused::Full => Err(TrySendError::Full(parcel.take())),
            Refused::Disconnected => Err(TrySendError::Disconnected(parcel.take())),
        }
    }

    /// Sends `message`, waiting while the channel is full; without capacity,
    /// until it is received. A cancellation point.
    ///
    /// Only this fiber waits; its worker runs others. If it is cancelled while
    /// it waits, nothing was sent.
    ///
    /// # Errors
    ///
    /// [`SendError`] hands the message back if nobody can receive any more, or
    /// the fiber was cancelled.
    ///
    /// ```
    /// use sinew::channel::{SendError, bounded};
    ///
    /// let (tx, rx) = bounded(1);
    /// assert_eq!(tx.send(1), Ok(()));
    /// assert_eq!(rx.recv(), Ok(1));
    /// drop(rx);
    /// assert_eq!(tx.send(2), Err(SendError::Disconnected(2)));
    /// ```
    #[track_caller]
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        let fiber = switch::running();
        let may_send = point::check_for(fiber).is_ok();
        let message = ManuallyDrop::new(message);
        // Most sends need not wait: so look first, without what a wait needs.
        if may_send && self.chan.has_buffer() {
            // SAFETY: the message is ours; sent, it is forgotten.
            if unsafe { self.chan.put_quietly(&raw const *message) }.is_ok() {
                // A loop of sends that need not wait lets others run, too.
                safepoint();
                return Ok(());
            }
        }
        let message = ManuallyDrop::into_inner(message);
        self.send_slow(fiber, may_send, message, Location::caller())
    }

    #[inline(never)]
    fn send_slow(
        &self,
        fiber: Option<NonNull<Block>>,
        may_send: bool,
        message: T,
        at: At,
    ) -> Result<(), SendError<T>> {
        let parcel = Parcel::new(message);
        match self.chan.send(fiber, may_send, &parcel, None, at) {
            Ok(()) => Ok(()),
            Err(unsent) => Err(unsent.hand_back_untimed(&parcel)),
        }
    }

    /// As [`send`](Self::send), but waits for `timeout` at most.
    ///
    /// # Errors
    ///
    /// [`SendTimeoutError`] also if the time was over first.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sinew::channel::{SendTimeoutError, bounded};
    ///
    /// let (tx, _rx) = bounded(0);
    /// let nobody = tx.send_timeout("hello?", Duration::from_millis(1));
    /// assert_eq!(nobody, Err(SendTimeoutError::Timeout("hello?")));
    /// ```
    #[track_caller]
    pub fn send_timeout(&self, message: T, timeout: Duration) -> Result<(), SendTimeoutError<T>> {
        self.send_by(message, Deadline::after(timeout), Location::caller())
    }

    /// As [`send`](Self::send), but waits until `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`send_timeout`](Self::send_timeout).
    #[track_caller]
    pub fn send_deadline(&self, message: T, deadline: Instant) -> Result<(), SendTimeoutError<T>> {
        self.send_by(message, Some(deadline.deadline()), Location::caller())
    }

    #[inline]
    fn send_by(
        &self,
        message: T,
        deadline: Option<Deadline>,
        at: At,
    ) -> Result<(), SendTimeoutError<T>> {
        let fiber = switch::running();
        let may_send = point::check_for(fiber).is_ok();
        let parcel = Parcel::new(message);
        match self.chan.send(fiber, may_send, &parcel, deadline, at) {
            Ok(()) => Ok(()),
            Err(unsent) => Err(unsent.hand_back(&parcel)),
        }
    }

    /// Sends in async code, under any executor.
    ///
    /// A future that is dropped while it waits has sent nothing, and drops the
    /// message.
    ///
    /// # Errors
    ///
    /// [`SendError::Disconnected`] hands the message back.
    ///
    /// ```
    /// let (tx, rx) = sinew::channel::bounded(1);
    /// sinew::block_on(async {
    ///     tx.send_async(7).await.unwrap();
    ///     assert_eq!(rx.recv_async().await, Ok(7));
    /// });
    /// ```
    pub async fn send_async(&self, message: T) -> Result<(), SendError<T>> {
        let parcel = Parcel::new(message);
        // SAFETY: the future that has the operation ends before the parcel, which
        // is pinned with this one.
        let sending = Pending::new(unsafe { Sending::new(&self.chan, &raw const parcel) });
        match sending.await {
            Ok(()) => Ok(()),
            Err(Disconnected) => Err(SendError::Disconnected(parcel.take())),
        }
    }

    /// Disconnects the channel for all its handles; false if it was already.
    ///
    /// Nothing can be sent any more. What was sent can still be received.
    ///
    /// ```
    /// let (tx, rx) = sinew::channel::unbounded();
    /// tx.send("last").unwrap();
    /// assert!(tx.close());
    /// assert!(tx.send("too late").is_err());
    /// assert_eq!(rx.iter().collect::<Vec<_>>(), ["last"]);
    /// ```
    pub fn close(&self) -> bool {
        self.chan.close()
    }

    /// Whether nobody can send any more: the channel was closed, or every
    /// receiver is gone.
    pub fn is_disconnected(&self) -> bool {
        self.chan.is_closed()
    }

    /// Whether there is no message in the channel; always without capacity.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is no room in the channel; always without capacity.
    pub fn is_full(&self) -> bool {
        self.chan.is_full()
    }

    /// How many messages are in the channel, also those that a [`Select`](super::Select)
    /// has chosen and not yet received; always 0 without capacity.
    pub fn len(&self) -> usize {
        self.chan.len()
    }

    /// How many messages fit into the channel; none if it is unbounded.
    pub fn capacity(&self) -> Option<usize> {
        self.chan.capacity()
    }

    /// Whether both send into the same channel.
    pub fn same_channel(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.chan, &other.chan)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.chan.add_sender();
        Self::new(self.chan.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.chan.drop_sender();
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Sender { .. }")
    }
}
