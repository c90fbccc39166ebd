//! A word to sleep on until another thread changes it.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while `*word == expected`, at most for `timeout`.
///
/// Returns on a wake, on a signal, when the time is over, or at once if the
/// word differs already: the caller looks at its word again in each case.
pub(crate) fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    let spec = timeout.map(|time| libc::timespec {
        // A timeout beyond the range of `time_t` is as good as for ever.
        tv_sec: time.as_secs().min(i64::MAX as u64 / 4) as _,
        tv_nsec: time.subsec_nanos() as _,
    });
    let spec_ptr = spec.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `word` is valid for the call's duration, and `spec_ptr` is null
    // or points to a live timespec. Every error (EAGAIN, EINTR, ETIMEDOUT)
    // means "look again", which the contract hands to the caller.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expected,
            spec_ptr,
        );
    }
}

/// Wakes one thread that sleeps on the word at `word`.
///
/// Takes an address, not a reference: the sleeper may have been released by the
/// caller's change of the word already, and its memory be gone. A private futex
/// wake hashes the address and reads nothing behind it, so a stale one is at
/// worst a spurious wake for whoever uses that address now.
pub(crate) fn wake_one(word: *const AtomicU32) {
    // SAFETY: FUTEX_WAKE with the private flag does not access the address.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word,
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1,
        );
    }
}
