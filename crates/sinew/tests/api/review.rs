//! Bugs that a review found: each with the program that showed it.

use crate::harness::{runtime, watch};
use sinew::{Priority, Runtime};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use std::time::Duration;

/// Whether `wait` panicked with the text of `no_suspend`.
fn refused(wait: impl FnOnce()) -> bool {
    let payload = catch_unwind(AssertUnwindSafe(|| sinew::no_suspend(wait))).unwrap_err();
    let text = payload.downcast_ref::<&str>().copied().map(String::from);
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    text.is_some_and(|text| text.contains("no_suspend"))
}

#[test]
fn a_refused_wait_leaves_nothing_behind_that_others_could_touch() {
    let _watch = watch();
    for workers in [1, 2] {
        runtime(workers).run(|| {
            let ran = AtomicBool::new(false);
            let (sleeping, joined) = (sinew::spawn(sinew::park), sinew::spawn(sinew::park));
            let (fiber, detached) = (sleeping.fiber(), joined.fiber());
            let mut joined = Some(joined);
            let inner = Runtime::builder().workers(1).build().unwrap();
            assert!(refused(|| sinew::blocking(
                || ran.store(true, Ordering::Relaxed)
            )));
            assert!(refused(|| fiber.wait().unwrap()));
            assert!(refused(|| joined.take().unwrap().join().unwrap()));
            assert!(refused(|| sinew::sleep(Duration::from_secs(3600)).unwrap()));
            assert!(refused(|| sinew::park_timeout(Duration::from_secs(3600))));
            assert!(refused(|| inner.run(|| ran.store(true, Ordering::Relaxed))));
            assert!(refused(|| sinew::block_on(std::future::pending::<()>())));
            assert!(refused(sinew::yield_now));
            // Whatever was left behind would be touched by these.
            fiber.unpark();
            sleeping.join().unwrap();
            detached.unpark();
            detached.wait().unwrap();
            for _ in 0..100 {
                sinew::spawn(|| ()).join().unwrap();
                sinew::sleep(Duration::from_micros(10)).unwrap();
            }
            drop(inner);
            assert!(!ran.load(Ordering::Relaxed), "a refused closure ran");
        });
    }
}

#[test]
fn an_unpark_from_outside_may_race_with_the_end_of_the_runtime() {
    let _watch = watch();
    for round in 0..300 {
        let rt = runtime(1 + round % 2);
        let parked = rt.spawn(|| sinew::park_timeout(Duration::from_micros(50)));
        let fiber = parked.fiber();
        let friend = std::thread::spawn(move || fiber.unpark());
        parked.join().unwrap();
        drop(rt);
        friend.join().unwrap();
    }
}

#[test]
fn a_priority_may_be_lent_to_a_fiber_of_a_runtime_that_ends() {
    let _watch = watch();
    let ours = runtime(1);
    for _ in 0..200 {
        let theirs = runtime(1);
        let target = theirs.spawn(sinew::yield_now).fiber();
        let builder = sinew::Builder::new().priority(Priority::Critical);
        let waiter = builder
            .spawn_on(&ours.handle(), move || target.wait())
            .unwrap();
        drop(theirs);
        waiter.join().unwrap().unwrap();
    }
}

/// A waker whose clone yields: user code that must not run under a lock.
fn yielding_waker() -> Waker {
    fn clone(_: *const ()) -> RawWaker {
        for _ in 0..3 {
            sinew::yield_now();
        }
        RawWaker::new(std::ptr::null(), &TABLE)
    }
    static TABLE: RawWakerVTable = RawWakerVTable::new(clone, |_| (), |_| (), |_| ());
    // SAFETY: the functions do nothing with the pointer.
    unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &TABLE)) }
}

#[test]
fn a_waker_that_yields_when_cloned_blocks_nobody() {
    let _watch = watch();
    for workers in [1, 2] {
        runtime(workers).run(|| {
            let mut handle = sinew::spawn(|| {
                for _ in 0..4 {
                    sinew::yield_now();
                }
                7
            });
            let poll = |handle: &mut sinew::JoinHandle<i32>, waker: &Waker| {
                Pin::new(handle).poll(&mut Context::from_waker(waker))
            };
            let first = poll(&mut handle, Waker::noop());
            if first.is_pending() && poll(&mut handle, &yielding_waker()).is_pending() {
                assert_eq!(handle.join().unwrap(), 7);
            }
        });
    }
}

#[test]
fn a_name_with_a_nul_byte_is_refused_by_build() {
    let error = Runtime::builder().name("a\0b").build().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}

#[test]
fn whoever_joins_a_fiber_that_was_still_queued_at_the_end_is_told() {
    let _watch = watch();
    for workers in [1, 2] {
        let rt = runtime(workers);
        let release = Arc::new(AtomicBool::new(false));
        let busy = Arc::new(AtomicUsize::new(0));
        let hogs: Vec<_> = (0..workers)
            .map(|_| {
                let (release, busy) = (release.clone(), busy.clone());
                rt.spawn(move || {
                    busy.fetch_add(1, Ordering::Relaxed);
                    while !release.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                })
            })
            .collect();
        while busy.load(Ordering::Relaxed) < workers {
            std::thread::yield_now();
        }
        let queued: Vec<_> = (0..100).map(|_| rt.spawn(|| ())).collect();
        let error = rt.shutdown_timeout(Duration::ZERO).unwrap_err();
        assert!(error.leaked().len() >= workers, "{error}");
        release.store(true, Ordering::Relaxed);
        for hog in hogs {
            hog.join().unwrap();
        }
        for fiber in queued {
            assert!(!fiber.join().unwrap_err().is_panic());
        }
    }
}

#[test]
fn a_poll_after_the_end_is_ready_whichever_waker_it_brings() {
    let _watch = watch();
    runtime(2).run(|| {
        let mut handle = sinew::spawn(|| 1);
        let fiber = handle.fiber();
        let mut context = Context::from_waker(Waker::noop());
        let first = Pin::new(&mut handle).poll(&mut context);
        if first.is_pending() {
            fiber.wait().unwrap();
            let second = Pin::new(&mut handle).poll(&mut context);
            assert!(matches!(second, Poll::Ready(Ok(1))));
        }
    });
}

#[test]
fn lower_levels_have_their_turn_also_among_started_and_unstarted_ones() {
    let _watch = watch();
    let rt = runtime(2);
    let stop = Arc::new(AtomicBool::new(false));
    let victims: Vec<_> = (0..4).map(|_| Arc::new(AtomicUsize::new(0))).collect();
    let urgent: Vec<_> = victims
        .iter()
        .map(|victim| {
            let (stop, victim) = (stop.clone(), victim.clone());
            let builder = sinew::Builder::new().priority(Priority::High);
            let body = move || {
                let theirs = stop.clone();
                let started = sinew::spawn_local(move || {
                    while !theirs.load(Ordering::Relaxed) {
                        victim.fetch_add(1, Ordering::Relaxed);
                        sinew::yield_now();
                    }
                });
                let mut turns = 0;
                while !stop.load(Ordering::Relaxed) {
                    turns += 1;
                    if turns % 20 == 0 {
                        drop(sinew::spawn(|| ()));
                    }
                    sinew::yield_now();
                }
                started.join().unwrap();
            };
            builder.spawn_on(&rt.handle(), body).unwrap()
        })
        .collect();
    // Each goes on: if one starved the watch would end the test.
    for victim in &victims {
        let seen = victim.load(Ordering::Relaxed);
        while victim.load(Ordering::Relaxed) < seen + 50 {
            std::thread::yield_now();
        }
    }
    stop.store(true, Ordering::Relaxed);
    for fiber in urgent {
        fiber.join().unwrap();
    }
}

#[test]
fn a_daemon_that_never_switches_does_not_keep_a_runtime_from_noticing_its_end() {
    let _watch = watch();
    for workers in [1, 2] {
        let rt = runtime(workers);
        let release = Arc::new(AtomicBool::new(false));
        for _ in 0..workers {
            let release = release.clone();
            let hog = move || {
                while !release.load(Ordering::Relaxed) && !sinew::is_cancelled() {
                    std::hint::spin_loop();
                }
            };
            let daemon = sinew::Builder::new().daemon(true);
            drop(daemon.spawn_on(&rt.handle(), hog).unwrap());
        }
        drop(rt);
    }
}

#[test]
fn fibers_are_not_left_to_a_worker_that_does_not_get_to_them() {
    let _watch = watch();
    let rt = runtime(2);
    let (release, ran) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let theirs = release.clone();
    let hog = rt.spawn(move || {
        while !theirs.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    });
    rt.run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let busy: Vec<_> = (0..100)
            .map(|_| {
                let stop = stop.clone();
                sinew::spawn_local(move || {
                    while !stop.load(Ordering::Relaxed) {
                        sinew::yield_now();
                    }
                })
            })
            .collect();
        for _ in 0..300 {
            let ran = ran.clone();
            drop(sinew::spawn(move || ran.fetch_add(1, Ordering::Relaxed)));
            sinew::yield_now();
        }
        while ran.load(Ordering::Relaxed) < 300 {
            sinew::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        for fiber in busy {
            fiber.join().unwrap();
        }
    });
    release.store(true, Ordering::Relaxed);
    hog.join().unwrap();
}

#[test]
fn a_hog_callback_may_spawn_until_the_end() {
    let _watch = watch();
    for _ in 0..5 {
        let spawned = Arc::new(std::sync::Mutex::new(Vec::new()));
        let log = spawned.clone();
        // On a busy machine what it spawns is late enough to be reported, too:
        // without a limit it would never end.
        let left = std::sync::atomic::AtomicU32::new(5);
        let rt = Runtime::builder()
            .workers(1)
            .report_hogs_after(Duration::from_millis(1))
            .on_hog(move |_| {
                let update = |left: u32| left.checked_sub(1);
                if left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, update)
                    .is_err()
                {
                    return;
                }
                for _ in 0..1000 {
                    if let Ok(fiber) = sinew::Builder::new().spawn(|| ()) {
                        log.lock().unwrap().push(fiber);
                    }
                }
            })
            .build()
            .unwrap();
        let (seen, log) = (Arc::new(AtomicBool::new(false)), spawned.clone());
        let theirs = seen.clone();
        rt.spawn(move || {
            while log.lock().unwrap().is_empty() {
                std::hint::spin_loop();
            }
            theirs.store(true, Ordering::Relaxed);
        });
        while !seen.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        drop(rt);
        // Whatever was accepted has an end.
        for fiber in std::mem::take(&mut *spawned.lock().unwrap()) {
            let _ = fiber.join();
        }
    }
}
