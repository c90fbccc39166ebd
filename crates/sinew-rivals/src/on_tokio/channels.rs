//! Channels: tokio's own, and for several consumers, which those do not have,
//! the fastest of the async ones: with 1 / 2 workers kanal took 21 / 23 ns for
//! a message, flume 35 / 222, async-channel 82 / 195.
//!
//! There is no capacity 0 in tokio, so the workloads that need it are not here.

use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{self, Receiver, Sender};

use super::on;
use crate::child::{Job, report, steady};
use crate::waits::{CONSUMERS, NARROW, PRODUCERS, WIDE};

async fn serve(n: u64, ping: Sender<u64>, mut pong: Receiver<u64>) -> Duration {
    let start = Instant::now();
    for ball in 0..n {
        ping.send(ball).await.unwrap();
        assert_eq!(pong.recv().await, Some(ball));
    }
    start.elapsed()
}

async fn answer(mut ping: Receiver<u64>, pong: Sender<u64>) {
    while let Some(ball) = ping.recv().await {
        pong.send(ball).await.unwrap();
    }
}

/// `n` round trips between two tasks.
async fn rally(n: u64) -> Duration {
    let (ping, pinged) = mpsc::channel(1);
    let (pong, ponged) = mpsc::channel(1);
    let answerer = tokio::spawn(answer(pinged, pong));
    let took = tokio::spawn(serve(n, ping, ponged)).await.unwrap();
    answerer.await.unwrap();
    took
}

pub fn pingpong(job: &Job, rt: &Runtime) {
    report("ns", steady(job.target(), |n| on(rt, rally(n))));
}

pub fn pingpong_1m(job: &Job, rt: &Runtime) {
    let took = on(rt, rally(job.count(1_000_000)));
    report("ms", took.as_secs_f64() * 1e3);
}

/// Each side has a current-thread runtime on a thread of its own: tasks of the
/// multi-thread runtime move to each other.
pub fn apart(job: &Job) {
    let alone = || Builder::new_current_thread().build().unwrap();
    let ns = steady(job.target(), |n| {
        let (ping, pinged) = mpsc::channel(1);
        let (pong, ponged) = mpsc::channel(1);
        let answerer = thread::spawn(move || on(&alone(), answer(pinged, pong)));
        let took = on(&alone(), serve(n, ping, ponged));
        answerer.join().unwrap();
        took
    });
    report("ns", ns);
}

pub fn mpsc_4p1c(job: &Job, rt: &Runtime) {
    let ns = steady(job.target(), |n| {
        on(rt, async move {
            let share = (n / PRODUCERS).max(1);
            let start = Instant::now();
            let (tx, mut rx) = mpsc::channel(NARROW);
            let consumer = tokio::spawn(async move {
                let mut sum = 0;
                while let Some(i) = rx.recv().await {
                    sum += i;
                }
                sum
            });
            for _ in 0..PRODUCERS {
                let tx = tx.clone();
                tokio::spawn(async move {
                    for i in 0..share {
                        tx.send(i).await.unwrap();
                    }
                });
            }
            drop(tx);
            let sum = consumer.await.unwrap();
            assert_eq!(sum, PRODUCERS * (share * (share - 1) / 2));
            start.elapsed()
        })
    });
    report("ns", ns);
}

pub fn mpmc_4p4c(job: &Job, rt: &Runtime) {
    let ns = steady(job.target(), |n| {
        on(rt, async move {
            let share = (n / PRODUCERS).max(1);
            let start = Instant::now();
            let (tx, rx) = kanal::bounded_async::<u64>(WIDE);
            let consumers: Vec<_> = (0..CONSUMERS)
                .map(|_| {
                    let rx = rx.clone();
                    tokio::spawn(async move {
                        let mut sum = 0;
                        while let Ok(i) = rx.recv().await {
                            sum += i;
                        }
                        sum
                    })
                })
                .collect();
            drop(rx);
            for _ in 0..PRODUCERS {
                let tx = tx.clone();
                tokio::spawn(async move {
                    for i in 0..share {
                        tx.send(i).await.unwrap();
                    }
                });
            }
            drop(tx);
            let mut sum = 0;
            for consumer in consumers {
                sum += consumer.await.unwrap();
            }
            assert_eq!(sum, PRODUCERS * (share * (share - 1) / 2));
            start.elapsed()
        })
    });
    report("ns", ns);
}
