//! `FairMutex`: first come, first served, and tickets that are never stuck.

use super::poll::ByHand;
use super::{HOUR, SHORT, parked, seeded, settle, spawn_begun, spawn_parked};
use crate::harness::{Gate, Log, in_fibers, panic_expected, runtime, wait_until, watch};
use sinew::Cancelled;
use sinew::sync::{FairMutex, FairMutexGuard, TimedOut, TryLockError};
use sinew::time::Instant;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn one_holder_at_a_time() {
    let mutex = FairMutex::new(1);
    let mut guard = mutex.lock();
    *guard += 1;
    assert!(mutex.is_locked());
    assert!(matches!(mutex.try_lock(), Err(TryLockError::WouldBlock)));
    assert_eq!(mutex.lock_timeout(SHORT).map(|_| ()), Err(TimedOut));
    drop(guard);
    assert!(!mutex.is_locked());
    assert_eq!(*mutex.try_lock().unwrap(), 2);
    assert_eq!(mutex.into_inner(), 2);
}

#[test]
fn it_has_what_a_mutex_has() {
    static COUNT: FairMutex<u32> = FairMutex::new(3);
    fn send<T: Send>(_: &T) {}
    let mut guard: FairMutexGuard<'_, u32> = COUNT.lock();
    *guard += 1;
    send(&guard);
    assert!(format!("{COUNT:?}").contains("<locked>"));
    drop(guard);
    assert!(format!("{COUNT:?}").contains('4'));
    let mut mutex = FairMutex::from(1);
    *mutex.get_mut() += 1;
    assert_eq!(*mutex.lock(), 2);
    assert_eq!(*FairMutex::<u8>::default().lock(), 0);
    let unsized_value: &FairMutex<[u8]> = &FairMutex::new([1, 2]);
    assert_eq!(unsized_value.lock().len(), 2);
}

#[test]
fn no_update_is_lost_among_fibers_that_suspend_inside() {
    in_fibers(|| {
        let mutex = Arc::new(FairMutex::new(0));
        let fibers: Vec<_> = (0..10)
            .map(|_| {
                let mutex = mutex.clone();
                sinew::spawn(move || {
                    for _ in 0..20 {
                        let mut guard = mutex.lock();
                        let before = *guard;
                        sinew::yield_now();
                        *guard = before + 1;
                    }
                })
            })
            .collect();
        for fiber in fibers {
            fiber.join().unwrap();
        }
        assert_eq!(*mutex.lock(), 200);
    });
}

#[test]
fn waiters_are_served_in_the_order_they_came() {
    in_fibers(|| {
        let mutex = Arc::new(FairMutex::new(Vec::new()));
        let guard = mutex.lock();
        let waiters: Vec<_> = (0..20)
            .map(|i| {
                let mutex = mutex.clone();
                spawn_parked(move || {
                    let mut guard = mutex.lock();
                    sinew::yield_now();
                    guard.push(i);
                })
            })
            .collect();
        drop(guard);
        for waiter in waiters {
            waiter.join().unwrap();
        }
        assert!(mutex.lock().iter().copied().eq(0..20));
    });
}

#[test]
fn who_unlocks_goes_behind_those_who_wait() {
    in_fibers(|| {
        let mutex = Arc::new(FairMutex::new(Vec::new()));
        let guard = mutex.lock();
        let theirs = mutex.clone();
        let waiter = spawn_parked(move || theirs.lock().push("waiter"));
        drop(guard);
        // Its turn has come, whether it runs already or not.
        mutex.lock().push("holder");
        waiter.join().unwrap();
        assert_eq!(*mutex.lock(), ["waiter", "holder"]);
    });
}

#[test]
fn try_lock_does_not_overtake() {
    let _watch = watch();
    // One worker: the waiter cannot run between the unlock and the try.
    runtime(1).run(|| {
        let mutex = Arc::new(FairMutex::new(()));
        let guard = mutex.lock();
        let theirs = mutex.clone();
        let waiter = spawn_parked(move || drop(theirs.lock()));
        drop(guard);
        assert!(mutex.try_lock().is_err());
        waiter.join().unwrap();
        assert!(mutex.try_lock().is_ok());
    });
}

#[test]
fn a_ticket_takes_its_place_when_it_is_drawn() {
    in_fibers(|| {
        let mutex = Arc::new(FairMutex::new(Vec::new()));
        let guard = mutex.lock();
        let ticket = mutex.ticket();
        let theirs = mutex.clone();
        let waiter = spawn_parked(move || theirs.lock().push("fiber"));
        assert!(!ticket.is_served());
        drop(guard);
        assert!(ticket.is_served());
        settle();
        assert!(!waiter.is_finished(), "overtook the ticket");
        ticket.lock().push("ticket");
        waiter.join().unwrap();
        assert_eq!(*mutex.lock(), ["ticket", "fiber"]);
    });
}

#[test]
fn a_ticket_is_handed_back_until_it_is_served() {
    let mutex = FairMutex::new(3);
    let guard = mutex.lock();
    let ticket = mutex.ticket();
    let ticket = ticket.try_lock().map(|_| ()).unwrap_err();
    assert!(!ticket.is_served());
    drop(guard);
    assert_eq!(*ticket.try_lock().ok().unwrap(), 3);
    assert!(!mutex.is_locked());
}

#[test]
fn a_ticket_for_a_free_mutex_is_served_at_once_and_keeps_others_out() {
    let mutex = FairMutex::new(());
    let ticket = mutex.ticket();
    assert!(ticket.is_served());
    assert!(mutex.try_lock().is_err());
    let later = mutex.ticket();
    assert!(!later.is_served());
    drop(ticket.lock());
    assert!(later.is_served());
    drop(later.lock());
    assert!(mutex.try_lock().is_ok());
}

#[test]
fn a_dropped_ticket_is_passed_on() {
    in_fibers(|| {
        for served in [false, true] {
            let mutex = Arc::new(FairMutex::new(()));
            let guard = mutex.lock();
            let ticket = mutex.ticket();
            let theirs = mutex.clone();
            let waiter = spawn_parked(move || drop(theirs.lock()));
            if served {
                drop(guard);
                assert!(ticket.is_served());
                drop(ticket);
            } else {
                drop(ticket);
                settle();
                assert!(!waiter.is_finished());
                drop(guard);
            }
            waiter.join().unwrap();
            assert!(mutex.try_lock().is_ok(), "served {served}");
        }
    });
}

#[test]
fn tickets_dropped_in_any_order_leave_nobody_stuck() {
    let _watch = watch();
    let mut rng = seeded();
    for _ in 0..200 {
        let mutex = FairMutex::new(());
        let mut guard = Some(mutex.lock());
        let mut tickets: Vec<_> = (0..8).map(|_| Some(mutex.ticket())).collect();
        let keeper = rng.below(8) as usize;
        let kept = tickets[keeper].take().unwrap();
        let mut order: Vec<usize> = (0..8).collect();
        for i in (1..8).rev() {
            order.swap(i, rng.below(i as u64 + 1) as usize);
        }
        for i in order {
            if rng.chance(4) {
                guard = None;
            }
            tickets[i] = None;
        }
        drop(guard);
        assert!(kept.is_served());
        drop(kept.try_lock().ok().unwrap());
        assert!(mutex.try_lock().is_ok());
    }
}

#[test]
fn a_ticket_that_timed_out_is_passed_on() {
    in_fibers(|| {
        let mutex = Arc::new(FairMutex::new(()));
        let guard = mutex.lock();
        let ticket = mutex.ticket();
        let other = mutex.ticket();
        let theirs = mutex.clone();
        let waiter = spawn_parked(move || drop(theirs.lock()));
        let begun = Instant::now();
        assert_eq!(ticket.lock_timeout(SHORT).map(|_| ()), Err(TimedOut));
        assert!(begun.elapsed() >= SHORT);
        let until = Instant::now() + SHORT;
        assert_eq!(other.lock_deadline(until).map(|_| ()), Err(TimedOut));
        assert!(Instant::now() >= until);
        drop(guard);
        waiter.join().unwrap();
        // Served in time: however little that is.
        assert!(mutex.ticket().lock_timeout(Duration::ZERO).is_ok());
        assert!(mutex.ticket().lock_timeout(HOUR).is_ok());
        assert!(mutex.try_lock().is_ok());
    });
}

#[test]
fn a_cancelled_ticket_is_passed_on_waiting_or_served() {
    in_fibers(|| {
        let mutex = Arc::new(FairMutex::new(()));
        let guard = mutex.lock();
        let theirs = mutex.clone();
        let cancelled = spawn_parked(move || theirs.ticket().lock_or_cancelled().map(|_| ()));
        let theirs = mutex.clone();
        let waiter = spawn_parked(move || drop(theirs.lock()));
        cancelled.cancel();
        assert_eq!(cancelled.join().unwrap(), Err(Cancelled));
        drop(guard);
        waiter.join().unwrap();

        let theirs = mutex.clone();
        sinew::spawn(move || {
            sinew::current().cancel();
            let ticket = theirs.ticket();
            assert!(ticket.is_served());
            assert_eq!(ticket.lock_or_cancelled().map(|_| ()), Err(Cancelled));
            assert_eq!(theirs.lock_or_cancelled().map(|_| ()), Err(Cancelled));
            drop(theirs.ticket().lock()); // no point
        })
        .join()
        .unwrap();
        assert!(mutex.try_lock().is_ok());
    });
}

#[test]
fn cancelled_and_late_waiters_do_not_change_the_order_of_the_rest() {
    in_fibers(|| {
        let mutex = Arc::new(FairMutex::new(Vec::new()));
        let guard = mutex.lock();
        let waiters: Vec<_> = (0..12)
            .map(|i| {
                let mutex = mutex.clone();
                spawn_begun(move || match i % 3 {
                    0 => mutex.lock().push(i),
                    1 => drop(mutex.lock_or_cancelled().map(|mut guard| guard.push(i))),
                    _ => drop(mutex.lock_timeout(SHORT).map(|mut guard| guard.push(i))),
                })
            })
            .collect();
        for (i, waiter) in waiters.iter().enumerate() {
            if i % 3 == 1 {
                waiter.cancel();
            }
        }
        wait_until(|| {
            let ended =
                |(i, waiter): (usize, &sinew::JoinHandle<()>)| i % 3 == 0 || waiter.is_finished();
            waiters.iter().enumerate().all(ended)
        });
        drop(guard);
        for waiter in waiters {
            waiter.join().unwrap();
        }
        assert_eq!(*mutex.lock(), [0, 3, 6, 9]);
    });
}

#[test]
fn a_panic_passes_guard_and_ticket_on_and_poisons_nothing() {
    in_fibers(|| {
        let mutex = Arc::new(FairMutex::new(Log::new()));
        let (theirs, go) = (mutex.clone(), Gate::new());
        let gate = go.clone();
        let holder = sinew::spawn(move || {
            let guard = theirs.lock();
            let _ticket = theirs.ticket();
            gate.pass();
            guard.push(1);
            panic_expected(1)
        });
        wait_until(|| mutex.is_locked());
        let theirs = mutex.clone();
        let waiter = spawn_parked(move || theirs.lock().push(2));
        go.open();
        waiter.join().unwrap();
        assert!(holder.join().map(|()| ()).unwrap_err().is_panic());
        assert_eq!(mutex.try_lock().unwrap().take(), [1, 2]);
    });
}

#[test]
fn futures_stand_in_the_same_line() {
    let _watch = watch();
    let mutex = FairMutex::new(());
    let guard = mutex.lock();
    let first = ByHand::waiting(mutex.lock_async());
    let ticket = mutex.ticket();
    let second = ByHand::waiting(ticket.lock_async());
    let mut third = ByHand::waiting(mutex.lock_async());
    assert!(third.poll_elsewhere().is_none());
    drop(guard);
    assert!(!second.is_woken() && !third.is_woken());
    drop(first.woken());
    assert!(!third.is_woken());
    drop(second.woken());
    drop(third.woken());
    assert!(mutex.try_lock().is_ok());
}

#[test]
fn a_dropped_future_leaves_the_line_or_passes_its_turn_on() {
    let _watch = watch();
    let mutex = FairMutex::new(());
    drop(mutex.lock_async());
    drop(mutex.ticket().lock_async()); // never polled, but it had its place
    assert!(mutex.try_lock().is_ok());
    let guard = mutex.lock();
    let waits = ByHand::waiting(mutex.lock_async());
    let claimed = ByHand::waiting(mutex.ticket().lock_async());
    let last = ByHand::waiting(mutex.lock_async());
    drop(waits);
    drop(guard);
    assert!(claimed.is_woken() && !last.is_woken());
    drop(claimed);
    drop(last.woken());
    assert!(mutex.try_lock().is_ok());
}

#[test]
fn a_dropped_future_passes_its_turn_on_to_a_fiber() {
    let _watch = watch();
    let runtime = runtime(1);
    let mutex = Arc::new(FairMutex::new(()));
    let guard = mutex.lock();
    let claimed = ByHand::waiting(mutex.lock_async());
    let theirs = mutex.clone();
    let waiter = runtime.spawn(move || drop(theirs.lock()));
    parked(&waiter);
    drop(guard);
    drop(claimed);
    waiter.join().unwrap();
    assert!(mutex.try_lock().is_ok());
}
