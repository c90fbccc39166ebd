//! Files.

mod cancelled;
mod directories;
mod lock;
mod names;
pub mod owner;
mod positioned;
mod shared;
mod special;
mod transfer;

use sinew::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A folder of this test's own, removed with all in it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        Self::new_in(&std::env::temp_dir())
    }

    /// One whose files are memory; none where there is no such place.
    fn in_memory() -> Option<Self> {
        let place = Path::new("/dev/shm");
        if !place.is_dir() {
            eprintln!("no {}: left out", place.display());
            return None;
        }
        Some(Self::new_in(place))
    }

    fn new_in(place: &Path) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // Relaxed: a number that no other has.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sinew-test-fs-{}-{number}", std::process::id());
        let path = place.join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    /// A file with these contents, made by std.
    fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        std::fs::write(&path, contents).unwrap();
        path
    }

    fn fifo(&self, name: &str) -> PathBuf {
        let path = self.join(name);
        let text = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the path ends with a zero.
        assert_eq!(unsafe { libc::mkfifo(text.as_ptr(), 0o600) }, 0);
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Bytes of which each tells where it belongs.
fn pattern(length: usize) -> Vec<u8> {
    (0..length)
        .map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8)
        .collect()
}

/// Has the kernel forget what it has in memory of the file.
fn forget_cache(file: &File) {
    file.sync_all().unwrap();
    // SAFETY: no pointers.
    let done = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    assert_eq!(done, 0);
}

/// The ends of a pipe, for reading and for writing.
fn pipe() -> (File, File) {
    let mut ends = [0; 2];
    // SAFETY: room for both.
    let made = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
    assert_eq!(made, 0);
    // SAFETY: they are new.
    ends.map(|fd| unsafe { File::from_raw_fd(fd) }).into()
}

/// The same error as std's, by its kind and number.
#[track_caller]
fn assert_as_std<T, U>(ours: std::io::Result<T>, stds: std::io::Result<U>) {
    let ours = ours.err().expect("ours failed");
    let stds = stds.err().expect("std's failed");
    assert_eq!(ours.kind(), stds.kind());
    assert_eq!(ours.raw_os_error(), stds.raw_os_error());
}
