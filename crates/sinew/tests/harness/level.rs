//! How urgent a fiber is just now: its own priority, or what was lent to it.
//!
//! Nothing tells that but the order in which fibers run, so it is measured: the
//! fiber starts one of each priority behind itself, on its own worker, and
//! yields. Those run before it goes on that are as urgent as it is, or more.

use sinew::{Builder, Priority};
use std::cell::Cell;
use std::rc::Rc;

pub const ALL: [Priority; 4] = [
    Priority::Low,
    Priority::Normal,
    Priority::High,
    Priority::Critical,
];

/// The priority at which the running fiber runs.
///
/// Once in 64 turns a less urgent fiber goes first, so two of three have to say
/// the same. Others on this worker should have nothing to do meanwhile.
pub fn running_at() -> Priority {
    let (one, two) = (measure(), measure());
    if one == two { one } else { measure() }
}

fn measure() -> Priority {
    let before_us = Rc::new(Cell::new(0));
    for priority in ALL {
        let count = before_us.clone();
        let probe = move || count.set(count.get() + 1);
        drop(
            Builder::new()
                .priority(priority)
                .spawn_local(probe)
                .unwrap(),
        );
    }
    sinew::yield_now();
    // Of the four all that are not below us have run; at least the one that is
    // like us, which stood before us in the same queue.
    ALL[4 - before_us.get().max(1)]
}
