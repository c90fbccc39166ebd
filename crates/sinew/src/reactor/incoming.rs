//! Connections that the kernel accepts ahead: one operation, many answers.
//!
//! Only an iterator over incoming connections does that: whoever calls `accept`
//! once must not have taken a second one from those who accept next to it. What was
//! accepted is handed out, or left to who accepts next when the iterator is dropped; what
//! nobody wants is closed with the listener.
//!
//! Invariant (owner): the state is in a box of its own, since the kernel's answers
//! come for as long as the operation lives. Who drops the iterator cancels the
//! operation and waits for its last answer before the box is freed; where it must
//! not wait, the box is left to the last answer, and the worker does not end before that. All
//! of it happens on one worker, for the iterator does not leave it. (A worker that is kept for
//! leaked fibers keeps such a box, too.)

use super::call::{self, How};
use super::completion::Answer;
use super::driver::{DriverKind, Reactor};
use super::readiness::Direction;
use super::ring::Ring;
use super::source::{Source, closed};
use crate::fiber::{Intent, WaitReason};
use crate::sched::switch;
use crate::sys::uring::more;
use crate::sys::{Lock, process};
use crate::wait::node::{Node, Place, WaitList};
use crate::wait::{Enlisted, Operation, WaitSpec, Waiter, perform, point};
use io_uring::{opcode, types};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::panic::Location;
use std::ptr::{self, NonNull};

/// How many connections may lie here before the kernel is asked to stop: those in
/// the backlog of the listener cost no descriptor.
const AHEAD: usize = 64;

/// See the module header.
#[repr(align(8))]
pub(super) struct Shots {
    accepted: RefCell<VecDeque<OwnedFd>>,
    /// Why the operation ended, if that was an error that nobody was told yet.
    error: Cell<Option<i32>>,
    /// The kernel has the operation.
    armed: Cell<bool>,
    /// It was asked to give it up.
    stopping: Cell<bool>,
    /// The iterator is gone: the last answer frees the box.
    orphaned: Cell<bool>,
    /// Where the iterator waits, if it does.
    waiting: Cell<*const ShotsWait<'static>>,
    /// Kept open until the last answer: an entry names it by its number.
    source: Source,
}

/// What the ring is to do after an answer.
#[must_use]
pub(super) enum ShotsNext {
    /// Nothing.
    GoOn,
    /// Ask the kernel to stop, which is too far ahead.
    Stop,
    /// Forget the operation: this was the last answer, and nobody has waited for it.
    Freed,
}

/// What to do next.
enum Shot {
    /// Hand it out.
    Accepted(OwnedFd),
    /// Tell the caller.
    Failed(i32),
    /// Start the operation (again).
    Arm,
    /// Wait.
    Wait,
}

impl Shots {
    fn new(source: Source) -> Self {
        Self {
            accepted: RefCell::new(VecDeque::new()),
            error: Cell::new(None),
            armed: Cell::new(false),
            stopping: Cell::new(false),
            orphaned: Cell::new(false),
            waiting: Cell::new(ptr::null()),
            source,
        }
    }

    fn next(&self) -> Shot {
        if let Some(fd) = self.accepted.borrow_mut().pop_front() {
            return Shot::Accepted(fd);
        }
        match self.error.take() {
            Some(error) => Shot::Failed(error),
            None if self.armed.get() => Shot::Wait,
            None => Shot::Arm,
        }
    }

    fn set_armed(&self) {
        self.armed.set(true);
        self.stopping.set(false);
    }

    /// An answer.
    ///
    /// # Safety
    ///
    /// `address` is that of a live `Shots` whose operation was pushed to the ring
    /// of this thread.
    pub(super) unsafe fn arrived(address: u64, answer: Answer) -> ShotsNext {
        let at = ptr::with_exposed_provenance_mut::<Shots>(address as usize);
        // SAFETY: invariant "owner".
        let shots = unsafe { &*at };
        if answer.result >= 0 {
            // SAFETY: the kernel has just made it for us.
            let fd = unsafe { OwnedFd::from_raw_fd(answer.result) };
            shots.accepted.borrow_mut().push_back(fd);
        } else if answer.result != -libc::ECANCELED || !shots.stopping.get() {
            shots.error.set(Some(-answer.result));
        }
        if !more(answer.flags) {
            shots.armed.set(false);
        }
        if shots.orphaned.get() {
            shots.leave_accepted();
            if shots.armed.get() {
                return ShotsNext::GoOn;
            }
            // SAFETY: leaked by `Accepting::drop`, and this was the last answer.
            drop(unsafe { Box::from_raw(at) });
            return ShotsNext::Freed;
        }
        // SAFETY: set by a wait on this thread, which clears it before it goes.
        if let Some(wait) = unsafe { shots.waiting.get().as_ref() } {
            wait.end();
        }
        let ahead = shots.accepted.borrow().len() >= AHEAD;
        if ahead && shots.armed.get() && !shots.stopping.replace(true) {
            ShotsNext::Stop
        } else {
            ShotsNext::GoOn
        }
    }

    /// Leaves what was accepted to who accepts next.
    fn leave_accepted(&self) {
        let accepted = self.accepted.take();
        self.source.leave_accepted(accepted);
    }

    /// Whether there is something to hand out or to do.
    fn has_news(&self) -> bool {
        !self.accepted.borrow().is_empty() || !self.armed.get()
    }

    /// A wait for the next answer.
    fn wait(&self) -> ShotsWait<'_> {
        ShotsWait {
            node: Node::new(),
            shots: self,
        }
    }
}

/// Accepts ahead, for one iterator; it stays on its fiber.
pub(crate) struct Accepting {
    /// From a box, and exposed: the kernel's answers come back to it by its address.
    shots: NonNull<Shots>,
    /// Neither sent nor shared: the ring is this worker's.
    _here: PhantomData<*const ()>,
}

impl Accepting {
    /// None where connections are accepted one by one: not on a ring, or on a fiber
    /// that may move.
    pub(crate) fn new(source: &Source) -> Option<Self> {
        let block = switch::running()?;
        // SAFETY: the running fiber is alive.
        let moves = unsafe { block.as_ref() }.kind().migratable;
        let ring = Reactor::with_current(Reactor::kind) == Some(DriverKind::Uring);
        (ring && !moves && !source.never_waits()).then(|| Self {
            shots: NonNull::from(Box::leak(Box::new(Shots::new(source.clone())))),
            _here: PhantomData,
        })
    }

    fn shots(&self) -> &Shots {
        // SAFETY: invariant "owner": it is freed by our `drop`, or after it.
        unsafe { self.shots.as_ref() }
    }

    fn user_data(&self) -> u64 {
        Ring::shots_data(self.shots.as_ptr().expose_provenance() as u64)
    }

    /// Waits for the next connection.
    pub(crate) fn next(&self, how: &How) -> io::Result<OwnedFd> {
        point::check()?;
        // Panics where waiting is forbidden: before the kernel knows of anything.
        switch::about_to_wait();
        let source = &self.shots().source;
        let mut looked = false;
        loop {
            if source.is_closed() {
                return Err(closed());
            }
            if let Some(fd) = source.take_accepted() {
                return Ok(fd);
            }
            match self.shots().next() {
                Shot::Accepted(fd) => return Ok(fd),
                Shot::Failed(error) => return Err(io::Error::from_raw_os_error(error)),
                Shot::Arm => self.arm()?,
                Shot::Wait if !how.waits => {
                    if std::mem::replace(&mut looked, true) {
                        return Err(io::ErrorKind::WouldBlock.into());
                    }
                    // What has come is seen when the worker turns the ring.
                    if let Some(block) = switch::about_to_wait() {
                        // SAFETY: it runs here, may wait, and we hold nothing of the
                        // runtime's.
                        unsafe { switch::leave(block, Intent::Yield) };
                    }
                }
                Shot::Wait => {
                    perform(&self.shots().wait(), &how.spec(source.as_fd()))
                        .map_err(|outcome| how.error(outcome))?;
                }
            }
        }
    }

    fn arm(&self) -> io::Result<()> {
        let fd = types::Fd(self.shots().source.as_fd().as_raw_fd());
        let entry = opcode::AcceptMulti::new(fd)
            .flags(libc::SOCK_CLOEXEC)
            .build()
            .user_data(self.user_data());
        // SAFETY: it points to the box alone, which stays until the last answer, and
        // keeps the descriptor open for as long (invariant "owner").
        call::with_ring(|ring| unsafe { ring.push(entry) })?;
        self.shots().set_armed();
        Ok(())
    }

    /// Asks the kernel to stop; false if the ring is gone, or is not ours: then there
    /// will be no answer.
    fn stop(&self) -> bool {
        let shots = self.shots();
        let asks = shots.armed.get() && !shots.stopping.replace(true);
        let asked = call::with_ring(|ring| {
            if asks {
                ring.cancel(self.user_data());
            }
        });
        asked.is_ok()
    }
}

impl Drop for Accepting {
    fn drop(&mut self) {
        let armed = self.shots().armed.get();
        let answers = armed && self.stop();
        let waits = answers && switch::running().is_some();
        // The listener's port is free again only when the kernel has let go of it.
        while self.shots().armed.get() && waits && switch::may_wait() {
            self.shots().leave_accepted();
            let spec = WaitSpec::new(WaitReason::Accept, Location::caller());
            let woken = perform(&self.shots().wait(), &spec);
            debug_assert!(woken.is_ok());
        }
        self.shots().leave_accepted();
        if self.shots().armed.get() && (answers || process::is_forked()) {
            self.shots().orphaned.set(true);
            // In a forked child there is no ring, and no answer.
            let _ = call::with_ring(Ring::add_orphan);
        } else {
            // SAFETY: from a box, and nobody else has it: there was a last answer, or
            // there was no operation, or the ring that would answer is gone.
            drop(unsafe { Box::from_raw(self.shots.as_ptr()) });
        }
    }
}

/// The iterator's wait for an answer; in the listener's line, so that closing it
/// ends the wait.
#[repr(C)]
pub(super) struct ShotsWait<'a> {
    node: Node,
    shots: &'a Shots,
}

// SAFETY: `repr(C)`, and the node is first.
unsafe impl Place for ShotsWait<'_> {
    fn node(&self) -> &Node {
        &self.node
    }
}

impl ShotsWait<'_> {
    fn line(&self) -> &Lock<WaitList<Node>> {
        self.shots.source.readiness().line(Direction::Read)
    }

    /// An answer has come.
    fn end(&self) {
        let mut line = self.line().lock();
        // SAFETY: linked only by `enlist`, into this list.
        if unsafe { line.remove(&self.node) } {
            // SAFETY: it was linked, and we hold the lock.
            let wakeup = unsafe { self.node.claim() };
            drop(line);
            wakeup.expect("a waiter with one place").fire();
        }
    }
}

impl Drop for ShotsWait<'_> {
    fn drop(&mut self) {
        self.shots.waiting.set(ptr::null());
    }
}

// SAFETY: the one node is linked only into the listener's line, whose lock
// claimants hold, and `delist` takes.
unsafe impl Operation for ShotsWait<'_> {
    type Output = ();

    fn attempt(&self) -> Option<()> {
        self.shots.has_news().then_some(())
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<()> {
        if self.attempt().is_some() {
            return if waiter.take_oneself(place) {
                Enlisted::Done(())
            } else {
                Enlisted::Lost
            };
        }
        let mut line = self.line().lock();
        // Under the lock: who closes, or leaves connections, claims all who are linked,
        // after that. One who stops waits for the last answer all the same.
        let look = self.shots.source.readiness().look();
        let over = (look.is_closed() || look.has_left()) && !self.shots.stopping.get();
        if over && waiter.take_oneself(place) {
            return Enlisted::Done(());
        }
        self.shots
            .waiting
            .set(ptr::from_ref(self).cast::<ShotsWait<'static>>());
        self.node.belongs_to(waiter, place);
        // SAFETY: the caller's promise.
        unsafe { line.push_back(&self.node) };
        Enlisted::Linked
    }

    fn delist(&self) -> bool {
        // SAFETY: linked only by `enlist`, into this list.
        unsafe { self.line().lock().remove(&self.node) }
    }

    fn accept(&self) -> Option<()> {
        Some(())
    }

    fn pass_on(&self) {} // what was accepted stays where it is
}
