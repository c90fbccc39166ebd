//! Running futures on fibers and threads.

use crate::harness::{
    Gate, in_fibers, is_expected, on_workers, panic_expected, runtime, wait_until, watch,
};
use sinew::{WaitReason, block_on};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// A future that others complete.
#[derive(Clone, Default)]
struct Signal(Arc<Mutex<(bool, Option<Waker>)>>);

impl Signal {
    fn set(&self) {
        let waker = {
            let mut inner = self.0.lock().unwrap();
            inner.0 = true;
            inner.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn is_awaited(&self) -> bool {
        self.0.lock().unwrap().1.is_some()
    }
}

impl Future for Signal {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut inner = self.0.lock().unwrap();
        if inner.0 {
            return Poll::Ready(());
        }
        inner.1 = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Calls `test` on a thread, and in fibers.
fn everywhere(test: impl Fn() + Sync) {
    let _watch = watch();
    test();
    in_fibers(test);
}

#[test]
fn a_ready_future_is_polled_once() {
    everywhere(|| {
        let mut polls = 0;
        let value = block_on(poll_fn(|_| {
            polls += 1;
            Poll::Ready(3)
        }));
        assert_eq!((value, polls), (3, 1));
    });
}

#[test]
fn a_waker_woken_during_the_poll_has_it_polled_again() {
    everywhere(|| {
        let mut polls = 0;
        block_on(poll_fn(|context| {
            polls += 1;
            if polls == 100 {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            context.waker().clone().wake();
            Poll::Pending
        }));
        assert_eq!(polls, 100);
    });
}

#[test]
fn a_waker_may_be_woken_from_another_thread_and_another_fiber() {
    everywhere(|| {
        let signal = Signal::default();
        let theirs = signal.clone();
        let thread = std::thread::spawn(move || {
            wait_until(|| theirs.is_awaited());
            theirs.set();
        });
        block_on(signal);
        thread.join().unwrap();
        let signal = Signal::default();
        let theirs = signal.clone();
        let fiber = sinew::spawn(move || {
            wait_until(|| theirs.is_awaited());
            theirs.set();
        });
        block_on(signal);
        fiber.join().unwrap();
    });
}

#[test]
fn only_the_fiber_waits_in_block_on() {
    let _watch = watch();
    runtime(1).run(|| {
        let signal = Signal::default();
        let theirs = signal.clone();
        let waiter = sinew::spawn(move || block_on(theirs));
        wait_until(|| waiter.fiber().wait_reason() == WaitReason::Future);
        signal.set();
        waiter.join().unwrap();
    });
}

#[test]
fn wakers_may_be_kept_and_woken_after_the_end() {
    everywhere(|| {
        let kept: Arc<Mutex<Vec<Waker>>> = Arc::default();
        let theirs = kept.clone();
        let fiber = sinew::spawn(move || {
            let mut polls = 0;
            block_on(poll_fn(|context| {
                polls += 1;
                theirs.lock().unwrap().push(context.waker().clone());
                context.waker().wake_by_ref();
                if polls == 10 {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            }));
        });
        fiber.join().unwrap();
        let wakers = std::mem::take(&mut *kept.lock().unwrap());
        assert_eq!(wakers.len(), 10);
        for waker in &wakers {
            waker.wake_by_ref();
            assert!(waker.will_wake(&waker.clone()));
        }
        for waker in wakers {
            waker.wake();
        }
        // They belong to a fiber that has ended: nobody else is woken wrongly.
        let next = sinew::spawn(|| {
            let mut polls = 0;
            block_on(poll_fn(|context| {
                polls += 1;
                if polls == 1 {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Ready(polls)
            }))
        });
        assert_eq!(next.join().unwrap(), 2);
    });
}

#[test]
fn many_wakes_from_many_threads_lose_none() {
    on_workers(|runtime| {
        let count = Arc::new(AtomicUsize::new(0));
        let wakers: Arc<Mutex<Option<Waker>>> = Arc::default();
        let total = 4 * 500;
        let (theirs, slot) = (count.clone(), wakers.clone());
        let waiter = runtime.spawn(move || {
            block_on(poll_fn(|context| {
                *slot.lock().unwrap() = Some(context.waker().clone());
                // After the waker was left: a wake from now on is seen.
                if theirs.load(Ordering::SeqCst) == total {
                    return Poll::Ready(());
                }
                Poll::Pending
            }));
        });
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (count, wakers) = (count.clone(), wakers.clone());
                std::thread::spawn(move || {
                    for _ in 0..500 {
                        count.fetch_add(1, Ordering::SeqCst);
                        let waker = wakers.lock().unwrap().clone();
                        if let Some(waker) = waker {
                            waker.wake();
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        waiter.join().unwrap();
    });
}

#[test]
fn a_wake_for_an_outer_block_on_that_an_inner_one_took_is_passed_on() {
    everywhere(|| {
        let outer = Signal::default();
        let mut first = true;
        let mut awaited = pin!(outer.clone());
        block_on(poll_fn(|context| {
            if awaited.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
            if first {
                first = false;
                // While this poll runs an inner `block_on` waits, and the wake
                // for the outer future arrives.
                let inner = Signal::default();
                let (theirs, ours) = (inner.clone(), outer.clone());
                let helper = std::thread::spawn(move || {
                    wait_until(|| theirs.is_awaited());
                    ours.set();
                    theirs.set();
                });
                block_on(inner);
                helper.join().unwrap();
            }
            Poll::Pending
        }));
    });
}

#[test]
fn block_on_nests_three_deep() {
    everywhere(|| {
        let sum = block_on(async {
            let one = block_on(async {
                let two = block_on(async { sinew::spawn(|| 2).await.unwrap() });
                two + sinew::spawn(|| 1).await.unwrap()
            });
            one + sinew::spawn(|| 10).await.unwrap()
        });
        assert_eq!(sum, 13);
    });
}

#[test]
fn an_unpark_is_not_taken_for_a_wake_nor_a_wake_for_an_unpark() {
    in_fibers(|| {
        let polls = Arc::new(AtomicUsize::new(0));
        let theirs = polls.clone();
        let signal = Signal::default();
        let mut awaited = signal.clone();
        let waiter = sinew::spawn(move || {
            block_on(poll_fn(|context| {
                theirs.fetch_add(1, Ordering::SeqCst);
                Pin::new(&mut awaited).poll(context)
            }));
            sinew::park(); // takes the token left during `block_on`
        });
        let fiber = waiter.fiber();
        wait_until(|| fiber.wait_reason() == WaitReason::Future);
        fiber.unpark();
        for _ in 0..50 {
            sinew::yield_now();
        }
        assert_eq!(polls.load(Ordering::SeqCst), 1);
        signal.set();
        waiter.join().unwrap();
        // The other way round: a park sleeps through wakes.
        let slot: Arc<Mutex<Option<Waker>>> = Arc::default();
        let theirs = slot.clone();
        let parked = sinew::spawn(move || {
            block_on(poll_fn(|context| {
                *theirs.lock().unwrap() = Some(context.waker().clone());
                Poll::Ready(())
            }));
            sinew::park();
        });
        wait_until(|| parked.fiber().wait_reason() == WaitReason::Park);
        slot.lock().unwrap().as_ref().unwrap().wake_by_ref();
        for _ in 0..50 {
            sinew::yield_now();
        }
        assert!(!parked.is_finished());
        parked.fiber().unpark();
        parked.join().unwrap();
    });
}

#[test]
fn a_panic_in_a_poll_comes_out_and_drops_the_future() {
    everywhere(|| {
        let dropped = Gate::new();
        let theirs = dropped.clone();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let spy = crate::harness::OnDrop(|| theirs.open());
            block_on(async move {
                let _spy = &spy;
                sinew::spawn(|| ()).await.unwrap();
                panic_expected(2);
            });
        }));
        assert!(is_expected(&*caught.unwrap_err(), 2));
        assert!(dropped.is_open());
        assert_eq!(block_on(async { 1 }), 1);
    });
}

#[test]
fn an_await_sees_panics_and_cancellations() {
    everywhere(|| {
        block_on(async {
            let error = sinew::spawn(|| panic_expected(3))
                .await
                .map(|()| ())
                .unwrap_err();
            assert!(is_expected(&*error.into_panic(), 3));
        });
    });
    runtime(1).run(|| {
        let unstarted = sinew::spawn(|| ());
        unstarted.cancel();
        assert!(block_on(unstarted).unwrap_err().is_cancelled());
    });
}

#[test]
fn what_a_future_borrows_is_there_while_it_runs() {
    everywhere(|| {
        let mut seen = Vec::new();
        block_on(async {
            for i in 0..3 {
                seen.push(sinew::spawn(move || i).await.unwrap());
            }
        });
        assert_eq!(seen, [0, 1, 2]);
    });
}

#[test]
fn a_future_that_wakes_itself_lets_others_run() {
    let _watch = watch();
    runtime(1).run(|| {
        let done = Arc::new(AtomicUsize::new(0));
        let other = sinew::spawn({
            let done = done.clone();
            move || done.store(1, Ordering::Relaxed)
        });
        block_on(poll_fn(|context| {
            if done.load(Ordering::Relaxed) == 1 {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        }));
        other.join().unwrap();
    });
}
