//! How a worker sleeps, and what it hears of when it looks up.
//!
//! A worker that never did any I/O sleeps on a futex and owns no descriptor. The
//! first wait for a descriptor on it makes what its kind of driver needs: a bell, and
//! an epoll instance or a ring; from then on it sleeps there, and others end its
//! sleep by the bell (`sched::seam::ParkWord`).
//!
//! Invariant 1 (own thread): `machinery` is touched by the worker's thread alone: by
//! its loop, and by its fibers between two switches. A slot for spares may have several
//! threads, one after the other; `sched::duty` orders them.
//! Invariant 2 (bell first): the bell is there before the worker sleeps in the kernel.

use super::registry::{A_FEW, Heard, MANY, Post, Registry};
use super::ring::{Ring, RingSize};
use super::tasks;
use crate::sched::current;
use crate::sched::seam::{Driver, Ended, ParkWord};
use crate::sys::Lock;
use crate::sys::epoll::Bell;
use crate::sys::process;
use std::any::Any;
use std::cell::UnsafeCell;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Which way a runtime does I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DriverKind {
    Epoll,
    Uring,
}

impl DriverKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Epoll => "epoll",
            Self::Uring => "uring",
        }
    }
}

/// The driver of one worker; see the module header.
pub(crate) struct Reactor {
    kind: DriverKind,
    size: RingSize,
    word: ParkWord,
    bell: OnceLock<Bell>,
    /// The registry's, once there is one; for statistics. Weak: the epoll set closes with
    /// the registry, also if the runtime is leaked.
    post: Lock<Weak<Post>>,
    /// Operations of the ring that have no completion yet; for statistics.
    in_flight: AtomicUsize,
    machinery: UnsafeCell<Machinery>,
}

/// What the kernel was asked to watch.
#[derive(Default)]
struct Machinery {
    /// With a ring: for who waits for a descriptor to be ready, not for an
    /// operation. The ring watches it.
    registry: Option<Registry>,
    ring: Option<Ring>,
    /// The registry has more events than were taken: the ring has told of them
    /// already, and will not do so again.
    more: bool,
    /// The worker has left its loop.
    stopped: bool,
}

// SAFETY: `machinery` is touched by one thread (invariant 1), and may be dropped on
// any: descriptors and mappings.
unsafe impl Send for Reactor {}
// SAFETY: as above.
unsafe impl Sync for Reactor {}

impl Reactor {
    pub(crate) fn new(kind: DriverKind, size: RingSize) -> Self {
        Self {
            kind,
            size,
            word: ParkWord::new(),
            bell: OnceLock::new(),
            post: Lock::new(Weak::new()),
            in_flight: AtomicUsize::new(0),
            machinery: UnsafeCell::new(Machinery::default()),
        }
    }

    /// Calls `with` on the reactor of this thread's worker; none on other threads,
    /// or if a simulation replaced it.
    pub(crate) fn with_current<R>(with: impl FnOnce(&Reactor) -> R) -> Option<R> {
        // SAFETY: a non-null core is this thread's and alive; `with` does not
        // switch.
        let core = unsafe { current::core().as_ref() }?;
        core.remote()
            .driver
            .as_any()
            .downcast_ref::<Reactor>()
            .map(with)
    }

    pub(crate) fn kind(&self) -> DriverKind {
        self.kind
    }

    /// # Safety
    ///
    /// On the worker's thread, and not inside another such call.
    #[allow(clippy::mut_from_ref)]
    unsafe fn machinery(&self) -> &mut Machinery {
        // SAFETY: invariant 1, and the caller's promise.
        unsafe { &mut *self.machinery.get() }
    }

    fn bell(&self) -> io::Result<&Bell> {
        if let Some(bell) = self.bell.get() {
            return Ok(bell);
        }
        let bell = Bell::new()?;
        Ok(self.bell.get_or_init(|| bell))
    }

    /// Calls `with` on the registry, which is made if there is none.
    ///
    /// # Safety
    ///
    /// On the worker's thread; `with` neither switches nor comes back here.
    pub(crate) unsafe fn with_registry<R>(
        &self,
        with: impl FnOnce(&mut Registry) -> io::Result<R>,
    ) -> io::Result<R> {
        // SAFETY: the caller's promise.
        let machinery = unsafe { self.machinery() };
        machinery.check()?;
        if machinery.registry.is_none() {
            let registry = Registry::new()?;
            match self.kind {
                DriverKind::Epoll => registry.add_bell(self.bell()?)?,
                DriverKind::Uring => {
                    let ring = self.ring(machinery)?;
                    ring.set_registry(registry.as_fd());
                }
            }
            *self.post.lock() = Arc::downgrade(registry.post());
            machinery.registry = Some(registry);
        }
        with(machinery.registry.as_mut().expect("made above"))
    }

    fn ring<'a>(&self, machinery: &'a mut Machinery) -> io::Result<&'a mut Ring> {
        machinery.check()?;
        if machinery.ring.is_none() {
            machinery.ring = Some(Ring::new(self.size, self.bell()?.as_fd())?);
        }
        Ok(machinery.ring.as_mut().expect("made above"))
    }

    /// Calls `with` on the ring, which is made if there is none.
    ///
    /// # Safety
    ///
    /// As for [`with_registry`](Self::with_registry); and the kind is `Uring`.
    pub(crate) unsafe fn with_ring<R>(&self, with: impl FnOnce(&mut Ring) -> R) -> io::Result<R> {
        debug_assert_eq!(self.kind, DriverKind::Uring);
        // SAFETY: the caller's promise.
        let machinery = unsafe { self.machinery() };
        let ring = self.ring(machinery)?;
        let done = with(ring);
        self.count(ring);
        Ok(done)
    }

    /// Takes in events, waiting for them if `wait` says for how long; whether
    /// there were any, or might have been.
    fn take_in(&self, wait: Option<Option<Duration>>) -> bool {
        // SAFETY: only the worker's loop calls this, and what is fired below only
        // enqueues fibers, and does not come back here.
        let machinery = unsafe { self.machinery() };
        let no_wait = Some(Duration::ZERO);
        let most = if wait.is_some() { A_FEW } else { MANY };
        let expected = machinery.more;
        let wait = wait.map(|timeout| if machinery.more { no_wait } else { timeout });
        match (&mut machinery.ring, &mut machinery.registry) {
            (Some(ring), registry) => {
                let found = ring.turn(wait);
                self.count(ring);
                let mut heard = Heard::default();
                if let (Some(registry), true) = (registry, found.registry || machinery.more) {
                    heard = registry.wait(no_wait, most, tasks::fire);
                    machinery.more = heard.more;
                }
                found.answers > 0 || heard.some || expected
            }
            (None, Some(registry)) => {
                let timeout = wait.unwrap_or(no_wait);
                if wait.is_none() && registry.post().watched() == 0 {
                    return false;
                }
                // What is left over is told of by the next call.
                registry.wait(timeout, most, tasks::fire).some
            }
            (None, None) => false,
        }
    }

    fn is_used(&self) -> bool {
        // SAFETY: on the worker's thread, for a moment.
        let machinery = unsafe { self.machinery() };
        machinery.ring.is_some() || machinery.registry.is_some()
    }

    /// Whether the kernel carries out something for this worker.
    ///
    /// # Safety
    ///
    /// On the worker's thread.
    pub(crate) unsafe fn is_needed(&self) -> bool {
        // SAFETY: the caller's promise; for a moment.
        let machinery = unsafe { self.machinery() };
        machinery.ring.as_ref().map_or(0, Ring::in_flight) > 0
    }

    fn count(&self, ring: &Ring) {
        // Relaxed: a recent number for who asks.
        self.in_flight.store(ring.in_flight(), Ordering::Relaxed);
    }

    /// How many operations the kernel carries out for this worker, and how many
    /// descriptors it watches for it.
    pub(crate) fn occupancy(&self) -> (usize, usize) {
        let post = self.post.lock().upgrade();
        let watched = post.map_or(0, |post| post.watched());
        (self.in_flight.load(Ordering::Relaxed), watched)
    }
}

impl Machinery {
    /// Whether it may be used: not after its end, and not in a forked child, which
    /// shares the kernel's side of it with its parent.
    fn check(&self) -> io::Result<()> {
        if self.stopped {
            return Err(io::Error::other("the runtime has shut down"));
        }
        if process::is_forked() {
            return Err(io::Error::other(
                "the runtime is that of the parent process",
            ));
        }
        Ok(())
    }
}

impl Driver for Reactor {
    fn park(&self, timeout: Option<Duration>) -> Ended {
        if !self.is_used() {
            self.word.park(timeout);
            return Ended::Unparked;
        }
        let mut events = false;
        let unparked = self.word.park_in_kernel(|at_once| {
            let wait = if at_once {
                Some(Duration::ZERO)
            } else {
                timeout
            };
            events = self.take_in(Some(wait));
        });
        if events && !unparked {
            Ended::Event
        } else {
            Ended::Unparked
        }
    }

    fn unpark(&self) {
        let bell = || self.bell.get().expect("invariant 2").ring();
        self.word.unpark(bell);
    }

    fn poll(&self) {
        self.take_in(None);
    }

    fn stop(&self, kept: bool) {
        // SAFETY: the worker's loop calls it, after its last turn.
        let machinery = unsafe { self.machinery() };
        // The ring goes here, on the thread that issued. Operations in flight belong to
        // leaked fibers, and their buffers may be anywhere: on a stack, on the heap or in
        // a thread-local. All of these stay if the thread is kept, and closing the ring
        // would only start to cancel them: so it stays as well. If the thread is not kept,
        // no fiber is left; an iterator may have left its operation to the last answer.
        let mut ring = machinery.ring.take();
        if !kept {
            ring.as_mut().into_iter().for_each(Ring::await_orphans);
            ring = None;
        }
        *machinery = Machinery {
            stopped: true,
            ring,
            ..Machinery::default()
        };
    }

    fn rest(&self) {
        // SAFETY: as in `stop`.
        let machinery = unsafe { self.machinery() };
        // Nobody here tells of events any more. A task that was polled here may wait for
        // one elsewhere: it is woken, tries again, and is watched for at its new place.
        if let Some(registry) = machinery.registry.as_mut() {
            registry.disown(tasks::fire);
        }
        // As in `stop`; nothing is in flight.
        *machinery = Machinery::default();
        *self.post.lock() = Weak::new();
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
