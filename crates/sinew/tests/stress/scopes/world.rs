//! What the fibers of one tree share, and what is counted over all trees.

use super::model::{Frame, Request};
use crate::harness::Rng;
use sinew::channel::{Receiver, Sender, bounded};
use sinew::sync::{Event, Semaphore};
use sinew::{CancelToken, Fiber};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What happened, in all trees of one test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Tree,
    Child,
    /// A child that was cancelled before it ran.
    Unrun,
    /// A point that said `Cancelled`.
    Told,
    /// One that had to.
    MustTell,
    Elapsed,
    InTime,
    Panic,
    Joined,
    /// A cancel while its fiber was parked.
    HitParked,
    Cancel,
    Cleanup,
    CleanupOfCancelled,
    Failed,
    Won,
    NoWinner,
    Blocking,
    Doomed,
    Message,
    Permit,
}

impl What {
    /// Each happens at least once in so many trees.
    pub const OFTEN: [(Self, u64); 20] = [
        (Self::Tree, 1),
        (Self::Child, 1),
        (Self::Unrun, 2),
        (Self::Told, 1),
        (Self::MustTell, 5),
        (Self::Elapsed, 5),
        (Self::InTime, 5),
        (Self::Panic, 10),
        (Self::Joined, 3),
        (Self::HitParked, 10),
        (Self::Cancel, 2),
        (Self::Cleanup, 5),
        (Self::CleanupOfCancelled, 40),
        (Self::Failed, 5),
        (Self::Won, 10),
        (Self::NoWinner, 40),
        (Self::Blocking, 10),
        (Self::Doomed, 3),
        (Self::Message, 10),
        (Self::Permit, 2),
    ];
}

#[derive(Default)]
pub struct Tally([AtomicU64; What::OFTEN.len()]);

impl Tally {
    pub fn add(&self, what: What) {
        self.0[what as usize].fetch_add(1, Relaxed);
    }

    pub fn get(&self, what: What) -> u64 {
        self.0[what as usize].load(Relaxed)
    }
}

/// What can be cancelled by anybody in the tree.
pub enum Target {
    Fiber(Fiber),
    Token(CancelToken),
}

pub struct World<'t> {
    pub tally: &'t Tally,
    seed: u64,
    failures: &'t Mutex<Vec<String>>,
    /// Nothing cancels but calls of `cancel`, and these are known: so it can be told
    /// when all below must have heard of it.
    pub exact: bool,
    cancels_begun: AtomicUsize,
    cancels_ended: AtomicUsize,
    targets: Mutex<Vec<(Arc<Request>, Target)>>,
    /// One above the other.
    pub tokens: [(CancelToken, Arc<Request>); 2],
    pub permits: Semaphore,
    pub sender: Sender<u64>,
    pub receiver: Receiver<u64>,
    pub sent: AtomicUsize,
    pub received: AtomicUsize,
    /// `finally`: bodies that began, cleanups that ended.
    pub bodies: AtomicUsize,
    pub cleanups: AtomicUsize,
    /// For waits that only a cancel ends.
    pub no_permits: Semaphore,
    pub no_sender: Sender<u64>,
    pub no_message: Receiver<u64>,
    pub no_event: Event,
}

pub const PERMITS: usize = 2;

impl<'t> World<'t> {
    pub fn new(seed: u64, tally: &'t Tally, failures: &'t Mutex<Vec<String>>) -> Self {
        let mut rng = Rng::new(seed);
        let (sender, receiver) = bounded(rng.below(3) as usize);
        let (no_sender, no_message) = bounded(0);
        let above = CancelToken::new();
        let below = above.child();
        let tokens = [(above, Arc::default()), (below, Arc::default())];
        let targets = tokens
            .iter()
            .map(|(token, request)| (Arc::clone(request), Target::Token(token.clone())))
            .collect();
        Self {
            tally,
            seed,
            failures,
            exact: rng.chance(4),
            cancels_begun: AtomicUsize::new(0),
            cancels_ended: AtomicUsize::new(0),
            targets: Mutex::new(targets),
            tokens,
            permits: Semaphore::new(PERMITS),
            sender,
            receiver,
            sent: AtomicUsize::new(0),
            received: AtomicUsize::new(0),
            bodies: AtomicUsize::new(0),
            cleanups: AtomicUsize::new(0),
            no_permits: Semaphore::new(0),
            no_sender,
            no_message,
            no_event: Event::new(),
        }
    }

    /// Notes that something was wrong: a panic would be taken for one of the tree's.
    pub fn fail(&self, what: &str) {
        let mut failures = self.failures.lock().unwrap();
        failures.push(format!("tree {}: {what}", self.seed));
    }

    pub fn require(&self, holds: bool, what: &str) {
        if !holds {
            self.fail(what);
        }
    }

    /// The same, of what has happened inside of `frame`.
    #[track_caller]
    pub fn judge(&self, frame: &Frame<'_>, verdict: Result<(), &str>) {
        if let Err(what) = verdict {
            let at = std::panic::Location::caller();
            self.fail(&format!("{what}, {at}, {}", frame.describe()));
        }
    }

    /// One cancellation point: calls it, and judges its answer.
    #[track_caller]
    pub fn point<T>(
        &self,
        frame: &Frame<'_>,
        call: impl FnOnce() -> T,
        is_told: impl FnOnce(&T) -> bool,
    ) -> T {
        let before = frame.seen();
        let answer = call();
        let told = is_told(&answer);
        if told {
            self.tally.add(What::Told);
        }
        if before.any() {
            self.tally.add(What::MustTell);
        }
        self.judge(frame, frame.judge(&before, told));
        answer
    }

    /// The same for one that answers nothing else.
    #[track_caller]
    pub fn plain_point<E: PartialEq + From<sinew::Cancelled>>(
        &self,
        frame: &Frame<'_>,
        call: impl FnOnce() -> Result<(), E>,
    ) -> bool {
        let told = Err(E::from(sinew::Cancelled));
        self.point(frame, call, |answer| *answer == told).is_err()
    }

    pub fn can_be_cancelled(&self, request: &Arc<Request>, target: Target) {
        self.targets.lock().unwrap().push((request.clone(), target));
    }

    /// Cancels anything of the tree.
    pub fn cancel_any(&self, rng: &mut Rng) {
        let (request, target) = {
            let targets = self.targets.lock().unwrap();
            let (request, target) = &targets[rng.below(targets.len() as u64) as usize];
            let target = match target {
                Target::Fiber(fiber) => Target::Fiber(fiber.clone()),
                Target::Token(token) => Target::Token(token.clone()),
            };
            (request.clone(), target)
        };
        self.cancel(&request, || match target {
            Target::Fiber(fiber) => {
                if fiber.wait_reason() != sinew::WaitReason::None {
                    self.tally.add(What::HitParked);
                }
                fiber.cancel();
            }
            Target::Token(token) => token.cancel(),
        });
    }

    /// Cancels by `call` what `request` is of.
    pub fn cancel(&self, request: &Request, call: impl FnOnce()) {
        self.tally.add(What::Cancel);
        let mine = self.cancels_begun.fetch_add(1, SeqCst);
        let nobody_before = self.cancels_ended.load(SeqCst) == mine;
        let first = request.ask();
        call();
        let nobody_since = self.cancels_begun.load(SeqCst) == mine + 1;
        if first {
            request.came(self.exact && nobody_before && nobody_since);
        }
        self.cancels_ended.fetch_add(1, SeqCst);
    }

    /// All fibers of the tree have ended: looks what they have left behind.
    pub fn judge_end(&self) {
        let (sent, received) = (self.sent.load(SeqCst), self.received.load(SeqCst));
        let left = self.receiver.len();
        self.require(sent == received + left, "a message was lost, or doubled");
        for _ in 0..left {
            self.require(self.receiver.try_recv().is_ok(), "a message is not there");
        }
        let available = self.permits.available_permits();
        self.require(available == PERMITS, "a permit was lost, or doubled");
        let (bodies, cleanups) = (self.bodies.load(SeqCst), self.cleanups.load(SeqCst));
        self.require(bodies == cleanups, "a cleanup did not run");
        // Who is still in a line would be given these.
        self.no_permits.add_permits(1);
        let permit = self.no_permits.try_acquire();
        self.require(permit.is_ok(), "a semaphore has a waiter left");
        let sent = self.no_sender.try_send(0);
        self.require(sent.is_err(), "a channel has a receiver left");
        let got = self.no_message.try_recv();
        self.require(got.is_err(), "a channel has a sender left");
    }
}

/// Some microseconds, or none.
pub fn moment(rng: &mut Rng) -> Duration {
    Duration::from_micros(rng.below(50))
}
