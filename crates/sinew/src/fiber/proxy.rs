//! What stands for an OS thread where a fiber is expected.
//!
//! A thread gets its proxy at first use. It speaks the same two kinds of wake
//! as a fiber (`fiber::state`): a notification for a claimed wait, which the
//! thread takes before it leaves that wait, and nudges. Here "off the CPU" is
//! a futex wait on the same word.
//!
//! Invariant (saved first, for threads): `SLEEPING` is set by the thread itself
//! before it waits on the word with `SLEEPING` as the expected value; a waker
//! that changes the word makes that wait return at once or wakes it.
//!
//! A thread that waits for a descriptor sleeps in `poll(2)` instead, where a futex
//! does not reach it. Then the upper bits of the word are the number of its bell
//! (`sys::poll`) plus one: who changes the word learns by the same step how to
//! wake the thread, and needs nothing of the proxy afterwards.

use super::cancel::Nest;
use super::id;
use crate::primitive::AtomicU32;
use crate::sys::poll::{self, PollFor};
use crate::sys::{Lock, futex};
use std::cell::Cell;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SLEEPING: u32 = 1 << 0;
const NOTIFIED: u32 = 1 << 1;
const NUDGE: u32 = 1 << 2;
const TOKEN: u32 = 1 << 3;
const POLL: u32 = 1 << 4;
const WAKE: u32 = NOTIFIED | NUDGE;
/// Where the number of a bell begins; 0 is no bell.
const BELL_SHIFT: u32 = 8;
const BELL: u32 = !0 << BELL_SHIFT;

/// Ids of proxies: apart from those of fibers by the top bit.
static NEXT_ID: AtomicU64 = AtomicU64::new(id::THREAD);

/// One thread; see the module header.
pub(crate) struct ThreadProxy {
    word: AtomicU32,
    ended: AtomicBool,
    id: u64,
    name: Option<Arc<str>>,
    /// The number of its bell, or −1.
    bell: AtomicI32,
    /// The scopes on the thread's stack.
    nests: Lock<Nests>,
}

impl Drop for ThreadProxy {
    fn drop(&mut self) {
        // Relaxed: nobody else has it.
        let bell = self.bell.load(Ordering::Relaxed);
        if bell >= 0 {
            poll::give_bell(bell);
        }
    }
}

/// The innermost of a thread's nests (`fiber::cancel`, invariant 2).
pub(crate) struct Nests(Cell<*const Nest>);

// SAFETY: followed only under the lock that it is in.
unsafe impl Send for Nests {}

impl Nests {
    pub(crate) fn innermost(&self) -> *const Nest {
        self.0.get()
    }

    pub(crate) fn cell(&self) -> &Cell<*const Nest> {
        &self.0
    }
}

impl ThreadProxy {
    /// The proxy of the calling thread; `sched::current` keeps it.
    pub(crate) fn of_current_thread() -> Arc<Self> {
        let thread = std::thread::current();
        Arc::new(Self {
            word: AtomicU32::new(0),
            ended: AtomicBool::new(false),
            // Relaxed: only uniqueness matters.
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            name: thread.name().map(Arc::from),
            bell: AtomicI32::new(-1),
            nests: Lock::new(Nests(Cell::new(ptr::null()))),
        })
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub(crate) fn nests(&self) -> &Lock<Nests> {
        &self.nests
    }

    /// Whether the thread has ended, or is about to.
    pub(crate) fn has_ended(&self) -> bool {
        // Acquire: what the thread did comes before.
        self.ended.load(Ordering::Acquire)
    }

    /// The thread destroys its locals.
    pub(crate) fn set_ended(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Delivers the notification that follows a won claim.
    pub(crate) fn notify(&self) {
        self.wake_by(NOTIFIED);
    }

    /// Leaves the token that `park` takes.
    pub(crate) fn unpark(&self) {
        self.wake_by(NUDGE | TOKEN);
    }

    /// Leaves word that a future polled by this thread may go on.
    pub(crate) fn wake_poll(&self) {
        self.wake_by(NUDGE | POLL);
    }

    fn wake_by(&self, bits: u32) {
        let word: *const AtomicU32 = &self.word;
        // Release: pairs with the Acquire in `take_wakes`, `take_token` and
        // `take_poll`.
        let before = self.word.fetch_or(bits, Ordering::Release);
        if before & SLEEPING != 0 && before & WAKE == 0 {
            // After a notification the thread may be gone: see `wake_one`, and
            // bells are never closed.
            match before >> BELL_SHIFT {
                0 => futex::wake_one(word),
                bell => poll::ring((bell - 1) as RawFd),
            }
        }
    }

    /// Sleeps until woken or until `deadline`; the thread itself calls this.
    pub(crate) fn sleep(&self, deadline: Option<Instant>) {
        // Relaxed: `take_wakes` acquires what the waker wrote.
        let before = self.word.fetch_or(SLEEPING, Ordering::Relaxed);
        if before & WAKE == 0 {
            let timeout = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            futex::wait(&self.word, before | SLEEPING, timeout);
        }
        self.word.fetch_and(!SLEEPING, Ordering::Relaxed);
    }

    /// Sleeps until woken, until `deadline`, or until `what` is ready: then true.
    pub(crate) fn sleep_in_poll(&self, what: PollFor, deadline: Option<Instant>) -> bool {
        let Some(bell) = self.bell() else {
            // No descriptor to be had for a bell: looks from time to time.
            let soon = Instant::now() + Duration::from_millis(10);
            self.sleep(Some(deadline.map_or(soon, |at| at.min(soon))));
            return true;
        };
        let number = (bell as u32 + 1) << BELL_SHIFT;
        // Relaxed: `take_wakes` acquires what the waker wrote.
        let before = self.word.fetch_or(SLEEPING | number, Ordering::Relaxed);
        let ready = before & WAKE == 0 && poll::wait(what, bell, deadline);
        self.word.fetch_and(!(SLEEPING | BELL), Ordering::Relaxed);
        ready
    }

    /// The thread's own bell, from now on; none if there is none to be had.
    fn bell(&self) -> Option<RawFd> {
        // Relaxed: the thread's own.
        let known = self.bell.load(Ordering::Relaxed);
        if known >= 0 {
            return Some(known);
        }
        let bell = poll::take_bell().ok()?;
        if bell as u32 >= BELL >> BELL_SHIFT {
            poll::give_bell(bell);
            return None;
        }
        self.bell.store(bell, Ordering::Relaxed);
        Some(bell)
    }

    /// Takes the wakes that came; true if the notification was among them.
    pub(crate) fn take_wakes(&self) -> bool {
        // Acquire: pairs with `wake_by`.
        self.word.fetch_and(!WAKE, Ordering::Acquire) & NOTIFIED != 0
    }

    /// Takes the `unpark` token, if there is one.
    pub(crate) fn take_token(&self) -> bool {
        // Acquire: pairs with `wake_by`.
        self.word.fetch_and(!TOKEN, Ordering::Acquire) & TOKEN != 0
    }

    /// Takes the word of `block_on`'s waker.
    pub(crate) fn take_poll(&self) -> bool {
        // Acquire: pairs with `wake_by`.
        self.word.fetch_and(!POLL, Ordering::Acquire) & POLL != 0
    }

    /// Puts it back for an outer `block_on` of the same thread.
    pub(crate) fn return_poll(&self) {
        // Relaxed: the thread tells itself.
        self.word.fetch_or(POLL, Ordering::Relaxed);
    }
}
