//! Locks on whole files.

use super::Folder;
use crate::harness::wait_until;
use crate::world::{everywhere, on_fibers};
use sinew::fs::{File, TryLockError};
use sinew::{Cancelled, WaitReason};
use std::io::ErrorKind;
use std::time::Duration;

fn is_locked(tried: Result<(), TryLockError>) -> bool {
    match tried {
        Ok(()) => false,
        Err(TryLockError::WouldBlock) => true,
        Err(TryLockError::Error(error)) => panic!("{error}"),
    }
}

#[test]
fn one_has_the_exclusive_lock_or_several_have_the_shared_one() {
    everywhere(|| {
        let folder = Folder::new();
        let path = folder.file("locked", "");
        let [one, two, three] = [(); 3].map(|()| File::open(&path).unwrap());
        one.lock().unwrap();
        assert!(is_locked(two.try_lock()) && is_locked(two.try_lock_shared()));
        one.unlock().unwrap();
        two.lock_shared().unwrap();
        three.try_lock_shared().unwrap();
        assert!(is_locked(one.try_lock()));
        drop(two); // closed is unlocked
        assert!(is_locked(one.try_lock()));
        three.unlock().unwrap();
        one.try_lock().unwrap();
    });
}

#[test]
fn a_clone_shares_the_lock() {
    everywhere(|| {
        let folder = Folder::new();
        let path = folder.file("locked", "");
        let (one, other) = (File::open(&path).unwrap(), File::open(&path).unwrap());
        let clone = one.try_clone().unwrap();
        one.lock().unwrap();
        clone.try_lock().unwrap();
        drop(one);
        assert!(is_locked(other.try_lock()));
        clone.unlock().unwrap();
        other.try_lock().unwrap();
    });
}

#[test]
fn a_fiber_that_waits_for_a_lock_gets_it_when_std_unlocks() {
    on_fibers(|| {
        let folder = Folder::new();
        let path = folder.file("locked", "");
        let theirs = std::fs::File::open(&path).unwrap();
        let lock = File::from(theirs.try_clone().unwrap());
        lock.lock().unwrap();
        let waiting: Vec<_> = (0..4)
            .map(|_| {
                let file = File::open(&path).unwrap();
                sinew::spawn(move || file.lock().map(|()| file.unlock()))
            })
            .collect();
        for fiber in &waiting {
            wait_until(|| fiber.fiber().wait_reason() == WaitReason::Sleep);
        }
        assert!(waiting.iter().all(|fiber| !fiber.is_finished()));
        drop((lock, theirs));
        for fiber in waiting {
            fiber.join().unwrap().unwrap().unwrap();
        }
    });
}

#[test]
fn waiting_for_a_lock_holds_no_thread_of_the_pool() {
    let runtime = sinew::Runtime::builder().workers(1).blocking_threads(1);
    let runtime = runtime.build().unwrap();
    runtime.run(|| {
        let folder = Folder::new();
        let path = folder.file("locked", "");
        let holder = File::open(&path).unwrap();
        holder.lock().unwrap();
        let file = File::open(&path).unwrap();
        let waits = sinew::spawn(move || file.lock());
        wait_until(|| waits.fiber().wait_reason() == WaitReason::Sleep);
        // The only thread is there for others: this would hang.
        assert_eq!(sinew::blocking(|| 7), 7);
        holder.unlock().unwrap();
        waits.join().unwrap().unwrap();
    });
}

#[test]
fn a_cancelled_fiber_gives_up_waiting_and_can_still_unlock() {
    on_fibers(|| {
        let folder = Folder::new();
        let path = folder.file("locked", "");
        let holder = File::open(&path).unwrap();
        holder.lock().unwrap();
        let (file, own) = (File::open(&path).unwrap(), folder.file("own", ""));
        let waits = sinew::spawn(move || {
            let own = File::open(own).unwrap();
            own.lock().unwrap();
            let other = own.try_clone().unwrap();
            let error = file.lock().unwrap_err();
            let tried = own.try_lock().unwrap_err();
            assert!(matches!(tried, TryLockError::Error(e) if Cancelled::is_in(&e)));
            other.unlock().unwrap();
            (error, file, own)
        });
        wait_until(|| waits.fiber().wait_reason() == WaitReason::Sleep);
        waits.cancel();
        let (error, file, _own) = waits.join().unwrap();
        assert!(Cancelled::is_in(&error));
        holder.unlock().unwrap();
        // It has not taken it.
        holder.try_lock().unwrap();
        drop(file);
        File::open(folder.join("own")).unwrap().try_lock().unwrap();
    });
}

#[test]
fn a_time_limit_ends_the_wait_for_a_lock() {
    everywhere(|| {
        let folder = Folder::new();
        let path = folder.file("locked", "");
        let (holder, file) = (File::open(&path).unwrap(), File::open(&path).unwrap());
        holder.lock().unwrap();
        let waited = sinew::timeout(Duration::from_millis(5), || file.lock());
        assert!(waited.is_err());
        assert!(is_locked(file.try_lock()));
    });
}

#[test]
fn the_error_of_a_try_becomes_one_of_io() {
    let error = std::io::Error::from(TryLockError::WouldBlock);
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    let denied = std::io::Error::from(ErrorKind::PermissionDenied);
    let error = std::io::Error::from(TryLockError::Error(denied));
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert_eq!(format!("{:?}", TryLockError::WouldBlock), "WouldBlock");
}
