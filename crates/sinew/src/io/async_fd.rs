//! Any descriptor, waited for as sockets are.
//!
//! The source keeps the number of a descriptor that belongs to somebody else: to the
//! value beside it. Safe code cannot close a descriptor behind a shared reference, for
//! `as_fd` lends it for as long as that reference lives; by an exclusive one it could,
//! or put another in its place. So nobody gets one but who promises not to
//! ([`Async::get_mut`]).

use super::transfer;
use crate::reactor::{Call, Direction, How, Source, call};
use crate::sys::poll::{self, PollFor};
use crate::time::Instant;
use crate::wait::{Deadline, chain};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::panic::Location;
use std::time::Duration;

/// A descriptor for whose readiness only the fiber waits: a pipe, a device, a socket of
/// another library.
///
/// It sets `O_NONBLOCK`, which is seen by whoever has a duplicate of the descriptor, and
/// takes that back when it is [taken apart](Self::into_inner). For what the
/// kernel cannot wait for, such as files, it does nothing.
///
/// It reads and writes by `read(2)` and `write(2)`, whatever `F` does for that; by
/// [`read_with`](Self::read_with) and [`write_with`](Self::write_with) anything else is
/// called.
///
/// ```
/// use std::io::{Read, Write};
/// use sinew::io::Async;
///
/// sinew::run(|| -> std::io::Result<()> {
///     let (reader, mut writer) = std::os::unix::net::UnixStream::pair()?;
///     let mut reader = Async::new(reader)?;
///     let hello = sinew::spawn(move || {
///         let mut bytes = [0; 5];
///         reader.read_exact(&mut bytes).map(|()| bytes)
///     });
///     writer.write_all(b"hello")?; // five bytes do not block
///     assert_eq!(&hello.join().unwrap()?, b"hello");
///     Ok(())
/// })
/// .unwrap();
/// ```
///
/// A descriptor of the system's, here a counter (`eventfd`):
///
/// ```
/// use sinew::io::{Async, Read, Write};
/// use std::os::fd::{FromRawFd, OwnedFd};
///
/// // SAFETY: a new descriptor that nobody else has.
/// let counter = unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) };
/// sinew::run(|| -> sinew::io::Result<()> {
///     let counter = Async::new(counter)?;
///     sinew::scope(|s| {
///         let waits = s.spawn(|| {
///             let mut count = [0; 8];
///             (&counter).read_exact(&mut count).map(|()| u64::from_ne_bytes(count))
///         });
///         (&counter).write_all(&3u64.to_ne_bytes())?;
///         assert_eq!(waits.join().unwrap()?, 3);
///         Ok(())
///     })
/// })
/// .unwrap();
/// ```
pub struct Async<F: AsFd> {
    /// Invariant: its descriptor is that of `inner`, and stays open: it is given up
    /// before `inner` is, and never closes it.
    source: ManuallyDrop<Source>,
    inner: ManuallyDrop<F>,
}

/// Waits by the kernel's own word, which a look at what it told before is not.
struct Poll(libc::c_short);

impl Call for Poll {
    type Output = ();

    fn attempt(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        if poll::is_ready(self.of(fd)) {
            Ok(())
        } else {
            Err(io::ErrorKind::WouldBlock.into())
        }
    }

    fn polled(&self, fd: BorrowedFd<'_>, _direction: Direction) -> PollFor {
        self.of(fd)
    }
}

impl Poll {
    fn of(&self, fd: BorrowedFd<'_>) -> PollFor {
        let (fd, events) = (fd.as_raw_fd(), self.0);
        PollFor { fd, events }
    }

    fn to(direction: Direction) -> Self {
        Self(match direction {
            Direction::Read => libc::POLLIN | libc::POLLPRI | libc::POLLRDHUP,
            Direction::Write => libc::POLLOUT,
        })
    }
}

/// A user's call that says `WouldBlock`.
struct With<'a, F, C> {
    inner: &'a F,
    call: C,
}

impl<F, T, C: FnMut(&F) -> io::Result<T>> Call for With<'_, F, C> {
    type Output = T;

    fn attempt(&mut self, _fd: BorrowedFd<'_>) -> io::Result<T> {
        // User code: the call goes on with the fiber that has begun it.
        chain::stay(|| (self.call)(self.inner))
    }
}

impl<F: AsFd> Async<F> {
    /// Takes over `inner`, whose descriptor does not block from now on.
    ///
    /// # Errors
    ///
    /// The system's, if that cannot be set.
    pub fn new(inner: F) -> io::Result<Self> {
        let fd = inner.as_fd().as_raw_fd();
        // SAFETY: it is open for as long as the source is there (the field's invariant),
        // and who owns it closes it: the source is given up by `release` only.
        let source = ManuallyDrop::new(Source::new(unsafe { OwnedFd::from_raw_fd(fd) }));
        source.make_nonblocking()?;
        Ok(Self {
            source,
            inner: ManuallyDrop::new(inner),
        })
    }

    /// What it was made of.
    pub fn get_ref(&self) -> &F {
        &self.inner
    }

    /// What it was made of, to change it.
    ///
    /// # Safety
    ///
    /// Its descriptor must not be closed, and no other may come into its place: this one
    /// goes on to use the number.
    pub unsafe fn get_mut(&mut self) -> &mut F {
        &mut self.inner
    }

    /// Hands back what it was made of; its descriptor blocks again, if it did.
    ///
    /// Not if it is just dropped: a duplicate may be in use.
    pub fn into_inner(self) -> F {
        let mut this = ManuallyDrop::new(self);
        // It cannot fail on an open descriptor.
        let again = this.source.make_blocking_again();
        debug_assert!(again.is_ok(), "{again:?}");
        // SAFETY: once each, for `drop` is not run.
        unsafe {
            this.release();
            ManuallyDrop::take(&mut this.inner)
        }
    }

    /// Ends the use of the descriptor.
    ///
    /// # Safety
    ///
    /// Once, and the source is not used any more.
    unsafe fn release(&mut self) {
        // SAFETY: the caller's promise.
        let source = unsafe { ManuallyDrop::take(&mut self.source) };
        let _number: RawFd = source.into_fd_as_it_is().into_raw_fd(); // `inner` closes it
    }

    /// Waits until a read would not block, or would say an error or the end.
    ///
    /// By the time of that read somebody else may have been faster;
    /// [`read_with`](Self::read_with) tries again then.
    ///
    /// # Errors
    ///
    /// The system's, or a cancellation.
    #[track_caller]
    pub fn readable(&self) -> io::Result<()> {
        self.wait(Direction::Read, None, Location::caller())
    }

    /// As [`readable`](Self::readable), but for `timeout` at most.
    ///
    /// # Errors
    ///
    /// `TimedOut` if the time was over first; otherwise as [`readable`](Self::readable).
    #[track_caller]
    pub fn readable_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.wait(
            Direction::Read,
            Deadline::after(timeout),
            Location::caller(),
        )
    }

    /// As [`readable`](Self::readable), but until `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`readable_timeout`](Self::readable_timeout).
    #[track_caller]
    pub fn readable_deadline(&self, deadline: Instant) -> io::Result<()> {
        self.wait(
            Direction::Read,
            Some(deadline.deadline()),
            Location::caller(),
        )
    }

    /// Waits until a write would not block, or would say an error.
    ///
    /// # Errors
    ///
    /// The system's, or a cancellation.
    #[track_caller]
    pub fn writable(&self) -> io::Result<()> {
        self.wait(Direction::Write, None, Location::caller())
    }

    /// As [`writable`](Self::writable), but for `timeout` at most.
    ///
    /// # Errors
    ///
    /// `TimedOut` if the time was over first; otherwise as [`writable`](Self::writable).
    #[track_caller]
    pub fn writable_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.wait(
            Direction::Write,
            Deadline::after(timeout),
            Location::caller(),
        )
    }

    /// As [`writable`](Self::writable), but until `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`writable_timeout`](Self::writable_timeout).
    #[track_caller]
    pub fn writable_deadline(&self, deadline: Instant) -> io::Result<()> {
        self.wait(
            Direction::Write,
            Some(deadline.deadline()),
            Location::caller(),
        )
    }

    fn wait(
        &self,
        direction: Direction,
        deadline: Option<Deadline>,
        at: &'static Location<'static>,
    ) -> io::Result<()> {
        let mut how = How::of(&self.source, direction, at);
        how.deadline = deadline;
        how.timed_out = io::ErrorKind::TimedOut;
        call::make(&self.source, &how, &mut Poll::to(direction))
    }

    /// Waits in async code, under any executor, until a read would not block.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// use std::io::Write;
    ///
    /// let (reader, mut writer) = std::os::unix::net::UnixStream::pair()?;
    /// let reader = sinew::io::Async::new(reader)?;
    /// writer.write_all(b"x")?;
    /// sinew::block_on(reader.readable_async())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The system's.
    pub async fn readable_async(&self) -> io::Result<()> {
        self.wait_async(Direction::Read).await
    }

    /// Waits in async code, under any executor, until a write would not block.
    ///
    /// # Errors
    ///
    /// The system's.
    pub async fn writable_async(&self) -> io::Result<()> {
        self.wait_async(Direction::Write).await
    }

    async fn wait_async(&self, direction: Direction) -> io::Result<()> {
        loop {
            let look = self.source.readiness().look();
            match Poll::to(direction).attempt(self.source.as_fd()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                done => return done,
            }
            self.source.readiness().would_block(look, direction);
            self.source.becomes_ready(direction).await?;
        }
    }

    /// Calls `call`, and again when the descriptor is readable, for as long as that says
    /// `WouldBlock`.
    ///
    /// # Errors
    ///
    /// Any other error of `call`, or a cancellation.
    ///
    /// ```
    /// use std::io::Read;
    /// use std::os::unix::net::UnixDatagram;
    /// use sinew::io::Async;
    ///
    /// sinew::run(|| -> std::io::Result<()> {
    ///     let (one, other) = UnixDatagram::pair()?;
    ///     let one = Async::new(one)?;
    ///     other.send(b"whole message")?;
    ///     let mut bytes = [0; 64];
    ///     let count = one.read_with(|socket| socket.recv(&mut bytes))?;
    ///     assert_eq!(&bytes[..count], b"whole message");
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    #[track_caller]
    pub fn read_with<T>(&self, call: impl FnMut(&F) -> io::Result<T>) -> io::Result<T> {
        self.with(Direction::Read, call, Location::caller())
    }

    /// Calls `call`, and again when the descriptor is writable, for as long as that says
    /// `WouldBlock`.
    ///
    /// # Errors
    ///
    /// Any other error of `call`, or a cancellation.
    #[track_caller]
    pub fn write_with<T>(&self, call: impl FnMut(&F) -> io::Result<T>) -> io::Result<T> {
        self.with(Direction::Write, call, Location::caller())
    }

    fn with<T>(
        &self,
        direction: Direction,
        call: impl FnMut(&F) -> io::Result<T>,
        at: &'static Location<'static>,
    ) -> io::Result<T> {
        let how = How::of(&self.source, direction, at);
        let inner = self.get_ref();
        call::make(&self.source, &how, &mut With { inner, call })
    }
}

impl<F: AsFd> Drop for Async<F> {
    fn drop(&mut self) {
        // SAFETY: once each, in this order: `inner` closes the descriptor.
        unsafe {
            self.release();
            ManuallyDrop::drop(&mut self.inner);
        }
    }
}

impl<F: AsFd> Async<F> {
    fn read_parts(
        &self,
        into: &mut [IoSliceMut<'_>],
        at: &'static Location<'static>,
    ) -> io::Result<usize> {
        self.source.make_nonblocking()?; // who has a duplicate may have changed it
        let how = How::of(&self.source, Direction::Read, at);
        call::make(&self.source, &how, &mut transfer::Read { into })
    }

    fn write_parts(
        &self,
        from: &[IoSlice<'_>],
        at: &'static Location<'static>,
    ) -> io::Result<usize> {
        self.source.make_nonblocking()?;
        let how = How::of(&self.source, Direction::Write, at);
        call::make(&self.source, &how, &mut transfer::Write { from })
    }
}

// Not by `F`'s own `Read` and `Write`: an impl for `&Async<F>` that asks for one of `&F`
// makes the compiler look for `&Async<Async<…>>` without end in other people's code.

impl<F: AsFd> Read for Async<F> {
    #[track_caller]
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.read_parts(&mut [IoSliceMut::new(into)], Location::caller())
    }

    #[track_caller]
    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.read_parts(into, Location::caller())
    }
}

impl<F: AsFd> Read for &Async<F> {
    #[track_caller]
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.read_parts(&mut [IoSliceMut::new(into)], Location::caller())
    }

    #[track_caller]
    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.read_parts(into, Location::caller())
    }
}

impl<F: AsFd> Write for Async<F> {
    #[track_caller]
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.write_parts(&[IoSlice::new(from)], Location::caller())
    }

    #[track_caller]
    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_parts(from, Location::caller())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(()) // there is no buffer
    }
}

impl<F: AsFd> Write for &Async<F> {
    #[track_caller]
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.write_parts(&[IoSlice::new(from)], Location::caller())
    }

    #[track_caller]
    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_parts(from, Location::caller())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(()) // there is no buffer
    }
}

impl<F: AsFd> AsFd for Async<F> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }
}

impl<F: AsFd> AsRawFd for Async<F> {
    fn as_raw_fd(&self) -> RawFd {
        self.source.as_fd().as_raw_fd()
    }
}

impl<F: AsFd + fmt::Debug> fmt::Debug for Async<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Async").field(self.get_ref()).finish()
    }
}
