//! Channels.

mod chan;
mod choice;
mod end;
mod error;
mod iter;
mod promise;
mod receiver;
mod seat;
mod select;
mod sender;
mod state;
mod timers;
mod waits;

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
