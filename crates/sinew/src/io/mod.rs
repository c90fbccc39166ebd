//! What I/O has in common: copying, standard streams, and any descriptor.
//!
//! | for | see |
//! |---|---|
//! | all of a reader into a writer | [`copy`] |
//! | both ways between two streams, as a proxy does | [`copy_bidirectional`], [`Duplex`] |
//! | bytes from one fiber, thread or process to another | [`pipe`](pipe()), [`PipeReader`], [`PipeWriter`] |
//! | a descriptor that Sinew has no type for | [`Async`] |
//! | this process's standard streams | [`stdin`], [`stdout`], [`stderr`] |
//!
//! `Read`, `Write`, `BufReader` and all that is made of them are std's, and can be had from
//! here as well: a program that is ported changes `use std::io` into `use sinew::io`.
//!
//! ```
//! use sinew::io::{self, BufRead, BufReader};
//!
//! fn first_line(from: impl io::Read) -> io::Result<String> {
//!     let mut line = String::new();
//!     BufReader::new(from).read_line(&mut line)?;
//!     Ok(line)
//! }
//! assert_eq!(first_line(&b"one\ntwo\n"[..])?, "one\n");
//! # io::Result::Ok(())
//! ```

mod async_fd;
mod copy;
pub(crate) mod datagram;
mod pipe;
mod splice;
mod stdio;
pub(crate) mod transfer;

pub use async_fd::Async;
#[doc(hidden)]
pub use copy::Bare;
pub(crate) use copy::end_writing;
pub use copy::{Duplex, copy, copy_bidirectional};
pub use pipe::{PipeReader, PipeWriter, pipe};
pub use std::io::prelude;
pub use std::io::{
    BufRead, BufReader, BufWriter, Chain, Cursor, Empty, Error, ErrorKind, IntoInnerError, IoSlice,
    IoSliceMut, IsTerminal, LineWriter, Lines, Read, Repeat, Result, Seek, SeekFrom, Sink, Split,
    Take, Write, empty, read_to_string, repeat, sink,
};
pub use stdio::{Stderr, StderrLock, Stdin, StdinLock, Stdout, StdoutLock};
pub use stdio::{stderr, stdin, stdout};
