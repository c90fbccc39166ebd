//! The children of one scope, and the life of each.

use super::model::{Frame, Request};
use super::world::{What, World};
use crate::harness::Rng;
use sinew::{Scope, ScopedJoinHandle};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// What the end of a child does to the others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    Nothing,
    FailFast,
    Race,
}

/// What the owner of a scope keeps on its stack, and its children borrow.
pub struct Family<'s> {
    pub world: &'s World<'s>,
    pub nest: &'s Frame<'s>,
    policy: Policy,
    live: AtomicUsize,
    pub spawned: AtomicUsize,
    pub unrun: AtomicUsize,
    /// Those that panicked, and were not joined.
    pub panics: AtomicUsize,
    pub failed: AtomicUsize,
    pub succeeded: AtomicUsize,
}

impl<'s> Family<'s> {
    pub fn new(world: &'s World<'s>, nest: &'s Frame<'s>, policy: Policy) -> Self {
        Self {
            world,
            nest,
            policy,
            live: AtomicUsize::new(0),
            spawned: AtomicUsize::new(0),
            unrun: AtomicUsize::new(0),
            panics: AtomicUsize::new(0),
            failed: AtomicUsize::new(0),
            succeeded: AtomicUsize::new(0),
        }
    }

    /// The scope has returned.
    pub fn judge_end(&self) {
        let live = self.live.load(SeqCst);
        self.world
            .require(live == 0, "a child has outlived its scope");
    }

    /// Starts a child of a plain scope.
    pub fn spawn_in<'scope, T: Send + 'scope>(
        &'s self,
        scope: &'scope Scope<'scope, '_>,
        rng: Rng,
        body: impl FnOnce(&World<'_>, &Frame<'_>, &mut Rng) -> T + Send + 'scope,
    ) -> (ScopedJoinHandle<'scope, T>, Arc<Request>)
    where
        's: 'scope,
    {
        let mut life = Life::new(self, rng);
        let request = life.request.clone();
        (scope.spawn(move || life.run(body)), request)
    }
}

/// Of one child, from before it is spawned until after its closure is gone.
pub struct Life<'s> {
    family: &'s Family<'s>,
    pub request: Arc<Request>,
    rng: Rng,
    ran: bool,
    /// It is born cancelled: its closure does not run.
    must_not_run: bool,
}

impl<'s> Life<'s> {
    pub fn new(family: &'s Family<'s>, rng: Rng) -> Self {
        family.live.fetch_add(1, SeqCst);
        family.spawned.fetch_add(1, SeqCst);
        family.world.tally.add(What::Child);
        family.nest.has_others();
        Self {
            family,
            request: Arc::default(),
            rng,
            ran: false,
            must_not_run: family.nest.bears_cancelled(),
        }
    }

    pub fn run<T>(&mut self, body: impl FnOnce(&World<'_>, &Frame<'_>, &mut Rng) -> T) -> T {
        let family = self.family;
        self.ran = true;
        if self.must_not_run {
            family
                .world
                .judge(family.nest, Err("a cancelled child runs"));
        }
        let root = Frame::root(family.nest, self.request.clone());
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            body(family.world, &root, &mut self.rng)
        }));
        outcome.unwrap_or_else(|payload| {
            family.panics.fetch_add(1, SeqCst);
            self.fails();
            resume_unwind(payload)
        })
    }

    /// It is about to fail.
    pub fn fails(&self) {
        self.family.failed.fetch_add(1, SeqCst);
        self.may_cancel_others(Policy::FailFast);
    }

    /// It is about to succeed.
    pub fn succeeds(&self) {
        self.family.succeeded.fetch_add(1, SeqCst);
        self.may_cancel_others(Policy::Race);
    }

    fn may_cancel_others(&self, policy: Policy) {
        if self.family.policy == policy {
            self.family.nest.request.ask();
        }
    }
}

impl Drop for Life<'_> {
    fn drop(&mut self) {
        if !self.ran {
            self.family.world.tally.add(What::Unrun);
            self.family.unrun.fetch_add(1, SeqCst);
            if !self.request.is_asked() && !self.family.nest.may_be_cancelled() {
                self.family
                    .world
                    .fail("a child was not run, and nobody has cancelled");
            }
            self.may_cancel_others(Policy::FailFast);
        }
        // The last that is done with what is borrowed.
        self.family.live.fetch_sub(1, SeqCst);
    }
}
