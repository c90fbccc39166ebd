//! Which fiber runs next.

use crate::harness::{Gate, Log, runtime, watch};
use sinew::Runtime;

fn strict() -> Runtime {
    Runtime::builder()
        .workers(1)
        .strict_order(true)
        .build()
        .unwrap()
}

/// Fibers that each log their number and yield, several times.
fn rounds(fibers: usize, rounds: usize) -> Vec<usize> {
    let log = Log::new();
    let handles: Vec<_> = (0..fibers)
        .map(|i| {
            let log = log.clone();
            sinew::spawn(move || {
                for _ in 0..rounds {
                    log.push(i);
                    sinew::yield_now();
                }
            })
        })
        .collect();
    // Poll without joining: a join would change the order.
    while !handles.iter().all(sinew::JoinHandle::is_finished) {
        sinew::yield_now();
    }
    log.take()
}

#[test]
fn in_strict_order_each_of_n_ready_fibers_runs_again_after_n_minus_one_others() {
    let _watch = watch();
    let log = strict().run(|| rounds(7, 300));
    let expected: Vec<usize> = (0..300).flat_map(|_| 0..7).collect();
    assert_eq!(log, expected);
}

#[test]
fn yields_on_one_worker_are_first_in_first_out_also_without_strict_order() {
    let _watch = watch();
    let log = runtime(1).run(|| rounds(7, 300));
    let expected: Vec<usize> = (0..300).flat_map(|_| 0..7).collect();
    assert_eq!(log, expected);
}

#[test]
fn in_strict_order_woken_fibers_queue_behind_those_that_were_ready() {
    let _watch = watch();
    strict().run(|| {
        let log = Log::new();
        let theirs = log.clone();
        let parked = sinew::spawn(move || {
            sinew::park();
            theirs.push("woken");
        });
        sinew::yield_now(); // it parks
        let theirs = log.clone();
        let ready = sinew::spawn(move || theirs.push("ready"));
        parked.fiber().unpark();
        let theirs = log.clone();
        let later = sinew::spawn(move || theirs.push("later"));
        for handle in [parked, ready, later] {
            handle.join().unwrap();
        }
        assert_eq!(log.take(), ["ready", "woken", "later"]);
    });
}

#[test]
fn in_strict_order_a_joined_child_waits_for_its_turn() {
    let _watch = watch();
    strict().run(|| {
        let log = Log::new();
        let children: Vec<_> = (0..5)
            .map(|i| {
                let log = log.clone();
                sinew::spawn(move || log.push(i))
            })
            .collect();
        for child in children.into_iter().rev() {
            child.join().unwrap();
        }
        assert_eq!(log.take(), [0, 1, 2, 3, 4]);
    });
}

#[test]
fn fibers_spawned_by_a_thread_start_in_order_on_one_worker() {
    let _watch = watch();
    let runtime = runtime(1);
    let log = Log::new();
    let (busy, go) = (Gate::new(), Gate::new());
    let theirs = (busy.clone(), go.clone());
    let hog = runtime.spawn(move || {
        theirs.0.open();
        theirs.1.spin();
    });
    busy.spin();
    let fibers: Vec<_> = (0..100)
        .map(|i| {
            let log = log.clone();
            runtime.spawn(move || log.push(i))
        })
        .collect();
    go.open();
    for fiber in fibers {
        fiber.join().unwrap();
    }
    hog.join().unwrap();
    assert_eq!(log.take(), (0..100).collect::<Vec<_>>());
}

#[test]
fn two_fibers_that_wake_each_other_do_not_starve_a_third() {
    let _watch = watch();
    for strict in [false, true] {
        let runtime = Runtime::builder()
            .workers(1)
            .strict_order(strict)
            .build()
            .unwrap();
        runtime.run(|| {
            let done = Gate::new();
            let me = sinew::current();
            let gate = done.clone();
            let partner = sinew::spawn(move || {
                while !gate.is_open() {
                    sinew::park();
                    me.unpark();
                }
            });
            let gate = done.clone();
            let third = sinew::spawn(move || gate.open());
            let mut turns = 0u64;
            while !done.is_open() {
                partner.fiber().unpark();
                sinew::park();
                turns += 1;
                assert!(turns < 1000, "the third fiber did not get its turn");
            }
            partner.fiber().unpark();
            partner.join().unwrap();
            third.join().unwrap();
        });
    }
}

#[test]
fn a_chain_of_spawn_and_join_does_not_starve_others() {
    let _watch = watch();
    runtime(1).run(|| {
        let done = Gate::new();
        let gate = done.clone();
        let other = sinew::spawn(move || gate.open());
        let mut turns = 0u64;
        while !done.is_open() {
            sinew::spawn(|| ()).join().unwrap();
            turns += 1;
            assert!(turns < 1000, "the other fiber did not get its turn");
        }
        other.join().unwrap();
    });
}

#[test]
fn each_ready_fiber_gets_its_turn_on_two_workers() {
    let _watch = watch();
    runtime(2).run(|| {
        // Whatever yields without an end, the others come to run.
        let done = Gate::new();
        let busy: Vec<_> = (0..20)
            .map(|_| {
                let gate = done.clone();
                sinew::spawn(move || gate.pass())
            })
            .collect();
        let others: Vec<_> = (0..100)
            .map(|_| {
                sinew::spawn(|| {
                    for _ in 0..10 {
                        sinew::yield_now();
                    }
                })
            })
            .collect();
        for other in others {
            other.join().unwrap();
        }
        done.open();
        for fiber in busy {
            fiber.join().unwrap();
        }
    });
}

#[test]
fn work_from_outside_reaches_workers_that_never_run_dry() {
    let _watch = watch();
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let done = Gate::new();
        let busy: Vec<_> = (0..2 * workers)
            .map(|_| {
                let gate = done.clone();
                runtime.spawn(move || gate.pass())
            })
            .collect();
        for _ in 0..50 {
            runtime.spawn(|| ()).join().unwrap();
        }
        let parked = runtime.spawn(sinew::park);
        parked.fiber().unpark();
        parked.join().unwrap();
        done.open();
        for fiber in busy {
            fiber.join().unwrap();
        }
    }
}
