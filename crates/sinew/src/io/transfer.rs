//! The calls that move bytes, for `reactor::call`.

use crate::reactor::Call;
use io_uring::{opcode, squeue, types};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd};

/// No system call moves more.
const MOST: usize = 0x7fff_f000;

/// For a receive that is known to find nothing: the kernel need not try before it
/// waits (`IORING_RECVSEND_POLL_FIRST`).
const POLL_FIRST: u16 = 1;

fn moved(result: isize) -> io::Result<usize> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result as usize)
    }
}

fn fd_of(fd: BorrowedFd<'_>) -> types::Fd {
    types::Fd(fd.as_raw_fd())
}

/// Receives from a socket.
pub(crate) struct Recv<'a> {
    into: &'a mut [u8],
    /// Such as `MSG_PEEK`.
    flags: i32,
    /// Of a stream that says by a short answer that there is no more.
    tells: bool,
    /// The kernel need not try before it waits.
    empty: bool,
}

impl<'a> Recv<'a> {
    #[inline]
    pub(crate) fn new(into: &'a mut [u8], flags: i32, tells: bool) -> Self {
        Self {
            into,
            flags,
            tells,
            empty: false,
        }
    }
}

impl Call for Recv<'_> {
    type Output = usize;

    #[inline]
    fn attempt(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        // SAFETY: writable for as long as we say; no address is wanted. Not by libc's
        // function: as a point of `pthread_cancel` it does more (1.5 % of an echo).
        let count = unsafe {
            libc::syscall(
                libc::SYS_recvfrom,
                fd.as_raw_fd(),
                self.into.as_mut_ptr(),
                self.into.len().min(MOST),
                self.flags | libc::MSG_DONTWAIT,
                std::ptr::null_mut::<libc::sockaddr>(),
                std::ptr::null_mut::<libc::socklen_t>(),
            )
        };
        moved(count as isize)
    }

    #[inline]
    fn has_drained(&self, count: &usize) -> bool {
        self.tells && *count > 0 && *count < self.into.len().min(MOST)
    }

    #[inline]
    fn entry(&mut self, fd: BorrowedFd<'_>) -> Option<squeue::Entry> {
        let length = self.into.len().min(MOST) as u32;
        let recv = opcode::Recv::new(fd_of(fd), self.into.as_mut_ptr(), length);
        let hint = if self.empty { POLL_FIRST } else { 0 };
        Some(recv.flags(self.flags).ioprio(hint).build())
    }

    #[inline]
    fn expect_to_wait(&mut self, expect: bool) {
        self.empty = expect;
    }

    #[inline]
    fn complete(&mut self, result: i32) -> usize {
        result as usize
    }
}

/// Sends by a socket.
pub(crate) struct Send<'a> {
    pub(crate) from: &'a [u8],
    pub(crate) flags: i32,
    /// Of a stream that says by a short answer that it is full.
    pub(crate) tells: bool,
}

impl Call for Send<'_> {
    type Output = usize;

    #[inline]
    fn attempt(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        // SAFETY: readable for as long as we say; to whom it is connected. By the
        // system call itself, as above.
        let count = unsafe {
            libc::syscall(
                libc::SYS_sendto,
                fd.as_raw_fd(),
                self.from.as_ptr(),
                self.from.len().min(MOST),
                self.flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                std::ptr::null::<libc::sockaddr>(),
                0 as libc::socklen_t,
            )
        };
        moved(count as isize)
    }

    #[inline]
    fn has_drained(&self, count: &usize) -> bool {
        self.tells && *count < self.from.len().min(MOST)
    }

    #[inline]
    fn entry(&mut self, fd: BorrowedFd<'_>) -> Option<squeue::Entry> {
        let length = self.from.len().min(MOST) as u32;
        let send = opcode::Send::new(fd_of(fd), self.from.as_ptr(), length);
        Some(send.flags(self.flags | libc::MSG_NOSIGNAL).build())
    }

    #[inline]
    fn complete(&mut self, result: i32) -> usize {
        result as usize
    }
}

/// A message with its parts, for the calls that take one.
pub(crate) struct Message {
    header: libc::msghdr,
}

/// As many parts as a call takes.
const MOST_PARTS: usize = 1024;

impl Message {
    fn empty() -> Self {
        // SAFETY: all zeros is a message without anything.
        let header = unsafe { std::mem::zeroed() };
        Self { header }
    }

    fn set_parts(&mut self, parts: *const libc::iovec, count: usize) {
        self.header.msg_iov = parts.cast_mut();
        self.header.msg_iovlen = count.min(MOST_PARTS) as _;
    }
}

/// Receives into several buffers.
pub(crate) struct RecvParts<'a, 'b> {
    into: &'a mut [IoSliceMut<'b>],
    message: Message,
}

impl<'a, 'b> RecvParts<'a, 'b> {
    pub(crate) fn new(into: &'a mut [IoSliceMut<'b>]) -> Self {
        Self {
            into,
            message: Message::empty(),
        }
    }
}

impl Call for RecvParts<'_, '_> {
    type Output = usize;

    fn attempt(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        // `IoSliceMut` is an `iovec`, std promises.
        self.message
            .set_parts(self.into.as_ptr().cast(), self.into.len());
        // SAFETY: the parts are writable.
        moved(unsafe {
            libc::recvmsg(fd.as_raw_fd(), &mut self.message.header, libc::MSG_DONTWAIT)
        })
    }

    fn entry(&mut self, fd: BorrowedFd<'_>) -> Option<squeue::Entry> {
        self.message
            .set_parts(self.into.as_ptr().cast(), self.into.len());
        Some(opcode::RecvMsg::new(fd_of(fd), &mut self.message.header).build())
    }

    fn complete(&mut self, result: i32) -> usize {
        result as usize
    }
}

/// Sends from several buffers.
pub(crate) struct SendParts<'a, 'b> {
    from: &'a [IoSlice<'b>],
    message: Message,
}

impl<'a, 'b> SendParts<'a, 'b> {
    pub(crate) fn new(from: &'a [IoSlice<'b>]) -> Self {
        Self {
            from,
            message: Message::empty(),
        }
    }
}

impl Call for SendParts<'_, '_> {
    type Output = usize;

    fn attempt(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        // `IoSlice` is an `iovec`, std promises.
        self.message
            .set_parts(self.from.as_ptr().cast(), self.from.len());
        // SAFETY: the parts are readable.
        moved(unsafe {
            libc::sendmsg(
                fd.as_raw_fd(),
                &self.message.header,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        })
    }

    fn entry(&mut self, fd: BorrowedFd<'_>) -> Option<squeue::Entry> {
        self.message
            .set_parts(self.from.as_ptr().cast(), self.from.len());
        let send = opcode::SendMsg::new(fd_of(fd), &self.message.header);
        Some(send.flags(libc::MSG_NOSIGNAL as u32).build())
    }

    fn complete(&mut self, result: i32) -> usize {
        result as usize
    }
}

/// Reads from a descriptor that does not block, such as our end of a pipe.
pub(crate) struct Read<'a, 'b> {
    pub(crate) into: &'a mut [IoSliceMut<'b>],
}

impl Call for Read<'_, '_> {
    type Output = usize;

    fn attempt(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        let count = self.into.len().min(MOST_PARTS) as libc::c_int;
        // SAFETY: the parts are writable, and `iovec`s.
        moved(unsafe { libc::readv(fd.as_raw_fd(), self.into.as_ptr().cast(), count) })
    }
}

/// Writes to a descriptor that does not block.
pub(crate) struct Write<'a, 'b> {
    pub(crate) from: &'a [IoSlice<'b>],
}

impl Call for Write<'_, '_> {
    type Output = usize;

    fn attempt(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        let count = self.from.len().min(MOST_PARTS) as libc::c_int;
        // SAFETY: the parts are readable, and `iovec`s.
        moved(unsafe { libc::writev(fd.as_raw_fd(), self.from.as_ptr().cast(), count) })
    }
}
