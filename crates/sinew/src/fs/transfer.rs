//! Moving bytes between memory and a file.
//!
//! A fiber first asks for what the kernel can do without waiting (`RWF_NOWAIT`): what
//! is in the page cache is read at once, by this one call. The kernel moves the file's
//! position only with bytes that were moved, so an attempt that failed leaves no trace.
//!
//! What would wait is done by the ring of the worker, but only where the file's own
//! position does not matter: a ring reads the position when it begins and writes it
//! when it ends, without the lock that the system calls take, so two writers by one
//! file would write to the same place. Those go to the blocking pool.

use super::nature::{Nature, Ready};
use crate::fiber::WaitReason;
use crate::reactor::{Direction, How, call};
use crate::sched::switch;
use crate::task::blocking;
use crate::wait::point;
use io_uring::{opcode, squeue, types};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::panic::Location;

/// More is copied on the pool: it would keep the worker for longer than the way
/// there takes.
const MOST_AT_ONCE: usize = 1 << 20;
/// As many parts as a call takes.
const MOST_PARTS: usize = 1024;

/// Where in the file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Its own position, which moves.
    Position,
    /// So many bytes from its begin.
    Offset(i64),
}

impl Place {
    /// # Errors
    ///
    /// `InvalidInput` beyond what the kernel can count, as std has it.
    pub(super) fn at(offset: u64) -> io::Result<Self> {
        match i64::try_from(offset) {
            Ok(offset) => Ok(Self::Offset(offset)),
            Err(_) => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
    }

    /// As the calls have it.
    fn offset(self) -> i64 {
        match self {
            Self::Position => -1,
            Self::Offset(offset) => offset,
        }
    }
}

/// Bytes to move, one way or the other.
pub(super) trait Transfer: Send {
    const DIRECTION: Direction;

    /// How many bytes.
    fn size(&self) -> usize;

    /// Moves what this flag lets it, such as `RWF_NOWAIT`.
    fn at_once(&mut self, fd: BorrowedFd<'_>, place: Place, flag: i32) -> isize;

    /// Moves some, waiting if need be.
    fn wait(&mut self, fd: BorrowedFd<'_>, place: Place) -> isize;

    /// How a ring does it. Points into `self`, and to what that borrows.
    fn entry(&mut self, fd: BorrowedFd<'_>, place: Place) -> squeue::Entry;
}

/// Reads.
pub(super) struct Reading<'a, 'b>(pub(super) &'a mut [IoSliceMut<'b>]);

impl Reading<'_, '_> {
    /// `IoSliceMut` is an `iovec`, std promises.
    fn parts(&mut self) -> (*const libc::iovec, libc::c_int) {
        let count = self.0.len().min(MOST_PARTS);
        (self.0.as_mut_ptr().cast(), count as libc::c_int)
    }
}

impl Transfer for Reading<'_, '_> {
    const DIRECTION: Direction = Direction::Read;

    fn size(&self) -> usize {
        self.0.iter().map(|part| part.len()).sum()
    }

    fn at_once(&mut self, fd: BorrowedFd<'_>, place: Place, flag: i32) -> isize {
        let (fd, offset) = (fd.as_raw_fd(), place.offset());
        let (parts, count) = self.parts();
        // SAFETY: the parts are writable.
        unsafe { libc::preadv2(fd, parts, count, offset, flag) }
    }

    fn wait(&mut self, fd: BorrowedFd<'_>, place: Place) -> isize {
        let (parts, count) = self.parts();
        match place {
            // SAFETY: the parts are writable.
            Place::Position => unsafe { libc::readv(fd.as_raw_fd(), parts, count) },
            // SAFETY: as above.
            Place::Offset(at) => unsafe { libc::preadv64(fd.as_raw_fd(), parts, count, at) },
        }
    }

    fn entry(&mut self, fd: BorrowedFd<'_>, place: Place) -> squeue::Entry {
        let (parts, count) = self.parts();
        let read = opcode::Readv::new(types::Fd(fd.as_raw_fd()), parts, count as u32);
        read.offset(place.offset() as u64).build()
    }
}

/// Writes.
pub(super) struct Writing<'a, 'b>(pub(super) &'a [IoSlice<'b>]);

impl Writing<'_, '_> {
    /// `IoSlice` is an `iovec`, std promises.
    fn parts(&self) -> (*const libc::iovec, libc::c_int) {
        let count = self.0.len().min(MOST_PARTS);
        (self.0.as_ptr().cast(), count as libc::c_int)
    }
}

impl Transfer for Writing<'_, '_> {
    const DIRECTION: Direction = Direction::Write;

    fn size(&self) -> usize {
        self.0.iter().map(|part| part.len()).sum()
    }

    fn at_once(&mut self, fd: BorrowedFd<'_>, place: Place, flag: i32) -> isize {
        let (fd, offset) = (fd.as_raw_fd(), place.offset());
        let (parts, count) = self.parts();
        // SAFETY: the parts are readable.
        unsafe { libc::pwritev2(fd, parts, count, offset, flag) }
    }

    fn wait(&mut self, fd: BorrowedFd<'_>, place: Place) -> isize {
        let (parts, count) = self.parts();
        match place {
            // SAFETY: the parts are readable.
            Place::Position => unsafe { libc::writev(fd.as_raw_fd(), parts, count) },
            // SAFETY: as above.
            Place::Offset(at) => unsafe { libc::pwritev64(fd.as_raw_fd(), parts, count, at) },
        }
    }

    fn entry(&mut self, fd: BorrowedFd<'_>, place: Place) -> squeue::Entry {
        let (parts, count) = self.parts();
        let write = opcode::Writev::new(types::Fd(fd.as_raw_fd()), parts, count as u32);
        write.offset(place.offset() as u64).build()
    }
}

/// Moves some bytes.
///
/// # Errors
///
/// The system's, or a cancellation before anything was moved.
#[track_caller]
#[inline]
pub(super) fn make<T: Transfer>(
    file: &File,
    nature: &Nature,
    place: Place,
    mut transfer: T,
) -> io::Result<usize> {
    let running = switch::running();
    point::check_for(running)?;
    let Some(block) = running else {
        return make_slow(file, nature, place, transfer, false);
    };
    let small = transfer.size() <= MOST_AT_ONCE;
    if small {
        if let Some(done) = at_once(file, nature, place, &mut transfer) {
            call::done_at_once(block);
            return done;
        }
    }
    make_slow(file, nature, place, transfer, small)
}

/// Moves what can be moved at once; none if it would wait, or cannot be tried.
#[inline]
fn at_once<T: Transfer>(
    file: &File,
    nature: &Nature,
    place: Place,
    transfer: &mut T,
) -> Option<io::Result<usize>> {
    let flag = nature.flag_at_once(file, T::DIRECTION)?;
    let done = retry(|| transfer.at_once(file.as_fd(), place, flag));
    match done.as_ref().err().and_then(io::Error::raw_os_error) {
        Some(libc::EAGAIN) => None,
        Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL) => {
            nature.never_at_once(T::DIRECTION);
            None
        }
        _ => Some(done),
    }
}

#[track_caller]
fn make_slow<T: Transfer>(
    file: &File,
    nature: &Nature,
    place: Place,
    mut transfer: T,
    by_ring: bool,
) -> io::Result<usize> {
    let how = how(T::DIRECTION, Location::caller());
    let stream = nature.stream(file);
    // With a position the kernel has to lock it; with an offset into a stream it has
    // to say that this is an error: the ring does neither.
    if by_ring && stream.is_some() == (place == Place::Position) {
        let entry = || transfer.entry(file.as_fd(), place);
        if let Some(done) = by_ring_if_it_can(&how, entry) {
            return done.map(|moved| moved as usize);
        }
    }
    if let Some(stream) = stream.filter(|_| place == Place::Position) {
        call::make(stream, &how, &mut Ready(T::DIRECTION))?;
        // Another may be faster; only who could not say so has to block then.
        while nature.flag_at_once(file, T::DIRECTION).is_some() {
            match at_once(file, nature, place, &mut transfer) {
                Some(done) => return done,
                None => call::make(stream, &how, &mut Ready(T::DIRECTION))?,
            }
        }
    }
    blocking(|| retry(|| transfer.wait(file.as_fd(), place)))
}

/// Writes back what was written to the file, or only its bytes.
#[track_caller]
pub(super) fn sync(file: &File, only_data: bool) -> io::Result<()> {
    point::check()?;
    let how = how(Direction::Write, Location::caller());
    let entry = || {
        let flags = match only_data {
            true => types::FsyncFlags::DATASYNC,
            false => types::FsyncFlags::empty(),
        };
        let sync = opcode::Fsync::new(types::Fd(file.as_raw_fd()));
        sync.flags(flags).build()
    };
    match by_ring_if_it_can(&how, entry) {
        Some(done) => done.map(drop),
        None if only_data => blocking(|| file.sync_data()),
        None => blocking(|| file.sync_all()),
    }
}

fn how(direction: Direction, at: &'static Location<'static>) -> How {
    How {
        direction,
        reason: WaitReason::File,
        at,
        deadline: None,
        timed_out: io::ErrorKind::TimedOut,
        waits: true,
    }
}

/// Has the ring do it; none if there is none, or it won't do this.
fn by_ring_if_it_can(
    how: &How,
    mut entry: impl FnMut() -> squeue::Entry,
) -> Option<io::Result<i32>> {
    loop {
        let done = call::by_ring(how, &mut entry)?;
        let code = done.as_ref().err().and_then(io::Error::raw_os_error);
        match code {
            Some(libc::EINTR) => {}
            Some(libc::EAGAIN | libc::EOPNOTSUPP | libc::EINVAL) => return None,
            _ => return Some(done),
        }
    }
}

/// How many bytes a call moved, made again if a signal interrupted it.
fn retry(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        if let Ok(moved) = usize::try_from(call()) {
            return Ok(moved);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
