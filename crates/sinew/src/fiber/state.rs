//! The state word: one atomic that says who owns a fiber.
//!
//! A wake may come before, during or after the park it is meant for, from any
//! thread. If "it waits" and "it was woken" were two words, a waker could read
//! the first before it changed and write the second too late. So they are bits
//! of one word, and each question is answered by the read-modify-write that
//! changes it.
//!
//! ```text
//!  63             16 15    14   13     12         11       10
//! +-----------------+--------+------+----------+-------+--------+ …
//! | references (48) | unused | TOLD | SHUTDOWN | HANGS | CANCEL |
//! +-----------------+--------+------+----------+-------+--------+ …
//!
//!       9       8        7       6      5      4       3       2       1          0
//! … +-------+--------+---------+------+------+-------+-------+------+----------+--------+
//!   | OWNER | HANDLE | WAITERS | LOOK | POLL | TOKEN | NUDGE | NOTE | COMPLETE | PARKED |
//! … +-------+--------+---------+------+------+-------+-------+------+----------+--------+
//! ```
//!
//! | `PARKED` | `NUDGE` | meaning                            | owner of the saved context |
//! |----------|---------|------------------------------------|----------------------------|
//! | 0        | any     | runs, or is in a queue             | that worker or queue       |
//! | 1        | 0       | off its stack, nobody woke it      | nobody: the next waker     |
//! | 1        | 1       | nudged, on its way to a worker     | who set `NUDGE`            |
//!
//! There are two kinds of wake. A *notification* ([`State::notify`]) follows a
//! won claim of a wait (`wait::outcome`): each won claim sends exactly one, and
//! the waiter does not leave its wait before it took it. So the notifier needs
//! no reference: the fiber cannot end before the notification arrived. A *nudge*
//! ([`State::nudge`]) says "look again" (an `unpark` token, a cancellation, a
//! raised priority, a `Waker`); it may come at any time, so its sender holds a
//! reference.
//!
//! A notification turns the bit `NOTE` over, and if the fiber is parked takes
//! `PARKED` away in the same step. There is at most one that the fiber has not
//! heard of, so the fiber knows it by comparing the bit with the one it has seen
//! last ([`Heard`]), and need not write the word to take it: a read-modify-write
//! less for each wait (a round trip through a channel took 257 ns with it).
//!
//! Invariant 1 (owner): only its owner touches a fiber's context and queue entry;
//! ownership moves only by the transitions of this file.
//! Invariant 2 (saved first): `PARKED` is set by the worker after the context
//! was saved, never by the fiber itself.
//! Invariant 3 (one enqueues): of all wakers of one park exactly one is told
//! [`Wake::Enqueue`], or the parking worker is told [`Park::Awake`].
//! Invariant 4 (result): the task slot belongs to the fiber until `COMPLETE` is
//! set while `HANDLE` is; from then on to the handle. Without a handle the fiber
//! empties it before it sets `COMPLETE`.
//! Invariant 5 (memory): the block is freed by whoever takes the last reference.

use crate::primitive::{AtomicU64, Ordering, fence};
use std::cell::Cell;
use std::fmt;

/// Off its stack, context saved.
const PARKED: u64 = 1 << 0;
/// Body ended and outcome stored.
const COMPLETE: u64 = 1 << 1;
/// Turned over for each claimed wait that may end.
const NOTE: u64 = 1 << 2;
/// Something else changed: look again.
const NUDGE: u64 = 1 << 3;
/// The token of `unpark`.
const TOKEN: u64 = 1 << 4;
/// A waker made by `block_on` was woken.
const POLL: u64 = 1 << 5;
/// A frame of this fiber may be marked: walk and see (`fiber::cancel`).
const LOOK: u64 = 1 << 6;
/// Somebody is, or was, in the list of those who wait for its end.
const WAITERS: u64 = 1 << 7;
/// A `JoinHandle` exists and may take the outcome.
const HANDLE: u64 = 1 << 8;
/// The handle's owner waits, in the block's own place for it.
const OWNER: u64 = 1 << 9;
/// The fiber itself was cancelled: the root of its frames is marked.
const CANCEL: u64 = 1 << 10;
/// Scopes, or a token, hang on this fiber: who cancels goes on there.
const HANGS: u64 = 1 << 11;
/// It was cancelled because its runtime ends.
const SHUTDOWN: u64 = 1 << 12;
/// It has heard of its cancellation: a point of it has said so, or it was dropped unrun.
const TOLD: u64 = 1 << 13;
/// One reference.
const REF: u64 = 1 << 16;

/// The last notification that a fiber has heard of; touched by who owns it.
pub(crate) struct Heard(Cell<bool>);

impl Heard {
    pub(crate) fn new() -> Self {
        Self(Cell::new(false))
    }

    pub(crate) fn reset(&self) {
        self.0.set(false);
    }

    /// Whether a notification has come since.
    fn is_behind(&self, word: u64) -> bool {
        (word & NOTE != 0) != self.0.get()
    }
}

/// What woke a fiber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wakes {
    /// The notification of a claimed wait.
    pub(crate) notified: bool,
    /// What else there was.
    pub(crate) seen: Snapshot,
}

/// What a waker must do next.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a fiber told to be enqueued and not enqueued never runs again"]
pub(crate) enum Wake {
    /// The fiber is ours now: put it into a queue.
    Enqueue,
    /// It runs, is queued, was woken by another, or has ended.
    Nothing,
}

/// What came of telling a fiber to look at its frames.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a fiber told to be enqueued and not enqueued never runs again"]
pub(crate) struct Told {
    pub(crate) wake: Wake,
    /// Something hangs on it that is to be told as well.
    pub(crate) hangs: bool,
}

/// What the worker that parked a fiber must do next.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a fiber that stayed awake must be run again"]
pub(crate) enum Park {
    /// Somebody else's now; do not touch it again.
    Asleep,
    /// A wake came first: it is still ours and must run again.
    Awake,
}

/// What a fiber whose outcome is stored must do next.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the outcome leaks, or its waiters wait for ever"]
pub(crate) enum Completed {
    /// Published, for a handle that takes or drops it: wake who waits.
    ForHandle(Audience),
    /// Not published: nobody wants it. Drop it, then say
    /// [`State::complete_empty`].
    OutcomeIsOurs,
}

/// Who waits for the end of a fiber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Audience {
    /// The handle's owner, in the block's own place for it.
    pub(crate) owner: bool,
    /// Somebody in the list.
    pub(crate) list: bool,
}

/// What the end of a handle leaves to do.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the outcome leaks if nobody drops it"]
pub(crate) enum Detached {
    /// The fiber goes on and will drop its outcome itself.
    Running,
    /// It had completed: the caller drops the outcome.
    OutcomeIsOurs,
}

/// A copy of the word at one moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Snapshot(u64);

impl Snapshot {
    pub(crate) fn nudged(self) -> bool {
        self.0 & NUDGE != 0
    }
    pub(crate) fn parked(self) -> bool {
        self.0 & PARKED != 0
    }
    pub(crate) fn token(self) -> bool {
        self.0 & TOKEN != 0
    }
    pub(crate) fn poll(self) -> bool {
        self.0 & POLL != 0
    }
    #[inline]
    pub(crate) fn look(self) -> bool {
        self.0 & LOOK != 0
    }
    /// The fiber itself was cancelled.
    pub(crate) fn cancelled(self) -> bool {
        self.0 & CANCEL != 0
    }
    /// It was, because its runtime ends.
    pub(crate) fn shut_down(self) -> bool {
        self.0 & SHUTDOWN != 0
    }
    /// It has heard of its cancellation.
    pub(crate) fn was_told(self) -> bool {
        self.0 & TOLD != 0
    }
    /// Scopes, or a token, hang on it.
    pub(crate) fn hangs(self) -> bool {
        self.0 & HANGS != 0
    }
    pub(crate) fn complete(self) -> bool {
        self.0 & COMPLETE != 0
    }
    /// The handle's owner waits, or did.
    pub(crate) fn owner_waits(self) -> bool {
        self.0 & OWNER != 0
    }
    pub(crate) fn references(self) -> u64 {
        self.0 / REF
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bit = |mask| self.0 & mask != 0;
        f.debug_struct("Snapshot")
            .field("parked", &self.parked())
            .field("complete", &self.complete())
            .field("note", &bit(NOTE))
            .field("nudge", &self.nudged())
            .field("token", &self.token())
            .field("poll", &self.poll())
            .field("look", &self.look())
            .field("cancelled", &self.cancelled())
            .field("shut_down", &self.shut_down())
            .field("hangs", &self.hangs())
            .field("told", &self.was_told())
            .field("waiters", &bit(WAITERS))
            .field("handle", &bit(HANDLE))
            .field("owner", &self.owner_waits())
            .field("references", &self.references())
            .finish()
    }
}

/// The word itself; see the module header.
pub(crate) struct State(AtomicU64);

impl State {
    /// The word of a block that holds no fiber: no references.
    pub(crate) fn vacant() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Turns a vacant block into a fiber with a handle and `references`.
    pub(crate) fn occupy(&self, references: u64) {
        debug_assert_eq!(self.load().references(), 0);
        // Release: what was written into the block is visible to `try_acquire`,
        // which may reach it through the registry. Nobody else changes a word
        // without references, but the monitor, late, with a LOOK meant for who was
        // here before: so a plain store loses nothing.
        self.0.store(HANDLE | (references * REF), Ordering::Release);
    }

    /// The word as it is now.
    ///
    /// Acquire: who sees `COMPLETE` sees the outcome; pairs with `complete`.
    #[inline]
    pub(crate) fn load(&self) -> Snapshot {
        Snapshot(self.0.load(Ordering::Acquire))
    }

    /// Whether a frame may be marked; the whole cost of `check_cancelled`.
    ///
    /// Relaxed: the bit carries no data; who acts on it says so by
    /// [`stop_looking`](Self::stop_looking), or walks and reads marks, which have
    /// an order of their own.
    #[inline]
    pub(crate) fn look(&self) -> bool {
        Snapshot(self.0.load(Ordering::Relaxed)).look()
    }

    /// Delivers the one notification that follows a won claim.
    ///
    /// After [`Wake::Nothing`] the caller touches the fiber no more: it may be
    /// gone already.
    #[inline]
    pub(crate) fn notify(&self) -> Wake {
        let mut now = self.0.load(Ordering::Relaxed);
        loop {
            let ours = now & PARKED != 0 && now & NUDGE == 0;
            let next = if ours { now & !PARKED } else { now } ^ NOTE;
            // Release, Acquire: as in `wake_by`.
            match self
                .0
                .compare_exchange_weak(now, next, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) if ours => return Wake::Enqueue,
                Ok(_) => return Wake::Nothing,
                Err(seen) => now = seen,
            }
        }
    }

    /// Says "look again".
    pub(crate) fn nudge(&self) -> Wake {
        self.wake_by(NUDGE)
    }

    /// Leaves the token that `park` takes.
    pub(crate) fn unpark(&self) -> Wake {
        self.wake_by(NUDGE | TOKEN)
    }

    /// Leaves word that a future polled by this fiber may go on.
    pub(crate) fn wake_poll(&self) -> Wake {
        self.wake_by(NUDGE | POLL)
    }

    /// Marks the root of the fiber's frames, and tells it, once; also unparks, so
    /// that no `park` sleeps on.
    pub(crate) fn cancel(&self) -> Told {
        self.cancel_by(CANCEL)
    }

    /// The same for the end of its runtime.
    pub(crate) fn shut_down(&self) -> Told {
        self.cancel_by(CANCEL | SHUTDOWN)
    }

    fn cancel_by(&self, bits: u64) -> Told {
        // Relaxed: who was first has told it, and what hangs on it.
        if Snapshot(self.0.load(Ordering::Relaxed)).cancelled() {
            return Told {
                wake: Wake::Nothing,
                hangs: false,
            };
        }
        self.tell_by(bits)
    }

    /// Tells the fiber that one of its frames was marked; otherwise as `cancel`.
    pub(crate) fn tell(&self) -> Told {
        self.tell_by(0)
    }

    fn tell_by(&self, bits: u64) -> Told {
        let (wake, before) = self.wake_and_look(bits | NUDGE | TOKEN | LOOK);
        Told {
            wake,
            hangs: before.hangs(),
        }
    }

    /// Lets the fiber look at its frames at its next point, without waking it.
    pub(crate) fn look_soon(&self) {
        // Relaxed: no mark was made; there is something else to be found out.
        self.0.fetch_or(LOOK, Ordering::Relaxed);
    }

    /// The same for a fiber that may wait at this moment: its wait looks now. No `park` ends.
    pub(crate) fn look_now(&self) -> Wake {
        self.wake_by(NUDGE | LOOK)
    }

    /// Notes that the fiber has heard of its cancellation; who joined it asks, once it has
    /// completed.
    pub(crate) fn note_told(&self) {
        // Relaxed: `complete` orders it for who joins.
        if !Snapshot(self.0.load(Ordering::Relaxed)).was_told() {
            self.0.fetch_or(TOLD, Ordering::Relaxed);
        }
    }

    /// Takes LOOK away: called by the fiber itself, which found no mark, and looks
    /// once more after this.
    pub(crate) fn stop_looking(&self) {
        // Acquire: who has set the bit before this marked a frame before that,
        // which our next walk sees; pairs with `tell`. Who sets it after this
        // leaves it set.
        self.0.fetch_and(!LOOK, Ordering::Acquire);
    }

    /// Says that a token hangs on the fiber, after it was left there; by everybody who
    /// gets it, also if the bit is set: a token has no lock in common with who cancels.
    pub(crate) fn hang_token(&self) {
        // Release: who cancels or ends the fiber after this sees the token. Acquire: what
        // came before it, CANCEL or COMPLETE, is seen by our next look. Without the write
        // both could miss each other.
        self.0.fetch_or(HANGS, Ordering::AcqRel);
    }

    /// Says that a nest hangs on the fiber, under the fiber's lock.
    pub(crate) fn hang(&self) {
        // Relaxed: once set it stays, and then the lock orders what follows.
        if !Snapshot(self.0.load(Ordering::Relaxed)).hangs() {
            // Release: who sees the bit sees where the fiber's root is, for which
            // it takes the lock anyway. Acquire: who told us before this marked a
            // frame before that, which our walk sees; pairs with `tell_by`.
            self.0.fetch_or(HANGS, Ordering::AcqRel);
        }
    }

    fn wake_by(&self, bits: u64) -> Wake {
        self.wake_and_look(bits).0
    }

    fn wake_and_look(&self, bits: u64) -> (Wake, Snapshot) {
        // Release: the fiber sees what we wrote before; pairs with the Acquire
        // in `take_wakes` (we set the bit even if another did so already: without
        // our write no edge would lead from us to the fiber). Acquire: if the
        // fiber is ours we see the context its worker saved; pairs with the
        // Release in `commit_park`.
        let before = Snapshot(self.0.fetch_or(bits, Ordering::AcqRel));
        let wake = if before.parked() && !before.nudged() {
            Wake::Enqueue
        } else {
            Wake::Nothing
        };
        (wake, before)
    }

    /// Gives the fiber away to its next waker; called by its worker once the
    /// context is saved (invariant 2).
    #[inline]
    pub(crate) fn commit_park(&self, heard: &Heard) -> Park {
        let mut now = self.0.load(Ordering::Relaxed);
        loop {
            if now & NUDGE != 0 || heard.is_behind(now) {
                // Relaxed: it goes on and takes its wakes itself.
                return Park::Awake;
            }
            // Release: the waker that takes over sees the saved context; pairs
            // with the Acquire in `notify` and `wake_by`.
            match self.0.compare_exchange_weak(
                now,
                now | PARKED,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Park::Asleep,
                Err(seen) => now = seen,
            }
        }
    }

    /// Whether a wake has come; for the running fiber itself, which takes it.
    #[inline]
    pub(crate) fn is_woken(&self, heard: &Heard) -> bool {
        // Relaxed: a look.
        let seen = self.0.load(Ordering::Relaxed);
        seen & NUDGE != 0 || heard.is_behind(seen)
    }

    /// Takes the wakes that came; called by the running fiber itself.
    #[inline]
    pub(crate) fn take_wakes(&self, heard: &Heard) -> Wakes {
        // Acquire: pairs with the Release of whoever notified us.
        let mut seen = self.0.load(Ordering::Acquire);
        if seen & (PARKED | NUDGE) != 0 {
            // Acquire: pairs with the Release of whoever nudged us. Release is
            // not needed: the bits we clear say nothing to others.
            seen = self.0.fetch_and(!(PARKED | NUDGE), Ordering::Acquire);
        }
        let notified = heard.is_behind(seen);
        if notified {
            heard.0.set(seen & NOTE != 0);
        }
        Wakes {
            notified,
            seen: Snapshot(seen),
        }
    }

    /// Takes the `unpark` token, if there is one; called by the fiber itself.
    pub(crate) fn take_token(&self) -> bool {
        // Acquire: what happened before `unpark` happened before our return.
        Snapshot(self.0.fetch_and(!TOKEN, Ordering::Acquire)).token()
    }

    /// Takes the word of `block_on`'s waker; called by the fiber itself.
    pub(crate) fn take_poll(&self) -> bool {
        // Acquire: the future sees what was written before `wake`.
        Snapshot(self.0.fetch_and(!POLL, Ordering::Acquire)).poll()
    }

    /// Puts it back for an outer `block_on` of the same fiber.
    pub(crate) fn return_poll(&self) {
        // Relaxed: the fiber tells itself.
        self.0.fetch_or(POLL, Ordering::Relaxed);
    }

    /// Publishes the outcome that was just stored, if there is a handle.
    ///
    /// Without one the outcome is dropped first, and the fiber completes after:
    /// so whoever waits for its end, or ends its runtime, waits for that too.
    pub(crate) fn complete(&self) -> Completed {
        let mut now = self.0.load(Ordering::Relaxed);
        loop {
            if now & HANDLE == 0 {
                // Acquire: the handle's last use comes before our drop; pairs
                // with the Release in `detach`. It does not come back.
                fence(Ordering::Acquire);
                return Completed::OutcomeIsOurs;
            }
            // Release: who sees COMPLETE sees the outcome; pairs with `load`,
            // `detach` and `announce_waiter`. Acquire: we see the waiter that
            // was announced; pairs with `announce_owner`.
            match self.0.compare_exchange_weak(
                now,
                now | COMPLETE,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(before) => return Completed::ForHandle(audience(before)),
                Err(seen) => now = seen,
            }
        }
    }

    /// Says that the fiber has ended; its outcome was dropped.
    pub(crate) fn complete_empty(&self) -> Audience {
        // AcqRel: as in `complete`.
        audience(self.0.fetch_or(COMPLETE, Ordering::AcqRel))
    }

    /// Says that the handle's owner waits in the place for it; true if it is
    /// too late because the fiber has completed.
    pub(crate) fn announce_owner(&self) -> bool {
        // Release: the fiber that completes sees the waiter in its place; pairs
        // with `complete`. Acquire: too late means that the outcome is there.
        let before = self.0.fetch_or(OWNER, Ordering::AcqRel);
        before & COMPLETE != 0
    }

    /// Says that a waiter is about to enter the list, under the list's lock;
    /// true if it is too late because the fiber has completed.
    pub(crate) fn announce_waiter(&self) -> bool {
        // Acquire: too late means that the outcome is there to be read; pairs
        // with `complete`. No Release: the list's lock publishes the node.
        let before = self.0.fetch_or(WAITERS, Ordering::Acquire);
        before & COMPLETE != 0
    }

    /// Ends the handle's interest; its reference stays.
    pub(crate) fn detach(&self) -> Detached {
        // Acquire: the outcome is ours to drop only if we see it; pairs with
        // `complete`. Release: our uses of the handle come before the fiber's
        // drop of the outcome.
        let before = self.0.fetch_and(!HANDLE, Ordering::AcqRel);
        debug_assert!(before & HANDLE != 0);
        if before & COMPLETE != 0 {
            Detached::OutcomeIsOurs
        } else {
            Detached::Running
        }
    }

    /// One more reference; the caller has one.
    pub(crate) fn acquire(&self) {
        // Relaxed: a new reference is made from an existing one, which orders
        // it before the last release already.
        self.0.fetch_add(REF, Ordering::Relaxed);
    }

    /// One more reference, unless there is none: for the registry, whose memory
    /// is mapped but whose blocks may be vacant.
    pub(crate) fn try_acquire(&self) -> bool {
        let mut now = self.0.load(Ordering::Relaxed);
        loop {
            if now / REF == 0 {
                return false;
            }
            // Acquire: pairs with `occupy`; we see the block's fields.
            match self
                .0
                .compare_exchange_weak(now, now + REF, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(seen) => now = seen,
            }
        }
    }

    /// Gives `count` references up; true if they were the last ones.
    #[must_use = "the last reference frees the block"]
    pub(crate) fn release(&self, count: u64) -> bool {
        // Release: our uses come before the free.
        let before = Snapshot(self.0.fetch_sub(count * REF, Ordering::Release));
        debug_assert!(before.references() >= count);
        if before.references() != count {
            return false;
        }
        // Acquire, as a fence because only the last one needs it: everybody
        // else's uses come before our free; pairs with the Release above.
        fence(Ordering::Acquire);
        true
    }
}

fn audience(word: u64) -> Audience {
    Audience {
        owner: word & OWNER != 0,
        list: word & WAITERS != 0,
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.load().fmt(f)
    }
}
