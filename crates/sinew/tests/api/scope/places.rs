//! Where a scope may be, and what happens where it may not.

use super::{Counts, count, everywhere, panic_of, text_of};
use crate::harness::{
    Gate, OnDrop, in_fibers, is_expected, on_workers, panic_expected, runtime, watch,
};
use sinew::{Builder, no_suspend, scope};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

#[test]
fn where_waiting_is_forbidden_a_scope_panics_before_its_body_runs() {
    in_fibers(|| {
        let ran = AtomicBool::new(false);
        let payload = panic_of(|| {
            no_suspend(|| {
                scope(|s| {
                    ran.store(true, Ordering::Relaxed);
                    s.spawn(|| ran.store(true, Ordering::Relaxed));
                });
            });
        });
        assert!(text_of(&*payload).contains("no_suspend"), "{payload:?}");
        assert!(!ran.into_inner());
        // Children may be started in there, for that does not wait.
        assert_eq!(scope(|s| no_suspend(|| s.spawn(|| 1)).join().unwrap()), 1);
    });
}

#[test]
fn a_plain_thread_has_scopes_of_fibers() {
    let _watch = watch();
    let me = std::thread::current().id();
    let mut seen = Vec::new();
    scope(|s| {
        let child = s.spawn(|| seen.push(std::thread::current().id()));
        child.join().unwrap();
    });
    assert_eq!(seen.len(), 1);
    assert_ne!(seen[0], me, "a child is a fiber of the global runtime");
    // Several threads at once, and from one that has never used the library.
    let sum = AtomicUsize::new(0);
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                scope(|s| {
                    for i in 0..10 {
                        let sum = &sum;
                        s.spawn(move || sum.fetch_add(i, Ordering::Relaxed));
                    }
                });
            });
        }
    });
    assert_eq!(sum.into_inner(), 4 * 45);
}

#[test]
fn a_drop_that_runs_while_unwinding_may_have_a_scope() {
    everywhere(|| {
        let mut numbers = [0; 4];
        let payload = panic_of(|| {
            let _guard = OnDrop(|| {
                scope(|s| {
                    for number in &mut numbers {
                        s.spawn(|| {
                            assert!(!std::thread::panicking());
                            sinew::yield_now();
                            *number += 1;
                        });
                    }
                    // A child's panic is heard of here as well.
                    let child = s.spawn(|| panic_expected(2));
                    assert!(child.join().map(|()| ()).unwrap_err().is_panic());
                });
            });
            panic_expected(1);
        });
        assert!(is_expected(&*payload, 1));
        assert_eq!(numbers, [1; 4]);
    });
}

#[test]
fn a_scope_in_another_runtime_s_fiber_has_children_there() {
    let _watch = watch();
    let inner = sinew::Runtime::builder()
        .workers(1)
        .name("inner")
        .build()
        .unwrap();
    on_workers(|outer| {
        outer.run(|| {
            let mut list = vec![1];
            let elsewhere = inner.run(|| {
                let here = std::thread::current().id();
                scope(|s| {
                    s.spawn(|| list.push(2));
                });
                scope(|s| {
                    let child = s.spawn(|| std::thread::current().id());
                    assert_eq!(child.join().unwrap(), here); // it has one worker
                });
                here
            });
            assert_ne!(std::thread::current().id(), elsewhere);
            assert_eq!(list, [1, 2]);
        });
    });
}

#[test]
fn a_scope_may_have_children_in_two_runtimes() {
    let _watch = watch();
    let other = runtime(1);
    on_workers(|runtime| {
        runtime.run(|| {
            let sum = AtomicUsize::new(0);
            let go = Gate::new();
            scope(|s| {
                s.spawn(|| sum.fetch_add(1, Ordering::Relaxed));
                let there = other.run(|| {
                    s.spawn(|| {
                        go.pass();
                        sum.fetch_add(10, Ordering::Relaxed);
                    });
                    std::thread::current().id()
                });
                assert_ne!(there, std::thread::current().id());
                go.open();
            });
            assert_eq!(sum.into_inner(), 11);
        });
    });
}

#[test]
fn a_child_that_cannot_be_made_is_an_error_and_harms_nothing() {
    everywhere(|| {
        let drops = AtomicUsize::new(0);
        let value = scope(|s| {
            let captured = Counts(&drops);
            let refused = Builder::new().stack_size(1).spawn_scoped(s, move || {
                let _captured = &captured;
            });
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            // Its closure is gone, and the scope goes on.
            assert_eq!(count(&drops), 1);
            s.spawn(|| 1).join().unwrap()
        });
        assert_eq!(value, 1);
    });
}

/// What a job does that has outlived its runtime, where nothing can be spawned.
fn after_the_end(work: fn() -> bool) {
    let _watch = watch();
    let runtime = runtime(1);
    let (begun, release) = (Gate::new(), Gate::new());
    let theirs = (begun.clone(), release.clone());
    let job = runtime.spawn(move || {
        sinew::spawn_blocking(move || {
            theirs.0.open();
            theirs.1.spin();
            work()
        })
    });
    let job = job.join().unwrap();
    begun.spin();
    let left = runtime.shutdown_timeout(Duration::from_millis(5));
    assert_eq!(left.unwrap_err().leaked().len(), 1);
    release.open();
    assert!(job.join().unwrap());
}

#[test]
fn in_a_runtime_that_has_ended_a_child_is_refused_and_its_closure_dropped() {
    after_the_end(|| {
        let drops = AtomicUsize::new(0);
        let value = scope(|s| {
            let captured = Counts(&drops);
            let refused = Builder::new().spawn_scoped(s, move || {
                let _captured = &captured;
            });
            assert!(refused.unwrap_err().to_string().contains("has shut down"));
            assert_eq!(count(&drops), 1);
            let payload = panic_of(|| s.spawn(|| ()));
            assert!(text_of(&*payload).contains("has shut down"));
            7
        });
        value == 7
    });
}

#[test]
fn a_child_refused_while_its_owner_unwinds_is_no_panic_of_a_child() {
    after_the_end(|| {
        let outcome = std::cell::Cell::new(None);
        let payload = panic_of(|| {
            let _guard = OnDrop(|| {
                let scoped = std::panic::catch_unwind(|| {
                    scope(|s| Builder::new().spawn_scoped(s, || ()).is_err())
                });
                outcome.set(scoped.ok());
            });
            panic_expected(1);
        });
        is_expected(&*payload, 1) && outcome.get() == Some(true)
    });
}

#[test]
fn a_scope_s_owner_may_do_anything_else_in_its_body() {
    everywhere(|| {
        let mut list = vec![1];
        scope(|s| {
            let child = s.spawn(|| list.push(2));
            sinew::blocking(|| std::thread::sleep(Duration::from_millis(1)));
            sinew::sleep(Duration::from_millis(1)).unwrap();
            sinew::block_on(async { sinew::spawn(|| ()).await.unwrap() });
            sinew::yield_now();
            child.join().unwrap();
        });
        assert_eq!(list, [1, 2]);
    });
}
