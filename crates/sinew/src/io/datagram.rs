//! Datagrams, with the addresses that they come from and go to.

use super::transfer::{Recv, Send};
use crate::reactor::{Call, Direction, How, Source, call};
use io_uring::{opcode, squeue, types};
use socket2::{SockAddr, SockAddrStorage};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::panic::Location;

type At = &'static Location<'static>;

/// Receives a datagram; what does not fit into `into` is lost.
pub(crate) fn recv(source: &Source, into: &mut [u8], flags: i32, at: At) -> io::Result<usize> {
    let how = How::of(source, Direction::Read, at);
    let tells = false;
    loop {
        let count = call::make(source, &how, &mut Recv::new(into, flags, tells))?;
        if !is_an_end(source, count) {
            return Ok(count);
        }
    }
}

/// The same, and where it comes from.
pub(crate) fn recv_from(
    source: &Source,
    into: &mut [u8],
    flags: i32,
    at: At,
) -> io::Result<(usize, SockAddr)> {
    let how = How::of(source, Direction::Read, at);
    loop {
        let (count, from) = call::make(source, &how, &mut RecvFrom::new(into, flags))?;
        if !is_an_end(source, count) {
            return Ok((count, from));
        }
    }
}

/// The same from a socket that may have been shut down: then it is an empty datagram
/// from nobody, as a call that blocks has it.
pub(crate) fn recv_from_or_end(
    source: &Source,
    into: &mut [u8],
    flags: i32,
    at: At,
) -> io::Result<(usize, SockAddr)> {
    let how = How::of(source, Direction::Read, at);
    loop {
        let mut recv = RecvOrEnd(RecvFrom::new(into, flags));
        let (count, from) = call::make(source, &how, &mut recv)?;
        if !is_an_end(source, count) {
            return Ok((count, from));
        }
    }
}

/// Whether nothing was received because this program has closed the socket: a
/// datagram may be empty, so the count alone does not tell. The next call says it.
fn is_an_end(source: &Source, count: usize) -> bool {
    count == 0 && source.is_closed()
}

/// Sends a datagram by a Unix socket, to the one that it is connected to.
///
/// A ring must not do that: the kernel has taken the bytes already when it finds the
/// other side full, and when there is room it sends the rest: an empty datagram.
pub(crate) fn send_within(source: &Source, from: &[u8], at: At) -> io::Result<usize> {
    let how = How::of(source, Direction::Write, at);
    call::make(source, &how, &mut SendHere(from))
}

/// Sends a datagram to `to`, by UDP.
pub(crate) fn send_to(source: &Source, from: &[u8], to: &SockAddr, at: At) -> io::Result<usize> {
    let how = How::of(source, Direction::Write, at);
    call::make(source, &how, &mut SendTo::new(from, to))
}

fn moved(result: isize) -> io::Result<usize> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result as usize)
    }
}

/// What an entry of a ring points to, besides the bytes and the address.
struct Envelope {
    part: libc::iovec,
    header: libc::msghdr,
}

impl Envelope {
    fn empty() -> Self {
        // SAFETY: all zeros is a message without anything.
        unsafe { std::mem::zeroed() }
    }

    /// The header of a message with these bytes and this address.
    fn fill(
        &mut self,
        bytes: (*mut u8, usize),
        address: (*mut libc::c_void, libc::socklen_t),
    ) -> *mut libc::msghdr {
        self.part.iov_base = bytes.0.cast();
        self.part.iov_len = bytes.1;
        self.header.msg_iov = &mut self.part;
        self.header.msg_iovlen = 1;
        self.header.msg_name = address.0;
        self.header.msg_namelen = address.1;
        &mut self.header
    }
}

/// `recvfrom(2)`.
struct RecvFrom<'a> {
    into: &'a mut [u8],
    /// Such as `MSG_PEEK`.
    flags: i32,
    address: SockAddrStorage,
    envelope: Envelope,
}

impl<'a> RecvFrom<'a> {
    fn new(into: &'a mut [u8], flags: i32) -> Self {
        Self {
            into,
            flags,
            address: SockAddrStorage::zeroed(),
            envelope: Envelope::empty(),
        }
    }

    fn received(&mut self, count: usize, length: libc::socklen_t) -> (usize, SockAddr) {
        // The kernel tells the full length, also of what had no room.
        let length = length.min(self.address.size_of());
        let address = std::mem::replace(&mut self.address, SockAddrStorage::zeroed());
        // SAFETY: the kernel has written so much of the address; the rest is zeros.
        let from = unsafe { SockAddr::new(address, length) };
        (count, from)
    }
}

impl Call for RecvFrom<'_> {
    type Output = (usize, SockAddr);

    fn attempt(&mut self, fd: BorrowedFd<'_>) -> io::Result<Self::Output> {
        let mut length = self.address.size_of();
        // SAFETY: the bytes are writable for as long as we say, and so is the address.
        let count = moved(unsafe {
            libc::recvfrom(
                fd.as_raw_fd(),
                self.into.as_mut_ptr().cast(),
                self.into.len(),
                self.flags | libc::MSG_DONTWAIT,
                (&raw mut self.address).cast(),
                &mut length,
            )
        })?;
        Ok(self.received(count, length))
    }

    fn entry(&mut self, fd: BorrowedFd<'_>) -> Option<squeue::Entry> {
        let bytes = (self.into.as_mut_ptr(), self.into.len());
        let address = ((&raw mut self.address).cast(), self.address.size_of());
        let header = self.envelope.fill(bytes, address);
        // Unlike that of a stream it may find something at once: nothing tells after
        // one datagram whether there are more, so the kernel tries before it waits.
        let recv = opcode::RecvMsg::new(types::Fd(fd.as_raw_fd()), header);
        Some(recv.flags(self.flags as u32).build())
    }

    fn complete(&mut self, result: i32) -> Self::Output {
        self.received(result as usize, self.envelope.header.msg_namelen)
    }
}

/// `recvfrom(2)` that knows the end: a call that does not block says that it would, on
/// a socket of datagrams that was shut down, while that is ready for ever.
struct RecvOrEnd<'a>(RecvFrom<'a>);

impl Call for RecvOrEnd<'_> {
    type Output = (usize, SockAddr);

    fn attempt(&mut self, fd: BorrowedFd<'_>) -> io::Result<Self::Output> {
        match self.0.attempt(fd) {
            // After the call: what came before the end is taken first.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && is_shut(fd) => {
                Ok(self.0.received(0, 0))
            }
            done => done,
        }
    }

    fn entry(&mut self, fd: BorrowedFd<'_>) -> Option<squeue::Entry> {
        self.0.entry(fd)
    }

    fn complete(&mut self, result: i32) -> Self::Output {
        self.0.complete(result)
    }
}

/// Whether nothing will be received any more.
fn is_shut(fd: BorrowedFd<'_>) -> bool {
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLRDHUP,
        revents: 0,
    };
    // SAFETY: one entry, writable; it does not wait.
    unsafe { libc::poll(&mut poll, 1, 0) == 1 && poll.revents & libc::POLLRDHUP != 0 }
}

/// `send(2)`, never by a ring.
struct SendHere<'a>(&'a [u8]);

impl Call for SendHere<'_> {
    type Output = usize;

    fn attempt(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        let (flags, tells) = (0, false);
        let from = self.0;
        Send { from, flags, tells }.attempt(fd)
    }
}

/// `sendto(2)`.
pub(crate) struct SendTo<'a> {
    from: &'a [u8],
    to: &'a SockAddr,
    envelope: Envelope,
}

impl<'a> SendTo<'a> {
    pub(crate) fn new(from: &'a [u8], to: &'a SockAddr) -> Self {
        Self {
            from,
            to,
            envelope: Envelope::empty(),
        }
    }
}

impl Call for SendTo<'_> {
    type Output = usize;

    fn attempt(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        // SAFETY: the bytes are readable for as long as we say, and so is the address.
        moved(unsafe {
            libc::sendto(
                fd.as_raw_fd(),
                self.from.as_ptr().cast(),
                self.from.len(),
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                self.to.as_ptr().cast(),
                self.to.len(),
            )
        })
    }

    fn entry(&mut self, fd: BorrowedFd<'_>) -> Option<squeue::Entry> {
        let bytes = (self.from.as_ptr().cast_mut(), self.from.len());
        let address = (self.to.as_ptr().cast_mut().cast(), self.to.len());
        let header = self.envelope.fill(bytes, address);
        let send = opcode::SendMsg::new(types::Fd(fd.as_raw_fd()), header);
        Some(send.flags(libc::MSG_NOSIGNAL as u32).build())
    }

    fn complete(&mut self, result: i32) -> usize {
        result as usize
    }
}
