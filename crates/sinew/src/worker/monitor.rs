//! The monitor: a thread that watches the workers while they work.
//!
//! Once per [`TICK`], or [`LONG_TICK`] while it knows of no fiber that computes, it
//!
//! * tells each worker that time has passed, and whether its fiber is to let others
//!   run ([`urgency`]);
//! * lets the next cancellation point of a fiber that has run for a quantum look at
//!   its limits of time, for which a timer does not fire while the worker is not left;
//! * measures how long fibers keep their worker, and reports those that hog it (`hog`);
//! * wakes a thief for a fiber that lies in the deque of a worker that does not
//!   switch (`sched::submit`);
//! * calls spare workers to stand in for blocked ones (`spare`);
//! * gives memory of free stacks back;
//! * lists fibers that nobody can wake any more (`worker::stall`).
//!
//! It reads no clock of a worker's: a worker that has not switched since the
//! last tick has the same count of switches. When every worker sleeps, the
//! monitor tidies up once more and sleeps too, until a worker rings it awake.

use super::hog::{OnHog, TurnWatch};
use super::retry::Retry;
use super::spare::Compensation;
use super::stall::StallWatch;
use super::{shutdown, starve, urgency};
use crate::fiber::slab;
use crate::sched::shared::{Remote, Shared};
use crate::stack::{Given, Trim, TrimGoal};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(1);
/// The same while every worker sleeps, or has switched since the last tick as often as
/// one with short turns does, and none has a preempted fiber. The monitor may run on the
/// very CPU that a worker wants: a tick each ms took 3 % of it under load.
///
/// So a fiber that begins to compute among others with short turns is found by the first
/// tick that sees no switch since the one before, after 5 to 10 ms.
const LONG_TICK: Duration = Duration::from_millis(5);
/// Between two rounds of giving memory back while there is work.
const TRIM_EVERY: Duration = Duration::from_millis(100);
/// All workers must have slept this long before the monitor sleeps.
const LINGER: Duration = Duration::from_millis(50);

/// How the monitor of a runtime was asked to be.
#[derive(Clone)]
pub(crate) struct MonitorSettings {
    pub(crate) quantum: Duration,
    pub(crate) hog_after: Duration,
    pub(crate) on_hog: Option<OnHog>,
    pub(crate) stalled_after: Duration,
}

/// What the monitor remembers of one worker.
struct Watch {
    switches: u64,
    since: Instant,
    turn: TurnWatch,
}

/// The monitor thread's loop.
pub(crate) fn run(shared: &Arc<Shared>, settings: &MonitorSettings) {
    let start = Instant::now();
    let mut watches: Vec<Watch> = shared
        .remotes
        .iter()
        .map(|_| Watch {
            switches: 0,
            since: start,
            turn: TurnWatch::new(start),
        })
        .collect();
    let long_tick = (settings.quantum / 2).clamp(TICK, LONG_TICK);
    let mut tick = TICK;
    let mut compensation = Compensation::default();
    let mut trimmed = start;
    let mut goal = None;
    let mut asleep_since = None;
    let mut stalls = StallWatch::default();
    let mut retry = Retry::new(start, TICK);
    while !shared.stop.load(Ordering::Relaxed) {
        shared.monitor.doze(tick);
        let now = Instant::now();
        let mut computing = false;
        for (remote, watch) in shared.used().iter().zip(&mut watches) {
            computing |= observe(shared, remote, watch, settings, now);
        }
        tick = if computing { TICK } else { long_tick };
        compensation.tick(shared, now, |slot| watches[slot].turn.waits());
        // Relaxed: a worker that never switches again does not look at it.
        if shared.draining.load(Ordering::Relaxed) {
            shutdown::poke(shared);
        }
        if now - trimmed >= TRIM_EVERY {
            trimmed = now;
            slab::trim(false);
            if goal.is_none() && shared.stacks.excess() > 0 {
                goal = Some(shared.stacks.trim_goal(Trim::Half));
            }
        }
        // A step at each tick: workers rely on the ticks.
        if goal.as_mut().is_some_and(|goal| !trim_step(shared, goal)) {
            goal = None;
        }
        if is_short_of_stacks(shared) {
            // Memory may come back without any stack of ours being freed.
            if retry.is_due(now) {
                starve::ask_kernel(shared);
            }
            continue;
        }
        retry = Retry::new(now, TICK);
        if !shared.idle.all_asleep() {
            asleep_since = None;
            continue;
        }
        if now - *asleep_since.get_or_insert(now) >= LINGER {
            let mut goal = shared.stacks.trim_goal(Trim::All);
            while shared.idle.all_asleep() && trim_step(shared, &mut goal) {}
            slab::trim(true);
            // Somebody may have begun to starve since that was looked at above.
            let still = || {
                shared.idle.all_asleep()
                    && !shared.stop.load(Ordering::Relaxed)
                    && !is_short_of_stacks(shared)
            };
            let stalled = shared
                .monitor
                .sleep(still, || stalls.patience(shared, settings.stalled_after));
            if stalled {
                stalls.look(shared, settings.stalled_after);
            }
            asleep_since = None;
            tick = TICK;
            let now = Instant::now();
            for (remote, watch) in shared.used().iter().zip(&mut watches) {
                watch.since = now; // nobody ran while we slept
                watch.turn.begin(remote, true, now);
            }
        }
    }
}

/// Whether fibers wait for a stack, to run or to end.
fn is_short_of_stacks(shared: &Shared) -> bool {
    // Relaxed: looked at again at the next tick.
    shared.out_of_stacks.load(Ordering::Relaxed) != 0 || shared.stacks.is_starving()
}

/// False if there was nothing left to give back.
fn trim_step(shared: &Shared, goal: &mut TrimGoal) -> bool {
    let trimmed = shared.stacks.trim_step(goal);
    if trimmed.is_some_and(|trimmed| trimmed.given == Given::Wanted) {
        starve::ask_kernel(shared);
    }
    trimmed.is_some()
}

/// True if fibers compute on this worker, or have turns of a millisecond and more: the
/// next tick should come soon.
fn observe(
    shared: &Shared,
    remote: &Remote,
    watch: &mut Watch,
    settings: &MonitorSettings,
    now: Instant,
) -> bool {
    // Relaxed throughout: hints that the next tick corrects.
    let has_lone = remote.left_behind.swap(false, Ordering::Relaxed)
        | remote.deferred.swap(false, Ordering::Relaxed);
    let switches = remote.counters.switches.load(Ordering::Relaxed);
    let running = !remote.current.load(Ordering::Relaxed).is_null();
    if has_lone && remote.stealable() > 0 {
        shared.wake_searcher();
    }
    let switched = switches != watch.switches || !running;
    let running_for = if switched {
        Duration::ZERO
    } else {
        now - watch.since
    };
    let asked = running
        && urgency::remind(
            remote,
            &shared.settings,
            switches,
            running_for,
            settings.quantum,
        );
    if switched {
        let computes = remote.computes.load(Ordering::Relaxed);
        remote.stuck.store(computes, Ordering::Relaxed);
        let turns = switches - watch.switches;
        let are_long = running && Duration::from_millis(turns) <= now - watch.since;
        watch.switches = switches;
        watch.since = now;
        watch.turn.begin(remote, running, now);
        return computes || are_long;
    }
    watch.turn.goes_on(remote, now);
    if running_for >= TICK {
        remote.stuck.store(true, Ordering::Relaxed);
        if remote.stealable() > 0 {
            shared.wake_searcher(); // it does not get to them
        }
    }
    if asked {
        let load = || remote.current.load(Ordering::Acquire).cast_const();
        // If the block is another's by now, that looks in vain, once.
        // SAFETY: the word is atomic, and mapped under the slab's lock; a block that
        // is free does not mind the bit.
        unsafe { slab::peek(load, |block, _| block.state().look_soon()) };
    }
    let on_hog = settings.on_hog.as_ref();
    let turn = &mut watch.turn;
    turn.report_after(settings.hog_after, remote, switches, running_for, on_hog);
    true
}
