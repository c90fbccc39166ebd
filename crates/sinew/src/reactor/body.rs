//! What all owners of a descriptor share, and the registries that watch it keep.
//!
//! With thousands of connections each event finds what it needs in no cache, and what
//! is on other pages costs a walk through the page tables besides. So it is all in one
//! allocation: first what a call looks at and who hears of an event, in 64 bytes, then
//! what a wait needs. Not aligned to cache lines: allocating so took a microsecond more
//! for each short connection.
//!
//! Invariant (open): the descriptor is open while there is a [`Source`](super::Source)
//! that owns it; who keeps only the body must not use it.

use super::readiness::{Direction, Readiness};
use super::registry::Post;
use crate::sys::Lock;
use smallvec::SmallVec;
use std::ops::Deref;
use std::os::fd::{OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize};

/// Who watches it.
pub(super) struct Registration {
    pub(super) post: Arc<Post>,
    pub(super) slot: u32,
    /// A duplicate that was added instead: an `Async` of somebody else's descriptor may not
    /// be the only one.
    pub(super) alias: Option<OwnedFd>,
}

/// See the module header.
#[repr(C)]
pub(crate) struct Body {
    /// Nanoseconds; 0 is none.
    read_timeout: AtomicU64,
    write_timeout: AtomicU64,
    pub(super) fd: RawFd,
    /// The user wants `WouldBlock` instead of waiting.
    pub(super) never_waits: AtomicBool,
    /// The last call found no descriptor, or no memory.
    pub(super) exhausted: AtomicBool,
    /// We have set `O_NONBLOCK`, for calls that know no other way.
    pub(super) nonblocking: AtomicBool,
    readiness: Readiness,
    /// The post of the first registration, for a look without the lock: it stays.
    pub(super) first: AtomicPtr<Post>,
    /// How many sources there are of it.
    pub(super) owners: AtomicUsize,
    pub(super) registrations: Lock<SmallVec<[Registration; 1]>>,
    /// Connections that were accepted ahead, and not handed out by who did.
    pub(super) accepted: Lock<Vec<OwnedFd>>,
}

impl Body {
    /// For one owner, who sees to it that `fd` stays open.
    pub(super) fn new(fd: RawFd) -> Self {
        Self {
            read_timeout: AtomicU64::new(0),
            write_timeout: AtomicU64::new(0),
            fd,
            never_waits: AtomicBool::new(false),
            exhausted: AtomicBool::new(false),
            nonblocking: AtomicBool::new(false),
            readiness: Readiness::new(),
            first: AtomicPtr::new(ptr::null_mut()),
            owners: AtomicUsize::new(1),
            registrations: Lock::new(SmallVec::new()),
            accepted: Lock::new(Vec::new()),
        }
    }

    pub(crate) fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    pub(super) fn timeout_of(&self, direction: Direction) -> &AtomicU64 {
        match direction {
            Direction::Read => &self.read_timeout,
            Direction::Write => &self.write_timeout,
        }
    }
}

/// A readiness, with what it is part of.
pub(crate) struct Kept(pub(super) Arc<Body>);

impl Deref for Kept {
    type Target = Readiness;

    fn deref(&self) -> &Readiness {
        self.0.readiness()
    }
}
