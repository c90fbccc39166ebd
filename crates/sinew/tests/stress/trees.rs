//! Trees of fibers that spawn, wait, panic, detach and are cancelled.

use crate::harness::{Rng, is_expected, panic_expected, runtime, wait_until};
use crate::seeded;
use sinew::{Builder, JoinHandle, Priority};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What one node of a tree should answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Value(u64),
    Panic(u64),
}

/// Counts every body that began and every one that ended, by any way.
#[derive(Clone, Default)]
struct Census(Arc<(AtomicU64, AtomicU64)>);

struct Life(Census);

impl Census {
    fn begin(&self) -> Life {
        self.0.0.fetch_add(1, Ordering::SeqCst);
        Life(self.clone())
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.0.0.1.fetch_add(1, Ordering::SeqCst);
    }
}

fn wait_somehow(rng: &mut Rng) {
    match rng.below(8) {
        0 => sinew::yield_now(),
        1 => drop(sinew::sleep(Duration::from_micros(rng.below(100)))),
        2 => sinew::park_timeout(Duration::from_micros(rng.below(50))),
        3 => sinew::blocking(|| ()),
        4 => {
            sinew::current().unpark();
            sinew::park();
        }
        5 => drop(sinew::block_on(sinew::spawn(|| ()))),
        _ => {}
    }
}

fn spawn_node(mut rng: Rng, census: Census, depth: u64) -> (JoinHandle<u64>, Fate) {
    let code = rng.next() >> 1;
    let panics = rng.chance(10);
    let fate = if panics {
        Fate::Panic(code)
    } else {
        Fate::Value(code)
    };
    let mut builder = Builder::new();
    if rng.chance(8) {
        builder = builder.name(format!("node {code}"));
    }
    if rng.chance(4) {
        builder = builder.spread();
    }
    if rng.chance(4) {
        let levels = [
            Priority::Low,
            Priority::Normal,
            Priority::High,
            Priority::Critical,
        ];
        builder = builder.priority(levels[rng.below(4) as usize]);
    }
    if rng.chance(6) {
        builder = builder.stack_size(128 << 10);
    }
    let padding = [code; 20];
    let large = rng.chance(3);
    let body = move || node(rng, census, depth, code, panics);
    let handle = if large {
        builder.spawn(move || {
            let code = body();
            assert_eq!(padding, [code; 20]);
            code
        })
    } else {
        builder.spawn(body)
    };
    (handle.unwrap(), fate)
}

fn node(mut rng: Rng, census: Census, depth: u64, code: u64, panics: bool) -> u64 {
    let life = census.begin();
    let mut children = Vec::new();
    if depth > 0 {
        for _ in 0..rng.below(5) {
            children.push(spawn_node(rng.split(), census.clone(), depth - 1));
            if rng.chance(3) {
                wait_somehow(&mut rng);
            }
        }
    }
    // What a panic leaves behind waits while it unwinds, now and then.
    let waits = rng.chance(3);
    let mut own = rng.split();
    let _unwind = crate::harness::OnDrop(move || {
        if waits {
            wait_somehow(&mut own);
        }
    });
    while let Some((handle, fate)) = children.pop() {
        if rng.chance(6) {
            drop(handle); // detached
            continue;
        }
        wait_somehow(&mut rng);
        let outcome = match rng.below(3) {
            0 => handle.join(),
            1 => sinew::block_on(handle),
            _ => match handle.join_timeout(Duration::from_micros(rng.below(200))) {
                Ok(outcome) => outcome,
                Err(handle) => handle.join(),
            },
        };
        match (outcome, fate) {
            (Ok(value), Fate::Value(expected)) => assert_eq!(value, expected),
            (Err(error), Fate::Panic(expected)) => {
                assert!(is_expected(&*error.into_panic(), expected));
            }
            (outcome, fate) => panic!("{outcome:?} instead of {fate:?}"),
        }
    }
    drop(life);
    if panics {
        panic_expected(code);
    }
    code
}

#[test]
fn random_trees_answer_what_they_should() {
    seeded("trees", 6, |rng| {
        let workers = 1 + rng.below(3) as usize;
        let census = Census::default();
        {
            let runtime = runtime(workers);
            runtime.run(|| {
                for _ in 0..5 {
                    let (handle, fate) = spawn_node(rng.split(), census.clone(), 4);
                    let outcome = handle.join();
                    assert_eq!(outcome.is_err(), matches!(fate, Fate::Panic(_)));
                }
            });
        }
        // The end of the runtime waited for the detached ones too.
        let (begun, ended) = (&census.0.0, &census.0.1);
        assert_eq!(begun.load(Ordering::SeqCst), ended.load(Ordering::SeqCst));
    });
}

#[test]
fn many_joiners_with_random_timeouts_on_one_fiber() {
    seeded("joiners", 30, |rng| {
        let runtime = runtime(1 + rng.below(2) as usize);
        let target = runtime.spawn(|| {
            sinew::park();
            77u64
        });
        let fiber = target.fiber();
        let mut waiters = Vec::new();
        for _ in 0..40 {
            let (fiber, mut own) = (fiber.clone(), rng.split());
            waiters.push(runtime.spawn(move || {
                if own.chance(4) {
                    return fiber.wait().is_ok();
                }
                // A child of its own that waits, and is given up on or cancelled.
                let inner = fiber.clone();
                let mut waiter = sinew::spawn(move || inner.wait().is_ok());
                for _ in 0..3 {
                    let time = Duration::from_micros(own.below(60));
                    match waiter.join_timeout(time) {
                        Ok(ended) => return ended.unwrap_or(true),
                        Err(back) => waiter = back,
                    }
                }
                if own.chance(2) {
                    waiter.cancel();
                }
                waiter.join().map_or(true, |_| true)
            }));
        }
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let fiber = fiber.clone();
                std::thread::spawn(move || fiber.wait())
            })
            .collect();
        let mut target = target;
        for _ in 0..rng.below(6) {
            match target.join_timeout(Duration::from_micros(rng.below(100))) {
                Ok(_) => panic!("it waits for its token"),
                Err(back) => target = back,
            }
        }
        fiber.unpark();
        assert_eq!(target.join().unwrap(), 77);
        for waiter in waiters {
            assert!(waiter.join().unwrap());
        }
        for thread in threads {
            thread.join().unwrap().unwrap();
        }
        wait_until(|| runtime.stats().live == 0);
    });
}
