//! A counter that only grows, and those who wait for it to reach a number.
//!
//! Counter and `WAITERS` are one word, `count << 1 | WAITERS`. A waiter sets the
//! bit under the lock, in the same read-modify-write that finds its number not
//! reached; the counter moves by read-modify-writes of the same word. So a step
//! that reaches the number either comes before that and is seen by it, or sees the
//! bit and comes to the lock. That holds for the last step as for any other, and
//! needs no fence: there is no second word that might be seen too late.
//!
//! The line is a heap by number: a step takes out those that it reaches, in the
//! order of their numbers, and looks at no other.
//!
//! Invariant 1 (bit): with the lock free, `WAITERS` is set if the line is not
//! empty.
//! Invariant 2 (reached): who moves the counter and sees `WAITERS` goes on to wake
//! all in line whose number is reached.

use super::error::WaitTimeoutError;
use crate::error::Cancelled;
use crate::fiber::WaitReason;
use crate::primitive::{AtomicU64, Ordering, const_fn};
use crate::sched::polling;
use crate::sys::Lock;
use crate::time::Instant;
use crate::util::heap::{Heap, HeapLinks};
use crate::wait::node::{Node, Wakes};
use crate::wait::{Deadline, Enlisted, Operation, Pending, WaitOutcome, WaitSpec, Waiter};
use crate::wait::{perform, point};
use std::fmt;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::time::Duration;

/// Somebody stands in line.
const WAITERS: u64 = 1 << 0;
/// The lowest bit of the counter.
const ONE: u64 = 1 << 1;

fn count_of(word: u64) -> u64 {
    word / ONE
}

/// A counter that never goes back, with any number of waiters for any number.
///
/// [`wait`](Self::wait) passes once the counter has reached the number it is given
/// (its token). The counter starts at 0. Waiting is a cancellation point; those
/// who wait are woken in the order of their tokens, and of equal ones in the order
/// in which they came.
///
/// ```
/// use std::sync::Arc;
/// use sinew::sync::Sequencer;
///
/// sinew::run(|| {
///     let turn = Arc::new(Sequencer::new());
///     let order = Arc::new(std::sync::Mutex::new(Vec::new()));
///     let fibers: Vec<_> = [2, 0, 1]
///         .map(|token| {
///             let (turn, order) = (turn.clone(), order.clone());
///             sinew::spawn(move || {
///                 turn.wait(token).unwrap();
///                 order.lock().unwrap().push(token);
///                 turn.increment();
///             })
///         })
///         .into();
///     fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
///     assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
/// });
/// ```
pub struct Sequencer {
    /// See the module header.
    word: AtomicU64,
    line: Lock<Heap>,
}

/// One place in the line.
#[repr(C)]
struct Waiting {
    /// First, so that a pointer to the links is one to the place.
    links: HeapLinks,
    node: Node,
}

// SAFETY: the links are touched only under the lock of the line (`util::heap`,
// invariant 2), but by the waiter before it is linked.
unsafe impl Send for Waiting {}
// SAFETY: as above.
unsafe impl Sync for Waiting {}

// User code never unwinds through a half-done change of it.
impl UnwindSafe for Sequencer {}
impl RefUnwindSafe for Sequencer {}

impl Sequencer {
    /// The largest value: 2⁶³ − 1.
    pub const MAX: u64 = u64::MAX / ONE;

    const_fn! {
        /// A counter at 0.
        pub const fn new() -> Self {
            Self {
                word: AtomicU64::new(0),
                line: Lock::new(Heap::new()),
            }
        }
    }

    /// The value of the counter.
    pub fn get(&self) -> u64 {
        // Acquire: what was done before the counter got here; pairs with the
        // Release in `advance` and `increment`. All changes are
        // read-modify-writes, so that goes for those of all steps.
        count_of(self.word.load(Ordering::Acquire))
    }

    /// Adds one, wakes those who waited for that, and answers the new value.
    ///
    /// # Panics
    ///
    /// At [`MAX`](Self::MAX).
    #[track_caller]
    pub fn increment(&self) -> u64 {
        // Relaxed: the exchange finds out.
        let mut now = self.word.load(Ordering::Relaxed);
        loop {
            let next = count_of(now) + 1;
            check(next);
            match self.step(now, next) {
                Ok(()) => return next,
                Err(seen) => now = seen,
            }
        }
    }

    /// Moves the counter to `value` and wakes those who waited for that; false if
    /// it is there already, or beyond.
    ///
    /// ```
    /// let sequencer = sinew::sync::Sequencer::new();
    /// assert!(sequencer.advance(5));
    /// assert!(!sequencer.advance(3)); // it never goes back
    /// assert_eq!(sequencer.get(), 5);
    /// ```
    ///
    /// # Panics
    ///
    /// If `value` is larger than [`MAX`](Self::MAX).
    #[track_caller]
    pub fn advance(&self, value: u64) -> bool {
        check(value);
        // Relaxed: the exchange finds out; a counter that is found to be beyond
        // `value` is only said to be.
        let mut now = self.word.load(Ordering::Relaxed);
        while count_of(now) < value {
            match self.step(now, value) {
                Ok(()) => return true,
                Err(seen) => now = seen,
            }
        }
        false
    }

    /// Moves the counter from the word `now` to `value`; the word it found if that
    /// is another.
    fn step(&self, now: u64, value: u64) -> Result<(), u64> {
        // Release: pairs with the Acquire in `get`, `enlist` and `wake_reached`.
        self.word.compare_exchange_weak(
            now,
            (value * ONE) | (now & WAITERS),
            Ordering::Release,
            Ordering::Relaxed,
        )?;
        if now & WAITERS != 0 {
            self.wake_reached();
        }
        Ok(())
    }

    /// Wakes those in line whose number is reached (invariant 2).
    #[cold]
    fn wake_reached(&self) {
        let mut wakes = Wakes::new();
        {
            let mut line = self.line.lock();
            // Acquire: others may have moved it since; then we speak for them to
            // those whom we wake.
            let count = count_of(self.word.load(Ordering::Acquire));
            self.claim_while(&mut line, &mut wakes, |token| token <= count);
        }
        wakes.fire();
    }

    /// Wakes all in line, whatever their number, after `before` was done under the
    /// lock.
    pub(super) fn wake_all_after(&self, before: impl FnOnce()) {
        let mut wakes = Wakes::new();
        {
            let mut line = self.line.lock();
            before();
            self.claim_while(&mut line, &mut wakes, |_| true);
        }
        wakes.fire();
    }

    /// Takes places from the front of the line while `fits` says so, and ends
    /// their waits.
    fn claim_while(&self, line: &mut Heap, wakes: &mut Wakes, fits: impl Fn(u64) -> bool) {
        while line.first_key().is_some_and(&fits) {
            let place = line.pop_first().expect("there is a first");
            // SAFETY: the links begin a place (`enlist`), which was linked, and we
            // hold the lock: if it has given up, it comes for this lock before it
            // goes.
            let place = unsafe { place.cast::<Waiting>().as_ref() };
            // SAFETY: as above.
            if let Some(wakeup) = unsafe { place.node.claim() } {
                // SAFETY: claimed just now, under the lock.
                unsafe { wakes.add(&place.node, wakeup) };
            }
        }
        self.line_may_be_empty(line);
    }

    /// Takes the bit away if nobody is left in line; the caller holds its lock.
    fn line_may_be_empty(&self, line: &Heap) {
        if line.is_empty() {
            // Relaxed: who stands in line next does so under the lock.
            self.word.fetch_and(!WAITERS, Ordering::Relaxed);
        }
    }

    /// Waits until the counter has reached `token`; a cancellation point.
    ///
    /// A token beyond [`MAX`](Self::MAX) is never reached.
    ///
    /// # Errors
    ///
    /// [`Cancelled`] if the fiber was cancelled, before or during the wait.
    #[track_caller]
    pub fn wait(&self, token: u64) -> Result<(), Cancelled> {
        point::check()?;
        self.wait_by(token, None, Location::caller())
            .map_err(|_| Cancelled)
    }

    /// Whether the counter has reached `token`.
    ///
    /// A loop of failing tries is a place where other fibers may run: every 64th in one turn
    /// of a fiber yields.
    pub fn try_wait(&self, token: u64) -> bool {
        polling::tried(self.has_reached(token))
    }

    /// The same without a count of tries in vain.
    pub(super) fn has_reached(&self, token: u64) -> bool {
        self.get() >= token
    }

    /// As [`wait`](Self::wait), but for `timeout` at most.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sinew::sync::{Sequencer, WaitTimeoutError};
    ///
    /// let sequencer = Sequencer::new();
    /// sequencer.increment();
    /// assert_eq!(sequencer.wait_timeout(1, Duration::ZERO), Ok(()));
    /// let outcome = sequencer.wait_timeout(2, Duration::from_millis(1));
    /// assert_eq!(outcome, Err(WaitTimeoutError::Timeout));
    /// ```
    ///
    /// # Errors
    ///
    /// [`WaitTimeoutError`] if the time was over first or the fiber was
    /// cancelled.
    #[track_caller]
    pub fn wait_timeout(&self, token: u64, timeout: Duration) -> Result<(), WaitTimeoutError> {
        point::check()?;
        self.wait_by(token, Deadline::after(timeout), Location::caller())
            .map_err(WaitTimeoutError::of)
    }

    /// As [`wait`](Self::wait), but until `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`wait_timeout`](Self::wait_timeout).
    #[track_caller]
    pub fn wait_deadline(&self, token: u64, deadline: Instant) -> Result<(), WaitTimeoutError> {
        point::check()?;
        self.wait_by(token, Some(deadline.deadline()), Location::caller())
            .map_err(WaitTimeoutError::of)
    }

    /// As [`wait`](Self::wait), in async code, under any executor.
    pub fn wait_async(&self, token: u64) -> impl Future<Output = ()> + Send + '_ {
        Pending::new(self.token(token).operation())
    }

    /// The counter reaching `value`, as something that a select can wait for.
    ///
    /// ```
    /// let sequencer = sinew::sync::Sequencer::new();
    /// let token = sequencer.token(1);
    /// assert!(!token.is_reached());
    /// sequencer.increment();
    /// assert!(token.is_reached());
    /// ```
    pub const fn token(&self, value: u64) -> SequencerToken<'_> {
        SequencerToken {
            sequencer: self,
            value,
        }
    }

    fn wait_by(
        &self,
        token: u64,
        deadline: Option<Deadline>,
        at: &'static Location<'static>,
    ) -> Result<(), WaitOutcome> {
        if self.has_reached(token) {
            return Ok(());
        }
        let spec = WaitSpec::new(WaitReason::Sequencer, at)
            .deadline(deadline)
            .cancellable();
        perform(&self.token(token).operation(), &spec)
    }
}

#[track_caller]
fn check(value: u64) {
    assert!(
        value <= Sequencer::MAX,
        "a sequencer counts to 2^63 - 1, not to {value}"
    );
}

impl Default for Sequencer {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Sequencer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sequencer")
            .field("value", &self.get())
            .finish()
    }
}

/// A value that a [`Sequencer`] may reach; see [`Sequencer::token`].
#[derive(Clone, Copy)]
pub struct SequencerToken<'a> {
    sequencer: &'a Sequencer,
    value: u64,
}

impl<'a> SequencerToken<'a> {
    /// The value.
    pub fn value(&self) -> u64 {
        self.value
    }

    /// Whether the counter has reached it.
    pub fn is_reached(&self) -> bool {
        self.sequencer.has_reached(self.value)
    }

    pub(crate) fn operation(&self) -> SequencerWait<'a> {
        SequencerWait {
            place: Waiting {
                links: HeapLinks::new(),
                node: Node::new(),
            },
            token: *self,
        }
    }
}

impl fmt::Debug for SequencerToken<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SequencerToken")
            .field("value", &self.value)
            .field("is_reached", &self.is_reached())
            .finish()
    }
}

/// One wait for a value.
pub(crate) struct SequencerWait<'a> {
    place: Waiting,
    token: SequencerToken<'a>,
}

impl SequencerWait<'_> {
    pub(super) fn value(&self) -> u64 {
        self.token.value
    }

    pub(super) fn is_reached(&self) -> bool {
        self.token.is_reached()
    }

    /// As `enlist`, but passes also if `passes` says so under the lock.
    ///
    /// # Safety
    ///
    /// As for [`Operation::enlist`].
    pub(super) unsafe fn enlist_unless(
        &self,
        passes: impl Fn() -> bool,
        waiter: &Waiter,
        place: u32,
    ) -> Enlisted<()> {
        let sequencer = self.token.sequencer;
        let mut line = sequencer.line.lock();
        // Acquire, here and below: as in `get`, if it is reached.
        let mut now = sequencer.word.load(Ordering::Acquire);
        loop {
            if count_of(now) >= self.token.value || passes() {
                return if waiter.take_oneself(place) {
                    Enlisted::Done(())
                } else {
                    Enlisted::Lost
                };
            }
            // With the bit set, who moves the counter comes to the lock after us.
            if now & WAITERS != 0 {
                break;
            }
            match sequencer.word.compare_exchange_weak(
                now,
                now | WAITERS,
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => break,
                Err(seen) => now = seen,
            }
        }
        self.place.node.belongs_to(waiter, place);
        // SAFETY: the caller's promise. The pointer is good for the whole place.
        unsafe { line.insert(NonNull::from(&self.place).cast(), self.token.value) };
        Enlisted::Linked
    }
}

// SAFETY: the one place is linked only into the sequencer's line, whose lock all
// claimants hold, and `delist` takes.
unsafe impl Operation for SequencerWait<'_> {
    type Output = ();

    fn attempt(&self) -> Option<()> {
        self.is_reached().then_some(())
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<()> {
        // SAFETY: the caller's promise.
        unsafe { self.enlist_unless(|| false, waiter, place) }
    }

    fn delist(&self) -> bool {
        let sequencer = self.token.sequencer;
        let mut line = sequencer.line.lock();
        let linked = self.place.links.is_linked();
        if linked {
            // SAFETY: linked only by `enlist`, into this heap.
            unsafe { line.remove(NonNull::from(&self.place).cast()) };
            sequencer.line_may_be_empty(&line);
        }
        linked
    }

    fn accept(&self) -> Option<()> {
        Some(())
    }

    fn pass_on(&self) {} // it takes nothing along
}
