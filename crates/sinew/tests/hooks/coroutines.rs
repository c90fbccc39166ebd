//! Coroutines of another library that enter or leave `no_suspend` inside of a hook: the hook
//! stays unable to wait, and the fiber stays able to.

use crate::alone;
use crate::harness::runtime;
use corosensei::{Coroutine, CoroutineResult};
use sinew::channel::bounded;
use sinew::hooks::SwitchHooks;
use sinew::{no_suspend, yield_now};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    /// Suspended inside of `no_suspend`.
    static INSIDE: RefCell<Option<Coroutine<(), (), ()>>> = const { RefCell::new(None) };
    static ENTERS: Cell<bool> = const { Cell::new(false) };
}

static CALLED: AtomicUsize = AtomicUsize::new(0);

fn suspended_inside() -> Coroutine<(), (), ()> {
    let mut inside = Coroutine::new(|suspend: &corosensei::Yielder<(), ()>, ()| {
        no_suspend(|| suspend.suspend(()));
    });
    assert!(matches!(inside.resume(()), CoroutineResult::Yield(())));
    inside
}

/// Waits when it is dropped: after the closure of its fiber, whose count is zero again.
struct WaitsInDrop;

impl Drop for WaitsInDrop {
    fn drop(&mut self) {
        let (sender, receiver) = bounded(1);
        let sends = sinew::spawn(move || sender.send(7).unwrap());
        assert_eq!(receiver.recv(), Ok(7));
        sends.join().unwrap();
    }
}

sinew::fiber_local! {
    static LAST: WaitsInDrop = WaitsInDrop;
}

#[test]
fn a_coroutine_that_leaves_no_suspend_in_a_hook_does_not_let_the_hook_wait() {
    alone(
        "coroutines::a_coroutine_that_leaves_no_suspend_in_a_hook_does_not_let_the_hook_wait",
        || {
            SwitchHooks::new()
                .on_suspend(|| {
                    let Some(mut inside) = INSIDE.take() else {
                        return;
                    };
                    assert!(matches!(inside.resume(()), CoroutineResult::Return(())));
                    assert!(std::panic::catch_unwind(yield_now).is_err());
                    CALLED.fetch_add(1, Ordering::Relaxed);
                })
                .install()
                .unwrap();
            runtime(1).run(|| {
                let ends = sinew::spawn(|| {
                    LAST.with(|_| ());
                    INSIDE.set(Some(suspended_inside()));
                });
                ends.join().unwrap();
            });
            assert_eq!(CALLED.load(Ordering::Relaxed), 1);
        },
    );
}

#[test]
fn a_coroutine_that_enters_no_suspend_in_a_hook_does_not_keep_the_fiber_from_waiting() {
    alone(
        "coroutines::a_coroutine_that_enters_no_suspend_in_a_hook_does_not_keep_the_fiber_from_waiting",
        || {
            SwitchHooks::new()
                .on_suspend(|| {
                    if ENTERS.take() {
                        INSIDE.set(Some(suspended_inside()));
                        CALLED.fetch_add(1, Ordering::Relaxed);
                    }
                })
                .install()
                .unwrap();
            runtime(1).run(|| {
                let (sender, receiver) = bounded(1);
                let me = sinew::current();
                let sends = sinew::spawn(move || {
                    me.unpark(); // it looks, and waits on
                    yield_now();
                    yield_now();
                    sender.send(7).unwrap();
                });
                ENTERS.set(true);
                assert_eq!(receiver.recv(), Ok(7));
                sends.join().unwrap();
                // What is still inside belongs to a hook that is over.
                let mut inside = INSIDE.take().unwrap();
                assert!(matches!(inside.resume(()), CoroutineResult::Return(())));
                yield_now();
            });
            assert_eq!(CALLED.load(Ordering::Relaxed), 1);
        },
    );
}
