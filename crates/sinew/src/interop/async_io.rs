//! A socket that is polled.
//!
//! A poll makes the call, without blocking; if it would block, the task stands in the
//! line of the socket's readiness, one place for each direction, and whoever polls has
//! the socket watched: its worker, or away from any worker the thread that watches for
//! tasks (`reactor::outside`).

use crate::io::transfer::{Send as SendBytes, SendParts};
use crate::net::{SocketAddr, TcpStream, UnixStream};
use crate::reactor::call::BURST;
use crate::reactor::{Call, Direction, Source};
use socket2::SockRef;
use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::marker::PhantomData;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

pub(super) mod sealed {
    use std::io;
    use std::os::fd::OwnedFd;

    /// What may be had of a socket, and becomes one again.
    pub trait Convert: Sized {
        /// A short transfer tells that there is no more for now.
        const TELLS: bool;

        fn into_fd(self) -> io::Result<OwnedFd>;

        fn from_fd(fd: OwnedFd) -> Self;
    }
}

use sealed::Convert;

/// A socket that [`AsyncIo`] takes: [`TcpStream`], [`UnixStream`].
pub trait StreamSocket: Convert {}

impl Convert for TcpStream {
    const TELLS: bool = true;

    fn into_fd(self) -> io::Result<OwnedFd> {
        Ok(self.into_std()?.into())
    }

    fn from_fd(fd: OwnedFd) -> Self {
        fd.into()
    }
}

impl Convert for UnixStream {
    // It may also be short because of what was sent along with a byte.
    const TELLS: bool = false;

    fn into_fd(self) -> io::Result<OwnedFd> {
        Ok(self.into_std()?.into())
    }

    fn from_fd(fd: OwnedFd) -> Self {
        fd.into()
    }
}

impl StreamSocket for TcpStream {}
impl StreamSocket for UnixStream {}

/// A wait for one direction, while there is one.
type Place = Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>;

/// A socket for async code: a [`TcpStream`] or [`UnixStream`] that is polled.
///
/// It implements the traits of the features that are on: `futures_io::{AsyncRead,
/// AsyncWrite}`, `hyper::rt::{Read, Write}`. It may be polled on fibers, on threads and
/// in tasks of any executor, in turn; of each direction the task that polled last is
/// woken. Read and write timeouts of the socket do not hold: async code has its own.
///
/// Dropping a future that reads or writes loses no byte: a poll that is pending has moved
/// none.
///
/// See the [module](super) for an example.
pub struct AsyncIo<T> {
    reading: Place,
    writing: Place,
    /// Polls that found what they wanted, in a row.
    run: u32,
    source: Source,
    kind: PhantomData<fn() -> T>,
}

impl<T: StreamSocket> AsyncIo<T> {
    /// Takes over `socket`.
    ///
    /// # Errors
    ///
    /// The system's, if there are clones of it and it cannot be duplicated.
    pub fn new(socket: T) -> io::Result<Self> {
        Ok(Self::of(socket.into_fd()?))
    }

    pub(super) fn of(fd: OwnedFd) -> Self {
        Self {
            reading: None,
            writing: None,
            run: 0,
            source: Source::new(fd),
            kind: PhantomData,
        }
    }

    /// The socket again, on which fibers wait.
    pub fn into_inner(self) -> T {
        T::from_fd(self.source.into_fd())
    }

    pub(super) fn socket(&self) -> SockRef<'_> {
        SockRef::from(&self.source)
    }

    pub(super) fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_call(Direction::Write, from.len(), context, |fd| {
            let (flags, tells) = (0, false);
            SendBytes { from, flags, tells }.attempt(fd)
        })
    }

    pub(super) fn poll_send_parts(
        &mut self,
        context: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let room = from.iter().map(|part| part.len()).sum();
        self.poll_call(Direction::Write, room, context, |fd| {
            SendParts::new(from).attempt(fd)
        })
    }

    /// Makes a call that moves bytes, which says how many; it must not block. `room` is
    /// how many it would move at most.
    pub(super) fn poll_call(
        &mut self,
        direction: Direction,
        room: usize,
        context: &mut Context<'_>,
        mut call: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if self.run >= BURST {
            // A task whose polls never have to wait lets others have their turn.
            self.run = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        loop {
            let look = self.source.readiness().look();
            if look.is_ready(direction) {
                match call(self.source.as_fd()) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.source.readiness().would_block(look, direction);
                    }
                    done => {
                        self.run += 1;
                        let is_short = |&count: &usize| count > 0 && count < room;
                        if T::TELLS && done.as_ref().is_ok_and(is_short) {
                            self.source.readiness().drained(look, direction);
                        }
                        return Poll::Ready(done);
                    }
                }
            }
            ready!(self.poll_ready(direction, context))?;
        }
    }

    fn poll_ready(
        &mut self,
        direction: Direction,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        // Each time: it may be polled elsewhere than the last time.
        self.source.watch()?;
        let place = match direction {
            Direction::Read => &mut self.reading,
            Direction::Write => &mut self.writing,
        };
        let source = &self.source;
        let wait = place.get_or_insert_with(|| Box::pin(source.ready_kept(direction)));
        if wait.as_mut().poll(context).is_pending() {
            self.run = 0;
            return Poll::Pending;
        }
        *place = None;
        Poll::Ready(Ok(()))
    }

    /// Ends the writing side.
    pub(super) fn end(&self) -> io::Result<()> {
        match self.socket().shutdown(Shutdown::Write) {
            // The peer was first.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            ended => ended,
        }
    }
}

impl AsyncIo<TcpStream> {
    /// The peer's address.
    ///
    /// # Errors
    ///
    /// The system's, such as `NotConnected`.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        internet(self.socket().peer_addr()?)
    }

    /// Our own address.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        internet(self.socket().local_addr()?)
    }

    /// Whether small writes are sent at once (`TCP_NODELAY`).
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.socket().set_tcp_nodelay(nodelay)
    }
}

fn internet(address: socket2::SockAddr) -> io::Result<SocketAddr> {
    address
        .as_socket()
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

impl<T> AsFd for AsyncIo<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }
}

impl<T> fmt::Debug for AsyncIo<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncIo")
            .field("fd", &self.as_fd().as_raw_fd())
            .finish_non_exhaustive()
    }
}
