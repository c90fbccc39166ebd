//! An open file.

use super::away;
use super::nature::Nature;
use super::options::OpenOptions;
use super::transfer::{self, Place, Reading, Writing};
use crate::wait::point;
use std::fmt;
use std::fs::{self, FileTimes, Metadata, Permissions};
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::SystemTime;

/// An open file: std's `File`, on which only the fiber waits.
///
/// It reads, writes and seeks through [`Read`], [`Write`] and [`Seek`], also by
/// `&File`; fibers that share a file move one position, and never get or overwrite the
/// same bytes. [`read_at`](Self::read_at) and [`write_at`](Self::write_at) leave the
/// position alone. Nothing is buffered here: wrap it into a `BufReader` or `BufWriter`
/// for small pieces.
///
/// A read may be shorter than asked for also far from the end: what is in the page
/// cache is returned before what is not. Dropped, it closes, ignoring errors;
/// [`sync_all`](Self::sync_all) tells.
///
/// ```
/// use sinew::fs::File;
/// use std::io::{Read, Seek, Write};
///
/// sinew::run(|| -> std::io::Result<()> {
///     let path = std::env::temp_dir().join(format!("sinew-file-{}", std::process::id()));
///     let mut file = File::options().read(true).write(true).create_new(true).open(&path)?;
///     file.write_all(b"hello, world")?;
///     file.write_all_at(b"H", 0)?;
///     file.rewind()?;
///     let mut text = String::new();
///     file.read_to_string(&mut text)?;
///     assert_eq!(text, "Hello, world");
///     sinew::fs::remove_file(&path)
/// })
/// .unwrap();
/// ```
pub struct File {
    inner: fs::File,
    nature: Nature,
}

impl File {
    /// Opens the file at `path` for reading.
    ///
    /// # Errors
    ///
    /// As [`OpenOptions::open`].
    #[track_caller]
    pub fn open<P: AsRef<Path>>(path: P) -> io::Result<Self> {
        OpenOptions::new().read(true).open(path)
    }

    /// Opens the file at `path` for writing; made if it is not there, emptied if it is.
    ///
    /// # Errors
    ///
    /// As [`OpenOptions::open`].
    #[track_caller]
    pub fn create<P: AsRef<Path>>(path: P) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).open(path)
    }

    /// Makes a file at `path`, for reading and writing.
    ///
    /// # Errors
    ///
    /// As [`OpenOptions::open`]: `AlreadyExists` if there is something.
    #[track_caller]
    pub fn create_new<P: AsRef<Path>>(path: P) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).open(path)
    }

    /// A file that was just opened; may block.
    pub(super) fn opened(inner: fs::File) -> Self {
        let nature = Nature::of(&inner);
        Self { inner, nature }
    }

    /// As [`OpenOptions::new`].
    #[must_use]
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Returns when all that was written is on the disk, with what is known about it.
    ///
    /// # Errors
    ///
    /// The system's, of this call or of writes before it; or a cancellation.
    #[track_caller]
    pub fn sync_all(&self) -> io::Result<()> {
        transfer::sync(&self.inner, false)
    }

    /// The same without what is not needed to read it again, such as its times.
    ///
    /// # Errors
    ///
    /// As [`sync_all`](Self::sync_all).
    #[track_caller]
    pub fn sync_data(&self) -> io::Result<()> {
        transfer::sync(&self.inner, true)
    }

    /// Cuts it off, or fills it up with zeros; the position stays where it is.
    ///
    /// # Errors
    ///
    /// The system's, such as `InvalidInput` if it is not open for writing; or a
    /// cancellation.
    #[track_caller]
    pub fn set_len(&self, size: u64) -> io::Result<()> {
        away::call(|| self.inner.set_len(size))
    }

    /// What is known about it.
    ///
    /// # Errors
    ///
    /// The system's, or a cancellation.
    #[track_caller]
    pub fn metadata(&self) -> io::Result<Metadata> {
        away::call(|| self.inner.metadata())
    }

    /// Changes who may do what with it.
    ///
    /// # Errors
    ///
    /// The system's, such as `PermissionDenied`; or a cancellation.
    #[track_caller]
    pub fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        away::call(|| self.inner.set_permissions(permissions))
    }

    /// Changes when it was used and changed last.
    ///
    /// # Errors
    ///
    /// The system's, such as `PermissionDenied`; or a cancellation.
    #[track_caller]
    pub fn set_times(&self, times: FileTimes) -> io::Result<()> {
        away::call(|| self.inner.set_times(times))
    }

    /// Changes when it was changed last.
    ///
    /// # Errors
    ///
    /// As [`set_times`](Self::set_times).
    #[track_caller]
    pub fn set_modified(&self, time: SystemTime) -> io::Result<()> {
        self.set_times(FileTimes::new().set_modified(time))
    }

    /// A second descriptor of the same open file: they share the position.
    ///
    /// # Errors
    ///
    /// The system's, if there are too many.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.inner.try_clone().map(Self::from)
    }

    /// The same file, as std's.
    pub fn into_std(self) -> fs::File {
        self.inner
    }

    /// Reads from `offset` on, without the position; how many bytes, 0 at the end.
    ///
    /// # Errors
    ///
    /// The system's, or a cancellation before anything was read.
    ///
    /// ```
    /// let file = sinew::fs::File::open("/proc/version")?;
    /// let mut word = [0; 7];
    /// assert_eq!(file.read_at(&mut word, 6)?, 7);
    /// assert_eq!(&word, b"version");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    #[inline]
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_vectored_at(&mut [IoSliceMut::new(into)], offset)
    }

    /// The same into several buffers, one after the other.
    ///
    /// # Errors
    ///
    /// As [`read_at`](Self::read_at).
    #[track_caller]
    #[inline]
    pub fn read_vectored_at(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        self.read_parts(into, Place::at(offset)?)
    }

    /// Fills all of `into` with what is at `offset`.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` if there is less; otherwise as [`read_at`](Self::read_at). A part
    /// may have been filled.
    #[track_caller]
    pub fn read_exact_at(&self, mut into: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !into.is_empty() {
            let count = self.read_at(into, offset)?;
            if count == 0 {
                let what = "failed to fill whole buffer";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
            }
            into = &mut into[count..];
            offset += count as u64;
        }
        Ok(())
    }

    /// Writes to `offset`, without the position; how many bytes.
    ///
    /// A file that is open for appending appends all the same, on Linux.
    ///
    /// # Errors
    ///
    /// The system's, or a cancellation before anything was written.
    #[track_caller]
    #[inline]
    pub fn write_at(&self, from: &[u8], offset: u64) -> io::Result<usize> {
        self.write_vectored_at(&[IoSlice::new(from)], offset)
    }

    /// The same from several buffers, one after the other.
    ///
    /// # Errors
    ///
    /// As [`write_at`](Self::write_at).
    #[track_caller]
    #[inline]
    pub fn write_vectored_at(&self, from: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.write_parts(from, Place::at(offset)?)
    }

    /// Writes all of `from` to `offset`.
    ///
    /// # Errors
    ///
    /// As [`write_at`](Self::write_at); a part may have been written.
    #[track_caller]
    pub fn write_all_at(&self, mut from: &[u8], mut offset: u64) -> io::Result<()> {
        while !from.is_empty() {
            let count = self.write_at(from, offset)?;
            if count == 0 {
                let what = "failed to write whole buffer";
                return Err(io::Error::new(io::ErrorKind::WriteZero, what));
            }
            from = &from[count..];
            offset += count as u64;
        }
        Ok(())
    }

    #[track_caller]
    #[inline]
    fn read_parts(&self, into: &mut [IoSliceMut<'_>], place: Place) -> io::Result<usize> {
        transfer::make(&self.inner, &self.nature, place, Reading(into))
    }

    #[track_caller]
    #[inline]
    fn write_parts(&self, from: &[IoSlice<'_>], place: Place) -> io::Result<usize> {
        transfer::make(&self.inner, &self.nature, place, Writing(from))
    }

    /// A server may have to be asked where the end is; all else is counting.
    #[track_caller]
    fn seek_to(&self, to: SeekFrom) -> io::Result<u64> {
        match to {
            SeekFrom::End(_) => away::call(|| (&self.inner).seek(to)),
            SeekFrom::Start(_) | SeekFrom::Current(_) => {
                point::check()?;
                (&self.inner).seek(to)
            }
        }
    }
}

impl Read for &File {
    #[track_caller]
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.read_parts(&mut [IoSliceMut::new(into)], Place::Position)
    }

    #[track_caller]
    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.read_parts(into, Place::Position)
    }
}

impl Read for File {
    #[track_caller]
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self).read(into)
    }

    #[track_caller]
    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(into)
    }
}

impl Write for &File {
    #[track_caller]
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.write_parts(&[IoSlice::new(from)], Place::Position)
    }

    #[track_caller]
    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_parts(from, Place::Position)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for File {
    #[track_caller]
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        (&*self).write(from)
    }

    #[track_caller]
    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    #[track_caller]
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.seek_to(to)
    }
}

impl Seek for File {
    #[track_caller]
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.seek_to(to)
    }
}

impl From<fs::File> for File {
    fn from(inner: fs::File) -> Self {
        Self {
            inner,
            nature: Nature::unknown(),
        }
    }
}

impl From<File> for fs::File {
    fn from(file: File) -> Self {
        file.inner
    }
}

impl From<OwnedFd> for File {
    fn from(fd: OwnedFd) -> Self {
        fs::File::from(fd).into()
    }
}

impl From<File> for OwnedFd {
    fn from(file: File) -> Self {
        file.inner.into()
    }
}

impl FromRawFd for File {
    unsafe fn from_raw_fd(fd: RawFd) -> Self {
        // SAFETY: the caller's promise.
        unsafe { fs::File::from_raw_fd(fd) }.into()
    }
}

impl IntoRawFd for File {
    fn into_raw_fd(self) -> RawFd {
        self.inner.into_raw_fd()
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.inner.as_raw_fd()
    }
}

impl fmt::Debug for File {
    /// As std's: the descriptor, and what it is open for.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// As a child's standard stream.
impl From<File> for std::process::Stdio {
    fn from(file: File) -> Self {
        file.into_std().into()
    }
}

/// For who asks for the trait; the methods of its own are the same.
impl std::os::unix::fs::FileExt for File {
    #[track_caller]
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(into, offset)
    }

    #[track_caller]
    fn write_at(&self, from: &[u8], offset: u64) -> io::Result<usize> {
        self.write_at(from, offset)
    }
}
