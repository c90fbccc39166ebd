//! From handlers to those who wait.
//!
//! Invariant (no signal is missed): a handler marks its kind before it rings, and the
//! thread takes marks after it has heard a ring. So a mark that it does not see is
//! followed by a ring that it has not heard.

use super::kind::SignalKind;
use crate::sync::Sequencer;
use crate::sys::process;
use crate::wait::waiter::quietly;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Signals have numbers from 1 to 64.
const KINDS: usize = 65;

/// One kind of signal.
pub(super) struct Kind {
    /// Set by the handler, taken away by the thread.
    marked: AtomicBool,
    /// How many were seen by the thread.
    pub(super) count: Sequencer,
    /// Whether there is a handler; also held while it is installed.
    handled: Mutex<bool>,
}

struct Post {
    kinds: [Kind; KINDS],
    /// An eventfd, on which the thread sleeps.
    bell: File,
}

static POST: OnceLock<Post> = OnceLock::new();
/// Whether its thread runs; also held while it is set up.
static STARTED: Mutex<bool> = Mutex::new(false);

/// Sees to it that signals of this kind are counted.
pub(super) fn listen(kind: SignalKind) -> io::Result<&'static Kind> {
    let number = kind.as_raw();
    let known = usize::try_from(number).is_ok_and(|number| (1..KINDS).contains(&number));
    if !known || signal_hook_registry::FORBIDDEN.contains(&number) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{kind:?} cannot be received"),
        ));
    }
    let post = post()?;
    let kind = &post.kinds[number as usize];
    let mut handled = kind.handled.lock().unwrap_or_else(PoisonError::into_inner);
    if !*handled {
        let bell = post.bell.as_raw_fd();
        // SAFETY: async-signal-safe: a store to a static, and a write. It does not panic.
        unsafe {
            signal_hook_registry::register(number, move || {
                // Release: who receives the signal sees what was done before it was
                // raised; pairs with the swap in `run`.
                kind.marked.store(true, Ordering::Release);
                let one = 1u64;
                // The counter would overflow after 2^64 rings, so it does not block; the
                // bell is never closed.
                libc::write(bell, (&raw const one).cast(), 8);
            })
        }?;
        *handled = true;
    }
    Ok(kind)
}

/// The post, with its thread.
fn post() -> io::Result<&'static Post> {
    process::assert_not_forked();
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
        let kind = |_| Kind {
            marked: AtomicBool::new(false),
            count: Sequencer::new(),
            handled: Mutex::new(false),
        };
        Ok(Self {
            kinds: std::array::from_fn(kind),
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
            for kind in &self.kinds {
                // Acquire: pairs with the handler. A swap, for a mark that comes
                // meanwhile must not be overwritten.
                if kind.marked.swap(false, Ordering::Acquire) {
                    // Calls wakers of tasks: user code.
                    quietly(|| {
                        kind.count.increment();
                    });
                }
            }
        }
    }
}
