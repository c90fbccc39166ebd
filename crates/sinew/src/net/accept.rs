//! Taking a connection.

use crate::reactor::{Call, Source};
use crate::sys::poll::{self, PollFor};
use io_uring::{opcode, squeue, types};
use socket2::{SockAddr, SockAddrStorage, SockRef};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `accept4(2)`.
pub(super) struct Accept<'a> {
    source: &'a Source,
    address: SockAddrStorage,
    length: libc::socklen_t,
    /// It was tried before: who tries again was told that there is one.
    tried: bool,
}

impl<'a> Accept<'a> {
    pub(super) fn new(source: &'a Source) -> Self {
        let address = SockAddrStorage::zeroed();
        Self {
            source,
            length: address.size_of(),
            address,
            tried: false,
        }
    }

    fn address_ptr(&mut self) -> *mut libc::sockaddr {
        self.length = self.address.size_of();
        (&raw mut self.address).cast()
    }

    fn accepted(&mut self, fd: i32) -> (OwnedFd, SockAddr) {
        // SAFETY: the kernel has just made it for us.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let address = std::mem::replace(&mut self.address, SockAddrStorage::zeroed());
        // SAFETY: the kernel has written so much of the address.
        let address = unsafe { SockAddr::new(address, self.length) };
        (fd, address)
    }
}

/// The oldest connection that somebody has accepted ahead and left, without asking where
/// it comes from. One that its peer has reset since cannot tell, and is none any more.
pub(super) fn take_left(source: &Source) -> Option<(OwnedFd, SockAddr)> {
    loop {
        let fd = source.take_accepted()?;
        if let Ok(address) = SockRef::from(&fd).peer_addr() {
            return Some((fd, address));
        }
    }
}

impl Call for Accept<'_> {
    type Output = (OwnedFd, SockAddr);

    fn attempt(&mut self, fd: BorrowedFd<'_>) -> io::Result<Self::Output> {
        if let Some(left) = take_left(self.source) {
            return Ok(left);
        }
        // One that finds nobody takes 1.8 µs, since the kernel makes a socket first, and
        // asking whether there is somebody 0.2. Without the question a short connection
        // took 14.0 instead of 13.2 µs.
        if !std::mem::replace(&mut self.tried, true) && !poll::is_ready(PollFor::reading(fd)) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        // There is no flag to accept without waiting. Readiness alone does not do:
        // another process may take the connection first, and we would block.
        self.source.make_nonblocking()?;
        let address = self.address_ptr();
        // SAFETY: room for any address, and its size.
        let accepted = unsafe {
            libc::accept4(
                fd.as_raw_fd(),
                address,
                &mut self.length,
                libc::SOCK_CLOEXEC,
            )
        };
        if accepted < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(self.accepted(accepted))
    }

    fn entry(&mut self, fd: BorrowedFd<'_>) -> Option<squeue::Entry> {
        let address = self.address_ptr();
        let accept = opcode::Accept::new(types::Fd(fd.as_raw_fd()), address, &mut self.length);
        Some(accept.flags(libc::SOCK_CLOEXEC).build())
    }

    fn complete(&mut self, result: i32) -> Self::Output {
        self.accepted(result)
    }

    fn tries_first(&self) -> bool {
        false // the kernel tries by itself, and needs no `O_NONBLOCK` for that
    }
}
