//! Waking what was claimed, on a worker's own stack.
//!
//! Fibers and threads are woken at once. A task's waker is user code, which must not
//! run there: unless it is that of a fiber in `block_on`, it is called elsewhere.

use super::outside;
use crate::wait::fiber_waker::is_of_a_fiber;
use crate::wait::node::Wakes;
use std::task::Waker;

#[inline]
pub(super) fn fire(wakes: Wakes) {
    if wakes.has_tasks() {
        wakes.fire_but_tasks().into_iter().for_each(wake);
    } else {
        wakes.fire();
    }
}

#[cold]
fn wake(waker: Waker) {
    if is_of_a_fiber(&waker) {
        waker.wake();
    } else {
        outside::call(waker);
    }
}
