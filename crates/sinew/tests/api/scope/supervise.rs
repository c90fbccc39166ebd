//! Children that are started again: when, how often, and what is told of it.

use super::{Counts, FOR_EVER, HOUR, count, everywhere, panic_of, waits_in};
use crate::harness::{Gate, Log, is_expected, on_workers, panic_expected, wait_until};
use sinew::scope::{Exit, Report, Restart, Strategy, Supervision, supervise};
use sinew::{CancelReason, Cancelled, WaitReason};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// So many restarts as a test makes, and more.
fn patient() -> Supervision {
    Supervision::new().intensity(100, HOUR)
}

/// How often a child was started, and how its last run ended.
fn of(report: &Report, name: &str) -> (usize, Exit) {
    let found = report.children.iter().find(|child| child.name == name);
    let child = found.expect("a child of that name");
    (child.starts, child.last_exit.clone())
}

/// Calls numbered from 0.
fn next(calls: &AtomicUsize) -> usize {
    calls.fetch_add(1, Ordering::SeqCst)
}

#[test]
fn a_transient_child_is_started_again_until_it_succeeds() {
    everywhere(|| {
        let calls = AtomicUsize::new(0);
        let report = supervise(patient(), |s| {
            s.child("flaky", Restart::Transient, || match next(&calls) {
                0 => Err("not yet"),
                1 => panic_expected(1),
                2 => std::panic::resume_unwind(Box::new("nor now")),
                _ => Ok(()),
            });
        });
        let report = report.unwrap();
        assert_eq!(report.restarts, 3);
        assert_eq!(of(&report, "flaky"), (4, Exit::Normal));
    });
}

#[test]
fn a_temporary_child_is_never_started_again() {
    everywhere(|| {
        let report = supervise(patient(), |s| {
            s.child("fails", Restart::Temporary, || Err::<(), _>("for good"));
            s.child("panics", Restart::Temporary, || -> () {
                std::panic::resume_unwind(Box::new(String::from("also")))
            });
            s.child("mute", Restart::Temporary, || -> () { panic_expected(1) });
            s.child("ends", Restart::Temporary, || ());
        });
        let report = report.unwrap();
        assert_eq!(report.restarts, 0);
        assert_eq!(of(&report, "fails"), (1, Exit::Failed("for good".into())));
        let said = Some("also".into());
        assert_eq!(of(&report, "panics"), (1, Exit::Panicked(said)));
        assert_eq!(of(&report, "mute"), (1, Exit::Panicked(None)));
        assert_eq!(of(&report, "ends"), (1, Exit::Normal));
        let names: Vec<_> = report.children.iter().map(|child| &*child.name).collect();
        assert_eq!(names, ["fails", "panics", "mute", "ends"]);
    });
}

#[test]
fn a_permanent_child_is_started_again_also_after_success() {
    everywhere(|| {
        let calls = AtomicUsize::new(0);
        let report = supervise(patient(), |s| {
            s.child("service", Restart::Permanent, || {
                if next(&calls) == 3 {
                    s.cancel(); // else it would go on for ever
                }
            });
        });
        let report = report.unwrap();
        assert_eq!((count(&calls), report.restarts), (4, 3));
        assert_eq!(of(&report, "service"), (4, Exit::Normal));
    });
}

#[test]
fn a_child_that_ends_well_is_not_started_again_by_default() {
    everywhere(|| {
        assert_eq!(Restart::default(), Restart::Transient);
        let report = supervise(Supervision::new(), |s| {
            s.child("one", Restart::default(), || ());
            s.child("other", Restart::default(), || Ok::<_, Cancelled>(1));
        });
        assert_eq!(report.unwrap().restarts, 0);
    });
}

#[test]
fn without_children_there_is_nothing_to_wait_for() {
    everywhere(|| {
        let report = supervise(Supervision::default(), |_| ()).unwrap();
        assert!(report.children.is_empty() && report.restarts == 0);
    });
}

#[test]
fn one_restart_too_many_and_the_supervisor_gives_up() {
    everywhere(|| {
        for limit in [0, 1, 3] {
            let calls = AtomicUsize::new(0);
            let limits = Supervision::new().intensity(limit, HOUR);
            let error = supervise(limits, |s| {
                s.child("broken", Restart::Transient, || {
                    next(&calls);
                    Err::<(), _>("as ever")
                });
            })
            .unwrap_err();
            assert_eq!(count(&calls), limit + 1);
            assert_eq!(error.report().restarts, limit);
            let told = of(error.report(), "broken");
            assert_eq!(told, (limit + 1, Exit::Failed("as ever".into())));
            let text = format!(
                "the supervisor gave up: child 'broken' failed: as ever, after {limit} \
                 restarts within 3600s"
            );
            assert_eq!(error.to_string(), text);
        }
    });
}

#[test]
fn restarts_of_all_children_count_together() {
    everywhere(|| {
        let calls = [const { AtomicUsize::new(0) }; 2];
        let limits = Supervision::new().intensity(3, HOUR);
        let error = supervise(limits, |s| {
            for calls in &calls {
                s.child("one of two", Restart::Transient, || {
                    if next(calls) < 2 {
                        Err("twice")
                    } else {
                        Ok(())
                    }
                });
            }
        });
        // Four are needed.
        assert_eq!(error.unwrap_err().report().restarts, 3);
    });
}

#[test]
fn restarts_longer_ago_than_the_period_do_not_count() {
    everywhere(|| {
        let calls = AtomicUsize::new(0);
        let limits = Supervision::new().intensity(1, Duration::from_millis(1));
        let report = supervise(limits, |s| {
            s.child("slow to fail", Restart::Transient, || {
                std::thread::sleep(Duration::from_millis(3));
                if next(&calls) < 4 {
                    Err("again")
                } else {
                    Ok(())
                }
            });
        });
        assert_eq!(report.unwrap().restarts, 4);
    });
}

#[test]
fn who_gives_up_cancels_the_others_waits_for_them_and_reports_their_ends() {
    everywhere(|| {
        let (told, calls) = (Log::new(), AtomicUsize::new(0));
        let limits = Supervision::new().intensity(1, HOUR);
        let asleep = Gate::new();
        let error = supervise(limits, |s| {
            s.child("honest", Restart::Permanent, || {
                asleep.open();
                let slept = sinew::sleep(HOUR);
                told.push(sinew::cancel_reason());
                slept
            });
            s.child("calm", Restart::Permanent, || {
                if next(&calls) == 0 {
                    panic_expected(1);
                }
                asleep.pass();
                wait_until(sinew::is_cancelled);
                told.push(sinew::cancel_reason());
            });
            s.child("broken", Restart::Permanent, || {
                asleep.pass();
                wait_until(|| count(&calls) == 2);
                Err::<(), _>("broken")
            });
        })
        .unwrap_err();
        assert_eq!(told.take(), [const { Some(CancelReason::Supervisor) }; 2]);
        let report = error.report();
        let failed = |text: &str| Exit::Failed(text.into());
        assert_eq!(of(report, "broken"), (1, failed("broken")));
        // Both ran, and ended after they were asked to.
        assert_eq!(of(report, "honest"), (1, failed(&Cancelled.to_string())));
        assert_eq!(of(report, "calm"), (2, Exit::Normal));
    });
}

#[test]
fn nobody_is_started_again_before_the_body_has_returned() {
    everywhere(|| {
        let calls = AtomicUsize::new(0);
        let report = supervise(patient(), |s| {
            s.child("early", Restart::Transient, || match next(&calls) {
                0 => Err("while the body runs"),
                _ => Ok(()),
            });
            wait_until(|| count(&calls) == 1);
            for _ in 0..50 {
                sinew::yield_now();
            }
            assert_eq!(count(&calls), 1);
        });
        assert_eq!(report.unwrap().restarts, 1);
    });
}

#[test]
fn cancelled_by_a_child_it_starts_nobody_again() {
    everywhere(|| {
        let calls = AtomicUsize::new(0);
        let told = Log::new();
        let report = supervise(patient(), |s| {
            s.child("sleeper", Restart::Permanent, || {
                next(&calls);
                let slept = sinew::sleep(HOUR);
                told.push(sinew::cancel_reason());
                slept
            });
            s.child("stops all", Restart::Permanent, || {
                wait_until(|| count(&calls) == 1);
                s.cancel();
                assert!(s.is_cancelled());
                Err::<(), _>("and fails")
            });
        });
        let report = report.unwrap();
        assert_eq!(told.take(), [Some(CancelReason::Requested)]);
        assert_eq!((report.restarts, count(&calls)), (0, 1));
        let text = Cancelled.to_string();
        assert_eq!(of(&report, "sleeper"), (1, Exit::Failed(text)));
        assert_eq!(
            of(&report, "stops all"),
            (1, Exit::Failed("and fails".into()))
        );
    });
}

#[test]
fn cancelled_by_its_token_from_another_thread_it_ends() {
    everywhere(|| {
        let asleep = Gate::new();
        let report = supervise(patient(), |s| {
            s.child("service", Restart::Permanent, || {
                asleep.open();
                sinew::sleep(HOUR)
            });
            let (token, asleep) = (s.token(), asleep.clone());
            std::thread::spawn(move || {
                asleep.spin();
                token.cancel();
            });
        });
        assert_eq!(of(&report.unwrap(), "service").0, 1);
    });
}

#[test]
fn cancelled_with_its_owner_it_ends() {
    on_workers(|runtime| {
        let owner = runtime.spawn(|| {
            supervise(patient(), |s| {
                s.child("service", Restart::Permanent, || sinew::sleep(HOUR));
                s.child("helper", Restart::Permanent, || sinew::sleep(HOUR));
            })
            .unwrap()
        });
        wait_until(|| runtime.stats().parked >= 3);
        owner.cancel();
        let report = owner.join().unwrap();
        let failed = Exit::Failed(Cancelled.to_string());
        assert_eq!(of(&report, "service"), (1, failed.clone()));
        assert_eq!(of(&report, "helper"), (1, failed));
    });
}

#[test]
fn cancelled_by_a_timeout_around_it_ends() {
    everywhere(|| {
        let outcome = sinew::timeout(Duration::from_millis(10), || {
            supervise(patient(), |s| {
                // An hour would make a failure a hang.
                s.child("service", Restart::Temporary, || sinew::sleep(FOR_EVER));
            })
        });
        let report = outcome.map(drop).unwrap_err().into_inner();
        let exit = of(&report.unwrap(), "service").1;
        assert!(exit == Exit::Failed(Cancelled.to_string()) || exit == Exit::Cancelled);
    });
}

#[test]
fn a_supervisor_made_where_all_is_cancelled_runs_nobody() {
    everywhere(|| {
        let token = sinew::CancelToken::new();
        token.cancel();
        let report = token.enter(|| {
            supervise(patient(), |s| {
                s.child("never", Restart::Permanent, || -> () {
                    panic!("it is cancelled")
                });
            })
        });
        assert_eq!(of(&report.unwrap(), "never"), (1, Exit::Cancelled));
    });
}

#[test]
fn a_panic_of_the_body_cancels_the_children_and_goes_on() {
    everywhere(|| {
        let told = Log::new();
        let payload = panic_of(|| {
            supervise(patient(), |s| {
                let asleep = Gate::new();
                let theirs = asleep.clone();
                let told = &told;
                s.child("service", Restart::Permanent, move || {
                    theirs.open();
                    told.push(sinew::sleep(HOUR));
                });
                asleep.pass();
                panic_expected(1);
            })
        });
        assert!(is_expected(&*payload, 1));
        assert_eq!(told.take(), [Err(Cancelled)]);
    });
}

#[test]
fn children_add_children_which_are_supervised_as_well() {
    everywhere(|| {
        let (adds, calls) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let report = supervise(patient(), |s| {
            s.child("parent", Restart::Transient, || {
                if next(&adds) == 0 {
                    s.child("added", Restart::Transient, || match next(&calls) {
                        0 => Err("once"),
                        _ => Ok(()),
                    });
                }
            });
        });
        let report = report.unwrap();
        assert_eq!(of(&report, "parent"), (1, Exit::Normal));
        assert_eq!(of(&report, "added"), (2, Exit::Normal));
        assert_eq!(report.children[1].name, "added");
    });
}

#[test]
fn each_run_is_a_fiber_of_its_own_that_has_the_child_s_name() {
    everywhere(|| {
        let ids = Log::new();
        let outcome = supervise(patient(), |s| {
            s.child("named", Restart::Transient, || {
                let fiber = sinew::current();
                assert_eq!(fiber.name(), Some("named"));
                ids.push(fiber.id());
                if ids.len() == 1 { Err("once") } else { Ok(()) }
            });
        });
        assert_eq!(outcome.unwrap().restarts, 1);
        let ids = ids.take();
        assert!(ids.len() == 2 && ids[0] != ids[1]);
    });
}

#[test]
fn the_closures_are_dropped_before_supervise_returns() {
    everywhere(|| {
        let drops = AtomicUsize::new(0);
        for panics in [false, true] {
            let body = || {
                supervise(patient(), |s| {
                    for _ in 0..3 {
                        let captured = Counts(&drops);
                        s.child("child", Restart::Transient, move || {
                            let _captured = &captured;
                        });
                    }
                    if panics {
                        panic_expected(1);
                    }
                })
            };
            if panics {
                panic_of(body);
            } else {
                body().unwrap();
            }
            assert_eq!(drops.swap(0, Ordering::SeqCst), 3);
        }
    });
}

#[test]
fn a_child_that_was_cancelled_by_somebody_and_says_so_has_failed() {
    everywhere(|| {
        let calls = AtomicUsize::new(0);
        let fiber = std::sync::Mutex::new(None);
        let report = supervise(patient(), |s| {
            s.child("told to stop", Restart::Transient, || {
                if next(&calls) > 0 {
                    return Ok(());
                }
                *fiber.lock().unwrap() = Some(sinew::current());
                sinew::sleep(HOUR)
            });
            wait_until(|| fiber.lock().unwrap().is_some());
            let fiber = fiber.lock().unwrap().take().unwrap();
            waits_in(&fiber, WaitReason::Sleep);
            fiber.cancel();
        });
        assert_eq!(of(&report.unwrap(), "told to stop"), (2, Exit::Normal));
    });
}

#[test]
fn exits_and_settings_show_what_they_are() {
    assert_eq!(Exit::Normal.to_string(), "ended");
    assert_eq!(Exit::Failed("x".into()).to_string(), "failed: x");
    assert_eq!(Exit::Panicked(Some("y".into())).to_string(), "panicked: y");
    assert_eq!(Exit::Panicked(None).to_string(), "panicked");
    assert_eq!(Exit::Cancelled.to_string(), "was cancelled before it ran");
    // OTP's defaults.
    let defaults = Supervision::new()
        .strategy(Strategy::OneForOne)
        .intensity(1, Duration::from_secs(5));
    assert_eq!(Supervision::default(), defaults);
}
