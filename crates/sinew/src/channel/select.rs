//! A select whose operations are known at run time only.
//!
//! It waits for a *promise* on each channel (`channel::state`): the operation is
//! chosen and cannot be taken away any more, and its typed second half
//! ([`SelectedOperation::recv`], [`SelectedOperation::send`]) completes it.

use super::chan::{At, Disconnected};
use super::end::{AnySeat, Chosen, End};
use super::error::{
    ReadyTimeoutError, RecvError, SelectTimeoutError, SendError, TryReadyError, TrySelectError,
};
use super::parcel::Parcel;
use super::promise::{RecvPermit, SendPermit};
use super::receiver::{Flavor, Receiver};
use super::seat::{Fate, Seat};
use super::sender::Sender;
use crate::error::Cancelled;
use crate::sched::polling;
use crate::time::Instant;
use crate::wait::select::{Arm, ArmRef, OnCancel, Patience, SelectSpec, Selected, select};
use crate::wait::{Deadline, Enlisted, Waiter};
use smallvec::SmallVec;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::ptr;
use std::time::Duration;

/// As many operations need no allocation.
const INLINE: usize = 8;

/// One operation.
#[derive(Clone, Copy)]
struct Entry<'a> {
    end: &'a dyn End,
    index: usize,
}

/// Operations in the order in which they were added.
///
/// An array and a `Vec`, not a small vector: the drop of that would count as a
/// use of what the operations borrow.
#[derive(Clone)]
struct Entries<'a> {
    few: [Option<Entry<'a>>; INLINE],
    /// How many places of the array were used, also by what was removed since.
    used: usize,
    more: Vec<Entry<'a>>,
}

impl<'a> Entries<'a> {
    fn new() -> Self {
        Self {
            few: [None; INLINE],
            used: 0,
            more: Vec::new(),
        }
    }

    fn iter(&self) -> impl Iterator<Item = Entry<'a>> + '_ {
        let few = self.few[..self.used].iter().flatten();
        few.chain(&self.more).copied()
    }

    fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    fn push(&mut self, entry: Entry<'a>) {
        if self.used < INLINE {
            self.few[self.used] = Some(entry);
            self.used += 1;
        } else {
            self.more.push(entry);
        }
    }

    /// False if there is none with that index.
    fn remove(&mut self, index: usize) -> bool {
        let is_it = |entry: &Entry<'_>| entry.index == index;
        for place in &mut self.few {
            if place.as_ref().is_some_and(is_it) {
                *place = None;
                return true;
            }
        }
        let at = self.more.iter().position(is_it);
        if let Some(at) = at {
            self.more.remove(at);
        }
        at.is_some()
    }
}

/// An operation while a select waits for it.
struct EntryArm<'a> {
    end: &'a dyn End,
    seat: AnySeat,
    chosen: Cell<Option<Chosen>>,
    at: At,
}

// SAFETY: the seat is linked only into lines of the channel, whose lock all
// claimants hold, and `delist` takes.
unsafe impl Arm for EntryArm<'_> {
    fn attempt(&self) -> bool {
        self.chosen.set(self.end.attempt(&self.seat, self.at));
        self.chosen.get().is_some()
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<()> {
        // SAFETY: the caller's promise.
        unsafe { self.end.enlist(&self.seat, (waiter, place), self.at) }
            .map(|chosen| self.chosen.set(Some(chosen)))
    }

    fn delist(&self) {
        self.end.delist(&self.seat);
    }

    fn accept(&self) -> bool {
        let fate = self.seat.fate();
        self.chosen.set(Some(Chosen::Channel(fate)));
        fate != Fate::Again
    }

    fn refuse(&self) {
        self.chosen.set(Some(Chosen::Cancelled));
    }

    fn meets(&self) -> bool {
        self.end.meets()
    }

    fn waive(&self) -> bool {
        let promised = Some(Chosen::Channel(Fate::Promised));
        // A message of a rendezvous has left its sender, who may have sent another one
        // since: it is not put aside for that.
        let waives = self.chosen.get() == promised && self.end.has_buffer();
        if waives {
            self.chosen.set(None);
            self.end.waive(Chosen::Channel(Fate::Promised));
        }
        waives
    }

    fn deadline(&self) -> Option<Deadline> {
        self.end.deadline()
    }
}

/// An operation while one waits until it could be done.
struct ReadyArm<'a> {
    end: &'a dyn End,
    seat: AnySeat,
}

// SAFETY: as for `EntryArm`.
unsafe impl Arm for ReadyArm<'_> {
    fn attempt(&self) -> bool {
        self.end.is_ready()
    }

    unsafe fn enlist(&self, waiter: &Waiter, place: u32) -> Enlisted<()> {
        // SAFETY: the caller's promise.
        unsafe { self.end.watch(&self.seat, (waiter, place)) }
    }

    fn delist(&self) {
        self.end.unwatch(&self.seat);
    }

    fn accept(&self) -> bool {
        true
    }

    fn refuse(&self) {}

    fn deadline(&self) -> Option<Deadline> {
        self.end.deadline()
    }
}

/// A select over operations that are added one by one.
///
/// For operations known when the program is written [`select!`](crate::select!)
/// is easier. Up to eight operations need no allocation.
///
/// ```
/// use sinew::channel::{Select, unbounded};
///
/// let (tx1, rx1) = unbounded();
/// let (_tx2, rx2) = unbounded::<u32>();
/// tx1.send("hello").unwrap();
///
/// let mut select = Select::new();
/// let first = select.recv(&rx1);
/// let second = select.recv(&rx2);
/// let operation = select.select();
/// match operation.index() {
///     i if i == first => assert_eq!(operation.recv(&rx1), Ok("hello")),
///     i if i == second => unreachable!("nothing was sent: {:?}", operation.recv(&rx2)),
///     _ => unreachable!(),
/// }
/// ```
#[derive(Clone)]
pub struct Select<'a> {
    entries: Entries<'a>,
    next_index: usize,
    biased: bool,
}

// SAFETY: of the ends it has only references, to be used through channels that
// are shareable.
unsafe impl Send for Select<'_> {}
// SAFETY: as above.
unsafe impl Sync for Select<'_> {}

impl<'a> Select<'a> {
    /// No operations yet; fair among those that are ready.
    pub fn new() -> Self {
        Self {
            entries: Entries::new(),
            next_index: 0,
            biased: false,
        }
    }

    /// No operations yet; of those that are ready the first is chosen.
    pub fn new_biased() -> Self {
        Self {
            biased: true,
            ..Self::new()
        }
    }

    /// Adds sending into `sender`; the answer is the operation's index.
    pub fn send<T>(&mut self, sender: &'a Sender<T>) -> usize {
        self.add(sender)
    }

    /// Adds receiving from `receiver`; the answer is the operation's index.
    pub fn recv<T>(&mut self, receiver: &'a Receiver<T>) -> usize {
        self.add(receiver)
    }

    fn add(&mut self, end: &'a dyn End) -> usize {
        let index = self.next_index;
        self.entries.push(Entry { end, index });
        self.next_index += 1;
        index
    }

    /// Takes an operation out again; the indices of others stay.
    ///
    /// # Panics
    ///
    /// If there is none with that index.
    #[track_caller]
    pub fn remove(&mut self, index: usize) {
        assert!(self.entries.remove(index), "no operation with this index");
    }

    /// Chooses an operation that is ready.
    ///
    /// A loop of failing tries is a place where other fibers may run: every 64th in one turn
    /// of a fiber yields.
    ///
    /// # Errors
    ///
    /// [`TrySelectError`] if none is.
    #[track_caller]
    pub fn try_select(&mut self) -> Result<SelectedOperation<'a>, TrySelectError> {
        self.choose(Patience::None, OnCancel::Ignore, Location::caller())
            .ok_or(TrySelectError)
    }

    /// Waits until an operation is ready, and chooses it. A cancellation point:
    /// if the fiber was cancelled the first operation is chosen, and completing
    /// it says so.
    ///
    /// # Panics
    ///
    /// If there are no operations.
    #[track_caller]
    pub fn select(&mut self) -> SelectedOperation<'a> {
        assert!(
            !self.entries.is_empty(),
            "no operations have been added to `Select`"
        );
        self.choose(Patience::Until(None), OnCancel::TellArm, Location::caller())
            .expect("a select without a deadline ends by an operation")
    }

    /// As [`select`](Self::select), but waits for `timeout` at most.
    ///
    /// # Errors
    ///
    /// [`SelectTimeoutError`] if no operation was ready in time.
    #[track_caller]
    pub fn select_timeout(
        &mut self,
        timeout: Duration,
    ) -> Result<SelectedOperation<'a>, SelectTimeoutError> {
        let patience = Patience::Until(Deadline::after(timeout));
        self.choose(patience, OnCancel::TellArm, Location::caller())
            .ok_or(SelectTimeoutError)
    }

    /// As [`select`](Self::select), but waits until `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`select_timeout`](Self::select_timeout).
    #[track_caller]
    pub fn select_deadline(
        &mut self,
        deadline: Instant,
    ) -> Result<SelectedOperation<'a>, SelectTimeoutError> {
        let patience = Patience::Until(Some(deadline.deadline()));
        self.choose(patience, OnCancel::TellArm, Location::caller())
            .ok_or(SelectTimeoutError)
    }

    fn choose(
        &mut self,
        patience: Patience,
        on_cancel: OnCancel,
        at: At,
    ) -> Option<SelectedOperation<'a>> {
        let arms: SmallVec<[EntryArm<'a>; INLINE]> = self
            .entries
            .iter()
            .map(|entry| EntryArm {
                end: entry.end,
                seat: Seat::new(),
                chosen: Cell::new(None),
                at,
            })
            .collect();
        let selected = self.run(arms.iter(), patience, on_cancel, at)?;
        let entry = self.entries.iter().nth(selected);
        let entry = entry.expect("it was selected");
        Some(SelectedOperation {
            end: entry.end,
            index: entry.index,
            chosen: arms[selected].chosen.get().expect("it was chosen"),
            at,
            _marker: PhantomData,
        })
    }

    /// The position of the entry that was selected.
    fn run<'b, A: Arm + 'b>(
        &self,
        arms: impl Iterator<Item = &'b A>,
        patience: Patience,
        on_cancel: OnCancel,
        at: At,
    ) -> Option<usize> {
        let arms: SmallVec<[ArmRef<'_>; INLINE]> = arms.map(|arm| ArmRef::new(arm)).collect();
        let spec = SelectSpec {
            biased: self.biased,
            patience,
            on_cancel,
            at,
        };
        match select(&arms, &spec) {
            Selected::Arm(selected) => Some(selected),
            Selected::None | Selected::Cancelled => {
                // Also if there was a limit: it may have been over from the start.
                polling::failed();
                None
            }
        }
    }

    /// The index of an operation that could be done without waiting.
    ///
    /// A loop of failing tries is a place where other fibers may run: every 64th in one turn
    /// of a fiber yields.
    ///
    /// # Errors
    ///
    /// [`TryReadyError`] if there is none.
    #[track_caller]
    pub fn try_ready(&mut self) -> Result<usize, TryReadyError> {
        self.watch(Patience::None, OnCancel::Ignore, Location::caller())
            .ok_or(TryReadyError)
    }

    /// Waits until an operation could be done without waiting; its index.
    ///
    /// When the caller does it another may have been first. A cancellation
    /// point: if the fiber was cancelled the answer is the first operation.
    ///
    /// # Panics
    ///
    /// If there are no operations.
    ///
    /// ```
    /// use sinew::channel::{Select, bounded};
    ///
    /// let (tx, rx) = bounded(1);
    /// let mut select = Select::new();
    /// select.recv(&rx);
    /// assert!(select.try_ready().is_err());
    /// tx.send(1).unwrap();
    /// assert_eq!(select.ready(), 0);
    /// assert_eq!(rx.try_recv(), Ok(1));
    /// ```
    #[track_caller]
    pub fn ready(&mut self) -> usize {
        assert!(
            !self.entries.is_empty(),
            "no operations have been added to `Select`"
        );
        self.watch(Patience::Until(None), OnCancel::TellArm, Location::caller())
            .expect("a wait without a deadline ends by an operation")
    }

    /// As [`ready`](Self::ready), but waits for `timeout` at most.
    ///
    /// # Errors
    ///
    /// [`ReadyTimeoutError`] if no operation was ready in time.
    #[track_caller]
    pub fn ready_timeout(&mut self, timeout: Duration) -> Result<usize, ReadyTimeoutError> {
        let patience = Patience::Until(Deadline::after(timeout));
        self.watch(patience, OnCancel::TellArm, Location::caller())
            .ok_or(ReadyTimeoutError)
    }

    /// As [`ready`](Self::ready), but waits until `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`ready_timeout`](Self::ready_timeout).
    #[track_caller]
    pub fn ready_deadline(&mut self, deadline: Instant) -> Result<usize, ReadyTimeoutError> {
        let patience = Patience::Until(Some(deadline.deadline()));
        self.watch(patience, OnCancel::TellArm, Location::caller())
            .ok_or(ReadyTimeoutError)
    }

    fn watch(&mut self, patience: Patience, on_cancel: OnCancel, at: At) -> Option<usize> {
        let arms: SmallVec<[ReadyArm<'a>; INLINE]> = self
            .entries
            .iter()
            .map(|entry| ReadyArm {
                end: entry.end,
                seat: Seat::new(),
            })
            .collect();
        let selected = self.run(arms.iter(), patience, on_cancel, at)?;
        self.entries.iter().nth(selected).map(|entry| entry.index)
    }
}

impl Default for Select<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Select<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Select { .. }")
    }
}

/// An operation that [`Select`] has chosen; it must be completed.
///
/// # Panics
///
/// If dropped without being completed (what was promised to it goes to others).
///
/// # Leaks
///
/// If it is forgotten (`mem::forget`) what was promised to it is lost. A receive that was
/// matched with a forgotten send, over a channel without capacity, waits for the message
/// for ever: it does not give up for its time limit or for a cancellation, since the
/// sender has been told that it will be received.
#[must_use = "a chosen operation must be completed"]
pub struct SelectedOperation<'a> {
    end: &'a dyn End,
    index: usize,
    chosen: Chosen,
    at: At,
    /// Stays where it was chosen, as crossbeam's does.
    _marker: PhantomData<*const ()>,
}

impl SelectedOperation<'_> {
    /// The index of the operation.
    pub fn index(&self) -> usize {
        self.index
    }

    #[track_caller]
    fn complete(self, address: *const (), what: &str) -> Chosen {
        assert!(
            ptr::addr_eq(self.end.address(), address),
            "passed a {what} that wasn't selected"
        );
        let chosen = self.chosen;
        std::mem::forget(self);
        chosen
    }

    /// Completes a send; `sender` is the one that was added.
    ///
    /// # Errors
    ///
    /// [`SendError`] hands the message back if nobody can receive any more, or
    /// the fiber was cancelled.
    ///
    /// # Panics
    ///
    /// If it is another sender.
    #[track_caller]
    pub fn send<T>(self, sender: &Sender<T>, message: T) -> Result<(), SendError<T>> {
        let at = self.at;
        match self.complete(sender.address(), "sender") {
            Chosen::Channel(fate) => {
                let parcel = Parcel::new(message);
                match SendPermit::new(sender.chan(), fate).send(&parcel, at) {
                    Ok(()) => Ok(()),
                    Err(unsent) => Err(unsent.hand_back_untimed(&parcel)),
                }
            }
            Chosen::Cancelled | Chosen::Moment(_) => Err(SendError::Cancelled(message)),
        }
    }

    /// Completes a receive; `receiver` is the one that was added.
    ///
    /// # Errors
    ///
    /// [`RecvError`] if the channel is empty and disconnected, or the fiber was
    /// cancelled.
    ///
    /// # Panics
    ///
    /// If it is another receiver.
    #[track_caller]
    pub fn recv<T>(self, receiver: &Receiver<T>) -> Result<T, RecvError> {
        match (
            self.complete(receiver.address(), "receiver"),
            &receiver.flavor,
        ) {
            (Chosen::Channel(fate), Flavor::Chan(chan)) => {
                let parcel = Parcel::empty();
                match RecvPermit::new(chan, fate).recv(&parcel) {
                    Ok(()) => Ok(parcel.take()),
                    Err(Disconnected) => Err(RecvError::Disconnected),
                }
            }
            (Chosen::Moment(moment), Flavor::Timer(_, make)) => Ok(make(moment)),
            _ => Err(Cancelled.into()),
        }
    }
}

impl Drop for SelectedOperation<'_> {
    fn drop(&mut self) {
        self.end.waive(self.chosen);
        if !std::thread::panicking() {
            panic!("dropped `SelectedOperation` without completing the operation");
        }
    }
}

impl fmt::Debug for SelectedOperation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("SelectedOperation { .. }")
    }
}
