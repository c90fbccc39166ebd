//! Standard input: one buffer, shared by all handles.

use super::stream::{At, CHUNK, Stream};
use crate::sync::{Mutex, MutexGuard};
use std::fmt;
use std::io::{self, BufRead, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::panic::Location;
use std::sync::OnceLock;

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
        /// Takes away the room that nothing was read into; also if the read unwinds, which
        /// it does where waiting is not allowed.
        struct Room<'a> {
            bytes: &'a mut Vec<u8>,
            filled: usize,
        }
        impl Drop for Room<'_> {
            fn drop(&mut self) {
                self.bytes.truncate(self.filled);
            }
        }
        self.bytes.drain(..self.taken);
        self.taken = 0;
        let filled = self.bytes.len();
        self.bytes.resize(filled + CHUNK, 0);
        let mut room = Room {
            bytes: &mut self.bytes,
            filled,
        };
        let count = self.stream.read(&mut room.bytes[filled..], at)?;
        room.filled += count;
        Ok(count)
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

    /// Iterates over the lines, without their newlines; keeps others away meanwhile, as
    /// [`lock`](Self::lock) does.
    #[track_caller]
    pub fn lines(self) -> io::Lines<StdinLock<'static>> {
        self.lock().lines()
    }

    /// Keeps it for this fiber or thread, waiting while somebody else has it: to read
    /// several times without others in between, and by what [`BufRead`] offers.
    ///
    /// Who has it must not use another handle meanwhile, which would wait for ever.
    ///
    /// ```no_run
    /// use std::io::BufRead;
    ///
    /// sinew::run(|| -> std::io::Result<()> {
    ///     let mut sum = 0;
    ///     for line in sinew::io::stdin().lock().lines() {
    ///         sum += line?.trim().parse::<i64>().unwrap_or(0);
    ///     }
    ///     assert!(sum >= 0);
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    #[track_caller]
    pub fn lock(&self) -> StdinLock<'static> {
        StdinLock {
            input: self.input.lock(),
        }
    }
}

/// The standard input, kept from others; see [`Stdin::lock`].
pub struct StdinLock<'a> {
    input: MutexGuard<'a, Input>,
}

impl Read for StdinLock<'_> {
    #[track_caller]
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.input.read(into, Location::caller())
    }
}

impl BufRead for StdinLock<'_> {
    #[track_caller]
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.input.rest().is_empty() {
            self.input.fill(Location::caller())?;
        }
        Ok(self.input.rest())
    }

    fn consume(&mut self, count: usize) {
        let rest = self.input.rest().len();
        self.input.taken += count.min(rest);
    }

    // As `Stdin::read_line`: of a line that is not whole nothing is lost.
    #[track_caller]
    fn read_line(&mut self, into: &mut String) -> io::Result<usize> {
        self.input.read_line(into, Location::caller())
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

super::is_descriptor!(Stdin, libc::STDIN_FILENO);
super::is_descriptor!(StdinLock<'_>, libc::STDIN_FILENO);
