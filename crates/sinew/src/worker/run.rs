//! The worker's loop: pick a fiber, switch to it, act on what it intends.

use super::first_frame::first_frame;
use super::{search, shutdown, sleep};
use crate::fiber::{Block, Context, Intent, Park, release};
use crate::queue::Entry;
use crate::sched::core::Core;
use crate::sched::current;
use crate::sched::shared::{Abandoned, Shared, bump};
use crate::stack::{Given, NoStack, Stack};
use crate::sys::log::log;
use crate::sys::process;
use crate::wait::waiter::timer_fired;
use corosensei::CoroutineResult;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;

/// Timers, inbox, injectors and the driver are looked at once in this many
/// switches even if the queues never run empty. A prime, so that it does not
/// fall into step with loops of the program.
const LOOK_AROUND: u32 = 61;

/// Runs fibers until the runtime stops.
pub(crate) fn run(core: &Core) {
    current::set_core(core);
    let shared = core.shared().clone();
    let mut until_look = LOOK_AROUND;
    // Are we counted as a searcher (`sched::idle`, invariant 1)?
    let mut searching = false;
    // Relaxed: `stop` is followed by an unpark of every driver, which carries
    // the edge; a busy worker sees it a little later.
    while !shared.stop.load(Ordering::Relaxed) {
        until_look -= 1;
        if until_look == 0 {
            until_look = LOOK_AROUND;
            core.remote().driver.poll();
            look_around(core);
        }
        // Relaxed: a hint, looked at again and again.
        if core.remote().resort.load(Ordering::Relaxed) {
            core.remote().resort.store(false, Ordering::Relaxed);
            core.resort();
        }
        let mut entry = core.next_own();
        if entry.is_none() {
            // Not the driver: if there is nothing else it is asked by the sleep, and
            // one system call does for both.
            until_look = LOOK_AROUND;
            look_around(core);
            entry = core.next_own();
        }
        if entry.is_none() && core.several() {
            searching = searching || shared.idle.start_search();
            if searching {
                entry = search::search(core);
            }
        }
        match entry {
            Some(entry) => {
                if std::mem::take(&mut searching) {
                    search::end_search(core);
                }
                run_entry(core, entry);
            }
            None => searching = sleep::sleep(core, searching),
        }
    }
    leave_behind(core);
    core.remote().driver.stop();
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
}

/// The runtime stops while there are still fibers: hands over those that never
/// started. Started ones are leaked where they are.
fn leave_behind(core: &Core) {
    let shared = core.shared();
    let mut abandoned: Vec<Abandoned> = core
        .with_starved(std::mem::take)
        .into_iter()
        .map(Abandoned)
        .collect();
    core.end_inbox_sleep();
    core.take_mail();
    while let Some(entry) = core.next_own().or_else(|| core.take_injected()) {
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
        }
        if !fiber.has_context() {
            abandoned.push(Abandoned(block));
        }
    }
    shared.abandoned.lock().extend(abandoned);
}

/// Takes in whatever came from other threads, and timers; bounded work.
fn look_around(core: &Core) {
    core.empty_inbox();
    if core.with_wheel(|wheel| wheel.len()) > 0 {
        fire_timers(core);
    }
    if core.shared().stacks.is_starving() {
        relieve(core);
    }
    core.take_mail();
    if core.several() {
        search::even_out(core);
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
    if core.remote().starving.load(Ordering::Relaxed) {
        // Others were first: behind them.
        core.with_starved(|starved| starved.push_back(block));
        return false;
    }
    match core.with_stacks(|stacks| stacks.take(fiber.class())) {
        Ok(stack) => {
            bind(core, block, stack);
            true
        }
        Err(error) => starve(core, block, error),
    }
}

/// Prepares `stack` so that the first switch to it enters the first frame.
fn bind(core: &Core, block: NonNull<Block>, stack: Stack) {
    // SAFETY: claimed by this worker.
    let fiber = unsafe { block.as_ref() };
    // SAFETY: the closure only holds a block pointer, which stays valid: the
    // run's reference is released after the last switch. `first_frame` gets a
    // block that this worker claimed, on its own stack.
    let context = Context::with_stack(stack, move |suspender, ()| unsafe {
        first_frame(block, suspender);
    });
    // SAFETY: the context belongs to the owner, which we are.
    unsafe { (*fiber.context()).write(context) };
    fiber.set_has_context(true);
    fiber.set_home(core.home());
    bump(&core.remote().counters.started, 1);
}

/// Switches to a fiber, and acts on what it intends when it comes back.
fn resume(core: &Core, block: NonNull<Block>) {
    // SAFETY: owned by this worker.
    let fiber = unsafe { block.as_ref() };
    let remote = core.remote();
    if fiber.kind().migratable {
        fiber.set_home(core.home());
    }
    core.current.set(block.as_ptr());
    // Relaxed: for the monitor, which checks what it read.
    remote.current.store(block.as_ptr(), Ordering::Relaxed);
    bump(&remote.counters.switches, 1);
    core.settle_deferred();
    // SAFETY: a started fiber's context is initialised and ours (state,
    // invariants 1 and 2); nobody else touches it until we give it away below.
    let result = unsafe { (*fiber.context()).assume_init_mut() }.resume(());
    core.current.set(ptr::null());
    process::stop_forked_worker();
    // Before the block can be freed: the monitor looks at it only while it finds
    // it here, under the lock without which no block's memory goes (`slab`).
    remote.current.store(ptr::null_mut(), Ordering::Relaxed);
    if remote.preempt.load(Ordering::Relaxed) {
        remote.preempt.store(false, Ordering::Relaxed);
    }
    match result {
        CoroutineResult::Return(()) => finish(core, block),
        CoroutineResult::Yield(Intent::Yield) => core.requeue(block),
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
    let given = core.with_stacks(|stacks| stacks.give(context.into_stack()));
    if given == Given::Wanted {
        wake_starving(core.shared());
    }
    let counters = &core.remote().counters;
    bump(&counters.ended, 1);
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

/// No stack: the fiber waits, in order, until one comes back; true if one came
/// right away after all.
#[cold]
fn starve(core: &Core, block: NonNull<Block>, error: NoStack) -> bool {
    let shared = core.shared();
    let first = !core.remote().starving.swap(true, Ordering::Relaxed);
    if first {
        // From now on returned stacks are announced; one may have come back
        // just before.
        shared.stacks.begin_starving();
        // SAFETY: claimed by this worker.
        let class = unsafe { block.as_ref() }.class();
        if let Ok(stack) = core.with_stacks(|stacks| stacks.take(class)) {
            bind(core, block, stack);
            return true;
        }
    }
    core.with_starved(|starved| starved.push_back(block));
    let mut no_stack = shared.no_stack.lock().unwrap_or_else(|e| e.into_inner());
    if no_stack.is_none() {
        log(&format!(
            "runtime '{}': {error}; unstarted fibers wait until a stack comes back",
            shared.settings.name
        ));
        *no_stack = Some(error);
        shared.out_of_stacks.store(true, Ordering::Relaxed);
    }
    drop(no_stack);
    if first {
        // The others may have some to spare in their caches.
        shared.wake_all();
    }
    false
}

/// Stacks have come back: runs the fibers that wait for them, oldest first.
fn feed_starved(core: &Core) {
    let shared = core.shared();
    loop {
        let Some(block) = core.with_starved(|starved| starved.pop_front()) else {
            core.remote().starving.store(false, Ordering::Relaxed);
            shared.stacks.end_starving();
            let mut no_stack = shared.no_stack.lock().unwrap_or_else(|e| e.into_inner());
            if shared
                .remotes
                .iter()
                .all(|remote| !remote.starving.load(Ordering::Relaxed))
            {
                *no_stack = None;
                shared.out_of_stacks.store(false, Ordering::Relaxed);
            }
            return;
        };
        // SAFETY: claimed by this worker when it starved.
        let class = unsafe { block.as_ref() }.class();
        match core.with_stacks(|stacks| stacks.take(class)) {
            Ok(stack) => {
                bind(core, block, stack);
                core.push_private(Entry::started(block));
            }
            Err(_) => {
                core.with_starved(|starved| starved.push_front(block));
                return;
            }
        }
    }
}

/// Somebody has no stacks: gives up what this worker has to spare, and runs
/// its own fibers that wait for one.
#[cold]
fn relieve(core: &Core) {
    if core.remote().starving.load(Ordering::Relaxed) {
        feed_starved(core);
    }
    if core.with_stacks(|stacks| stacks.flush()) == Given::Wanted {
        wake_starving(core.shared());
    }
}

/// Tells the workers whose fibers wait for a stack that there is one.
#[cold]
pub(crate) fn wake_starving(shared: &Shared) {
    for remote in &shared.remotes {
        if remote.starving.load(Ordering::Relaxed) {
            remote.driver.unpark();
        }
    }
}
