//! Locks, and other ways to wait for each other.

mod barrier;
mod error;
mod event;
mod lazy_lock;
mod notify;
mod once;
mod once_lock;
mod rwlock;
mod rwlock_guard;
mod semaphore;
mod wait_group;

pub use barrier::{Barrier, BarrierWaitResult};
pub use error::{TimedOut, TryLockError, WaitTimeoutError};
pub use event::Event;
pub use lazy_lock::LazyLock;
pub use notify::Notify;
pub use once::{Once, OnceState};
pub use once_lock::OnceLock;
pub use rwlock::RwLock;
pub use rwlock_guard::{RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::{
    AcquireError, AcquireTimeoutError, OwnedSemaphorePermit, Semaphore, SemaphorePermit,
    TryAcquireError,
};
pub use wait_group::WaitGroup;
