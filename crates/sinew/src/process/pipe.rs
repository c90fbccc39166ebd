//! Our ends of a child's standard streams.

use crate::io::transfer::{Read as ReadCall, Write as WriteCall};
use crate::reactor::{Direction, How, Source, call};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::panic::Location;
use std::process::Stdio;

type At = &'static Location<'static>;

fn read(source: &Source, into: &mut [IoSliceMut<'_>], at: At) -> io::Result<usize> {
    source.make_nonblocking()?;
    let how = How::of(source, Direction::Read, at);
    call::make(source, &how, &mut ReadCall { into })
}

fn write(source: &Source, from: &[IoSlice<'_>], at: At) -> io::Result<usize> {
    source.make_nonblocking()?;
    let how = How::of(source, Direction::Write, at);
    call::make(source, &how, &mut WriteCall { from })
}

/// What all three have.
macro_rules! pipe {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        pub struct $name {
            /// Does not block from its first use on.
            source: Source,
        }

        impl From<std::process::$name> for $name {
            fn from(std: std::process::$name) -> Self {
                OwnedFd::from(std).into()
            }
        }

        /// The end of a pipe.
        impl From<OwnedFd> for $name {
            fn from(fd: OwnedFd) -> Self {
                Self {
                    source: Source::new(fd),
                }
            }
        }

        /// The descriptor, blocking.
        impl From<$name> for OwnedFd {
            fn from(pipe: $name) -> Self {
                pipe.source.into_fd()
            }
        }

        /// The stream of another child.
        impl From<$name> for Stdio {
            fn from(pipe: $name) -> Self {
                OwnedFd::from(pipe).into()
            }
        }

        impl AsFd for $name {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.source.as_fd()
            }
        }

        impl AsRawFd for $name {
            fn as_raw_fd(&self) -> RawFd {
                self.source.as_fd().as_raw_fd()
            }
        }

        /// The descriptor, blocking.
        impl IntoRawFd for $name {
            fn into_raw_fd(self) -> RawFd {
                OwnedFd::from(self).into_raw_fd()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("fd", &self.as_fd().as_raw_fd())
                    .finish()
            }
        }
    };
}

/// `Read` for one of them and for a reference to it.
macro_rules! reads {
    ($($name:ty),*) => {$(
        impl Read for $name {
            #[track_caller]
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                read(&self.source, &mut [IoSliceMut::new(into)], Location::caller())
            }

            #[track_caller]
            fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                read(&self.source, into, Location::caller())
            }
        }
    )*};
}

/// `Write`, likewise.
macro_rules! writes {
    ($($name:ty),*) => {$(
        impl Write for $name {
            #[track_caller]
            fn write(&mut self, from: &[u8]) -> io::Result<usize> {
                write(&self.source, &[IoSlice::new(from)], Location::caller())
            }

            #[track_caller]
            fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
                write(&self.source, from, Location::caller())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(()) // there is no buffer
            }
        }
    )*};
}

pipe! {
    /// What a child reads from its standard input; closed, and so the child's end of
    /// input, when it is dropped.
    ///
    /// Reads and writes of these pipes are cancellation points.
    ///
    /// ```
    /// use std::io::{Read, Write};
    /// use sinew::process::{Command, Stdio};
    ///
    /// sinew::run(|| -> std::io::Result<()> {
    ///     let mut cat = Command::new("cat")
    ///         .stdin(Stdio::piped())
    ///         .stdout(Stdio::piped())
    ///         .spawn()?;
    ///     cat.stdin.take().unwrap().write_all(b"meow")?;
    ///     let mut text = String::new();
    ///     cat.stdout.take().unwrap().read_to_string(&mut text)?;
    ///     assert_eq!(text, "meow");
    ///     assert!(cat.wait()?.success());
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    ChildStdin
}

pipe! {
    /// What a child writes to its standard output.
    ///
    /// It may be the input of another child:
    ///
    /// ```
    /// use sinew::process::{Command, Stdio};
    ///
    /// sinew::run(|| -> std::io::Result<()> {
    ///     let mut echo = Command::new("echo").arg("meow").stdout(Stdio::piped()).spawn()?;
    ///     let cat = Command::new("cat").stdin(echo.stdout.take().unwrap()).output()?;
    ///     assert_eq!(cat.stdout, b"meow\n");
    ///     assert!(echo.wait()?.success());
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    ChildStdout
}

pipe! {
    /// What a child writes to its standard error; otherwise as [`ChildStdout`].
    ///
    /// ```
    /// use sinew::process::Command;
    ///
    /// let output = Command::new("sh").args(["-c", "echo oh >&2"]).output()?;
    /// assert_eq!(output.stderr, b"oh\n");
    /// # std::io::Result::Ok(())
    /// ```
    ChildStderr
}

writes!(ChildStdin, &ChildStdin);
reads!(ChildStdout, &ChildStdout, ChildStderr, &ChildStderr);
