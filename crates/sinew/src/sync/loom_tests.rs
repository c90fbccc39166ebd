//! Models of the locks: `mutex`, `fair_mutex` with its tickets, `rwlock` and
//! `condvar`, with threads and tasks as waiters.
//!
//! Every ordering below was weakened once by hand; the model named caught it.
//!
//! | weakened                                      | caught by |
//! |-----------------------------------------------|-----------|
//! | `RawMutex::try_lock_as` Acquire → Relaxed     | `three_who_lock_a_mutex…` and the other models of the mutex |
//! | `RawMutex::barge` Acquire → Relaxed           | the same |
//! | `RawMutex::unlock` Release → Relaxed          | the same |
//! | `RawMutex::unlock_slow` Release → Relaxed     | `three_who_lock_a_mutex…`, `who_was_woken_and_came_too_late…`, `a_dropped_lock_of_a_task…` |
//! | `RawMutex::replace` Release → Relaxed         | the same |
//! | `LockWait::enlist` Acquire → Relaxed          | `three_who_lock_a_mutex…` and the other models of the mutex |
//! | `Turns::try_lock` Acquire → Relaxed           | `three_who_lock_a_fair_mutex…` and all models of tickets |
//! | `Turns::unlock` Release → Relaxed             | the same |
//! | `Turns::serve` Release → Relaxed              | all models of tickets |
//! | `Turns::enter` Acquire → Relaxed              | `three_who_lock_a_fair_mutex…` and all models of tickets |
//! | `Shares::try_take` Acquire → Relaxed          | all models of the `RwLock` |
//! | `Shares::give_read` Release → Relaxed         | all models of the `RwLock` |
//! | `Shares::give_write` Release → Relaxed        | all models of the `RwLock` |
//! | `Shares::downgrade` Release → Relaxed         | `a_writer_that_becomes_a_reader…` |
//! | `Shares::serve`, load Acquire → Relaxed       | `a_writer_comes_after_all_readers`, `a_writer_that_becomes_a_reader…` |
//! | `Shares::serve`, addition Release → Relaxed   | `a_writer_comes_after_all_readers` |
//! | `Share::enlist` Acquire → Relaxed             | all models of the `RwLock` |
//!
//! A condition variable has no atomics of its own. Priorities (`URGENT`, loans) are
//! not modelled: threads and tasks lend nothing.

use super::raw_mutex::{LockWait, RawMutex};
use super::{Condvar, FairMutex, Mutex, RwLock, RwLockWriteGuard};
use crate::fiber::WaitReason;
use crate::primitive::model::Plain;
use crate::primitive::{AtomicUsize, Ordering};
use crate::wait::{Deadline, Pending, WaitSpec, perform};
use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

pub(super) fn bounded(preemptions: usize) -> Builder {
    let mut model = Builder::new();
    model.preemption_bound = Some(preemptions);
    model
}

/// A task's executor: counts its wakes.
pub(super) struct Executor(AtomicUsize);

impl Executor {
    pub(super) fn new() -> std::sync::Arc<Self> {
        std::sync::Arc::new(Self(AtomicUsize::new(0)))
    }

    pub(super) fn wakes(&self) -> usize {
        // Relaxed: a wake promises no order.
        self.0.load(Ordering::Relaxed)
    }

    /// Polls once.
    pub(super) fn poll<F: Future>(
        self: &std::sync::Arc<Self>,
        future: Pin<&mut F>,
    ) -> Poll<F::Output> {
        let waker = Waker::from(self.clone());
        future.poll(&mut Context::from_waker(&waker))
    }
}

impl Wake for Executor {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Polls once, with a waker that nobody waits for.
pub(super) fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    Executor::new().poll(future)
}

/// Adds one to a cell that only one may use at a time.
pub(super) fn add_one(value: &Plain<u32>) {
    value.set(value.get() + 1);
}

/// Runs `roles` on threads of their own, with what they share.
///
/// Who only looks comes last: see `fiber::loom_tests`.
pub(super) fn threads<T: Send + Sync + 'static>(shared: &Arc<T>, roles: &[fn(&T)]) {
    let threads: Vec<_> = roles
        .iter()
        .map(|&role| {
            let shared = shared.clone();
            thread::spawn(move || role(&shared))
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// A mutex, driven without the looks that `Mutex::lock` takes before it waits.
struct Guarded {
    raw: RawMutex,
    value: Plain<u32>,
}

impl Guarded {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            raw: RawMutex::new(),
            value: Plain::new(0),
        })
    }

    /// Locks, or gives up at once if it has to wait; true if it has locked.
    fn try_wait(&self, deadline: Option<Deadline>) -> bool {
        let spec = WaitSpec::new(WaitReason::Mutex, Location::caller());
        perform(&LockWait::new(&self.raw), &spec.deadline(deadline)).is_ok()
    }

    fn unlock(&self) {
        // SAFETY: callers hold it.
        unsafe { self.raw.unlock() };
    }

    fn add_one(&self) {
        assert!(self.try_wait(None));
        add_one(&self.value);
        self.unlock();
    }

    fn add_one_if_soon(&self) {
        if self.try_wait(Some(Deadline(0))) {
            add_one(&self.value);
            self.unlock();
        }
    }

    fn add_one_if_free(&self) {
        if self.raw.try_lock() {
            add_one(&self.value);
            self.unlock();
        }
    }
}

#[test]
fn three_who_lock_a_mutex_have_it_one_after_the_other() {
    bounded(2).check(|| {
        let mutex = Guarded::new();
        threads(
            &mutex,
            &[Guarded::add_one, Guarded::add_one, Guarded::add_one],
        );
        assert_eq!(mutex.value.get(), 3);
        assert!(!mutex.raw.is_locked());
    });
}

#[test]
fn who_was_woken_and_came_too_late_gets_the_mutex_in_the_end() {
    bounded(3).check(|| {
        let mutex = Guarded::new();
        let often = |mutex: &Guarded| (0..3).for_each(|_| mutex.add_one());
        threads(&mutex, &[Guarded::add_one, often]);
        assert_eq!(mutex.value.get(), 4);
        assert!(!mutex.raw.is_locked());
    });
    // One who takes it if it is free comes between.
    bounded(2).check(|| {
        let mutex = Guarded::new();
        let twice = |mutex: &Guarded| (0..2).for_each(|_| mutex.add_one());
        let barger = |mutex: &Guarded| (0..2).for_each(|_| mutex.add_one_if_free());
        threads(&mutex, &[Guarded::add_one, barger, twice]);
        assert!(mutex.value.get() >= 3);
        assert!(!mutex.raw.is_locked());
    });
}

#[test]
fn who_times_out_of_a_mutex_takes_no_wake_up_along() {
    bounded(3).check(|| {
        let mutex = Guarded::new();
        threads(
            &mutex,
            &[Guarded::add_one, Guarded::add_one_if_soon, Guarded::add_one],
        );
        assert!(mutex.value.get() >= 2);
        assert!(!mutex.raw.is_locked());
    });
}

#[test]
fn a_dropped_lock_of_a_task_passes_the_mutex_on() {
    // The task is first in line when the lock is given back.
    bounded(3).check(|| {
        let mutex = Guarded::new();
        assert!(mutex.raw.try_lock());
        let waiter = {
            let mut task = pin!(Pending::new(LockWait::new(&mutex.raw)));
            assert!(poll(task.as_mut()).is_pending());
            let waiter = thread::spawn({
                let mutex = mutex.clone();
                move || mutex.add_one()
            });
            add_one(&mutex.value);
            mutex.unlock();
            waiter
        };
        waiter.join().unwrap();
        assert_eq!(mutex.value.get(), 2);
        assert!(!mutex.raw.is_locked());
    });
    // It is dropped, or goes on, while that happens.
    bounded(3).check(|| {
        let mutex = Guarded::new();
        assert!(mutex.raw.try_lock());
        let holder = {
            let mut task = pin!(Pending::new(LockWait::new(&mutex.raw)));
            assert!(poll(task.as_mut()).is_pending());
            let holder = thread::spawn({
                let mutex = mutex.clone();
                move || {
                    add_one(&mutex.value);
                    mutex.unlock();
                    mutex.add_one();
                }
            });
            if poll(task.as_mut()).is_ready() {
                add_one(&mutex.value);
                mutex.unlock();
            }
            holder
        };
        mutex.add_one();
        holder.join().unwrap();
        assert!(mutex.value.get() >= 3);
        assert!(!mutex.raw.is_locked());
    });
}

type Fair = FairMutex<Plain<u32>>;

#[test]
fn three_who_lock_a_fair_mutex_have_it_one_after_the_other() {
    bounded(2).check(|| {
        let mutex = Arc::new(Fair::new(Plain::new(0)));
        let lock = |mutex: &Fair| add_one(&mutex.lock());
        threads(&mutex, &[lock, lock, lock]);
        assert_eq!(mutex.try_lock().unwrap().get(), 3);
        assert!(!mutex.is_locked());
    });
}

#[test]
fn a_ticket_that_is_dropped_while_its_turn_comes_passes_the_mutex_on() {
    bounded(2).check(|| {
        let mutex = Arc::new(Fair::new(Plain::new(0)));
        let guard = mutex.lock();
        let others: [fn(&Fair); 2] = [|mutex| drop(mutex.ticket()), |mutex| add_one(&mutex.lock())];
        let others = others.map(|role| {
            let mutex = mutex.clone();
            thread::spawn(move || role(&mutex))
        });
        add_one(&guard);
        drop(guard);
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(mutex.try_lock().unwrap().get(), 2);
    });
}

#[test]
fn a_ticket_is_served_while_nobody_waits_at_it_or_wakes_who_does() {
    bounded(3).check(|| {
        let mutex = Arc::new(Fair::new(Plain::new(0)));
        let holder = |mutex: &Fair| add_one(&mutex.lock());
        let ticket = |mutex: &Fair| {
            let ticket = mutex.ticket();
            match ticket.try_lock() {
                Ok(guard) => add_one(&guard),
                Err(ticket) => add_one(&ticket.lock()),
            }
        };
        threads(&mutex, &[holder, ticket, holder]);
        assert_eq!(mutex.try_lock().unwrap().get(), 3);
    });
    // One that gives up passes it on.
    bounded(2).check(|| {
        let mutex = Arc::new(Fair::new(Plain::new(0)));
        let holder = |mutex: &Fair| add_one(&mutex.lock());
        let hasty = |mutex: &Fair| {
            if let Ok(guard) = mutex.ticket().lock_timeout(Duration::ZERO) {
                add_one(&guard);
            }
            if let Ok(guard) = mutex.lock_timeout(Duration::ZERO) {
                add_one(&guard);
            }
        };
        threads(&mutex, &[holder, hasty, holder]);
        assert!(mutex.try_lock().unwrap().get() >= 2);
    });
}

#[test]
fn a_dropped_lock_or_ticket_of_a_task_passes_the_fair_mutex_on() {
    for ticket in [false, true] {
        bounded(3).check(move || {
            let mutex = Arc::new(Fair::new(Plain::new(0)));
            let start = |role: fn(&Fair)| {
                let mutex = mutex.clone();
                thread::spawn(move || role(&mutex))
            };
            let holder = start(|mutex| add_one(&mutex.lock()));
            let taken = if ticket {
                let mut task = pin!(mutex.ticket().lock_async());
                poll(task.as_mut()).map(|guard| add_one(&guard))
            } else {
                let mut task = pin!(mutex.lock_async());
                poll(task.as_mut()).map(|guard| add_one(&guard))
            };
            add_one(&mutex.lock());
            holder.join().unwrap();
            let expected = if taken.is_ready() { 3 } else { 2 };
            assert_eq!(mutex.try_lock().unwrap().get(), expected);
        });
    }
}

type Rw = RwLock<Plain<u32>>;

fn read(lock: &Rw) {
    lock.read().get();
}

fn write(lock: &Rw) {
    add_one(&lock.write());
}

#[test]
fn a_writer_is_alone_and_sees_what_came_before() {
    bounded(3).check(|| {
        let lock = Arc::new(Rw::new(Plain::new(0)));
        threads(&lock, &[write, write]);
        assert_eq!(lock.try_write().unwrap().get(), 2);
    });
    bounded(2).check(|| {
        let lock = Arc::new(Rw::new(Plain::new(0)));
        threads(&lock, &[write, read, write]);
        assert_eq!(lock.try_write().unwrap().get(), 2);
    });
}

#[test]
fn a_writer_comes_after_all_readers() {
    bounded(2).check(|| {
        let lock = Arc::new(Rw::new(Plain::new(0)));
        threads(&lock, &[read, read, write]);
        assert_eq!(lock.try_write().unwrap().get(), 1);
    });
}

#[test]
fn a_writer_that_gives_up_lets_the_readers_behind_it_in() {
    // Dropped while somebody reads: the other need not wait for that.
    bounded(3).check(|| {
        let lock = Arc::new(Rw::new(Plain::new(0)));
        let guard = lock.read();
        let reader = {
            let mut writer = pin!(lock.write_async());
            assert!(poll(writer.as_mut()).is_pending());
            let lock = lock.clone();
            thread::spawn(move || read(&lock))
        };
        reader.join().unwrap();
        drop(guard);
        assert!(lock.try_write().is_ok());
    });
    // While the last reader leaves, or timed out.
    bounded(2).check(|| {
        let lock = Arc::new(Rw::new(Plain::new(0)));
        let hasty = |lock: &Rw| {
            let mut writer = pin!(lock.write_async());
            if let Poll::Ready(guard) = poll(writer.as_mut()) {
                add_one(&guard);
            }
        };
        let hastier = |lock: &Rw| {
            if let Ok(guard) = lock.write_timeout(Duration::ZERO) {
                add_one(&guard);
            }
        };
        threads(&lock, &[read, hasty, hastier]);
        read(&lock);
        assert!(lock.try_write().is_ok());
    });
}

#[test]
fn a_reader_s_future_that_was_let_in_and_is_dropped_leaves_again() {
    bounded(3).check(|| {
        let lock = Arc::new(Rw::new(Plain::new(0)));
        let writer = thread::spawn({
            let lock = lock.clone();
            move || write(&lock)
        });
        {
            let mut reader = pin!(lock.read_async());
            let _ = poll(reader.as_mut()).map(|guard| guard.get());
        }
        write(&lock);
        writer.join().unwrap();
        assert_eq!(lock.try_write().unwrap().get(), 2);
    });
}

#[test]
fn a_writer_that_becomes_a_reader_lets_readers_in_but_no_writer() {
    // The other need not wait for the end of the first.
    bounded(3).check(|| {
        let lock = Arc::new(Rw::new(Plain::new(0)));
        let guard = lock.write();
        let reader = thread::spawn({
            let lock = lock.clone();
            move || assert_eq!(lock.read().get(), 1)
        });
        guard.set(1);
        let guard = RwLockWriteGuard::downgrade(guard);
        reader.join().unwrap();
        drop(guard);
        assert!(lock.try_write().is_ok());
    });
    bounded(2).check(|| {
        let lock = Arc::new(Rw::new(Plain::new(0)));
        let guard = lock.write();
        let reader = thread::spawn({
            let lock = lock.clone();
            move || assert!(lock.read().get() >= 1)
        });
        let writer = thread::spawn({
            let lock = lock.clone();
            move || write(&lock)
        });
        guard.set(1);
        let guard = RwLockWriteGuard::downgrade(guard);
        assert_eq!(guard.get(), 1);
        drop(guard);
        writer.join().unwrap();
        reader.join().unwrap();
        assert_eq!(lock.try_write().unwrap().get(), 2);
    });
}

/// What a condition variable is used with.
struct Flagged {
    set: Mutex<Plain<bool>>,
    changed: Condvar,
}

impl Flagged {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            set: Mutex::new(Plain::new(false)),
            changed: Condvar::new(),
        })
    }

    fn set(&self) {
        self.set.lock().set(true);
    }

    fn wait(&self) {
        let guard = self.set.lock();
        let guard = self.changed.wait_while(guard, |set| !set.get());
        assert!(guard.get());
    }
}

#[test]
fn a_notification_after_the_change_is_not_missed() {
    bounded(3).check(|| {
        let flag = Flagged::new();
        let setter = |flag: &Flagged| {
            flag.set();
            flag.changed.notify_one();
        };
        threads(&flag, &[setter, Flagged::wait]);
    });
    bounded(2).check(|| {
        let flag = Flagged::new();
        let setter = |flag: &Flagged| {
            flag.set();
            flag.changed.notify_all();
        };
        threads(&flag, &[setter, Flagged::wait, Flagged::wait]);
    });
}

#[test]
fn a_wait_that_times_out_while_it_is_notified_swallows_nothing() {
    bounded(2).check(|| {
        let flag = Flagged::new();
        let setter = |flag: &Flagged| {
            flag.set();
            flag.changed.notify_one();
        };
        let hasty = |flag: &Flagged| {
            let guard = flag.set.lock();
            let (guard, result) = flag.changed.wait_timeout(guard, Duration::ZERO);
            if !result.timed_out() {
                // Only the setter notifies, and it was told.
                assert!(guard.get());
                drop(guard);
                flag.changed.notify_one();
            }
        };
        threads(&flag, &[setter, hasty, Flagged::wait]);
    });
}

#[test]
fn a_dropped_wait_of_a_task_passes_the_notification_on() {
    bounded(2).check(|| {
        let flag = Flagged::new();
        let waiter = {
            let mut task = pin!(flag.changed.wait_async(flag.set.try_lock().unwrap()));
            assert!(poll(task.as_mut()).is_pending());
            let waiter = thread::spawn({
                let flag = flag.clone();
                move || flag.wait()
            });
            flag.set();
            flag.changed.notify_one();
            waiter
        };
        waiter.join().unwrap();
    });
}
