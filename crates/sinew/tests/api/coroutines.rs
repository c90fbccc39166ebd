//! Coroutines of another library that suspend inside of our closures, and are resumed by
//! another fiber of the worker, or after their fiber has ended. What ends the process
//! in such a case is in `tests/crash.rs`.

use crate::harness::{Gate, on_workers, wait_until, watch};
use corosensei::{Coroutine, CoroutineResult, Yielder};
use sinew::sync::Semaphore;
use sinew::{
    CancelReason, CancelToken, Cancelled, ScopedValue, WaitReason, no_suspend, spawn_local,
    yield_now,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

type Steps = Coroutine<(), (), ()>;
type Suspend = Yielder<(), ()>;

fn coroutine(body: impl FnOnce(&Suspend) + 'static) -> Steps {
    Coroutine::new(move |suspend, ()| body(suspend))
}

/// Until it suspends once more.
fn step(coroutine: &mut Steps) {
    assert!(matches!(coroutine.resume(()), CoroutineResult::Yield(())));
}

/// Until it ends.
fn end(coroutine: &mut Steps) {
    assert!(matches!(coroutine.resume(()), CoroutineResult::Return(())));
}

/// Runs `first` in a fiber, and `then` in another one of the same worker when that has
/// ended and its block was used by others.
fn on_two_fibers<T: 'static>(first: impl FnOnce() -> T + 'static, then: impl FnOnce(T) + 'static) {
    let made = spawn_local(first).join().unwrap();
    for _ in 0..8 {
        spawn_local(yield_now).join().unwrap();
    }
    spawn_local(move || then(made)).join().unwrap();
}

#[test]
fn no_suspend_is_undone_on_its_own_fiber_only() {
    on_workers(|runtime| {
        runtime.run(|| {
            on_two_fibers(
                || {
                    let mut inside = coroutine(|suspend| no_suspend(|| suspend.suspend(())));
                    step(&mut inside);
                    inside
                },
                |mut inside| {
                    end(&mut inside);
                    yield_now(); // panics if this fiber's count was changed
                    no_suspend(|| {
                        assert!(std::panic::catch_unwind(yield_now).is_err());
                    });
                    yield_now();
                },
            );
        });
    });
}

#[test]
fn a_fiber_may_not_wait_until_its_suspended_no_suspend_has_ended() {
    on_workers(|runtime| {
        runtime.run(|| {
            let mut inside = coroutine(|suspend| no_suspend(|| suspend.suspend(())));
            step(&mut inside);
            assert!(std::panic::catch_unwind(yield_now).is_err());
            end(&mut inside);
            yield_now();
        });
    });
}

#[test]
fn the_destructors_at_the_end_of_a_fiber_may_wait_whatever_is_suspended() {
    struct Waits(Rc<Cell<bool>>);
    impl Drop for Waits {
        fn drop(&mut self) {
            yield_now();
            self.0.set(true);
        }
    }
    sinew::fiber_local!(static LAST: RefCell<Option<Waits>> = RefCell::new(None));

    on_workers(|runtime| {
        runtime.run(|| {
            let waited = Rc::new(Cell::new(false));
            let theirs = waited.clone();
            on_two_fibers(
                move || {
                    LAST.set(Some(Waits(theirs)));
                    let mut inside = coroutine(|suspend| no_suspend(|| suspend.suspend(())));
                    step(&mut inside);
                    inside
                },
                move |mut inside| {
                    assert!(waited.get());
                    end(&mut inside);
                },
            );
        });
    });
}

/// A value on the heap that knows how often one was dropped.
struct Counted(String, Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

sinew::fiber_local!(static KEPT: RefCell<Option<Counted>> = RefCell::new(None));

#[test]
fn a_fiber_local_in_use_outlives_its_fiber() {
    on_workers(|runtime| {
        runtime.run(|| {
            let drops = Arc::new(AtomicUsize::new(0));
            let theirs = drops.clone();
            on_two_fibers(
                move || {
                    KEPT.set(Some(Counted("of the first fiber".into(), theirs)));
                    let mut inside = coroutine(|suspend| {
                        KEPT.with(|kept| {
                            suspend.suspend(());
                            assert_eq!(kept.borrow().as_ref().unwrap().0, "of the first fiber");
                        });
                    });
                    step(&mut inside);
                    inside
                },
                move |mut inside| {
                    assert_eq!(drops.load(Ordering::SeqCst), 0);
                    KEPT.with_borrow(|own| assert!(own.is_none())); // this fiber's own
                    end(&mut inside);
                    assert_eq!(drops.load(Ordering::SeqCst), 0); // leaked
                },
            );
        });
    });
}

#[test]
fn a_fiber_local_that_is_used_no_more_is_dropped_with_its_fiber() {
    on_workers(|runtime| {
        runtime.run(|| {
            let drops = Arc::new(AtomicUsize::new(0));
            let theirs = drops.clone();
            let fiber = spawn_local(move || {
                KEPT.set(Some(Counted(String::new(), theirs)));
                let mut inside = coroutine(|suspend| KEPT.with(|_| suspend.suspend(())));
                step(&mut inside);
                end(&mut inside);
            });
            fiber.join().unwrap();
            assert_eq!(drops.load(Ordering::SeqCst), 1);
        });
    });
}

#[test]
fn a_fiber_local_in_use_outlives_a_plain_thread() {
    let _watch = watch();
    let drops = Arc::new(AtomicUsize::new(0));
    let theirs = drops.clone();
    let thread = std::thread::spawn(move || {
        KEPT.set(Some(Counted(String::new(), theirs)));
        let mut inside = coroutine(|suspend| KEPT.with(|_| suspend.suspend(())));
        step(&mut inside);
        std::mem::forget(inside);
    });
    thread.join().unwrap();
    assert_eq!(drops.load(Ordering::SeqCst), 0);
}

thread_local! {
    /// Of the coroutine that runs here: for initialisers, which take no arguments.
    static SUSPEND: Cell<*const Suspend> = const { Cell::new(std::ptr::null()) };
}

fn suspend_this() {
    // SAFETY: set by the body of the coroutine that runs here, which is on its stack.
    unsafe { (*SUSPEND.get()).suspend(()) };
}

sinew::fiber_local!(static MADE_LATE: Cell<u32> = {
    suspend_this();
    Cell::new(7)
});

#[test]
fn an_initialiser_may_begin_on_one_fiber_and_end_on_another() {
    on_workers(|runtime| {
        runtime.run(|| {
            on_two_fibers(
                || {
                    let mut inside = coroutine(|suspend| {
                        SUSPEND.set(suspend);
                        assert_eq!(MADE_LATE.get(), 7);
                        MADE_LATE.set(8);
                    });
                    step(&mut inside);
                    inside
                },
                |mut inside| {
                    end(&mut inside);
                    assert_eq!(MADE_LATE.get(), 8); // it is this fiber's
                },
            );
        });
    });
}

static BOUND: ScopedValue<String> = ScopedValue::new();

#[test]
fn a_scoped_value_may_be_used_by_a_coroutine_until_bind_returns() {
    on_workers(|runtime| {
        runtime.run(|| {
            let value = String::from("bound");
            BOUND.bind(&value, || {
                let mut inside = coroutine(|suspend| {
                    BOUND.with(|bound| {
                        suspend.suspend(());
                        assert_eq!(bound.unwrap(), "bound");
                    });
                });
                step(&mut inside);
                yield_now();
                end(&mut inside);
            });
            // What found nothing keeps nothing.
            let mut inside = coroutine(|suspend| {
                BOUND.with(|bound| {
                    suspend.suspend(());
                    assert!(bound.is_none());
                });
            });
            step(&mut inside);
            BOUND.bind(&value, || ());
            end(&mut inside);
        });
    });
}

#[test]
fn a_value_of_the_parent_may_be_used_by_a_coroutine_of_the_child() {
    on_workers(|runtime| {
        runtime.run(|| {
            let value = String::from("the parent's");
            BOUND.bind(&value, || {
                sinew::scope(|s| {
                    s.spawn(|| {
                        let mut inside = coroutine(|suspend| {
                            BOUND.with(|bound| {
                                suspend.suspend(());
                                assert_eq!(bound.unwrap(), "the parent's");
                            });
                        });
                        step(&mut inside);
                        let inner = String::from("the child's");
                        BOUND.bind(&inner, || {
                            BOUND.with(|bound| assert_eq!(bound.unwrap(), "the child's"));
                            end(&mut inside);
                        });
                    });
                });
            });
        });
    });
}

#[test]
fn a_value_of_the_caller_may_be_used_by_a_coroutine_in_blocking() {
    on_workers(|runtime| {
        runtime.run(|| {
            let value = String::from("the caller's");
            BOUND.bind(&value, || {
                sinew::blocking(|| {
                    let mut inside = coroutine(|suspend| {
                        BOUND.with(|bound| {
                            suspend.suspend(());
                            assert_eq!(bound.unwrap(), "the caller's");
                        });
                    });
                    step(&mut inside);
                    end(&mut inside);
                });
            });
        });
    });
}

/// Enters a limit, a shield, a token and a scope with a child, suspended inside.
fn deep_inside(suspend: &Suspend) {
    let token = sinew::CancelToken::new();
    let done = Gate::new();
    let limited = sinew::timeout(Duration::from_secs(3600), || {
        sinew::shield(|| {
            token.enter(|| {
                sinew::scope(|s| {
                    s.spawn(|| done.pass());
                    suspend.suspend(());
                    done.open();
                });
            });
        });
    });
    limited.unwrap();
}

#[test]
fn frames_may_be_left_by_another_fiber_while_theirs_is_alive() {
    on_workers(|runtime| {
        runtime.run(|| {
            let inside = Rc::new(RefCell::new(coroutine(deep_inside)));
            let (left, entered) = (Gate::new(), Gate::new());
            let theirs = (inside.clone(), left.clone(), entered.clone());
            let owner = spawn_local(move || {
                step(&mut theirs.0.borrow_mut());
                theirs.2.open();
                theirs.1.pass();
            });
            entered.pass();
            let other = spawn_local(move || end(&mut inside.borrow_mut()));
            other.join().unwrap();
            left.open();
            owner.join().unwrap();
        });
    });
}

thread_local! {
    /// What the waker ends.
    static SUSPENDED: RefCell<Option<Steps>> = const { RefCell::new(None) };
}

/// A waker that resumes a coroutine to its end, and frees its stack.
struct EndsIt;

impl Wake for EndsIt {
    fn wake(self: Arc<Self>) {
        let mut inside = SUSPENDED.take().expect("it is woken once");
        end(&mut inside);
    }
}

fn ends_it() -> Waker {
    Waker::from(Arc::new(EndsIt))
}

/// Runs `test` on a plain thread, and on a fiber.
fn on_thread_and_fiber(test: fn()) {
    let _watch = watch();
    std::thread::spawn(test).join().unwrap();
    on_workers(|runtime| {
        let fiber = runtime.spawn(test);
        fiber.join().unwrap();
    });
}

/// A limit that was reached, in a coroutine that is suspended inside of it: a waker that is
/// called because of that ends the coroutine, and the limit's frame with it.
fn with_a_limit_that_a_waker_ends(look: impl FnOnce()) {
    // Time enough to poll before it is over.
    const LIMIT: Duration = Duration::from_millis(200);
    let scope = Rc::new(Cell::new(None));
    let theirs = scope.clone();
    let mut inside = coroutine(move |suspend| {
        let limited = sinew::timeout(LIMIT, || {
            sinew::scope(|s| {
                theirs.set(Some(s.token()));
                suspend.suspend(());
            });
        });
        assert!(limited.is_err(), "nobody was told that it is over");
    });
    step(&mut inside);
    SUSPENDED.set(Some(inside));
    let token: CancelToken = scope.take().unwrap();
    let mut cancelled = Box::pin(token.cancelled());
    let waker = ends_it();
    let polled = cancelled.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    look();
    assert!(SUSPENDED.take().is_none(), "no waker was called");
    assert!(!sinew::is_cancelled(), "the limit is gone");
}

#[test]
fn a_cause_is_not_used_after_the_wakers_that_it_calls_have_ended_its_frame() {
    on_thread_and_fiber(|| {
        // Until the monitor has told the fiber to look at its limits.
        with_a_limit_that_a_waker_ends(|| while !sinew::is_cancelled() {});
        with_a_limit_that_a_waker_ends(|| while sinew::check_cancelled() == Ok(()) {});
        with_a_limit_that_a_waker_ends(|| {
            let reason = loop {
                if let Some(reason) = sinew::cancel_reason() {
                    break reason;
                }
            };
            assert_eq!(reason, CancelReason::Deadline);
        });
        with_a_limit_that_a_waker_ends(|| {
            assert_eq!(sinew::sleep(Duration::from_secs(3600)), Err(Cancelled));
        });
    });
}

#[test]
fn a_cause_is_not_used_after_a_wait_that_gives_up_has_ended_its_frame() {
    on_thread_and_fiber(|| {
        let (semaphore, token) = (Arc::new(Semaphore::new(1)), CancelToken::new());
        let entered = token.clone();
        let mut inside = coroutine(move |suspend| entered.enter(|| suspend.suspend(())));
        step(&mut inside);
        SUSPENDED.set(Some(inside));
        let theirs = semaphore.clone();
        let behind = std::thread::spawn(move || {
            wait_until(|| theirs.try_acquire().is_err()); // there is one, but somebody in front
            // A task that gets it when the one in front gives up, and calls the waker then.
            let mut task = Box::pin(theirs.acquire_owned_async());
            let polled = task.as_mut().poll(&mut Context::from_waker(&ends_it()));
            assert!(polled.is_pending());
            std::mem::forget(task);
            token.cancel();
        });
        assert!(semaphore.acquire_many(2).is_err());
        behind.join().unwrap();
        assert!(SUSPENDED.take().is_none(), "no waker was called");
        assert!(!sinew::is_cancelled(), "the frame is gone");
    });
}

#[test]
fn a_request_that_came_during_a_shield_is_seen_though_another_fiber_leaves_it() {
    on_workers(|runtime| {
        runtime.run(|| {
            let inside = Rc::new(RefCell::new(coroutine(|suspend| {
                sinew::shield(|| suspend.suspend(()));
            })));
            let theirs = inside.clone();
            let shielded = spawn_local(move || {
                step(&mut theirs.borrow_mut());
                sinew::sleep(Duration::from_secs(3600))
            });
            wait_until(|| shielded.fiber().wait_reason() == WaitReason::Sleep);
            shielded.cancel();
            for _ in 0..8 {
                yield_now(); // it looks, is shielded, and sleeps on
            }
            assert_eq!(shielded.fiber().wait_reason(), WaitReason::Sleep);
            end(&mut inside.borrow_mut());
            assert_eq!(shielded.join().unwrap(), Err(Cancelled));
            assert!(!sinew::is_cancelled());
        });
    });
}

/// What a future in a coroutine, and who resumes that, tell each other.
#[derive(Default)]
struct Polled {
    times: Cell<u32>,
    ready: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// A coroutine that runs a future, and is suspended in its first `poll`.
fn polls_and_suspends(polled: Rc<Polled>) -> Steps {
    let mut inside = coroutine(move |suspend| {
        sinew::block_on(std::future::poll_fn(|context| {
            *polled.waker.borrow_mut() = Some(context.waker().clone());
            polled.times.set(polled.times.get() + 1);
            if polled.times.get() == 1 {
                suspend.suspend(());
            }
            match polled.ready.get() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        }));
    });
    step(&mut inside);
    inside
}

#[test]
fn a_future_whose_poll_ends_on_another_fiber_wakes_that_one() {
    on_workers(|runtime| {
        runtime.run(|| {
            let polled = Rc::new(Polled::default());
            let theirs = polled.clone();
            on_two_fibers(
                move || polls_and_suspends(theirs),
                move |mut inside| {
                    let waits = sinew::current();
                    let wakes = spawn_local(move || {
                        wait_until(|| waits.wait_reason() == WaitReason::Future);
                        polled.ready.set(true);
                        polled.waker.take().unwrap().wake();
                    });
                    end(&mut inside);
                    wakes.join().unwrap();
                },
            );
        });
    });
}

#[test]
fn a_wake_for_an_outer_block_on_is_given_back_though_another_fiber_leaves_the_inner_one() {
    on_workers(|runtime| {
        runtime.run(|| {
            let (outer, inner) = (Rc::new(Polled::default()), Rc::new(Polled::default()));
            let kept = Rc::new(Cell::new(None));
            let theirs = (outer.clone(), inner.clone(), kept.clone());
            let owner = spawn_local(move || {
                let (outer, inner, kept) = theirs;
                sinew::block_on(std::future::poll_fn(|context| {
                    *outer.waker.borrow_mut() = Some(context.waker().clone());
                    outer.times.set(outer.times.get() + 1);
                    if outer.times.get() == 1 {
                        let inner = inner.clone();
                        // Waits once, and is suspended when it polls again.
                        let mut inside = coroutine(move |suspend| {
                            sinew::block_on(std::future::poll_fn(|_| {
                                inner.times.set(inner.times.get() + 1);
                                if inner.times.get() == 1 {
                                    return Poll::Pending;
                                }
                                suspend.suspend(());
                                Poll::Ready(())
                            }));
                        });
                        step(&mut inside);
                        kept.set(Some(inside));
                        return Poll::Pending;
                    }
                    Poll::Ready(())
                }));
            });
            wait_until(|| owner.fiber().wait_reason() == WaitReason::Future);
            assert_eq!((outer.times.get(), inner.times.get()), (1, 1));
            // The one wake, which the inner wait takes.
            outer.waker.take().unwrap().wake();
            wait_until(|| inner.times.get() == 2);
            wait_until(|| owner.fiber().wait_reason() == WaitReason::Future);
            assert_eq!(outer.times.get(), 1);
            end(&mut kept.take().unwrap());
            owner.join().unwrap();
            assert_eq!(outer.times.get(), 2);
        });
    });
}

#[test]
fn a_fiber_polls_harmlessly_after_another_has_ended_a_poll_of_its() {
    let _watch = watch();
    // No time passes, so nobody is asked to let others run.
    let builder = sinew::Runtime::builder().workers(1).strict_order(true);
    let runtime = builder.quantum(Duration::from_secs(3600)).build();
    runtime.unwrap().run(|| {
        let polled = Rc::new(Polled::default());
        polled.ready.set(true);
        let kept = Rc::new(Cell::new(None));
        let ended = Gate::new();
        let theirs = (polled.clone(), kept.clone(), ended.clone());
        let owner = spawn_local(move || {
            // Two that do not end in the order in which they began.
            let first = polls_and_suspends(theirs.0);
            let second = Rc::new(Polled::default());
            second.ready.set(true);
            theirs.1.set(Some((first, polls_and_suspends(second))));
            theirs.2.pass();
            let (tell, hear) = sinew::channel::unbounded();
            spawn_local(move || tell.send(()));
            while hear.try_recv().is_err() {} // lets the other one run
        });
        wait_until(|| polled.times.get() == 1);
        yield_now();
        let (mut first, mut second) = kept.take().unwrap();
        end(&mut first);
        end(&mut second);
        ended.open();
        owner.join().unwrap();
    });
    let runtime = sinew::Runtime::builder().workers(1).build().unwrap();
    runtime.run(|| {
        let polled = Rc::new(Polled::default());
        polled.ready.set(true);
        // Its fiber has ended.
        on_two_fibers(|| polls_and_suspends(polled), |mut inside| end(&mut inside));
    });
}
