//! Limits of time: what they end, and what they say.

use super::{HOUR, SHORT, everywhere, parked};
use crate::harness::{Rng, in_fibers, is_expected, on_workers, panic_expected, wait_until};
use sinew::channel::{RecvError, bounded};
use sinew::time::Instant;
use sinew::{CancelReason, CancelToken, Cancelled, deadline, timeout};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

const LONGER: Duration = Duration::from_millis(20);

/// Works until it is told to stop.
fn until_told() {
    while sinew::checkpoint().is_ok() {}
}

#[test]
fn a_limit_that_is_not_reached_hands_the_value_through() {
    everywhere(|| {
        assert_eq!(timeout(HOUR, || 5), Ok(5));
        assert_eq!(timeout(Duration::MAX, || 5), Ok(5));
        assert_eq!(deadline(Instant::now() + HOUR, || 5), Ok(5));
        let waits = timeout(HOUR, || sinew::sleep(SHORT));
        assert_eq!(waits, Ok(Ok(())));
        assert_eq!(sinew::check_cancelled(), Ok(()));
    });
}

#[test]
fn a_limit_that_ends_something_says_so_and_has_the_value() {
    everywhere(|| {
        let outcome = timeout(SHORT, || (sinew::sleep(HOUR), 5));
        let elapsed = outcome.unwrap_err();
        assert_eq!(elapsed.get_ref(), &(Err(Cancelled), 5));
        assert_eq!(elapsed.into_inner(), (Err(Cancelled), 5));
        let by = Instant::now() + SHORT;
        let outcome = deadline(by, || sinew::sleep(HOUR));
        assert_eq!(outcome.unwrap_err().into_inner(), Err(Cancelled));
        assert!(Instant::now() >= by);
        // Nothing is left of it.
        assert!(!sinew::is_cancelled());
        assert_eq!(sinew::sleep(Duration::ZERO), Ok(()));
    });
}

#[test]
fn a_limit_of_which_nobody_was_told_is_no_error() {
    everywhere(|| {
        let by = Instant::now();
        let busy = deadline(by, || {
            wait_until(|| Instant::now() > by);
            5
        });
        assert_eq!(busy, Ok(5));
        // A point before it: unless the machine was slow, it was told nothing.
        let early = timeout(LONGER, || {
            let answer = sinew::check_cancelled();
            std::thread::sleep(LONGER);
            answer
        });
        match early {
            Ok(answer) => assert_eq!(answer, Ok(())),
            Err(elapsed) => assert_eq!(elapsed.into_inner(), Err(Cancelled)),
        }
    });
}

#[test]
fn no_time_at_all_cancels_the_first_point() {
    everywhere(|| {
        let none = timeout(Duration::ZERO, sinew::check_cancelled);
        assert_eq!(none.unwrap_err().into_inner(), Err(Cancelled));
        let none = timeout(Duration::ZERO, || sinew::sleep(HOUR));
        assert_eq!(none.unwrap_err().into_inner(), Err(Cancelled));
        let past = deadline(Instant::now(), sinew::check_cancelled);
        assert_eq!(past.unwrap_err().into_inner(), Err(Cancelled));
        assert_eq!(timeout(Duration::ZERO, || 5), Ok(5));
        assert_eq!(sinew::check_cancelled(), Ok(()));
    });
}

#[test]
fn of_nested_limits_each_says_only_what_it_caused() {
    everywhere(|| {
        // The inner one is first; then there is time left.
        let outer = timeout(HOUR, || {
            let inner = timeout(SHORT, || sinew::sleep(HOUR));
            assert_eq!(inner.unwrap_err().into_inner(), Err(Cancelled));
            assert_eq!(sinew::check_cancelled(), Ok(()));
            5
        });
        assert_eq!(outer, Ok(5));
        // The outer one is first: the inner one has caused nothing.
        let outer = timeout(SHORT, || {
            let inner = timeout(HOUR, || sinew::sleep(HOUR));
            assert_eq!(inner, Ok(Err(Cancelled)));
            sinew::check_cancelled()
        });
        assert_eq!(outer.unwrap_err().into_inner(), Err(Cancelled));
        // Both: the outermost is the cause.
        let by = Instant::now() + SHORT;
        let outer = deadline(by, || {
            let inner = deadline(by, || {
                while Instant::now() <= by {}
                sinew::sleep(HOUR)
            });
            assert_eq!(inner, Ok(Err(Cancelled)));
        });
        outer.unwrap_err();
    });
}

#[test]
fn a_limit_that_runs_out_after_one_inside_has_told_of_itself_is_reported_too() {
    everywhere(|| {
        // A slow machine may see both at once.
        while {
            let mut inner_said = false;
            let outer = timeout(LONGER, || {
                let inner = timeout(SHORT, || {
                    let told = sinew::sleep(HOUR);
                    std::thread::sleep(LONGER);
                    (told, sinew::sleep(HOUR))
                });
                inner_said = inner.is_err();
                let told = inner.unwrap_or_else(sinew::Elapsed::into_inner);
                assert_eq!(told, (Err(Cancelled), Err(Cancelled)));
            });
            outer.unwrap_err();
            !inner_said
        } {}
    });
}

#[test]
fn limits_of_any_depth_end_where_the_shortest_is() {
    fn nest(depth: u32, shortest: u32) -> u32 {
        if depth == 0 {
            assert_eq!(sinew::sleep(HOUR), Err(Cancelled));
            return 0;
        }
        let limit = if depth == shortest { SHORT } else { HOUR };
        match timeout(limit, || nest(depth - 1, shortest)) {
            Ok(inner) => inner,
            Err(elapsed) => elapsed.into_inner() + 1 + depth,
        }
    }
    everywhere(|| {
        for shortest in [1, 17, 30] {
            assert_eq!(nest(30, shortest), shortest + 1);
        }
    });
}

#[test]
fn a_request_from_elsewhere_is_not_the_limits() {
    in_fibers(|| {
        let fiber = sinew::spawn(|| timeout(HOUR, || sinew::sleep(HOUR)));
        parked(&fiber.fiber());
        fiber.cancel();
        assert_eq!(fiber.join().unwrap(), Ok(Err(Cancelled)));
        let token = CancelToken::new();
        token.cancel();
        let inside = timeout(HOUR, || token.enter(|| sinew::sleep(HOUR)));
        assert_eq!(inside, Ok(Err(Cancelled)));
        let outside = token.enter(|| timeout(HOUR, || sinew::sleep(HOUR)));
        assert_eq!(outside, Ok(Err(Cancelled)));
    });
}

#[test]
fn a_join_inside_passes_the_end_of_time_on() {
    everywhere(|| {
        let handle = std::cell::Cell::new(None);
        sinew::scope(|s| {
            // Begun, so that it ends with a value.
            let child = s.spawn(|| (sinew::sleep(HOUR), sinew::cancel_reason()));
            parked(&child.fiber());
            handle.set(Some(timeout(SHORT, || child.join().unwrap())));
        });
        let told = handle.take().unwrap().unwrap_err().into_inner();
        assert_eq!(told, (Err(Cancelled), Some(CancelReason::Requested)));
    });
}

#[test]
fn children_of_a_scope_inside_are_cancelled() {
    everywhere(|| {
        let outcome = timeout(SHORT, || {
            // Those that have not begun by then never do, which is as well.
            sinew::scope(|s| {
                s.spawn(|| {
                    sinew::scope(|deeper| {
                        deeper.spawn(|| sinew::sleep(HOUR));
                    });
                });
                s.spawn(until_told);
            });
            5
        });
        assert_eq!(outcome.unwrap_err().into_inner(), 5);
        assert_eq!(sinew::check_cancelled(), Ok(()));
    });
}

#[test]
fn a_scope_around_is_not_cancelled() {
    everywhere(|| {
        sinew::scope(|s| {
            let child = s.spawn(sinew::park_or_cancelled);
            parked(&child.fiber());
            let outcome = timeout(SHORT, || sinew::sleep(HOUR));
            assert!(outcome.is_err());
            assert!(!s.is_cancelled());
            child.fiber().unpark();
            assert_eq!(child.join().unwrap(), Ok(()));
        });
    });
}

#[test]
fn a_park_inside_returns_once() {
    everywhere(|| {
        let outcome = timeout(SHORT, || {
            sinew::park();
            sinew::check_cancelled()
        });
        assert_eq!(outcome.unwrap_err().into_inner(), Err(Cancelled));
        let token = CancelToken::new().child_with_timeout(SHORT);
        token.enter(sinew::park);
    });
}

#[test]
fn a_computation_that_only_asks_is_told() {
    // Neither waits nor yields: the monitor lets it look.
    everywhere(|| {
        let outcome = timeout(SHORT, || while sinew::check_cancelled().is_ok() {});
        outcome.unwrap_err();
        let outcome = timeout(SHORT, || while !sinew::is_cancelled() {});
        outcome.unwrap_err();
        let limited = CancelToken::new().child_with_timeout(SHORT);
        limited.enter(|| while sinew::check_cancelled().is_ok() {});
    });
}

#[test]
fn a_panic_inside_goes_on_and_leaves_nothing() {
    on_workers(|runtime| {
        runtime.run(|| {
            let panic = catch_unwind(AssertUnwindSafe(|| {
                timeout(SHORT, || timeout(HOUR, || panic_expected(3)))
            }));
            assert!(is_expected(&*panic.unwrap_err(), 3));
            assert_eq!(sinew::sleep(LONGER), Ok(()));
        });
        wait_until(|| runtime.stats().timers == 0);
    });
}

#[test]
fn a_limit_leaves_no_timer() {
    on_workers(|runtime| {
        runtime.run(|| {
            for _ in 0..100 {
                timeout(HOUR, || ()).unwrap();
                timeout(HOUR, sinew::yield_now).unwrap();
                let limited = CancelToken::new().child_with_timeout(HOUR);
                limited.enter(sinew::yield_now);
            }
        });
        wait_until(|| runtime.stats().timers == 0);
    });
}

#[test]
fn it_is_an_io_error_that_says_timed_out() {
    fn nap(limit: Duration) -> io::Result<()> {
        timeout(limit, || sinew::sleep(SHORT).map_err(io::Error::from))?
    }
    everywhere(|| {
        let error = nap(Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(!Cancelled::is_in(&error));
        nap(HOUR).unwrap();
        // The request of another goes through as what it is.
        let token = CancelToken::new();
        token.cancel();
        let error = token.enter(|| nap(HOUR)).unwrap_err();
        assert!(Cancelled::is_in(&error));
    });
    let elapsed = timeout(Duration::ZERO, sinew::check_cancelled).unwrap_err();
    assert_eq!(elapsed.to_string(), "the time limit was reached");
}

#[test]
fn a_receive_that_a_limit_ends_loses_no_message() {
    let seed = 11;
    on_workers(|runtime| {
        let mut rng = Rng::new(seed);
        for capacity in [0, 1, 8] {
            let (tx, rx) = bounded(capacity);
            let mut pauses = rng.split();
            let sender = runtime.spawn(move || {
                for i in 0..300 {
                    if pauses.chance(3) {
                        let pause = Duration::from_micros(pauses.below(200));
                        sinew::sleep(pause).unwrap();
                    }
                    tx.send(i).unwrap();
                }
            });
            let mut limits = rng.split();
            let got = runtime.run(move || {
                let mut got = Vec::new();
                loop {
                    let limit = Duration::from_micros(limits.below(150));
                    let (answer, said) = match timeout(limit, || rx.recv()) {
                        Ok(answer) => (answer, false),
                        Err(elapsed) => (elapsed.into_inner(), true),
                    };
                    match answer {
                        Ok(message) => got.push(message),
                        Err(RecvError::Disconnected) => return got,
                        Err(_) => assert!(said, "who else?"),
                    }
                }
            });
            assert!(got.into_iter().eq(0..300), "seed {seed}");
            sender.join().unwrap();
        }
    });
}

#[test]
fn a_timer_that_fires_as_its_closure_ends_touches_nothing_after() {
    let seed = 12;
    in_fibers(|| {
        let mut rng = Rng::new(seed);
        for round in 0..2000 {
            let limit = Duration::from_micros(rng.below(80));
            let spin = std::time::Instant::now();
            let busy = Duration::from_micros(rng.below(80));
            let outcome = timeout(limit, || {
                while spin.elapsed() < busy {
                    std::hint::spin_loop();
                }
                if round % 2 == 0 {
                    sinew::yield_now();
                }
                5
            });
            // No point inside, so nobody was told.
            assert_eq!(outcome, Ok(5), "seed {seed}");
            assert_eq!(sinew::check_cancelled(), Ok(()), "seed {seed}");
        }
    });
}

#[test]
fn a_limit_goes_with_a_fiber_that_could_move() {
    in_fibers(|| {
        let fibers: Vec<_> = (0..50u64)
            .map(|i| {
                sinew::spawn(move || {
                    let limit = SHORT + Duration::from_micros(i * 20);
                    let begin = std::time::Instant::now();
                    timeout(limit, until_told).unwrap_err();
                    begin.elapsed() >= limit
                })
            })
            .collect();
        for fiber in fibers {
            assert!(fiber.join().unwrap());
        }
    });
}
