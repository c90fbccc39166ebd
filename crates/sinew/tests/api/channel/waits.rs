//! `select!` with what `sync` has to wait for.

use super::{HOUR, MS, everywhere, scenes};
use crate::harness::{Gate, on_workers, wait_until};
use sinew::channel::{never, unbounded};
use sinew::sync::{Event, FairMutex, Notify, Sequencer, promise};
use sinew::{Cancelled, WaitReason, select, select_biased};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

#[test]
fn an_event_that_is_set_can_go_and_stays_set() {
    everywhere(|| {
        let event = Event::new();
        select! {
            wait(&event) -> _ => panic!("it is not set"),
            default => {}
        }
        select! {
            wait(&event) -> _ => panic!("it is not set"),
            default(MS) => {}
        }
        event.set();
        for _ in 0..3 {
            select! {
                wait(&event) -> result => assert_eq!(result, Ok(())),
                default => panic!("it is set"),
            }
        }
    });
}

#[test]
fn a_waiting_select_is_woken_by_what_it_waits_for() {
    scenes(|scene| {
        let shared = Arc::new((Event::new(), Notify::new(), Sequencer::new()));
        for which in 0..3 {
            let theirs = shared.clone();
            let waiter = scene.left(move || {
                let (event, notify, sequencer) = &*theirs;
                select! {
                    wait(event) -> result => result.map(|()| 0),
                    wait(notify) -> result => result.map(|()| 1),
                    wait(sequencer.token(3)) -> result => result.map(|_| 2),
                    recv(never::<()>()) -> _ => panic!("never is now"),
                }
            });
            waiter.until_waiting();
            let theirs = shared.clone();
            let waker = scene.right(move || match which {
                0 => theirs.0.set(),
                1 => theirs.1.notify_one(),
                _ => assert!(theirs.2.advance(3)),
            });
            waker.join();
            assert_eq!(waiter.join(), Ok(which));
            shared.0.reset();
        }
    });
}

#[test]
fn a_permit_that_a_select_did_not_choose_is_kept() {
    everywhere(|| {
        let notify = Notify::new();
        let (tx, rx) = unbounded();
        tx.send(1).unwrap();
        notify.notify_one();
        select_biased! {
            recv(rx) -> got => assert_eq!(got, Ok(1)),
            wait(&notify) -> _ => panic!("not the first"),
        }
        assert!(notify.try_wait());
        notify.notify_one();
        select! {
            wait(&notify) -> result => assert_eq!(result, Ok(())),
        }
        assert!(!notify.try_wait());
    });
}

#[test]
fn of_many_selects_one_gets_a_permit() {
    scenes(|scene| {
        let shared = Arc::new((Notify::new(), Event::new()));
        let waiters: Vec<_> = (0..4)
            .map(|n| {
                let theirs = shared.clone();
                scene.side(n, move || {
                    select! {
                        wait(&theirs.0) -> _ => 1,
                        wait(&theirs.1) -> _ => 0,
                    }
                })
            })
            .collect();
        for waiter in &waiters {
            waiter.until_waiting();
        }
        shared.0.notify_one();
        wait_until(|| waiters.iter().any(|waiter| waiter.is_finished()));
        shared.1.set();
        assert_eq!(waiters.into_iter().map(|each| each.join()).sum::<i32>(), 1);
    });
}

#[test]
fn a_fiber_s_end_can_be_waited_for() {
    everywhere(|| {
        let go = Gate::new();
        let gate = go.clone();
        let handle = sinew::spawn(move || gate.pass());
        let fiber = handle.fiber();
        select! {
            wait(&fiber) -> _ => panic!("it cannot have ended"),
            default => {}
        }
        go.open();
        select! {
            wait(&fiber) -> result => assert_eq!(result.map(drop), Ok(())),
            default(HOUR) => panic!("timeout"),
        }
        assert!(handle.is_finished());
        handle.join().unwrap();
    });
}

#[test]
fn a_promised_value_is_taken_by_the_select_that_chose_it() {
    everywhere(|| {
        let (promise, mut future) = promise();
        select! {
            wait(&mut future) -> _ => panic!("it is not set"),
            default => {}
        }
        promise.set(String::from("kept")).unwrap();
        select! {
            wait(&mut future) -> result => assert_eq!(result.unwrap().unwrap(), "kept"),
            default => panic!("it is set"),
        }
        let (promise, mut future) = sinew::sync::promise::<u8>();
        drop(promise);
        select! {
            wait(&mut future) -> result => assert!(result.unwrap().is_err()),
        }
    });
}

#[test]
fn a_promise_kept_wakes_the_select_that_waits() {
    scenes(|scene| {
        let (promise, mut future) = promise();
        let waiter = scene.left(move || {
            select! {
                wait(&mut future) -> result => result.unwrap().unwrap(),
                recv(never::<()>()) -> _ => panic!("never is now"),
            }
        });
        waiter.until_waiting();
        scene.right(move || promise.set(6).unwrap()).join();
        assert_eq!(waiter.join(), 6);
    });
}

#[test]
fn a_ticket_that_loses_keeps_its_place_in_the_line() {
    everywhere(|| {
        let mutex = FairMutex::new(0);
        let held = mutex.lock();
        let mut ticket = mutex.ticket();
        select! {
            wait(&mut ticket) -> _ => panic!("it is locked"),
            default(MS) => {}
        }
        let behind = mutex.ticket();
        drop(held);
        select! {
            wait(&mut ticket) -> result => assert!(result.is_ok()),
            default(HOUR) => panic!("timeout"),
        }
        drop((ticket, behind));
        assert_eq!(*mutex.lock(), 0);
    });
}

#[test]
fn a_ticket_whose_guard_a_select_took_is_spent() {
    everywhere(|| {
        let mutex = FairMutex::new(0);
        let mut ticket = mutex.ticket();
        let guard = select! { wait(&mut ticket) -> guard => guard.unwrap() };
        assert!(!ticket.is_served());
        let again = catch_unwind(AssertUnwindSafe(|| {
            select! {
                wait(&mut ticket) -> _ => {}
                default => {}
            }
        }));
        assert!(again.is_err());
        let ticket = ticket.try_lock().unwrap_err();
        assert!(catch_unwind(AssertUnwindSafe(|| ticket.lock())).is_err());
        // It did not give back what was not its own any more.
        assert!(mutex.try_lock().is_err());
        drop(guard);
        assert!(mutex.try_lock().is_ok());
    });
}

#[test]
fn a_wait_arm_is_told_of_a_cancel() {
    on_workers(|runtime| {
        let event = Arc::new(Event::new());
        for set in [true, false] {
            let theirs = event.clone();
            let waiter = runtime.spawn(move || {
                if set {
                    sinew::current().cancel();
                }
                select! {
                    wait(&theirs) -> result => result,
                    recv(never::<()>()) -> _ => panic!("not the first"),
                }
            });
            if set {
                event.set();
            } else {
                wait_until(|| waiter.fiber().wait_reason() != WaitReason::None);
                waiter.cancel();
            }
            assert_eq!(waiter.join().unwrap(), Err(Cancelled));
            event.reset();
        }
    });
}
