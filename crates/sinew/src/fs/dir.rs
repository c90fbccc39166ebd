//! Directories: making and listing them.

use super::away;
use crate::error::Cancelled;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, FileType, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, DirEntryExt as _};
use std::path::{Path, PathBuf};

/// So many entries are fetched by one visit to the pool; the kernel hands out about
/// as many at a time.
const BATCH: usize = 256;

/// Lists the directory at `path`.
///
/// # Errors
///
/// As std, such as `NotFound` and `NotADirectory`; or a cancellation.
///
/// ```
/// sinew::run(|| -> std::io::Result<()> {
///     let mut names = Vec::new();
///     for entry in sinew::fs::read_dir("/proc/self/fdinfo")? {
///         names.push(entry?.file_name());
///     }
///     assert!(names.iter().any(|name| name == "0"));
///     Ok(())
/// })
/// # .unwrap();
/// ```
#[track_caller]
pub fn read_dir<P: AsRef<Path>>(path: P) -> io::Result<ReadDir> {
    let path = path.as_ref();
    let mut fetched = VecDeque::new();
    let inner = away::call(|| {
        let mut inner = fs::read_dir(path)?;
        let more = fetch(&mut inner, &mut fetched);
        Ok(more.then_some(inner))
    })?;
    Ok(ReadDir { inner, fetched })
}

/// Moves a batch of entries; whether there may be more.
fn fetch(from: &mut fs::ReadDir, into: &mut VecDeque<io::Result<DirEntry>>) -> bool {
    for _ in 0..BATCH {
        let Some(entry) = from.next() else {
            return false;
        };
        into.push_back(entry.map(DirEntry::new));
    }
    true
}

/// The entries of a directory, in no order, without `.` and `..`; see [`read_dir`].
///
/// They are fetched in batches, so one that was removed meanwhile may still be listed.
/// Once it has said that the fiber is cancelled it ends.
///
/// ```
/// let listing = sinew::fs::read_dir("/proc/self/task")?;
/// let threads = listing.collect::<Result<Vec<_>, _>>()?;
/// assert!(!threads.is_empty());
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct ReadDir {
    /// None when all was fetched.
    inner: Option<fs::ReadDir>,
    fetched: VecDeque<io::Result<DirEntry>>,
}

impl Iterator for ReadDir {
    type Item = io::Result<DirEntry>;

    #[track_caller]
    fn next(&mut self) -> Option<Self::Item> {
        if self.fetched.is_empty() && self.inner.is_none() {
            return None;
        }
        if let Err(error) = self.fetch_if_empty() {
            if Cancelled::is_in(&error) {
                self.inner = None;
                self.fetched.clear();
            }
            return Some(Err(error));
        }
        self.fetched.pop_front()
    }
}

impl ReadDir {
    /// A cancellation point also if there is something left.
    #[track_caller]
    fn fetch_if_empty(&mut self) -> io::Result<()> {
        let Some(inner) = self.inner.as_mut().filter(|_| self.fetched.is_empty()) else {
            return Ok(crate::wait::point::check()?);
        };
        let fetched = &mut self.fetched;
        if !away::call(|| Ok(fetch(inner, fetched)))? {
            self.inner = None;
        }
        Ok(())
    }
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadDir").finish_non_exhaustive()
    }
}

/// A file in a directory; see [`read_dir`].
///
/// ```
/// let of_this_process = |entry: &sinew::fs::DirEntry| entry.file_name() == "self";
/// let mut listing = sinew::fs::read_dir("/proc")?.map(Result::unwrap);
/// let found = listing.find(of_this_process).unwrap();
/// assert!(found.file_type()?.is_symlink());
/// assert_eq!(found.path(), std::path::Path::new("/proc/self"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct DirEntry {
    inner: fs::DirEntry,
    /// Most file systems tell it with the name.
    file_type: Option<FileType>,
}

impl DirEntry {
    /// May block.
    fn new(inner: fs::DirEntry) -> Self {
        let file_type = inner.file_type().ok();
        Self { inner, file_type }
    }

    /// The directory's path as it was given to [`read_dir`], and the file's name.
    pub fn path(&self) -> PathBuf {
        self.inner.path()
    }

    /// The file's name alone.
    pub fn file_name(&self) -> OsString {
        self.inner.file_name()
    }

    /// The number of its inode.
    pub fn ino(&self) -> u64 {
        self.inner.ino()
    }

    /// What kind of file it is; symbolic links are not followed.
    ///
    /// # Errors
    ///
    /// As std, such as `NotFound` if it is gone; or a cancellation.
    #[track_caller]
    pub fn file_type(&self) -> io::Result<FileType> {
        match self.file_type {
            Some(known) => Ok(known),
            None => away::call(|| self.inner.file_type()),
        }
    }

    /// What is known about it; symbolic links are not followed.
    ///
    /// # Errors
    ///
    /// As std, such as `NotFound` if it is gone; or a cancellation.
    #[track_caller]
    pub fn metadata(&self) -> io::Result<Metadata> {
        away::call(|| self.inner.metadata())
    }
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DirEntry").field(&self.path()).finish()
    }
}

/// Makes a directory.
///
/// # Errors
///
/// As std, such as `AlreadyExists`, and `NotFound` without a parent; or a cancellation.
///
/// ```
/// use sinew::fs;
/// use std::io::ErrorKind;
///
/// let dir = std::env::temp_dir().join(format!("sinew-mkdir-{}", std::process::id()));
/// fs::create_dir(&dir)?;
/// assert_eq!(fs::create_dir(&dir).unwrap_err().kind(), ErrorKind::AlreadyExists);
/// fs::remove_dir(&dir)?;
/// # std::io::Result::Ok(())
/// ```
#[track_caller]
pub fn create_dir<P: AsRef<Path>>(path: P) -> io::Result<()> {
    DirBuilder::new().create(path)
}

/// Makes a directory with its parents, as far as they are not there.
///
/// # Errors
///
/// As std, such as `AlreadyExists` if there is something else; or a cancellation.
///
/// ```
/// use sinew::fs;
///
/// let dir = std::env::temp_dir().join(format!("sinew-mkdir-all-{}", std::process::id()));
/// fs::create_dir_all(dir.join("a/b"))?;
/// fs::create_dir_all(dir.join("a/b"))?; // it may be there
/// assert!(fs::metadata(dir.join("a/b"))?.is_dir());
/// fs::remove_dir_all(&dir)?;
/// # std::io::Result::Ok(())
/// ```
#[track_caller]
pub fn create_dir_all<P: AsRef<Path>>(path: P) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(path)
}

/// How to make a directory: std's `DirBuilder`, with its Unix extension.
///
/// ```
/// use sinew::fs::{self, DirBuilder};
/// use std::os::unix::fs::PermissionsExt;
///
/// let path = std::env::temp_dir().join(format!("sinew-dir-{}", std::process::id()));
/// DirBuilder::new().mode(0o700).create(&path)?;
/// assert_eq!(fs::metadata(&path)?.permissions().mode() & 0o777, 0o700);
/// fs::remove_dir(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct DirBuilder(fs::DirBuilder);

impl DirBuilder {
    /// For one directory, whose parent is there.
    #[allow(clippy::new_without_default)] // as std's
    pub fn new() -> Self {
        Self(fs::DirBuilder::new())
    }

    /// Whether to make parents, too; then it is fine if it is there already.
    pub fn recursive(&mut self, recursive: bool) -> &mut Self {
        self.0.recursive(recursive);
        self
    }

    /// The permission bits, before the umask; 0o777 if not set.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.0.mode(mode);
        self
    }

    /// Makes the directory.
    ///
    /// # Errors
    ///
    /// As [`create_dir`] or [`create_dir_all`].
    #[track_caller]
    pub fn create<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        let path = path.as_ref();
        away::call(|| self.0.create(path))
    }
}
