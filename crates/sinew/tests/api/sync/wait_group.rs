//! `WaitGroup`: waits until all its clones are gone.

use super::poll::ByHand;
use super::{HOUR, SHORT, settle, spawn_parked};
use crate::harness::{Gate, in_fibers, panic_expected, watch};
use sinew::Cancelled;
use sinew::sync::WaitGroup;
use sinew::time::Instant;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[test]
fn one_without_clones_does_not_wait() {
    let _watch = watch();
    WaitGroup::new().wait();
    WaitGroup::default().wait();
    assert!(WaitGroup::new().wait_timeout(Duration::ZERO).is_ok());
    assert!(WaitGroup::new().wait_deadline(Instant::now()).is_ok());
    assert_eq!(WaitGroup::new().wait_or_cancelled(), Ok(()));
    assert_eq!(ByHand::new(WaitGroup::new().wait_async()).poll(), Some(()));
    assert!(format!("{:?}", WaitGroup::new()).contains("WaitGroup"));
}

#[test]
fn it_waits_for_the_last_clone() {
    in_fibers(|| {
        let done = Arc::new(AtomicUsize::new(0));
        let group = WaitGroup::new();
        for _ in 0..20 {
            let (group, done) = (group.clone(), done.clone());
            drop(sinew::spawn(move || {
                sinew::yield_now();
                done.fetch_add(1, Ordering::Relaxed);
                drop(group);
            }));
        }
        group.wait();
        assert_eq!(done.load(Ordering::Relaxed), 20);
    });
}

#[test]
fn it_does_not_go_on_while_one_is_left() {
    in_fibers(|| {
        let group = WaitGroup::new();
        let clones = [group.clone(), group.clone()];
        let waiter = spawn_parked(move || group.wait());
        let [first, last] = clones;
        drop(first);
        settle();
        assert!(!waiter.is_finished());
        let another = last.clone();
        drop(last);
        settle();
        assert!(!waiter.is_finished());
        drop(another);
        waiter.join().unwrap();
    });
}

#[test]
fn all_who_wait_do_not_wait_for_each_other() {
    in_fibers(|| {
        let group = WaitGroup::new();
        let waiters: Vec<_> = (0..4)
            .map(|_| {
                let group = group.clone();
                spawn_parked(move || group.wait())
            })
            .collect();
        settle();
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
        group.wait(); // the last one
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

#[test]
fn a_panic_counts_as_done() {
    in_fibers(|| {
        let group = WaitGroup::new();
        let theirs = group.clone();
        let panics = sinew::spawn(move || {
            let _theirs = theirs;
            panic_expected(1)
        });
        group.wait();
        assert!(panics.join().map(|()| ()).unwrap_err().is_panic());
    });
}

#[test]
fn a_timeout_is_not_early_and_gives_the_group_back() {
    in_fibers(|| {
        let mut group = WaitGroup::new();
        let other = group.clone();
        for time in [Duration::ZERO, SHORT] {
            let begun = Instant::now();
            group = group.wait_timeout(time).unwrap_err();
            assert!(begun.elapsed() >= time);
            let until = Instant::now() + time;
            group = group.wait_deadline(until).unwrap_err();
            assert!(Instant::now() >= until);
        }
        // It counts again: the other waits for it.
        let waiter = spawn_parked(move || other.wait());
        settle();
        assert!(!waiter.is_finished(), "the group came back uncounted");
        drop(group);
        waiter.join().unwrap();
    });
}

#[test]
fn an_end_in_time_is_no_timeout() {
    in_fibers(|| {
        let group = WaitGroup::new();
        let other = group.clone();
        let waiter = spawn_parked(move || group.wait_timeout(HOUR).is_ok());
        drop(other);
        assert!(waiter.join().unwrap());
    });
}

#[test]
fn waiting_is_no_point_but_its_twin_is() {
    in_fibers(|| {
        let group = WaitGroup::new();
        let (theirs, others) = (group.clone(), group.clone());
        let deaf = spawn_parked(move || theirs.wait());
        let heeds = spawn_parked(move || others.wait_or_cancelled());
        deaf.cancel();
        heeds.cancel();
        assert_eq!(heeds.join().unwrap(), Err(Cancelled));
        settle();
        assert!(!deaf.is_finished());
        drop(group);
        deaf.join().unwrap();
        let entry = sinew::spawn(|| {
            sinew::current().cancel();
            WaitGroup::new().wait_or_cancelled()
        });
        assert_eq!(entry.join().unwrap(), Err(Cancelled));
    });
}

#[test]
fn a_future_waits_and_may_be_dropped() {
    let _watch = watch();
    let group = WaitGroup::new();
    let mut future = ByHand::waiting(group.clone().wait_async());
    assert!(future.poll_elsewhere().is_none());
    drop(ByHand::waiting(group.clone().wait_async()));
    drop(group.clone().wait_async()); // never polled: it does not count either
    drop(group);
    future.woken();
}

#[test]
fn it_is_used_in_phases() {
    in_fibers(|| {
        let phase = Gate::new();
        let (first, second) = (WaitGroup::new(), WaitGroup::new());
        let fibers: Vec<_> = (0..5)
            .map(|_| {
                let (first, second, phase) = (first.clone(), second.clone(), phase.clone());
                sinew::spawn(move || {
                    first.wait(); // for all others, too
                    phase.pass();
                    drop(second);
                })
            })
            .collect();
        first.wait();
        phase.open();
        second.wait();
        for fiber in fibers {
            fiber.join().unwrap();
        }
    });
}
