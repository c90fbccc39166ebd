//! Models of how a runtime ends, and of how a stack comes back to who starves.
//!
//! `alive`, `drain`, `poke`, the pool's end of a task, the gate, `StackPool` and
//! `HotStacks` are the real ones. Copied, because they need a `Core`: the count of
//! `run::finish`, the look of `sleep::sleep`, and in `Kitchen` the workers' side
//! of `starve::{starve, feed, relieve}`. What ends a wait for a stack is in the models of
//! `fiber::state`.
//!
//! Every ordering below was weakened once by hand; the model named caught it.
//!
//! | weakened                                       | caught by |
//! |------------------------------------------------|-----------|
//! | `alive`, `finished` Acquire → Relaxed          | `nobody_is_alive…`, the models of `drain` |
//! | `alive`, `daemons_finished` Acquire → Relaxed  | `nobody_is_alive…` |
//! | `alive`, spawned read before finished          | `nobody_is_alive…`, `a_drain_returns_when_a_child…` |
//! | `run::finish` (here) Release → Relaxed         | `nobody_is_alive…`, the models of `drain` |
//! | `drain` without its fence                      | the models of `drain` |
//! | `pool::run_job` Release → Relaxed              | `…the_last_task_of_the_pool…` |
//! | `pool::run_job` without its fence              | `…the_last_task_of_the_pool…` |
//! | `Gate::enter` without its fence                | `whoever_was_let_into_a_runtime…` |
//! | `Gate::drop` Release → Relaxed                 | `whoever_was_let_into_a_runtime…` |
//! | `close` without its fence                      | `whoever_was_let_into_a_runtime…` |
//! | `close` Acquire → Relaxed                      | `whoever_was_let_into_a_runtime…` |
//! | `Waking::drop` Release → Relaxed               | `a_runtime_is_not_freed…` |
//! | `wait_for_wakers` Acquire → Relaxed            | `a_runtime_is_not_freed…` |
//! | `StackPool::put` looks before it has the lock  | `a_worker_that_begins_to_starve…` |
//! | `starve` (here) wakes only the first time      | `a_worker_that_begins_to_starve…` |
//! | `StackPool::begin_starving` SeqCst → Relaxed   | nothing: not needed (1) |
//! | `StackPool::end_starving` SeqCst → Relaxed     | nothing: not needed (1) |
//!
//! (1) Who starves takes the pool's lock afterwards, and unparks every driver:
//! one of the two reaches whoever gives.

use super::pool::give_up;
use super::shutdown::{Whom, alive, drain, poke};
use crate::fiber::{Birth, Block, Kind, Ops, OpsOf, Priority};
use crate::primitive::model::Plain;
use crate::primitive::{self, AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::queue::deque::Injectors;
use crate::sched::bell::MonitorBell;
use crate::sched::duty::Duty;
use crate::sched::idle::Idle;
use crate::sched::seam::{Driver, FutexDriver};
use crate::sched::shared::{Lives, Remote, Settings, Shared, bump};
use crate::sched::submit::{Gate, Waking, close, wait_for_wakers};
use crate::stack::{Given, HotStacks, PoolConfig, Reserve, Stack, StackClass, StackPool};
use crate::sys::Lock;
use crate::timer::RealClock;
use crate::util::list::List;
use crossbeam_utils::CachePadded;
use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::ptr::NonNull;

fn bounded(preemptions: usize) -> Builder {
    let mut model = Builder::new();
    model.preemption_bound = Some(preemptions);
    model
}

/// A runtime without threads: the models bring their own.
fn shared(workers: usize) -> Shared {
    let remote = |index| {
        let driver = Box::new(FutexDriver::new());
        CachePadded::new(Remote::new(index, driver, None, Duty::on_duty()))
    };
    Shared {
        settings: Settings {
            name: String::new(),
            strict_order: false,
            by_time: true,
            class: StackClass::SMALLEST,
            daemon_grace: std::time::Duration::ZERO,
            report_panics: false,
            unobserved: None,
        },
        remotes: (0..workers).map(remote).collect(),
        workers,
        slots_used: primitive::AtomicUsize::new(workers),
        injectors: Injectors::new(),
        idle: Idle::new(workers),
        clock: Box::new(RealClock::new()),
        stacks: std::sync::Arc::new(StackPool::new(PoolConfig::default())),
        stop: Default::default(),
        draining: Default::default(),
        can_look_out: false,
        cancelling: Default::default(),
        give_up_at: Default::default(),
        awaited: Default::default(),
        joins_elsewhere: Default::default(),
        closed: Default::default(),
        closed_for_all: Default::default(),
        entering: Default::default(),
        waking: Default::default(),
        given_up: Default::default(),
        no_stack: Default::default(),
        out_of_stacks: Default::default(),
        said_no_stack: Default::default(),
        reserve: Reserve::new(crate::stack::GuardChoice::Auto),
        outside: Lives::default(),
        abandoned: Lock::new(Vec::new()),
        drainers: Lock::new(List::new()),
        monitor: MonitorBell::default(),
        services: Default::default(),
    }
}

/// A runtime, and what its fibers wrote before they ended.
struct World {
    shared: Shared,
    ended: [Plain<bool>; 2],
    /// A stand-in for the deque with the one child: 0 none, 1 queued, 2 taken.
    child: AtomicUsize,
    /// Whose end is awaited; if it is everybody's, parent and child are daemons.
    whom: Whom,
}

impl World {
    fn new(workers: usize, whom: Whom) -> Arc<Self> {
        Arc::new(Self {
            shared: shared(workers),
            ended: [Plain::new(false), Plain::new(false)],
            child: AtomicUsize::new(0),
            whom,
        })
    }

    fn spawned(&self, worker: usize) -> &AtomicU64 {
        let lives = &self.shared.remotes[worker].counters.lives;
        match self.whom {
            Whom::NonDaemons => &lives.spawned,
            Whom::All => &lives.daemons_spawned,
        }
    }

    fn finished(&self, worker: usize) -> &AtomicU64 {
        let lives = &self.shared.remotes[worker].counters.lives;
        match self.whom {
            Whom::NonDaemons => &lives.finished,
            Whom::All => &lives.daemons_finished,
        }
    }

    /// The end of fiber number `which` on `worker`, as `run::finish`.
    fn finish(&self, worker: usize, which: usize) {
        self.ended[which].set(true);
        let finished = self.finished(worker);
        finished.store(finished.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Counts and queues a child, as `submit_new`.
    fn spawn_child(&self, worker: usize) {
        bump(self.spawned(worker), 1);
        self.child.store(1, Ordering::Release);
    }

    /// Runs the child if it is queued.
    fn try_run_child(&self, worker: usize) {
        let taken = self
            .child
            .compare_exchange(1, 2, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_ok() {
            self.finish(worker, 1);
        }
    }

    /// A worker that has run out of work, as `sleep::sleep`.
    fn go_to_sleep(&self, worker: usize) {
        self.shared.idle.go_to_sleep(worker, false);
        if self.shared.draining.load(Ordering::Relaxed) {
            poke(&self.shared);
        }
    }

    fn drain(&self) {
        assert!(drain(&self.shared, self.whom, None, Location::caller()));
    }
}

/// Runs `roles` on threads of their own.
///
/// Forwards and backwards: loom forgets the loads of others when a thread loads
/// a word itself before it changes it, and then does not try what happens if
/// that change came first. Started in the other order it does.
fn threads(world: &Arc<World>, backwards: bool, roles: &[fn(&World)]) {
    let start = |role: &fn(&World)| {
        let (world, role) = (world.clone(), *role);
        thread::spawn(move || role(&world))
    };
    let started: Vec<_> = if backwards {
        roles.iter().rev().map(start).collect()
    } else {
        roles.iter().map(start).collect()
    };
    for thread in started {
        thread.join().unwrap();
    }
}

#[test]
fn nobody_is_alive_only_when_a_parent_and_the_child_it_spawned_have_ended() {
    for (whom, backwards) in [
        (Whom::NonDaemons, false),
        (Whom::NonDaemons, true),
        (Whom::All, false),
        (Whom::All, true),
    ] {
        // Three threads: bounded for the sake of other machines.
        bounded(4).check(move || {
            let world = World::new(2, whom);
            bump(world.spawned(0), 1); // the parent
            let parent = |world: &World| {
                world.spawn_child(0);
                world.finish(0, 0);
            };
            let thief = |world: &World| world.try_run_child(1);
            let reader = |world: &World| {
                if alive(&world.shared, world.whom) == 0 {
                    assert!(world.ended[0].get() && world.ended[1].get());
                }
            };
            threads(&world, backwards, &[parent, thief, reader]);
        });
    }
}

#[test]
fn a_drain_returns_when_the_last_fiber_has_ended_and_sees_what_it_did() {
    for backwards in [false, true] {
        loom::model(move || {
            let world = World::new(1, Whom::NonDaemons);
            bump(world.spawned(0), 1);
            let worker = |world: &World| {
                world.finish(0, 0);
                world.go_to_sleep(0);
            };
            let drainer = |world: &World| {
                world.drain();
                assert!(world.ended[0].get());
            };
            threads(&world, backwards, &[worker, drainer]);
        });
    }
}

#[test]
fn a_drain_returns_when_a_child_spawned_by_a_finishing_fiber_has_ended_elsewhere() {
    for backwards in [false, true] {
        // Two workers, a drainer that sleeps, and a lock: bounded.
        bounded(2).check(move || {
            let world = World::new(2, Whom::NonDaemons);
            bump(world.spawned(0), 1);
            let parent = |world: &World| {
                world.spawn_child(0);
                world.finish(0, 0);
                world.try_run_child(0);
                world.go_to_sleep(0);
            };
            let thief = |world: &World| {
                world.try_run_child(1);
                world.go_to_sleep(1);
            };
            let drainer = |world: &World| {
                world.drain();
                assert!(world.ended[0].get() && world.ended[1].get());
            };
            threads(&world, backwards, &[parent, thief, drainer]);
        });
    }
}

#[test]
fn of_two_who_drain_neither_sleeps_for_ever() {
    for backwards in [false, true] {
        bounded(3).check(move || {
            let world = World::new(1, Whom::NonDaemons);
            bump(world.spawned(0), 1);
            let worker = |world: &World| {
                world.finish(0, 0);
                world.go_to_sleep(0);
            };
            let drainer = |world: &World| {
                world.drain();
                assert!(world.ended[0].get());
            };
            threads(&world, backwards, &[worker, drainer, drainer]);
        });
    }
}

/// The gate of `sched::submit`, and who closes it.
#[test]
fn whoever_was_let_into_a_runtime_has_queued_its_fiber_before_the_workers_stop() {
    loom::model(|| {
        let shared = std::sync::Arc::new(shared(1));
        let queued = Arc::new(Plain::new(false));
        let outsider = thread::spawn({
            let (shared, queued) = (shared.clone(), queued.clone());
            move || {
                let gate = Gate::enter(&shared);
                if gate.is_some() {
                    queued.set(true);
                    shared.outside.spawned.fetch_add(1, Ordering::Relaxed);
                }
                drop(gate);
            }
        });
        close(&shared);
        // What is here now is all there will be.
        let counted = alive(&shared, Whom::All) == 1;
        assert_eq!(queued.get(), counted);
        outsider.join().unwrap();
        assert_eq!(queued.get(), counted);
    });
}

/// A thread outside wakes the last fiber; `driver` stands for the runtime's memory.
#[test]
fn a_runtime_is_not_freed_before_who_woke_its_last_fiber_is_done() {
    bounded(3).check(|| {
        let shared = std::sync::Arc::new(shared(1));
        shared.outside.spawned.fetch_add(1, Ordering::Relaxed);
        let driver = Arc::new(Plain::new(true));
        let inbox = Arc::new(AtomicBool::new(false));
        let waker = thread::spawn({
            let (shared, driver, inbox) = (shared.clone(), driver.clone(), inbox.clone());
            move || {
                // SAFETY: the fiber is ours until it is in the inbox.
                let waking = unsafe { Waking::begin(&*shared) };
                inbox.store(true, Ordering::Release);
                assert!(driver.get()); // wakes the worker
                drop(waking);
            }
        });
        let worker = thread::spawn({
            let (shared, inbox) = (shared.clone(), inbox.clone());
            move || {
                if inbox.load(Ordering::Acquire) {
                    // The fiber runs, and ends.
                    shared.outside.finished.fetch_add(1, Ordering::Release);
                }
            }
        });
        if alive(&shared, Whom::All) == 0 {
            wait_for_wakers(&shared);
            driver.set(false); // freed
        }
        waker.join().unwrap();
        worker.join().unwrap();
    });
}

struct ModelOps;

impl OpsOf for ModelOps {
    const OPS: Ops = Ops {
        enqueue: |_| unreachable!("nothing is woken here"),
        recycle: |_| {},
    };
}

/// Sets the flag when a pool's task is dropped: its whole effect.
struct Effect(Arc<World>);

impl Drop for Effect {
    fn drop(&mut self) {
        self.0.ended[0].set(true);
    }
}

#[test]
fn a_drain_returns_when_the_last_task_of_the_pool_has_ended() {
    loom::model(|| {
        let world = World::new(1, Whom::NonDaemons);
        let block = Arc::new(Block::vacant());
        let birth = Birth {
            runtime: NonNull::dangling(),
            ops: ModelOps,
            class: StackClass::SMALLEST,
            priority: Priority::Normal,
            kind: Kind {
                daemon: false,
                local: false,
                migratable: false,
                on_pool: true,
                always_runs: false,
            },
            name: None,
            spawned_at: Location::caller(),
            parent: None,
        };
        let effect = Effect(world.clone());
        // SAFETY: nobody else knows the block.
        unsafe { block.occupy(birth, move || drop(effect)) };
        // Relaxed: as `submit::count_spawn`.
        world.shared.outside.spawned.fetch_add(1, Ordering::Relaxed);
        let pool = thread::spawn({
            let (world, block) = (world.clone(), block.clone());
            move || {
                // The whole of `run_job`, for a task that is only dropped.
                // SAFETY: we run the job once; the handle's reference stays.
                unsafe { give_up(&world.shared, NonNull::from(&*block)) };
            }
        });
        world.drain();
        assert!(world.ended[0].get());
        pool.join().unwrap();
    });
}

const CLASS: StackClass = StackClass::SMALLEST;

/// Workers that share a pool: the pool and the hot stacks are the real ones,
/// the rest follows `worker::run`.
struct Kitchen {
    pool: std::sync::Arc<StackPool>,
    drivers: [FutexDriver; 3],
    /// `Remote::starving`.
    starving: [AtomicBool; 3],
    /// Whether `Shared::no_stack` is set.
    no_stack: Lock<bool>,
    /// Nobody needs stacks any more.
    over: AtomicBool,
    /// What a fiber left on its stack.
    payload: Plain<u32>,
}

impl Kitchen {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            pool: std::sync::Arc::new(StackPool::new(PoolConfig {
                max_stacks: Some(1),
                ..PoolConfig::default()
            })),
            drivers: std::array::from_fn(|_| FutexDriver::new()),
            starving: std::array::from_fn(|_| AtomicBool::new(false)),
            no_stack: Lock::new(false),
            over: AtomicBool::new(false),
            payload: Plain::new(0),
        })
    }

    /// Not dropped while a failed model unwinds: that takes locks.
    fn hot(&self) -> ManuallyDrop<HotStacks> {
        ManuallyDrop::new(HotStacks::new(self.pool.clone(), CLASS))
    }

    fn wake_all(&self) {
        for driver in &self.drivers {
            driver.unpark();
        }
    }

    fn wake_starving(&self) {
        for (driver, starving) in self.drivers.iter().zip(&self.starving) {
            if starving.load(Ordering::Relaxed) {
                driver.unpark();
            }
        }
    }

    /// A worker that must have a stack, as `run::start` and `starve::starve`.
    fn take(&self, worker: usize, hot: &mut HotStacks) -> Stack {
        if let Ok(stack) = hot.take(CLASS) {
            return stack;
        }
        assert!(!self.starving[worker].swap(true, Ordering::Relaxed));
        self.pool.begin_starving();
        let mut stack = hot.take(CLASS).ok();
        if stack.is_none() {
            *self.no_stack.lock() = true;
            // Each time: not only when `no_stack` was not set before.
            self.wake_all();
        }
        loop {
            // `look_around`, as far as it feeds the starved.
            if let Some(stack) = stack {
                self.end_starving(worker);
                return stack;
            }
            stack = hot.take(CLASS).ok();
            if stack.is_none() {
                self.drivers[worker].park(None);
            }
        }
    }

    /// As `starve::retract_fed`.
    fn end_starving(&self, worker: usize) {
        self.starving[worker].store(false, Ordering::Relaxed);
        self.pool.end_starving();
        let mut no_stack = self.no_stack.lock();
        if self.starving.iter().all(|it| !it.load(Ordering::Relaxed)) {
            *no_stack = false;
        }
    }

    /// A worker whose last fiber ends, and that sleeps then: `run::finish`,
    /// `starve::relieve`, `sleep::sleep`.
    fn give_and_sleep(&self, worker: usize, hot: &mut HotStacks, stack: Stack) {
        self.payload.set(1);
        if hot.give(stack) == Given::Wanted {
            self.wake_starving();
        }
        while !self.over.load(Ordering::Relaxed) {
            if self.pool.is_starving() && hot.flush() == Given::Wanted {
                self.wake_starving();
            }
            self.drivers[worker].park(None);
        }
    }

    /// A worker that needs the stack which another one gives.
    fn starve_and_end(&self, worker: usize) {
        let mut hot = self.hot();
        let stack = self.take(worker, &mut hot);
        assert_eq!(self.payload.get(), 1);
        self.payload.set(2);
        self.over.store(true, Ordering::Relaxed);
        self.wake_all();
        let _ = hot.give(stack);
        drop(ManuallyDrop::into_inner(hot));
    }
}

#[test]
fn a_stack_that_comes_back_while_a_worker_starves_reaches_it() {
    loom::model(|| {
        let kitchen = Kitchen::new();
        let mut hot = kitchen.hot();
        let stack = hot.take(CLASS).unwrap();
        let starving = thread::spawn({
            let kitchen = kitchen.clone();
            move || kitchen.starve_and_end(1)
        });
        kitchen.give_and_sleep(0, &mut hot, stack);
        starving.join().unwrap();
        drop(ManuallyDrop::into_inner(hot));
    });
}

/// Worker 0 has just been fed, worker 1 starves next, worker 2 has the stack.
#[test]
fn a_worker_that_begins_to_starve_when_another_ends_gets_the_stack_of_a_third() {
    // Three workers, two of which sleep, and two locks: with three preemptions
    // it takes more than a minute.
    bounded(2).check(|| {
        let kitchen = Kitchen::new();
        let mut hot = kitchen.hot();
        let stack = hot.take(CLASS).unwrap();
        kitchen.starving[0].store(true, Ordering::Relaxed);
        kitchen.pool.begin_starving();
        *kitchen.no_stack.lock() = true;
        let fed = thread::spawn({
            let kitchen = kitchen.clone();
            move || kitchen.end_starving(0)
        });
        let starving = thread::spawn({
            let kitchen = kitchen.clone();
            move || kitchen.starve_and_end(1)
        });
        kitchen.give_and_sleep(2, &mut hot, stack);
        fed.join().unwrap();
        starving.join().unwrap();
        drop(ManuallyDrop::into_inner(hot));
    });
}
