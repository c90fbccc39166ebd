//! How urgent a fiber is just now: its own priority, or what was lent to it.
//!
//! Nothing tells that but the order in which fibers run, so it is measured: the
//! fiber starts one of each priority behind itself, on its own worker, and
//! yields. Those run before it goes on that are as urgent as it is, or more.

use sinew::{Builder, Priority, Runtime};
use std::cell::Cell;
use std::rc::Rc;

pub const ALL: [Priority; 4] = [
    Priority::Low,
    Priority::Normal,
    Priority::High,
    Priority::Critical,
];

/// A runtime on which priorities can be measured: switches alone count there. By time a less
/// urgent fiber may go first at any moment, on a busy machine in each measurement.
pub fn runtime(workers: usize) -> Runtime {
    let builder = Runtime::builder().workers(workers).strict_order(true);
    builder.build().unwrap()
}

/// The priority at which the running fiber runs, on such a runtime.
///
/// Once in 64 turns a less urgent fiber goes first, so three measurements have to say the
/// same. Others on this worker should have nothing to do meanwhile.
pub fn running_at() -> Priority {
    let mut said = [0; ALL.len()];
    loop {
        let priority = measure();
        let times = &mut said[priority as usize];
        *times += 1;
        if *times == 3 {
            return priority;
        }
    }
}

fn measure() -> Priority {
    let before_us = Rc::new(Cell::new(0));
    let probes = ALL.map(|priority| {
        let count = before_us.clone();
        let probe = move || count.set(count.get() + 1);
        Builder::new()
            .priority(priority)
            .spawn_local(probe)
            .unwrap()
    });
    sinew::yield_now();
    // Of the four all that are not below us have run; at least the one that is
    // like us, which stood before us in the same queue.
    let priority = ALL[4 - before_us.get().max(1)];
    // None is left to wait until it is its turn by time.
    for probe in probes {
        drop(probe.join()); // if we are cancelled, so is it
    }
    priority
}
