//! Channels that deliver time: once, or again and again.
//!
//! Nobody sends these messages, so there is no line to stand in: whoever
//! receives sleeps until the message is due, then tries to take it. One word
//! says when that is; taking it is one compare-and-swap, so that of several
//! receivers one gets it.

use super::chan::At;
use super::error::RecvTimeoutError;
use super::receiver::{Flavor, Receiver};
use crate::fiber::WaitReason;
use crate::primitive::{AtomicU64, Ordering};
use crate::task::AsyncSleep;
use crate::time::Instant;
use crate::wait::{Deadline, WaitOutcome, WaitSpec, Waiter, deadline, point, wait};
use std::sync::Arc;
use std::time::Duration;

/// No message will come any more.
const NEVER: u64 = u64::MAX;

/// A receiver that never receives anything.
///
/// For an arm of a select that is switched off.
///
/// ```
/// use std::time::Duration;
/// use sinew::channel::never;
///
/// let off = never::<u32>();
/// assert!(off.recv_timeout(Duration::from_millis(1)).is_err());
/// ```
pub fn never<T>() -> Receiver<T> {
    Receiver {
        flavor: Flavor::Never,
    }
}

/// A receiver that gets one message, `duration` from now: the moment it was due.
///
/// ```
/// use std::time::Duration;
/// use sinew::channel::after;
/// use sinew::time::Instant;
///
/// let start = Instant::now();
/// let due = after(Duration::from_millis(2)).recv().unwrap();
/// assert!(due >= start + Duration::from_millis(2));
/// ```
pub fn after(duration: Duration) -> Receiver<Instant> {
    timer(Instant::now().checked_add(duration), None)
}

/// A receiver that gets one message, at `when`: that moment.
pub fn at(when: Instant) -> Receiver<Instant> {
    timer(Some(when), None)
}

/// A receiver that gets a message every `period`, the first one period from now:
/// the moment it was due.
///
/// Messages do not pile up: those missed are skipped, and the grid is kept.
///
/// ```
/// use std::time::Duration;
/// use sinew::channel::tick;
///
/// let ticks = tick(Duration::from_millis(1));
/// let first = ticks.recv().unwrap();
/// assert!(ticks.recv().unwrap() > first);
/// ```
pub fn tick(period: Duration) -> Receiver<Instant> {
    // A period of nothing is as short as a period can be.
    let nanos = u64::try_from(period.as_nanos()).unwrap_or(NEVER).max(1);
    timer(Instant::now().checked_add(period), Some(nanos))
}

fn timer(first: Option<Instant>, period: Option<u64>) -> Receiver<Instant> {
    let timer = Timer {
        due: AtomicU64::new(first.map_or(NEVER, |at| at.deadline().0)),
        period,
    };
    Receiver {
        flavor: Flavor::Timer(Arc::new(timer), |moment| moment),
    }
}

/// One timer, shared by the clones of its receiver.
pub(crate) struct Timer {
    /// When the next message is due, in nanoseconds, or [`NEVER`].
    due: AtomicU64,
    period: Option<u64>,
}

impl Timer {
    /// When the next message is due.
    pub(crate) fn due(&self) -> Option<Deadline> {
        // Relaxed: time carries no data.
        Some(self.due.load(Ordering::Relaxed))
            .filter(|&due| due != NEVER)
            .map(Deadline)
    }

    pub(crate) fn is_due(&self) -> bool {
        self.due().is_some_and(|due| due.0 <= deadline::now())
    }

    /// Takes the message if it is due.
    pub(crate) fn try_take(&self) -> Option<Instant> {
        loop {
            let due = self.due()?;
            let now = deadline::now();
            if now < due.0 {
                return None;
            }
            let next = match self.period {
                None => NEVER,
                Some(period) => {
                    let missed = (now - due.0) / period;
                    due.0.saturating_add(period.saturating_mul(missed + 1))
                }
            };
            // Relaxed: as above; exactly one takes it.
            if self
                .due
                .compare_exchange(due.0, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
            {
                return Some(Instant::of_deadline(due));
            }
        }
    }

    /// Waits for the message.
    pub(super) fn take(
        &self,
        deadline: Option<Deadline>,
        at: At,
    ) -> Result<Instant, RecvTimeoutError> {
        point::check()?;
        loop {
            if let Some(moment) = self.try_take() {
                return Ok(moment);
            }
            let due = self.due();
            let until = Deadline::earlier(due, deadline);
            doze(until, at)?;
            if deadline.is_some_and(|at| at.0 <= deadline::now()) && !self.is_due() {
                return Err(RecvTimeoutError::Timeout);
            }
        }
    }

    /// Waits for the message in async code.
    pub(super) async fn take_async(&self) -> Instant {
        loop {
            if let Some(moment) = self.try_take() {
                return moment;
            }
            let Some(due) = self.due() else {
                return std::future::pending().await;
            };
            AsyncSleep::until(due).await;
        }
    }
}

/// Waits for time to pass; a cancellation point.
fn doze(until: Option<Deadline>, at: At) -> Result<(), RecvTimeoutError> {
    let spec = WaitSpec::new(WaitReason::Recv, at)
        .deadline(until)
        .cancellable();
    match wait(&Waiter::for_current(), &spec) {
        WaitOutcome::Cancelled => Err(RecvTimeoutError::Cancelled),
        WaitOutcome::TimedOut | WaitOutcome::Woken => Ok(()),
    }
}

/// Waits for a message that never comes.
pub(super) fn wait_in_vain<T>(deadline: Option<Deadline>, at: At) -> Result<T, RecvTimeoutError> {
    point::check()?;
    doze(deadline, at)?;
    Err(RecvTimeoutError::Timeout)
}
