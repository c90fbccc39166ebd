//! Priorities lent through `Mutex` and `FairMutex`.

use super::{HOUR, SHORT, parked};
use crate::harness::{Gate, wait_until, watch};
use sinew::sync::{Condvar, FairMutex, Mutex, MutexGuard};
use sinew::{Builder, JoinHandle, Priority, Runtime};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One worker in strict order: nothing but the priorities decides.
fn one_worker() -> Runtime {
    let builder = Runtime::builder().workers(1).strict_order(true);
    builder.build().unwrap()
}

fn spawn<T: Send + 'static>(
    priority: Priority,
    f: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    Builder::new().priority(priority).spawn(f).unwrap()
}

/// How often a low fiber has to be picked until it is done.
const STEPS: usize = 100;
/// Without help it is picked once in 64 turns of others: 6400 in all. With
/// help only what it takes to notice the loan.
const HELPED: usize = 1000;

fn work() {
    for _ in 0..STEPS {
        sinew::yield_now();
    }
}

/// Two endless fibers of normal priority that count their turns.
struct Rush {
    turns: Arc<AtomicUsize>,
    stop: Gate,
}

impl Rush {
    fn start() -> Self {
        let rush = Self {
            turns: Arc::default(),
            stop: Gate::new(),
        };
        for _ in 0..2 {
            let (turns, stop) = (rush.turns.clone(), rush.stop.clone());
            drop(sinew::spawn(move || {
                while !stop.is_open() {
                    turns.fetch_add(1, Ordering::Relaxed);
                    sinew::yield_now();
                }
            }));
        }
        rush
    }

    fn turns(&self) -> usize {
        self.turns.load(Ordering::Relaxed)
    }
}

impl Drop for Rush {
    fn drop(&mut self) {
        self.stop.open();
    }
}

/// Either mutex, so that both are held to the same.
trait Exclusive: Default + Send + Sync + 'static {
    fn hold(&self, inside: impl FnOnce());
    /// False if it was not had in this time.
    fn hold_in(&self, time: std::time::Duration) -> bool;
    fn hold_or_cancelled(&self) -> bool;
}

impl Exclusive for Mutex<()> {
    fn hold(&self, inside: impl FnOnce()) {
        let _guard = self.lock();
        inside();
    }

    fn hold_in(&self, time: std::time::Duration) -> bool {
        self.lock_timeout(time).is_ok()
    }

    fn hold_or_cancelled(&self) -> bool {
        self.lock_or_cancelled().is_ok()
    }
}

impl Exclusive for FairMutex<()> {
    fn hold(&self, inside: impl FnOnce()) {
        let _guard = self.lock();
        inside();
    }

    fn hold_in(&self, time: std::time::Duration) -> bool {
        self.lock_timeout(time).is_ok()
    }

    fn hold_or_cancelled(&self) -> bool {
        self.lock_or_cancelled().is_ok()
    }
}

fn kind<M>() -> &'static str {
    std::any::type_name::<M>()
}

/// A low fiber that holds the mutex until `go` opens and `STEPS` turns later.
fn low_holder<M: Exclusive>(mutex: &Arc<M>, go: &Gate) -> JoinHandle<()> {
    let inside = Gate::new();
    let (theirs, mutex, gate) = (inside.clone(), mutex.clone(), go.clone());
    let holder = spawn(Priority::Low, move || {
        mutex.hold(|| {
            theirs.open();
            gate.pass();
            work();
        });
    });
    inside.pass();
    holder
}

fn a_waiter_lends<M: Exclusive>(urgency: Priority) {
    let _watch = watch();
    one_worker().run(move || {
        let (mutex, go) = (Arc::new(M::default()), Gate::new());
        let holder = low_holder(&mutex, &go);
        let theirs = mutex.clone();
        let urgent = spawn(urgency, move || theirs.hold(|| ()));
        parked(&urgent);
        let rush = Rush::start();
        go.open();
        wait_until(|| urgent.is_finished());
        assert!(
            rush.turns() < HELPED,
            "{}: {urgency:?} {}",
            kind::<M>(),
            rush.turns()
        );
        drop(rush);
        holder.join().unwrap();
    });
}

#[test]
fn a_waiter_lends_its_priority_to_a_mutex_s_holder() {
    a_waiter_lends::<Mutex<()>>(Priority::Critical);
    a_waiter_lends::<Mutex<()>>(Priority::High);
}

#[test]
fn a_waiter_lends_its_priority_to_a_fair_mutex_s_holder() {
    a_waiter_lends::<FairMutex<()>>(Priority::Critical);
    a_waiter_lends::<FairMutex<()>>(Priority::High);
}

fn unhelped<M: Exclusive>() {
    let _watch = watch();
    one_worker().run(|| {
        let (mutex, go) = (Arc::new(M::default()), Gate::new());
        let holder = low_holder(&mutex, &go);
        let theirs = mutex.clone();
        let low = spawn(Priority::Low, move || theirs.hold(|| ()));
        parked(&low);
        let rush = Rush::start();
        go.open();
        wait_until(|| holder.is_finished());
        assert!(rush.turns() > HELPED, "{}", rush.turns());
        drop(rush);
        low.join().unwrap();
    });
}

#[test]
fn a_low_holder_with_a_low_waiter_goes_slowly() {
    // What makes the other tests meaningful.
    unhelped::<Mutex<()>>();
    unhelped::<FairMutex<()>>();
}

fn a_loan_ends_with_the_unlock<M: Exclusive>() {
    let _watch = watch();
    one_worker().run(|| {
        let (mutex, go, unlocked) = (Arc::new(M::default()), Gate::new(), Gate::new());
        let theirs = (mutex.clone(), go.clone(), unlocked.clone());
        let holder = spawn(Priority::Low, move || {
            theirs.0.hold(|| theirs.1.pass());
            theirs.2.open();
            work();
        });
        wait_until(|| !mutex.hold_in(std::time::Duration::ZERO));
        let theirs = mutex.clone();
        let urgent = spawn(Priority::Critical, move || theirs.hold(|| ()));
        parked(&urgent);
        go.open();
        unlocked.pass();
        urgent.join().unwrap();
        let rush = Rush::start();
        wait_until(|| holder.is_finished());
        assert!(rush.turns() > HELPED, "{}: {}", kind::<M>(), rush.turns());
    });
}

#[test]
fn a_loan_ends_with_the_unlock_of_a_mutex() {
    a_loan_ends_with_the_unlock::<Mutex<()>>();
}

#[test]
fn a_loan_ends_with_the_unlock_of_a_fair_mutex() {
    a_loan_ends_with_the_unlock::<FairMutex<()>>();
}

fn a_loan_is_taken_back<M: Exclusive>(cancelled: bool) {
    let _watch = watch();
    one_worker().run(move || {
        let (mutex, go) = (Arc::new(M::default()), Gate::new());
        let holder = low_holder(&mutex, &go);
        let theirs = mutex.clone();
        let urgent = spawn(Priority::Critical, move || {
            if cancelled {
                theirs.hold_or_cancelled()
            } else {
                theirs.hold_in(SHORT)
            }
        });
        if cancelled {
            parked(&urgent);
            urgent.cancel();
        }
        assert!(!urgent.join().unwrap());
        let rush = Rush::start();
        go.open();
        wait_until(|| holder.is_finished());
        assert!(rush.turns() > HELPED, "{}: {}", kind::<M>(), rush.turns());
    });
}

#[test]
fn a_waiter_that_gives_up_takes_its_loan_back() {
    for cancelled in [false, true] {
        a_loan_is_taken_back::<Mutex<()>>(cancelled);
        a_loan_is_taken_back::<FairMutex<()>>(cancelled);
    }
}

fn a_loan_is_taken_back_though_another_waits<M: Exclusive>() {
    let _watch = watch();
    one_worker().run(|| {
        let (mutex, go) = (Arc::new(M::default()), Gate::new());
        let holder = low_holder(&mutex, &go);
        let theirs = mutex.clone();
        let other = spawn(Priority::Low, move || theirs.hold(|| ()));
        parked(&other);
        let theirs = mutex.clone();
        let urgent = spawn(Priority::Critical, move || theirs.hold_in(SHORT));
        assert!(!urgent.join().unwrap());
        let rush = Rush::start();
        go.open();
        wait_until(|| holder.is_finished());
        assert!(rush.turns() > HELPED, "{}: {}", kind::<M>(), rush.turns());
        drop(rush);
        other.join().unwrap();
    });
}

#[test]
fn a_waiter_that_gives_up_takes_its_loan_back_though_another_waits() {
    a_loan_is_taken_back_though_another_waits::<Mutex<()>>();
    a_loan_is_taken_back_though_another_waits::<FairMutex<()>>();
}

fn a_loan_is_passed_along<M: Exclusive>(depth: usize) {
    let _watch = watch();
    one_worker().run(move || {
        // Each holds its mutex and waits for the one before.
        let go = Gate::new();
        let mutexes: Vec<Arc<M>> = (0..depth).map(|_| Arc::default()).collect();
        let mut holders = vec![low_holder(&mutexes[0], &go)];
        for i in 1..depth {
            let (own, other) = (mutexes[i].clone(), mutexes[i - 1].clone());
            let next = spawn(Priority::Low, move || own.hold(|| other.hold(|| ())));
            parked(&next);
            holders.push(next);
        }
        let last = mutexes[depth - 1].clone();
        let urgent = spawn(Priority::Critical, move || last.hold(|| ()));
        parked(&urgent);
        let rush = Rush::start();
        go.open();
        wait_until(|| urgent.is_finished());
        assert!(
            rush.turns() < HELPED,
            "{}: {depth} {}",
            kind::<M>(),
            rush.turns()
        );
        drop(rush);
        for holder in holders {
            holder.join().unwrap();
        }
    });
}

#[test]
fn a_loan_is_passed_along_a_chain_of_mutexes() {
    for depth in [2, 3] {
        a_loan_is_passed_along::<Mutex<()>>(depth);
        a_loan_is_passed_along::<FairMutex<()>>(depth);
    }
}

fn the_next_holder_borrows<M: Exclusive>() {
    let _watch = watch();
    one_worker().run(|| {
        let (mutex, go) = (Arc::new(M::default()), Gate::new());
        let first = low_holder(&mutex, &go);
        let theirs = mutex.clone();
        let second = spawn(Priority::Low, move || theirs.hold(work));
        parked(&second);
        let theirs = mutex.clone();
        let urgent = spawn(Priority::Critical, move || theirs.hold(|| ()));
        parked(&urgent);
        let rush = Rush::start();
        go.open();
        wait_until(|| urgent.is_finished());
        assert!(rush.turns() < HELPED, "{}: {}", kind::<M>(), rush.turns());
        drop(rush);
        first.join().unwrap();
        second.join().unwrap();
    });
}

#[test]
fn the_next_holder_borrows_from_those_who_still_wait() {
    the_next_holder_borrows::<Mutex<()>>();
    the_next_holder_borrows::<FairMutex<()>>();
}

#[test]
fn who_waits_with_a_ticket_lends_its_priority() {
    let _watch = watch();
    one_worker().run(|| {
        let (mutex, go) = (Arc::new(FairMutex::new(())), Gate::new());
        let holder = low_holder(&mutex, &go);
        let theirs = mutex.clone();
        let urgent = spawn(Priority::Critical, move || drop(theirs.ticket().lock()));
        parked(&urgent);
        let rush = Rush::start();
        go.open();
        wait_until(|| urgent.is_finished());
        assert!(rush.turns() < HELPED, "{}", rush.turns());
        drop(rush);
        holder.join().unwrap();
    });
}

#[test]
fn who_was_notified_lends_its_priority_to_get_the_mutex_back() {
    let _watch = watch();
    one_worker().run(|| {
        let shared = Arc::new((Mutex::new(()), Condvar::new()));
        let theirs = shared.clone();
        let urgent = spawn(Priority::Critical, move || {
            drop(theirs.1.wait(theirs.0.lock()));
        });
        parked(&urgent);
        let (inside, go) = (Gate::new(), Gate::new());
        let (theirs, gates) = (shared.clone(), (inside.clone(), go.clone()));
        let holder = spawn(Priority::Low, move || {
            let _guard = theirs.0.lock();
            gates.0.open();
            gates.1.pass();
            theirs.1.notify_one();
            work();
        });
        inside.pass();
        let rush = Rush::start();
        go.open();
        wait_until(|| urgent.is_finished());
        assert!(rush.turns() < HELPED, "{}", rush.turns());
        drop(rush);
        holder.join().unwrap();
    });
}

#[test]
fn a_loan_is_passed_from_a_join_to_a_mutex() {
    let _watch = watch();
    one_worker().run(|| {
        let (mutex, go) = (Arc::new(Mutex::new(())), Gate::new());
        let holder = low_holder(&mutex, &go);
        let theirs = mutex.clone();
        let middle = spawn(Priority::Low, move || drop(theirs.lock()));
        parked(&middle);
        let urgent = spawn(Priority::Critical, move || middle.join().unwrap());
        parked(&urgent);
        let rush = Rush::start();
        go.open();
        wait_until(|| urgent.is_finished());
        assert!(rush.turns() < HELPED, "{}", rush.turns());
        drop(rush);
        holder.join().unwrap();
    });
}

#[test]
fn a_holder_that_holds_another_mutex_keeps_that_one_s_loan() {
    let _watch = watch();
    one_worker().run(|| {
        let (outer, inner) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
        let (go, inside, unlocked) = (Gate::new(), Gate::new(), Gate::new());
        let theirs = (outer.clone(), inner.clone());
        let gates = (go.clone(), inside.clone(), unlocked.clone());
        let holder = spawn(Priority::Low, move || {
            let outer: MutexGuard<'_, ()> = theirs.0.lock();
            let inner = theirs.1.lock();
            gates.1.open();
            gates.0.pass();
            drop(inner);
            gates.2.open();
            work();
            drop(outer);
        });
        inside.pass();
        let urgent: Vec<_> = [&outer, &inner]
            .into_iter()
            .map(|mutex| {
                let mutex = mutex.clone();
                let fiber = spawn(Priority::Critical, move || {
                    assert!(mutex.lock_timeout(HOUR).is_ok());
                });
                parked(&fiber);
                fiber
            })
            .collect();
        let rush = Rush::start();
        go.open();
        unlocked.pass();
        wait_until(|| urgent.iter().all(|fiber| fiber.is_finished()));
        assert!(rush.turns() < HELPED, "{}", rush.turns());
        drop(rush);
        holder.join().unwrap();
    });
}
