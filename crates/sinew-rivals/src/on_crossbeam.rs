//! crossbeam's channels between OS threads, one for each task: what such a
//! channel does where nobody is scheduled but by the kernel.
//!
//! The number of workers is without meaning here.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, select};

use crate::Failure;
use crate::child::{Job, report, steady};
use crate::waits::{CONSUMERS, Dice, NARROW, PRODUCERS, TRIED, WIDE};

pub fn run(job: &Job) -> Result<(), Failure> {
    match job.name.as_str() {
        "pingpong_0" | "pingpong_1" | "apart_0" | "apart_1" => {
            report("ns", steady(job.target(), |n| rally(n, job.room())));
        }
        "pingpong_1m" => {
            let took = rally(job.count(1_000_000), 1);
            report("ms", took.as_secs_f64() * 1e3);
        }
        "mpsc_4p1c" => report("ns", steady(job.target(), |n| queue(n, NARROW, 1))),
        "mpmc_4p4c" => report("ns", steady(job.target(), |n| queue(n, WIDE, CONSUMERS))),
        "uncontended" => uncontended(job),
        "select_2" => select_ready::<2>(job),
        "select_8" => select_ready::<8>(job),
        "select_32" => select_ready::<32>(job),
        _ => return Err(Failure::Unknown),
    }
    Ok(())
}

/// `n` round trips between two threads.
fn rally(n: u64, room: usize) -> Duration {
    let (ping, pinged) = bounded(room);
    let (pong, ponged) = bounded(room);
    thread::scope(|scope| {
        scope.spawn(move || {
            for ball in pinged {
                pong.send(ball).unwrap();
            }
        });
        let start = Instant::now();
        for ball in 0..n {
            ping.send(ball).unwrap();
            assert_eq!(ponged.recv(), Ok(ball));
        }
        drop(ping);
        start.elapsed()
    })
}

fn queue(n: u64, room: usize, consumers: u64) -> Duration {
    let share = (n / PRODUCERS).max(1);
    let start = Instant::now();
    let (tx, rx) = bounded::<u64>(room);
    thread::scope(|scope| {
        let consumers: Vec<_> = (0..consumers)
            .map(|_| {
                let rx = rx.clone();
                scope.spawn(move || rx.iter().sum::<u64>())
            })
            .collect();
        for _ in 0..PRODUCERS {
            let tx = tx.clone();
            scope.spawn(move || {
                for i in 0..share {
                    tx.send(i).unwrap();
                }
            });
        }
        drop(tx);
        let sum: u64 = consumers.into_iter().map(|c| c.join().unwrap()).sum();
        assert_eq!(sum, PRODUCERS * (share * (share - 1) / 2));
    });
    start.elapsed()
}

fn uncontended(job: &Job) {
    let oneshot = steady(job.target(), |n| {
        let start = Instant::now();
        for i in 0..n {
            let (tx, rx) = bounded(1);
            black_box(tx).send(i).unwrap();
            assert_eq!(black_box(rx).recv(), Ok(i));
        }
        start.elapsed()
    });
    report("oneshot", oneshot);
    let tried = steady(job.target(), |n| {
        let (tx, rx) = bounded(TRIED);
        let start = Instant::now();
        for i in 0..n {
            black_box(&tx).try_send(i).unwrap();
            assert_eq!(black_box(&rx).try_recv(), Ok(i));
        }
        start.elapsed()
    });
    report("try", tried);
}

/// Receivers to select over.
trait Arms {
    /// The next message of any.
    fn any(&self) -> u64;
}

/// Writes the arms out, since the macro wants them so.
macro_rules! arms {
    ($count:literal: $($arm:ident)+) => {
        impl Arms for [Receiver<u64>; $count] {
            fn any(&self) -> u64 {
                let [$($arm),+] = self;
                select! { $(recv($arm) -> message => message.unwrap(),)+ }
            }
        }
    };
}

arms!(2: a b);
arms!(8: a b c d e f g h);
arms!(32: a0 a1 a2 a3 a4 a5 a6 a7 b0 b1 b2 b3 b4 b5 b6 b7
          c0 c1 c2 c3 c4 c5 c6 c7 d0 d1 d2 d3 d4 d5 d6 d7);

fn select_ready<const N: usize>(job: &Job)
where
    [Receiver<u64>; N]: Arms,
{
    let mut senders: Vec<Sender<u64>> = Vec::new();
    let receivers: [Receiver<u64>; N] = std::array::from_fn(|_| {
        let (tx, rx) = bounded(1);
        senders.push(tx);
        rx
    });
    let ready = steady(job.target(), |n| {
        let mut dice = Dice::new();
        let start = Instant::now();
        for i in 0..n {
            senders[dice.roll(N)].try_send(i).unwrap();
            assert_eq!(receivers.any(), i);
        }
        start.elapsed()
    });
    report("ready", ready);
}
