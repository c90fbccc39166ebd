//! The pair of hooks: when it is called, on which stack, and what it may do.

use crate::harness::{on_workers, panic_expected, runtime};
use crate::{aborts, alone, wait_on_thread};
use sinew::channel::bounded;
use sinew::hooks::{InstallHooksError, SwitchHooks};
use sinew::sync::{Mutex, Notify};
use sinew::{Builder, FiberId, WaitReason};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

thread_local! {
    /// The fiber that this thread runs, as the hooks know it.
    static HERE: Cell<Option<FiberId>> = const { Cell::new(None) };
    /// A context that some library keeps per thread.
    static USER: Cell<u32> = const { Cell::new(0) };
}

sinew::fiber_local! {
    static KEPT: Cell<u32> = const { Cell::new(0) };
}

static RESUMED: AtomicUsize = AtomicUsize::new(0);
static SUSPENDED: AtomicUsize = AtomicUsize::new(0);

/// Hooks that abort the process unless resume and suspend alternate on each thread, for the
/// same fiber.
fn install_checks() {
    SwitchHooks::new()
        .on_resume(|| {
            RESUMED.fetch_add(1, Ordering::SeqCst);
            let me = sinew::current().id();
            assert_eq!(HERE.replace(Some(me)), None, "somebody is still here");
        })
        .on_suspend(|| {
            SUSPENDED.fetch_add(1, Ordering::SeqCst);
            let me = sinew::current().id();
            assert_eq!(HERE.replace(None), Some(me), "somebody else is here");
        })
        .install()
        .unwrap();
}

/// Hooks that make `USER` the fiber's own.
fn install_context() {
    SwitchHooks::new()
        .on_suspend(|| KEPT.set(USER.replace(0)))
        .on_resume(|| USER.set(KEPT.get()))
        .install()
        .unwrap();
}

struct YieldsInDrop;

impl Drop for YieldsInDrop {
    fn drop(&mut self) {
        sinew::yield_now();
        sinew::sleep(Duration::from_micros(10)).unwrap();
    }
}

#[test]
fn resume_and_suspend_alternate_on_each_thread() {
    alone("pair::resume_and_suspend_alternate_on_each_thread", || {
        install_checks();
        on_workers(|runtime| {
            runtime.run(|| {
                for _ in 0..50 {
                    every_kind_of_fiber();
                }
            });
        });
        let resumed = RESUMED.load(Ordering::SeqCst);
        assert_eq!(resumed, SUSPENDED.load(Ordering::SeqCst));
        assert!(resumed > 1000, "{resumed}");
    });
}

/// Yields, parks, sleeps, waits for threads, unwinds, and never starts.
fn every_kind_of_fiber() {
    let (ping, pings) = bounded(0);
    let fibers = [
        sinew::spawn(|| (0..5).for_each(|_| sinew::yield_now())),
        sinew::spawn(|| sinew::sleep(Duration::from_micros(20)).unwrap()),
        sinew::spawn(|| sinew::blocking(sinew::yield_now)),
        sinew::spawn(move || ping.send(1).unwrap()),
        sinew::spawn(move || assert_eq!(pings.recv(), Ok(1))),
        sinew::spawn(|| {
            let _waits = YieldsInDrop;
            panic_expected(1);
        }),
        // SAFETY: nothing on its stack is tied to a thread.
        unsafe { Builder::new().migratable() }
            .spawn(|| (0..5).for_each(|_| sinew::yield_now()))
            .unwrap(),
    ];
    let unstarted = sinew::spawn(|| ());
    unstarted.cancel();
    sinew::spawn_local(sinew::yield_now).join().unwrap();
    sinew::scope(|s| {
        s.spawn(sinew::yield_now);
        s.spawn(sinew::yield_now);
    });
    for (index, fiber) in fibers.into_iter().enumerate() {
        assert_eq!(fiber.join().is_err(), index == 5);
    }
    let _ = unstarted.join();
}

#[test]
fn a_context_stays_with_its_fiber() {
    alone("pair::a_context_stays_with_its_fiber", || {
        install_context();
        on_workers(|runtime| {
            runtime.run(|| {
                let fibers: Vec<_> = (1..=20)
                    .map(|user| {
                        sinew::spawn(move || {
                            assert_eq!(USER.get(), 0, "somebody left theirs");
                            USER.set(user);
                            for _ in 0..10 {
                                sinew::yield_now();
                                assert_eq!(USER.get(), user);
                            }
                        })
                    })
                    .collect();
                for fiber in fibers {
                    fiber.join().unwrap();
                }
                assert_eq!(USER.get(), 0);
            });
        });
    });
}

/// Waits while fiber-locals are dropped, with the context of its fiber.
struct LastWords(u32);

impl Drop for LastWords {
    fn drop(&mut self) {
        assert_eq!(USER.get(), self.0);
        sinew::yield_now();
        if USER.get() != self.0 {
            std::process::abort(); // a panic here would be swallowed
        }
    }
}

sinew::fiber_local! {
    static WORDS: std::cell::RefCell<Option<LastWords>> = const { std::cell::RefCell::new(None) };
}

#[test]
fn the_context_is_there_while_fiber_locals_are_dropped() {
    let test = "pair::the_context_is_there_while_fiber_locals_are_dropped";
    alone(test, || {
        install_context();
        on_workers(|runtime| {
            runtime.run(|| {
                let fibers = [1, 2, 3].map(|user| {
                    sinew::spawn(move || {
                        USER.set(user);
                        WORDS.set(Some(LastWords(user)));
                        sinew::yield_now();
                    })
                });
                for fiber in fibers {
                    fiber.join().unwrap();
                }
                assert_eq!(sinew::spawn(|| USER.get()).join().unwrap(), 0);
            });
        });
    });
}

struct Counted;

static MADE: AtomicUsize = AtomicUsize::new(0);

impl Counted {
    fn new() -> Self {
        MADE.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        MADE.fetch_sub(1, Ordering::SeqCst);
    }
}

sinew::fiber_local! {
    static COUNTED: Counted = Counted::new();
}

#[test]
fn a_local_that_the_last_suspend_makes_is_dropped() {
    alone(
        "pair::a_local_that_the_last_suspend_makes_is_dropped",
        || {
            SwitchHooks::new()
                .on_suspend(|| COUNTED.with(|_| ()))
                .install()
                .unwrap();
            on_workers(|runtime| {
                runtime.run(|| {
                    for _ in 0..10 {
                        sinew::spawn(sinew::yield_now).join().unwrap();
                    }
                });
            });
            assert_eq!(MADE.load(Ordering::SeqCst), 0);
        },
    );
}

static SEEN: AtomicBool = AtomicBool::new(false);

#[test]
fn a_hook_of_an_unwinding_fiber_is_not_panicking() {
    alone(
        "pair::a_hook_of_an_unwinding_fiber_is_not_panicking",
        || {
            fn look() {
                SEEN.fetch_or(std::thread::panicking(), Ordering::SeqCst);
            }
            SwitchHooks::new()
                .on_suspend(look)
                .on_resume(look)
                .install()
                .unwrap();
            struct Waits;
            impl Drop for Waits {
                fn drop(&mut self) {
                    assert!(std::thread::panicking());
                    sinew::yield_now();
                    assert!(std::thread::panicking());
                }
            }
            on_workers(|runtime| {
                let unwinds = runtime.spawn(|| {
                    let _waits = Waits;
                    panic_expected(2);
                });
                assert!(unwinds.join().unwrap_err().is_panic());
            });
            assert!(!SEEN.load(Ordering::SeqCst));
        },
    );
}

static LOCK: Mutex<u32> = Mutex::new(0);
static SPAWNED: AtomicUsize = AtomicUsize::new(0);

#[test]
fn a_hook_may_do_what_does_not_wait() {
    alone("pair::a_hook_may_do_what_does_not_wait", || {
        let (tx, rx) = bounded(1);
        SwitchHooks::new()
            .on_suspend(move || {
                *LOCK.lock() += 1;
                let _ = tx.try_send(());
                sinew::current().unpark();
                // Not for the fibers that it spawns itself, for ever.
                if sinew::current().name() == Some("spawns") {
                    drop(sinew::spawn(|| SPAWNED.fetch_add(1, Ordering::SeqCst)));
                }
            })
            .install()
            .unwrap();
        on_workers(|runtime| {
            let named = Builder::new().name("spawns");
            let fiber = named.spawn_on(&runtime.handle(), || {
                for _ in 0..10 {
                    sinew::yield_now();
                    sinew::park(); // the hook has left a token
                }
            });
            fiber.unwrap().join().unwrap();
        });
        assert!(SPAWNED.load(Ordering::SeqCst) >= 22);
        assert!(*LOCK.lock() >= 22);
        assert_eq!(rx.try_recv(), Ok(()));
    });
}

#[test]
fn a_leaked_fiber_was_suspended_and_is_never_resumed() {
    let test = "pair::a_leaked_fiber_was_suspended_and_is_never_resumed";
    alone(test, || {
        install_checks();
        for workers in [1, 2] {
            let runtime = runtime(workers);
            let stubborn = runtime.spawn(|| {
                loop {
                    sinew::park();
                }
            });
            let fiber = stubborn.fiber();
            wait_on_thread(|| fiber.wait_reason() == WaitReason::Park);
            let error = runtime.shutdown_timeout(Duration::from_millis(10));
            assert_eq!(error.unwrap_err().leaked().len(), 1);
            let counts = || {
                (
                    RESUMED.load(Ordering::SeqCst),
                    SUSPENDED.load(Ordering::SeqCst),
                )
            };
            // Its worker may be late.
            wait_on_thread(|| counts().0 == counts().1);
            let (resumed, suspended) = counts();
            fiber.unpark();
            assert_eq!(counts(), (resumed, suspended));
        }
    });
}

#[test]
fn a_second_pair_is_refused() {
    alone("pair::a_second_pair_is_refused", || {
        install_checks();
        let second = || {
            SwitchHooks::new()
                .on_resume(|| std::process::abort())
                .install()
        };
        assert_eq!(second(), Err(InstallHooksError::AlreadyInstalled));
        runtime(1).run(sinew::yield_now);
        assert_eq!(second(), Err(InstallHooksError::AlreadyInstalled));
        assert!(RESUMED.load(Ordering::SeqCst) > 0);
    });
}

#[test]
fn a_pair_after_the_first_runtime_is_refused() {
    alone("pair::a_pair_after_the_first_runtime_is_refused", || {
        let late = || {
            SwitchHooks::new()
                .on_resume(|| std::process::abort())
                .install()
        };
        let runtime = runtime(1);
        assert_eq!(late(), Err(InstallHooksError::RuntimeStarted));
        runtime.run(sinew::yield_now);
        drop(runtime);
        assert_eq!(late(), Err(InstallHooksError::RuntimeStarted));
        let error = std::io::Error::from(late().unwrap_err());
        assert!(error.to_string().contains("before the first runtime"));
    });
}

#[test]
fn a_settings_error_does_not_settle_the_hooks() {
    alone("pair::a_settings_error_does_not_settle_the_hooks", || {
        assert!(sinew::Runtime::builder().workers(0).build().is_err());
        install_checks();
        runtime(1).run(sinew::yield_now);
        assert!(RESUMED.load(Ordering::SeqCst) > 0);
    });
}

#[test]
fn a_panic_in_the_suspend_hook_aborts_with_a_message() {
    let words = ["too bad", "sinew: a suspend hook", "panicked"];
    aborts(
        "pair::a_panic_in_the_suspend_hook_aborts_with_a_message",
        &words,
        || {
            SwitchHooks::new()
                .on_suspend(|| panic!("too bad"))
                .install()
                .unwrap();
            runtime(1)
                .run(|| std::panic::catch_unwind(sinew::yield_now))
                .unwrap();
        },
    );
}

#[test]
fn a_panic_in_the_resume_hook_aborts_with_a_message() {
    let words = ["too bad", "sinew: a resume hook", "panicked"];
    aborts(
        "pair::a_panic_in_the_resume_hook_aborts_with_a_message",
        &words,
        || {
            SwitchHooks::new()
                .on_resume(|| panic!("too bad"))
                .install()
                .unwrap();
            runtime(1).run(|| ());
        },
    );
}

#[test]
fn a_panic_in_a_hook_of_an_unwinding_fiber_aborts_with_the_same_message() {
    let test = "pair::a_panic_in_a_hook_of_an_unwinding_fiber_aborts_with_the_same_message";
    aborts(test, &["too bad", "sinew: a suspend hook"], || {
        static ARMED: AtomicBool = AtomicBool::new(false);
        SwitchHooks::new()
            .on_suspend(|| assert!(!ARMED.load(Ordering::SeqCst), "too bad"))
            .install()
            .unwrap();
        runtime(1).run(|| {
            struct Arms;
            impl Drop for Arms {
                fn drop(&mut self) {
                    ARMED.store(true, Ordering::SeqCst);
                    sinew::yield_now();
                }
            }
            let _arms = Arms;
            panic_expected(3);
        });
    });
}

#[test]
fn a_wait_in_a_hook_aborts_with_a_message() {
    let words = [
        "inside `no_suspend`",
        "sinew: a suspend hook",
        "tried to wait",
    ];
    aborts(
        "pair::a_wait_in_a_hook_aborts_with_a_message",
        &words,
        || {
            static NEVER: std::sync::LazyLock<Notify> = std::sync::LazyLock::new(Notify::new);
            SwitchHooks::new()
                .on_suspend(|| NEVER.wait().unwrap())
                .install()
                .unwrap();
            runtime(1).run(sinew::yield_now);
        },
    );
}
