//! A listener that is awaited.

use super::alarm::sleep;
use super::async_io::sealed::Convert;
use super::async_io::{AsyncIo, StreamSocket};
use crate::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use crate::reactor::{Direction, Source};
use crate::wait::Pending;
use socket2::SockRef;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// How long to wait for a descriptor to come back.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(10);

/// A listener that [`AsyncListener`] takes: [`TcpListener`], [`UnixListener`].
pub trait ListeningSocket: Convert {
    /// What it accepts.
    type Stream: StreamSocket;
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
    kind: PhantomData<fn() -> L>,
}

impl<L: ListeningSocket> AsyncListener<L> {
    /// Takes over `listener`.
    ///
    /// # Errors
    ///
    /// The system's, if there are clones of it and it cannot be duplicated.
    pub fn new(listener: L) -> io::Result<Self> {
        let source = Source::new(listener.into_fd()?);
        // There is no flag to accept without waiting.
        source.make_nonblocking()?;
        Ok(Self {
            source,
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
        loop {
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
            self.source.watch()?;
            Pending::new(self.source.readiness().ready(Direction::Read)).await;
        }
    }

    /// The listener again, on which fibers wait.
    pub fn into_inner(self) -> L {
        L::from_fd(self.source.into_fd())
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
            .field("fd", &self.as_fd())
            .finish()
    }
}
