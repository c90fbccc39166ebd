//! Mutual exclusion in the order of arrival.
//!
//! | word                | meaning                                              |
//! |---------------------|------------------------------------------------------|
//! | 0                   | free, and the line is empty                          |
//! | `LOCKED`            | held, or reserved for a ticket; the line is empty    |
//! | `LOCKED \| WAITERS` | the same, and somebody stands in line                |
//!
//! Without waiters the word is taken and given back by compare-and-swap. With
//! them it stays `LOCKED`: who unlocks hands the lock over to the first in line,
//! under the line's lock, so that nobody gets in between.
//!
//! A place in the line is that of a wait, on the waiting stack, or that of a
//! [`Ticket`], in a box of its own, since its owner need not wait yet. A ticket
//! that is *attended* has a waiter: it is woken when it is served. One that is
//! not has just the lock reserved for it. A ticket whose owner stops waiting
//! keeps its place; it gives it up, and passes the lock on if that was reserved
//! for it, when it is dropped.
//!
//! Invariant 1 (one): while `LOCKED` is set exactly one of these is there: a
//! guard, a ticket that was served, a wait that was served and has not made its
//! guard yet, or somebody who holds the lock of the line to find the next.
//! Invariant 2 (closed): while `WAITERS` is set, and while the holder is at the
//! lock of the line, the word is changed only under that lock; the line is not
//! empty only if it is set.
//! Invariant 3 (attended): a linked place that is attended belongs to a waiter
//! that is there. Places change only under the lock of the line.

use super::error::{TimedOut, TryLockError};
use super::ticket::Ticket;
use crate::error::Cancelled;
use crate::fiber::WaitReason;
use crate::primitive::{AtomicUsize, Lock, Ordering, const_fn};
use crate::time::Instant;
use crate::wait::node::{Node, Place, WaitList, Wakes};
use crate::wait::{Deadline, Enlisted, Operation, Pending, WaitOutcome, WaitSpec, Waiter};
use crate::wait::{perform, point};
use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::time::Duration;

/// Held, or reserved for a ticket.
const LOCKED: usize = 1 << 0;
/// Somebody stands in line.
const WAITERS: usize = 1 << 1;

/// A mutex that serves in the order of arrival.
///
/// Nobody overtakes: a fiber that unlocks and locks again waits for all who
/// came before. That costs a switch for each lock under contention, so use
/// `Mutex` unless the order matters.
///
/// [`ticket`](Self::ticket) locks in two steps: first take a place in the line,
/// then, later, wait for one's turn.
///
/// What was held when a fiber panics is just unlocked: there is no poisoning.
/// Waiting is no cancellation point, except in
/// [`lock_or_cancelled`](Self::lock_or_cancelled).
///
/// ```
/// use std::sync::Arc;
/// use sinew::sync::FairMutex;
///
/// sinew::run(|| {
///     let log = Arc::new(FairMutex::new(Vec::new()));
///     let mut first = log.lock();
///     let mine = log.ticket(); // before the other fiber
///     let other = sinew::spawn({
///         let log = log.clone();
///         move || log.lock().push("other")
///     });
///     first.push("first");
///     drop(first);
///     mine.lock().push("mine");
///     other.join().unwrap();
///     assert_eq!(*log.lock(), ["first", "mine", "other"]);
/// });
/// ```
pub struct FairMutex<T: ?Sized> {
    pub(super) raw: Raw,
    /// Touched by who has the guard (invariant 1).
    value: UnsafeCell<T>,
}

// SAFETY: a mutex owns its value, and nothing in it is bound to a thread.
unsafe impl<T: ?Sized + Send> Send for FairMutex<T> {}
// SAFETY: through a shared mutex one thread after the other gets `&mut T`, never
// two at once (invariant 1): that asks for `Send`.
unsafe impl<T: ?Sized + Send> Sync for FairMutex<T> {}

impl<T> FairMutex<T> {
    const_fn! {
        /// A mutex around `value`, held by nobody.
        pub const fn new(value: T) -> Self {
            Self {
                raw: Raw::new(),
                value: UnsafeCell::new(value),
            }
        }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> FairMutex<T> {
    /// The value, without locking: there is no other user.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Whether somebody holds it, or has it reserved, at this moment.
    pub fn is_locked(&self) -> bool {
        // Relaxed: may be old when it is read.
        self.raw.word.load(Ordering::Relaxed) & LOCKED != 0
    }

    /// Waits for its turn, and locks.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> FairMutexGuard<'_, T> {
        if !self.raw.try_lock() {
            self.raw.lock_slow(Location::caller());
        }
        // SAFETY: locked just now.
        unsafe { FairMutexGuard::of(self) }
    }

    /// Locks if that needs no waiting.
    ///
    /// # Errors
    ///
    /// [`TryLockError`] if it is held, or reserved for somebody.
    #[inline]
    pub fn try_lock(&self) -> Result<FairMutexGuard<'_, T>, TryLockError> {
        if !self.raw.try_lock() {
            return Err(TryLockError::WouldBlock);
        }
        // SAFETY: locked just now.
        Ok(unsafe { FairMutexGuard::of(self) })
    }

    /// As [`lock`](Self::lock), but waits for `timeout` at most.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sinew::sync::{FairMutex, TimedOut};
    ///
    /// let mutex = FairMutex::new(());
    /// let guard = mutex.lock();
    /// assert_eq!(mutex.lock_timeout(Duration::from_millis(1)).unwrap_err(), TimedOut);
    /// drop(guard);
    /// assert!(mutex.try_lock().is_ok());
    /// ```
    ///
    /// # Errors
    ///
    /// [`TimedOut`] if the time was over first.
    #[track_caller]
    pub fn lock_timeout(&self, timeout: Duration) -> Result<FairMutexGuard<'_, T>, TimedOut> {
        self.lock_until(|| Deadline::after(timeout), Location::caller())
    }

    /// As [`lock`](Self::lock), but waits until `deadline` at most.
    ///
    /// # Errors
    ///
    /// [`TimedOut`] if the time was over first.
    #[track_caller]
    pub fn lock_deadline(&self, deadline: Instant) -> Result<FairMutexGuard<'_, T>, TimedOut> {
        self.lock_until(|| Some(deadline.deadline()), Location::caller())
    }

    fn lock_until(
        &self,
        deadline: impl FnOnce() -> Option<Deadline>,
        at: &'static Location<'static>,
    ) -> Result<FairMutexGuard<'_, T>, TimedOut> {
        if !self.raw.try_lock() {
            let spec = WaitSpec::new(WaitReason::Mutex, at).deadline(deadline());
            self.raw.wait(&spec).map_err(TimedOut::of)?;
        }
        // SAFETY: locked just now.
        Ok(unsafe { FairMutexGuard::of(self) })
    }

    /// As [`lock`](Self::lock), but a cancellation point.
    ///
    /// # Errors
    ///
    /// [`Cancelled`] if the fiber was cancelled, before or during the wait.
    #[track_caller]
    pub fn lock_or_cancelled(&self) -> Result<FairMutexGuard<'_, T>, Cancelled> {
        point::check()?;
        if !self.raw.try_lock() {
            let spec = WaitSpec::new(WaitReason::Mutex, Location::caller()).cancellable();
            self.raw.wait(&spec).map_err(|_| Cancelled)?;
        }
        // SAFETY: locked just now.
        Ok(unsafe { FairMutexGuard::of(self) })
    }

    /// As [`lock`](Self::lock), in async code, under any executor.
    ///
    /// The place in the line is taken when the future is first polled. A future
    /// that is dropped gives it up, and passes the lock on if it has it already.
    ///
    /// ```
    /// let mutex = sinew::sync::FairMutex::new(1);
    /// sinew::block_on(async { *mutex.lock_async().await += 1 });
    /// assert_eq!(mutex.into_inner(), 2);
    /// ```
    pub fn lock_async(&self) -> impl Future<Output = FairMutexGuard<'_, T>> {
        let pending = Pending::new(Turn::new(&self.raw));
        async move {
            pending.await;
            // SAFETY: locked just now.
            unsafe { FairMutexGuard::of(self) }
        }
    }

    /// Takes a place in the line now, to wait for one's turn later.
    ///
    /// Never waits; allocates if the mutex is held. See [`Ticket`].
    ///
    /// ```
    /// let mutex = sinew::sync::FairMutex::new(0);
    /// let guard = mutex.lock();
    /// let ticket = mutex.ticket();
    /// assert!(!ticket.is_served());
    /// drop(guard);
    /// assert!(ticket.is_served());
    /// assert!(mutex.try_lock().is_err()); // reserved for the ticket
    /// *ticket.lock() += 1;
    /// assert_eq!(*mutex.lock(), 1);
    /// ```
    pub fn ticket(&self) -> Ticket<'_, T> {
        Ticket::take(self)
    }
}

impl<T: Default> Default for FairMutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> From<T> for FairMutex<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for FairMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("FairMutex");
        match self.try_lock() {
            Ok(value) => fields.field("value", &&*value),
            Err(_) => fields.field("value", &format_args!("<locked>")),
        };
        fields.finish()
    }
}

/// The mutex without what it protects.
pub(super) struct Raw {
    /// See the module header.
    word: AtomicUsize,
    line: Lock<WaitList<Waiting>>,
}

/// One place in the line.
#[repr(C)]
pub(super) struct Waiting {
    node: Node,
    /// Stays in line when its waiter goes.
    is_ticket: bool,
    /// Somebody waits at it (invariant 3).
    attended: Cell<bool>,
    /// The lock was handed over to it, or reserved for it; it is in no line.
    served: Cell<bool>,
}

// SAFETY: `repr(C)`, and the node is first.
unsafe impl Place for Waiting {
    fn node(&self) -> &Node {
        &self.node
    }
}

impl Waiting {
    pub(super) fn new(is_ticket: bool) -> Self {
        Self {
            node: Node::new(),
            is_ticket,
            attended: Cell::new(false),
            served: Cell::new(false),
        }
    }
}

impl Raw {
    const_fn! {
        const fn new() -> Self {
            Self {
                word: AtomicUsize::new(0),
                line: Lock::new(WaitList::new()),
            }
        }
    }

    /// Locks if it is free, which it is not while anybody stands in line.
    #[inline]
    pub(super) fn try_lock(&self) -> bool {
        // Acquire: what the former holder did comes before; pairs with the
        // Release in `unlock` and `serve`.
        self.word
            .compare_exchange(0, LOCKED, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[cold]
    fn lock_slow(&self, at: &'static Location<'static>) {
        let outcome = self.wait(&WaitSpec::new(WaitReason::Mutex, at));
        debug_assert!(outcome.is_ok(), "nothing else can end the wait");
    }

    fn wait(&self, spec: &WaitSpec<'_>) -> Result<(), WaitOutcome> {
        perform(&Turn::new(self), spec)
    }

    /// Gives the lock to the next in line, or to whoever comes.
    #[inline]
    pub(super) fn unlock(&self) {
        // Release: the next holder sees what we did; pairs with `try_lock`.
        let given = self
            .word
            .compare_exchange(LOCKED, 0, Ordering::Release, Ordering::Relaxed);
        if given.is_err() {
            self.unlock_slow();
        }
    }

    #[cold]
    fn unlock_slow(&self) {
        let mut wakes = Wakes::new();
        self.serve(&mut self.line.lock(), &mut wakes);
        wakes.fire();
    }

    /// Hands the lock, which the caller gives up, to the first in line.
    fn serve(&self, line: &mut WaitList<Waiting>, wakes: &mut Wakes) {
        while let Some(place) = line.pop_front() {
            // SAFETY: it was linked, and we hold the lock of the line.
            let place = unsafe { place.as_ref() };
            if place.attended.get() {
                // SAFETY: as above; it is attended, so its waiter is there
                // (attended). If the claim is lost the waiter comes for this
                // lock before it goes.
                if let Some(wakeup) = unsafe { place.node.claim() } {
                    // SAFETY: claimed just now, under the lock.
                    unsafe { wakes.add(&place.node, wakeup) };
                } else if !place.is_ticket {
                    continue; // it has given up, and its place with it
                }
            }
            place.served.set(true);
            return self.tell(line);
        }
        // Release: as in `unlock`. A store: we are the holder, and hold the lock
        // of the line (closed).
        self.word.store(0, Ordering::Release);
    }

    /// Makes the word say whether anybody stands in line; it is locked, and
    /// either `WAITERS` is set or the caller is the holder (closed).
    fn tell(&self, line: &WaitList<Waiting>) {
        let waiters = if line.is_empty() { 0 } else { WAITERS };
        // Relaxed: it stays locked. Who is handed the lock is ordered by its
        // claim, or by the lock of the line under which it finds itself served.
        self.word.store(LOCKED | waiters, Ordering::Relaxed);
    }

    /// Locks, or puts `place` at the end of the line; true if it has locked.
    ///
    /// # Safety
    ///
    /// The place stays where it is until it is served or leaves the line. It is
    /// not attended, or belongs to a waiter that stays as well.
    unsafe fn enter(&self, line: &mut WaitList<Waiting>, place: &Waiting) -> bool {
        // Acquire: as in `try_lock`. The bit alone would need no order: it sends
        // the holder to the lock of the line.
        let mut now = self.word.load(Ordering::Relaxed);
        while now & WAITERS == 0 {
            let next = if now == 0 { LOCKED } else { LOCKED | WAITERS };
            match self
                .word
                .compare_exchange_weak(now, next, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(0) => return true,
                Ok(_) => break,
                Err(seen) => now = seen,
            }
        }
        // SAFETY: the caller's promise. A place without a waiter may be linked
        // too: `serve` asks for one only if it is attended.
        unsafe { line.push_back(place) };
        false
    }

    /// The first step of a two-step lock; true if it has locked already.
    ///
    /// # Safety
    ///
    /// The place is a ticket's, and stays where it is until
    /// [`collect`](Self::collect) has said that it was served, or
    /// [`leave`](Self::leave) was called.
    pub(super) unsafe fn enter_unattended(&self, place: &Waiting) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.enter(&mut self.line.lock(), place) }
    }

    /// Whether the lock was reserved for this place, or handed over to it.
    pub(super) fn is_served(&self, place: &Waiting) -> bool {
        let _line = self.line.lock();
        place.served.get()
    }

    /// Waits at a ticket's place from now on.
    ///
    /// # Safety
    ///
    /// The waiter stays where it is until the wait has ended by a claim at this
    /// place, or [`abandon`](Self::abandon) was called.
    pub(super) unsafe fn attend(
        &self,
        place: &Waiting,
        waiter: &Waiter,
        number: u32,
    ) -> Enlisted<()> {
        let _line = self.line.lock();
        if place.served.get() {
            return if waiter.take_oneself(number) {
                Enlisted::Done(())
            } else {
                Enlisted::Lost
            };
        }
        place.node.belongs_to(waiter, number);
        place.attended.set(true);
        Enlisted::Linked
    }

    /// Waits no more at a ticket's place, but keeps it.
    pub(super) fn abandon(&self, place: &Waiting) {
        let _line = self.line.lock();
        place.attended.set(false);
    }

    /// Gives up a place, and the lock if the place was served.
    pub(super) fn leave(&self, place: &Waiting) {
        let mut wakes = Wakes::new();
        {
            let mut line = self.line.lock();
            // SAFETY: linked only by `enter`, into this list.
            if unsafe { line.remove(place) } {
                self.tell(&line);
            } else if place.served.get() {
                self.serve(&mut line, &mut wakes);
            }
        }
        wakes.fire();
    }
}

/// One wait for the lock, with its place on the waiting stack.
struct Turn<'a> {
    place: Waiting,
    raw: &'a Raw,
}

// SAFETY: the cells are touched under the lock of the line, or by the waiter
// when it is in none (`wait::node`, invariant 1).
unsafe impl Send for Turn<'_> {}

impl<'a> Turn<'a> {
    fn new(raw: &'a Raw) -> Self {
        Self {
            place: Waiting::new(false),
            raw,
        }
    }
}

// SAFETY: the one place is linked only into the mutex's own line, whose lock all
// claimants hold (`serve`), and `delist` takes.
unsafe impl Operation for Turn<'_> {
    type Output = ();

    fn attempt(&self) -> Option<()> {
        self.raw.try_lock().then_some(())
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<()> {
        self.place.node.belongs_to(waiter, place);
        self.place.attended.set(true);
        // SAFETY: the caller's promise. (It is waited for alone, not in a
        // select, so that nobody else can have claimed the waiter before.)
        if unsafe { self.raw.enter(&mut self.raw.line.lock(), &self.place) } {
            return Enlisted::Done(());
        }
        Enlisted::Linked
    }

    /// Called when the wait was given up, so that nobody has served it, or after
    /// it was served, when there is nothing to leave.
    fn delist(&self) {
        let mut line = self.raw.line.lock();
        // SAFETY: linked only by `enter`, into this list.
        if unsafe { line.remove(&self.place) } {
            self.raw.tell(&line);
        }
    }

    fn accept(&self) -> Option<()> {
        Some(()) // handed over by who woke us
    }

    fn pass_on(&self) {
        self.raw.unlock();
    }
}

/// Holds a [`FairMutex`], and hands it to the next in line when dropped.
#[must_use = "dropped at once, the mutex is unlocked at once"]
pub struct FairMutexGuard<'a, T: ?Sized> {
    mutex: &'a FairMutex<T>,
    /// Neither `Send` nor `Sync` by itself: see below.
    value: PhantomData<*mut T>,
}

// SAFETY: with the guard goes a `&mut T`; unlocking may be done by any thread.
unsafe impl<T: ?Sized + Send> Send for FairMutexGuard<'_, T> {}
// SAFETY: a shared guard gives `&T` only.
unsafe impl<T: ?Sized + Sync> Sync for FairMutexGuard<'_, T> {}

impl<'a, T: ?Sized> FairMutexGuard<'a, T> {
    /// # Safety
    ///
    /// The caller has locked, and leaves it to the guard to unlock.
    #[inline]
    pub(super) unsafe fn of(mutex: &'a FairMutex<T>) -> Self {
        Self {
            mutex,
            value: PhantomData,
        }
    }
}

impl<T: ?Sized> Deref for FairMutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: ours while the guard lives (one).
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized> DerefMut for FairMutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed mutably.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: ?Sized> Drop for FairMutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.raw.unlock();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for FairMutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for FairMutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
