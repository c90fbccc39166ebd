//! Values that are bound for the time of a call, and seen by children.

use super::{everywhere, panic_of};
use crate::harness::{in_fibers, is_expected, on_workers, panic_expected, runtime, watch};
use sinew::scope::{Restart, Supervision, collect, nursery, race, supervise};
use sinew::{ScopedValue, scope};
use std::sync::atomic::{AtomicUsize, Ordering};

static NAME: ScopedValue<String> = ScopedValue::new();
static NUMBER: ScopedValue<u32> = ScopedValue::new();

fn name() -> Option<String> {
    NAME.get()
}

fn some(text: &str) -> Option<String> {
    Some(text.into())
}

#[test]
fn a_value_is_bound_for_the_time_of_a_call() {
    everywhere(|| {
        assert!(!NUMBER.is_bound());
        let answer = NUMBER.bind(&7, || {
            assert!(NUMBER.is_bound());
            assert_eq!(NUMBER.get(), Some(7));
            NUMBER.with(|number| *number.unwrap() * 2)
        });
        assert_eq!(answer, 14);
        assert_eq!(NUMBER.get(), None);
        NUMBER.with(|number| assert!(number.is_none()));
    });
}

#[test]
fn children_see_it_by_reference_and_so_do_theirs() {
    everywhere(|| {
        let text = String::from("here");
        NAME.bind(&text, || {
            let here = std::ptr::from_ref(&text) as usize;
            let seen = || NAME.with(|name| std::ptr::from_ref(name.unwrap()) as usize);
            assert_eq!(seen(), here);
            scope(|s| {
                s.spawn(|| {
                    assert_eq!(seen(), here); // no copy
                    scope(|inner| {
                        inner.spawn(|| {
                            sinew::yield_now();
                            assert_eq!(seen(), here);
                        });
                    });
                });
            });
        });
    });
}

#[test]
fn an_inner_binding_hides_the_outer_one_while_it_lasts() {
    everywhere(|| {
        NUMBER.bind(&1, || {
            NAME.bind(&"other".into(), || {
                NUMBER.bind(&2, || {
                    assert_eq!((NUMBER.get(), name()), (Some(2), some("other")));
                    assert_eq!(scope(|s| s.spawn(|| NUMBER.get()).join().unwrap()), Some(2));
                });
                assert_eq!(NUMBER.get(), Some(1));
            });
            assert_eq!((NUMBER.get(), name()), (Some(1), None));
        });
    });
}

#[test]
fn what_a_child_binds_is_its_own_and_its_children_s() {
    everywhere(|| {
        NUMBER.bind(&1, || {
            scope(|s| {
                let child = s.spawn(|| {
                    NUMBER.bind(&2, || {
                        sinew::yield_now();
                        scope(|inner| inner.spawn(|| NUMBER.get()).join().unwrap())
                    })
                });
                let other = s.spawn(|| {
                    sinew::yield_now();
                    NUMBER.get()
                });
                assert_eq!(child.join().unwrap(), Some(2));
                assert_eq!(other.join().unwrap(), Some(1));
                assert_eq!(NUMBER.get(), Some(1));
            });
        });
    });
}

#[test]
fn what_is_bound_inside_of_the_body_is_not_seen_by_the_children() {
    everywhere(|| {
        NUMBER.bind(&1, || {
            scope(|s| {
                // It may be gone before they are.
                let child = NUMBER.bind(&2, || s.spawn(|| NUMBER.get()));
                assert_eq!(child.join().unwrap(), Some(1));
            });
        });
        scope(|s| {
            let child = NUMBER.bind(&3, || s.spawn(|| NUMBER.is_bound()));
            assert!(!child.join().unwrap());
        });
    });
}

#[test]
fn a_child_that_a_child_starts_sees_what_the_scope_does() {
    everywhere(|| {
        NUMBER.bind(&1, || {
            scope(|s| {
                s.spawn(|| {
                    NUMBER.bind(&2, || {
                        let sibling = s.spawn(|| NUMBER.get());
                        assert_eq!(sibling.join().unwrap(), Some(1));
                    });
                });
            });
        });
    });
}

#[test]
fn a_fiber_that_may_outlive_the_call_does_not_see_it() {
    everywhere(|| {
        NUMBER.bind(&1, || {
            assert!(!sinew::spawn(|| NUMBER.is_bound()).join().unwrap());
            assert!(!sinew::spawn_blocking(|| NUMBER.is_bound()).join().unwrap());
        });
    });
    in_fibers(|| {
        NUMBER.bind(&1, || {
            assert!(!sinew::spawn_local(|| NUMBER.is_bound()).join().unwrap());
        });
    });
}

#[test]
fn a_closure_on_the_blocking_pool_sees_its_caller_s_values() {
    everywhere(|| {
        NUMBER.bind(&1, || {
            sinew::blocking(|| {
                assert_eq!(NUMBER.get(), Some(1));
                NUMBER.bind(&2, || {
                    assert_eq!(scope(|s| s.spawn(|| NUMBER.get()).join().unwrap()), Some(2));
                });
                assert_eq!(NUMBER.get(), Some(1));
            });
        });
        // The pool thread keeps nothing of it, also not after a panic.
        panic_of(|| NUMBER.bind(&1, || sinew::blocking(|| panic_expected(1))));
        sinew::blocking(|| assert!(!NUMBER.is_bound()));
    });
}

#[test]
fn a_pool_thread_keeps_nothing_of_its_last_caller() {
    let _watch = watch();
    let one_thread = sinew::Runtime::builder().workers(1).blocking_threads(1);
    one_thread.build().unwrap().run(|| {
        NUMBER.bind(&1, || {
            let lent = sinew::blocking(|| (NUMBER.get(), std::thread::current().id()));
            let job = sinew::spawn_blocking(|| (NUMBER.get(), std::thread::current().id()));
            let (seen, thread) = job.join().unwrap();
            assert_eq!((lent, seen), ((Some(1), thread), None));
        });
    });
}

#[test]
fn after_a_panic_the_former_binding_is_back() {
    everywhere(|| {
        NUMBER.bind(&1, || {
            let payload = panic_of(|| NUMBER.bind(&2, || panic_expected(2)));
            assert!(is_expected(&*payload, 2));
            assert_eq!(NUMBER.get(), Some(1));
            let payload = panic_of(|| scope(|_| NUMBER.bind(&3, || panic_expected(3))));
            assert!(is_expected(&*payload, 3));
            assert_eq!(NUMBER.get(), Some(1));
        });
        assert!(!NUMBER.is_bound());
    });
}

#[test]
fn all_kinds_of_scopes_pass_it_on() {
    everywhere(|| {
        NUMBER.bind(&1, || {
            let value = nursery(|n| n.spawn(|| Ok::<_, sinew::Cancelled>(NUMBER.get())).join());
            assert_eq!(value.unwrap(), Some(1));
            let value = race(|r| {
                r.spawn(|| NUMBER.get().ok_or(()));
            });
            assert_eq!(value.unwrap(), 1);
            let values = collect(|c| {
                c.spawn(|| NUMBER.get());
            });
            assert!(values.into_iter().all(|value| value.unwrap() == Some(1)));
            let runs = AtomicUsize::new(0);
            let report = supervise(Supervision::new(), |s| {
                s.child("child", Restart::Transient, || {
                    assert_eq!(NUMBER.get(), Some(1));
                    // A run after a restart sees it as well.
                    if runs.fetch_add(1, Ordering::SeqCst) == 0 {
                        Err("once")
                    } else {
                        Ok(())
                    }
                });
            });
            assert_eq!(report.unwrap().restarts, 1);
        });
    });
}

#[test]
fn bindings_of_fibers_on_one_worker_do_not_mix() {
    let _watch = watch();
    runtime(1).run(|| {
        let fibers: Vec<_> = (0..20)
            .map(|i| {
                sinew::spawn(move || {
                    NUMBER.bind(&i, || {
                        for _ in 0..5 {
                            sinew::yield_now();
                            assert_eq!(NUMBER.get(), Some(i));
                        }
                    });
                })
            })
            .collect();
        for fiber in fibers {
            fiber.join().unwrap();
        }
        assert!(!NUMBER.is_bound());
    });
}

#[test]
fn a_scope_of_another_runtime_does_not_inherit_it() {
    // `Runtime::run` waits, but its fiber is no child of a scope.
    let _watch = watch();
    let other = runtime(1);
    on_workers(|runtime| {
        runtime.run(|| NUMBER.bind(&1, || assert!(!other.run(|| NUMBER.is_bound()))));
    });
}

#[test]
fn each_declaration_is_a_value_of_its_own() {
    // That a constant is refused, of which two may have one address, is a doctest.
    static STATICS: [ScopedValue<u32>; 2] = [ScopedValue::new(), ScopedValue::new()];
    static OTHER: ScopedValue<&'static str> = ScopedValue::new();
    let _watch = watch();
    STATICS[0].bind(&1, || {
        assert!(!STATICS[1].is_bound() && !NUMBER.is_bound() && !OTHER.is_bound());
    });
    assert!(format!("{NUMBER:?}").starts_with("ScopedValue"));
    let _: ScopedValue<u8> = ScopedValue::default();
}
