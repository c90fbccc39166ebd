//! Locks and semaphores, and what they and channels cost when nobody waits.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::{Mutex, RwLock, Semaphore, mpsc, oneshot};
use tokio::task::yield_now;

use super::on;
use crate::child::{Job, report, steady};
use crate::waits::{ACQUIRERS, LOCKERS, LOCKS, PERMITS, READERS, TRIED, WRITERS, repeated};

pub fn uncontended(job: &Job, rt: &Runtime) {
    let lock = steady(job.target(), |n| {
        on(rt, async move {
            let mutex = Mutex::new(0);
            let start = Instant::now();
            for _ in 0..n {
                *black_box(&mutex).lock().await += 1;
            }
            assert_eq!(mutex.into_inner(), n);
            start.elapsed()
        })
    });
    report("lock", lock);
    let semaphore = steady(job.target(), |n| {
        on(rt, async move {
            let semaphore = Semaphore::new(1);
            let start = Instant::now();
            for _ in 0..n {
                drop(black_box(&semaphore).acquire().await.unwrap());
            }
            start.elapsed()
        })
    });
    report("semaphore", semaphore);
    let oneshot = steady(job.target(), |n| {
        on(rt, async move {
            let start = Instant::now();
            for i in 0..n {
                let (tx, rx) = oneshot::channel();
                black_box(tx).send(i).unwrap();
                assert_eq!(black_box(rx).await, Ok(i));
            }
            start.elapsed()
        })
    });
    report("oneshot", oneshot);
    let tried = steady(job.target(), |n| {
        on(rt, async move {
            let (tx, mut rx) = mpsc::channel(TRIED);
            let start = Instant::now();
            for i in 0..n {
                black_box(&tx).try_send(i).unwrap();
                assert_eq!(black_box(&mut rx).try_recv(), Ok(i));
            }
            start.elapsed()
        })
    });
    report("try", tried);
}

pub fn mutex_100(job: &Job, rt: &Runtime) {
    let locks = job.count(LOCKS);
    let ns = repeated(job.target(), LOCKERS * locks, || {
        on(rt, async move {
            let mutex = Arc::new(Mutex::new(0));
            let start = Instant::now();
            let tasks: Vec<_> = (0..LOCKERS)
                .map(|_| {
                    let mutex = mutex.clone();
                    tokio::spawn(async move {
                        for _ in 0..locks {
                            *mutex.lock().await += 1;
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            assert_eq!(*mutex.lock().await, LOCKERS * locks);
            start.elapsed()
        })
    });
    report("ns", ns);
}

async fn read_and_write(n: u64, across_yield: bool) -> Duration {
    let share = (n / (READERS + WRITERS)).max(1);
    let lock = Arc::new(RwLock::new(0));
    let start = Instant::now();
    let readers = (0..READERS).map(|_| {
        let lock = lock.clone();
        tokio::spawn(async move {
            for _ in 0..share {
                let value = lock.read().await;
                black_box(*value);
                if across_yield {
                    yield_now().await;
                }
            }
        })
    });
    let writers = (0..WRITERS).map(|_| {
        let lock = lock.clone();
        tokio::spawn(async move {
            for _ in 0..share {
                let mut value = lock.write().await;
                *value += 1;
                if across_yield {
                    yield_now().await;
                }
            }
        })
    });
    let tasks: Vec<_> = readers.chain(writers).collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*lock.read().await, WRITERS * share);
    start.elapsed()
}

pub fn rwlock_4r2w(job: &Job, rt: &Runtime) {
    for (key, across_yield) in [("ns", false), ("held", true)] {
        let run = |n| on(rt, read_and_write(n, across_yield));
        report(key, steady(job.target(), run));
    }
}

async fn acquire_and_release(n: u64, across_yield: bool) -> Duration {
    let semaphore = Arc::new(Semaphore::new(PERMITS));
    let start = Instant::now();
    let tasks: Vec<_> = (0..ACQUIRERS)
        .map(|_| {
            let semaphore = semaphore.clone();
            tokio::spawn(async move {
                for _ in 0..n / ACQUIRERS {
                    let _permit = semaphore.acquire().await.unwrap();
                    if across_yield {
                        yield_now().await;
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    start.elapsed()
}

pub fn semaphore_8_2(job: &Job, rt: &Runtime) {
    for (key, across_yield) in [("ns", false), ("held", true)] {
        let run = |n| on(rt, acquire_and_release(n, across_yield));
        report(key, steady(job.target(), run));
    }
}
