//! Why there is no stack, in words that tell what to change.
//!
//! Made when memory has just been refused, so that making and cloning it
//! allocates nothing.

use crate::error::impl_error;
use std::fmt;
use std::io;

use crate::sys::map;

/// So close to `vm.max_map_count` a refusal is blamed on it.
const NEARLY: usize = 64;

/// A stack was needed and could not be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoStack {
    bytes: usize,
    call: &'static str,
    cause: Cause,
}

/// What stood in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cause {
    /// The pool was told to make no more than this many.
    PoolLimit(usize),
    /// The kernel refused because the process has too many mappings.
    Mappings { errno: i32, now: usize, max: usize },
    /// We refused, to leave some mappings for the rest of the process.
    Headroom { guards: usize, max: usize },
    /// The kernel refused for another reason, mostly memory.
    Refused { errno: i32 },
}

impl NoStack {
    /// All `limit` stacks that the pool may make are in use.
    pub(super) fn pool_limit(bytes: usize, limit: usize) -> NoStack {
        NoStack {
            bytes,
            call: "the stack pool",
            cause: Cause::PoolLimit(limit),
        }
    }

    /// Another `mprotect` guard would leave the process too few mappings.
    pub(super) fn headroom(bytes: usize, guards: usize, max: usize) -> NoStack {
        NoStack {
            bytes,
            call: "mprotect",
            cause: Cause::Headroom { guards, max },
        }
    }

    /// The kernel refused `call`; finds out which limit it was.
    pub(super) fn refused(bytes: usize, call: &'static str, error: &io::Error) -> NoStack {
        let errno = error.raw_os_error().unwrap_or(0);
        let cause = match (map::max_mappings(), map::count_mappings()) {
            (Some(max), Some(now)) if errno == libc::ENOMEM && now + NEARLY >= max => {
                Cause::Mappings { errno, now, max }
            }
            _ => Cause::Refused { errno },
        };
        NoStack { bytes, call, cause }
    }
}

impl fmt::Display for NoStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |errno| io::Error::from_raw_os_error(errno);
        write!(
            f,
            "no stack of {} KiB to be had: {} ",
            self.bytes >> 10,
            self.call
        )?;
        match &self.cause {
            Cause::PoolLimit(limit) => write!(
                f,
                "has handed out all of max_stacks = {limit}; \
                 raise that limit, or run fewer fibers at a time"
            ),
            Cause::Mappings { errno, now, max } => write!(
                f,
                "failed ({}): this process has {now} mappings of vm.max_map_count = {max}; \
                 raise it with `sysctl vm.max_map_count=..`, use Linux 6.13 or later, \
                 whose stack guards need no mappings, or run fewer fibers at a time",
                text(*errno)
            ),
            Cause::Headroom { guards, max } => write!(
                f,
                "was not called: {guards} stack guards use two mappings each, and the rest of \
                 vm.max_map_count = {max} is left for the program; \
                 raise it with `sysctl vm.max_map_count=..`, use Linux 6.13 or later, \
                 whose stack guards need no mappings, or run fewer fibers at a time"
            ),
            Cause::Refused { errno } => write!(
                f,
                "failed ({}): memory or addresses are used up; raise the limit (`ulimit -v`, \
                 the container's memory), use smaller stacks, or run fewer fibers at a time",
                text(*errno)
            ),
        }
    }
}

impl_error!(NoStack { _ => Some(io::ErrorKind::OutOfMemory) });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_names_call_limit_and_remedy() {
        let text = NoStack::pool_limit(64 << 10, 7).to_string();
        assert!(
            text.contains("64 KiB") && text.contains("max_stacks = 7"),
            "{text}"
        );
        let text = NoStack::headroom(64 << 10, 30_000, 65_530).to_string();
        assert!(
            text.contains("mprotect") && text.contains("vm.max_map_count = 65530"),
            "{text}"
        );
        let error = io::Error::from_raw_os_error(libc::ENOMEM);
        let text = NoStack::refused(64 << 10, "mmap", &error).to_string();
        assert!(
            text.contains("mmap failed") && text.contains("os error 12"),
            "{text}"
        );
    }
}
