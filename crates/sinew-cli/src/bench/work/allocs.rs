//! Allocations: of spawning, and of waiting.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sinew::channel::bounded;
use sinew::sync::{Mutex, Semaphore};
use sinew::{Runtime, spawn, yield_now};

use super::super::alloc;
use super::super::child::{Job, report};
use super::super::waits::Dice;
use super::select::{Arms, channels};
use super::tasks::spawn_and_join;

pub fn spawning(job: &Job, rt: &Runtime) {
    let n = job.count(100_000);
    let per_spawn = |work: fn(u64)| {
        let count = rt.run(|| {
            work(n); // warm up
            alloc::count_during(|| work(n))
        });
        count as f64 / n as f64
    };
    report(
        "small",
        per_spawn(|n| {
            spawn_and_join(n);
        }),
    );
    report(
        "large",
        per_spawn(|n| {
            for i in 0..n {
                let load = [i; 128];
                black_box(spawn(move || black_box(load)[7]).join().unwrap());
            }
        }),
    );
}

/// Allocations for each wait. The other fiber is there before we count, and the
/// same waits have been done before.
pub fn parking(job: &Job, rt: &Runtime) {
    let n = job.count(100_000);
    let each = |count: u64| count as f64 / n as f64;
    report("lock", each(rt.run(|| beside_a_locker(n))));
    report("semaphore", each(rt.run(|| beside_an_acquirer(n))));
    for (key, room) in [("channel", 1), ("rendezvous", 0)] {
        report(key, each(rt.run(|| through_a_channel(n, room))));
    }
    report("select", each(rt.run(|| selecting(n))));
}

/// Allocations of `n` times `work`, once it has been done as often.
fn in_steady_state(n: u64, mut work: impl FnMut()) -> u64 {
    let mut all = || (0..n).for_each(|_| work());
    all();
    alloc::count_during(all)
}

/// Does `work` `n` times while another fiber does the same: on one worker one
/// of them always finds the other inside.
fn beside_another(n: u64, work: impl Fn() + Clone + Send + 'static) -> u64 {
    let over = Arc::new(AtomicBool::new(false));
    let other = spawn({
        let (over, work) = (over.clone(), work.clone());
        move || {
            // Relaxed: a flag and nothing else; `join` orders the rest.
            while !over.load(Ordering::Relaxed) {
                work();
            }
        }
    });
    let count = in_steady_state(n, work);
    over.store(true, Ordering::Relaxed);
    other.join().unwrap();
    count
}

fn beside_a_locker(n: u64) -> u64 {
    let mutex = Arc::new(Mutex::new(()));
    beside_another(n, move || {
        let _guard = mutex.lock();
        yield_now();
    })
}

fn beside_an_acquirer(n: u64) -> u64 {
    let semaphore = Arc::new(Semaphore::new(1));
    beside_another(n, move || {
        let _permit = semaphore.acquire().unwrap();
        yield_now();
    })
}

/// Two sends in a row, so that senders wait too, and an answer.
fn through_a_channel(n: u64, room: usize) -> u64 {
    let (ping, pinged) = bounded(room);
    let (pong, ponged) = bounded(room);
    let other = spawn(move || {
        while let (Ok(one), Ok(two)) = (pinged.recv(), pinged.recv()) {
            pong.send(one + two).unwrap();
        }
    });
    let count = in_steady_state(n, || {
        ping.send(1).unwrap();
        ping.send(2).unwrap();
        assert_eq!(ponged.recv(), Ok(3));
    });
    drop(ping);
    other.join().unwrap();
    count
}

fn selecting(n: u64) -> u64 {
    let (senders, receivers) = channels::<8>();
    let (reply, replies) = bounded(1);
    // The answer comes back through the arm that is drawn next.
    let other = spawn(move || {
        let mut dice = Dice::new();
        for i in replies {
            senders[dice.roll(8)].send(i).unwrap();
        }
    });
    let count = in_steady_state(n, || {
        reply.send(7).unwrap();
        assert_eq!(receivers.any(), 7);
    });
    drop(reply);
    other.join().unwrap();
    count
}
