//! A child that was started, and its end.

use super::pipe::{ChildStderr, ChildStdin, ChildStdout};
use crate::fiber::WaitReason;
use crate::reactor::{Call, Direction, How, Source, call};
use crate::sched::polling;
use crate::task::blocking_at;
use crate::time::Instant;
use crate::wait::{Deadline, point};
use std::fmt;
use std::io::{self, Read};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::panic::Location;
use std::process::{self, ExitStatus, Output};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A child process.
///
/// As std's: dropping it neither ends the child nor waits for it, unless
/// [`kill_on_drop`](super::Command::kill_on_drop) was said. A child that has ended stays
/// a *zombie*, an entry in the system's table, until somebody waits for it.
///
/// ```
/// use sinew::process::Command;
///
/// sinew::run(|| -> std::io::Result<()> {
///     let mut child = Command::new("sleep").arg("3600").spawn()?;
///     assert!(child.try_wait()?.is_none());
///     child.kill()?;
///     assert!(!child.wait()?.success());
///     Ok(())
/// })
/// .unwrap();
/// ```
pub struct Child {
    /// The child's standard input, if it was [piped](super::Stdio::piped).
    pub stdin: Option<ChildStdin>,
    /// The child's standard output, if it was piped.
    pub stdout: Option<ChildStdout>,
    /// The child's standard error, if it was piped.
    pub stderr: Option<ChildStderr>,
    process: Process,
    /// Readable when the child has ended; from the first wait for that on.
    pidfd: Option<Source>,
}

/// What is dropped with a child; apart from it, so that its pipes can be moved out.
struct Process {
    /// Taken by `drop` only.
    inner: Option<process::Child>,
    kill_on_drop: bool,
}

/// Children that were killed when their handles were dropped, and had not ended by then.
static ORPHANS: Mutex<Vec<process::Child>> = Mutex::new(Vec::new());

/// Waits for those orphans that have ended.
pub(super) fn reap_orphans() {
    let mut orphans = ORPHANS.lock().unwrap_or_else(PoisonError::into_inner);
    // An error says that it is no child of ours any more.
    orphans.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
}

/// Asks whether the child has ended.
struct Reap<'a>(&'a mut process::Child);

impl Call for Reap<'_> {
    type Output = ExitStatus;

    fn attempt(&mut self, _fd: BorrowedFd<'_>) -> io::Result<ExitStatus> {
        let status = self.0.try_wait()?;
        status.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }
}

impl Child {
    pub(super) fn new(mut inner: process::Child, kill_on_drop: bool) -> Self {
        Self {
            stdin: inner.stdin.take().map(ChildStdin::from),
            stdout: inner.stdout.take().map(ChildStdout::from),
            stderr: inner.stderr.take().map(ChildStderr::from),
            process: Process {
                inner: Some(inner),
                kill_on_drop,
            },
            pidfd: None,
        }
    }

    fn inner(&mut self) -> &mut process::Child {
        self.process
            .inner
            .as_mut()
            .expect("there until it is dropped")
    }

    /// The child's number. It is nobody else's until the child was waited for.
    pub fn id(&self) -> u32 {
        let inner = self.process.inner.as_ref();
        inner.expect("there until it is dropped").id()
    }

    /// Kills the child (`SIGKILL`), if it has not been waited for; does not wait.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn kill(&mut self) -> io::Result<()> {
        self.inner().kill()
    }

    /// How the child has ended, if it has.
    ///
    /// A loop of failing tries is a place where other fibers may run: every 64th in one turn
    /// of a fiber yields.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = self.inner().try_wait();
        polling::tried(matches!(status, Ok(Some(_))));
        status
    }

    /// Waits for the child's end, and answers how that was; later calls answer the same.
    ///
    /// Its standard input is closed first, if it is still here: else a child that reads
    /// to the end and we would wait for each other. A cancellation point; the child
    /// goes on then.
    ///
    /// # Errors
    ///
    /// The system's, or a cancellation.
    #[track_caller]
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.wait_by(None, Location::caller())
    }

    /// As [`wait`](Self::wait), but for `timeout` at most.
    ///
    /// # Errors
    ///
    /// `TimedOut` if the time was over first; otherwise as [`wait`](Self::wait).
    ///
    /// ```
    /// use std::io::ErrorKind;
    /// use std::time::Duration;
    /// use sinew::process::Command;
    ///
    /// let mut child = Command::new("sleep").arg("3600").kill_on_drop(true).spawn()?;
    /// let error = child.wait_timeout(Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::TimedOut);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn wait_timeout(&mut self, timeout: Duration) -> io::Result<ExitStatus> {
        self.wait_by(Deadline::after(timeout), Location::caller())
    }

    /// As [`wait`](Self::wait), but until `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`wait_timeout`](Self::wait_timeout).
    #[track_caller]
    pub fn wait_deadline(&mut self, deadline: Instant) -> io::Result<ExitStatus> {
        self.wait_by(Some(deadline.deadline()), Location::caller())
    }

    fn wait_by(
        &mut self,
        deadline: Option<Deadline>,
        at: &'static Location<'static>,
    ) -> io::Result<ExitStatus> {
        point::check()?;
        drop(self.stdin.take());
        if let Some(status) = self.inner().try_wait()? {
            return Ok(status);
        }
        if self.pidfd.is_none() {
            // The number is the child's: it has not been waited for.
            match pidfd_of(self.id()) {
                Ok(fd) => self.pidfd = Some(Source::new(fd)),
                Err(error) => return self.wait_without(error, deadline, at),
            }
        }
        let Self { process, pidfd, .. } = self;
        let (Some(inner), Some(pidfd)) = (&mut process.inner, pidfd) else {
            unreachable!("both are there")
        };
        let mut how = How::of(pidfd, Direction::Read, at).because(WaitReason::Process);
        how.deadline = deadline;
        how.timed_out = io::ErrorKind::TimedOut;
        call::make(pidfd, &how, &mut Reap(inner))
    }

    /// Waits where there is no pidfd to wait for: before Linux 5.3, in some sandboxes,
    /// and out of descriptors.
    ///
    /// A thread of the pool waits instead, which no cancellation can reach.
    #[cold]
    fn wait_without(
        &mut self,
        error: io::Error,
        deadline: Option<Deadline>,
        at: &'static Location<'static>,
    ) -> io::Result<ExitStatus> {
        if deadline.is_some() {
            return Err(error); // std knows no wait with a limit either
        }
        let inner = self.inner();
        blocking_at(at, || inner.wait())
    }

    /// Waits for the child's end, and collects what it writes meanwhile to the outputs
    /// that are piped and still here.
    ///
    /// Its standard input is closed first. Both outputs are read at the same time, so
    /// the child cannot get stuck on either. Cancelled, it leaves the child running,
    /// unless `kill_on_drop` was said.
    ///
    /// # Errors
    ///
    /// The system's, or a cancellation.
    #[track_caller]
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let _count = match (self.stdout.take(), self.stderr.take()) {
            (None, None) => 0,
            (Some(mut out), None) => out.read_to_end(&mut stdout)?,
            (None, Some(mut err)) => err.read_to_end(&mut stderr)?,
            (Some(mut out), Some(mut err)) => crate::scope::nursery(|n| {
                n.spawn(|| err.read_to_end(&mut stderr));
                out.read_to_end(&mut stdout)
            })?,
        };
        Ok(Output {
            status: self.wait()?,
            stdout,
            stderr,
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(mut inner) = self.inner.take() else {
            return;
        };
        if !self.kill_on_drop || !matches!(inner.try_wait(), Ok(None)) {
            return;
        }
        // An error says that it has ended by itself.
        let _killed = inner.kill();
        // It ends soon, but not at once, and dropping must not wait.
        if matches!(inner.try_wait(), Ok(None)) {
            let orphans = ORPHANS.lock();
            orphans.unwrap_or_else(PoisonError::into_inner).push(inner);
        }
    }
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child")
            .field("id", &self.id())
            .field("stdin", &self.stdin)
            .field("stdout", &self.stdout)
            .field("stderr", &self.stderr)
            .finish_non_exhaustive()
    }
}

/// A descriptor of the process with this number.
fn pidfd_of(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers. It is closed on exec, as it always is.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, id as libc::pid_t, 0) };
    match i32::try_from(fd) {
        // SAFETY: a new descriptor that nobody else has.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}
