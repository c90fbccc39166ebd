//! One wait of one fiber, thread or task; see the header of `wait`.

use super::chain;
use super::deadline::{self, Deadline};
use super::look;
use super::outcome::{Claim, WaitOutcome};
use super::point;
use super::spec::{Lend, OnCancel, Token, WaitSpec};
use crate::fiber::cancel::Errands;
use crate::fiber::{Block, Intent, Priority, ThreadProxy, Wake};
use crate::sched::{current, switch};
use crate::sys::Lock;
use crate::sys::log::log;
use crate::timer::TimerNode;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::Waker;

/// Whom to wake.
enum Target {
    Fiber(NonNull<Block>),
    Thread(Arc<ThreadProxy>),
    /// Taken by who claims, replaced by the task itself.
    Task(Lock<Option<Waker>>),
}

/// One wait; stays where it is while a [`Node`](super::node::Node) of it is in
/// a list.
pub(crate) struct Waiter {
    claim: Claim,
    target: Target,
    priority: Priority,
    /// Has one place only, so that nobody can claim it before that is linked.
    single: bool,
    /// Tasks that a select has woken while it entered lines: their wakers are
    /// user code, and are called when it has left all lines. Boxed because there
    /// are hardly ever any, and each waiter is made and dropped.
    deferred: Cell<Option<Box<[Wakeup]>>>,
}

// SAFETY: a block may be used from any thread; the rest is shareable itself.
unsafe impl Send for Waiter {}
// SAFETY: as above.
unsafe impl Sync for Waiter {}

/// The duty that comes with a won claim.
#[must_use = "a claimed waiter that is not notified waits for ever"]
pub(crate) enum Wakeup {
    Fiber(NonNull<Block>),
    Thread(NonNull<ThreadProxy>),
    Task(Option<Waker>),
}

impl Wakeup {
    /// Notifies the waiter; for a task this calls its `Waker`, which is user
    /// code, so no lock may be held and we must be on a fiber's or the caller's
    /// stack.
    #[inline]
    pub(crate) fn fire(self) {
        match self {
            // SAFETY: the fiber waits for this very notification (invariant 2),
            // so it is alive until `notify`, and ours if that says `Enqueue`.
            Self::Fiber(block) => unsafe {
                if block.as_ref().state().notify() == Wake::Enqueue {
                    block.as_ref().follow(Wake::Enqueue);
                }
            },
            // SAFETY: as above; `notify` touches only the address of the word
            // after its change.
            Self::Thread(proxy) => unsafe { proxy.as_ref() }.notify(),
            Self::Task(waker) => {
                if let Some(waker) = waker {
                    quietly(|| waker.wake());
                }
            }
        }
    }
}

/// Runs code of a waker: its panic, which the panic hook has reported, is no
/// concern of who wakes or waits. It must not unwind from here: a lock that was
/// just taken, or a message, would be lost with the frame.
#[cold]
pub(crate) fn quietly(code: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(code)) {
        std::mem::forget(payload); // its drop might panic as well
    }
}

impl Waiter {
    /// A waiter for the running fiber, or for this thread.
    ///
    /// # Panics
    ///
    /// Where waiting is not allowed: see [`switch::about_to_wait`]. Here,
    /// because a wait begins with its waiter; from then on it does not unwind.
    #[inline]
    pub(crate) fn for_current() -> Self {
        Self::of(switch::about_to_wait())
    }

    /// The same for who has asked [`switch::about_to_wait`] already.
    #[inline]
    pub(crate) fn of(fiber: Option<NonNull<Block>>) -> Self {
        let (target, priority) = match fiber {
            Some(block) => {
                // SAFETY: the running fiber is alive.
                let priority = unsafe { block.as_ref() }.priority();
                (Target::Fiber(block), priority)
            }
            None => (Target::Thread(current::proxy()), Priority::Low),
        };
        Self {
            claim: Claim::new(),
            target,
            priority,
            single: true,
            deferred: Cell::new(None),
        }
    }

    /// The same for a wait in several lists at once.
    pub(crate) fn for_select() -> Self {
        Self {
            single: false,
            ..Self::for_current()
        }
    }

    /// A waiter for an async task.
    pub(crate) fn for_task(waker: Waker) -> Self {
        Self {
            claim: Claim::new(),
            target: Target::Task(Lock::new(Some(waker))),
            priority: Priority::Low,
            single: true,
            deferred: Cell::new(None),
        }
    }

    /// A waiter for a fiber that a model runs.
    #[cfg(all(test, loom))]
    pub(super) fn for_fiber(block: NonNull<Block>) -> Self {
        Self {
            claim: Claim::new(),
            target: Target::Fiber(block),
            priority: Priority::Low,
            single: true,
            deferred: Cell::new(None),
        }
    }

    /// Keeps wakers for later; see the field.
    #[cold]
    pub(super) fn defer(&self, mut tasks: Vec<Wakeup>) {
        let mut deferred = self.deferred.take().map_or_else(Vec::new, Vec::from);
        deferred.append(&mut tasks);
        self.deferred.set(Some(deferred.into()));
    }

    /// Those wakers, to be called now.
    pub(super) fn take_deferred(&self) -> Option<Box<[Wakeup]>> {
        self.deferred.take()
    }

    /// Drops a task's waker, which is user code, without unwinding.
    pub(super) fn drop_waker(&self) {
        let waker = self.task_waker().lock().take();
        quietly(|| drop(waker));
    }

    /// Whether it has one place only.
    #[inline]
    pub(crate) fn is_single(&self) -> bool {
        self.single
    }

    /// The fiber that waits, if it is one.
    #[inline]
    pub(crate) fn fiber(&self) -> Option<NonNull<Block>> {
        match &self.target {
            Target::Fiber(block) => Some(*block),
            Target::Thread(_) | Target::Task(_) => None,
        }
    }

    /// Whether it is an async task's, which may go at any time.
    pub(crate) fn is_task(&self) -> bool {
        matches!(self.target, Target::Task(_))
    }

    #[cold]
    fn task_waker(&self) -> &Lock<Option<Waker>> {
        match &self.target {
            Target::Task(waker) => waker,
            _ => unreachable!("only a task has a waker"),
        }
    }

    /// Whether the wait has been claimed; if not, `waker` will be called when it
    /// is. Clones and drops wakers, which is user code: no lock may be held.
    pub(crate) fn is_claimed_or_woken_by(&self, waker: &Waker) -> bool {
        let known = {
            let own = self.task_waker().lock();
            own.as_ref().is_some_and(|own| own.will_wake(waker))
        };
        if !known && self.outcome().is_none() {
            let mut waker = Some(waker.clone());
            {
                let mut own = self.task_waker().lock();
                // Under the lock: a claimant takes the waker after its claim, so
                // either it takes this one or we see the claim.
                if self.outcome().is_none() {
                    std::mem::swap(&mut *own, &mut waker);
                }
            }
            drop(waker);
        }
        self.outcome().is_some()
    }

    /// What the waiter's fiber would lend to whom it waits for.
    pub(crate) fn priority(&self) -> Priority {
        self.priority
    }

    /// Whom to wake: read before a claim, for afterwards the waiter may be gone.
    /// A task's is read after, in [`wake_task`](Self::wake_task): it cannot go
    /// while the list's lock is held (invariant 3).
    #[inline]
    pub(crate) fn early_wakeup(&self) -> Option<Wakeup> {
        match &self.target {
            Target::Fiber(block) => Some(Wakeup::Fiber(*block)),
            Target::Thread(proxy) => Some(Wakeup::Thread(NonNull::from(&**proxy))),
            Target::Task(_) => None,
        }
    }

    /// Ends the wait through its place with this number, under the lock of the
    /// list that the place is in; the winner must fire the answer, and may not
    /// touch the waiter after that.
    #[inline]
    pub(crate) fn claim(&self, place: u32) -> Option<Wakeup> {
        let early = self.early_wakeup();
        if self.single {
            // It is linked, so it has not been claimed nor given up: both are
            // done under this lock (invariant 1).
            self.claim.settle(WaitOutcome::Woken);
        } else if !self.claim.wake(place) {
            // Dropping an unfired `Wakeup` that was never owed is harmless.
            return None;
        }
        Some(early.unwrap_or_else(|| Wakeup::Task(self.task_waker().lock().take())))
    }

    /// Decides a wait that nobody else can decide; the caller must fire the
    /// answer, and may not touch the waiter afterwards.
    pub(crate) fn settle(&self) -> Wakeup {
        let wakeup = self.early_wakeup().expect("a task can always be dropped");
        self.claim.settle(WaitOutcome::Woken);
        wakeup
    }

    /// Ends the own wait, before it has begun, because what it is for turned
    /// out to be there at the place with this number; false if another was
    /// first, whose notification must be awaited.
    #[must_use = "if another claimed the wait, its notification must be taken"]
    #[inline]
    pub(crate) fn take_oneself(&self, place: u32) -> bool {
        self.single || self.claim.wake(place)
    }

    /// Gives up; false if another was first, whose notification is on the way.
    fn give_up(&self, spec: &WaitSpec<'_>, outcome: WaitOutcome) -> bool {
        if !self.single {
            return self.claim.give_up(outcome);
        }
        let left = spec.leave.is_none_or(|leave| self.stay(leave));
        if left {
            self.claim.settle(outcome);
        }
        left
    }

    /// Calls what may call wakers of tasks, in the middle of the wait.
    pub(crate) fn stay<R>(&self, call: impl FnOnce() -> R) -> R {
        match self.target {
            Target::Fiber(_) => chain::stay(call),
            // A coroutine of a thread stays on it, and its proxy is kept here.
            Target::Thread(_) | Target::Task(_) => call(),
        }
    }

    /// Through which place the wait was woken, if it was.
    pub(crate) fn place(&self) -> Option<u32> {
        self.claim.place()
    }

    #[inline]
    pub(crate) fn outcome(&self) -> Option<WaitOutcome> {
        self.claim.get()
    }
}

/// Waits until `waiter` is claimed, by another or by time or cancellation.
///
/// Only the fiber waits; its worker runs others. On a plain thread the thread
/// does.
#[inline]
pub(crate) fn wait(waiter: &Waiter, spec: &WaitSpec<'_>) -> WaitOutcome {
    match &waiter.target {
        Target::Fiber(block) => {
            // SAFETY: `for_current` made it from the fiber that runs here.
            unsafe { wait_fiber(*block, waiter, spec) };
        }
        Target::Thread(proxy) => wait_thread(proxy, waiter, spec),
        Target::Task(_) => unreachable!("a task is polled, it does not wait"),
    }
    waiter.outcome().unwrap_or_else(|| ended_unclaimed())
}

/// A wait that ended without a claim may still be linked somewhere, so it cannot unwind.
#[cold]
fn ended_unclaimed() -> ! {
    log("a wait ended that nobody has claimed: this is a bug in sinew");
    std::process::abort();
}

/// # Safety
///
/// `block` is the fiber that runs on this thread, and the waiter's target.
#[inline]
unsafe fn wait_fiber(block: NonNull<Block>, waiter: &Waiter, spec: &WaitSpec<'_>) {
    if spec.deadline.is_some() {
        // SAFETY: the caller's promise.
        return unsafe { wait_fiber_timed(block, waiter, spec) };
    }
    // SAFETY: the running fiber is alive.
    let fiber = unsafe { block.as_ref() };
    while !is_over(fiber, waiter, spec) {
        if spec.io.is_none() && look::woken_soon(fiber) {
            continue;
        }
        fiber.set_wait(spec.reason, spec.at);
        // SAFETY: it runs here; no lock and no reference into the core is held.
        unsafe { switch::leave(block, Intent::Park) };
        fiber.clear_wait();
    }
}

/// As [`wait_fiber`], with a deadline.
///
/// # Safety
///
/// As for [`wait_fiber`].
unsafe fn wait_fiber_timed(block: NonNull<Block>, waiter: &Waiter, spec: &WaitSpec<'_>) {
    // SAFETY: the running fiber is alive.
    let fiber = unsafe { block.as_ref() };
    let timer = pin!(TimerNode::new(block.as_ptr().cast()));
    let node = NonNull::from(&*timer);
    let deadline = spec.deadline.expect("that is why we are here");
    let mut armed = false;
    // A wait inside another's (in a waker that a give-up calls) keeps its flag.
    let armed_outside = fiber.pinned();
    while !is_over(fiber, waiter, spec) {
        let due = if armed {
            !timer.is_armed() // it has fired
        } else {
            deadline.0 <= deadline::now()
        };
        if due {
            if waiter.give_up(spec, WaitOutcome::TimedOut) {
                if !armed {
                    // A loop of waits whose time is over lets others run, too.
                    switch::safepoint();
                }
                break;
            } // else claimed: its notification is on the way
        } else if !armed {
            // SAFETY: a fiber runs here, so this thread has a live core. The
            // node stays pinned in this frame until it fired or is cancelled
            // below, on this same worker: `pinned` keeps the fiber here.
            unsafe { &*current::core() }
                .with_wheel(|wheel| unsafe { wheel.insert(node, deadline.0) });
            fiber.set_pinned(true);
            armed = true;
        }
        fiber.set_wait(spec.reason, spec.at);
        // SAFETY: it runs here; no lock and no reference into the core is held.
        unsafe { switch::leave(block, Intent::Park) };
        fiber.clear_wait();
    }
    if armed {
        // SAFETY: as above; a node that has fired is not in the wheel any more,
        // which `cancel` notices.
        unsafe { &*current::core() }.with_wheel(|wheel| unsafe { wheel.cancel(node) });
        fiber.set_pinned(armed_outside);
    }
}

/// Takes the wakes that came, and says whether the wait has ended.
#[inline]
fn is_over(fiber: &Block, waiter: &Waiter, spec: &WaitSpec<'_>) -> bool {
    let wakes = fiber.state().take_wakes(fiber.heard());
    if wakes.notified {
        return true; // claimed by another, and this is its notification
    }
    match spec.lend {
        None => {}
        Some(Lend::To(block)) => super::lend::lend_priority(fiber, block),
        Some(Lend::By(lend)) => lend(fiber),
    }
    let token_came = match spec.token {
        Some(Token::Unpark) => wakes.seen.token() && fiber.state().take_token(),
        Some(Token::Poll) => wakes.seen.poll() && fiber.state().take_poll(),
        None => false,
    };
    token_came && waiter.give_up(spec, WaitOutcome::Woken)
        || wakes.seen.look() && gives_up_by_cancel(waiter.fiber(), waiter, spec)
}

/// Looks at the frames, for the wait of the fiber or thread that runs here: if it is
/// cancelled the wait does what it is to do then. True if it gave up.
#[cold]
fn gives_up_by_cancel(
    running: Option<NonNull<Block>>,
    waiter: &Waiter,
    spec: &WaitSpec<'_>,
) -> bool {
    let mut errands = Errands::new();
    let cause = point::cause_in_wait(running, &mut errands);
    let answered = match (cause, spec.on_cancel) {
        (None, _) | (_, OnCancel::Ignore) => false,
        (Some(_), OnCancel::Answer) => {
            let answered = waiter.give_up(spec, WaitOutcome::Cancelled);
            if answered {
                // Not the cause from above: to leave a line calls wakers, which may have
                // ended its frame.
                point::observe_in_wait(running);
            }
            answered
        }
        (Some(_), OnCancel::PassOn(pass_on)) => {
            pass_on(&mut errands);
            false
        }
    };
    if answered && waiter.single {
        waiter.stay(|| errands.run()); // it stands in no line any more
    } else {
        errands.run_elsewhere();
    }
    answered
}

fn wait_thread(proxy: &ThreadProxy, waiter: &Waiter, spec: &WaitSpec<'_>) {
    let mut deadline = spec.deadline;
    while !proxy.take_wakes() {
        let token_came = match spec.token {
            Some(Token::Unpark) => proxy.take_token(),
            Some(Token::Poll) => proxy.take_poll(),
            None => false,
        };
        if token_came && waiter.give_up(spec, WaitOutcome::Woken) {
            return;
        }
        let framed = !current::frames().is_null();
        if framed && gives_up_by_cancel(None, waiter, spec) {
            return;
        }
        if deadline.is_some_and(|at| at.0 <= deadline::now()) {
            if waiter.give_up(spec, WaitOutcome::TimedOut) {
                return;
            }
            deadline = None; // claimed: its notification is on the way
        }
        // Both lie ahead, else this would spin: one's own is dropped above when it
        // has come, and of the frames those that are not marked count, which
        // `gives_up_by_cancel` has seen to if their time is over.
        let until = Deadline::earlier(deadline, point::thread_deadline().map(Deadline));
        let until = until.map(Deadline::as_instant);
        match spec.io {
            None => proxy.sleep(until),
            Some(io) => {
                let ready = proxy.sleep_in_poll(io, until);
                if ready && waiter.give_up(spec, WaitOutcome::Woken) {
                    return;
                }
            }
        }
    }
}

/// Set in the owner of a timer that is a frame's (`cancel::timeout`), not a wait's.
pub(crate) const OF_A_FRAME: usize = 1;

/// A timer has fired: its fiber looks again, and sees that.
///
/// # Safety
///
/// `node` was just returned by the wheel of this thread's worker.
pub(crate) unsafe fn timer_fired(node: NonNull<TimerNode>) {
    // SAFETY: the node is in a frame of a fiber of this worker, which does not
    // run while we do; its owner is that fiber.
    unsafe {
        let owner = node.as_ref().owner();
        let fiber = &*owner.map_addr(|addr| addr & !OF_A_FRAME).cast::<Block>();
        let wake = if owner.addr() & OF_A_FRAME == 0 {
            fiber.state().nudge()
        } else {
            // What hangs on the fiber is told by the fiber itself (`wait::point`).
            fiber.state().tell().wake
        };
        fiber.follow(wake);
    }
}
