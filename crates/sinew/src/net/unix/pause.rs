//! Waiting for what the kernel does not tell.
//!
//! A Unix socket that finds the other side full is told to try again, and of nothing
//! else: a backlog with room again, or a queue of datagrams that somebody else had
//! filled, is no event of this socket, which is ready all the time. (A ring would have
//! a thread of the kernel's block there, one for each such call.) So we try again
//! after a pause, which grows.

use crate::error::Cancelled;
use crate::reactor::{How, Source};
use crate::wait::node::{Node, Place};
use crate::wait::{Deadline, Enlisted, Operation, WaitOutcome, WaitSpec, Waiter, perform};
use std::io;
use std::time::Duration;

const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(50);

/// How long to wait before the next try.
pub(super) struct Pause {
    next: Duration,
}

impl Pause {
    pub(super) fn new() -> Self {
        Self { next: SHORTEST }
    }

    /// Waits until it is time, or something happens on `source`, such as its end.
    ///
    /// # Errors
    ///
    /// A cancellation; `how.timed_out` if there is no time left.
    pub(super) fn wait(&mut self, source: &Source, how: &How) -> io::Result<()> {
        let deadline = Deadline::earlier(how.deadline, Deadline::after(self.next));
        let spec = WaitSpec::new(how.reason, how.at)
            .deadline(deadline)
            .cancellable();
        match perform(&Heard::of(source, how), &spec) {
            Ok(()) => Ok(()),
            Err(WaitOutcome::Cancelled) => Err(Cancelled.into()),
            Err(_) if deadline == how.deadline => Err(how.timed_out.into()),
            Err(_) => {
                self.next = (self.next * 2).min(LONGEST);
                Ok(())
            }
        }
    }
}

/// A wait for the next event of a direction, ready or not.
#[repr(C)]
struct Heard<'a> {
    node: Node,
    source: &'a Source,
    how: &'a How,
}

impl<'a> Heard<'a> {
    fn of(source: &'a Source, how: &'a How) -> Self {
        Self {
            node: Node::new(),
            source,
            how,
        }
    }
}

// SAFETY: `repr(C)`, and the node is first.
unsafe impl Place for Heard<'_> {
    fn node(&self) -> &Node {
        &self.node
    }
}

// SAFETY: the one node is linked only into the line of its direction, whose lock
// who hears of an event holds while it claims, and `delist` takes.
unsafe impl Operation for Heard<'_> {
    type Output = ();

    fn attempt(&self) -> Option<()> {
        // What is missed before the line is entered costs a pause, except the end.
        self.source.is_closed().then_some(())
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<()> {
        let mut line = self.source.readiness().line(self.how.direction).lock();
        // Under the lock: who closes marks it, then takes the lock and claims.
        if self.source.is_closed() {
            return if waiter.take_oneself(place) {
                Enlisted::Done(())
            } else {
                Enlisted::Lost
            };
        }
        self.node.belongs_to(waiter, place);
        // SAFETY: the caller's promise.
        unsafe { line.push_back(&self.node) };
        Enlisted::Linked
    }

    fn delist(&self) -> bool {
        let mut line = self.source.readiness().line(self.how.direction).lock();
        // SAFETY: linked only by `enlist`, into this list.
        unsafe { line.remove(&self.node) }
    }

    fn accept(&self) -> Option<()> {
        Some(())
    }

    fn pass_on(&self) {} // all were woken: there is nothing to pass on
}
