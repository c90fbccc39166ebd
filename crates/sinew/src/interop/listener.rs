//! A listener that is awaited.

use super::async_io::sealed::Convert;
use super::async_io::{AsyncIo, StreamSocket};
use crate::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use crate::reactor::call::BURST;
use crate::reactor::{Direction, Source};
use crate::time::alarm::sleep;
use socket2::SockRef;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::iter;
use std::marker::PhantomData;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

/// How long to wait for a descriptor to come back.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(10);

/// A listener that [`AsyncListener`] takes: [`TcpListener`], [`UnixListener`].
pub trait ListeningSocket: Convert + sealed::Left {
    /// What it accepts.
    type Stream: StreamSocket;
}

mod sealed {
    use super::OwnedFd;

    /// What an iterator has accepted ahead goes along with the listener.
    pub trait Left {
        fn take_left(&self) -> Vec<OwnedFd>;
        fn leave(&self, left: Vec<OwnedFd>);
    }
}

fn take_left(source: &Source) -> Vec<OwnedFd> {
    iter::from_fn(|| source.take_accepted()).collect()
}

macro_rules! listens {
    ($listener:ty, $stream:ty) => {
        impl Convert for $listener {
            const TELLS: bool = false;

            fn into_fd(self) -> io::Result<OwnedFd> {
                Ok(self.into_std()?.into())
            }

            fn from_fd(fd: OwnedFd) -> Self {
                fd.into()
            }
        }

        impl ListeningSocket for $listener {
            type Stream = $stream;
        }

        impl sealed::Left for $listener {
            fn take_left(&self) -> Vec<OwnedFd> {
                take_left(self.source())
            }

            fn leave(&self, left: Vec<OwnedFd>) {
                self.source().leave_accepted(left);
            }
        }
    };
}

listens!(TcpListener, TcpStream);
listens!(UnixListener, UnixStream);

/// A listener for async code: a [`TcpListener`] or [`UnixListener`] that is awaited.
///
/// ```
/// use sinew::interop::AsyncListener;
/// use sinew::net::{TcpListener, TcpStream};
///
/// sinew::run(|| -> std::io::Result<()> {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let client = TcpStream::connect(listener.local_addr()?)?;
///     let listener = AsyncListener::new(listener)?;
///     let accepted = sinew::block_on(listener.accept())?;
///     assert_eq!(accepted.peer_addr()?, client.local_addr()?);
///     Ok(())
/// })
/// .unwrap();
/// ```
pub struct AsyncListener<L> {
    source: Source,
    /// How many were accepted, or not.
    run: AtomicU32,
    kind: PhantomData<fn() -> L>,
}

impl<L: ListeningSocket> AsyncListener<L> {
    /// Takes over `listener`.
    ///
    /// # Errors
    ///
    /// The system's, if there are clones of it and it cannot be duplicated.
    pub fn new(listener: L) -> io::Result<Self> {
        let left = listener.take_left();
        let source = Source::new(listener.into_fd()?);
        source.leave_accepted(left);
        // There is no flag to accept without waiting.
        source.make_nonblocking()?;
        Ok(Self {
            source,
            run: AtomicU32::new(0),
            kind: PhantomData,
        })
    }

    /// Waits for a connection; any number of tasks may.
    ///
    /// Dropped while it waits it has taken none.
    ///
    /// # Errors
    ///
    /// The system's. Out of descriptors (`EMFILE`) the connection stays in the
    /// listener's backlog: the next call waits a little, then tries again.
    pub async fn accept(&self) -> io::Result<AsyncIo<L::Stream>> {
        if self.source.take_exhausted() {
            sleep(EXHAUSTED_PAUSE).await;
        }
        // Relaxed: a counter. A task that never has to wait lets others have their turn.
        if self.run.fetch_add(1, Ordering::Relaxed) % BURST == BURST - 1 {
            let mut yielded = false;
            poll_fn(|context| {
                if mem::replace(&mut yielded, true) {
                    return Poll::Ready(());
                }
                context.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
        }
        loop {
            if let Some(fd) = self.source.take_accepted() {
                return Ok(AsyncIo::of(fd));
            }
            let look = self.source.readiness().look();
            if look.is_ready(Direction::Read) {
                match SockRef::from(&self.source).accept() {
                    Ok((socket, _)) => return Ok(AsyncIo::of(socket.into())),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.source.readiness().would_block(look, Direction::Read);
                    }
                    Err(error) => {
                        let code = error.raw_os_error();
                        if matches!(
                            code,
                            Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
                        ) {
                            self.source.set_exhausted();
                        }
                        return Err(error);
                    }
                }
            }
            self.source.becomes_ready(Direction::Read).await?;
        }
    }

    /// The listener again, on which fibers wait.
    pub fn into_inner(self) -> L {
        let left = take_left(&self.source);
        let listener = L::from_fd(self.source.into_fd());
        listener.leave(left);
        listener
    }
}

impl<L> AsFd for AsyncListener<L> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }
}

impl<L> fmt::Debug for AsyncListener<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncListener")
            .field("fd", &self.as_fd().as_raw_fd())
            .finish()
    }
}
