//! Channels in which every receiver gets every message.
//!
//! For news that several want, each for itself: events of a system, lines of a chat, a
//! call to stop. Sending never waits for slow receivers; the channel keeps the newest
//! messages, and who falls behind further than that is told how many it missed.
//!
//! If only one receiver is to get each message, or none may be missed, take
//! [`bounded`](super::bounded()), one for each reader; if only the newest value
//! matters, [`watch`](super::watch); for a signal without data an
//! [`Event`](crate::sync::Event), which is also an arm of `select!`.
//!
//! ```
//! use sinew::channel::broadcast::{self, RecvError};
//!
//! sinew::run(|| {
//!     let (tx, rx) = broadcast::channel(16);
//!     let listen = |mut rx: broadcast::Receiver<u32>| {
//!         let (mut heard, mut missed) = (Vec::new(), 0);
//!         loop {
//!             match rx.recv() {
//!                 Ok(message) => heard.push(message),
//!                 Err(RecvError::Lagged(some)) => missed += some, // it goes on
//!                 Err(_) => return (heard, missed), // no more will come, or cancelled
//!             }
//!         }
//!     };
//!     let other = tx.subscribe();
//!     let listeners = [rx, other].map(|rx| sinew::spawn(move || listen(rx)));
//!     for message in 1..=3 {
//!         assert_eq!(tx.send(message), Ok(2)); // two will get it
//!     }
//!     drop(tx);
//!     for listener in listeners {
//!         assert_eq!(listener.join().unwrap(), (vec![1, 2, 3], 0));
//!     }
//! });
//! ```
//!
//! | what happens                  | what follows                                       |
//! |-------------------------------|----------------------------------------------------|
//! | the last sender is dropped, or [`close`](Sender::close) | receivers get what was sent, then `Disconnected` |
//! | the last receiver is dropped  | `send` hands the message back; [`subscribe`](Sender::subscribe) makes a new one |
//! | a receiver is slow            | its next receive says `Lagged(n)` once, then goes on with the oldest that is kept |
//! | a receiver comes late         | it gets what is sent from then on                  |
//! | a wait times out, or its fiber is cancelled | it missed nothing by that            |
//!
//! No arm of `select!` receives from it: the [guide](crate::guide#select-and-race)
//! says what to do instead.
//!
//! # How it works
//!
//! The newest messages, up to the capacity, are kept in order. Messages are
//! numbered as they are sent, and each receiver has the number of the one that it
//! gets next; a message carries how many receivers still want it, and goes when none
//! does. Who sends into a full channel drops the oldest, wanted or not: that is how a
//! receiver falls behind, and it notices by its number.
//!
//! ```text
//!    missed │ kept: first … first + len - 1              │ still to come
//!   ────────┼────────────────────────────────────────────┼──────────────
//!     ▲ a slow receiver: told how many it missed,   ▲    ▲ waits for news
//!       goes on at `first`                          a receiver
//! ```
//!
//! Invariant 1 (order): who wants a message wants all that came after it. So those
//! that nobody wants are the oldest.
//!
//! Invariant 2 (count): with the lock of the ring free, `first` and the messages
//! kept add up to the count of news, which says how many were sent.
//!
//! Invariant 3 (user code): messages are cloned and dropped without the lock. Who
//! has it takes them out, or a second `Arc` of them.

mod error;

pub use error::{RecvError, RecvTimeoutError, TryRecvError};

use super::chan::At;
use super::error::SendError;
use super::news::{Look, News};
use crate::sched::polling;
use crate::sys::Lock;
use crate::time::Instant;
use crate::wait::{Deadline, WaitOutcome, point};
use std::collections::VecDeque;
use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

/// Room that is made at once; more is made when it is needed.
const ROOM: usize = 32;

/// Makes a channel that keeps the `capacity` newest messages for each receiver.
///
/// Sending never waits. A receiver that falls behind by more than that misses the
/// oldest messages, and is told how many. Messages are shared between the threads
/// of the receivers, so to be sent from one thread to another they have to be `Sync`
/// too.
///
/// ```
/// use sinew::channel::broadcast;
///
/// let (tx, mut one) = broadcast::channel(2);
/// let mut two = tx.subscribe();
/// assert_eq!(tx.send("both"), Ok(2));
/// assert_eq!((one.recv(), two.recv()), (Ok("both"), Ok("both")));
/// ```
///
/// # Panics
///
/// If `capacity` is 0.
#[track_caller]
pub fn channel<T: Clone>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity > 0, "a broadcast channel without capacity");
    let shared = Arc::new(Shared {
        ring: Lock::new(Ring {
            kept: VecDeque::with_capacity(capacity.min(ROOM)),
            first: 0,
            receivers: 1,
            senders: 1,
        }),
        news: News::new(),
        capacity,
    });
    let receiver = Receiver {
        shared: shared.clone(),
        next: 0,
    };
    (Sender { shared }, receiver)
}

/// Sends to all receivers; clones send to the same ones.
///
/// When the last one is dropped the channel is closed.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// Receives all messages that are sent from its making on.
///
/// Receiving is a cancellation point; who times out or is cancelled misses nothing
/// by that.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    /// The number of the message that comes next.
    next: u64,
}

/// What all handles share.
struct Shared<T> {
    ring: Lock<Ring<T>>,
    /// Published and closed only under the lock of the ring.
    news: News,
    capacity: usize,
}

/// The newest messages.
struct Ring<T> {
    kept: VecDeque<Kept<T>>,
    /// The number of the oldest that is kept.
    first: u64,
    receivers: usize,
    senders: usize,
}

struct Kept<T> {
    message: Arc<T>,
    /// How many receivers still want it; not 0.
    wanted: usize,
}

// User code never unwinds through a half-done change of it.
impl<T> UnwindSafe for Sender<T> {}
impl<T> RefUnwindSafe for Sender<T> {}
impl<T> UnwindSafe for Receiver<T> {}
impl<T> RefUnwindSafe for Receiver<T> {}

impl<T> Ring<T> {
    /// The number of the message that will be sent next.
    fn end(&self) -> u64 {
        self.first + self.kept.len() as u64
    }

    /// Which of those kept has this number, or would come next.
    fn place_of(&self, number: u64) -> usize {
        // Not beyond `end`, so it fits.
        (number.saturating_sub(self.first) as usize).min(self.kept.len())
    }

    fn drop_oldest(&mut self) -> Option<Arc<T>> {
        let oldest = self.kept.pop_front()?;
        self.first += 1;
        Some(oldest.message)
    }
}

impl<T> Sender<T> {
    /// Sends `message` to all receivers, and says how many they are; never waits.
    ///
    /// In a full channel it takes the place of the oldest message, which those who
    /// have not received it miss.
    ///
    /// # Errors
    ///
    /// [`SendError::Disconnected`] hands `message` back if there is no receiver, or
    /// the channel was closed. There may be a receiver later:
    /// [`subscribe`](Self::subscribe).
    ///
    /// ```
    /// use sinew::channel::broadcast::{self, RecvError};
    ///
    /// let (tx, mut rx) = broadcast::channel(2);
    /// for i in 1..=5 {
    ///     assert_eq!(tx.send(i), Ok(1));
    /// }
    /// assert_eq!(rx.recv(), Err(RecvError::Lagged(3)));
    /// assert_eq!((rx.recv(), rx.recv()), (Ok(4), Ok(5)));
    /// ```
    pub fn send(&self, message: T) -> Result<usize, SendError<T>> {
        let Shared {
            ring,
            news,
            capacity,
        } = &*self.shared;
        let message = Arc::new(message);
        let mut ring = ring.lock();
        let receivers = ring.receivers;
        if receivers == 0 || news.is_closed() {
            drop(ring);
            let message = Arc::into_inner(message).expect("nobody else has it yet");
            return Err(SendError::Disconnected(message));
        }
        let oldest = if ring.kept.len() < *capacity {
            None
        } else {
            ring.drop_oldest()
        };
        ring.kept.push_back(Kept {
            message,
            wanted: receivers,
        });
        let waited = news.publish();
        drop(ring);
        news.tell(waited);
        drop(oldest);
        Ok(receivers)
    }

    /// A receiver for all that is sent from now on.
    pub fn subscribe(&self) -> Receiver<T> {
        Shared::subscribe(&self.shared)
    }

    /// How many receivers there are.
    pub fn receiver_count(&self) -> usize {
        self.shared.ring.lock().receivers
    }

    /// How many messages are kept for receivers that have not received them.
    pub fn len(&self) -> usize {
        self.shared.ring.lock().kept.len()
    }

    /// Whether no message is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Closes the channel for all its handles; false if it was closed.
    ///
    /// Nothing can be sent any more. What was sent can still be received.
    ///
    /// ```
    /// use sinew::channel::broadcast::{self, RecvError};
    ///
    /// let (tx, mut rx) = broadcast::channel(1);
    /// tx.send("last").unwrap();
    /// assert!(tx.close());
    /// assert!(tx.send("later").is_err());
    /// assert_eq!(rx.recv(), Ok("last"));
    /// assert_eq!(rx.recv(), Err(RecvError::Disconnected));
    /// ```
    pub fn close(&self) -> bool {
        let ring = self.shared.ring.lock();
        let (first, waited) = self.shared.news.close();
        drop(ring);
        self.shared.news.tell(waited);
        first
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.shared.ring.lock().senders += 1;
        Self {
            shared: self.shared.clone(),
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let last = {
            let mut ring = self.shared.ring.lock();
            ring.senders -= 1;
            ring.senders == 0
        };
        if last {
            self.close();
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl<T> Shared<T> {
    fn subscribe(this: &Arc<Self>) -> Receiver<T> {
        let mut ring = this.ring.lock();
        ring.receivers += 1;
        let next = ring.end();
        drop(ring);
        Receiver {
            shared: this.clone(),
            next,
        }
    }
}

impl<T> Receiver<T> {
    /// Another receiver, for all that is sent from now on.
    ///
    /// ```
    /// let (tx, mut rx) = sinew::channel::broadcast::channel(4);
    /// tx.send(1).unwrap();
    /// let mut later = rx.resubscribe();
    /// tx.send(2).unwrap();
    /// assert_eq!((rx.recv(), later.recv()), (Ok(1), Ok(2)));
    /// ```
    pub fn resubscribe(&self) -> Self {
        Shared::subscribe(&self.shared)
    }

    /// How many messages it could receive without waiting; those that it missed do
    /// not count.
    pub fn len(&self) -> usize {
        let ring = self.shared.ring.lock();
        ring.kept.len() - ring.place_of(self.next)
    }

    /// Whether it would have to wait for a message.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: Clone> Receiver<T> {
    /// Receives the next message if it is there.
    ///
    /// A loop of failing tries is a place where other fibers may run: every 64th in one turn
    /// of a fiber yields.
    ///
    /// # Errors
    ///
    /// [`TryRecvError`] if there is none, now or for ever; or if some were missed,
    /// and then the next is the oldest that is kept.
    #[inline]
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        match self.try_quietly() {
            Ok(message) => Ok(message),
            Err(error) => {
                polling::failed();
                Err(error)
            }
        }
    }

    /// The same without a count of tries in vain.
    #[inline]
    fn try_quietly(&mut self) -> Result<T, TryRecvError> {
        match self.shared.news.look(self.next) {
            Look::News(_) => self.take().map_err(TryRecvError::Lagged),
            Look::Nothing => Err(TryRecvError::Empty),
            Look::Closed => Err(TryRecvError::Disconnected),
        }
    }

    /// Receives the next message, waiting while there is none. A cancellation point.
    ///
    /// Only this fiber waits; its worker runs others. The message is a clone, except
    /// for who receives it last. If `T::clone` panics the message counts as
    /// received.
    ///
    /// # Errors
    ///
    /// [`RecvError`] if the channel is closed and all was received, or the fiber was
    /// cancelled. Also, once, if messages were missed: the next is the oldest that
    /// is kept.
    ///
    /// ```
    /// use sinew::channel::broadcast::{self, RecvError};
    ///
    /// sinew::run(|| {
    ///     let (tx, mut rx) = broadcast::channel(4);
    ///     sinew::spawn(move || tx.send(1));
    ///     assert_eq!(rx.recv(), Ok(1));
    ///     assert_eq!(rx.recv(), Err(RecvError::Disconnected));
    /// });
    /// ```
    #[track_caller]
    pub fn recv(&mut self) -> Result<T, RecvError> {
        self.recv_by(|| None, Location::caller())
            .map_err(RecvTimeoutError::without_time)
    }

    /// As [`recv`](Self::recv), but waits for `timeout` at most.
    ///
    /// # Errors
    ///
    /// [`RecvTimeoutError`] also if the time was over first.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sinew::channel::broadcast::{self, RecvTimeoutError};
    ///
    /// let (_tx, mut rx) = broadcast::channel::<u32>(1);
    /// let nothing = rx.recv_timeout(Duration::from_millis(1));
    /// assert_eq!(nothing, Err(RecvTimeoutError::Timeout));
    /// ```
    #[track_caller]
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.recv_by(|| Deadline::after(timeout), Location::caller())
    }

    /// As [`recv`](Self::recv), but waits until `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`recv_timeout`](Self::recv_timeout).
    #[track_caller]
    pub fn recv_deadline(&mut self, deadline: Instant) -> Result<T, RecvTimeoutError> {
        self.recv_by(|| Some(deadline.deadline()), Location::caller())
    }

    fn recv_by<F>(&mut self, deadline: F, at: At) -> Result<T, RecvTimeoutError>
    where
        F: FnOnce() -> Option<Deadline>,
    {
        point::check()?;
        if self.shared.news.look(self.next) == Look::Nothing {
            match self.shared.news.wait(self.next, deadline(), at) {
                Ok(()) => {}
                Err(WaitOutcome::Cancelled) => return Err(RecvTimeoutError::Cancelled),
                Err(_) => return Err(RecvTimeoutError::Timeout),
            }
        }
        self.try_quietly().map_err(RecvTimeoutError::of)
    }

    /// Receives in async code, under any executor.
    ///
    /// A future that is dropped takes no message along.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv), except that tasks are not cancelled.
    ///
    /// ```
    /// let (tx, mut rx) = sinew::channel::broadcast::channel(1);
    /// tx.send(1).unwrap();
    /// assert_eq!(sinew::block_on(rx.recv_async()), Ok(1));
    /// ```
    pub async fn recv_async(&mut self) -> Result<T, RecvError> {
        self.shared.news.wait_async(self.next).await;
        self.try_quietly()
            .map_err(|error| RecvTimeoutError::of(error).without_time())
    }

    /// Receives the next message, which was sent; or says how many were missed.
    fn take(&mut self) -> Result<T, u64> {
        let message = {
            let mut ring = self.shared.ring.lock();
            if self.next < ring.first {
                let missed = ring.first - self.next;
                self.next = ring.first;
                return Err(missed);
            }
            let place = ring.place_of(self.next);
            self.next += 1;
            let kept = &mut ring.kept[place];
            kept.wanted -= 1;
            if kept.wanted > 0 {
                Some(kept.message.clone())
            } else {
                // It is the oldest, for those before it are wanted by no more
                // (invariant 1) and would be gone.
                ring.drop_oldest()
            }
        };
        let message = message.expect("it was wanted, and there");
        Ok(Arc::unwrap_or_clone(message))
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut unwanted = Vec::new();
        let mut ring = self.shared.ring.lock();
        ring.receivers -= 1;
        let place = ring.place_of(self.next);
        for kept in ring.kept.range_mut(place..) {
            kept.wanted -= 1;
        }
        // The oldest (invariant 1).
        while ring.kept.front().is_some_and(|oldest| oldest.wanted == 0) {
            unwanted.extend(ring.drop_oldest());
        }
        drop(ring);
        // One after the other: if the drop of one unwinds the rest is leaked, as in
        // the other channels. A second panic would end the process.
        let mut unwanted = ManuallyDrop::new(unwanted.into_iter());
        for message in &mut *unwanted {
            drop(message);
        }
        // SAFETY: not used any more; without messages, its drop runs no user code.
        unsafe { ManuallyDrop::drop(&mut unwanted) };
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
