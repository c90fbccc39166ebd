//! A descriptor, with all that waiting for it needs.
//!
//! It is watched by each worker on which a fiber waited for it, from its first wait
//! there until it is closed: then each registration is deleted, and only after that
//! the descriptor closes, since a registration outlives a descriptor that was
//! duplicated, and could not be deleted by anybody then.

use super::readiness::{Direction, Readiness};
use super::registry::{Post, Registry};
use super::{Reactor, outside, tasks};
use crate::sys::epoll::IN;
use crate::sys::{Lock, process};
use smallvec::SmallVec;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;

/// Who watches it.
struct Registration {
    post: Arc<Post>,
    slot: u32,
}

/// See the module header.
pub(crate) struct Source {
    fd: ManuallyDrop<OwnedFd>,
    readiness: Arc<Readiness>,
    registrations: Lock<SmallVec<[Registration; 1]>>,
    /// The post of the first of them, for a look without the lock: it stays.
    first: AtomicPtr<Post>,
    /// Nanoseconds; 0 is none.
    read_timeout: AtomicU64,
    write_timeout: AtomicU64,
    /// The user wants `WouldBlock` instead of waiting.
    never_waits: AtomicBool,
    /// The last call found no descriptor, or no memory.
    exhausted: AtomicBool,
    /// Connections that were accepted ahead, and not handed out by who did.
    accepted: Lock<Vec<OwnedFd>>,
    /// We have set `O_NONBLOCK`, for calls that know no other way.
    nonblocking: AtomicBool,
}

impl Source {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self {
            fd: ManuallyDrop::new(fd),
            readiness: Arc::new(Readiness::new()),
            registrations: Lock::new(SmallVec::new()),
            first: AtomicPtr::new(ptr::null_mut()),
            read_timeout: AtomicU64::new(0),
            write_timeout: AtomicU64::new(0),
            never_waits: AtomicBool::new(false),
            exhausted: AtomicBool::new(false),
            accepted: Lock::new(Vec::new()),
            nonblocking: AtomicBool::new(false),
        }
    }

    pub(crate) fn readiness(&self) -> &Arc<Readiness> {
        &self.readiness
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.readiness.look().is_closed()
    }

    /// Marks it as closed and wakes all who wait; on the caller's stack.
    pub(crate) fn close(&self) {
        self.readiness.close().fire();
        let unwanted = std::mem::take(&mut *self.accepted.lock());
        drop(unwanted);
    }

    /// How long an operation in this direction may take.
    pub(crate) fn timeout(&self, direction: Direction) -> Option<Duration> {
        // Relaxed: a number, and nothing else.
        match self.timeout_of(direction).load(Ordering::Relaxed) {
            0 => None,
            nanos => Some(Duration::from_nanos(nanos)),
        }
    }

    /// # Errors
    ///
    /// `InvalidInput` for zero, as std has it.
    pub(crate) fn set_timeout(
        &self,
        direction: Direction,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        let nanos = match timeout {
            None => 0,
            Some(Duration::ZERO) => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "cannot set a 0 duration timeout",
                ));
            }
            // 584 years are for ever.
            Some(time) => u64::try_from(time.as_nanos()).unwrap_or(0),
        };
        self.timeout_of(direction).store(nanos, Ordering::Relaxed);
        Ok(())
    }

    fn timeout_of(&self, direction: Direction) -> &AtomicU64 {
        match direction {
            Direction::Read => &self.read_timeout,
            Direction::Write => &self.write_timeout,
        }
    }

    /// Whether operations say `WouldBlock` instead of waiting.
    pub(crate) fn never_waits(&self) -> bool {
        // Relaxed: a setting, and nothing else.
        self.never_waits.load(Ordering::Relaxed)
    }

    pub(crate) fn set_never_waits(&self, never: bool) {
        self.never_waits.store(never, Ordering::Relaxed);
    }

    /// Whether the last call found no descriptor; from now on not.
    pub(crate) fn take_exhausted(&self) -> bool {
        // Relaxed: a hint. The load spares the others the write.
        self.exhausted.load(Ordering::Relaxed) && self.exhausted.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn set_exhausted(&self) {
        self.exhausted.store(true, Ordering::Relaxed);
    }

    /// Leaves connections that were accepted for who accepts next; oldest first.
    pub(crate) fn leave_accepted(&self, connections: impl IntoIterator<Item = OwnedFd>) {
        let connections = connections.into_iter().collect::<Vec<_>>();
        if !connections.is_empty() {
            self.accepted.lock().extend(connections);
            // Who waits for one already looks again.
            tasks::fire(self.readiness.hear(IN));
        }
    }

    /// The oldest of those.
    pub(crate) fn take_accepted(&self) -> Option<OwnedFd> {
        let mut accepted = self.accepted.lock();
        if accepted.is_empty() || self.is_closed() {
            return None;
        }
        Some(accepted.remove(0))
    }

    /// Makes calls that know no flag for that return at once.
    ///
    /// The setting is shared with whoever has a duplicate; so it is made only
    /// where there is no other way, and taken back by [`into_fd`](Self::into_fd).
    pub(crate) fn make_nonblocking(&self) -> io::Result<()> {
        // Relaxed: doing it twice does no harm.
        if !self.nonblocking.load(Ordering::Relaxed) && !set_nonblocking(self.as_fd(), true)? {
            self.nonblocking.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether it was made so by us.
    pub(crate) fn is_nonblocking(&self) -> bool {
        self.nonblocking.load(Ordering::Relaxed)
    }

    /// Takes that back.
    pub(crate) fn make_blocking_again(&self) -> io::Result<()> {
        // Relaxed: as above. A forked child shares the setting with its parent.
        if self.nonblocking.swap(false, Ordering::Relaxed) && !process::is_forked() {
            set_nonblocking(self.as_fd(), false)?;
        }
        Ok(())
    }

    /// Sees to it that this worker hears of events, or if this thread is none, the
    /// thread that watches for tasks does.
    pub(crate) fn watch(&self) -> io::Result<()> {
        // SAFETY: on the worker's thread; `watch_by` only adds.
        let here = |reactor: &Reactor| unsafe { reactor.with_registry(|r| self.watch_by(r)) };
        match Reactor::with_current(here) {
            Some(watched) => watched,
            None => outside::with_registry(|registry| self.watch_by(registry)),
        }
    }

    fn watch_by(&self, registry: &mut Registry) -> io::Result<()> {
        if !self.is_watched_by(registry.post()) {
            let slot = registry.add(self.as_fd(), &self.readiness)?;
            self.note(registry.post().clone(), slot);
        }
        Ok(())
    }

    fn is_watched_by(&self, post: &Arc<Post>) -> bool {
        // Relaxed: only compared; and whoever would see its own post here has
        // written it itself, or it is the one that all tasks share, under its lock.
        self.first.load(Ordering::Relaxed).cast_const() == Arc::as_ptr(post)
            || self
                .registrations
                .lock()
                .iter()
                .any(|known| Arc::ptr_eq(&known.post, post))
    }

    fn note(&self, post: Arc<Post>, slot: u32) {
        let mut registrations = self.registrations.lock();
        if registrations.is_empty() {
            let first = Arc::as_ptr(&post).cast_mut();
            self.first.store(first, Ordering::Relaxed);
        }
        registrations.push(Registration { post, slot });
    }

    fn unwatch(&mut self) {
        if process::is_forked() {
            return; // the registrations are the parent's, who still wants them
        }
        let registrations = std::mem::take(self.registrations.get_mut());
        for Registration { post, slot } in registrations {
            post.delete(self.fd.as_fd(), slot);
        }
        *self.first.get_mut() = ptr::null_mut();
    }

    /// The descriptor, as it was: nobody watches it any more, and it blocks again
    /// if that was us.
    pub(crate) fn into_fd(self) -> OwnedFd {
        // It cannot fail on an open descriptor.
        let again = self.make_blocking_again();
        debug_assert!(again.is_ok(), "{again:?}");
        self.into_fd_as_it_is()
    }

    /// The same, but it stays non-blocking if it is.
    pub(crate) fn into_fd_as_it_is(mut self) -> OwnedFd {
        self.unwatch();
        // SAFETY: taken once, and `drop` is not run.
        unsafe {
            let mut this = ManuallyDrop::new(self);
            ptr::drop_in_place(&mut this.readiness);
            ptr::drop_in_place(&mut this.accepted);
            ptr::drop_in_place(&mut this.registrations);
            ManuallyDrop::take(&mut this.fd)
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.unwatch();
        // SAFETY: dropped once, here.
        unsafe { ManuallyDrop::drop(&mut self.fd) };
    }
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Sets or clears `O_NONBLOCK`; answers how it was.
fn set_nonblocking(fd: BorrowedFd<'_>, on: bool) -> io::Result<bool> {
    let fd = fd.as_raw_fd();
    // SAFETY: no pointers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    let wanted = if on {
        flags | libc::O_NONBLOCK
    } else {
        flags & !libc::O_NONBLOCK
    };
    // SAFETY: as above.
    if wanted != flags && unsafe { libc::fcntl(fd, libc::F_SETFL, wanted) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(flags & libc::O_NONBLOCK != 0)
}

/// What to say to who uses what this program has closed.
#[cold]
pub(crate) fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "closed by this program")
}
