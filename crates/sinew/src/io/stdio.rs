//! This process's standard streams, without blocking a worker.
//!
//! A terminal or a pipe is shared with whoever started us, so `O_NONBLOCK` must not be
//! set: they would see it. Instead:
//!
//! | the kernel says to `RWF_NOWAIT`    | and to `poll`  | then                        |
//! |------------------------------------|----------------|-----------------------------|
//! | bytes moved (pipes, sockets, …)    |                | done                        |
//! | would block, or does not know it   | not ready      | the fiber waits for that    |
//! | (terminals; files that are written)| ready          | a thread of the pool calls  |
//!
//! What the pool calls does not wait, or is a file, unless another process takes what
//! was ready before it; then it keeps a thread of the pool, and no worker.

use crate::reactor::{Call, Direction, How, Source, call};
use crate::sync::Mutex;
use crate::task::blocking;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::panic::Location;
use std::sync::OnceLock;

type At = &'static Location<'static>;

/// How much is read, and kept to be written, at once.
const CHUNK: usize = 8 * 1024;

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
    let mut what = libc::pollfd {
        fd: fd.as_raw_fd(),
        events,
        revents: 0,
    };
    // SAFETY: one live entry. It does not wait.
    match unsafe { libc::poll(&mut what, 1, 0) } {
        0 => Err(io::ErrorKind::WouldBlock.into()),
        1.. => Ok(Moved::Ready),
        _ => Err(io::Error::last_os_error()),
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
struct Stream(Source);

impl Stream {
    /// # Safety
    ///
    /// The descriptor stays open for as long as the process lives; the stream is never
    /// dropped, which would close it.
    unsafe fn borrow(fd: RawFd) -> Self {
        // SAFETY: open, the caller promises, and never closed by us.
        Self(Source::new(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Reads some; a closed descriptor has none, as std has it.
    fn read(&self, into: &mut [u8], at: At) -> io::Result<usize> {
        let how = How::of(&self.0, Direction::Read, at);
        let count = match call::make(&self.0, &how, &mut ReadNow(into)) {
            Ok(Moved::Bytes(count)) => Ok(count),
            Ok(Moved::Ready) => blocking(|| self.read_blocking(into)),
            Err(error) => Err(error),
        };
        unless_closed(count, 0)
    }

    /// Writes some; a closed descriptor takes all, as std has it.
    fn write(&self, from: &[u8], at: At) -> io::Result<usize> {
        let how = How::of(&self.0, Direction::Write, at);
        let count = match call::make(&self.0, &how, &mut WriteNow(from)) {
            Ok(Moved::Bytes(count)) => Ok(count),
            Ok(Moved::Ready) => blocking(|| self.write_blocking(from)),
            Err(error) => Err(error),
        };
        unless_closed(count, from.len())
    }

    fn read_blocking(&self, into: &mut [u8]) -> io::Result<usize> {
        let fd = self.0.as_fd().as_raw_fd();
        // SAFETY: writable for as long as we say.
        retry(|| unsafe { libc::read(fd, into.as_mut_ptr().cast(), into.len()) })
    }

    fn write_blocking(&self, from: &[u8]) -> io::Result<usize> {
        let fd = self.0.as_fd().as_raw_fd();
        // SAFETY: readable for as long as we say.
        retry(|| unsafe { libc::write(fd, from.as_ptr().cast(), from.len()) })
    }

    fn write_all(&self, mut from: &[u8], at: At) -> io::Result<()> {
        while !from.is_empty() {
            match self.write(from, at)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => from = &from[count..],
            }
        }
        Ok(())
    }
}

impl Stream {
    /// There is no buffer.
    fn flush(&self, _at: At) -> io::Result<()> {
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

/// What was read and not yet asked for.
struct Input {
    stream: Stream,
    bytes: Vec<u8>,
    /// So many of them were asked for.
    taken: usize,
}

impl Input {
    fn new(stream: Stream) -> Self {
        Self {
            stream,
            bytes: Vec::new(),
            taken: 0,
        }
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    /// Reads more; answers how much.
    fn fill(&mut self, at: At) -> io::Result<usize> {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        let before = self.bytes.len();
        self.bytes.resize(before + CHUNK, 0);
        let count = self.stream.read(&mut self.bytes[before..], at);
        let read = count.as_ref().map_or(0, |count| *count);
        self.bytes.truncate(before + read);
        count
    }

    fn read(&mut self, into: &mut [u8], at: At) -> io::Result<usize> {
        if self.rest().is_empty() {
            if into.len() >= CHUNK {
                return self.stream.read(into, at);
            }
            self.fill(at)?;
        }
        let count = into.len().min(self.rest().len());
        into[..count].copy_from_slice(&self.rest()[..count]);
        self.taken += count;
        Ok(count)
    }

    /// Up to the next newline, or the end. What was read stays until the line is whole,
    /// so a wait that was cancelled loses nothing.
    fn read_line(&mut self, into: &mut String, at: At) -> io::Result<usize> {
        let mut looked_at = 0;
        let length = loop {
            let rest = self.rest();
            if let Some(found) = rest[looked_at..].iter().position(|byte| *byte == b'\n') {
                break looked_at + found + 1;
            }
            looked_at = rest.len();
            if self.fill(at)? == 0 {
                break looked_at;
            }
        };
        let line = &self.bytes[self.taken..self.taken + length];
        let text = std::str::from_utf8(line).map(|text| into.push_str(text));
        self.taken += length;
        text.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(length)
    }
}

/// The process's standard input; see [`stdin`].
#[derive(Clone, Copy)]
pub struct Stdin {
    input: &'static Mutex<Input>,
}

/// The standard input of this process.
///
/// Reading is a cancellation point, and keeps no worker. All handles share one buffer;
/// it is not std's, so what one of them has read ahead the other does not see.
///
/// ```no_run
/// sinew::run(|| -> std::io::Result<()> {
///     let mut name = String::new();
///     sinew::io::stdin().read_line(&mut name)?;
///     assert!(!name.is_empty());
///     Ok(())
/// })
/// .unwrap();
/// ```
pub fn stdin() -> Stdin {
    static INPUT: OnceLock<Mutex<Input>> = OnceLock::new();
    let input = INPUT.get_or_init(|| {
        // SAFETY: a number that std, too, takes for open always; a static is not dropped.
        Mutex::new(Input::new(unsafe { Stream::borrow(libc::STDIN_FILENO) }))
    });
    Stdin { input }
}

impl Stdin {
    /// Appends the next line to `into`, with its newline; answers its length, which is 0
    /// at the end of the input.
    ///
    /// Of a line that is not whole when the fiber is cancelled nothing is lost: the next
    /// call goes on with it.
    ///
    /// # Errors
    ///
    /// The system's, or a cancellation; `InvalidData` if the line is no UTF-8: then it
    /// was taken.
    #[track_caller]
    pub fn read_line(&self, into: &mut String) -> io::Result<usize> {
        let mut input = self.input.lock_or_cancelled()?;
        input.read_line(into, Location::caller())
    }

    /// Iterates over the lines, without their newlines.
    pub fn lines(self) -> Lines {
        Lines(self)
    }
}

/// Lines of the standard input; see [`Stdin::lines`].
#[derive(Debug)]
pub struct Lines(Stdin);

impl Iterator for Lines {
    type Item = io::Result<String>;

    #[track_caller]
    fn next(&mut self) -> Option<io::Result<String>> {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => {
                if line.ends_with('\n') {
                    line.pop();
                    if line.ends_with('\r') {
                        line.pop();
                    }
                }
                Some(Ok(line))
            }
            Err(error) => Some(Err(error)),
        }
    }
}

impl Read for Stdin {
    #[track_caller]
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut input = self.input.lock_or_cancelled()?;
        input.read(into, Location::caller())
    }
}

impl Read for &Stdin {
    #[track_caller]
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut input = self.input.lock_or_cancelled()?;
        input.read(into, Location::caller())
    }
}

/// What was to be written and has no newline yet.
struct Output {
    stream: Stream,
    kept: Vec<u8>,
}

impl Output {
    fn new(stream: Stream) -> Self {
        Self {
            stream,
            kept: Vec::new(),
        }
    }

    /// Writes lines, and keeps what is behind the last of them; answers how much was
    /// taken. After an error nothing of `from` was.
    fn write(&mut self, from: &[u8], at: At) -> io::Result<usize> {
        let newline = from.iter().rposition(|byte| *byte == b'\n');
        let lines = match newline {
            Some(last) => last + 1,
            None if from.len() >= CHUNK => from.len(),
            None => 0,
        };
        if lines > 0 || self.kept.len() + from.len() > CHUNK {
            self.flush(at)?;
        }
        let mut taken = 0;
        if lines > 0 {
            taken = self.stream.write(&from[..lines], at)?;
            if taken < lines {
                return Ok(taken);
            }
        }
        let rest = &from[taken..];
        let rest = &rest[..rest.len().min(CHUNK)];
        self.kept.extend_from_slice(rest);
        Ok(taken + rest.len())
    }

    fn flush(&mut self, at: At) -> io::Result<()> {
        while !self.kept.is_empty() {
            match self.stream.write(&self.kept, at)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => drop(self.kept.drain(..count)),
            }
        }
        Ok(())
    }

    fn write_all(&mut self, mut from: &[u8], at: At) -> io::Result<()> {
        while !from.is_empty() {
            match self.write(from, at)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => from = &from[count..],
            }
        }
        Ok(())
    }
}

static OUTPUT: OnceLock<Mutex<Output>> = OnceLock::new();

/// Writes what is kept when the process ends, as std does; on whichever thread that is.
extern "C" fn write_the_rest() {
    let Some(Ok(mut output)) = OUTPUT.get().map(Mutex::try_lock) else {
        return; // somebody is at it
    };
    let kept = std::mem::take(&mut output.kept);
    let mut rest = &kept[..];
    while let Ok(count @ 1..) = output.stream.write_blocking(rest) {
        rest = &rest[count..];
        if rest.is_empty() {
            break;
        }
    }
}

/// The process's standard output; see [`stdout`].
#[derive(Clone, Copy)]
pub struct Stdout {
    output: &'static Mutex<Output>,
}

/// The standard output of this process.
///
/// Writing is a cancellation point, and keeps no worker. Lines are written when they are
/// whole, the rest by `flush`, or when the process ends. Each call of `write_all` and
/// `write!` is written in one piece with regard to others on Sinew's handles. Its buffer
/// is not std's, so the order of what is printed by both is not certain.
///
/// ```
/// use std::io::Write;
///
/// sinew::run(|| writeln!(sinew::io::stdout(), "hello")).unwrap();
/// ```
pub fn stdout() -> Stdout {
    let output = OUTPUT.get_or_init(|| {
        // SAFETY: a function that may be called at any time. If it cannot be noted, only
        // what is not flushed is lost.
        unsafe { libc::atexit(write_the_rest) };
        // SAFETY: a number that std, too, takes for open always; a static is not dropped.
        Mutex::new(Output::new(unsafe { Stream::borrow(libc::STDOUT_FILENO) }))
    });
    Stdout { output }
}

/// The process's standard error; see [`stderr`].
#[derive(Clone, Copy)]
pub struct Stderr {
    stream: &'static Mutex<Stream>,
}

/// The standard error of this process.
///
/// As [`stdout`], but without a buffer: everything is written at once.
///
/// ```
/// use std::io::Write;
///
/// sinew::run(|| writeln!(sinew::io::stderr(), "oh")).unwrap();
/// ```
pub fn stderr() -> Stderr {
    static STREAM: OnceLock<Mutex<Stream>> = OnceLock::new();
    let stream = STREAM.get_or_init(|| {
        // SAFETY: a number that std, too, takes for open always; a static is not dropped.
        Mutex::new(unsafe { Stream::borrow(libc::STDERR_FILENO) })
    });
    Stderr { stream }
}

/// `Write` for a handle, or a reference to one.
macro_rules! writes {
    ($name:ty, $field:ident) => {
        impl Write for $name {
            #[track_caller]
            fn write(&mut self, from: &[u8]) -> io::Result<usize> {
                let at = Location::caller();
                self.$field.lock_or_cancelled()?.write(from, at)
            }

            #[track_caller]
            fn write_all(&mut self, from: &[u8]) -> io::Result<()> {
                let at = Location::caller();
                self.$field.lock_or_cancelled()?.write_all(from, at)
            }

            // In one piece; and what is formatted, which is user code, may print as well.
            #[track_caller]
            fn write_fmt(&mut self, text: fmt::Arguments<'_>) -> io::Result<()> {
                match text.as_str() {
                    Some(text) => self.write_all(text.as_bytes()),
                    None => self.write_all(text.to_string().as_bytes()),
                }
            }

            #[track_caller]
            fn flush(&mut self) -> io::Result<()> {
                let at = Location::caller();
                self.$field.lock_or_cancelled()?.flush(at)
            }
        }
    };
}

writes!(Stdout, output);
writes!(&Stdout, output);
writes!(Stderr, stream);
writes!(&Stderr, stream);

/// `AsFd`, for `IsTerminal` say, and `Debug`.
macro_rules! is_descriptor {
    ($name:ident, $number:expr) => {
        impl AsFd for $name {
            fn as_fd(&self) -> BorrowedFd<'_> {
                // SAFETY: as std has it.
                unsafe { BorrowedFd::borrow_raw($number) }
            }
        }

        impl AsRawFd for $name {
            fn as_raw_fd(&self) -> RawFd {
                $number
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    };
}

is_descriptor!(Stdin, libc::STDIN_FILENO);
is_descriptor!(Stdout, libc::STDOUT_FILENO);
is_descriptor!(Stderr, libc::STDERR_FILENO);
