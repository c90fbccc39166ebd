//! Fibers for which there is no stack.
//!
//! A fiber that is to start, and finds no stack of its class, waits in order on the worker
//! that claimed it, for as long as a stack of the runtime is in use that could come back.
//! Other classes are not concerned. What ends the wait:
//!
//! | what happens                           | what becomes of the fiber             |
//! |----------------------------------------|---------------------------------------|
//! | a stack comes back, or memory does     | it starts                             |
//! | it is cancelled, or a scope around it  | its closure is dropped, it is `Cancelled` |
//! | no stack of the runtime is in use      | its closure is dropped, it is `NoStack` |
//! | the runtime is given up                | `shutdown::fail_abandoned`            |
//!
//! The second and third are *doomed*: they will only end. What they drop is user code and
//! may wait, also for each other: so each gets a small stack of its own, of the runtime's
//! pool, which is mostly to be had where a large one is not. If that is refused, too, they
//! take turns on the runtime's [`Reserve`]: there the next one waits
//! for the drop of the one before, and two that wait for each other never end.
//!
//! While it waits such a fiber is parked, like one that has a stack: who cancels it nudges
//! it, and thereby owns it and brings it to this worker ([`look_again`]). A child of a
//! scope takes its place in the nest already now, so that a cancellation finds it. The
//! worker itself must win a nudge before it starts or ends the fiber ([`take_over`]): then
//! nobody else has it.
//!
//! A worker says that it waits ([`Remote::starving`](crate::sched::shared::Remote)) before
//! it looks for a stack once more. Who gives one back puts it where the lock of the pool,
//! or of the reserve, is, and looks after that at who waits. So one of them sees the
//! other; a model (`loom_tests`) has this for the pool.
//!
//! Invariant: a fiber in `Starved::hungry` has no context, its home is this worker, and it
//! is pinned; it is parked, or was nudged and is in this worker's inbox or queues.

use super::run::bind;
use crate::fiber::{Begin, Block, Park, Wake};
use crate::queue::Entry;
use crate::sched::core::Core;
use crate::sched::shared::{Abandoned, Shared, WANTS_RESERVE, bump};
use crate::sched::starved::Hungry;
use crate::stack::{Given, NoStack, Reserve, Stack, StackClass};
use crate::sys::log::log;
use std::ptr::NonNull;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// Deals with a fiber that is to start while others of this worker wait; false if it may
/// look for a stack as usual.
#[cold]
pub(super) fn waits_already(core: &Core, block: NonNull<Block>) -> bool {
    // SAFETY: claimed, and owned by this worker.
    let fiber = unsafe { block.as_ref() };
    if fiber.state().load().parked() {
        look_again(core, block);
        return true;
    }
    let others = core.with_starved(|starved| starved.front(fiber.class()).is_some());
    if others {
        wait(core, block); // behind them, who were first
    }
    others
}

/// No stack: the fiber waits, or ends; true if one came right away after all.
#[cold]
pub(super) fn starve(core: &Core, block: NonNull<Block>) -> bool {
    let shared = core.shared();
    // SAFETY: claimed by this worker.
    let class = unsafe { block.as_ref() }.class();
    // From now on returned stacks are announced; one may have come back just before.
    announce(core, class.bit());
    // What is hot here may have held the memory that is missing.
    flush(core);
    let error = match core.with_stacks(|stacks| stacks.take(class)) {
        Ok(stack) => {
            bind(core, block, stack, Begin::Run);
            return true;
        }
        Err(error) => error,
    };
    if shared.stacks.is_complete() {
        say_that_none_is_left(shared, &error);
        doom(core, block);
        return false;
    }
    if wait(core, block) {
        note(shared, class, error);
        // The others may have some to spare in their caches.
        shared.wake_all();
    }
    false
}

/// Lets a fiber wait in line for a stack of its class; false if it is cancelled.
fn wait(core: &Core, block: NonNull<Block>) -> bool {
    // SAFETY: claimed by this worker, which owns it until it is parked.
    let fiber = unsafe { block.as_ref() };
    let class = fiber.class();
    fiber.set_home(core.home());
    fiber.set_pinned(true);
    let mut cancelled = false;
    let place = fiber.future_parent().map(|nest| {
        // SAFETY: counted when it was spawned, so the nest is there; `leave_place` is
        // called before the block can go.
        let (place, too_late) = unsafe { nest.as_ref().begin_child(block) };
        cancelled = too_late;
        place
    });
    core.with_starved(|starved| starved.push(class, Hungry { block, place }));
    if cancelled {
        remove(core, block);
        doom(core, block);
        return false;
    }
    look_and_park(core, block)
}

/// A fiber in line was nudged: it may have been cancelled.
fn look_again(core: &Core, block: NonNull<Block>) {
    // SAFETY: who nudged it owned it, and gave it to this worker.
    let fiber = unsafe { block.as_ref() };
    let _heard = fiber.state().take_wakes(fiber.heard());
    look_and_park(core, block);
}

/// Parks a fiber that is in line and ours; false if it turns out to be cancelled.
fn look_and_park(core: &Core, block: NonNull<Block>) -> bool {
    // SAFETY: ours until it is parked.
    let fiber = unsafe { block.as_ref() };
    loop {
        if fiber.state().load().cancelled() && !fiber.kind().always_runs {
            remove(core, block);
            doom(core, block);
            return false;
        }
        match fiber.state().commit_park(fiber.heard()) {
            Park::Asleep => {
                bump(&core.remote().counters.parked, 1);
                return true;
            }
            Park::Awake => {
                let _heard = fiber.state().take_wakes(fiber.heard());
            }
        }
    }
}

/// Makes a fiber in line ours; false if somebody else has nudged it, who brings it here.
fn take_over(core: &Core, block: NonNull<Block>) -> bool {
    // SAFETY: it has not ended (it is in line), and its run's reference keeps the block.
    let fiber = unsafe { block.as_ref() };
    if fiber.state().nudge() != Wake::Enqueue {
        return false;
    }
    let _heard = fiber.state().take_wakes(fiber.heard());
    bump(&core.remote().counters.parked, u64::MAX);
    true
}

/// Takes a fiber that is ours out of its line.
fn remove(core: &Core, block: NonNull<Block>) {
    // SAFETY: ours.
    let class = unsafe { block.as_ref() }.class();
    let hungry = core.with_starved(|starved| starved.remove(class, block));
    leave_place(&hungry.expect("it is in line"));
}

/// Its place in the nest goes: it gets another when it begins to run.
fn leave_place(hungry: &Hungry) {
    // SAFETY: it has not ended, so block and nest are there.
    unsafe {
        let parent = hungry.block.as_ref().future_parent();
        if let (Some(nest), Some(place)) = (parent, hungry.place) {
            nest.as_ref().leave_place(place);
        }
    }
}

/// A fiber that is ours, and in no line, will only end: on any small stack.
fn doom(core: &Core, block: NonNull<Block>) {
    let first = core.with_starved(|starved| {
        starved.doomed.push_back(block);
        starved.doomed.len() == 1
    });
    // If others are there already the kernel has refused one of them.
    serve_doomed(core, first);
    if first && core.with_starved(|starved| !starved.doomed.is_empty()) {
        // The others may have some to spare in their caches.
        core.shared().wake_all();
    }
}

/// Lets those end for which there is a small stack, or else one of them if the reserve is
/// free. The kernel is asked for memory only if `ask` says so; see [`feed`].
fn serve_doomed(core: &Core, ask: bool) {
    let class = Reserve::class();
    loop {
        if core.with_starved(|starved| starved.doomed.is_empty()) {
            return retract(core, WANTS_RESERVE);
        }
        // Before we look: who gives one back, here or there, wakes us then.
        announce(core, WANTS_RESERVE);
        if !ask && !core.shared().stacks.has(class) {
            break;
        }
        let Ok(stack) = core.with_stacks(|stacks| stacks.take(class)) else {
            break;
        };
        end_on(core, stack);
    }
    if let Some(stack) = core.shared().reserve.take() {
        let block = end_on(core, stack);
        core.on_reserve.set(block.as_ptr());
    }
}

/// Lets the first of the doomed end on this stack; returns which one that is.
fn end_on(core: &Core, stack: Stack) -> NonNull<Block> {
    let block = core.with_starved(|starved| starved.doomed.pop_front());
    let block = block.expect("the caller looked");
    // SAFETY: it is ours.
    let fiber = unsafe { block.as_ref() };
    // What is known of its stack (an overflow's report) is of this one.
    fiber.set_class(stack.class());
    fiber.set_pinned(true);
    bind(core, block, stack, Begin::NoStack);
    core.push_private(Entry::started(block));
    block
}

/// Starts the fibers that wait for a stack, if some came back, each class in its order.
///
/// Called often, by a worker that runs others meanwhile: so the kernel is asked for memory
/// only if no stack is left that could come back, or when the monitor says so. It has
/// refused before, and a refusal takes long.
fn feed(core: &Core, ask: bool) {
    let mut index = 0;
    while let Some(class) = core.with_starved(|starved| starved.class(index)) {
        feed_class(core, class, ask);
        index += 1;
    }
}

fn feed_class(core: &Core, class: StackClass, ask: bool) {
    let shared = core.shared();
    while let Some(block) = core.with_starved(|starved| starved.front(class)) {
        // SAFETY: in line, so it has not ended.
        if unsafe { block.as_ref() }.state().load().nudged() {
            return; // on its way to us; we look again after that
        }
        if !ask && !shared.stacks.has(class) && !shared.stacks.is_complete() {
            return;
        }
        match core.with_stacks(|stacks| stacks.take(class)) {
            Ok(stack) if take_over(core, block) => {
                leave(core, class);
                // SAFETY: ours now.
                unsafe { block.as_ref() }.set_pinned(false);
                bind(core, block, stack, Begin::Run);
                core.push_private(Entry::started(block));
            }
            Ok(stack) => {
                // It was nudged in between.
                let given = core.with_stacks(|stacks| stacks.give(stack));
                return wake_if(shared, given);
            }
            Err(error) if shared.stacks.is_complete() => {
                say_that_none_is_left(shared, &error);
                return doom_class(core, class);
            }
            Err(_) => return,
        }
    }
}

/// All that wait for a stack of this class will only end, side by side: what one of them
/// drops may wait for another.
fn doom_class(core: &Core, class: StackClass) {
    while let Some(block) = core.with_starved(|starved| starved.front(class)) {
        if !take_over(core, block) {
            break; // on its way to us
        }
        leave(core, class);
        core.with_starved(|starved| starved.doomed.push_back(block));
    }
    serve_doomed(core, true);
}

/// Takes back what was announced for classes that nobody here waits for any more.
fn retract_fed(core: &Core) {
    let waiting = core.with_starved(|starved| starved.classes());
    // Relaxed: our own.
    let starving = core.remote().starving.load(Ordering::Relaxed);
    let fed = starving & !waiting & !WANTS_RESERVE;
    if fed != 0 {
        retract(core, fed);
        forget(core.shared(), fed);
    }
}

/// The first of a class leaves its line.
fn leave(core: &Core, class: StackClass) {
    let hungry = core.with_starved(|starved| starved.pop(class));
    leave_place(&hungry.expect("it was the first"));
}

/// Somebody has no stacks: gives up what this worker has to spare, and deals with its own
/// fibers that wait for one.
#[cold]
pub(super) fn relieve(core: &Core) {
    // Relaxed: our own.
    if core.remote().starving.load(Ordering::Relaxed) != 0 {
        // Relaxed: a hint from the monitor, which comes again.
        let ask = core.remote().ask_kernel.load(Ordering::Relaxed);
        core.remote().ask_kernel.store(false, Ordering::Relaxed);
        feed(core, ask);
        retract_fed(core);
        serve_doomed(core, ask);
    }
    flush(core);
}

fn flush(core: &Core) {
    wake_if(core.shared(), core.with_stacks(|stacks| stacks.flush()));
}

fn wake_if(shared: &Shared, given: Given) {
    if given == Given::Wanted {
        wake_starving(shared);
    }
}

/// Tells the workers whose fibers wait for a stack that there is one.
#[cold]
pub(crate) fn wake_starving(shared: &Shared) {
    for remote in &shared.remotes {
        // Relaxed: ordered by the lock of what was given back; see the header.
        if remote.starving.load(Ordering::Relaxed) != 0 {
            remote.driver.unpark();
        }
    }
}

/// Memory may have come back without any stack of ours: lets those who wait ask for it.
#[cold]
pub(crate) fn ask_kernel(shared: &Shared) {
    for remote in &shared.remotes {
        // Relaxed: a hint; the wake-up orders it for a worker that sleeps.
        remote.ask_kernel.store(true, Ordering::Relaxed);
    }
    wake_starving(shared);
}

/// The fiber that ran on the reserve has ended.
#[cold]
pub(super) fn give_reserve(core: &Core, stack: Stack) {
    core.on_reserve.set(std::ptr::null());
    core.shared().reserve.give(stack);
    wake_starving(core.shared());
}

/// Takes over those who wait when the worker stops, and says how many it could not: those
/// were nudged, and come with the queues, now or when their waker has pushed them.
pub(super) fn abandon(core: &Core) -> (Vec<Abandoned>, usize) {
    let mut abandoned = Vec::new();
    let mut nudged = 0;
    for hungry in core.with_starved(|starved| starved.take_hungry()) {
        leave_place(&hungry);
        if take_over(core, hungry.block) {
            abandoned.push(Abandoned(hungry.block));
        } else {
            nudged += 1;
        }
    }
    let doomed = core.with_starved(|starved| std::mem::take(&mut starved.doomed));
    abandoned.extend(doomed.into_iter().map(Abandoned));
    (abandoned, nudged)
}

/// Says that fibers here wait for this.
fn announce(core: &Core, bit: u32) {
    let starving = &core.remote().starving;
    // Relaxed: our own word; ordered for others by `begin_starving` and the locks.
    let before = starving.load(Ordering::Relaxed);
    starving.store(before | bit, Ordering::Relaxed);
    if before == 0 {
        core.shared().stacks.begin_starving();
    }
}

/// Says that none waits for any of these any more.
fn retract(core: &Core, bits: u32) {
    let starving = &core.remote().starving;
    // Relaxed: our own word.
    let before = starving.load(Ordering::Relaxed);
    starving.store(before & !bits, Ordering::Relaxed);
    if before != 0 && before & !bits == 0 {
        core.shared().stacks.end_starving();
    }
}

/// Lets spawns of this class fail while fibers of it wait.
fn note(shared: &Shared, class: StackClass, error: NoStack) {
    let mut no_stack = shared
        .no_stack
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if no_stack.iter().all(|(known, _)| *known != class) {
        log(&format!(
            "runtime '{}': {error}; unstarted fibers of this stack size wait until a stack \
             comes back",
            shared.settings.name
        ));
        no_stack.push((class, error));
        // Relaxed: a hint; changed under the lock.
        shared
            .out_of_stacks
            .fetch_or(class.bit(), Ordering::Relaxed);
    }
}

/// Lets spawns of these classes succeed again, as far as nobody waits anywhere.
fn forget(shared: &Shared, fed: u32) {
    let mut no_stack = shared
        .no_stack
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    // Relaxed: who begins to wait says so before it takes this lock.
    let starving = shared.remotes.iter().fold(0, |bits, remote| {
        bits | remote.starving.load(Ordering::Relaxed)
    });
    let fed = fed & !starving;
    no_stack.retain(|(known, _)| known.bit() & fed == 0);
    // Relaxed: a hint.
    shared.out_of_stacks.fetch_and(!fed, Ordering::Relaxed);
}

/// Nobody may ever ask for the outcome of a fiber that got no stack.
fn say_that_none_is_left(shared: &Shared, error: &NoStack) {
    // Relaxed: once is enough, and twice is no harm.
    if !shared.said_no_stack.swap(true, Ordering::Relaxed) {
        log(&format!(
            "runtime '{}': {error}; no stack is in use that could come back, so such fibers \
             fail",
            shared.settings.name
        ));
    }
}
