//! Sleeping, intervals and instants.

use crate::harness::{Gate, Rng, in_fibers, on_workers, runtime, wait_until, watch};
use sinew::time::Instant;
use sinew::{Cancelled, WaitReason, interval, sleep, sleep_until};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const MS: Duration = Duration::from_millis(1);

#[test]
fn no_sleep_ends_early() {
    on_workers(|runtime| {
        let real = std::time::Instant::now();
        sleep(3 * MS).unwrap(); // on this thread
        assert!(real.elapsed() >= 3 * MS);
        runtime.run(|| {
            let mut rng = Rng::new(11);
            let sleepers: Vec<_> = (0..500)
                .map(|_| {
                    let time = Duration::from_micros(rng.below(20_000));
                    sinew::spawn(move || {
                        let (real, ours) = (std::time::Instant::now(), Instant::now());
                        sleep(time).unwrap();
                        assert!(real.elapsed() >= time);
                        assert!(ours.elapsed() >= time);
                    })
                })
                .collect();
            for sleeper in sleepers {
                sleeper.join().unwrap();
            }
        });
    });
}

#[test]
fn a_short_sleep_registered_after_a_long_one_does_not_wait_for_it() {
    on_workers(|runtime| {
        let long = runtime.spawn(|| sleep(HOUR));
        wait_until(|| long.fiber().wait_reason() == WaitReason::Sleep);
        runtime.run(|| {
            for time in [20, 5, 1] {
                sleep(time * MS).unwrap();
            }
            let many: Vec<_> = (0..20)
                .map(|i| sinew::spawn(move || sleep(i * MS)))
                .collect();
            for sleeper in many {
                sleeper.join().unwrap().unwrap();
            }
        });
        assert!(!long.is_finished());
        long.cancel();
        assert_eq!(long.join().unwrap(), Err(Cancelled));
    });
}

#[test]
fn sleepers_of_one_worker_wake_in_the_order_of_their_deadlines() {
    let _watch = watch();
    runtime(1).run(|| {
        let log = crate::harness::Log::new();
        let base = Instant::now() + 30 * MS;
        // Deadlines in a shuffled order, all before the first one comes.
        let sleepers: Vec<_> = (0..50u32)
            .map(|i| {
                let log = log.clone();
                let at = (i * 17) % 50;
                sinew::spawn(move || {
                    let due = base + at * 4 * MS;
                    let registered = Instant::now() < base;
                    sleep_until(due).unwrap();
                    log.push((at, registered));
                })
            })
            .collect();
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
        let woken = log.take();
        // Only a machine that stood still while they were registered excuses.
        if woken.iter().all(|(_, registered)| *registered) {
            let order: Vec<u32> = woken.into_iter().map(|(at, _)| at).collect();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(order, sorted);
        }
    });
}

#[test]
fn a_fiber_that_yields_all_the_time_does_not_starve_timers() {
    in_fibers(|| {
        let woken = Gate::new();
        let theirs = woken.clone();
        sinew::spawn(move || {
            sleep(2 * MS).unwrap();
            theirs.open();
        });
        woken.pass();
        // Nor do two that wake each other all the time.
        let woken = Gate::new();
        let (gate, theirs) = (woken.clone(), woken.clone());
        let sleeper = sinew::spawn(move || {
            sleep(2 * MS).unwrap();
            gate.open();
        });
        let me = sinew::current();
        let partner = sinew::spawn(move || {
            while !theirs.is_open() {
                me.unpark();
                sinew::park();
            }
            me.unpark();
        });
        while !woken.is_open() {
            partner.fiber().unpark();
            sinew::park();
        }
        partner.fiber().unpark();
        partner.join().unwrap();
        sleeper.join().unwrap();
    });
}

#[test]
fn a_sleep_of_no_time_and_one_until_the_past_return() {
    in_fibers(|| {
        sleep(Duration::ZERO).unwrap();
        let past = Instant::now();
        sleep(MS).unwrap();
        sleep_until(past).unwrap();
    });
    let past = Instant::now();
    sleep_until(past).unwrap();
    sleep(Duration::ZERO).unwrap();
}

#[test]
fn a_sleep_beyond_the_clock_s_range_is_a_sleep_until_cancelled() {
    on_workers(|runtime| {
        let eternal = runtime.spawn(|| sleep(Duration::MAX));
        wait_until(|| eternal.fiber().wait_reason() == WaitReason::Sleep);
        runtime.run(|| sleep(2 * MS)).unwrap();
        assert!(!eternal.is_finished());
        eternal.cancel();
        assert_eq!(eternal.join().unwrap(), Err(Cancelled));
        let ticker = runtime.spawn(|| interval(Duration::MAX).tick());
        wait_until(|| ticker.fiber().wait_reason() == WaitReason::Sleep);
        ticker.cancel();
        assert_eq!(ticker.join().unwrap().map(drop), Err(Cancelled));
    });
}

#[test]
fn ticks_keep_to_the_grid_and_none_comes_early() {
    in_fibers(|| {
        let before = Instant::now();
        let mut ticks = interval(3 * MS);
        let after = Instant::now();
        assert_eq!(ticks.period(), 3 * MS);
        let mut last: Option<Instant> = None;
        for _ in 0..5 {
            let due = ticks.tick().unwrap();
            assert!(Instant::now() >= due);
            match last {
                None => assert!(due >= before + 3 * MS && due <= after + 3 * MS),
                Some(last) => {
                    let apart = due - last;
                    assert!(apart >= 3 * MS);
                    assert_eq!(apart.as_nanos() % (3 * MS).as_nanos(), 0);
                }
            }
            last = Some(due);
        }
    });
}

#[test]
fn missed_ticks_are_skipped() {
    in_fibers(|| {
        let mut ticks = interval(2 * MS);
        let first = ticks.tick().unwrap();
        sleep(11 * MS).unwrap(); // five ticks and a half
        let resumed = Instant::now();
        // The one that was overdue comes at once, for where the grid was…
        let late = ticks.tick().unwrap();
        assert!(late < resumed && late > first);
        // …and the next is after it came: no burst of those between.
        let next = ticks.tick().unwrap();
        assert!(next > resumed, "{:?} too early", resumed - next);
        for due in [late, next] {
            assert_eq!((due - first).as_nanos() % (2 * MS).as_nanos(), 0);
        }
    });
}

#[test]
fn an_interval_as_an_iterator_ends_after_it_said_cancelled() {
    on_workers(|runtime| {
        let ticked = Gate::new();
        let theirs = ticked.clone();
        let ticker = runtime.spawn(move || {
            let mut answers = Vec::new();
            for tick in interval(MS) {
                answers.push(tick.is_ok());
                theirs.open();
            }
            answers
        });
        ticked.pass();
        ticker.cancel();
        let answers = ticker.join().unwrap();
        let (last, ticks) = answers.split_last().unwrap();
        assert!(
            !last && !ticks.is_empty() && ticks.iter().all(|ok| *ok),
            "{answers:?}"
        );
    });
}

#[test]
#[should_panic(expected = "must not be zero")]
fn an_interval_of_no_time_panics() {
    let _ = interval(Duration::ZERO);
}

#[test]
fn an_instant_does_sums_like_std_s() {
    let now = Instant::now();
    let later = now + 5 * MS;
    assert!(later > now && later != now);
    assert_eq!(later - now, 5 * MS);
    assert_eq!(now - later, Duration::ZERO);
    assert_eq!(later.duration_since(now), 5 * MS);
    assert_eq!(now.checked_duration_since(later), None);
    assert_eq!(now.saturating_duration_since(later), Duration::ZERO);
    assert_eq!(later - 5 * MS, now);
    assert_eq!(now.checked_add(Duration::MAX), None);
    assert_eq!(now.checked_sub(Duration::MAX), None);
    let mut moved = now;
    moved += MS;
    moved -= MS;
    assert_eq!(moved, now);
    assert!(std::panic::catch_unwind(|| now + Duration::MAX).is_err());
}

#[test]
fn an_instant_is_std_s_and_back_again_exactly() {
    let before = std::time::Instant::now();
    let ours = Instant::now();
    let theirs = std::time::Instant::now();
    let later = Instant::now();
    assert!(before <= ours.into() && std::time::Instant::from(ours) <= theirs);
    assert!(ours <= theirs.into() && Instant::from(theirs) <= later);
    let year = HOUR * 24 * 365;
    for apart in [
        Duration::ZERO,
        Duration::from_nanos(1),
        MS,
        HOUR,
        year * 10_000,
    ] {
        for theirs in [theirs.checked_add(apart), theirs.checked_sub(apart)] {
            let theirs = theirs.expect("std's range is larger");
            assert_eq!(std::time::Instant::from(Instant::from(theirs)), theirs);
        }
        for ours in [ours + apart, ours - apart] {
            assert_eq!(Instant::from(std::time::Instant::from(ours)), ours);
        }
        assert_eq!(Instant::from(theirs + apart), Instant::from(theirs) + apart);
    }
}

#[test]
fn an_instant_may_be_earlier_than_the_first_look_at_the_clock() {
    let old = std::time::Instant::now() - HOUR;
    assert!(Instant::from(old).elapsed() >= HOUR);
    let last = Instant::now() - HOUR * 24;
    assert!(last.elapsed() >= HOUR * 24);
    assert!(Instant::now().checked_sub(HOUR * 24 * 365 * 50).is_some());
    let negative = format!("{last:?}");
    assert!(negative.starts_with("Instant(-"), "{negative}");
}

#[test]
fn waits_until_a_moment_before_the_program_began_are_over_at_once() {
    let long_ago = [HOUR * 2, HOUR * 24 * 365 * 1000].map(|apart| Instant::now() - apart);
    let check = || {
        for moment in long_ago {
            sleep_until(moment).unwrap();
            let event = sinew::sync::Event::new();
            assert!(event.wait_deadline(moment).is_err());
            assert!(sinew::deadline(moment, sinew::checkpoint).is_err());
        }
        // What they were told to keep they keep.
        let [moment, _] = long_ago;
        assert_eq!(sinew::channel::at(moment).recv(), Ok(moment));
        let token = sinew::CancelToken::new().child_with_deadline(moment);
        assert_eq!(token.deadline(), Some(moment));
    };
    check(); // on this thread
    in_fibers(check);
}

#[test]
fn waits_until_a_moment_beyond_the_clock_s_range_do_not_end() {
    in_fibers(|| {
        let never = Instant::now() + HOUR * 24 * 365 * 1000;
        let sleeper = sinew::spawn(move || sleep_until(never));
        wait_until(|| sleeper.fiber().wait_reason() == WaitReason::Sleep);
        assert!(!sleeper.is_finished());
        sleeper.cancel();
        assert_eq!(sleeper.join().unwrap(), Err(Cancelled));
    });
}

#[test]
fn instants_of_fibers_and_threads_are_of_one_clock() {
    on_workers(|runtime| {
        let before = Instant::now();
        let inside = runtime.run(Instant::now);
        let after = Instant::now();
        assert!(
            before <= inside && inside <= after,
            "{before:?} {inside:?} {after:?}"
        );
    });
}

#[test]
fn ten_thousand_timers_are_set_and_most_cancelled() {
    on_workers(|runtime| {
        runtime.run(|| {
            let parked: Vec<_> = (0..10_000u64)
                .map(|i| sinew::spawn(move || sinew::park_timeout(HOUR + i as u32 * MS)))
                .collect();
            for fiber in &parked {
                fiber.fiber().unpark();
            }
            for fiber in parked {
                fiber.join().unwrap();
            }
        });
        wait_until(|| runtime.stats().timers == 0);
    });
}
