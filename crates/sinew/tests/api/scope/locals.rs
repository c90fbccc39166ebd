//! Values that every fiber has of its own.

use super::{everywhere, panic_of, text_of};
use crate::harness::{Gate, in_fibers, is_expected, panic_expected, wait_until};
use sinew::{FiberKey, fiber_local};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn each_fiber_has_its_own_value() {
    fiber_local!(static NUMBER: Cell<u32> = const { Cell::new(1) });
    everywhere(|| {
        NUMBER.set(10);
        sinew::scope(|s| {
            for i in 0..20 {
                s.spawn(move || {
                    assert_eq!(NUMBER.get(), 1);
                    NUMBER.set(i);
                    sinew::yield_now(); // others of this worker set theirs
                    assert_eq!(NUMBER.get(), i);
                });
            }
        });
        assert_eq!(NUMBER.get(), 10);
        NUMBER.set(1);
    });
}

#[test]
fn each_thread_has_its_own_value() {
    fiber_local!(static NUMBER: Cell<u32> = const { Cell::new(1) });
    NUMBER.set(2);
    let threads: Vec<_> = (10..14)
        .map(|i| {
            std::thread::spawn(move || {
                assert_eq!(NUMBER.get(), 1);
                NUMBER.set(i);
                NUMBER.get()
            })
        })
        .collect();
    let seen: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    assert_eq!(seen, [10, 11, 12, 13]);
    assert_eq!(NUMBER.get(), 2);
}

#[test]
fn a_fiber_does_not_see_what_the_thread_it_runs_on_has() {
    fiber_local!(static NUMBER: Cell<u32> = const { Cell::new(1) });
    in_fibers(|| {
        NUMBER.set(5);
        // A pool thread has its own, which stay with it.
        sinew::blocking(|| assert_ne!(NUMBER.get(), 5));
        assert_eq!(NUMBER.get(), 5);
        // A fiber that was ended leaves nothing to the next on its stack.
        for _ in 0..10 {
            let fresh = sinew::spawn(|| NUMBER.replace(7)).join().unwrap();
            assert_eq!(fresh, 1);
        }
    });
}

#[test]
fn a_value_is_made_at_first_use_and_once() {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    fiber_local! {
        static VALUE: usize = MADE.fetch_add(1, Ordering::SeqCst);
        static UNUSED: usize = panic!("nobody uses it");
    }
    everywhere(|| {
        let before = MADE.load(Ordering::SeqCst);
        let fibers: Vec<_> = (0..3)
            .map(|_| {
                sinew::spawn(|| {
                    let first = VALUE.with(|value| *value);
                    sinew::yield_now();
                    assert_eq!(VALUE.with(|value| *value), first);
                })
            })
            .collect();
        for fiber in fibers {
            fiber.join().unwrap();
        }
        assert_eq!(MADE.load(Ordering::SeqCst), before + 3);
        let _: &FiberKey<usize> = &UNUSED;
    });
}

#[test]
fn a_value_stays_where_it_is_while_others_are_made() {
    fiber_local! {
        static FIRST: String = String::from("first");
        static A: [u64; 8] = [1; 8];
        static B: [u64; 8] = [2; 8];
        static C: String = String::from("c");
    }
    everywhere(|| {
        FIRST.with(|first| {
            let here = std::ptr::from_ref(first);
            A.with(|a| B.with(|b| C.with(|c| assert_eq!((a[0], b[0], c.as_str()), (1, 2, "c")))));
            sinew::yield_now();
            assert_eq!(first, "first");
            FIRST.with(|again| assert_eq!(std::ptr::from_ref(again), here));
        });
    });
}

#[test]
fn an_initialiser_may_wait_and_use_other_values() {
    fiber_local! {
        static BASE: u32 = {
            sinew::yield_now();
            sinew::spawn(|| 20).join().unwrap()
        };
        static SUM: u32 = BASE.with(|base| base + 1);
    }
    everywhere(|| {
        let fibers: Vec<_> = (0..10)
            .map(|_| sinew::spawn(|| SUM.with(|sum| *sum)))
            .collect();
        for fiber in fibers {
            assert_eq!(fiber.join().unwrap(), 21);
        }
    });
}

#[test]
fn of_an_initialiser_that_uses_its_own_key_the_inner_value_stays() {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Value(u32);
    impl Drop for Value {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::SeqCst);
        }
    }
    fiber_local! {
        static DEPTH: Cell<u32> = const { Cell::new(0) };
        static VALUE: Value = {
            MADE.fetch_add(1, Ordering::SeqCst);
            let depth = DEPTH.get();
            DEPTH.set(depth + 1);
            if depth < 3 {
                assert_eq!(VALUE.with(|value| value.0), 3);
            }
            Value(depth)
        };
    }
    in_fibers(|| {
        MADE.store(0, Ordering::SeqCst);
        DROPPED.store(0, Ordering::SeqCst);
        sinew::spawn(|| {
            // Each call got one; the one that was made first is that of all.
            assert_eq!(VALUE.with(|value| value.0), 3);
            assert_eq!(VALUE.with(|value| value.0), 3);
            assert_eq!(DROPPED.load(Ordering::SeqCst), 3);
        })
        .join()
        .unwrap();
        assert_eq!(MADE.load(Ordering::SeqCst), 4);
        assert_eq!(DROPPED.load(Ordering::SeqCst), 4);
    });
}

#[test]
fn an_initialiser_that_panics_leaves_no_value() {
    fiber_local! {
        static CALLS: Cell<u32> = const { Cell::new(0) };
        static VALUE: u32 = {
            CALLS.set(CALLS.get() + 1);
            if CALLS.get() == 1 {
                panic_expected(1);
            }
            CALLS.get()
        };
    }
    in_fibers(|| {
        let payload = panic_of(|| VALUE.with(|value| *value));
        assert!(is_expected(&*payload, 1));
        assert_eq!(VALUE.with(|value| *value), 2);
    });
}

#[test]
fn cells_have_short_cuts() {
    fiber_local!(static CELL: Cell<Option<u32>> = const { Cell::new(Some(1)) });
    in_fibers(|| {
        assert_eq!(CELL.get(), Some(1));
        CELL.set(Some(2));
        assert_eq!(CELL.replace(Some(3)), Some(2));
        assert_eq!(CELL.take(), Some(3));
        assert_eq!(CELL.get(), None);
        assert_eq!(CELL.try_with(Cell::get), Ok(None));
    });
}

#[test]
fn ref_cells_have_short_cuts() {
    fiber_local!(static LIST: RefCell<Vec<u32>> = RefCell::new(vec![1]));
    in_fibers(|| {
        LIST.with_borrow_mut(|list| list.push(2));
        assert_eq!(LIST.with_borrow(Vec::len), 2);
        assert_eq!(LIST.replace(vec![7]), [1, 2]);
        LIST.set(vec![8, 9]);
        assert_eq!(LIST.take(), [8, 9]);
        assert!(LIST.with_borrow(Vec::is_empty));
        // Two loans at once, of which one may write, are refused.
        let payload = panic_of(|| LIST.with_borrow(|_| LIST.set(vec![1])));
        assert!(text_of(&*payload).contains("borrowed"), "{payload:?}");
        assert!(LIST.with_borrow(Vec::is_empty));
    });
}

#[test]
fn keys_are_declared_as_those_of_threads_are() {
    /// With docs, attributes, several at once, and any visibility.
    mod inner {
        sinew::fiber_local! {
            /// The first.
            #[allow(dead_code)]
            pub static ONE: u8 = 1;
            pub(super) static TWO: u8 = const { 1 + 1 }
        }
    }
    sinew::fiber_local! {}
    sinew::fiber_local!(static THREE: u8 = 3);
    let sum = inner::ONE.with(|one| inner::TWO.with(|two| THREE.with(|three| one + two + three)));
    assert_eq!(sum, 6);
    assert!(format!("{THREE:?}").starts_with("FiberKey"));
}

#[test]
fn a_key_may_be_used_first_by_many_at_once() {
    fiber_local!(static VALUE: Cell<u64> = const { Cell::new(0) });
    in_fibers(|| {
        let go = Gate::new();
        sinew::scope(|s| {
            for i in 0..20 {
                let go = &go;
                s.spawn(move || {
                    go.pass();
                    assert_eq!(VALUE.replace(i), 0);
                    sinew::yield_now();
                    assert_eq!(VALUE.get(), i);
                });
            }
            go.open();
        });
        wait_until(|| go.is_open());
    });
}
