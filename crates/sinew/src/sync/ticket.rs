//! A place in the line of a [`FairMutex`], to be used later.
//!
//! Invariant 1 (standing): a ticket *holds* the lock, or has a *place*, in a box
//! that is its own, which is in line or was served, or it is *spent*: a guard was
//! made of it, and it owns nothing.
//! Invariant 2 (address): the box is freed only when its place is in no line and
//! was served, or has left; by then nobody else has its address.

use super::error::TimedOut;
use super::fair_mutex::{FairMutex, FairMutexGuard};
use super::turns::Waiting;
use crate::error::Cancelled;
use crate::fiber::{Block, WaitReason};
use crate::sched::polling;
use crate::time::Instant;
use crate::wait::{Deadline, Enlisted, Operation, Pending, WaitOutcome, WaitSpec, Waiter};
use crate::wait::{perform, point};
use std::borrow::Borrow;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::ptr::NonNull;
use std::time::Duration;

/// A place in the line of a [`FairMutex`]; see [`FairMutex::ticket`].
///
/// When its turn comes the mutex is reserved for the ticket, whether its owner
/// waits by then or not. A ticket that is dropped, or whose wait times out or is
/// cancelled, gives up its place; if it was its turn the next in line gets the
/// mutex.
///
/// Beware of waiting for anything else that needs the mutex while a ticket is
/// there: from its turn on nobody else gets it.
#[must_use = "dropped at once, the place is given up at once"]
pub struct Ticket<'a, T: ?Sized> {
    mutex: &'a FairMutex<T>,
    standing: Cell<Standing>,
}

/// See the module header.
#[derive(Clone, Copy)]
enum Standing {
    Holds,
    /// A leaked box: one that moves, as the ticket does, would claim that nobody
    /// else has its address, but the line has.
    Place(NonNull<Waiting>),
    Spent,
}

// SAFETY: the mutex may be used from any thread if `T: Send`. The place is
// touched under the lock of the line, and freed by whoever has the ticket.
unsafe impl<T: ?Sized + Send> Send for Ticket<'_, T> {}

impl<'a, T: ?Sized> Ticket<'a, T> {
    pub(super) fn take(mutex: &'a FairMutex<T>) -> Self {
        if mutex.turns.try_lock() {
            return Self {
                mutex,
                standing: Cell::new(Standing::Holds),
            };
        }
        let place = NonNull::from(Box::leak(Box::new(Waiting::new())));
        // SAFETY: allocated just now.
        let entered = unsafe { place.as_ref() };
        // SAFETY: a ticket's place, which stays as long as it must (address).
        let holds = unsafe { mutex.turns.enter_unattended(entered) };
        if holds {
            // SAFETY: leaked above, and it was not linked.
            unsafe { free(place) };
        }
        let standing = if holds {
            Standing::Holds
        } else {
            Standing::Place(place)
        };
        Self {
            mutex,
            standing: Cell::new(standing),
        }
    }

    /// The place, if it has one.
    fn place(&self) -> Option<&Waiting> {
        match self.standing.get() {
            // SAFETY: allocated while it is the standing (address).
            Standing::Place(place) => Some(unsafe { place.as_ref() }),
            Standing::Holds | Standing::Spent => None,
        }
    }

    /// Whether it is its turn: then locking does not wait. False once the guard was
    /// taken, by a select.
    pub fn is_served(&self) -> bool {
        match self.place() {
            Some(place) => self.mutex.turns.is_served(place),
            None => matches!(self.standing.get(), Standing::Holds),
        }
    }

    /// Makes the guard, if it is its turn.
    fn collect(&self) -> Option<FairMutexGuard<'a, T>> {
        if !self.is_served() {
            return None;
        }
        if let Standing::Place(place) = self.standing.replace(Standing::Spent) {
            // SAFETY: leaked in `take`, and served, so it is in no line; who
            // served it has let go of the lock of the line, and has fired the
            // wake-up if there was one, since we are here (address).
            unsafe { free(place) };
        }
        // SAFETY: the lock was ours, and the ticket is spent.
        Some(unsafe { FairMutexGuard::of(self.mutex) })
    }

    /// Waits for its turn, and locks.
    ///
    /// # Panics
    ///
    /// If the guard was taken already, by a select.
    #[track_caller]
    pub fn lock(mut self) -> FairMutexGuard<'a, T> {
        let spec = WaitSpec::new(WaitReason::Mutex, Location::caller());
        self.wait(spec)
            .unwrap_or_else(|_| unreachable!("nothing else can end the wait"))
    }

    /// Locks if it is its turn.
    ///
    /// ```
    /// let mutex = sinew::sync::FairMutex::new(());
    /// let guard = mutex.lock();
    /// let ticket = mutex.ticket().try_lock().unwrap_err();
    /// drop(guard);
    /// assert!(ticket.try_lock().is_ok());
    /// ```
    ///
    /// # Errors
    ///
    /// The ticket itself, if it is not its turn; and always if the guard was taken
    /// already, by a select.
    ///
    /// A loop of failing tries is a place where other fibers may run: every 64th in one turn
    /// of a fiber yields.
    pub fn try_lock(self) -> Result<FairMutexGuard<'a, T>, Self> {
        let guard = self.collect();
        polling::tried(guard.is_some());
        guard.ok_or(self)
    }

    /// As [`lock`](Self::lock), but waits for `timeout` at most; then the ticket
    /// is passed on.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let mutex = sinew::sync::FairMutex::new(());
    /// let guard = mutex.lock();
    /// let (first, second) = (mutex.ticket(), mutex.ticket());
    /// assert!(first.lock_timeout(Duration::from_millis(1)).is_err());
    /// drop(guard);
    /// assert!(second.is_served());
    /// ```
    ///
    /// # Errors
    ///
    /// [`TimedOut`] if the time was over first.
    ///
    /// # Panics
    ///
    /// As [`lock`](Self::lock).
    #[track_caller]
    pub fn lock_timeout(mut self, timeout: Duration) -> Result<FairMutexGuard<'a, T>, TimedOut> {
        let spec = WaitSpec::new(WaitReason::Mutex, Location::caller());
        self.wait(spec.deadline(Deadline::after(timeout)))
            .map_err(TimedOut::of)
    }

    /// As [`lock`](Self::lock), but waits until `deadline` at most; then the
    /// ticket is passed on.
    ///
    /// # Errors
    ///
    /// [`TimedOut`] if the time was over first.
    ///
    /// # Panics
    ///
    /// As [`lock`](Self::lock).
    #[track_caller]
    pub fn lock_deadline(mut self, deadline: Instant) -> Result<FairMutexGuard<'a, T>, TimedOut> {
        let spec = WaitSpec::new(WaitReason::Mutex, Location::caller());
        self.wait(spec.deadline(Some(deadline.deadline())))
            .map_err(TimedOut::of)
    }

    /// As [`lock`](Self::lock), but a cancellation point; a cancelled fiber
    /// passes the ticket on.
    ///
    /// # Errors
    ///
    /// [`Cancelled`] if the fiber was cancelled, before or during the wait.
    ///
    /// # Panics
    ///
    /// As [`lock`](Self::lock).
    #[track_caller]
    pub fn lock_or_cancelled(mut self) -> Result<FairMutexGuard<'a, T>, Cancelled> {
        point::check()?;
        let spec = WaitSpec::new(WaitReason::Mutex, Location::caller());
        self.wait(spec.cancellable()).map_err(|_| Cancelled)
    }

    /// As [`lock`](Self::lock), in async code, under any executor.
    ///
    /// A future that is dropped passes the ticket on.
    ///
    /// # Panics
    ///
    /// As [`lock`](Self::lock).
    #[track_caller]
    pub fn lock_async(self) -> impl Future<Output = FairMutexGuard<'a, T>> {
        Pending::new(TicketWait::new(self))
    }

    #[track_caller]
    fn wait(&mut self, spec: WaitSpec<'_>) -> Result<FairMutexGuard<'a, T>, WaitOutcome> {
        let operation = self.operation();
        let ticket: &Self = operation.ticket;
        let lend = |from: &Block| {
            if let Some(place) = ticket.place() {
                ticket.mutex.turns.lend_again(from, place);
            }
        };
        perform(&operation, &spec.lending_by(&lend))
    }

    /// Waiting for its turn; yields the guard, after which the ticket is spent.
    ///
    /// # Panics
    ///
    /// If it is spent.
    #[track_caller]
    pub(crate) fn operation(&mut self) -> TicketWait<'a, T, &mut Self> {
        TicketWait::new(self)
    }
}

/// # Safety
///
/// The place was leaked by `Ticket::take`, and nobody else has its address.
unsafe fn free(place: NonNull<Waiting>) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(place.as_ptr()) });
}

impl<T: ?Sized> Drop for Ticket<'_, T> {
    fn drop(&mut self) {
        match self.standing.get() {
            Standing::Holds => self.mutex.turns.unlock(),
            Standing::Place(place) => {
                // SAFETY: allocated while it is the standing (address).
                self.mutex.turns.leave(unsafe { place.as_ref() });
                // SAFETY: leaked in `take`, and in no line any more (address).
                unsafe { free(place) };
            }
            Standing::Spent => {}
        }
    }
}

impl<T: ?Sized> fmt::Debug for Ticket<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("is_served", &self.is_served())
            .finish()
    }
}

/// One wait for a ticket's turn; `R` is the ticket, or a reference to it.
///
/// When it ends without the guard the ticket is as it was, and keeps its place.
pub(crate) struct TicketWait<'a, T: ?Sized, R: Borrow<Ticket<'a, T>>> {
    ticket: R,
    mutex: PhantomData<&'a FairMutex<T>>,
}

impl<'a, T: ?Sized, R: Borrow<Ticket<'a, T>>> TicketWait<'a, T, R> {
    #[track_caller]
    fn new(ticket: R) -> Self {
        // Here and not later: in the middle of a wait nothing may unwind.
        assert!(
            !matches!(ticket.borrow().standing.get(), Standing::Spent),
            "the ticket is spent: a select took its guard"
        );
        Self {
            ticket,
            mutex: PhantomData,
        }
    }
}

// SAFETY: it links nothing: the place is the ticket's own, in a box. A claimant
// asks for the waiter under the lock of the line, and only while the place is
// attended, which it is not any more after `delist`, which takes that lock.
unsafe impl<'a, T: ?Sized, R: Borrow<Ticket<'a, T>>> Operation for TicketWait<'a, T, R> {
    type Output = FairMutexGuard<'a, T>;

    fn attempt(&self) -> Option<Self::Output> {
        self.ticket.borrow().collect()
    }

    unsafe fn enlist(&self, waiter: &Waiter, number: u32) -> Enlisted<Self::Output> {
        let ticket = self.ticket.borrow();
        let attended = match ticket.place() {
            // SAFETY: the caller's promise.
            Some(place) => unsafe { ticket.mutex.turns.attend(place, waiter, number) },
            None if waiter.take_oneself(number) => Enlisted::Done(()),
            None => Enlisted::Lost,
        };
        match attended {
            Enlisted::Done(()) => {
                Enlisted::Done(ticket.collect().expect("it is the ticket's turn"))
            }
            Enlisted::Linked => Enlisted::Linked,
            Enlisted::Lost => Enlisted::Lost,
            Enlisted::Again => Enlisted::Again,
        }
    }

    /// The ticket keeps its place, but nobody waits at it.
    fn delist(&self) -> bool {
        let ticket = self.ticket.borrow();
        ticket
            .place()
            .is_some_and(|place| ticket.mutex.turns.abandon(place))
    }

    fn accept(&self) -> Option<Self::Output> {
        self.ticket.borrow().collect()
    }

    fn pass_on(&self) {} // it is still the ticket's turn, until that is dropped
}
