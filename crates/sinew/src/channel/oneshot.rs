//! Channels for one message.
//!
//! For an answer: who asks keeps the receiver, and sends the sender along with the
//! question. Sending never waits, and uses the sender up.
//!
//! If there may be more than one message take [`bounded`](super::bounded()); if several
//! wait for one value a [`OnceLock`](crate::sync::OnceLock); for the result of a fiber
//! its [`JoinHandle`](crate::JoinHandle) is enough; and if `select!` is to wait for it,
//! [`sync::promise`](crate::sync::promise()) or `bounded(1)`: a receiver of this kind
//! is no arm.
//!
//! ```
//! use sinew::channel::{RecvError, oneshot, unbounded};
//!
//! sinew::run(|| {
//!     let (ask, questions) = unbounded::<(u32, oneshot::Sender<u32>)>();
//!     sinew::spawn(move || {
//!         for (number, reply) in questions.iter() {
//!             if number != 13 {
//!                 let _ = reply.send(number * number); // the asker may have gone
//!             }
//!         }
//!     });
//!     let (reply, answer) = oneshot::channel();
//!     ask.send((6, reply)).unwrap();
//!     assert_eq!(answer.recv(), Ok(36));
//!
//!     let (reply, answer) = oneshot::channel();
//!     ask.send((13, reply)).unwrap(); // is not answered: the sender is dropped
//!     assert_eq!(answer.recv(), Err(RecvError::Disconnected));
//! });
//! ```
//!
//! | what happens                          | what follows                              |
//! |---------------------------------------|-------------------------------------------|
//! | the sender is dropped unused          | the receiver is told `Disconnected`       |
//! | the receiver is dropped, or [`close`](Receiver::close)d, first | `send` hands the message back |
//! | the receiver is dropped later         | so is a message that it did not receive   |
//! | a wait times out, or its fiber is cancelled | the message can still be received   |
//! | a fiber that was cancelled sends      | it is sent: that is no cancellation point |
//!
//! # How it works
//!
//! Both ends share one allocation. A word in it says how far they are:
//!
//! | bit             | meaning                                        | set by                     |
//! |-----------------|------------------------------------------------|----------------------------|
//! | `SENT`          | the message was put into the cell              | the sender, unless `CLOSED` |
//! | `BROKEN`        | no message will come                           | the sender, instead        |
//! | `TAKEN`         | the message was received                       | who receives it            |
//! | `CLOSED`        | no message will be accepted                    | the receiver               |
//! | `WAITERS`       | somebody waits, or did                         | who waits, under the lock  |
//! | `SENDER_LEFT`   | the sender does not touch the memory any more  | the sender, last of all    |
//! | `RECEIVER_LEFT` | the receiver does not                          | the receiver, last of all  |
//!
//! As long as nobody waits or closes, all of `send` is one compare-and-swap from 0
//! to `SENT | SENDER_LEFT`. Else the sender goes to the lock of the line, and stays
//! at hand until it has woken those in it.
//!
//! Invariant 1 (decided once): one of `SENT` and `BROKEN` is set, once; `SENT` only
//! in a change of a word without `CLOSED`.
//!
//! Invariant 2 (cell): the cell is the sender's, and from `SENT` on of whoever
//! changes the word to `TAKEN`. If nobody has it is the receiver's when that is
//! dropped.
//!
//! Invariant 3 (memory): each side touches the memory until it has set its `LEFT`
//! bit; who finds the other's set is the last, and frees it.
//!
//! Invariant 4 (no wait is missed): who waits sets `WAITERS` under the lock in the
//! same change that finds nothing decided and stays until it is linked. So the
//! sender, or a `close`, either comes before and is seen, or sees the bit and comes
//! to the lock.
//!
//! Invariant 5 (user code): messages and wakers are dropped, cloned and called
//! without the lock, by who does not need the memory any more.

mod waiting;

use super::chan::{At, Disconnected};
use super::error::{RecvError, RecvTimeoutError, TryRecvError};
use crate::fiber::WaitReason;
use crate::primitive::{AtomicU32, Ordering};
use crate::sched::polling;
use crate::sys::{Lock, LockGuard};
use crate::time::Instant;
use crate::wait::node::{Node, WaitList, Wakes};
use crate::wait::waiter::quietly;
use crate::wait::{Deadline, Pending, WaitOutcome, WaitSpec};
use crate::wait::{perform, point};
use std::cell::UnsafeCell;
use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::task::Waker;
use std::time::Duration;
use waiting::Receiving;

const SENT: u32 = 1 << 0;
const BROKEN: u32 = 1 << 1;
const TAKEN: u32 = 1 << 2;
const CLOSED: u32 = 1 << 3;
const WAITERS: u32 = 1 << 4;
const SENDER_LEFT: u32 = 1 << 5;
const RECEIVER_LEFT: u32 = 1 << 6;

/// Nobody waits any more once one of these is set.
const OVER: u32 = SENT | BROKEN | CLOSED;

/// Makes a channel for one message.
///
/// ```
/// let (tx, rx) = sinew::channel::oneshot::channel();
/// tx.send(6 * 7).unwrap();
/// assert_eq!(rx.recv(), Ok(42));
/// ```
#[inline]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let shared = Box::new(Shared {
        word: AtomicU32::new(0),
        line: Lock::new(Line {
            waiting: WaitList::new(),
            task: None,
        }),
        cell: UnsafeCell::new(MaybeUninit::uninit()),
    });
    let shared = NonNull::from(Box::leak(shared));
    (Sender { shared }, Receiver { shared })
}

/// Sends the one message; dropped without it the receiver is told
/// [`RecvError::Disconnected`].
#[must_use = "without its sender a channel is disconnected"]
pub struct Sender<T> {
    shared: NonNull<Shared<T>>,
}

/// Receives the one message.
///
/// Receiving is a cancellation point, and takes nothing along if it times out or
/// is cancelled: the message can still be received. In async code the receiver is
/// itself a future; so is [`recv_async`](Self::recv_async), which only borrows it.
/// Of several that receive at the same time one gets the message.
///
/// When it is dropped, so is a message that nobody received.
#[must_use = "without its receiver a message cannot be sent"]
pub struct Receiver<T> {
    shared: NonNull<Shared<T>>,
}

/// What both ends share.
struct Shared<T> {
    /// See the module header.
    word: AtomicU32,
    line: Lock<Line>,
    /// See invariant 2.
    cell: UnsafeCell<MaybeUninit<T>>,
}

/// Who is to be woken.
struct Line {
    waiting: WaitList<Node>,
    /// The task that last polled the receiver itself.
    task: Option<Waker>,
}

// SAFETY: the message moves from one thread to another, so it must be `Send`; the
// cell is used by one at a time (invariant 2), all else may be shared. The memory
// is freed by whichever end is last (invariant 3).
unsafe impl<T: Send> Send for Sender<T> {}
// SAFETY: as above; a shared sender only looks at the word.
unsafe impl<T: Send> Sync for Sender<T> {}
// SAFETY: as for `Sender`.
unsafe impl<T: Send> Send for Receiver<T> {}
// SAFETY: as for `Sender`; of those who share it one gets the message.
unsafe impl<T: Send> Sync for Receiver<T> {}

// User code never unwinds through a half-done change of it.
impl<T> UnwindSafe for Sender<T> {}
impl<T> RefUnwindSafe for Sender<T> {}
impl<T> UnwindSafe for Receiver<T> {}
impl<T> RefUnwindSafe for Receiver<T> {}

impl<T> Sender<T> {
    /// Sends `message`, and wakes who waits for it; never waits.
    ///
    /// # Errors
    ///
    /// Hands `message` back if the receiver is gone, or closed the channel.
    ///
    /// ```
    /// let (tx, rx) = sinew::channel::oneshot::channel();
    /// drop(rx);
    /// assert_eq!(tx.send("letter"), Err("letter"));
    /// ```
    #[inline]
    pub fn send(self, message: T) -> Result<(), T> {
        let shared = ManuallyDrop::new(self).shared;
        // SAFETY: the sender has not left (invariant 3), and nothing was sent: the
        // cell is its own (invariant 2).
        unsafe { (*shared.as_ref().cell.get()).write(message) };
        // SAFETY: the sender, which was taken apart, has neither decided nor left.
        if unsafe { decide(shared, SENT) } {
            return Ok(());
        }
        // SAFETY: refused: the sender has not left, the cell is still its own, and
        // the message in it was written above.
        let message = unsafe { (*shared.as_ref().cell.get()).assume_init_read() };
        // SAFETY: from here on the memory is not used.
        unsafe { leave(shared, BROKEN | SENDER_LEFT) };
        Err(message)
    }

    /// Whether the receiver is gone, or closed the channel: a message would come
    /// back.
    pub fn is_closed(&self) -> bool {
        // SAFETY: the sender has not left (invariant 3).
        let shared = unsafe { self.shared.as_ref() };
        // Acquire: what was done before the close is seen; pairs with `close` and
        // the receiver's `drop`.
        shared.word.load(Ordering::Acquire) & CLOSED != 0
    }
}

/// Tells the receiver that no message will come.
impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        // SAFETY: a sender that is dropped has neither sent nor left.
        unsafe { decide(self.shared, BROKEN) };
    }
}

/// Sets `SENT` or `BROKEN`, wakes who waits, and leaves; false if it was to be
/// `SENT` but the channel is closed: then nothing has changed.
///
/// # Safety
///
/// The caller is the sender, which has neither decided nor left; if this is true it
/// does not use the memory any more. For `SENT` the message is in the cell.
#[inline]
unsafe fn decide<T>(shared: NonNull<Shared<T>>, how: u32) -> bool {
    // SAFETY: the sender has not left (invariant 3).
    let word = unsafe { &shared.as_ref().word };
    // Release: who receives sees the message, and who frees the memory that we are
    // done with it; pairs with the Acquire in `take` and the receiver's `drop`.
    // Relaxed: if it fails nothing was learnt.
    let all = how | SENDER_LEFT;
    let done = word.compare_exchange(0, all, Ordering::Release, Ordering::Relaxed);
    // SAFETY: the caller's promise; if it failed nothing has changed yet.
    done.is_ok() || unsafe { decide_slow(shared, how) }
}

/// The same for a word that is not 0.
///
/// # Safety
///
/// As for [`decide`].
#[cold]
unsafe fn decide_slow<T>(shared: NonNull<Shared<T>>, how: u32) -> bool {
    // SAFETY: the sender has not left (invariant 3); `this` is not used once it has.
    let this = unsafe { shared.as_ref() };
    let line = this.line.lock();
    let mut now = this.word.load(Ordering::Relaxed);
    loop {
        if how == SENT && now & CLOSED != 0 {
            return false;
        }
        // Release: who receives sees the message; pairs with the Acquire in `take`.
        match this
            .word
            .compare_exchange_weak(now, now | how, Ordering::Release, Ordering::Relaxed)
        {
            Ok(_) => break,
            Err(seen) => now = seen,
        }
    }
    let told = Told::by(line);
    // SAFETY: the line was seen to, so the sender needs the memory no more.
    unsafe { leave(shared, SENDER_LEFT) };
    told.wake();
    true
}

/// Leaves the memory to the other side, or frees it if that has left.
///
/// # Safety
///
/// `bits` has the `LEFT` bit of the caller's side, which does not use the memory
/// any more.
unsafe fn leave<T>(shared: NonNull<Shared<T>>, bits: u32) {
    // SAFETY: this side has not left (invariant 3).
    let word = unsafe { &shared.as_ref().word };
    // Release: the other side frees the memory after our last use of it. Acquire:
    // the other half, if it is us.
    let before = word.fetch_or(bits, Ordering::AcqRel);
    if before & (SENDER_LEFT | RECEIVER_LEFT) != 0 {
        // SAFETY: not our bit, which was not set; so the other side left, and we
        // are the last (invariant 3). `channel` made it of a box.
        drop(unsafe { Box::from_raw(shared.as_ptr()) });
    }
}

/// Those who were in the line when it was over: claimed, not yet woken.
struct Told {
    wakes: Wakes,
    task: Option<Waker>,
}

impl Told {
    /// Empties the line, and gives its lock back.
    fn by(mut line: LockGuard<'_, Line>) -> Self {
        let mut wakes = Wakes::new();
        line.waiting.claim_all(&mut wakes);
        let task = line.task.take();
        Self { wakes, task }
    }

    /// Calls wakers, which are user code: see invariant 5.
    fn wake(self) {
        self.wakes.fire();
        if let Some(task) = self.task {
            quietly(|| task.wake());
        }
    }
}

impl<T> Shared<T> {
    /// Receives, if the message is there or none will come.
    ///
    /// For the receiver only.
    #[inline]
    fn take(&self) -> Option<Result<T, Disconnected>> {
        let exchange = |old, new| {
            // Acquire: the message is seen; pairs with the Release in `decide`.
            self.word
                .compare_exchange(old, new, Ordering::Acquire, Ordering::Acquire)
        };
        // As it mostly is. A look first would make all of it 31 instead of 27 ns.
        let mut now = SENT | SENDER_LEFT;
        loop {
            match exchange(now, now | TAKEN) {
                // SAFETY: sent, and ours, for we have set `TAKEN` (invariant 2).
                Ok(_) => return Some(Ok(unsafe { (*self.cell.get()).assume_init_read() })),
                Err(seen) if seen & (SENT | TAKEN) == SENT => now = seen,
                Err(seen) => return (seen & OVER != 0).then_some(Err(Disconnected)),
            }
        }
    }

    /// Says that somebody waits, under the lock of the line; false if there is
    /// nothing to wait for (invariant 4).
    fn listen(&self) -> bool {
        // Acquire: as in `take`.
        self.word.fetch_or(WAITERS, Ordering::Acquire) & OVER == 0
    }
}

impl<T> Receiver<T> {
    #[inline]
    fn shared(&self) -> &Shared<T> {
        // SAFETY: the receiver has not left (invariant 3).
        unsafe { self.shared.as_ref() }
    }

    /// Receives the message if it is there.
    ///
    /// A loop of failing tries is a place where other fibers may run: every 64th in one turn
    /// of a fiber yields.
    ///
    /// # Errors
    ///
    /// [`TryRecvError::Empty`] if it may still come, else
    /// [`TryRecvError::Disconnected`]: the sender is gone, the channel was closed,
    /// or the message was received.
    ///
    /// ```
    /// use sinew::channel::{TryRecvError, oneshot};
    ///
    /// let (tx, rx) = oneshot::channel();
    /// assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
    /// tx.send(1).unwrap();
    /// assert_eq!(rx.try_recv(), Ok(1));
    /// assert_eq!(rx.try_recv(), Err(TryRecvError::Disconnected));
    /// ```
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let failure = match self.shared().take() {
            Some(Ok(message)) => return Ok(message),
            Some(Err(Disconnected)) => TryRecvError::Disconnected,
            None => TryRecvError::Empty,
        };
        polling::failed();
        Err(failure)
    }

    /// Receives the message, waiting until it is there. A cancellation point.
    ///
    /// Only this fiber waits; its worker runs others.
    ///
    /// # Errors
    ///
    /// [`RecvError`] if no message will come: the sender is gone, the channel was
    /// closed, or the message was received; or if the fiber was cancelled, and then
    /// the message stays.
    ///
    /// ```
    /// use sinew::channel::{RecvError, oneshot};
    ///
    /// let (tx, rx) = oneshot::channel::<u32>();
    /// std::thread::spawn(move || drop(tx));
    /// assert_eq!(rx.recv(), Err(RecvError::Disconnected));
    /// ```
    #[track_caller]
    #[inline]
    pub fn recv(&self) -> Result<T, RecvError> {
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
    /// use sinew::channel::{RecvTimeoutError, oneshot};
    ///
    /// let (tx, rx) = oneshot::channel();
    /// let early = rx.recv_timeout(Duration::from_millis(1));
    /// assert_eq!(early, Err(RecvTimeoutError::Timeout));
    /// tx.send(1).unwrap();
    /// assert_eq!(rx.recv_timeout(Duration::ZERO), Ok(1));
    /// ```
    #[track_caller]
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.recv_by(|| Deadline::after(timeout), Location::caller())
    }

    /// As [`recv`](Self::recv), but waits until `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`recv_timeout`](Self::recv_timeout).
    #[track_caller]
    pub fn recv_deadline(&self, deadline: Instant) -> Result<T, RecvTimeoutError> {
        self.recv_by(|| Some(deadline.deadline()), Location::caller())
    }

    #[inline]
    fn recv_by<F>(&self, deadline: F, at: At) -> Result<T, RecvTimeoutError>
    where
        F: FnOnce() -> Option<Deadline>,
    {
        point::check()?;
        match self.shared().take() {
            Some(outcome) => outcome.map_err(|Disconnected| RecvTimeoutError::Disconnected),
            None => self.recv_slow(deadline(), at),
        }
    }

    #[inline(never)]
    fn recv_slow(&self, deadline: Option<Deadline>, at: At) -> Result<T, RecvTimeoutError> {
        let spec = WaitSpec::new(WaitReason::Recv, at)
            .deadline(deadline)
            .cancellable();
        match perform(&Receiving::new(self.shared()), &spec) {
            Ok(outcome) => outcome.map_err(|Disconnected| RecvTimeoutError::Disconnected),
            Err(WaitOutcome::Cancelled) => Err(RecvTimeoutError::Cancelled),
            Err(_) => Err(RecvTimeoutError::Timeout),
        }
    }

    /// Receives in async code, under any executor.
    ///
    /// A future that is dropped takes no message along.
    ///
    /// # Errors
    ///
    /// [`RecvError::Disconnected`] if no message will come.
    ///
    /// ```
    /// let (tx, rx) = sinew::channel::oneshot::channel();
    /// tx.send(1).unwrap();
    /// assert_eq!(sinew::block_on(rx.recv_async()), Ok(1));
    /// ```
    pub async fn recv_async(&self) -> Result<T, RecvError> {
        Pending::new(Receiving::new(self.shared()))
            .await
            .map_err(|Disconnected| RecvError::Disconnected)
    }

    /// Whether there is no message to be received now: it was not sent, or was received.
    ///
    /// # Examples
    ///
    /// ```
    /// let (tx, rx) = sinew::channel::oneshot::channel();
    /// assert!(rx.is_empty());
    /// tx.send(1).unwrap();
    /// assert!(!rx.is_empty());
    /// assert_eq!(rx.recv(), Ok(1));
    /// assert!(rx.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        // SAFETY: the receiver has not left (invariant 3).
        let shared = unsafe { self.shared.as_ref() };
        // Acquire: what came before the message is seen; pairs with `decide`.
        shared.word.load(Ordering::Acquire) & (SENT | TAKEN) != SENT
    }

    /// Keeps a message from being sent; false if that comes too late, or was done
    /// before.
    ///
    /// What was sent can still be received. Whoever waits to receive is told that
    /// no message will come.
    ///
    /// ```
    /// let (tx, rx) = sinew::channel::oneshot::channel();
    /// assert!(rx.close());
    /// assert_eq!(tx.send(1), Err(1));
    /// ```
    pub fn close(&self) -> bool {
        let shared = self.shared();
        // Release: pairs with `is_closed`. The message is none of our business.
        let before = shared.word.fetch_or(CLOSED, Ordering::Release);
        if before & WAITERS != 0 {
            Told::by(shared.line.lock()).wake();
        }
        before & OVER == 0
    }
}

impl<T> Drop for Receiver<T> {
    #[inline]
    fn drop(&mut self) {
        let shared = self.shared();
        // Acquire: the message is seen, and that the sender is done; pairs with
        // `decide` and `leave`.
        let mut now = shared.word.load(Ordering::Acquire);
        if now & SENDER_LEFT == 0 {
            // From here on nothing is sent. Acquire: as above. Release: pairs with
            // `is_closed`.
            now = shared.word.fetch_or(CLOSED, Ordering::AcqRel);
        }
        // SAFETY: sent and not received: it is ours now (invariant 2), for nobody
        // else has the receiver any more.
        let message = (now & (SENT | TAKEN) == SENT)
            .then(|| unsafe { (*shared.cell.get()).assume_init_read() });
        let task = (now & WAITERS != 0).then(|| shared.line.lock().task.take());
        if now & SENDER_LEFT != 0 {
            // SAFETY: the sender left, so we are the last (invariant 3). `channel`
            // made it of a box.
            drop(unsafe { Box::from_raw(self.shared.as_ptr()) });
        } else {
            // SAFETY: from here on the memory is not used.
            unsafe { leave(self.shared, RECEIVER_LEFT) };
        }
        // User code, so it comes last (invariant 5). The waker first: a panic of it
        // concerns nobody, and one of the message's goes on.
        if task.is_some() {
            quietly(|| drop(task));
        }
        drop(message);
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("is_closed", &self.is_closed())
            .finish()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}
