//! A set of descriptors that the kernel watches, and a way to ring at it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What happened to a descriptor, as the kernel tells it.
pub(crate) type EpollEvent = libc::epoll_event;

/// An event that nothing has been written to.
pub(crate) const NO_EVENT: EpollEvent = EpollEvent { events: 0, u64: 0 };

/// Reading may go on; writing may; the peer, or both sides, said that no more
/// comes; something went wrong.
pub(crate) const IN: u32 = libc::EPOLLIN as u32;
pub(crate) const PRIORITY: u32 = libc::EPOLLPRI as u32;
pub(crate) const OUT: u32 = libc::EPOLLOUT as u32;
pub(crate) const READ_END: u32 = libc::EPOLLRDHUP as u32;
pub(crate) const HANG_UP: u32 = libc::EPOLLHUP as u32;
pub(crate) const FAULT: u32 = libc::EPOLLERR as u32;

/// `epoll_pwait2` cannot be had.
static WITHOUT_PWAIT2: AtomicBool = AtomicBool::new(false);

/// One epoll instance.
pub(crate) struct Epoll(OwnedFd);

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointers.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: a new descriptor that nobody else has.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Watches `fd` for changes in either direction; each event has `token`.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let events = IN | PRIORITY | OUT | READ_END | libc::EPOLLET as u32;
        let mut event = EpollEvent { events, u64: token };
        // SAFETY: both descriptors are open, and the event lives for the call.
        check(unsafe {
            libc::epoll_ctl(
                self.0.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                fd.as_raw_fd(),
                &mut event,
            )
        })?;
        Ok(())
    }

    /// Ends that; no later `wait` returns an event of it.
    pub(crate) fn delete(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let mut event = NO_EVENT;
        // SAFETY: as in `add`.
        check(unsafe {
            libc::epoll_ctl(
                self.0.as_raw_fd(),
                libc::EPOLL_CTL_DEL,
                fd.as_raw_fd(),
                &mut event,
            )
        })?;
        Ok(())
    }

    /// Waits for events, at most for `timeout`; how many there are.
    ///
    /// A signal ends it early, with none.
    pub(crate) fn wait(&self, events: &mut [EpollEvent], timeout: Option<Duration>) -> usize {
        // Relaxed: found out again if it is not seen.
        if WITHOUT_PWAIT2.load(Ordering::Relaxed) {
            return self.wait_ms(events, timeout);
        }
        let spec = timeout.map(|time| libc::timespec {
            tv_sec: time.as_secs().min(i64::MAX as u64 / 4) as _,
            tv_nsec: time.subsec_nanos() as _,
        });
        let spec_ptr = spec.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let most = events.len().min(i32::MAX as usize) as libc::c_int;
        // SAFETY: the events are writable for as many as we say; `spec_ptr` is
        // null or points to a live timespec.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.0.as_raw_fd(),
                events.as_mut_ptr(),
                most,
                spec_ptr,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        if count >= 0 {
            return count as usize;
        }
        if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
            return 0;
        }
        // Too old a kernel; or a filter of system calls that does not know this one,
        // and says EPERM.
        WITHOUT_PWAIT2.store(true, Ordering::Relaxed);
        self.wait_ms(events, timeout)
    }

    /// The same before Linux 5.11: in milliseconds, rounded up.
    #[cold]
    fn wait_ms(&self, events: &mut [EpollEvent], timeout: Option<Duration>) -> usize {
        let ms = timeout.map_or(-1, |time| {
            i32::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
        });
        let most = events.len().min(i32::MAX as usize) as libc::c_int;
        // SAFETY: as in `wait`.
        let count = unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), most, ms) };
        count.max(0) as usize
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// An eventfd: rung by one thread, watched by another.
///
/// Nobody reads it: who watches wants the edge. Its counter would overflow after
/// 2^64 rings.
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointers.
        let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: a new descriptor that nobody else has.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(crate) fn ring(&self) {
        let one = 1u64;
        // SAFETY: eight readable bytes. It cannot fail: see the counter above.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
