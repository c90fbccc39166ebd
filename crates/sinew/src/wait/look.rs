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
//! | round trip through two channels, 1 worker | ns  |
//! |-------------------------------------------|-----|
//! | waits in line                             | 280 |
//! | looks again                               | TBD |

use crate::fiber::{Block, Intent};
use crate::sched::core::Core;
use crate::sched::{current, switch};
use std::ptr::NonNull;

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
    if !fiber.patience().looks() || fiber.no_suspend().get() > 0 {
        return false;
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
    let patience = unsafe { block.as_ref() }.patience();
    for _ in 0..ROUNDS {
        // SAFETY: as in `look_again`; loaded anew, for we may have moved.
        let core = unsafe { &*current::core() };
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
        if others_are_ready(core) {
            return false;
        }
    }
    fiber.patience().learn(false);
    false
}

fn others_are_ready(core: &Core) -> bool {
    core.has_ready() || !core.remote().inbox.is_empty()
}
