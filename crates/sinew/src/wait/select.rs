//! Waiting for the first of several operations.
//!
//! A select tries its arms, in random order or top to bottom. If none can be
//! done it stands in all their lines at once, with one waiter: the claim-once
//! word decides which arm it is, so at most one is ever done. Then it leaves the
//! other lines; they have no trace of it.
//!
//! Lines are entered one after the other, each under its own lock and no other,
//! so an arm may become ready while later ones are entered: it then claims the
//! waiter like any other claim. An operation that turns out to be ready when its
//! line is entered claims the waiter for the select itself.
//!
//! Random order: arm numbers go `first, first + step, …` modulo a power of two,
//! with those left out that no arm has; the first is random, and the step random
//! and odd. So every arm is tried once, and each comes first equally often; and
//! since each step is as likely as the same one backwards, of two ready arms each
//! comes before the other with equal chance.
//!
//! Fair to who must be met. Two selects that deal with each other over a buffered and
//! a rendezvous channel may fall into step, each claimed by the other at the buffered
//! one before it can look at the rendezvous (with a buffer for one message):
//!
//! ```text
//!   sender                                  receiver
//!   ──────                                  ────────
//!   puts a message in, for the receiver     (stands in both lines: is claimed)
//!   finds no room and no partner: stands
//!   in both lines                           takes the message: there is room, so the
//!   (is claimed, and promised the slot)     sender is claimed at the buffered channel
//!                                           finds no message and no partner: stands in
//!   fills its slot: the receiver is         both lines
//!   claimed at the buffered channel …       …
//! ```
//!
//! Each finds one arm ready at a time, so no choice is ever made. Hence a select that
//! was woken with a promise looks once more: if a partner stands at a rendezvous arm
//! that comes before the woken one in its order, it waives the promise and meets the
//! partner.

use super::deadline::Deadline;
use super::look::look_again;
use super::node::fire_tasks;
use super::operation::{Enlisted, Operation};
use super::outcome::WaitOutcome;
use super::spec::WaitSpec;
use super::waiter::{Waiter, wait};
use super::{chain, deadline, point};
use crate::error::Cancelled;
use crate::fiber::WaitReason;
use crate::sched::{current, switch};
use crate::util::rng::{Rng, os_seed};
use std::cell::Cell;
use std::panic::Location;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// One arm of a select.
///
/// # Safety
///
/// As for [`Operation`].
pub(crate) unsafe trait Arm {
    /// Does it if that needs no waiting.
    fn attempt(&self) -> bool;

    /// Does it, or stands in line.
    ///
    /// # Safety
    ///
    /// As for [`Operation::enlist`].
    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<()>;

    /// Leaves the line.
    fn delist(&self);

    /// Goes on after the wait has ended at this arm; false to start over.
    fn accept(&self) -> bool;

    /// Whether it is a cancellation point.
    fn is_point(&self) -> bool {
        true
    }

    /// Takes the answer that the fiber was cancelled; the arm is a point.
    fn refuse(&self);

    /// Whether what it waits for stays there until it is taken, and nobody looks
    /// for who stands in its line: only then the select may look again before it
    /// does (`wait::look`). Who is only to be woken if it waits *now*, or to be
    /// met, must be in line as soon as it has begun to wait.
    fn may_look(&self) -> bool {
        false
    }

    /// Whether it waits for a partner who must be met (nothing is kept for it), and
    /// one seems to be there.
    fn meets(&self) -> bool {
        false
    }

    /// Gives up what the wait has ended with at this arm, so that others may have it;
    /// false, and nothing is changed, if that cannot be.
    fn waive(&self) -> bool {
        false
    }

    /// Whether it has yielded something that was not taken: it is used up.
    fn is_spent(&self) -> bool {
        false
    }

    /// When it may be done without being woken.
    fn deadline(&self) -> Option<Deadline> {
        None
    }
}

/// An arm, as a select takes it.
pub struct ArmRef<'a>(&'a dyn Arm);

impl<'a> ArmRef<'a> {
    /// # Panics
    ///
    /// If the arm was chosen before. A second output would drop the first in the
    /// middle of a select: user code, while places of it are in lines.
    #[inline]
    pub(crate) fn new<A: Arm>(arm: &'a A) -> Self {
        assert!(!arm.is_spent(), "an arm of a select was used twice");
        Self(arm)
    }
}

impl std::fmt::Debug for ArmRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ArmRef")
    }
}

/// An operation as an arm, and what it yielded.
pub(crate) struct OperationArm<O: Operation> {
    operation: O,
    output: Cell<Option<Result<O::Output, Cancelled>>>,
    is_point: bool,
}

impl<O: Operation> OperationArm<O> {
    /// An arm that is a cancellation point.
    pub(crate) fn point(operation: O) -> Self {
        Self {
            operation,
            output: Cell::new(None),
            is_point: true,
        }
    }

    /// An arm that is none.
    pub(crate) fn no_point(operation: O) -> Self {
        Self {
            is_point: false,
            ..Self::point(operation)
        }
    }

    fn yields(&self, output: O::Output) {
        self.output.set(Some(Ok(output)));
    }

    /// What the arm yielded; it was chosen.
    pub(crate) fn take(&self) -> Result<O::Output, Cancelled> {
        self.output.take().expect("the arm was chosen")
    }
}

// SAFETY: does what the operation does.
unsafe impl<O: Operation> Arm for OperationArm<O> {
    fn attempt(&self) -> bool {
        let output = self.operation.attempt();
        let done = output.is_some();
        if let Some(output) = output {
            self.yields(output);
        }
        done
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<()> {
        // SAFETY: the caller's promise.
        unsafe { self.operation.enlist(waiter, place) }.map(|output| self.yields(output))
    }

    fn delist(&self) {
        self.operation.delist();
    }

    fn accept(&self) -> bool {
        let output = self.operation.accept();
        let done = output.is_some();
        if let Some(output) = output {
            self.yields(output);
        }
        done
    }

    fn is_point(&self) -> bool {
        self.is_point
    }

    fn is_spent(&self) -> bool {
        let output = self.output.take();
        let spent = output.is_some();
        self.output.set(output);
        spent
    }

    fn refuse(&self) {
        self.output.set(Some(Err(Cancelled)));
    }
}

/// How long a select waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Not at all.
    None,
    /// Until then; `None` for ever.
    Until(Option<Deadline>),
}

/// How a select ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Selected {
    /// By this arm, which has done its operation or was told that the fiber was
    /// cancelled.
    Arm(usize),
    /// No arm was ready in time.
    None,
    /// The fiber was cancelled, and the caller wanted to know that itself.
    Cancelled,
}

/// What a select does when its fiber is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnCancel {
    /// The first arm that is a point is told; without one it is ignored.
    TellArm,
    /// The caller is told.
    TellCaller,
    /// Nothing: this select is no point.
    Ignore,
}

/// Everything but the arms.
pub(crate) struct SelectSpec {
    pub(crate) biased: bool,
    pub(crate) patience: Patience,
    pub(crate) on_cancel: OnCancel,
    pub(crate) at: &'static Location<'static>,
}

/// Does one of the operations, waiting for the first that can be done.
///
/// With no arms at all it waits for its deadline, or for ever.
pub(crate) fn select(arms: &[ArmRef<'_>], spec: &SelectSpec) -> Selected {
    let told = match spec.on_cancel {
        OnCancel::TellCaller => Some(Selected::Cancelled),
        OnCancel::TellArm => arms
            .iter()
            .position(|arm| arm.0.is_point())
            .map(Selected::Arm),
        OnCancel::Ignore => None,
    };
    if told.is_some() && point::check().is_err() {
        return tell(arms, told);
    }
    let mut looked = false;
    loop {
        let order = Order::new(arms.len(), spec.biased);
        let done = Cell::new(None);
        let attempt = || {
            done.set(order.clone().find(|&index| arms[index].0.attempt()));
            done.get().is_some()
        };
        let mut ready = attempt();
        if !ready
            && !looked
            && spec.patience == Patience::Until(None)
            && arms.iter().all(|arm| arm.0.may_look())
        {
            looked = true;
            // Goes on with the fiber after an attempt, which may call wakers of tasks.
            ready = look_again(switch::running(), || chain::stay(attempt));
        }
        if ready {
            return Selected::Arm(done.get().expect("it is set by who found it"));
        }
        let deadline = match spec.patience {
            Patience::None => Some(Deadline(0)),
            Patience::Until(deadline) => deadline,
        };
        let over = deadline.is_some_and(|at| at.0 <= deadline::now());
        // Of one arm a look says it all. Of several each was looked at in a
        // moment of its own: there may have been none in which nothing was
        // ready. When it stands in all lines at once, unclaimed, there is.
        if over && (arms.len() < 2 || !switch::may_wait()) {
            return Selected::None;
        }
        match wait_in_all(arms, order, deadline, told, spec.at) {
            Waited::Selected(selected) => return selected,
            Waited::TimedOut if over => return Selected::None,
            Waited::TimedOut | Waited::Again => {}
        }
    }
}

/// What standing in all lines came to.
enum Waited {
    Selected(Selected),
    /// The time is over, or an arm's time has come.
    TimedOut,
    /// Start over.
    Again,
}

/// The fiber was cancelled: tells who is to be told.
fn tell(arms: &[ArmRef<'_>], told: Option<Selected>) -> Selected {
    let told = told.expect("a select that is no point is not cancelled");
    if let Selected::Arm(index) = told {
        arms[index].0.refuse();
    }
    told
}

/// Stands in all lines, and waits.
fn wait_in_all(
    arms: &[ArmRef<'_>],
    order: Order,
    deadline: Option<Deadline>,
    told: Option<Selected>,
    at: &'static Location<'static>,
) -> Waited {
    let waiter = Waiter::for_select();
    // From here to the last `delist` nothing unwinds: arms call only our own
    // code; the wakers of tasks are kept for later.
    let mut entered = 0;
    let mut standing = Enlisted::Linked;
    for index in order.clone() {
        let place = u32::try_from(index).expect("fewer arms than 2^32");
        // SAFETY: arms and waiter stay until we have left all lines below.
        standing = unsafe { arms[index].0.enlist(&waiter, place) };
        if !matches!(standing, Enlisted::Linked) {
            break;
        }
        entered += 1;
    }
    let outcome = match standing {
        Enlisted::Done(()) | Enlisted::Again => None, // claimed by ourselves
        Enlisted::Linked | Enlisted::Lost => {
            let soonest = arms.iter().filter_map(|arm| arm.0.deadline()).min();
            let until = Deadline::earlier(deadline, soonest);
            let mut spec = WaitSpec::new(WaitReason::Select, at).deadline(until);
            if told.is_some() {
                spec = spec.cancellable();
            }
            Some(wait(&waiter, &spec))
        }
    };
    let place = waiter.place().map(|place| place as usize);
    for index in order.clone().take(entered) {
        // The line of the arm at which it was woken it has left already.
        if outcome != Some(WaitOutcome::Woken) || place != Some(index) {
            arms[index].0.delist();
        }
    }
    if let Some(deferred) = waiter.take_deferred() {
        fire_tasks(deferred.into());
    }
    match outcome {
        None if matches!(standing, Enlisted::Again) => Waited::Again,
        None => Waited::Selected(Selected::Arm(place.expect("it was taken"))),
        Some(WaitOutcome::Woken) => {
            let index = place.expect("it was woken at a place");
            if arms[index].0.accept() {
                choose_again(arms, order, index)
            } else {
                Waited::Again
            }
        }
        Some(WaitOutcome::Cancelled) => Waited::Selected(tell(arms, told)),
        Some(WaitOutcome::TimedOut) => Waited::TimedOut,
    }
}

/// The wait has ended at the arm `woken`. If a partner has come to an arm that is
/// before it in `order`, that one is chosen instead; see the module header.
fn choose_again(arms: &[ArmRef<'_>], order: Order, woken: usize) -> Waited {
    let met = order
        .take_while(|&index| index != woken)
        .find(|&index| arms[index].0.meets());
    let Some(met) = met.filter(|_| arms[woken].0.waive()) else {
        return Waited::Selected(Selected::Arm(woken));
    };
    // Waived first: to meet the partner may take a wait, and others would wait for
    // what we have in hand.
    for index in [met, woken] {
        if arms[index].0.attempt() {
            return Waited::Selected(Selected::Arm(index));
        }
    }
    Waited::Again
}

/// The order in which arms are tried; see the module header.
#[derive(Clone)]
struct Order {
    next: usize,
    step: usize,
    /// One less than a power of two, not less than `count - 1`.
    mask: usize,
    count: usize,
    left: usize,
}

impl Order {
    #[inline]
    fn new(count: usize, biased: bool) -> Self {
        let mask = count.next_power_of_two() - 1;
        let (next, step) = if biased || count < 2 {
            (0, 1)
        } else {
            let first = random(count);
            (first, if count == 2 { 1 } else { random(mask + 1) | 1 })
        };
        Self {
            next,
            step,
            mask,
            count,
            left: count,
        }
    }
}

impl Iterator for Order {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let index = self.next;
        if self.left > 0 {
            loop {
                self.next = (self.next + self.step) & self.mask;
                if self.next < self.count {
                    break;
                }
            }
        }
        Some(index)
    }
}

/// A number below `bound`: from the worker's own generator, which a simulation
/// seeds, or on a plain thread from one for all.
fn random(bound: usize) -> usize {
    static SEED: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(os_seed()));
    if switch::running().is_some() {
        // SAFETY: a fiber runs here, so this thread has a live core.
        return unsafe { &*current::core() }.random(bound);
    }
    // Relaxed: any number will do.
    let seed = SEED.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    Rng::new(seed).below(bound)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Order;

    #[test]
    fn every_arm_comes_once_and_each_comes_first_equally_often() {
        for count in 1..20 {
            let mut firsts = vec![0u32; count];
            for _ in 0..1000 {
                let order: Vec<usize> = Order::new(count, false).collect();
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..count).collect::<Vec<_>>());
                firsts[order[0]] += 1;
            }
            let fair = 1000 / count as u32;
            assert!(firsts.iter().all(|&n| n > fair / 3), "{firsts:?}");
        }
        assert_eq!(Order::new(3, true).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(Order::new(5, true).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!(Order::new(0, false).next(), None);
    }

    #[test]
    fn of_two_arms_each_comes_before_the_other_equally_often() {
        const TRIES: u32 = 4000;
        for count in 2..10 {
            let mut before = vec![vec![0; count]; count];
            for _ in 0..TRIES {
                let order: Vec<usize> = Order::new(count, false).collect();
                for (at, &first) in order.iter().enumerate() {
                    for &second in &order[at + 1..] {
                        before[first][second] += 1;
                    }
                }
            }
            for (first, before) in before.iter().enumerate() {
                for (second, &times) in before.iter().enumerate() {
                    let share = f64::from(times) / f64::from(TRIES);
                    let fair = first == second || (0.45..0.55).contains(&share);
                    assert!(fair, "{count}: {first} before {second} in {share}");
                }
            }
        }
    }
}
