//! A channel as its handles share it, and the waits on it.
//!
//! Each wait is an [`Operation`] of `wait`; what it does under the channel's lock
//! is in `channel::state`.

use super::error::{RecvTimeoutError, SendTimeoutError, TryRecvError, TrySendError};
use super::seat::{Fate, Seat};
use super::state::{Found, Grant, State};
use crate::fiber::WaitReason;
use crate::primitive::{AtomicUsize, Ordering};
use crate::sched::switch;
use crate::sys::Lock;
use crate::wait::node::{Node, Place, Wakes};
use crate::wait::{Deadline, Enlisted, Operation, WaitOutcome, WaitSpec, Waiter};
use crate::wait::{perform, point, wait};
use std::cell::UnsafeCell;
use std::panic::Location;

/// Where a wait stands in the program.
pub(crate) type At = &'static Location<'static>;

/// What all handles of one channel share.
pub(crate) struct Chan<T> {
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
            senders: AtomicUsize::new(1),
            receivers: AtomicUsize::new(1),
            capacity,
        }
    }

    pub(crate) fn capacity(&self) -> Option<usize> {
        (self.capacity != usize::MAX).then_some(self.capacity)
    }

    pub(crate) fn len(&self) -> usize {
        self.state.lock().len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.state.lock().is_full()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Disconnects: nothing can be sent any more; false if it was so already.
    pub(crate) fn close(&self) -> bool {
        self.change(State::close)
    }

    /// Changes the state, and wakes whom that concerns.
    #[inline]
    fn change<R>(&self, change: impl FnOnce(&mut State<T>, &mut Wakes) -> R) -> R {
        let mut wakes = Wakes::new();
        let result = change(&mut self.state.lock(), &mut wakes);
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

    #[inline]
    pub(crate) fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        self.change(|state, wakes| {
            let closed = state.closed;
            state.try_send(message, wakes).map_err(|message| {
                if closed {
                    TrySendError::Disconnected(message)
                } else {
                    TrySendError::Full(message)
                }
            })
        })
    }

    pub(crate) fn try_recv(&self, at: At) -> Result<T, TryRecvError> {
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
        if point::check().is_err() {
            return Err(SendTimeoutError::Cancelled(message));
        }
        // Most sends need not wait: so look first, without what a wait needs.
        match self.try_send(message) {
            Ok(()) => Ok(()),
            Err(TrySendError::Disconnected(message)) => {
                Err(SendTimeoutError::Disconnected(message))
            }
            Err(TrySendError::Full(message)) => self.send_slow(message, deadline, at),
        }
    }

    fn send_slow(
        &self,
        message: T,
        deadline: Option<Deadline>,
        at: At,
    ) -> Result<(), SendTimeoutError<T>> {
        let operation = Sending::new(self, message);
        let spec = WaitSpec::new(WaitReason::Send, at)
            .deadline(deadline)
            .cancellable();
        match perform(&operation, &spec) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(message)) => Err(SendTimeoutError::Disconnected(message)),
            Err(WaitOutcome::Cancelled) => Err(SendTimeoutError::Cancelled(operation.unsent())),
            Err(_) => Err(SendTimeoutError::Timeout(operation.unsent())),
        }
    }

    /// Waits for a message.
    #[inline]
    pub(crate) fn recv(&self, deadline: Option<Deadline>, at: At) -> Result<T, RecvTimeoutError> {
        let spec = WaitSpec::new(WaitReason::Recv, at)
            .deadline(deadline)
            .cancellable();
        match perform(&Receiving::new(self, at), &spec) {
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
    fn await_match(
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

type StateGuard<'a, T> = crate::sys::LockGuard<'a, State<T>>;

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

/// Whether the caller could wait for a moment.
fn can_wait() -> bool {
    switch::running().is_none() || switch::may_leave()
}

/// Nobody is, or will be, at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disconnected;

/// One receive.
#[repr(C)]
pub(crate) struct Receiving<'a, T> {
    seat: Seat<T>,
    /// Touched by who claims the seat, under the lock or before it notifies us;
    /// by us when the seat is in no line.
    slot: UnsafeCell<Option<T>>,
    chan: &'a Chan<T>,
    at: At,
}

// SAFETY: what it shares with other threads is shared as `wait::node` has it;
// the message itself must be `Send`.
unsafe impl<T: Send> Send for Receiving<'_, T> {}

impl<'a, T> Receiving<'a, T> {
    #[inline]
    pub(crate) fn new(chan: &'a Chan<T>, at: At) -> Self {
        Self {
            seat: Seat::new(),
            slot: UnsafeCell::new(None),
            chan,
            at,
        }
    }

    fn take_slot(&self) -> Option<T> {
        // SAFETY: the seat is in no line and we were notified: the slot is ours.
        unsafe { (*self.slot.get()).take() }
    }

    /// What became of a wait that has ended; none to stand in line again.
    fn outcome(&self) -> Option<Result<T, Disconnected>> {
        match self.seat.fate() {
            Fate::Passed => Some(Ok(self.take_slot().expect("it was put there"))),
            Fate::Closed => Some(Err(Disconnected)),
            _ => None,
        }
    }

    /// Receives, or stands in line for `waiter`; `None` for who will not wait.
    #[inline]
    fn receive(&self, me: Option<(&Waiter, u32)>) -> Enlisted<Result<T, Disconnected>> {
        self.seat.set_slot(self.slot.get());
        let waiter = me.map(|(waiter, _)| waiter);
        let select = waiter.filter(|waiter| !waiter.is_single());
        let is_task = waiter.is_some_and(Waiter::is_task);
        let matching = if waiter.is_none() { can_wait() } else { true };
        loop {
            let mut wakes = Wakes::new();
            let mut state = self.chan.state.lock();
            if select.is_some() && !state.can_recv(select) {
                // As below; the waiter must not be taken.
            } else {
                if let Some(select) = select {
                    if !select.take_oneself(me.map_or(0, |(_, place)| place)) {
                        return Enlisted::Lost;
                    }
                }
                match state.take(matching, select, &mut wakes) {
                    Found::Message(message) => {
                        drop(state);
                        wakes.fire();
                        return Enlisted::Done(Ok(message));
                    }
                    Found::Closed => return Enlisted::Done(Err(Disconnected)),
                    Found::Match(number) if is_task => {
                        let (waiter, place) = me.expect("a task waits");
                        self.seat.node().belongs_to(waiter, place);
                        // SAFETY: the caller of `enlist` promised it.
                        unsafe { state.reserve(&self.seat, number) };
                        drop(state);
                        wakes.fire();
                        return Enlisted::Linked;
                    }
                    Found::Match(number) => {
                        let (chan, at) = (self.chan, self.at);
                        chan.await_match(state, wakes, &self.seat, number, at);
                        match self.outcome() {
                            Some(outcome) => return Enlisted::Done(outcome),
                            // The select's message was never made.
                            None if select.is_some() => return Enlisted::Again,
                            None => continue,
                        }
                    }
                    Found::Nothing if select.is_some() => return Enlisted::Again,
                    Found::Nothing => {}
                }
            }
            let Some((waiter, place)) = me else {
                return Enlisted::Again;
            };
            self.seat.node().belongs_to(waiter, place);
            // SAFETY: the caller of `enlist` promised it.
            unsafe { state.link_receiver(&self.seat, &mut wakes) };
            drop(state);
            wakes.fire();
            return Enlisted::Linked;
        }
    }
}

// SAFETY: the one seat is linked only into lines of the channel, whose lock all
// claimants hold, and `delist` takes.
unsafe impl<T> Operation for Receiving<'_, T> {
    type Output = Result<T, Disconnected>;

    fn attempt(&self) -> Option<Self::Output> {
        match self.receive(None) {
            Enlisted::Done(outcome) => Some(outcome),
            _ => None,
        }
    }

    #[inline]
    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<Self::Output> {
        self.receive(Some((waiter, place)))
    }

    fn delist(&self) -> bool {
        self.chan.state.lock().unlink_receiver(&self.seat)
    }

    fn accept(&self) -> Option<Self::Output> {
        self.outcome()
    }

    fn pass_on(&self) {
        if let Some(message) = self.take_slot() {
            self.chan
                .change(|state, wakes| state.put_back(message, wakes));
        }
    }
}

/// One send.
#[repr(C)]
pub(crate) struct Sending<'a, T> {
    seat: Seat<T>,
    /// As in [`Receiving`].
    slot: UnsafeCell<Option<T>>,
    chan: &'a Chan<T>,
}

// SAFETY: as for `Receiving`.
unsafe impl<T: Send> Send for Sending<'_, T> {}

impl<'a, T> Sending<'a, T> {
    #[inline]
    pub(crate) fn new(chan: &'a Chan<T>, message: T) -> Self {
        Self {
            seat: Seat::new(),
            slot: UnsafeCell::new(Some(message)),
            chan,
        }
    }

    /// The message, after a wait that has ended without sending it.
    #[inline]
    fn unsent(&self) -> T {
        // SAFETY: the seat is in no line: the slot is ours.
        unsafe { (*self.slot.get()).take() }.expect("it was not sent")
    }

    #[inline]
    fn give_back(&self, message: T) {
        // SAFETY: the seat is in no line: the slot is ours.
        unsafe { *self.slot.get() = Some(message) };
    }
}

// SAFETY: as for `Receiving`.
unsafe impl<T> Operation for Sending<'_, T> {
    /// The message comes back if nobody can receive it any more.
    type Output = Result<(), T>;

    fn attempt(&self) -> Option<Self::Output> {
        match self.chan.try_send(self.unsent()) {
            Ok(()) => Some(Ok(())),
            Err(TrySendError::Disconnected(message)) => Some(Err(message)),
            Err(TrySendError::Full(message)) => {
                self.give_back(message);
                None
            }
        }
    }

    #[inline]
    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<Self::Output> {
        debug_assert!(waiter.is_single());
        let mut wakes = Wakes::new();
        let mut state = self.chan.state.lock();
        let closed = state.closed;
        match state.try_send(self.unsent(), &mut wakes) {
            Ok(()) => {
                drop(state);
                wakes.fire();
                return Enlisted::Done(Ok(()));
            }
            Err(message) if closed => return Enlisted::Done(Err(message)),
            Err(message) => self.give_back(message),
        }
        self.seat.set_slot(self.slot.get());
        self.seat.node().belongs_to(waiter, place);
        // SAFETY: the caller's promise.
        unsafe { state.link_sender(&self.seat, &mut wakes) };
        drop(state);
        wakes.fire();
        Enlisted::Linked
    }

    fn delist(&self) -> bool {
        self.chan.state.lock().unlink_sender(&self.seat)
    }

    fn accept(&self) -> Option<Self::Output> {
        match self.seat.fate() {
            Fate::Passed => Some(Ok(())),
            Fate::Closed => Some(Err(self.unsent())),
            _ => unreachable!("a sender with its message is not matched"),
        }
    }

    fn pass_on(&self) {} // it was sent; or it is dropped with us, unsent
}

/// One wait of a select for a promise that it can send.
#[repr(C)]
pub(crate) struct SendPromise<'a, T> {
    seat: Seat<T>,
    chan: &'a Chan<T>,
}

impl<'a, T> SendPromise<'a, T> {
    #[inline]
    pub(crate) fn new(chan: &'a Chan<T>) -> Self {
        Self {
            seat: Seat::new(),
            chan,
        }
    }

    fn permit(&self, fate: Fate) -> SendPermit<'a, T> {
        SendPermit {
            chan: self.chan,
            fate,
        }
    }
}

// SAFETY: as for `Receiving`.
unsafe impl<'a, T> Operation for SendPromise<'a, T> {
    type Output = SendPermit<'a, T>;

    fn attempt(&self) -> Option<Self::Output> {
        match self.chan.state.lock().grant_send(None) {
            Grant::Now(fate) => Some(self.permit(fate)),
            _ => None,
        }
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<Self::Output> {
        let mut wakes = Wakes::new();
        let mut state = self.chan.state.lock();
        match state.grant_send(Some((waiter, place))) {
            Grant::Now(fate) => return Enlisted::Done(self.permit(fate)),
            Grant::Lost => return Enlisted::Lost,
            Grant::Again => return Enlisted::Again,
            Grant::Wait => {}
        }
        self.seat.node().belongs_to(waiter, place);
        // SAFETY: the caller's promise.
        unsafe { state.link_sender(&self.seat, &mut wakes) };
        drop(state);
        wakes.fire();
        Enlisted::Linked
    }

    fn delist(&self) -> bool {
        self.chan.state.lock().unlink_sender(&self.seat)
    }

    fn accept(&self) -> Option<Self::Output> {
        Some(self.permit(self.seat.fate()))
    }

    fn pass_on(&self) {
        drop(self.permit(self.seat.fate()));
    }
}

/// The promise that one message can be sent; given up if dropped.
pub(crate) struct SendPermit<'a, T> {
    chan: &'a Chan<T>,
    fate: Fate,
}

impl<T> SendPermit<'_, T> {
    /// Sends; the message comes back if nobody can receive it.
    #[inline]
    pub(crate) fn send(mut self, message: T, at: At) -> Result<(), SendTimeoutError<T>> {
        let chan = self.chan;
        match std::mem::replace(&mut self.fate, Fate::Closed) {
            Fate::Promised => chan
                .change(|state, wakes| state.fill_slot(message, wakes))
                .map_err(SendTimeoutError::Disconnected),
            Fate::Matched(number) => {
                match chan.change(|state, wakes| state.fill_match(number, message, wakes)) {
                    None => Ok(()),
                    // It was the future of a task, and was dropped.
                    Some(message) => chan.send_slow(message, None, at),
                }
            }
            _ => Err(SendTimeoutError::Disconnected(message)),
        }
    }
}

impl<T> Drop for SendPermit<'_, T> {
    fn drop(&mut self) {
        match self.fate {
            Fate::Promised => self.chan.change(State::waive_slot),
            Fate::Matched(number) => self
                .chan
                .change(|state, wakes| state.waive_match(number, wakes)),
            _ => {}
        }
    }
}

/// One wait of a dynamic select for a promise that it can receive.
#[repr(C)]
pub(crate) struct RecvPromise<'a, T> {
    seat: Seat<T>,
    chan: &'a Chan<T>,
    at: At,
}

impl<'a, T> RecvPromise<'a, T> {
    #[inline]
    pub(crate) fn new(chan: &'a Chan<T>, at: At) -> Self {
        Self {
            seat: Seat::new(),
            chan,
            at,
        }
    }

    fn permit(&self, fate: Fate) -> Option<RecvPermit<'a, T>> {
        (fate != Fate::Again).then_some(RecvPermit {
            chan: self.chan,
            fate,
        })
    }

    fn grant(&self, me: Option<(&Waiter, u32)>) -> Enlisted<RecvPermit<'a, T>> {
        let mut wakes = Wakes::new();
        let mut state = self.chan.state.lock();
        match state.grant_recv(can_wait(), me, &mut wakes) {
            Grant::Now(Fate::Matched(number)) => {
                self.chan
                    .await_match(state, wakes, &self.seat, number, self.at);
                match self.permit(self.seat.fate()) {
                    Some(permit) => Enlisted::Done(permit),
                    None => Enlisted::Again,
                }
            }
            Grant::Now(fate) => {
                drop(state);
                wakes.fire();
                Enlisted::Done(self.permit(fate).expect("it is granted"))
            }
            Grant::Lost => Enlisted::Lost,
            Grant::Again => Enlisted::Again,
            Grant::Wait => {
                let Some((waiter, place)) = me else {
                    return Enlisted::Again;
                };
                self.seat.node().belongs_to(waiter, place);
                // SAFETY: the caller of `enlist` promised it.
                unsafe { state.link_receiver(&self.seat, &mut wakes) };
                drop(state);
                wakes.fire();
                Enlisted::Linked
            }
        }
    }
}

// SAFETY: as for `Receiving`.
unsafe impl<'a, T> Operation for RecvPromise<'a, T> {
    type Output = RecvPermit<'a, T>;

    fn attempt(&self) -> Option<Self::Output> {
        match self.grant(None) {
            Enlisted::Done(permit) => Some(permit),
            _ => None,
        }
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<Self::Output> {
        self.grant(Some((waiter, place)))
    }

    fn delist(&self) -> bool {
        self.chan.state.lock().unlink_receiver(&self.seat)
    }

    fn accept(&self) -> Option<Self::Output> {
        self.permit(self.seat.fate())
    }

    fn pass_on(&self) {
        drop(self.permit(self.seat.fate()));
    }
}

/// The promise that one message can be received; given up if dropped.
pub(crate) struct RecvPermit<'a, T> {
    chan: &'a Chan<T>,
    fate: Fate,
}

impl<T> RecvPermit<'_, T> {
    #[inline]
    pub(crate) fn recv(mut self) -> Result<T, Disconnected> {
        match std::mem::replace(&mut self.fate, Fate::Closed) {
            Fate::Promised => Ok(self.chan.change(State::take_promised)),
            _ => Err(Disconnected),
        }
    }
}

impl<T> Drop for RecvPermit<'_, T> {
    fn drop(&mut self) {
        if self.fate == Fate::Promised {
            self.chan.change(State::waive_promised);
        }
    }
}

/// One wait until a channel could be received from, or sent to.
pub(crate) struct Readiness<'a, T> {
    node: Node,
    chan: &'a Chan<T>,
    receiving: bool,
}

impl<'a, T> Readiness<'a, T> {
    #[inline]
    pub(crate) fn new(chan: &'a Chan<T>, receiving: bool) -> Self {
        Self {
            node: Node::new(),
            chan,
            receiving,
        }
    }

    fn is_ready(&self, state: &State<T>) -> bool {
        if self.receiving {
            state.can_recv(None)
        } else {
            state.can_send()
        }
    }
}

// SAFETY: as for `Receiving`, with the lines of watchers.
unsafe impl<T> Operation for Readiness<'_, T> {
    type Output = ();

    fn attempt(&self) -> Option<()> {
        self.is_ready(&self.chan.state.lock()).then_some(())
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<()> {
        let mut state = self.chan.state.lock();
        if self.is_ready(&state) {
            return if waiter.take_oneself(place) {
                Enlisted::Done(())
            } else {
                Enlisted::Lost
            };
        }
        self.node.belongs_to(waiter, place);
        // SAFETY: the caller's promise.
        unsafe { state.watchers(self.receiving).push_back(&self.node) };
        Enlisted::Linked
    }

    fn delist(&self) -> bool {
        let mut state = self.chan.state.lock();
        // SAFETY: linked only by `enlist`, into this list.
        unsafe { state.watchers(self.receiving).remove(&self.node) }
    }

    fn accept(&self) -> Option<()> {
        Some(())
    }

    fn pass_on(&self) {} // all were woken
}
