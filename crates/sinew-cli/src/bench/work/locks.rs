//! Locks and semaphores, and what they and channels cost when nobody waits.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sinew::channel::{bounded, oneshot};
use sinew::sync::{Mutex, RwLock, Semaphore};
use sinew::{JoinHandle, Runtime, spawn, yield_now};

use super::super::child::{Job, report, steady};
use super::super::waits::{ACQUIRERS, LOCKERS, LOCKS, PERMITS, READERS, TRIED, WRITERS, repeated};

pub fn uncontended(job: &Job, rt: &Runtime) {
    let measure = |key, work: fn(u64) -> Duration| {
        report(key, steady(job.target(), |n| rt.run(|| work(n))));
    };
    measure("lock", lock_and_unlock);
    measure("semaphore", acquire_alone);
    measure("oneshot", send_once);
    measure("try", try_both_ends);
}

fn lock_and_unlock(n: u64) -> Duration {
    let mutex = Mutex::new(0);
    let start = Instant::now();
    for _ in 0..n {
        *black_box(&mutex).lock() += 1;
    }
    assert_eq!(mutex.into_inner(), n);
    start.elapsed()
}

fn acquire_alone(n: u64) -> Duration {
    let semaphore = Semaphore::new(1);
    let start = Instant::now();
    for _ in 0..n {
        drop(black_box(&semaphore).acquire().unwrap());
    }
    start.elapsed()
}

fn send_once(n: u64) -> Duration {
    let start = Instant::now();
    for i in 0..n {
        let (tx, rx) = oneshot::channel();
        black_box(tx).send(i).unwrap();
        assert_eq!(black_box(rx).recv(), Ok(i));
    }
    start.elapsed()
}

fn try_both_ends(n: u64) -> Duration {
    let (tx, rx) = bounded(TRIED);
    let start = Instant::now();
    for i in 0..n {
        black_box(&tx).try_send(i).unwrap();
        assert_eq!(black_box(&rx).try_recv(), Ok(i));
    }
    start.elapsed()
}

fn join_all(fibers: Vec<JoinHandle<()>>) {
    for fiber in fibers {
        fiber.join().unwrap();
    }
}

pub fn mutex_100(job: &Job, rt: &Runtime) {
    let locks = job.count(LOCKS);
    let all_lock = || {
        let mutex = Arc::new(Mutex::new(0));
        let start = Instant::now();
        let fibers = (0..LOCKERS).map(|_| {
            let mutex = mutex.clone();
            spawn(move || {
                for _ in 0..locks {
                    *mutex.lock() += 1;
                }
            })
        });
        join_all(fibers.collect());
        assert_eq!(*mutex.lock(), LOCKERS * locks);
        start.elapsed()
    };
    let ns = repeated(job.target(), LOCKERS * locks, || rt.run(all_lock));
    report("ns", ns);
}

fn read_and_write(n: u64, across_yield: bool) -> Duration {
    let share = (n / (READERS + WRITERS)).max(1);
    let lock = Arc::new(RwLock::new(0));
    let start = Instant::now();
    let readers = (0..READERS).map(|_| {
        let lock = lock.clone();
        spawn(move || {
            for _ in 0..share {
                let value = lock.read();
                black_box(*value);
                if across_yield {
                    yield_now();
                }
            }
        })
    });
    let writers = (0..WRITERS).map(|_| {
        let lock = lock.clone();
        spawn(move || {
            for _ in 0..share {
                let mut value = lock.write();
                *value += 1;
                if across_yield {
                    yield_now();
                }
            }
        })
    });
    join_all(readers.chain(writers).collect());
    assert_eq!(*lock.read(), WRITERS * share);
    start.elapsed()
}

pub fn rwlock_4r2w(job: &Job, rt: &Runtime) {
    for (key, across_yield) in [("ns", false), ("held", true)] {
        let run = |n| rt.run(|| read_and_write(n, across_yield));
        report(key, steady(job.target(), run));
    }
}

fn acquire_and_release(n: u64, across_yield: bool) -> Duration {
    let semaphore = Arc::new(Semaphore::new(PERMITS));
    let start = Instant::now();
    let fibers = (0..ACQUIRERS).map(|_| {
        let semaphore = semaphore.clone();
        spawn(move || {
            for _ in 0..n / ACQUIRERS {
                let _permit = semaphore.acquire().unwrap();
                if across_yield {
                    yield_now();
                }
            }
        })
    });
    join_all(fibers.collect());
    start.elapsed()
}

pub fn semaphore_8_2(job: &Job, rt: &Runtime) {
    for (key, across_yield) in [("ns", false), ("held", true)] {
        let run = |n| rt.run(|| acquire_and_release(n, across_yield));
        report(key, steady(job.target(), run));
    }
}
