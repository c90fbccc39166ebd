//! parking_lot's locks between OS threads.
//!
//! One thread for each worker wants the mutex, since a hundred would measure
//! the kernel's scheduler; the readers and writers are threads all.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

use crate::Failure;
use crate::child::{Job, report, steady};
use crate::waits::{LOCKERS, LOCKS, READERS, WRITERS, repeated};

pub fn run(job: &Job) -> Result<(), Failure> {
    match job.name.as_str() {
        "uncontended" => uncontended(job),
        "mutex_100" => mutex_100(job),
        "rwlock_4r2w" => report("ns", steady(job.target(), read_and_write)),
        _ => return Err(Failure::Unknown),
    }
    Ok(())
}

fn uncontended(job: &Job) {
    let lock = steady(job.target(), |n| {
        let mutex = Mutex::new(0);
        let start = Instant::now();
        for _ in 0..n {
            *black_box(&mutex).lock() += 1;
        }
        assert_eq!(mutex.into_inner(), n);
        start.elapsed()
    });
    report("lock", lock);
}

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
                        *mutex.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(mutex.into_inner(), threads * locks);
        start.elapsed()
    });
    report("ns", ns);
}

fn read_and_write(n: u64) -> Duration {
    let share = (n / (READERS + WRITERS)).max(1);
    let lock = RwLock::new(0);
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                for _ in 0..share {
                    black_box(*lock.read());
                }
            });
        }
        for _ in 0..WRITERS {
            scope.spawn(|| {
                for _ in 0..share {
                    *lock.write() += 1;
                }
            });
        }
    });
    assert_eq!(lock.into_inner(), WRITERS * share);
    start.elapsed()
}
