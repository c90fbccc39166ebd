//! `RwLock`: many readers or one writer, and writers first.

use super::poll::ByHand;
use super::{HOUR, SHORT, parked, seeded, settle, spawn_begun, spawn_parked};
use crate::harness::{Gate, Log, in_fibers, is_expected, panic_expected, runtime};
use crate::harness::{wait_until, watch};
use sinew::Cancelled;
use sinew::sync::{RwLock, RwLockWriteGuard, TimedOut, TryLockError};
use sinew::time::Instant;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[test]
fn readers_share_it_and_a_writer_is_alone() {
    let lock = RwLock::new(1);
    let first = lock.read();
    let second = lock.try_read().unwrap();
    assert_eq!(*first + *second, 2);
    assert!(matches!(lock.try_write(), Err(TryLockError::WouldBlock)));
    drop(first);
    assert!(lock.try_write().is_err());
    drop(second);
    let mut writer = lock.try_write().unwrap();
    *writer = 2;
    assert!(matches!(lock.try_read(), Err(TryLockError::WouldBlock)));
    assert!(lock.try_write().is_err());
    drop(writer);
    assert_eq!(*lock.read(), 2);
    *lock.write() = 3;
    assert_eq!(*lock.read(), 3);
}

#[test]
fn readers_wait_together_for_a_writer_and_go_on_together() {
    in_fibers(|| {
        let lock = Arc::new(RwLock::new(0));
        let inside = Arc::new(AtomicUsize::new(0));
        let mut writer = lock.write();
        let readers: Vec<_> = (0..5)
            .map(|_| {
                let (lock, inside) = (lock.clone(), inside.clone());
                spawn_parked(move || {
                    let guard = lock.read();
                    inside.fetch_add(1, Ordering::SeqCst);
                    // Passed only if all of them are in at once.
                    wait_until(|| inside.load(Ordering::SeqCst) == 5);
                    *guard
                })
            })
            .collect();
        settle();
        assert_eq!(inside.load(Ordering::SeqCst), 0);
        *writer = 7;
        drop(writer);
        for reader in readers {
            assert_eq!(reader.join().unwrap(), 7);
        }
    });
}

#[test]
fn a_writer_waits_for_the_last_reader() {
    in_fibers(|| {
        let lock = Arc::new(RwLock::new(0));
        let (first, second) = (lock.read(), lock.read());
        let theirs = lock.clone();
        let writer = spawn_parked(move || *theirs.write() += 1);
        drop(first);
        settle();
        assert!(!writer.is_finished());
        assert_eq!(*second, 0);
        drop(second);
        writer.join().unwrap();
        assert_eq!(*lock.read(), 1);
    });
}

#[test]
fn no_reader_enters_while_a_writer_waits() {
    in_fibers(|| {
        let lock = Arc::new(RwLock::new(Log::new()));
        let guard = lock.read();
        let theirs = lock.clone();
        let writer = spawn_parked(move || {
            let guard = theirs.write();
            sinew::yield_now();
            guard.push("writer");
        });
        assert!(lock.try_read().is_err());
        assert!(lock.read_timeout(SHORT).is_err());
        let theirs = lock.clone();
        let reader = spawn_parked(move || theirs.read().push("reader"));
        settle();
        assert!(!reader.is_finished() && !writer.is_finished());
        drop(guard);
        reader.join().unwrap();
        writer.join().unwrap();
        assert_eq!(lock.read().take(), ["writer", "reader"]);
    });
}

#[test]
fn a_stream_of_overlapping_readers_does_not_starve_a_writer() {
    in_fibers(|| {
        let lock = Arc::new(RwLock::new(()));
        let stop = Gate::new();
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let (lock, stop) = (lock.clone(), stop.clone());
                sinew::spawn(move || {
                    let mut guard = lock.read();
                    while !stop.is_open() {
                        sinew::yield_now();
                        // Never unlocked by all, unless a writer keeps one out.
                        drop(guard);
                        guard = lock.read();
                    }
                })
            })
            .collect();
        let theirs = lock.clone();
        let writer = sinew::spawn(move || drop(theirs.write()));
        wait_until(|| writer.is_finished());
        stop.open();
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

/// A writer that waits and gives up must let those in who waited behind it.
fn readers_enter_after(gives_up: fn(Arc<RwLock<()>>), cancel: bool) {
    in_fibers(|| {
        let lock = Arc::new(RwLock::new(()));
        let guard = lock.read();
        let theirs = lock.clone();
        let writer = spawn_begun(move || gives_up(theirs));
        let theirs = lock.clone();
        let reader = sinew::spawn(move || drop(theirs.read()));
        if cancel {
            parked(&reader);
            writer.cancel();
        }
        writer.join().unwrap();
        // The first reader still reads, and that is no obstacle.
        reader.join().unwrap();
        assert!(lock.try_read().is_ok());
        drop(guard);
        assert!(lock.try_write().is_ok());
    });
}

#[test]
fn readers_enter_after_a_writer_that_timed_out() {
    readers_enter_after(
        |lock| assert_eq!(lock.write_timeout(SHORT).map(|_| ()), Err(TimedOut)),
        false,
    );
}

#[test]
fn readers_enter_after_a_writer_that_was_cancelled() {
    readers_enter_after(
        |lock| assert_eq!(lock.write_or_cancelled().map(|_| ()), Err(Cancelled)),
        true,
    );
}

#[test]
fn readers_enter_after_a_writer_s_future_was_dropped() {
    let _watch = watch();
    let lock = RwLock::new(());
    let guard = lock.read();
    let writer = ByHand::waiting(lock.write_async());
    let reader = ByHand::waiting(lock.read_async());
    drop(writer);
    drop(reader.woken());
    assert!(lock.try_read().is_ok());
    drop(guard);
    assert!(lock.try_write().is_ok());
}

#[test]
fn a_downgrade_lets_readers_in_but_no_writer() {
    in_fibers(|| {
        let lock = Arc::new(RwLock::new(0));
        let mut guard = lock.write();
        *guard = 1;
        let theirs = lock.clone();
        let reader = spawn_parked(move || *theirs.read());
        let guard = RwLockWriteGuard::downgrade(guard);
        assert_eq!(reader.join().unwrap(), 1);
        assert_eq!(*lock.try_read().unwrap(), 1);
        assert!(lock.try_write().is_err());
        let theirs = lock.clone();
        let writer = spawn_parked(move || *theirs.write() += 1);
        settle();
        assert!(!writer.is_finished());
        assert_eq!(*guard, 1);
        drop(guard);
        writer.join().unwrap();
        assert_eq!(*lock.read(), 2);
    });
}

#[test]
fn a_downgrade_lets_no_waiting_writer_in_between() {
    in_fibers(|| {
        let lock = Arc::new(RwLock::new(0));
        let mut guard = lock.write();
        let writers: Vec<_> = (0..4)
            .map(|_| {
                let lock = lock.clone();
                spawn_parked(move || *lock.write() += 1)
            })
            .collect();
        *guard = 10;
        let guard = RwLockWriteGuard::downgrade(guard);
        for _ in 0..10 {
            settle();
            assert_eq!(*guard, 10);
        }
        drop(guard);
        for writer in writers {
            writer.join().unwrap();
        }
        assert_eq!(*lock.read(), 14);
    });
}

#[test]
fn a_panic_inside_unlocks_and_poisons_nothing() {
    in_fibers(|| {
        for write in [false, true] {
            let lock = Arc::new(RwLock::new(5));
            let (theirs, go, inside) = (lock.clone(), Gate::new(), Gate::new());
            let gates = (go.clone(), inside.clone());
            let holder = sinew::spawn(move || {
                let _guards = if write {
                    (Some(theirs.write()), None)
                } else {
                    (None, Some(theirs.read()))
                };
                gates.1.open();
                gates.0.pass();
                panic_expected(2)
            });
            inside.pass();
            let theirs = lock.clone();
            let waiter = spawn_parked(move || *theirs.write() += 1);
            go.open();
            waiter.join().unwrap();
            let error = holder.join().map(|()| ()).unwrap_err();
            assert!(is_expected(&*error.into_panic(), 2));
            assert_eq!(*lock.try_read().unwrap(), 6);
        }
    });
}

#[test]
fn readers_see_writes_whole_and_none_is_lost() {
    let mut rng = seeded();
    let seeds: Vec<u64> = (0..8).map(|_| rng.next()).collect();
    in_fibers(|| {
        let lock = Arc::new(RwLock::new((0_u64, 0_u64)));
        let fibers: Vec<_> = seeds
            .iter()
            .map(|seed| {
                let (lock, mut rng) = (lock.clone(), crate::harness::Rng::new(*seed));
                sinew::spawn(move || {
                    let mut written = 0;
                    for _ in 0..60 {
                        match rng.below(5) {
                            0 => {
                                let mut guard = lock.write();
                                guard.0 += 1;
                                sinew::yield_now();
                                guard.1 += 1;
                                written += 1;
                            }
                            1 => {
                                let mut guard = lock.write();
                                guard.0 += 1;
                                guard.1 += 1;
                                written += 1;
                                let guard = RwLockWriteGuard::downgrade(guard);
                                let before = *guard;
                                sinew::yield_now();
                                assert_eq!(*guard, before);
                            }
                            _ => {
                                let guard = lock.read();
                                let before = *guard;
                                assert_eq!(before.0, before.1);
                                sinew::yield_now();
                                assert_eq!(*guard, before);
                            }
                        }
                    }
                    written
                })
            })
            .collect();
        let written: u64 = fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum();
        assert_eq!(*lock.read(), (written, written));
    });
}

#[test]
fn it_has_what_std_s_has() {
    static LOCK: RwLock<u32> = RwLock::new(1);
    *LOCK.write() += 1;
    assert_eq!(*LOCK.read(), 2);
    let mut lock = RwLock::from(String::from("a"));
    lock.get_mut().push('b');
    assert!(format!("{lock:?}").contains("ab"));
    {
        let guard = lock.write();
        assert_eq!(format!("{guard:?}"), "\"ab\"");
        assert_eq!(format!("{guard}"), "ab");
        assert!(format!("{lock:?}").contains("<locked>"));
    }
    let guard = lock.read();
    assert_eq!(format!("{guard:?}"), "\"ab\"");
    assert_eq!(format!("{guard}"), "ab");
    drop(guard);
    assert_eq!(lock.into_inner(), "ab");
    assert_eq!(*RwLock::<u8>::default().read(), 0);
    let slice: &RwLock<[u8]> = &RwLock::new([1, 2, 3]);
    slice.write()[1] = 5;
    assert_eq!(*slice.read(), [1, 5, 3]);
    fn sync<T: Send + Sync>() {}
    sync::<RwLock<u8>>();
}

#[test]
fn timeouts_are_not_early_and_need_nothing_that_is_free() {
    in_fibers(|| {
        let lock = RwLock::new(1);
        let past = Instant::now();
        assert!(lock.read_timeout(Duration::ZERO).is_ok());
        assert!(lock.read_deadline(past).is_ok());
        assert!(lock.write_timeout(Duration::ZERO).is_ok());
        assert!(lock.write_deadline(past).is_ok());
        let guard = lock.write();
        for time in [Duration::ZERO, SHORT] {
            let begun = Instant::now();
            assert_eq!(lock.read_timeout(time).map(|_| ()), Err(TimedOut));
            assert!(begun.elapsed() >= time);
            let until = Instant::now() + time;
            assert_eq!(lock.write_deadline(until).map(|_| ()), Err(TimedOut));
            assert!(Instant::now() >= until);
        }
        drop(guard);
        let guard = lock.read();
        assert!(lock.read_timeout(HOUR).is_ok());
        assert_eq!(lock.write_timeout(SHORT).map(|_| ()), Err(TimedOut));
        drop(guard);
        assert!(lock.write_timeout(HOUR).is_ok());
    });
}

#[test]
fn it_is_no_point_but_its_twins_are() {
    in_fibers(|| {
        let lock = Arc::new(RwLock::new(0));
        let guard = lock.write();
        let theirs = lock.clone();
        let deaf_reader = spawn_parked(move || *theirs.read());
        let theirs = lock.clone();
        let deaf_writer = spawn_parked(move || *theirs.write() += 1);
        let theirs = lock.clone();
        let reader = spawn_parked(move || theirs.read_or_cancelled().map(|_| ()));
        for fiber in [deaf_reader.fiber(), deaf_writer.fiber(), reader.fiber()] {
            fiber.cancel();
        }
        assert_eq!(reader.join().unwrap(), Err(Cancelled));
        settle();
        assert!(!deaf_reader.is_finished() && !deaf_writer.is_finished());
        drop(guard);
        deaf_reader.join().unwrap();
        deaf_writer.join().unwrap();
        sinew::spawn(|| {
            let lock = RwLock::new(0);
            sinew::current().cancel();
            assert_eq!(lock.read_or_cancelled().map(|_| ()), Err(Cancelled));
            assert_eq!(lock.write_or_cancelled().map(|_| ()), Err(Cancelled));
            assert!(lock.try_write().is_ok());
        })
        .join()
        .unwrap();
    });
}

#[test]
fn futures_read_together_and_write_alone() {
    let _watch = watch();
    let lock = RwLock::new(0);
    let guard = lock.write();
    let mut readers = [
        ByHand::waiting(lock.read_async()),
        ByHand::waiting(lock.read_async()),
    ];
    assert!(readers[1].poll_elsewhere().is_none());
    drop(guard);
    let guards = readers.map(ByHand::woken);
    let writer = ByHand::waiting(lock.write_async());
    drop(guards);
    *writer.woken() += 1;
    assert_eq!(*lock.try_read().unwrap(), 1);
}

#[test]
fn a_woken_future_that_is_dropped_passes_its_turn_on() {
    let _watch = watch();
    let lock = RwLock::new(());
    // A writer, to the next writer.
    let guard = lock.write();
    let first = ByHand::waiting(lock.write_async());
    let second = ByHand::waiting(lock.write_async());
    drop(guard);
    assert!(first.is_woken());
    drop(first);
    drop(second.woken());
    // A writer, to the readers behind it.
    let guard = lock.read();
    let writer = ByHand::waiting(lock.write_async());
    let readers = [
        ByHand::waiting(lock.read_async()),
        ByHand::waiting(lock.read_async()),
    ];
    drop(guard);
    drop(writer);
    drop(readers.map(ByHand::woken));
    // Readers, to a writer.
    let guard = lock.write();
    let reader = ByHand::waiting(lock.read_async());
    drop(guard);
    assert!(reader.is_woken());
    drop(reader);
    assert!(lock.try_write().is_ok());
}

#[test]
fn a_woken_writer_s_future_that_is_dropped_passes_its_turn_on_to_fibers() {
    let _watch = watch();
    let runtime = runtime(1);
    let lock = Arc::new(RwLock::new(()));
    let guard = lock.write();
    let first = ByHand::waiting(lock.write_async());
    let fibers: Vec<_> = [true, false]
        .into_iter()
        .map(|write| {
            let lock = lock.clone();
            let fiber = runtime.spawn(move || {
                if write {
                    drop(lock.write());
                } else {
                    drop(lock.read());
                }
            });
            parked(&fiber);
            fiber
        })
        .collect();
    drop(guard);
    drop(first);
    for fiber in fibers {
        fiber.join().unwrap();
    }
}
