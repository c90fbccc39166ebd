//! Spawns that fail, and stacks that cannot be had: nothing hangs for it.

use super::{run_case, watch};
use crate::harness::{Gate, is_expected, panic_expected, wait_until};
use sinew::{Builder, JoinHandle, Runtime, WaitReason};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const GIB: usize = 1 << 30;

pub fn child(case: &str) -> bool {
    match case {
        "spare without a thread" => a_spare_gets_no_thread(),
        "spawns without a runtime" => spawns_without_a_runtime(),
        "big stack" => a_big_stack_concerns_only_its_own(),
        "big stack cancelled" => a_big_stack_can_be_cancelled(),
        "run without a stack" => run_without_a_stack(),
        "drops that wait" => drops_that_wait_for_each_other(),
        "cancelled before it ran" => many_cancelled_ones_end(),
        "refused scoped spawn" => a_refused_scoped_spawn(),
        "await without a stack" => await_a_token_without_a_stack(),
        _ => return false,
    }
    true
}

/// From now on the process gets at most `more` bytes of addresses.
fn limit_memory(more: u64) {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    limit_addresses(pages * 4096 + more);
}

fn limit_addresses(bytes: u64) {
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the pointer is to a live limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

fn workers() -> usize {
    std::env::var("SINEW_WORKERS").map_or(1, |workers| workers.parse().unwrap())
}

/// Waits until all threads of the one runtime have begun: the start of one needs memory. A
/// thread gets its name when std has made all that it needs.
fn wait_for_threads() {
    let named = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")));
        let names = names.map(|name| name.unwrap_or_default());
        let ours =
            |name: &String| name.starts_with("sinew-worker-") || name.starts_with("sinew-monitor");
        names.filter(ours).count()
    };
    wait_until(|| named() > workers());
}

/// A runtime that runs, with all its threads.
fn runtime() -> Runtime {
    let runtime = Runtime::builder().workers(workers()).build().unwrap();
    runtime.run(wait_for_threads);
    runtime
}

/// The case, with one worker and with two.
fn with_workers(case: &str) {
    let _watch = watch();
    for workers in ["1", "2"] {
        run_case(case, &[("SINEW_WORKERS", workers)]).succeeded();
    }
}

// ------------------------------------------------------- spawns that fail

/// The global runtime cannot start: a spawn panics, and each kind of scope passes that on.
fn spawns_without_a_runtime() {
    fn panics<T>(kind: &str, f: impl FnOnce() -> T) {
        let caught = catch_unwind(AssertUnwindSafe(f));
        let payload = caught.err().expect("a spawn without a runtime panics");
        let text = payload.downcast_ref::<String>().expect("a message");
        assert!(
            text.contains("cannot start the global runtime"),
            "{kind}: {text}"
        );
    }
    panics("scope", || sinew::scope(|s| drop(s.spawn(|| 1))));
    panics("nursery", || {
        sinew::scope::nursery(|n| {
            drop(n.spawn(|| Ok::<_, ()>(1)));
            Ok(())
        })
    });
    panics("race", || {
        sinew::scope::race(|r| drop(r.spawn(|| Ok::<_, ()>(1))))
    });
    panics("collect", || sinew::scope::collect(|c| drop(c.spawn(|| 1))));
    panics("supervise", || {
        use sinew::scope::{Restart, Supervision, supervise};
        supervise(Supervision::new(), |s| {
            s.child("never", Restart::Temporary, || ())
        })
    });
}

#[test]
fn a_scope_does_not_wait_for_a_child_whose_spawn_panicked() {
    let _watch = watch();
    run_case("spawns without a runtime", &[("SINEW_STACK_KB", "1")]).succeeded();
}

// ----------------------------------------------- a stack that is not to be had

/// A fiber that wants 1 GiB waits; all others go on as ever.
fn a_big_stack_concerns_only_its_own() {
    let runtime = runtime();
    limit_memory(512 << 20);
    runtime.run(|| {
        let big = Builder::new().stack_size(GIB).spawn(|| ()).unwrap();
        // The next of its class is refused as soon as the runtime knows.
        wait_until(|| match Builder::new().stack_size(GIB).spawn(|| ()) {
            Ok(another) => {
                another.cancel();
                false
            }
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory);
                true
            }
        });
        for size in [16 << 10, 64 << 10, 256 << 10, 1 << 20] {
            let small = Builder::new().stack_size(size).spawn(|| 7).unwrap();
            assert_eq!(small.join().unwrap(), 7, "{size}");
        }
        assert_eq!(sinew::spawn(|| 7).join().unwrap(), 7);
        assert!(!big.is_finished(), "our own stack may come back");
        big.cancel();
        assert!(big.join().unwrap_err().is_cancelled());
    });
}

#[test]
fn a_stack_that_cannot_be_had_concerns_its_own_class() {
    with_workers("big stack");
}

/// By its handle, by a scope around it, by a limit, and by the end of the runtime.
fn a_big_stack_can_be_cancelled() {
    let runtime = runtime();
    limit_memory(512 << 20);
    let big = || Builder::new().stack_size(GIB);
    runtime.run(|| {
        let dropped = Arc::new(());
        let kept = dropped.clone();
        let fiber = big().spawn(move || drop(kept)).unwrap();
        fiber.cancel();
        assert!(fiber.join().unwrap_err().is_cancelled());
        assert_eq!(Arc::strong_count(&dropped), 1);

        sinew::scope(|s| {
            // Spawns of the class succeed again once the runtime has noticed that nobody waits.
            let mut child = None;
            wait_until(|| {
                child = big().spawn_scoped(s, || ()).ok();
                child.is_some()
            });
            let child = child.unwrap();
            let waited = child.fiber();
            wait_until(|| big().spawn(|| ()).map(|other| other.cancel()).is_err());
            assert!(!waited.is_finished());
            s.cancel();
            assert!(child.join().unwrap_err().is_cancelled());
        });

        let late = sinew::timeout(Duration::from_millis(20), || {
            sinew::scope(|s| {
                let mut child = None;
                wait_until(|| {
                    child = big().spawn_scoped(s, || ()).ok();
                    child.is_some()
                });
                child.unwrap().join()
            })
        });
        let outcome = late.unwrap_or_else(|late| late.into_inner());
        assert!(outcome.unwrap_err().is_cancelled());
    });
    let parked = runtime.spawn(|| while sinew::park_or_cancelled().is_ok() {});
    wait_until(|| parked.fiber().wait_reason() == WaitReason::Park);
    let mut last = None;
    wait_until(|| {
        last = big().spawn_on(&runtime.handle(), || ()).ok();
        last.is_some()
    });
    let last = last.unwrap();
    runtime.shutdown();
    // If the parked one has ended first there is no stack that could come back.
    let error = last.join().unwrap_err();
    assert!(error.is_cancelled() || error.is_no_stack(), "{error}");
}

#[test]
fn a_fiber_that_waits_for_a_stack_can_be_cancelled() {
    with_workers("big stack cancelled");
}

/// A refused spawn drops its closure, and that may panic.
fn a_refused_scoped_spawn() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic_expected(5);
        }
    }
    let runtime = runtime();
    limit_memory(512 << 20);
    let big = || Builder::new().stack_size(GIB);
    runtime.run(|| {
        let waits = big().spawn(|| ()).unwrap();
        wait_until(|| big().spawn(|| ()).map(|other| other.cancel()).is_err());
        // As long as that one waits spawns are refused.
        let error = sinew::scope(|s| big().spawn_scoped(s, || ()).map(drop).unwrap_err());
        assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory);
        let caught = catch_unwind(|| {
            sinew::scope(|s| {
                let panics = Panics;
                big().spawn_scoped(s, move || drop(panics)).map(drop)
            })
        });
        assert!(is_expected(&*caught.unwrap_err(), 5));
        assert!(!waits.is_finished());
        waits.cancel();
        assert!(waits.join().unwrap_err().is_cancelled());
    });
}

#[test]
fn a_scope_does_not_wait_for_a_child_that_was_refused() {
    with_workers("refused scoped spawn");
}

/// Nothing runs that could give a stack back: it fails at once, and the closure is dropped.
fn run_without_a_stack() {
    let runtime = Runtime::builder().workers(workers()).stack_size(GIB);
    let runtime = runtime.build().unwrap();
    limit_memory(256 << 20);
    let dropped = Arc::new(());
    let kept = dropped.clone();
    let failed = catch_unwind(AssertUnwindSafe(|| runtime.run(move || drop(kept))));
    let payload = failed.unwrap_err();
    let text = payload.downcast_ref::<String>().expect("a message");
    assert!(text.contains("no stack"), "{text}");
    assert_eq!(Arc::strong_count(&dropped), 1);
    let spawned = runtime.spawn(|| ());
    assert!(spawned.join().unwrap_err().is_no_stack());
    drop(runtime);
}

#[test]
fn without_any_stack_in_use_a_fiber_fails_at_once() {
    let _watch = watch();
    for workers in ["1", "2"] {
        run_case("run without a stack", &[("SINEW_WORKERS", workers)])
            .succeeded()
            .says(&["no stack of 1048576 KiB"]);
    }
}

/// What a closure that never ran has to drop waits for another such fiber, and panics.
fn drops_that_wait_for_each_other() {
    struct EndsAnother(Option<JoinHandle<()>>);
    impl Drop for EndsAnother {
        fn drop(&mut self) {
            let other = self.0.take().unwrap();
            other.cancel();
            assert!(other.join().is_err());
        }
    }
    let runtime = runtime();
    limit_memory(256 << 20);
    runtime.run(|| {
        // Both wait, since our own stack may come back. Of two sizes: a spawn is refused if
        // another fiber of the same size waits already.
        let last = Builder::new().stack_size(GIB).spawn(|| ()).unwrap();
        let ends = EndsAnother(Some(last));
        let first = Builder::new().stack_size(GIB / 2);
        let first = first.spawn(move || drop(ends)).unwrap();
        first.cancel();
        assert!(first.join().unwrap_err().is_cancelled());
    });

    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic_expected(3);
        }
    }
    let mut fiber = None;
    wait_until(|| {
        // Refused while the runtime has not noticed that nobody waits any more: then the drop
        // panics here.
        let panics = Panics;
        let big = Builder::new().stack_size(GIB);
        let spawned = catch_unwind(AssertUnwindSafe(|| {
            big.spawn_on(&runtime.handle(), move || drop(panics))
        }));
        fiber = spawned.ok().and_then(Result::ok);
        fiber.is_some()
    });
    let payload = fiber.unwrap().join().unwrap_err().into_panic();
    assert!(is_expected(&*payload, 3));
    assert_eq!(runtime.run(|| 1), 1);
}

#[test]
fn closures_that_are_dropped_unrun_may_wait_for_each_other() {
    with_workers("drops that wait");
}

fn many_cancelled_ones_end() {
    // ASan takes memory of its own for each, out of what is left.
    const COUNT: usize = if cfg!(feature = "sanitizer") {
        100
    } else {
        1000
    };
    let runtime = runtime();
    limit_memory(512 << 20);
    runtime.run(|| {
        let dropped = Arc::new(());
        sinew::scope(|s| {
            let big = || Builder::new().stack_size(GIB);
            // Queued before the runtime knows: they all wait, or are refused.
            let children: Vec<_> = (0..COUNT)
                .map_while(|_| {
                    let dropped = dropped.clone();
                    big().spawn_scoped(s, move || drop(dropped)).ok()
                })
                .collect();
            assert!(!children.is_empty());
            s.cancel();
            for child in children {
                assert!(child.join().unwrap_err().is_cancelled());
            }
        });
        assert_eq!(Arc::strong_count(&dropped), 1);
    });
}

#[test]
fn many_children_that_wait_for_a_stack_end_when_their_scope_is_cancelled() {
    with_workers("cancelled before it ran");
}

/// The await of a token with a deadline needs no fiber.
fn await_a_token_without_a_stack() {
    let runtime = Runtime::builder().workers(workers()).stack_size(GIB);
    let runtime = runtime.build().unwrap();
    runtime.run(|| {
        wait_for_threads();
        // A runtime without stacks: the fiber that runs has the last of its class.
        limit_memory(64 << 20);
        let token = sinew::CancelToken::new().child_with_timeout(Duration::from_millis(20));
        sinew::block_on(token.cancelled());
        assert!(token.is_cancelled());
    });
}

#[test]
fn a_token_with_a_deadline_is_awaited_without_a_stack() {
    with_workers("await without a stack");
}

/// Both workers are blocked, a fiber waits to start, and the system has no thread.
fn a_spare_gets_no_thread() {
    let runtime = runtime();
    let (begun, go) = (Arc::new(AtomicUsize::new(0)), Gate::new());
    let blocked = [(); 2].map(|()| {
        let (begun, go) = (begun.clone(), go.clone());
        runtime.spawn(move || {
            begun.fetch_add(1, Ordering::Relaxed);
            while !go.is_open() {
                std::thread::sleep(Duration::from_millis(5));
            }
        })
    });
    wait_until(|| begun.load(Ordering::Relaxed) == 2);
    limit_memory(1 << 20);
    let waits = runtime.spawn(|| ());
    // It is tried all the time.
    wait_until(|| {
        let stats = runtime.stats();
        let blocked = |index: usize| stats.workers[index].blocked;
        blocked(0).min(blocked(1)) > Duration::from_millis(300)
    });
    assert_eq!(runtime.stats().spare_threads, 0);
    assert!(!waits.is_finished());
    limit_addresses(libc::RLIM_INFINITY);
    go.open();
    waits.join().unwrap();
    for blocked in blocked {
        blocked.join().unwrap();
    }
}

#[test]
fn a_spare_worker_for_which_there_is_no_thread_is_reported_once() {
    let _watch = watch();
    let ended = run_case("spare without a thread", &[("SINEW_WORKERS", "2")]);
    ended.succeeded();
    let lines = ended.stderr.lines();
    let said = lines.filter(|line| line.contains("no thread for a spare worker"));
    assert_eq!(said.count(), 1, "{}", ended.stderr);
}
