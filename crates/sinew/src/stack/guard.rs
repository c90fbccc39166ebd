//! Making the low end of a stack fault.
//!
//! Three ways, from cheap to dear; a pool starts with the first and steps down
//! when the kernel refuses, saying so once on stderr:
//!
//! | way        | calls             | mappings a stack | needs             |
//! |------------|-------------------|------------------|-------------------|
//! | `BATCHED`  | one for a batch   | none             | Linux 6.14        |
//! | `SINGLE`   | one a stack       | none             | Linux 6.13        |
//! | `MPROTECT` | one a stack       | two              | nothing           |
//!
//! Measured here (6.18, 2-core VM, slots of 64 / 256 KiB): a guard takes
//! 360–430 / 640 ns alone and 355 / 540 ns in batches of 64. The first touch
//! of a stack takes 1.3–1.6 µs as a fault (3.7 when the host must find the
//! page too) and 1.06–1.2 µs in a batched [`Advice::PopulateWrite`], which is
//! why [`Guards::populate`] exists.
//!
//! Splitting ways must end somewhere before `vm.max_map_count`: a process that
//! has none left can neither start threads nor, often, allocate. So we leave
//! it a sixteenth.

use std::io::{self, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::Relaxed};

use super::class::StackClass;
use super::no_stack::NoStack;
use crate::sys::map::{self, Advice, Span};

const BATCHED: u8 = 0;
const SINGLE: u8 = 1;
const MPROTECT: u8 = 2;

/// Mappings that one `mprotect` guard adds: itself and what it splits off.
const MAPPINGS_A_GUARD: usize = 2;
/// The share of `vm.max_map_count` left to the rest of the process.
const HEADROOM_SHARE: usize = 16;

/// `mprotect` guards in this process, over all pools.
static SPLITS: AtomicUsize = AtomicUsize::new(0);

/// How stacks are to be guarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum GuardChoice {
    /// The cheapest way that works.
    #[default]
    Auto,
    /// `mprotect`, as on an old kernel: a switch for tests.
    #[cfg_attr(not(test), allow(dead_code))]
    ForceMprotect,
}

/// How stacks are guarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuardKind {
    /// By guard regions, which need no mappings.
    Region,
    /// By `mprotect`, two mappings each.
    Mprotect,
    /// Some so, some so.
    Mixed,
}

/// Installs guards for one pool, and remembers which way works.
#[derive(Debug)]
pub(super) struct Guards {
    // All four are hints that any thread may set at any time: whoever reads an
    // old value makes one refused call more, or counts a stack late. They
    // publish no memory, so Relaxed is enough throughout.
    way: AtomicU8,
    any_region: AtomicBool,
    any_mprotect: AtomicBool,
    /// The most `mprotect` guards there may be in this process.
    max_splits: AtomicUsize,
}

impl Guards {
    pub(super) fn new(choice: GuardChoice) -> Guards {
        let way = match choice {
            GuardChoice::Auto => BATCHED,
            GuardChoice::ForceMprotect => MPROTECT,
        };
        Guards {
            way: AtomicU8::new(way),
            any_region: AtomicBool::new(false),
            any_mprotect: AtomicBool::new(false),
            max_splits: AtomicUsize::new(0),
        }
    }

    /// Guards each span, at most 64, in order. Answers one bit for each that
    /// got an `mprotect` guard, and on failure how many were done before.
    ///
    /// # Safety
    ///
    /// The caller owns the spans and nobody needs what is in them.
    pub(super) unsafe fn install(
        &self,
        class: StackClass,
        spans: &[Span],
    ) -> (u64, Result<(), (usize, NoStack)>) {
        debug_assert!(spans.len() <= 64);
        let (mut done, mut split) = (0, 0);
        while done < spans.len() {
            if self.way.load(Relaxed) == BATCHED {
                // SAFETY: handed on from our caller.
                match unsafe { map::advise_each(&spans[done..], Advice::GuardInstall) } {
                    Ok(()) => {
                        self.any_region.store(true, Relaxed);
                        return (split, Ok(()));
                    }
                    Err((more, _)) => {
                        done += more;
                        if more > 0 {
                            self.any_region.store(true, Relaxed);
                        }
                    }
                }
            }
            // SAFETY: handed on from our caller.
            match unsafe { self.install_one(class, spans[done]) } {
                Ok(by_mprotect) => split |= u64::from(by_mprotect) << done,
                Err(error) => return (split, Err((done, error))),
            }
            done += 1;
        }
        (split, Ok(()))
    }

    /// Guards one span, stepping down where the kernel refuses. Answers
    /// whether it took `mprotect`.
    #[cold]
    unsafe fn install_one(&self, class: StackClass, span: Span) -> Result<bool, NoStack> {
        if self.way.load(Relaxed) != MPROTECT {
            // SAFETY: handed on from our caller.
            match unsafe { map::advise(span, Advice::GuardInstall) } {
                Ok(()) => {
                    self.any_region.store(true, Relaxed);
                    // The same by process_madvise was refused a moment ago, or
                    // we would not be here with BATCHED.
                    if self.way.load(Relaxed) == BATCHED {
                        self.way.store(SINGLE, Relaxed);
                        say_single();
                    }
                    return Ok(false);
                }
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    // An old kernel never takes it; with locked memory the
                    // next stack may be luckier.
                    if !self.any_region.load(Relaxed) {
                        self.way.store(MPROTECT, Relaxed);
                    }
                    say_mprotect(&error);
                }
                Err(error) => {
                    let call = "madvise(MADV_GUARD_INSTALL)";
                    return Err(NoStack::refused(class.bytes(), call, &error));
                }
            }
        }
        let splits = SPLITS.fetch_add(1, Relaxed);
        let max = self.max_splits();
        if splits >= max {
            SPLITS.fetch_sub(1, Relaxed);
            let max_mappings = map::max_mappings().unwrap_or(0);
            return Err(NoStack::headroom(class.bytes(), splits, max_mappings));
        }
        // SAFETY: handed on from our caller.
        match unsafe { map::protect(span) } {
            Ok(()) => {
                self.any_mprotect.store(true, Relaxed);
                Ok(true)
            }
            Err(error) => {
                SPLITS.fetch_sub(1, Relaxed);
                Err(NoStack::refused(class.bytes(), "mprotect", &error))
            }
        }
    }

    /// Read anew when it seems used up: the limit can be raised while we run.
    fn max_splits(&self) -> usize {
        let max = self.max_splits.load(Relaxed);
        if SPLITS.load(Relaxed) < max {
            return max;
        }
        let max = map::max_mappings().map_or(usize::MAX, |max| {
            (max - max / HEADROOM_SHARE) / MAPPINGS_A_GUARD
        });
        self.max_splits.store(max, Relaxed);
        max
    }

    /// Notes that `splits` guards went with their mapping.
    pub(super) fn forget(splits: usize) {
        SPLITS.fetch_sub(splits, Relaxed);
    }

    /// Touches each span ahead of its first use, where one call can do it.
    ///
    /// # Safety
    ///
    /// The caller owns the spans.
    pub(super) unsafe fn populate(&self, spans: &[Span]) {
        // One call for one page gains nothing over its fault. A refusal costs
        // a fault later.
        if spans.len() > 1 && self.way.load(Relaxed) == BATCHED {
            // SAFETY: populating keeps contents, and the caller owns the spans.
            let _ = unsafe { map::advise_each(spans, Advice::PopulateWrite) };
        }
    }

    /// How stacks have been guarded so far.
    pub(super) fn kind(&self) -> GuardKind {
        let region = self.any_region.load(Relaxed);
        match (region, self.any_mprotect.load(Relaxed)) {
            (true, true) => GuardKind::Mixed,
            (true, false) => GuardKind::Region,
            (false, true) => GuardKind::Mprotect,
            (false, false) if self.way.load(Relaxed) == MPROTECT => GuardKind::Mprotect,
            (false, false) => GuardKind::Region,
        }
    }
}

fn say_single() {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        let _ = writeln!(
            io::stderr(),
            "sinew: process_madvise is refused here; stacks are guarded one call at a time"
        );
    });
}

fn say_mprotect(error: &io::Error) {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        let _ = writeln!(
            io::stderr(),
            "sinew: guard regions are refused here ({error}); stacks are guarded by mprotect, \
             two mappings each"
        );
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::map::{Mapping, page_size};

    #[test]
    fn forced_mprotect_guards_are_counted_and_marked() {
        let page = page_size();
        let mapping = Mapping::reserve(8 * page, page).unwrap();
        let spans: Vec<Span> = (0..3)
            .map(|i| Span {
                start: mapping.start() + 2 * i * page,
                len: page,
            })
            .collect();
        let guards = Guards::new(GuardChoice::ForceMprotect);
        let class = StackClass::for_size(64 << 10).unwrap();
        // SAFETY: the spans lie in our mapping, and nothing is in them.
        let (split, result) = unsafe { guards.install(class, &spans) };
        result.unwrap();
        assert_eq!(split, 0b111);
        assert_eq!(guards.kind(), GuardKind::Mprotect);
        drop(mapping);
        Guards::forget(3);
    }

    #[test]
    fn locked_memory_falls_back_to_mprotect_for_that_stack() {
        let page = page_size();
        let mapping = Mapping::reserve(8 * page, page).unwrap();
        let spans: Vec<Span> = (0..4)
            .map(|i| Span {
                start: mapping.start() + 2 * i * page,
                len: page,
            })
            .collect();
        // SAFETY: the page lies in our mapping.
        if unsafe { libc::mlock(spans[2].start as *const _, page) } != 0 {
            return; // not allowed to lock: nothing to show
        }
        let guards = Guards::new(GuardChoice::Auto);
        let class = StackClass::for_size(64 << 10).unwrap();
        // SAFETY: the spans lie in our mapping, and nothing is in them.
        let (split, result) = unsafe { guards.install(class, &spans) };
        result.unwrap();
        match guards.kind() {
            GuardKind::Mixed => assert_eq!(split, 0b100),
            GuardKind::Mprotect => assert_eq!(split, 0b1111), // an old kernel
            // Nothing was refused: ASan makes mlock do nothing.
            GuardKind::Region => assert_eq!(split, 0),
        }
        drop(mapping);
        Guards::forget(split.count_ones() as usize);
    }
}
