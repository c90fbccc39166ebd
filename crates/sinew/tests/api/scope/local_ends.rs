//! When the values of a fiber are dropped, and what their drops may do.

use super::HOUR;
use crate::harness::{Gate, Log, OnDrop, in_fibers, panic_expected, runtime, watch};
use sinew::{Cancelled, FiberId, WaitReason, fiber_local};
use std::cell::{Cell, OnceCell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Says its number when it is dropped.
struct Tells(Log<(u32, FiberId)>, u32);

impl Drop for Tells {
    fn drop(&mut self) {
        self.0.push((self.1, sinew::current().id()));
    }
}

/// A slot into which a test puts what it wants to be dropped at the fiber's end.
type Slot = RefCell<Option<Box<dyn std::any::Any>>>;

/// Puts `value` there.
fn put(slot: &'static sinew::FiberKey<Slot>, value: impl std::any::Any) {
    slot.set(Some(Box::new(value)));
}

/// Runs `f` when it is dropped.
fn when_dropped(f: impl FnMut() + 'static) -> impl std::any::Any {
    OnDrop(f)
}

#[test]
fn they_are_dropped_on_the_fiber_s_stack_before_join_returns_the_last_made_first() {
    fiber_local! {
        static A: Slot = RefCell::new(None);
        static B: Slot = RefCell::new(None);
        static C: Slot = RefCell::new(None);
    }
    in_fibers(|| {
        let log = Log::new();
        let theirs = log.clone();
        let fiber = sinew::spawn(move || {
            put(&B, Tells(theirs.clone(), 1));
            put(&C, Tells(theirs.clone(), 2));
            put(&A, Tells(theirs.clone(), 3));
            // Used again, which changes no order.
            assert!(B.with_borrow(Option::is_some));
            assert_eq!(theirs.len(), 0);
        });
        let id = fiber.fiber().id();
        fiber.join().unwrap();
        assert_eq!(log.take(), [(3, id), (2, id), (1, id)]);
    });
}

#[test]
fn every_way_to_wait_for_a_fiber_s_end_comes_after() {
    fiber_local!(static SLOT: Slot = RefCell::new(None));
    in_fibers(|| {
        for way in 0..5 {
            let (dropped, slow) = (Gate::new(), Gate::new());
            let theirs = (dropped.clone(), slow.clone());
            let body = move || {
                put(
                    &SLOT,
                    when_dropped(move || {
                        theirs.1.pass();
                        theirs.0.open();
                    }),
                );
            };
            if way == 4 {
                sinew::scope(|s| {
                    s.spawn(body);
                    slow.open();
                });
                assert!(dropped.is_open());
                continue;
            }
            let mut fiber = sinew::spawn(body);
            sinew::yield_now();
            assert!(!fiber.is_finished());
            slow.open();
            match way {
                0 => fiber.join().unwrap(),
                1 => fiber.fiber().wait().unwrap(),
                2 => sinew::block_on(fiber).unwrap(),
                _ => {
                    let joined = sinew::select! { join(fiber) -> joined => joined };
                    joined.unwrap();
                }
            }
            assert!(dropped.is_open(), "way {way}");
        }
    });
}

#[test]
fn they_are_dropped_after_a_panic_and_a_cancel() {
    fiber_local!(static SLOT: Slot = RefCell::new(None));
    in_fibers(|| {
        let log = Log::new();
        let theirs = log.clone();
        let panicking = sinew::spawn(move || {
            put(&SLOT, Tells(theirs, 1));
            panic_expected(1);
        });
        assert!(panicking.join().map(|()| ()).unwrap_err().is_panic());
        assert_eq!(log.len(), 1);
        let theirs = log.clone();
        let cancelled = sinew::spawn(move || {
            put(&SLOT, Tells(theirs, 2));
            sinew::sleep(HOUR)
        });
        super::waits_in(&cancelled.fiber(), WaitReason::Sleep);
        cancelled.cancel();
        assert_eq!(cancelled.join().unwrap(), Err(Cancelled));
        assert_eq!(log.len(), 2);
    });
}

#[test]
fn what_the_drop_of_a_closure_that_never_ran_has_made_is_dropped() {
    fiber_local!(static SLOT: Slot = RefCell::new(None));
    let _watch = watch();
    // One worker: it cannot begin before it is cancelled.
    runtime(1).run(|| {
        let log = Log::new();
        let theirs = log.clone();
        let captured = OnDrop(move || put(&SLOT, Tells(theirs.clone(), 1)));
        let unstarted = sinew::spawn(move || {
            let _captured = &captured;
        });
        unstarted.cancel();
        let id = unstarted.fiber().id();
        assert!(unstarted.join().unwrap_err().is_cancelled());
        assert_eq!(log.take(), [(1, id)]);
    });
}

#[test]
fn a_drop_may_wait_spawn_and_have_scopes() {
    fiber_local!(static SLOT: Slot = RefCell::new(None));
    in_fibers(|| {
        let log = Log::new();
        let theirs = log.clone();
        let body = move || {
            sinew::yield_now();
            sinew::sleep(std::time::Duration::from_millis(1)).unwrap();
            theirs.push(sinew::spawn(|| 1).join().unwrap());
            theirs.push(sinew::blocking(|| 2));
            sinew::scope(|s| {
                s.spawn(|| theirs.push(3));
            });
        };
        sinew::spawn(move || put(&SLOT, when_dropped(body)))
            .join()
            .unwrap();
        assert_eq!(log.take(), [1, 2, 3]);
    });
}

#[test]
fn a_drop_may_use_the_values_that_are_left() {
    fiber_local! {
        static FIRST: Cell<u32> = const { Cell::new(0) };
        static LAST: Slot = RefCell::new(None);
    }
    in_fibers(|| {
        let seen = Log::new();
        let theirs = seen.clone();
        sinew::spawn(move || {
            FIRST.set(7);
            put(&LAST, when_dropped(move || theirs.push(FIRST.get())));
        })
        .join()
        .unwrap();
        assert_eq!(seen.take(), [7]);
    });
}

#[test]
fn a_value_that_a_drop_makes_anew_is_dropped_as_well() {
    fiber_local! {
        static EARLY: Slot = RefCell::new(None);
        static LATE: Slot = RefCell::new(None);
    }
    in_fibers(|| {
        let log = Log::new();
        let theirs = log.clone();
        let fiber = sinew::spawn(move || {
            let inner = theirs.clone();
            put(
                &EARLY,
                when_dropped(move || {
                    inner.push((1, sinew::current().id()));
                    // Both are gone already, or about to be.
                    put(&LATE, Tells(inner.clone(), 2));
                    put(&EARLY, Tells(inner.clone(), 3));
                }),
            );
            put(&LATE, Tells(theirs, 4));
        });
        let id = fiber.fiber().id();
        fiber.join().unwrap();
        assert_eq!(log.take(), [(4, id), (1, id), (3, id), (2, id)]);
    });
}

/// Makes itself anew whenever it is dropped.
struct Phoenix(&'static AtomicUsize);

fiber_local!(static PHOENIX: OnceCell<Phoenix> = const { OnceCell::new() });

impl Drop for Phoenix {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        let deaths = self.0;
        PHOENIX.with(|cell| drop(cell.set(Self(deaths))));
    }
}

#[test]
fn after_five_rounds_what_is_made_anew_is_leaked() {
    static DEATHS: AtomicUsize = AtomicUsize::new(0);
    in_fibers(|| {
        DEATHS.store(0, Ordering::SeqCst);
        sinew::spawn(|| PHOENIX.with(|cell| drop(cell.set(Phoenix(&DEATHS)))))
            .join()
            .unwrap();
        assert_eq!(DEATHS.load(Ordering::SeqCst), 5);
    });
}

#[test]
fn who_is_made_anew_again_and_again_keeps_no_other_from_being_dropped() {
    static DEATHS: AtomicUsize = AtomicUsize::new(0);
    fiber_local! {
        static BEFORE: Slot = RefCell::new(None);
        static AFTER: Slot = RefCell::new(None);
    }
    in_fibers(|| {
        DEATHS.store(0, Ordering::SeqCst);
        let log = Log::new();
        let theirs = log.clone();
        let fiber = sinew::spawn(move || {
            put(&BEFORE, Tells(theirs.clone(), 1));
            PHOENIX.with(|cell| drop(cell.set(Phoenix(&DEATHS))));
            put(&AFTER, Tells(theirs, 2));
        });
        let id = fiber.fiber().id();
        fiber.join().unwrap();
        assert_eq!(log.take(), [(2, id), (1, id)]);
        assert_eq!(DEATHS.load(Ordering::SeqCst), 5);
    });
}

#[test]
fn a_panic_in_a_drop_keeps_neither_the_others_nor_the_result_back() {
    fiber_local! {
        static A: Slot = RefCell::new(None);
        static B: Slot = RefCell::new(None);
        static C: Slot = RefCell::new(None);
    }
    in_fibers(|| {
        let log = Log::new();
        let theirs = log.clone();
        let body = move || {
            put(&A, Tells(theirs.clone(), 1));
            put(&B, when_dropped(|| panic_expected(1)));
            put(&C, Tells(theirs.clone(), 2));
            "the result"
        };
        let fiber = sinew::spawn(body.clone());
        let id = fiber.fiber().id();
        assert_eq!(fiber.join().unwrap(), "the result");
        assert_eq!(log.take(), [(2, id), (1, id)]);
        // Nor is it a panic of the child of a scope, which has its result.
        let value = sinew::scope(|s| s.spawn(body).join().unwrap());
        assert_eq!(value, "the result");
        assert_eq!(log.len(), 2);
    });
}

#[test]
fn what_the_drop_of_the_result_makes_is_dropped_too() {
    fiber_local!(static SLOT: Slot = RefCell::new(None));
    in_fibers(|| {
        let log = Log::new();
        let theirs = log.clone();
        let (go, dropped) = (Gate::new(), Gate::new());
        let gates = (go.clone(), dropped.clone());
        let detached = sinew::spawn(move || {
            gates.0.pass();
            put(&SLOT, Tells(theirs.clone(), 1));
            // Nobody has the handle: dropped by the fiber itself, at its end.
            OnDrop(move || {
                put(&SLOT, Tells(theirs.clone(), 2));
                gates.1.open();
            })
        });
        let fiber = detached.fiber();
        drop(detached);
        go.open();
        fiber.wait().unwrap();
        assert!(dropped.is_open());
        let id = fiber.id();
        assert_eq!(log.take(), [(1, id), (2, id)]);
    });
}

#[test]
fn a_thread_drops_its_own_in_the_same_order_when_it_ends() {
    fiber_local! {
        static A: Slot = RefCell::new(None);
        static B: Slot = RefCell::new(None);
    }
    let _watch = watch();
    let log = Log::new();
    let theirs = log.clone();
    std::thread::spawn(move || {
        put(&A, Tells(theirs.clone(), 1));
        put(&B, Tells(theirs, 2));
    })
    .join()
    .unwrap();
    let numbers: Vec<_> = log.take().into_iter().map(|(number, _)| number).collect();
    assert_eq!(numbers, [2, 1]);
}

#[test]
fn on_a_thread_that_destroys_its_values_the_others_say_so() {
    fiber_local! {
        static FIRST: Cell<u32> = const { Cell::new(1) };
        static SLOT: Slot = RefCell::new(None);
        static NEW: Cell<u32> = const { Cell::new(2) };
    }
    let _watch = watch();
    let told = Log::new();
    let theirs = told.clone();
    std::thread::spawn(move || {
        FIRST.set(7);
        put(
            &SLOT,
            when_dropped(move || {
                theirs.push(FIRST.try_with(Cell::get).map_err(|e| e.to_string()));
                theirs.push(NEW.try_with(Cell::get).map_err(|e| e.to_string()));
            }),
        );
    })
    .join()
    .unwrap();
    let refused = "a fiber-local was used while the thread destroys its own";
    assert_eq!(told.take(), [Err(refused.into()), Err(refused.into())]);
}
