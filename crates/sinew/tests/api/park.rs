//! `park`, `unpark` and `park_timeout`: std's token.

use crate::harness::{Gate, in_fibers, on_workers, wait_until, watch};
use sinew::{WaitReason, park, park_timeout};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

fn is_parked(fiber: &sinew::Fiber) -> bool {
    fiber.wait_reason() == WaitReason::Park
}

#[test]
fn an_unpark_before_the_park_is_kept() {
    in_fibers(|| {
        sinew::current().unpark();
        park();
        let fiber = sinew::spawn(|| {
            park();
            park_timeout(Duration::ZERO);
            7
        });
        fiber.fiber().unpark();
        assert_eq!(fiber.join().unwrap(), 7);
    });
}

#[test]
fn tokens_do_not_add_up() {
    in_fibers(|| {
        let parks = Arc::new(AtomicUsize::new(0));
        let theirs = parks.clone();
        let go = Gate::new();
        let gate = go.clone();
        let fiber = sinew::spawn(move || {
            gate.pass();
            for _ in 0..2 {
                park();
                theirs.fetch_add(1, Ordering::Relaxed);
            }
        });
        for _ in 0..10 {
            fiber.fiber().unpark();
        }
        go.open();
        wait_until(|| parks.load(Ordering::Relaxed) == 1 && is_parked(&fiber.fiber()));
        // It waits in its second park: only one of the ten tokens was there.
        for _ in 0..100 {
            sinew::yield_now();
        }
        assert_eq!(parks.load(Ordering::Relaxed), 1);
        fiber.fiber().unpark();
        fiber.join().unwrap();
    });
}

#[test]
fn an_unpark_while_it_waits_for_something_else_is_kept_for_the_next_park() {
    in_fibers(|| {
        let go = Gate::new();
        let gate = go.clone();
        let child = sinew::spawn(move || gate.pass());
        let joiner = sinew::spawn(move || {
            child.join().unwrap();
            park();
            sinew::sleep(Duration::from_millis(1)).unwrap();
            park();
            sinew::blocking(|| ());
            park();
        });
        let fiber = joiner.fiber();
        wait_until(|| fiber.wait_reason() == WaitReason::Join);
        fiber.unpark();
        // The join goes on waiting.
        for _ in 0..50 {
            sinew::yield_now();
        }
        assert!(!joiner.is_finished());
        go.open();
        // The second and third token come whenever they come.
        while !joiner.is_finished() {
            fiber.unpark();
            sinew::yield_now();
        }
        joiner.join().unwrap();
    });
}

#[test]
fn a_token_left_during_a_join_is_not_eaten_by_it() {
    in_fibers(|| {
        let me = sinew::current();
        let child = sinew::spawn(move || me.unpark());
        child.join().unwrap();
        park(); // hangs if the join took the token
    });
}

#[test]
fn a_token_left_during_a_sleep_does_not_cut_it_short() {
    in_fibers(|| {
        let me = sinew::current();
        let begun = Instant::now();
        let waker = sinew::spawn(move || me.unpark());
        sinew::sleep(Duration::from_millis(20)).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(20));
        waker.join().unwrap();
        park();
    });
}

#[test]
fn park_does_not_return_without_a_token() {
    on_workers(|runtime| {
        let parked = runtime.spawn(park);
        let fiber = parked.fiber();
        wait_until(|| is_parked(&fiber));
        runtime.run(|| {
            for _ in 0..200 {
                sinew::yield_now();
            }
        });
        assert!(!parked.is_finished());
        fiber.unpark();
        parked.join().unwrap();
    });
}

#[test]
fn park_timeout_returns_by_time_or_by_token() {
    in_fibers(|| {
        let begun = Instant::now();
        park_timeout(Duration::from_millis(5));
        assert!(begun.elapsed() >= Duration::from_millis(5));
        let fiber = sinew::spawn(|| park_timeout(Duration::MAX));
        fiber.fiber().unpark();
        fiber.join().unwrap();
        // A token that came too late for one park is there for the next.
        sinew::current().unpark();
        park_timeout(Duration::from_secs(3600));
    });
}

#[test]
fn what_came_before_the_unpark_is_seen_after_the_park() {
    on_workers(|runtime| {
        for round in 0..500usize {
            let data = Arc::new(AtomicUsize::new(0));
            let theirs = data.clone();
            let fiber = runtime.spawn(move || {
                park();
                theirs.load(Ordering::Relaxed)
            });
            data.store(round + 1, Ordering::Relaxed);
            fiber.fiber().unpark();
            assert_eq!(fiber.join().unwrap(), round + 1);
        }
    });
}

#[test]
fn a_thread_is_parked_and_unparked_by_fibers_and_threads() {
    on_workers(|runtime| {
        let thread = sinew::current();
        thread.unpark();
        park();
        let me = thread.clone();
        let fiber = runtime.spawn(move || me.unpark());
        park();
        fiber.join().unwrap();
        let me = thread.clone();
        let other = std::thread::spawn(move || me.unpark());
        park();
        other.join().unwrap();
        // The token is not that of `std::thread::park`.
        std::thread::current().unpark();
        park_timeout(Duration::from_millis(1));
        std::thread::park();
    });
}

#[test]
fn unparking_what_has_ended_does_nothing() {
    in_fibers(|| {
        let handle = sinew::spawn(|| 3);
        let fiber = handle.fiber();
        assert_eq!(handle.join().unwrap(), 3);
        for _ in 0..10 {
            fiber.unpark();
            fiber.cancel();
        }
        // Nor does it reach who uses the block next.
        let next = sinew::spawn(|| {
            assert!(!sinew::is_cancelled());
            let begun = Instant::now();
            park_timeout(Duration::from_millis(2));
            begun.elapsed() >= Duration::from_millis(2)
        });
        fiber.unpark();
        fiber.cancel();
        assert!(next.join().unwrap());
    });
}

#[test]
fn two_fibers_hand_a_token_to_and_fro() {
    const ROUNDS: usize = 2000;
    in_fibers(|| {
        let count = Arc::new(AtomicUsize::new(0));
        let me = sinew::current();
        let theirs = count.clone();
        let other = sinew::spawn(move || {
            for _ in 0..ROUNDS {
                park();
                theirs.fetch_add(1, Ordering::Relaxed);
                me.unpark();
            }
        });
        for round in 0..ROUNDS {
            other.fiber().unpark();
            park();
            assert_eq!(count.load(Ordering::Relaxed), round + 1);
        }
        other.join().unwrap();
    });
}

#[test]
fn a_thread_and_a_sleeping_worker_hand_a_token_to_and_fro() {
    const ROUNDS: usize = 1000;
    let _watch = watch();
    on_workers(|runtime| {
        let me = sinew::current();
        let other = runtime.spawn(move || {
            for _ in 0..ROUNDS {
                park();
                me.unpark();
            }
        });
        for _ in 0..ROUNDS {
            other.fiber().unpark();
            park();
        }
        other.join().unwrap();
    });
}

#[test]
fn a_waiting_fiber_tells_what_it_waits_for_and_where() {
    on_workers(|runtime| {
        let line = line!() + 1;
        let parked = runtime.spawn(|| park());
        let fiber = parked.fiber();
        wait_until(|| is_parked(&fiber));
        let at = fiber.waits_at().unwrap();
        assert!(at.file().ends_with("park.rs"), "{at}");
        assert_eq!(at.line(), line);
        fiber.unpark();
        parked.join().unwrap();
        assert_eq!(fiber.wait_reason(), WaitReason::None);

        let gate = Gate::new();
        let theirs = gate.clone();
        let blocked = runtime.spawn(move || sinew::blocking(move || theirs.spin()));
        wait_until(|| blocked.fiber().wait_reason() == WaitReason::Blocking);
        gate.open();
        blocked.join().unwrap();

        let asleep = runtime.spawn(|| sinew::sleep(Duration::from_secs(3600)));
        wait_until(|| asleep.fiber().wait_reason() == WaitReason::Sleep);
        asleep.cancel();
        assert!(asleep.join().unwrap().is_err());
    });
}
