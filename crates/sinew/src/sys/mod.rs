//! The seam to the operating system: every system call the runtime makes.
//!
//! What a port must provide: anonymous memory with guards ([`map`]), a fault
//! handler on an alternate stack ([`segv`]), a word to sleep on ([`futex`]), fences
//! for all threads at once ([`fences`]; `lock` is made of both), CPU affinity ([`cpu`]), word of a fork ([`process`]), and word of what
//! happens to descriptors: for a worker ([`epoll`], [`uring`]) and for a thread ([`poll`]). Linux is the one
//! system this was run on.

#[cfg(not(target_os = "linux"))]
compile_error!("sinew runs on Linux (x86_64 and aarch64) only");

pub(crate) mod cache;
pub(crate) mod cpu;
pub(crate) mod epoll;
#[cfg(not(loom))]
pub(crate) mod fences;
#[cfg(not(loom))]
pub(crate) mod futex;
#[cfg(not(loom))]
mod lock;
pub(crate) mod log;
pub(crate) mod map;
pub(crate) mod poll;
pub(crate) mod process;
pub(crate) mod segv;
#[cfg(not(loom))]
mod sleepers;
pub(crate) mod uring;

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(not(loom))]
pub(crate) use lock::{Lock, LockGuard};

#[cfg(loom)]
pub(crate) use crate::primitive::{Lock, LockGuard, fences, futex};
