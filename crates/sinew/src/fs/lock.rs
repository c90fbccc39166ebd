//! Locks on whole files.
//!
//! The kernel's call, `flock(2)`, blocks its thread for as long as another process likes.
//! A fiber must not wait in it on a worker, and on the blocking pool it would hold one of
//! the threads that others need, perhaps one that is to unlock the file. So nobody waits
//! in it: the lock is tried (`LOCK_NB`), again and again, and between two tries the fiber
//! sleeps, longer each time.
//!
//! A try may have to ask a server if the file is a network's, so it is made on the pool.

use super::away;
use super::file::File;
use crate::task::blocking;
use crate::time::sleep;
use std::error::Error;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// The first pause between two tries, and the longest: whoever waits for a lock that
/// was held for long finds it free so much too late at most.
const FIRST_PAUSE: Duration = Duration::from_micros(200);
const LONGEST_PAUSE: Duration = Duration::from_millis(25);

/// Why [`File::try_lock`] and [`File::try_lock_shared`] did not lock; as std's.
///
/// # Examples
///
/// ```
/// use sinew::fs::{File, TryLockError};
///
/// let path = std::env::temp_dir().join(format!("sinew-try-lock-{}", std::process::id()));
/// let (one, other) = (File::create(&path)?, File::open(&path)?);
/// one.lock()?;
/// assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
/// # sinew::fs::remove_file(&path)?;
/// # std::io::Result::Ok(())
/// ```
pub enum TryLockError {
    /// The system's error, or a cancellation.
    Error(io::Error),
    /// Somebody else holds the lock.
    WouldBlock,
}

/// Which lock, as `flock(2)` has it.
#[derive(Clone, Copy)]
enum Kind {
    Exclusive = libc::LOCK_EX as isize,
    Shared = libc::LOCK_SH as isize,
}

impl File {
    /// Takes the file's exclusive lock, waiting while anybody else has a lock on it.
    ///
    /// As in std it is an advisory lock of the open file: it binds only those that ask
    /// for it, in any process. It is given back by [`unlock`](Self::unlock), or when the
    /// file and all its clones are closed. Through a file that holds a lock already,
    /// exclusive or shared, it is unspecified what happens; on Linux one lock takes the
    /// other's place.
    ///
    /// Only this fiber waits; it holds no thread meanwhile. A cancellation point: then the
    /// lock was not taken. The lock is tried in intervals of up to 25 ms, so those who wait
    /// get it in no particular order.
    ///
    /// # Errors
    ///
    /// The system's, such as `Unsupported`; or a cancellation.
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::fs::File;
    ///
    /// let path = std::env::temp_dir().join(format!("sinew-lock-{}", std::process::id()));
    /// let file = File::create(&path)?;
    /// sinew::run(|| -> std::io::Result<()> {
    ///     file.lock()?;
    ///     let other = File::open(&path)?;
    ///     let waits = sinew::spawn(move || other.lock());
    ///     sinew::yield_now(); // others run meanwhile
    ///     file.unlock()?;
    ///     waits.join().unwrap()
    /// })?;
    /// # sinew::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn lock(&self) -> io::Result<()> {
        wait_for(self.as_fd(), Kind::Exclusive)
    }

    /// Takes a shared lock of the file, waiting while anybody else has the exclusive one.
    ///
    /// Otherwise as [`lock`](Self::lock).
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock).
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::fs::File;
    ///
    /// let path = std::env::temp_dir().join(format!("sinew-shared-{}", std::process::id()));
    /// let (one, other) = (File::create(&path)?, File::open(&path)?);
    /// one.lock_shared()?;
    /// other.lock_shared()?;
    /// assert!(File::open(&path)?.try_lock().is_err());
    /// # sinew::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn lock_shared(&self) -> io::Result<()> {
        wait_for(self.as_fd(), Kind::Shared)
    }

    /// Takes the file's exclusive lock if nobody else has a lock on it.
    ///
    /// A cancellation point on entry. Each try is made on the blocking pool, for a network's
    /// file system may have to ask its server; so other fibers run meanwhile, also between
    /// tries that fail.
    ///
    /// # Errors
    ///
    /// [`TryLockError::WouldBlock`] if somebody has; otherwise as [`lock`](Self::lock).
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::fs::File;
    ///
    /// let path = std::env::temp_dir().join(format!("sinew-trylock-{}", std::process::id()));
    /// let (one, other) = (File::create(&path)?, File::open(&path)?);
    /// one.try_lock()?;
    /// assert!(other.try_lock().is_err());
    /// one.unlock()?;
    /// other.try_lock()?;
    /// # sinew::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn try_lock(&self) -> Result<(), TryLockError> {
        try_once(self.as_fd(), Kind::Exclusive)
    }

    /// Takes a shared lock of the file if nobody else has the exclusive one.
    ///
    /// A cancellation point on entry. Each try is made on the blocking pool, for a network's
    /// file system may have to ask its server; so other fibers run meanwhile, also between
    /// tries that fail.
    ///
    /// # Errors
    ///
    /// [`TryLockError::WouldBlock`] if somebody has; otherwise as [`lock`](Self::lock).
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::fs::File;
    ///
    /// let path = std::env::temp_dir().join(format!("sinew-tryshared-{}", std::process::id()));
    /// let (one, other) = (File::create(&path)?, File::open(&path)?);
    /// one.try_lock_shared()?;
    /// other.try_lock_shared()?;
    /// # sinew::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn try_lock_shared(&self) -> Result<(), TryLockError> {
        try_once(self.as_fd(), Kind::Shared)
    }

    /// Gives the file's lock back, if there is one.
    ///
    /// No cancellation point, unlike all else that is done to files: a cancelled fiber
    /// gives back what it has.
    ///
    /// # Errors
    ///
    /// The system's.
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::fs::File;
    ///
    /// let path = std::env::temp_dir().join(format!("sinew-unlock-{}", std::process::id()));
    /// let file = File::create(&path)?;
    /// file.lock()?;
    /// file.unlock()?;
    /// file.unlock()?; // there is none any more
    /// # sinew::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn unlock(&self) -> io::Result<()> {
        let fd = self.as_fd();
        blocking(|| flock(fd, libc::LOCK_UN))
    }
}

#[track_caller]
fn wait_for(fd: BorrowedFd<'_>, kind: Kind) -> io::Result<()> {
    let mut pause = FIRST_PAUSE;
    loop {
        match try_once(fd, kind) {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) => {}
        }
        sleep(pause)?;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[track_caller]
fn try_once(fd: BorrowedFd<'_>, kind: Kind) -> Result<(), TryLockError> {
    let tried = away::call(|| flock(fd, kind as libc::c_int | libc::LOCK_NB));
    tried.map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => TryLockError::WouldBlock,
        _ => TryLockError::Error(error),
    })
}

fn flock(fd: BorrowedFd<'_>, operation: libc::c_int) -> io::Result<()> {
    loop {
        // SAFETY: no pointers.
        if unsafe { libc::flock(fd.as_raw_fd(), operation) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        // A network's file system may wait for its server, and be interrupted.
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

impl fmt::Debug for TryLockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => error.fmt(f),
            Self::WouldBlock => f.write_str("WouldBlock"),
        }
    }
}

impl fmt::Display for TryLockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error(_) => "the file could not be locked",
            Self::WouldBlock => "the file is locked by somebody else",
        })
    }
}

impl Error for TryLockError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Error(error) => Some(error),
            Self::WouldBlock => None,
        }
    }
}

/// The system's error, or one of kind `WouldBlock`.
impl From<TryLockError> for io::Error {
    fn from(error: TryLockError) -> Self {
        match error {
            TryLockError::Error(error) => error,
            TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
        }
    }
}
