//! Channels: messages from whoever has them to whoever wants them.
//!
//! # Which one do I want?
//!
//! | you need                                                   | take |
//! |------------------------------------------------------------|------|
//! | work for whoever is free, with senders that wait when there is too much of it | [`bounded`]`(n)` |
//! | a message handed over from hand to hand                    | [`bounded`]`(0)` |
//! | senders that never wait; memory is the limit               | [`unbounded`] |
//! | one answer to one question                                 | [`oneshot`] |
//! | every receiver to get every message                        | [`broadcast`] |
//! | the newest value only, such as a configuration             | [`watch`] |
//! | a moment, or a beat, as an arm of a select                 | [`after`], [`at`], [`tick`] |
//! | an arm of a select that is switched off                    | [`never()`] |
//! | the first of several operations                            | [`select!`](crate::select!), [`select_biased!`](crate::select_biased!) |
//! | the same, with operations known at run time only           | [`Select`] |
//! | no messages, only signals, locks or counts                 | [`sync`](crate::sync) |
//!
//! What follows is about the first three, [`Sender`] and [`Receiver`]; the modules of
//! [`oneshot`], [`broadcast`] and [`watch`] tell what is different there. A select does
//! not take those as arms; for one value that it can wait for there is
//! [`sync::promise`](crate::sync::promise()).
//!
//! Both ends can be cloned; each message goes to one receiver. When all handles of one
//! side are gone, or one was asked to [`close`](Sender::close), the channel is
//! disconnected: nothing can be sent any more, what is in it can still be received.
//!
//! ```
//! use sinew::channel::{RecvError, bounded};
//!
//! sinew::run(|| {
//!     let (tx, rx) = bounded(2);
//!     let squares = sinew::spawn(move || (1..=4).try_for_each(|i| tx.send(i * i)));
//!     assert_eq!(rx.iter().collect::<Vec<_>>(), [1, 4, 9, 16]);
//!     assert_eq!(rx.recv(), Err(RecvError::Disconnected));
//!     assert!(squares.join().unwrap().is_ok());
//! });
//! ```
//!
//! # Who may wait
//!
//! A fiber: only it waits, its worker runs others. A plain OS thread: it blocks. An
//! async task under any executor, by [`send_async`](Sender::send_async) and
//! [`recv_async`](Receiver::recv_async). All of them on one channel:
//!
//! ```
//! let (tx, rx) = sinew::channel::bounded(0);
//! sinew::run(|| {
//!     let (from_fiber, from_thread) = (tx.clone(), tx);
//!     sinew::spawn(move || from_fiber.send(1));
//!     std::thread::spawn(move || from_thread.send(2));
//!     let sum = sinew::block_on(async {
//!         rx.recv_async().await.unwrap() + rx.recv_async().await.unwrap()
//!     });
//!     assert_eq!(sum, 3);
//! });
//! ```
//!
//! # Names
//!
//! | name                                             | waits                        | if it cannot be done |
//! |--------------------------------------------------|------------------------------|----------------------|
//! | `send`, `recv`                                   | for room; for a message      | [`SendError`], [`RecvError`] |
//! | `try_send`, `try_recv`                           | not at all; in a loop of failing tries other fibers may run | [`TrySendError`], [`TryRecvError`] |
//! | `…_timeout(Duration)`, `…_deadline(`[`Instant`](crate::time::Instant)`)` | so long at most | [`SendTimeoutError`], [`RecvTimeoutError`] |
//! | `send_async`, `recv_async`                       | as a future, in any executor | `Disconnected`; drop it to give up |
//! | [`iter`](Receiver::iter), [`try_iter`](Receiver::try_iter) | as `recv`; as `try_recv` | the iterator ends |
//!
//! # Large messages
//!
//! A message is a value, and so are the errors that hand it back: on its way it is on the
//! stack of the fiber several times. A send takes up to five times its size in an optimised
//! build, and up to nineteen times in one without optimisation; a receive takes less. With
//! stacks of the default size 32 KiB pass. Send what is larger as a [`Box`].
//!
//! # Cancellation points
//!
//! A point that is entered once its fiber was cancelled answers so, even if
//! a message is there. A wait that is under way is woken; if what it waits for comes
//! before it runs again it still gets that, and the next point answers. Threads and
//! tasks are never cancelled.
//!
//! So a cancelled fiber cannot `send`, not even into an unbounded channel. What it
//! still has to say it can `try_send`, or send with
//! [`block_on`](crate::block_on)`(sender.send_async(message))`, which is no point.
//!
//! | cancellation points                                        | none                          |
//! |------------------------------------------------------------|-------------------------------|
//! | `send`, `recv` and both with a time limit, iterators (which end), `select!` and its kin, [`Select::select`] and [`Select::ready`] | `try_…`, `close`, `len` and the like; the sends of [`oneshot`] and [`broadcast`], which never wait, and of [`watch`] |
//!
//! ```
//! use sinew::channel::{RecvError, SendError, unbounded};
//!
//! let runtime = sinew::Runtime::builder().workers(1).build()?;
//! runtime.run(|| {
//!     let (tx, rx) = unbounded();
//!     let fiber = sinew::spawn(move || {
//!         let first = rx.recv();
//!         (first, tx.send("unsent"), rx.iter().count(), rx.try_recv().is_err())
//!     });
//!     sinew::yield_now(); // it begins to wait
//!     fiber.cancel();
//!     let unsent = Err(SendError::Cancelled("unsent"));
//!     assert_eq!(fiber.join().unwrap(), (Err(RecvError::Cancelled), unsent, 0, true));
//! });
//! # std::io::Result::Ok(())
//! ```
//!
//! # What is never lost
//!
//! A message that was not sent comes back in the error. A receive that timed out, was
//! cancelled or lost a select leaves the message in the channel. A
//! [`recv_async`](Receiver::recv_async) future that is dropped after it was given a
//! message puts that back, before all others. (The message of a
//! [`send_async`](Sender::send_async) future that is dropped unsent is dropped with
//! it, and so is what is left in a channel when its last receiver goes.)
//!
//! ```
//! use sinew::channel::{SendTimeoutError, bounded};
//! use std::future::Future;
//! use std::pin::pin;
//! use std::task::{Context, Waker};
//! use std::time::Duration;
//!
//! let (tx, rx) = bounded(1);
//! {
//!     let mut receiving = pin!(rx.recv_async());
//!     assert!(receiving.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
//!     tx.send("first").unwrap(); // it is given to the future,
//! }
//! let late = tx.send_timeout("second", Duration::from_millis(1));
//! assert_eq!(late, Err(SendTimeoutError::Timeout("second")));
//! assert_eq!(rx.recv(), Ok("first")); // which put it back
//! ```
//!
//! # Coming from elsewhere
//!
//! From crossbeam: names, arguments and semantics are crossbeam-channel's. The
//! differences are that
//!
//! * a wait may end because its fiber was cancelled, so that errors are enums:
//!   [`RecvError`]`::{Disconnected, Cancelled}`, [`SendError`]`::{Disconnected(T), Cancelled(T)}`,
//!   and a case `Cancelled` in both errors of timed waits. `TryRecvError` and
//!   `TrySendError` are crossbeam's, but for the conversions into them from errors that
//!   may be `Cancelled`; `into_inner` is there in all that have a message;
//! * [`after`], [`at`] and [`tick`] speak of [`time::Instant`](crate::time::Instant);
//! * iterators also end when the fiber is cancelled;
//! * there are `close`, `is_disconnected`, `send_async`, `recv_async` and more arms in
//!   `select!`.
//!
//! As there, if the drop of a message panics when the last receiver goes, the messages
//! behind it are leaked.
//!
//! As there, what [`Select::select`] has chosen must be completed: a
//! [`SelectedOperation`] that is dropped panics, and what it was promised goes to
//! others.
//!
//! ```
//! use sinew::channel::{Select, unbounded};
//! use std::panic::{AssertUnwindSafe, catch_unwind};
//!
//! let (tx, rx) = unbounded();
//! tx.send(1).unwrap();
//! let mut select = Select::new();
//! select.recv(&rx);
//! let dropped = catch_unwind(AssertUnwindSafe(|| drop(select.select())));
//! assert!(dropped.is_err());
//! assert_eq!(select.select().recv(&rx), Ok(1)); // still there
//! ```
//!
//! | there                                       | here                                          |
//! |---------------------------------------------|-----------------------------------------------|
//! | crossbeam: `Err(RecvError)`                 | `Err(RecvError::Disconnected)`, `Err(RecvError::Cancelled)` |
//! | crossbeam: `Err(SendError(message))`        | `Err(error)`, and `error.into_inner()`        |
//! | crossbeam: `select! { recv(rx) -> x => … }` | the same                                      |
//! | std: `mpsc::channel()`, `sync_channel(n)`   | [`unbounded`], [`bounded`]`(n)`; receivers can be cloned |
//! | tokio: `mpsc::channel(n)`, `recv().await` gives an `Option` | [`bounded`]`(n)`, `recv_async().await` a `Result` |
//! | tokio: `oneshot`, `broadcast`, `watch`      | the same, without `.await`: [`oneshot`], [`broadcast`], [`watch`] |
//! | Go: a receive from a closed channel gives a zero | `Err(RecvError::Disconnected)`           |
//! | Go: a nil channel                           | [`never()`]                                     |

pub mod broadcast;
mod buffer;
mod chan;
mod choice;
mod end;
mod error;
mod grants;
mod iter;
mod lines;
mod news;
pub mod oneshot;
mod parcel;
mod promise;
mod receiver;
mod seat;
mod select;
mod sender;
mod state;
mod timers;
mod waits;
pub mod watch;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, loom))]
mod oneshot_loom_tests;

pub(crate) use choice::{RecvChoice, SendChoice, SendRight};
pub use error::{
    ReadyTimeoutError, RecvError, RecvTimeoutError, SelectTimeoutError, SendError,
    SendTimeoutError, TryReadyError, TryRecvError, TrySelectError, TrySendError,
};
pub use iter::{IntoIter, Iter, TryIter};
pub use receiver::Receiver;
pub use select::{Select, SelectedOperation};
pub use sender::Sender;
pub use timers::{after, at, never, tick};

#[cfg(feature = "macros")]
pub use sinew_macros::{select, select_biased};

use chan::Chan;
use std::sync::Arc;

/// A channel that holds up to `capacity` messages.
///
/// A send waits while it is full. With capacity 0 it holds none: a send waits for
/// a receiver to take the message, and both go on at the same time (a
/// *rendezvous*).
///
/// Memory for messages is allocated as they come, and given back as they are taken.
///
/// ```
/// sinew::run(|| {
///     let (tx, rx) = sinew::channel::bounded(1);
///     let sender = sinew::spawn(move || {
///         for i in 0..3 {
///             tx.send(i).unwrap();
///         }
///     });
///     assert_eq!(rx.iter().collect::<Vec<_>>(), [0, 1, 2]);
///     sender.join().unwrap();
/// });
/// ```
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    // The largest number stands for "unbounded"; it could not be reached anyway.
    channel(capacity.min(usize::MAX - 1))
}

/// A channel that holds any number of messages: a send never waits.
///
/// Memory for messages is allocated as they come, and given back as they are taken.
///
/// ```
/// let (tx, rx) = sinew::channel::unbounded();
/// for i in 0..1000 {
///     tx.send(i).unwrap();
/// }
/// assert_eq!(rx.len(), 1000);
/// ```
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    channel(usize::MAX)
}

fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let chan = Arc::new(Chan::new(capacity));
    (Sender::new(chan.clone()), Receiver::new(chan))
}
