//! Fibers that stay on their worker.

use crate::harness::{Gate, in_fibers, is_expected, panic_expected, runtime, wait_until, watch};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

#[test]
fn local_fibers_share_what_is_not_send() {
    in_fibers(|| {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let fibers: Vec<_> = (0..20)
            .map(|i| {
                let seen = seen.clone();
                sinew::spawn_local(move || {
                    sinew::yield_now();
                    seen.borrow_mut().push(i);
                    Rc::new(i)
                })
            })
            .collect();
        let sum: i32 = fibers.into_iter().map(|fiber| *fiber.join().unwrap()).sum();
        assert_eq!(sum, 190);
        assert_eq!(seen.borrow().len(), 20);
        assert_eq!(Rc::strong_count(&seen), 1);
    });
}

#[test]
fn a_local_fiber_never_leaves_the_worker_of_its_spawner() {
    let _watch = watch();
    runtime(2).run(|| {
        // Many busy roots, so that thieves are about; each with local children.
        let roots: Vec<_> = (0..50)
            .map(|_| {
                sinew::spawn(|| {
                    let here = std::thread::current().id();
                    let children: Vec<_> = (0..20)
                        .map(|_| {
                            sinew::spawn_local(move || {
                                for _ in 0..5 {
                                    assert_eq!(std::thread::current().id(), here);
                                    sinew::yield_now();
                                }
                                sinew::sleep(Duration::from_micros(50)).unwrap();
                                assert_eq!(std::thread::current().id(), here);
                                sinew::blocking(|| ());
                                assert_eq!(std::thread::current().id(), here);
                            })
                        })
                        .collect();
                    for child in children {
                        child.join().unwrap();
                    }
                })
            })
            .collect();
        for root in roots {
            root.join().unwrap();
        }
    });
}

#[test]
fn a_started_fiber_never_changes_threads() {
    let _watch = watch();
    runtime(2).run(|| {
        let fibers: Vec<_> = (0..200)
            .map(|i| {
                sinew::spawn(move || {
                    let here = std::thread::current().id();
                    for _ in 0..20 {
                        match i % 4 {
                            0 => sinew::yield_now(),
                            1 => sinew::sleep(Duration::from_micros(20)).unwrap(),
                            2 => sinew::blocking(|| ()),
                            _ => drop(sinew::spawn(|| ()).join()),
                        }
                        assert_eq!(std::thread::current().id(), here);
                    }
                })
            })
            .collect();
        for fiber in fibers {
            fiber.join().unwrap();
        }
    });
}

#[test]
fn thread_locals_are_shared_by_the_fibers_of_a_worker() {
    thread_local!(static COUNT: Cell<u32> = const { Cell::new(0) });
    let _watch = watch();
    runtime(1).run(|| {
        let fibers: Vec<_> = (0..10)
            .map(|_| {
                sinew::spawn(|| {
                    let before = COUNT.get();
                    COUNT.set(before + 1);
                    sinew::yield_now();
                })
            })
            .collect();
        for fiber in fibers {
            fiber.join().unwrap();
        }
        assert_eq!(COUNT.get(), 10);
    });
}

#[test]
fn spawning_locally_off_a_fiber_panics() {
    let _watch = watch();
    let refused = std::panic::catch_unwind(|| {
        drop(sinew::spawn_local(|| ()));
    });
    let payload = refused.unwrap_err();
    let text = payload.downcast_ref::<&str>().copied().unwrap_or_default();
    assert!(text.contains("outside of a fiber"), "{text}");
    // A pool thread is no worker either.
    runtime(1).run(|| {
        let job = sinew::spawn_blocking(|| {
            drop(sinew::spawn_local(|| ()));
        });
        assert!(job.join().unwrap_err().is_panic());
    });
}

#[test]
fn a_local_handle_does_what_a_handle_does() {
    in_fibers(|| {
        let go = Rc::new(Cell::new(false));
        let theirs = go.clone();
        let handle = sinew::spawn_local(move || {
            while !theirs.get() {
                sinew::yield_now();
            }
            5
        });
        assert!(!handle.is_finished());
        let handle = handle.try_join().unwrap_err();
        let handle = handle.join_timeout(Duration::from_micros(10)).unwrap_err();
        go.set(true);
        assert_eq!(sinew::block_on(handle).unwrap(), 5);

        let error = sinew::spawn_local(|| panic_expected(1))
            .join()
            .map(|()| ())
            .unwrap_err();
        assert!(is_expected(&*error.into_panic(), 1));
        let unstarted = sinew::spawn_local(|| ());
        unstarted.cancel();
        assert!(unstarted.join().unwrap_err().is_cancelled());
        let done = Gate::new();
        let theirs = done.clone();
        drop(sinew::spawn_local(move || theirs.open()));
        wait_until(|| done.is_open());
    });
}
