//! Fibers that change threads after they started.
//!
//! That the runtime's own thread-locals are read anew after a hop matters with
//! optimisation and LTO, and shows only where the compiler keeps the address of
//! a thread-local: not in an executable for x86-64, but in a shared object. So
//! the last test, which is for CI, builds and loads one:
//! `cargo test -p sinew --test api migrate -- --include-ignored`.

use crate::harness::{Gate, runtime, watch};
use sinew::{Builder, JoinHandle};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The kernel's id of this thread: a system call, no thread-local.
fn thread_id() -> i64 {
    let link = std::fs::read_link("/proc/thread-self").unwrap();
    link.file_name().unwrap().to_str().unwrap().parse().unwrap()
}

fn spawn_migratable<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    // SAFETY: the closures of this file hold nothing over a suspension that
    // belongs to a thread, and use no thread-local but the runtime's.
    unsafe { Builder::new().migratable() }.spawn(f).unwrap()
}

/// Leaves the running migratable fiber, and comes back on the other worker: a
/// fiber that stays here keeps this worker until we run again.
#[inline(always)]
fn hop() {
    let on = Gate::new();
    let theirs = on.clone();
    // Dropped, not joined: the handle belongs to this worker.
    drop(sinew::spawn_local(move || theirs.spin()));
    let before = thread_id();
    while thread_id() == before {
        sinew::yield_now();
    }
    on.open();
}

#[test]
fn a_migratable_fiber_goes_on_on_another_thread_after_it_started() {
    let _watch = watch();
    let runtime = runtime(2);
    let hops = runtime.run(|| {
        let fiber = spawn_migratable(|| {
            let mut hops = 0;
            for _ in 0..50 {
                let before = thread_id();
                hop();
                hops += usize::from(thread_id() != before);
            }
            hops
        });
        fiber.join().unwrap()
    });
    assert_eq!(hops, 50);
    assert!(runtime.stats().stolen >= 50, "{:?}", runtime.stats());
}

#[test]
fn after_a_hop_the_runtime_s_own_thread_locals_are_those_of_the_new_thread() {
    let _watch = watch();
    runtime(2).run(|| {
        let fiber = spawn_migratable(|| {
            let id = sinew::current().id();
            // One function with everything inlined around the suspension, so
            // that an address computed before it could be used after it.
            for round in 0..50u64 {
                let local = sinew::spawn_local(thread_id);
                let before = (sinew::current().id(), sinew::is_cancelled());
                sinew::safepoint();
                assert_eq!(local_result(local), thread_id());
                hop();
                // A stale worker would queue this on the other thread.
                let local = sinew::spawn_local(thread_id);
                let now = (sinew::current().id(), sinew::is_cancelled());
                sinew::safepoint();
                assert_eq!(before, now);
                assert_eq!(now.0, id);
                assert_eq!(local_result(local), thread_id());
                match round % 5 {
                    0 => sinew::sleep(Duration::from_micros(10)).unwrap(),
                    1 => assert_eq!(sinew::spawn(move || round).join().unwrap(), round),
                    2 => assert_eq!(sinew::blocking(|| round), round),
                    3 => {
                        sinew::current().unpark();
                        sinew::park();
                    }
                    _ => sinew::block_on(async { sinew::spawn(|| ()).await.unwrap() }),
                }
                assert_eq!(sinew::current().id(), id);
            }
        });
        fiber.join().unwrap();
    });
}

/// The result of a local fiber, by spinning here: waiting could take us away
/// from its worker. It runs while we yield, so it is asked for often.
#[inline(always)]
fn local_result(local: sinew::LocalJoinHandle<i64>) -> i64 {
    // `no_suspend` is not needed: a migratable fiber may come back elsewhere,
    // but the answer is that of the worker it was spawned on, so it is only
    // compared if we are still there.
    let spawned_on = thread_id();
    let ran_on = local.join().unwrap();
    assert_eq!(
        ran_on, spawned_on,
        "spawned on a worker that is not this thread's"
    );
    thread_id()
}

#[test]
fn a_fiber_that_is_not_migratable_stays_even_if_its_worker_is_kept_busy() {
    let _watch = watch();
    runtime(2).run(|| {
        let pinned = sinew::spawn(|| {
            let before = thread_id();
            // Others keep this worker for a while, and the other one idles.
            for _ in 0..20 {
                drop(sinew::spawn_local(|| {
                    for _ in 0..1000 {
                        std::hint::spin_loop();
                    }
                }));
                sinew::yield_now();
                assert_eq!(thread_id(), before);
            }
        });
        pinned.join().unwrap();
    });
}

#[test]
fn migratable_fibers_wait_in_every_way_while_thieves_take_them() {
    let _watch = watch();
    for workers in [1, 2] {
        let count = Arc::new(AtomicUsize::new(0));
        let runtime = runtime(workers);
        runtime.run(|| {
            let fibers: Vec<_> = (0..100usize)
                .map(|i| {
                    let count = count.clone();
                    spawn_migratable(move || {
                        for round in 0..30 {
                            match (i + round) % 6 {
                                0 => sinew::yield_now(),
                                1 => sinew::sleep(Duration::from_micros(30)).unwrap(),
                                2 => sinew::park_timeout(Duration::from_micros(10)),
                                3 => sinew::blocking(|| ()),
                                4 => drop(spawn_migratable(sinew::yield_now).join()),
                                _ => {
                                    let me = sinew::current();
                                    let waker = spawn_migratable(move || me.unpark());
                                    sinew::park();
                                    waker.join().unwrap();
                                }
                            }
                            count.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            for fiber in fibers {
                fiber.join().unwrap();
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), 3000);
        crate::harness::wait_until(|| runtime.stats().parked == 0);
    }
}

#[test]
fn a_migratable_fiber_that_unwinds_may_suspend_and_hop() {
    let _watch = watch();
    runtime(2).run(|| {
        let fiber = spawn_migratable(|| {
            let _hops = crate::harness::OnDrop(|| {
                for _ in 0..3 {
                    hop();
                    assert!(std::thread::panicking());
                }
            });
            crate::harness::panic_expected(5);
        });
        let error = fiber.join().map(|()| ()).unwrap_err();
        assert!(crate::harness::is_expected(&*error.into_panic(), 5));
        // Neither thread keeps a count.
        let calm: Vec<_> = (0..20)
            .map(|_| sinew::spawn(std::thread::panicking))
            .collect();
        for fiber in calm {
            assert!(!fiber.join().unwrap());
        }
    });
}

unsafe extern "C" {
    fn dlopen(path: *const std::ffi::c_char, flags: i32) -> *mut std::ffi::c_void;
    fn dlsym(
        library: *mut std::ffi::c_void,
        name: *const std::ffi::c_char,
    ) -> *mut std::ffi::c_void;
}

#[test]
#[ignore = "builds a shared object with fat LTO, which takes a minute; a step of CI runs it"]
fn in_a_shared_object_with_lto_no_thread_local_s_address_is_kept_over_a_hop() {
    const NOW: i32 = 2;
    let fixture = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/hops/Cargo.toml"
    );
    let target = concat!(env!("CARGO_TARGET_TMPDIR"), "/hops");
    let built = std::process::Command::new(env!("CARGO"))
        .args(["build", "--release", "--manifest-path", fixture])
        .args(["--target-dir", target])
        .status()
        .unwrap();
    assert!(built.success());
    let path = std::ffi::CString::new(format!("{target}/release/libhops.so")).unwrap();
    let _watch = watch();
    // SAFETY: a library that we just built, never closed; `hops` has that type.
    let answer = unsafe {
        let library = dlopen(path.as_ptr(), NOW);
        assert!(!library.is_null());
        let hops = dlsym(library, c"hops".as_ptr());
        assert!(!hops.is_null());
        std::mem::transmute::<*mut std::ffi::c_void, extern "C" fn() -> i32>(hops)()
    };
    assert_eq!(answer, 0, "see the codes in tests/fixtures/hops");
}
