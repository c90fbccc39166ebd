//! Cancelling the fiber that owns a scope reaches all below, whatever it does just now.

use super::{HOUR, waits_in};
use crate::harness::{Gate, in_fibers, on_workers, wait_until};
use sinew::sync::{Event, Mutex};
use sinew::{Cancelled, Fiber, WaitReason, scope, shield};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn a_scope_made_in_a_cancelled_fiber_is_cancelled() {
    in_fibers(|| {
        sinew::spawn(|| {
            sinew::current().cancel();
            scope(|s| {
                assert!(s.is_cancelled());
                assert!(s.token().is_cancelled());
                let child = s.spawn(|| ());
                assert!(child.join().unwrap_err().is_cancelled());
                assert_eq!(sinew::check_cancelled(), Err(Cancelled));
            });
        })
        .join()
        .unwrap();
    });
}

/// Those that sleep below an owner, and those of them that were cancelled.
#[derive(Clone, Default)]
struct Below {
    asleep: Arc<std::sync::Mutex<Vec<Fiber>>>,
    cancelled: Arc<AtomicUsize>,
}

impl Below {
    fn sleep(&self) {
        self.asleep.lock().unwrap().push(sinew::current());
        assert_eq!(sinew::sleep(HOUR), Err(Cancelled));
        self.cancelled.fetch_add(1, Ordering::SeqCst);
    }

    /// A child, and a child of its own scope, who both sleep.
    fn start<'scope>(&'scope self, s: &'scope sinew::Scope<'scope, '_>) {
        s.spawn(|| {
            scope(|inner| {
                inner.spawn(|| self.sleep());
                self.sleep();
            });
        });
    }

    fn wait_until_asleep(&self) {
        wait_until(|| {
            let fibers = self.asleep.lock().unwrap();
            let sleeps = |fiber: &Fiber| fiber.wait_reason() == WaitReason::Sleep;
            fibers.len() == 2 && fibers.iter().all(sleeps)
        });
    }

    fn wait_until_cancelled(&self) {
        wait_until(|| self.cancelled.load(Ordering::SeqCst) == 2);
    }
}

/// Cancels an owner that waits by `wait`, no point, until `leave` is called; all below
/// must be cancelled before that.
fn reaches_all_below<W: Send + Sync + 'static>(
    what: impl Fn() -> W,
    reason: WaitReason,
    wait: fn(&W),
    leave: fn(&W),
) {
    on_workers(|runtime| {
        let (what, below) = (Arc::new(what()), Below::default());
        let theirs = (what.clone(), below.clone());
        let owner = runtime.spawn(move || {
            scope(|s| {
                theirs.1.start(s);
                wait(&theirs.0);
            });
            sinew::is_cancelled()
        });
        below.wait_until_asleep();
        waits_in(&owner.fiber(), reason);
        owner.cancel();
        below.wait_until_cancelled();
        leave(&what);
        assert!(owner.join().unwrap());
    });
}

#[test]
fn cancelling_an_owner_that_waits_at_the_end_reaches_all_below() {
    reaches_all_below(|| (), WaitReason::Scope, |()| (), |()| ());
}

#[test]
fn cancelling_an_owner_that_waits_for_a_lock_reaches_all_below() {
    type Held = (Arc<Mutex<()>>, Arc<Event>);
    let held = || -> Held {
        let (mutex, let_go) = (Arc::new(Mutex::new(())), Arc::new(Event::new()));
        let theirs = (mutex.clone(), let_go.clone());
        let holds = Gate::new();
        let gate = holds.clone();
        std::thread::spawn(move || {
            let _held = theirs.0.lock();
            gate.open();
            theirs.1.wait().unwrap();
        });
        holds.spin();
        (mutex, let_go)
    };
    reaches_all_below(
        held,
        WaitReason::Mutex,
        |held: &Held| drop(held.0.lock()),
        |held| held.1.set(),
    );
}

#[test]
fn cancelling_an_owner_behind_a_shield_reaches_all_below() {
    reaches_all_below(
        Event::new,
        WaitReason::Event,
        |event| shield(|| event.wait()).unwrap(),
        Event::set,
    );
}

#[test]
fn cancelling_an_owner_that_joins_reaches_all_below() {
    on_workers(|runtime| {
        let below = Below::default();
        let theirs = below.clone();
        let owner = runtime.spawn(move || {
            scope(|s| {
                let child = s.spawn(|| scope(|inner| theirs.start(inner)));
                child.join().unwrap();
            });
        });
        below.wait_until_asleep();
        waits_in(&owner.fiber(), WaitReason::Join);
        owner.cancel();
        below.wait_until_cancelled();
        owner.join().unwrap();
    });
}

#[test]
fn cancelling_an_owner_that_runs_reaches_all_below() {
    in_fibers(|| {
        let below = Below::default();
        sinew::spawn(move || {
            scope(|s| {
                below.start(s);
                below.wait_until_asleep();
                sinew::current().cancel();
                below.wait_until_cancelled();
            });
        })
        .join()
        .unwrap();
    });
}

#[test]
fn who_was_told_that_it_is_cancelled_finds_its_scope_cancelled() {
    on_workers(|runtime| {
        for _ in 0..300 {
            let ready = Gate::new();
            let gate = ready.clone();
            let owner = runtime.spawn(move || {
                scope(|s| {
                    gate.open();
                    wait_until(|| sinew::check_cancelled().is_err());
                    s.is_cancelled()
                })
            });
            ready.spin();
            owner.cancel();
            assert!(owner.join().unwrap());
        }
    });
}
