//! Time for async tasks.
//!
//! An executor knows no time of ours, and a worker's wheel is for its own fibers. So one
//! thread of the process, started at first use, keeps the alarms of all tasks, and sleeps
//! until the first of them. (A fiber for each, which sleeps in its place, was simpler; it
//! takes a stack for each idle connection of a server with timeouts, and there may be no
//! stack.) If that thread cannot be started a sleeping task is polled again and again: it
//! costs CPU time, but neither panics nor sleeps for ever.
//!
//! Invariant: no waker is called or dropped under the lock: they are user code.

use crate::sys::process;
use crate::wait::deadline::{self, Deadline};
use crate::wait::waiter::quietly;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// When, and which.
type Key = (u64, u64);

struct Alarms {
    set: BTreeMap<Key, Waker>,
    next: u64,
}

static ALARMS: Mutex<Alarms> = Mutex::new(Alarms {
    set: BTreeMap::new(),
    next: 0,
});
/// There is an earlier one.
static EARLIER: Condvar = Condvar::new();

/// Sees to it that somebody keeps the time; false if no thread is to be had.
fn start() -> bool {
    static STARTED: Mutex<bool> = Mutex::new(false);
    process::about_to_start_threads();
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    if !*started {
        let thread = std::thread::Builder::new().name("sinew-alarm".into());
        *started = thread.spawn(ring).is_ok();
    }
    *started
}

fn lock() -> MutexGuard<'static, Alarms> {
    ALARMS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Alarms {
    /// Has `waker` called at `due`.
    fn insert(&mut self, due: u64, waker: Waker) -> Key {
        let key = (due, self.next);
        self.next += 1;
        self.set.insert(key, waker);
        if self
            .set
            .first_key_value()
            .is_some_and(|(&first, _)| first == key)
        {
            EARLIER.notify_one();
        }
        key
    }

    /// Those that are due.
    fn take_due(&mut self) -> BTreeMap<Key, Waker> {
        let later = self.set.split_off(&(deadline::now() + 1, 0));
        std::mem::replace(&mut self.set, later)
    }
}

/// What the thread does.
fn ring() {
    let mut alarms = lock();
    loop {
        let due = alarms.take_due();
        if !due.is_empty() {
            drop(alarms);
            for waker in due.into_values() {
                quietly(|| waker.wake());
            }
            process::stop_forked_thread();
            alarms = lock();
            continue;
        }
        let first = alarms.set.first_key_value().map(|(key, _)| key.0);
        alarms = match first {
            None => EARLIER.wait(alarms).unwrap_or_else(PoisonError::into_inner),
            Some(first) => {
                let rest = Duration::from_nanos(first.saturating_sub(deadline::now()));
                let waited = EARLIER.wait_timeout(alarms, rest);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
    }
}

/// A future that resolves in `duration` from now.
///
/// It works under any executor. A fiber that has the choice calls
/// [`sinew::sleep`](crate::sleep()) instead.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// let start = Instant::now();
/// sinew::block_on(sinew::interop::sleep(Duration::from_millis(2)));
/// assert!(start.elapsed() >= Duration::from_millis(2));
/// ```
#[cfg(any(feature = "futures-io", feature = "hyper"))]
pub fn sleep(duration: Duration) -> Sleep {
    Sleep {
        due: Deadline::after(duration),
        key: None,
    }
}

/// What [`sleep`] answers.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Sleep {
    /// None is beyond the clock's range.
    due: Option<Deadline>,
    /// There while the alarm is set, and maybe longer.
    key: Option<Key>,
}

impl Sleep {
    /// Resolves at `due`.
    pub(crate) fn until(due: Deadline) -> Self {
        Self {
            due: Some(due),
            key: None,
        }
    }

    /// Resolves in `duration` from now instead; the task that polled it last will be
    /// woken then.
    #[cfg(any(feature = "futures-io", feature = "hyper"))]
    pub fn reset(&mut self, duration: Duration) {
        self.due = Deadline::after(duration);
        let Some(key) = self.key.take() else {
            return;
        };
        process::assert_not_forked();
        let mut alarms = lock();
        let waker = alarms.set.remove(&key);
        match (waker, &self.due) {
            (Some(waker), Some(due)) => self.key = Some(alarms.insert(due.0, waker)),
            (waker, _) => {
                drop(alarms);
                drop(waker);
            }
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(due) = self.due.as_ref().map(|due| due.0) else {
            return Poll::Pending;
        };
        if due <= deadline::now() {
            return Poll::Ready(());
        }
        if !start() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        // Cloning is user code as well.
        let mut waker = context.waker().clone();
        let mut alarms = lock();
        match self.key.and_then(|key| alarms.set.get_mut(&key)) {
            Some(known) => {
                std::mem::swap(known, &mut waker);
                drop(alarms);
                drop(waker);
            }
            None => self.key = Some(alarms.insert(due, waker)),
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let Some(key) = self.key else {
            return;
        };
        // In a forked child a thread that is not there may hold the lock.
        if !process::is_forked() {
            let waker = lock().set.remove(&key);
            drop(waker);
        }
    }
}
