//! What is done to files by their names.

use super::away;
use std::fs::{self, Metadata, Permissions};
use std::io;
use std::path::{Path, PathBuf};

/// Reads the whole file at `path`.
///
/// # Errors
///
/// As std, such as `NotFound`; or a cancellation.
///
/// ```
/// let version = sinew::run(|| sinew::fs::read("/proc/version"))?;
/// assert!(version.starts_with(b"Linux"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn read<P: AsRef<Path>>(path: P) -> io::Result<Vec<u8>> {
    let path = path.as_ref();
    away::call(|| fs::read(path))
}

/// Reads the whole file at `path`, which must be UTF-8.
///
/// # Errors
///
/// As std, such as `NotFound`, and `InvalidData` if it is not UTF-8; or a
/// cancellation.
///
/// ```
/// let version = sinew::run(|| sinew::fs::read_to_string("/proc/version"))?;
/// assert!(version.starts_with("Linux"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn read_to_string<P: AsRef<Path>>(path: P) -> io::Result<String> {
    let path = path.as_ref();
    away::call(|| fs::read_to_string(path))
}

/// Makes `contents` the whole file at `path`, be it new or not.
///
/// # Errors
///
/// As std; or a cancellation, before anything was written.
///
/// ```
/// use sinew::fs;
///
/// let path = std::env::temp_dir().join(format!("sinew-write-{}", std::process::id()));
/// sinew::run(|| fs::write(&path, "all of it"))?;
/// assert_eq!(fs::read(&path)?, b"all of it");
/// fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn write<P: AsRef<Path>, C: AsRef<[u8]>>(path: P, contents: C) -> io::Result<()> {
    let (path, contents) = (path.as_ref(), contents.as_ref());
    away::call(|| fs::write(path, contents))
}

/// Copies the file `from` with its permissions to `to`, replacing that; how many bytes
/// it has.
///
/// # Errors
///
/// As std, such as `NotFound`, and `InvalidInput` if `from` is no regular file; or a
/// cancellation, before anything was copied.
///
/// ```
/// use sinew::fs;
///
/// let dir = std::env::temp_dir().join(format!("sinew-copy-{}", std::process::id()));
/// fs::create_dir(&dir)?;
/// let (from, to) = (dir.join("from"), dir.join("to"));
/// fs::write(&from, "four")?;
/// assert_eq!(fs::copy(&from, &to)?, 4);
/// assert_eq!(fs::read(&to)?, b"four");
/// fs::remove_dir_all(&dir)?;
/// # std::io::Result::Ok(())
/// ```
#[track_caller]
pub fn copy<P: AsRef<Path>, Q: AsRef<Path>>(from: P, to: Q) -> io::Result<u64> {
    let (from, to) = (from.as_ref(), to.as_ref());
    away::call(|| fs::copy(from, to))
}

/// Gives what is at `from` the name `to`, replacing that.
///
/// ```
/// use sinew::fs;
///
/// let dir = std::env::temp_dir().join(format!("sinew-rename-{}", std::process::id()));
/// fs::create_dir_all(&dir)?;
/// let (one, other) = (dir.join("one"), dir.join("other"));
/// fs::write(&one, "text")?;
/// fs::rename(&one, &other)?;
/// assert!(!fs::exists(&one)?);
/// assert_eq!(fs::copy(&other, &one)?, 4);
/// fs::remove_file(&one)?;
/// fs::hard_link(&other, &one)?;
/// assert_eq!(fs::read_to_string(&one)?, "text");
/// fs::remove_dir_all(&dir)?;
/// assert!(!fs::exists(&dir)?);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// As std, such as `NotFound`, and `CrossesDevices` between file systems; or a
/// cancellation.
#[track_caller]
pub fn rename<P: AsRef<Path>, Q: AsRef<Path>>(from: P, to: Q) -> io::Result<()> {
    let (from, to) = (from.as_ref(), to.as_ref());
    away::call(|| fs::rename(from, to))
}

/// Removes the file at `path`.
///
/// # Errors
///
/// As std, such as `NotFound`, and `IsADirectory` for a directory; or a cancellation.
///
/// ```
/// use sinew::fs;
///
/// let dir = std::env::temp_dir().join(format!("sinew-remove-{}", std::process::id()));
/// fs::create_dir(&dir)?;
/// let file = dir.join("file");
/// fs::write(&file, "")?;
/// fs::remove_file(&file)?;
/// assert!(!fs::exists(&file)?);
/// fs::remove_dir_all(&dir)?;
/// # std::io::Result::Ok(())
/// ```
#[track_caller]
pub fn remove_file<P: AsRef<Path>>(path: P) -> io::Result<()> {
    let path = path.as_ref();
    away::call(|| fs::remove_file(path))
}

/// Removes an empty directory.
///
/// # Errors
///
/// As std, such as `NotFound` and `DirectoryNotEmpty`; or a cancellation.
///
/// ```
/// use sinew::fs;
/// use std::io::ErrorKind;
///
/// let dir = std::env::temp_dir().join(format!("sinew-rmdir-{}", std::process::id()));
/// fs::create_dir_all(dir.join("inner"))?;
/// assert_eq!(fs::remove_dir(&dir).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
/// fs::remove_dir(dir.join("inner"))?;
/// fs::remove_dir(&dir)?;
/// # std::io::Result::Ok(())
/// ```
#[track_caller]
pub fn remove_dir<P: AsRef<Path>>(path: P) -> io::Result<()> {
    let path = path.as_ref();
    away::call(|| fs::remove_dir(path))
}

/// Removes a directory with all that is in it; symbolic links are removed, not
/// followed.
///
/// # Errors
///
/// As std, such as `NotFound`; a part may be gone then. Or a cancellation, before
/// anything was removed.
///
/// ```
/// use sinew::fs;
///
/// let dir = std::env::temp_dir().join(format!("sinew-rm-all-{}", std::process::id()));
/// fs::create_dir_all(dir.join("a/b/c"))?;
/// fs::remove_dir_all(&dir)?;
/// assert!(!fs::exists(&dir)?);
/// # std::io::Result::Ok(())
/// ```
#[track_caller]
pub fn remove_dir_all<P: AsRef<Path>>(path: P) -> io::Result<()> {
    let path = path.as_ref();
    away::call(|| fs::remove_dir_all(path))
}

/// What is known about the file at `path`; symbolic links are followed.
///
/// # Errors
///
/// As std, such as `NotFound`; or a cancellation.
///
/// ```
/// let root = sinew::run(|| sinew::fs::metadata("/"))?;
/// assert!(root.is_dir());
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn metadata<P: AsRef<Path>>(path: P) -> io::Result<Metadata> {
    let path = path.as_ref();
    away::call(|| fs::metadata(path))
}

/// What is known about the file at `path`, be it a symbolic link.
///
/// # Errors
///
/// As std, such as `NotFound`; or a cancellation.
///
/// ```
/// let link = sinew::fs::symlink_metadata("/proc/self")?;
/// assert!(link.is_symlink());
/// assert!(sinew::fs::metadata("/proc/self")?.is_dir());
/// # std::io::Result::Ok(())
/// ```
#[track_caller]
pub fn symlink_metadata<P: AsRef<Path>>(path: P) -> io::Result<Metadata> {
    let path = path.as_ref();
    away::call(|| fs::symlink_metadata(path))
}

/// Changes the permissions of the file at `path`.
///
/// # Errors
///
/// As std, such as `NotFound` and `PermissionDenied`; or a cancellation.
///
/// ```
/// use sinew::fs;
///
/// let dir = std::env::temp_dir().join(format!("sinew-permissions-{}", std::process::id()));
/// fs::create_dir(&dir)?;
/// let file = dir.join("file");
/// fs::write(&file, "")?;
/// let mut permissions = fs::metadata(&file)?.permissions();
/// permissions.set_readonly(true);
/// fs::set_permissions(&file, permissions)?;
/// assert!(fs::metadata(&file)?.permissions().readonly());
/// fs::remove_dir_all(&dir)?;
/// # std::io::Result::Ok(())
/// ```
#[track_caller]
pub fn set_permissions<P: AsRef<Path>>(path: P, permissions: Permissions) -> io::Result<()> {
    let path = path.as_ref();
    away::call(|| fs::set_permissions(path, permissions))
}

/// Whether there is a file at `path`; symbolic links are followed.
///
/// # Errors
///
/// As std, if that cannot be told; or a cancellation.
///
/// ```
/// assert!(sinew::fs::exists("/proc")?);
/// assert!(!sinew::fs::exists("/proc/nothing")?);
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn exists<P: AsRef<Path>>(path: P) -> io::Result<bool> {
    let path = path.as_ref();
    away::call(|| fs::exists(path))
}

/// Gives the file at `original` a further name, `link`.
///
/// # Errors
///
/// As std, such as `NotFound` and `AlreadyExists`; or a cancellation.
///
/// ```
/// use sinew::fs;
///
/// let dir = std::env::temp_dir().join(format!("sinew-link-{}", std::process::id()));
/// fs::create_dir(&dir)?;
/// let (one, other) = (dir.join("one"), dir.join("other"));
/// fs::write(&one, "text")?;
/// fs::hard_link(&one, &other)?;
/// fs::remove_file(&one)?;
/// assert_eq!(fs::read_to_string(&other)?, "text");
/// fs::remove_dir_all(&dir)?;
/// # std::io::Result::Ok(())
/// ```
#[track_caller]
pub fn hard_link<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
    let (original, link) = (original.as_ref(), link.as_ref());
    away::call(|| fs::hard_link(original, link))
}

/// Makes `link` a symbolic link to `original`.
///
/// # Errors
///
/// As [`symlink`].
///
/// ```
/// # #![allow(deprecated)]
/// let taken = sinew::fs::soft_link("target", "/").unwrap_err();
/// assert_eq!(taken.kind(), std::io::ErrorKind::AlreadyExists);
/// ```
#[deprecated = "std has it deprecated as well; use `symlink`"]
#[track_caller]
pub fn soft_link<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
    symlink(original, link)
}

/// Makes `link` a symbolic link to `original`; as `std::os::unix::fs::symlink`.
///
/// # Errors
///
/// As std, such as `AlreadyExists`; or a cancellation.
///
/// ```
/// use sinew::fs;
///
/// let dir = std::env::temp_dir().join(format!("sinew-symlink-{}", std::process::id()));
/// fs::create_dir(&dir)?;
/// let link = dir.join("link");
/// fs::symlink("target", &link)?;
/// assert_eq!(fs::read_link(&link)?.to_str(), Some("target"));
/// fs::remove_dir_all(&dir)?;
/// # std::io::Result::Ok(())
/// ```
#[track_caller]
pub fn symlink<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
    let (original, link) = (original.as_ref(), link.as_ref());
    away::call(|| std::os::unix::fs::symlink(original, link))
}

/// Where the symbolic link at `path` leads.
///
/// # Errors
///
/// As std, such as `NotFound`, and `InvalidInput` if it is none; or a cancellation.
///
/// ```
/// let own = sinew::fs::read_link("/proc/self")?;
/// assert_eq!(own.to_str(), Some(&*std::process::id().to_string()));
/// # std::io::Result::Ok(())
/// ```
#[track_caller]
pub fn read_link<P: AsRef<Path>>(path: P) -> io::Result<PathBuf> {
    let path = path.as_ref();
    away::call(|| fs::read_link(path))
}

/// The absolute form of `path`, without symbolic links and dots.
///
/// # Errors
///
/// As std, such as `NotFound`; or a cancellation.
///
/// ```
/// let path = sinew::fs::canonicalize("/usr/../proc/./version")?;
/// assert_eq!(path, std::path::Path::new("/proc/version"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn canonicalize<P: AsRef<Path>>(path: P) -> io::Result<PathBuf> {
    let path = path.as_ref();
    away::call(|| fs::canonicalize(path))
}
