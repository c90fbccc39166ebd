//! Models of what counts: `semaphore`, `sequencer`, `futex`, `wait_group` and
//! `barrier`, with threads and tasks as waiters.
//!
//! Every ordering below was weakened once by hand; the model named caught it.
//!
//! | weakened                                         | caught by |
//! |--------------------------------------------------|-----------|
//! | `Semaphore::forget_permits` Acquire → Relaxed    | `who_takes_a_permit_sees…` |
//! | `Semaphore::close` Release → Relaxed             | `who_is_refused_by_a_closed_semaphore…` |
//! | `Semaphore::is_closed` Acquire → Relaxed         | `who_is_refused_by_a_closed_semaphore…` |
//! | `Semaphore::try_take`, load Acquire → Relaxed    | `who_is_refused_by_a_closed_semaphore…` |
//! | `Semaphore::try_take`, success Acquire → Relaxed | `who_takes_a_permit_sees…` |
//! | `Semaphore::try_take`, failure Acquire → Relaxed | `who_is_refused_by_a_closed_semaphore…` |
//! | `Semaphore::give` Release → Relaxed              | `who_takes_a_permit_sees…`, `who_takes_many_permits…` |
//! | `Semaphore::give_slow` Release → Relaxed         | `who_takes_a_permit_that_others_in_line_have_left…` |
//! | `Acquire::enlist` Acquire → Relaxed              | `who_takes_many_permits…` |
//! | `Sequencer::get` Acquire → Relaxed               | all models of sequencer and futex |
//! | `Sequencer::step` Release → Relaxed              | all models of sequencer and futex |
//! | `Sequencer::wake_reached` Acquire → Relaxed      | `who_waits_sees_what_came_before_each_step`, `two_who_advance…` |
//! | `SequencerWait::enlist_unless`, load Acquire → Relaxed | `the_waiter_at_the_last_token…`, `two_who_advance…` |
//! | `SequencerWait::enlist_unless`, success Acquire → Relaxed | nothing: not needed (1) |
//! | `SequencerWait::enlist_unless`, failure Acquire → Relaxed | `the_waiter_at_the_last_token…`, `two_who_advance…` |
//! | `Futex::stop` Release → Relaxed                  | `a_stop_ends_a_wait…` |
//! | `Futex::is_stopped` Acquire → Relaxed            | `a_stop_ends_a_wait…` |
//! | `Group::is_done` Acquire → Relaxed               | `a_group_ends…` |
//! | `Group::leave` AcqRel → either half              | `a_group_ends…` |
//! | `Group::join`, load and failure Acquire → Relaxed | `a_group_ends…` |
//! | `Group::join`, success Release → Relaxed         | nothing: not needed (2) |
//! | `GroupWait::enlist` Acquire → Relaxed            | `a_group_ends…` |
//!
//! (1) Who sets the bit has to wait, and is ordered by its notification. (2) A
//! read-modify-write carries on what others have released.
//!
//! A barrier has no atomics of its own.

use super::loom_tests::{add_one, bounded, poll, threads};
use super::{AcquireError, AcquireTimeoutError, Semaphore};
use super::{Barrier, Futex, FutexError, Sequencer, WaitGroup};
use crate::primitive::model::Plain;
use crate::primitive::{AtomicUsize, Ordering};
use loom::sync::Arc;
use loom::thread;
use std::pin::pin;
use std::time::Duration;

/// Permits, and two cells.
struct Pool {
    permits: Semaphore,
    cells: [Plain<u32>; 2],
}

impl Pool {
    fn new(permits: usize) -> Arc<Self> {
        Arc::new(Self {
            permits: Semaphore::new(permits),
            cells: [Plain::new(0), Plain::new(0)],
        })
    }

    fn add_one(&self) {
        let _permit = self.permits.acquire().unwrap();
        add_one(&self.cells[0]);
    }
}

#[test]
fn who_takes_a_permit_sees_what_came_before_its_release() {
    bounded(2).check(|| {
        let pool = Pool::new(1);
        threads(&pool, &[Pool::add_one, Pool::add_one, Pool::add_one]);
        assert_eq!(pool.cells[0].get(), 3);
        assert_eq!(pool.permits.available_permits(), 1);
    });
    bounded(3).check(|| {
        let pool = Pool::new(1);
        let forgets = |pool: &Pool| {
            if pool.permits.forget_permits(1) == 1 {
                add_one(&pool.cells[0]);
                pool.permits.add_permits(1);
            }
        };
        threads(&pool, &[Pool::add_one, forgets]);
        assert!(pool.cells[0].get() >= 1);
    });
}

#[test]
fn who_takes_many_permits_sees_what_came_before_each_of_them() {
    bounded(3).check(|| {
        let pool = Pool::new(0);
        let release: [fn(&Pool); 2] = [
            |pool| {
                pool.cells[0].set(7);
                pool.permits.add_permits(1);
            },
            |pool| {
                pool.cells[1].set(7);
                pool.permits.add_permits(1);
            },
        ];
        let both = |pool: &Pool| {
            let permits = pool.permits.acquire_many(2).unwrap();
            assert_eq!((pool.cells[0].get(), pool.cells[1].get()), (7, 7));
            permits.forget();
        };
        threads(&pool, &[release[0], release[1], both]);
        assert_eq!(pool.permits.available_permits(), 0);
    });
}

#[test]
fn who_takes_a_permit_that_others_in_line_have_left_sees_what_came_before() {
    bounded(2).check(|| {
        let pool = Pool::new(0);
        let waits = |pool: &Pool| pool.permits.acquire().unwrap().forget();
        let gives = |pool: &Pool| {
            pool.cells[0].set(7);
            pool.permits.add_permits(2);
        };
        let looks = |pool: &Pool| {
            if let Ok(permit) = pool.permits.try_acquire() {
                assert_eq!(pool.cells[0].get(), 7);
                drop(permit);
            }
        };
        threads(&pool, &[waits, gives, looks]);
        assert_eq!(pool.permits.available_permits(), 1);
    });
}

#[test]
fn who_wants_many_permits_and_who_wants_one_all_get_theirs() {
    bounded(2).check(|| {
        let pool = Pool::new(0);
        let many = |pool: &Pool| pool.permits.acquire_many(2).unwrap().forget();
        let one = |pool: &Pool| pool.permits.acquire().unwrap().forget();
        let release = |pool: &Pool| {
            pool.permits.add_permits(1);
            pool.permits.add_permits(2);
        };
        threads(&pool, &[many, one, release]);
        assert_eq!(pool.permits.available_permits(), 0);
    });
}

#[test]
fn who_is_refused_by_a_closed_semaphore_sees_what_came_before() {
    bounded(3).check(|| {
        let pool = Pool::new(0);
        let refused = |pool: &Pool| {
            assert_eq!(pool.permits.acquire().unwrap_err(), AcquireError::Closed);
            assert_eq!(pool.cells[0].get(), 7);
        };
        let looks = |pool: &Pool| {
            if pool.permits.is_closed() {
                assert_eq!(pool.cells[0].get(), 7);
            }
        };
        let close = |pool: &Pool| {
            pool.cells[0].set(7);
            pool.permits.close();
        };
        threads(&pool, &[refused, close, looks]);
    });
    // Also if there are permits.
    bounded(3).check(|| {
        let pool = Pool::new(1);
        let takes = |pool: &Pool| match pool.permits.try_acquire() {
            Ok(permit) => drop(permit),
            Err(_) => assert_eq!(pool.cells[0].get(), 7),
        };
        let closes = |pool: &Pool| {
            pool.cells[0].set(7);
            pool.permits.close();
        };
        threads(&pool, &[closes, takes]);
    });
    // Permits that come while it is closed are not lost either.
    bounded(2).check(|| {
        let pool = Pool::new(0);
        let waits = |pool: &Pool| {
            if let Ok(permit) = pool.permits.acquire() {
                permit.forget();
                add_one(&pool.cells[0]);
            }
        };
        let gives = |pool: &Pool| pool.permits.add_permits(1);
        let closes = |pool: &Pool| pool.permits.close();
        threads(&pool, &[waits, gives, closes]);
        let taken = pool.cells[0].get() as usize;
        assert_eq!(pool.permits.available_permits(), 1 - taken);
    });
}

#[test]
fn who_gives_up_waiting_for_a_permit_takes_none_along() {
    bounded(3).check(|| {
        let pool = Pool::new(0);
        let hasty = |pool: &Pool| match pool.permits.acquire_timeout(Duration::ZERO) {
            Ok(permit) => {
                assert_eq!(pool.cells[0].get(), 7);
                drop(permit);
            }
            Err(error) => assert_eq!(error, AcquireTimeoutError::Timeout),
        };
        let release = |pool: &Pool| {
            pool.cells[0].set(7);
            pool.permits.add_permits(1);
        };
        threads(&pool, &[hasty, release]);
        assert_eq!(pool.permits.available_permits(), 1);
    });
    // A future that wants two is dropped, before or after they came; who stands
    // behind it goes on.
    bounded(2).check(|| {
        let pool = Pool::new(1);
        let (one, release) = {
            let mut many = pin!(pool.permits.acquire_many_async(2));
            assert!(poll(many.as_mut()).is_pending());
            let start = |role: fn(&Pool)| {
                let pool = pool.clone();
                thread::spawn(move || role(&pool))
            };
            (
                start(|pool| pool.permits.acquire().unwrap().forget()),
                start(|pool| pool.permits.add_permits(1)),
            )
        };
        one.join().unwrap();
        release.join().unwrap();
        assert_eq!(pool.permits.available_permits(), 1);
    });
}

/// Something to wait for, and what is written before.
pub(super) type With<T> = (T, [Plain<u32>; 2]);

pub(super) fn with<T>(signal: T) -> Arc<With<T>> {
    Arc::new((signal, [Plain::new(0), Plain::new(0)]))
}

#[test]
fn the_waiter_at_the_last_token_is_woken() {
    bounded(3).check(|| {
        let waits = |sequencer: &With<Sequencer>| {
            sequencer.0.wait(2).unwrap();
            assert_eq!(sequencer.1[0].get(), 7);
        };
        let counts = |sequencer: &With<Sequencer>| {
            sequencer.0.increment();
            sequencer.1[0].set(7);
            sequencer.0.increment();
        };
        threads(&with(Sequencer::new()), &[waits, counts]);
    });
}

#[test]
fn who_waits_sees_what_came_before_each_step() {
    bounded(2).check(|| {
        let waits = |sequencer: &With<Sequencer>| {
            sequencer.0.wait(2).unwrap();
            assert_eq!((sequencer.1[0].get(), sequencer.1[1].get()), (7, 7));
        };
        let first = |sequencer: &With<Sequencer>| {
            sequencer.1[0].set(7);
            sequencer.0.increment();
        };
        let second = |sequencer: &With<Sequencer>| {
            sequencer.1[1].set(7);
            sequencer.0.increment();
        };
        threads(&with(Sequencer::new()), &[waits, first, second]);
    });
    bounded(3).check(|| {
        let looks = |sequencer: &With<Sequencer>| {
            if sequencer.0.get() == 1 {
                assert_eq!(sequencer.1[0].get(), 7);
            }
        };
        let counts = |sequencer: &With<Sequencer>| {
            sequencer.1[0].set(7);
            sequencer.0.advance(1);
        };
        threads(&with(Sequencer::new()), &[counts, looks]);
    });
}

#[test]
fn two_who_advance_wake_two_who_wait() {
    bounded(2).check(|| {
        let waits = |sequencer: &With<Sequencer>| {
            sequencer.0.wait(2).unwrap();
            assert_eq!(sequencer.1[0].get(), 7);
        };
        let advances = |sequencer: &With<Sequencer>| {
            sequencer.0.advance(1);
        };
        let both = |sequencer: &With<Sequencer>| {
            sequencer.1[0].set(7);
            sequencer.0.advance(2);
            sequencer.0.wait(1).unwrap();
        };
        threads(&with(Sequencer::new()), &[waits, advances, both]);
    });
    // One that gives up takes nobody's wake-up along.
    bounded(2).check(|| {
        let waits = |sequencer: &With<Sequencer>| {
            sequencer.0.wait(1).unwrap();
            assert_eq!(sequencer.1[0].get(), 7);
        };
        let hasty = |sequencer: &With<Sequencer>| {
            if sequencer.0.wait_timeout(1, Duration::ZERO).is_ok() {
                assert_eq!(sequencer.1[0].get(), 7);
            }
        };
        let advances = |sequencer: &With<Sequencer>| {
            sequencer.1[0].set(7);
            sequencer.0.advance(1);
        };
        threads(&with(Sequencer::new()), &[waits, hasty, advances]);
    });
}

#[test]
fn a_stop_ends_a_wait_and_a_post_is_not_lost() {
    bounded(3).check(|| {
        let waits = |futex: &With<Futex>| {
            assert_eq!(futex.0.wait(2), Err(FutexError::Stopped));
            assert_eq!(futex.1[0].get(), 7);
        };
        let stops = |futex: &With<Futex>| {
            futex.0.post();
            futex.1[0].set(7);
            futex.0.stop();
        };
        threads(&with(Futex::new()), &[waits, stops]);
    });
    bounded(3).check(|| {
        let waits = |futex: &With<Futex>| {
            // Posted before the stop.
            futex.0.wait(1).unwrap();
            assert_eq!(futex.1[0].get(), 7);
        };
        let looks = |futex: &With<Futex>| {
            if futex.0.is_stopped() {
                assert_eq!(futex.1[0].get(), 7);
            }
        };
        let stops = |futex: &With<Futex>| {
            futex.1[0].set(7);
            futex.0.post();
            futex.0.stop();
        };
        threads(&with(Futex::new()), &[waits, stops, looks]);
    });
}

#[test]
fn a_group_ends_when_all_have_left() {
    for hasty in [false, true] {
        bounded(2).check(move || {
            let cells = Arc::new([Plain::new(0), Plain::new(0)]);
            let group = WaitGroup::new();
            let members = [0, 1].map(|i| {
                let (group, cells) = (group.clone(), cells.clone());
                thread::spawn(move || {
                    cells[i].set(7);
                    drop(group);
                })
            });
            let group = if hasty {
                // It comes back if there are others left.
                group.wait_timeout(Duration::ZERO).err()
            } else {
                Some(group)
            };
            if let Some(group) = group {
                group.wait();
            }
            assert_eq!((cells[0].get(), cells[1].get()), (7, 7));
            for member in members {
                member.join().unwrap();
            }
        });
    }
}

#[test]
fn a_barrier_lets_all_go_on_and_one_lead() {
    bounded(2).check(|| {
        let barrier = with((Barrier::new(2), AtomicUsize::new(0)));
        let twice: [fn(&With<(Barrier, AtomicUsize)>); 2] =
            [|shared| meet(shared, 0), |shared| meet(shared, 1)];
        threads(&barrier, &twice);
        assert_eq!(barrier.0.1.load(Ordering::Relaxed), 2);
    });
    bounded(2).check(|| {
        let barrier = with(Barrier::new(3));
        let meets = |barrier: &With<Barrier>| {
            barrier.0.wait();
        };
        threads(&barrier, &[meets, meets, meets]);
    });
}

/// Two generations of a barrier for two.
fn meet(shared: &With<(Barrier, AtomicUsize)>, me: usize) {
    for round in 1..=2 {
        shared.1[me].set(round);
        if shared.0.0.wait().is_leader() {
            shared.0.1.fetch_add(1, Ordering::Relaxed);
        }
    }
    assert_eq!(shared.1[1 - me].get(), 2);
}

#[test]
fn who_leaves_a_barrier_before_the_others_came_was_never_there() {
    bounded(3).check(|| {
        let barrier = with(Barrier::new(2));
        let other = thread::spawn({
            let barrier = barrier.clone();
            move || {
                barrier.1[0].set(7);
                barrier.0.wait_timeout(Duration::ZERO).is_ok()
            }
        });
        let met = barrier.0.wait_timeout(Duration::ZERO).is_ok();
        if met {
            assert_eq!(barrier.1[0].get(), 7);
        }
        // All or nobody.
        assert_eq!(other.join().unwrap(), met);
    });
}
