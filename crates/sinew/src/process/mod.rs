//! Child processes for which only the fiber waits: std's API.
//!
//! A child is started by a thread of the blocking pool, for `fork` and `exec` block.
//! Its end is an event of its *pidfd*, as readable bytes are of a socket; so there is
//! no thread for each child, and no handler of `SIGCHLD`. Its standard streams are
//! pipes, of which our ends have `O_NONBLOCK` and the child's have not.

mod child;
mod command;
mod pipe;

pub use child::Child;
pub use command::Command;
pub use pipe::{ChildStderr, ChildStdin, ChildStdout};
pub use std::process::{ExitCode, ExitStatus, Output, Stdio, Termination, abort, exit, id};
