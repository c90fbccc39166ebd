//! How runtimes end.

use crate::harness::{DropSpy, Gate, Log, OnDrop, runtime, wait_until, watch};
use sinew::{Builder, Cancelled, Runtime, WaitReason};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
/// Longer than any test may take: what ends, ends well before.
const LONG: Duration = Duration::from_secs(100);

fn for_workers(test: impl Fn(Runtime)) {
    let _watch = watch();
    for workers in [1, 2] {
        test(runtime(workers));
    }
}

#[test]
fn dropping_a_runtime_waits_for_all_fibers_and_what_they_spawn() {
    for_workers(|runtime| {
        let ended = Arc::new(AtomicUsize::new(0));
        for _ in 0..10 {
            let ended = ended.clone();
            drop(runtime.spawn(move || {
                sinew::sleep(Duration::from_millis(3)).unwrap();
                for _ in 0..3 {
                    let ended = ended.clone();
                    drop(sinew::spawn(move || {
                        sinew::yield_now();
                        ended.fetch_add(1, Ordering::SeqCst);
                    }));
                }
            }));
        }
        drop(runtime);
        assert_eq!(ended.load(Ordering::SeqCst), 30);
    });
}

#[test]
fn the_end_of_the_free_run_waits_for_fibers_too() {
    let _watch = watch();
    let ended = Gate::new();
    let theirs = ended.clone();
    sinew::run(move || {
        drop(sinew::spawn(move || {
            sinew::sleep(Duration::from_millis(5)).unwrap();
            theirs.open();
        }));
    });
    assert!(ended.is_open());
}

#[test]
fn dropping_a_runtime_cancels_its_daemons() {
    for_workers(|runtime| {
        let told = Log::new();
        let log = told.clone();
        let daemon = Builder::new().daemon(true);
        let sleeper = daemon.clone().spawn_on(&runtime.handle(), move || {
            log.push(sinew::sleep(HOUR));
        });
        let sleeper = sleeper.unwrap();
        wait_until(|| sleeper.fiber().wait_reason() == WaitReason::Sleep);
        let parked = daemon.spawn_on(&runtime.handle(), sinew::park).unwrap();
        drop(runtime);
        assert_eq!(told.take(), [Err(Cancelled)]);
        assert!(sleeper.is_finished() && parked.is_finished());
    });
}

#[test]
fn daemons_go_on_until_the_last_other_fiber_has_ended() {
    for_workers(|runtime| {
        let (asked, answered) = (Gate::new(), Gate::new());
        let theirs = (asked.clone(), answered.clone());
        let daemon = Builder::new()
            .daemon(true)
            .spawn_on(&runtime.handle(), move || {
                theirs.0.pass();
                assert!(!sinew::is_cancelled());
                theirs.1.open();
            });
        drop(daemon.unwrap());
        drop(runtime.spawn(move || {
            sinew::sleep(Duration::from_millis(3)).unwrap();
            asked.open();
            answered.pass();
        }));
        drop(runtime); // hangs if the daemon was cancelled too early
    });
}

#[test]
fn a_runtime_dropped_on_its_own_fiber_ends_after_it() {
    for_workers(|runtime| {
        let (go, ended) = (Gate::new(), Gate::new());
        let theirs = (go.clone(), ended.clone());
        let handle = runtime.handle();
        let fiber = handle.spawn(move || {
            drop(runtime); // only starts the end
            theirs.0.pass();
            assert_eq!(sinew::spawn(|| 3).join().unwrap(), 3);
            theirs.1.open();
        });
        go.open();
        fiber.join().unwrap();
        assert!(ended.is_open());
        wait_until_closed(&handle);
    });
}

#[test]
fn a_runtime_dropped_on_its_own_pool_thread_ends_after_it() {
    for_workers(|runtime| {
        let handle = runtime.handle();
        let shared = Arc::new(std::sync::Mutex::new(Some(runtime)));
        let job = handle.spawn(move || {
            sinew::blocking(|| drop(shared.lock().unwrap().take()));
            4
        });
        assert_eq!(job.join().unwrap(), 4);
        wait_until_closed(&handle);
    });
}

/// Spawns until the runtime refuses.
fn wait_until_closed(handle: &sinew::Handle) {
    wait_until(|| match Builder::new().spawn_on(handle, || ()) {
        Ok(fiber) => {
            drop(fiber);
            false
        }
        Err(_) => true,
    });
}

#[test]
fn a_shutdown_ends_sleeping_parked_and_yielding_fibers() {
    for_workers(|runtime| {
        let asleep = runtime.spawn(|| sinew::sleep(HOUR));
        let parked = runtime.spawn(sinew::park);
        let yields = runtime.spawn(|| while sinew::checkpoint().is_ok() {});
        let ticking = runtime.spawn(|| sinew::interval(Duration::from_millis(1)).count());
        let target = parked.fiber();
        let waits = runtime.spawn(move || target.wait());
        wait_until(|| asleep.fiber().wait_reason() == WaitReason::Sleep);
        wait_until(|| parked.fiber().wait_reason() == WaitReason::Park);
        wait_until(|| waits.fiber().wait_reason() == WaitReason::Join);
        wait_until(|| ticking.fiber().waits_at().is_some());
        runtime.shutdown_timeout(LONG).unwrap();
        assert_eq!(asleep.join().unwrap(), Err(Cancelled));
        parked.join().unwrap();
        assert!(ticking.join().unwrap() >= 1);
        assert!(yields.is_finished() && waits.is_finished());
    });
}

#[test]
fn a_shutdown_drops_the_closures_of_fibers_that_never_started() {
    let _watch = watch();
    let runtime = runtime(1);
    let (busy, told) = (Gate::new(), Gate::new());
    let theirs = (busy.clone(), told.clone());
    let hog = runtime.spawn(move || {
        theirs.0.open();
        while !sinew::is_cancelled() {
            std::thread::yield_now();
        }
        theirs.1.open();
    });
    busy.spin();
    let (log, ran) = (Log::new(), Arc::new(AtomicUsize::new(0)));
    let unstarted: Vec<_> = (0..100)
        .map(|_| {
            let (spy, ran) = (DropSpy(log.clone()), ran.clone());
            runtime.spawn(move || {
                let _captured = &spy;
                ran.fetch_add(1, Ordering::SeqCst);
            })
        })
        .collect();
    // All were spawned, none has started, when the shutdown cancels them.
    let ending = std::thread::spawn(move || runtime.shutdown_timeout(LONG));
    // The hog sees the request without suspending, then lets the others go.
    wait_until(|| told.is_open());
    ending.join().unwrap().unwrap();
    hog.join().unwrap();
    let ids: Vec<_> = unstarted.iter().map(|fiber| fiber.fiber().id()).collect();
    let mut dropped_on = log.take();
    dropped_on.sort_unstable();
    assert_eq!(dropped_on.len(), 100);
    let cancelled = unstarted
        .into_iter()
        .map(|fiber| fiber.join())
        .filter(|result| matches!(result, Err(error) if error.is_cancelled()))
        .count();
    assert_eq!(cancelled + ran.load(Ordering::SeqCst), 100);
    let mut ids = ids;
    ids.sort_unstable();
    assert_eq!(dropped_on, ids);
}

#[test]
fn what_cannot_end_is_reported_by_name_and_leaked_and_later_wakes_do_nothing() {
    for_workers(|runtime| {
        let stuck = Builder::new()
            .name("stubborn")
            .spawn_on(&runtime.handle(), || -> () {
                loop {
                    sinew::park();
                }
            })
            .unwrap();
        let ended = runtime.spawn(|| 1);
        ended.fiber().wait().unwrap();
        let dropped = Gate::new();
        let theirs = dropped.clone();
        let holder = runtime.spawn(move || {
            let _local = OnDrop(move || theirs.open());
            sinew::sleep(HOUR)
        });
        wait_until(|| holder.fiber().wait_reason() == WaitReason::Sleep);
        let fiber = stuck.fiber();
        wait_until(|| fiber.wait_reason() == WaitReason::Park);
        let error = runtime
            .shutdown_timeout(Duration::from_millis(50))
            .unwrap_err();
        let leaked = error.leaked();
        assert_eq!(leaked.len(), 1, "{error}");
        assert_eq!(leaked[0].name.as_deref(), Some("stubborn"));
        assert_eq!(leaked[0].id, fiber.id());
        assert_eq!(leaked[0].waits_for, WaitReason::Park);
        assert!(leaked[0].waits_at.unwrap().file().ends_with("shutdown.rs"));
        let text = error.to_string();
        assert!(
            text.contains("'stubborn'") && text.contains("Park"),
            "{text}"
        );
        // Everybody else has ended, with their locals dropped.
        assert!(dropped.is_open());
        assert_eq!(holder.join().unwrap(), Err(Cancelled));
        assert_eq!(ended.join().unwrap(), 1);
        for _ in 0..10 {
            fiber.unpark();
            fiber.cancel();
        }
        assert!(!fiber.is_finished());
        let stuck = stuck.join_timeout(Duration::from_millis(1)).unwrap_err();
        drop(stuck);
    });
}

#[test]
fn a_running_fiber_that_cannot_end_and_those_behind_it_are_reported() {
    let _watch = watch();
    let runtime = runtime(1);
    let release = Gate::new();
    let (busy, gate, passed) = (Gate::new(), release.clone(), Gate::new());
    let theirs = (busy.clone(), passed.clone());
    let hog = Builder::new()
        .name("spins")
        .spawn_on(&runtime.handle(), move || {
            theirs.0.open();
            gate.spin();
            theirs.1.open();
        });
    busy.spin();
    let ran = Gate::new();
    let theirs = ran.clone();
    let behind = Builder::new()
        .name("behind")
        .spawn_on(&runtime.handle(), move || theirs.open());
    let error = runtime
        .shutdown_timeout(Duration::from_millis(30))
        .unwrap_err();
    let mut names: Vec<_> = error
        .leaked()
        .iter()
        .map(|fiber| fiber.name.clone())
        .collect();
    names.sort();
    assert_eq!(names, [Some("behind".into()), Some("spins".into())]);
    // Its thread was not cut off: it goes on, and harms nobody.
    release.open();
    passed.spin();
    hog.unwrap().join().unwrap();
    // The one behind it never runs; whoever waits for it may be told so.
    let told = behind.unwrap().join_timeout(Duration::from_millis(100));
    assert!(!matches!(told, Ok(Ok(()))) && !ran.is_open());
}

#[test]
fn a_fiber_stuck_in_the_drop_of_its_result_is_told_and_reported_like_any_other() {
    for_workers(|runtime| {
        let (dropping, told) = (Gate::new(), Log::new());
        let (theirs, log) = (dropping.clone(), told.clone());
        let detached = runtime.spawn(move || {
            sinew::park();
            OnDrop(move || {
                theirs.open();
                log.push(sinew::sleep(HOUR));
            })
        });
        let fiber = detached.fiber();
        drop(detached);
        fiber.unpark();
        dropping.pass();
        wait_until(|| fiber.wait_reason() == WaitReason::Sleep);
        let result = runtime.shutdown_timeout(Duration::from_millis(300));
        if let Err(error) = result {
            let named = error.leaked().iter().any(|leaked| leaked.id == fiber.id());
            assert!(named, "neither told to stop nor reported: {error}");
            panic!("it was not told to stop: {error}");
        }
        assert_eq!(told.take(), [Err(Cancelled)]);
    });
}

#[test]
fn a_blocking_job_that_does_not_end_is_reported() {
    for_workers(|runtime| {
        let (begun, release) = (Gate::new(), Gate::new());
        let theirs = (begun.clone(), release.clone());
        let job = runtime.run(move || {
            sinew::spawn_blocking(move || {
                theirs.0.open();
                theirs.1.spin();
            })
        });
        begun.spin();
        let error = runtime
            .shutdown_timeout(Duration::from_millis(20))
            .unwrap_err();
        assert_eq!(error.leaked().len(), 1, "{error}");
        assert_eq!(error.leaked()[0].id, job.fiber().id());
        release.open();
        job.join().unwrap();
    });
}

#[test]
fn spawning_on_a_runtime_that_has_ended_is_a_clear_error() {
    let _watch = watch();
    for workers in [1, 2] {
        let runtime = Runtime::builder()
            .workers(workers)
            .name("gone")
            .build()
            .unwrap();
        let handle = runtime.handle();
        drop(runtime);
        let error = Builder::new().spawn_on(&handle, || ()).unwrap_err();
        assert!(
            error.to_string().contains("'gone' has shut down"),
            "{error}"
        );
        let panicked = catch_unwind(AssertUnwindSafe(|| handle.spawn(|| ())));
        let payload = panicked.map(drop).unwrap_err();
        let text = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .unwrap_or_default();
        assert!(text.contains("'gone' has shut down"), "{text}");
        // What was passed in is dropped by the caller.
        let log = Log::new();
        let spy = DropSpy(log.clone());
        let _ = Builder::new().spawn_on(&handle, move || drop(spy));
        assert_eq!(log.take(), [sinew::current().id()]);
        assert_eq!(handle.stats().live, 0);
    }
}

#[test]
fn handles_outlive_the_runtime_with_their_results() {
    for_workers(|runtime| {
        let fibers: Vec<_> = (0..20)
            .map(|i| runtime.spawn(move || (i, [i; 100])))
            .collect();
        let fiber = fibers[0].fiber();
        drop(runtime);
        for (i, handle) in fibers.into_iter().enumerate() {
            assert!(handle.is_finished());
            assert_eq!(handle.join().unwrap(), (i, [i; 100]));
        }
        fiber.unpark();
        fiber.cancel();
        fiber.wait().unwrap();
    });
}

#[test]
fn a_shutdown_from_a_fiber_of_another_runtime_parks_only_that() {
    let _watch = watch();
    let ours = runtime(1);
    ours.run(|| {
        let other = runtime(1);
        let go = Gate::new();
        let gate = go.clone();
        // It ignores the request until a fiber of our one worker lets it go.
        let begun = Gate::new();
        let theirs = begun.clone();
        let stubborn = other.spawn(move || {
            theirs.open();
            gate.pass();
        });
        begun.pass();
        let gate = go.clone();
        let opener = sinew::spawn(move || gate.open());
        other.shutdown_timeout(LONG).unwrap();
        stubborn.join().unwrap();
        opener.join().unwrap();
    });
}

#[test]
fn a_shutdown_from_inside_only_starts_it() {
    for_workers(|runtime| {
        let handle = runtime.handle();
        let inside = handle.spawn(move || {
            runtime.shutdown_timeout(LONG).unwrap();
            // Told to stop some time later, and not cut off.
            while sinew::checkpoint().is_ok() {}
            "ended by itself"
        });
        assert_eq!(inside.join().unwrap(), "ended by itself");
        wait_until_closed(&handle);
    });
}

#[test]
fn a_shutdown_without_time_still_takes_an_idle_runtime_down() {
    for_workers(|runtime| {
        runtime.run(|| ());
        let handle = runtime.handle();
        wait_until(|| handle.stats().live == 0);
        runtime.shutdown_timeout(Duration::ZERO).unwrap();
        assert!(Builder::new().spawn_on(&handle, || ()).is_err());
    });
}

#[test]
fn a_shutdown_with_all_the_time_in_the_world_ends_when_the_fibers_do() {
    for_workers(|runtime| {
        let asleep = runtime.spawn(|| sinew::sleep(HOUR));
        wait_until(|| asleep.fiber().wait_reason() == WaitReason::Sleep);
        runtime.shutdown_timeout(Duration::MAX).unwrap();
        assert_eq!(asleep.join().unwrap(), Err(Cancelled));
    });
}
