//! `Barrier`: nobody passes before all are there, and one of them leads.

use super::poll::ByHand;
use super::{HOUR, SHORT, settle, spawn_begun, spawn_parked};
use crate::harness::{in_fibers, watch};
use sinew::Cancelled;
use sinew::sync::{Barrier, TimedOut};
use sinew::time::Instant;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[test]
fn nobody_passes_before_the_last_has_come() {
    in_fibers(|| {
        let barrier = Arc::new(Barrier::new(5));
        let waiters: Vec<_> = (0..4)
            .map(|_| {
                let barrier = barrier.clone();
                spawn_parked(move || barrier.wait().is_leader())
            })
            .collect();
        settle();
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
        let mut leaders = usize::from(barrier.wait().is_leader());
        for waiter in waiters {
            leaders += usize::from(waiter.join().unwrap());
        }
        assert_eq!(leaders, 1);
    });
}

#[test]
fn each_generation_has_one_leader_and_none_runs_ahead() {
    in_fibers(|| {
        const FIBERS: usize = 7;
        const ROUNDS: usize = 40;
        let barrier = Arc::new(Barrier::new(FIBERS));
        let arrived: Arc<Vec<AtomicUsize>> =
            Arc::new((0..ROUNDS).map(|_| AtomicUsize::new(0)).collect());
        let leaders: Arc<Vec<AtomicUsize>> =
            Arc::new((0..ROUNDS).map(|_| AtomicUsize::new(0)).collect());
        let fibers: Vec<_> = (0..FIBERS)
            .map(|i| {
                let (barrier, arrived, leaders) =
                    (barrier.clone(), arrived.clone(), leaders.clone());
                sinew::spawn(move || {
                    for round in 0..ROUNDS {
                        if (round + i) % 3 == 0 {
                            sinew::yield_now();
                        }
                        arrived[round].fetch_add(1, Ordering::SeqCst);
                        if barrier.wait().is_leader() {
                            leaders[round].fetch_add(1, Ordering::SeqCst);
                        }
                        assert_eq!(arrived[round].load(Ordering::SeqCst), FIBERS);
                    }
                })
            })
            .collect();
        for fiber in fibers {
            fiber.join().unwrap();
        }
        assert!(leaders.iter().all(|l| l.load(Ordering::SeqCst) == 1));
    });
}

#[test]
fn one_alone_and_none_pass_at_once_and_lead() {
    static ALONE: Barrier = Barrier::new(1);
    for barrier in [&ALONE, &Barrier::new(0)] {
        for _ in 0..3 {
            assert!(barrier.wait().is_leader());
            assert!(barrier.wait_timeout(Duration::ZERO).unwrap().is_leader());
            assert!(barrier.wait_deadline(Instant::now()).unwrap().is_leader());
            assert!(barrier.wait_or_cancelled().unwrap().is_leader());
            let mut future = ByHand::new(barrier.wait_async());
            assert!(future.poll().unwrap().is_leader());
        }
    }
    assert!(format!("{ALONE:?}").contains("Barrier"));
}

#[test]
fn who_timed_out_does_not_count() {
    in_fibers(|| {
        let barrier = Arc::new(Barrier::new(2));
        for time in [Duration::ZERO, SHORT] {
            let begun = Instant::now();
            assert_eq!(barrier.wait_timeout(time).map(|_| ()), Err(TimedOut));
            assert!(begun.elapsed() >= time);
            let until = Instant::now() + time;
            assert_eq!(barrier.wait_deadline(until).map(|_| ()), Err(TimedOut));
            assert!(Instant::now() >= until);
        }
        let theirs = barrier.clone();
        let waiter = spawn_parked(move || theirs.wait_timeout(HOUR).unwrap().is_leader());
        settle();
        assert!(!waiter.is_finished(), "passed with one that had gone");
        let leads = barrier.wait().is_leader();
        assert_ne!(waiter.join().unwrap(), leads);
    });
}

#[test]
fn who_was_cancelled_does_not_count() {
    in_fibers(|| {
        let barrier = Arc::new(Barrier::new(2));
        let theirs = barrier.clone();
        let cancelled = spawn_parked(move || {
            let first = theirs.wait_or_cancelled().map(|_| ());
            (first, theirs.wait_or_cancelled().map(|_| ()))
        });
        cancelled.cancel();
        let (first, again) = cancelled.join().unwrap();
        assert_eq!((first, again), (Err(Cancelled), Err(Cancelled)));
        let theirs = barrier.clone();
        let deaf = spawn_parked(move || theirs.wait().is_leader());
        deaf.cancel();
        settle();
        assert!(!deaf.is_finished());
        let leads = barrier.wait().is_leader();
        assert_ne!(deaf.join().unwrap(), leads);
    });
}

#[test]
fn who_gives_up_while_the_last_comes_counts_or_does_not() {
    in_fibers(|| {
        for round in 0..20 {
            let barrier = Arc::new(Barrier::new(2));
            let theirs = barrier.clone();
            let gives_up = spawn_begun(move || match round % 2 {
                0 => theirs.wait_timeout(SHORT).is_ok(),
                _ => theirs.wait_or_cancelled().is_ok(),
            });
            let theirs = barrier.clone();
            let waits = spawn_begun(move || theirs.wait().is_leader());
            gives_up.cancel();
            if !gives_up.join().unwrap() {
                settle();
                assert!(!waits.is_finished());
                barrier.wait();
            }
            waits.join().unwrap();
        }
    });
}

#[test]
fn futures_count_while_they_wait() {
    let _watch = watch();
    let barrier = Barrier::new(3);
    drop(barrier.wait_async()); // never polled
    drop(ByHand::waiting(barrier.wait_async())); // gone again
    let mut first = ByHand::waiting(barrier.wait_async());
    assert!(first.poll_elsewhere().is_none());
    let second = ByHand::waiting(barrier.wait_async());
    assert!(!first.is_woken());
    let last = ByHand::new(barrier.wait_async()).poll().unwrap();
    let leaders = [first.woken(), second.woken(), last];
    let leaders = leaders.iter().filter(|result| result.is_leader()).count();
    assert_eq!(leaders, 1);
    // The next generation begins from nothing.
    let waits = ByHand::waiting(barrier.wait_async());
    let claimed = ByHand::waiting(barrier.wait_async());
    assert!(ByHand::new(barrier.wait_async()).poll().is_some());
    assert!(claimed.is_woken());
    drop(claimed); // it had counted
    waits.woken();
    drop(ByHand::waiting(barrier.wait_async()));
}
