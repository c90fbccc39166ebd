//! `Promise` and `Future`: one value, from one producer to one consumer.

use super::poll::ByHand;
use super::{HOUR, SHORT, settle, spawn_parked};
use crate::harness::{Log, OnDrop, in_fibers, is_expected, panic_expected};
use crate::harness::{wait_until, watch};
use sinew::sync::{Broken, Future, Promise, WaitFutureError, WaitFutureTimeoutError, promise};
use sinew::time::Instant;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[test]
fn a_value_that_was_set_is_there() {
    let (promise, mut future) = promise();
    assert!(!future.is_set());
    assert!(future.try_take().is_none());
    assert_eq!(promise.set(String::from("x")), Ok(()));
    assert!(future.is_set());
    assert_eq!(future.wait(), Ok(String::from("x")));

    let (promise, mut future) = self::promise::<u32>();
    promise.set(1).unwrap();
    assert_eq!(future.try_take(), Some(Ok(1)));
    let (promise, mut future) = self::promise::<u32>();
    promise.set(2).unwrap();
    assert_eq!(future.wait_timeout(Duration::ZERO), Ok(2));
    let (promise, mut future) = self::promise::<u32>();
    promise.set(3).unwrap();
    assert_eq!(future.wait_deadline(Instant::now()), Ok(3));
}

#[test]
fn who_waits_is_woken_by_the_value() {
    in_fibers(|| {
        let (promise, mut future) = promise::<Box<u32>>();
        let waiter = spawn_parked(move || future.wait());
        settle();
        assert!(!waiter.is_finished());
        promise.set(Box::new(5)).unwrap();
        assert_eq!(waiter.join().unwrap(), Ok(Box::new(5)));
    });
}

#[test]
fn a_promise_that_is_dropped_is_broken() {
    in_fibers(|| {
        let (promise, mut future) = promise::<u32>();
        drop(promise);
        assert!(future.is_set());
        assert_eq!(future.try_take(), Some(Err(Broken)));

        let (promise, mut future) = self::promise::<u32>();
        let waiter = spawn_parked(move || future.wait());
        let panics = sinew::spawn(move || {
            let _promise: Promise<u32> = promise;
            panic_expected(1)
        });
        assert_eq!(waiter.join().unwrap(), Err(WaitFutureError::Broken));
        assert!(panics.join().map(|()| ()).unwrap_err().is_panic());

        let (promise, mut future) = self::promise::<u32>();
        let waiter = spawn_parked(move || future.wait_timeout(HOUR));
        drop(promise);
        let broken = Err(WaitFutureTimeoutError::Broken);
        assert_eq!(waiter.join().unwrap(), broken);
    });
}

#[test]
fn a_value_for_nobody_comes_back() {
    let (promise, future) = promise();
    drop(future);
    assert_eq!(promise.set(7), Err(7));
    let (promise, future) = self::promise::<u32>();
    drop((promise, future));
}

#[test]
fn every_value_is_dropped_once() {
    let drops = Arc::new(AtomicUsize::new(0));
    let spy = || {
        let drops = drops.clone();
        OnDrop(move || {
            drops.fetch_add(1, Ordering::SeqCst);
        })
    };
    let count = || drops.load(Ordering::SeqCst);
    let (promise, future) = promise();
    assert!(promise.set(spy()).is_ok());
    drop(future); // set, and never taken
    assert_eq!(count(), 1);
    let (promise, mut future) = self::promise();
    assert!(promise.set(spy()).is_ok());
    drop(future.wait().ok().unwrap());
    drop(future);
    assert_eq!(count(), 2);
    let (promise, mut future) = self::promise();
    assert!(promise.set(spy()).is_ok());
    let again = future.reset(); // forgets the value
    assert_eq!(count(), 3);
    drop((again, future));
    assert_eq!(count(), 3);
}

#[test]
fn a_future_is_used_again_after_a_reset() {
    in_fibers(|| {
        let (mut promise, mut future) = promise();
        for i in 0..50 {
            let producer = sinew::spawn(move || promise.set(i));
            assert_eq!(future.wait(), Ok(i));
            producer.join().unwrap().unwrap();
            promise = future.reset();
            assert!(!future.is_set());
            assert!(future.try_take().is_none());
        }
    });
}

#[test]
fn a_promise_from_before_a_reset_does_not_reach_the_future() {
    let (old, mut future) = promise();
    let new = future.reset();
    assert_eq!(old.set(1), Err(1));
    assert!(!future.is_set());
    assert_eq!(new.set(2), Ok(()));
    assert_eq!(future.wait(), Ok(2));
}

#[test]
fn a_timeout_is_not_early_and_the_value_may_still_come() {
    in_fibers(|| {
        let (promise, mut future) = promise();
        let late = Err(WaitFutureTimeoutError::Timeout);
        for time in [Duration::ZERO, SHORT] {
            let begun = Instant::now();
            assert_eq!(future.wait_timeout(time), late);
            assert!(begun.elapsed() >= time);
            let until = Instant::now() + time;
            assert_eq!(future.wait_deadline(until), late);
            assert!(Instant::now() >= until);
        }
        let waiter = spawn_parked(move || future.wait_timeout(HOUR));
        promise.set(4).unwrap();
        assert_eq!(waiter.join().unwrap(), Ok(4));
    });
}

#[test]
fn waiting_is_a_point_and_the_value_is_not_lost() {
    in_fibers(|| {
        let (promise, mut future) = promise();
        let waiter = spawn_parked(move || {
            assert_eq!(future.wait(), Err(WaitFutureError::Cancelled));
            assert_eq!(
                future.wait_timeout(HOUR),
                Err(WaitFutureTimeoutError::Cancelled)
            );
            future
        });
        waiter.cancel();
        let mut future = waiter.join().unwrap();
        promise.set(1).unwrap();
        // On entry, too, and it is still there for one who was not cancelled.
        let cancelled = sinew::spawn(move || {
            sinew::current().cancel();
            assert_eq!(future.wait(), Err(WaitFutureError::Cancelled));
            assert_eq!(Future::wait_any(&mut [&mut future]), Err(sinew::Cancelled));
            future
        });
        assert_eq!(cancelled.join().unwrap().wait(), Ok(1));
    });
}

#[test]
fn a_subscriber_is_called_by_who_sets_it_or_at_once() {
    in_fibers(|| {
        let log = Log::new();
        let (promise, future) = promise();
        let theirs = log.clone();
        future.subscribe(move |value| theirs.push((value, sinew::current().id())));
        assert_eq!(log.len(), 0);
        let producer = sinew::spawn(move || {
            assert_eq!(promise.set(1), Ok(()));
            sinew::current().id()
        });
        let by = producer.join().unwrap();
        assert_eq!(log.take(), [(Ok(1), by)]);

        let (promise, future) = self::promise();
        promise.set(2).unwrap();
        let theirs = log.clone();
        future.subscribe(move |value| theirs.push((value, sinew::current().id())));
        assert_eq!(log.take(), [(Ok(2), sinew::current().id())]);

        let (promise, future) = self::promise();
        let theirs = log.clone();
        future.subscribe(move |value| theirs.push((value, sinew::current().id())));
        drop(promise);
        assert_eq!(log.take(), [(Err(Broken), sinew::current().id())]);
    });
}

#[test]
fn a_subscriber_may_wait_and_set_other_promises() {
    in_fibers(|| {
        let (first, future) = promise::<u32>();
        let (second, mut last) = promise::<u32>();
        future.subscribe(move |value| {
            sinew::yield_now();
            second.set(value.unwrap() + 1).unwrap();
        });
        first.set(1).unwrap();
        assert_eq!(last.wait(), Ok(2));
    });
}

#[test]
fn wait_any_says_which_is_set_and_takes_nothing() {
    in_fibers(|| {
        let (mut promises, mut futures): (Vec<_>, Vec<_>) =
            (0..5).map(|_| promise::<usize>()).unzip();
        let order = Log::new();
        let theirs = order.clone();
        let waiter = spawn_parked(move || {
            while !futures.is_empty() {
                let mut left: Vec<_> = futures.iter_mut().collect();
                let i = Future::wait_any(&mut left).unwrap();
                theirs.push(futures.remove(i).wait().unwrap_or(99));
            }
        });
        for (known, i) in [2, 4, 0, 1, 3].into_iter().enumerate() {
            wait_until(|| order.len() == known);
            let promise = std::mem::replace(&mut promises[i], promise().0);
            if i == 1 {
                drop(promise); // broken is an answer, too
            } else {
                promise.set(i).unwrap();
            }
        }
        waiter.join().unwrap();
        assert_eq!(order.take(), [2, 4, 0, 99, 3]);
    });
}

#[test]
fn wait_any_leaves_the_others_as_they_were() {
    in_fibers(|| {
        let (first, mut a) = promise::<u32>();
        let (second, mut b) = promise::<u32>();
        second.set(2).unwrap();
        assert_eq!(Future::wait_any(&mut [&mut a, &mut b]), Ok(1));
        assert!(b.is_set());
        let waiter = spawn_parked(move || a.wait());
        first.set(1).unwrap();
        assert_eq!(waiter.join().unwrap(), Ok(1));
        assert_eq!(b.wait(), Ok(2));
        // Cancelled in the middle of it: both can be waited for again.
        let (first, mut a) = promise::<u32>();
        let (_second, mut b) = promise::<u32>();
        let waiter = spawn_parked(move || {
            let answer = Future::wait_any(&mut [&mut a, &mut b]);
            (answer, a)
        });
        waiter.cancel();
        let (answer, mut a) = waiter.join().unwrap();
        assert_eq!(answer, Err(sinew::Cancelled));
        first.set(3).unwrap();
        assert_eq!(a.wait(), Ok(3));
    });
}

#[test]
fn wait_any_waits_for_as_many_as_one_likes() {
    in_fibers(|| {
        let (mut promises, mut futures): (Vec<_>, Vec<_>) =
            (0..40).map(|_| promise::<usize>()).unzip();
        let last = promises.pop().unwrap();
        let waiter = spawn_parked(move || {
            let mut all: Vec<_> = futures.iter_mut().collect();
            let which = Future::wait_any(&mut all);
            (which, futures)
        });
        last.set(39).unwrap();
        let (which, mut futures) = waiter.join().unwrap();
        assert_eq!(which, Ok(39));
        for (i, promise) in promises.into_iter().enumerate() {
            promise.set(i).unwrap(); // none of them was spoiled
        }
        let mut all: Vec<_> = futures.iter_mut().collect();
        assert_eq!(Future::wait_any(&mut all), Ok(0), "the first of several");
        for (i, future) in futures.iter_mut().enumerate() {
            assert_eq!(future.wait(), Ok(i));
        }
        let none = catch_unwind(|| Future::<u8>::wait_any(&mut []));
        assert!(none.is_err());
    });
}

#[test]
fn a_value_that_was_taken_is_gone() {
    let (promise, mut future) = promise();
    promise.set(1).unwrap();
    assert_eq!(future.wait(), Ok(1));
    assert_eq!(future.try_take(), None);
    assert_eq!(future.wait(), Err(WaitFutureError::Broken));
    let gone = future.wait_timeout(HOUR);
    assert_eq!(gone, Err(WaitFutureTimeoutError::Broken));
}

#[test]
fn a_panic_of_a_subscriber_goes_to_who_sets_it() {
    in_fibers(|| {
        let (promise, future) = promise::<u32>();
        future.subscribe(|_| panic_expected(1));
        let panics = catch_unwind(AssertUnwindSafe(|| promise.set(1)));
        assert!(is_expected(&*panics.unwrap_err(), 1));
    });
}

#[test]
fn it_is_awaited_by_value_and_by_reference() {
    let _watch = watch();
    let (promise, future) = promise();
    let mut waits = ByHand::waiting(future);
    assert!(waits.poll_elsewhere().is_none());
    promise.set(1).unwrap();
    assert_eq!(waits.woken(), Ok(1));

    let (promise, mut future) = self::promise();
    drop(ByHand::waiting(&mut future));
    let waits = ByHand::waiting(&mut future);
    promise.set(2).unwrap();
    assert!(waits.is_woken());
    drop(waits); // woken and dropped: the value stays
    assert_eq!(future.wait(), Ok(2));

    let (promise, future) = self::promise::<u32>();
    let waits = ByHand::waiting(future);
    drop(promise);
    assert_eq!(waits.woken(), Err(Broken));

    let (promise, future) = self::promise::<u32>();
    drop(ByHand::waiting(future));
    assert_eq!(promise.set(3), Err(3));
}

#[test]
fn both_halves_travel() {
    fn send<T: Send>() {}
    send::<Promise<std::cell::Cell<u8>>>();
    send::<Future<std::cell::Cell<u8>>>();
    in_fibers(|| {
        let (promise, mut future) = promise();
        let thread = std::thread::spawn(move || promise.set(9));
        assert_eq!(future.wait(), Ok(9));
        thread.join().unwrap().unwrap();
    });
}
