//! Unix sockets: streams, listeners and datagrams, by paths, by abstract names and
//! without a name.

mod convert;
mod datagram;
mod stream;

use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A name that nobody has.
fn name() -> SocketAddr {
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("sinew-test-{}-{next}", std::process::id());
    SocketAddr::from_abstract_name(name).unwrap()
}

/// A folder of this test's own, gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sinew-unix-{}-{next}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

fn is_nonblocking(fd: &impl AsRawFd) -> bool {
    // SAFETY: no pointers.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    flags & libc::O_NONBLOCK != 0
}

fn assert_closed<T: std::fmt::Debug>(result: io::Result<T>) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConnected, "{error:?}");
}

fn assert_would_block<T: std::fmt::Debug>(result: io::Result<T>) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error:?}");
}
