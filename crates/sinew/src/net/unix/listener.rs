//! A name to connect to.

use super::addr;
use super::incoming::{UnixIncoming, UnixIntoIncoming};
use super::stream::UnixStream;
use crate::net::convert::converts;
use crate::net::socket::Socket;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::SocketAddr;
use std::panic::Location;
use std::path::Path;

/// A Unix socket that accepts connections: std's `UnixListener`, on which only the
/// fiber waits.
///
/// Any number of fibers may accept from it, on all workers, by reference or by clones.
/// [`close`](Self::close) ends their waits. As with std the file of a path stays when
/// the listener is gone.
///
/// ```
/// use std::io::{Read, Write};
/// use std::os::linux::net::SocketAddrExt;
/// use std::os::unix::net::SocketAddr;
/// use sinew::net::{UnixListener, UnixStream};
///
/// let name = format!("sinew-doc-listener-{}", std::process::id());
/// let address = SocketAddr::from_abstract_name(name).unwrap();
/// sinew::run(|| -> std::io::Result<()> {
///     let listener = UnixListener::bind_addr(&address)?;
///     sinew::scope(|s| {
///         s.spawn(|| {
///             for peer in listener.incoming() {
///                 let Ok(mut peer) = peer else { break };
///                 peer.write_all(b"hi").unwrap();
///             }
///         });
///         for _ in 0..3 {
///             let mut text = String::new();
///             UnixStream::connect_addr(&address).unwrap().read_to_string(&mut text).unwrap();
///             assert_eq!(text, "hi");
///         }
///         listener.close().unwrap();
///     });
///     Ok(())
/// })
/// .unwrap();
/// ```
pub struct UnixListener {
    pub(in crate::net) socket: Socket,
}

impl UnixListener {
    /// For `interop`, whose listeners take over what was left in it.
    #[cfg(any(feature = "futures-io", feature = "hyper"))]
    pub(crate) fn source(&self) -> &crate::reactor::Source {
        self.socket.source()
    }

    /// Listens on `path`, where it makes a file.
    ///
    /// # Errors
    ///
    /// The system's, such as `AddrInUse` if there is something already.
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<Self> {
        let std = std::os::unix::net::UnixListener::bind(path)?;
        Ok(Self {
            socket: Socket::new(std.into()),
        })
    }

    /// Listens on `address`, which may be an abstract name too.
    ///
    /// # Errors
    ///
    /// As [`bind`](Self::bind).
    pub fn bind_addr(address: &SocketAddr) -> io::Result<Self> {
        let std = std::os::unix::net::UnixListener::bind_addr(address)?;
        Ok(Self {
            socket: Socket::new(std.into()),
        })
    }

    /// Waits for a connection, and answers it with the peer's address: mostly none.
    ///
    /// # Errors
    ///
    /// The system's. Out of descriptors (`EMFILE`) the connection stays in the
    /// listener's backlog: the next call waits a little, then tries again, so a loop
    /// that goes on after an error neither dies nor spins.
    #[track_caller]
    pub fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let (fd, address) = self.socket.accept(Location::caller())?;
        let stream = UnixStream {
            socket: Socket::new(fd),
        };
        Ok((stream, addr::to_std(&address)?))
    }

    /// Iterates over the connections that come in; ends after an error that says that
    /// none will come any more, being closed or cancelled.
    ///
    /// On io_uring the kernel accepts ahead for it, up to 64 connections: several fibers that
    /// share a listener and serve by themselves should call [`accept`](Self::accept). What
    /// was accepted and not handed out is left to who accepts next when the iterator is
    /// dropped, and is closed with the listener. The iterator stays with its fiber.
    #[track_caller]
    pub fn incoming(&self) -> UnixIncoming<'_> {
        UnixIncoming::new(self, Location::caller())
    }

    /// The same, by value.
    #[track_caller]
    pub fn into_incoming(self) -> UnixIntoIncoming {
        UnixIntoIncoming::new(self, Location::caller())
    }

    /// The address it listens on.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        addr::to_std(&self.socket.options().local_addr()?)
    }

    /// Another owner of the same listener.
    ///
    /// Unlike std's it is no new descriptor.
    ///
    /// # Errors
    ///
    /// Never; as std has it.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            socket: self.socket.clone(),
        })
    }
}

converts!(
    UnixListener,
    std::os::unix::net::UnixListener,
    Socket::new,
    "`UnixListener`"
);

impl<'a> IntoIterator for &'a UnixListener {
    type Item = io::Result<UnixStream>;
    type IntoIter = UnixIncoming<'a>;

    #[track_caller]
    fn into_iter(self) -> UnixIncoming<'a> {
        self.incoming()
    }
}

impl fmt::Debug for UnixListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("UnixListener");
        if let Ok(address) = self.local_addr() {
            f.field("addr", &address);
        }
        f.field("fd", &self.as_fd().as_raw_fd()).finish()
    }
}
