//! Storms of `unpark`, cancellations and timeouts close to a wake.

use crate::harness::{Rng, runtime, wait_until};
use crate::seeded;
use sinew::{Cancelled, Fiber};
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

/// A counter that a fiber consumes: whoever adds to it unparks afterwards, so a
/// lost token is a hang.
#[derive(Default)]
struct Purse(AtomicU64);

impl Purse {
    fn pay(&self, owner: &Fiber) {
        self.0.fetch_add(1, Ordering::Relaxed);
        owner.unpark();
    }

    /// Takes `total`, parking while there is nothing.
    fn collect(&self, total: u64, rng: &mut Rng) {
        let mut have = 0;
        while have < total {
            let got = self.0.swap(0, Ordering::Relaxed);
            have += got;
            if have < total && got == 0 {
                if rng.chance(4) {
                    sinew::park_timeout(Duration::from_micros(rng.below(40)));
                } else {
                    sinew::park();
                }
            }
        }
        assert_eq!(have, total);
    }
}

#[test]
fn no_token_is_lost_in_a_storm_of_fibers_and_threads() {
    seeded("storm", 8, |rng| {
        const OWNERS: usize = 12;
        const PAYERS: u64 = 12;
        const EACH: u64 = 60;
        let runtime = runtime(1 + rng.below(3) as usize);
        let purses: Arc<Vec<Purse>> = Arc::new((0..OWNERS).map(|_| Purse::default()).collect());
        let owners: Vec<_> = (0..OWNERS)
            .map(|i| {
                let (purses, mut own) = (purses.clone(), rng.split());
                let body = move || purses[i].collect(PAYERS * EACH, &mut own);
                runtime.spawn(body)
            })
            .collect();
        let fibers: Arc<Vec<Fiber>> = Arc::new(owners.iter().map(|owner| owner.fiber()).collect());
        let pay = |mut own: Rng, fibers: Arc<Vec<Fiber>>, purses: Arc<Vec<Purse>>| {
            move || {
                let mut left = [EACH; OWNERS];
                while left.iter().any(|left| *left > 0) {
                    let i = own.below(OWNERS as u64) as usize;
                    if left[i] > 0 {
                        left[i] -= 1;
                        purses[i].pay(&fibers[i]);
                    }
                    if own.chance(5) {
                        sinew::yield_now();
                    }
                }
            }
        };
        let mut payers = Vec::new();
        let mut threads = Vec::new();
        for i in 0..PAYERS {
            let body = pay(rng.split(), fibers.clone(), purses.clone());
            if i % 4 == 0 {
                threads.push(std::thread::spawn(body));
            } else {
                payers.push(runtime.spawn(body));
            }
        }
        for payer in payers {
            payer.join().unwrap();
        }
        for thread in threads {
            thread.join().unwrap();
        }
        for owner in owners {
            owner.join().unwrap();
        }
    });
}

#[test]
fn a_cancel_within_microseconds_of_a_sleep_s_end_is_exact() {
    seeded("cancel at the deadline", 8, |rng| {
        let runtime = runtime(1 + rng.below(2) as usize);
        for _ in 0..60 {
            let time = Duration::from_micros(20 + rng.below(100));
            let sleepers: Vec<_> = (0..4)
                .map(|_| {
                    runtime.spawn(move || {
                        let first = sinew::sleep(time);
                        // Level-triggered: the next point agrees.
                        if first == Err(Cancelled) {
                            assert!(sinew::is_cancelled());
                            assert_eq!(sinew::sleep(time), Err(Cancelled));
                        }
                        first
                    })
                })
                .collect();
            let spins = rng.below(4000);
            for _ in 0..spins {
                std::hint::spin_loop();
            }
            for sleeper in &sleepers {
                sleeper.cancel();
            }
            for sleeper in sleepers {
                // Told, in time, or cancelled before it began.
                match sleeper.join() {
                    Ok(Ok(()) | Err(Cancelled)) => {}
                    Err(error) => assert!(error.is_cancelled(), "{error}"),
                }
            }
        }
        wait_until(|| runtime.stats().timers == 0 && runtime.stats().live == 0);
    });
}

#[test]
fn a_timeout_within_microseconds_of_an_unpark_is_exact() {
    seeded("unpark at the deadline", 8, |rng| {
        let runtime = runtime(1 + rng.below(2) as usize);
        let fiber = {
            let mut own = rng.split();
            runtime.spawn(move || {
                for _ in 0..500 {
                    sinew::park_timeout(Duration::from_micros(own.below(30)));
                    if own.chance(3) {
                        sinew::yield_now();
                    }
                }
                // Whatever tokens are left, this ends by one.
                sinew::park();
            })
        };
        let target = fiber.fiber();
        let helper = {
            let (target, mut own) = (target.clone(), rng.split());
            runtime.spawn(move || {
                while !target.is_finished() {
                    target.unpark();
                    let _ = sinew::sleep(Duration::from_micros(own.below(40)));
                }
            })
        };
        while !target.is_finished() {
            target.unpark();
            for _ in 0..rng.below(3000) {
                std::hint::spin_loop();
            }
        }
        fiber.join().unwrap();
        helper.join().unwrap();
    });
}

#[test]
fn wakers_woken_from_everywhere_lose_no_wake() {
    seeded("wakers", 8, |rng| {
        let runtime = runtime(1 + rng.below(2) as usize);
        const WAKES: u64 = 400;
        let slot: Arc<(AtomicU64, Mutex<Option<Waker>>)> = Arc::default();
        let theirs = slot.clone();
        let nested = rng.chance(2);
        let waiter = runtime.spawn(move || {
            let mut seen = 0;
            sinew::block_on(poll_fn(|context| {
                if nested {
                    sinew::block_on(async { sinew::spawn(|| ()).await.unwrap() });
                }
                *theirs.1.lock().unwrap() = Some(context.waker().clone());
                seen += theirs.0.swap(0, Ordering::SeqCst);
                if seen == 3 * WAKES {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            }));
        });
        let wake = |mut own: Rng, slot: Arc<(AtomicU64, Mutex<Option<Waker>>)>| {
            move || {
                for _ in 0..WAKES {
                    slot.0.fetch_add(1, Ordering::SeqCst);
                    let waker = slot.1.lock().unwrap().clone();
                    match waker {
                        Some(waker) if own.chance(2) => waker.wake(),
                        Some(waker) => waker.wake_by_ref(),
                        None => {}
                    }
                    if own.chance(8) {
                        sinew::yield_now();
                    }
                }
            }
        };
        let thread = std::thread::spawn(wake(rng.split(), slot.clone()));
        let fibers = [
            runtime.spawn(wake(rng.split(), slot.clone())),
            runtime.spawn(wake(rng.split(), slot.clone())),
        ];
        thread.join().unwrap();
        for fiber in fibers {
            fiber.join().unwrap();
        }
        waiter.join().unwrap();
    });
}
