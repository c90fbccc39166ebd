//! Waiting for a token: on fibers, threads, in selects and in async code.

use super::{HOUR, SHORT, everywhere, spawn_parked};
use crate::harness::{in_fibers, on_workers, runtime, wait_until, watch};
use sinew::channel::{bounded, never};
use sinew::sync::{Event, WaitTimeoutError};
use sinew::time::Instant;
use sinew::{CancelReason, CancelToken, Cancelled, select, select_biased};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

#[test]
fn a_wait_for_a_token_ends_when_it_or_one_above_is_cancelled() {
    in_fibers(|| {
        let token = CancelToken::new();
        let waiters: Vec<_> = (0..10)
            .map(|_| {
                let theirs = token.child();
                spawn_parked(move || theirs.wait())
            })
            .collect();
        let theirs = token.clone();
        let thread = std::thread::spawn(move || theirs.wait());
        token.cancel();
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Ok(()));
        }
        assert_eq!(sinew::blocking(|| thread.join().unwrap()), Ok(()));
        assert_eq!(token.wait(), Ok(()));
        assert_eq!(token.wait_timeout(Duration::ZERO), Ok(()));
    });
}

#[test]
fn a_wait_for_a_token_ends_by_its_own_limit_or_by_the_tokens() {
    everywhere(|| {
        let token = CancelToken::new();
        let late = Err(WaitTimeoutError::Timeout);
        assert_eq!(token.wait_timeout(SHORT), late);
        assert_eq!(token.wait_timeout(Duration::ZERO), late);
        assert_eq!(token.wait_deadline(Instant::now() + SHORT), late);
        assert!(!token.is_cancelled());

        for wait in [
            CancelToken::wait as fn(&CancelToken) -> _,
            |token| token.wait_timeout(HOUR).map_err(|_| Cancelled),
            |token| {
                let by = Instant::now() + HOUR;
                token.wait_deadline(by).map_err(|_| Cancelled)
            },
        ] {
            let limited = token.child_with_timeout(SHORT).child();
            assert_eq!(wait(&limited), Ok(()));
            assert_eq!(limited.reason(), Some(CancelReason::Deadline));
        }
        let limited = token.child_with_timeout(HOUR);
        assert_eq!(limited.wait_timeout(SHORT), late);
        assert!(!limited.is_cancelled());
    });
}

#[test]
fn a_wait_for_a_token_is_a_point_itself() {
    everywhere(|| {
        let token = CancelToken::new();
        let answer = sinew::timeout(SHORT, || token.wait());
        assert_eq!(answer.unwrap_err().into_inner(), Err(Cancelled));
        let answer = sinew::timeout(SHORT, || token.wait_timeout(HOUR));
        let inner = answer.unwrap_err().into_inner();
        assert_eq!(inner, Err(WaitTimeoutError::Cancelled));
        let other = CancelToken::new();
        other.cancel();
        token.cancel();
        // Also on entry, although the token is cancelled already.
        assert_eq!(other.enter(|| token.wait()), Err(Cancelled));
        assert_eq!(token.enter(|| token.wait()), Err(Cancelled));
    });
}

#[test]
fn an_arm_waits_for_a_token() {
    on_workers(|runtime| {
        for with_limit in [false, true] {
            let top = CancelToken::new();
            let token = if with_limit {
                top.child_with_timeout(HOUR)
            } else {
                top.child()
            };
            let theirs = token.clone();
            let by_ref = runtime.spawn(move || {
                select! {
                    recv(never::<()>()) -> _ => panic!("nothing comes"),
                    wait(&theirs) -> told => told,
                }
            });
            let theirs = token.clone();
            let by_future = runtime.spawn(move || {
                select! {
                    recv(never::<()>()) -> _ => panic!("nothing comes"),
                    wait(theirs.cancelled()) -> told => told,
                }
            });
            for waiter in [&by_ref, &by_future] {
                super::parked(&waiter.fiber());
            }
            top.cancel();
            assert_eq!(by_ref.join().unwrap(), Ok(()));
            assert_eq!(by_future.join().unwrap(), Ok(()));
            // Ready on entry.
            let told = select_biased! {
                wait(&token) -> told => told,
                default => panic!("it is cancelled"),
            };
            assert_eq!(told, Ok(()));
        }
    });
}

#[test]
fn an_arm_that_waits_for_a_token_is_chosen_when_its_deadline_comes() {
    everywhere(|| {
        let top = CancelToken::new();
        let limited = top.child_with_timeout(SHORT);
        let told = select! {
            recv(never::<()>()) -> _ => panic!("nothing comes"),
            wait(&limited) -> told => told,
        };
        assert_eq!(told, Ok(()));
        assert_eq!(limited.reason(), Some(CancelReason::Deadline));
        let limited = top.child_with_timeout(SHORT).child();
        let told = select! {
            recv(never::<()>()) -> _ => panic!("nothing comes"),
            wait(limited.cancelled()) -> told => told,
            default(HOUR) => panic!("an hour has passed"),
        };
        assert_eq!(told, Ok(()));
        // The earlier of two.
        let (soon, late) = (top.child_with_timeout(SHORT), top.child_with_timeout(HOUR));
        select! {
            wait(&late) -> _ => panic!("an hour has passed"),
            wait(&soon) -> told => told.unwrap(),
        }
        // A limit of the select that is earlier than the token's.
        select! {
            wait(&late) -> _ => panic!("an hour has passed"),
            default(SHORT) => (),
        }
        assert!(!late.is_cancelled());
    });
}

#[test]
fn an_arm_that_is_not_chosen_leaves_the_token_alone() {
    everywhere(|| {
        let token = CancelToken::new().child_with_timeout(HOUR);
        let (tx, rx) = bounded(1);
        for i in 0..10 {
            tx.send(i).unwrap();
            select! {
                recv(rx) -> got => assert_eq!(got, Ok(i)),
                wait(&token) -> _ => panic!("it is not cancelled"),
            }
        }
        let event = Event::new();
        event.set();
        select_biased! {
            wait(token.cancelled()) -> _ => panic!("it is not cancelled"),
            wait(&event) -> set => set.unwrap(),
        }
        assert!(!token.is_cancelled());
        token.cancel();
        assert_eq!(token.wait(), Ok(()));
    });
}

#[test]
fn a_select_that_is_cancelled_says_so_by_a_tokens_arm_too() {
    in_fibers(|| {
        let token = CancelToken::new();
        let answer = sinew::timeout(SHORT, || {
            select! {
                wait(&token) -> told => told,
                default(HOUR) => Ok(()),
            }
        });
        assert_eq!(answer.unwrap_err().into_inner(), Err(Cancelled));
        let answer = sinew::timeout(SHORT, || {
            select! {
                wait(&token) -> _ => "token",
                cancelled => "cancelled",
            }
        });
        assert_eq!(answer.unwrap_err().into_inner(), "cancelled");
    });
}

#[test]
fn the_future_ends_with_the_token_under_our_own_block_on() {
    everywhere(|| {
        let token = CancelToken::new();
        let theirs = token.clone();
        let canceller = std::thread::spawn(move || theirs.cancel());
        sinew::block_on(token.cancelled());
        canceller.join().unwrap();
        let limited = CancelToken::new().child_with_timeout(SHORT);
        sinew::block_on(limited.cancelled());
        assert_eq!(limited.reason(), Some(CancelReason::Deadline));
        sinew::block_on(limited.child().cancelled());
    });
}

#[test]
fn the_future_ends_with_the_token_under_a_foreign_executor() {
    let _watch = watch();
    let one = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let many = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    for tokio in [&one, &many] {
        let token = CancelToken::new();
        let theirs = token.child();
        let told = tokio.spawn(async move { theirs.cancelled().await });
        let limited = token.child_with_timeout(SHORT);
        let late = tokio.spawn(async move {
            limited.cancelled().await;
            limited.reason()
        });
        assert_eq!(tokio.block_on(late).unwrap(), Some(CancelReason::Deadline));
        let sinews = runtime(1);
        sinews.run(|| token.cancel());
        tokio.block_on(told).unwrap();
    }
}

#[test]
fn many_tasks_wait_for_one_token() {
    in_fibers(|| {
        let token = CancelToken::new();
        let mut waits: Vec<_> = (0..50).map(|_| Box::pin(token.cancelled())).collect();
        let mut context = Context::from_waker(Waker::noop());
        for wait in &mut waits {
            assert_eq!(wait.as_mut().poll(&mut context), Poll::Pending);
        }
        waits.truncate(25); // leave early
        token.cancel();
        for wait in &mut waits {
            assert_eq!(wait.as_mut().poll(&mut context), Poll::Ready(()));
        }
    });
}

#[test]
fn a_future_that_is_dropped_early_leaves_no_fiber_behind() {
    on_workers(|runtime| {
        let token = CancelToken::new().child_with_timeout(HOUR);
        runtime.run(|| {
            for _ in 0..10 {
                let mut wait = pin!(token.cancelled());
                let mut context = Context::from_waker(Waker::noop());
                for _ in 0..3 {
                    assert!(wait.as_mut().poll(&mut context).is_pending());
                    sinew::yield_now();
                }
            }
        });
        wait_until(|| runtime.stats().live == 0 && runtime.stats().timers == 0);
        assert!(!token.is_cancelled());
    });
}

#[test]
fn a_future_that_has_resolved_by_a_request_leaves_no_fiber_behind() {
    on_workers(|runtime| {
        runtime.run(|| {
            let token = CancelToken::new().child_with_timeout(HOUR);
            let theirs = token.clone();
            let waiter = spawn_parked(move || sinew::block_on(theirs.cancelled()));
            token.cancel();
            waiter.join().unwrap();
        });
        wait_until(|| runtime.stats().live == 0 && runtime.stats().timers == 0);
    });
}
