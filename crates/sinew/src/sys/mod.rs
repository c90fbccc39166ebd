//! The seam to the operating system: every system call the runtime makes.
//!
//! What a port must provide: anonymous memory with guards ([`map`]), a fault
//! handler on an alternate stack ([`segv`]), handlers for other signals ([`handler`]), a
//! word to sleep on ([`futex`]), fences for all threads at once ([`fences`]; `lock` is made
//! of both), CPU affinity ([`cpu`]), word of a fork ([`process`]), what another thread is
//! doing ([`thread_state`]), and word of what
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
pub(crate) mod handler;
#[cfg(not(loom))]
mod lock;
pub(crate) mod log;
pub(crate) mod map;
#[cfg(not(loom))]
pub(crate) mod poll;
pub(crate) mod process;
pub(crate) mod segv;
#[cfg(not(loom))]
mod sleepers;
pub(crate) mod thread_state;
pub(crate) mod uring;

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(not(loom))]
pub(crate) use lock::{Lock, LockGuard};

#[cfg(loom)]
pub(crate) use crate::primitive::{Lock, LockGuard, fences, futex};

/// System calls that may wait and that newer architectures do without.
#[cfg(target_arch = "x86_64")]
const OLDER_CALLS: &[(libc::c_long, &str)] = thread_state::calls! {
    SYS_creat "creat"
    SYS_epoll_wait "epoll_wait"
    SYS_lstat "lstat"
    SYS_open "open"
    SYS_pause "pause"
    SYS_poll "poll"
    SYS_rename "rename"
    SYS_select "select"
    SYS_stat "stat"
    SYS_unlink "unlink"
    SYS_vfork "vfork"
};
#[cfg(not(target_arch = "x86_64"))]
const OLDER_CALLS: &[(libc::c_long, &str)] = thread_state::calls! {};

// In a model only what to wait for is the real one's.
#[cfg(loom)]
#[path = "poll.rs"]
#[allow(dead_code)]
mod real_poll;

/// The descriptors of a model: see `primitive::poll`.
#[cfg(loom)]
pub(crate) mod poll {
    pub(crate) use super::real_poll::{PollFor, is_ready};
    use crate::primitive::poll;
    pub(crate) use crate::primitive::poll::{give_bell, ring, take_bell};
    use std::os::fd::RawFd;
    use std::time::Instant;

    pub(crate) fn wait(what: PollFor, bell: RawFd, deadline: Option<Instant>) -> bool {
        poll::wait(what.fd, bell, deadline.is_some())
    }
}
