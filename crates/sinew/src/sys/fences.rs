//! A pair of fences, one of which costs nothing.
//!
//! Two threads that each write one word and then read the other's must not both
//! read the old value. Usually each needs a full fence between the two, which
//! costs as much as a read-modify-write: 6 ns here. If one side is much rarer, it
//! can pay for both: [`heavy`] asks the kernel to make every thread of this
//! process that runs just now execute a full fence (`membarrier`: 0.1 µs if no
//! other thread runs, less than 5 µs if one does), so
//! [`light`] need only keep the compiler from changing the order.
//!
//! Where the kernel does not offer that, `light` is a full fence. A filter of
//! system calls must refuse `membarrier` with an error, not kill the process or feign
//! success.
//!
//! Invariant (agreed): `light` is light only after the kernel has registered this
//! process; from then on `heavy` either reaches every thread or says that it did
//! not.
//!
//! What may come in between, and why the invariant holds all the same:
//!
//! * A filter of system calls that was installed after the registration, on one thread
//!   or on all: the caller's own call fails, so `heavy` returns false to this caller.
//! * Want of memory in the kernel (`ENOMEM`): likewise.
//! * CPUs that come and go: the kernel holds off their changes during the call, and a
//!   thread that is switched in executes a full fence by that.
//! * A registration by another thread while this one is refused: `REGISTERED` is changed
//!   and looked at by read-modify-writes only, so one of the two comes first. If `heavy`
//!   does, what its caller wrote happens before the registration, and by that before
//!   every `light` that is light. If not, it sees the registration and returns false.

use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

/// Whether the kernel has registered this process.
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Asks the kernel to serve [`heavy`] in this process; called when a runtime
/// starts.
pub(crate) fn register() {
    if membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) {
        // Release: pairs with `light`. Acquire, and a read-modify-write: a `heavy` that
        // found nobody registered comes before, with what its caller wrote.
        REGISTERED.swap(true, Ordering::AcqRel);
    }
}

/// The side that is often taken: between its write and its read.
#[inline]
pub(crate) fn light() {
    // Acquire: what we read next is not read before this, or it might be older
    // than a count whose owner found that nobody was registered yet.
    if REGISTERED.load(Ordering::Acquire) {
        // SeqCst: the compiler moves neither of the two across.
        compiler_fence(Ordering::SeqCst);
        return;
    }
    // SeqCst: pairs with the one in `heavy`.
    fence(Ordering::SeqCst);
}

/// The side that is seldom taken: between its write and its read. False if it is
/// not certain that the other side reads what was written: then look again, some
/// time later.
#[cold]
#[must_use = "if it failed, whoever waits for the other side must look again by itself"]
pub(crate) fn heavy() -> bool {
    // SeqCst: pairs with the one in `light`.
    fence(Ordering::SeqCst);
    let reach_all = || membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    // Always tried: others may be told to be light while we are here. If the
    // kernel does not serve us though it has registered us (a filter of system
    // calls was installed since), say so.
    reach_all()
        || {
            register();
            reach_all()
        }
        // If nobody could register us then nobody is light. Release, and a
        // read-modify-write that changes nothing: what our caller wrote comes before a
        // registration that comes now; pairs with `register`.
        || !REGISTERED.fetch_or(false, Ordering::AcqRel)
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes no addresses.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Has the kernel refuse `membarrier` to the calling thread from now on.
#[cfg(test)]
pub(super) fn refuse_on_this_thread() {
    const LOAD_NUMBER: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut steps = [
        step(LOAD_NUMBER, 0, 0, 0),
        step(IF_EQUAL, 0, 1, libc::SYS_membarrier as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the second takes a program, which is there; both only take rights away
    // from this thread.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &program), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::{heavy, light, refuse_on_this_thread, register};
    use std::sync::atomic::{AtomicU32, Ordering};

    const ROUNDS: usize = 20_000;

    /// One round's word of one side, on a cache line of its own.
    #[derive(Default)]
    #[repr(align(64))]
    struct Word(AtomicU32);

    impl Word {
        fn many() -> Vec<Self> {
            (0..ROUNDS).map(|_| Self::default()).collect()
        }
    }

    /// Says that this side begins a round, and waits until the other does.
    fn meet(mine: &AtomicU32, others: &AtomicU32, round: usize) {
        let round = round as u32 + 1;
        mine.store(round, Ordering::SeqCst);
        let mut looks = 0;
        while others.load(Ordering::SeqCst) < round {
            looks += 1;
            if looks % 1000 == 0 {
                std::thread::yield_now(); // there may be one CPU for both
            }
        }
    }

    #[test]
    fn a_thread_whose_fence_is_refused_after_the_registration_is_told_so() {
        register();
        assert!(heavy());
        let refused = std::thread::spawn(|| {
            refuse_on_this_thread();
            heavy()
        });
        assert!(!refused.join().unwrap());
        assert!(heavy()); // the filter is that thread's alone
    }

    /// Without the heavy fence, or without both, 14 to 63 rounds of 20 000 fail on
    /// two CPUs.
    #[test]
    fn of_two_who_write_and_then_look_one_sees_the_other() {
        register();
        let (often, seldom) = (Word::many(), Word::many());
        let (a, b) = (AtomicU32::new(0), AtomicU32::new(0));
        let side = |mine: &[Word], others: &[Word], at: [&AtomicU32; 2], fence: &dyn Fn()| {
            (0..ROUNDS)
                .map(|round| {
                    meet(at[0], at[1], round);
                    mine[round].0.store(1, Ordering::Relaxed);
                    fence();
                    others[round].0.load(Ordering::Relaxed)
                })
                .collect::<Vec<u32>>()
        };
        let (one, other) = std::thread::scope(|scope| {
            let one = scope.spawn(|| side(&often, &seldom, [&a, &b], &light));
            let other = side(&seldom, &often, [&b, &a], &|| assert!(heavy()));
            (one.join().unwrap(), other)
        });
        let missed = (0..ROUNDS).filter(|&round| one[round] + other[round] == 0);
        assert_eq!(missed.count(), 0);
    }
}
