//! Sharing the worker in long computations, and refusing to.

use crate::harness::{
    Gate, Log, in_fibers, is_expected, on_workers, panic_expected, runtime, watch,
};
use sinew::{Builder, Runtime, no_suspend};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

#[test]
fn a_loop_with_safepoints_lets_another_fiber_run() {
    let _watch = watch();
    runtime(1).run(|| {
        let ran = Gate::new();
        let theirs = ran.clone();
        let other = sinew::spawn(move || theirs.open());
        while !ran.is_open() {
            sinew::safepoint();
        }
        other.join().unwrap();
    });
}

#[sinew::preemptible]
fn compute_until(gate: &Gate) -> u64 {
    let mut sum = 0u64;
    while !gate.is_open() {
        sum = sum.wrapping_mul(31).wrapping_add(1);
    }
    sum
}

#[sinew::preemptible]
fn recurse_until(gate: &Gate) {
    // No loop: the safepoint is at the function's entry.
    fn spin(gate: &Gate) {
        for _ in 0..1000 {
            std::hint::black_box(gate.is_open());
        }
    }
    spin(gate);
}

#[test]
fn a_preemptible_function_lets_another_fiber_run() {
    let _watch = watch();
    runtime(1).run(|| {
        let ran = Gate::new();
        let theirs = ran.clone();
        let other = sinew::spawn(move || theirs.open());
        std::hint::black_box(compute_until(&ran));
        other.join().unwrap();
        let ran = Gate::new();
        let theirs = ran.clone();
        let other = sinew::spawn(move || theirs.open());
        while !ran.is_open() {
            recurse_until(&ran);
        }
        other.join().unwrap();
    });
}

#[test]
fn a_timer_s_fiber_runs_while_another_computes_with_safepoints() {
    let _watch = watch();
    runtime(1).run(|| {
        let woken = Gate::new();
        let theirs = woken.clone();
        let sleeper = sinew::spawn(move || {
            sinew::sleep(Duration::from_millis(1)).unwrap();
            theirs.open();
        });
        compute_until(&woken);
        sleeper.join().unwrap();
    });
}

#[test]
fn in_strict_order_a_safepoint_before_the_quantum_is_over_does_not_yield() {
    let _watch = watch();
    let runtime = Runtime::builder()
        .workers(1)
        .strict_order(true)
        .quantum(Duration::from_secs(3600))
        .build()
        .unwrap();
    runtime.run(|| {
        let ran = Gate::new();
        let theirs = ran.clone();
        let other = sinew::spawn(move || theirs.open());
        for _ in 0..100_000 {
            sinew::safepoint();
        }
        assert!(!ran.is_open());
        other.join().unwrap();
    });
}

#[test]
fn safepoints_on_plain_threads_and_pool_threads_do_nothing() {
    for _ in 0..1000 {
        sinew::safepoint();
    }
    in_fibers(|| sinew::blocking(|| (0..1000).for_each(|_| sinew::safepoint())));
}

#[test]
fn a_hog_is_reported_with_name_worker_and_place() {
    let _watch = watch();
    for workers in [1, 2] {
        let reported = Gate::new();
        let reports = Log::new();
        let (theirs, log) = (reported.clone(), reports.clone());
        let runtime = Runtime::builder()
            .workers(workers)
            .report_hogs_after(Duration::from_millis(2))
            .on_hog(move |report| {
                log.push(report.clone());
                theirs.open();
            })
            .build()
            .unwrap();
        let (builder, handle) = (Builder::new().name("glutton"), runtime.handle());
        let glutton = move || {
            while !reported.is_open() {
                std::hint::spin_loop();
            }
            sinew::current().id()
        };
        let line = line!() + 1;
        let hog = builder.spawn_on(&handle, glutton);
        let id = hog.unwrap().join().unwrap();
        let reports = reports.take();
        let report = reports.iter().find(|report| report.id == id).unwrap();
        assert_eq!(report.name.as_deref(), Some("glutton"));
        assert!(report.worker < workers);
        assert!(report.running_for >= Duration::from_millis(2));
        let at = report.spawned_at.unwrap();
        assert!(
            at.file().ends_with("safepoint.rs") && at.line() == line,
            "{at}"
        );
    }
}

#[test]
fn a_hog_callback_that_panics_does_not_end_the_monitor() {
    let _watch = watch();
    let calls = Log::new();
    let log = calls.clone();
    let runtime = Runtime::builder()
        .workers(1)
        .report_hogs_after(Duration::from_millis(1))
        .on_hog(move |report| {
            log.push(report.id);
            panic_expected(1);
        })
        .build()
        .unwrap();
    for round in 1..=2 {
        let calls = calls.clone();
        runtime.run(move || {
            while calls.len() < round {
                std::hint::spin_loop();
            }
        });
    }
}

/// Whether `f` panics with the text of `no_suspend`.
fn refused<T>(f: impl FnOnce() -> T) {
    let caught = catch_unwind(AssertUnwindSafe(|| no_suspend(f)));
    let Err(payload) = caught else {
        panic!("it could suspend");
    };
    let text = payload.downcast_ref::<&str>().copied().unwrap_or_default();
    assert!(text.contains("no_suspend"), "{text}");
}

#[test]
fn every_attempt_to_suspend_inside_no_suspend_panics_there() {
    on_workers(|runtime| {
        runtime.run(|| {
            let parked = sinew::spawn(sinew::park);
            let fiber = parked.fiber();
            refused(sinew::yield_now);
            refused(sinew::park);
            refused(|| sinew::sleep(Duration::from_millis(1)));
            refused(|| sinew::park_timeout(Duration::from_millis(1)));
            refused(|| fiber.wait());
            refused(|| sinew::block_on(std::future::pending::<()>()));
            // Whatever the attempts left behind must harm nobody now: timers
            // that come due, and the end of what was waited for.
            sinew::sleep(Duration::from_millis(5)).unwrap();
            fiber.unpark();
            parked.join().unwrap();
            sinew::yield_now();
            assert_eq!(sinew::spawn(|| 3).join().unwrap(), 3);
        });
    });
}

#[test]
fn a_join_refused_by_no_suspend_leaves_the_list_of_waiters_in_order() {
    on_workers(|runtime| {
        runtime.run(|| {
            let target = sinew::spawn(sinew::park);
            let fiber = target.fiber();
            for _ in 0..10 {
                let fiber = fiber.clone();
                sinew::spawn(move || refused(|| fiber.wait()))
                    .join()
                    .unwrap();
            }
            let waiters: Vec<_> = (0..5)
                .map(|_| {
                    let fiber = fiber.clone();
                    sinew::spawn(move || fiber.wait())
                })
                .collect();
            sinew::yield_now();
            fiber.unpark();
            for waiter in waiters {
                waiter.join().unwrap().unwrap();
            }
            target.join().unwrap();
        });
    });
}

#[test]
fn blocking_refused_by_no_suspend_does_not_run_its_closure_on_a_stack_that_is_gone() {
    on_workers(|runtime| {
        runtime.run(|| {
            for _ in 0..50 {
                let mut borrowed = [7u64; 64];
                let caught = catch_unwind(AssertUnwindSafe(|| {
                    no_suspend(|| sinew::blocking(|| borrowed.fill(9)))
                }));
                assert!(caught.is_err());
                // If the closure were on its way it would write into this.
                let reused = std::hint::black_box([1u64; 64]);
                sinew::blocking(|| ());
                assert_eq!(reused, [1; 64]);
            }
        });
    });
}

#[test]
fn no_suspend_returns_the_value_nests_and_ends_with_its_closure() {
    in_fibers(|| {
        assert_eq!(no_suspend(|| no_suspend(|| 1) + 1), 2);
        let caught = catch_unwind(|| no_suspend(|| panic_expected(3)));
        assert!(is_expected(&*caught.unwrap_err(), 3));
        sinew::yield_now();
        refused(|| {
            no_suspend(|| ());
            sinew::yield_now(); // the outer one still holds
        });
        sinew::yield_now();
        // What does not suspend is allowed.
        no_suspend(|| {
            sinew::current().unpark();
            drop(sinew::spawn(|| ()));
            sinew::safepoint();
        });
        sinew::park();
    });
    assert_eq!(no_suspend(|| 5), 5);
    no_suspend(sinew::yield_now); // a plain thread
}
