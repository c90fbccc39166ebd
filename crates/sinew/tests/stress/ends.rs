//! Runtimes that end at any moment, with fibers in any state.

use crate::harness::{Gate, Rng, panic_expected, runtime};
use crate::seeded;
use sinew::{Builder, Handle};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(100);

/// A body that ends by itself or when told to.
fn body(mut rng: Rng, depth: u64) {
    match rng.below(9) {
        0 => sinew::park(),
        1 => drop(sinew::sleep(Duration::from_secs(3600))),
        2 => sinew::blocking(|| std::thread::sleep(Duration::from_micros(100))),
        3 => while sinew::checkpoint().is_ok() {},
        4 => panic_expected(1),
        5 => {
            let unwind = crate::harness::OnDrop(sinew::yield_now);
            let _ = &unwind;
            panic_expected(2);
        }
        6 if depth > 0 => {
            let children: Vec<_> = (0..3)
                .map(|_| {
                    let own = rng.split();
                    sinew::spawn(move || body(own, depth - 1))
                })
                .collect();
            for child in children {
                child.cancel();
                let _ = child.join();
            }
        }
        7 if depth > 0 => {
            for _ in 0..3 {
                let own = rng.split();
                drop(sinew::spawn(move || body(own, depth - 1)));
            }
        }
        _ => sinew::yield_now(),
    }
}

#[test]
fn a_runtime_may_be_shut_down_at_any_moment() {
    seeded("shutdown", 60, |rng| {
        let runtime = runtime(1 + rng.below(3) as usize);
        let alive = Arc::new(AtomicU64::new(0));
        for _ in 0..rng.below(60) {
            let (own, alive) = (rng.split(), alive.clone());
            alive.fetch_add(1, Ordering::SeqCst);
            let ends = crate::harness::OnDrop(move || {
                alive.fetch_sub(1, Ordering::SeqCst);
            });
            let builder = Builder::new().daemon(rng.chance(4));
            let fiber = builder.spawn_on(&runtime.handle(), move || {
                let _ends = &ends;
                body(own, 2);
            });
            drop(fiber.unwrap());
            if rng.chance(10) {
                std::thread::yield_now();
            }
        }
        for _ in 0..rng.below(3000) {
            std::hint::spin_loop();
        }
        runtime.shutdown_timeout(LONG).unwrap();
        // Every closure was dropped: run, or unrun.
        assert_eq!(alive.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn a_runtime_may_be_dropped_at_any_moment() {
    seeded("drop", 60, |rng| {
        let runtime = runtime(1 + rng.below(3) as usize);
        let ended = Arc::new(AtomicU64::new(0));
        let count = rng.below(80);
        for _ in 0..count {
            let (ended, mut own) = (ended.clone(), rng.split());
            drop(runtime.spawn(move || {
                match own.below(4) {
                    0 => drop(sinew::sleep(Duration::from_micros(own.below(300)))),
                    1 => sinew::blocking(|| ()),
                    2 => drop(sinew::spawn(|| ()).join()),
                    _ => {}
                }
                ended.fetch_add(1, Ordering::SeqCst);
            }));
        }
        for _ in 0..rng.below(3) {
            let daemon = Builder::new().daemon(true);
            drop(daemon.spawn_on(&runtime.handle(), sinew::park).unwrap());
        }
        drop(runtime);
        assert_eq!(ended.load(Ordering::SeqCst), count);
    });
}

#[test]
fn a_spawn_that_races_with_the_end_is_refused_or_ends() {
    seeded("spawn against the end", 150, |rng| {
        let runtime = runtime(1 + rng.below(2) as usize);
        let handle = runtime.handle();
        let go = Gate::new();
        let spawners: Vec<_> = (0..2)
            .map(|_| {
                let (handle, gate): (Handle, Gate) = (handle.clone(), go.clone());
                std::thread::spawn(move || {
                    gate.spin();
                    let mut last = Vec::new();
                    while let Ok(fiber) = Builder::new().spawn_on(&handle, || ()) {
                        last.push(fiber);
                        if last.len() > 50 {
                            last.remove(0).join().ok();
                        }
                    }
                    // Accepted, so each of them must end.
                    for fiber in last {
                        let ended = fiber.join_timeout(Duration::from_secs(10));
                        assert!(ended.is_ok(), "a fiber was accepted and never ran");
                    }
                })
            })
            .collect();
        go.open();
        for _ in 0..rng.below(5000) {
            std::hint::spin_loop();
        }
        runtime.shutdown_timeout(LONG).unwrap();
        for spawner in spawners {
            spawner.join().unwrap();
        }
        let refused = catch_unwind(AssertUnwindSafe(|| {
            Builder::new().spawn_on(&handle, || ()).is_err()
        }));
        assert!(refused.unwrap());
    });
}

#[test]
fn wakes_that_race_with_the_end_harm_nobody() {
    seeded("wakes against the end", 80, |rng| {
        let runtime = runtime(1 + rng.below(2) as usize);
        let fibers: Vec<_> = (0..20)
            .map(|i| {
                runtime.spawn(move || {
                    if i % 2 == 0 {
                        sinew::park();
                    } else {
                        let _ = sinew::sleep(Duration::from_secs(3600));
                    }
                })
            })
            .collect();
        let targets: Vec<_> = fibers.iter().map(|fiber| fiber.fiber()).collect();
        let stop = Gate::new();
        let gate = stop.clone();
        let waker = std::thread::spawn(move || {
            while !gate.is_open() {
                for target in &targets {
                    target.unpark();
                    target.cancel();
                }
            }
        });
        runtime.shutdown_timeout(LONG).unwrap();
        stop.open();
        waker.join().unwrap();
        for fiber in fibers {
            assert!(fiber.is_finished());
        }
    });
}

#[test]
fn runtimes_in_runtimes_end_at_any_moment() {
    seeded("nested ends", 20, |rng| {
        let outer = runtime(1 + rng.below(2) as usize);
        let fibers: Vec<_> = (0..4)
            .map(|_| {
                let mut own = rng.split();
                outer.spawn(move || {
                    let inner = runtime(1 + own.below(2) as usize);
                    for _ in 0..own.below(20) {
                        let next = own.split();
                        drop(inner.spawn(move || body(next, 1)));
                    }
                    if own.chance(3) {
                        inner.run(|| ());
                    }
                    inner.shutdown_timeout(LONG).unwrap();
                })
            })
            .collect();
        for fiber in fibers {
            fiber.join().unwrap();
        }
    });
}
