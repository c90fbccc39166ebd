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

mod stdin;
mod stdout;
mod stream;

pub use stdin::{Stdin, StdinLock, stdin};
pub use stdout::{Stderr, StderrLock, Stdout, StdoutLock, stderr, stdout};

/// `AsFd`, for `IsTerminal` say, and `Debug`.
macro_rules! is_descriptor {
    ($name:ty, $number:expr) => {
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

        impl $name {
            /// Whether it is a terminal's; std's `IsTerminal` is for std's own types.
            ///
            /// ```
            /// use std::io::IsTerminal;
            ///
            /// let ours = sinew::io::stdout().is_terminal();
            /// assert_eq!(ours, std::io::stdout().is_terminal());
            /// ```
            pub fn is_terminal(&self) -> bool {
                io::IsTerminal::is_terminal(&self.as_fd())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name).trim_end_matches("<'_>"))
                    .finish_non_exhaustive()
            }
        }
    };
}

use is_descriptor;
