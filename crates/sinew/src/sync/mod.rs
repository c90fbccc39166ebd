//! Locks, and other ways to wait for each other.

mod barrier;
mod condvar;
mod error;
mod event;
mod fair_mutex;
mod futex;
mod future;
mod lazy_lock;
mod linger;
mod mutex;
mod notify;
mod once;
mod once_lock;
mod promise;
mod raw_mutex;
mod rwlock;
mod rwlock_guard;
mod semaphore;
mod sequencer;
mod shares;
mod ticket;
mod turns;
mod wait_group;

pub use barrier::{Barrier, BarrierWaitResult};
pub use condvar::{Condvar, WaitTimeoutResult};
pub use error::{TimedOut, TryLockError, WaitTimeoutError};
pub use event::Event;
pub use fair_mutex::{FairMutex, FairMutexGuard};
pub use futex::{Futex, FutexError, FutexTimeoutError};
pub use future::{Future, WaitFutureError, WaitFutureTimeoutError};
pub use lazy_lock::LazyLock;
pub use mutex::{Mutex, MutexGuard};
pub use notify::Notify;
pub use once::{Once, OnceState};
pub use once_lock::OnceLock;
pub use promise::{Broken, Promise, promise};
pub use rwlock::RwLock;
pub use rwlock_guard::{RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::{
    AcquireError, AcquireTimeoutError, OwnedSemaphorePermit, Semaphore, SemaphorePermit,
    TryAcquireError,
};
pub use sequencer::{Sequencer, SequencerToken};
pub use ticket::Ticket;
pub use wait_group::WaitGroup;

pub(crate) use event::EventWait;
pub(crate) use future::FutureWait;
pub(crate) use notify::NotifyWait;
pub(crate) use sequencer::SequencerWait;
pub(crate) use ticket::TicketWait;
