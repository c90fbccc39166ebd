//! `Mutex`: one holder at a time, no poison, nobody starves.

use super::poll::ByHand;
use super::{HOUR, SHORT, parked, settle, spawn_parked};
use crate::harness::{Gate, OnDrop, in_fibers, is_expected, on_workers, panic_expected, runtime};
use crate::harness::{wait_until, watch};
use sinew::Cancelled;
use sinew::sync::{Mutex, MutexGuard, TimedOut, TryLockError};
use sinew::time::Instant;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[test]
fn an_unlocked_mutex_is_locked_at_once_and_a_locked_one_is_not() {
    let mutex = Mutex::new(1);
    assert!(!mutex.is_locked());
    let mut guard = mutex.lock();
    *guard += 1;
    assert!(mutex.is_locked());
    assert!(matches!(mutex.try_lock(), Err(TryLockError::WouldBlock)));
    drop(guard);
    assert!(!mutex.is_locked());
    assert_eq!(*mutex.try_lock().unwrap(), 2);
    assert_eq!(*mutex.lock(), 2);
}

#[test]
fn no_update_is_lost_among_fibers_that_suspend_inside() {
    in_fibers(|| {
        let mutex = Arc::new(Mutex::new(0_u32));
        let fibers: Vec<_> = (0..100)
            .map(|i| {
                let mutex = mutex.clone();
                sinew::spawn(move || {
                    for round in 0..20 {
                        let mut guard = mutex.lock();
                        let before = *guard;
                        if (round + i) % 3 == 0 {
                            sinew::yield_now();
                        }
                        *guard = before + 1;
                    }
                })
            })
            .collect();
        for fiber in fibers {
            fiber.join().unwrap();
        }
        assert_eq!(*mutex.lock(), 2000);
    });
}

#[test]
fn a_waiting_fiber_leaves_its_worker_to_others_until_the_unlock() {
    in_fibers(|| {
        let mutex = Arc::new(Mutex::new(5));
        let guard = mutex.lock();
        let theirs = mutex.clone();
        let waiter = spawn_parked(move || *theirs.lock());
        settle();
        assert!(!waiter.is_finished());
        drop(guard);
        assert_eq!(waiter.join().unwrap(), 5);
    });
}

#[test]
fn every_waiter_gets_its_turn() {
    in_fibers(|| {
        let mutex = Arc::new(Mutex::new(0));
        let guard = mutex.lock();
        let waiters: Vec<_> = (0..50)
            .map(|_| {
                let mutex = mutex.clone();
                spawn_parked(move || *mutex.lock() += 1)
            })
            .collect();
        drop(guard);
        for waiter in waiters {
            waiter.join().unwrap();
        }
        assert_eq!(*mutex.lock(), 50);
    });
}

#[test]
fn a_holder_that_locks_again_at_once_starves_nobody() {
    in_fibers(|| {
        let mutex = Arc::new(Mutex::new(()));
        let stop = Gate::new();
        let hogs: Vec<_> = (0..2)
            .map(|_| {
                let (mutex, stop) = (mutex.clone(), stop.clone());
                sinew::spawn(move || {
                    while !stop.is_open() {
                        let _guard = mutex.lock();
                        sinew::yield_now(); // others see it locked
                    }
                })
            })
            .collect();
        let turns: Vec<_> = (0..5)
            .map(|_| {
                let mutex = mutex.clone();
                sinew::spawn(move || drop(mutex.lock()))
            })
            .collect();
        // Not joined, which could lend them something.
        wait_until(|| turns.iter().all(|turn| turn.is_finished()));
        stop.open();
        for hog in hogs {
            hog.join().unwrap();
        }
    });
}

#[test]
fn a_panic_while_it_is_locked_unlocks_and_poisons_nothing() {
    in_fibers(|| {
        let mutex = Arc::new(Mutex::new(1));
        let (theirs, go) = (mutex.clone(), Gate::new());
        let gate = go.clone();
        let holder = sinew::spawn(move || {
            let mut guard = theirs.lock();
            gate.pass();
            *guard = 2;
            panic_expected(7)
        });
        wait_until(|| mutex.is_locked());
        let theirs = mutex.clone();
        let waiter = spawn_parked(move || *theirs.lock());
        go.open();
        assert_eq!(waiter.join().unwrap(), 2);
        let error = holder.join().map(|()| ()).unwrap_err();
        assert!(is_expected(&*error.into_panic(), 7));
        assert_eq!(*mutex.try_lock().unwrap(), 2);
    });
}

#[test]
fn a_destructor_may_wait_for_it_while_unwinding() {
    in_fibers(|| {
        let mutex = Arc::new(Mutex::new(1));
        let guard = mutex.lock();
        let theirs = mutex.clone();
        let unwinding = spawn_parked(move || {
            let _adds = OnDrop(|| *theirs.lock() += 1);
            panic_expected(1)
        });
        drop(guard);
        assert!(unwinding.join().map(|()| ()).unwrap_err().is_panic());
        assert_eq!(*mutex.lock(), 2);
    });
}

#[test]
fn its_value_comes_out_once_by_into_inner_and_by_reference_from_get_mut() {
    let drops = Arc::new(AtomicUsize::new(0));
    let theirs = drops.clone();
    let mutex = Mutex::new(OnDrop(move || {
        theirs.fetch_add(1, Ordering::SeqCst);
    }));
    let inner = mutex.into_inner();
    assert_eq!(drops.load(Ordering::SeqCst), 0);
    drop(inner);
    assert_eq!(drops.load(Ordering::SeqCst), 1);

    let mut mutex = Mutex::new(String::from("a"));
    mutex.get_mut().push('b');
    assert_eq!(mutex.into_inner(), "ab");
}

#[test]
fn it_holds_unsized_values_and_other_mutexes() {
    let mutex: &Mutex<[i32]> = &Mutex::new([1, 2, 3]);
    mutex.lock()[0] = 4;
    assert_eq!(&*mutex.lock(), &[4, 2, 3]);
    let nested = Mutex::new(Arc::new(Mutex::new(1)));
    *nested.lock().lock() += 1;
    assert_eq!(*nested.lock().lock(), 2);
}

#[test]
fn it_shows_its_value_or_that_it_is_locked() {
    let mutex = Mutex::new(41);
    assert!(format!("{mutex:?}").contains("41"), "{mutex:?}");
    let guard = mutex.lock();
    assert_eq!(format!("{guard:?}"), "41");
    assert_eq!(format!("{guard}"), "41");
    let shown = format!("{mutex:?}");
    assert!(
        shown.contains("<locked>") && !shown.contains("41"),
        "{shown}"
    );
}

#[test]
fn it_is_made_from_values_by_default_and_in_statics() {
    static COUNT: Mutex<u32> = Mutex::new(3);
    *COUNT.lock() += 1;
    assert_eq!(*COUNT.lock(), 4);
    assert_eq!(*Mutex::<u8>::default().lock(), 0);
    assert_eq!(*Mutex::from("x").lock(), "x");
}

#[test]
fn guards_and_mutexes_are_shared_as_their_values_allow() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<Mutex<Cell<u8>>>();
    sync::<Mutex<Cell<u8>>>();
    send::<MutexGuard<'_, Cell<u8>>>();
    sync::<MutexGuard<'_, u8>>();
}

#[test]
fn a_guard_may_be_dropped_by_another_fiber_or_thread() {
    on_workers(|runtime| {
        static MUTEX: Mutex<u32> = Mutex::new(0);
        let guard = MUTEX.lock();
        runtime.spawn(move || drop(guard)).join().unwrap();
        let guard = runtime.spawn(|| MUTEX.lock()).join().unwrap();
        assert!(MUTEX.is_locked());
        let waiter = runtime.spawn(|| drop(MUTEX.lock()));
        parked(&waiter);
        std::thread::spawn(move || drop(guard)).join().unwrap();
        waiter.join().unwrap();
        assert!(!MUTEX.is_locked());
    });
}

#[test]
fn a_forgotten_guard_keeps_it_locked() {
    let mutex = Mutex::new(0);
    std::mem::forget(mutex.lock());
    assert!(mutex.is_locked());
    assert_eq!(mutex.lock_timeout(SHORT).map(|_| ()), Err(TimedOut));
}

#[test]
fn a_timeout_is_not_early_and_leaves_no_trace() {
    in_fibers(|| {
        let mutex = Arc::new(Mutex::new(0));
        let guard = mutex.lock();
        for time in [Duration::ZERO, SHORT] {
            let begun = Instant::now();
            assert_eq!(mutex.lock_timeout(time).map(|_| ()), Err(TimedOut));
            assert!(begun.elapsed() >= time);
            let until = Instant::now() + time;
            assert_eq!(mutex.lock_deadline(until).map(|_| ()), Err(TimedOut));
            assert!(Instant::now() >= until);
        }
        // One who waited before and one who waits after those who gave up.
        let theirs = mutex.clone();
        let waiter = spawn_parked(move || *theirs.lock() += 1);
        let theirs = mutex.clone();
        let giver = sinew::spawn(move || theirs.lock_timeout(SHORT).is_err());
        assert!(giver.join().unwrap());
        drop(guard);
        waiter.join().unwrap();
        assert_eq!(*mutex.try_lock().unwrap(), 1);
    });
}

#[test]
fn a_free_mutex_is_locked_even_if_the_time_is_over() {
    let mutex = Mutex::new(1);
    assert!(mutex.lock_timeout(Duration::ZERO).is_ok());
    assert!(mutex.lock_timeout(Duration::MAX).is_ok());
    let past = Instant::now().checked_sub(SHORT).unwrap();
    assert!(mutex.lock_deadline(past).is_ok());
    assert!(!mutex.is_locked());
}

#[test]
fn an_unlock_in_time_ends_a_wait_with_a_timeout() {
    in_fibers(|| {
        for time in [HOUR, Duration::MAX] {
            let mutex = Arc::new(Mutex::new(3));
            let guard = mutex.lock();
            let theirs = mutex.clone();
            let waiter = spawn_parked(move || *theirs.lock_timeout(time).unwrap());
            let theirs = mutex.clone();
            let until = Instant::now() + HOUR;
            let other = spawn_parked(move || *theirs.lock_deadline(until).unwrap());
            drop(guard);
            assert_eq!(waiter.join().unwrap() + other.join().unwrap(), 6);
        }
    });
}

#[test]
fn locking_is_no_point_but_its_twin_is() {
    in_fibers(|| {
        let mutex = Arc::new(Mutex::new(0));
        let guard = mutex.lock();
        let theirs = mutex.clone();
        let deaf = spawn_parked(move || *theirs.lock() += 1);
        let theirs = mutex.clone();
        let heeds = spawn_parked(move || theirs.lock_or_cancelled().map(|_| ()));
        deaf.cancel();
        heeds.cancel();
        assert_eq!(heeds.join().unwrap(), Err(Cancelled));
        settle();
        assert!(!deaf.is_finished());
        drop(guard);
        deaf.join().unwrap();
        assert_eq!(*mutex.lock(), 1);
    });
}

#[test]
fn the_twin_says_so_every_time_also_if_the_mutex_is_free() {
    in_fibers(|| {
        sinew::spawn(|| {
            let mutex = Mutex::new(0);
            assert!(mutex.lock_or_cancelled().is_ok());
            sinew::current().cancel();
            for _ in 0..3 {
                assert_eq!(mutex.lock_or_cancelled().map(|_| ()), Err(Cancelled));
                assert!(!mutex.is_locked());
                drop(mutex.lock()); // still works
                assert!(mutex.lock_timeout(SHORT).is_ok());
            }
        })
        .join()
        .unwrap();
    });
}

#[test]
fn a_cancelled_waiter_does_not_take_the_turn_of_the_next() {
    in_fibers(|| {
        for _ in 0..20 {
            let mutex = Arc::new(Mutex::new(()));
            let guard = mutex.lock();
            let theirs = mutex.clone();
            let first = spawn_parked(move || theirs.lock_or_cancelled().map(|_| ()));
            let theirs = mutex.clone();
            let second = spawn_parked(move || drop(theirs.lock()));
            // Both before the first can run: whichever it sees, the second goes on.
            first.cancel();
            drop(guard);
            second.join().unwrap();
            let _ = first.join().unwrap();
        }
    });
}

#[test]
fn a_future_waits_its_turn_and_is_woken_through_its_latest_waker() {
    let _watch = watch();
    let mutex = Mutex::new(1);
    let guard = mutex.lock();
    let mut future = ByHand::waiting(mutex.lock_async());
    assert!(future.poll_elsewhere().is_none());
    drop(guard);
    let mut guard = future.woken();
    *guard += 1;
    assert!(mutex.is_locked());
    drop(guard);
    assert_eq!(*ByHand::new(mutex.lock_async()).poll().unwrap(), 2);
}

#[test]
fn a_future_that_is_dropped_leaves_the_line() {
    let _watch = watch();
    let mutex = Mutex::new(());
    drop(mutex.lock_async()); // never polled
    let guard = mutex.lock();
    let before = ByHand::waiting(mutex.lock_async());
    let dropped = ByHand::waiting(mutex.lock_async());
    let after = ByHand::waiting(mutex.lock_async());
    drop(dropped);
    drop(guard);
    drop(before.woken());
    drop(after.woken());
    assert!(!mutex.is_locked());
}

#[test]
fn a_woken_future_that_is_dropped_passes_its_turn_on() {
    let _watch = watch();
    let mutex = Mutex::new(());
    let guard = mutex.lock();
    let first = ByHand::waiting(mutex.lock_async());
    let second = ByHand::waiting(mutex.lock_async());
    drop(guard);
    assert!(first.is_woken());
    drop(first);
    drop(second.woken());

    // And to nobody: then it is free.
    let guard = mutex.lock();
    let last = ByHand::waiting(mutex.lock_async());
    drop(guard);
    drop(last);
    assert!(mutex.try_lock().is_ok());
}

#[test]
fn a_woken_future_that_is_dropped_passes_its_turn_on_to_a_fiber() {
    let _watch = watch();
    let runtime = runtime(1);
    let mutex = Arc::new(Mutex::new(()));
    let guard = mutex.lock();
    let first = ByHand::waiting(mutex.lock_async());
    let theirs = mutex.clone();
    let waiter = runtime.spawn(move || drop(theirs.lock()));
    parked(&waiter);
    drop(guard);
    drop(first);
    waiter.join().unwrap();
}
