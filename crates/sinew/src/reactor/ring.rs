//! A worker's io_uring: queueing entries, and taking in completions.
//!
//! Entries are only queued; the worker hands all of a turn to the kernel at once,
//! when it runs out of ready fibers, every bounded number of switches, or when the
//! queue is full. If the kernel takes none at that moment (it is short of memory,
//! or has more completions than fit) the rest waits in a backlog, in order: an
//! entry is never dropped.
//!
//! A completion that does not fit into the ring is kept by the kernel (`NODROP`)
//! and brought by the next call.

use super::completion::{Answer, Completion};
use super::incoming::{Shots, ShotsNext};
use crate::sys::uring::{Uring, more};
use io_uring::{opcode, squeue, types};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// How many completions are taken at a time.
const BATCH: usize = 64;

/// How often one turn calls the kernel at most.
const ROUNDS: usize = 16;

/// How long to leave the kernel alone if it takes no entries.
const PAUSE: Duration = Duration::from_millis(1);

/// Answers that nobody waits for: to requests to cancel.
const NOBODY: u64 = 0;
/// The poll of the worker's bell, and of its registry.
const BELL: u64 = 1;
const REGISTRY: u64 = 2;
/// Set in the address of a [`Shots`]: completions have it clear.
const SHOTS: u64 = 4;

/// See the module header.
pub(crate) struct Ring {
    uring: Uring,
    /// What found no room, in order.
    backlog: VecDeque<squeue::Entry>,
    /// Operations whose completion has not come: for leak checks.
    in_flight: usize,
    /// Those among them whose [`Shots`] waits for the last answer alone.
    orphans: usize,
    bell: std::os::fd::RawFd,
    registry: Option<std::os::fd::RawFd>,
}

/// What a turn of the ring found.
#[derive(Clone, Copy, Default)]
pub(crate) struct Found {
    /// Completions of operations.
    pub(crate) answers: usize,
    /// The registry has events.
    pub(crate) registry: bool,
}

/// The size of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingSize {
    pub(crate) entries: u32,
    pub(crate) completions: u32,
}

impl Default for RingSize {
    fn default() -> Self {
        // 16 KiB of entries, 64 KiB of completions; a worker with more fibers in
        // flight than that has its completions kept aside by the kernel, which
        // costs it an allocation each.
        Self {
            entries: 256,
            completions: 4096,
        }
    }
}

impl Ring {
    pub(crate) fn new(size: RingSize, bell: BorrowedFd<'_>) -> io::Result<Self> {
        let mut ring = Self {
            uring: Uring::new(size.entries, size.completions)?,
            backlog: VecDeque::new(),
            in_flight: 0,
            orphans: 0,
            bell: bell.as_raw_fd(),
            registry: None,
        };
        ring.watch(ring.bell, BELL);
        Ok(ring)
    }

    /// Watches the registry from now on.
    pub(crate) fn set_registry(&mut self, registry: BorrowedFd<'_>) {
        self.registry = Some(registry.as_raw_fd());
        self.watch(registry.as_raw_fd(), REGISTRY);
    }

    fn watch(&mut self, fd: std::os::fd::RawFd, user_data: u64) {
        let entry = opcode::PollAdd::new(types::Fd(fd), libc::POLLIN as u32)
            .multi(true)
            .build()
            .user_data(user_data);
        // SAFETY: it points to nothing.
        unsafe { self.queue(entry) };
    }

    /// How many operations have no completion yet.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// The box of an operation is left to the last answer, which the kernel was asked for.
    pub(super) fn add_orphan(&mut self) {
        self.orphans += 1;
    }

    /// Waits for the last answers to operations that were left to them.
    pub(crate) fn await_orphans(&mut self) {
        while self.orphans > 0 {
            self.turn(Some(None));
        }
    }

    /// Queues an operation.
    ///
    /// # Safety
    ///
    /// What the entry points to, its user data included, stays valid until its
    /// completion was taken (`reactor::completion`, invariant 1).
    pub(crate) unsafe fn push(&mut self, entry: squeue::Entry) {
        self.in_flight += 1;
        // SAFETY: the caller's promise.
        unsafe { self.queue(entry) };
    }

    /// Asks the kernel to give up the operation with this user data; its
    /// completion comes in any case.
    pub(crate) fn cancel(&mut self, user_data: u64) {
        let entry = opcode::AsyncCancel::new(user_data)
            .build()
            .user_data(NOBODY);
        // SAFETY: it points to nothing.
        unsafe { self.queue(entry) };
    }

    /// # Safety
    ///
    /// As for [`push`](Self::push).
    unsafe fn queue(&mut self, entry: squeue::Entry) {
        // SAFETY: the caller's promise.
        if self.backlog.is_empty() && unsafe { self.uring.push(&entry) } {
            return;
        }
        self.backlog.push_back(entry);
        self.make_room();
    }

    /// Hands the queue to the kernel, and refills it from the backlog.
    #[cold]
    fn make_room(&mut self) {
        while !self.backlog.is_empty() {
            if self.uring.enter().is_err() {
                return; // the worker's next turn tries again, after reaping
            }
            let before = self.backlog.len();
            self.refill();
            if self.backlog.len() == before {
                return;
            }
        }
    }

    fn refill(&mut self) {
        while let Some(entry) = self.backlog.front() {
            // SAFETY: as `push` was promised when it came.
            if !unsafe { self.uring.push(entry) } {
                return;
            }
            self.backlog.pop_front();
        }
    }

    /// Hands over what is queued and takes in what is there; waits for something
    /// if `wait` says for how long.
    ///
    /// One call may not bring all: the kernel makes a limited number of completions at a
    /// time. The rest comes with the next turn, after the fibers that were woken have
    /// run; only if there is nothing to run it is called again. The flag that there is
    /// more does not say that: it may stay up when there is nothing left.
    pub(crate) fn turn(&mut self, wait: Option<Option<Duration>>) -> Found {
        let mut found = Found::default();
        let waits = wait.is_some();
        let mut wait = wait;
        for _ in 0..ROUNDS {
            // Also an error ends the wait: EINTR; EBUSY, EAGAIN and ENOMEM go away
            // when completions are taken, or later.
            let entered = match wait.take() {
                Some(timeout) if self.backlog.is_empty() => self.uring.wait(timeout),
                _ if self.uring.has_queued() || self.uring.has_work() => self.uring.enter(),
                _ => Ok(()),
            };
            let before = self.backlog.len();
            self.refill();
            let refilled = self.backlog.len() < before && entered.is_ok();
            let some = self.reap(&mut found);
            let more = some && found.answers == 0 && self.uring.has_work();
            if waits && !some && entered.is_err() && !self.backlog.is_empty() {
                // The kernel takes nothing, and has nothing: not without a pause.
                std::thread::sleep(PAUSE);
            }
            if !more && !refilled {
                break;
            }
        }
        found
    }

    /// Takes in completions; whether there were any.
    fn reap(&mut self, found: &mut Found) -> bool {
        let mut batch = [(0, 0, 0); BATCH];
        let mut some = false;
        loop {
            let count = self.uring.reap(&mut batch);
            load_ahead(&batch[..count]);
            for &(user_data, result, flags) in &batch[..count] {
                self.arrived(user_data, Answer { result, flags }, found);
            }
            some |= count > 0;
            if count < BATCH {
                return some;
            }
        }
    }

    fn arrived(&mut self, user_data: u64, answer: Answer, found: &mut Found) {
        match user_data {
            NOBODY => {}
            BELL => {
                if !more(answer.flags) {
                    self.watch(self.bell, BELL);
                }
            }
            REGISTRY => {
                found.registry = true;
                if let (false, Some(registry)) = (more(answer.flags), self.registry) {
                    self.watch(registry, REGISTRY);
                }
            }
            shots if shots & SHOTS != 0 => {
                found.answers += 1;
                if !more(answer.flags) {
                    self.in_flight -= 1;
                }
                // SAFETY: pushed by this thread, with this mark.
                match unsafe { Shots::arrived(shots & !SHOTS, answer) } {
                    ShotsNext::GoOn => {}
                    ShotsNext::Stop => self.cancel(shots),
                    ShotsNext::Freed => self.orphans -= 1,
                }
            }
            _ => {
                found.answers += 1;
                self.in_flight -= 1;
                // SAFETY: pushed by this thread, and this is its answer.
                unsafe { Completion::arrived(user_data, answer) };
            }
        }
    }

    /// The user data of a multishot accept.
    pub(crate) fn shots_data(address: u64) -> u64 {
        debug_assert_eq!(address & 7, 0);
        address | SHOTS
    }
}

/// Starts to load what the completions concern: as in `registry`.
fn load_ahead(batch: &[(u64, i32, u32)]) {
    for then in [false, true] {
        for &(user_data, ..) in batch {
            if user_data & 7 == 0 && user_data != NOBODY {
                // SAFETY: pushed by this thread, and its answer is in the batch.
                unsafe { Completion::load_ahead(user_data, then) };
            }
        }
    }
}
