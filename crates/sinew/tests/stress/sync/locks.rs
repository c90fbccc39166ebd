//! Locks and permits that are waited for and given up at once.

#[path = "../../harness/level.rs"]
mod level;

use super::{dawdle, hasty, moment, some_workers, storm};
use crate::harness::{Gate, Log, Rng, wait_until};
use crate::seeded;
use level::{ALL, running_at};
use sinew::Builder;
use sinew::sync::{FairMutex, Mutex, RwLock, Semaphore};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

#[test]
fn no_permit_is_lost_or_made() {
    seeded("permits", 96, |rng| {
        const PERMITS: usize = 3;
        let runtime = some_workers(rng);
        let semaphore = Arc::new(Semaphore::new(PERMITS));
        let inside = Arc::new(AtomicUsize::new(0));
        let theirs = semaphore.clone();
        storm(rng, &runtime, 30, move |mut rng| {
            for _ in 0..15 {
                let n = 1 + rng.below(PERMITS as u64) as usize;
                let permit = match rng.below(5) {
                    0 => theirs.clone().acquire_many_owned(n).ok(),
                    1 => theirs.clone().try_acquire_many_owned(n).ok(),
                    2 => hasty(&mut rng, theirs.clone().acquire_many_owned_async(n))
                        .map(Result::unwrap),
                    3 => {
                        let theirs = theirs.clone();
                        theirs.acquire_owned_timeout(moment(&mut rng)).ok()
                    }
                    _ => {
                        let time = moment(&mut rng);
                        drop(theirs.acquire_many_timeout(n, time));
                        None
                    }
                };
                let Some(mut permit) = permit else { continue };
                let n = permit.num_permits();
                assert!(inside.fetch_add(n, Ordering::SeqCst) + n <= PERMITS);
                dawdle(&mut rng);
                inside.fetch_sub(n, Ordering::SeqCst);
                if rng.chance(3) {
                    drop(permit.split(1));
                }
            }
        });
        assert_eq!(semaphore.available_permits(), PERMITS);
        assert!(semaphore.try_acquire_many(PERMITS).is_ok());
    });
}

#[test]
fn a_mutex_is_had_exactly_as_often_as_it_is_said() {
    seeded("mutex", 96, |rng| {
        let runtime = some_workers(rng);
        let mutex = Arc::new(Mutex::new(0_u64));
        let had = Arc::new(AtomicU64::new(0));
        let (theirs, count) = (mutex.clone(), had.clone());
        storm(rng, &runtime, 30, move |mut rng| {
            for _ in 0..20 {
                let time = moment(&mut rng);
                let guard = match rng.below(5) {
                    0 => theirs.lock_or_cancelled().ok(),
                    1 => theirs.lock_timeout(time).ok(),
                    2 => hasty(&mut rng, theirs.lock_async()),
                    3 => theirs.try_lock().ok(),
                    _ => Some(theirs.lock()),
                };
                if let Some(mut guard) = guard {
                    let before = *guard;
                    dawdle(&mut rng);
                    *guard = before + 1;
                    count.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        let guard = mutex.try_lock().expect("nobody holds it");
        assert_eq!(*guard, had.load(Ordering::SeqCst));
    });
}

#[test]
fn no_ticket_is_ever_stuck() {
    seeded("tickets", 96, |rng| {
        let runtime = some_workers(rng);
        let mutex = Arc::new(FairMutex::new(0_u64));
        let had = Arc::new(AtomicU64::new(0));
        let (theirs, count) = (mutex.clone(), had.clone());
        storm(rng, &runtime, 30, move |mut rng| {
            for _ in 0..15 {
                let time = moment(&mut rng);
                let guard = match rng.below(8) {
                    0 => theirs.lock_or_cancelled().ok(),
                    1 => theirs.lock_timeout(time).ok(),
                    2 => hasty(&mut rng, theirs.lock_async()),
                    3 => Some(theirs.ticket().lock()),
                    ticket => {
                        let place = theirs.ticket();
                        dawdle(&mut rng);
                        match ticket {
                            4 => place.lock_or_cancelled().ok(),
                            5 => place.lock_timeout(time).ok(),
                            6 => hasty(&mut rng, place.lock_async()),
                            _ => place.try_lock().ok(), // a ticket that comes back is dropped
                        }
                    }
                };
                if let Some(mut guard) = guard {
                    let before = *guard;
                    dawdle(&mut rng);
                    *guard = before + 1;
                    count.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        let guard = mutex.try_lock().expect("nobody holds it");
        assert_eq!(*guard, had.load(Ordering::SeqCst));
    });
}

#[test]
fn a_read_write_lock_is_free_in_the_end_and_no_write_is_seen_half() {
    seeded("read-write lock", 96, |rng| {
        let runtime = some_workers(rng);
        let lock = Arc::new(RwLock::new((0_u64, 0_u64)));
        let written = Arc::new(AtomicU64::new(0));
        let (theirs, count) = (lock.clone(), written.clone());
        storm(rng, &runtime, 30, move |mut rng| {
            for _ in 0..15 {
                let time = moment(&mut rng);
                let how = rng.below(4);
                if rng.chance(3) {
                    let guard = match how {
                        0 => theirs.write_or_cancelled().ok(),
                        1 => theirs.write_timeout(time).ok(),
                        2 => hasty(&mut rng, theirs.write_async()),
                        _ => Some(theirs.write()),
                    };
                    if let Some(mut guard) = guard {
                        guard.0 += 1;
                        dawdle(&mut rng);
                        guard.1 += 1;
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                } else {
                    let guard = match how {
                        0 => theirs.read_or_cancelled().ok(),
                        1 => theirs.read_timeout(time).ok(),
                        2 => hasty(&mut rng, theirs.read_async()),
                        _ => Some(theirs.read()),
                    };
                    if let Some(guard) = guard {
                        assert_eq!(guard.0, guard.1);
                        dawdle(&mut rng);
                        assert_eq!(guard.0, guard.1);
                    }
                }
            }
        });
        let written = written.load(Ordering::SeqCst);
        let guard = lock.try_write().expect("nobody holds it");
        assert_eq!(*guard, (written, written));
    });
}

#[test]
fn with_all_locks_given_back_every_fiber_runs_at_its_own_priority() {
    const FIBERS: usize = 12;
    seeded("loans", 24, |rng| {
        let runtime = level::runtime(2);
        let mutexes = Arc::new([(); 3].map(Mutex::new));
        let (begun, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let log = Log::new();
        let fibers: Vec<_> = (0..FIBERS)
            .map(|_| {
                let own = ALL[rng.below(4) as usize];
                let (mutexes, mut rng) = (mutexes.clone(), rng.split());
                let (begun, done, turn) = (begun.clone(), done.clone(), Gate::new());
                let (log, gate) = (log.clone(), turn.clone());
                let fiber = Builder::new().priority(own).spread();
                let fiber = fiber.spawn_on(&runtime.handle(), move || {
                    begun.fetch_add(1, Ordering::SeqCst);
                    for _ in 0..30 {
                        nest(&mut rng, &*mutexes);
                    }
                    done.fetch_add(1, Ordering::SeqCst);
                    while !gate.is_open() {
                        sinew::park(); // those who measure want peace
                    }
                    log.push((own, running_at()));
                });
                (fiber.unwrap(), turn)
            })
            .collect();
        wait_until(|| begun.load(Ordering::SeqCst) == FIBERS);
        for (fiber, _) in &fibers {
            if rng.chance(3) {
                dawdle(rng);
                fiber.cancel();
            }
        }
        wait_until(|| done.load(Ordering::SeqCst) == FIBERS);
        for (measured, (fiber, turn)) in fibers.iter().enumerate() {
            turn.open();
            fiber.fiber().unpark();
            wait_until(|| log.len() > measured);
        }
        for (own, at) in log.take() {
            assert_eq!(at, own);
        }
    });
}

/// Takes some of the mutexes, in order, and gives them back in any.
fn nest(rng: &mut Rng, mutexes: &[Mutex<()>]) {
    let mut guards = Vec::new();
    for mutex in mutexes {
        let time = moment(rng);
        guards.push(match rng.below(6) {
            0 => mutex.lock_or_cancelled().ok(),
            1 => mutex.lock_timeout(time).ok(),
            2 => mutex.try_lock().ok(),
            3 => None,
            _ => Some(mutex.lock()),
        });
        dawdle(rng);
        if rng.chance(3) {
            guards.swap_remove(rng.below(guards.len() as u64) as usize);
        }
    }
}
