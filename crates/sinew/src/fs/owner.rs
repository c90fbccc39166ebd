//! Whose a file is, and where this process' files begin: `std::os::unix::fs`.

use super::away;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs;
use std::path::Path;

/// Changes owner and group of the file at `path`; none leaves it as it is.
///
/// Follows symbolic links; [`lchown`] does not.
///
/// # Errors
///
/// The system's, such as `PermissionDenied`; or a cancellation.
///
/// # Examples
///
/// ```
/// let path = std::env::temp_dir().join(format!("sinew-chown-{}", std::process::id()));
/// sinew::run(|| {
///     sinew::fs::write(&path, "mine")?;
///     sinew::fs::chown(&path, None, None)?;
///     sinew::fs::remove_file(&path)?;
///     assert!(sinew::fs::chown(&path, None, None).is_err());
///     std::io::Result::Ok(())
/// })
/// # .unwrap();
/// ```
#[track_caller]
pub fn chown<P: AsRef<Path>>(path: P, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    let path = path.as_ref();
    away::call(|| fs::chown(path, uid, gid))
}

/// Changes owner and group of an open file; none leaves it as it is.
///
/// # Errors
///
/// As [`chown`].
///
/// # Examples
///
/// ```
/// let path = std::env::temp_dir().join(format!("sinew-fchown-{}", std::process::id()));
/// let file = sinew::fs::File::create(&path)?;
/// sinew::fs::fchown(&file, None, None)?;
/// assert!(file.metadata()?.is_file());
/// # sinew::fs::remove_file(&path)?;
/// # std::io::Result::Ok(())
/// ```
#[track_caller]
pub fn fchown<F: AsFd>(fd: F, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    let fd = fd.as_fd();
    away::call(|| fs::fchown(fd, uid, gid))
}

/// As [`chown`], but of a symbolic link itself.
///
/// # Errors
///
/// As [`chown`].
///
/// # Examples
///
/// ```
/// let path = std::env::temp_dir().join(format!("sinew-lchown-{}", std::process::id()));
/// sinew::fs::symlink("leads/nowhere", &path)?;
/// assert!(sinew::fs::chown(&path, None, None).is_err());
/// sinew::fs::lchown(&path, None, None)?;
/// # sinew::fs::remove_file(&path)?;
/// # std::io::Result::Ok(())
/// ```
#[track_caller]
pub fn lchown<P: AsRef<Path>>(path: P, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    let path = path.as_ref();
    away::call(|| fs::lchown(path, uid, gid))
}

/// Makes `dir` the root of all paths of this process, of all its fibers and threads.
///
/// As std's it does not change the current directory: follow it by
/// [`std::env::set_current_dir`].
///
/// # Errors
///
/// The system's, such as `PermissionDenied` and `NotFound`; or a cancellation.
///
/// # Examples
///
/// ```
/// assert!(sinew::fs::chroot("/there/is/no/such/folder").is_err());
/// ```
#[track_caller]
pub fn chroot<P: AsRef<Path>>(dir: P) -> io::Result<()> {
    let dir = dir.as_ref();
    away::call(|| fs::chroot(dir))
}
