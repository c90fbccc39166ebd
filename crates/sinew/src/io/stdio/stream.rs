//! A standard stream as a descriptor: moving bytes without blocking a worker.

use crate::reactor::{Call, Direction, How, Source, call};
use crate::sys::poll::{self, PollFor};
use crate::task::blocking_at;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::panic::Location;

pub(super) type At = &'static Location<'static>;

/// How much is read, and kept to be written, at once.
pub(super) const CHUNK: usize = 8 * 1024;

/// What came of a call that must not block.
enum Moved {
    Bytes(usize),
    /// A blocking call would move some.
    Ready,
}

fn moved(result: isize, fd: BorrowedFd<'_>, events: libc::c_short) -> io::Result<Moved> {
    if result >= 0 {
        return Ok(Moved::Bytes(result as usize));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EOPNOTSUPP | libc::ENOSYS) => {}
        _ => return Err(error),
    }
    let fd = fd.as_raw_fd();
    if poll::is_ready(PollFor { fd, events }) {
        Ok(Moved::Ready)
    } else {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

struct ReadNow<'a>(&'a mut [u8]);

impl Call for ReadNow<'_> {
    type Output = Moved;

    fn attempt(&mut self, fd: BorrowedFd<'_>) -> io::Result<Moved> {
        let part = libc::iovec {
            iov_base: self.0.as_mut_ptr().cast(),
            iov_len: self.0.len(),
        };
        // SAFETY: one part, writable. -1 is wherever the descriptor is.
        let result =
            unsafe { libc::preadv2(fd.as_raw_fd(), &raw const part, 1, -1, libc::RWF_NOWAIT) };
        moved(result, fd, libc::POLLIN)
    }
}

struct WriteNow<'a>(&'a [u8]);

impl Call for WriteNow<'_> {
    type Output = Moved;

    fn attempt(&mut self, fd: BorrowedFd<'_>) -> io::Result<Moved> {
        let part = libc::iovec {
            iov_base: self.0.as_ptr().cast_mut().cast(),
            iov_len: self.0.len(),
        };
        // SAFETY: one part, readable. -1 is wherever the descriptor is.
        let result =
            unsafe { libc::pwritev2(fd.as_raw_fd(), &raw const part, 1, -1, libc::RWF_NOWAIT) };
        moved(result, fd, libc::POLLOUT)
    }
}

/// A descriptor that we neither own nor may change.
pub(super) struct Stream(Source);

impl Stream {
    /// # Safety
    ///
    /// The descriptor stays open for as long as the process lives; the stream is never
    /// dropped, which would close it.
    pub(super) unsafe fn borrow(fd: RawFd) -> Self {
        // SAFETY: open, the caller promises, and never closed by us.
        Self(Source::new(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Reads some; a closed descriptor has none, as std has it.
    pub(super) fn read(&self, into: &mut [u8], at: At) -> io::Result<usize> {
        let how = How::of(&self.0, Direction::Read, at);
        let count = match call::make(&self.0, &how, &mut ReadNow(into)) {
            Ok(Moved::Bytes(count)) => Ok(count),
            Ok(Moved::Ready) => blocking_at(at, || self.read_blocking(into)),
            Err(error) => Err(error),
        };
        unless_closed(count, 0)
    }

    /// Writes some; a closed descriptor takes all, as std has it.
    pub(super) fn write(&self, from: &[u8], at: At) -> io::Result<usize> {
        let how = How::of(&self.0, Direction::Write, at);
        let count = match call::make(&self.0, &how, &mut WriteNow(from)) {
            Ok(Moved::Bytes(count)) => Ok(count),
            Ok(Moved::Ready) => blocking_at(at, || self.write_blocking(from)),
            Err(error) => Err(error),
        };
        unless_closed(count, from.len())
    }

    fn read_blocking(&self, into: &mut [u8]) -> io::Result<usize> {
        let fd = self.0.as_fd().as_raw_fd();
        // SAFETY: writable for as long as we say.
        retry(|| unsafe { libc::read(fd, into.as_mut_ptr().cast(), into.len()) })
    }

    pub(super) fn write_blocking(&self, from: &[u8]) -> io::Result<usize> {
        let fd = self.0.as_fd().as_raw_fd();
        // SAFETY: readable for as long as we say.
        retry(|| unsafe { libc::write(fd, from.as_ptr().cast(), from.len()) })
    }

    pub(super) fn write_all(&self, mut from: &[u8], at: At) -> io::Result<()> {
        while !from.is_empty() {
            match self.write(from, at)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => from = &from[count..],
            }
        }
        Ok(())
    }

    /// There is no buffer.
    pub(super) fn flush(&self, _at: At) -> io::Result<()> {
        Ok(())
    }
}

fn retry(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        let result = call();
        if result >= 0 {
            return Ok(result as usize);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// `otherwise` if there is no such descriptor.
fn unless_closed(count: io::Result<usize>, otherwise: usize) -> io::Result<usize> {
    match count {
        Err(error) if error.raw_os_error() == Some(libc::EBADF) => Ok(otherwise),
        count => count,
    }
}
