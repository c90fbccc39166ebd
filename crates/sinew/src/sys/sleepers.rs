//! How many threads sleep for a lock, told apart from the lock.
//!
//! In a table for all locks, by their addresses: who has just given a lock back
//! must not touch it any more, but has to know whether somebody sleeps for it.
//! Locks that share an entry with one that is slept for make system calls in vain
//! for as long.

use std::sync::atomic::AtomicU32;

/// One entry, on a cache line of its own.
#[repr(align(64))]
struct Entry(AtomicU32);

static TABLE: [Entry; 64] = [const { Entry(AtomicU32::new(0)) }; 64];

/// Stands in a lock for its entry; takes no room.
pub(crate) struct Sleepers(());

impl Sleepers {
    pub(crate) const fn new() -> Self {
        Self(())
    }

    /// How many sleep, or are about to, for the locks of this entry.
    #[inline]
    pub(crate) fn count(&self) -> &'static AtomicU32 {
        // Locks are parts of larger things: what differs is above their alignment.
        let address = &raw const *self as usize;
        &TABLE[(address >> 6 ^ address >> 12) % TABLE.len()].0
    }
}
