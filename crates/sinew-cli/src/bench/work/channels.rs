//! Channels between fibers.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sinew::channel::{Receiver, Sender, bounded};
use sinew::{Runtime, spawn};

use super::super::child::{Job, report, steady};
use super::super::waits::{CONSUMERS, NARROW, PRODUCERS, WIDE};
use super::with_workers;

fn serve(n: u64, ping: Sender<u64>, pong: &Receiver<u64>) -> Duration {
    let start = Instant::now();
    for ball in 0..n {
        ping.send(ball).unwrap();
        assert_eq!(pong.recv(), Ok(ball));
    }
    start.elapsed()
}

fn answer(ping: &Receiver<u64>, pong: &Sender<u64>) {
    while let Ok(ball) = ping.recv() {
        pong.send(ball).unwrap();
    }
}

/// `n` round trips between two fibers, each of which calls `begin` first.
fn rally(n: u64, room: usize, begin: impl Fn() + Clone + Send + 'static) -> Duration {
    let (ping, pinged) = bounded(room);
    let (pong, ponged) = bounded(room);
    let answerer = spawn({
        let begin = begin.clone();
        move || {
            begin();
            answer(&pinged, &pong);
        }
    });
    let server = spawn(move || {
        begin();
        serve(n, ping, &ponged)
    });
    let took = server.join().unwrap();
    answerer.join().unwrap();
    took
}

pub fn pingpong(job: &Job, rt: &Runtime) {
    let room = job.room();
    let ns = steady(job.target(), |n| rt.run(|| rally(n, room, || {})));
    report("ns", ns);
}

pub fn pingpong_1m(job: &Job, rt: &Runtime) {
    let n = job.count(1_000_000);
    let took = rt.run(|| rally(n, 1, || {}));
    report("ms", took.as_secs_f64() * 1e3);
}

/// First two fibers of one runtime that stay on two of its workers, since each
/// waits for the other to begin without giving its worker away; then two
/// runtimes with one worker each.
pub fn apart(job: &Job) {
    let room = job.room();
    let rt = with_workers(job.workers.max(2)); // on one they would wait for ever
    let ns = steady(job.target(), |n| {
        let begun = Arc::new(AtomicU32::new(0));
        rt.run(|| {
            rally(n, room, move || {
                // Relaxed: a head count.
                begun.fetch_add(1, Ordering::Relaxed);
                while begun.load(Ordering::Relaxed) < 2 {
                    spin_loop();
                }
            })
        })
    });
    report("ns", ns);
    drop(rt);
    let (here, there) = (with_workers(1), with_workers(1));
    let ns = steady(job.target(), |n| {
        let (ping, pinged) = bounded(room);
        let (pong, ponged) = bounded(room);
        let answerer = there.spawn(move || answer(&pinged, &pong));
        let took = here.spawn(move || serve(n, ping, &ponged)).join().unwrap();
        answerer.join().unwrap();
        took
    });
    report("runtimes", ns);
}

/// `n` messages from the producers to `consumers`.
fn queue(n: u64, room: usize, consumers: u64) -> Duration {
    let share = (n / PRODUCERS).max(1);
    let start = Instant::now();
    let (tx, rx) = bounded::<u64>(room);
    let consumers: Vec<_> = (0..consumers)
        .map(|_| {
            let rx = rx.clone();
            spawn(move || {
                let mut sum = 0;
                while let Ok(i) = rx.recv() {
                    sum += i;
                }
                sum
            })
        })
        .collect();
    drop(rx);
    for _ in 0..PRODUCERS {
        let tx = tx.clone();
        spawn(move || {
            for i in 0..share {
                tx.send(i).unwrap();
            }
        });
    }
    drop(tx);
    let sum: u64 = consumers.into_iter().map(|c| c.join().unwrap()).sum();
    assert_eq!(sum, PRODUCERS * (share * (share - 1) / 2));
    start.elapsed()
}

pub fn mpsc_4p1c(job: &Job, rt: &Runtime) {
    let ns = steady(job.target(), |n| rt.run(|| queue(n, NARROW, 1)));
    report("ns", ns);
}

pub fn mpmc_4p4c(job: &Job, rt: &Runtime) {
    let ns = steady(job.target(), |n| rt.run(|| queue(n, WIDE, CONSUMERS)));
    report("ns", ns);
}
