//! Pipes between fibers, threads and child processes.
//!
//! An end does not block (`O_NONBLOCK`) from its first use on. That is a setting of the
//! open file, which the clones of an end share; the two ends of a pipe are two open files.
//!
//! Invariant (setting): `nonblocking` is shared by all clones of an end. Once it is true
//! the open file does not block while there are clones, for it is taken back only by the
//! last of them, when that is turned into a descriptor. So no clone ever makes a call that
//! blocks its worker because another was handed away.
//!
//! An end that is handed away while it has clones gets an open file of its own, which
//! blocks (`reopen`): a child that shared the clones' would meet `WouldBlock`, now or at
//! their next use. That needs `/proc` and the right to open the pipe. Without them the
//! descriptor shares the clones' open file, and their setting. So it does if a clone is used
//! for the first time at the very moment that the end is handed away: between its setting
//! and its note of that the setting looks like somebody else's.

use super::transfer::{Read as ReadCall, Write as WriteCall};
use crate::reactor::{Direction, How, Source, call, set_nonblocking};
use crate::sys::process;
use std::ffi::CString;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::panic::Location;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

type At = &'static Location<'static>;

/// Makes a pipe: what is written to the second can be read from the first.
///
/// std's, but only the fiber waits for bytes, or for room. Both ends may be a child's
/// standard streams.
///
/// # Errors
///
/// The system's, if there are too many descriptors.
///
/// # Examples
///
/// ```
/// use sinew::io::{Read, Write};
///
/// sinew::run(|| -> sinew::io::Result<()> {
///     let (mut reader, mut writer) = sinew::io::pipe()?;
///     let text = sinew::spawn(move || {
///         let mut text = String::new();
///         reader.read_to_string(&mut text).map(|_| text)
///     });
///     writer.write_all(b"hello")?;
///     drop(writer); // the end
///     assert_eq!(text.join().unwrap()?, "hello");
///     Ok(())
/// })
/// .unwrap();
/// ```
///
/// Both streams of a child in one pipe:
///
/// ```
/// use sinew::io::Read;
/// use sinew::process::Command;
///
/// sinew::run(|| -> sinew::io::Result<()> {
///     let (mut reader, writer) = sinew::io::pipe()?;
///     let mut command = Command::new("sh");
///     command.args(["-c", "echo out; echo err >&2"]);
///     let mut child = command.stdout(writer.try_clone()?).stderr(writer).spawn()?;
///     drop(command); // it has the writing end, too
///     let mut text = String::new();
///     reader.read_to_string(&mut text)?;
///     assert_eq!(text, "out\nerr\n");
///     assert!(child.wait()?.success());
///     Ok(())
/// })
/// .unwrap();
/// ```
pub fn pipe() -> io::Result<(PipeReader, PipeWriter)> {
    let mut fds: [RawFd; 2] = [-1; 2];
    // SAFETY: room for two descriptors.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: new descriptors that nobody else has.
    let [reader, writer] = fds.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    Ok((reader.into(), writer.into()))
}

/// What both ends are.
struct PipeEnd {
    source: Source,
    /// Whether one of the clones has made the open file non-blocking (setting).
    nonblocking: Arc<AtomicBool>,
}

impl PipeEnd {
    fn new(fd: OwnedFd) -> Self {
        Self {
            source: Source::new(fd),
            nonblocking: Arc::new(AtomicBool::new(false)),
        }
    }

    fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            source: Source::new(self.source.as_fd().try_clone_to_owned()?),
            nonblocking: self.nonblocking.clone(),
        })
    }

    /// Before each call.
    fn make_nonblocking(&self) -> io::Result<()> {
        // Relaxed: doing it twice does no harm. If it was so before, it is not noted, and
        // looked at each time: whoever made it so may take it back.
        if !self.nonblocking.load(Ordering::Relaxed) && !set_nonblocking(self.source.as_fd(), true)?
        {
            self.nonblocking.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn read(&self, into: &mut [IoSliceMut<'_>], at: At) -> io::Result<usize> {
        self.make_nonblocking()?;
        let how = How::of(&self.source, Direction::Read, at);
        call::make(&self.source, &how, &mut ReadCall { into })
    }

    fn write(&self, from: &[IoSlice<'_>], at: At) -> io::Result<usize> {
        self.make_nonblocking()?;
        let how = How::of(&self.source, Direction::Write, at);
        call::make(&self.source, &how, &mut WriteCall { from })
    }

    /// The descriptor; blocking as before, and no clone is hurt by that (setting).
    fn into_fd(self) -> OwnedFd {
        let fd = self.source.into_fd_as_it_is();
        match Arc::try_unwrap(self.nonblocking).map(AtomicBool::into_inner) {
            // The last one: no clone is left that could set it.
            Ok(false) => {}
            Ok(true) if !process::is_forked() => {
                // It cannot fail on an open descriptor.
                let again = set_nonblocking(fd.as_fd(), false);
                debug_assert!(again.is_ok(), "{again:?}");
            }
            // A forked child shares the open file with its parent, which is like a clone.
            // On failure the descriptor stays as it is.
            Ok(true) => drop(reopen(fd.as_fd(), &AtomicBool::new(true))),
            Err(shared) => drop(reopen(fd.as_fd(), &shared)),
        }
        fd
    }
}

/// Gives the descriptor of a pipe an open file of its own, which blocks, under the same
/// number. `ours`: if the present one does not block, that is our doing.
///
/// Only pipes: the open file of anything else may have a position.
fn reopen(fd: BorrowedFd<'_>, ours: &AtomicBool) -> io::Result<()> {
    let check = |result: i32| match result {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    };
    let number = fd.as_raw_fd();
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: room for what it writes.
    check(unsafe { libc::fstat(number, stat.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so it was written.
    let mode = unsafe { stat.assume_init() }.st_mode;
    // SAFETY: no pointers.
    let flags = check(unsafe { libc::fcntl(number, libc::F_GETFL) })?;
    // SAFETY: as above.
    let of_number = check(unsafe { libc::fcntl(number, libc::F_GETFD) })?;
    // Relaxed: after the flags were read; a clone that sets them notes it right after that.
    let theirs = flags & libc::O_NONBLOCK != 0 && !ours.load(Ordering::Relaxed);
    if mode & libc::S_IFMT != libc::S_IFIFO || flags & libc::O_PATH != 0 || theirs {
        return Ok(());
    }
    let path = CString::new(format!("/proc/self/fd/{number}")).expect("it has no zero byte");
    // Opened without blocking: a named pipe would wait here for its other end.
    let how = flags & libc::O_ACCMODE | libc::O_NONBLOCK | libc::O_CLOEXEC;
    // SAFETY: a C string.
    let own = check(unsafe { libc::open(path.as_ptr(), how) })?;
    // SAFETY: a new descriptor that nobody else has.
    let own = unsafe { OwnedFd::from_raw_fd(own) };
    // SAFETY: no pointers.
    check(unsafe { libc::fcntl(own.as_raw_fd(), libc::F_SETFL, flags & !libc::O_NONBLOCK) })?;
    let close_on_exec = match of_number & libc::FD_CLOEXEC {
        0 => 0,
        _ => libc::O_CLOEXEC,
    };
    // SAFETY: no pointers. The caller owns the number, which stays open throughout.
    check(unsafe { libc::dup3(own.as_raw_fd(), number, close_on_exec) })?;
    Ok(())
}

/// What both ends have.
macro_rules! pipe_end {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        pub struct $name(PipeEnd);

        impl $name {
            /// Makes another handle of this end, with a descriptor of its own.
            ///
            /// # Errors
            ///
            /// The system's, if there are too many descriptors.
            ///
            /// # Examples
            ///
            /// ```
            /// use sinew::io::{Read, Write};
            ///
            /// let (reader, mut writer) = sinew::io::pipe()?;
            #[doc = concat!("let clone = ", pipe_end!(@example $name), ".try_clone()?;")]
            /// drop(clone);
            /// writer.write_all(b"as before")?;
            /// drop(writer);
            /// assert_eq!(sinew::io::read_to_string(reader)?, "as before");
            /// # std::io::Result::Ok(())
            /// ```
            pub fn try_clone(&self) -> io::Result<Self> {
                self.0.try_clone().map(Self)
            }
        }

        /// An end of a pipe. It is made non-blocking when it is used, which whoever has a
        /// duplicate sees.
        impl From<OwnedFd> for $name {
            fn from(fd: OwnedFd) -> Self {
                Self(PipeEnd::new(fd))
            }
        }

        /// The descriptor, which blocks.
        ///
        /// If this end has clones, the descriptor gets an open file of its own, so that it
        /// blocks whatever they do. Where that cannot be had (it needs `/proc`) it shares
        /// theirs, which does not block while they are used.
        impl From<$name> for OwnedFd {
            fn from(end: $name) -> Self {
                end.0.into_fd()
            }
        }

        /// The standard stream of a child, which blocks as any program expects; see the
        /// conversion into a descriptor.
        impl From<$name> for Stdio {
            fn from(end: $name) -> Self {
                OwnedFd::from(end).into()
            }
        }

        impl AsFd for $name {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.0.source.as_fd()
            }
        }

        impl AsRawFd for $name {
            fn as_raw_fd(&self) -> RawFd {
                self.as_fd().as_raw_fd()
            }
        }

        impl FromRawFd for $name {
            unsafe fn from_raw_fd(fd: RawFd) -> Self {
                // SAFETY: the caller's promise.
                unsafe { OwnedFd::from_raw_fd(fd) }.into()
            }
        }

        impl IntoRawFd for $name {
            fn into_raw_fd(self) -> RawFd {
                OwnedFd::from(self).into_raw_fd()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("fd", &self.as_raw_fd())
                    .finish()
            }
        }
    };
    (@example PipeReader) => {
        "reader"
    };
    (@example PipeWriter) => {
        "writer"
    };
}

pipe_end! {
    /// The end of a [`pipe`] that is read from.
    ///
    /// Reads are cancellation points. They end with 0 bytes when every writer is gone.
    PipeReader
}

pipe_end! {
    /// The end of a [`pipe`] that is written to.
    ///
    /// Writes are cancellation points. They fail with `BrokenPipe` when every reader is
    /// gone.
    PipeWriter
}

/// `Read` for the end and for a reference to it.
macro_rules! reads {
    ($($name:ty),*) => {$(
        impl Read for $name {
            #[track_caller]
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                self.0.read(&mut [IoSliceMut::new(into)], Location::caller())
            }

            #[track_caller]
            fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                self.0.read(into, Location::caller())
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
                self.0.write(&[IoSlice::new(from)], Location::caller())
            }

            #[track_caller]
            fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
                self.0.write(from, Location::caller())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(()) // there is no buffer
            }
        }
    )*};
}

reads!(PipeReader, &PipeReader);
writes!(PipeWriter, &PipeWriter);
