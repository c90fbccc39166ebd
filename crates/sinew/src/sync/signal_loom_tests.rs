//! Models of the signals: `event`, `notify`, `once` and `promise`, with threads and
//! tasks as waiters.
//!
//! Every ordering below was weakened once by hand; the model named caught it.
//!
//! | weakened                                       | caught by |
//! |------------------------------------------------|-----------|
//! | `Event::is_set` Acquire → Relaxed              | both models of the event |
//! | `Event::set` Release → Relaxed                 | both models of the event |
//! | `Notify::notify_one` Release → Relaxed         | `each_notification…`, `who_takes_the_permit…`, `a_dropped_future…` |
//! | `Notify::notify_one_slow`, exchange Release → Relaxed | `who_takes_the_permit…` |
//! | `Notify::notify_one_slow`, store of `PERMIT` Release → Relaxed | `a_select_that_chose_another_arm…` |
//! | `Notify::notify_one_slow`, store of `EMPTY` Release → Relaxed | nothing: not needed (1) |
//! | `Notify::notify_waiters` AcqRel → Acquire      | `who_polls_once…` |
//! | `Notify::notify_waiters` AcqRel → Release      | nothing: not needed (2) |
//! | `Notify::try_wait` Acquire → Relaxed           | `each_notification…`, `who_takes_the_permit…`, `a_dropped_future…` |
//! | `Notify::line_may_be_empty` Release → Relaxed  | nothing: not needed (1) |
//! | `NotifyWait::enlist`, `WAITERS` AcqRel → Acquire | nothing: not needed (2) |
//! | `NotifyWait::enlist`, `WAITERS` AcqRel → Release | `who_polls_once…` |
//! | `NotifyWait::enlist`, `HELD` Acquire → Relaxed | nothing (3) |
//! | `NotifyWait::enlist`, swap AcqRel → either half | nothing (2, 3) |
//! | both: `HELD` → Relaxed and swap → Release      | `each_notification…`, `a_dropped_future…` |
//! | `Once::is_completed` Acquire → Relaxed         | `a_watcher…`, `of_two_who_initialise…` |
//! | `Once::try_begin`, load Acquire → Relaxed      | `one_of_those_in_line…`, `of_two_who_initialise…` |
//! | `Once::try_begin`, success Acquire → Relaxed   | `one_of_those_in_line…` |
//! | `Once::try_begin`, failure Acquire → Relaxed   | `one_of_those_in_line…`, `of_two_who_initialise…` |
//! | `Once::failed`, exchange Release → Relaxed     | `one_of_those_in_line…` |
//! | `Once::failed`, `fetch_or` Release → Relaxed   | nothing: who was claimed is ordered by that |
//! | `Once::failed`, store Release → Relaxed        | `one_of_those_in_line…` |
//! | `Once::about_to_stand`, load and failure Acquire → Relaxed | `a_watcher…` |
//! | `Once::about_to_stand`, success Acquire → Relaxed | nothing: who has to wait is ordered by its notification |
//! | `Attempt::complete` AcqRel → Acquire           | `a_watcher…`, `one_of_those_in_line…`, `of_two_who_initialise…` |
//! | `Attempt::complete` AcqRel → Release           | nothing: the lock orders the rest |
//! | `Shared::is_decided` Acquire → Relaxed         | `a_promise_is_kept…`, `a_task_or_a_callback…` |
//! | `Shared::decide` AcqRel → Acquire              | all models of the promise |
//! | `Shared::decide` AcqRel → Release              | `a_value_that_nobody_waits_for…` |
//! | `Shared::listen` Acquire → Relaxed             | `the_first_of_two_promises…` |
//! | `Shared::leave` AcqRel → either half           | `a_value_that_nobody_waits_for…` |
//!
//! (1) Both are under the lock of the line, which who stands in line next takes.
//! (2) A read-modify-write carries on what others have released. (3) One of the two
//! must acquire what came before the permit.

use super::count_loom_tests::{With, with};
use super::loom_tests::{Executor, bounded, threads};
use super::{Event, Future as Promised, Notify, Once, OnceLock, promise};
use crate::primitive::model::Plain;
use crate::primitive::{AtomicUsize, Ordering};
use crate::wait::select::{ArmRef, OnCancel, OperationArm, Patience, SelectSpec, Selected, select};
use loom::sync::Arc;
use loom::thread;
use std::panic::Location;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

#[test]
fn who_passes_an_event_sees_what_came_before_it_was_set() {
    bounded(3).check(|| {
        let waits = |event: &With<Event>| {
            event.0.wait().unwrap();
            assert_eq!(event.1[0].get(), 7);
        };
        let looks = |event: &With<Event>| {
            if event.0.is_set() {
                assert_eq!(event.1[0].get(), 7);
            }
        };
        let sets = |event: &With<Event>| {
            event.1[0].set(7);
            event.0.set();
        };
        threads(&with(Event::new()), &[waits, sets, looks]);
    });
}

#[test]
fn an_event_that_is_set_and_unset_wakes_who_waited() {
    // The task waits before it is set; the thread may come too late, but for a
    // second time.
    bounded(3).check(|| {
        let event = with(Event::new());
        let executor = Executor::new();
        let mut task = pin!(event.0.wait_async());
        assert!(executor.poll(task.as_mut()).is_pending());
        let setter = thread::spawn({
            let event = event.clone();
            move || {
                event.1[0].set(7);
                event.0.set();
                event.0.reset();
            }
        });
        let again = executor.poll(task.as_mut());
        setter.join().unwrap();
        assert!(again.is_ready() || executor.wakes() == 1);
        assert!(again.is_ready() || executor.poll(task.as_mut()).is_ready());
        assert_eq!(event.1[0].get(), 7);
        assert!(!event.0.is_set());
    });
    // One that gives up, or is dropped, leaves nothing behind.
    bounded(3).check(|| {
        let event = with(Event::new());
        let setter = thread::spawn({
            let event = event.clone();
            move || {
                event.1[0].set(7);
                event.0.set();
            }
        });
        if event.0.wait_timeout(Duration::ZERO).is_ok() {
            assert_eq!(event.1[0].get(), 7);
        }
        {
            let mut task = pin!(event.0.wait_async());
            let _ = Executor::new().poll(task.as_mut());
        }
        setter.join().unwrap();
        assert!(event.0.try_wait());
    });
}

#[test]
fn each_notification_ends_one_wait() {
    bounded(3).check(|| {
        let waits = |notify: &With<Notify>| {
            notify.0.wait().unwrap();
            assert_eq!(notify.1[0].get(), 7);
        };
        let notifies = |notify: &With<Notify>| {
            notify.1[0].set(7);
            notify.0.notify_one();
        };
        threads(&with(Notify::new()), &[waits, notifies]);
    });
    // Two who each wait for one, and who notifies twice: two permits may become
    // one, but not while somebody waits.
    bounded(2).check(|| {
        let notify = with(Notify::new());
        let waits = |notify: &With<Notify>| {
            notify.0.wait().unwrap();
            // Another may use what it is about now.
            notify.0.notify_one();
        };
        let notifies = |notify: &With<Notify>| notify.0.notify_one();
        threads(&notify, &[waits, waits, notifies]);
        assert!(notify.0.try_wait());
    });
}

#[test]
fn who_takes_the_permit_sees_what_came_before_each_notification_it_stands_for() {
    bounded(2).check(|| {
        let notify = Arc::new((Notify::new(), AtomicUsize::new(0)));
        let adds = |notify: &(Notify, AtomicUsize)| {
            notify.1.fetch_add(1, Ordering::Relaxed);
            notify.0.notify_one();
        };
        let waits = |notify: &(Notify, AtomicUsize)| {
            while notify.1.load(Ordering::Relaxed) < 2 {
                notify.0.wait().unwrap();
            }
        };
        threads(&notify, &[adds, adds, waits]);
    });
}

#[test]
fn who_polls_once_and_looks_sees_it_or_is_woken() {
    // Two: one whom the line was empty for, and one who finds it so again.
    for before in [false, true] {
        bounded(3).check(move || {
            let notify = Arc::new((Notify::new(), AtomicUsize::new(0)));
            let notifier = thread::spawn({
                let notify = notify.clone();
                move || {
                    notify.1.store(1, Ordering::Relaxed);
                    notify.0.notify_waiters();
                }
            });
            if before {
                let mut gone = pin!(notify.0.wait_async());
                let _ = Executor::new().poll(gone.as_mut());
            }
            let executor = Executor::new();
            let mut wait = pin!(notify.0.wait_async());
            let pending = executor.poll(wait.as_mut()).is_pending();
            assert!(pending, "no permit was left");
            let seen = notify.1.load(Ordering::Relaxed) == 1;
            notifier.join().unwrap();
            assert!(seen || executor.wakes() == 1);
        });
    }
}

#[test]
fn a_dropped_future_passes_its_notification_on() {
    bounded(3).check(|| {
        let notify = with(Notify::new());
        let notifier = thread::spawn({
            let notify = notify.clone();
            move || {
                notify.1[0].set(7);
                notify.0.notify_one();
            }
        });
        let taken = {
            let mut wait = pin!(notify.0.wait_async());
            Executor::new().poll(wait.as_mut()).is_ready()
        };
        let kept = notify.0.try_wait();
        if taken || kept {
            assert_eq!(notify.1[0].get(), 7);
        }
        notifier.join().unwrap();
        assert_eq!(kept || notify.0.try_wait(), !taken);
    });
    // To a thread that stands behind it.
    bounded(2).check(|| {
        let notify = with(Notify::new());
        let waiter = {
            let mut wait = pin!(notify.0.wait_async());
            assert!(Executor::new().poll(wait.as_mut()).is_pending());
            let waiter = thread::spawn({
                let notify = notify.clone();
                move || {
                    notify.0.wait().unwrap();
                    assert_eq!(notify.1[0].get(), 7);
                }
            });
            notify.1[0].set(7);
            notify.0.notify_one();
            waiter
        };
        waiter.join().unwrap();
        assert!(!notify.0.try_wait());
    });
}

#[test]
fn a_select_that_chose_another_arm_leaves_the_notification() {
    bounded(2).check(|| {
        let shared = with((Event::new(), Notify::new()));
        let setter = thread::spawn({
            let shared = shared.clone();
            move || shared.0.0.set()
        });
        let notifier = thread::spawn({
            let shared = shared.clone();
            move || {
                shared.1[0].set(7);
                shared.0.1.notify_one();
            }
        });
        let looker = thread::spawn({
            let shared = shared.clone();
            move || {
                let found = shared.0.1.try_wait();
                assert!(!found || shared.1[0].get() == 7);
                found
            }
        });
        let event = OperationArm::no_point(shared.0.0.operation());
        let notify = OperationArm::no_point(shared.0.1.operation());
        // In random order a run of the model could not be repeated.
        let spec = SelectSpec {
            biased: true,
            patience: Patience::Until(None),
            on_cancel: OnCancel::TellCaller,
            at: Location::caller(),
        };
        let selected = select(&[ArmRef::new(&event), ArmRef::new(&notify)], &spec);
        let taken = selected == Selected::Arm(1);
        if taken {
            assert_eq!(shared.1[0].get(), 7);
        }
        setter.join().unwrap();
        notifier.join().unwrap();
        let found = looker.join().unwrap();
        let left = shared.0.1.try_wait();
        assert_eq!([taken, found, left].iter().filter(|it| **it).count(), 1);
    });
}

#[test]
fn a_wait_that_times_out_takes_no_notification_along() {
    bounded(3).check(|| {
        let notify = with(Notify::new());
        let notifier = thread::spawn({
            let notify = notify.clone();
            move || {
                notify.1[0].set(7);
                notify.0.notify_one();
            }
        });
        let taken = notify.0.wait_timeout(Duration::ZERO).is_ok();
        if taken {
            assert_eq!(notify.1[0].get(), 7);
        }
        notifier.join().unwrap();
        assert_eq!(notify.0.try_wait(), !taken);
    });
}

/// Something done once, what it writes, and how often it was begun.
type Done = (Once, Plain<u32>, AtomicUsize);

fn done() -> Arc<Done> {
    Arc::new((Once::new(), Plain::new(0), AtomicUsize::new(0)))
}

#[test]
fn one_of_those_in_line_takes_over_a_failed_attempt() {
    for panics in [false, true] {
        let fails: fn(&Done) = if panics {
            // As an initialiser that unwinds.
            |done| {
                if let Some(attempt) = done.0.begin(Location::caller()) {
                    done.1.set(1);
                    drop(attempt);
                }
            }
        } else {
            |done| {
                if let Some(attempt) = done.0.begin(Location::caller()) {
                    done.1.set(1);
                    attempt.give_up();
                }
            }
        };
        let runs: fn(&Done) = |done| {
            if let Some(attempt) = done.0.begin(Location::caller()) {
                assert_eq!(done.2.fetch_add(1, Ordering::Relaxed), 0, "done twice");
                done.1.set(7);
                attempt.complete();
            }
            assert_eq!(done.1.get(), 7);
        };
        bounded(2).check(move || {
            let once = done();
            threads(&once, &[fails, runs, runs]);
            assert_eq!(once.2.load(Ordering::Relaxed), 1);
            assert!(once.0.is_completed());
        });
        bounded(3).check(move || {
            let once = done();
            threads(&once, &[runs, fails]);
            assert!(once.0.is_completed());
        });
        // One in line only waits for the end.
        bounded(2).check(move || {
            let once = done();
            threads(&once, &[|done| done.0.wait(), fails, runs]);
            assert!(once.0.is_completed());
        });
    }
}

#[test]
fn a_watcher_sees_what_the_initialiser_did() {
    bounded(3).check(|| {
        let watches = |done: &Done| {
            done.0.wait();
            assert_eq!(done.1.get(), 7);
        };
        let runs = |done: &Done| {
            done.0.begin(Location::caller()).unwrap().give_up();
            let attempt = done.0.begin(Location::caller()).unwrap();
            done.1.set(7);
            attempt.complete();
        };
        threads(&done(), &[watches, runs]);
    });
    // A task's future is dropped, or told.
    bounded(3).check(|| {
        let once = done();
        let runner = thread::spawn({
            let once = once.clone();
            move || {
                let attempt = once.0.begin(Location::caller()).unwrap();
                once.1.set(7);
                attempt.complete();
            }
        });
        let executor = Executor::new();
        let mut watch = pin!(once.0.wait_async());
        let first = executor.poll(watch.as_mut());
        if first.is_ready() {
            assert_eq!(once.1.get(), 7);
        } else {
            runner.join().unwrap();
            assert_eq!(executor.wakes(), 1);
            assert!(executor.poll(watch.as_mut()).is_ready());
            return;
        }
        runner.join().unwrap();
    });
}

#[test]
fn of_two_who_initialise_a_cell_one_does_and_both_see_it() {
    bounded(3).check(|| {
        let cell: Arc<OnceLock<Plain<u32>>> = Arc::new(OnceLock::new());
        let other = thread::spawn({
            let cell = cell.clone();
            move || {
                let value = cell.get_or_init(|| {
                    let value = Plain::new(0);
                    value.set(1);
                    value
                });
                value.get()
            }
        });
        if let Some(value) = cell.get() {
            assert_eq!(value.get(), 1);
        }
        let mine = cell.get_or_init(|| {
            let value = Plain::new(0);
            value.set(2);
            value
        });
        assert_eq!(other.join().unwrap(), mine.get());
    });
}

#[test]
fn a_promise_is_kept_to_who_waits() {
    for kept in [true, false] {
        bounded(3).check(move || {
            let (promise, mut future) = promise::<u32>();
            let cell = Arc::new(Plain::new(0));
            let keeper = thread::spawn({
                let cell = cell.clone();
                move || {
                    cell.set(7);
                    if kept {
                        promise.set(1).unwrap();
                    }
                }
            });
            if let Some(outcome) = future.try_take() {
                assert_eq!(outcome.is_ok(), kept);
            } else {
                assert_eq!(future.wait().is_ok(), kept);
            }
            assert_eq!(cell.get(), 7);
            keeper.join().unwrap();
        });
    }
    // After it has given up once.
    bounded(3).check(|| {
        let (promise, mut future) = promise::<u32>();
        let cell = Arc::new(Plain::new(0));
        let keeper = thread::spawn({
            let cell = cell.clone();
            move || {
                cell.set(7);
                promise.set(1).unwrap();
            }
        });
        let soon = future.wait_timeout(Duration::ZERO);
        assert_eq!(soon.or_else(|_| future.wait()), Ok(1));
        assert_eq!(cell.get(), 7);
        keeper.join().unwrap();
    });
}

/// Reads what the other side wrote when it is dropped.
struct Checked(Arc<Plain<u32>>);

impl Drop for Checked {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn a_value_that_nobody_waits_for_is_dropped_once() {
    bounded(3).check(|| {
        let before = Arc::new(Plain::new(0));
        let value = Arc::new(Plain::new(0));
        let (promise, future) = promise::<Checked>();
        let keeper = thread::spawn({
            let (before, value) = (before.clone(), value.clone());
            move || {
                value.set(7);
                if let Err(value) = promise.set(Checked(value)) {
                    // What came before the future was dropped.
                    assert_eq!(before.get(), 7);
                    drop(value);
                }
            }
        });
        before.set(7);
        drop(future);
        keeper.join().unwrap();
        assert_eq!(value.get(), 8);
    });
}

#[test]
fn a_task_or_a_callback_is_told() {
    bounded(3).check(|| {
        let cell = Arc::new(Plain::new(0));
        let (promise, mut future) = promise::<u32>();
        let keeper = thread::spawn({
            let cell = cell.clone();
            move || {
                cell.set(7);
                promise.set(1).unwrap();
            }
        });
        let executor = Executor::new();
        let mut outcome = executor.poll(pin!(&mut future));
        if outcome.is_pending() {
            while executor.wakes() == 0 {
                thread::yield_now();
            }
            outcome = executor.poll(pin!(&mut future));
        }
        assert_eq!(outcome, Poll::Ready(Ok(1)));
        assert_eq!(cell.get(), 7);
        keeper.join().unwrap();
    });
    bounded(3).check(|| {
        let cell = Arc::new(Plain::new(0));
        let (promise, future) = promise::<u32>();
        let keeper = thread::spawn({
            let cell = cell.clone();
            move || {
                cell.set(7);
                promise.set(1).unwrap();
            }
        });
        future.subscribe({
            let cell = cell.clone();
            move |value| {
                assert_eq!(value, Ok(1));
                assert_eq!(cell.get(), 7);
                cell.set(8);
            }
        });
        keeper.join().unwrap();
        assert_eq!(cell.get(), 8);
    });
}

#[test]
fn the_first_of_two_promises_ends_a_wait_for_any() {
    bounded(2).check(|| {
        let cells = Arc::new([Plain::new(0), Plain::new(0)]);
        let (first, mut future) = promise::<usize>();
        let (second, mut other) = promise::<usize>();
        let keepers = [(0, first), (1, second)].map(|(which, promise)| {
            let cells = cells.clone();
            thread::spawn(move || {
                cells[which].set(7);
                promise.set(which).unwrap();
            })
        });
        let which = Promised::wait_any(&mut [&mut future, &mut other]).unwrap();
        assert_eq!(cells[which].get(), 7);
        for keeper in keepers {
            keeper.join().unwrap();
        }
        assert_eq!(future.try_take(), Some(Ok(0)));
        assert_eq!(other.try_take(), Some(Ok(1)));
    });
}
