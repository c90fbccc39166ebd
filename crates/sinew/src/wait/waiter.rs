//! One wait of one fiber, thread or task; see the header of `wait`.

use super::deadline::{self, Deadline};
use super::outcome::{Claim, WaitOutcome};
use crate::fiber::{Block, Intent, Priority, ThreadProxy, WaitReason, Wake};
use crate::primitive::Lock;
use crate::sched::{current, switch};
use crate::timer::TimerNode;
use crate::util::list::Links;
use std::panic::Location;
use std::pin::pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::Waker;

/// Whom to wake.
enum Target {
    Fiber(NonNull<Block>),
    Thread(Arc<ThreadProxy>),
    /// Guarded by the lock of the list that the waiter is in (invariant 3); the
    /// inner lock only makes the type shareable.
    Task(Lock<Option<Waker>>),
}

/// One wait; pinned while it is in a list.
#[repr(C)]
pub(crate) struct Waiter {
    /// First, so that a pointer to the links is one to the waiter.
    links: Links,
    claim: Claim,
    target: Target,
    priority: Priority,
}

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
                    waker.wake();
                }
            }
        }
    }
}

impl Waiter {
    /// A waiter for the running fiber, or for this thread.
    ///
    /// # Panics
    ///
    /// Where waiting is not allowed: see [`switch::about_to_wait`]. Here,
    /// because a wait begins with its waiter; from then on it does not unwind.
    pub(crate) fn for_current() -> Self {
        let (target, priority) = match switch::about_to_wait() {
            Some(block) => {
                // SAFETY: the running fiber is alive.
                let priority = unsafe { block.as_ref() }.priority();
                (Target::Fiber(block), priority)
            }
            None => (Target::Thread(current::proxy()), Priority::Low),
        };
        Self {
            links: Links::new(),
            claim: Claim::new(),
            target,
            priority,
        }
    }

    /// A waiter for an async task.
    pub(crate) fn for_task(waker: Waker) -> Self {
        Self {
            links: Links::new(),
            claim: Claim::new(),
            target: Target::Task(Lock::new(Some(waker))),
            priority: Priority::Low,
        }
    }

    /// A waiter for a fiber that a model runs.
    #[cfg(all(test, loom))]
    pub(super) fn for_fiber(block: NonNull<Block>) -> Self {
        Self {
            links: Links::new(),
            claim: Claim::new(),
            target: Target::Fiber(block),
            priority: Priority::Low,
        }
    }

    fn task_waker(&self) -> &Lock<Option<Waker>> {
        match &self.target {
            Target::Task(waker) => waker,
            _ => unreachable!("only a task has a waker"),
        }
    }

    /// Whether the task would be woken by this waker; under the list's lock.
    pub(crate) fn is_woken_by(&self, waker: &Waker) -> bool {
        let own = self.task_waker().lock();
        own.as_ref().is_some_and(|own| own.will_wake(waker))
    }

    /// Replaces a task's waker, under the list's lock. Answers the former one,
    /// or this one if the waiter was claimed: to be dropped outside the lock.
    pub(crate) fn replace_waker(&self, waker: Waker) -> Option<Waker> {
        if self.outcome().is_some() {
            return Some(waker);
        }
        self.task_waker().lock().replace(waker)
    }

    /// The links, by a pointer that is good for the whole waiter.
    pub(crate) fn links(&self) -> NonNull<Links> {
        // They are the first field of a `repr(C)` struct.
        NonNull::from(self).cast()
    }

    pub(crate) fn is_linked(&self) -> bool {
        self.links.is_linked()
    }

    /// The waiter that embeds `links`.
    pub(crate) fn of_links(links: NonNull<Links>) -> NonNull<Self> {
        // `links` is the first field of a `repr(C)` struct.
        links.cast()
    }

    /// What the waiter's fiber would lend to whom it waits for.
    pub(crate) fn priority(&self) -> Priority {
        self.priority
    }

    /// Decides how the wait ends; the winner must fire the answer, and may not
    /// touch the waiter afterwards.
    pub(crate) fn claim(&self, outcome: WaitOutcome) -> Option<Wakeup> {
        // Read before the claim: afterwards the waiter may be gone, unless it is
        // a task's, which cannot go while the list's lock is held (invariant 3).
        let early = match &self.target {
            Target::Fiber(block) => Some(Wakeup::Fiber(*block)),
            Target::Thread(proxy) => Some(Wakeup::Thread(NonNull::from(&**proxy))),
            Target::Task(_) => None,
        };
        if !self.claim.claim(outcome) {
            // Dropping an unfired `Wakeup` that was never owed is harmless.
            return None;
        }
        Some(early.unwrap_or_else(|| match &self.target {
            Target::Task(waker) => Wakeup::Task(waker.lock().take()),
            _ => unreachable!("handled above"),
        }))
    }

    /// Decides a wait that nobody else can decide; the caller must fire the
    /// answer, and may not touch the waiter afterwards.
    pub(crate) fn settle(&self, outcome: WaitOutcome) -> Wakeup {
        let wakeup = match &self.target {
            Target::Fiber(block) => Wakeup::Fiber(*block),
            Target::Thread(proxy) => Wakeup::Thread(NonNull::from(&**proxy)),
            Target::Task(_) => unreachable!("a task can always be dropped"),
        };
        self.claim.settle(outcome);
        wakeup
    }

    /// Decides the own wait; true if nobody else did before.
    #[must_use = "if another claimed the wait, its notification must be taken"]
    fn claim_oneself(&self, outcome: WaitOutcome) -> bool {
        self.claim.claim(outcome)
    }

    pub(crate) fn outcome(&self) -> Option<WaitOutcome> {
        self.claim.get()
    }
}

/// How to wait.
pub(crate) struct WaitSpec<'a> {
    pub(crate) reason: WaitReason,
    pub(crate) at: &'static Location<'static>,
    pub(crate) deadline: Option<Deadline>,
    /// Is this wait a cancellation point?
    pub(crate) cancellable: bool,
    /// Who should run at least as urgently as the waiter, meanwhile.
    pub(crate) lend_to: Option<&'a Block>,
    /// A token whose arrival ends the wait; it is taken.
    pub(crate) token: Option<Token>,
}

/// What may be left for a fiber or thread without a waiter of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// By `unpark`.
    Unpark,
    /// By a waker that `block_on` made.
    Poll,
}

impl<'a> WaitSpec<'a> {
    /// A plain wait; the caller sets what is different.
    pub(crate) fn new(reason: WaitReason, at: &'static Location<'static>) -> Self {
        Self {
            reason,
            at,
            deadline: None,
            cancellable: false,
            lend_to: None,
            token: None,
        }
    }

    pub(crate) fn deadline(mut self, deadline: Option<Deadline>) -> Self {
        self.deadline = deadline;
        self
    }

    pub(crate) fn cancellable(mut self) -> Self {
        self.cancellable = true;
        self
    }

    pub(crate) fn lending_to(mut self, block: &'a Block) -> Self {
        self.lend_to = Some(block);
        self
    }

    pub(crate) fn until(mut self, token: Token) -> Self {
        self.token = Some(token);
        self
    }
}

/// Waits until `waiter` is claimed, by another or by time or cancellation.
///
/// Only the fiber waits; its worker runs others. On a plain thread the thread
/// does. The caller unlinks the waiter unless the outcome is `Woken`.
pub(crate) fn wait(waiter: &Waiter, spec: &WaitSpec<'_>) -> WaitOutcome {
    match &waiter.target {
        Target::Fiber(block) => {
            // SAFETY: `for_current` made it from the fiber that runs here.
            unsafe { wait_fiber(*block, waiter, spec) };
        }
        Target::Thread(proxy) => wait_thread(proxy, waiter, spec),
        Target::Task(_) => unreachable!("a task is polled, it does not wait"),
    }
    waiter.outcome().expect("a wait ends by a claim")
}

/// # Safety
///
/// `block` is the fiber that runs on this thread, and the waiter's target.
unsafe fn wait_fiber(block: NonNull<Block>, waiter: &Waiter, spec: &WaitSpec<'_>) {
    // SAFETY: the running fiber is alive.
    let fiber = unsafe { block.as_ref() };
    let timer = pin!(TimerNode::new(std::ptr::from_ref(waiter).cast()));
    let node = NonNull::from(&*timer);
    let mut armed = false;
    loop {
        // A look before the read-modify-write: nothing has come, as a rule.
        let mut seen = fiber.state().load();
        if seen.parked() || seen.woken() {
            seen = fiber.state().take_wakes();
            if seen.notified() {
                break; // claimed by another, and this is its notification
            }
        }
        if let Some(to) = spec.lend_to {
            super::end::lend_priority(fiber, to);
        }
        let token_came = match spec.token {
            Some(Token::Unpark) => seen.token() && fiber.state().take_token(),
            Some(Token::Poll) => seen.poll() && fiber.state().take_poll(),
            None => false,
        };
        if token_came && waiter.claim_oneself(WaitOutcome::Woken) {
            break; // else the timer was first: its notification is on the way
        }
        if spec.cancellable && fiber.state().look() && waiter.claim_oneself(WaitOutcome::Cancelled)
        {
            break;
        }
        if let (Some(deadline), false) = (spec.deadline, armed) {
            if deadline.0 <= deadline::now() && waiter.claim_oneself(WaitOutcome::TimedOut) {
                break;
            }
            // SAFETY: a fiber runs here, so this thread has a live core. The
            // node stays pinned in this frame until it fired or is cancelled
            // below, on this same worker: `timer_armed` keeps the fiber here.
            unsafe { &*current::core() }
                .with_wheel(|wheel| unsafe { wheel.insert(node, deadline.0) });
            fiber.set_timer_armed(true);
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
        fiber.set_timer_armed(false);
    }
}

fn wait_thread(proxy: &ThreadProxy, waiter: &Waiter, spec: &WaitSpec<'_>) {
    let mut deadline = spec.deadline;
    while !proxy.take_wakes() {
        let token_came = match spec.token {
            Some(Token::Unpark) => proxy.take_token(),
            Some(Token::Poll) => proxy.take_poll(),
            None => false,
        };
        if token_came && waiter.claim_oneself(WaitOutcome::Woken) {
            return;
        }
        if deadline.is_some_and(|at| at.0 <= deadline::now()) {
            if waiter.claim_oneself(WaitOutcome::TimedOut) {
                return;
            }
            deadline = None; // claimed: its notification is on the way
        }
        proxy.sleep(deadline.map(Deadline::as_instant));
    }
}

/// A timer has fired: ends the wait it belongs to, if that is still open.
///
/// # Safety
///
/// `node` was just returned by the wheel of this thread's worker.
pub(crate) unsafe fn timer_fired(node: NonNull<TimerNode>) {
    // SAFETY: the node and the waiter are in a frame of a fiber of this worker,
    // which does not run while we do.
    let waiter = unsafe { &*node.as_ref().owner().cast::<Waiter>() };
    if let Some(wakeup) = waiter.claim(WaitOutcome::TimedOut) {
        wakeup.fire();
    }
}
