//! Looking again for a moment before a wait, where another thread may end it
//! sooner than a wait costs.
//!
//! A fiber that waits for one of another worker costs that worker a message to
//! this one, and this one a switch there and back: half a µs and more. If the
//! other is busy with just that (a producer and a consumer on two workers, say)
//! it is done earlier.
//!
//! Only while this worker has nothing else to run, and there are several CPUs.

use super::deadline;
use crate::sched::{current, switch};

/// For how long (ns): several times what another worker takes to answer.
const MOMENT: u64 = 3_000;

/// Looks for a moment whether `ready` becomes true.
#[cold]
pub(crate) fn spin_until(ready: impl Fn() -> bool) {
    if switch::running().is_none() {
        return; // the kernel runs others
    }
    // SAFETY: a fiber runs here, so this thread has a live core; we do not
    // switch.
    let core = unsafe { &*current::core() };
    if !core.shared().can_look_out || core.shared().clock.stands() {
        return;
    }
    let until = deadline::now() + MOMENT;
    while core.ready() == 0 && core.remote().inbox.is_empty() && deadline::now() < until {
        for _ in 0..16 {
            std::hint::spin_loop();
            if ready() {
                return;
            }
        }
    }
}
