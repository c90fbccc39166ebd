//! A channel as its handles share it.
//!
//! What is done under its lock is in `channel::state`; the waits on it are in
//! `channel::waits`, those of selects in `channel::promise`.

use super::buffer::OwnedBlock;
use super::error::{RecvTimeoutError, SendError, SendTimeoutError, TryRecvError};
use super::parcel::Parcel;
use super::seat::Seat;
use super::state::State;
use super::waits::{Receiving, Sending};
use crate::fiber::{Block, WaitReason};
use crate::primitive::{AtomicU8, AtomicUsize, Ordering};
use crate::sys::{Lock, LockGuard};
use crate::task::safepoint;
use crate::wait::look::look_again;
use crate::wait::node::{Place, Wakes};
use crate::wait::{Deadline, Operation, WaitOutcome, WaitSpec, Waiter};
use crate::wait::{perform_for, wait};
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
        self.lock().held()
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

    /// Puts the message at `from` into the buffer, if there is room and nobody is
    /// to be told of it; else hands over the lock. Most sends are this, without what
    /// others need.
    ///
    /// # Safety
    ///
    /// There is a message at `from`, which is the caller's; if this is `Ok`, it is not
    /// used after that.
    // Always inlined, as the next two: it is the hot path of a few callers. With
    // calls a message took 26 instead of 24 ns (`mpmc_4p4c`, one worker). By address,
    // and not of a parcel: so a small message stays in registers (a parcel made
    // 7.0 of 5.4 ns for a `try_send` and a `try_recv`), and a large one is copied once.
    #[inline(always)]
    pub(super) unsafe fn put_quietly(&self, from: *const T) -> Result<(), StateGuard<'_, T>> {
        let mut state = self.state.lock();
        // SAFETY: the caller's promise.
        match unsafe { state.put_quietly(from) } {
            Some(more_room) => {
                say(&self.ready, true, more_room);
                Ok(())
            }
            None => Err(self.guard(state)),
        }
    }

    /// Takes a message out of the buffer to `to`, if there is one and nobody is to be
    /// told of the room; else hands over the lock. Most receives are this.
    ///
    /// # Safety
    ///
    /// `to` is good for a write, and holds nothing.
    #[inline(always)]
    unsafe fn take_quietly(&self, to: *mut T) -> Result<(), StateGuard<'_, T>> {
        let mut state = self.state.lock();
        // SAFETY: the caller's promise.
        match unsafe { state.take_quietly(to) } {
            Some((more, room)) => {
                say(&self.ready, more, room);
                Ok(())
            }
            None => Err(self.guard(state)),
        }
    }

    /// Takes a message out of the buffer to `to`; false if there is none.
    ///
    /// # Safety
    ///
    /// As for [`take_quietly`](Self::take_quietly).
    #[inline(always)]
    pub(super) unsafe fn take_buffered(&self, to: *mut T) -> bool {
        // SAFETY: the caller's promise.
        match unsafe { self.take_quietly(to) } {
            Ok(()) => true,
            // SAFETY: the caller's promise.
            Err(state) => unsafe { take_and_tell(state, to) },
        }
    }

    /// Takes a message out of the buffer into `to`, which is empty; false if there
    /// is none.
    #[inline(always)]
    pub(super) fn take_into(&self, to: &Parcel<T>) -> bool {
        // SAFETY: the parcel is the caller's, and empty.
        let taken = unsafe { self.take_buffered(to.room()) };
        if taken {
            to.set_full();
        }
        taken
    }

    /// Sends the message of `from`, which is full, if that needs no waiting; else
    /// it is there afterwards.
    #[inline]
    pub(crate) fn try_send(&self, from: &Parcel<T>) -> Result<(), Refused> {
        self.send_or_tell(self.lock(), from)
    }

    /// Sends where somebody is to be told or a block is to be made, or says why
    /// that is not possible.
    #[inline(never)]
    pub(super) fn send_or_tell(
        &self,
        mut state: StateGuard<'_, T>,
        from: &Parcel<T>,
    ) -> Result<(), Refused> {
        if let Some((seat, wakeup)) = state.claim_receiver() {
            // SAFETY: claimed by us, and we hold the lock; the parcel is the
            // caller's, and full.
            unsafe { state.give(seat.as_ref(), from) };
            drop(state);
            wakeup.fire();
            return Ok(());
        }
        if state.closed {
            return Err(Refused::Disconnected);
        }
        if state.is_full() {
            return Err(Refused::Full);
        }
        if state.wants_block() {
            return self.send_with_block(state, from);
        }
        let mut wakes = Wakes::new();
        // SAFETY: the parcel is the caller's, and full.
        unsafe { state.append(from, &mut wakes) };
        drop(state);
        wakes.fire();
        Ok(())
    }

    /// Makes a block, without the lock, and sends. If another sender has used the
    /// block up meanwhile the next is made under the lock.
    #[cold]
    fn send_with_block(&self, state: StateGuard<'_, T>, from: &Parcel<T>) -> Result<(), Refused> {
        let slots = state.buffer.slots();
        drop(state);
        let block = OwnedBlock::new(slots);
        let mut wakes = Wakes::new();
        let mut state = self.lock();
        let surplus = state.buffer.lend_spare(block);
        // SAFETY: the parcel is the caller's, and full.
        let sent = unsafe { state.try_send(from, &mut wakes) };
        let closed = state.closed;
        drop(state);
        drop(surplus);
        wakes.fire();
        match (sent, closed) {
            (true, _) => Ok(()),
            (false, true) => Err(Refused::Disconnected),
            (false, false) => Err(Refused::Full),
        }
    }

    /// Receives into `to`, which is empty, where the buffer had nothing.
    #[inline]
    pub(super) fn try_recv_slow(&self, to: &Parcel<T>, at: At) -> Result<(), TryRecvError> {
        // SAFETY: the parcel outlives the operation, and is not touched meanwhile.
        match unsafe { Receiving::new(self, to, at) }.attempt() {
            Some(Ok(())) => Ok(()),
            Some(Err(Disconnected)) => Err(TryRecvError::Disconnected),
            None => Err(TryRecvError::Empty),
        }
    }

    /// Sends the message of `from`, which is full, waiting for room (or a
    /// receiver). If it is not sent it is there afterwards. `fiber` runs here, and was
    /// asked whether it `may_send`: it may not if it was cancelled.
    #[inline]
    pub(super) fn send(
        &self,
        fiber: Option<NonNull<Block>>,
        may_send: bool,
        from: &Parcel<T>,
        deadline: Option<Deadline>,
        at: At,
    ) -> Result<(), Unsent> {
        if !may_send {
            return Err(Unsent::Cancelled);
        }
        if !self.has_buffer() && !self.may_be_ready(false) {
            return self.send_slow(fiber, from, deadline, at); // to stand in line
        }
        match self.try_send(from) {
            Ok(()) => {
                // A loop of sends that need not wait lets others run, too.
                safepoint();
                Ok(())
            }
            Err(Refused::Disconnected) => Err(Unsent::Disconnected),
            Err(Refused::Full) => self.send_slow(fiber, from, deadline, at),
        }
    }

    #[inline]
    pub(super) fn send_slow(
        &self,
        fiber: Option<NonNull<Block>>,
        from: &Parcel<T>,
        deadline: Option<Deadline>,
        at: At,
    ) -> Result<(), Unsent> {
        if self.may_look(deadline)
            && look_again(fiber, || self.may_be_ready(false))
            && self.try_send(from).is_ok()
        {
            safepoint();
            return Ok(());
        }
        // SAFETY: the parcel outlives the operation, and is not touched meanwhile.
        let operation = unsafe { Sending::new(self, from) };
        let spec = WaitSpec::new(WaitReason::Send, at)
            .deadline(deadline)
            .cancellable();
        match perform_for(fiber, &operation, &spec) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Disconnected)) => Err(Unsent::Disconnected),
            Err(WaitOutcome::Cancelled) => Err(Unsent::Cancelled),
            Err(_) => Err(Unsent::Timeout),
        }
    }

    /// Whether to look again before a wait. Without a buffer the other side looks
    /// for us, so we stand in line; and a deadline is not looked at meanwhile.
    #[inline]
    pub(super) fn may_look(&self, deadline: Option<Deadline>) -> bool {
        self.has_buffer() && deadline.is_none()
    }

    /// Receives into `to`, which is empty, waiting for a message.
    #[inline]
    pub(super) fn recv_slow(
        &self,
        fiber: Option<NonNull<Block>>,
        to: &Parcel<T>,
        deadline: Option<Deadline>,
        at: At,
    ) -> Result<(), RecvTimeoutError> {
        let spec = WaitSpec::new(WaitReason::Recv, at)
            .deadline(deadline)
            .cancellable();
        // SAFETY: the parcel outlives the operation, and is not touched meanwhile.
        let operation = unsafe { Receiving::new(self, to, at) };
        match perform_for(fiber, &operation, &spec) {
            Ok(Ok(())) => Ok(()),
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

/// Takes a message out of the buffer where somebody may have to be told, or at the
/// end of a block; false if there is none.
///
/// # Safety
///
/// As for [`Chan::take_quietly`].
#[inline(never)]
unsafe fn take_and_tell<T>(mut state: StateGuard<'_, T>, to: *mut T) -> bool {
    let mut wakes = Wakes::new();
    // SAFETY: the caller's promise.
    let (taken, old) = unsafe { state.take_buffered(to, &mut wakes) };
    drop(state);
    drop(old);
    wakes.fire();
    taken
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

/// Why a message was not sent at once; it is still where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Full,
    Disconnected,
}

/// Why a message was not sent after all; it is still where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsent {
    Timeout,
    Disconnected,
    Cancelled,
}

impl Unsent {
    /// The error that hands the message back which is still in `from`.
    #[cold]
    #[inline(never)]
    pub(super) fn hand_back<T>(self, from: &Parcel<T>) -> SendTimeoutError<T> {
        match self {
            Self::Timeout => SendTimeoutError::Timeout(from.take()),
            Self::Disconnected => SendTimeoutError::Disconnected(from.take()),
            Self::Cancelled => SendTimeoutError::Cancelled(from.take()),
        }
    }

    /// The same for a send that had no limit of time.
    #[cold]
    #[inline(never)]
    pub(super) fn hand_back_untimed<T>(self, from: &Parcel<T>) -> SendError<T> {
        match self {
            Self::Disconnected => SendError::Disconnected(from.take()),
            Self::Cancelled | Self::Timeout => SendError::Cancelled(from.take()),
        }
    }
}

/// Nobody is, or will be, at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disconnected;
