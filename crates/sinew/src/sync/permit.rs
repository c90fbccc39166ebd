//! Permits of a [`Semaphore`], and why there are none.

use super::error::TimedOut;
use super::semaphore::Semaphore;
use crate::error::{Cancelled, impl_error};
use std::fmt;
use std::io::ErrorKind;
use std::ops::Deref;
use std::sync::Arc;

/// Permits of a [`Semaphore`] that are given back when this is dropped.
pub type SemaphorePermit<'a> = Permit<&'a Semaphore>;

/// Permits of a [`Semaphore`] that keep it alive, and are given back when this
/// is dropped.
pub type OwnedSemaphorePermit = Permit<Arc<Semaphore>>;

/// Permits that are given back when this is dropped; see [`SemaphorePermit`] and
/// [`OwnedSemaphorePermit`].
#[must_use = "dropped at once, permits are given back at once"]
pub struct Permit<S: Deref<Target = Semaphore>> {
    semaphore: S,
    permits: usize,
}

impl<S: Deref<Target = Semaphore>> Permit<S> {
    pub(super) fn of(semaphore: S, permits: usize) -> Self {
        Self { semaphore, permits }
    }

    /// How many permits these are.
    pub fn num_permits(&self) -> usize {
        self.permits
    }

    /// A reference to what the permit holds: to a `&Semaphore`, or to the `Arc` of an
    /// [`OwnedSemaphorePermit`].
    ///
    /// # Examples
    ///
    /// ```
    /// let semaphore = sinew::sync::Semaphore::new(3);
    /// let permit = semaphore.acquire().unwrap();
    /// assert_eq!(permit.semaphore().available_permits(), 2);
    /// ```
    pub fn semaphore(&self) -> &S {
        &self.semaphore
    }

    /// Never gives them back.
    ///
    /// ```
    /// let semaphore = sinew::sync::Semaphore::new(1);
    /// semaphore.acquire().unwrap().forget();
    /// assert_eq!(semaphore.available_permits(), 0);
    /// ```
    pub fn forget(mut self) {
        self.permits = 0;
    }

    /// Takes over those of `other`.
    ///
    /// # Panics
    ///
    /// If they are of another semaphore.
    #[track_caller]
    pub fn merge(&mut self, mut other: Self) {
        assert!(
            std::ptr::eq(&*self.semaphore, &*other.semaphore),
            "permits of two semaphores cannot be merged"
        );
        self.permits += std::mem::take(&mut other.permits);
    }
}

impl<S: Deref<Target = Semaphore> + Clone> Permit<S> {
    /// Cuts `permits` off; none if these are fewer.
    pub fn split(&mut self, permits: usize) -> Option<Self> {
        self.permits = self.permits.checked_sub(permits)?;
        Some(Self::of(self.semaphore.clone(), permits))
    }
}

impl<S: Deref<Target = Semaphore>> Drop for Permit<S> {
    fn drop(&mut self) {
        if self.permits > 0 {
            self.semaphore.give(self.permits);
        }
    }
}

impl<S: Deref<Target = Semaphore>> fmt::Debug for Permit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("permits", &self.permits)
            .finish()
    }
}

const CLOSED_TEXT: &str = "the semaphore is closed";

/// Why [`Semaphore::acquire`] took no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcquireError {
    /// The semaphore is closed.
    Closed,
    /// The waiting fiber was cancelled.
    Cancelled,
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str(CLOSED_TEXT),
            Self::Cancelled => Cancelled.fmt(f),
        }
    }
}

impl_error!(AcquireError {
    Self::Closed => Some(ErrorKind::BrokenPipe),
    Self::Cancelled => None,
});

impl From<Cancelled> for AcquireError {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

/// Why [`Semaphore::acquire_timeout`] took no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcquireTimeoutError {
    /// The time was over first.
    Timeout,
    /// The semaphore is closed.
    Closed,
    /// The waiting fiber was cancelled.
    Cancelled,
}

impl AcquireTimeoutError {
    /// Of a wait without a deadline.
    pub(super) fn without_time(self) -> AcquireError {
        match self {
            Self::Closed => AcquireError::Closed,
            Self::Cancelled | Self::Timeout => AcquireError::Cancelled,
        }
    }
}

impl fmt::Display for AcquireTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => TimedOut.fmt(f),
            Self::Closed => f.write_str(CLOSED_TEXT),
            Self::Cancelled => Cancelled.fmt(f),
        }
    }
}

impl_error!(AcquireTimeoutError {
    Self::Timeout => Some(ErrorKind::TimedOut),
    Self::Closed => Some(ErrorKind::BrokenPipe),
    Self::Cancelled => None,
});

impl From<Cancelled> for AcquireTimeoutError {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

/// Why [`Semaphore::try_acquire`] took no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TryAcquireError {
    /// There are too few, or others stand in line.
    NoPermits,
    /// The semaphore is closed.
    Closed,
}

impl fmt::Display for TryAcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPermits => f.write_str("no permits available"),
            Self::Closed => f.write_str(CLOSED_TEXT),
        }
    }
}

impl_error!(TryAcquireError {
    Self::NoPermits => Some(ErrorKind::WouldBlock),
    Self::Closed => Some(ErrorKind::BrokenPipe),
});
