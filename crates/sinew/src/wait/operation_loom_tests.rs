//! Models of operations: done on a thread, awaited by a task that may be dropped at
//! any time, and as the arms of a select.
//!
//! The orderings are those of the claim and of the notification: see
//! `wait::loom_tests` and `fiber::loom_tests`. Each step below was left out once by
//! hand; the model named caught it.
//!
//! | left out                                            | caught by |
//! |-----------------------------------------------------|-----------|
//! | `Pending::drop` does not pass on                    | `a_task_that_is_dropped…` |
//! | `Pending::poll` does not wait for the list's lock   | `a_task_that_changes_its_waker…` |
//! | `Waiter::claim` of a select stores, compares nothing | all three of selects |
//! | `Waiter::take_oneself` of a select does not claim   | all three of selects |
//! | `Waiter::give_up` does not ask whether it left      | `an_operation_yields…`, `wait::a_thread_that_times_out…` |

use super::deadline::Deadline;
use super::node::{Node, Place, WaitList, Wakes};
use super::operation::{Enlisted, Operation, perform};
use super::pending::Pending;
use super::select::{Arm, ArmRef, OnCancel, OperationArm, Patience, SelectSpec, Selected, select};
use super::spec::WaitSpec;
use super::waiter::Waiter;
use crate::fiber::WaitReason;
use crate::primitive::model::Plain;
use crate::primitive::{AtomicUsize, Ordering};
use crate::sys::Lock;
use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;
use std::cell::Cell;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Wake, Waker};

fn bounded(preemptions: usize) -> Builder {
    let mut model = Builder::new();
    model.preemption_bound = Some(preemptions);
    model
}

fn spec() -> WaitSpec<'static> {
    WaitSpec::new(WaitReason::Semaphore, Location::caller())
}

/// A task's executor: counts its wakes.
#[derive(Default)]
struct Executor(AtomicUsize);

impl Wake for Executor {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Permits that are handed out one by one: the least that an operation needs.
struct Permits {
    /// Those that are free, by number, and who waits for one.
    line: Lock<(Vec<usize>, WaitList<Waiting>)>,
    /// Written by who releases a permit, and by who has it.
    payload: [Plain<u32>; 2],
}

#[repr(C)]
struct Waiting {
    node: Node,
    permit: Cell<Option<usize>>,
}

// SAFETY: `repr(C)`, and the node is first.
unsafe impl Place for Waiting {
    fn node(&self) -> &Node {
        &self.node
    }
}

struct Take<'a> {
    place: Waiting,
    permits: &'a Permits,
}

impl Permits {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            line: Lock::new((Vec::new(), WaitList::new())),
            payload: [Plain::new(0), Plain::new(0)],
        })
    }

    fn release(&self, permit: usize) {
        self.payload[permit].set(7);
        self.give(permit);
    }

    fn give(&self, permit: usize) {
        let mut wakes = Wakes::new();
        {
            let mut line = self.line.lock();
            match line.1.claim_front() {
                None => line.0.push(permit),
                Some((place, wakeup)) => {
                    // SAFETY: claimed by us, under the lock.
                    let place = unsafe { place.as_ref() };
                    place.permit.set(Some(permit));
                    // SAFETY: as above.
                    unsafe { wakes.add(&place.node, wakeup) };
                }
            }
        }
        wakes.fire();
    }

    fn take(&self) -> Take<'_> {
        Take {
            place: Waiting {
                node: Node::new(),
                permit: Cell::new(None),
            },
            permits: self,
        }
    }

    /// A permit's owner sees what came before its release, and is alone.
    fn use_permit(&self, permit: usize) {
        assert_eq!(self.payload[permit].get(), 7);
        self.payload[permit].set(8);
    }

    /// How many permits nobody has.
    fn free(&self) -> usize {
        let line = self.line.lock();
        assert!(line.1.is_empty(), "somebody is still in line");
        line.0.len()
    }
}

// SAFETY: the one place is linked only into the line, whose lock `give` holds
// while it claims, and `delist` takes.
unsafe impl Operation for Take<'_> {
    type Output = usize;

    fn attempt(&self) -> Option<usize> {
        self.permits.line.lock().0.pop()
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<usize> {
        let mut line = self.permits.line.lock();
        if let Some(permit) = line.0.pop() {
            if waiter.take_oneself(place) {
                return Enlisted::Done(permit);
            }
            line.0.push(permit);
            return Enlisted::Lost;
        }
        self.place.node.belongs_to(waiter, place);
        // SAFETY: the caller's promise.
        unsafe { line.1.push_back(&self.place) };
        Enlisted::Linked
    }

    fn delist(&self) -> bool {
        // SAFETY: linked only by `enlist`, into this list.
        unsafe { self.permits.line.lock().1.remove(&self.place) }
    }

    fn accept(&self) -> Option<usize> {
        self.place.permit.take()
    }

    fn pass_on(&self) {
        if let Some(permit) = self.place.permit.take() {
            self.permits.give(permit);
        }
    }
}

#[test]
fn an_operation_yields_what_its_waker_gave_or_gives_up_and_takes_nothing() {
    for deadline in [None, Some(Deadline(0))] {
        loom::model(move || {
            let permits = Permits::new();
            let releaser = thread::spawn({
                let permits = permits.clone();
                move || permits.release(0)
            });
            let taken = perform(&permits.take(), &spec().deadline(deadline));
            if let Ok(permit) = taken {
                permits.use_permit(permit);
            }
            releaser.join().unwrap();
            assert!(taken.is_ok() || deadline.is_some());
            assert_eq!(permits.free(), usize::from(taken.is_err()));
        });
    }
}

#[test]
fn of_two_operations_each_gets_one_permit() {
    bounded(3).check(|| {
        let permits = Permits::new();
        let take = |permits: &Permits| {
            let permit = perform(&permits.take(), &spec()).unwrap();
            permits.use_permit(permit);
        };
        let taker = thread::spawn({
            let permits = permits.clone();
            move || take(&permits)
        });
        let releaser = thread::spawn({
            let permits = permits.clone();
            move || (0..2).for_each(|permit| permits.release(permit))
        });
        take(&permits);
        taker.join().unwrap();
        releaser.join().unwrap();
        assert_eq!(permits.free(), 0);
    });
}

/// Polls once.
fn poll<F: Future>(
    future: std::pin::Pin<&mut F>,
    executor: &std::sync::Arc<Executor>,
) -> Poll<F::Output> {
    let waker = Waker::from(executor.clone());
    future.poll(&mut Context::from_waker(&waker))
}

#[test]
fn a_task_that_is_dropped_at_any_time_passes_on_what_it_was_given() {
    // The permit stays.
    loom::model(|| {
        let permits = Permits::new();
        let releaser = thread::spawn({
            let permits = permits.clone();
            move || permits.release(0)
        });
        let executor = std::sync::Arc::new(Executor::default());
        let taken = {
            let mut task = pin!(Pending::new(permits.take()));
            poll(task.as_mut(), &executor)
        };
        if let Poll::Ready(permit) = taken {
            permits.use_permit(permit);
        }
        releaser.join().unwrap();
        assert_eq!(permits.free(), usize::from(taken.is_pending()));
    });
    // Or it goes to a thread that waits.
    bounded(3).check(|| {
        let permits = Permits::new();
        let executor = std::sync::Arc::new(Executor::default());
        {
            let mut task = pin!(Pending::new(permits.take()));
            assert!(poll(task.as_mut(), &executor).is_pending());
            let releaser = thread::spawn({
                let permits = permits.clone();
                move || permits.release(0)
            });
            let waiter = thread::spawn({
                let permits = permits.clone();
                move || {
                    let permit = perform(&permits.take(), &spec()).unwrap();
                    permits.use_permit(permit);
                }
            });
            // Dropped here, first in line or not any more.
            let _threads = [releaser, waiter];
        }
    });
}

#[test]
fn a_task_that_changes_its_waker_while_it_is_claimed_is_woken_by_one_that_it_left() {
    loom::model(|| {
        let permits = Permits::new();
        let executors = [0, 1].map(|_| std::sync::Arc::new(Executor::default()));
        let mut task = pin!(Pending::new(permits.take()));
        assert!(poll(task.as_mut(), &executors[0]).is_pending());
        let releaser = thread::spawn({
            let permits = permits.clone();
            move || permits.release(0)
        });
        let mut taken = poll(task.as_mut(), &executors[1]);
        if taken.is_pending() {
            // It waits for the waker it left last.
            while executors[1].0.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            taken = poll(task.as_mut(), &executors[1]);
        }
        let Poll::Ready(permit) = taken else {
            unreachable!("woken for nothing");
        };
        permits.use_permit(permit);
        releaser.join().unwrap();
        let wakes: usize = executors
            .iter()
            .map(|it| it.0.load(Ordering::Relaxed))
            .sum();
        assert!(wakes <= 1);
        assert_eq!(permits.free(), 0);
    });
}

/// In random order a run of a model could not be repeated.
fn biased() -> SelectSpec {
    SelectSpec {
        biased: true,
        patience: Patience::Until(None),
        on_cancel: OnCancel::TellArm,
        at: Location::caller(),
    }
}

/// Takes a permit of one of the two; says of which.
fn select_one(both: &[Arc<Permits>; 2]) -> usize {
    let arms = both
        .each_ref()
        .map(|permits| OperationArm::no_point(permits.take()));
    let refs = arms.each_ref().map(|arm| ArmRef::new(arm));
    let Selected::Arm(chosen) = select(&refs, &biased()) else {
        unreachable!("nothing else ends it");
    };
    both[chosen].use_permit(arms[chosen].take().unwrap());
    chosen
}

#[test]
fn a_select_that_is_woken_from_both_sides_takes_one_and_the_other_is_not_lost() {
    bounded(3).check(|| {
        let both = [Permits::new(), Permits::new()];
        let releasers = both.each_ref().map(|permits| {
            let permits = permits.clone();
            thread::spawn(move || permits.release(0))
        });
        let first = select_one(&both);
        let second = select_one(&both);
        assert_eq!(first + second, 1, "one arm was chosen twice");
        for releaser in releasers {
            releaser.join().unwrap();
        }
        assert_eq!(both.each_ref().map(|permits| permits.free()), [0, 0]);
    });
}

#[test]
fn two_selects_over_the_same_lines_get_one_permit_each() {
    bounded(2).check(|| {
        let both = [Permits::new(), Permits::new()];
        let releaser = thread::spawn({
            let both = both.clone();
            move || both.iter().for_each(|permits| permits.release(0))
        });
        let other = thread::spawn({
            // The other way round, so that they meet in the middle.
            let both = [both[1].clone(), both[0].clone()];
            move || 1 - select_one(&both)
        });
        let chosen = select_one(&both);
        assert_ne!(other.join().unwrap(), chosen);
        releaser.join().unwrap();
        assert_eq!(both.each_ref().map(|permits| permits.free()), [0, 0]);
    });
}

/// An arm whose time comes as soon as the select waits.
struct Soon(Cell<bool>);

// SAFETY: links nothing.
unsafe impl Arm for Soon {
    fn attempt(&self) -> bool {
        self.0.replace(true)
    }

    unsafe fn enlist(&self, _: &Waiter, _: u32) -> Enlisted<()> {
        Enlisted::Linked
    }

    fn delist(&self) {}

    fn accept(&self) -> bool {
        unreachable!("nobody wakes who waits for time")
    }

    fn refuse(&self) {}

    fn deadline(&self) -> Option<Deadline> {
        Some(Deadline(0))
    }
}

#[test]
fn a_select_whose_time_comes_while_it_is_woken_takes_one_or_leaves_all() {
    bounded(3).check(|| {
        let both = [Permits::new(), Permits::new()];
        let releasers = both.each_ref().map(|permits| {
            let permits = permits.clone();
            thread::spawn(move || permits.release(0))
        });
        let soon = Soon(Cell::new(false));
        let arms = both
            .each_ref()
            .map(|permits| OperationArm::no_point(permits.take()));
        let [first, second] = arms.each_ref().map(|arm| ArmRef::new(arm));
        let selected = select(&[first, second, ArmRef::new(&soon)], &biased());
        let Selected::Arm(chosen) = selected else {
            unreachable!("nothing else ends it");
        };
        if chosen < 2 {
            both[chosen].use_permit(arms[chosen].take().unwrap());
        }
        drop(arms); // the frame is left
        for releaser in releasers {
            releaser.join().unwrap();
        }
        let expected = [0, 1].map(|index| usize::from(index != chosen));
        assert_eq!(both.each_ref().map(|permits| permits.free()), expected);
    });
}
