//! Faults: hearing of them first, and passing on what is not ours.
//!
//! One handler for `SIGSEGV` and `SIGBUS` per process. It asks a function
//! whether the fault is ours; that function then ends the process. Any other
//! fault goes to whoever had the signal before, as if we were not there:
//!
//! | before us           | a fault                   | sent by `kill`       |
//! |---------------------|---------------------------|----------------------|
//! | a handler           | called, as it wanted      | called               |
//! | `SIG_DFL`           | default restored, return: | default restored,    |
//! |                     | it faults again and dies  | raised again: dies   |
//! | `SIG_IGN`           | as `SIG_DFL` (the kernel  | ignored              |
//! |                     | never ignores a fault)    |                      |
//!
//! A handler that installs itself after us and does not chain shuts us out;
//! then overflows look as they do without us.
//!
//! The handler needs a stack of its own, since a fiber that overflowed has
//! none left: each worker installs an [`AltStack`]. std's has 8 KiB, too little
//! for a backtrace.
//!
//! Invariant 1: `PREVIOUS` is filled before our handler is installed, and is
//! what that handler replaced.
//! Invariant 2: everything called from the handler is safe in a signal handler
//! until [`last_words`]; after it, it may hang or fault, and the process ends.

use std::ffi::{c_int, c_uint, c_void};
use std::io;
use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::Acquire, Ordering::Release};
use std::sync::{Mutex, PoisonError};

use super::log;
use super::map::{Mapping, Span, page_size, protect};

/// What we handle.
const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];
/// Ways the attempt to say more can end.
const FATAL: [c_int; 5] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGALRM,
];
/// What the kernel says of a fault that has no address.
const SI_KERNEL: c_int = 0x80;
/// Asks the kernel how large the frame of a signal may be.
const AT_MINSIGSTKSZ: libc::c_ulong = 51;
/// Usable bytes of an [`AltStack`]: a symbolised backtrace of an unoptimised
/// build worked with 32 KiB and failed with 16; the rest is for chained
/// handlers and bigger programs, and untouched pages cost nothing.
const ALT_BYTES: usize = 256 << 10;

type InfoHandler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
type PlainHandler = unsafe extern "C" fn(c_int);

/// What is known of a fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    /// The address that was touched. None if the kernel tells none: it could not push the
    /// frame of a signal onto the stack, or an instruction was at fault.
    pub(crate) address: Option<usize>,
    /// The stack pointer at that moment; none if it is not known how to find it here.
    pub(crate) stack_pointer: Option<usize>,
}

/// What was there before us.
struct Previous {
    handler: AtomicUsize,
    flags: AtomicI32,
}

// Release on store and Acquire on load throughout: the handler may run on any
// thread as soon as it is installed. (The sigaction call between them orders
// them anyway; saying so costs nothing here.)
static PREVIOUS: [Previous; 2] = [const { Previous::unset() }; 2];
/// The `fn(&Fault)` that knows our faults, as an address.
static ON_FAULT: AtomicUsize = AtomicUsize::new(0);

impl Previous {
    const fn unset() -> Previous {
        Previous {
            handler: AtomicUsize::new(libc::SIG_DFL),
            flags: AtomicI32::new(0),
        }
    }

    fn set(&self, action: &libc::sigaction) {
        self.flags.store(action.sa_flags, Release);
        self.handler.store(action.sa_sigaction, Release);
    }
}

/// From now on `on_fault` hears of each fault first. It ends the
/// process if the fault is ours, and returns if not. Later calls do nothing.
///
/// `on_fault` runs in a signal handler, on any thread, with whatever that
/// thread was doing half done.
pub(crate) fn install(on_fault: fn(&Fault)) -> io::Result<()> {
    static INSTALLED: Mutex<bool> = Mutex::new(false);
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if *installed {
        return Ok(());
    }
    ON_FAULT.store(on_fault as usize, Release);
    for (signal, previous) in SIGNALS.into_iter().zip(&PREVIOUS) {
        let old = action(signal, None)?;
        previous.set(&old); // invariant 1
        let mut ours = old;
        let ours_fn: InfoHandler = on_signal;
        ours.sa_sigaction = ours_fn as usize;
        // What the old handler wanted blocked, and whether it wanted system
        // calls restarted, stays; `sa_mask` is copied with `old`.
        ours.sa_flags = libc::SA_SIGINFO
            | libc::SA_ONSTACK
            | (old.sa_flags & (libc::SA_RESTART | libc::SA_NODEFER));
        let replaced = action(signal, Some(&ours))?;
        if replaced.sa_sigaction != old.sa_sigaction {
            previous.set(&replaced); // somebody was quicker than us
        }
    }
    *installed = true;
    Ok(())
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
    // SAFETY: the kernel hands a valid siginfo to an SA_SIGINFO handler, and
    // errno is this thread's own.
    let (code, address, errno) = unsafe {
        (
            (*info).si_code,
            (*info).si_addr() as usize,
            *libc::__errno_location(),
        )
    };
    // Positive: from the kernel. Else it was sent, and has no address.
    let fault = code > 0;
    if fault {
        let on_fault = ON_FAULT.load(Acquire);
        // SAFETY: it was stored from a `fn(&Fault)` before we were installed.
        let on_fault: fn(&Fault) = unsafe { mem::transmute(on_fault) };
        on_fault(&Fault {
            address: (code != SI_KERNEL).then_some(address),
            // SAFETY: the context is what the kernel gave us.
            stack_pointer: unsafe { stack_pointer(context) },
        });
    }
    // SAFETY: the arguments are those we were called with.
    unsafe { pass_on(signal, fault, info, context) };
    // SAFETY: errno is this thread's own.
    unsafe { *libc::__errno_location() = errno };
}

/// The stack pointer of the code that a signal has interrupted.
///
/// # Safety
///
/// `context` is that of the signal being handled.
unsafe fn stack_pointer(context: *mut c_void) -> Option<usize> {
    // SAFETY: the kernel hands a `ucontext_t` to an SA_SIGINFO handler.
    let context = unsafe { context.cast::<libc::ucontext_t>().as_ref() }?;
    #[cfg(target_arch = "x86_64")]
    return Some(context.uc_mcontext.gregs[libc::REG_RSP as usize] as usize);
    #[cfg(target_arch = "aarch64")]
    return Some(context.uc_mcontext.sp as usize);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return None;
}

/// How much of a stack the kernel needs to run a signal handler on it.
pub(crate) fn signal_frame_bytes() -> usize {
    // SAFETY: no pointers.
    let bytes = unsafe { libc::getauxval(AT_MINSIGSTKSZ) } as usize;
    // An old kernel does not tell: as much as is known of any CPU.
    if bytes == 0 { 16 << 10 } else { bytes }
}

/// Does what would have happened without us; see the table above.
///
/// # Safety
///
/// `info` and `context` are those of the signal being handled.
unsafe fn pass_on(signal: c_int, fault: bool, info: *mut libc::siginfo_t, context: *mut c_void) {
    let previous = &PREVIOUS[usize::from(signal != SIGNALS[0])];
    let (handler, flags) = (previous.handler.load(Acquire), previous.flags.load(Acquire));
    match handler {
        libc::SIG_IGN if !fault => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            set_handler(signal, libc::SIG_DFL);
            if !fault {
                // Blocked until we return, and then deadly.
                // SAFETY: raise takes no pointers.
                unsafe { libc::raise(signal) };
            }
        }
        _ => {
            if flags & libc::SA_RESETHAND != 0 {
                set_handler(signal, libc::SIG_DFL);
            }
            if flags & libc::SA_SIGINFO != 0 {
                // SAFETY: with this flag the address was that of such a
                // function, and it gets what it would have got.
                unsafe { mem::transmute::<usize, InfoHandler>(handler)(signal, info, context) }
            } else {
                // SAFETY: as above, without the flag.
                unsafe { mem::transmute::<usize, PlainHandler>(handler)(signal) }
            }
        }
    }
}

fn set_handler(signal: c_int, handler: usize) {
    // SAFETY: all-zero is a valid sigaction (SIG_DFL, empty mask).
    let mut new: libc::sigaction = unsafe { mem::zeroed() };
    new.sa_sigaction = handler;
    new.sa_flags = libc::SA_ONSTACK;
    // Refused only for signals that cannot be caught.
    let _ = action(signal, Some(&new));
}

/// Prepares for things that a signal handler must not do: from now on the
/// process aborts when any thread faults, and in any case after `seconds`.
///
/// Only one thread gets past this; others wait here for the end.
pub(crate) fn last_words(seconds: c_uint) {
    static SPEAKING: AtomicBool = AtomicBool::new(false);
    // Acquire, Release: nothing is handed over; one swap lets one thread pass.
    while SPEAKING.swap(true, std::sync::atomic::Ordering::AcqRel) {
        // SAFETY: pause takes nothing.
        unsafe { libc::pause() };
    }
    let give_up: PlainHandler = give_up;
    // SAFETY: all-zero is a valid sigset, and the calls get valid pointers.
    unsafe {
        let mut set: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in FATAL {
            set_handler(signal, give_up as usize);
            libc::sigaddset(&mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, ptr::null_mut());
        libc::alarm(seconds);
    }
}

unsafe extern "C" fn give_up(_signal: c_int) {
    // The write may be what the alarm came for.
    if !log::would_wait() {
        write_stderr(b"  (the backtrace failed)\n");
    }
    abort();
}

/// Ends the process by `SIGABRT`, even if that is caught or blocked.
pub(crate) fn abort() -> ! {
    set_handler(libc::SIGABRT, libc::SIG_DFL);
    // SAFETY: abort takes nothing; it unblocks the signal itself.
    unsafe { libc::abort() }
}

/// Writes to stderr with nothing between us and the kernel.
pub(crate) fn write_stderr(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        // SAFETY: the pointer and length are those of a slice.
        let rc = unsafe { libc::write(2, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(rc) {
            Ok(0) => return,
            Ok(written) => bytes = &bytes[written..],
            Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return, // nobody listens
        }
    }
}

/// A stack for this thread's signal handlers: 256 KiB above a guard page.
///
/// Dropped on the same thread (it is not `Send`), it brings back what was there.
#[derive(Debug)]
pub(crate) struct AltStack {
    /// Unmapped by `drop` once the kernel has let go of it.
    memory: ManuallyDrop<Mapping>,
    old: libc::stack_t,
    _same_thread: PhantomData<*mut ()>,
}

impl AltStack {
    /// Installs one for the calling thread.
    pub(crate) fn install() -> io::Result<AltStack> {
        let guard = page_size();
        let memory = Mapping::reserve(ALT_BYTES + guard, guard)?;
        // SAFETY: the page is the low end of our own mapping.
        unsafe {
            protect(Span {
                start: memory.start(),
                len: guard,
            })?
        };
        let new = libc::stack_t {
            ss_sp: (memory.start() + guard) as *mut c_void,
            ss_flags: 0,
            ss_size: ALT_BYTES,
        };
        let old = swap(&new)?;
        Ok(AltStack {
            memory: ManuallyDrop::new(memory),
            old,
            _same_thread: PhantomData,
        })
    }
}

impl Drop for AltStack {
    fn drop(&mut self) {
        // SAFETY: all-zero is a valid stack_t.
        let mut now: libc::stack_t = unsafe { mem::zeroed() };
        // SAFETY: the one pointer is valid, the other null: only read.
        unsafe { libc::sigaltstack(ptr::null(), &mut now) };
        let ours = now.ss_sp as usize == self.memory.start() + page_size();
        // If it is not ours, somebody put theirs above and may bring ours back
        // later. If the swap fails, we run on it. Both are odd, and then it
        // stays mapped.
        if ours && swap(&self.old).is_ok() {
            // SAFETY: `self` ends here, so that nobody uses the field again.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

fn swap(new: &libc::stack_t) -> io::Result<libc::stack_t> {
    // SAFETY: all-zero is a valid stack_t.
    let mut old: libc::stack_t = unsafe { mem::zeroed() };
    // SAFETY: both pointers are valid; `new` is a mapping that outlives its
    // use, or what was installed before.
    match unsafe { libc::sigaltstack(new, &mut old) } {
        0 => Ok(old),
        _ => Err(io::Error::last_os_error()),
    }
}
