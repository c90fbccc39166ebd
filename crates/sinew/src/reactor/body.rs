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
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

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
    /// The post of the first registration, for a look without the lock; changed under it.
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

    /// Takes out the registration of a registry that has ended.
    ///
    /// The last owner may do the same meanwhile, from another thread: one of the two gets
    /// it.
    pub(super) fn forget(&self, post: &Arc<Post>) {
        let gone = {
            let mut registrations = self.registrations.lock();
            let of_post = |known: &Registration| Arc::ptr_eq(&known.post, post);
            let index = registrations.iter().position(of_post);
            let gone = index.map(|index| registrations.remove(index));
            let first = registrations.first().map(|known| Arc::as_ptr(&known.post));
            let first = first.map_or(ptr::null_mut(), <*const Post>::cast_mut);
            // Relaxed: only compared, by each with its own post; see `is_watched_by`.
            // Another post may come to have the address of one that is gone, so that must
            // not stay here.
            self.first.store(first, Ordering::Relaxed);
            gone
        };
        drop(gone); // closes an alias, and the epoll set with the last that knew it
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
