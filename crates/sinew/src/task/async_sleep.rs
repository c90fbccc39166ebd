//! Sleeping in async code, where the executor knows no time of ours.
//!
//! By the alarm of async tasks (`time::alarm`), which needs no stack and no runtime: a
//! timer must work also where no stack is to be had. Only on a clock that stands a fiber
//! sleeps instead, because such a clock jumps to the timers of fibers alone.

use super::builder::Builder;
use super::join::JoinHandle;
use crate::sched::{current, switch};
use crate::time::alarm::Sleep;
use crate::time::{self, Instant};
use crate::wait::Deadline;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Resolves at its deadline or earlier: who awaits it looks at the clock, and makes
/// another.
pub(crate) enum AsyncSleep {
    Fiber(JoinHandle<()>),
    Alarm(Sleep),
}

impl AsyncSleep {
    pub(crate) fn until(deadline: Deadline) -> Self {
        if !clock_stands() {
            return Self::Alarm(Sleep::until(deadline));
        }
        let until = Instant::of_deadline(deadline);
        let fiber = Builder::new()
            .name("sinew timer")
            .daemon(true)
            .spawn(move || {
                // Cancelled: nobody waits any more, or the runtime ends.
                let _slept = time::sleep_until(until);
            });
        // Without a fiber the clock is looked at when the alarm says so.
        fiber.map_or_else(|_| Self::Alarm(Sleep::until(deadline)), Self::Fiber)
    }
}

/// Whether the runtime of the fiber that runs here has a clock that only jumps.
fn clock_stands() -> bool {
    // SAFETY: a fiber runs here, so this thread has a live core.
    switch::running().is_some() && unsafe { &*current::core() }.shared().clock.stands()
}

impl Future for AsyncSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match &mut *self {
            // How it ended does not matter.
            Self::Fiber(fiber) => Pin::new(fiber).poll(context).map(drop),
            Self::Alarm(sleep) => Pin::new(sleep).poll(context),
        }
    }
}

impl Drop for AsyncSleep {
    fn drop(&mut self) {
        if let Self::Fiber(fiber) = self {
            fiber.cancel();
        }
    }
}
