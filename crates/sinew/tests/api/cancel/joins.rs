//! `join` passes a request on to the fiber that it waits for.

use super::{HOUR, SHORT, parked, spawn_begun, spawn_parked};
use crate::harness::{in_fibers, on_workers, runtime, wait_until, watch};
use sinew::{CancelToken, Cancelled, Runtime, WaitReason, timeout};

#[test]
fn a_request_that_comes_while_it_joins_goes_to_the_child() {
    in_fibers(|| {
        let child = spawn_parked(|| sinew::sleep(HOUR));
        let parent = sinew::spawn(move || (child.join().unwrap(), sinew::check_cancelled()));
        wait_until(|| parent.fiber().wait_reason() == WaitReason::Join);
        parent.cancel();
        let answer = (Err(Cancelled), Err(Cancelled));
        assert_eq!(parent.join().unwrap(), answer);
    });
}

#[test]
fn a_request_that_came_before_the_join_goes_to_the_child() {
    in_fibers(|| {
        let child = spawn_parked(|| sinew::sleep(HOUR));
        let parent = sinew::spawn(move || {
            sinew::current().cancel();
            child.join().unwrap()
        });
        assert_eq!(parent.join().unwrap(), Err(Cancelled));
    });
}

#[test]
fn a_request_goes_down_a_whole_line_of_joins() {
    in_fibers(|| {
        let mut last = spawn_parked(|| sinew::sleep(HOUR));
        for _ in 0..50 {
            last = spawn_parked(move || last.join().unwrap());
        }
        last.cancel();
        assert_eq!(last.join().unwrap(), Err(Cancelled));
    });
}

#[test]
fn a_request_that_the_child_ignores_does_not_end_the_join() {
    in_fibers(|| {
        let child = spawn_begun(|| {
            while !sinew::is_cancelled() {
                sinew::yield_now();
            }
            5
        });
        let parent = sinew::spawn(move || child.join().unwrap());
        wait_until(|| parent.fiber().wait_reason() == WaitReason::Join);
        parent.cancel();
        assert_eq!(parent.join().unwrap(), 5);
    });
}

#[test]
fn a_shield_around_the_join_keeps_the_child() {
    in_fibers(|| {
        let child = spawn_parked(sinew::park_or_cancelled);
        let fiber = child.fiber();
        let parent = spawn_parked(move || {
            let value = sinew::shield(|| child.join().unwrap());
            (value, sinew::check_cancelled())
        });
        parent.cancel();
        parked(&fiber);
        fiber.unpark();
        assert_eq!(parent.join().unwrap(), (Ok(()), Err(Cancelled)));
    });
}

#[test]
fn a_thread_that_joins_inside_of_a_token_passes_it_on() {
    on_workers(|runtime| {
        let child = runtime.spawn(|| sinew::sleep(HOUR));
        parked(&child.fiber());
        let token = CancelToken::new();
        let theirs = token.clone();
        let thread = std::thread::spawn(move || theirs.enter(|| child.join().unwrap()));
        token.cancel();
        assert_eq!(thread.join().unwrap(), Err(Cancelled));

        let child = runtime.spawn(|| sinew::sleep(HOUR));
        parked(&child.fiber());
        let outcome = timeout(SHORT, || child.join().unwrap());
        assert_eq!(outcome.unwrap_err().into_inner(), Err(Cancelled));
    });
}

#[test]
fn a_limit_whose_join_passed_it_on_says_so_whatever_the_child_answers() {
    in_fibers(|| {
        let outcome = timeout(SHORT, || {
            spawn_begun(|| {
                while !sinew::is_cancelled() {
                    sinew::yield_now();
                }
                5
            })
            .join()
            .unwrap()
        });
        assert_eq!(outcome.unwrap_err().into_inner(), 5);
        // It ended by itself before.
        let outcome = timeout(HOUR, || sinew::spawn(|| 5).join().unwrap());
        assert_eq!(outcome, Ok(5));
    });
}

#[test]
fn a_closure_that_is_run_inside_of_a_cancelled_fiber_runs_and_is_told() {
    let _watch = watch();
    for workers in [1, 2] {
        let (own, other) = (runtime(workers), runtime(1));
        let handle = own.handle();
        let run_in = |runtime: &Runtime| {
            let mut ran = false;
            let told = runtime.run(|| {
                ran = true;
                sinew::sleep(HOUR)
            });
            assert!(ran);
            told
        };
        own.run(|| {
            drop(handle);
            sinew::current().cancel();
            assert_eq!(run_in(&other), Err(Cancelled));
            assert_eq!(run_in(&own), Err(Cancelled));
            let shielded = sinew::shield(|| other.run(|| sinew::sleep(SHORT)));
            assert_eq!(shielded, Ok(()));
        });
        let outcome = own.run(|| timeout(SHORT, || other.run(|| sinew::sleep(HOUR))));
        assert_eq!(outcome.unwrap_err().into_inner(), Err(Cancelled));
    }
}

#[test]
fn a_select_that_only_joins_is_no_point() {
    in_fibers(|| {
        let mut child = spawn_parked(|| {
            sinew::park();
            5
        });
        let fiber = child.fiber();
        let parent = spawn_parked(move || {
            sinew::select! {
                join(child) -> value => value.unwrap(),
            }
        });
        parent.cancel();
        parked(&fiber);
        fiber.unpark();
        assert_eq!(parent.join().unwrap(), 5);
    });
}
