//! Tokens, time, wakers and blocking, from every kind of caller.

use crate::harness::{Gate, wait_until};
use crate::{CALLERS, Kind, for_each};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

#[test]
fn an_unpark_before_the_park_is_kept_once() {
    for_each(&CALLERS, |runtime, kind| {
        let waiting = kind.start(runtime, || {
            let me = sinew::current();
            me.unpark();
            me.unpark();
            sinew::park();
            let begun = Instant::now();
            sinew::park_timeout(Duration::from_millis(2));
            begun.elapsed()
        });
        assert!(
            waiting.get() >= Duration::from_millis(2),
            "{kind:?}: tokens added up"
        );
    });
}

#[test]
fn every_kind_is_unparked_by_every_kind() {
    for_each(&CALLERS, |runtime, kind| {
        for waker in CALLERS {
            let (send, receive) = mpsc::channel();
            let waiting = kind.start(runtime, move || {
                send.send(sinew::current()).unwrap();
                for _ in 0..10 {
                    sinew::park();
                    send.send(sinew::current()).unwrap();
                }
            });
            for _ in 0..10 {
                let fiber = receive.recv().unwrap();
                waker.start(runtime, move || fiber.unpark()).get();
            }
            receive.recv().unwrap();
            waiting.get();
        }
    });
}

#[test]
fn a_token_left_during_a_join_or_sleep_is_there_for_the_next_park() {
    for_each(&CALLERS, |runtime, kind| {
        let (send, receive) = mpsc::channel();
        let child = runtime.spawn(sinew::park);
        let fiber = child.fiber();
        let waiting = kind.start(runtime, move || {
            send.send(sinew::current()).unwrap();
            child.join().unwrap();
            sinew::park();
            sinew::current().unpark();
            sinew::sleep(Duration::from_millis(1)).unwrap();
            sinew::park();
        });
        receive.recv().unwrap().unpark();
        fiber.unpark();
        waiting.get();
    });
}

#[test]
fn no_sleep_and_no_timeout_ends_early() {
    for_each(&CALLERS, |runtime, kind| {
        let waiting = kind.start(runtime, || {
            for micros in [0, 10, 500, 3000] {
                let time = Duration::from_micros(micros);
                let begun = Instant::now();
                sinew::sleep(time).unwrap();
                assert!(begun.elapsed() >= time);
                let until = sinew::time::Instant::now() + time;
                sinew::sleep_until(until).unwrap();
                assert!(sinew::time::Instant::now() >= until);
                let begun = Instant::now();
                sinew::park_timeout(time);
                assert!(begun.elapsed() >= time);
            }
            let mut ticks = sinew::interval(Duration::from_millis(1));
            for _ in 0..3 {
                let due = ticks.tick().unwrap();
                assert!(sinew::time::Instant::now() >= due);
            }
        });
        waiting.get();
    });
}

#[test]
fn block_on_is_woken_early_late_often_and_from_elsewhere() {
    for_each(&CALLERS, |runtime, kind| {
        let slot: Arc<Mutex<(u32, Option<Waker>)>> = Arc::default();
        let theirs = slot.clone();
        let waiting = kind.start(runtime, move || {
            sinew::block_on(std::future::poll_fn(|context| {
                context.waker().wake_by_ref(); // early, and one too many
                let mut slot = theirs.lock().unwrap();
                slot.1 = Some(context.waker().clone());
                if slot.0 == 10 {
                    return Poll::Ready(slot.1.clone().unwrap());
                }
                Poll::Pending
            }))
        });
        for step in 1..=10 {
            wait_until(|| slot.lock().unwrap().1.is_some());
            let waker = {
                let mut slot = slot.lock().unwrap();
                slot.0 = step;
                slot.1.take()
            };
            for _ in 0..3 {
                waker.as_ref().unwrap().wake_by_ref();
            }
        }
        let late = waiting.get();
        late.wake_by_ref();
        late.wake();
    });
}

#[test]
fn a_closure_is_run_where_blocking_is_allowed() {
    for_each(&CALLERS, |runtime, kind| {
        let waiting = kind.start(runtime, || {
            let here = std::thread::current().id();
            let mut seen = None;
            sinew::blocking(|| seen = Some(std::thread::current().id()));
            seen.unwrap() == here
        });
        let on_fiber = matches!(kind, Kind::Fiber | Kind::ForeignFiber);
        assert_eq!(waiting.get(), !on_fiber, "{kind:?}");
    });
}

#[test]
fn a_runtime_is_run_and_ended_from_every_kind() {
    for_each(&CALLERS, |outer, kind| {
        let handle = outer.handle();
        let waiting = kind.start(outer, move || {
            let inner = sinew::Runtime::builder().workers(1).build().unwrap();
            let ended = Gate::new();
            let theirs = ended.clone();
            drop(inner.spawn(move || {
                sinew::sleep(Duration::from_millis(1)).unwrap();
                theirs.open();
            }));
            let value = inner.run(|| sinew::spawn(|| 3).join().unwrap());
            drop(inner);
            assert!(ended.is_open());
            value + handle.spawn(|| 1).join().unwrap()
        });
        assert_eq!(waiting.get(), 4, "{kind:?}");
    });
}
