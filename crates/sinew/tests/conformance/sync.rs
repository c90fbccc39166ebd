//! What every wait of `sinew::sync` has in common, for each operation and each
//! kind of waiter.

#[path = "../harness/poll.rs"]
mod poll;

mod channels;
mod locks;
mod operations;

use crate::harness::{runtime, wait_until, watch};
use crate::{CALLERS, Kind, TASKS, Waiting};
use operations::{Answer, CASES, Case, Early, How, Operation};
use poll::ByHand;
use sinew::{JoinHandle, Runtime, WaitReason};
use std::sync::Arc;
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);

/// Calls `test` for each operation, on one and on two workers; a hang names the
/// operation.
fn for_all(test: fn(&Runtime, &'static Case)) {
    let runtimes = [runtime(1), runtime(2)];
    let name = std::thread::current().name().unwrap_or("?").to_owned();
    for case in CASES {
        std::thread::scope(|scope| {
            let name = format!("{name}: {}", case.name);
            let body = || {
                let _watch = watch();
                for runtime in &runtimes {
                    test(runtime, case);
                }
            };
            let thread = std::thread::Builder::new().name(name);
            thread.spawn_scoped(scope, body).unwrap();
        });
    }
}

/// A fiber that waits, and is seen waiting.
fn parked(runtime: &Runtime, operation: &Arc<dyn Operation>, how: How) -> JoinHandle<Answer> {
    let operation = operation.clone();
    let handle = runtime.spawn(move || operation.wait(how));
    let fiber = handle.fiber();
    wait_until(|| {
        assert!(!fiber.is_finished(), "it ended instead of waiting");
        fiber.wait_reason() != WaitReason::None
    });
    handle
}

/// Lets everybody run who can.
fn settle() {
    for _ in 0..20 {
        std::thread::yield_now();
    }
}

impl Kind {
    /// Starts a waiter of this kind.
    fn start_wait(self, runtime: &Runtime, operation: &Arc<dyn Operation>) -> Waiting<Answer> {
        let operation = operation.clone();
        if !TASKS.contains(&self) {
            return self.start(runtime, move || operation.wait(How::Plain));
        }
        let (send, receive) = std::sync::mpsc::channel();
        let task = async move {
            operation.wait_async().await;
            let _ = send.send(Ok(Ok(())));
        };
        match self {
            Kind::TaskOnThread => drop(std::thread::spawn(move || sinew::block_on(task))),
            Kind::TaskOnFiber => drop(runtime.spawn(move || sinew::block_on(task))),
            Kind::TokioCurrent => drop(std::thread::spawn(move || {
                let tokio = crate::tokio_current();
                let task = tokio.spawn(task);
                tokio.block_on(task).unwrap();
            })),
            _ => drop(crate::tokio_multi().spawn(task)),
        }
        Waiting(receive)
    }
}

#[test]
fn every_kind_of_waiter_is_woken() {
    for_all(|runtime, case| {
        for kind in crate::all() {
            let operation = (case.make)(1);
            let waiting = kind.start_wait(runtime, &operation);
            if case.remembers {
                settle();
                assert!(waiting.0.try_recv().is_err(), "{kind:?} did not wait");
                operation.release();
                assert_eq!(waiting.get(), Ok(()), "{}: {kind:?}", case.name);
            } else {
                // Whether it waits already cannot be seen of all kinds.
                let answer = loop {
                    operation.release();
                    if let Ok(answer) = waiting.0.try_recv() {
                        break answer;
                    }
                    std::thread::yield_now();
                };
                assert_eq!(answer.unwrap(), Ok(()), "{}: {kind:?}", case.name);
            }
        }
    });
}

#[test]
fn a_release_that_came_first_lets_every_kind_pass() {
    for_all(|runtime, case| {
        if !case.remembers {
            return;
        }
        for kind in crate::all() {
            let operation = (case.make)(1);
            operation.release();
            let waiting = kind.start_wait(runtime, &operation);
            assert_eq!(waiting.get(), Ok(()), "{}: {kind:?}", case.name);
        }
    });
}

#[test]
fn a_parked_fiber_is_released_by_every_kind_of_caller() {
    for_all(|runtime, case| {
        for kind in CALLERS {
            let operation = (case.make)(1);
            let waiter = parked(runtime, &operation, How::Plain);
            let theirs = operation.clone();
            // A fiber of the same worker joins a thread in some of them.
            kind.start(runtime, move || sinew::blocking(|| theirs.release()))
                .get();
            assert_eq!(waiter.join().unwrap(), Ok(()), "{}: {kind:?}", case.name);
        }
    });
}

#[test]
fn a_parked_fiber_says_where_and_that_it_waits() {
    for_all(|runtime, case| {
        let operation = (case.make)(1);
        let waiter = parked(runtime, &operation, How::Plain);
        let at = waiter.fiber().waits_at().unwrap();
        operation.release();
        assert_eq!(waiter.join().unwrap(), Ok(()), "{}", case.name);
        let here = file!().trim_end_matches(".rs");
        assert!(at.file().starts_with(here), "{}: {at}", case.name);
    });
}

#[test]
fn a_wait_that_times_out_is_not_early_and_takes_nothing() {
    for_all(|runtime, case| {
        for kind in CALLERS {
            let operation = (case.make)(1);
            let theirs = operation.clone();
            let late = kind.start(runtime, move || {
                for micros in [0, 200] {
                    let time = Duration::from_micros(micros);
                    let begun = Instant::now();
                    assert_eq!(theirs.wait(How::For(time)), Err(Early::Timeout));
                    assert!(begun.elapsed() >= time);
                }
            });
            late.get();
            let waiter = parked(runtime, &operation, How::For(HOUR));
            operation.release();
            assert_eq!(waiter.join().unwrap(), Ok(()), "{}: {kind:?}", case.name);
        }
    });
}

#[test]
fn one_that_times_out_does_not_hold_up_the_next() {
    for_all(|runtime, case| {
        if !case.many {
            return;
        }
        let operation = (case.make)(1);
        let theirs = operation.clone();
        let late = runtime.spawn(move || theirs.wait(How::For(Duration::from_micros(500))));
        let theirs = operation.clone();
        let fiber = late.fiber();
        wait_until(|| fiber.is_finished() || fiber.wait_reason() != WaitReason::None);
        if case.gathers {
            assert_eq!(late.join().unwrap(), Err(Early::Timeout));
            return;
        }
        let waiter = runtime.spawn(move || theirs.wait(How::Plain));
        assert_eq!(late.join().unwrap(), Err(Early::Timeout), "{}", case.name);
        let fiber = waiter.fiber();
        wait_until(|| fiber.wait_reason() != WaitReason::None);
        operation.release();
        assert_eq!(waiter.join().unwrap(), Ok(()), "{}", case.name);
    });
}

#[test]
fn a_parked_fiber_that_is_cancelled_says_so_and_takes_nothing() {
    for_all(|runtime, case| {
        let operation = (case.make)(1);
        let mut ways = vec![How::OrCancelled];
        if case.point {
            ways.extend([How::Plain, How::For(HOUR)]);
        }
        for how in ways {
            let waiter = parked(runtime, &operation, how);
            waiter.cancel();
            let cancelled = Err(Early::Cancelled);
            assert_eq!(waiter.join().unwrap(), cancelled, "{}: {how:?}", case.name);
        }
        let waiter = parked(runtime, &operation, How::Plain);
        operation.release();
        assert_eq!(waiter.join().unwrap(), Ok(()), "{}", case.name);
    });
}

#[test]
fn what_is_no_point_goes_on_waiting_when_cancelled() {
    for_all(|runtime, case| {
        if case.point {
            return;
        }
        for how in [How::Plain, How::For(HOUR)] {
            let operation = (case.make)(1);
            let waiter = parked(runtime, &operation, how);
            waiter.cancel();
            settle();
            assert!(!waiter.is_finished(), "{}: {how:?}", case.name);
            operation.release();
            assert_eq!(waiter.join().unwrap(), Ok(()), "{}: {how:?}", case.name);
        }
    });
}

#[test]
fn a_point_says_so_on_entry_though_it_is_ready() {
    for_all(|runtime, case| {
        let operation = (case.make)(1);
        let theirs = operation.clone();
        let answers = runtime.spawn(move || {
            sinew::current().cancel();
            if theirs.wait(How::OrCancelled).is_ok() {
                return Ok(());
            }
            let other = theirs.clone(); // who is not cancelled
            std::thread::spawn(move || other.release()).join().unwrap();
            theirs.wait(How::OrCancelled)
        });
        let answer = answers.join().unwrap();
        assert_eq!(answer, Err(Early::Cancelled), "{}", case.name);
        if case.remembers {
            let waiter = runtime.spawn(move || operation.wait(How::Plain));
            assert_eq!(waiter.join().unwrap(), Ok(()), "{}", case.name);
        }
    });
}

#[test]
fn a_thread_is_not_cancelled() {
    for_all(|runtime, case| {
        if !case.remembers {
            return;
        }
        let operation = (case.make)(1);
        let theirs = operation.clone();
        let waiting = Kind::Thread.start(runtime, move || {
            sinew::current().cancel();
            theirs.wait(How::OrCancelled)
        });
        settle();
        operation.release();
        assert_eq!(waiting.get(), Ok(()), "{}", case.name);
    });
}

#[test]
fn a_future_is_woken_through_its_latest_waker() {
    for_all(|_, case| {
        let operation = (case.make)(1);
        let mut future = ByHand::waiting(operation.clone().wait_async());
        assert!(future.poll().is_none());
        assert!(future.poll_elsewhere().is_none());
        assert!(!future.is_woken(), "{}", case.name);
        operation.release();
        wait_until(|| future.is_woken()); // some are released by a thread
        future.woken();
    });
}

#[test]
fn a_future_that_is_dropped_while_it_waits_takes_nothing() {
    for_all(|runtime, case| {
        for kind in [Kind::Fiber, Kind::Thread, Kind::TokioMulti] {
            let operation = (case.make)(1);
            drop(operation.clone().wait_async()); // never polled
            drop(ByHand::waiting(operation.clone().wait_async()));
            if !case.remembers || kind == Kind::Fiber {
                let waiter = parked(runtime, &operation, How::Plain);
                operation.release();
                assert_eq!(waiter.join().unwrap(), Ok(()), "{}", case.name);
            } else {
                let waiting = kind.start_wait(runtime, &operation);
                settle();
                assert!(waiting.0.try_recv().is_err(), "{}", case.name);
                operation.release();
                assert_eq!(waiting.get(), Ok(()), "{}", case.name);
            }
        }
    });
}

#[test]
fn a_future_that_is_dropped_leaves_the_line_in_front_of_and_behind_others() {
    for_all(|runtime, case| {
        if !case.many || case.gathers {
            return;
        }
        for first in [false, true] {
            let operation = (case.make)(1);
            let mut dropped = None;
            if first {
                dropped = Some(ByHand::waiting(operation.clone().wait_async()));
            }
            let waiter = parked(runtime, &operation, How::Plain);
            if !first {
                dropped = Some(ByHand::waiting(operation.clone().wait_async()));
            }
            drop(dropped);
            operation.release();
            assert_eq!(waiter.join().unwrap(), Ok(()), "{}: {first}", case.name);
        }
    });
}

#[test]
fn a_future_that_is_dropped_when_it_was_claimed_passes_that_on() {
    for_all(|runtime, case| {
        if !case.many || case.done_when_claimed && !case.gathers {
            return;
        }
        // To a fiber, and to another future.
        let operation = (case.make)(2);
        let claimed = ByHand::waiting(operation.clone().wait_async());
        let waiter = parked(runtime, &operation, How::Plain);
        operation.release();
        wait_until(|| claimed.is_woken());
        drop(claimed);
        assert_eq!(waiter.join().unwrap(), Ok(()), "{}", case.name);

        let operation = (case.make)(2);
        let claimed = ByHand::waiting(operation.clone().wait_async());
        let second = ByHand::waiting(operation.clone().wait_async());
        operation.release();
        wait_until(|| claimed.is_woken());
        drop(claimed);
        wait_until(|| second.is_woken());
        second.woken();
    });
}

#[test]
fn a_future_that_is_dropped_when_it_was_claimed_leaves_it_for_who_comes_later() {
    for_all(|runtime, case| {
        if !case.remembers || case.done_when_claimed {
            return;
        }
        for kind in [Kind::Fiber, Kind::Thread, Kind::TokioMulti] {
            let operation = (case.make)(1);
            let claimed = ByHand::waiting(operation.clone().wait_async());
            operation.release();
            wait_until(|| claimed.is_woken()); // some are released by a thread
            drop(claimed);
            let waiting = kind.start_wait(runtime, &operation);
            assert_eq!(waiting.get(), Ok(()), "{}: {kind:?}", case.name);
        }
    });
}

#[test]
fn a_cancel_or_timeout_that_races_with_the_release_loses_nothing() {
    for_all(|runtime, case| {
        for round in 0..40 {
            let operation = (case.make)(1);
            let how = match round % 2 {
                0 => How::OrCancelled,
                _ => How::For(Duration::from_micros(round * 3)),
            };
            let theirs = operation.clone();
            let waiter = runtime.spawn(move || theirs.wait(how));
            let fiber = waiter.fiber();
            wait_until(|| fiber.is_finished() || fiber.wait_reason() != WaitReason::None);
            let theirs = operation.clone();
            let releaser = std::thread::spawn(move || theirs.release());
            waiter.cancel();
            let answer = waiter.join().unwrap();
            releaser.join().unwrap();
            // Whoever comes later passes, unless the first took what there was.
            if answer.is_err() && case.remembers {
                let theirs = operation.clone();
                let next = runtime.spawn(move || theirs.wait(How::Plain));
                assert_eq!(next.join().unwrap(), Ok(()), "{}: {how:?}", case.name);
            }
        }
    });
}
