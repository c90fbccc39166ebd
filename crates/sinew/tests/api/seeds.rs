//! What two designs that this library grew from promise, as far as it is kept here:
//! Surge (scopes that join, fail-fast, select and race) and Blood (nurseries, points,
//! finalisers).

use crate::harness::{
    Gate, Log, in_fibers, is_expected, on_workers, panic_expected, wait_until, watch,
};
use sinew::channel::{RecvError, bounded, unbounded};
use sinew::scope::{Exit, Failure, Restart, Strategy, Supervision, nursery, supervise};
use sinew::sync::Event;
use sinew::{
    CancelReason, CancelToken, Cancelled, Runtime, ScopedJoinHandle, WaitReason, race, scope,
    select, select_biased,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const MS: Duration = Duration::from_millis(1);

/// In fibers of one and of two workers, and on a plain thread.
fn everywhere(test: impl Fn() + Sync) {
    in_fibers(&test);
    let _watch = watch();
    test();
}

fn strict() -> Runtime {
    let builder = Runtime::builder().workers(1).strict_order(true);
    builder.build().unwrap()
}

fn wait_for_sleep<T>(child: &ScopedJoinHandle<'_, T>) {
    wait_until(|| child.fiber().wait_reason() == WaitReason::Sleep);
}

// Surge: scheduling.

#[test]
fn children_of_a_scope_take_turns_exactly() {
    let _watch = watch();
    let log = Log::new();
    strict().run(|| {
        scope(|s| {
            for i in 0..5 {
                let log = log.clone();
                s.spawn(move || {
                    for _ in 0..50 {
                        log.push(i);
                        sinew::yield_now();
                    }
                });
            }
        });
    });
    let expected: Vec<u32> = (0..50).flat_map(|_| 0..5).collect();
    assert_eq!(log.take(), expected);
}

#[test]
fn a_parked_child_has_no_turn_until_it_is_woken_and_then_the_last() {
    let _watch = watch();
    let log = Log::new();
    strict().run(|| {
        scope(|s| {
            let theirs = log.clone();
            let parked = s.spawn(move || {
                sinew::park();
                theirs.push("woken");
            });
            let parked = parked.fiber();
            for name in ["one", "two"] {
                let (log, parked) = (log.clone(), parked.clone());
                s.spawn(move || {
                    for _ in 0..3 {
                        log.push(name);
                        sinew::yield_now();
                    }
                    parked.unpark(); // the second is too late
                    log.push(name);
                });
            }
        });
    });
    let turns = ["one", "two", "one", "two", "one", "two"];
    assert_eq!(log.take(), [&turns[..], &["one", "two", "woken"]].concat());
}

#[test]
fn a_checkpoint_lets_others_run_and_then_checks() {
    let _watch = watch();
    let log = Log::new();
    strict().run(|| {
        scope(|s| {
            for i in 0..2 {
                let log = log.clone();
                s.spawn(move || {
                    for _ in 0..3 {
                        log.push(i);
                        assert_eq!(sinew::checkpoint(), Ok(()));
                    }
                });
            }
            let theirs = log.clone();
            s.spawn(move || {
                sinew::current().cancel();
                theirs.push(8);
                assert_eq!(sinew::checkpoint(), Err(Cancelled));
                theirs.push(9);
            });
        });
    });
    assert_eq!(log.take(), [0, 1, 8, 0, 1, 9, 0, 1]);
}

// Surge: scopes.

#[test]
fn a_scope_joins_the_children_that_nobody_has_joined() {
    everywhere(|| {
        let (body_is_over, ended) = (Gate::new(), AtomicU32::new(0));
        scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    body_is_over.pass();
                    sinew::yield_now();
                    ended.fetch_add(1, SeqCst);
                });
            }
            body_is_over.open();
        });
        assert_eq!(ended.load(SeqCst), 4);
    });
}

#[test]
fn an_early_return_cancels_the_children_only_if_that_was_asked_for() {
    /// Leaves its scope by `?`; answers whether the child was cancelled.
    fn leave_early(cancels: bool) -> Option<CancelReason> {
        let (left, reason) = (Gate::new(), Log::new());
        let outcome = scope(|s| {
            if cancels {
                s.cancel_on_exit();
            }
            let begun = Gate::new();
            let theirs = (begun.clone(), left.clone(), reason.clone());
            s.spawn(move || {
                let (begun, left, reason) = theirs;
                begun.open();
                while !left.is_open() || cancels && !sinew::is_cancelled() {
                    sinew::yield_now();
                }
                reason.push(sinew::cancel_reason());
            });
            begun.pass();
            left.open();
            Err("left early")?;
            Ok(())
        });
        assert_eq!(outcome, Err("left early"));
        reason.take().pop().unwrap()
    }
    everywhere(|| {
        assert_eq!(leave_early(false), None);
        assert_eq!(leave_early(true), Some(CancelReason::ScopeEnded));
    });
}

#[test]
fn a_child_that_is_cancelled_makes_its_nursery_fail_and_the_rest_is_cancelled() {
    everywhere(|| {
        let told = Log::new();
        let outcome = nursery(|n| {
            let victim = n.spawn(|| sinew::sleep(HOUR));
            let sibling = n.spawn(|| {
                let slept = sinew::sleep(HOUR);
                told.push(sinew::cancel_reason());
                slept
            });
            for child in [&victim, &sibling] {
                wait_until(|| child.fiber().wait_reason() == WaitReason::Sleep);
            }
            victim.cancel();
            // The parent as well, which goes on as it pleases.
            assert_eq!(sinew::sleep(HOUR), Err(Cancelled));
            Ok("not what the nursery answers")
        });
        assert!(matches!(outcome, Err(Failure::Error(Cancelled))));
        assert_eq!(told.take(), [Some(CancelReason::Failed)]);
        assert_eq!(sinew::check_cancelled(), Ok(()));
    });
}

#[test]
fn a_handle_that_is_returned_is_the_callers_to_join() {
    everywhere(|| {
        let go = Gate::new();
        let theirs = go.clone();
        let outer = sinew::spawn(move || {
            sinew::spawn(move || {
                theirs.pass();
                7
            })
        });
        let inner = outer.join().unwrap();
        go.open();
        assert_eq!(inner.join().unwrap(), 7);
    });
}

#[test]
fn any_number_of_fibers_and_threads_wait_for_one() {
    on_workers(|runtime| {
        let target = runtime.spawn(|| {
            sinew::park();
            7
        });
        let fiber = target.fiber();
        let waiters: Vec<_> = (0..50)
            .map(|_| {
                let fiber = fiber.clone();
                runtime.spawn(move || fiber.wait())
            })
            .collect();
        let theirs = fiber.clone();
        let thread = std::thread::spawn(move || theirs.wait());
        wait_until(|| {
            let mut reasons = waiters.iter().map(|waiter| waiter.fiber().wait_reason());
            reasons.all(|reason| reason == WaitReason::Join)
        });
        fiber.unpark();
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Ok(()));
        }
        assert_eq!(thread.join().unwrap(), Ok(()));
        assert_eq!(target.join().unwrap(), 7);
    });
}

// Surge: select, race, timeout.

#[test]
fn of_several_arms_that_are_ready_the_biased_select_takes_the_first_and_the_fair_any() {
    everywhere(|| {
        let (full, empty) = (unbounded(), unbounded::<u32>());
        for _ in 0..10_000 {
            full.0.send(0).unwrap();
        }
        let mut ended = sinew::spawn(|| ());
        wait_until(|| ended.is_finished());
        for _ in 0..100 {
            let chosen = select_biased! {
                recv(empty.1) -> _ => 0,
                recv(full.1) -> _ => 1,
                send(full.0, 0) -> _ => 2,
                default => 3,
            };
            assert_eq!(chosen, 1);
        }
        let mut chosen = [0; 3];
        for _ in 0..3000 {
            chosen[select! {
                recv(empty.1) -> _ => 0,
                recv(full.1) -> _ => 1,
                send(full.0, 0) -> _ => 2,
            }] += 1;
        }
        assert_eq!(chosen[0], 0);
        assert!(chosen[1] > 1000 && chosen[2] > 1000, "{chosen:?}");
        let first = select_biased! {
            join(ended) -> _ => true,
            recv(full.1) -> _ => false,
        };
        assert!(first);
    });
}

#[test]
fn a_select_cancels_nobody_a_race_only_the_handles_that_have_lost() {
    everywhere(|| {
        scope(|s| {
            let mut sleeper = s.spawn(|| sinew::sleep(HOUR));
            wait_for_sleep(&sleeper);
            let (to, from) = bounded(1);
            let (event, token) = (Event::new(), CancelToken::new());
            let ready = CancelToken::new();
            ready.cancel();
            select! {
                join(sleeper) -> _ => panic!("an hour is over"),
                wait(&ready) -> told => assert_eq!(told, Ok(())),
                recv(from) -> _ => panic!("nobody sent"),
            }
            assert_eq!(sleeper.fiber().wait_reason(), WaitReason::Sleep);
            race! {
                recv(from) -> _ => panic!("nobody sent"),
                join(sleeper) -> _ => panic!("an hour is over"),
                wait(&event) -> _ => panic!("nobody has set it"),
                wait(&token) -> _ => panic!("nobody has cancelled it"),
                wait(&ready) -> told => assert_eq!(told, Ok(())),
            }
            assert_eq!(sleeper.join().unwrap(), Err(Cancelled));
            // What is no fiber is as it was.
            assert!(!event.is_set() && !token.is_cancelled());
            assert!(!from.is_disconnected() && !to.is_disconnected());
            to.send(7).unwrap();
            assert_eq!(from.recv(), Ok(7));
        });
    });
}

#[test]
fn a_timeout_around_a_join_cancels_the_child_and_has_what_it_returned() {
    everywhere(|| {
        scope(|s| {
            let child = s.spawn(|| (sinew::sleep(HOUR), 7));
            wait_for_sleep(&child);
            let late = sinew::timeout(MS, || child.join().unwrap());
            assert_eq!(late.unwrap_err().into_inner(), (Err(Cancelled), 7));
            let child = s.spawn(|| 8);
            assert_eq!(sinew::timeout(HOUR, || child.join().unwrap()), Ok(8));
            assert_eq!(sinew::check_cancelled(), Ok(()));
        });
    });
}

#[test]
fn a_closed_channel_gives_what_is_left_and_then_says_so() {
    everywhere(|| {
        let (to, from) = bounded(4);
        scope(|s| {
            let reader = s.spawn(move || from.iter().sum::<u32>());
            to.send(1).unwrap();
            to.send(2).unwrap();
            to.close();
            assert!(to.send(4).is_err());
            assert_eq!(reader.join().unwrap(), 3);
        });
        let (to, from) = bounded::<u32>(4);
        drop(to);
        assert_eq!(from.recv(), Err(RecvError::Disconnected));
    });
}

// Blood.

#[test]
fn a_nursery_s_tasks_are_complete_when_it_exits_also_those_of_nested_ones() {
    everywhere(|| {
        let (begun, ended) = (AtomicU32::new(0), AtomicU32::new(0));
        let task = || {
            begun.fetch_add(1, SeqCst);
            for _ in 0..10 {
                sinew::yield_now();
            }
            ended.fetch_add(1, SeqCst);
            Ok::<_, Cancelled>(())
        };
        let outcome = nursery(|n| {
            for _ in 0..3 {
                n.spawn(|| {
                    nursery(|n| {
                        n.spawn(task);
                        n.spawn(task);
                        Ok(())
                    })
                    .map_err(|_| Cancelled)
                });
            }
            n.spawn(task).join()
        });
        assert!(outcome.is_ok());
        assert_eq!((begun.into_inner(), ended.into_inner()), (7, 7));
    });
}

#[test]
fn who_meets_no_point_is_not_cancelled() {
    on_workers(|runtime| {
        for checks in [false, true] {
            let (begun, go) = (Gate::new(), Gate::new());
            let theirs = (begun.clone(), go.clone());
            // Keeps its worker: it is this thread that cancels.
            let fiber = runtime.spawn(move || {
                theirs.0.open();
                theirs.1.spin();
                let sum = (0..10u32).sum::<u32>();
                if checks {
                    sinew::check_cancelled()?
                }
                Ok::<_, Cancelled>(sum)
            });
            begun.spin();
            fiber.cancel();
            go.open();
            let expected = if checks { Err(Cancelled) } else { Ok(45) };
            assert_eq!(fiber.join().unwrap(), expected);
        }
    });
}

/// Three `finally`, one in the other; each cleanup waits, at points.
fn finalisers(log: &Log<&'static str>, body: &dyn Fn()) {
    let cleanup = |name| {
        let log = log.clone();
        move || {
            sinew::checkpoint().unwrap();
            sinew::sleep(Duration::from_micros(10)).unwrap();
            log.push(name);
        }
    };
    sinew::finally(
        || {
            sinew::finally(
                || {
                    sinew::finally(body, cleanup("inner"));
                    log.push("after the inner");
                },
                cleanup("middle"),
            )
        },
        cleanup("outer"),
    );
}

#[test]
fn finalisers_of_a_cancelled_fiber_run_innermost_first_and_are_not_cancelled() {
    everywhere(|| {
        let log = Log::new();
        scope(|s| {
            let child = s.spawn(|| {
                finalisers(&log, &|| assert_eq!(sinew::sleep(HOUR), Err(Cancelled)));
                sinew::check_cancelled()
            });
            wait_for_sleep(&child);
            child.cancel();
            // After them it is cancelled as before.
            assert_eq!(child.join().unwrap(), Err(Cancelled));
        });
        let expected = ["inner", "after the inner", "middle", "outer"];
        assert_eq!(log.take(), expected);
    });
}

#[test]
fn finalisers_run_after_a_return_and_alone_after_a_panic() {
    everywhere(|| {
        let log = Log::new();
        let value = sinew::finally(
            || {
                log.push("return");
                7
            },
            || log.push("finally"),
        );
        assert_eq!(value, 7);
        assert_eq!(log.take(), ["return", "finally"]);
        let body = || finalisers(&log, &|| panic_expected(1));
        let payload = catch_unwind(AssertUnwindSafe(body)).unwrap_err();
        assert!(is_expected(&*payload, 1));
        assert_eq!(log.take(), ["inner", "middle", "outer"]);
    });
}

#[test]
fn a_supervisor_keeps_a_failure_from_the_others() {
    everywhere(|| {
        let (failed, runs) = (Gate::new(), AtomicU32::new(0));
        let limits = Supervision::new()
            .strategy(Strategy::OneForOne)
            .intensity(5, HOUR);
        let report = supervise(limits, |s| {
            s.child("fails", Restart::Transient, || {
                if runs.fetch_add(1, SeqCst) < 3 {
                    panic_expected(1);
                }
                failed.open();
            });
            s.child("gives up", Restart::Temporary, || Err::<(), _>("once"));
            s.child("goes on", Restart::Transient, || {
                failed.pass();
                sinew::check_cancelled()
            });
        });
        let report = report.unwrap();
        let exits: Vec<_> = report.children.iter().map(|c| &c.last_exit).collect();
        let once = Exit::Failed("once".into());
        assert_eq!(exits, [&Exit::Normal, &once, &Exit::Normal]);
        let starts: Vec<_> = report.children.iter().map(|c| c.starts).collect();
        assert_eq!(starts, [4, 1, 1]);
    });
}
