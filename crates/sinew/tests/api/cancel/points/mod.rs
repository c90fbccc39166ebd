//! Every cancellation point, cancelled in every way: it says so, and nothing is
//! lost.

mod table;

use super::{SHORT, parked, spawn_parked};
use crate::harness::{OnDrop, in_fibers, runtime, watch};
use sinew::{CancelToken, Cancelled, Elapsed};
use std::sync::Arc;
use table::{Gives, Point, points};

/// Who asks a wait to stop.
#[derive(Clone, Copy, Debug)]
enum Way {
    Fiber,
    Timeout,
    Token,
    Scope,
    /// A limit of a plain thread.
    ThreadTimeout,
    /// A token that a plain thread has entered.
    ThreadToken,
}

const WAYS: [Way; 6] = [
    Way::Fiber,
    Way::Timeout,
    Way::Token,
    Way::Scope,
    Way::ThreadTimeout,
    Way::ThreadToken,
];

/// What the limit was around, which it has ended.
fn elapsed<T>(outcome: Result<T, Elapsed<T>>) -> T {
    match outcome {
        Ok(_) => panic!("the limit has cancelled something, and does not say so"),
        Err(elapsed) => elapsed.into_inner(),
    }
}

/// Waits at `point`, and is cancelled there.
fn cancelled_at(point: &Arc<dyn Point>, way: Way) -> Result<(), Cancelled> {
    let theirs = point.clone();
    match way {
        Way::Fiber => {
            let waiter = spawn_parked(move || theirs.wait());
            waiter.cancel();
            waiter.join().unwrap()
        }
        Way::Timeout => {
            let waiter = sinew::spawn(move || sinew::timeout(SHORT, || theirs.wait()));
            elapsed(waiter.join().unwrap())
        }
        Way::Token => {
            let token = CancelToken::new();
            let entered = token.clone();
            let waiter = spawn_parked(move || entered.enter(|| theirs.wait()));
            token.cancel();
            waiter.join().unwrap()
        }
        Way::Scope => sinew::scope(|s| {
            let waiter = s.spawn(move || theirs.wait());
            parked(&waiter.fiber());
            s.cancel();
            waiter.join().unwrap()
        }),
        Way::ThreadTimeout => {
            let thread = std::thread::spawn(move || sinew::timeout(SHORT, || theirs.wait()));
            elapsed(sinew::blocking(|| thread.join().unwrap()))
        }
        Way::ThreadToken => {
            let token = CancelToken::new();
            let entered = token.clone();
            let thread = std::thread::spawn(move || entered.enter(|| theirs.wait()));
            token.cancel();
            sinew::blocking(|| thread.join().unwrap())
        }
    }
}

/// Calls `test` for each point and each way; a failure names them.
fn for_each(test: impl Fn(&Arc<dyn Point>, Way)) {
    for way in WAYS {
        for (name, point) in points() {
            let _name = OnDrop(|| {
                if std::thread::panicking() {
                    eprintln!("at {name}, by {way:?}:");
                }
            });
            test(&point, way);
        }
    }
}

#[test]
fn each_point_says_cancelled_and_takes_nothing() {
    in_fibers(|| {
        for_each(|point, way| {
            let before = point.left();
            assert_eq!(cancelled_at(point, way), Err(Cancelled));
            assert_eq!(point.left(), before);
        });
    });
}

#[test]
fn after_a_cancelled_wait_the_next_in_line_gets_what_is_given() {
    in_fibers(|| {
        for_each(|point, way| {
            if point.gives() == Gives::Nothing {
                return;
            }
            let before = point.left();
            assert_eq!(cancelled_at(point, way), Err(Cancelled));
            let theirs = point.clone();
            let next = spawn_parked(move || theirs.wait());
            point.give(&next.fiber());
            assert_eq!(next.join().unwrap(), Ok(()));
            assert_eq!(point.left(), before);
        });
    });
}

#[test]
fn who_is_behind_a_cancelled_wait_gets_what_is_given() {
    in_fibers(|| {
        for (name, point) in points() {
            // One waiter each: more would be another test.
            let alone = ["Future", "Barrier", "send, no room"].contains(&name);
            if point.gives() == Gives::Nothing || alone {
                continue;
            }
            let theirs = point.clone();
            let first = spawn_parked(move || theirs.wait());
            let theirs = point.clone();
            let second = spawn_parked(move || theirs.wait());
            first.cancel();
            assert_eq!(first.join().unwrap(), Err(Cancelled), "{name}");
            point.give(&second.fiber());
            assert_eq!(second.join().unwrap(), Ok(()), "{name}");
        }
    });
}

#[test]
fn what_comes_after_a_cancelled_wait_is_kept_for_the_next() {
    in_fibers(|| {
        for_each(|point, way| {
            if point.gives() != Gives::Kept {
                return;
            }
            let before = point.left();
            assert_eq!(cancelled_at(point, way), Err(Cancelled));
            point.give(&sinew::current());
            assert_eq!(point.wait(), Ok(()));
            assert_eq!(point.left(), before);
        });
    });
}

#[test]
fn a_wait_that_was_given_what_it_is_for_before_the_cancel_has_it() {
    let _watch = watch();
    // One worker: the waiter does not run between the two.
    runtime(1).run(|| {
        for (name, point) in points() {
            if !matches!(point.gives(), Gives::AtOnce | Gives::Kept) {
                continue;
            }
            let before = point.left();
            let theirs = point.clone();
            let waiter = spawn_parked(move || {
                let answer = theirs.wait();
                (answer, sinew::is_cancelled())
            });
            point.give(&waiter.fiber());
            waiter.cancel();
            // A cancel leaves a token of its own, so of a token nobody knows whose
            // it is; it stays.
            let want = if name == "park" {
                Err(Cancelled)
            } else {
                Ok(())
            };
            assert_eq!(waiter.join().unwrap(), (want, true), "{name}");
            assert_eq!(point.left(), before, "{name}");
        }
    });
}

#[test]
fn each_point_says_cancelled_on_entry_again_and_again_even_if_it_is_ready() {
    in_fibers(|| {
        for (name, point) in points() {
            if point.gives() == Gives::Kept {
                point.give(&sinew::current());
            }
            let before = point.left();
            let theirs = point.clone();
            let cancelled = sinew::spawn(move || {
                sinew::current().cancel();
                [theirs.wait(), theirs.wait(), theirs.wait()]
            });
            assert_eq!(cancelled.join().unwrap(), [Err(Cancelled); 3], "{name}");
            assert_eq!(point.left(), before, "{name}");
        }
    });
}

#[test]
fn no_point_is_told_of_a_request_outside_of_a_shield() {
    in_fibers(|| {
        for (name, point) in points() {
            if point.gives() == Gives::Nothing {
                continue;
            }
            let theirs = point.clone();
            let shielded = spawn_parked(move || {
                let answer = sinew::shield(|| theirs.wait());
                (answer, sinew::check_cancelled())
            });
            shielded.cancel();
            if name != "park" {
                parked(&shielded.fiber());
            }
            point.give(&shielded.fiber());
            let answer = shielded.join().unwrap();
            assert_eq!(answer, (Ok(()), Err(Cancelled)), "{name}");
        }
    });
}
