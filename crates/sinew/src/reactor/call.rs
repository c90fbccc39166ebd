//! A system call that may have to wait, for fibers of both drivers and for threads.
//!
//! A [`Call`] says how it is made without blocking, and how the kernel carries it
//! out by itself, if it can. Who waits how:
//!
//! | who                      | how                                                       |
//! |--------------------------|-----------------------------------------------------------|
//! | a fiber, epoll           | calls if the direction is ready; waits for that if not    |
//! | a fiber, io_uring        | the same, but what would block is handed to the ring      |
//! | … if there is no entry   | as with epoll: the ring watches the worker's registry     |
//! | a thread                 | calls; waits by `poll(2)`                                 |
//!
//! Each is a cancellation point, on entry and while it waits. What was done is
//! returned, also by one that was cancelled or timed out meanwhile.
//!
//! A fiber whose calls never have to wait would keep its worker to itself, so every
//! [`BURST`]th of a worker yields.

use super::completion::{Answer, Completion};
use super::driver::{DriverKind, Reactor};
use super::readiness::{Direction, Look, Readiness};
use super::source::{Source, closed};
use crate::error::Cancelled;
use crate::fiber::{Block, Intent, WaitReason};
use crate::sched::{current, switch};
use crate::sys::Lock;
use crate::sys::poll::PollFor;
use crate::sys::process::{self, AbortOnUnwind};
use crate::sys::uring::more_to_read;
use crate::wait::node::{Node, WaitList};
use crate::wait::{Deadline, WaitOutcome, WaitSpec, perform_for, point};
use io_uring::squeue;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::Location;
use std::ptr::NonNull;

/// So many calls in a row may find what they want before others have their turn.
pub(crate) const BURST: u32 = 32;

/// A system call that may have to wait.
pub(crate) trait Call {
    type Output;

    /// Makes it; `WouldBlock` if it would have to wait. Must not block.
    fn attempt(&mut self, fd: BorrowedFd<'_>) -> io::Result<Self::Output>;

    /// Whether after this output the next call would have to wait for sure.
    fn has_drained(&self, _output: &Self::Output) -> bool {
        false
    }

    /// How the kernel does it by itself; none if only [`attempt`](Self::attempt)
    /// can. What it points to is in the call, or borrowed by it.
    fn entry(&mut self, _fd: BorrowedFd<'_>) -> Option<squeue::Entry> {
        None
    }

    /// What the kernel's answer, which is no error, means.
    fn complete(&mut self, _result: i32) -> Self::Output {
        unreachable!("a call without an entry")
    }

    /// Whether a fiber of a ring may make the call itself before it hands it over.
    fn tries_first(&self) -> bool {
        true
    }

    /// What a thread waits for.
    fn polled(&self, fd: BorrowedFd<'_>, direction: Direction) -> PollFor {
        polled(fd, direction)
    }

    /// The entry is about to be made: is the direction known not to be ready?
    fn expect_to_wait(&mut self, _expect: bool) {}
}

/// How to wait.
#[derive(Clone, Copy)]
pub(crate) struct How {
    pub(crate) direction: Direction,
    pub(crate) reason: WaitReason,
    pub(crate) at: &'static Location<'static>,
    pub(crate) deadline: Option<Deadline>,
    /// What a wait says whose time is over.
    pub(crate) timed_out: io::ErrorKind,
    /// Whether it waits at all; if not it says `WouldBlock`.
    pub(crate) waits: bool,
}

impl How {
    /// As the source's own timeouts have it; those are `WouldBlock`, as std's are.
    #[inline]
    pub(crate) fn of(
        source: &Source,
        direction: Direction,
        at: &'static Location<'static>,
    ) -> Self {
        let reason = match direction {
            Direction::Read => WaitReason::Read,
            Direction::Write => WaitReason::Write,
        };
        Self {
            direction,
            reason,
            at,
            deadline: source.timeout(direction).and_then(Deadline::after),
            timed_out: io::ErrorKind::WouldBlock,
            waits: !source.never_waits(),
        }
    }

    /// The same for the next call: its time begins now.
    pub(crate) fn renewed(mut self, source: &Source) -> Self {
        self.deadline = source.timeout(self.direction).and_then(Deadline::after);
        self
    }

    pub(crate) fn because(mut self, reason: WaitReason) -> Self {
        self.reason = reason;
        self
    }

    pub(super) fn spec(&self, fd: BorrowedFd<'_>) -> WaitSpec<'static> {
        WaitSpec::new(self.reason, self.at)
            .deadline(self.deadline)
            .cancellable()
            .watching(polled(fd, self.direction))
    }

    pub(crate) fn error(&self, outcome: WaitOutcome) -> io::Error {
        match outcome {
            WaitOutcome::Cancelled => Cancelled.into(),
            // As the kernel says it to who has set `SO_RCVTIMEO`, as std does.
            WaitOutcome::TimedOut if self.timed_out == io::ErrorKind::WouldBlock => {
                io::Error::from_raw_os_error(libc::EAGAIN)
            }
            WaitOutcome::TimedOut => self.timed_out.into(),
            WaitOutcome::Woken => closed(),
        }
    }
}

fn polled(fd: BorrowedFd<'_>, direction: Direction) -> PollFor {
    match direction {
        Direction::Read => PollFor::reading(fd),
        Direction::Write => PollFor::writing(fd),
    }
}

/// Makes `call` on `source`, waiting for as long as it takes.
///
/// # Errors
///
/// The call's own; `NotConnected` if the source was closed, `how.timed_out`, a
/// cancellation, or `Interrupted` if it is to accept and connections were left.
#[inline]
pub(crate) fn make<C: Call>(source: &Source, how: &How, call: &mut C) -> io::Result<C::Output> {
    let fiber = switch::running();
    point::check_for(fiber)?;
    let done = match fiber {
        _ if !how.waits => make_at_once(source, call, fiber),
        Some(block) => make_on_fiber(source, how, call, block),
        None => make_on_thread(source, how, call),
    };
    match done {
        // Closed meanwhile, it may fail in many ways, such as a broken pipe.
        Err(error) if source.is_closed() && !Cancelled::is_in(&error) => {
            if let Some(block) = fiber {
                done_at_once(block); // a loop that ignores the error lets others run, too
            }
            Err(closed())
        }
        done => done,
    }
}

#[cold]
fn make_at_once<C: Call>(
    source: &Source,
    call: &mut C,
    fiber: Option<NonNull<Block>>,
) -> io::Result<C::Output> {
    if source.is_closed() {
        return Err(closed());
    }
    let done = retry(|| call.attempt(source.as_fd()));
    if let Some(block) = fiber {
        done_at_once(block);
    }
    done
}

fn make_on_fiber<C: Call>(
    source: &Source,
    how: &How,
    call: &mut C,
    block: NonNull<Block>,
) -> io::Result<C::Output> {
    let direction = how.direction;
    // Where waiting is forbidden a call that needs no waiting is all there is.
    let mut by_ring =
        Reactor::with_current(Reactor::kind) == Some(DriverKind::Uring) && switch::may_wait();
    loop {
        let look = source.readiness().look();
        if look.is_closed() {
            return Err(closed());
        }
        let tries = if by_ring {
            call.tries_first() && seems_worth_it(look, direction)
        } else {
            // Where waiting is forbidden nobody may have told us yet.
            look.is_ready(direction) || !switch::may_wait()
        };
        if tries {
            match retry(|| call.attempt(source.as_fd())) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    source.readiness().would_block(look, direction);
                }
                Ok(output) => return Ok(finish(source, direction, look, call, output, block)),
                failed => {
                    done_at_once(block);
                    return failed;
                }
            }
        }
        if by_ring {
            call.expect_to_wait(!look.is_ready(direction) || tries);
            let entry = call.entry(source.as_fd());
            match entry {
                Some(entry) => match hand_over(Some(source), how, entry, block) {
                    Ok(answer) => match check(answer.result) {
                        // Somebody has made it non-blocking: the kernel won't wait. Or
                        // it was interrupted: a connect is under way then.
                        Err(error)
                            if matches!(
                                error.kind(),
                                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                            ) =>
                        {
                            by_ring = false;
                            continue;
                        }
                        result => {
                            let output = call.complete(result?);
                            if direction == Direction::Write || more_to_read(answer.flags) {
                                source.readiness().seems_ready(direction);
                            } else {
                                source.readiness().drained(look, direction);
                            }
                            return Ok(output);
                        }
                    },
                    Err(error) => return Err(error),
                },
                None => {
                    by_ring = false;
                    continue; // it may be ready
                }
            }
        }
        if !by_ring {
            wait_until_ready(source, how, Some(block))?;
        }
    }
}

/// Whether a fiber of a ring should make a call itself: one that has to wait goes to the
/// ring; one that need not is done sooner without it, and its fiber stays where it is.
///
/// With every answer of an echo handed to the ring, unless nobody else was ready, 100
/// connections took as much CPU time for each message, within noise, and 9000 took 10.1
/// instead of 8.5 µs: each fiber was run, cold, twice. The first read of a connection
/// mostly finds something as well.
#[inline]
fn seems_worth_it(look: Look, direction: Direction) -> bool {
    look.has_more(direction) || look.is_fresh(direction)
}

/// What a call that was made brings about besides its output.
fn finish<C: Call>(
    source: &Source,
    direction: Direction,
    look: Look,
    call: &C,
    output: C::Output,
    block: NonNull<Block>,
) -> C::Output {
    if call.has_drained(&output) {
        source.readiness().drained(look, direction);
    }
    done_at_once(block);
    output
}

/// Counts a call of the running fiber `block` that did not have to wait; every
/// [`BURST`]th of a worker yields.
#[inline]
pub(crate) fn done_at_once(block: NonNull<Block>) {
    // SAFETY: a fiber runs here, so this thread has a live core.
    let enough = unsafe { &*current::core() }.counts_to(BURST);
    if enough && switch::may_wait() && !process::is_forked() {
        // SAFETY: it runs here, may wait, and we hold nothing of the runtime's.
        unsafe { switch::leave(block, Intent::Yield) };
    }
}

fn make_on_thread<C: Call>(source: &Source, how: &How, call: &mut C) -> io::Result<C::Output> {
    loop {
        let look = source.readiness().look();
        if look.is_closed() {
            return Err(closed());
        }
        match retry(|| call.attempt(source.as_fd())) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                source.readiness().would_block(look, how.direction);
            }
            done => return done,
        }
        let fd = source.as_fd();
        let wait = source.readiness().ready(how.direction);
        let spec = how.spec(fd).watching(call.polled(fd, how.direction));
        perform_for(None, &wait, &spec).map_err(|outcome| how.error(outcome))?;
    }
}

/// Waits until events of the direction were heard of.
fn wait_until_ready(source: &Source, how: &How, fiber: Option<NonNull<Block>>) -> io::Result<()> {
    source.watch()?;
    let wait = source.readiness().ready(how.direction);
    perform_for(fiber, &wait, &how.spec(source.as_fd())).map_err(|outcome| how.error(outcome))
}

/// Has the kernel carry out `entry`, on the ring of this fiber's worker, and waits
/// for its answer.
///
/// # Errors
///
/// Why it was given up before the kernel did anything, or that there is no ring.
fn hand_over(
    source: Option<&Source>,
    how: &How,
    entry: squeue::Entry,
    block: NonNull<Block>,
) -> io::Result<Answer> {
    // Panics where waiting is forbidden: before the kernel knows of anything.
    switch::checked(Some(block));
    // SAFETY: the running fiber is alive.
    let fiber = unsafe { block.as_ref() };
    let own_line = Lock::new(WaitList::<Node>::new());
    let line = source.map_or(&own_line, |source| source.readiness().line(how.direction));
    let closable = source.map(Source::readiness);
    let accepts = how.reason == WaitReason::Accept;
    let completion = Completion::new(line, closable, accepts, block);
    let entry = entry.user_data(completion.user_data());
    let unwinding = AbortOnUnwind("an operation was left while the kernel carries it out");
    let pinned_outside = fiber.pinned();
    fiber.set_pinned(true);
    // SAFETY: what the entry points to is the caller's, who waits for us, and the
    // completion; we return after its answer (`completion`, invariant 1).
    let pushed = with_ring(|ring| unsafe { ring.push(entry) });
    let answer = pushed.and_then(|()| {
        let fd = source.map(|source| source.as_fd());
        let spec = match fd {
            Some(fd) => how.spec(fd),
            None => WaitSpec::new(how.reason, how.at)
                .deadline(how.deadline)
                .cancellable(),
        };
        let gave_up = loop {
            match perform_for(Some(block), &completion, &spec) {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => match closable.map(Readiness::look) {
                    Some(look) if look.is_closed() => break how.error(WaitOutcome::Woken),
                    Some(look) if accepts && look.has_left() => {
                        break io::ErrorKind::Interrupted.into();
                    }
                    _ => {} // an event, meant for who waits for readiness
                },
                Err(outcome) => break how.error(outcome),
            }
        };
        let answer = call_back(&completion, how, block);
        if answer.result == -libc::ECANCELED || answer.result == -libc::EINTR {
            return Err(gave_up);
        }
        Ok(answer)
    });
    fiber.set_pinned(pinned_outside);
    std::mem::forget(unwinding);
    answer
}

/// Asks the kernel to give the operation up, and waits for its answer.
#[cold]
fn call_back(completion: &Completion<'_>, how: &How, block: NonNull<Block>) -> Answer {
    let patient = WaitSpec::new(how.reason, how.at);
    loop {
        if let Some(answer) = completion.answer() {
            return answer;
        }
        if completion.call_back() {
            let data = completion.user_data();
            // The ring is there: it has the operation.
            let _there = with_ring(|ring| ring.cancel(data));
        }
        if let Ok(Some(answer)) = perform_for(Some(block), completion, &patient) {
            return answer;
        }
    }
}

/// Calls `with` on the ring of this fiber's worker.
pub(super) fn with_ring<R>(with: impl FnOnce(&mut super::ring::Ring) -> R) -> io::Result<R> {
    // SAFETY: on the worker's thread; the callers' closures only push and cancel.
    let done = Reactor::with_current(|reactor| unsafe { reactor.with_ring(with) });
    done.unwrap_or_else(|| Err(io::ErrorKind::Unsupported.into()))
}

/// Has the ring of this fiber's worker carry out a call on a file, for which
/// nobody waits but this fiber; none if there is no ring here.
pub(crate) fn by_ring(how: &How, entry: impl FnOnce() -> squeue::Entry) -> Option<io::Result<i32>> {
    let block = switch::running()?;
    if Reactor::with_current(Reactor::kind) != Some(DriverKind::Uring) || !switch::may_wait() {
        return None;
    }
    if let Err(cancelled) = point::check_for(Some(block)) {
        return Some(Err(cancelled.into()));
    }
    let answer = hand_over(None, how, entry(), block);
    Some(answer.and_then(|answer| check(answer.result)))
}

/// The kernel's answer as a result.
fn check(result: i32) -> io::Result<i32> {
    if result < 0 {
        Err(io::Error::from_raw_os_error(-result))
    } else {
        Ok(result)
    }
}

/// Makes a call again that a signal interrupted.
fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}
