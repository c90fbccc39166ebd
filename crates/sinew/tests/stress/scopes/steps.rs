//! What a fiber of a tree does: at random, one thing after the other, one inside of
//! the other.

use super::doomed::doomed;
use super::life::{Family, Life, Policy};
use super::model::{Frame, Request};
use super::world::{Target, What, World, moment};
use crate::harness::{Expected, Rng, panic_expected};
use sinew::channel::{RecvTimeoutError, SendTimeoutError};
use sinew::scope::{collect, nursery, race};
use sinew::sync::{AcquireTimeoutError, WaitTimeoutError};
use sinew::{Cancelled, JoinError, ScopedJoinHandle};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// Longer than any tree takes.
const LONG: Duration = Duration::from_secs(600);

/// How much a part of the tree may do yet.
pub struct Budget {
    pub nodes: u64,
    pub depth: u64,
}

impl Budget {
    /// A part of it.
    fn split(&mut self, rng: &mut Rng) -> Self {
        let nodes = rng.below(self.nodes + 1);
        self.nodes -= nodes;
        let depth = self.depth.saturating_sub(1);
        Self { nodes, depth }
    }
}

/// Some steps.
pub fn steps(world: &World<'_>, frame: &Frame<'_>, rng: &mut Rng, budget: &mut Budget) {
    for _ in 0..1 + rng.below(3) {
        if budget.nodes == 0 || budget.depth == 0 || rng.chance(3) {
            simple(world, frame, rng);
        } else {
            budget.nodes -= 1;
            nested(world, frame, rng, budget);
        }
    }
}

/// A step that has nothing inside.
fn simple(world: &World<'_>, frame: &Frame<'_>, rng: &mut Rng) {
    match rng.below(16) {
        0 => drop(world.plain_point(frame, sinew::check_cancelled)),
        1 => drop(world.plain_point(frame, sinew::checkpoint)),
        2 | 3 => drop(world.plain_point(frame, || sinew::sleep(moment(rng)))),
        4 => drop(world.point(frame, sinew::is_cancelled, |told| *told)),
        5 | 6 => {
            let call = || world.receiver.recv_timeout(moment(rng));
            let told = Err(RecvTimeoutError::Cancelled);
            if world.point(frame, call, |got| *got == told).is_ok() {
                world.tally.add(What::Message);
                world.received.fetch_add(1, SeqCst);
            }
        }
        7 | 8 => {
            let call = || world.sender.send_timeout(7, moment(rng));
            let told = Err(SendTimeoutError::Cancelled(7));
            if world.point(frame, call, |sent| *sent == told).is_ok() {
                world.sent.fetch_add(1, SeqCst);
            }
        }
        9 | 10 => {
            let call = || world.permits.acquire_timeout(moment(rng));
            let told = |got: &Result<_, _>| matches!(got, Err(AcquireTimeoutError::Cancelled));
            let permit = world.point(frame, call, told);
            if permit.is_ok() {
                world.tally.add(What::Permit);
                world.plain_point(frame, || sinew::sleep(moment(rng)));
            }
        }
        11 => {
            let call = || world.no_event.wait_timeout(moment(rng));
            let told = Err(WaitTimeoutError::Cancelled);
            let _ = world.point(frame, call, |answer| *answer == told);
        }
        12 => sinew::park_timeout(moment(rng)),
        13 => sinew::yield_now(),
        14 => world.cancel_any(rng),
        _ if rng.chance(2) => {
            world.tally.add(What::Panic);
            panic_expected(rng.next());
        }
        _ => {}
    }
}

fn nested(world: &World<'_>, frame: &Frame<'_>, rng: &mut Rng, budget: &mut Budget) {
    // Where all cancels are known there is nothing that cancels by itself.
    let kinds = if world.exact { 9 } else { 16 };
    match rng.below(kinds) {
        0 | 1 => in_scope(world, frame, rng, budget),
        2 => {
            let shield = frame.shield();
            sinew::shield(|| steps(world, &shield, rng, budget));
        }
        3 => with_cleanup(world, frame, rng, budget),
        4 => in_token(world, frame, rng, budget),
        5 => handshake(world, frame, rng),
        6 | 7 => doomed(world, frame, rng),
        8 => in_collect(world, frame, rng, budget),
        9..=11 => in_time(world, frame, rng, budget),
        12 | 13 => in_nursery(world, frame, rng, budget),
        14 => in_race(world, frame, rng, budget),
        _ => {
            world.tally.add(What::Blocking);
            let hop = frame.hop();
            sinew::blocking(|| steps(world, &hop, rng, budget));
        }
    }
}

/// Looks at how a scope ended, and keeps its panic from going on, or not.
fn ended<T>(
    family: &Family<'_>,
    rng: &mut Rng,
    outcome: Result<T, Box<dyn Any + Send>>,
) -> Option<T> {
    family.judge_end();
    match outcome {
        Ok(value) => Some(value),
        Err(payload) => {
            let text = payload.downcast_ref() == Some(&"a scoped fiber panicked");
            let known = text || payload.is::<Expected>();
            family
                .world
                .require(known, "a panic that is not the tree's");
            if rng.chance(3) {
                resume_unwind(payload);
            }
            None
        }
    }
}

fn joined(family: &Family<'_>, outcome: &Result<u64, JoinError>, code: u64) {
    family.world.tally.add(What::Joined);
    match outcome {
        Ok(value) => family.world.require(*value == code, "another's result"),
        Err(error) if error.is_panic() => {
            family.panics.fetch_sub(1, SeqCst);
        }
        Err(error) => family
            .world
            .require(error.is_cancelled(), "a child has ended in no way there is"),
    }
}

/// A child of a scope: its handle, its request, and what it answers.
type Child<'scope> = (ScopedJoinHandle<'scope, u64>, Arc<Request>, u64);

fn in_scope(world: &World<'_>, frame: &Frame<'_>, rng: &mut Rng, budget: &mut Budget) {
    let nest = frame.nest();
    let family = Family::new(world, &nest, Policy::Nothing);
    let mut returned = false;
    let body = catch_unwind(AssertUnwindSafe(|| {
        sinew::scope(|s| {
            if !world.exact && rng.chance(8) {
                nest.request.ask();
                s.cancel_on_exit();
            }
            if rng.chance(3) {
                world.can_be_cancelled(&nest.request, Target::Token(s.token()));
            }
            let mut children: Vec<Child<'_>> = Vec::new();
            for _ in 0..1 + rng.below(5) {
                match rng.below(6) {
                    0..=2 => {
                        let (mut part, code) = (budget.split(rng), rng.next());
                        let (child, request) =
                            family.spawn_in(s, rng.split(), move |world, frame, rng| {
                                steps(world, frame, rng, &mut part);
                                code
                            });
                        world.can_be_cancelled(&request, Target::Fiber(child.fiber()));
                        children.push((child, request, code));
                    }
                    3 => steps(world, &nest, rng, budget),
                    4 => {
                        if let Some(child) = children.pop() {
                            await_child(&family, child, rng);
                        }
                    }
                    _ if rng.chance(3) => world.cancel(&nest.request, || s.cancel()),
                    _ => {}
                }
            }
            // Some are joined, some let go, some leaked.
            while let Some(child) = children.pop() {
                match rng.below(8) {
                    0..=2 => await_child(&family, child, rng),
                    3 => std::mem::forget(child.0),
                    _ => drop(child),
                }
            }
            returned = true;
        });
    }));
    let panics = !returned || family.panics.load(SeqCst) > 0;
    let as_it_should = panics == body.is_err();
    world.require(as_it_should, "a scope panics if its body did, or a child");
    ended(&family, rng, body);
}

/// Waits for a child by one of the ways there are.
fn await_child(family: &Family<'_>, (child, request, code): Child<'_>, rng: &mut Rng) {
    let (world, nest) = (family.world, family.nest);
    match rng.below(if world.exact { 2 } else { 4 }) {
        0 => {
            world.plain_point(nest, || child.fiber().wait());
            drop(child);
        }
        1 => {
            if let Ok(outcome) = child.join_timeout(moment(rng)) {
                joined(family, &outcome, code);
            }
        }
        2 => joined(family, &child.join(), code),
        _ => {
            // The limit is passed on to it.
            let time = moment(rng);
            request.ask();
            let limit = nest.limit(time);
            limit.has_others();
            let outcome = sinew::timeout(time, || child.join());
            judge_limit(world, &limit, outcome.is_err());
            let outcome = outcome.unwrap_or_else(sinew::Elapsed::into_inner);
            joined(family, &outcome, code);
        }
    }
}

#[track_caller]
pub fn judge_limit(world: &World<'_>, limit: &Frame<'_>, elapsed: bool) {
    world
        .tally
        .add(if elapsed { What::Elapsed } else { What::InTime });
    world.judge(limit, limit.judge_limit(elapsed));
}

fn in_time(world: &World<'_>, frame: &Frame<'_>, rng: &mut Rng, budget: &mut Budget) {
    let time = [Duration::ZERO, moment(rng), moment(rng), LONG][rng.below(4) as usize];
    let limit = frame.limit(time);
    let outcome = sinew::timeout(time, || steps(world, &limit, rng, budget));
    judge_limit(world, &limit, outcome.is_err());
}

fn with_cleanup(world: &World<'_>, frame: &Frame<'_>, rng: &mut Rng, budget: &mut Budget) {
    let mut own = rng.split();
    let body = || {
        world.bodies.fetch_add(1, SeqCst);
        steps(world, frame, rng, budget);
    };
    sinew::finally(body, || clean_up(world, frame, &mut own));
}

/// What `finally` runs at last.
pub fn clean_up(world: &World<'_>, frame: &Frame<'_>, rng: &mut Rng) {
    world.tally.add(What::Cleanup);
    if frame.seen().any() {
        world.tally.add(What::CleanupOfCancelled);
    }
    world.cleanups.fetch_add(1, SeqCst);
    let shield = frame.shield();
    for _ in 0..rng.below(3) {
        simple(world, &shield, rng);
    }
}

fn in_token(world: &World<'_>, frame: &Frame<'_>, rng: &mut Rng, budget: &mut Budget) {
    let [above, below] = &world.tokens;
    let (token, request, above) = match rng.below(3) {
        0 => (above.0.clone(), above.1.clone(), None),
        1 => (below.0.clone(), below.1.clone(), Some(above.1.clone())),
        _ => {
            let own = Arc::default();
            let token = above.0.child();
            world.can_be_cancelled(&own, Target::Token(token.clone()));
            (token, own, Some(above.1.clone()))
        }
    };
    let entered = frame.token(request, above);
    token.enter(|| steps(world, &entered, rng, budget));
}

/// Parks until a child has unparked us, which it does whatever happens to it.
fn handshake(world: &World<'_>, frame: &Frame<'_>, rng: &mut Rng) {
    struct Unpark<'a>(sinew::Fiber, &'a AtomicBool);
    impl Drop for Unpark<'_> {
        fn drop(&mut self) {
            self.1.store(true, SeqCst);
            self.0.unpark();
        }
    }
    let nest = frame.nest();
    let family = Family::new(world, &nest, Policy::Nothing);
    let done = AtomicBool::new(false);
    sinew::scope(|s| {
        let unpark = Unpark(sinew::current(), &done);
        let child = family.spawn_in(s, rng.split(), move |world, frame, rng| {
            let _unpark = unpark;
            world.plain_point(frame, || sinew::sleep(moment(rng)));
        });
        world.can_be_cancelled(&child.1, Target::Fiber(child.0.fiber()));
        while !done.load(SeqCst) {
            sinew::park();
        }
    });
    family.judge_end();
}

fn in_nursery(world: &World<'_>, frame: &Frame<'_>, rng: &mut Rng, budget: &mut Budget) {
    let nest = frame.nest();
    let family = Family::new(world, &nest, Policy::FailFast);
    let body_fails = rng.chance(6);
    let body = catch_unwind(AssertUnwindSafe(|| {
        nursery(|n| {
            if rng.chance(3) {
                world.can_be_cancelled(&nest.request, Target::Token(n.token()));
            }
            for _ in 0..1 + rng.below(4) {
                let (mut part, fails) = (budget.split(rng), rng.chance(4));
                let mut life = Life::new(&family, rng.split());
                let request = life.request.clone();
                let child = n.spawn(move || {
                    life.run(|world, frame, rng| steps(world, frame, rng, &mut part));
                    if fails {
                        life.fails();
                    }
                    if fails { Err(Cancelled) } else { Ok(()) }
                });
                world.can_be_cancelled(&request, Target::Fiber(child.fiber()));
                if rng.chance(4) {
                    let _ = child.join();
                }
            }
            let done = catch_unwind(AssertUnwindSafe(|| steps(world, &nest, rng, budget)));
            if body_fails || done.is_err() {
                nest.request.ask();
            }
            match done {
                Err(payload) => resume_unwind(payload),
                Ok(()) if body_fails => Err(Cancelled),
                Ok(()) => Ok(()),
            }
        })
    }));
    let some_failed = family.failed.load(SeqCst) + family.unrun.load(SeqCst) > 0;
    if let Some(outcome) = ended(&family, rng, body) {
        let as_it_should = outcome.is_err() == (body_fails || some_failed);
        world.require(as_it_should, "a nursery fails if somebody in it does");
        if outcome.is_err() {
            world.tally.add(What::Failed);
        }
    }
}

fn in_race(world: &World<'_>, frame: &Frame<'_>, rng: &mut Rng, budget: &mut Budget) {
    let nest = frame.nest();
    let family = Family::new(world, &nest, Policy::Race);
    let body = catch_unwind(AssertUnwindSafe(|| {
        race(|r| {
            for _ in 0..1 + rng.below(4) {
                let (mut part, fails, code) = (budget.split(rng), rng.chance(3), rng.next());
                let mut life = Life::new(&family, rng.split());
                let request = life.request.clone();
                let child = r.spawn(move || {
                    life.run(|world, frame, rng| steps(world, frame, rng, &mut part));
                    if fails {
                        return Err(code);
                    }
                    life.succeeds();
                    Ok(code)
                });
                world.can_be_cancelled(&request, Target::Fiber(child));
            }
        })
    }));
    let succeeded = family.succeeded.load(SeqCst) > 0;
    if let Some(outcome) = ended(&family, rng, body) {
        world.require(outcome.is_ok() == succeeded, "who succeeds wins");
        world
            .tally
            .add(if succeeded { What::Won } else { What::NoWinner });
    }
}

fn in_collect(world: &World<'_>, frame: &Frame<'_>, rng: &mut Rng, budget: &mut Budget) {
    let nest = frame.nest();
    let family = Family::new(world, &nest, Policy::Nothing);
    let mut codes = Vec::new();
    let body = catch_unwind(AssertUnwindSafe(|| {
        collect(|c| {
            for _ in 0..rng.below(4) {
                let (mut part, code) = (budget.split(rng), rng.next());
                codes.push(code);
                let mut life = Life::new(&family, rng.split());
                let request = life.request.clone();
                let child = c.spawn(move || {
                    life.run(|world, frame, rng| steps(world, frame, rng, &mut part));
                    code
                });
                world.can_be_cancelled(&request, Target::Fiber(child));
            }
            steps(world, &nest, rng, budget);
        })
    }));
    if let Some(outcomes) = ended(&family, rng, body) {
        let all = outcomes.len() == codes.len();
        world.require(all, "a result is missing");
        for (outcome, code) in outcomes.iter().zip(codes) {
            joined(&family, outcome, code);
        }
    }
}
