//! The workloads that plain OS threads can do: what Sinew is held against
//! where the bar is "like std". In this program, so that both run the same
//! machine code.

use std::hint::black_box;
use std::sync::{Arc, Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use super::child::{FIB, Job, Rally, Tally, fib, report, steady};
use super::waits::{LOCKERS, LOCKS, READERS, WRITERS, repeated};

/// Runs `job`; false if threads have no such workload.
pub fn run(job: &Job) -> bool {
    match job.name.as_str() {
        "wake_thread" | "wake_apart" | "wake_io" | "wake_io_apart" => wake_thread(job),
        "balance" => balance(job),
        "uncontended" => uncontended(job),
        "mutex_100" => mutex_100(job),
        "rwlock_4r2w" => report("ns", steady(job.target(), read_and_write)),
        _ => return false,
    }
    true
}

fn wake_thread(job: &Job) {
    Rally::prepare(job);
    let rally = Rally::new();
    let player = thread::spawn({
        let rally = rally.clone();
        move || rally.play(thread::park)
    });
    rally.serve(job, || player.thread().unpark());
    player.join().expect("the player panicked");
}

fn balance(job: &Job) {
    let n = job.count(100_000);
    let share = n / job.workers as u64;
    let tally = Arc::new(Tally::default());
    let start = Instant::now();
    thread::scope(|scope| {
        for worker in 0..job.workers as u64 {
            let rest = if worker == 0 {
                n % job.workers as u64
            } else {
                0
            };
            let tally = tally.clone();
            scope.spawn(move || {
                for _ in 0..share + rest {
                    black_box(fib(black_box(FIB)));
                    tally.book();
                }
            });
        }
    });
    report("ms", start.elapsed().as_secs_f64() * 1e3);
    report("unevenness", tally.unevenness(job.workers));
}

fn uncontended(job: &Job) {
    let lock = steady(job.target(), |n| {
        let mutex = Mutex::new(0);
        let start = Instant::now();
        for _ in 0..n {
            *black_box(&mutex).lock().unwrap() += 1;
        }
        assert_eq!(mutex.into_inner().unwrap(), n);
        start.elapsed()
    });
    report("lock", lock);
}

/// One thread for each worker: a hundred would measure the kernel's scheduler.
fn mutex_100(job: &Job) {
    let threads = job.workers as u64;
    let locks = LOCKERS * job.count(LOCKS) / threads;
    let ns = repeated(job.target(), threads * locks, || {
        let mutex = Mutex::new(0);
        let start = Instant::now();
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for _ in 0..locks {
                        *mutex.lock().unwrap() += 1;
                    }
                });
            }
        });
        assert_eq!(mutex.into_inner().unwrap(), threads * locks);
        start.elapsed()
    });
    report("ns", ns);
}

/// A thread for each reader and writer.
fn read_and_write(n: u64) -> Duration {
    let share = (n / (READERS + WRITERS)).max(1);
    let lock = RwLock::new(0);
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                for _ in 0..share {
                    black_box(*lock.read().unwrap());
                }
            });
        }
        for _ in 0..WRITERS {
            scope.spawn(|| {
                for _ in 0..share {
                    *lock.write().unwrap() += 1;
                }
            });
        }
    });
    assert_eq!(lock.into_inner().unwrap(), WRITERS * share);
    start.elapsed()
}
