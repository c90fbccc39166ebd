//! Making a connection.

use crate::reactor::{Call, Source};
use io_uring::{opcode, squeue, types};
use socket2::{SockAddr, SockRef};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `connect(2)`, and finding out what came of it.
pub(super) struct Connect<'a> {
    source: &'a Source,
    address: &'a SockAddr,
    under_way: bool,
}

impl<'a> Connect<'a> {
    pub(super) fn new(source: &'a Source, address: &'a SockAddr) -> Self {
        Self {
            source,
            address,
            under_way: false,
        }
    }
}

impl Call for Connect<'_> {
    type Output = ();

    fn attempt(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let socket = SockRef::from(&fd);
        if !self.under_way {
            // Nobody else has this socket yet, so nobody else minds.
            self.source.make_nonblocking()?;
            self.under_way = true;
            return match socket.connect(self.address) {
                Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
                    Err(io::ErrorKind::WouldBlock.into())
                }
                connected => connected,
            };
        }
        if let Some(error) = socket.take_error()? {
            return Err(error);
        }
        match socket.peer_addr() {
            Ok(_) => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            Err(error) => Err(error),
        }
    }

    fn entry(&mut self, fd: BorrowedFd<'_>) -> Option<squeue::Entry> {
        self.under_way = true;
        let address = self.address.as_ptr().cast();
        let length = self.address.len();
        Some(opcode::Connect::new(types::Fd(fd.as_raw_fd()), address, length).build())
    }

    fn complete(&mut self, _result: i32) {}

    fn tries_first(&self) -> bool {
        false // the kernel waits for it without `O_NONBLOCK`
    }
}
