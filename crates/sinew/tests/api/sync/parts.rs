//! Guards of a part of a value, guards that keep their lock, and their variance.

use super::spawn_parked;
use crate::harness::{in_fibers, is_expected, panic_expected};
use sinew::channel::watch;
use sinew::sync::{
    MappedMutexGuard, MappedRwLockReadGuard, MappedRwLockWriteGuard, Mutex, MutexGuard,
    OwnedMutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

#[test]
fn a_part_is_used_while_the_whole_is_locked() {
    in_fibers(|| {
        let mutex = Arc::new(Mutex::new((1, vec![2, 3])));
        let list = MutexGuard::map(mutex.lock(), |both| &mut both.1);
        let mut last = MappedMutexGuard::map(list, |list| list.last_mut().unwrap());
        let theirs = mutex.clone();
        let waits = spawn_parked(move || theirs.lock().1.clone());
        *last = 4;
        assert!(!waits.is_finished() && mutex.is_locked());
        drop(last);
        assert_eq!(waits.join().unwrap(), [2, 4]);
    });
}

#[test]
fn parts_for_reading_share_the_lock_and_one_for_writing_does_not() {
    in_fibers(|| {
        let lock = RwLock::new((1, [2, 3]));
        let first = RwLockReadGuard::map(lock.read(), |both| &both.0);
        let array = RwLockReadGuard::map(lock.read(), |both| &both.1[..]);
        let second = MappedRwLockReadGuard::map(array, |array| &array[0]);
        assert_eq!((*first, *second), (1, 2));
        drop(first);
        assert!(lock.try_write().is_err() && lock.try_read().is_ok());
        drop(second);
        let array = RwLockWriteGuard::map(lock.write(), |both| &mut both.1);
        let mut third = MappedRwLockWriteGuard::map(array, |array| &mut array[1]);
        *third += 1;
        assert!(lock.try_read().is_err());
        drop(third);
        assert_eq!(*lock.read(), (1, [2, 4]));
    });
}

#[test]
fn where_there_is_no_such_part_the_guard_comes_back_and_holds() {
    in_fibers(|| {
        let mutex = Mutex::new(vec![1]);
        let guard = MutexGuard::filter_map(mutex.lock(), |list| list.get_mut(1));
        let guard = guard.unwrap_err();
        assert!(mutex.is_locked());
        let list = MutexGuard::map(guard, |list| list);
        let list = MappedMutexGuard::filter_map(list, |list| list.get_mut(1)).unwrap_err();
        *MappedMutexGuard::filter_map(list, |list| list.get_mut(0)).unwrap() = 2;
        assert_eq!(*mutex.lock(), [2]);

        let lock = RwLock::new(vec![1]);
        let guard = RwLockReadGuard::filter_map(lock.read(), |list| list.get(1)).unwrap_err();
        assert!(lock.try_write().is_err());
        let list = RwLockReadGuard::map(guard, |list| list);
        let list = MappedRwLockReadGuard::filter_map(list, |list| list.get(1)).unwrap_err();
        drop(list);
        let guard = lock.try_write().unwrap();
        let guard = RwLockWriteGuard::filter_map(guard, |list| list.get_mut(1)).unwrap_err();
        let list = RwLockWriteGuard::map(guard, |list| list);
        let list = MappedRwLockWriteGuard::filter_map(list, |list| list.get_mut(1));
        drop(list.unwrap_err());
        assert!(lock.try_write().is_ok());
    });
}

#[test]
fn a_panic_while_the_part_is_looked_for_unlocks() {
    in_fibers(|| {
        fn panics<R>(f: impl FnOnce() -> R) {
            let caught = catch_unwind(AssertUnwindSafe(f));
            assert!(is_expected(&*caught.err().unwrap(), 3));
        }
        let (mutex, lock) = (Mutex::new(1), RwLock::new(1));
        panics(|| {
            drop(MutexGuard::map(mutex.lock(), |_| -> &mut i32 {
                panic_expected(3)
            }))
        });
        assert!(!mutex.is_locked());
        panics(|| {
            drop(RwLockReadGuard::map(lock.read(), |_| -> &i32 {
                panic_expected(3)
            }))
        });
        assert!(lock.try_write().is_ok());
        panics(|| {
            drop(RwLockWriteGuard::map(lock.write(), |_| -> &mut i32 {
                panic_expected(3)
            }));
        });
        assert!(lock.try_write().is_ok());
    });
}

#[test]
fn a_guard_that_keeps_its_mutex_outlives_all_other_owners() {
    in_fibers(|| {
        let mutex = Arc::new(Mutex::new(1));
        let weak = Arc::downgrade(&mutex);
        let mut guard = mutex.clone().lock_owned();
        assert!(mutex.clone().try_lock_owned().is_err());
        let theirs = mutex.clone();
        let waits = spawn_parked(move || *theirs.lock_owned());
        drop(mutex);
        *guard += 1;
        assert!(OwnedMutexGuard::mutex(&guard).is_locked());
        // It is given back by another fiber.
        sinew::spawn(move || drop(guard)).join().unwrap();
        assert_eq!(waits.join().unwrap(), 2);
        assert!(weak.upgrade().is_none());
    });
}

#[test]
fn guards_of_parts_are_as_sendable_as_the_references_that_they_are() {
    fn sendable<T: Send>() {}
    fn shareable<T: Sync>() {}
    // A `Cell` is `Send`, not `Sync`.
    sendable::<MappedMutexGuard<'_, Cell<u8>>>();
    sendable::<MappedRwLockWriteGuard<'_, Cell<u8>>>();
    sendable::<MappedRwLockReadGuard<'_, u8>>();
    shareable::<MappedMutexGuard<'_, u8>>();
    shareable::<MappedRwLockReadGuard<'_, u8>>();
    shareable::<MappedRwLockWriteGuard<'_, u8>>();
    shareable::<OwnedMutexGuard<u8>>();
    sendable::<OwnedMutexGuard<Cell<u8>>>();
}

// What does not compile is in `sync::variance`.
#[test]
fn guards_that_only_read_are_covariant() {
    fn read<'a>(_: RwLockReadGuard<'_, &'a i32>, _: &'a i32) {}
    fn mapped<'a>(_: MappedRwLockReadGuard<'_, &'a i32>, _: &'a i32) {}
    fn watched<'a>(_: watch::Ref<'_, &'a i32>, _: &'a i32) {}
    let long = 5;
    let (lock, (tx, rx)) = (RwLock::new(&long), watch::channel(&long));
    {
        let short = 6;
        read(lock.read(), &short);
        mapped(RwLockReadGuard::map(lock.read(), |value| value), &short);
        watched(rx.borrow(), &short);
    }
    assert_eq!(**lock.read(), 5);
    drop((lock, tx, rx));
}
