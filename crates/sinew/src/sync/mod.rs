//! Locks, and other ways to wait for each other.

mod error;
mod event;
mod semaphore;

pub use error::{TimedOut, TryLockError, WaitTimeoutError};
pub use event::Event;
pub use semaphore::{
    AcquireError, AcquireTimeoutError, OwnedSemaphorePermit, Semaphore, SemaphorePermit,
    TryAcquireError,
};
