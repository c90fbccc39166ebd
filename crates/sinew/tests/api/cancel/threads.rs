//! Plain threads: what is on their own stack cancels them, and nothing else.

use super::{HOUR, SHORT, parked};
use crate::harness::{Gate, OnDrop, in_fibers, on_workers, watch};
use sinew::channel::bounded;
use sinew::sync::{Event, Mutex, Semaphore};
use sinew::{CancelToken, Cancelled, timeout};
use std::sync::Arc;

/// Runs `f` on a thread inside of a token, cancels that after a random while, and
/// answers what `f` did.
fn on_a_cancelled_thread<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let token = CancelToken::new();
    let (theirs, begun) = (token.clone(), Gate::new());
    let gate = begun.clone();
    let thread = std::thread::spawn(move || {
        theirs.enter(|| {
            gate.open();
            f()
        })
    });
    begun.spin();
    token.cancel();
    thread.join().unwrap()
}

#[test]
fn a_token_that_a_thread_has_entered_ends_its_waits() {
    let _watch = watch();
    for _ in 0..20 {
        assert_eq!(on_a_cancelled_thread(|| sinew::sleep(HOUR)), Err(Cancelled));
        let never = Event::new();
        assert_eq!(on_a_cancelled_thread(move || never.wait()), Err(Cancelled));
        on_a_cancelled_thread(sinew::park);
        assert_eq!(
            on_a_cancelled_thread(sinew::park_or_cancelled),
            Err(Cancelled)
        );
        on_a_cancelled_thread(|| while sinew::check_cancelled().is_ok() {});
    }
}

#[test]
fn nobody_cancels_a_thread_by_its_handle() {
    let _watch = watch();
    let thread = std::thread::spawn(|| {
        let me = sinew::current();
        me.cancel();
        me.token().cancel();
        (sinew::check_cancelled(), sinew::sleep(SHORT))
    });
    assert_eq!(thread.join().unwrap(), (Ok(()), Ok(())));
}

#[test]
fn a_thread_that_a_fiber_started_is_not_the_fibers() {
    in_fibers(|| {
        let (tx, rx) = bounded(1);
        let fiber = super::spawn_begun(move || {
            sinew::current().cancel();
            std::thread::spawn(move || tx.send(sinew::check_cancelled()).unwrap());
        });
        fiber.join().unwrap();
        assert_eq!(rx.recv(), Ok(Ok(())));
    });
}

#[test]
fn a_wait_that_is_no_point_goes_on_and_is_ended_by_who_it_is_for() {
    on_workers(|runtime| {
        let mutex = Arc::new(Mutex::new(5));
        let (token, locked, told) = (CancelToken::new(), Gate::new(), Gate::new());
        let (theirs, gate) = (mutex.clone(), (locked.clone(), told.clone()));
        let holder = runtime.spawn(move || {
            let guard = theirs.lock();
            gate.0.open();
            gate.1.pass();
            drop(guard);
        });
        locked.spin();
        let theirs = token.clone();
        let thread =
            std::thread::spawn(move || theirs.enter(|| (*mutex.lock(), sinew::check_cancelled())));
        token.cancel();
        told.open();
        assert_eq!(thread.join().unwrap(), (5, Err(Cancelled)));
        holder.join().unwrap();
    });
}

#[test]
fn a_limit_inside_of_a_longer_one_is_first_on_a_thread() {
    let _watch = watch();
    let outcome = timeout(HOUR, || {
        let semaphore = Semaphore::new(0);
        let inner = timeout(SHORT, || semaphore.acquire().is_err());
        assert!(inner.unwrap_err().into_inner());
        // The thread's next wait is not ended by a limit that is gone.
        semaphore.add_permits(1);
        sinew::sleep(2 * SHORT).unwrap();
        semaphore.acquire().is_ok()
    });
    assert_eq!(outcome, Ok(true));
}

#[test]
fn a_scope_of_a_thread_is_cancelled_with_what_is_around_it() {
    let _watch = watch();
    let told = on_a_cancelled_thread(|| {
        sinew::scope(|s| {
            let child = s.spawn(|| {
                // Cancelled before it began, it drops this all the same.
                let _there = OnDrop(|| ());
                sinew::sleep(HOUR)
            });
            child.join()
        })
    });
    // The error says that it never ran.
    assert!(told.is_err() || told.is_ok_and(|answer| answer == Err(Cancelled)));
}

#[test]
fn a_thread_at_the_end_of_its_scope_is_woken_to_pass_on_what_ends_it() {
    on_workers(|runtime| {
        let token = CancelToken::new();
        let (tx, rx) = bounded(1);
        let theirs = token.clone();
        let thread = std::thread::spawn(move || {
            theirs.enter(|| {
                sinew::scope(|s| {
                    let child = s.spawn(|| sinew::sleep(HOUR));
                    tx.send(child.fiber()).unwrap();
                });
                sinew::check_cancelled()
            })
        });
        let child = rx.recv().unwrap();
        parked(&child);
        runtime.run(|| token.cancel());
        assert_eq!(thread.join().unwrap(), Err(Cancelled));
        assert!(child.is_finished());
    });
}

#[test]
fn each_thread_has_its_own_frames() {
    let _watch = watch();
    let token = CancelToken::new();
    token.cancel();
    token.enter(|| {
        assert_eq!(sinew::check_cancelled(), Err(Cancelled));
        let other = std::thread::spawn(sinew::check_cancelled);
        assert_eq!(other.join().unwrap(), Ok(()));
    });
}
