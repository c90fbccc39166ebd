//! Who is stopped and started again with a child that failed, and in what order.

use super::{HOUR, count, everywhere};
use crate::harness::{Gate, Log, wait_until, watch};
use sinew::scope::{Report, Restart, Strategy, Supervision, supervise};
use sinew::{CancelReason, Fiber, Runtime, shield};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// What four children of which one fails once have done.
struct Seen {
    /// Who was started, in order.
    starts: Vec<&'static str>,
    /// Who was stopped before that, in order, and why.
    stops: Vec<(&'static str, Option<CancelReason>)>,
    report: Report,
}

impl Seen {
    fn stopped(&self) -> Vec<&'static str> {
        self.stops.iter().map(|(name, _)| *name).collect()
    }

    fn starts_of_each(&self) -> Vec<usize> {
        self.report
            .children
            .iter()
            .map(|child| child.starts)
            .collect()
    }
}

/// Runs four children, of which the one with number `failing` fails once, when all
/// others sleep; when `left` of them do again it stops them all.
fn play(strategy: Strategy, kinds: [Restart; 4], failing: usize, left: usize) -> Seen {
    let (starts, stops) = (Log::new(), Log::new());
    let (runs, asleep) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let before = Log::new();
    let limits = Supervision::new().strategy(strategy).intensity(1, HOUR);
    let report = supervise(limits, |s| {
        let (starts, stops, runs, asleep, before) = (&starts, &stops, &runs, &asleep, &before);
        for (number, name) in NAMES.into_iter().enumerate() {
            s.child(name, kinds[number], move || {
                starts.push(name);
                if number != failing {
                    asleep.fetch_add(1, Ordering::SeqCst);
                    let _ = sinew::sleep(HOUR);
                    stops.push((name, sinew::cancel_reason()));
                    asleep.fetch_sub(1, Ordering::SeqCst);
                    return Ok(());
                }
                if runs.fetch_add(1, Ordering::SeqCst) == 0 {
                    wait_until(|| count(asleep) == 3);
                    return Err("once");
                }
                wait_until(|| count(asleep) == left);
                for stop in stops.take() {
                    before.push(stop);
                }
                s.cancel();
                Ok(())
            });
        }
    });
    Seen {
        starts: starts.take(),
        stops: before.take(),
        report: report.unwrap(),
    }
}

/// The same where fibers run in the exact order in which they became ready.
fn play_in_order(strategy: Strategy, kinds: [Restart; 4], failing: usize, left: usize) -> Seen {
    let _watch = watch();
    let runtime = Runtime::builder().workers(1).strict_order(true);
    runtime
        .build()
        .unwrap()
        .run(|| play(strategy, kinds, failing, left))
}

const PERMANENT: [Restart; 4] = [Restart::Permanent; 4];

#[test]
fn one_for_one_starts_nobody_else() {
    let seen = play_in_order(Strategy::OneForOne, PERMANENT, 1, 3);
    assert_eq!(seen.starts, ["a", "b", "c", "d", "b"]);
    assert!(seen.stops.is_empty());
    assert_eq!(seen.report.restarts, 1);
}

#[test]
fn one_for_all_stops_the_others_in_reverse_order_and_starts_all_in_order() {
    for (failing, name) in NAMES.into_iter().enumerate() {
        let seen = play_in_order(Strategy::OneForAll, PERMANENT, failing, 3);
        assert_eq!(seen.starts[..4], NAMES);
        assert_eq!(seen.starts[4..], NAMES);
        let others = NAMES.iter().rev().filter(|other| **other != name);
        assert_eq!(seen.stopped(), others.copied().collect::<Vec<_>>());
        assert_eq!(seen.report.restarts, 1, "a group counts once");
    }
}

#[test]
fn rest_for_one_stops_and_starts_those_after_it() {
    for failing in 0..4 {
        let seen = play_in_order(Strategy::RestForOne, PERMANENT, failing, 3);
        assert_eq!(seen.starts[..4], NAMES);
        assert_eq!(seen.starts[4..], NAMES[failing..]);
        let after: Vec<_> = NAMES[failing + 1..].iter().rev().copied().collect();
        assert_eq!(seen.stopped(), after);
    }
}

#[test]
fn the_same_are_started_again_wherever_they_run() {
    everywhere(|| {
        let seen = play(Strategy::OneForOne, PERMANENT, 2, 3);
        assert_eq!(seen.starts_of_each(), [1, 1, 2, 1]);
        let seen = play(Strategy::OneForAll, PERMANENT, 2, 3);
        assert_eq!(seen.starts_of_each(), [2, 2, 2, 2]);
        let seen = play(Strategy::RestForOne, PERMANENT, 2, 3);
        assert_eq!(seen.starts_of_each(), [1, 1, 2, 2]);
    });
}

#[test]
fn in_a_group_the_temporary_are_stopped_and_stay_so() {
    let mut kinds = [Restart::Transient; 4];
    kinds[3] = Restart::Temporary;
    let seen = play_in_order(Strategy::OneForAll, kinds, 1, 2);
    assert_eq!(seen.starts, ["a", "b", "c", "d", "a", "b", "c"]);
    assert_eq!(seen.stopped(), ["d", "c", "a"]);
}

#[test]
fn a_temporary_child_that_fails_takes_nobody_with_it() {
    everywhere(|| {
        let (first, runs) = (Mutex::new(None), AtomicUsize::new(0));
        // One restart is allowed, which is the other's own.
        let limits = Supervision::new()
            .strategy(Strategy::OneForAll)
            .intensity(1, HOUR);
        let report = supervise(limits, |s| {
            s.child("temporary", Restart::Temporary, || {
                *first.lock().unwrap() = Some(sinew::current());
                Err::<(), _>("for good")
            });
            s.child("other", Restart::Transient, || ends_after(&first, &runs));
        });
        let report = report.unwrap();
        assert_eq!(report.restarts, 1);
        assert_eq!(report.children[0].starts, 1);
        assert_eq!(report.children[1].starts, 2);
    });
}

/// Waits until the fiber has ended, and so was reported; fails the first time.
fn ends_after(fiber: &Mutex<Option<Fiber>>, runs: &AtomicUsize) -> Result<(), &'static str> {
    let ended = || {
        fiber
            .lock()
            .unwrap()
            .as_ref()
            .is_some_and(Fiber::is_finished)
    };
    wait_until(ended);
    if runs.fetch_add(1, Ordering::SeqCst) == 0 {
        Err("once")
    } else {
        Ok(())
    }
}

#[test]
fn those_that_have_ended_for_good_are_not_started_with_a_group() {
    everywhere(|| {
        let (first, runs) = (Mutex::new(None), AtomicUsize::new(0));
        let limits = Supervision::new().strategy(Strategy::OneForAll);
        let report = supervise(limits, |s| {
            s.child("done", Restart::Transient, || {
                *first.lock().unwrap() = Some(sinew::current());
            });
            s.child("fails", Restart::Transient, || ends_after(&first, &runs));
        });
        let starts: Vec<_> = report.unwrap().children.iter().map(|c| c.starts).collect();
        assert_eq!(starts, [1, 2]);
    });
}

#[test]
fn who_is_stopped_to_be_started_again_is_told_so() {
    for strategy in [Strategy::OneForAll, Strategy::RestForOne] {
        let seen = play_in_order(strategy, PERMANENT, 0, 3);
        let reasons: Vec<_> = seen.stops.into_iter().map(|(_, reason)| reason).collect();
        assert_eq!(reasons, [const { Some(CancelReason::Supervisor) }; 3]);
    }
}

#[test]
fn a_group_is_awaited_before_it_is_started_again() {
    everywhere(|| {
        let (inside, most, runs) = (
            AtomicUsize::new(0),
            AtomicUsize::new(0),
            AtomicUsize::new(0),
        );
        let limits = Supervision::new().strategy(Strategy::OneForAll);
        let report = supervise(limits, |s| {
            let begun = Gate::new();
            let theirs = begun.clone();
            let (inside, most, runs) = (&inside, &most, &runs);
            s.child("slow to stop", Restart::Transient, move || {
                most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                theirs.open();
                if count(runs) < 1 {
                    let _ = sinew::sleep(HOUR);
                }
                shield(|| sinew::sleep(std::time::Duration::from_millis(5))).unwrap();
                inside.fetch_sub(1, Ordering::SeqCst);
            });
            s.child("fails", Restart::Transient, move || {
                begun.pass();
                if runs.fetch_add(1, Ordering::SeqCst) == 0 {
                    Err("once")
                } else {
                    Ok(())
                }
            });
        });
        assert_eq!(report.unwrap().restarts, 1);
        assert_eq!(most.into_inner(), 1, "two runs of one child at once");
    });
}

#[test]
fn a_cancel_while_a_group_is_awaited_starts_nobody() {
    everywhere(|| {
        let limits = Supervision::new().strategy(Strategy::OneForAll);
        let report = supervise(limits, |s| {
            let begun = Gate::new();
            let theirs = begun.clone();
            s.child("stops all", Restart::Permanent, move || {
                theirs.open();
                let _ = sinew::sleep(HOUR);
                s.cancel(); // the supervisor waits for us just now
            });
            s.child("fails", Restart::Permanent, move || {
                begun.pass();
                Err::<(), _>("once")
            });
        });
        let report = report.unwrap();
        assert!(report.children.iter().all(|child| child.starts == 1));
    });
}

#[test]
fn who_is_down_is_started_with_the_group_that_it_belongs_to() {
    let _watch = watch();
    let runtime = Runtime::builder().workers(1).strict_order(true);
    runtime.build().unwrap().run(|| {
        // `c` fails. While `d` is slow to stop `a` and `b` fail as well.
        let starts = Log::new();
        let (fail, stop) = (Gate::new(), Gate::new());
        let limits = Supervision::new()
            .strategy(Strategy::RestForOne)
            .intensity(10, HOUR);
        let report = supervise(limits, |s| {
            let (starts, fail, stop) = (&starts, &fail, &stop);
            for name in NAMES {
                let runs = AtomicUsize::new(0);
                s.child(name, Restart::Transient, move || {
                    starts.push(name);
                    let first = runs.fetch_add(1, Ordering::SeqCst) == 0;
                    match name {
                        "a" | "b" if first => {
                            fail.pass();
                            if name == "b" {
                                stop.open();
                            }
                            Err("once")
                        }
                        "c" if first => Err("once"),
                        "d" if first => {
                            let _ = sinew::sleep(HOUR);
                            fail.open();
                            stop.pass();
                            // Until both ends were sent.
                            (0..20).for_each(|_| sinew::yield_now());
                            Ok(())
                        }
                        _ => {
                            let _ = sinew::sleep(std::time::Duration::from_millis(20));
                            Ok(())
                        }
                    }
                });
            }
        });
        let report = report.unwrap();
        assert_eq!(starts.take()[..4], NAMES);
        // As OTP does: when `a` is started again all after it are, `b` as well, which
        // was down by then; so there is nothing left to do for `b`.
        let starts: Vec<_> = report.children.iter().map(|child| child.starts).collect();
        assert_eq!((starts, report.restarts), (vec![2, 2, 3, 3], 2));
    });
}
