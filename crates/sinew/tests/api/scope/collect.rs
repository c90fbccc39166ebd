//! The scope that keeps all results.

use super::{Counts, HOUR, count, everywhere, panic_of, waits_in};
use crate::harness::{Gate, is_expected, on_workers, panic_expected, runtime, wait_until, watch};
use sinew::scope::collect;
use sinew::{Cancelled, WaitReason};
use std::sync::atomic::AtomicUsize;

#[test]
fn results_come_in_the_order_of_the_spawns_not_of_the_ends() {
    everywhere(|| {
        let numbers: Vec<usize> = (0..20).collect();
        let last = Gate::new();
        let results = collect(|c| {
            for number in &numbers {
                let (last, numbers) = (&last, &numbers);
                c.spawn(move || {
                    if *number == numbers.len() - 1 {
                        last.open();
                    } else {
                        last.pass(); // the last ends first
                    }
                    number * 2
                });
            }
        });
        let results: Vec<usize> = results.into_iter().map(Result::unwrap).collect();
        assert!(
            results
                .iter()
                .enumerate()
                .all(|(i, result)| *result == 2 * i)
        );
        assert_eq!(results.len(), 20);
    });
}

#[test]
fn a_panic_is_one_of_the_results_and_touches_no_other() {
    everywhere(|| {
        let results = collect(|c| {
            let panicking = c.spawn(|| panic_expected(1));
            wait_until(|| panicking.is_finished());
            c.spawn(|| {
                sinew::sleep(std::time::Duration::from_millis(1)).unwrap();
                2
            });
            c.spawn(|| panic_expected(3));
        });
        let [first, second, third]: [_; 3] = results.try_into().unwrap();
        assert!(is_expected(&*first.unwrap_err().into_panic(), 1));
        assert_eq!(second.unwrap(), 2);
        assert!(is_expected(&*third.unwrap_err().into_panic(), 3));
    });
}

#[test]
fn nothing_started_is_nothing_collected() {
    everywhere(|| assert!(collect::<_, ()>(|_| ()).is_empty()));
}

#[test]
fn who_was_cancelled_before_it_ran_says_so_in_its_place() {
    let _watch = watch();
    // One worker: none can begin before the body ends.
    runtime(1).run(|| {
        let results = collect(|c| {
            c.spawn(|| 0);
            c.spawn(|| 1).cancel();
            c.spawn(|| 2);
        });
        let told: Vec<_> = results.into_iter().map(Result::ok).collect();
        assert_eq!(told, [Some(0), None, Some(2)]);
        let results = collect(|c| {
            c.spawn(|| 0);
            c.cancel();
            c.spawn(|| 1);
        });
        assert!(
            results
                .iter()
                .all(|result| result.as_ref().is_err_and(|e| e.is_cancelled()))
        );
        assert_eq!(results.len(), 2);
    });
}

#[test]
fn who_was_cancelled_while_it_ran_has_a_result_of_its_own() {
    everywhere(|| {
        for by_token in [false, true] {
            let results = collect(|c| {
                let child = c.spawn(|| sinew::sleep(HOUR));
                waits_in(&child, WaitReason::Sleep);
                if by_token {
                    c.token().cancel();
                } else {
                    c.cancel();
                }
                assert!(c.is_cancelled());
                assert_eq!(sinew::check_cancelled(), Err(Cancelled));
            });
            assert_eq!(results.len(), 1);
            assert!(results.into_iter().all(|r| r.unwrap() == Err(Cancelled)));
        }
    });
}

#[test]
fn cancelled_from_outside_it_still_collects_all() {
    on_workers(|runtime| {
        let owner = runtime.spawn(|| {
            let results = collect(|c| {
                for _ in 0..3 {
                    c.spawn(|| sinew::sleep(HOUR));
                }
            });
            results.into_iter().map(Result::unwrap).collect::<Vec<_>>()
        });
        waits_in(&owner.fiber(), WaitReason::Scope);
        wait_until(|| runtime.stats().parked >= 4);
        owner.cancel();
        assert_eq!(owner.join().unwrap(), [Err(Cancelled); 3]);
    });
}

#[test]
fn a_panic_of_the_body_waits_drops_the_results_and_goes_on() {
    everywhere(|| {
        let drops = AtomicUsize::new(0);
        let go = Gate::new();
        let payload = panic_of(|| {
            collect(|c| {
                c.spawn(|| Counts(&drops));
                c.spawn(|| {
                    go.pass();
                    Counts(&drops)
                });
                go.open();
                panic_expected(4);
            })
        });
        assert!(is_expected(&*payload, 4));
        assert_eq!(count(&drops), 2);
    });
}

#[test]
fn children_of_a_collect_start_others_which_come_after_them() {
    everywhere(|| {
        // Many times: one that is quick may be ahead of who started it.
        for _ in 0..500 {
            let results = collect(|c| {
                c.spawn(move || {
                    c.spawn(|| 2);
                    1
                });
            });
            let results: Vec<i32> = results.into_iter().map(Result::unwrap).collect();
            assert_eq!(results, [1, 2]);
        }
    });
}
