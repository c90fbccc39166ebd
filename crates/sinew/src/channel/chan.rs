//! A channel as its handles share it.
//!
//! What is done under its lock is in `channel::state`; the waits on it are in
//! `channel::waits`, those of selects in `channel::promise`.

use super::error::{RecvTimeoutError, SendTimeoutError, TryRecvError, TrySendError};
use super::seat::Seat;
use super::state::State;
use super::waits::{Receiving, Sending};
use crate::fiber::{Block, WaitReason};
use crate::primitive::{AtomicU8, AtomicUsize, Ordering};
use crate::sched::switch;
use crate::sys::{Lock, LockGuard};
use crate::task::safepoint;
use crate::wait::look::look_again;
use crate::wait::node::{Place, Wakes};
use crate::wait::{Deadline, Operation, WaitOutcome, WaitSpec, Waiter};
use crate::wait::{perform_for, point, wait};
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::ptr::NonNull;

/// Where a wait stands in the program.
pub(crate) type At = &'static Location<'static>;

/// What all handles of one channel share.
///
/// In order: what every send and receive touches is on one cache line.
#[repr(C, align(64))]
pub(crate) struct Chan<T> {
    /// Whether a receive, or a send, would not wait; written by who has had the
    /// lock, before it gives it back. So who comes later in time, by any edge,
    /// sees what it left, and need not take the lock to find nothing.
    ready: AtomicU8,
    state: Lock<State<T>>,
    /// Handles; whoever drops the last of a side disconnects.
    senders: AtomicUsize,
    receivers: AtomicUsize,
    /// 0: rendezvous; `usize::MAX`: unbounded.
    capacity: usize,
}

// SAFETY: messages move from thread to thread, so they must be `Send`; all else
// is under the lock.
unsafe impl<T: Send> Send for Chan<T> {}
// SAFETY: as above; no two threads ever see the same message.
unsafe impl<T: Send> Sync for Chan<T> {}

impl<T> Chan<T> {
    #[inline]
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            state: Lock::new(State::new(capacity)),
            ready: AtomicU8::new(if capacity > 0 { CAN_SEND } else { 0 }),
            senders: AtomicUsize::new(1),
            receivers: AtomicUsize::new(1),
            capacity,
        }
    }

    #[inline]
    pub(super) fn lock(&self) -> StateGuard<'_, T> {
        self.guard(self.state.lock())
    }

    #[inline]
    fn guard<'a>(&'a self, state: LockGuard<'a, State<T>>) -> StateGuard<'a, T> {
        StateGuard {
            state,
            ready: &self.ready,
        }
    }

    /// Whether a receive, or a send, may find something without waiting.
    #[inline]
    pub(super) fn may_be_ready(&self, receiving: bool) -> bool {
        let bit = if receiving { CAN_RECV } else { CAN_SEND };
        // Relaxed: see the field.
        self.ready.load(Ordering::Relaxed) & bit != 0
    }

    /// Whether messages can be in it: then nobody looks for a partner in line.
    #[inline]
    pub(super) fn has_buffer(&self) -> bool {
        self.capacity > 0
    }

    pub(crate) fn capacity(&self) -> Option<usize> {
        (self.capacity != usize::MAX).then_some(self.capacity)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.lock().is_full()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Disconnects: nothing can be sent any more; false if it was so already.
    pub(crate) fn close(&self) -> bool {
        self.change(State::close)
    }

    /// Changes the state, and wakes whom that concerns.
    #[inline]
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut State<T>, &mut Wakes) -> R) -> R {
        let mut wakes = Wakes::new();
        let result = change(&mut self.lock(), &mut wakes);
        wakes.fire();
        result
    }

    pub(crate) fn add_sender(&self) {
        count_up(&self.senders);
    }

    pub(crate) fn drop_sender(&self) {
        if count_down(&self.senders) {
            self.close();
        }
    }

    pub(crate) fn add_receiver(&self) {
        count_up(&self.receivers);
    }

    pub(crate) fn drop_receiver(&self) {
        if count_down(&self.receivers) {
            let messages = self.change(|state, wakes| {
                state.close(wakes);
                state.discard()
            });
            drop(messages); // user code: without the lock
        }
    }

    /// Puts a message into the buffer, if there is room and nobody is to be told
    /// of it; else hands it back, and the lock. Most sends are this, without what
    /// others need.
    // Always inlined, as the next two: it is the hot path of a few callers. With
    // calls a message took 26 instead of 24 ns (`mpmc_4p4c`, one worker).
    #[inline(always)]
    fn put_quietly(&self, message: T) -> Result<(), (T, StateGuard<'_, T>)> {
        let mut state = self.state.lock();
        match state.put_quietly(message) {
            Ok(more_room) => {
                say(&self.ready, true, more_room);
                Ok(())
            }
            Err(message) => Err((message, self.guard(state))),
        }
    }

    /// Takes a message out of the buffer, if there is one and nobody is to be
    /// told of the room; else hands over the lock. Most receives are this.
    #[inline(always)]
    fn take_quietly(&self) -> Result<T, StateGuard<'_, T>> {
        let mut state = self.state.lock();
        match state.take_quietly() {
            Some((message, more, room)) => {
                say(&self.ready, more, room);
                Ok(message)
            }
            None => Err(self.guard(state)),
        }
    }

    /// Takes a message out of the buffer, if there is one.
    #[inline(always)]
    pub(super) fn take_buffered(&self) -> Option<T> {
        match self.take_quietly() {
            Ok(message) => Some(message),
            Err(state) => take_and_tell(state),
        }
    }

    #[inline]
    pub(crate) fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        match self.put_quietly(message) {
            Ok(()) => Ok(()),
            Err((message, state)) => Self::send_or_tell(state, message),
        }
    }

    /// Sends where somebody is to be told, or says why that is not possible.
    #[inline(never)]
    fn send_or_tell(mut state: StateGuard<'_, T>, message: T) -> Result<(), TrySendError<T>> {
        if let Some((seat, wakeup)) = state.claim_receiver() {
            // SAFETY: claimed by us, and we hold the lock.
            state.give(unsafe { seat.as_ref() }, message);
            drop(state);
            wakeup.fire();
            return Ok(());
        }
        if state.closed {
            return Err(TrySendError::Disconnected(message));
        }
        if state.is_full() {
            return Err(TrySendError::Full(message));
        }
        let mut wakes = Wakes::new();
        state.append(message, &mut wakes);
        drop(state);
        wakes.fire();
        Ok(())
    }

    #[inline]
    pub(crate) fn try_recv(&self, at: At) -> Result<T, TryRecvError> {
        if !self.may_be_ready(true) {
            return Err(TryRecvError::Empty);
        }
        if let Some(message) = self.take_buffered() {
            return Ok(message);
        }
        match Receiving::new(self, at).attempt() {
            Some(Ok(message)) => Ok(message),
            Some(Err(Disconnected)) => Err(TryRecvError::Disconnected),
            None => Err(TryRecvError::Empty),
        }
    }

    /// Waits for room (or a receiver).
    #[inline]
    pub(crate) fn send(
        &self,
        message: T,
        deadline: Option<Deadline>,
        at: At,
    ) -> Result<(), SendTimeoutError<T>> {
        let fiber = switch::running();
        if point::check_for(fiber).is_err() {
            return Err(SendTimeoutError::Cancelled(message));
        }
        if !self.has_buffer() && !self.may_be_ready(false) {
            return self.send_slow(fiber, message, deadline, at); // to stand in line
        }
        // Most sends need not wait: so look first, without what a wait needs.
        match self.try_send(message) {
            Ok(()) => {
                // A loop of sends that need not wait lets others run, too.
                safepoint();
                Ok(())
            }
            Err(TrySendError::Disconnected(message)) => {
                Err(SendTimeoutError::Disconnected(message))
            }
            Err(TrySendError::Full(message)) => self.send_slow(fiber, message, deadline, at),
        }
    }

    pub(super) fn send_slow(
        &self,
        fiber: Option<NonNull<Block>>,
        message: T,
        deadline: Option<Deadline>,
        at: At,
    ) -> Result<(), SendTimeoutError<T>> {
        let mut message = message;
        if self.may_look(deadline) && look_again(fiber, || self.may_be_ready(false)) {
            match self.put_quietly(message) {
                Ok(()) => {
                    safepoint();
                    return Ok(());
                }
                Err((back, _)) => message = back,
            }
        }
        let operation = Sending::new(self, message);
        let spec = WaitSpec::new(WaitReason::Send, at)
            .deadline(deadline)
            .cancellable();
        match perform_for(fiber, &operation, &spec) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(message)) => Err(SendTimeoutError::Disconnected(message)),
            Err(WaitOutcome::Cancelled) => Err(SendTimeoutError::Cancelled(operation.unsent())),
            Err(_) => Err(SendTimeoutError::Timeout(operation.unsent())),
        }
    }

    /// Whether to look again before a wait. Without a buffer the other side looks
    /// for us, so we stand in line; and a deadline is not looked at meanwhile.
    #[inline]
    fn may_look(&self, deadline: Option<Deadline>) -> bool {
        self.has_buffer() && deadline.is_none()
    }

    /// Waits for a message.
    #[inline]
    pub(crate) fn recv(&self, deadline: Option<Deadline>, at: At) -> Result<T, RecvTimeoutError> {
        let fiber = switch::running();
        if point::check_for(fiber).is_err() {
            return Err(RecvTimeoutError::Cancelled);
        }
        let mut ready = self.may_be_ready(true);
        if !ready && self.may_look(deadline) {
            ready = look_again(fiber, || self.may_be_ready(true));
        }
        if ready && self.has_buffer() {
            if let Some(message) = self.take_buffered() {
                // A loop of receives that need not wait lets others run, too.
                safepoint();
                return Ok(message);
            }
        }
        self.recv_slow(fiber, deadline, at)
    }

    fn recv_slow(
        &self,
        fiber: Option<NonNull<Block>>,
        deadline: Option<Deadline>,
        at: At,
    ) -> Result<T, RecvTimeoutError> {
        let spec = WaitSpec::new(WaitReason::Recv, at)
            .deadline(deadline)
            .cancellable();
        match perform_for(fiber, &Receiving::new(self, at), &spec) {
            Ok(Ok(message)) => Ok(message),
            Ok(Err(Disconnected)) => Err(RecvTimeoutError::Disconnected),
            Err(WaitOutcome::Cancelled) => Err(RecvTimeoutError::Cancelled),
            Err(_) => Err(RecvTimeoutError::Timeout),
        }
    }

    /// Waits, with a seat that was set apart under the lock that `state` holds,
    /// for the select that it was matched with.
    ///
    /// It does not give up: that select takes no longer than it needs to make
    /// its message.
    #[cold]
    pub(super) fn await_match(
        &self,
        mut state: StateGuard<'_, T>,
        wakes: Wakes,
        seat: &Seat<T>,
        number: u64,
        at: At,
    ) {
        let waiter = Waiter::for_current();
        seat.node().belongs_to(&waiter, 0);
        // SAFETY: both stay in this call until the wait has ended, by a claim.
        unsafe { state.reserve(seat, number) };
        drop(state);
        wakes.fire();
        wait(&waiter, &WaitSpec::new(WaitReason::Recv, at));
    }
}

const CAN_RECV: u8 = 1;
const CAN_SEND: u8 = 2;

/// The lock; says what could be done when it is given back.
pub(super) struct StateGuard<'a, T> {
    state: LockGuard<'a, State<T>>,
    ready: &'a AtomicU8,
}

impl<T> Deref for StateGuard<'_, T> {
    type Target = State<T>;

    #[inline]
    fn deref(&self) -> &State<T> {
        &self.state
    }
}

impl<T> DerefMut for StateGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut State<T> {
        &mut self.state
    }
}

impl<T> Drop for StateGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.state.settle();
        let (recv, send) = (self.state.is_ready(true), self.state.is_ready(false));
        say(self.ready, recv, send);
    }
}

/// Takes a message out of the buffer where somebody may have to be told.
#[inline(never)]
fn take_and_tell<T>(mut state: StateGuard<'_, T>) -> Option<T> {
    if state.len() == 0 {
        return None;
    }
    let message = state.buffer.pop_front();
    let mut wakes = Wakes::new();
    state.admit(&mut wakes);
    drop(state);
    wakes.fire();
    message
}

/// Leaves word of what would not wait; the caller has the lock.
#[inline]
fn say(ready: &AtomicU8, recv: bool, send: bool) {
    let recv = if recv { CAN_RECV } else { 0 };
    let send = if send { CAN_SEND } else { 0 };
    // Relaxed: ordered by the lock, which is given back after this.
    ready.store(recv | send, Ordering::Relaxed);
}

/// More handles than can exist: they would have to be leaked, one by one.
const MAX_HANDLES: usize = usize::MAX / 2;

fn count_up(count: &AtomicUsize) {
    // Relaxed: a new handle is made from an existing one.
    if count.fetch_add(1, Ordering::Relaxed) > MAX_HANDLES {
        std::process::abort();
    }
}

/// True for the last.
fn count_down(count: &AtomicUsize) -> bool {
    // AcqRel: what other handles did comes before the end.
    count.fetch_sub(1, Ordering::AcqRel) == 1
}

/// Nobody is, or will be, at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disconnected;
