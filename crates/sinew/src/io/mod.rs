//! What I/O has in common: copying, standard streams, and any descriptor.
//!
//! | for | see |
//! |---|---|
//! | all of a reader into a writer | [`copy`] |
//! | both ways between two streams, as a proxy does | [`copy_bidirectional`], [`Duplex`] |
//! | a descriptor that Sinew has no type for | [`Async`] |
//! | this process's standard streams | [`stdin`], [`stdout`], [`stderr`] |
//!
//! `Read`, `Write` and all that is made of them are std's.

mod async_fd;
mod copy;
pub(crate) mod datagram;
mod splice;
mod stdio;
mod transfer;

pub use async_fd::Async;
#[doc(hidden)]
pub use copy::Bare;
pub(crate) use copy::end_writing;
pub use copy::{Duplex, copy, copy_bidirectional};
pub use stdio::{Lines, Stderr, StderrLock, Stdin, StdinLock, Stdout, StdoutLock};
pub use stdio::{stderr, stdin, stdout};
pub(crate) use transfer::{Read, Recv, RecvParts, Send, SendParts, Write};
