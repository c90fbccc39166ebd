//! Looking again before a wait: what it is for may be there in a moment.
//!
//! A wait costs more than what it waits for, often: a place in a line, a switch,
//! a notification, and if it comes from another worker a message to this one,
//! half a µs and more. So a fiber first lets others run: on the same worker those
//! who are to make what it wants, who then find nobody in line and have nobody to
//! wake. If no other fiber is ready here, but there are several CPUs, it spins
//! for as long as another worker takes to answer, some µs; also when it stands in
//! line already ([`woken_soon`]): who wakes it then finds it running, and has only
//! to change its state word.
//!
//! That is lost time if the wait is a long one. So each fiber learns whether it
//! is worth it: see
//! `fiber::patience`. Where order is exact (`strict_order`) or time
//! stands still (a simulation) nobody looks.
//!
//! A round trip through two channels on one worker took 204 ns without the look
//! and 117 with it, with a parked select of 32 arms 1760 and 393 (the least of
//! three runs each).
//!
//! Only what stays until it is taken may be looked for: a fiber that looks is in
//! no line, so it would miss what is meant for those who wait just now
//! (`Notify::notify_waiters`, an event that is reset), and could not be met by who
//! looks for a partner (a channel without capacity).

use crate::fiber::{Block, Intent};
use crate::sched::core::Core;
use crate::sched::{current, switch};
use crate::sys::process;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// How often to let others run, if there are several workers, or to spin
/// [`SPINS`] times if there are no others.
const ROUNDS: u32 = 8;
const SPINS: u32 = 8;

/// Looks whether `ready` becomes true soon; a fiber that may wait lets others run
/// meanwhile. `running` is what [`switch::running`] says.
// Always inlined, for the reason told at `switch::leave`.
#[inline(always)]
pub(crate) fn look_again(running: Option<NonNull<Block>>, ready: impl Fn() -> bool) -> bool {
    let Some(block) = running else {
        return false; // on a thread the kernel runs others
    };
    // SAFETY: the running fiber is alive.
    let fiber = unsafe { block.as_ref() };
    if !fiber.patience().looks() || fiber.no_suspend().get() > 0 || process::is_forked() {
        return false; // the wait itself says why, if it must
    }
    // SAFETY: a fiber runs here, so this thread has a live core; the borrow ends
    // before we switch.
    let core = unsafe { &*current::core() };
    if !core.looks_again() {
        return false;
    }
    if core.several() || !core.has_ready() {
        return look_for_long(block, ready);
    }
    // SAFETY: it runs here, may wait, and we hold nothing of the runtime's.
    unsafe { switch::leave(block, Intent::Yield) };
    let found = ready();
    fiber.patience().learn(found);
    found
}

/// The same where others run at the same time.
#[inline(never)]
fn look_for_long(block: NonNull<Block>, ready: impl Fn() -> bool) -> bool {
    // SAFETY: the running fiber is alive.
    let fiber = unsafe { block.as_ref() };
    let patience = fiber.patience();
    for _ in 0..ROUNDS {
        // SAFETY: as in `look_again`; loaded anew, for we may have moved.
        let core = unsafe { &*current::core() };
        if must_stop(core, fiber) {
            return false;
        }
        if others_are_ready(core) {
            // SAFETY: as in `look_again`.
            unsafe { switch::leave(block, Intent::Yield) };
            if ready() {
                patience.learn(true);
                return true;
            }
            continue;
        }
        if !core.may_spin() {
            return false;
        }
        for _ in 0..SPINS {
            std::hint::spin_loop();
            if ready() {
                patience.learn(true);
                return true;
            }
        }
    }
    patience.learn(false);
    false
}

/// Looks whether this fiber, which stands in line and is about to leave its
/// stack, is woken soon by another thread.
#[inline]
pub(super) fn woken_soon(fiber: &Block) -> bool {
    // SAFETY: a fiber runs here, so this thread has a live core; we do not switch.
    let core = unsafe { &*current::core() };
    core.may_spin() && !others_are_ready(core) && fiber.patience().looks() && spin(fiber, core)
}

#[cold]
fn spin(fiber: &Block, core: &Core) -> bool {
    for _ in 0..ROUNDS {
        for _ in 0..SPINS {
            std::hint::spin_loop();
            if fiber.state().is_woken(fiber.heard()) {
                fiber.patience().learn(true);
                return true;
            }
        }
        if must_stop(core, fiber) || others_are_ready(core) {
            return false;
        }
    }
    fiber.patience().learn(false);
    false
}

/// Whether somebody else could run here, now.
fn others_are_ready(core: &Core) -> bool {
    if !core.has_ready() {
        core.empty_inbox(); // else it is emptied only when there is nobody to run
    }
    core.has_ready()
}

/// Whether the fiber was cancelled, or has had its worker for too long: timers and
/// mail wait for that, too.
fn must_stop(core: &Core, fiber: &Block) -> bool {
    // Relaxed: a flag for this thread, looked at again and again.
    fiber.state().look() || core.remote().preempt.load(Ordering::Relaxed)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{look_again, switch};
    use crate::{Runtime, no_suspend, spawn, yield_now};
    use std::cell::Cell;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn one_worker(strict: bool) -> Runtime {
        let builder = Runtime::builder().workers(1).strict_order(strict);
        builder.build().unwrap()
    }

    /// Looks for something that is never there; says how often it was looked for.
    fn in_vain() -> u32 {
        let looks = Cell::new(0);
        let ready = || {
            looks.set(looks.get() + 1);
            false
        };
        assert!(!look_again(switch::running(), ready));
        looks.get()
    }

    /// Makes the running fiber one that looks: a few waits are behind it.
    fn learn_to_look() {
        let found = (0..100).any(|_| {
            drop(spawn(|| ())); // without others, on one CPU, nobody looks
            look_again(switch::running(), || true)
        });
        assert!(found);
        yield_now();
    }

    /// A ready fiber that counts its one turn.
    fn other(turns: &Arc<AtomicUsize>) {
        let turns = turns.clone();
        drop(spawn(move || turns.fetch_add(1, Ordering::Relaxed)));
    }

    #[test]
    fn who_looks_again_lets_those_run_who_are_ready() {
        one_worker(false).run(|| {
            learn_to_look();
            for round in 1..=20 {
                let turns = Arc::new(AtomicUsize::new(0));
                other(&turns);
                let ready = || turns.load(Ordering::Relaxed) == 1;
                assert!(look_again(switch::running(), ready), "round {round}");
            }
        });
    }

    #[test]
    fn after_a_look_in_vain_the_next_waits_go_without_one() {
        one_worker(false).run(|| {
            learn_to_look();
            let turns = Arc::new(AtomicUsize::new(0));
            let mut looks = [true; 20];
            for look in &mut looks {
                other(&turns);
                *look = in_vain() > 0;
                yield_now();
            }
            // Once at the start, and again after some that did without.
            assert!(looks[0]);
            let without = looks[1..].iter().take_while(|look| !**look).count();
            assert!((1..19).contains(&without), "{looks:?}");
        });
    }

    #[test]
    fn a_fiber_s_first_wait_goes_without_a_look() {
        one_worker(false).run(|| {
            let turns = Arc::new(AtomicUsize::new(0));
            other(&turns);
            assert_eq!(in_vain(), 0);
            assert_eq!(turns.load(Ordering::Relaxed), 0);
        });
    }

    #[test]
    fn where_order_is_exact_nobody_looks() {
        one_worker(true).run(|| {
            let turns = Arc::new(AtomicUsize::new(0));
            for _ in 0..50 {
                other(&turns);
                assert_eq!(in_vain(), 0);
            }
            assert_eq!(turns.load(Ordering::Relaxed), 0, "somebody ran");
        });
    }

    #[test]
    fn where_waiting_is_forbidden_nobody_looks() {
        one_worker(false).run(|| {
            learn_to_look();
            let turns = Arc::new(AtomicUsize::new(0));
            other(&turns);
            no_suspend(|| (0..50).for_each(|_| assert_eq!(in_vain(), 0)));
            assert_eq!(turns.load(Ordering::Relaxed), 0, "somebody ran");
            assert!(in_vain() > 0, "it has learnt nothing from that");
        });
    }

    #[test]
    fn a_thread_does_not_look() {
        (0..50).for_each(|_| assert_eq!(in_vain(), 0));
    }
}
