//! The end that messages come out of.

use super::chan::{At, Chan, Disconnected};
use super::error::{RecvError, RecvTimeoutError, TryRecvError};
use super::iter::{IntoIter, Iter, TryIter};
use super::parcel::Parcel;
use super::timers::Timer;
use super::waits::Receiving;
use crate::fiber::Block;
use crate::sched::{polling, switch};
use crate::task::safepoint;
use crate::time::Instant;
use crate::wait::look::look_again;
use crate::wait::{Deadline, Pending, point};
use std::fmt;
use std::mem::MaybeUninit;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

/// Receives messages from a channel; clones receive from the same one, each
/// message goes to one of them.
///
/// When the last one is dropped the channel is disconnected, and what is in it
/// is dropped.
pub struct Receiver<T> {
    pub(super) flavor: Flavor<T>,
}

/// What a receiver receives from.
pub(super) enum Flavor<T> {
    Chan(Arc<Chan<T>>),
    /// Time: one message, or one now and then. The function makes it of the
    /// moment; `T` is [`Instant`], which only who made the timer knows.
    Timer(Arc<Timer>, fn(Instant) -> T),
    /// Nothing, ever.
    Never,
}

impl<T> UnwindSafe for Receiver<T> {}
impl<T> RefUnwindSafe for Receiver<T> {}

impl<T> Receiver<T> {
    /// Takes over one count of receivers.
    pub(super) fn new(chan: Arc<Chan<T>>) -> Self {
        Self {
            flavor: Flavor::Chan(chan),
        }
    }

    /// Receives a message if there is one.
    ///
    /// Without capacity: if a sender waits.
    ///
    /// Does not wait, but if it fails again and again other fibers may run: every
    /// 64th failing `try_` call since this fiber was last resumed yields.
    ///
    /// # Errors
    ///
    /// [`TryRecvError`] if there is none, now or for ever.
    ///
    /// ```
    /// use sinew::channel::{TryRecvError, unbounded};
    ///
    /// let (tx, rx) = unbounded();
    /// assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
    /// tx.send(1).unwrap();
    /// drop(tx);
    /// assert_eq!(rx.try_recv(), Ok(1));
    /// assert_eq!(rx.try_recv(), Err(TryRecvError::Disconnected));
    /// ```
    #[track_caller]
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        match &self.flavor {
            Flavor::Chan(chan) => {
                if chan.may_be_ready(true) {
                    let mut message = MaybeUninit::uninit();
                    // SAFETY: room for a message; if it is true there is one.
                    unsafe {
                        if chan.take_buffered(message.as_mut_ptr()) {
                            return Ok(message.assume_init());
                        }
                    }
                    return Self::try_recv_slow(chan, Location::caller());
                }
            }
            Flavor::Timer(timer, make) => {
                if let Some(moment) = timer.try_take() {
                    return Ok(make(moment));
                }
            }
            Flavor::Never => {}
        }
        polling::failed();
        Err(TryRecvError::Empty)
    }

    /// Receives where the buffer had nothing; counts as a try in vain if it fails.
    #[inline(never)]
    fn try_recv_slow(chan: &Chan<T>, at: At) -> Result<T, TryRecvError> {
        let parcel = Parcel::empty();
        match chan.try_recv_slow(&parcel, at) {
            Ok(()) => Ok(parcel.take()),
            Err(error) => {
                polling::failed();
                Err(error)
            }
        }
    }

    /// Receives a message, waiting while there is none. A cancellation point.
    ///
    /// Only this fiber waits; its worker runs others. If it is cancelled while
    /// it waits, the message stays in the channel.
    ///
    /// # Errors
    ///
    /// [`RecvError`] if the channel is empty and disconnected, or the fiber was
    /// cancelled.
    ///
    /// ```
    /// use sinew::channel::{RecvError, bounded};
    ///
    /// sinew::run(|| {
    ///     let (tx, rx) = bounded(0);
    ///     sinew::spawn(move || tx.send("hello"));
    ///     assert_eq!(rx.recv(), Ok("hello"));
    ///     assert_eq!(rx.recv(), Err(RecvError::Disconnected));
    /// });
    /// ```
    #[track_caller]
    #[inline]
    pub fn recv(&self) -> Result<T, RecvError> {
        match self.recv_by(None, Location::caller()) {
            Ok(message) => Ok(message),
            Err(error) => Err(error.without_time()),
        }
    }

    /// As [`recv`](Self::recv), but waits for `timeout` at most.
    ///
    /// # Errors
    ///
    /// [`RecvTimeoutError`] also if the time was over first.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sinew::channel::{RecvTimeoutError, unbounded};
    ///
    /// let (_tx, rx) = unbounded::<u32>();
    /// let nothing = rx.recv_timeout(Duration::from_millis(1));
    /// assert_eq!(nothing, Err(RecvTimeoutError::Timeout));
    /// ```
    #[track_caller]
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.recv_by(Deadline::after(timeout), Location::caller())
    }

    /// As [`recv`](Self::recv), but waits until `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`recv_timeout`](Self::recv_timeout).
    #[track_caller]
    pub fn recv_deadline(&self, deadline: Instant) -> Result<T, RecvTimeoutError> {
        self.recv_by(Some(deadline.deadline()), Location::caller())
    }

    // Always inlined: else a message would be moved once more.
    #[inline(always)]
    fn recv_by(&self, deadline: Option<Deadline>, at: At) -> Result<T, RecvTimeoutError> {
        match &self.flavor {
            Flavor::Chan(chan) => {
                let fiber = switch::running();
                if point::check_for(fiber).is_err() {
                    return Err(RecvTimeoutError::Cancelled);
                }
                let mut ready = chan.may_be_ready(true);
                if !ready && chan.may_look(deadline) {
                    ready = look_again(fiber, || chan.may_be_ready(true));
                }
                if ready && chan.has_buffer() {
                    let mut message = MaybeUninit::uninit();
                    // SAFETY: room for a message; if it is true there is one.
                    unsafe {
                        if chan.take_buffered(message.as_mut_ptr()) {
                            // A loop of receives that need not wait lets others run, too.
                            safepoint();
                            return Ok(message.assume_init());
                        }
                    }
                }
                Self::recv_slow(chan, fiber, deadline, at)
            }
            Flavor::Timer(timer, make) => timer.take(deadline, at).map(make),
            Flavor::Never => super::timers::wait_in_vain(deadline, at),
        }
    }

    #[inline(never)]
    fn recv_slow(
        chan: &Chan<T>,
        fiber: Option<NonNull<Block>>,
        deadline: Option<Deadline>,
        at: At,
    ) -> Result<T, RecvTimeoutError> {
        let parcel = Parcel::empty();
        match chan.recv_slow(fiber, &parcel, deadline, at) {
            Ok(()) => Ok(parcel.take()),
            Err(error) => Err(error),
        }
    }

    /// Receives in async code, under any executor.
    ///
    /// A future that is dropped takes no message along: what it was given
    /// already goes to the next receiver, before all others.
    ///
    /// On a timer's receiver ([`after`](super::after), [`at`](super::at),
    /// [`tick`](super::tick)) this starts a fiber that sleeps.
    ///
    /// # Errors
    ///
    /// [`RecvError::Disconnected`] if the channel is empty and disconnected.
    pub async fn recv_async(&self) -> Result<T, RecvError> {
        let at = Location::caller();
        match &self.flavor {
            Flavor::Chan(chan) => {
                let parcel = Parcel::empty();
                // SAFETY: the future that has the operation ends before the parcel,
                // which is pinned with this one.
                let receiving = unsafe { Receiving::new(chan, &raw const parcel, at) };
                match Pending::new(receiving).await {
                    Ok(()) => Ok(parcel.take()),
                    Err(Disconnected) => Err(RecvError::Disconnected),
                }
            }
            Flavor::Timer(timer, make) => Ok(make(timer.take_async().await)),
            Flavor::Never => std::future::pending().await,
        }
    }

    /// Disconnects the channel for all its handles; false if it was already.
    ///
    /// Nothing can be sent any more. What was sent can still be received. Timers
    /// have no end, and go on.
    pub fn close(&self) -> bool {
        match &self.flavor {
            Flavor::Chan(chan) => chan.close(),
            Flavor::Timer(..) | Flavor::Never => false,
        }
    }

    /// Whether nobody can send any more: the channel was closed, or every
    /// sender is gone. There may still be messages in it.
    pub fn is_disconnected(&self) -> bool {
        match &self.flavor {
            Flavor::Chan(chan) => chan.is_closed(),
            Flavor::Timer(..) | Flavor::Never => false,
        }
    }

    /// Whether there is no message in the channel; always without capacity.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is no room in the channel; always without capacity.
    pub fn is_full(&self) -> bool {
        match &self.flavor {
            Flavor::Chan(chan) => chan.is_full(),
            Flavor::Timer(timer, _) => timer.is_due(),
            Flavor::Never => true,
        }
    }

    /// How many messages are in the channel, also those that a [`Select`](super::Select)
    /// has chosen and not yet received; always 0 without capacity.
    pub fn len(&self) -> usize {
        match &self.flavor {
            Flavor::Chan(chan) => chan.len(),
            Flavor::Timer(timer, _) => usize::from(timer.is_due()),
            Flavor::Never => 0,
        }
    }

    /// How many messages fit into the channel; none if it is unbounded.
    pub fn capacity(&self) -> Option<usize> {
        match &self.flavor {
            Flavor::Chan(chan) => chan.capacity(),
            Flavor::Timer(..) => Some(1),
            Flavor::Never => Some(0),
        }
    }

    /// Whether both receive from the same channel.
    pub fn same_channel(&self, other: &Self) -> bool {
        match (&self.flavor, &other.flavor) {
            (Flavor::Chan(a), Flavor::Chan(b)) => Arc::ptr_eq(a, b),
            (Flavor::Timer(a, _), Flavor::Timer(b, _)) => Arc::ptr_eq(a, b),
            (Flavor::Never, Flavor::Never) => true,
            _ => false,
        }
    }

    /// The messages to come, waiting for each; ends when the channel is empty
    /// and disconnected, or the fiber was cancelled.
    ///
    /// ```
    /// let (tx, rx) = sinew::channel::unbounded();
    /// for i in 0..3 {
    ///     tx.send(i).unwrap();
    /// }
    /// drop(tx);
    /// assert_eq!(rx.iter().sum::<u32>(), 3);
    /// ```
    pub fn iter(&self) -> Iter<'_, T> {
        Iter::new(self)
    }

    /// The messages that are there, without waiting. Its end is a failing
    /// [`try_recv`](Self::try_recv): where that fails again and again other fibers
    /// may run.
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter::new(self)
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        let flavor = match &self.flavor {
            Flavor::Chan(chan) => {
                chan.add_receiver();
                Flavor::Chan(chan.clone())
            }
            Flavor::Timer(timer, make) => Flavor::Timer(timer.clone(), *make),
            Flavor::Never => Flavor::Never,
        };
        Self { flavor }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        if let Flavor::Chan(chan) = &self.flavor {
            chan.drop_receiver();
        }
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Receiver { .. }")
    }
}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        IntoIter::new(self)
    }
}
