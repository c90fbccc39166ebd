//! Handlers for signals that are messages, in front of those of others.
//!
//! One handler for all such signals. It calls one function of the layer above, and then
//! the handler that it replaced, as that wanted to be called. It runs on the thread's
//! alternate stack (`SA_ONSTACK`): a fiber may have less room left than the frame that the
//! kernel pushes, 3 KiB and more. A worker has such a stack; on a thread without one the
//! flag changes nothing.
//!
//! (The crate `signal-hook-registry` was used before. It has no `SA_ONSTACK`, and cannot
//! give a signal its former action back.)
//!
//! A handler that is installed after ours and calls the one it replaced keeps us in the
//! chain; one that does not shuts us out. [`restore`] touches the signal only while ours
//! is the one that is installed; if another one is in front and goes later, ours gives a
//! signal that nobody wants any more its default action when it comes.
//!
//! Invariant 1: a link holds what our handler replaced before that is called, and is
//! changed by its installer alone (who has a lock of its own for each signal).
//! Invariant 2: everything called from the handler is safe in a signal handler.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize};

/// Signals have numbers from 1 to 64.
pub(crate) const SIGNALS: usize = 65;

type InfoHandler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
type PlainHandler = unsafe extern "C" fn(c_int);

/// What our handler replaced, as the handler must know it. Never changed and never freed: a
/// handler may be reading it on any thread.
struct Link {
    handler: usize,
    flags: c_int,
    /// It wanted to be called once (`SA_RESETHAND`), and was.
    spent: AtomicBool,
}

/// By signal; null while ours was never installed. In one word, so that an address is never
/// called as the flags of another want it.
static LINKS: [AtomicPtr<Link>; SIGNALS] = [const { AtomicPtr::new(ptr::null_mut()) }; SIGNALS];
/// Hears of a signal; false if nobody wants it any more.
pub(crate) type OnSignal = fn(c_int) -> bool;
/// The [`OnSignal`], as an address.
static ON_SIGNAL: AtomicUsize = AtomicUsize::new(0);

/// Stores what ours replaces. Leaks some bytes each time that this differs from what it
/// replaced before.
fn set_link(at: &AtomicPtr<Link>, action: &libc::sigaction) {
    // Relaxed: a one-shot handler that is being called just now may be called once more, as
    // it would be had it been installed anew.
    let is_same = |link: &&Link| {
        let same = link.handler == action.sa_sigaction && link.flags == action.sa_flags;
        same && !link.spent.load(Relaxed)
    };
    if link(at).filter(is_same).is_some() {
        return;
    }
    let link = Box::new(Link {
        handler: action.sa_sigaction,
        flags: action.sa_flags,
        spent: AtomicBool::new(false),
    });
    // Release: the handler may run on any thread as soon as it is installed; pairs with the
    // Acquire in `link`.
    at.store(Box::into_raw(link), Release);
}

fn link(at: &AtomicPtr<Link>) -> Option<&'static Link> {
    // SAFETY: null, or from a box that is never freed; Acquire: pairs with `set_link`.
    unsafe { at.load(Acquire).as_ref() }
}

/// The action that a signal had before ours.
pub(crate) struct Former(libc::sigaction);

/// From now on `on_signal` hears of this signal first, on any thread, in a signal handler.
/// It is the same function in every call.
///
/// # Errors
///
/// The system's, for a signal that cannot be handled.
pub(crate) fn install(signal: c_int, on_signal: OnSignal) -> io::Result<Former> {
    ON_SIGNAL.store(on_signal as usize, Release);
    let at = usize::try_from(signal).ok().and_then(|at| LINKS.get(at));
    let at = at.ok_or(io::ErrorKind::InvalidInput)?;
    let mut former = action(signal, None)?;
    if is_ours(&former) {
        // It was shut out by one that has gone again; what it replaced is still known.
        let known = link(at);
        former.sa_sigaction = known.map_or(libc::SIG_DFL, |link| link.handler);
        former.sa_flags = known.map_or(0, |link| link.flags);
        return Ok(Former(former));
    }
    set_link(at, &former); // invariant 1
    // SAFETY: all-zero is a valid sigaction (with an empty mask).
    let mut ours: libc::sigaction = unsafe { mem::zeroed() };
    ours.sa_sigaction = our_address();
    ours.sa_mask = former.sa_mask;
    ours.sa_flags =
        libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART | kept_flags(signal, &former);
    let replaced = action(signal, Some(&ours))?;
    if replaced.sa_sigaction != former.sa_sigaction || replaced.sa_flags != former.sa_flags {
        set_link(at, &replaced); // somebody was quicker than us
        former = replaced;
    }
    Ok(Former(former))
}

/// What the former action asked of the kernel that still holds: the handler may be interrupted
/// by the same signal, and children that end leave nothing to wait for.
fn kept_flags(signal: c_int, former: &libc::sigaction) -> c_int {
    let ignores_children = signal == libc::SIGCHLD && former.sa_sigaction == libc::SIG_IGN;
    let no_zombies = if ignores_children {
        libc::SA_NOCLDWAIT
    } else {
        0
    };
    former.sa_flags & (libc::SA_NODEFER | libc::SA_NOCLDWAIT) | no_zombies
}

/// Whether the signal has its default action, or is ignored: then no handler of ours is
/// behind another one, and one that was installed was taken away.
pub(crate) fn was_taken_away(signal: c_int) -> io::Result<bool> {
    let now = action(signal, None)?.sa_sigaction;
    Ok(now == libc::SIG_DFL || now == libc::SIG_IGN)
}

/// Gives the signal the action back that ours replaced; false if ours is not the one that
/// is installed now, and stays behind it.
pub(crate) fn restore(signal: c_int, former: &Former) -> io::Result<bool> {
    if !is_ours(&action(signal, None)?) {
        return Ok(false);
    }
    let mut former = former.0;
    let link = usize::try_from(signal)
        .ok()
        .and_then(|at| LINKS.get(at))
        .and_then(link);
    // Relaxed: it may be called on another thread at this moment, and then once more.
    if link.is_some_and(|link| link.spent.load(Relaxed)) {
        former.sa_sigaction = libc::SIG_DFL; // as the kernel would have done
    }
    let replaced = action(signal, Some(&former))?;
    if is_ours(&replaced) {
        return Ok(true);
    }
    // Somebody was quicker than us, and has ours behind it.
    action(signal, Some(&replaced))?;
    Ok(false)
}

fn our_address() -> usize {
    let ours: InfoHandler = on_signal;
    ours as usize
}

fn is_ours(action: &libc::sigaction) -> bool {
    action.sa_sigaction == our_address()
}

/// Reads a signal's action, and replaces it if there is a new one.
fn action(signal: c_int, new: Option<&libc::sigaction>) -> io::Result<libc::sigaction> {
    // SAFETY: all-zero is a valid sigaction (SIG_DFL, empty mask).
    let mut old: libc::sigaction = unsafe { mem::zeroed() };
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: both point to a sigaction or are null. Handlers we install have
    // the signature that their flags promise.
    match unsafe { libc::sigaction(signal, new, &mut old) } {
        0 => Ok(old),
        _ => Err(io::Error::last_os_error()),
    }
}

unsafe extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: errno is this thread's own.
    let errno = unsafe { *libc::__errno_location() };
    let heard = ON_SIGNAL.load(Acquire);
    // SAFETY: it was stored from an `OnSignal` before we were installed.
    let heard: OnSignal = unsafe { mem::transmute(heard) };
    let wanted = heard(signal);
    // SAFETY: the arguments are those we were called with.
    unsafe { pass_on(signal, info, context, wanted) };
    // SAFETY: errno is this thread's own.
    unsafe { *libc::__errno_location() = errno };
}

/// Calls the handler that was there before ours, if there was one; else a signal that nobody
/// wants has its default action.
///
/// # Safety
///
/// The arguments are those of the signal being handled.
unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, wanted: bool) {
    let Some(link) = LINKS.get(signal as usize).and_then(link) else {
        return;
    };
    let (handler, flags) = (link.handler, link.flags);
    // Relaxed: of several threads one calls it, and nothing else depends on that.
    if flags & libc::SA_RESETHAND != 0 && link.spent.swap(true, Relaxed) {
        return;
    }
    match handler {
        libc::SIG_DFL if !wanted => act_by_default(signal),
        // The default would be to end, or nothing: who listens wants neither.
        libc::SIG_DFL | libc::SIG_IGN => {}
        _ if flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: with this flag the address was that of such a function, and it gets
            // what it would have got.
            unsafe { mem::transmute::<usize, InfoHandler>(handler)(signal, info, context) }
        }
        // SAFETY: as above, without the flag.
        _ => unsafe { mem::transmute::<usize, PlainHandler>(handler)(signal) },
    }
}

/// Takes ours away and raises the signal again, which is delivered when the handler returns;
/// unless another handler is in front of ours, whose matter it is then.
fn act_by_default(signal: c_int) {
    if !action(signal, None).is_ok_and(|now| is_ours(&now)) {
        return;
    }
    // SAFETY: all-zero is a valid sigaction (SIG_DFL, empty mask).
    let default: libc::sigaction = unsafe { mem::zeroed() };
    if action(signal, Some(&default)).is_ok() {
        // SAFETY: no pointers; allowed in a signal handler.
        unsafe { libc::raise(signal) };
    }
}
