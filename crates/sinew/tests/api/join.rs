//! Waiting for a fiber's result.

use crate::harness::{
    Gate, in_fibers, is_expected, on_workers, panic_expected, runtime, wait_until, watch,
};
use sinew::{JoinHandle, WaitReason};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

#[test]
fn try_join_gives_the_handle_back_until_the_fiber_has_ended() {
    in_fibers(|| {
        let go = Gate::new();
        let gate = go.clone();
        let handle = sinew::spawn(move || {
            gate.pass();
            "value"
        });
        let mut handle = handle.try_join().unwrap_err();
        assert!(!handle.is_finished());
        go.open();
        let value = loop {
            match handle.try_join() {
                Ok(value) => break value,
                Err(back) => handle = back,
            }
            sinew::yield_now();
        };
        assert_eq!(value.unwrap(), "value");
    });
}

#[test]
fn join_timeout_gives_the_handle_back_and_cancels_nothing() {
    in_fibers(|| {
        let handle = sinew::spawn(|| {
            sinew::park();
            sinew::is_cancelled()
        });
        let begun = Instant::now();
        let handle = handle.join_timeout(Duration::from_millis(3)).unwrap_err();
        assert!(begun.elapsed() >= Duration::from_millis(3));
        let handle = handle.join_timeout(Duration::ZERO).unwrap_err();
        handle.fiber().unpark();
        assert!(!handle.join_timeout(Duration::MAX).unwrap().unwrap());
        // What has ended is joined even without time.
        let ended = sinew::spawn(|| 5);
        wait_until(|| ended.is_finished());
        assert_eq!(ended.join_timeout(Duration::ZERO).unwrap().unwrap(), 5);
    });
}

#[test]
fn a_panic_comes_back_as_the_payload_it_was() {
    in_fibers(|| {
        let error = sinew::spawn(|| panic_expected(17))
            .join()
            .map(|()| ())
            .unwrap_err();
        assert!(error.is_panic() && !error.is_cancelled() && !error.is_no_stack());
        assert!(is_expected(&*error.into_panic(), 17));
    });
}

#[test]
fn the_text_of_a_panic_is_in_the_error() {
    let _watch = watch();
    let handle: JoinHandle<()> = runtime(1).spawn(|| {
        std::panic::resume_unwind(Box::new(String::from("seven lambs")));
    });
    let error = handle.join().unwrap_err();
    assert!(error.to_string().contains("seven lambs"), "{error}");
    assert!(format!("{error:?}").contains("seven lambs"), "{error:?}");
}

#[test]
fn asking_a_cancelled_join_error_for_its_panic_panics() {
    let _watch = watch();
    runtime(1).run(|| {
        let unstarted = sinew::spawn(|| ());
        unstarted.cancel();
        let error = unstarted.join().unwrap_err();
        assert!(error.is_cancelled() && !error.is_panic());
        assert!(error.to_string().contains("cancelled"), "{error}");
        let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| error.into_panic()));
        assert!(asked.is_err());
    });
}

#[test]
fn a_handle_is_joined_on_another_thread_than_it_was_made_on() {
    on_workers(|runtime| {
        let handle = runtime.run(|| sinew::spawn(|| String::from("made here")));
        let thread = std::thread::spawn(move || handle.join().unwrap());
        assert_eq!(thread.join().unwrap(), "made here");
        let go = Gate::new();
        let gate = go.clone();
        let handle = runtime.spawn(move || {
            gate.pass();
            1
        });
        let fiber = runtime.spawn(move || handle.join().unwrap() + 1);
        wait_until(|| fiber.fiber().wait_reason() == WaitReason::Join);
        go.open();
        assert_eq!(fiber.join().unwrap(), 2);
    });
}

#[test]
fn any_number_of_fibers_and_threads_wait_for_one() {
    on_workers(|runtime| {
        let target = runtime.spawn(sinew::park);
        let fiber = target.fiber();
        let fibers: Vec<_> = (0..300)
            .map(|_| {
                let fiber = fiber.clone();
                runtime.spawn(move || fiber.wait())
            })
            .collect();
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let fiber = fiber.clone();
                std::thread::spawn(move || fiber.wait())
            })
            .collect();
        for waiter in &fibers {
            wait_until(|| waiter.fiber().wait_reason() == WaitReason::Join);
            assert!(!waiter.is_finished());
        }
        fiber.unpark();
        for waiter in fibers {
            assert_eq!(waiter.join().unwrap(), Ok(()));
        }
        for waiter in threads {
            assert_eq!(waiter.join().unwrap(), Ok(()));
        }
        target.join().unwrap();
        assert_eq!(fiber.wait(), Ok(()));
    });
}

#[test]
fn waiting_for_a_fiber_does_not_take_its_result() {
    in_fibers(|| {
        let handle = sinew::spawn(|| 9);
        handle.fiber().wait().unwrap();
        assert!(handle.is_finished());
        assert_eq!(handle.join().unwrap(), 9);
    });
}

#[test]
fn waiting_for_a_plain_thread_s_stand_in_panics() {
    let _watch = watch();
    let stand_in = std::thread::spawn(sinew::current).join().unwrap();
    let waited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| stand_in.wait()));
    let payload = waited.unwrap_err();
    let text = payload.downcast_ref::<&str>().copied().unwrap_or_default();
    assert!(text.contains("plain thread"), "{text}");
}

#[test]
fn a_chain_of_joins_far_deeper_than_there_are_workers_ends() {
    fn chain(depth: u32) -> u32 {
        if depth == 0 {
            return 0;
        }
        sinew::spawn(move || chain(depth - 1)).join().unwrap() + 1
    }
    in_fibers(|| assert_eq!(chain(2000), 2000));
}

#[test]
fn all_workers_joining_is_no_deadlock() {
    in_fibers(|| {
        let pairs: Vec<_> = (0..64)
            .map(|i| sinew::spawn(move || sinew::spawn(move || i).join().unwrap()))
            .collect();
        let sum: u32 = pairs.into_iter().map(|pair| pair.join().unwrap()).sum();
        assert_eq!(sum, 64 * 63 / 2);
    });
}

#[test]
fn a_fiber_of_one_runtime_joins_one_of_another_and_only_it_waits() {
    on_workers(|ours| {
        let other = runtime(1);
        let go = Gate::new();
        let gate = go.clone();
        let theirs = other.spawn(move || {
            gate.pass();
            11
        });
        let joiner = ours.spawn(move || theirs.join().unwrap());
        wait_until(|| joiner.fiber().wait_reason() == WaitReason::Join);
        // The joiner's worker is free.
        ours.run(|| go.open());
        assert_eq!(joiner.join().unwrap(), 11);
    });
}

#[test]
fn join_is_no_cancellation_point_but_passes_the_request_on() {
    on_workers(|runtime| {
        let (go, begun) = (Gate::new(), Gate::new());
        let (gate, begin) = (go.clone(), begun.clone());
        let joiner = runtime.spawn(move || {
            let child = sinew::Builder::new()
                .spawn_on(&Handles::get(), move || {
                    begin.open();
                    gate.pass();
                    wait_until(sinew::is_cancelled); // it comes, sooner or later
                    5
                })
                .unwrap();
            let value = child.join();
            (value.unwrap(), sinew::is_cancelled())
        });
        let fiber = joiner.fiber();
        wait_until(|| begun.is_open() && fiber.wait_reason() == WaitReason::Join);
        fiber.cancel();
        for _ in 0..100 {
            std::thread::yield_now();
        }
        assert!(!joiner.is_finished());
        go.open();
        assert_eq!(joiner.join().unwrap(), (5, true));
    });
}

/// A runtime beside the one under test, whose fibers nobody cancels.
struct Handles;

impl Handles {
    fn get() -> sinew::Handle {
        static OTHER: std::sync::OnceLock<sinew::Runtime> = std::sync::OnceLock::new();
        OTHER.get_or_init(|| runtime(1)).handle()
    }
}

#[test]
fn waiting_for_a_fiber_is_a_cancellation_point() {
    on_workers(|runtime| {
        let target = runtime.spawn(sinew::park);
        let fiber = target.fiber();
        let waiter = {
            let fiber = fiber.clone();
            runtime.spawn(move || fiber.wait())
        };
        wait_until(|| waiter.fiber().wait_reason() == WaitReason::Join);
        waiter.cancel();
        assert_eq!(waiter.join().unwrap(), Err(sinew::Cancelled));
        // A point answers on entry too, even for what has ended.
        fiber.unpark();
        target.join().unwrap();
        let told = runtime.spawn(move || {
            sinew::current().cancel();
            fiber.wait()
        });
        assert_eq!(told.join().unwrap(), Err(sinew::Cancelled));
    });
}

/// Counts how often it was woken.
#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn poll<T>(handle: &mut JoinHandle<T>, waker: &Waker) -> Poll<Result<T, sinew::JoinError>> {
    Pin::new(handle).poll(&mut Context::from_waker(waker))
}

#[test]
fn a_polled_handle_wakes_the_last_waker_once_when_the_fiber_ends() {
    on_workers(|runtime| {
        let (first, last) = (Arc::new(Counter::default()), Arc::new(Counter::default()));
        let (first_waker, last_waker) = (Waker::from(first.clone()), Waker::from(last.clone()));
        let mut handle = runtime.spawn(|| {
            sinew::park();
            3
        });
        assert!(poll(&mut handle, &first_waker).is_pending());
        assert!(poll(&mut handle, &last_waker).is_pending());
        handle.fiber().unpark();
        handle.fiber().wait().unwrap();
        wait_until(|| last.0.load(Ordering::SeqCst) == 1);
        let Poll::Ready(value) = poll(&mut handle, &last_waker) else {
            panic!("it has ended");
        };
        assert_eq!(value.unwrap(), 3);
        assert_eq!(first.0.load(Ordering::SeqCst), 0);
        // Polled again it panics, dropped it does not.
        let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            poll(&mut handle, &last_waker).is_ready()
        }));
        assert!(again.is_err());
        drop(handle);
        drop((first_waker, last_waker));
        assert_eq!(Arc::strong_count(&first), 1, "a waker leaked");
        assert_eq!(Arc::strong_count(&last), 1, "a waker leaked");
    });
}

#[test]
fn a_handle_that_was_polled_can_be_joined_or_dropped() {
    on_workers(|runtime| {
        let counter = Arc::new(Counter::default());
        let waker = Waker::from(counter.clone());
        let mut joined = runtime.spawn(|| {
            sinew::park();
            1
        });
        assert!(poll(&mut joined, &waker).is_pending());
        joined.fiber().unpark();
        assert_eq!(joined.join().unwrap(), 1);
        // The fiber that ended may have been about to call it: until it has.
        drop(waker);
        wait_until(|| Arc::strong_count(&counter) == 1);

        let woken = counter.0.load(Ordering::SeqCst);
        let waker = Waker::from(counter.clone());
        let mut dropped = runtime.spawn(sinew::park);
        assert!(poll(&mut dropped, &waker).is_pending());
        let fiber = dropped.fiber();
        drop(dropped);
        fiber.unpark();
        fiber.wait().unwrap();
        assert_eq!(
            counter.0.load(Ordering::SeqCst),
            woken,
            "a dropped wait was woken"
        );
        drop(waker);
        assert_eq!(Arc::strong_count(&counter), 1, "a waker leaked");
    });
}

#[test]
fn a_waker_that_panics_keeps_nobody_else_waiting() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic_expected(1);
        }
    }
    on_workers(|runtime| {
        let waker = Waker::from(Arc::new(Panics));
        let mut target = runtime.spawn(|| {
            sinew::park();
            4
        });
        assert!(poll(&mut target, &waker).is_pending());
        let fiber = target.fiber();
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let fiber = fiber.clone();
                runtime.spawn(move || fiber.wait())
            })
            .collect();
        for waiter in &waiters {
            wait_until(|| waiter.fiber().wait_reason() == WaitReason::Join);
        }
        fiber.unpark();
        for waiter in waiters {
            waiter.join().unwrap().unwrap();
        }
        assert_eq!(target.join().unwrap(), 4);
    });
}

#[test]
fn joiners_that_gave_up_are_not_woken_and_the_others_are() {
    in_fibers(|| {
        let target = sinew::spawn(sinew::park);
        let fiber = target.fiber();
        let patient: Vec<_> = (0..50)
            .map(|_| {
                let fiber = fiber.clone();
                sinew::spawn(move || fiber.wait())
            })
            .collect();
        let mut target = target;
        for _ in 0..20 {
            target = target.join_timeout(Duration::from_micros(100)).unwrap_err();
        }
        fiber.unpark();
        for waiter in patient {
            waiter.join().unwrap().unwrap();
        }
        target.join().unwrap();
    });
}
