//! Waits that only a cancel ends, and the ways to cancel them: a request that is lost
//! is a hang.

use super::life::{Family, Life, Policy};
use super::model::Frame;
use super::steps::judge_limit;
use super::world::{What, World, moment};
use crate::harness::Rng;
use sinew::scope::{nursery, race};
use sinew::{CancelToken, Cancelled, WaitReason, select};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// Waits until it is cancelled.
fn hang(world: &World<'_>, frame: &Frame<'_>, rng: &mut Rng) {
    let kinds = if world.exact { 9 } else { 14 };
    let told = match rng.below(kinds) {
        0 => world.plain_point(frame, || sinew::sleep(HOUR)),
        1 => world.plain_point(frame, || world.no_event.wait()),
        2 => world.plain_point(frame, || CancelToken::new().wait()),
        3 => world
            .point(frame, || world.no_message.recv(), Result::is_err)
            .is_err(),
        4 => world.point(frame, || world.no_permits.acquire().is_err(), |told| *told),
        5 => {
            while !world.plain_point(frame, sinew::checkpoint) {}
            true
        }
        6 => {
            // A request leaves a token, too, also one that a shield hides.
            while !world.plain_point(frame, sinew::park_or_cancelled) {}
            true
        }
        7 => {
            let wait = || {
                select! {
                    recv(world.no_message) -> got => got.is_err(),
                    wait(&world.no_event) -> set => set.is_err(),
                }
            };
            world.point(frame, wait, |told| *told)
        }
        8 => {
            let body = || {
                world.bodies.fetch_add(1, SeqCst);
                world.plain_point(frame, || sinew::sleep(HOUR))
            };
            let cleanup = || {
                let shield = frame.shield();
                world.plain_point(&shield, || sinew::sleep(moment(rng)));
                world.cleanups.fetch_add(1, SeqCst);
                world.tally.add(What::CleanupOfCancelled);
            };
            sinew::finally(body, cleanup)
        }
        9 => {
            let limit = frame.limit(HOUR);
            let wait = || world.plain_point(&limit, || sinew::sleep(HOUR));
            let outcome = sinew::timeout(HOUR, wait);
            outcome.is_ok_and(|told| told)
        }
        10 => {
            // A limit works in a shield.
            let shield = frame.shield();
            sinew::shield(|| {
                let time = moment(rng);
                let limit = shield.limit(time);
                let wait = || world.plain_point(&limit, || sinew::sleep(HOUR));
                let outcome = sinew::timeout(time, wait);
                judge_limit(world, &limit, outcome.is_err());
            });
            world.plain_point(frame, || sinew::sleep(HOUR))
        }
        11 => {
            world.tally.add(What::Blocking);
            let hop = frame.hop();
            sinew::blocking(|| world.plain_point(&hop, || sinew::sleep(HOUR)))
        }
        _ => {
            // A child: to join it passes the request on, the end of a scope does not.
            let nest = frame.nest();
            let family = Family::new(world, &nest, Policy::Nothing);
            let joins = rng.chance(2);
            sinew::scope(|s| {
                let (child, _) = family.spawn_in(s, rng.split(), hang);
                if joins {
                    drop(child.join());
                }
            });
            family.judge_end();
            true
        }
    };
    world.require(told, "a wait has ended that only a cancel can end");
}

/// Starts fibers that hang, and cancels them by one of the ways there are.
pub fn doomed(world: &World<'_>, frame: &Frame<'_>, rng: &mut Rng) {
    world.tally.add(What::Doomed);
    match rng.below(if world.exact { 4 } else { 10 }) {
        way @ 0..=5 => in_scope(world, frame, rng, way),
        6 => in_nursery(world, frame, rng),
        7 => in_race(world, frame, rng),
        _ => {
            let time = moment(rng);
            let limit = frame.limit(time);
            let outcome = sinew::timeout(time, || in_scope(world, &limit, rng, 6));
            judge_limit(world, &limit, outcome.is_err());
        }
    }
}

fn in_scope(world: &World<'_>, frame: &Frame<'_>, rng: &mut Rng, way: u64) {
    let nest = frame.nest();
    let family = Family::new(world, &nest, Policy::Nothing);
    let (token, request) = (CancelToken::new(), Arc::default());
    let enter_and_hang = |world: &World<'_>, frame: &Frame<'_>, rng: &mut Rng| {
        let entered = frame.token(Arc::clone(&request), None);
        token.enter(|| hang(world, &entered, rng));
    };
    sinew::scope(|s| {
        if way == 4 {
            nest.request.ask();
            s.cancel_on_exit();
        }
        let mut children = Vec::new();
        for _ in 0..1 + rng.below(2) {
            children.push(if way == 2 {
                family.spawn_in(s, rng.split(), enter_and_hang)
            } else {
                family.spawn_in(s, rng.split(), hang)
            });
        }
        let first = children[0].0.fiber();
        // One that only yields never waits.
        for _ in 0..rng.below(10) {
            if first.wait_reason() == WaitReason::None {
                sinew::yield_now();
            }
        }
        if first.wait_reason() != WaitReason::None {
            world.tally.add(What::HitParked);
        }
        match way {
            0 => {
                for (child, own) in &children {
                    world.cancel(own, || child.cancel());
                }
            }
            1 => world.cancel(&nest.request, || s.cancel()),
            2 => world.cancel(&request, || token.cancel()),
            3 => world.cancel(&nest.request, || s.token().cancel()),
            5 => {
                for (child, own) in children.drain(..) {
                    // A join passes on what cancels it.
                    let time = moment(rng);
                    let limit = nest.limit(time);
                    limit.has_others();
                    own.ask();
                    let outcome = sinew::timeout(time, || drop(child.join()));
                    judge_limit(world, &limit, outcome.is_err());
                }
            }
            _ => {} // by what is around
        }
        if way != 4 && rng.chance(4) {
            // Who waits behind a shield is not cancelled, its children are.
            sinew::shield(|| drop(children.pop().map(|(child, _)| child.join())));
        }
    });
    family.judge_end();
}

fn in_nursery(world: &World<'_>, frame: &Frame<'_>, rng: &mut Rng) {
    let nest = frame.nest();
    let family = Family::new(world, &nest, Policy::FailFast);
    let outcome = nursery(|n| {
        for hangs in [true, false] {
            let mut life = Life::new(&family, rng.split());
            n.spawn(move || {
                if hangs {
                    life.run(hang);
                } else {
                    life.run(|_, _, _| ());
                }
                life.fails();
                Err::<(), _>(Cancelled)
            });
        }
        Ok(())
    });
    family.judge_end();
    world.require(outcome.is_err(), "a nursery has not failed");
    world.tally.add(What::Failed);
}

fn in_race(world: &World<'_>, frame: &Frame<'_>, rng: &mut Rng) {
    let nest = frame.nest();
    let family = Family::new(world, &nest, Policy::Race);
    let outcome = race(|r| {
        let mut life = Life::new(&family, rng.split());
        r.spawn(move || {
            life.run(hang);
            Err(Cancelled)
        });
        // Nobody can cancel this one alone.
        let mut life = Life::new(&family, rng.split());
        r.spawn(move || {
            life.run(|_, _, _| ());
            life.succeeds();
            Ok(())
        });
    });
    family.judge_end();
    let won = family.succeeded.load(SeqCst) == 1;
    world.require(outcome.is_ok() == won, "who succeeds wins");
    world
        .tally
        .add(if won { What::Won } else { What::NoWinner });
}
