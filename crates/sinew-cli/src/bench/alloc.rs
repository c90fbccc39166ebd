//! A global allocator that can count.
//!
//! It is always installed, since an allocator can't be chosen at run time; while
//! it does not count it costs one load of a flag that nobody writes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static COUNTING: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);

/// The system allocator with a counter of allocations and reallocations.
pub struct Counting;

/// Allocations that all threads of this process made while `work` ran.
pub fn count_during(work: impl FnOnce()) -> u64 {
    let before = COUNT.load(Ordering::Relaxed);
    // SeqCst: the other threads get to see the flag at some point anyhow; the
    // work is long enough for a few missed allocations not to matter.
    COUNTING.store(true, Ordering::SeqCst);
    work();
    COUNTING.store(false, Ordering::SeqCst);
    COUNT.load(Ordering::Relaxed) - before
}

#[inline]
fn count() {
    if COUNTING.load(Ordering::Relaxed) {
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every method hands its arguments to `System` unchanged, which keeps
// the contract of `GlobalAlloc`; counting touches only atomics and does not
// allocate.
unsafe impl GlobalAlloc for Counting {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps `alloc`'s contract, which is System's.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: as in `alloc`; `ptr` came from System, since all of ours do.
        unsafe { System.realloc(ptr, layout, new_size) }
    }

    #[inline]
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as in `realloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_counted_only_while_asked_for() {
        let counted = count_during(|| {
            for i in 0..100 {
                std::hint::black_box(Box::new(i));
            }
        });
        // Other tests run beside this one, so there may be more.
        assert!(counted >= 100);
    }
}
