//! Memory mappings, advice about them, and how many there may be.
//!
//! A thin layer over `mmap(2)`, `madvise(2)`, `process_madvise(2)` and
//! `mprotect(2)`: it knows nothing of stacks. Three things are worth knowing:
//!
//! - [`advise_each`] gives one piece of advice about many ranges in one call.
//!   It names this process by `PIDFD_SELF` (Linux 6.14), never by a pidfd: a
//!   pidfd opened before `fork` would let the child advise its parent's memory.
//! - A *guard region* ([`Advice::GuardInstall`], Linux 6.13) makes pages fault
//!   without splitting the mapping, as `mprotect` would, and survives
//!   [`Advice::DontNeed`] and `fork`. It keeps its page tables: only `munmap`
//!   gives those back.
//! - `munmap` in the middle of what the kernel holds as one mapping splits it,
//!   and so may fail at `vm.max_map_count`. [`Mapping::unmap`] therefore can
//!   hand the mapping back.
//!
//! Invariant 1: a [`Mapping`] owns its whole range: nobody else unmaps it or
//! maps over it, and it was mapped readable and writable.

use std::ffi::{c_int, c_long, c_void};
use std::fs::File;
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The file that says how many mappings a process may have.
const MAX_MAP_COUNT: &str = "/proc/sys/vm/max_map_count";

/// This process, where a pidfd is asked for (not in libc yet).
const PIDFD_SELF: c_int = -10001;

/// The most ranges one `process_madvise` takes (`IOV_MAX`).
const RANGES_A_CALL: usize = 1024;

/// What can be said about a range of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Advice {
    /// Forget the contents; the pages go back at once and read as zero later.
    DontNeed = libc::MADV_DONTNEED,
    /// Never back this with huge pages: one touched byte must cost one page.
    NoHugePage = libc::MADV_NOHUGEPAGE,
    /// Make every access fault (Linux 6.13; `EINVAL` before, and on locked memory).
    GuardInstall = 102,
    /// Fault all pages in for writing, as one touch of each would (Linux 5.14).
    PopulateWrite = libc::MADV_POPULATE_WRITE,
}

/// A range of addresses, laid out as the kernel's `iovec`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) len: usize,
}

/// The size of a page, a power of two.
#[inline]
pub(crate) fn page_size() -> usize {
    static PAGE: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: every thread computes the same number, and it guards nothing.
    match PAGE.load(Relaxed) {
        0 => {
            // SAFETY: sysconf takes no pointers.
            let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
            let page = usize::try_from(page).expect("the page size is known");
            assert!(page.is_power_of_two());
            PAGE.store(page, Relaxed);
            page
        }
        page => page,
    }
}

/// Private anonymous memory, readable and writable, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonZeroUsize,
    len: usize,
}

impl Mapping {
    /// Maps `len` bytes at a multiple of `align`; nothing is committed yet
    /// (`MAP_NORESERVE`), and no page of it will be a huge one.
    ///
    /// `len` must be a multiple of the page size, `align` a power of two.
    pub(crate) fn reserve(len: usize, align: usize) -> io::Result<Mapping> {
        debug_assert!(len > 0 && len % page_size() == 0 && align.is_power_of_two());
        let mapping = Mapping::map(len)?;
        // Since 6.7 the kernel puts mappings of whole 2 MiB at multiples of
        // 2 MiB, so this is the rule and what follows the exception.
        let mapping = if mapping.start() % align == 0 {
            mapping
        } else {
            drop(mapping);
            Mapping::map_with_slack(len, align)?
        };
        // Refused where the kernel has no huge pages, so that nothing is lost.
        // SAFETY: this advice changes no contents.
        let _ = unsafe { advise(mapping.span(), Advice::NoHugePage) };
        Ok(mapping)
    }

    fn map(len: usize) -> io::Result<Mapping> {
        // SAFETY: without MAP_FIXED the kernel picks an address where nothing is.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonZeroUsize::new(start as usize).expect("mmap never answers page zero");
        Ok(Mapping { start, len })
    }

    /// Maps too much and gives the ends back.
    #[cold]
    fn map_with_slack(len: usize, align: usize) -> io::Result<Mapping> {
        let total = len.checked_add(align).ok_or(io::ErrorKind::OutOfMemory)?;
        let whole = Mapping::map(total)?;
        let (low, end) = (whole.start(), whole.start() + total);
        whole.leak();
        let start = low.next_multiple_of(align);
        for (from, to) in [(low, start), (start + len, end)] {
            if from < to {
                // At vm.max_map_count this may fail: then we lose addresses
                // that no page stands behind.
                // SAFETY: `whole` owned this range (invariant 1) and was
                // leaked, and the mapping we answer does not cover it.
                unsafe { libc::munmap(from as *mut c_void, to - from) };
            }
        }
        let start = NonZeroUsize::new(start).expect("above a non-zero address");
        Ok(Mapping { start, len })
    }

    /// The lowest address.
    pub(crate) fn start(&self) -> usize {
        self.start.get()
    }

    /// How many bytes are mapped.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The whole of it.
    pub(crate) fn span(&self) -> Span {
        Span {
            start: self.start(),
            len: self.len,
        }
    }

    /// Unmaps, or hands the mapping back if the kernel refused.
    pub(crate) fn unmap(self) -> Result<(), (Mapping, io::Error)> {
        // SAFETY: we own the range (invariant 1) and give it up if this succeeds.
        if unsafe { libc::munmap(self.start() as *mut c_void, self.len) } == 0 {
            self.leak();
            Ok(())
        } else {
            let error = io::Error::last_os_error();
            Err((self, error))
        }
    }

    /// Leaves the memory mapped until the process ends.
    pub(crate) fn leak(self) {
        std::mem::forget(self);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // A refusal (see `unmap`) leaks the range, which harms nobody.
        // SAFETY: we own the range (invariant 1), and it ends with us.
        unsafe { libc::munmap(self.start() as *mut c_void, self.len) };
    }
}

/// Gives `advice` about one range.
///
/// # Safety
///
/// The caller owns the range, and with [`Advice::DontNeed`] or
/// [`Advice::GuardInstall`] nobody needs its contents any more.
pub(crate) unsafe fn advise(span: Span, advice: Advice) -> io::Result<()> {
    // SAFETY: what the advice does to the range, the caller agreed to.
    let rc = unsafe { libc::madvise(span.start as *mut c_void, span.len, advice as c_int) };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Gives `advice` about each range, as many as possible in one system call.
///
/// # Errors
///
/// How many ranges from the front were done before the one that was refused.
///
/// # Safety
///
/// As for [`advise`], for each range.
pub(crate) unsafe fn advise_each(spans: &[Span], advice: Advice) -> Result<(), (usize, io::Error)> {
    let mut done = 0;
    while done < spans.len() {
        let part = &spans[done..(done + RANGES_A_CALL).min(spans.len())];
        // SAFETY: `Span` is laid out as `iovec`, `part` outlives the call, and
        // what the advice does to the ranges, the caller agreed to.
        let rc = unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                c_long::from(PIDFD_SELF),
                part.as_ptr(),
                part.len(),
                c_long::from(advice as c_int),
                0 as c_long,
            )
        };
        let Ok(mut bytes) = usize::try_from(rc) else {
            return Err((done, io::Error::last_os_error()));
        };
        // The answer counts bytes up to the first refusal; an error only comes
        // when nothing was done. So after a short answer we ask again, and the
        // next call names the reason.
        let before = done;
        for span in part {
            if bytes < span.len {
                break;
            }
            bytes -= span.len;
            done += 1;
        }
        if done == before {
            return Err((done, io::ErrorKind::WriteZero.into()));
        }
    }
    Ok(())
}

/// Makes every access to the range fault, by splitting the mapping.
///
/// # Safety
///
/// The caller owns the range, and nobody touches it any more.
pub(crate) unsafe fn protect(span: Span) -> io::Result<()> {
    // SAFETY: the caller owns the range and nobody relies on access to it.
    let rc = unsafe { libc::mprotect(span.start as *mut c_void, span.len, libc::PROT_NONE) };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// How many mappings this process may have (`vm.max_map_count`), if it is known.
pub(crate) fn max_mappings() -> Option<usize> {
    let mut text = [0; 32];
    let len = File::open(MAX_MAP_COUNT)
        .and_then(|mut file| file.read(&mut text))
        .ok()?;
    std::str::from_utf8(&text[..len]).ok()?.trim().parse().ok()
}

/// How many mappings this process has, if `/proc` can be read.
///
/// Slow (milliseconds for tens of thousands), but without allocation: it is
/// asked when memory has just been refused.
pub(crate) fn count_mappings() -> Option<usize> {
    let mut file = File::open("/proc/self/maps").ok()?;
    let mut buffer = [0; 4096];
    let mut lines = 0;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Some(lines),
            Ok(len) => lines += buffer[..len].iter().filter(|byte| **byte == b'\n').count(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_lies_at_a_multiple_of_its_alignment() {
        for (len, align) in [(1 << 16, 1 << 16), (1 << 20, 1 << 26), (1 << 26, 1 << 21)] {
            let mapping = Mapping::reserve(len, align).unwrap();
            assert_eq!(mapping.start() % align, 0);
            assert_eq!(mapping.len(), len);
            // SAFETY: both addresses lie in our mapping, which is writable.
            unsafe {
                ptr::write_volatile(mapping.start() as *mut u8, 1);
                ptr::write_volatile((mapping.start() + len - 1) as *mut u8, 1);
            }
        }
    }

    #[test]
    fn advice_in_one_call_reaches_every_range() {
        let page = page_size();
        let mapping = Mapping::reserve(4000 * page, page).unwrap();
        let spans: Vec<Span> = (0..2000)
            .map(|i| Span {
                start: mapping.start() + 2 * i * page,
                len: page,
            })
            .collect();
        for span in &spans {
            // SAFETY: the address lies in our mapping, which is writable.
            unsafe { ptr::write_volatile(span.start as *mut u8, 7) };
        }
        // SAFETY: the ranges lie in our mapping; we need no contents.
        if let Err((done, error)) = unsafe { advise_each(&spans, Advice::DontNeed) } {
            assert_eq!(
                done, 0,
                "only a kernel without PIDFD_SELF may refuse: {error}"
            );
            return;
        }
        for span in &spans {
            // SAFETY: as above.
            assert_eq!(unsafe { ptr::read_volatile(span.start as *const u8) }, 0);
        }
    }

    #[test]
    fn a_refusal_says_how_many_ranges_were_done() {
        let page = page_size();
        let mapping = Mapping::reserve(4 * page, page).unwrap();
        let good = Span {
            start: mapping.start(),
            len: page,
        };
        let odd = Span {
            start: mapping.start() + 1,
            len: page,
        };
        // SAFETY: the ranges lie in our mapping; we need no contents.
        let (done, error) = unsafe { advise_each(&[good, odd], Advice::DontNeed) }.unwrap_err();
        assert!(done == 1 || error.raw_os_error() != Some(libc::EINVAL));
    }

    #[test]
    fn the_limit_on_mappings_is_above_their_number() {
        if let (Some(now), Some(max)) = (count_mappings(), max_mappings()) {
            assert!(0 < now && now <= max, "{now} of {max}");
        }
    }
}
