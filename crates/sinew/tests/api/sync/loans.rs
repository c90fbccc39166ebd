//! What priority the holder of a `Mutex` runs at, while others wait and when they
//! are gone.

#[path = "../../harness/level.rs"]
mod level;

use super::poll::ByHand;
use super::{SHORT, parked};
use crate::harness::{Gate, Log, wait_until, watch};
use level::{ALL, running_at};
use sinew::Priority::{Critical, High, Low, Normal};
use sinew::channel::{Receiver, Sender, bounded};
use sinew::sync::{FairMutex, Mutex, MutexGuard};
use sinew::{Builder, JoinHandle, Priority};
use std::sync::Arc;

fn spawn<T: Send + 'static>(
    priority: Priority,
    f: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    Builder::new().priority(priority).spawn(f).unwrap()
}

/// Calls `test` in a fiber of runtimes with one and two workers.
fn in_fibers(test: impl Fn() + Sync) {
    let _watch = watch();
    for workers in [1, 2] {
        level::runtime(workers).run(&test);
    }
}

/// What a [`Holder`] is told to do.
enum Order {
    Lock,
    TryLock,
    Unlock,
    /// Says what priority it runs at.
    Tell,
}

/// A fiber that locks and unlocks as it is told, through channels: these lend
/// nothing.
struct Holder {
    orders: Sender<Order>,
    told: Receiver<Priority>,
    fiber: JoinHandle<()>,
}

impl Holder {
    fn start(priority: Priority, mutex: &Arc<Mutex<()>>) -> Self {
        let (orders, commands) = bounded(1);
        let (answers, told) = bounded(1);
        let mutex = mutex.clone();
        let fiber = spawn(priority, move || {
            let mut guard: Option<MutexGuard<'_, ()>> = None;
            for order in commands {
                match order {
                    Order::Lock => guard = Some(mutex.lock()),
                    Order::TryLock => guard = Some(mutex.try_lock().unwrap()),
                    Order::Unlock => drop(guard.take().unwrap()),
                    Order::Tell => answers.send(running_at()).unwrap(),
                }
            }
        });
        Self {
            orders,
            told,
            fiber,
        }
    }

    fn holding(priority: Priority, mutex: &Arc<Mutex<()>>) -> Self {
        let holder = Self::start(priority, mutex);
        holder.does(Order::Lock);
        holder
    }

    /// Gives the order and waits until it was followed.
    fn does(&self, order: Order) {
        self.orders.send(order).unwrap();
        self.runs_at();
    }

    fn runs_at(&self) -> Priority {
        self.orders.send(Order::Tell).unwrap();
        self.told.recv().unwrap()
    }

    fn ends(self) {
        drop(self.orders);
        wait_until(|| self.fiber.is_finished());
        self.fiber.join().unwrap();
    }
}

/// A fiber that stands in line for the mutex.
fn waiter(priority: Priority, mutex: &Arc<Mutex<()>>) -> JoinHandle<()> {
    let mutex = mutex.clone();
    let fiber = spawn(priority, move || drop(mutex.lock()));
    parked(&fiber);
    fiber
}

#[test]
fn what_is_measured_is_the_fiber_s_own_priority_while_nobody_lends() {
    // What makes the other tests meaningful.
    in_fibers(|| {
        for priority in ALL {
            let fiber = spawn(priority, move || {
                (0..40).for_each(|_| assert_eq!(running_at(), priority));
            });
            wait_until(|| fiber.is_finished());
            fiber.join().unwrap();
        }
    });
}

#[test]
fn a_holder_runs_at_the_priority_of_its_most_urgent_waiter() {
    in_fibers(|| {
        for own in ALL {
            for theirs in ALL {
                let mutex = Arc::default();
                let holder = Holder::holding(own, &mutex);
                let waiting = waiter(theirs, &mutex);
                let least = waiter(Low, &mutex);
                assert_eq!(holder.runs_at(), own.max(theirs), "{own:?} for {theirs:?}");
                holder.does(Order::Unlock);
                assert_eq!(holder.runs_at(), own, "after {theirs:?}");
                holder.ends();
                waiting.join().unwrap();
                least.join().unwrap();
            }
        }
    });
}

#[test]
fn when_an_urgent_waiter_gives_up_the_others_still_lend() {
    in_fibers(|| {
        for others in [Low, Normal, High] {
            for cancelled in [false, true] {
                let mutex = Arc::default();
                let holder = Holder::holding(Low, &mutex);
                let before = waiter(others, &mutex);
                let theirs = mutex.clone();
                let urgent = spawn(Critical, move || {
                    if cancelled {
                        theirs.lock_or_cancelled().is_ok()
                    } else {
                        theirs.lock_timeout(SHORT).is_ok()
                    }
                });
                if cancelled {
                    parked(&urgent);
                    assert_eq!(holder.runs_at(), Critical);
                    urgent.cancel();
                }
                let after = waiter(others, &mutex);
                wait_until(|| urgent.is_finished());
                assert!(!urgent.join().unwrap());
                assert_eq!(holder.runs_at(), others, "cancelled: {cancelled}");
                holder.does(Order::Unlock);
                assert_eq!(holder.runs_at(), Low);
                holder.ends();
                before.join().unwrap();
                after.join().unwrap();
            }
        }
    });
}

#[test]
fn a_loan_goes_from_holder_to_holder_until_the_urgent_one_has_its_turn() {
    in_fibers(|| {
        let mutex = Arc::new(Mutex::new(()));
        let holder = Holder::holding(Low, &mutex);
        let log = Log::new();
        // In line: each lets the next have it, and says what it ran at.
        let fibers: Vec<_> = [Normal, Low, High, Normal, Low]
            .into_iter()
            .map(|own| {
                let (mutex, log) = (mutex.clone(), log.clone());
                let fiber = spawn(own, move || {
                    let guard = mutex.lock();
                    let inside = running_at();
                    drop(guard);
                    log.push((own, inside, running_at()));
                });
                parked(&fiber);
                fiber
            })
            .collect();
        assert_eq!(holder.runs_at(), High);
        holder.does(Order::Unlock);
        wait_until(|| fibers.iter().all(JoinHandle::is_finished));
        assert_eq!(holder.runs_at(), Low);
        holder.ends();
        let mut seen = log.take();
        seen.sort_unstable();
        let mut expected = [
            (Normal, High, Normal),
            (Low, High, Low),
            (High, High, High),
            (Normal, Normal, Normal),
            (Low, Low, Low),
        ];
        expected.sort_unstable();
        assert_eq!(seen, expected);
    });
}

fn takes_it_before_others(former: Priority, others: Priority, order: Order) {
    let mutex = Arc::default();
    let low = Holder::start(Low, &mutex);
    let former = Holder::holding(former, &mutex);
    // First in line, and when its turn comes it does nothing.
    let mut idle = ByHand::waiting(mutex.lock_async());
    let waiting = waiter(others, &mutex);
    former.does(Order::Unlock);
    assert!(idle.is_woken() && !mutex.is_locked());
    assert_eq!(low.runs_at(), Low, "it holds nothing");
    low.does(order);
    assert_eq!(low.runs_at(), others);
    low.does(Order::Unlock);
    assert_eq!(low.runs_at(), Low);
    assert!(!waiting.is_finished());
    assert!(idle.poll().is_some());
    wait_until(|| waiting.is_finished());
    waiting.join().unwrap();
    low.ends();
    former.ends();
}

#[test]
fn a_low_fiber_that_takes_a_free_mutex_before_others_in_line_borrows_from_them() {
    in_fibers(|| {
        for former in ALL {
            for others in [Normal, High] {
                takes_it_before_others(former, others, Order::Lock);
                takes_it_before_others(former, others, Order::TryLock);
            }
        }
    });
}

#[test]
fn a_low_fiber_that_is_handed_the_mutex_borrows_from_those_still_in_line() {
    in_fibers(|| {
        for others in [Normal, High] {
            let mutex = Arc::new(Mutex::new(()));
            let (theirs, log) = (mutex.clone(), Log::new());
            let (inside, go) = (Gate::new(), Gate::new());
            let (says, gates) = (log.clone(), (inside.clone(), go.clone()));
            let mut guard = mutex.lock();
            let handed = spawn(Low, move || {
                let guard = theirs.lock();
                gates.0.open();
                gates.1.pass();
                says.push(running_at());
                drop(guard);
                says.push(running_at());
            });
            parked(&handed);
            let waiting = waiter(others, &mutex);
            // It is woken, and comes too late; until that has happened too often.
            loop {
                drop(guard);
                match mutex.try_lock() {
                    Ok(again) => guard = again,
                    Err(_) => break,
                }
                assert!(!inside.is_open());
                // However busy this worker is, it has its turn meanwhile.
                (0..400).for_each(|_| sinew::yield_now());
            }
            inside.pass();
            go.open();
            wait_until(|| handed.is_finished());
            assert_eq!(log.take(), [others, Low]);
            handed.join().unwrap();
            waiting.join().unwrap();
        }
    });
}

/// A low fiber that takes `inner` while it runs at the priority that was lent to
/// it through `outer`, and then gives `outer` back.
#[test]
fn a_loan_through_a_mutex_that_was_taken_during_another_loan_counts() {
    in_fibers(|| {
        let (outer, inner) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
        let mutexes = (outer.clone(), inner.clone());
        let gates = [(); 3].map(|()| Gate::new());
        let (theirs, log) = (gates.clone(), Log::new());
        let says = log.clone();
        let holder = spawn(Low, move || {
            let outer = mutexes.0.lock();
            says.push(running_at());
            theirs[0].pass();
            says.push(running_at());
            let inner = mutexes.1.lock();
            drop(outer);
            theirs[1].pass();
            says.push(running_at());
            theirs[2].pass();
            says.push(running_at());
            drop(inner);
            says.push(running_at());
        });
        wait_until(|| log.len() == 1);
        let first = waiter(High, &outer);
        gates[0].open();
        wait_until(|| log.len() == 2 && first.is_finished());
        gates[1].open();
        wait_until(|| log.len() == 3);
        let second = waiter(High, &inner);
        gates[2].open();
        wait_until(|| holder.is_finished());
        assert_eq!(log.take(), [Low, High, Low, High, Low]);
        for fiber in [first, second, holder] {
            fiber.join().unwrap();
        }
    });
}

#[test]
fn a_run_closure_whose_urgent_waiter_gave_up_has_its_priority_back_after_the_mutex() {
    in_fibers(|| {
        let mutex = Arc::new(Mutex::new(()));
        let guard = mutex.lock();
        let theirs = mutex.clone();
        let urgent = spawn(High, move || theirs.lock_timeout(SHORT).is_ok());
        wait_until(|| urgent.is_finished());
        assert!(!urgent.join().unwrap());
        // While it holds the mutex nobody can tell what its joiner lends; but then.
        drop(guard);
        assert_eq!(running_at(), Normal);
    });
}

/// A low fiber stands in line while a joiner lends to it, who then gives up.
#[test]
fn a_waiter_that_was_lent_to_and_no_more_may_be_lent_to_again() {
    in_fibers(|| {
        let mutex = Arc::new(Mutex::new(()));
        let guard = mutex.lock();
        let (theirs, go, inside, leave) = (mutex.clone(), Gate::new(), Gate::new(), Gate::new());
        let gates = (go.clone(), inside.clone(), leave.clone());
        let log = Log::new();
        let says = log.clone();
        let low = spawn(Low, move || {
            gates.0.pass();
            says.push(running_at());
            let guard = theirs.lock();
            gates.1.open();
            gates.2.pass();
            says.push(running_at());
            drop(guard);
        });
        let low_fiber = low.fiber();
        let theirs = low_fiber.clone();
        let joiner = spawn(High, move || theirs.wait());
        parked(&joiner);
        go.open();
        wait_until(|| log.len() == 1);
        wait_until(|| low_fiber.wait_reason() == sinew::WaitReason::Mutex);
        joiner.cancel();
        wait_until(|| joiner.is_finished());
        drop(guard);
        inside.pass();
        let waiting = waiter(High, &mutex);
        leave.open();
        wait_until(|| low.is_finished());
        assert_eq!(log.take(), [High, High]);
        waiting.join().unwrap();
        low.join().unwrap();
    });
}

/// The same of a fair mutex, whose line is empty when the waiter is gone.
#[test]
fn a_run_closure_whose_urgent_waiter_gave_up_has_its_priority_back_after_the_fair_mutex() {
    in_fibers(|| {
        let mutex = Arc::new(FairMutex::new(()));
        let guard = mutex.lock();
        let theirs = mutex.clone();
        let urgent = spawn(High, move || theirs.lock_timeout(SHORT).is_ok());
        wait_until(|| urgent.is_finished());
        assert!(!urgent.join().unwrap());
        drop(guard);
        assert_eq!(running_at(), Normal);
        // And the lock is as good as new.
        drop(mutex.try_lock().unwrap());
    });
}

#[test]
fn a_holder_of_256_locks_runs_at_the_priority_of_its_waiters() {
    // One more than a count of 8 bits holds; and more than that.
    in_fibers(|| {
        for locks in [255, 256, 257, 300] {
            let mutexes: Arc<Vec<Mutex<()>>> =
                Arc::new((0..locks).map(|_| Mutex::new(())).collect());
            let (tell, hear) = bounded::<()>(1);
            let (answers, told) = bounded(1);
            let theirs = mutexes.clone();
            let holder = spawn(Low, move || {
                let mut guards: Vec<_> = theirs.iter().map(Mutex::lock).collect();
                for () in hear {
                    answers.send(running_at()).unwrap();
                    // One is given back, the others are still wanted.
                    guards.pop();
                }
            });
            wait_until(|| mutexes.iter().all(|mutex| mutex.try_lock().is_err()));
            let waiting: Vec<_> = (0..locks)
                .map(|index| {
                    let mutexes = mutexes.clone();
                    spawn(Critical, move || drop(mutexes[index].lock()))
                })
                .collect();
            waiting.iter().for_each(parked);
            for left in (locks - 3..=locks).rev() {
                tell.send(()).unwrap();
                assert_eq!(told.recv().unwrap(), Critical, "{left} of {locks}");
            }
            drop(tell);
            wait_until(|| holder.is_finished());
            holder.join().unwrap();
            waiting.into_iter().for_each(|fiber| fiber.join().unwrap());
        }
    });
}
