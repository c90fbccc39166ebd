//! epoll, as far as the load generator needs it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Data can be read, or the other side is gone.
pub const READ: u32 = libc::EPOLLIN as u32;
/// There is room to write.
pub const WRITE: u32 = libc::EPOLLOUT as u32;
/// The other side will send no more.
pub const CLOSED: u32 = libc::EPOLLRDHUP as u32;
/// Only changes are told.
pub const EDGE: u32 = libc::EPOLLET as u32;

/// Events taken from the kernel at once.
const AT_ONCE: usize = 256;

/// An epoll instance and its last answers.
pub struct Poll {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Poll {
    pub fn new() -> io::Result<Poll> {
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Poll {
            // SAFETY: `fd` was just opened and is nobody else's.
            epoll: unsafe { OwnedFd::from_raw_fd(fd) },
            events: Vec::with_capacity(AT_ONCE),
        })
    }

    /// Watches `fd`; events about it carry `token`. It is forgotten when it is
    /// closed.
    pub fn add(&self, fd: impl AsFd, token: usize, interest: u32) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: interest,
            u64: token as u64,
        };
        let fd = fd.as_fd().as_raw_fd();
        // SAFETY: both descriptors are open and `event` is valid.
        let failed = unsafe {
            libc::epoll_ctl(
                self.epoll.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                fd,
                &raw mut event,
            )
        };
        if failed != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Waits for events and answers how many there are; none after `limit`.
    pub fn wait(&mut self, limit: Duration) -> io::Result<usize> {
        self.events.clear();
        let millis = limit.as_millis().min(60_000) as i32;
        let room = self.events.spare_capacity_mut();
        // SAFETY: the kernel writes at most as many events as there is room for.
        let n = unsafe {
            libc::epoll_wait(
                self.epoll.as_raw_fd(),
                room.as_mut_ptr().cast(),
                room.len() as i32,
                millis,
            )
        };
        if n < 0 {
            let problem = io::Error::last_os_error();
            return match problem.kind() {
                io::ErrorKind::Interrupted => Ok(0),
                _ => Err(problem),
            };
        }
        // SAFETY: the kernel has written `n` events.
        unsafe { self.events.set_len(n as usize) };
        Ok(n as usize)
    }

    /// The token and the readiness of one of the last events.
    #[inline]
    pub fn event(&self, at: usize) -> (usize, u32) {
        let event = self.events[at];
        (event.u64 as usize, event.events)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn an_edge_is_told_once_and_a_level_again_and_again() {
        let mut poll = Poll::new().unwrap();
        let (mut a, b) = UnixStream::pair().unwrap();
        let (mut c, d) = UnixStream::pair().unwrap();
        poll.add(&b, 1, READ | EDGE).unwrap();
        poll.add(&d, 2, READ).unwrap();
        assert_eq!(poll.wait(Duration::ZERO).unwrap(), 0);
        a.write_all(b"x").unwrap();
        c.write_all(b"x").unwrap();
        assert_eq!(poll.wait(Duration::ZERO).unwrap(), 2);
        assert_eq!(poll.wait(Duration::ZERO).unwrap(), 1);
        assert_eq!(poll.event(0), (2, READ));
    }
}
