//! One operation that the kernel carries out, in the frame of who waits for it.
//!
//! The kernel holds a pointer to it, and to the buffers of the call, until its
//! completion was taken. So the frame stays: a wait that is cancelled, timed out
//! or closed asks the kernel to give the operation up, and goes on waiting. What
//! the kernel did before that counts: bytes that arrived are returned.
//!
//! Invariant 1 (frame): from the push of its entry until `result` is set, the
//! fiber does not leave the frame that the operation is in, and stays on its
//! worker: it is pinned, and an unwinding would abort.
//! Invariant 2 (one thread): `result` is written by the worker's own loop and read by
//! the waiting fiber, on one thread. Others touch only the node, under the line's
//! lock.

use super::readiness::Readiness;
use crate::fiber::Block;
use crate::sys::{Lock, cache};
use crate::wait::node::{Node, Place, WaitList};
use crate::wait::{Enlisted, Operation, Waiter};
use std::cell::Cell;
use std::ptr::NonNull;

/// What the kernel answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// As a system call's, with the error negative.
    pub(crate) result: i32,
    pub(crate) flags: u32,
}

/// See the module header.
#[repr(C)]
pub(crate) struct Completion<'a> {
    node: Node,
    /// Where who may end the wait early finds it.
    line: &'a Lock<WaitList<Node>>,
    /// What may be closed meanwhile, if anything.
    closable: Option<&'a Readiness>,
    /// Connections that others leave there will do as well.
    accepts: bool,
    /// Waits for the answer, whatever happens: it was called back.
    called_back: Cell<bool>,
    result: Cell<Option<Answer>>,
    /// Whose it is: to be loaded ahead.
    fiber: NonNull<Block>,
}

// SAFETY: `repr(C)`, and the node is first.
unsafe impl Place for Completion<'_> {
    fn node(&self) -> &Node {
        &self.node
    }
}

impl<'a> Completion<'a> {
    pub(crate) fn new(
        line: &'a Lock<WaitList<Node>>,
        closable: Option<&'a Readiness>,
        accepts: bool,
        fiber: NonNull<Block>,
    ) -> Self {
        Self {
            node: Node::new(),
            line,
            closable,
            accepts,
            called_back: Cell::new(false),
            result: Cell::new(None),
            fiber,
        }
    }

    /// What an entry carries, and its completion brings back; never 0 to 7.
    pub(crate) fn user_data(&self) -> u64 {
        std::ptr::from_ref(self).expose_provenance() as u64
    }

    /// From now on nothing but the answer ends a wait; true the first time.
    pub(crate) fn call_back(&self) -> bool {
        !self.called_back.replace(true)
    }

    /// What the kernel answered, once it did.
    pub(crate) fn answer(&self) -> Option<Answer> {
        self.result.get()
    }

    /// Starts to load what [`arrived`](Self::arrived) needs, first and then.
    ///
    /// # Safety
    ///
    /// As for `arrived`, which is yet to be called.
    pub(crate) unsafe fn load_ahead(user_data: u64, then: bool) {
        let at = std::ptr::with_exposed_provenance::<Completion<'_>>(user_data as usize);
        if !then {
            cache::prefetch(at);
            cache::prefetch(at.wrapping_byte_add(cache::LINE));
            return;
        }
        // SAFETY: invariant 1.
        let completion = unsafe { &*at };
        cache::prefetch(completion.line);
        cache::prefetch(completion.fiber.as_ptr());
    }

    /// The kernel has answered: keeps that, and wakes who waits.
    ///
    /// # Safety
    ///
    /// `user_data` is that of a completion whose entry was pushed to the ring of
    /// this thread, and this is its answer.
    pub(crate) unsafe fn arrived(user_data: u64, answer: Answer) {
        let at = std::ptr::with_exposed_provenance_mut::<Completion<'_>>(user_data as usize);
        let Some(completion) = NonNull::new(at) else {
            return;
        };
        // SAFETY: invariant 1.
        let completion = unsafe { completion.as_ref() };
        completion.result.set(Some(answer));
        let mut line = completion.line.lock();
        // SAFETY: linked only by `enlist`, into this list.
        if unsafe { line.remove(&completion.node) } {
            // SAFETY: it was linked, and we hold the lock.
            let wakeup = unsafe { completion.node.claim() };
            drop(line);
            wakeup.expect("a waiter with one place").fire();
        }
    }
}

/// Waits until the kernel answered, or a waker ended the wait.
// SAFETY: the one node is linked only into `line`, whose lock claimants hold, and
// `delist` takes.
unsafe impl Operation for Completion<'_> {
    type Output = Option<Answer>;

    fn attempt(&self) -> Option<Self::Output> {
        self.answer().map(Some)
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<Self::Output> {
        if let Some(answer) = self.answer() {
            return if waiter.take_oneself(place) {
                Enlisted::Done(Some(answer))
            } else {
                Enlisted::Lost
            };
        }
        let mut line = self.line.lock();
        // Under the lock: who closes, or leaves connections, claims all who are linked,
        // after that.
        let over = self.closable.is_some_and(|what| {
            let look = what.look();
            look.is_closed() || self.accepts && look.has_left()
        });
        if over && !self.called_back.get() && waiter.take_oneself(place) {
            return Enlisted::Done(None);
        }
        self.node.belongs_to(waiter, place);
        // SAFETY: the caller's promise.
        unsafe { line.push_back(&self.node) };
        Enlisted::Linked
    }

    fn delist(&self) -> bool {
        // SAFETY: linked only by `enlist`, into this list.
        unsafe { self.line.lock().remove(&self.node) }
    }

    fn accept(&self) -> Option<Self::Output> {
        Some(self.answer())
    }

    fn pass_on(&self) {} // the answer stays where it is
}
