//! Calls that are left while a coroutine of another library is suspended inside of them:
//! frames, bindings and fibers that somebody still points to end the process, with a
//! message. What does not is in `tests/api/coroutines.rs`.

use crate::harness::{Gate, OnDrop, runtime, wait_until, watch};
use crate::{SIGABRT, run_case};
use corosensei::{Coroutine, CoroutineResult, Yielder};
use sinew::sync::{Condvar, Mutex, Semaphore};
use sinew::{CancelToken, ScopedValue, WaitReason, spawn_local};
use std::cell::Cell;
use std::io;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

type Steps = Coroutine<(), (), ()>;
type Suspend = Yielder<(), ()>;

const LEFT: &str = "was left before one inside of it: was a coroutine suspended there?";
const ENDED: &str = "a fiber ended inside of a scope, limit or binding";
const HOUR: Duration = Duration::from_secs(3600);

sinew::fiber_local!(static KEPT: String = String::from("kept"));

static BOUND: ScopedValue<String> = ScopedValue::new();

/// Runs `body` as a coroutine until it suspends.
fn suspended(body: impl FnOnce(&Suspend) + 'static) -> Steps {
    let mut made = Coroutine::new(move |suspend, ()| body(suspend));
    assert!(matches!(made.resume(()), CoroutineResult::Yield(())));
    made
}

/// A fiber that ends while `body` is suspended.
fn ends_inside(body: impl FnOnce(&Suspend) + Send + 'static) {
    runtime(1).run(|| {
        let inside = spawn_local(move || suspended(body)).join();
        println!("it goes on");
        std::mem::forget(inside);
    });
}

/// A closure on a pool thread ends while `body` is suspended.
fn leaves_a_job_inside(body: impl FnOnce(&Suspend) + Send + 'static) {
    runtime(1).run(|| {
        let job = sinew::spawn_blocking(|| std::mem::forget(suspended(body)));
        job.join().unwrap();
        println!("it goes on");
    });
}

fn bind<T>(f: impl FnOnce() -> T) -> T {
    BOUND.bind(&String::from("bound"), f)
}

/// Leaves `bind` while `body` is suspended.
fn unbinds(body: impl FnOnce(&Suspend) + Send + 'static) {
    runtime(1).run(|| {
        let inside = bind(|| suspended(body));
        println!("it goes on");
        std::mem::forget(inside);
    });
}

/// Suspends in `with` if there is a value.
fn use_bound(suspend: &Suspend) {
    BOUND.with(|value| {
        assert!(value.is_some());
        suspend.suspend(());
    });
}

fn in_a_scope(suspend: &Suspend) {
    sinew::scope(|_| suspend.suspend(()));
}

/// A waker that suspends whatever coroutine it is called on.
struct Suspends;

thread_local! {
    static SUSPEND: Cell<*const Suspend> = const { Cell::new(std::ptr::null()) };
}

impl Wake for Suspends {
    fn wake(self: Arc<Self>) {
        // SAFETY: set by the coroutine on whose stack this is called.
        unsafe { (*SUSPEND.get()).suspend(()) };
    }
}

/// Suspends inside of a call on a descriptor.
fn in_read_with(suspend: &Suspend) {
    let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let one = sinew::io::Async::new(one).unwrap();
    let called = one.read_with(|_| {
        suspend.suspend(());
        io::Result::Ok(())
    });
    called.unwrap();
}

/// Begun by one fiber, and ended by another while the first is there.
fn changes_fibers(body: impl FnOnce(&Suspend) + Send + 'static) {
    runtime(1).run(|| end_on_another(suspended(body)));
}

/// Has another fiber end the coroutine.
fn end_on_another(mut inside: Steps) {
    let other = spawn_local(move || {
        inside.resume(());
        println!("it goes on");
    });
    other.join().unwrap();
}

/// The entry of the child processes.
pub(crate) fn child(case: &str) -> bool {
    match case {
        "ends in timeout" => ends_inside(|suspend| {
            let _ = sinew::timeout(HOUR, || suspend.suspend(()));
        }),
        "ends in shield" => ends_inside(|suspend| sinew::shield(|| suspend.suspend(()))),
        "ends in enter" => ends_inside(|suspend| CancelToken::new().enter(|| suspend.suspend(()))),
        "ends in scope" => ends_inside(in_a_scope),
        "ends in bind" => ends_inside(|suspend| bind(|| suspend.suspend(()))),
        "ends in finally" => {
            ends_inside(|suspend| sinew::finally(|| (), || suspend.suspend(())));
        }
        "ends in read_with" => ends_inside(in_read_with),
        "changes fibers in read_with" => changes_fibers(in_read_with),
        "changes fibers in bind" => changes_fibers(|suspend| bind(|| suspend.suspend(()))),
        "ends in with" => runtime(1).run(|| {
            bind(|| {
                sinew::scope(|s| {
                    s.spawn(|| std::mem::forget(suspended(use_bound)));
                });
            });
            println!("it goes on");
        }),
        "unbinds in with" => unbinds(use_bound),
        "unbinds in scope" => unbinds(in_a_scope),
        "unbinds in bind" => unbinds(|suspend| bind(|| suspend.suspend(()))),
        "unbinds on a thread" => {
            let inside = bind(|| suspended(use_bound));
            println!("it goes on");
            std::mem::forget(inside);
        }
        "blocking ends in with" => runtime(1).run(|| {
            bind(|| sinew::blocking(|| std::mem::forget(suspended(use_bound))));
            println!("it goes on");
        }),
        "blocking ends in bind" => runtime(1).run(|| {
            sinew::blocking(|| {
                std::mem::forget(suspended(|suspend| bind(|| suspend.suspend(()))));
            });
            println!("it goes on");
        }),
        "ends in a waker" => ends_in_a_waker(),
        "ends in a point's waker" => runtime(1).run(|| {
            let inside = spawn_local(in_the_waker_of_a_point).join();
            println!("it goes on");
            std::mem::forget(inside);
        }),
        "changes fibers in a point's waker" => {
            runtime(1).run(|| end_on_another(in_the_waker_of_a_point()));
        }
        "ends in a condvar's waker" => ends_inside(in_the_waker_of_a_condvar),
        "changes fibers in a condvar's waker" => changes_fibers(in_the_waker_of_a_condvar),
        "ends in a hook" => ends_in_a_hook(),
        "blocking in timeout" => ends_what_blocking_sees(|suspend| {
            let _ = sinew::timeout(HOUR, || suspend.suspend(()));
        }),
        "blocking in shield" => {
            ends_what_blocking_sees(|suspend| sinew::shield(|| suspend.suspend(())));
        }
        "blocking in enter" => ends_what_blocking_sees(|suspend| {
            CancelToken::new().enter(|| suspend.suspend(()));
        }),
        "blocking in scope" => ends_what_blocking_sees(in_a_scope),
        "scope waits in no_suspend" => runtime(1).run(|| {
            sinew::scope(|s| {
                s.spawn(sinew::park);
                std::mem::forget(suspended(|suspend| {
                    sinew::no_suspend(|| suspend.suspend(()));
                }));
            });
            println!("it goes on");
        }),
        "a job leaves timeout" => leaves_a_job_inside(|suspend| {
            let _ = sinew::timeout(HOUR, || suspend.suspend(()));
        }),
        "a job leaves shield" => {
            leaves_a_job_inside(|suspend| sinew::shield(|| suspend.suspend(())));
        }
        "a job leaves enter" => {
            leaves_a_job_inside(|suspend| CancelToken::new().enter(|| suspend.suspend(())));
        }
        "a job leaves scope" => leaves_a_job_inside(in_a_scope),
        "a job leaves bind" => leaves_a_job_inside(|suspend| bind(|| suspend.suspend(()))),
        "ends in a fiber-local" => ends_inside(|suspend| KEPT.with(|_| suspend.suspend(()))),
        "unwinds on another fiber" => unwinds_on_another_fiber(),
        _ => return false,
    }
    true
}

/// The fiber that gives up its wait ends while a waker that it called is suspended.
fn ends_in_a_waker() {
    runtime(1).run(|| {
        let semaphore: &'static Semaphore = Box::leak(Box::new(Semaphore::new(1)));
        let front = spawn_local(move || {
            std::mem::forget(suspended(move |suspend| {
                SUSPEND.set(suspend);
                // Stands in front, for more than there is, until it is cancelled.
                drop(semaphore.acquire_many(2));
            }));
        });
        wait_until(|| front.fiber().wait_reason() != WaitReason::None);
        let mut behind = Box::pin(semaphore.acquire_async());
        let waker = Waker::from(Arc::new(Suspends));
        let polled = behind.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        front.cancel(); // so the task gets its permit
        front.join().unwrap();
        println!("it goes on");
    });
}

/// A coroutine that is suspended in a waker, which a cancellation point calls because a limit
/// was reached. The limit is outside of the coroutine.
fn in_the_waker_of_a_point() -> Steps {
    let mut inside = None;
    let _ = sinew::timeout(Duration::from_millis(1), || {
        sinew::scope(|s| {
            let token = s.token();
            let mut cancelled = Box::pin(token.cancelled());
            let waker = Waker::from(Arc::new(Suspends));
            let polled = cancelled.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            inside = Some(suspended(|suspend| {
                SUSPEND.set(suspend);
                // Until the monitor has told the fiber to look at its limits.
                while sinew::check_cancelled().is_ok() {}
            }));
        });
    });
    inside.unwrap()
}

/// Suspends in a waker that a wait calls when it gives its lock back.
fn in_the_waker_of_a_condvar(suspend: &Suspend) {
    let (mutex, condvar) = (Mutex::new(()), Condvar::new());
    let guard = mutex.lock();
    let mut next = Box::pin(mutex.lock_async());
    let waker = Waker::from(Arc::new(Suspends));
    let polled = next.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    SUSPEND.set(suspend);
    drop(condvar.wait(guard));
}

/// A hook suspends the coroutine in which its fiber is about to wait.
fn ends_in_a_hook() {
    let hooks = sinew::hooks::SwitchHooks::new().on_suspend(|| {
        let suspend = SUSPEND.replace(std::ptr::null());
        // SAFETY: as in `Suspends`.
        if let Some(suspend) = unsafe { suspend.as_ref() } {
            suspend.suspend(());
        }
    });
    hooks.install().unwrap();
    ends_inside(|suspend| {
        let nothing: &'static Semaphore = Box::leak(Box::new(Semaphore::new(0)));
        SUSPEND.set(suspend);
        drop(nothing.acquire());
    });
}

/// A pool thread looks at the frames of a fiber while another ends the innermost of them.
fn ends_what_blocking_sees(body: impl FnOnce(&Suspend) + Send + 'static) {
    let (begun, ended) = (Gate::new(), Gate::new());
    runtime(1).run(|| {
        let inside = Rc::new(Cell::new(None));
        let waits = spawn_local({
            let (inside, begun, ended) = (inside.clone(), begun.clone(), ended.clone());
            move || {
                inside.set(Some(suspended(body)));
                sinew::blocking(|| {
                    begun.open();
                    ended.spin();
                    sinew::is_cancelled()
                })
            }
        });
        wait_until(|| begun.is_open());
        let mut inside = inside.take().unwrap();
        inside.resume(());
        drop(inside); // and its stack
        ended.open();
        waits.join().unwrap();
        println!("it goes on");
    });
}

/// A coroutine is suspended while it unwinds, and unwinds to its end on another fiber. A plain
/// thread unwinds meanwhile: if none does nobody looks at the count.
fn unwinds_on_another_fiber() {
    struct SuspendWhileUnwinding<'a>(&'a Suspend);
    impl Drop for SuspendWhileUnwinding<'_> {
        fn drop(&mut self) {
            self.0.suspend(());
        }
    }
    let unwinds = Gate::new();
    let theirs = unwinds.clone();
    std::thread::spawn(move || {
        let _for_ever = OnDrop(move || {
            theirs.open();
            loop {
                std::thread::park();
            }
        });
        std::panic::resume_unwind(Box::new(()));
    });
    unwinds.spin();
    runtime(1).run(|| {
        let inside = Rc::new(Cell::new(None));
        let first = spawn_local({
            let inside = inside.clone();
            move || {
                let unwinds = suspended(|suspend| {
                    let unwound = std::panic::catch_unwind(AssertUnwindSafe(|| {
                        let _suspend = SuspendWhileUnwinding(suspend);
                        std::panic::resume_unwind(Box::new(()));
                    }));
                    assert!(unwound.is_err());
                });
                inside.set(Some(unwinds));
                sinew::park(); // leaves with the panic counted as its own
            }
        });
        wait_until(|| first.fiber().wait_reason() == WaitReason::Park);
        let mut inside = inside.take().unwrap();
        inside.resume(());
        sinew::sleep(Duration::from_millis(1)).unwrap();
        println!("it goes on");
        first.fiber().unpark();
    });
}

#[track_caller]
fn aborts(cases: &[&str], message: &str) {
    let _watch = watch();
    for case in cases {
        let ended = run_case(case, &[]);
        ended.died_by(SIGABRT).says(&[message]);
        assert!(!ended.stdout.contains("it goes on"), "{case}");
    }
}

#[test]
fn a_fiber_does_not_end_while_a_coroutine_is_suspended_inside_of_its_frames() {
    aborts(
        &[
            "ends in timeout",
            "ends in shield",
            "ends in enter",
            "ends in scope",
            "ends in bind",
            "ends in finally",
            "ends in with",
            "ends in read_with",
            "ends in a waker",
            "ends in a point's waker",
            "ends in a condvar's waker",
            "ends in a hook",
        ],
        ENDED,
    );
}

#[test]
fn what_belongs_to_one_fiber_is_not_ended_by_another() {
    aborts(
        &[
            "changes fibers in read_with",
            "changes fibers in bind",
            "changes fibers in a point's waker",
            "changes fibers in a condvar's waker",
        ],
        LEFT,
    );
}

#[test]
fn frames_that_a_pool_thread_looks_at_are_not_ended() {
    aborts(
        &[
            "blocking in timeout",
            "blocking in shield",
            "blocking in enter",
            "blocking in scope",
        ],
        LEFT,
    );
}

#[test]
fn a_count_of_panics_that_is_wrong_is_noticed() {
    aborts(
        &["unwinds on another fiber"],
        "this thread's count of panics is wrong",
    );
}

#[test]
fn bind_does_not_return_while_a_coroutine_uses_what_is_bound() {
    aborts(
        &[
            "unbinds in with",
            "unbinds in scope",
            "unbinds in bind",
            "unbinds on a thread",
            "blocking ends in with",
            "blocking ends in bind",
        ],
        LEFT,
    );
}

#[test]
fn a_scope_does_not_wait_while_a_coroutine_is_suspended_in_no_suspend() {
    aborts(&["scope waits in no_suspend"], LEFT);
}

#[test]
fn a_job_of_the_pool_does_not_leave_a_coroutine_suspended_inside_of_its_frames() {
    aborts(
        &[
            "a job leaves timeout",
            "a job leaves shield",
            "a job leaves enter",
            "a job leaves scope",
            "a job leaves bind",
        ],
        LEFT,
    );
}

#[test]
fn a_fiber_local_that_is_leaked_is_reported() {
    let _watch = watch();
    let ended = run_case("ends in a fiber-local", &[]);
    ended.succeeded().says(&[
        "a fiber-local is still borrowed at the end of its fiber or thread, and is leaked: was a \
         coroutine suspended in `with`?",
    ]);
    assert!(ended.stdout.contains("it goes on"));
}
