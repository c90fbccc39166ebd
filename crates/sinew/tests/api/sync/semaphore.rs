//! `Semaphore`: permits in the order of asking, all or nothing, none lost.

use super::poll::ByHand;
use super::{HOUR, SHORT, parked, settle, spawn_begun, spawn_parked};
use crate::harness::{Log, in_fibers, panic_expected, runtime, wait_until, watch};
use sinew::JoinHandle;
use sinew::sync::{
    AcquireError, AcquireTimeoutError, OwnedSemaphorePermit, Semaphore, SemaphorePermit,
    TryAcquireError,
};
use sinew::time::Instant;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A fiber that waits for `n` permits and gives them back at once.
fn wants(semaphore: &Arc<Semaphore>, n: usize) -> JoinHandle<()> {
    let semaphore = semaphore.clone();
    spawn_parked(move || drop(semaphore.acquire_many(n).unwrap()))
}

#[test]
fn permits_are_taken_and_come_back() {
    let semaphore = Semaphore::new(3);
    let one = semaphore.acquire().unwrap();
    assert_eq!((one.num_permits(), semaphore.available_permits()), (1, 2));
    let two = semaphore.try_acquire_many(2).unwrap();
    assert_eq!((two.num_permits(), semaphore.available_permits()), (2, 0));
    assert_eq!(
        semaphore.try_acquire().map(|_| ()),
        Err(TryAcquireError::NoPermits)
    );
    drop(one);
    assert_eq!(semaphore.available_permits(), 1);
    assert_eq!(
        semaphore.try_acquire_many(2).map(|_| ()),
        Err(TryAcquireError::NoPermits)
    );
    drop(two);
    assert_eq!(semaphore.available_permits(), 3);
}

#[test]
fn no_more_hold_one_than_there_are() {
    in_fibers(|| {
        let semaphore = Arc::new(Semaphore::new(3));
        let inside = Arc::new(AtomicUsize::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        let fibers: Vec<_> = (0..20)
            .map(|_| {
                let (semaphore, inside, most) = (semaphore.clone(), inside.clone(), most.clone());
                sinew::spawn(move || {
                    for _ in 0..10 {
                        let _permit = semaphore.acquire().unwrap();
                        let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(now, Ordering::SeqCst);
                        sinew::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        for fiber in fibers {
            fiber.join().unwrap();
        }
        // A permit that was granted to a fiber which has not run yet is held, too: so there
        // may be fewer inside at a time, but never more.
        assert!((1..=3).contains(&most.load(Ordering::SeqCst)));
        assert_eq!(semaphore.available_permits(), 3);
    });
}

#[test]
fn added_permits_wake_as_many_as_they_suffice_for() {
    in_fibers(|| {
        let semaphore = Arc::new(Semaphore::new(0));
        let holders: Vec<_> = (0..4)
            .map(|_| {
                let semaphore = semaphore.clone();
                spawn_parked(move || semaphore.acquire().unwrap().forget())
            })
            .collect();
        let ended = || holders.iter().filter(|fiber| fiber.is_finished()).count();
        semaphore.add_permits(3);
        wait_until(|| ended() >= 3);
        settle();
        assert_eq!(ended(), 3);
        semaphore.add_permits(2);
        wait_until(|| ended() == 4);
        assert_eq!(semaphore.available_permits(), 1);
    });
}

#[test]
fn waiters_are_served_in_the_order_they_came() {
    in_fibers(|| {
        const WANTED: [usize; 6] = [2, 1, 3, 1, 1, 2];
        let semaphore = Arc::new(Semaphore::new(0));
        let log = Log::new();
        let fibers: Vec<_> = WANTED
            .into_iter()
            .enumerate()
            .map(|(i, n)| {
                let (semaphore, log) = (semaphore.clone(), log.clone());
                spawn_parked(move || {
                    let permit = semaphore.acquire_many(n).unwrap();
                    assert_eq!(permit.num_permits(), n);
                    log.push(i);
                    permit.forget();
                })
            })
            .collect();
        for (i, fiber) in fibers.into_iter().enumerate() {
            // Bit by bit: each gets its own before the next gets any.
            semaphore.add_permits(WANTED[i] - 1);
            settle();
            assert_eq!(log.len(), i);
            semaphore.add_permits(1);
            fiber.join().unwrap();
            settle();
            assert_eq!(log.len(), i + 1);
        }
        assert!(log.take().into_iter().eq(0..WANTED.len()));
    });
}

#[test]
fn nobody_overtakes_one_who_wants_many() {
    in_fibers(|| {
        let semaphore = Arc::new(Semaphore::new(1));
        let many = wants(&semaphore, 3);
        let one = wants(&semaphore, 1);
        settle();
        assert!(!one.is_finished(), "overtook the first in line");
        assert_eq!(
            semaphore.try_acquire().map(|_| ()),
            Err(TryAcquireError::NoPermits)
        );
        assert!(semaphore.acquire_timeout(SHORT).is_err());
        semaphore.add_permits(1);
        settle();
        assert!(!many.is_finished(), "less than all");
        assert!(!one.is_finished());
        semaphore.add_permits(1);
        many.join().unwrap();
        one.join().unwrap();
        assert_eq!(semaphore.available_permits(), 3);
    });
}

/// When the first in line gives up, what it stood in front of goes on.
fn the_next_goes_on_after(gives_up: fn(&Semaphore), cancel: bool) {
    in_fibers(|| {
        let semaphore = Arc::new(Semaphore::new(1));
        let theirs = semaphore.clone();
        let many = spawn_begun(move || gives_up(&theirs));
        let theirs = semaphore.clone();
        let one = spawn_begun(move || drop(theirs.acquire().unwrap()));
        if cancel {
            many.cancel();
        }
        many.join().unwrap();
        one.join().unwrap();
        assert_eq!(semaphore.available_permits(), 1);
    });
}

#[test]
fn the_next_goes_on_after_one_that_timed_out() {
    the_next_goes_on_after(
        |semaphore| {
            let timeout = semaphore.acquire_many_timeout(3, SHORT).map(|_| ());
            assert_eq!(timeout, Err(AcquireTimeoutError::Timeout));
        },
        false,
    );
}

#[test]
fn the_next_goes_on_after_one_that_was_cancelled() {
    the_next_goes_on_after(
        |semaphore| {
            let cancelled = semaphore.acquire_many(3).map(|_| ());
            assert_eq!(cancelled, Err(AcquireError::Cancelled));
        },
        true,
    );
}

#[test]
fn the_next_goes_on_after_a_future_that_was_dropped() {
    let _watch = watch();
    let semaphore = Semaphore::new(1);
    let many = ByHand::waiting(semaphore.acquire_many_async(3));
    let one = ByHand::waiting(semaphore.acquire_async());
    drop(many);
    drop(one.woken().unwrap());
    assert_eq!(semaphore.available_permits(), 1);
}

#[test]
fn a_cancelled_waiter_eats_no_permit() {
    in_fibers(|| {
        for round in 0..20 {
            let semaphore = Arc::new(Semaphore::new(0));
            let theirs = semaphore.clone();
            let first = spawn_parked(move || theirs.acquire().map(|permit| permit.forget()));
            let second = wants(&semaphore, 1);
            // Both before the first can run; a claim that came first wins.
            if round % 2 == 0 {
                first.cancel();
                semaphore.add_permits(1);
            } else {
                semaphore.add_permits(1);
                first.cancel();
            }
            if first.join().unwrap().is_ok() {
                settle();
                assert!(!second.is_finished());
                semaphore.add_permits(1);
            }
            second.join().unwrap();
            assert_eq!(semaphore.available_permits(), 1);
        }
    });
}

#[test]
fn acquiring_is_a_point_even_if_there_are_permits() {
    in_fibers(|| {
        sinew::spawn(|| {
            let semaphore = Arc::new(Semaphore::new(2));
            sinew::current().cancel();
            let cancelled = Err(AcquireError::Cancelled);
            let cancelled_timeout = Err(AcquireTimeoutError::Cancelled);
            for _ in 0..3 {
                let until = Instant::now() + HOUR;
                assert_eq!(semaphore.acquire().map(|_| ()), cancelled);
                assert_eq!(semaphore.acquire_many(2).map(|_| ()), cancelled);
                assert_eq!(semaphore.clone().acquire_owned().map(|_| ()), cancelled);
                assert_eq!(
                    semaphore.acquire_timeout(HOUR).map(|_| ()),
                    cancelled_timeout
                );
                assert_eq!(
                    semaphore.acquire_many_deadline(1, until).map(|_| ()),
                    cancelled_timeout
                );
                assert!(semaphore.try_acquire().is_ok()); // does not wait
                assert_eq!(semaphore.available_permits(), 2);
            }
        })
        .join()
        .unwrap();
    });
}

#[test]
fn a_timeout_is_not_early_and_takes_nothing() {
    in_fibers(|| {
        let semaphore = Arc::new(Semaphore::new(1));
        let late = Err(AcquireTimeoutError::Timeout);
        for time in [Duration::ZERO, SHORT] {
            let begun = Instant::now();
            assert_eq!(semaphore.acquire_many_timeout(2, time).map(|_| ()), late);
            assert!(begun.elapsed() >= time);
            let until = Instant::now() + time;
            assert_eq!(semaphore.acquire_many_deadline(2, until).map(|_| ()), late);
            assert!(Instant::now() >= until);
        }
        // What is there is had without time.
        let past = Instant::now();
        assert!(semaphore.acquire_timeout(Duration::ZERO).is_ok());
        assert!(semaphore.acquire_deadline(past).is_ok());
        let permit = semaphore.acquire().unwrap();
        assert_eq!(
            semaphore.clone().acquire_owned_timeout(SHORT).map(|_| ()),
            late
        );
        let theirs = semaphore.clone();
        let waiter = spawn_parked(move || theirs.acquire_timeout(HOUR).is_ok());
        drop(permit);
        assert!(waiter.join().unwrap());
        assert_eq!(semaphore.available_permits(), 1);
    });
}

#[test]
fn closing_wakes_all_who_wait_and_refuses_all_who_come() {
    in_fibers(|| {
        let semaphore = Arc::new(Semaphore::new(1));
        let held = semaphore.acquire().unwrap();
        let waiters: Vec<_> = (1..5)
            .map(|n| {
                let semaphore = semaphore.clone();
                spawn_parked(move || semaphore.acquire_many(n).map(|_| ()))
            })
            .collect();
        let theirs = semaphore.clone();
        let timed = spawn_parked(move || theirs.acquire_timeout(HOUR).map(|_| ()));
        assert!(!semaphore.is_closed());
        semaphore.close();
        semaphore.close();
        assert!(semaphore.is_closed());
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Err(AcquireError::Closed));
        }
        assert_eq!(timed.join().unwrap(), Err(AcquireTimeoutError::Closed));
        assert_eq!(semaphore.acquire().map(|_| ()), Err(AcquireError::Closed));
        drop(held);
        assert_eq!(
            semaphore.try_acquire().map(|_| ()),
            Err(TryAcquireError::Closed)
        );
        let late = semaphore.acquire_timeout(SHORT).map(|_| ());
        assert_eq!(late, Err(AcquireTimeoutError::Closed));
        assert_eq!(
            sinew::block_on(semaphore.acquire_async()).map(|_| ()),
            Err(AcquireError::Closed)
        );
    });
}

#[test]
fn a_future_that_waits_is_told_of_the_closing() {
    let _watch = watch();
    let semaphore = Semaphore::new(0);
    let waits = ByHand::waiting(semaphore.acquire_async());
    let dropped = ByHand::waiting(semaphore.acquire_async());
    semaphore.close();
    drop(dropped);
    assert_eq!(waits.woken().map(|_| ()), Err(AcquireError::Closed));
}

#[test]
fn forgotten_permits_do_not_come_back() {
    let semaphore = Semaphore::new(5);
    semaphore.acquire_many(2).unwrap().forget();
    assert_eq!(semaphore.available_permits(), 3);
    assert_eq!(semaphore.forget_permits(2), 2);
    assert_eq!(semaphore.available_permits(), 1);
    assert_eq!(semaphore.forget_permits(5), 1);
    assert_eq!(semaphore.available_permits(), 0);
    assert_eq!(semaphore.forget_permits(1), 0);
    semaphore.add_permits(1);
    assert!(semaphore.try_acquire().is_ok());
}

#[test]
fn permits_are_split_and_merged() {
    let semaphore = Semaphore::new(10);
    let mut permit: SemaphorePermit<'_> = semaphore.acquire_many(5).unwrap();
    let mut part = permit.split(2).unwrap();
    assert_eq!((permit.num_permits(), part.num_permits()), (3, 2));
    assert!(permit.split(4).is_none());
    assert_eq!(permit.num_permits(), 3);
    let rest = part.split(2).unwrap();
    assert_eq!((part.num_permits(), rest.num_permits()), (0, 2));
    assert_eq!(semaphore.available_permits(), 5);
    drop(part);
    assert_eq!(semaphore.available_permits(), 5);
    permit.merge(rest);
    permit.merge(semaphore.acquire_many(4).unwrap());
    assert_eq!(permit.num_permits(), 9);
    assert_eq!(semaphore.available_permits(), 1);
    drop(permit);
    assert_eq!(semaphore.available_permits(), 10);
}

#[test]
fn a_part_that_is_dropped_wakes_who_waits_for_it() {
    in_fibers(|| {
        let semaphore = Arc::new(Semaphore::new(3));
        let mut permit = semaphore.clone().acquire_many_owned(3).unwrap();
        let waiter = wants(&semaphore, 2);
        drop(permit.split(2).unwrap());
        waiter.join().unwrap();
        assert_eq!(permit.num_permits(), 1);
    });
}

#[test]
fn permits_of_different_semaphores_are_not_merged() {
    let _watch = watch();
    let (a, b) = (Semaphore::new(1), Semaphore::new(1));
    let mut permit = a.acquire().unwrap();
    let other = b.acquire().unwrap();
    let refused = catch_unwind(AssertUnwindSafe(|| permit.merge(other)));
    assert!(refused.is_err());
    assert_eq!(b.available_permits(), 1);
    drop(permit);
    assert_eq!(a.available_permits(), 1);
}

#[test]
fn owned_permits_keep_the_semaphore_and_travel() {
    in_fibers(|| {
        let semaphore = Arc::new(Semaphore::new(4));
        let permits: Vec<OwnedSemaphorePermit> = vec![
            semaphore.clone().acquire_owned().unwrap(),
            semaphore.clone().try_acquire_owned().unwrap(),
            semaphore.clone().try_acquire_many_owned(1).unwrap(),
            semaphore.clone().acquire_owned_timeout(HOUR).unwrap(),
        ];
        assert_eq!(semaphore.available_permits(), 0);
        assert_eq!(
            semaphore.clone().try_acquire_owned().map(|_| ()),
            Err(TryAcquireError::NoPermits)
        );
        let theirs = semaphore.clone();
        let waiter = spawn_parked(move || theirs.acquire_many_owned(4).unwrap());
        for permit in permits {
            sinew::spawn(move || drop(permit)).join().unwrap();
        }
        let mut all = waiter.join().unwrap();
        let part = all.split(1).unwrap();
        all.merge(part);
        assert_eq!(all.num_permits(), 4);
        drop(all);
        assert_eq!(semaphore.available_permits(), 4);
        semaphore.clone().acquire_owned().unwrap().forget();
        assert_eq!(Arc::strong_count(&semaphore), 1);
    });
}

#[test]
fn owned_waits_give_up_in_time_and_take_nothing() {
    in_fibers(|| {
        let it = Arc::new(Semaphore::new(3));
        let start = Instant::now();
        let (timeout, deadline) = (SHORT, start + SHORT);
        for outcome in [
            it.clone().acquire_many_owned_timeout(4, timeout),
            it.clone().acquire_many_owned_deadline(4, deadline),
        ] {
            assert_eq!(outcome.unwrap_err(), AcquireTimeoutError::Timeout);
        }
        assert!(start.elapsed() >= SHORT);
        // What is there is had, also when the time is over.
        let two = it.clone().acquire_many_owned_deadline(2, start).unwrap();
        let one = it.clone().acquire_owned_deadline(start).unwrap();
        assert_eq!((two.num_permits(), one.num_permits()), (2, 1));
        let none = it.clone().acquire_owned_deadline(start);
        assert_eq!(none.unwrap_err(), AcquireTimeoutError::Timeout);
        drop((two, one));
        let all = it.clone().acquire_many_owned_timeout(3, HOUR).unwrap();
        let theirs = it.clone();
        let waiter =
            spawn_parked(move || theirs.acquire_many_owned_deadline(3, Instant::now() + HOUR));
        drop(all);
        assert_eq!(waiter.join().unwrap().unwrap().num_permits(), 3);
        it.close();
        let closed = it.clone().acquire_owned_deadline(Instant::now() + HOUR);
        assert_eq!(closed.unwrap_err(), AcquireTimeoutError::Closed);
        assert_eq!(it.available_permits(), 3);
    });
}

#[test]
fn nothing_is_had_at_once() {
    let semaphore = Semaphore::new(0);
    assert_eq!(semaphore.acquire_many(0).unwrap().num_permits(), 0);
    assert_eq!(semaphore.try_acquire_many(0).unwrap().num_permits(), 0);
    semaphore.add_permits(0);
    assert_eq!(semaphore.available_permits(), 0);
}

#[test]
fn it_holds_up_to_its_maximum_and_refuses_more() {
    let _watch = watch();
    static FULL: Semaphore = Semaphore::new(Semaphore::MAX_PERMITS);
    assert_eq!(FULL.available_permits(), Semaphore::MAX_PERMITS);
    let all = FULL.try_acquire_many(Semaphore::MAX_PERMITS).unwrap();
    assert_eq!(FULL.available_permits(), 0);
    drop(all);
    assert!(catch_unwind(|| FULL.add_permits(1)).is_err());
    assert!(catch_unwind(|| Semaphore::new(Semaphore::MAX_PERMITS + 1)).is_err());
    assert!(FULL.try_acquire().is_ok());
}

#[test]
fn a_panic_gives_permits_back() {
    in_fibers(|| {
        let semaphore = Arc::new(Semaphore::new(2));
        let theirs = semaphore.clone();
        let panics = sinew::spawn(move || {
            let _permits = theirs.acquire_many(2).unwrap();
            panic_expected(3)
        });
        assert!(panics.join().map(|()| ()).unwrap_err().is_panic());
        assert_eq!(semaphore.available_permits(), 2);
    });
}

#[test]
fn futures_wait_in_the_same_line() {
    let _watch = watch();
    let semaphore = Arc::new(Semaphore::new(0));
    let first = ByHand::waiting(semaphore.acquire_many_async(2));
    let mut second = ByHand::waiting(semaphore.clone().acquire_owned_async());
    let third = ByHand::waiting(semaphore.clone().acquire_many_owned_async(2));
    assert!(second.poll_elsewhere().is_none());
    semaphore.add_permits(2);
    assert!(!second.is_woken());
    drop(first.woken().unwrap()); // its two: one for the second, one is left
    let permit = second.woken().unwrap();
    assert!(!third.is_woken());
    drop(permit);
    assert_eq!(third.woken().unwrap().num_permits(), 2);
    assert_eq!(semaphore.available_permits(), 2);
}

#[test]
fn a_dropped_future_that_had_its_permits_gives_them_to_the_next() {
    let _watch = watch();
    let semaphore = Semaphore::new(0);
    let first = ByHand::waiting(semaphore.acquire_many_async(2));
    let second = ByHand::waiting(semaphore.acquire_async());
    let third = ByHand::waiting(semaphore.acquire_async());
    semaphore.add_permits(2);
    assert!(first.is_woken() && !second.is_woken());
    drop(first);
    drop((second.woken().unwrap(), third.woken().unwrap()));
    // And if there is no next they are there for whoever comes.
    let held = semaphore.try_acquire_many(2).unwrap();
    let last = ByHand::waiting(semaphore.acquire_many_async(2));
    drop(held);
    drop(last);
    assert_eq!(semaphore.available_permits(), 2);
}

#[test]
fn a_dropped_future_gives_its_permit_to_a_fiber() {
    let _watch = watch();
    let runtime = runtime(1);
    let semaphore = Arc::new(Semaphore::new(0));
    let first = ByHand::waiting(semaphore.acquire_async());
    let theirs = semaphore.clone();
    let waiter = runtime.spawn(move || theirs.acquire().map(|_| ()));
    parked(&waiter);
    semaphore.add_permits(1);
    drop(first);
    assert_eq!(waiter.join().unwrap(), Ok(()));
}
