//! Locks, and other ways to wait for each other.
//!
//! # Which one do I want?
//!
//! | you need                                                        | take |
//! |-----------------------------------------------------------------|------|
//! | one at a time at some data                                      | [`Mutex`] |
//! | the same in the order of arrival, or a place in line now and the lock later | [`FairMutex`], [`Ticket`] |
//! | many who read, or one who writes                                | [`RwLock`] |
//! | to wait until what a mutex protects has changed                 | [`Condvar`] |
//! | at most *n* at a time                                           | [`Semaphore`] |
//! | *n* to wait for each other, round after round                   | [`Barrier`] |
//! | something done once; a value made once                          | [`Once`]; [`OnceLock`], [`LazyLock`] |
//! | all to be done, however many they turn out to be                | [`WaitGroup`] |
//! | a gate that is open or shut                                     | [`Event`] |
//! | "look again", said to one or to all who wait                    | [`Notify`] |
//! | the next time something happens, and an end of that             | [`Futex`] |
//! | a counter to reach a number: steps in their order               | [`Sequencer`] |
//! | one value from one to another, later                            | [`promise()`], [`Promise`], [`Future`] |
//! | messages, one after the other                                   | [`channel`](crate::channel) |
//! | the first of several of these                                   | [`select!`](crate::select!) |
//!
//! # Who may wait
//!
//! A fiber: only it waits, its worker runs others. A plain OS thread: it blocks, as
//! with std. An async task under any executor, by the `_async` methods. They may
//! wait for each other, in any mixture, across runtimes too.
//!
//! ```
//! use sinew::sync::Mutex;
//!
//! static COUNT: Mutex<u32> = Mutex::new(0);
//! sinew::run(|| {
//!     let fiber = sinew::spawn(|| *COUNT.lock() += 1);
//!     let thread = std::thread::spawn(|| *COUNT.lock() += 1);
//!     sinew::block_on(async { *COUNT.lock_async().await += 1 });
//!     fiber.join().unwrap();
//!     sinew::blocking(|| thread.join()).unwrap();
//! });
//! assert_eq!(*COUNT.lock(), 3);
//! ```
//!
//! A guard or permit may be held while its fiber waits for something else, sleeps
//! or joins: it blocks nobody but those who want the same. Locking twice in one
//! fiber waits for ever, as in std.
//!
//! # Names
//!
//! | name                                    | waits                               | if it cannot be done |
//! |-----------------------------------------|-------------------------------------|----------------------|
//! | `x`                                     | until it is done                    | an error only if it is a cancellation point or can be closed |
//! | `try_x`                                 | not at all                          | an error, or false   |
//! | `x_timeout(Duration)`, `x_deadline(`[`Instant`](crate::time::Instant)`)` | so long at most | [`TimedOut`], or an error with `Timeout` |
//! | `x_or_cancelled`                        | as `x`; a cancellation point, which `x` is not | [`Cancelled`](crate::Cancelled) |
//! | `x_async`                               | as a future, in any executor        | as `x`; drop it to give up |
//!
//! ```
//! use sinew::sync::{Event, Mutex, TimedOut, WaitTimeoutError};
//! use sinew::time::Instant;
//! use std::time::Duration;
//!
//! let (mutex, event) = (Mutex::new(()), Event::new());
//! let guard = mutex.lock();
//! assert!(mutex.try_lock().is_err());
//! assert_eq!(mutex.lock_timeout(Duration::from_millis(1)).err(), Some(TimedOut));
//! assert_eq!(event.wait_deadline(Instant::now()), Err(WaitTimeoutError::Timeout));
//! # drop(guard);
//! ```
//!
//! What makes no sense is not there: one cannot try to meet at a [`Barrier`]. Calls
//! that may run a closure of yours ([`Once::call_once`], [`OnceLock::get_or_init`],
//! [`LazyLock::force`]) have no time limit; their `…_or_cancelled` twins do not wait
//! for the closure of somebody else. Waiting for what they do
//! ([`Once::wait`], [`OnceLock::wait`]) has. A [`Future`] of this module is itself
//! what an async task waits for.
//!
//! # Cancellation points
//!
//! A point that is entered once its fiber was cancelled answers so, even if
//! what is asked for is there. A wait that is under way is woken; if what it waits for comes
//! before it runs again it still gets that, and the next point answers. Threads and
//! tasks are never cancelled.
//!
//! | cancellation points                                                | none, but `…_or_cancelled` is |
//! |--------------------------------------------------------------------|-------------------------------|
//! | [`Semaphore`], [`Event`], [`Notify`], [`Futex`], [`Sequencer`], [`Future`] | [`Mutex`], [`FairMutex`], [`Ticket`], [`RwLock`], [`Condvar`], [`Barrier`], [`Once`], [`OnceLock`], [`WaitGroup`] |
//!
//! ```
//! use sinew::Cancelled;
//! use sinew::sync::{Event, Mutex};
//!
//! let runtime = sinew::Runtime::builder().workers(1).build()?;
//! runtime.run(|| {
//!     let fiber = sinew::spawn(|| {
//!         let (event, mutex) = (Event::new(), Mutex::new(7));
//!         let told = event.wait();                        // a point
//!         let locked = *mutex.lock();                     // none: goes on as ever
//!         let twin = mutex.lock_or_cancelled().err();     // a point
//!         (told, locked, twin)
//!     });
//!     sinew::yield_now(); // it begins to wait
//!     fiber.cancel();
//!     assert_eq!(fiber.join().unwrap(), (Err(Cancelled), 7, Some(Cancelled)));
//! });
//! # std::io::Result::Ok(())
//! ```
//!
//! # What is never lost
//!
//! A wait that timed out or was cancelled has taken nothing: no permit, no turn, no
//! notification. If it was given something first, that is its answer. The future
//! of an `_async` method that is dropped after it was given something passes that
//! on, and so does a [`Ticket`]. [`Promise::set`] gives the value back if nobody can
//! get it any more.
//!
//! ```
//! use sinew::sync::Semaphore;
//! use std::future::Future;
//! use std::pin::pin;
//! use std::task::{Context, Waker};
//!
//! let one = Semaphore::new(1);
//! let held = one.acquire().unwrap();
//! {
//!     let mut next = pin!(one.acquire_async());
//!     assert!(next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
//!     drop(held);
//!     assert_eq!(one.available_permits(), 0); // it is given to the future,
//! }
//! assert_eq!(one.available_permits(), 1); // which passed it on
//! ```
//!
//! (A future or guard that is leaked with `mem::forget` passes nothing on: see
//! `docs/soundness.md`.)
//!
//! # Coming from elsewhere
//!
//! | there                                         | here                                           |
//! |-----------------------------------------------|------------------------------------------------|
//! | std: `lock().unwrap()`, `read().unwrap()`, `wait(guard).unwrap()` | no `unwrap`: there is no poisoning, a panic just unlocks |
//! | std: guards are not `Send`                    | they are, if the value allows it               |
//! | std: a guard held across a wait blocks a thread | it may be held; others wait for it as fibers |
//! | std: [`Condvar`] may wake spuriously          | never; still, another may have been faster: use `wait_while` |
//! | std: `LazyLock` takes an `FnOnce`, a panic poisons it | an `FnMut`: after a panic the next access calls it again |
//! | std: `Once` is poisoned by a panic            | the next call tries again; [`OnceState::is_poisoned`] tells |
//! | tokio: `Mutex` is fair                        | [`Mutex`] lets who runs go first, though nobody starves; [`FairMutex`] is fair |
//! | std, tokio: `MutexGuard::map`, tokio: `lock_owned` | [`MutexGuard::map`], [`RwLockReadGuard::map`], [`RwLockWriteGuard::map`]; [`Mutex::lock_owned`] |
//! | tokio: `Notify::notified()`                   | [`Notify::wait`], [`Notify::wait_async`], which counts from its first poll |
//! | tokio: `acquire().await` fails if closed      | and if the fiber was cancelled: [`AcquireError`] |
//! | crossbeam: `WaitGroup`                        | the same, with time limits                     |
//!
//! No poisoning:
//!
//! ```
//! use sinew::sync::Mutex;
//! use std::sync::Arc;
//!
//! sinew::run(|| {
//!     let mutex = Arc::new(Mutex::new(1));
//!     let theirs = mutex.clone();
//!     let unlucky = sinew::spawn(move || {
//!         let mut guard = theirs.lock();
//!         *guard = 2;
//!         panic!("while it holds the lock");
//!     });
//!     assert!(unlucky.join().unwrap_err().is_panic());
//!     assert_eq!(*mutex.lock(), 2);
//! });
//! ```
//!
//! A lazy value that is tried again:
//!
//! ```
//! use sinew::sync::LazyLock;
//! use std::panic::catch_unwind;
//! use std::sync::atomic::{AtomicU32, Ordering};
//!
//! static TRIES: AtomicU32 = AtomicU32::new(0);
//! static VALUE: LazyLock<u32> = LazyLock::new(|| {
//!     let tries = TRIES.fetch_add(1, Ordering::Relaxed) + 1;
//!     assert!(tries > 1, "the first try fails");
//!     tries
//! });
//! assert!(catch_unwind(|| *VALUE).is_err());
//! assert_eq!(*VALUE, 2);
//! ```
//!
//! A guard is `Send`: one thread locks, another gives the lock back.
//!
//! ```
//! use sinew::sync::Mutex;
//!
//! let mutex = Mutex::new(1);
//! std::thread::scope(|scope| {
//!     let mut guard = mutex.lock();
//!     scope.spawn(move || *guard += 1);
//! });
//! assert_eq!(*mutex.lock(), 2);
//! ```

mod acquire;
mod barrier;
mod condvar;
mod error;
mod event;
mod fair_mutex;
mod futex;
mod future;
mod lazy_lock;
mod linger;
mod mapped_guard;
mod mutex;
mod notify;
mod once;
mod once_lock;
mod owned_guard;
mod permit;
mod promise;
mod raw_mutex;
mod rwlock;
mod rwlock_guard;
mod semaphore;
mod sequencer;
mod shares;
mod ticket;
mod turns;
#[cfg(doctest)]
mod variance;
mod wait_group;

#[cfg(all(test, loom))]
mod count_loom_tests;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, loom))]
mod signal_loom_tests;

pub use barrier::{Barrier, BarrierWaitResult};
pub use condvar::{Condvar, WaitTimeoutResult};
pub use error::{TimedOut, TryLockError, WaitTimeoutError};
pub use event::Event;
pub use fair_mutex::{FairMutex, FairMutexGuard};
pub use futex::{Futex, FutexError, FutexTimeoutError};
pub use future::{Future, WaitFutureError, WaitFutureTimeoutError};
pub use lazy_lock::LazyLock;
pub use mapped_guard::{MappedMutexGuard, MappedRwLockReadGuard, MappedRwLockWriteGuard};
pub use mutex::{Mutex, MutexGuard};
pub use notify::Notify;
pub use once::{Once, OnceState};
pub use once_lock::OnceLock;
pub use owned_guard::OwnedMutexGuard;
pub use permit::{
    AcquireError, AcquireTimeoutError, OwnedSemaphorePermit, Permit, SemaphorePermit,
    TryAcquireError,
};
pub use promise::{Broken, Promise, promise};
pub use rwlock::RwLock;
pub use rwlock_guard::{RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::Semaphore;
pub use sequencer::{Sequencer, SequencerToken};
pub use ticket::Ticket;
pub use wait_group::WaitGroup;

// So that `use sinew::sync::{Arc, Mutex}` takes the place of std's line.
pub use std::sync::{Arc, Weak, atomic};

pub(crate) use event::EventWait;
pub(crate) use future::FutureWait;
pub(crate) use notify::NotifyWait;
pub(crate) use sequencer::SequencerWait;
pub(crate) use ticket::TicketWait;
