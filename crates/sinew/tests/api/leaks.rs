//! What leaked fibers may still use: the thread-locals of their workers, which they
//! have lent to code that goes on after their runtime was given up.
//!
//! Each test ends with the borrowed value being read, or written by the kernel; a
//! sanitizer sees that it is still there. Without one, the end of the worker's thread is
//! looked for in `/proc`.

use crate::harness::kept::Tid;
use crate::harness::{Gate, OnDrop, runtime, wait_until, watch};
use sinew::{Builder, IoDriver, JoinHandle, Runtime, ShutdownError, WaitReason};
use std::cell::RefCell;
use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

/// Time enough for fibers that end; the others do not.
const SOON: Duration = Duration::from_millis(20);

/// A value on the heap of a worker's thread-local.
struct Lent(String);

thread_local! {
    static LENT: Lent = Lent(String::from("borrowed from a worker's thread"));
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; 64]);
}

impl Lent {
    fn check(&self) {
        assert_eq!(self.0, "borrowed from a worker's thread");
    }
}

/// Gives the runtime up; at least one fiber of it does not end.
fn give_up(runtime: Runtime) -> ShutdownError {
    runtime.shutdown_timeout(SOON).unwrap_err()
}

#[test]
fn a_thread_local_lent_to_blocking_outlives_the_runtime() {
    let _watch = watch();
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let (tid, release, read) = (Tid::default(), Gate::new(), Gate::new());
        let theirs = (tid.clone(), release.clone(), read.clone());
        drop(runtime.spawn(move || {
            LENT.with(|lent| {
                theirs.0.note();
                sinew::blocking(|| {
                    theirs.1.spin();
                    lent.check();
                    theirs.2.open();
                });
            });
        }));
        tid.get();
        let error = give_up(runtime);
        assert_eq!((error.leaked().len(), error.kept_threads()), (1, 1));
        let text = error.to_string();
        assert!(text.contains("1 worker thread is kept"), "{text}");
        tid.is_kept();
        release.open();
        read.spin();
        tid.is_kept();
    }
}

#[test]
fn a_thread_local_lent_to_the_child_of_a_scope_outlives_the_runtime() {
    let _watch = watch();
    let runtime = runtime(2);
    let (tid, runs, release, read) = (Tid::default(), Gate::new(), Gate::new(), Gate::new());
    let theirs = (tid.clone(), runs.clone(), release.clone(), read.clone());
    drop(runtime.spawn(move || {
        let (tid, runs, release, read) = &theirs;
        tid.note();
        let home = std::thread::current().id();
        LENT.with(|lent| {
            let mut elsewhere = false;
            while !elsewhere {
                elsewhere = sinew::scope(|s| {
                    let child = s.spawn(|| {
                        if std::thread::current().id() == home {
                            return false; // once more, until another worker has it
                        }
                        runs.open();
                        release.spin();
                        lent.check();
                        read.open();
                        true
                    });
                    child.join().unwrap()
                });
            }
        });
    }));
    runs.pass();
    let error = give_up(runtime);
    assert_eq!(error.kept_threads(), 2); // the owner's, and that of the child, which spins
    tid.is_kept();
    release.open();
    read.spin();
}

#[test]
fn a_thread_local_lent_by_a_daemon_outlives_the_free_run() {
    let _watch = watch();
    let (tid, release, read) = (Tid::default(), Gate::new(), Gate::new());
    let theirs = (tid.clone(), release.clone(), read.clone());
    let started = tid.clone();
    sinew::run(move || {
        let lends = Builder::new().daemon(true).spawn(move || {
            LENT.with(|lent| {
                theirs.0.note();
                sinew::blocking(|| {
                    theirs.1.spin();
                    lent.check();
                    theirs.2.open();
                });
            });
        });
        drop(lends.unwrap());
        started.get();
    });
    // `run` has given up after the grace for daemons.
    tid.is_kept();
    release.open();
    read.spin();
}

#[test]
fn a_thread_local_lent_to_another_runtime_outlives_its_own() {
    let _watch = watch();
    for workers in [1, 2] {
        let (lender, user) = (runtime(workers), Arc::new(runtime(workers)));
        let (tid, release, read) = (Tid::default(), Gate::new(), Gate::new());
        let theirs = (tid.clone(), release.clone(), read.clone(), user.clone());
        drop(lender.spawn(move || {
            let (tid, release, read, user) = &theirs;
            LENT.with(|lent| {
                tid.note();
                user.run(|| {
                    while !release.is_open() {
                        sinew::yield_now();
                    }
                    lent.check();
                    read.open();
                });
            });
        }));
        tid.get();
        assert_eq!(give_up(lender).kept_threads(), 1);
        tid.is_kept();
        release.open();
        read.spin();
    }
}

#[test]
fn a_thread_local_that_the_kernel_writes_to_outlives_the_runtime() {
    let _watch = watch();
    for driver in [IoDriver::Epoll, IoDriver::Uring] {
        let Ok(runtime) = Runtime::builder().workers(1).io_driver(driver).build() else {
            continue; // no io_uring here
        };
        let (mut near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        let tid = Tid::default();
        let theirs = tid.clone();
        let reader = runtime.spawn(move || {
            let mut far = sinew::net::UnixStream::from(far);
            BUFFER.with_borrow_mut(|buffer| {
                theirs.note();
                // Deaf to the end of the runtime, so that the operation stays in flight.
                let _ = sinew::shield(|| far.read(buffer));
            });
        });
        waits(&reader);
        assert_eq!(give_up(runtime).kept_threads(), 1);
        tid.is_kept();
        near.write_all(&[7; 64]).unwrap();
        tid.is_kept();
    }
}

/// Until the fiber of this handle is in a wait.
fn waits<T>(handle: &JoinHandle<T>) {
    wait_until(|| handle.fiber().wait_reason() != WaitReason::None);
}

#[test]
fn a_worker_that_comes_back_late_looks_for_leaked_fibers_as_well() {
    let _watch = watch();
    for leaks in [false, true] {
        let runtime = runtime(1);
        let (tid, release) = (Tid::default(), Gate::new());
        let parked = leaks.then(|| {
            runtime.spawn(|| {
                LENT.with(|lent| {
                    loop {
                        sinew::park();
                        lent.check();
                    }
                })
            })
        });
        parked.iter().for_each(waits::<()>);
        let theirs = (tid.clone(), release.clone());
        drop(runtime.spawn(move || {
            theirs.0.note();
            theirs.1.spin();
        }));
        tid.get();
        let error = give_up(runtime);
        assert_eq!(error.leaked().len(), 1 + usize::from(leaks));
        assert_eq!(error.kept_threads(), 1); // it has not come back yet
        release.open();
        if leaks {
            tid.is_kept();
        } else {
            tid.ends();
        }
    }
}

/// Lends a thread-local when it is called: on the stack of a fiber that has completed.
struct LendingWaker {
    tid: Tid,
    release: Gate,
    read: Gate,
}

impl Wake for LendingWaker {
    fn wake(self: Arc<Self>) {
        LENT.with(|lent| {
            self.tid.note();
            sinew::blocking(|| {
                self.release.spin();
                lent.check();
                self.read.open();
            });
        });
    }
}

#[test]
fn a_fiber_that_has_completed_but_not_ended_keeps_its_thread_and_is_reported() {
    let _watch = watch();
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let (tid, release, read) = (Tid::default(), Gate::new(), Gate::new());
        let begin = Gate::new();
        let theirs = begin.clone();
        let mut handle = std::pin::pin!(IntoFuture::into_future(runtime.spawn(move || {
            theirs.pass();
        })));
        let waker = Waker::from(Arc::new(LendingWaker {
            tid: tid.clone(),
            release: release.clone(),
            read: read.clone(),
        }));
        let polled = handle.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        begin.open();
        tid.get();
        let error = give_up(runtime);
        assert_eq!((error.leaked().len(), error.kept_threads()), (1, 1));
        tid.is_kept();
        release.open();
        read.spin();
    }
}

#[test]
fn a_migratable_fiber_keeps_the_thread_that_ran_it_last() {
    let _watch = watch();
    let runtime = runtime(2);
    let tid = Tid::default();
    let theirs = tid.clone();
    // SAFETY: nothing on its stack is tied to a thread.
    let fiber = unsafe { Builder::new().migratable() };
    let fiber = fiber.spawn_on(&runtime.handle(), move || {
        loop {
            theirs.note();
            sinew::park();
        }
    });
    let fiber: JoinHandle<()> = fiber.unwrap();
    waits(&fiber);
    let error = give_up(runtime);
    assert_eq!((error.leaked().len(), error.kept_threads()), (1, 1));
    tid.is_kept();
    fiber.fiber().unpark(); // does nothing
}

#[test]
fn only_threads_with_leaked_fibers_are_kept() {
    let _watch = watch();
    let runtime = runtime(2);
    let kept = runtime.spawn(|| {
        loop {
            sinew::park();
        }
    });
    let kept: JoinHandle<()> = kept;
    waits(&kept);
    let error = give_up(runtime);
    assert_eq!((error.leaked().len(), error.kept_threads()), (1, 1));
}

static DESTROYED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static COUNTED: OnDrop<fn()> = const { OnDrop(|| {
        DESTROYED.fetch_add(1, Ordering::SeqCst);
    }) };
}

#[test]
fn threads_without_leaked_fibers_destroy_their_thread_locals() {
    let _watch = watch();
    for _ in 0..3 {
        let before = DESTROYED.load(Ordering::SeqCst);
        let runtime = runtime(1);
        runtime.run(|| COUNTED.with(|_| ()));
        drop(runtime);
        assert_eq!(DESTROYED.load(Ordering::SeqCst), before + 1);
    }
}

#[test]
fn unstarted_fibers_are_handed_over_by_a_worker_that_stays() {
    let _watch = watch();
    let runtime = runtime(1);
    let tid = Tid::default();
    let theirs = tid.clone();
    let stays: JoinHandle<()> = runtime.spawn(move || {
        theirs.note();
        loop {
            sinew::park();
        }
    });
    waits(&stays);
    let (spins, release) = (Gate::new(), Gate::new());
    let theirs = (spins.clone(), release.clone());
    drop(runtime.spawn(move || {
        theirs.0.open();
        theirs.1.spin();
    }));
    spins.spin();
    // Behind the one that spins, so it cannot start; its closure is cancelled with it.
    let dropped = Arc::new(Mutex::new(()));
    let weak = Arc::downgrade(&dropped);
    let unstarted = runtime.spawn(move || drop(dropped));
    let error = give_up(runtime);
    assert_eq!(error.leaked().len(), 3);
    // Its worker is still in the fiber that spins.
    let failed = unstarted.join().unwrap_err();
    assert!(failed.is_given_up(), "{failed}");
    assert!(weak.upgrade().is_some(), "the closure is leaked");
    // The worker comes back, and finds the entry of a fiber that was failed.
    release.open();
    tid.is_kept();
}

/// In the deque, in the mail and in the worker's own queue.
#[test]
fn fibers_behind_a_worker_that_never_comes_back_are_failed() {
    let _watch = watch();
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let (release, made) = (Gate::new(), Arc::new(Mutex::new(Vec::new())));
        let begun = Arc::new(AtomicUsize::new(0));
        let stuck: Vec<_> = (0..workers)
            .map(|_| {
                let (release, made, begun) = (release.clone(), made.clone(), begun.clone());
                let stuck = Builder::new()
                    .spread()
                    .spawn_on(&runtime.handle(), move || {
                        begun.fetch_add(1, Ordering::Relaxed);
                        while begun.load(Ordering::Relaxed) < workers {
                            std::hint::spin_loop(); // no worker is left to run what follows
                        }
                        for _ in 0..10 {
                            let urgent = Builder::new().priority(sinew::Priority::Critical);
                            let both = [sinew::spawn(|| 1), urgent.spawn(|| 1).unwrap()];
                            made.lock().unwrap().extend(both);
                        }
                        release.spin();
                    });
                stuck.unwrap()
            })
            .collect();
        wait_until(|| made.lock().unwrap().len() == 20 * workers);
        let late: Vec<_> = (0..10).map(|_| runtime.spawn(|| 1)).collect();
        give_up(runtime);
        let made = std::mem::take(&mut *made.lock().unwrap());
        for handle in made.into_iter().chain(late) {
            let failed = handle.join().unwrap_err();
            assert!(failed.is_given_up(), "{failed}");
        }
        release.open();
        drop(stuck);
    }
}
