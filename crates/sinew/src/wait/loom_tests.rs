//! Models of a wait: the claim, its one notification, and the end of a fiber.
//!
//! Every ordering below was weakened once by hand; the model named caught it.
//!
//! | weakened                                  | caught by |
//! |-------------------------------------------|-----------|
//! | `Claim::decide` AcqRel → Acquire          | `a_claim_is_won_once…` (1) |
//! | `Claim::decide` AcqRel → Release          | nothing: not needed (2) |
//! | `Claim::decide`, failure Acquire → Relaxed | nothing: not needed (3) |
//! | `Claim::settle` Release → Relaxed         | `a_claim_is_won_once…`, `a_task_that_awaits…` |
//! | `Claim::get` Acquire → Relaxed            | `a_claim_is_won_once…`, `a_task_that_awaits…` |
//! | `Claim::place` Acquire → Relaxed          | `a_claim_is_won_once…` (1) |
//!
//! (1) Only by the model of the claim alone: in a whole wait the notification that
//! follows (`State::notify`, `ThreadProxy::notify`) orders the same. (2) Nothing is
//! published through the word of a wait that is still open: a waker gets at the
//! waiter through a list's lock. (3) A loser reads nothing of the winner's; it takes
//! the notification first. What the waits need of the state word and the proxy is in
//! the table of `fiber::loom_tests`, operations and selects are in
//! `wait::operation_loom_tests`.
//!
//! `Worker::wait` follows `wait_fiber_timed`, whose switch cannot run in a model; a
//! timer only nudges, and the wait gives up by leaving its list.

use super::deadline::Deadline;
use super::end::{forget_task, poll_end, wait_as_owner, wait_for_end, wake_joiners};
use super::node::{Node, WaitList};
use super::outcome::{Claim, WaitOutcome};
use super::spec::WaitSpec;
use super::waiter::{Waiter, wait};
use crate::fiber::{Birth, Block, Completed, Kind, Ops, OpsOf, Park, Priority, WaitReason};
use crate::primitive::model::Plain;
use crate::primitive::{AtomicUsize, Ordering};
use crate::queue::inbox::{Inbox, Pushed};
use crate::sched::seam::{Driver, FutexDriver};
use crate::stack::StackClass;
use crate::sys::Lock;
use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;
use std::panic::Location;
use std::pin::pin;
use std::ptr::NonNull;
use std::task::{Context, Poll, Wake, Waker};

fn spec() -> WaitSpec<'static> {
    WaitSpec::new(WaitReason::Join, Location::caller())
}

/// A claim alone, of a wait with two places that also times out.
#[test]
fn a_claim_is_won_once_and_who_reads_the_outcome_sees_what_the_winner_wrote() {
    use WaitOutcome::{TimedOut, Woken};
    loom::model(|| {
        let shared = Arc::new((Claim::new(), [Plain::new(0), Plain::new(0)]));
        let claimers = [0, 1].map(|place| {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.1[place].set(7);
                shared.0.wake(place as u32).then_some(place as u32)
            })
        });
        let timed_out = shared.0.give_up(TimedOut);
        let outcome = shared.0.get().expect("claimed by now");
        let place = shared.0.place();
        assert_eq!(outcome == TimedOut, timed_out);
        assert_eq!(place.is_some(), !timed_out);
        if let Some(place) = place {
            assert_eq!(shared.1[place as usize].get(), 7);
        }
        let mut winners = Vec::new();
        for claimer in claimers {
            winners.extend(claimer.join().unwrap());
        }
        assert_eq!(winners, Vec::from_iter(place));
    });
    for settle in [false, true] {
        loom::model(move || {
            let shared = Arc::new((Claim::new(), Plain::new(0)));
            let waker = thread::spawn({
                let shared = shared.clone();
                move || {
                    shared.1.set(7);
                    if settle {
                        shared.0.settle(Woken);
                    } else {
                        assert!(shared.0.wake(1));
                    }
                }
            });
            let reader = thread::spawn({
                let shared = shared.clone();
                move || {
                    if shared.0.place().is_some() {
                        assert_eq!(shared.1.get(), 7);
                    }
                }
            });
            if shared.0.get() == Some(Woken) {
                assert_eq!(shared.1.get(), 7);
            }
            waker.join().unwrap();
            reader.join().unwrap();
        });
    }
}

/// A list that threads wait in, and what loom should know of one waiter.
struct Post {
    list: Lock<WaitList<Node>>,
    /// Handed over by the waker.
    value: Plain<u32>,
    /// Stands for the waiter's memory: read by who uses the waiter, written
    /// when its frame is left.
    node: Plain<bool>,
}

impl Post {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            list: Lock::new(WaitList::new()),
            value: Plain::new(0),
            node: Plain::new(true),
        })
    }

    fn link(&self, waiter: &Waiter, node: &Node) {
        node.belongs_to(waiter, 0);
        // SAFETY: callers pin both, and wait until it was claimed or unlinked.
        unsafe { self.list.lock().push_back(node) };
    }

    /// As a `leave` of `WaitSpec`.
    fn unlink(&self, node: &Node) -> bool {
        // SAFETY: linked into no other list.
        unsafe { self.list.lock().remove(node) }
    }

    /// Wakes the oldest waiter; true if there was one.
    fn wake(&self) -> bool {
        let claimed = {
            let mut list = self.list.lock();
            if !list.is_empty() {
                assert!(self.node.get(), "the waiter is gone");
            }
            list.claim_front()
        };
        let Some((_, wakeup)) = claimed else {
            return false;
        };
        self.value.set(7);
        wakeup.fire();
        true
    }
}

#[test]
fn a_thread_that_times_out_while_it_is_woken_leaves_after_the_waker_is_done_with_it() {
    loom::model(|| {
        let post = Post::new();
        let waiter = pin!(Waiter::for_current());
        let node = pin!(Node::new());
        post.link(&waiter, &node);
        let waker = thread::spawn({
            let post = post.clone();
            move || post.wake()
        });
        // Its time is over when it begins to wait.
        let leave = || post.unlink(&node);
        let spec = spec().deadline(Some(Deadline(0))).leaving_by(&leave);
        let outcome = wait(&waiter, &spec);
        if outcome == WaitOutcome::Woken {
            assert_eq!(post.value.get(), 7);
        }
        post.node.set(false);
        assert_eq!(waker.join().unwrap(), outcome == WaitOutcome::Woken);
    });
}

/// A worker that runs one fiber; its driver and inbox are the real ones.
struct Worker {
    inbox: Inbox,
    driver: FutexDriver,
}

struct ModelOps;

impl OpsOf for ModelOps {
    const OPS: Ops = Ops {
        enqueue: |block| {
            // SAFETY: the fiber is ours, and its home is a `Worker` that lives as
            // long as the model.
            unsafe {
                let worker = &*block.as_ref().home().cast::<Worker>();
                if worker.inbox.push(block) == Pushed::WakeOwner {
                    worker.driver.unpark();
                }
            }
        },
        recycle: |_| {},
    };
}

fn fiber() -> Block {
    let block = Block::vacant();
    let birth = Birth {
        runtime: NonNull::dangling(),
        ops: ModelOps,
        class: StackClass::SMALLEST,
        priority: Priority::Normal,
        kind: Kind {
            daemon: false,
            local: false,
            migratable: false,
            on_pool: false,
            always_runs: false,
        },
        name: None,
        spawned_at: Location::caller(),
        parent: None,
    };
    // SAFETY: nobody else knows the block.
    unsafe { block.occupy(birth, || ()) };
    block
}

impl Worker {
    fn new() -> Self {
        Self {
            inbox: Inbox::new(),
            driver: FutexDriver::new(),
        }
    }

    fn home(&self) -> *mut () {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// Sleeps until the fiber is in the inbox.
    fn await_fiber(&self) {
        let mut came = 0;
        loop {
            self.inbox.take_all(|_| came += 1);
            if came > 0 {
                assert_eq!(came, 1, "enqueued twice");
                return;
            }
            if self.inbox.try_sleep() {
                self.driver.park(None);
            }
        }
    }

    /// `wait_fiber_timed`, and what the worker does when the fiber leaves its
    /// stack. The timer fires while the fiber is off it.
    fn wait(&self, fiber: &Block, leave: &dyn Fn() -> bool, mut timer: bool) -> WaitOutcome {
        let mut due = false;
        loop {
            // As `is_over`.
            let wakes = fiber.state().take_wakes(fiber.heard());
            if wakes.notified {
                return WaitOutcome::Woken;
            }
            // As `Waiter::give_up` of a wait with one place.
            if wakes.seen.look() && leave() {
                return WaitOutcome::Cancelled;
            }
            if due && leave() {
                return WaitOutcome::TimedOut;
            }
            match fiber.state().commit_park(fiber.heard()) {
                Park::Awake => {}
                Park::Asleep => {
                    if std::mem::take(&mut timer) {
                        due = true;
                        // As `timer_fired`.
                        let wake = fiber.state().nudge();
                        // SAFETY: the answer of this block's own word.
                        unsafe { fiber.follow(wake) };
                    }
                    self.await_fiber();
                }
            }
        }
    }
}

fn a_fiber_waits(cancel: bool, timer: bool) {
    // A waker with a lock, a canceller, and a worker that sleeps: bounded.
    let mut model = Builder::new();
    model.preemption_bound = cancel.then_some(4);
    model.check(move || {
        let shared = Arc::new((Post::new(), Worker::new(), fiber()));
        let (post, worker, fiber) = &*shared;
        fiber.set_home(worker.home());
        let waiter = pin!(Waiter::for_fiber(NonNull::from(fiber)));
        let node = pin!(Node::new());
        post.link(&waiter, &node);
        let waker = thread::spawn({
            let shared = shared.clone();
            move || shared.0.wake()
        });
        let canceller = cancel.then(|| {
            let shared = shared.clone();
            thread::spawn(move || {
                // The canceller has a reference.
                let wake = shared.2.state().cancel();
                // SAFETY: the answer of this block's own word.
                unsafe { shared.2.follow(wake.wake) };
            })
        });
        let outcome = worker.wait(fiber, &|| post.unlink(&node), timer);
        if outcome == WaitOutcome::Woken {
            assert_eq!(waiter.outcome(), Some(outcome));
            assert_eq!(post.value.get(), 7);
        }
        post.node.set(false);
        if let Some(canceller) = canceller {
            canceller.join().unwrap();
        }
        let woken = waker.join().unwrap();
        assert_eq!(woken, outcome == WaitOutcome::Woken);
    });
}

#[test]
fn a_fiber_that_times_out_while_it_is_woken_leaves_after_its_one_notification() {
    a_fiber_waits(false, true);
}

#[test]
fn a_fiber_that_is_cancelled_and_woken_and_times_out_leaves_by_one_of_them() {
    a_fiber_waits(true, true);
}

/// A fiber that ends, and its outcome.
struct Ending {
    fiber: Block,
    outcome: Plain<u32>,
}

impl Ending {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            fiber: fiber(),
            outcome: Plain::new(0),
        })
    }

    /// As `run_to_completion`.
    fn complete(&self) {
        self.outcome.set(7);
        let Completed::ForHandle(audience) = self.fiber.state().complete() else {
            unreachable!("nobody detaches");
        };
        wake_joiners(&self.fiber, audience);
    }
}

#[test]
fn an_owner_and_a_listed_waiter_both_see_the_outcome_of_a_fiber_that_ends() {
    // Two waiters that sleep, and a lock: bounded.
    let mut model = Builder::new();
    model.preemption_bound = Some(4);
    model.check(|| {
        let ending = Ending::new();
        let worker = thread::spawn({
            let ending = ending.clone();
            move || ending.complete()
        });
        let listed = thread::spawn({
            let ending = ending.clone();
            move || {
                assert_eq!(wait_for_end(&ending.fiber, &spec()), WaitOutcome::Woken);
                assert_eq!(ending.outcome.get(), 7);
            }
        });
        // SAFETY: we stand for the one owner of the handle.
        unsafe { wait_as_owner(&ending.fiber, &spec()) };
        assert_eq!(ending.outcome.get(), 7);
        worker.join().unwrap();
        listed.join().unwrap();
    });
}

#[test]
fn a_join_that_times_out_leaves_no_waiter_behind() {
    loom::model(|| {
        let ending = Ending::new();
        let worker = thread::spawn({
            let ending = ending.clone();
            move || ending.complete()
        });
        let spec = spec().deadline(Some(Deadline(0)));
        match wait_for_end(&ending.fiber, &spec) {
            WaitOutcome::Woken => assert_eq!(ending.outcome.get(), 7),
            _ => assert!(ending.fiber.joiners().lock().is_empty()),
        }
        worker.join().unwrap();
    });
}

/// A task's executor: counts its wakes.
#[derive(Default)]
struct Executor(AtomicUsize);

impl Wake for Executor {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_task_that_awaits_a_fiber_is_woken_and_may_be_dropped_at_any_time() {
    for polls in [1, 2] {
        loom::model(move || {
            let ending = Ending::new();
            let worker = thread::spawn({
                let ending = ending.clone();
                move || ending.complete()
            });
            let executor = std::sync::Arc::new(Executor::default());
            let waker = Waker::from(executor.clone());
            let mut slot = None;
            let mut ready = false;
            for _ in 0..polls {
                let mut context = Context::from_waker(&waker);
                ready = poll_end(&ending.fiber, &mut slot, &mut context) == Poll::Ready(());
                if ready {
                    assert_eq!(ending.outcome.get(), 7);
                    break;
                }
            }
            if polls == 2 && !ready {
                while executor.0.load(Ordering::Relaxed) == 0 {
                    thread::yield_now(); // the executor runs others
                }
                let mut context = Context::from_waker(&waker);
                // A waker of another task does not change that it has ended.
                let other = poll_end(&ending.fiber, &mut slot, &mut context);
                assert_eq!(other, Poll::Ready(()));
                assert_eq!(ending.outcome.get(), 7);
            }
            forget_task(&ending.fiber, &mut slot);
            assert!(ending.fiber.joiners().lock().is_empty());
            worker.join().unwrap();
        });
    }
}
