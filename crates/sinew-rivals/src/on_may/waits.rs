//! Channels, locks and semaphores of may.
//!
//! Its channels are unbounded: a ping-pong with room for one message is the
//! same work, one with room for none or a queue that fills up is not.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use may::coroutine::yield_now;
use may::go;
use may::sync::{Mutex, RwLock, Semphore, mpsc};

use super::on;
use crate::child::{Job, report, steady};
use crate::waits::{ACQUIRERS, LOCKERS, LOCKS, PERMITS, READERS, WRITERS, repeated};

/// `n` round trips between two coroutines.
fn rally(n: u64) -> Duration {
    let (ping, pinged) = mpsc::channel();
    let (pong, ponged) = mpsc::channel();
    let answerer = go!(move || {
        while let Ok(ball) = pinged.recv() {
            pong.send(ball).unwrap();
        }
    });
    let server = go!(move || {
        let start = Instant::now();
        for ball in 0..n {
            ping.send(ball).unwrap();
            assert_eq!(ponged.recv(), Ok(ball));
        }
        start.elapsed()
    });
    let took = server.join().unwrap();
    answerer.join().unwrap();
    took
}

pub fn pingpong(job: &Job) {
    report("ns", steady(job.target(), |n| on(move || rally(n))));
}

pub fn pingpong_1m(job: &Job) {
    let n = job.count(1_000_000);
    report("ms", on(move || rally(n)).as_secs_f64() * 1e3);
}

pub fn uncontended(job: &Job) {
    let lock = steady(job.target(), |n| {
        on(move || {
            let mutex = Mutex::new(0);
            let start = Instant::now();
            for _ in 0..n {
                *black_box(&mutex).lock().unwrap() += 1;
            }
            assert_eq!(mutex.into_inner().unwrap(), n);
            start.elapsed()
        })
    });
    report("lock", lock);
    let semaphore = steady(job.target(), |n| {
        on(move || {
            let semaphore = Semphore::new(1);
            let start = Instant::now();
            for _ in 0..n {
                black_box(&semaphore).wait();
                black_box(&semaphore).post();
            }
            start.elapsed()
        })
    });
    report("semaphore", semaphore);
}

pub fn mutex_100(job: &Job) {
    let locks = job.count(LOCKS);
    let ns = repeated(job.target(), LOCKERS * locks, || {
        on(move || {
            let mutex = Arc::new(Mutex::new(0));
            let start = Instant::now();
            let tasks: Vec<_> = (0..LOCKERS)
                .map(|_| {
                    let mutex = mutex.clone();
                    go!(move || {
                        for _ in 0..locks {
                            *mutex.lock().unwrap() += 1;
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.join().unwrap();
            }
            assert_eq!(*mutex.lock().unwrap(), LOCKERS * locks);
            start.elapsed()
        })
    });
    report("ns", ns);
}

fn read_and_write(n: u64, across_yield: bool) -> Duration {
    let share = (n / (READERS + WRITERS)).max(1);
    let lock = Arc::new(RwLock::new(0));
    let start = Instant::now();
    let readers = (0..READERS).map(|_| {
        let lock = lock.clone();
        go!(move || {
            for _ in 0..share {
                let value = lock.read().unwrap();
                black_box(*value);
                if across_yield {
                    yield_now();
                }
            }
        })
    });
    let writers = (0..WRITERS).map(|_| {
        let lock = lock.clone();
        go!(move || {
            for _ in 0..share {
                let mut value = lock.write().unwrap();
                *value += 1;
                if across_yield {
                    yield_now();
                }
            }
        })
    });
    let tasks: Vec<_> = readers.chain(writers).collect();
    for task in tasks {
        task.join().unwrap();
    }
    assert_eq!(*lock.read().unwrap(), WRITERS * share);
    start.elapsed()
}

pub fn rwlock_4r2w(job: &Job) {
    for (key, across_yield) in [("ns", false), ("held", true)] {
        let run = |n| on(move || read_and_write(n, across_yield));
        report(key, steady(job.target(), run));
    }
}

fn acquire_and_release(n: u64, across_yield: bool) -> Duration {
    let semaphore = Arc::new(Semphore::new(PERMITS));
    let start = Instant::now();
    let tasks: Vec<_> = (0..ACQUIRERS)
        .map(|_| {
            let semaphore = semaphore.clone();
            go!(move || {
                for _ in 0..n / ACQUIRERS {
                    semaphore.wait();
                    if across_yield {
                        yield_now();
                    }
                    semaphore.post();
                }
            })
        })
        .collect();
    for task in tasks {
        task.join().unwrap();
    }
    start.elapsed()
}

pub fn semaphore_8_2(job: &Job) {
    for (key, across_yield) in [("ns", false), ("held", true)] {
        let run = |n| on(move || acquire_and_release(n, across_yield));
        report(key, steady(job.target(), run));
    }
}
