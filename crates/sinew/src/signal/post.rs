//! From handlers to those who wait.
//!
//! Invariant (no signal is missed): a handler marks its kind before it rings, and the
//! thread takes marks after it has heard a ring. So a mark that it does not see is
//! followed by a ring that it has not heard.

use super::kind::SignalKind;
use crate::sync::Sequencer;
use crate::sys::handler::{self, Former, SIGNALS};
use crate::sys::process;
use crate::wait::waiter::quietly;
use std::ffi::c_int;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Faults, which are no messages; and what no program may handle.
const FORBIDDEN: [c_int; 6] = [
    libc::SIGKILL,
    libc::SIGSTOP,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGBUS,
];

/// One kind of signal.
pub(super) struct Kind {
    number: c_int,
    /// Set by the handler, taken away by the thread.
    marked: AtomicBool,
    /// The handler is to give the signal its default action: nobody listens any more, but it
    /// could not be removed. Changed under the lock of `listeners`.
    unwanted: AtomicBool,
    /// How many were seen by the thread.
    pub(super) count: Sequencer,
    /// Also held while the handler is installed and removed.
    listeners: Mutex<Listeners>,
}

/// Who listens to one kind.
#[derive(Default)]
struct Listeners {
    count: usize,
    /// There is a handler; this was there before it.
    handled: Option<Former>,
    /// Somebody has listened for one signal only, and does not any more. From then on the
    /// signal gets its former action back whenever nobody listens.
    one_shot: bool,
}

struct Post {
    /// By number. In a box: some 16 KiB, which the fiber that listens first may not have left.
    kinds: Box<[Kind]>,
    /// An eventfd, on which the thread sleeps.
    bell: File,
}

static POST: OnceLock<Post> = OnceLock::new();
/// Whether its thread runs; also held while it is set up.
static STARTED: Mutex<bool> = Mutex::new(false);

/// Sees to it that signals of this kind are counted; until [`Kind::leave`].
pub(super) fn listen(kind: SignalKind) -> io::Result<&'static Kind> {
    let number = kind.as_raw();
    let known = usize::try_from(number).is_ok_and(|number| (1..SIGNALS).contains(&number));
    if !known || FORBIDDEN.contains(&number) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{kind:?} cannot be received"),
        ));
    }
    let post = post()?;
    let kind = &post.kinds[number as usize];
    let mut listeners = kind.listeners();
    crate::worker::stall::signals_may_come();
    // Relaxed: a signal that comes while this call goes on may still have its default action.
    kind.unwanted.store(false, Ordering::Relaxed);
    if listeners.handled.is_none() || handler::was_taken_away(number)? {
        listeners.handled = Some(handler::install(number, on_signal)?);
    }
    listeners.count += 1;
    Ok(kind)
}

/// The handler: async-signal-safe, for it does a store to a static, and a write. It does not
/// panic. False if nobody wants the signal: a forked child has nobody who could.
fn on_signal(number: c_int) -> bool {
    if process::is_forked() {
        return false;
    }
    // `get` is one load: it never waits. The post is there before any handler is.
    let Some(post) = POST.get() else {
        return true;
    };
    let Some(kind) = post.kinds.get(number as usize) else {
        return true;
    };
    // Relaxed: see `listen`.
    if kind.unwanted.load(Ordering::Relaxed) {
        return false;
    }
    // Release: who receives the signal sees what was done before it was raised; pairs with
    // the swap in `run`.
    kind.marked.store(true, Ordering::Release);
    let one = 1u64;
    // SAFETY: the pointer is to eight bytes. The counter would overflow after 2^64 rings,
    // so it does not block; the bell is never closed.
    unsafe { libc::write(post.bell.as_raw_fd(), (&raw const one).cast(), 8) };
    true
}

impl Kind {
    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody does not listen any more, who did for one signal only if `one_shot`.
    pub(super) fn leave(&self, one_shot: bool) {
        if process::is_forked() {
            return; // a thread that the child does not have may hold the lock
        }
        let mut listeners = self.listeners();
        listeners.count -= 1;
        listeners.one_shot |= one_shot;
        if listeners.count > 0 || !listeners.one_shot {
            return;
        }
        if let Some(former) = &listeners.handled {
            // If another handler is in front of ours, ours stays, and has nothing to mark. An
            // error is none that a signal has which was handled before.
            if handler::restore(self.number, former).unwrap_or(false) {
                listeners.handled = None;
            } else {
                self.unwanted.store(true, Ordering::Relaxed);
            }
        }
    }
}

/// The post, with its thread.
fn post() -> io::Result<&'static Post> {
    process::about_to_start_threads();
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    let post = match POST.get() {
        Some(post) => post,
        None => {
            let post = Post::new()?;
            POST.get_or_init(|| post)
        }
    };
    if !*started {
        std::thread::Builder::new()
            .name("sinew-signal".into())
            .spawn(|| post.run())?;
        *started = true;
    }
    Ok(post)
}

impl Post {
    fn new() -> io::Result<Self> {
        // SAFETY: no pointers.
        let bell = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if bell < 0 {
            return Err(io::Error::last_os_error());
        }
        let kind = |number| Kind {
            number: number as c_int,
            marked: AtomicBool::new(false),
            unwanted: AtomicBool::new(false),
            count: Sequencer::new(),
            listeners: Mutex::default(),
        };
        Ok(Self {
            kinds: (0..SIGNALS).map(kind).collect(),
            // SAFETY: a new descriptor that nobody else has.
            bell: unsafe { File::from_raw_fd(bell) },
        })
    }

    fn run(&self) {
        loop {
            let mut rings = [0; 8];
            // It says `Interrupted` when a signal is handled on this very thread: then
            // there is a ring to hear. Other errors would be mistakes of ours; without
            // the wait this would spin.
            match (&self.bell).read(&mut rings) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return,
                _ => {}
            }
            for kind in &*self.kinds {
                // Acquire: pairs with the handler. A swap, for a mark that comes
                // meanwhile must not be overwritten.
                if kind.marked.swap(false, Ordering::Acquire) {
                    // Calls wakers of tasks: user code.
                    quietly(|| {
                        kind.count.increment();
                    });
                }
            }
            process::stop_forked_thread();
        }
    }
}
