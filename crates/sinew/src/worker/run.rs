//! The worker's loop: pick a fiber, switch to it, act on what it intends.

use super::first_frame::first_frame;
use super::spare::{self, Rest, Retirement};
use super::urgency::{self, Asked};
use super::{kept, search, shutdown, sleep, starve};
use crate::fiber::{Begin, Block, Context, Intent, Park, release};
use crate::queue::Entry;
use crate::sched::core::Core;
use crate::sched::current;
use crate::sched::shared::{Abandoned, WorkerEnd, bump};
use crate::stack::{Given, Stack};
use crate::sys::log::log;
use crate::sys::process;
use crate::wait::waiter::timer_fired;
use corosensei::CoroutineResult;
use std::ptr::{self, NonNull};
use std::sync::atomic::{Ordering, fence};

/// Timers, inbox, injectors and the driver are looked at once in this many
/// switches even if the queues never run empty; and, if these last long, when time
/// has passed (`urgency`). A prime, so that it does not fall into step with loops of
/// the program.
const LOOK_AROUND: u32 = 61;

/// Runs fibers until the runtime stops; does not return if some were leaked here
/// (`worker::kept`).
// Always inlined into the thread's main function, where the core is a local: then the
// address of the core after a switch is an offset of the stack pointer, not a load that
// waits for the switch. A yield took 11.2 instead of 9.3 ns without it.
#[inline(always)]
pub(crate) fn run(core: &Core) {
    current::set_core(core);
    let shared = core.shared().clone();
    let mut until_look = LOOK_AROUND;
    // Are we counted as a searcher (`sched::idle`, invariant 1)?
    let mut searching = false;
    let mut retirement = Retirement::new();
    // Relaxed: a busy worker sees it a little later; what came before it is acquired after
    // the loop.
    while !shared.stop.load(Ordering::Relaxed) {
        until_look -= 1;
        let mut looked = false;
        if until_look == 0 {
            until_look = LOOK_AROUND;
            core.remote().driver.poll();
            look_around(core);
            looked = true;
        }
        // Relaxed: a hint, looked at again and again.
        if core.remote().look.load(Ordering::Relaxed) && urgency::look(core) {
            until_look = LOOK_AROUND;
            looked = true;
        }
        let mut entry = core.next_at_hand().or_else(|| core.next_own(looked));
        let mut takes_new = true;
        if entry.is_none() {
            until_look = LOOK_AROUND;
            if core.has_preempted() {
                // What it says comes first; and what was queued for it is handed over.
                core.remote().driver.poll();
            } else {
                // Not the driver: if there is nothing else it is asked by the sleep,
                // and one system call does for both.
                core.end_offer();
            }
            look_around(core);
            entry = core.next_own(true);
            // Read once: a spare that retires in between would rest as a searcher.
            takes_new = core.takes_new();
        }
        if entry.is_none() && core.several() {
            if takes_new {
                searching = searching || shared.idle.start_search();
                if searching {
                    entry = search::search(core);
                }
            } else if std::mem::take(&mut searching) {
                search::end_search(core); // it was relied on: passes the duty on
            }
        }
        match entry {
            Some(entry) => {
                if std::mem::take(&mut searching) {
                    search::end_search(core);
                }
                run_entry(core, entry);
            }
            None if takes_new => {
                retirement = Retirement::new();
                searching = sleep::sleep(core, searching);
            }
            None => {
                if retirement.rest(core) == Rest::Leave {
                    core.remote().driver.rest();
                    current::set_core(ptr::null());
                    core.remote().set_end(WorkerEnd::Stopped);
                    return;
                }
            }
        }
    }
    // Acquire: pairs with the Release of the store to `stop`, which came after all fibers that
    // have ended were counted (the Acquire in `shutdown::alive`, which pairs with the Release in
    // `finish`). So we see that they have no context, also of a migratable one whose home was
    // here when this worker saw it last, and that ended on another.
    fence(Ordering::Acquire);
    leave_behind(core);
    // After that: what has not started keeps nobody.
    let kept = kept::must_stay(core);
    core.remote().driver.stop(kept);
    current::set_core(ptr::null());
    if shared.given_up.load(Ordering::Relaxed) {
        // It may call wakers of async tasks, which is user code: not here.
        let started = std::thread::Builder::new().spawn(move || {
            shutdown::fail_abandoned(&shared);
        });
        if let Err(error) = started {
            log(&format!(
                "joiners of fibers that never ran wait on: {error}"
            ));
        }
    }
    if kept {
        kept::give_back(core);
        core.remote().set_end(WorkerEnd::Kept);
        kept::sleep_for_ever();
    }
    core.remote().set_end(WorkerEnd::Stopped);
}

/// The runtime stops while there are still fibers: hands over those that never
/// started. Started ones are leaked where they are, and keep this thread.
fn leave_behind(core: &Core) {
    let shared = core.shared();
    let (mut abandoned, mut nudged) = starve::abandon(core);
    core.end_inbox_sleep();
    core.take_mail();
    loop {
        let Some(entry) = core.next_own(true).or_else(|| core.take_injected()) else {
            if nudged == 0 {
                break;
            }
            // Its waker owns it, and is about to push it: a few instructions away.
            std::thread::yield_now();
            core.end_inbox_sleep();
            continue;
        };
        let block = entry.block();
        // SAFETY: the entry owns the fiber, or a reference to its block.
        let fiber = unsafe { block.as_ref() };
        if entry.is_fresh() {
            if !fiber.claim_start() {
                // SAFETY: the stale entry's own reference.
                unsafe { release(block, 1) };
                continue;
            }
            fiber.merge_entry();
        } else if !fiber.has_context() {
            nudged -= 1;
        }
        if !fiber.has_context() {
            abandoned.push(Abandoned(block));
        }
    }
    shared.abandoned.lock().extend(abandoned);
}

/// Takes in whatever came from other threads, and timers; bounded work.
pub(super) fn look_around(core: &Core) {
    core.empty_inbox();
    if core.with_wheel(|wheel| wheel.len()) > 0 {
        fire_timers(core);
    }
    if core.shared().stacks.is_starving() {
        starve::relieve(core);
    }
    if core.takes_new() && !core.offers() {
        core.take_mail();
        if core.several() {
            search::even_out(core);
        }
    }
    core.publish_load();
    if core.shared().draining.load(Ordering::Relaxed) {
        shutdown::poke(core.shared());
    }
}

/// Ends the waits whose time has come.
pub(crate) fn fire_timers(core: &Core) {
    let now = core.shared().clock.now();
    while let Some(node) = core.with_wheel(|wheel| wheel.expire(now)) {
        // SAFETY: the wheel of this thread's worker returned it.
        unsafe { timer_fired(node) };
    }
}

/// Runs what an entry holds, if it is not stale.
fn run_entry(core: &Core, entry: Entry) {
    let block = entry.block();
    // SAFETY: the entry owns the fiber, or a reference to its block.
    let fiber = unsafe { block.as_ref() };
    if entry.is_fresh() {
        if !fiber.claim_start() {
            // A joiner was faster. SAFETY: the stale entry's own reference.
            unsafe { release(block, 1) };
            return;
        }
        fiber.merge_entry();
    }
    if !fiber.has_context() && !start(core, block) {
        return;
    }
    resume(core, block);
}

/// Gives a claimed fiber its stack; false if there is none to be had.
fn start(core: &Core, block: NonNull<Block>) -> bool {
    // SAFETY: claimed by this worker.
    let fiber = unsafe { block.as_ref() };
    // Relaxed: our own.
    if core.remote().starving.load(Ordering::Relaxed) != 0 && starve::waits_already(core, block) {
        return false;
    }
    match core.with_stacks(|stacks| stacks.take(fiber.class())) {
        Ok(stack) => {
            bind(core, block, stack, Begin::Run);
            true
        }
        Err(_) => starve::starve(core, block),
    }
}

/// Prepares `stack` so that the first switch to it enters the first frame, which begins as
/// `begin` says if the fiber is not cancelled.
pub(super) fn bind(core: &Core, block: NonNull<Block>, stack: Stack, begin: Begin) {
    // SAFETY: claimed by this worker.
    let fiber = unsafe { block.as_ref() };
    // SAFETY: the closure only holds a block pointer, which stays valid: the
    // run's reference is released after the last switch. `first_frame` gets a
    // block that this worker claimed, on its own stack.
    let context = Context::with_stack(stack, move |suspender, ()| unsafe {
        first_frame(block, suspender, begin);
    });
    // SAFETY: the context belongs to the owner, which we are.
    unsafe { (*fiber.context()).write(context) };
    fiber.set_has_context(true);
    fiber.set_home(core.home());
    bump(&core.remote().counters.started, 1);
    if fiber.kind().migratable {
        bump(&core.remote().counters.migratable, 1);
        // Relaxed: counted before anybody can take it away.
        core.remote().migrants.fetch_add(1, Ordering::Relaxed);
    }
}

/// Switches to a fiber, and acts on what it intends when it comes back.
fn resume(core: &Core, block: NonNull<Block>) {
    // SAFETY: owned by this worker.
    let fiber = unsafe { block.as_ref() };
    let remote = core.remote();
    if fiber.kind().migratable && fiber.home() != core.home() {
        spare::move_home(core, fiber);
    }
    // Relaxed: for the monitor, which checks what it read.
    remote.current.store(block.as_ptr(), Ordering::Relaxed);
    bump(&remote.counters.switches, 1);
    core.settle_deferred();
    let mut behind = false;
    let result = loop {
        core.current.set(block.as_ptr());
        // SAFETY: a started fiber's context is initialised and ours (state,
        // invariants 1 and 2); nobody else touches it until we give it away below.
        let result = unsafe { (*fiber.context()).assume_init_mut() }.resume(());
        core.current.set(ptr::null());
        process::stop_forked_thread();
        if remote.preempt.load(Ordering::Relaxed) {
            let intent = match result {
                CoroutineResult::Yield(intent) => Some(intent),
                CoroutineResult::Return(()) => None,
            };
            match urgency::asked(core, block, intent) {
                Asked::GoesOn => continue,
                Asked::Behind => behind = true,
                Asked::AsItIntends => {}
            }
        }
        break result;
    };
    // Before the block can be freed: the monitor looks at it only while it finds
    // it here, under the lock without which no block's memory goes (`slab`).
    remote.current.store(ptr::null_mut(), Ordering::Relaxed);
    match result {
        CoroutineResult::Return(()) => finish(core, block),
        CoroutineResult::Yield(_) if behind => core.requeue_preempted(block),
        CoroutineResult::Yield(Intent::Yield | Intent::Safepoint) => core.requeue(block),
        CoroutineResult::Yield(Intent::Park) => match fiber.state().commit_park(fiber.heard()) {
            Park::Asleep => bump(&remote.counters.parked, 1),
            Park::Awake => core.requeue(block),
        },
    }
}

/// Takes the stack back from a fiber that has left it for good.
fn finish(core: &Core, block: NonNull<Block>) {
    // SAFETY: the run's reference keeps it alive until `release` below.
    let fiber = unsafe { block.as_ref() };
    // SAFETY: the context is initialised, has returned, and is ours.
    let context = unsafe { (*fiber.context()).assume_init_read() };
    fiber.set_has_context(false);
    let stack = context.into_stack();
    if core.on_reserve.get() == block.as_ptr() {
        starve::give_reserve(core, stack);
    } else if core.with_stacks(|stacks| stacks.give(stack)) == Given::Wanted {
        starve::wake_starving(core.shared());
    }
    let counters = &core.remote().counters;
    bump(&counters.ended, 1);
    if fiber.kind().migratable {
        bump(&counters.migratable, u64::MAX);
        // Relaxed: this worker's own look is the one that matters.
        core.remote().migrants.fetch_sub(1, Ordering::Relaxed);
    }
    let lives = &counters.lives;
    let finished = if fiber.kind().daemon {
        &lives.daemons_finished
    } else {
        &lives.finished
    };
    // Release: what the fiber spawned was counted before; pairs with the
    // Acquire in `shutdown::alive`. Own counter: no read-modify-write.
    finished.store(finished.load(Ordering::Relaxed) + 1, Ordering::Release);
    let references = if fiber.entry_merged() { 2 } else { 1 };
    // SAFETY: the references of the run and, if merged, of its entry.
    unsafe { release(block, references) };
}
