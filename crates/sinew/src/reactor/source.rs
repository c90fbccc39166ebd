//! A descriptor, with all that waiting for it needs.
//!
//! It is watched by each worker on which a fiber waited for it, from its first wait
//! there until it is closed: then each registration is deleted, and only after that
//! the descriptor closes, since a registration outlives a descriptor that was
//! duplicated, and could not be deleted by anybody then.
//!
//! Clones are owners of the same descriptor; the last one closes it. They are counted
//! apart from the references to the [`Body`], which a registry also has.

use super::body::{Body, Kept, Registration};
use super::readiness::{Direction, Readiness, ReadyWait};
use super::registry::{Post, Registry};
use super::{Reactor, outside, tasks};
use crate::sys::process;
use crate::wait::Pending;
use std::future::poll_fn;
use std::io;
use std::mem::{self, ManuallyDrop};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::pin::pin;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// See the module header.
pub(crate) struct Source {
    body: Arc<Body>,
}

impl Source {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self {
            body: Arc::new(Body::new(fd.into_raw_fd())),
        }
    }

    #[inline]
    pub(crate) fn readiness(&self) -> &Readiness {
        self.body.readiness()
    }

    /// Waits until the direction is ready, as a task's future that may be kept: it
    /// owns what it stands in line at.
    #[cfg_attr(
        not(any(feature = "futures-io", feature = "hyper")),
        allow(dead_code, reason = "only `interop` keeps waits")
    )]
    pub(crate) fn ready_kept(
        &self,
        direction: Direction,
    ) -> impl Future<Output = ()> + Send + Sync + use<> {
        Pending::new(ReadyWait::new(Kept(self.body.clone()), direction))
    }

    /// Waits in async code until the direction is ready, and has whoever polls watch.
    pub(crate) async fn becomes_ready(&self, direction: Direction) -> io::Result<()> {
        let mut ready = pin!(Pending::new(self.readiness().ready(direction)));
        poll_fn(|context| {
            // Each time, for the task may have moved to where nobody watches for it.
            self.watch()?;
            ready.as_mut().poll(context).map(Ok)
        })
        .await
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.readiness().look().is_closed()
    }

    /// Marks it as closed and wakes all who wait; on the caller's stack.
    pub(crate) fn close(&self) {
        self.readiness().close().fire();
        let mut accepted = self.body.accepted.lock();
        let unwanted = mem::take(&mut *accepted);
        self.readiness().note_left(false);
        drop(accepted);
        drop(unwanted);
    }

    /// How long an operation in this direction may take.
    pub(crate) fn timeout(&self, direction: Direction) -> Option<Duration> {
        // Relaxed: a number, and nothing else.
        match self.body.timeout_of(direction).load(Ordering::Relaxed) {
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
        self.body
            .timeout_of(direction)
            .store(nanos, Ordering::Relaxed);
        Ok(())
    }

    /// Whether operations say `WouldBlock` instead of waiting.
    pub(crate) fn never_waits(&self) -> bool {
        // Relaxed: a setting, and nothing else.
        self.body.never_waits.load(Ordering::Relaxed)
    }

    pub(crate) fn set_never_waits(&self, never: bool) {
        self.body.never_waits.store(never, Ordering::Relaxed);
    }

    /// Whether the last call found no descriptor; from now on not.
    pub(crate) fn take_exhausted(&self) -> bool {
        // Relaxed: a hint. The load spares the others the write.
        self.body.exhausted.load(Ordering::Relaxed)
            && self.body.exhausted.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn set_exhausted(&self) {
        self.body.exhausted.store(true, Ordering::Relaxed);
    }

    /// Leaves connections that were accepted for who accepts next; oldest first.
    pub(crate) fn leave_accepted(&self, connections: impl IntoIterator<Item = OwnedFd>) {
        let connections = connections.into_iter().collect::<Vec<_>>();
        // In a forked child nobody waits, and who had a lock may be gone.
        if connections.is_empty() || process::is_forked() {
            return;
        }
        let mut accepted = self.body.accepted.lock();
        // Under the lock: who closes takes what is there, after that.
        if self.is_closed() {
            drop(accepted);
            return; // nobody wants them
        }
        accepted.extend(connections);
        self.readiness().note_left(true);
        drop(accepted);
        // Who waits for one already looks again.
        tasks::fire(self.readiness().tell_readers());
    }

    /// The oldest of those.
    pub(crate) fn take_accepted(&self) -> Option<OwnedFd> {
        if !self.readiness().look().has_left() {
            return None;
        }
        let mut accepted = self.body.accepted.lock();
        if accepted.is_empty() || self.is_closed() {
            return None;
        }
        let oldest = accepted.remove(0);
        if accepted.is_empty() {
            self.readiness().note_left(false);
        }
        Some(oldest)
    }

    /// Makes calls that know no flag for that return at once.
    ///
    /// The setting is shared with whoever has a duplicate; so it is made only
    /// where there is no other way, and taken back by [`into_fd`](Self::into_fd).
    pub(crate) fn make_nonblocking(&self) -> io::Result<()> {
        // Relaxed: doing it twice does no harm.
        if !self.body.nonblocking.load(Ordering::Relaxed) && !set_nonblocking(self.as_fd(), true)? {
            self.body.nonblocking.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether it was made so by us.
    pub(crate) fn is_nonblocking(&self) -> bool {
        self.body.nonblocking.load(Ordering::Relaxed)
    }

    /// Takes that back.
    pub(crate) fn make_blocking_again(&self) -> io::Result<()> {
        // Relaxed: as above. A forked child shares the setting with its parent.
        if self.body.nonblocking.swap(false, Ordering::Relaxed) && !process::is_forked() {
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
        if self.is_watched_by(registry.post()) {
            return Ok(());
        }
        let (slot, alias) = match registry.add(self.as_fd(), &self.body) {
            Ok(slot) => (slot, None),
            // Another source has the same number, which the kernel knows it by.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let alias = self.as_fd().try_clone_to_owned()?;
                (registry.add(alias.as_fd(), &self.body)?, Some(alias))
            }
            Err(error) => return Err(error),
        };
        let post = registry.post().clone();
        self.note(Registration { post, slot, alias });
        Ok(())
    }

    fn is_watched_by(&self, post: &Arc<Post>) -> bool {
        // Relaxed: only compared. A post that is found here is registered: only its own
        // registry takes it out (`Body::forget`), on the thread that would ask here, or
        // under the lock of the one that all tasks share. One that has gone was taken out
        // before its memory could become that of another.
        self.body.first.load(Ordering::Relaxed).cast_const() == Arc::as_ptr(post)
            || self
                .body
                .registrations
                .lock()
                .iter()
                .any(|known| Arc::ptr_eq(&known.post, post))
    }

    fn note(&self, registration: Registration) {
        let mut registrations = self.body.registrations.lock();
        if registrations.is_empty() {
            let first = Arc::as_ptr(&registration.post).cast_mut();
            self.body.first.store(first, Ordering::Relaxed);
        }
        registrations.push(registration);
    }

    /// Gives the descriptor back, which nobody watches from now on.
    ///
    /// # Safety
    ///
    /// The last owner has gone, or is the caller; called once.
    unsafe fn take_fd(body: &Body) -> OwnedFd {
        // SAFETY: open until now, and from now on nobody's but the answer's (`body`).
        let fd = unsafe { OwnedFd::from_raw_fd(body.fd) };
        // In a forked child the registrations are the parent's, who still wants them.
        if !process::is_forked() {
            let registrations = mem::take(&mut *body.registrations.lock());
            for Registration { post, slot, alias } in registrations {
                post.delete(alias.as_ref().unwrap_or(&fd).as_fd(), slot);
            }
        }
        // Relaxed: nobody else looks any more.
        body.first.store(ptr::null_mut(), Ordering::Relaxed);
        // Now, and not with the body, which a registry may keep for long. Nobody else has
        // the lock, also in a forked child: the owners have gone.
        let unwanted = mem::take(&mut *body.accepted.lock());
        drop(unwanted);
        fd
    }

    /// The descriptor, as it was: nobody watches it any more, and it blocks again
    /// if that was us.
    ///
    /// # Errors
    ///
    /// The source itself, if there are clones of it.
    pub(crate) fn try_into_fd(self) -> Result<OwnedFd, Self> {
        let body = self.try_into_body()?;
        // SAFETY: we were the last owner, and are not any more.
        let fd = unsafe { Self::take_fd(&body) };
        if body.nonblocking.load(Ordering::Relaxed) && !process::is_forked() {
            // It cannot fail on an open descriptor.
            let again = set_nonblocking(fd.as_fd(), false);
            debug_assert!(again.is_ok(), "{again:?}");
        }
        Ok(fd)
    }

    /// Ends the ownership of a sole owner without closing.
    fn try_into_body(self) -> Result<Arc<Body>, Self> {
        // Acquire: what the other owners did before they went; pairs with `drop`.
        let sole = self
            .body
            .owners
            .compare_exchange(1, 0, Ordering::Acquire, Ordering::Relaxed);
        if sole.is_err() {
            return Err(self);
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: read once: `this` is not dropped.
        Ok(unsafe { ptr::read(&this.body) })
    }

    /// [`try_into_fd`](Self::try_into_fd) for who never cloned it.
    pub(crate) fn into_fd(self) -> OwnedFd {
        self.try_into_fd().ok().expect("it has no clones")
    }

    /// The same, but it stays non-blocking if it is.
    pub(crate) fn into_fd_as_it_is(self) -> OwnedFd {
        let body = self.try_into_body().ok().expect("it has no clones");
        // SAFETY: we were the last owner, and are not any more.
        unsafe { Self::take_fd(&body) }
    }
}

impl Clone for Source {
    fn clone(&self) -> Self {
        // Relaxed: who clones is an owner, so the count is not 0 meanwhile.
        let owners = self.body.owners.fetch_add(1, Ordering::Relaxed);
        if owners > isize::MAX as usize {
            std::process::abort() // as `Arc` does;
        }
        Self {
            body: self.body.clone(),
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        // Release: what this owner did is done when the last one closes.
        if self.body.owners.fetch_sub(1, Ordering::Release) == 1 {
            // Pairs with those.
            fence(Ordering::Acquire);
            // SAFETY: we were the last.
            drop(unsafe { Self::take_fd(&self.body) });
        }
    }
}

impl AsFd for Source {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open while there is an owner (`body`), which we are.
        unsafe { BorrowedFd::borrow_raw(self.body.fd) }
    }
}

/// Sets or clears `O_NONBLOCK`; returns how it was.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>, on: bool) -> io::Result<bool> {
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
