//! Standard output and error: lines that are whole, in one piece.

use super::stream::{At, CHUNK, Stream};
use crate::sync::{Mutex, MutexGuard};
use std::fmt;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::panic::Location;
use std::sync::OnceLock;

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
/// `write!` is written in one piece with regard to others on Sinew's handles.
///
/// Its buffer is not std's, where `print!` and `println!` put what they print: `flush` does
/// not write that, and the order of what is printed by both is not certain. So a prompt is
/// `write!(stdout(), "name? ")?` and a `flush`, both here.
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

impl Stdout {
    /// Keeps it for this fiber or thread, waiting while somebody else has it: what is
    /// written until that is dropped stands together.
    ///
    /// Who has it must not use another handle meanwhile, which would wait for ever.
    ///
    /// ```
    /// use std::io::Write;
    ///
    /// sinew::run(|| -> std::io::Result<()> {
    ///     let mut out = sinew::io::stdout().lock();
    ///     writeln!(out, "first")?;
    ///     writeln!(out, "and right behind it")
    /// })
    /// .unwrap();
    /// ```
    #[track_caller]
    pub fn lock(&self) -> StdoutLock<'static> {
        StdoutLock {
            output: self.output.lock(),
        }
    }
}

impl Stderr {
    /// As [`Stdout::lock`].
    ///
    /// ```
    /// use std::io::Write;
    ///
    /// let mut out = sinew::io::stderr().lock();
    /// writeln!(out, "what happened")?;
    /// writeln!(out, "and why")?;
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn lock(&self) -> StderrLock<'static> {
        StderrLock {
            stream: self.stream.lock(),
        }
    }
}

/// The standard output, kept from others; see [`Stdout::lock`].
pub struct StdoutLock<'a> {
    output: MutexGuard<'a, Output>,
}

/// The standard error, kept from others; see [`Stderr::lock`].
pub struct StderrLock<'a> {
    stream: MutexGuard<'a, Stream>,
}

/// `Write` for a lock.
macro_rules! lock_writes {
    ($name:ty, $field:ident) => {
        impl Write for $name {
            #[track_caller]
            fn write(&mut self, from: &[u8]) -> io::Result<usize> {
                self.$field.write(from, Location::caller())
            }

            #[track_caller]
            fn write_all(&mut self, from: &[u8]) -> io::Result<()> {
                self.$field.write_all(from, Location::caller())
            }

            #[track_caller]
            fn flush(&mut self) -> io::Result<()> {
                self.$field.flush(Location::caller())
            }
        }
    };
}

lock_writes!(StdoutLock<'_>, output);
lock_writes!(StderrLock<'_>, stream);

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

super::is_descriptor!(Stdout, libc::STDOUT_FILENO);
super::is_descriptor!(Stderr, libc::STDERR_FILENO);
super::is_descriptor!(StdoutLock<'_>, libc::STDOUT_FILENO);
super::is_descriptor!(StderrLock<'_>, libc::STDERR_FILENO);
