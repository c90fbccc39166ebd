//! How a plain thread waits for one descriptor: `poll(2)`, with a bell of its
//! own so that others can end the wait.
//!
//! Bells are kept when their thread ends, and given to the next: who rings may be
//! late, when the thread that it means has gone. Then somebody else's `poll` ends
//! for nothing, which is harmless; a closed descriptor's number might be
//! anybody's by then.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// What to wait for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PollFor {
    pub(crate) fd: RawFd,
    /// Reading or writing.
    pub(crate) events: i16,
}

impl PollFor {
    pub(crate) fn reading(fd: BorrowedFd<'_>) -> Self {
        Self::new(fd, libc::POLLIN | libc::POLLRDHUP)
    }

    pub(crate) fn writing(fd: BorrowedFd<'_>) -> Self {
        Self::new(fd, libc::POLLOUT)
    }

    fn new(fd: BorrowedFd<'_>, events: i16) -> Self {
        use std::os::fd::AsRawFd;
        Self {
            fd: fd.as_raw_fd(),
            events,
        }
    }
}

/// Bells whose threads have ended.
static SPARE: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

/// A bell for the calling thread; it is never closed.
pub(crate) fn take_bell() -> io::Result<RawFd> {
    let spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    if let Some(bell) = spare {
        return Ok(bell);
    }
    // SAFETY: no pointers.
    let bell = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if bell < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(bell)
}

/// Hands a bell to whoever needs one next.
pub(crate) fn give_bell(bell: RawFd) {
    SPARE
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(bell);
}

/// Ends the `poll` of the bell's thread, or the next one.
pub(crate) fn ring(bell: RawFd) {
    let one = 1u64;
    // SAFETY: eight readable bytes; a bell is never closed.
    unsafe { libc::write(bell, (&raw const one).cast(), 8) };
}

/// Whether `what` is ready, or has failed: the caller's next call will tell. Does not wait.
pub(crate) fn is_ready(what: PollFor) -> bool {
    let mut entry = libc::pollfd {
        fd: what.fd,
        events: what.events,
        revents: 0,
    };
    loop {
        // SAFETY: one live entry.
        match unsafe { libc::poll(&mut entry, 1, 0) } {
            0 => return false,
            // A signal came, even though it does not wait.
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return true,
        }
    }
}

/// Waits until `what` is ready, the bell rings, or `deadline`; true if it is
/// ready, or has failed, or was never open: the caller's next call will tell.
pub(crate) fn wait(what: PollFor, bell: RawFd, deadline: Option<Instant>) -> bool {
    let mut fds = [
        libc::pollfd {
            fd: what.fd,
            events: what.events,
            revents: 0,
        },
        libc::pollfd {
            fd: bell,
            events: libc::POLLIN,
            revents: 0,
        },
    ];
    let spec = deadline.map(|at| {
        let left = at.saturating_duration_since(Instant::now());
        libc::timespec {
            tv_sec: left.as_secs().min(i64::MAX as u64 / 4) as _,
            tv_nsec: left.subsec_nanos() as _,
        }
    });
    let spec_ptr = spec.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: two live entries; the timespec is null or alive; no signal mask.
    let count = unsafe { libc::ppoll(fds.as_mut_ptr(), 2, spec_ptr, std::ptr::null()) };
    if count > 0 && fds[1].revents != 0 {
        let mut rings = 0u64;
        // SAFETY: eight writable bytes; it does not block.
        unsafe { libc::read(bell, (&raw mut rings).cast(), 8) };
    }
    count > 0 && fds[0].revents != 0
}
