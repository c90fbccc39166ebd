//! Work for threads that may block.

use crate::harness::{
    DropSpy, Gate, Log, in_fibers, is_expected, on_workers, panic_expected, wait_until, watch,
};
use sinew::Runtime;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

#[test]
fn blocking_borrows_from_the_fiber_s_stack() {
    in_fibers(|| {
        let mut numbers = vec![3, 1, 2];
        let smallest = sinew::blocking(|| {
            numbers.sort_unstable();
            &numbers[0]
        });
        assert_eq!(*smallest, 1);
        assert_eq!(numbers, [1, 2, 3]);
    });
}

#[test]
fn other_fibers_of_the_worker_run_while_one_blocks() {
    in_fibers(|| {
        let (send, receive) = mpsc::channel();
        sinew::spawn(move || send.send(5).unwrap());
        // On one worker the sender runs only if `blocking` does not block it.
        assert_eq!(sinew::blocking(move || receive.recv()), Ok(5));
    });
}

#[test]
fn a_blocking_closure_runs_off_the_workers_and_on_a_thread_in_place() {
    in_fibers(|| {
        let me = std::thread::current().id();
        let (there, name) = sinew::blocking(|| {
            let thread = std::thread::current();
            (thread.id(), thread.name().map(String::from))
        });
        assert_ne!(there, me);
        assert_eq!(name.as_deref(), Some("sinew-blocking"));
    });
    let me = std::thread::current().id();
    assert_eq!(sinew::blocking(|| std::thread::current().id()), me);
}

#[test]
fn a_panic_goes_on_in_the_caller() {
    in_fibers(|| {
        let caught = std::panic::catch_unwind(|| sinew::blocking(|| panic_expected(4)));
        assert!(is_expected(&*caught.unwrap_err(), 4));
        let handle = sinew::spawn_blocking(|| panic_expected(5));
        let error = handle.join().map(|()| ()).unwrap_err();
        assert!(is_expected(&*error.into_panic(), 5));
        assert_eq!(sinew::blocking(|| 1), 1);
    });
}

#[test]
fn the_pool_grows_to_its_limit_and_not_beyond() {
    let _watch = watch();
    for workers in [1, 2] {
        let runtime = Runtime::builder()
            .workers(workers)
            .blocking_threads(3)
            .build()
            .unwrap();
        runtime.run(|| {
            let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let go = Gate::new();
            let jobs: Vec<_> = (0..12)
                .map(|_| {
                    let (now, most, gate) = (now.clone(), most.clone(), go.clone());
                    sinew::spawn_blocking(move || {
                        let running = now.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(running, Ordering::SeqCst);
                        gate.spin();
                        now.fetch_sub(1, Ordering::SeqCst);
                    })
                })
                .collect();
            wait_until(|| now.load(Ordering::SeqCst) == 3);
            go.open();
            for job in jobs {
                job.join().unwrap();
            }
            assert_eq!(most.load(Ordering::SeqCst), 3);
        });
        assert!(runtime.stats().blocking_threads <= 3);
    }
}

#[test]
fn jobs_that_have_to_queue_run_first_in_first_out() {
    let _watch = watch();
    for workers in [1, 2] {
        let runtime = Runtime::builder()
            .workers(workers)
            .blocking_threads(1)
            .build()
            .unwrap();
        runtime.run(|| {
            let (begun, go) = (Gate::new(), Gate::new());
            let theirs = (begun.clone(), go.clone());
            let first = sinew::spawn_blocking(move || {
                theirs.0.open();
                theirs.1.spin();
            });
            begun.pass();
            let order = Log::new();
            let jobs: Vec<_> = (0..50)
                .map(|i| {
                    let order = order.clone();
                    sinew::spawn_blocking(move || order.push(i))
                })
                .collect();
            go.open();
            first.join().unwrap();
            for job in jobs {
                job.join().unwrap();
            }
            assert_eq!(order.take(), (0..50).collect::<Vec<_>>());
        });
    }
}

#[test]
fn a_pool_thread_spawns_on_its_own_runtime() {
    let _watch = watch();
    let thread_name = || std::thread::current().name().unwrap_or("").to_owned();
    for workers in [1, 2] {
        let runtime = Runtime::builder()
            .workers(workers)
            .name("mine")
            .build()
            .unwrap();
        let names = runtime.run(|| {
            sinew::blocking(|| {
                let fiber = sinew::spawn(thread_name).join().unwrap();
                let job = sinew::spawn_blocking(thread_name).join().unwrap();
                let in_place = sinew::blocking(thread_name);
                let built = sinew::Builder::new()
                    .spawn(thread_name)
                    .unwrap()
                    .join()
                    .unwrap();
                [fiber, job, in_place, built]
            })
        });
        assert!(names[0].starts_with("mine-worker-"), "{names:?}");
        assert_eq!(names[1], "mine-blocking");
        assert_eq!(names[2], "mine-blocking");
        assert!(names[3].starts_with("mine-worker-"), "{names:?}");
    }
}

#[test]
fn a_pool_thread_waits_like_any_thread() {
    in_fibers(|| {
        let job = sinew::spawn_blocking(|| {
            sinew::sleep(Duration::from_millis(1)).unwrap();
            let me = sinew::current();
            let waker = sinew::spawn(move || me.unpark());
            sinew::park();
            waker.join().unwrap();
            sinew::block_on(async { sinew::spawn(|| 8).await.unwrap() })
        });
        assert_eq!(job.join().unwrap(), 8);
    });
}

#[test]
fn a_job_cancelled_before_a_thread_took_it_only_drops_its_closure() {
    let _watch = watch();
    let runtime = Runtime::builder()
        .workers(1)
        .blocking_threads(1)
        .build()
        .unwrap();
    runtime.run(|| {
        let (begun, go) = (Gate::new(), Gate::new());
        let theirs = (begun.clone(), go.clone());
        let first = sinew::spawn_blocking(move || {
            theirs.0.open();
            theirs.1.spin();
        });
        begun.pass();
        let (log, ran) = (Log::new(), Gate::new());
        let (spy, theirs) = (DropSpy(log.clone()), ran.clone());
        let queued = sinew::spawn_blocking(move || {
            let _captured = &spy;
            theirs.open();
        });
        queued.cancel();
        go.open();
        first.join().unwrap();
        assert!(queued.join().unwrap_err().is_cancelled());
        assert!(!ran.is_open());
        assert_eq!(log.len(), 1);
    });
}

#[test]
fn idle_pool_threads_end_after_the_keep_alive_time_and_new_ones_start() {
    let _watch = watch();
    let runtime = Runtime::builder()
        .workers(1)
        .blocking_keep_alive(Duration::from_millis(1))
        .build()
        .unwrap();
    for _ in 0..3 {
        let go = Gate::new();
        let jobs: Vec<_> = (0..5)
            .map(|_| {
                let gate = go.clone();
                runtime.run(move || sinew::spawn_blocking(move || gate.spin()))
            })
            .collect();
        assert_eq!(runtime.stats().blocking_threads, 5);
        go.open();
        for job in jobs {
            job.join().unwrap();
        }
        wait_until(|| runtime.stats().blocking_threads == 0);
    }
}

#[test]
fn a_runtime_s_end_waits_for_its_blocking_jobs() {
    on_workers(|runtime| {
        let _ = runtime;
    });
    for workers in [1, 2] {
        let runtime = crate::harness::runtime(workers);
        let done = Gate::new();
        let theirs = done.clone();
        drop(runtime.run(move || {
            sinew::spawn_blocking(move || {
                std::thread::sleep(Duration::from_millis(20));
                theirs.open();
            })
        }));
        drop(runtime);
        assert!(done.is_open());
    }
}

#[test]
fn a_thousand_fibers_block_at_once() {
    on_workers(|runtime| {
        runtime.run(|| {
            let fibers: Vec<_> = (0..1000u64)
                .map(|i| sinew::spawn(move || sinew::blocking(|| i * 2)))
                .collect();
            let sum: u64 = fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum();
            assert_eq!(sum, 999 * 1000);
        });
        assert!(runtime.stats().blocking_threads <= 512);
    });
}

#[test]
fn a_job_does_not_find_the_token_of_the_job_before() {
    let _watch = watch();
    for workers in [1, 2] {
        let runtime = Runtime::builder()
            .workers(workers)
            .blocking_threads(1)
            .build()
            .unwrap();
        let begun = Gate::new();
        let theirs = begun.clone();
        let cancelled = runtime.spawn(move || {
            sinew::blocking(|| {
                theirs.open();
                // The request comes with a token for this thread, which nobody takes.
                wait_until(sinew::is_cancelled);
            });
        });
        begun.pass();
        cancelled.cancel();
        cancelled.join().unwrap();
        let job = runtime.run(|| {
            sinew::spawn_blocking(|| {
                let begun = std::time::Instant::now();
                sinew::park_timeout(Duration::from_millis(5)); // nobody unparks
                begun.elapsed()
            })
        });
        assert!(job.join().unwrap() >= Duration::from_millis(5));
    }
}
