//! Conversions that all sockets have.

/// To and from std's type and descriptors, for a type with a `socket`.
macro_rules! converts {
    ($name:ident, $std:ty, $make:path, $what:literal) => {
        impl $name {
            #[doc = concat!("The same as std's ", $what, ", blocking.")]
            ///
            /// If there are clones of this one, it is a duplicate. What an iterator over the
            /// connections of a listener has accepted ahead and left cannot come along, and
            /// is closed: accept until that would block
            /// ([`set_nonblocking`](Self::set_nonblocking)) to take it first.
            ///
            /// # Errors
            ///
            /// The system's, if it cannot be duplicated; `ResourceBusy` for a listener
            /// with clones that accept by epoll or on threads.
            pub fn into_std(self) -> std::io::Result<$std> {
                let timeouts = (
                    self.socket
                        .source()
                        .timeout($crate::reactor::Direction::Read),
                    self.socket
                        .source()
                        .timeout($crate::reactor::Direction::Write),
                );
                let std = <$std>::from(self.socket.into_fd()?);
                $crate::net::convert::keep_timeouts(std::os::fd::AsFd::as_fd(&std), timeouts)?;
                Ok(std)
            }

            /// Marks it as closed, shuts both directions down, and wakes all who wait
            /// for it or a clone of it, on whichever worker or thread.
            ///
            /// They, and all later operations, get an error of kind `NotConnected`. The
            /// descriptor closes with its last owner.
            ///
            /// # Errors
            ///
            /// The system's, from shutting it down; it is closed all the same.
            pub fn close(&self) -> std::io::Result<()> {
                self.socket.close()
            }

            /// Whether [`close`](Self::close) was called, here or on a clone.
            pub fn is_closed(&self) -> bool {
                self.socket.source().is_closed()
            }

            /// Whether operations say `WouldBlock` instead of waiting.
            ///
            /// Unlike std's this is no setting of the descriptor, but of this one
            /// and its clones.
            ///
            /// # Errors
            ///
            /// Never; as std has it.
            pub fn set_nonblocking(&self, nonblocking: bool) -> std::io::Result<()> {
                self.socket.source().set_never_waits(nonblocking);
                Ok(())
            }

            /// Takes the error that is pending on the socket, if there is one.
            ///
            /// # Errors
            ///
            /// The system's, if it cannot tell.
            pub fn take_error(&self) -> std::io::Result<Option<std::io::Error>> {
                self.socket.options().take_error()
            }
        }

        impl From<$std> for $name {
            /// Takes over std's, with its timeouts.
            fn from(std: $std) -> Self {
                let timeouts = $crate::net::convert::timeouts_of(std::os::fd::AsFd::as_fd(&std));
                let this = Self {
                    socket: $make(std.into()),
                };
                $crate::net::convert::adopt_timeouts(&this.socket, timeouts);
                this
            }
        }

        impl TryFrom<$name> for $std {
            type Error = std::io::Error;

            /// As `into_std`.
            fn try_from(ours: $name) -> std::io::Result<$std> {
                ours.into_std()
            }
        }

        impl From<std::os::fd::OwnedFd> for $name {
            fn from(fd: std::os::fd::OwnedFd) -> Self {
                <$std>::from(fd).into()
            }
        }

        impl std::os::fd::FromRawFd for $name {
            unsafe fn from_raw_fd(fd: std::os::fd::RawFd) -> Self {
                // SAFETY: the caller's promise.
                unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) }.into()
            }
        }

        impl TryFrom<$name> for std::os::fd::OwnedFd {
            type Error = std::io::Error;

            /// A duplicate if there are clones.
            fn try_from(ours: $name) -> std::io::Result<Self> {
                ours.socket.into_fd()
            }
        }

        impl std::os::fd::IntoRawFd for $name {
            /// As `into_std`: the descriptor blocks, and is a duplicate if there are clones.
            ///
            /// # Panics
            ///
            /// If `into_std` fails, which it does only if there are clones.
            #[track_caller]
            fn into_raw_fd(self) -> std::os::fd::RawFd {
                match self.into_std() {
                    Ok(std) => std::os::fd::IntoRawFd::into_raw_fd(std),
                    Err(error) => panic!("a socket with clones gives no descriptor: {error}"),
                }
            }
        }

        impl std::os::fd::AsFd for $name {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                self.socket.as_fd()
            }
        }

        impl std::os::fd::AsRawFd for $name {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                std::os::fd::AsRawFd::as_raw_fd(&self.socket.as_fd())
            }
        }
    };
}
pub(super) use converts;

/// Timeouts for reads and writes, for a type with a `socket`.
macro_rules! has_timeouts {
    ($name:ident) => {
        impl $name {
            /// How long a read may take, if that was set.
            ///
            /// # Errors
            ///
            /// Never; as std has it.
            pub fn read_timeout(&self) -> std::io::Result<Option<std::time::Duration>> {
                let source = self.socket.source();
                Ok(source.timeout($crate::reactor::Direction::Read))
            }

            /// How long a write may take, if that was set.
            ///
            /// # Errors
            ///
            /// Never; as std has it.
            pub fn write_timeout(&self) -> std::io::Result<Option<std::time::Duration>> {
                let source = self.socket.source();
                Ok(source.timeout($crate::reactor::Direction::Write))
            }

            /// Limits how long each later read may take, of clones too; then it fails
            /// with `WouldBlock`, as std's does on Unix.
            ///
            /// # Errors
            ///
            /// `InvalidInput` for a timeout of zero.
            pub fn set_read_timeout(
                &self,
                timeout: Option<std::time::Duration>,
            ) -> std::io::Result<()> {
                let source = self.socket.source();
                source.set_timeout($crate::reactor::Direction::Read, timeout)
            }

            /// Limits how long each later write may take, of clones too; then it fails
            /// with `WouldBlock`, as std's does on Unix.
            ///
            /// # Errors
            ///
            /// `InvalidInput` for a timeout of zero.
            pub fn set_write_timeout(
                &self,
                timeout: Option<std::time::Duration>,
            ) -> std::io::Result<()> {
                let source = self.socket.source();
                source.set_timeout($crate::reactor::Direction::Write, timeout)
            }
        }
    };
}
pub(super) use has_timeouts;

/// `Read` and `Write` for a stream with a `socket`, and for a reference to one.
macro_rules! reads_and_writes {
    ($name:ident) => {
        impl std::io::Read for &$name {
            #[track_caller]
            fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
                self.socket.recv(
                    into,
                    0,
                    $crate::wait::place::seen(std::panic::Location::caller(), line!()),
                )
            }

            #[track_caller]
            fn read_vectored(
                &mut self,
                into: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                self.socket.recv_parts(
                    into,
                    $crate::wait::place::seen(std::panic::Location::caller(), line!()),
                )
            }
        }

        impl std::io::Read for $name {
            #[track_caller]
            fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
                self.socket.recv(
                    into,
                    0,
                    $crate::wait::place::seen(std::panic::Location::caller(), line!()),
                )
            }

            #[track_caller]
            fn read_vectored(
                &mut self,
                into: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                self.socket.recv_parts(
                    into,
                    $crate::wait::place::seen(std::panic::Location::caller(), line!()),
                )
            }
        }

        impl std::io::Write for &$name {
            #[track_caller]
            fn write(&mut self, from: &[u8]) -> std::io::Result<usize> {
                self.socket.send(
                    from,
                    $crate::wait::place::seen(std::panic::Location::caller(), line!()),
                )
            }

            #[track_caller]
            fn write_vectored(&mut self, from: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                self.socket.send_parts(
                    from,
                    $crate::wait::place::seen(std::panic::Location::caller(), line!()),
                )
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(()) // there is no buffer
            }
        }

        impl std::io::Write for $name {
            #[track_caller]
            fn write(&mut self, from: &[u8]) -> std::io::Result<usize> {
                self.socket.send(
                    from,
                    $crate::wait::place::seen(std::panic::Location::caller(), line!()),
                )
            }

            #[track_caller]
            fn write_vectored(&mut self, from: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                self.socket.send_parts(
                    from,
                    $crate::wait::place::seen(std::panic::Location::caller(), line!()),
                )
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(()) // there is no buffer
            }
        }
    };
}
pub(super) use reads_and_writes;

/// What `io::copy_bidirectional` needs, for a stream with a `socket`.
macro_rules! copies_both_ways {
    ($name:ident) => {
        impl $crate::io::Duplex for $name {
            fn shutdown_write(&self) -> std::io::Result<()> {
                $crate::io::end_writing(self.socket.as_fd())
            }

            fn bare(&self) -> Option<$crate::io::Bare<'_>> {
                Some($crate::io::Bare(self.socket.source()))
            }
        }
    };
}
pub(super) use copies_both_ways;

use super::socket::Socket;
use crate::reactor::Direction;
use socket2::SockRef;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// For reads and for writes.
pub(super) type Timeouts = (Option<Duration>, Option<Duration>);

/// What std has set on a socket.
pub(super) fn timeouts_of(fd: BorrowedFd<'_>) -> Timeouts {
    let socket = SockRef::from(&fd);
    // A descriptor that is no socket has none, and its first use will say so.
    (
        socket.read_timeout().unwrap_or_default(),
        socket.write_timeout().unwrap_or_default(),
    )
}

/// Takes over what std has set.
pub(super) fn adopt_timeouts(socket: &Socket, (read, write): Timeouts) {
    for (direction, timeout) in [(Direction::Read, read), (Direction::Write, write)] {
        let set = socket.source().set_timeout(direction, timeout);
        debug_assert!(set.is_ok(), "the kernel's zero is none");
    }
}

/// Leaves to std what we had set.
pub(super) fn keep_timeouts(fd: BorrowedFd<'_>, (read, write): Timeouts) -> io::Result<()> {
    let socket = SockRef::from(&fd);
    socket.set_read_timeout(read)?;
    socket.set_write_timeout(write)
}
